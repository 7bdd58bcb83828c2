/* SPDX-License-Identifier: Apache-2.0
 *
 * pages.cpp - a segregated-fit allocator over pages: what is free is known in DRAM alone, found when the heap is opened by the
 * headers of all slots. Below reconstruction, which asks of it only where the pages are and what lives in them (section 5.2).
 *
 * A page without a live object belongs to nobody, whatever its word says: the headers of what it becomes are zeroed and persisted
 * before its word says so.
 */
#include <algorithm>

#include "stage.h"
#include "state.h"

namespace nv {

/* ---- what is used ---- */

uint32_t Heap::State::span(uint32_t page) const {
    PageWord word = meta->words[page];
    return word.kind() == PageKind::RUN && header(page, 0).is_live() ? word.run_pages() : 1;
}

bool Heap::State::is_live(uint32_t page) const {
    if (meta->words[page].kind() == PageKind::ROOTS) {
        const uint64_t *words = &word_at(page * PAGE_BYTES);
        return std::any_of(words, words + PAGE_BYTES / sizeof *words, [](uint64_t word) { return word != 0; });
    }
    for (uint32_t slot = 0; slot < slot_count(page); slot++)
        if (header(page, slot).is_live())
            return true;
    return false;
}

void Heap::State::learn_pages() {
    pages.assign(page_count(), {});
    for (auto page = static_cast<uint32_t>(root_pages()); page < page_count(); page += span(page)) {
        Page &known = pages[page];
        known.is_used.assign(slot_count(page), false);
        for (uint32_t slot = 0; slot < slot_count(page); slot++) {
            known.is_used[slot] = header(page, slot).is_live();
            known.used += known.is_used[slot];
        }
        if (known.used == 0)
            empty.insert(page);
        else if (known.used < slot_count(page))
            with_room[meta->words[page].slot_class()].insert(page);
    }
}

void Heap::State::take(uint32_t page, uint32_t slot) {
    Page &known = pages[page];
    known.is_used[slot] = true;
    known.used++;
    if (!meta->words[page].has_slots())
        return;
    std::set<uint32_t> &room = with_room[meta->words[page].slot_class()];
    if (known.used == slot_count(page))
        room.erase(page);
    else
        room.insert(page);
}

void Heap::State::give_back(uint64_t offset) {
    auto page = static_cast<uint32_t>(offset / PAGE_BYTES), slot = static_cast<uint32_t>(offset % PAGE_BYTES / slot_bytes(page));
    PageWord word = meta->words[page];
    Page &known = pages[page];
    known.is_used[slot] = false;
    known.used--;
    if (word.has_slots() && known.used > 0)
        with_room[word.slot_class()].insert(page);
    if (known.used > 0)
        return;
    if (word.has_slots())
        with_room[word.slot_class()].erase(page);
    uint64_t end = page + (word.kind() == PageKind::RUN ? word.run_pages() : 1);
    for (uint64_t freed = page; freed < end; freed++)
        empty.insert(static_cast<uint32_t>(freed));
}

/* ---- finding room ---- */

void Heap::State::set_page(uint32_t page, PageWord word) {
    fl_store8(&meta->words[page].word, word.word);
    fl_persist(&meta->words[page], sizeof(PageWord));
}

/* bytes with the header, at most a page. */
Status Heap::State::find_slot(uint64_t bytes, uint32_t *page, uint32_t *slot) {
    uint32_t slot_class = class_for(bytes);
    if (!with_room[slot_class].empty()) {
        *page = *with_room[slot_class].begin();
        ensure(*page);
    } else if (empty.empty()) {
        return fail(Status::OUT_OF_MEMORY, "no page is free");
    } else {
        *page = *empty.begin();
        open_page(*page);
        for (uint32_t number = 0; number < ALL_COUNTS[slot_class]; number++) {
            uint64_t &header = word_at(*page * PAGE_BYTES + number * uint64_t{slot_bytes_of(slot_class)});
            fl_store8(&header, 0);
            fl_flush(&header, sizeof header);
        }
#ifndef MUTANT_PAGE_BEFORE_HEADERS
        fl_fence();
#endif
        set_page(*page, PageWord::of_slots(slot_class, execution_number));
        empty.erase(*page);
        pages[*page].is_used.assign(ALL_COUNTS[slot_class], false);
    }
    const std::vector<bool> &used = pages[*page].is_used;
    *slot = static_cast<uint32_t>(std::find(used.begin(), used.end(), false) - used.begin());
    take(*page, *slot);
    return Status::OK;
}

/* Of consecutive pages. Those behind the first say that they are free, for the time when its object is gone. */
Status Heap::State::find_run(uint64_t bytes, uint32_t *page) {
    uint64_t wanted = up_to(bytes, PAGE_BYTES) / PAGE_BYTES;
    uint32_t first = 0;
    uint64_t found = 0;
    for (auto next = empty.begin(); next != empty.end() && found < wanted; ++next) {
        found = found > 0 && *next == first + found ? found + 1 : 1;
        if (found == 1)
            first = *next;
    }
    if (found < wanted)
        return fail(Status::OUT_OF_MEMORY, "no %llu pages in a row are free", static_cast<unsigned long long>(wanted));
    for (uint64_t next = first; next < first + wanted; next++) {
        open_page(static_cast<uint32_t>(next));
        if (next != first && meta->words[next].kind() != PageKind::FREE)
            set_page(static_cast<uint32_t>(next), {0});
        empty.erase(static_cast<uint32_t>(next));
    }
    fl_store8(&word_at(first * PAGE_BYTES), 0);
    fl_flush(&word_at(first * PAGE_BYTES), sizeof(Header));
#ifndef MUTANT_RUN_BEFORE_HEADER
    fl_fence();
#endif
    set_page(first, PageWord::of(PageKind::RUN, execution_number, wanted));
    pages[first].is_used.assign(1, false);
    take(first, 0);
    *page = first;
    return Status::OK;
}

/* ---- the redo record ---- */

/* What is set are words of pages of one execution each: a pointer is one of the page that it is in. */
void Heap::State::apply(const Change::Store *stores, uint64_t count) {
    for (const Change::Store *store = stores; store < stores + count; store++) {
        uint64_t offset = store->destination & ~UINT64_C(1);
        bool is_pointer = (store->destination & 1) != 0 && store->value != 0;
        uint64_t base = is_pointer ? execution_of(static_cast<uint32_t>(offset / PAGE_BYTES))->heap_base : 0;
        fl_store8(&word_at(offset), store->value + base);
        fl_flush(&word_at(offset), sizeof(uint64_t));
    }
#ifndef MUTANT_CHANGE_CLEARED_FIRST
    fl_fence();
#endif
    fl_store8(&meta->change.count, 0);
    fl_persist(&meta->change.count, sizeof meta->change.count);
}

void Heap::State::redo() {
    uint64_t count = meta->change.count;
    if (count == 0) {
        FL_STAGE("redo: nothing was pending");
        return;
    }
    FL_STAGE("redo: a change was applied");
#ifdef MUTANT_LOG_ABSOLUTE
    Change::Store stores[3];
    std::copy(meta->change.stores, meta->change.stores + 3, stores);
    for (Change::Store &store : stores)
        store.destination -= reinterpret_cast<uint64_t>(base());
    return apply(stores, count);
#endif
    apply(meta->change.stores, count);
}

} // namespace nv
