/* SPDX-License-Identifier: Apache-2.0
 *
 * big.cpp - see big.h. The states of the item:
 *
 *     WANT_SEGMENT -> NEW_SEGMENT -> ALLOCATE -> NONE       FREE [-> RETURN_SEGMENT] -> NONE
 *     FREE -> DEFRAGMENT [-> RETURN_SEGMENT] -> NONE        DEFRAGMENT [-> RETURN_SEGMENT] -> NONE
 *
 * A tree takes an insertion only where prepare made room, so each state prepares before its first step: if that fails nothing has happened,
 * and done again after a failure it succeeds without allocating (tree.h). Steps on the trees do nothing where they are done already.
 * ALLOCATE takes from a free block or from a hole, whose rest stays one: then the free-blocks tree has no part in it.
 * A free whose insertion finds no memory for a leaf makes the block a hole instead, which needs none.
 */
#include "big.h"

#include <optional>

#include "stage.h"

namespace pallocator {

static constexpr uint64_t WHOLE_BYTES = SEGMENT_BYTES - HEADER_BYTES;

static uint64_t bytes_of(uint64_t info) { return info & ~uint64_t{BLOCK_FLAGS}; }

Big::Big(Segments &segments, LeafMemory &memory, unsigned core)
    : segments(segments), core(segments.core(core)), owner(static_cast<Owner>(segments.cores() + core)),
      free_tree(3, segments, memory, this->core.free_tree, this->core.free_log),
      info_tree(2, segments, memory, this->core.info_tree, this->core.info_log) {}

/* ---- the item ---- */

/* The second line is persisted before the first, which holds the state. */
void Big::set_state(BigState state) {
#ifndef MUTANT_SECOND_LINE_NOT_FLUSHED
    fl_persist(&item().info, sizeof(BigItem) - offsetof(BigItem, info));
#endif
    store(item().state, state);
    fl_persist(&item(), offsetof(BigItem, info));
}

void Big::end() {
#ifndef MUTANT_BIG_CLEARED_TOO_EARLY
    fl_fence();
#endif
    store_flushed(item().state, BIG_NONE);
    fl_fence();
}

void Big::set_argument(const PPtrBase &value) {
    if (PPtrBase *argument = segments.at<PPtrBase>(item().argument))
        store_flushed(*argument, value);
}

/* The count of free bytes is of this life: what is there already is counted. */
void Big::free_insert(uint64_t bytes, const PPtrBase &block) {
    if (free_tree.find(free_key(bytes, block)) == nullptr)
        free_bytes_ += bytes;
    free_tree.insert({{bytes, block.file, block.offset}});
}

void Big::free_erase(uint64_t bytes, const PPtrBase &block) {
    if (free_tree.find(free_key(bytes, block)) != nullptr)
        free_bytes_ -= bytes;
    free_tree.erase(free_key(bytes, block));
}

/* ---- allocation ---- */

/* False: no memory for leaves, and nothing has happened. */
bool Big::add_segment() {
    const PPtrBase block{item().segment.file, HEADER_BYTES};
    if (info_tree.prepare(info_key(block)) != Status::OK || free_tree.prepare(free_key(WHOLE_BYTES, block)) != Status::OK)
        return false;
    info_tree.insert({{block.file, block.offset, WHOLE_BYTES | BLOCK_LAST}});
    free_insert(WHOLE_BYTES, block);
    segments.set_owner(block.file, owner);
    return true;
}

/* Best fit; fields that no state before ALLOCATE reads. */
bool Big::begin_allocating() {
    const TreeEntry *best = free_tree.lower_bound({item().wanted, 0, 0});
    if (best == nullptr)
        return false;
    PPtrBase block{best->words[1], best->words[2]};
    store(item().block, block);
    store(item().info, info_tree.find(info_key(block))->words[2]);
    return true;
}

/* The right part is the object, the left one stays free, or a hole. False as above. */
bool Big::allocate_block() {
    const PPtrBase block = item().block;
    uint64_t bytes = bytes_of(item().info), is_last = item().info & BLOCK_LAST, left = bytes - item().wanted;
    uint64_t is_hole = item().info & BLOCK_HOLE;
    if (left == 0) {
        set_info(block, bytes | BLOCK_USED | is_last);
        free_erase(bytes, block);
        set_argument(block);
        return true;
    }
    const PPtrBase right{block.file, block.offset + left};
    if (info_tree.prepare(info_key(right)) != Status::OK ||
        (is_hole == 0 && free_tree.prepare(free_key(left, block)) != Status::OK))
        return false;
    info_tree.insert({{right.file, right.offset, item().wanted | BLOCK_USED | is_last}});
    if (is_hole == 0)
        free_insert(left, block);
    set_info(block, left | is_hole);
    free_erase(bytes, block);
    set_argument(right);
    return true;
}

Status Big::allocate(uint64_t bytes, const PPtrBase &argument) {
    std::lock_guard guard(lock);
    store(item().argument, argument);
    store(item().wanted, rounded_up(bytes, OS_PAGE_BYTES));
    store(item().segment, {});
    if (begin_allocating()) {
        set_state(BIG_ALLOCATE);
    } else {
        set_state(BIG_WANT_SEGMENT);
        Status status = segments.acquire(item().segment);
        if (status != Status::OK) {
            end();
            return status;
        }
        set_state(BIG_NEW_SEGMENT);
    }
    run();
    return status_of_allocation();
}

Status Big::status_of_allocation() const {
    return segments.at<PPtrBase>(item().argument)->is_null() ? Status::OUT_OF_MEMORY : Status::OK;
}

/* The first hole that is large enough. Its space comes first: of a crash before the item says so nothing is left. */
Status Big::allocate_in_hole(uint64_t bytes, const PPtrBase &argument) {
    std::lock_guard guard(lock);
    uint64_t wanted = rounded_up(bytes, OS_PAGE_BYTES), info = 0;
    PPtrBase hole;
    info_tree.each([&](const TreeEntry &entry) {
        if (hole.is_null() && (entry.words[2] & BLOCK_HOLE) != 0 && bytes_of(entry.words[2]) >= wanted) {
            hole = {entry.words[0], entry.words[1]};
            info = entry.words[2];
        }
    });
    if (hole.is_null() || !segments.fill(hole.file, hole.offset + bytes_of(info) - wanted, wanted))
        return Status::OUT_OF_MEMORY;
    store(item().argument, argument);
    store(item().wanted, wanted);
    store(item().segment, {});
    store(item().block, hole);
    store(item().info, info);
    set_state(BIG_ALLOCATE);
    run();
    return status_of_allocation();
}

/* Recovery of the same: the trees still say that all of it is a hole. */
void Big::note_filled_hole() {
    const TreeEntry *entry = info_tree.find(info_key(item().block));
    if ((item().info & BLOCK_HOLE) != 0 && entry != nullptr && entry->words[2] == item().info)
        segments.note_filled(item().block.file, item().wanted);
}

/* ---- deallocation ---- */

/* Bytes of the neighbour if it is as the flags say (BLOCK_HOLE, or 0: free), else 0. */
uint64_t Big::neighbour_before(const PPtrBase &block, uint64_t flags) const {
    const TreeEntry *entry = info_tree.before(info_key(block));
    bool is_joined = entry != nullptr && entry->words[0] == block.file && (entry->words[2] & (BLOCK_USED | BLOCK_HOLE)) == flags;
    return is_joined ? bytes_of(entry->words[2]) : 0;
}

uint64_t Big::neighbour_after(const PPtrBase &block, uint64_t info, uint64_t flags, uint64_t *is_last) const {
    const TreeEntry *entry = (info & BLOCK_LAST) != 0 ? nullptr : info_tree.find({block.file, block.offset + bytes_of(info), 0});
    bool is_joined = entry != nullptr && (entry->words[2] & (BLOCK_USED | BLOCK_HOLE)) == flags;
    *is_last = is_joined ? entry->words[2] & BLOCK_LAST : 0;
    return is_joined ? bytes_of(entry->words[2]) : 0;
}

Status Big::deallocate(const PPtrBase &argument, const PPtrBase &block) {
    std::lock_guard guard(lock);
    const TreeEntry *entry = info_tree.find(info_key(block));
    if (entry == nullptr || (entry->words[2] & BLOCK_USED) == 0)
        return fail(Status::INVALID, "segment %llu, offset %#llx: no object in use starts there",
                    static_cast<unsigned long long>(block.file), static_cast<unsigned long long>(block.offset));
    uint64_t is_last;
    store(item().argument, argument);
    store(item().block, block);
    store(item().info, entry->words[2]);
    store(item().left, neighbour_before(block, 0));
    store(item().right, neighbour_after(block, entry->words[2], 0, &is_last));
    store(item().right_last, is_last);
    set_state(BIG_FREE);
    run();
    return Status::OK;
}

void Big::free_block() {
    const PPtrBase block = item().block;
    uint64_t bytes = bytes_of(item().info), left = item().left, right = item().right;
    const PPtrBase joined{block.file, block.offset - left}, after{block.file, block.offset + bytes};
    uint64_t all = left + bytes + right, is_last = (item().info & BLOCK_LAST) | item().right_last;
    set_argument({});
    fl_fence(); /* null before anybody else can get the block; until the state changes, behind a fence, recovery does it again */
    bool is_whole = all == WHOLE_BYTES;
    if (!is_whole && free_tree.prepare(free_key(all, joined)) != Status::OK) {
        FL_STAGE("big: a free without memory for a leaf became a hole");
        begin_defragmenting(block, item().info);
        set_state(BIG_DEFRAGMENT);
        return;
    }
    if (!is_whole)
        free_insert(all, joined);
    if (left != 0)
        free_erase(left, joined);
    if (right != 0) {
        free_erase(right, after);
        info_tree.erase(info_key(after));
    }
    if (left != 0)
        info_tree.erase(info_key(block));
    if (!is_whole) {
        set_info(joined, all | is_last);
        end();
        return;
    }
    info_tree.erase(info_key(joined));
    store(item().segment, {block.file, 0});
    store(item().is_hole, 0);
    fl_fence(); /* the trees are without the block before the state says so; erase fenced, too */
    set_state(BIG_RETURN_SEGMENT);
}

/* ---- defragmentation: a block becomes a hole, a segment of holes goes ---- */

/* Only fields that FREE does not read. */
void Big::begin_defragmenting(const PPtrBase &block, uint64_t info) {
    uint64_t is_last;
    store(item().left_hole, neighbour_before(block, BLOCK_HOLE));
    store(item().right_hole, neighbour_after(block, info, BLOCK_HOLE, &is_last));
    store(item().hole_last, (info & BLOCK_LAST) | is_last);
}

void Big::punch_block() {
    const PPtrBase block = item().block;
    uint64_t bytes = bytes_of(item().info), left = item().left_hole, right = item().right_hole;
    const PPtrBase joined{block.file, block.offset - left}, after{block.file, block.offset + bytes};
    uint64_t all = left + bytes + right, is_last = item().hole_last;
    const TreeEntry *entry = info_tree.find(info_key(block));
    if (entry != nullptr && (entry->words[2] & BLOCK_HOLE) == 0) {
        set_info(block, bytes | BLOCK_HOLE | (item().info & BLOCK_LAST));
        segments.note_hole(block.file, bytes);
    }
    fl_fence(); /* a hole for recovery before it is one; the block is free, so that nothing is lost by it */
    segments.punch(block.file, block.offset, bytes);
    free_erase(bytes, block);
    if (right != 0)
        info_tree.erase(info_key(after));
    if (left != 0)
        info_tree.erase(info_key(block));
    if (all != WHOLE_BYTES) {
        set_info(joined, all | BLOCK_HOLE | is_last);
#ifndef MUTANT_DEFRAGMENTATION_NOT_CLEARED
        end();
#else
        fl_fence();
        store(item().state, BIG_NONE);
#endif
        return;
    }
    info_tree.erase(info_key(joined));
    store(item().segment, segments.bytes_of(block.file) == 0 ? PPtrBase{} : PPtrBase{block.file, 0});
    fl_fence(); /* as in free_block */
    store(item().is_hole, 1);
    set_state(BIG_RETURN_SEGMENT);
}

uint64_t Big::punch_largest() {
    std::lock_guard guard(lock);
    const TreeEntry *largest = free_tree.last();
    if (largest == nullptr)
        return 0;
    uint64_t bytes = largest->words[0];
    const PPtrBase block{largest->words[1], largest->words[2]};
    uint64_t info = info_tree.find(info_key(block))->words[2];
    store(item().block, block);
    store(item().info, info);
    begin_defragmenting(block, info);
    set_state(BIG_DEFRAGMENT);
    run();
    return bytes;
}

uint64_t Big::free_bytes() const {
    std::lock_guard guard(lock);
    return free_bytes_;
}

uint64_t Big::largest_free() const {
    std::lock_guard guard(lock);
    const TreeEntry *largest = free_tree.last();
    return largest == nullptr ? 0 : largest->words[0];
}

/* ---- all of it ---- */

/* Of NEW_SEGMENT and ALLOCATE that find no memory for leaves nothing stays but the segment, which goes back. */
void Big::run() {
    for (;;) {
        switch (item().state) {
        case BIG_NONE: return;
        case BIG_WANT_SEGMENT: /* only recovery comes here */
            if (item().segment.is_null())
                end();
            else
                set_state(BIG_NEW_SEGMENT);
            break;
        case BIG_NEW_SEGMENT:
            if (!add_segment()) {
                store(item().is_hole, 0);
                set_state(BIG_RETURN_SEGMENT);
                break;
            }
            begin_allocating();
            set_state(BIG_ALLOCATE);
            break;
        case BIG_ALLOCATE:
            if (!allocate_block() && (item().info & BLOCK_HOLE) != 0)
                segments.note_hole(item().block.file, item().wanted);
            end();
            break;
        case BIG_FREE: free_block(); break;
        case BIG_DEFRAGMENT: punch_block(); break;
        case BIG_RETURN_SEGMENT:
            if (!item().segment.is_null() && item().is_hole != 0)
                segments.destroy(item().segment);
            else if (!item().segment.is_null())
                segments.give_back(item().segment);
            end();
            break;
        }
    }
}

/* Which step of punch_block is the first that was not done. */
void Big::name_punching() const {
    const PPtrBase block = item().block;
    uint64_t bytes = bytes_of(item().info), left = item().left_hole, right = item().right_hole, all = left + bytes + right;
    const TreeEntry *entry = info_tree.find(info_key(block));
    const TreeEntry *joined = left == 0 ? entry : info_tree.find(info_key({block.file, block.offset - left}));
    if (entry != nullptr && (entry->words[2] & BLOCK_HOLE) == 0)
        FL_STAGE("defragment: a block was to become a hole");
    else if (free_tree.find(free_key(bytes, block)) != nullptr)
        FL_STAGE("defragment: a hole was being punched, and was to leave the free blocks");
    else if (right != 0 && info_tree.find(info_key({block.file, block.offset + bytes})) != nullptr)
        FL_STAGE("defragment: a hole was to be joined with the one after it");
    else if (left != 0 && entry != nullptr)
        FL_STAGE("defragment: a hole was to be joined with the one before it");
    else if (all == WHOLE_BYTES && joined != nullptr)
        FL_STAGE("defragment: a hole that is all of a segment was to be forgotten");
    else if (all == WHOLE_BYTES)
        FL_STAGE("defragment: a segment of holes was to be destroyed");
    else if (joined != nullptr && bytes_of(joined->words[2]) != all)
        FL_STAGE("defragment: joined holes were to get their size");
    else
        FL_STAGE("defragment: a hole was made, but for the end of the item");
}

void Big::recover() {
    switch (item().state) {
    case BIG_NONE: FL_STAGE("big: nothing pending"); return;
    case BIG_WANT_SEGMENT: FL_STAGE("big: a segment was wanted"); break;
    case BIG_NEW_SEGMENT: FL_STAGE("big: a new segment was to be entered"); break;
    case BIG_ALLOCATE:
        if ((item().info & BLOCK_HOLE) != 0)
            FL_STAGE("big: a block was being allocated in a hole");
        else
            FL_STAGE("big: a block was being allocated");
        note_filled_hole();
        break;
    case BIG_FREE: FL_STAGE("big: a block was being freed"); break;
    case BIG_DEFRAGMENT: name_punching(); break;
    case BIG_RETURN_SEGMENT:
        if (item().is_hole != 0)
            FL_STAGE("defragment: a segment of holes was being destroyed");
        else
            FL_STAGE("big: an empty segment was leaving");
        break;
    }
    const uint64_t file = item().block.file;
    run();
    if (segments.owner(file) == owner) /* the trees were read when holes were being joined, perhaps */
        segments.set_holes(file, hole_bytes(file));
}

uint64_t Big::hole_bytes(uint64_t file) const {
    uint64_t bytes = 0;
    const TreeEntry *entry = info_tree.lower_bound({file, 0, 0});
    for (; entry != nullptr && entry->words[0] == file; entry = info_tree.lower_bound({file, entry->words[1] + 1, 0}))
        if ((entry->words[2] & BLOCK_HOLE) != 0)
            bytes += bytes_of(entry->words[2]);
    return bytes;
}

Status Big::recover_trees() {
    Status status = Status::OK;
    std::optional<uint64_t> file; /* of the entry before: a segment is looked up once, not once for each of its blocks */
    free_bytes_ = 0;
    Status free_status = free_tree.recover([&](const TreeEntry &entry) { free_bytes_ += entry.words[0]; });
    Status info_status = info_tree.recover([&](const TreeEntry &entry) {
        if (entry.words[0] != file) {
            file = entry.words[0];
            if (segments.bytes_of(*file) != SEGMENT_BYTES)
                status = fail(Status::CORRUPT, "the tree of blocks of core %u knows segment %llu, which is none",
                              static_cast<unsigned>(owner) - segments.cores(), static_cast<unsigned long long>(*file));
            segments.set_owner(*file, owner);
        }
        if ((entry.words[2] & BLOCK_HOLE) != 0)
            segments.note_hole(*file, bytes_of(entry.words[2]));
    });
    if (free_tree.levels() >= 3)
        FL_STAGE("big: the tree of free blocks had three levels");
    if (info_tree.levels() >= 3)
        FL_STAGE("big: the tree of all blocks had three levels");
    return free_status != Status::OK ? free_status : info_status != Status::OK ? info_status : status;
}

/* ---- looking ---- */

uint64_t Big::block_bytes(const PPtrBase &block) const {
    std::lock_guard guard(lock);
    const TreeEntry *entry = info_tree.find(info_key(block));
    return entry != nullptr && (entry->words[2] & BLOCK_USED) != 0 ? bytes_of(entry->words[2]) : 0;
}

void Big::walk(uint64_t file, const std::function<void(const Part &)> &visit) const {
    std::lock_guard guard(lock);
    visit({file, 0, HEADER_BYTES, PartState::METADATA});
    const TreeEntry *entry = info_tree.lower_bound({file, 0, 0});
    while (entry != nullptr && entry->words[0] == file) {
        uint64_t info = entry->words[2];
        PartState state = (info & BLOCK_USED) != 0   ? PartState::ALLOCATED
                          : (info & BLOCK_HOLE) != 0 ? PartState::UNUSABLE
                                                     : PartState::FREE;
        visit({file, entry->words[1], bytes_of(info), state});
        entry = info_tree.lower_bound({file, entry->words[1] + 1, 0});
    }
}

/* Blocks follow each other to each segment's end, neighbours are joined, and the free ones are those of the free-blocks tree. */
Status Big::check() const {
    std::lock_guard guard(lock);
    Status status = item().state == BIG_NONE ? Status::OK : fail(Status::CORRUPT, "core's big recovery item is not empty");
    for (const Tree *tree : {&free_tree, &info_tree})
        if (Status tree_status = tree->check(); tree_status != Status::OK)
            status = tree_status;
    uint64_t file = 0, end = 0, before = 0, free_blocks = 0, free_bytes = 0;
    info_tree.each([&](const TreeEntry &entry) {
        uint64_t info = entry.words[2], offset = entry.words[1];
        auto wrong = [&](const char *what) {
            status = fail(Status::CORRUPT, "segment %llu, offset %#llx: %s", static_cast<unsigned long long>(entry.words[0]),
                          static_cast<unsigned long long>(offset), what);
        };
        bool is_next = entry.words[0] == file && (before & BLOCK_LAST) == 0;
        if (offset != (is_next ? end : HEADER_BYTES) || (!is_next && file != 0 && (before & BLOCK_LAST) == 0))
            wrong("a block does not begin where the one before it ends");
        if (((info & BLOCK_LAST) != 0) != (offset + bytes_of(info) == SEGMENT_BYTES))
            wrong("the last block of a segment is another one");
        if (is_next && (info & (BLOCK_USED | BLOCK_HOLE)) == (before & (BLOCK_USED | BLOCK_HOLE)) && (info & BLOCK_USED) == 0)
            wrong("free neighbours, or holes, are not joined");
        if ((info & (BLOCK_USED | BLOCK_HOLE)) == 0) {
            free_blocks++;
            free_bytes += bytes_of(info);
            if (free_tree.find(free_key(bytes_of(info), {entry.words[0], offset})) == nullptr)
                wrong("a free block is not in the free-blocks tree");
        }
        file = entry.words[0];
        end = offset + bytes_of(info);
        before = info;
    });
    uint64_t listed = 0;
    free_tree.each([&](const TreeEntry &) { listed++; });
    if (listed != free_blocks || free_bytes != free_bytes_)
        status = fail(Status::CORRUPT, "the free-blocks tree has %llu blocks, the BlockInfo tree has %llu free ones",
                      static_cast<unsigned long long>(listed), static_cast<unsigned long long>(free_blocks));
    return status;
}

} // namespace pallocator
