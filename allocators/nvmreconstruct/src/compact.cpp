/* SPDX-License-Identifier: Apache-2.0
 *
 * compact.cpp - the heap anew (section 4.3): what the roots reach is copied into a second file, object behind object, each with the
 * fields that its type has now. The old file is only read, so power may fail at any moment: one rename makes the new one the heap.
 *
 * Objects of several executions are read as the records of their pages say. The copies are of an execution of their own.
 */
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "stage.h"
#include "state.h"

namespace nv {

namespace {

/* An object of the old heap, and where it goes. */
struct Moved {
    uint64_t from, to; /* offsets of the object */
    uint64_t bytes;    /* there */
};

class Compaction {
  public:
    explicit Compaction(Heap::State &heap);
    Status mark();
    Status place();
    bool is_done() const; /* the heap is as the compaction would leave it */
    Status copy(uintptr_t address);

  private:
    uint64_t object_of(uint64_t page, uint64_t word) const; /* offset of the object that a word of the page points to; 0: none */
    Header header_of(uint64_t object) const { return {heap.word_at(object - sizeof(Header))}; }
    Status mark_object(uint64_t object);
    Status copy_object(const Moved &moved, char *to_base);
    uint64_t forwarded(uint64_t page, uint64_t word, const char *to_base) const;
    uint64_t next_page(uint64_t pages);

    Heap::State &heap;
    std::vector<uint32_t> first; /* by page: where what it holds begins */
    std::map<uint64_t, Moved> objects; /* reached, by offset */
    std::vector<uint64_t> to_do;
    std::vector<PageWord> words;
    uint64_t used_pages, execution;
};

Compaction::Compaction(Heap::State &heap)
    : heap(heap), first(heap.page_count()), used_pages(heap.root_pages()), execution(heap.newest_execution() + 1) {
    for (uint32_t page = 0; page < heap.page_count();) {
        uint32_t span = heap.span(page);
        std::fill_n(first.begin() + page, span, page);
        page += span;
    }
    words.assign(heap.page_count(), {0});
    for (uint64_t page = 0; page < heap.root_pages(); page++)
        words[page] = PageWord::of(PageKind::ROOTS, execution);
}

/* ---- what is reached ---- */

uint64_t Compaction::object_of(uint64_t page, uint64_t word) const {
    const PastExecution *past = heap.execution_of(static_cast<uint32_t>(page));
    uint64_t offset = past == nullptr ? UINT64_MAX : word - past->heap_base;
    if (offset >= heap.heap_file.bytes || offset / PAGE_BYTES < heap.root_pages())
        return 0;
    uint32_t start = first[offset / PAGE_BYTES];
    uint64_t slot_bytes = heap.slot_bytes(start);
    bool is_run = heap.meta->words[start].kind() == PageKind::RUN;
    uint64_t slot = is_run ? 0 : offset % PAGE_BYTES / slot_bytes;
    if (slot >= heap.slot_count(start) || !heap.header(start, static_cast<uint32_t>(slot)).is_live())
        return 0;
    return start * PAGE_BYTES + slot * slot_bytes + sizeof(Header);
}

Status Compaction::mark() {
    for (uint64_t offset = 0; offset < heap.root_pages() * PAGE_BYTES; offset += sizeof(uint64_t)) {
        if (uint64_t object = object_of(offset / PAGE_BYTES, heap.word_at(offset)))
            to_do.push_back(object);
    }
    while (!to_do.empty()) {
        uint64_t object = to_do.back();
        to_do.pop_back();
        if (!objects.try_emplace(object, Moved{object, 0, 0}).second)
            continue;
        if (Status status = mark_object(object); status != Status::OK)
            return status;
    }
    return Status::OK;
}

Status Compaction::mark_object(uint64_t object) {
    uint64_t page = object / PAGE_BYTES;
    const PastExecution *past = heap.execution_of(static_cast<uint32_t>(page));
    const TypeRecord *then = past == nullptr ? nullptr : past->type(header_of(object).type());
    const KnownType *now = heap.program.type(header_of(object).type());
    if (then != nullptr && (header_of(object).bytes() < then->bytes || header_of(object).bytes() > heap.room(first[page])))
        return fail(Status::CORRUPT, "an object's header says that it has %llu bytes",
                    static_cast<unsigned long long>(header_of(object).bytes()));
    if (then == nullptr || now == nullptr)
        return fail(Status::NO_TYPES, "an object's type (%08x) is in no table of this program", header_of(object).type());
#ifdef MUTANT_UPGRADED_SIZE_IGNORED
    objects[object].bytes = header_of(object).bytes();
#else
    objects[object].bytes = header_of(object).bytes() - then->bytes + now->type->bytes;
#endif
    for (const Field *field = past->fields(*then); field < past->fields(*then) + then->field_count; field++) {
        if (field->kind != Kind::POINTER)
            continue;
#ifdef MUTANT_FIELD_NOT_MARKED
        if (field->name == name_hash("fields[1]"))
            continue;
#endif
        if (uint64_t target = object_of(page, heap.word_at(object + field->offset)))
            to_do.push_back(target);
    }
    return Status::OK;
}

/* ---- where it goes ---- */

uint64_t Compaction::next_page(uint64_t pages) {
#ifdef MUTANT_PAGE_LOST
    used_pages++;
#endif
    uint64_t page = used_pages;
    used_pages += pages;
    return page;
}

Status Compaction::place() {
    std::array<std::pair<uint64_t, uint32_t>, CLASSES> open{}; /* page and slots in use; 0: none */
    for (auto &[from, moved] : objects) {
        uint64_t whole = moved.bytes + sizeof(Header);
        if (whole > PAGE_BYTES) {
            uint64_t pages = up_to(whole, PAGE_BYTES) / PAGE_BYTES, page = next_page(pages);
            if (used_pages <= heap.page_count())
                words[page] = PageWord::of(PageKind::RUN, execution, pages);
            moved.to = page * PAGE_BYTES + sizeof(Header);
        } else {
            uint32_t slot_class = class_for(whole);
            auto &[page, slots] = open[slot_class];
            if (page == 0 || slots == ALL_COUNTS[slot_class]) {
                page = next_page(1);
                slots = 0;
                if (used_pages <= heap.page_count())
                    words[page] = PageWord::of_slots(slot_class, execution);
            }
            moved.to = page * PAGE_BYTES + slots++ * uint64_t{slot_bytes_of(slot_class)} + sizeof(Header);
        }
        if (used_pages > heap.page_count())
            return fail(Status::OUT_OF_MEMORY, "there is no room for the objects with the fields that their types have now");
    }
    return Status::OK;
}

bool Compaction::is_done() const {
    uint64_t live = 0;
    heap.visit_objects([&](uint32_t, uint32_t, Header) { live++; });
    auto stays = [](const auto &object) { return object.second.to == object.second.from; };
    return live == objects.size() && std::all_of(objects.begin(), objects.end(), stays) && !heap.needs_compaction();
}

/* ---- copying ---- */

uint64_t Compaction::forwarded(uint64_t page, uint64_t word, const char *to_base) const {
    const PastExecution *past = heap.execution_of(static_cast<uint32_t>(page));
    auto found = objects.find(object_of(page, word));
    if (found == objects.end())
        return 0;
    uint64_t inside = word - past->heap_base - found->second.from;
#ifdef MUTANT_FORWARDED_TO_OLD_PLACE
    return reinterpret_cast<uint64_t>(to_base) + found->second.from + inside;
#else
    return reinterpret_cast<uint64_t>(to_base) + found->second.to + inside;
#endif
}

Status Compaction::copy_object(const Moved &moved, char *to_base) {
    uint64_t page = moved.from / PAGE_BYTES;
    const PastExecution &past = *heap.execution_of(static_cast<uint32_t>(page));
    Header header = header_of(moved.from);
    const TypeRecord &then = *past.type(header.type());
    const KnownType &known = *heap.program.type(header.type());
    const Type &now = *known.type;
    const char *from = heap.inner(moved.from);
    char *to = to_base + moved.to;
    for (const Field *field = now.fields; field < now.fields + now.field_count; field++) {
        auto *word = reinterpret_cast<uint64_t *>(to + field->offset);
        if (field->kind == Kind::VIRTUAL_TABLE)
            *word = reinterpret_cast<uint64_t>(now.virtual_table);
        const Field *all = past.fields(then);
#ifdef MUTANT_FIELD_BY_PLACE
        auto is_it = [&](const Field &old) { return old.offset == field->offset && old.kind == field->kind; };
#else
        auto is_it = [&](const Field &old) { return old.name == field->name && old.kind == field->kind; };
#endif
        const Field *old = std::find_if(all, all + then.field_count, is_it);
        if (old == all + then.field_count || field->kind == Kind::VIRTUAL_TABLE || field->kind == Kind::TRANSIENT)
            continue;
        memcpy(word, from + old->offset, std::min(old->bytes, field->bytes));
        bool is_known = true;
        if (field->kind == Kind::CODE) {
            is_known = past.code_now(heap.program, *word, word);
        } else if (field->kind == Kind::POINTER) {
            bool is_inside = *word - past.heap_base < heap.heap_file.bytes;
            is_known = is_inside || past.data_now(heap.program, *word, word);
            if (is_inside)
                *word = forwarded(page, *word, to_base);
        }
        if (!is_known && known.reconstructor == nullptr)
            return fail(Status::OTHER_BUILD, "%s points into a program that was built otherwise: it needs a nv_reconstruct",
                        now.name);
        if (!is_known)
            *word = 0; /* the reconstructor's, when the heap is opened */
    }
    uint64_t tail = header.bytes() - then.bytes;
    memcpy(to + now.bytes, from + then.bytes, tail);
    *reinterpret_cast<uint64_t *>(to - sizeof(Header)) = Header::of(header.type(), moved.bytes).word;
    return Status::OK;
}

Status Compaction::copy(uintptr_t address) {
    Mapping meta_file, heap_file;
    uint64_t generation = heap.meta->generation + 1;
    std::string heap_path = heap.path(heap.heap_name(generation).c_str()), meta_path = heap.path("meta.new");
    Status status = make_file(heap_path, heap.heap_file.bytes);
    if (status == Status::OK)
        status = make_file(meta_path, heap.meta_file.bytes);
    if (status == Status::OK)
        status = map_file(heap_path, address, &heap_file);
    if (status == Status::OK)
        status = map_file(meta_path, after(address, heap_file), &meta_file);
    if (status == Status::OK) {
        for (uint64_t offset = 0; offset < heap.root_pages() * PAGE_BYTES; offset += sizeof(uint64_t))
            if (uint64_t word = heap.word_at(offset))
                *reinterpret_cast<uint64_t *>(heap_file.base + offset) = forwarded(offset / PAGE_BYTES, word, heap_file.base);
        for (const auto &[from, moved] : objects)
            if (status == Status::OK)
                status = copy_object(moved, heap_file.base);
    }
    if (status == Status::OK) {
        auto *meta = reinterpret_cast<Meta *>(meta_file.base);
        meta->begin(heap.page_count(), heap.meta->root_count, generation);
        meta->magic = META_MAGIC;
        std::copy(words.begin(), words.end(), meta->words);
        auto *record = reinterpret_cast<Execution *>(meta_file.base + executions_offset(heap.page_count()));
        heap.program.write_record(reinterpret_cast<uint64_t>(heap_file.base), record);
        record->number = execution;
#ifndef MUTANT_RENAMED_BEFORE_FLUSH
        fl_flush(heap_file.base, used_pages * PAGE_BYTES);
#endif
        fl_persist(meta_file.base, executions_offset(heap.page_count()) + heap.program.record_bytes());
        if (rename(meta_path.c_str(), heap.path("meta").c_str()) != 0)
            status = fail(Status::ERROR, "%s cannot be renamed", meta_path.c_str());
#ifndef MUTANT_SWITCH_NOT_SYNCED
        sync_folder(heap.folder);
#endif
    }
    heap_file.unmap();
    meta_file.unmap();
    uint64_t unused = status == Status::OK ? generation - 1 : generation;
#ifndef MUTANT_OLD_HEAP_KEPT
    unlink(heap.path(heap.heap_name(unused).c_str()).c_str());
#else
    (void)unused;
#endif
    if (status != Status::OK)
        unlink(meta_path.c_str());
#ifndef MUTANT_SWITCH_NOT_SYNCED
    sync_folder(heap.folder);
#endif
    return status;
}

} // namespace

Status compact(Heap::State &heap, uintptr_t address) {
    if (heap.program.record_bytes() > EXECUTION_BYTES)
        return fail(Status::ERROR, "the type tables are too large (NVR_EXECUTION_BYTES)");
    Compaction compaction(heap);
    Status status = compaction.mark();
    if (status == Status::OK)
        status = compaction.place();
    if (status != Status::OK)
        return status;
    if (compaction.is_done()) {
        FL_STAGE("compaction: there was nothing to do");
        return Status::OK;
    }
    FL_STAGE("compaction: a new heap was made");
    return compaction.copy(address);
}

} // namespace nv
