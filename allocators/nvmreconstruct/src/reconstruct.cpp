/* SPDX-License-Identifier: Apache-2.0
 *
 * reconstruct.cpp - executions, and the reconstruction of one page (section 4.2, Listing 2).
 *
 * A page's pointers mean what the record of its execution says. Adding the difference of two bases twice would be wrong, so the
 * page is copied first: power may fail at any moment, and the page is either of the old execution, or the copy is put back, or
 * it is finished.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "stage.h"
#include "state.h"

namespace nv {

/* ---- the undo copy ---- */

/* What of a page a reconstruction may change: roots that are set, and live objects, whose headers stay as they are. */
template <typename Visit> static void visit_live(const Heap::State &heap, uint32_t page, Visit &&visit) {
    bool has_roots = heap.meta->words[page].kind() == PageKind::ROOTS;
    for (uint64_t from = 0; has_roots && from < PAGE_BYTES; from += sizeof(uint64_t)) {
        uint64_t end = from;
        while (end < PAGE_BYTES && heap.word_at(page * PAGE_BYTES + end) != 0)
            end += sizeof(uint64_t);
        if (end > from)
            visit(from, end - from);
        from = end;
    }
    for (uint32_t slot = 0; slot < heap.slot_count(page); slot++) {
        uint64_t slot_bytes = heap.slot_bytes(page);
        Header header = heap.header(page, slot);
        if (header.is_live())
#ifdef MUTANT_LAST_SLOT_FORGOTTEN
            if (slot + 1 < heap.slot_count(page))
#endif
                visit(slot * slot_bytes + sizeof(Header), std::min(up_to(header.bytes(), 8), slot_bytes - sizeof(Header)));
    }
}

static void drop(Undo &undo) {
    fl_store8(&undo.page_and_1, 0);
    fl_persist(&undo.page_and_1, sizeof undo.page_and_1);
}

void Heap::State::undo() {
    Undo &undo = meta->undo;
    if (undo.page_and_1 == 0) {
        FL_STAGE("undo: no page was being reconstructed");
        return;
    }
    auto page = static_cast<uint32_t>(undo.page_and_1 - 1);
#ifdef MUTANT_FINISHED_PUT_BACK
    if (undo.word.word == 0) {
#else
    if (meta->words[page].word != undo.word.word) {
#endif
        FL_STAGE("undo: the page was finished");
    } else {
        FL_STAGE("undo: the page was put back");
        visit_live(*this, page, [&](uint64_t from, uint64_t bytes) {
            memcpy(inner(page * PAGE_BYTES) + from, undo.copy + from, bytes);
            fl_flush(inner(page * PAGE_BYTES) + from, bytes);
        });
        fl_fence();
    }
    drop(undo);
}

/* ---- executions ---- */

const PastExecution *Heap::State::execution_of(uint32_t page) const {
    for (const PastExecution &past : executions)
        if (past.number != 0 && past.number == meta->words[page].execution())
            return &past;
    return nullptr;
}

/* Types that are laid out in another way now, and that something lives of. */
bool Heap::State::needs_compaction() const {
    bool is_changed = false;
    visit_objects([&](uint32_t page, uint32_t, Header found) {
        const PastExecution *past = is_changed ? nullptr : execution_of(page);
        const KnownType *now = program.type(found.type());
        const TypeRecord *then = past == nullptr ? nullptr : past->type(found.type());
        is_changed = is_changed || (now != nullptr && then != nullptr && !past->is_laid_out_as(*then, *now->type));
    });
    return is_changed;
}

uint64_t Heap::State::newest_execution() const {
    uint64_t newest = 0;
    for (const PastExecution &past : executions)
        newest = std::max(newest, past.number);
    return newest;
}

/* The record goes where one is that no page needs any more; never over the newest one, whose number tells the next. */
Status Heap::State::begin_execution() {
    uint64_t newest = newest_execution();
    std::set<uint64_t> needed{newest};
    for (uint32_t page = 0; page < page_count(); page += span(page))
        if (is_live(page))
            needed.insert(meta->words[page].execution());
#ifdef MUTANT_PRUNED_TOO_EARLY
    needed = {newest};
#endif
    if (program.record_bytes() > EXECUTION_BYTES)
        return fail(Status::ERROR, "the type tables take %llu bytes, and there is room for %llu (NVR_EXECUTION_BYTES)",
                    static_cast<unsigned long long>(program.record_bytes()), static_cast<unsigned long long>(EXECUTION_BYTES));
    auto is_free = [&](const PastExecution &past) { return past.number == 0 || needed.count(past.number) == 0; };
    auto found = std::find_if(executions.begin(), executions.end(), is_free);
    if (found == executions.end())
        return fail(Status::ERROR, "pages of %llu executions are not reconstructed: open the heap eagerly",
                    static_cast<unsigned long long>(EXECUTION_SLOTS));
    Execution *record = this->record(static_cast<uint64_t>(found - executions.begin()));
    if (record->number != 0) {
        FL_STAGE("executions: a record was pruned");
        fl_store8(&record->number, 0);
        fl_persist(&record->number, sizeof record->number);
    }
    execution_number = newest + 1;
    program.write_record(reinterpret_cast<uint64_t>(base()), record);
#ifndef MUTANT_RECORD_NOT_FLUSHED
    fl_persist(record, program.record_bytes());
#endif
    fl_store8(&record->number, execution_number);
    fl_persist(&record->number, sizeof record->number);
    found->read(record);
    return Status::OK;
}

/* ---- one page ---- */

namespace {

/* From the execution of a page to this one. */
struct Fixer {
    const PastExecution &past;
    const Program &program;
    uint64_t base, bytes;

    bool pointer(uint64_t *word) const {
        if (*word - past.heap_base < bytes) {
            *word = *word - past.heap_base + base;
            return true;
        }
        return past.data_now(program, *word, word);
    }
    Status object(char *object, Header header) const;
};

/* Transients are zero before the type's own reconstructor is called (section 3). */
Status Fixer::object(char *object, Header header) const {
    const TypeRecord *then = past.type(header.type());
    const KnownType *now = program.type(header.type());
    if (then == nullptr || now == nullptr)
        return fail(Status::NO_TYPES, "an object's type (%08x) is in no table of this program", header.type());
    if (header.bytes() < then->bytes)
        return fail(Status::CORRUPT, "an object's header says that it is smaller than its type, %s", now->type->name);
#ifdef MUTANT_RECONSTRUCTOR_FIRST
    if (now->reconstructor != nullptr)
        now->reconstructor(object);
#endif
    for (const Field *field = past.fields(*then); field < past.fields(*then) + then->field_count; field++) {
        auto *word = reinterpret_cast<uint64_t *>(object + field->offset);
        bool is_known = true;
        switch (field->kind) {
        case Kind::PLAIN: break;
        case Kind::POINTER:
#ifdef MUTANT_FIELD_FORGOTTEN
            if (field->name == name_hash("fields[1]"))
                break;
#endif
            is_known = pointer(word);
            break;
        case Kind::CODE:
#ifndef MUTANT_CODE_NOT_FIXED
            is_known = past.code_now(program, *word, word);
#endif
            break;
        case Kind::VIRTUAL_TABLE:
#ifndef MUTANT_VIRTUAL_TABLE_NOT_FIXED
            *word = reinterpret_cast<uint64_t>(now->type->virtual_table);
#endif
            break;
        case Kind::TRANSIENT:
#ifndef MUTANT_TRANSIENT_NOT_ZEROED
            memset(object + field->offset, 0, field->bytes);
#endif
            break;
        }
        if (!is_known && now->reconstructor == nullptr)
            return fail(Status::OTHER_BUILD, "%s points into a program that was built otherwise: it needs a nv_reconstruct",
                        now->type->name);
        if (!is_known)
            *word = 0; /* the reconstructor's */
    }
#ifndef MUTANT_RECONSTRUCTOR_FIRST
    if (now->reconstructor != nullptr)
        now->reconstructor(object);
#endif
    return Status::OK;
}

} // namespace

Status Heap::State::reconstruct(uint32_t page) {
    const PastExecution *past = execution_of(page);
    PageWord word = meta->words[page];
    char *content = inner(page * PAGE_BYTES);
    if (past == nullptr)
        return fail(Status::CORRUPT, "page %u is of execution %u, of which there is no record", page, word.execution());
    FL_STAGE("reconstruction: a page was reconstructed");
    Undo &undo = meta->undo;
#ifndef MUTANT_NO_UNDO
    undo.word = word;
    fl_flush(&undo.word, sizeof undo.word);
    visit_live(*this, page, [&](uint64_t from, uint64_t bytes) {
        memcpy(undo.copy + from, content + from, bytes);
#ifndef MUTANT_UNDO_NOT_FLUSHED
        fl_flush(undo.copy + from, bytes);
#endif
    });
    fl_fence();
    fl_store8(&undo.page_and_1, uint64_t{page} + 1);
    fl_persist(&undo.page_and_1, sizeof undo.page_and_1);
#endif
#ifdef MUTANT_DELTA_OF_LAST
    for (const PastExecution &other : executions)
        if (other.number + 1 == execution_number)
            past = &other;
#endif
    Fixer fixer{*past, program, reinterpret_cast<uint64_t>(base()), heap_file.bytes};
    Status status = Status::OK;
    visit_live(*this, page, [&](uint64_t from, uint64_t bytes) {
        if (word.kind() != PageKind::ROOTS && status == Status::OK)
            status = fixer.object(content + from, {word_at(page * PAGE_BYTES + from - sizeof(Header))});
        for (uint64_t at = from; word.kind() == PageKind::ROOTS && at < from + bytes && status == Status::OK;
             at += sizeof(uint64_t))
            if (!fixer.pointer(reinterpret_cast<uint64_t *>(content + at)))
                status = fail(Status::OTHER_BUILD, "a root points into a program that was built otherwise");
    });
    if (status != Status::OK) {
        this->undo();
        return status;
    }
#ifdef MUTANT_UNDO_DROPPED_FIRST
    drop(undo);
#endif
#ifdef MUTANT_NUMBER_BEFORE_FLUSH
    set_page(page, word.in(execution_number));
#endif
    visit_live(*this, page, [&](uint64_t from, uint64_t bytes) { fl_flush(content + from, bytes); });
    fl_fence();
    set_page(page, word.in(execution_number));
    drop(undo);
    return Status::OK;
}

/* Nothing to do but for the first use of a page in an execution. A page in which nothing lives only gets the number. */
void Heap::State::ensure(uint32_t page) {
    if (is_of_now(page))
        return;
    std::lock_guard guard(lock);
    if (is_of_now(page))
        return;
    if (!is_live(page))
        set_page(page, meta->words[page].in(execution_number));
    else if (reconstruct(page) != Status::OK) {
        fprintf(stderr, "nvmreconstruct: %s\n", message()); /* nobody is there who could be told otherwise */
        abort();
    }
    open_page(page);
}

} // namespace nv
