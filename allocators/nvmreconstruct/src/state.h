/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h - an open heap in DRAM, and who does what with it:
 *
 *   heap.cpp         files, create, open, close, what the program calls
 *   pages.cpp        which slots and pages are free; the redo record
 *   reconstruct.cpp  executions, the undo copy, one page's objects (section 4.2)
 *   trap.cpp         pages that are reconstructed when they are first accessed
 *   compact.cpp      a new file without garbage and holes, and with types as they are now (section 4.3)
 */
#ifndef NVRECONSTRUCT_STATE_H
#define NVRECONSTRUCT_STATE_H

#include <csignal>
#include <mutex>
#include <set>
#include <string>

#include "persist.h"
#include "program.h"

namespace nv {

Status fail(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A mapped file. */
struct Mapping {
    char *base = nullptr;
    uint64_t bytes = 0;
    void unmap();
};

/* What a page has of volatile state. */
struct Page {
    uint32_t used = 0;          /* slots that are live or reserved */
    std::vector<bool> is_used;  /* slots */
};

struct Heap::State {
    std::string folder, heap_file_name;
    Mode mode = Mode::EAGER;
    Program program;
    Mapping meta_file, heap_file;
    Mapping behind;      /* TRAPPING: the heap's file once more, always accessible */
    Meta *meta = nullptr;
    uint64_t execution_number = 0;
    uint64_t next_stale = 0;   /* step: pages before it are of this execution */
    std::vector<PastExecution> executions;   /* by slot of the record; number 0: none */
    std::recursive_mutex lock; /* a trap may come while it is held */

    std::vector<bool> is_trapped; /* pages */
    struct sigaction before{}; /* what handled SIGSEGV */

    std::map<uint64_t, Header> reserved; /* by offset of the object: the header that it gets when it is published */
    std::vector<Page> pages;
    std::set<uint32_t> empty;                 /* pages without a used slot */
    std::set<uint32_t> with_room[CLASSES];    /* pages of the class with a used and a free slot */

    /* ---- places ---- */
    char *base() const { return heap_file.base; }
    uint64_t page_count() const { return meta->page_count; }
    uint64_t root_pages() const { return up_to(meta->root_count * sizeof(uint64_t), PAGE_BYTES) / PAGE_BYTES; }
    /* By which reconstruction and what looks at pages of earlier executions go. */
    char *inner(uint64_t offset) const { return (behind.base != nullptr ? behind.base : heap_file.base) + offset; }
    uint64_t &word_at(uint64_t offset) const { return *reinterpret_cast<uint64_t *>(inner(offset)); }
    Header header(uint32_t page, uint32_t slot) const { return {word_at(page * PAGE_BYTES + slot * uint64_t{slot_bytes(page)})}; }
    bool is_in_heap(const void *place) const {
        return static_cast<uint64_t>(static_cast<const char *>(place) - base()) < heap_file.bytes;
    }
    Execution *record(uint64_t slot) const {
        return reinterpret_cast<Execution *>(meta_file.base + executions_offset(page_count()) + slot * EXECUTION_BYTES);
    }
    uint32_t slot_bytes(uint32_t page) const {
        return meta->words[page].has_slots() ? slot_bytes_of(meta->words[page].slot_class()) : PAGE_BYTES;
    }
    uint32_t slot_count(uint32_t page) const {
        PageWord word = meta->words[page];
        return word.has_slots() ? ALL_COUNTS[word.slot_class()] : word.kind() == PageKind::RUN ? 1 : 0;
    }
    /* How many pages what begins here has: more than one where a run's object lives. */
    uint32_t span(uint32_t page) const;
    bool is_live(uint32_t page) const; /* it has an object, or a root that is set */
    /* Bytes that the slots of the page, which is the first of its run, have room for. */
    uint64_t room(uint32_t page) const {
        PageWord word = meta->words[page];
        return (word.kind() == PageKind::RUN ? word.run_pages() * PAGE_BYTES : slot_bytes(page)) - sizeof(Header);
    }
    /* Every live object: visit(page, slot, header). */
    template <typename Visit> void visit_objects(Visit &&visit) const {
        for (auto page = static_cast<uint32_t>(root_pages()); page < page_count(); page += span(page))
            for (uint32_t slot = 0; slot < slot_count(page); slot++)
                if (Header found = header(page, slot); found.is_live())
                    visit(page, slot, found);
    }

    /* ---- heap.cpp ---- */
    Status load(const Options &options); /* files are mapped, what was pending is done or undone */
    void unload();
    void commit(const Change::Store *stores, uint64_t count);
    std::string path(const char *name) const { return folder + "/" + name; }
    std::string heap_name(uint64_t generation) const { return "heap." + std::to_string(generation); }

    /* ---- pages.cpp ---- */
    void learn_pages();
    Status find_slot(uint64_t bytes, uint32_t *page, uint32_t *slot);
    Status find_run(uint64_t bytes, uint32_t *page);
    void take(uint32_t page, uint32_t slot);
    void give_back(uint64_t offset); /* of an object */
    void redo();
    void apply(const Change::Store *stores, uint64_t count);
    void set_page(uint32_t page, PageWord word);

    /* ---- reconstruct.cpp ---- */
    void undo();
    Status begin_execution();
    uint64_t newest_execution() const; /* 0: there was none */
    bool is_of_now(uint32_t page) const { return meta->words[page].execution() == execution_number; }
    void ensure(uint32_t page);   /* it is of this execution */
    Status reconstruct(uint32_t page);
    const PastExecution *execution_of(uint32_t page) const;
    bool needs_compaction() const;

    /* ---- trap.cpp ---- */
    Status set_traps();
    void open_page(uint32_t page);
    void remove_traps();
};

/* compact.cpp: heap's file and meta anew, by what they are mapped as; the heap is not used before it is opened again. */
Status compact(Heap::State &heap, uintptr_t address);

/* heap.cpp */
Status make_file(const std::string &path, uint64_t bytes); /* zero, with all its space */
void sync_folder(const std::string &folder);
Status map_file(const std::string &path, uintptr_t address, Mapping *mapping);
constexpr uint64_t MAPPING_UNIT = 1 << 20;
/* Where the next file goes; 0: anywhere. */
inline uintptr_t after(uintptr_t address, const Mapping &mapping) {
    return address == 0 ? 0 : address + up_to(mapping.bytes, MAPPING_UNIT);
}

} // namespace nv
#endif
