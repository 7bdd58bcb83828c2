/* SPDX-License-Identifier: Apache-2.0
 *
 * small.cpp - see small.h. The states of the item, and where each goes on:
 *
 *     WANT_SEGMENT  -> NEW_SEGMENT -> TAKE_PAGE [-> LEAVE_ACTIVE -> JOIN_FULL] -> ALLOCATE -> NONE
 *                                     TAKE_PAGE ...                               ALLOCATE -> NONE
 *     FREE [-> JOIN_PAGES] -> NONE
 *     FREE -> RETURN_PAGE [-> LEAVE_FULL -> JOIN_ACTIVE | -> RETURN_SEGMENT] -> NONE
 *     PUNCH_PAGE [-> PUNCH_LEAVE -> PUNCH_JOIN] -> NONE
 *     FILL_PAGE -> LEAVE_FULL -> JOIN_ACTIVE -> NONE
 *
 * An operation enters at the first state that it needs. Each state does what its function says, over again after a failure, and each
 * says in its comment what makes that possible. WANT_SEGMENT alone goes back to NONE, if no segment was got.
 */
#include "small.h"

#include <cstring>

#include "stage.h"

namespace pallocator {

static constexpr unsigned small_classes() {
    unsigned count = 0;
    while (count < CLASSES && CLASS_BYTES[count] < SMALL_LIMIT)
        count++;
    return count;
}

unsigned class_of(uint64_t bytes) {
    constexpr unsigned count = small_classes();
    if (bytes > CLASS_BYTES[count - 1])
        return CLASSES;
    unsigned low = 0, high = count - 1;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (CLASS_BYTES[middle] < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint16_t page_index(const PPtrBase &page) { return static_cast<uint16_t>(page.offset / PAGE_BYTES); }
static bool has_free_pages(const SegmentPages &pages) { return pages.first_free != NO_INDEX || pages.fresh < PAGES; }

/* ---- the item ---- */

void Small::set_state(SmallState state, unsigned size_class, uint16_t index) {
    store(item().state, uint64_t{state} | uint64_t{size_class} << 8 | uint64_t{index} << 16);
    fl_flush(&item(), sizeof(SmallItem));
    fl_fence();
}

#if defined(MUTANT_RECOVERY_END_NOT_FENCED) || defined(MUTANT_RECOVERY_ARGUMENT_NOT_FLUSHED)
static bool is_recovering;
#endif

/* After the steps of a state. */
void Small::end() {
#if defined(MUTANT_RECOVERY_END_NOT_FENCED)
    if (!is_recovering)
        fl_fence();
#elif !defined(MUTANT_SMALL_CLEARED_TOO_EARLY)
    fl_fence();
#endif
    next(SMALL_NONE);
}

void Small::next_joining(SmallState state, const PPtrBase &head) {
    store(item().other, head);
    next(state);
}

/* ---- the argument: where the application has its pointer ---- */

#ifdef MUTANT_ARGUMENT_ABSOLUTE
void Small::log_argument(const PPtrBase &argument) {
    store(item().argument, {argument.file, reinterpret_cast<uintptr_t>(segments.at<PPtrBase>(argument))});
}
PPtrBase *Small::logged_argument() { return reinterpret_cast<PPtrBase *>(item().argument.offset); }
#else
void Small::log_argument(const PPtrBase &argument) { store(item().argument, argument); }
PPtrBase *Small::logged_argument() { return segments.at<PPtrBase>(item().argument); }
#endif

/* ---- allocation ---- */

/* The active segments are used up. The segment is the core's from when the item's pointer is set. */
Status Small::begin_page(unsigned size_class, const PPtrBase &argument) {
    log_argument(argument);
    if (!core.active.is_null()) {
        begin_taking_page();
        set_state(SMALL_TAKE_PAGE, size_class, item_index());
        return Status::OK;
    }
    store(item().other, {});
    set_state(SMALL_WANT_SEGMENT, size_class, 0);
    Status status = segments.acquire(item().other);
    if (status == Status::OK)
        next(SMALL_NEW_SEGMENT);
    else
        end();
    return status;
}

/* other: the segment. The list of active segments was empty, so its head becomes valid at once. */
void Small::new_segment() {
    SegmentHeader &segment = *segments.header(item().other.file);
    store(segment.pages, word_of(SegmentPages{NO_INDEX, 0, 1, 0}));
    store(segment.links.next, {});
    store(segment.links.previous, {});
    fl_flush(&segment, sizeof segment);
    store_flushed(core.active, {item().other.file, 0});
    fl_fence();
    segments.set_owner(item().other.file, owner);
}

/* Fields only, of which no state before TAKE_PAGE reads one: of other, that is the offset. The index is that of the next free page,
 * which the page itself holds only until it is taken. */
void Small::begin_taking_page() {
    const PPtrBase segment = core.active;
    const SegmentPages pages = as<SegmentPages>(segments.header(segment.file)->pages);
    bool is_fresh = pages.first_free == NO_INDEX;
    PPtrBase page{segment.file, (is_fresh ? pages.fresh : pages.first_free) * PAGE_BYTES};
    uint16_t after = is_fresh ? NO_INDEX : static_cast<uint16_t>(page_at(page).kind);
    store(item().other.offset, word_of(pages));
    store(item().page, page);
    store(item().state, (item().state & 0xffff) | uint64_t{after} << 16);
}

/* The class's list of pages is empty, so its head becomes valid at once. */
void Small::take_page() {
    SegmentPages pages = as<SegmentPages>(item().other.offset);
    if (pages.first_free == NO_INDEX)
        pages.fresh++;
    else
        pages.first_free = item_index();
    pages.used++;
    uint16_t count = block_count(item_class());
    PageHeader &page = page_at(item().page);
    store(page.blocks, word_of(PageBlocks{0, 0, count, 0}));
    store(page.kind, PAGE_USED | item_class());
    store(page.links.next, {});
    store(page.links.previous, {});
    for (uint16_t block = 0; block < count; block += 4) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 4; i++)
            word |= uint64_t{block + i + 1u < count ? static_cast<uint16_t>(block + i + 1u) : NO_INDEX} << i * 16;
        store(page.entries[block / 4], word);
    }
    fl_flush(&page, blocks_offset(count));
    store_flushed(core.pages[item_class()], item().page);
    store_flushed(segment_of(item().page).pages, word_of(pages));
    fl_fence();
}

void Small::begin_allocating() { store(item().before, page_at(item().page).blocks); }

/* The entry of a block stays as it is while the block is in use, so the head after it is found again. */
void Small::allocate_block() {
    PageHeader &page = page_at(item().page);
    PageBlocks blocks = as<PageBlocks>(item().before);
    uint16_t block = blocks.first_free;
    blocks.first_free = load_entry(page, block);
    blocks.used++;
    store_flushed(page.blocks, word_of(blocks));
    if (blocks.first_free == NO_INDEX)
        list_leave(segments, core.pages[item_class()], item().page);
    uint64_t offset = item().page.offset + blocks_offset(blocks.count) + uint64_t{block} * CLASS_BYTES[item_class()];
    if (PPtrBase *argument = logged_argument())
#if defined(MUTANT_RECOVERY_ARGUMENT_NOT_FLUSHED)
        is_recovering ? store(*argument, {item().page.file, offset}) : store_flushed(*argument, {item().page.file, offset});
#elif !defined(MUTANT_ARGUMENT_NOT_FLUSHED)
        store_flushed(*argument, {item().page.file, offset});
#else
        store(*argument, {item().page.file, offset});
#endif
}

Status Small::allocate(unsigned size_class, const PPtrBase &argument) {
    std::lock_guard guard(lock);
    if (core.pages[size_class].is_null()) {
        Status status = begin_page(size_class, argument);
        if (status != Status::OK)
            return status;
    } else {
        log_argument(argument);
        store(item().page, core.pages[size_class]);
        begin_allocating();
        set_state(SMALL_ALLOCATE, size_class, 0);
    }
    run();
    return Status::OK;
}

/* ---- deallocation ---- */

/* The page leaves its list if nothing in it is in use any more; its links stay until it is returned. */
void Small::free_block() {
    if (PPtrBase *argument = logged_argument())
#ifndef MUTANT_SLOT_NOT_CLEARED
        store_flushed(*argument, {});
#else
        store(*argument, {});
#endif
    PageHeader &page = page_at(item().page);
#ifndef MUTANT_FREE_READS_PAGE
    PageBlocks blocks = as<PageBlocks>(item().before);
#else
    PageBlocks blocks = as<PageBlocks>(page.blocks);
#endif
    bool was_full = blocks.first_free == NO_INDEX;
    store_entry_flushed(page, item_index(), blocks.first_free);
    blocks.first_free = item_index();
    blocks.used--;
    store_flushed(page.blocks, word_of(blocks));
    if (blocks.used == 0 && !was_full)
        list_leave(segments, core.pages[item_class()], item().page);
#ifndef MUTANT_PAGE_RETURNED_TOO_EARLY
    fl_fence();
#endif
    if (blocks.used == 0) {
        store(item().other.offset, segment_of(item().page).pages);
        next(SMALL_RETURN_PAGE);
    } else if (was_full) {
        next_joining(SMALL_JOIN_PAGES, core.pages[item_class()]);
    } else {
        end();
    }
}

/* To its segment. The segment leaves its list if nothing in it is in use any more; its links stay until it is given back, through
 * argument, which is of no use any more. */
void Small::return_page() {
    SegmentHeader &segment = segment_of(item().page);
    SegmentPages pages = as<SegmentPages>(item().other.offset);
    bool was_full = !has_free_pages(pages);
    PageHeader &page = page_at(item().page);
    store_flushed(page.kind, PAGE_FREE | pages.first_free);
    pages.first_free = page_index(item().page);
    pages.used--;
    store_flushed(segment.pages, word_of(pages));
    if (pages.used == 0)
        list_leave(segments, was_full ? core.full : core.active, item_segment());
    fl_fence();
    if (pages.used == 0) {
        store(item().argument, item_segment());
        next(SMALL_RETURN_SEGMENT);
    } else if (was_full) {
        next(SMALL_LEAVE_FULL);
    } else {
        end();
    }
}

Status Small::deallocate(const PPtrBase &argument, const PPtrBase &block) {
    std::lock_guard guard(lock);
    if (block_bytes(block) == 0)
        return fail(Status::INVALID, "segment %llu, offset %#llx: no object in use starts there",
                    static_cast<unsigned long long>(block.file), static_cast<unsigned long long>(block.offset));
    PPtrBase place{block.file, block.offset / PAGE_BYTES * PAGE_BYTES};
    const PageHeader &page = page_at(place);
    unsigned size_class = page.kind & 0xffff;
    uint64_t count = as<PageBlocks>(page.blocks).count;
    log_argument(argument);
    store(item().before, page.blocks);
    store(item().page, place);
    set_state(SMALL_FREE, size_class,
              static_cast<uint16_t>((block.offset - place.offset - blocks_offset(count)) / CLASS_BYTES[size_class]));
    run();
    return Status::OK;
}

/* ---- defragmentation: free pages become holes ---- */

void Small::punch_page() {
    SegmentPages pages = as<SegmentPages>(item().other.offset);
    if (pages.first_free == NO_INDEX)
        pages.fresh++;
    else
        pages.first_free = item_index();
    pages.holes++;
    store_flushed(segment_of(item().page).pages, word_of(pages));
    fl_fence(); /* nobody finds the page any more */
    segments.punch(item().page.file, item().page.offset, PAGE_BYTES);
    if (has_free_pages(pages))
        end();
    else
        next(SMALL_PUNCH_LEAVE);
}

bool Small::punch_free_page() {
    std::lock_guard guard(lock);
    if (core.active.is_null())
        return false;
    begin_taking_page();
    uint64_t file = item().page.file;
#ifdef MUTANT_PAGE_PUNCHED_BEFORE_LOGGED
    segments.punch(file, item().page.offset, PAGE_BYTES);
#endif
    set_state(SMALL_PUNCH_PAGE, 0, item_index());
    segments.note_hole(file, PAGE_BYTES);
    run();
    return true;
}

uint64_t Small::free_page_bytes() {
    std::lock_guard guard(lock);
    uint64_t bytes = 0;
    for (PPtrBase at = core.active; !at.is_null(); at = segments.header(at.file)->links.next) {
        const SegmentPages pages = as<SegmentPages>(segments.header(at.file)->pages);
        bytes += (PAGES - 1 - pages.used - pages.holes) * PAGE_BYTES;
    }
    return bytes;
}

/* ---- a hole becomes a free page again, where there is room but not for a segment ---- */

/* Below `fresh` only holes read as zero. Segments with other free pages are active, and need none. */
bool Small::find_hole(PPtrBase *page) const {
    for (PPtrBase at = core.full; !at.is_null(); at = segments.header(at.file)->links.next) {
        const SegmentPages pages = as<SegmentPages>(segments.header(at.file)->pages);
        for (uint64_t index = 1; pages.holes != 0 && index < pages.fresh; index++) {
            *page = {at.file, index * PAGE_BYTES};
            if (page_at(*page).kind == 0)
                return true;
        }
    }
    return false;
}

void Small::fill_page() {
    SegmentPages pages = as<SegmentPages>(item().other.offset);
    store_flushed(page_at(item().page).kind, PAGE_FREE | pages.first_free);
    pages.first_free = page_index(item().page);
    pages.holes--;
    store_flushed(segment_of(item().page).pages, word_of(pages));
    fl_fence();
    next(SMALL_LEAVE_FULL);
}

/* The space comes first: of a crash before the item says so nothing is left. */
bool Small::fill_hole() {
    std::lock_guard guard(lock);
    PPtrBase page;
    if (!find_hole(&page) || !segments.fill(page.file, page.offset, PAGE_BYTES))
        return false;
    store(item().page, page);
    store(item().other.offset, segment_of(page).pages);
    set_state(SMALL_FILL_PAGE, 0, 0);
    run();
    return true;
}

/* ---- all of it ---- */

/* A segment with holes is no use to anybody else. */
static void return_segment(Segments &segments, PPtrBase &segment) {
    if (segment.is_null())
        return;
    if (as<SegmentPages>(segments.header(segment.file)->pages).holes == 0)
        segments.give_back(segment);
    else
        segments.destroy(segment);
}

void Small::run() {
    for (;;) {
        switch (state()) {
        case SMALL_NONE:
        case SMALL_STATES: return;
        case SMALL_WANT_SEGMENT: /* only recovery comes here */
            if (item().other.is_null())
                end();
            else
                next(SMALL_NEW_SEGMENT);
            break;
        case SMALL_NEW_SEGMENT:
            new_segment();
            begin_taking_page();
            next(SMALL_TAKE_PAGE);
            break;
        case SMALL_TAKE_PAGE: {
            take_page();
            bool is_full = !has_free_pages(as<SegmentPages>(segment_of(item().page).pages));
            if (!is_full)
                begin_allocating();
            next(is_full ? SMALL_LEAVE_ACTIVE : SMALL_ALLOCATE);
            break;
        }
        case SMALL_LEAVE_ACTIVE:
        case SMALL_PUNCH_LEAVE:
            list_leave(segments, core.active, item_segment());
            fl_fence();
            next_joining(state() == SMALL_LEAVE_ACTIVE ? SMALL_JOIN_FULL : SMALL_PUNCH_JOIN, core.full);
            break;
        case SMALL_JOIN_FULL:
            list_join(segments, core.full, item_segment(), item().other);
            fl_fence();
            begin_allocating();
            next(SMALL_ALLOCATE);
            break;
        case SMALL_PUNCH_JOIN:
            list_join(segments, core.full, item_segment(), item().other);
            end();
            break;
        case SMALL_ALLOCATE:
            allocate_block();
            end();
            break;
        case SMALL_FREE: free_block(); break;
        case SMALL_JOIN_PAGES:
            list_join(segments, core.pages[item_class()], item().page, item().other);
            end();
            break;
        case SMALL_RETURN_PAGE: return_page(); break;
        case SMALL_LEAVE_FULL:
            list_leave(segments, core.full, item_segment());
            fl_fence();
            next_joining(SMALL_JOIN_ACTIVE, core.active);
            break;
        case SMALL_JOIN_ACTIVE:
            list_join(segments, core.active, item_segment(), item().other);
            end();
            break;
        case SMALL_RETURN_SEGMENT:
            return_segment(segments, item().argument);
            end();
            break;
        case SMALL_PUNCH_PAGE: punch_page(); break;
        case SMALL_FILL_PAGE: fill_page(); break;
        }
    }
}

/* is_untaken: the page of the item is still one of its segment's free ones. */
static void name_stage(SmallState state, bool is_untaken) {
    switch (state) {
    case SMALL_NONE:
    case SMALL_STATES: FL_STAGE("small: nothing pending"); break;
    case SMALL_WANT_SEGMENT: FL_STAGE("small: a segment was wanted"); break;
    case SMALL_NEW_SEGMENT: FL_STAGE("small: a new segment was to become active"); break;
    case SMALL_TAKE_PAGE: FL_STAGE("small: a page was taken"); break;
    case SMALL_LEAVE_ACTIVE: FL_STAGE("small: a full segment was leaving the active ones"); break;
    case SMALL_JOIN_FULL: FL_STAGE("small: a full segment was joining the full ones"); break;
    case SMALL_ALLOCATE: FL_STAGE("small: a block was being allocated"); break;
    case SMALL_FREE: FL_STAGE("small: a block was being freed"); break;
    case SMALL_JOIN_PAGES: FL_STAGE("small: a page with a free block was joining its list"); break;
    case SMALL_RETURN_PAGE: FL_STAGE("small: a page was being returned"); break;
    case SMALL_LEAVE_FULL: FL_STAGE("small: a segment was leaving the full ones"); break;
    case SMALL_JOIN_ACTIVE: FL_STAGE("small: a segment was joining the active ones"); break;
    case SMALL_RETURN_SEGMENT: FL_STAGE("small: an empty segment was being given back"); break;
    case SMALL_PUNCH_PAGE:
        if (is_untaken)
            FL_STAGE("defragment: a page was to leave the free ones of its segment");
        else
            FL_STAGE("defragment: a page that left the free ones was being punched");
        break;
    case SMALL_PUNCH_LEAVE: FL_STAGE("defragment: a segment without free pages was leaving the active ones"); break;
    case SMALL_PUNCH_JOIN: FL_STAGE("defragment: a segment without free pages was joining the full ones"); break;
    case SMALL_FILL_PAGE: FL_STAGE("small: a hole was becoming a free page"); break;
    }
}

void Small::recover() {
    name_stage(state(), state() == SMALL_PUNCH_PAGE && segment_of(item().page).pages == item().other.offset);
#if defined(MUTANT_RECOVERY_CLEARS_ITEM_FIRST)
    const uint64_t before = item().state;
    next(SMALL_NONE);
    store(item().state, before);
#elif defined(MUTANT_RECOVERY_END_NOT_FENCED) || defined(MUTANT_RECOVERY_ARGUMENT_NOT_FLUSHED)
    is_recovering = true;
#endif
    run();
#if defined(MUTANT_RECOVERY_END_NOT_FENCED) || defined(MUTANT_RECOVERY_ARGUMENT_NOT_FLUSHED)
    is_recovering = false;
#endif
}

Status Small::take_ownership() {
    uint64_t count = 0;
#ifndef MUTANT_FULL_SEGMENTS_FORGOTTEN
    const PPtrBase heads[] = {core.active, core.full};
#else
    const PPtrBase heads[] = {core.active};
#endif
    for (const PPtrBase &head : heads)
        for (PPtrBase at = head; !at.is_null(); at = segments.header(at.file)->links.next) {
            if (segments.header(at.file) == nullptr || segments.bytes_of(at.file) != SEGMENT_BYTES || count++ > PAL_SEGMENT_ENTRIES)
                return fail(Status::CORRUPT, "the lists of small segments of core %d are broken at segment %llu", owner,
                            static_cast<unsigned long long>(at.file));
            segments.set_owner(at.file, owner);
            segments.note_hole(at.file, as<SegmentPages>(segments.header(at.file)->pages).holes * PAGE_BYTES);
        }
    return Status::OK;
}

/* ---- looking ---- */

static bool is_used_page(const PageHeader &page) {
    return (page.kind & ~UINT64_C(0xffff)) == PAGE_USED && (page.kind & 0xffff) < CLASSES;
}

uint64_t Small::block_bytes(const PPtrBase &block) const {
    PPtrBase place{block.file, block.offset / PAGE_BYTES * PAGE_BYTES};
    if (place.offset == 0 || segments.bytes_of(block.file) != SEGMENT_BYTES || !is_used_page(page_at(place)))
        return 0;
    const PageHeader &page = page_at(place);
    uint64_t bytes = CLASS_BYTES[page.kind & 0xffff], count = as<PageBlocks>(page.blocks).count;
    uint64_t in_page = block.offset - place.offset, first = blocks_offset(count);
    if (in_page < first || (in_page - first) % bytes != 0 || (in_page - first) / bytes >= count)
        return 0;
    return bytes;
}

static void walk_page(const PPtrBase &place, const PageHeader &page, const std::function<void(const Part &)> &visit) {
    const PageBlocks blocks = as<PageBlocks>(page.blocks);
    std::vector<bool> is_free(blocks.count);
    for (uint16_t at = blocks.first_free, steps = 0; at < blocks.count && steps < blocks.count; at = load_entry(page, at), steps++)
        is_free[at] = true;
    uint64_t bytes = CLASS_BYTES[page.kind & 0xffff], at = blocks_offset(blocks.count);
    visit({place.file, place.offset, at, PartState::METADATA});
    for (uint16_t block = 0; block < blocks.count; block++, at += bytes)
        visit({place.file, place.offset + at, bytes, is_free[block] ? PartState::FREE : PartState::ALLOCATED});
    if (at < PAGE_BYTES)
        visit({place.file, place.offset + at, PAGE_BYTES - at, PartState::UNUSABLE});
}

void Small::walk(uint64_t file, const std::function<void(const Part &)> &visit) const {
    const SegmentPages pages = as<SegmentPages>(segments.header(file)->pages);
    std::vector<bool> is_free(PAGES);
    for (uint64_t at = pages.first_free, steps = 0; at < PAGES && steps < PAGES; steps++) {
        is_free[at] = true;
        at = page_at({file, at * PAGE_BYTES}).kind & 0xffff;
    }
    visit({file, 0, PAGE_BYTES, PartState::METADATA});
    for (uint64_t index = 1; index < PAGES; index++) {
        PPtrBase place{file, index * PAGE_BYTES};
        if (is_free[index] || index >= pages.fresh)
            visit({file, place.offset, PAGE_BYTES, PartState::FREE});
        else if (is_used_page(page_at(place)))
            walk_page(place, page_at(place), visit);
        else
            visit({file, place.offset, PAGE_BYTES, PartState::UNUSABLE}); /* a hole */
    }
}

static Status broken(const PPtrBase &at, const char *what) {
    return fail(Status::CORRUPT, "segment %llu, offset %#llx: %s", static_cast<unsigned long long>(at.file),
                static_cast<unsigned long long>(at.offset), what);
}

Status Small::check_page(const PPtrBase &place, unsigned size_class, const PPtrBase &previous) const {
    const PageHeader *page = segments.at<PageHeader>(place);
    if (page == nullptr || segments.owner(place.file) != owner || place.offset % PAGE_BYTES != 0)
        return broken(place, "the list of pages leads here, which is no page of this core");
    if (page->kind != (PAGE_USED | size_class))
        return broken(place, "a page in the list of another size class");
    if (as<PageBlocks>(page->blocks).first_free == NO_INDEX)
        return broken(place, "a full page in the list of pages with free blocks");
    if (!(page->links.previous == previous))
        return broken(place, "the links of the list of pages contradict each other");
    return Status::OK;
}

static Status check_blocks(const PPtrBase &place, const PageHeader &page) {
    const PageBlocks blocks = as<PageBlocks>(page.blocks);
    if (blocks.count != block_count(page.kind & 0xffff))
        return broken(place, "a page with a wrong number of blocks");
    std::vector<bool> is_free(blocks.count);
    uint16_t free = 0;
    for (uint16_t at = blocks.first_free; at != NO_INDEX; at = load_entry(page, at), free++) {
        if (at >= blocks.count || is_free[at])
            return broken(place, "the list of free blocks is broken");
        is_free[at] = true;
    }
    if (free + blocks.used != blocks.count)
        return broken(place, "the number of blocks in use is wrong");
    return blocks.used == 0 ? broken(place, "an empty page was not returned") : Status::OK;
}

Status Small::check_segment(const PPtrBase &segment, bool is_full, uint64_t *listed_pages) const {
    const SegmentPages pages = as<SegmentPages>(segments.header(segment.file)->pages);
    if (has_free_pages(pages) == is_full)
        return broken(segment, "the segment is in the wrong list");
    if (pages.used == 0)
        return broken(segment, "an empty segment was not given back");
    std::vector<bool> is_free(PAGES);
    for (uint16_t at = pages.first_free; at != NO_INDEX;
         at = static_cast<uint16_t>(page_at({segment.file, at * PAGE_BYTES}).kind)) {
        if (at == 0 || at >= pages.fresh || is_free[at] || page_at({segment.file, at * PAGE_BYTES}).kind >> 16 != PAGE_FREE >> 16)
            return broken(segment, "the list of free pages is broken");
        is_free[at] = true;
    }
    uint64_t used = 0, holes = 0;
    for (uint64_t index = 1; index < pages.fresh; index++) {
        PPtrBase place{segment.file, index * PAGE_BYTES};
        if (is_free[index])
            continue;
        if (!is_used_page(page_at(place))) {
            holes++;
            continue;
        }
        Status status = check_blocks(place, page_at(place));
        if (status != Status::OK)
            return status;
        *listed_pages += as<PageBlocks>(page_at(place).blocks).first_free != NO_INDEX;
        used++;
    }
    return used == pages.used && holes == pages.holes ? Status::OK
                                                      : broken(segment, "the number of pages in use or of holes is wrong");
}

Status Small::check() const {
    std::lock_guard guard(lock);
    uint64_t expected = 0, listed = 0;
    for (bool is_full : {false, true}) {
        PPtrBase previous;
        for (PPtrBase at = is_full ? core.full : core.active; !at.is_null();
             previous = at, at = segments.header(at.file)->links.next) {
            if (!(segments.header(at.file)->links.previous == previous))
                return broken(at, "the links of the list of segments contradict each other");
            Status status = check_segment(at, is_full, &expected);
            if (status != Status::OK)
                return status;
        }
    }
    for (unsigned size_class = 0; size_class < CLASSES; size_class++) {
        PPtrBase previous;
        for (PPtrBase at = core.pages[size_class]; !at.is_null(); previous = at, at = page_at(at).links.next) {
            Status status = check_page(at, size_class, previous);
            if (status != Status::OK)
                return status;
            if (listed++ > expected)
                return broken(at, "the list of pages does not end");
        }
    }
    if (state() != SMALL_NONE)
        return fail(Status::CORRUPT, "core %d: the small recovery item is not empty", owner);
    return listed == expected ? Status::OK
                              : fail(Status::CORRUPT, "core %d: %llu pages have free blocks, the lists have %llu", owner,
                                     static_cast<unsigned long long>(expected), static_cast<unsigned long long>(listed));
}

} // namespace pallocator
