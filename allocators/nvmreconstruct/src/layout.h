/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - the media.
 *
 *   heap.N   pages. No type crosses one (section 4.2: "no object can cross a block boundary"). The first are roots, words that
 *            point to objects; each other one holds slots of one size, or is the first of a run that one object with a long
 *            tail has. In front of an object: its Header.
 *   meta     Meta; the undo copy of one page; a PageWord for each page; room for EXECUTION_SLOTS records of executions.
 *
 * Nothing in meta is an address but what a record says of its execution: the redo record has offsets (section 5.1).
 */
#ifndef NVRECONSTRUCT_LAYOUT_H
#define NVRECONSTRUCT_LAYOUT_H

#include <array>
#include <cstddef>
#include <cstdint>

#include "nvreconstruct.h"

#ifndef NVR_PAGE_BYTES
#define NVR_PAGE_BYTES 4096
#endif
#ifndef NVR_EXECUTION_SLOTS
#define NVR_EXECUTION_SLOTS 16
#endif
#ifndef NVR_EXECUTION_BYTES
#define NVR_EXECUTION_BYTES 16384
#endif

namespace nv {

constexpr uint64_t PAGE_BYTES = NVR_PAGE_BYTES, EXECUTION_SLOTS = NVR_EXECUTION_SLOTS, EXECUTION_BYTES = NVR_EXECUTION_BYTES;
constexpr uint64_t LINE_BYTES = 64, META_MAGIC = 0x31636572766e2a2a;

/* Slots of a page, by class. */
constexpr std::array<uint32_t, 15> ALL_COUNTS{1, 2, 3, 4, 5, 6, 8, 10, 16, 21, 32, 42, 64, 85, 128};
constexpr uint32_t SMALLEST_SLOT_BYTES = 32;
constexpr uint32_t slot_bytes_of(uint32_t slot_class) { return PAGE_BYTES / ALL_COUNTS[slot_class] & ~7u; }
constexpr uint32_t count_classes() {
    uint32_t count = 0;
    while (count < ALL_COUNTS.size() && slot_bytes_of(count) >= SMALLEST_SLOT_BYTES)
        count++;
    return count;
}
constexpr uint32_t CLASSES = count_classes();
/* The class of the smallest slots that hold so many bytes, header included: at most a page. */
constexpr uint32_t class_for(uint64_t bytes) {
    uint32_t slot_class = CLASSES - 1;
    while (slot_class > 0 && slot_bytes_of(slot_class) < bytes)
        slot_class--;
    return slot_class;
}

/* type << 32 | bytes << 1 | is live. Bytes without the header. */
struct Header {
    uint64_t word;
    bool is_live() const { return word & 1; }
    uint32_t type() const { return static_cast<uint32_t>(word >> 32); }
    uint64_t bytes() const { return static_cast<uint32_t>(word) >> 1; }
    static Header of(uint32_t type, uint64_t bytes) { return {uint64_t{type} << 32 | bytes << 1 | 1}; }
};
constexpr uint64_t MAX_OBJECT_BYTES = UINT32_MAX >> 1, MAX_TYPE_BYTES = PAGE_BYTES - sizeof(Header);

enum class PageKind : uint8_t { FREE, ROOTS, RUN, SLOTS /* + class */ };

/* One store says what a page holds and of which execution its pointers are. */
struct PageWord {
    uint64_t word;
    uint32_t execution() const { return static_cast<uint32_t>(word); }
    PageKind kind() const { return static_cast<PageKind>(word >> 32 & 0xff); }
    bool has_slots() const { return kind() >= PageKind::SLOTS; }
    uint32_t slot_class() const { return static_cast<uint32_t>(kind()) - static_cast<uint32_t>(PageKind::SLOTS); }
    uint32_t run_pages() const { return static_cast<uint32_t>(word >> 40); } /* RUN */
    static PageWord of(PageKind kind, uint64_t execution, uint64_t run_pages = 0) {
        return {execution | static_cast<uint64_t>(kind) << 32 | run_pages << 40};
    }
    static PageWord of_slots(uint32_t slot_class, uint64_t execution) {
        return of(static_cast<PageKind>(static_cast<uint32_t>(PageKind::SLOTS) + slot_class), execution);
    }
    PageWord in(uint64_t execution) const { return {(word & ~UINT64_C(0xffffffff)) | execution}; }
};
static_assert(static_cast<uint32_t>(PageKind::SLOTS) + CLASSES <= 0x100);

/* What happens together: words of the heap file that are set. count is the last in a line, so it is persisted after them. */
struct Change {
    struct Store {
        uint64_t destination; /* offset; | 1: value is an offset, too, and an address is stored */
        uint64_t value;
    } stores[3];
    uint64_t count; /* 0: nothing is pending */
    uint64_t unused;
};
static_assert(sizeof(Change) == LINE_BYTES);

struct Undo {
    uint64_t page_and_1; /* 0: there is none */
    PageWord word;       /* the page's: if it has another one, the page is finished */
    uint64_t unused[6];
    uint8_t copy[PAGE_BYTES];
};

struct Meta {
    uint64_t magic; /* the last word of a creation: 0 before it */
    uint64_t page_bytes, page_count, root_count;
    uint64_t generation; /* of the heap file: its N */
    uint64_t execution_bytes, execution_slots, unused;
    Change change;
    Undo undo;
    PageWord words[];

    /* Of a file of zeros: all but magic and words. */
    void begin(uint64_t pages, uint64_t roots, uint64_t number) {
        page_bytes = PAGE_BYTES;
        page_count = pages;
        root_count = roots;
        generation = number;
        execution_bytes = EXECUTION_BYTES;
        execution_slots = EXECUTION_SLOTS;
    }
};
static_assert(offsetof(Meta, change) == LINE_BYTES && offsetof(Meta, words) % LINE_BYTES == 0);

/* The record of an execution: this, then its types, fields, modules and functions. */
struct Execution {
    uint64_t number; /* the last word that is stored; 0: the slot is free */
    uint64_t heap_base;
    uint32_t type_count, field_count, module_count, function_count;
};
struct TypeRecord {
    uint32_t name, bytes, first_field, field_count;
};
struct ModuleRecord {
    uint64_t build, base, bytes; /* build: the same for two that are the same file */
};
struct FunctionRecord {
    uint64_t name, address;
};

constexpr uint64_t up_to(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
constexpr uint64_t executions_offset(uint64_t page_count) {
    return up_to(sizeof(Meta) + page_count * sizeof(PageWord), LINE_BYTES);
}
constexpr uint64_t meta_bytes(uint64_t page_count) {
    return up_to(executions_offset(page_count) + EXECUTION_SLOTS * EXECUTION_BYTES, 4096);
}

} // namespace nv
#endif
