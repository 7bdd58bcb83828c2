/* SPDX-License-Identifier: Apache-2.0
 *
 * heap.cpp - the allocator objects of all cores together: allocation, defragmentation, recovery (§4.3, §4.6, §4.7).
 */
#include <algorithm>
#include <cstring>
#include <deque>
#include <sched.h>
#include <string>
#include <unistd.h>

#include "big.h"
#include "files.h"
#include "small.h"
#include "stage.h"

namespace pallocator {

static thread_local int chosen_core = -1;

void Heap::use_core(int core) { chosen_core = core; }

/* Leaves of one core's trees: from its own small allocator if possible. */
struct CoreLeaves final : LeafMemory {
    CoreLeaves(Heap::State &heap, unsigned core) : heap(heap), core(core) {}
    Status allocate_leaf(PPtrBase &pointer) override;
    void free_leaf(PPtrBase &pointer) override;

    Heap::State &heap;
    unsigned core;
};

struct Heap::State {
    Segments segments;
    std::deque<Small> smalls;
    std::deque<CoreLeaves> leaves;
    std::deque<Big> bigs;
    std::mutex defragmenting;

    void make_allocators();
    Status recover();
    void name_shape() const;
    unsigned own_core() const;

    Status allocate_small(unsigned first, unsigned size_class, const PPtrBase &argument);
    Status allocate_once(unsigned first, uint64_t bytes, PPtrBase &pointer, const PPtrBase &argument);
    uint64_t segment_bytes_for(uint64_t bytes) const;
    uint64_t reclaimable();
    Status reclaim(uint64_t bytes);
    Status make_room(uint64_t bytes);
    void walk_file(uint64_t file, const std::function<void(const Part &)> &visit) const;
    Counters count_segments() const; /* nothing else is in it */
};

Status CoreLeaves::allocate_leaf(PPtrBase &pointer) {
    return heap.allocate_small(core, class_of(sizeof(Leaf)), heap.segments.persistent(&pointer));
}

void CoreLeaves::free_leaf(PPtrBase &pointer) {
    const PPtrBase leaf = pointer;
    Owner owner = heap.segments.owner(leaf.file);
    if (owner >= 0 && static_cast<unsigned>(owner) < heap.segments.cores())
        heap.smalls[static_cast<unsigned>(owner)].deallocate(heap.segments.persistent(&pointer), leaf);
}

/* ---- create, open ---- */

Heap::Heap(std::unique_ptr<State> state) : state(std::move(state)) {}
Heap::~Heap() = default;

void Heap::State::make_allocators() {
    for (unsigned core = 0; core < segments.cores(); core++) {
        smalls.emplace_back(segments, core);
        leaves.emplace_back(*this, core);
    }
    for (unsigned core = 0; core < segments.cores(); core++)
        bigs.emplace_back(segments, leaves[core], core);
}

static unsigned cores_wanted(const Options &options) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cores = options.cores != 0 ? options.cores : online > 0 ? static_cast<unsigned>(online) : 1;
    return std::min(cores, MOST_CORES);
}

/* What an interrupted creation left is thrown away: only the anchor can be there (§4.7). Segments without an anchor that can be read
 * are what is left of a heap: they stay. */
Status Heap::create(const Options &options, Heap **heap) {
    if (options.folder == nullptr || options.cores > MOST_CORES)
        return fail(Status::INVALID, "a heap needs a folder and at most %u cores", MOST_CORES);
    {
        Segments existing;
        Status status = existing.map_all(options);
        if (status == Status::NOT_A_HEAP)
            status = existing.look_for_strangers(options.folder);
        else if (status == Status::OK)
            status = fail(Status::EXISTS, "%s: there is a heap already", options.folder);
        if (status != Status::OK)
            return status;
    }
    files_unlink((std::string(options.folder) + "/anchor").c_str());
    auto state = std::make_unique<State>();
    Status status = state->segments.create_anchor(options, cores_wanted(options));
    if (status != Status::OK)
        return status;
    state->make_allocators();
    *heap = new Heap(std::move(state));
    return Status::OK;
}

/* Segment item, then small items, then ownership of small segments, then trees (whose logs free leaves), then big items. */
Status Heap::State::recover() {
    segments.recover();
    make_allocators();
    for (Small &small : smalls)
        small.recover();
    for (Small &small : smalls)
        if (Status status = small.take_ownership(); status != Status::OK)
            return status;
    uint64_t count = 0;
    for (PPtrBase at = segments.anchor().free_segments; !at.is_null(); at = segments.header(at.file)->links.next) {
        if (segments.bytes_of(at.file) != SEGMENT_BYTES || count++ > PAL_SEGMENT_ENTRIES)
            return fail(Status::CORRUPT, "the list of free segments is broken at segment %llu",
                        static_cast<unsigned long long>(at.file));
        segments.set_owner(at.file, OWNER_NONE);
    }
    for (Big &big : bigs)
        if (Status status = big.recover_trees(); status != Status::OK)
            return status;
    name_shape();
    for (Big &big : bigs)
        big.recover();
    return Status::OK;
}

/* Enough of them for lists with a middle. */
void Heap::State::name_shape() const {
    const Counters counters = count_segments();
    if (counters.small_segments >= 3 && counters.big_segments >= 3 && counters.huge_segments >= 3)
        FL_STAGE("heap: three small, three big and three huge segments");
    if (counters.free_segments >= 3)
        FL_STAGE("heap: three free segments");
}

Status Heap::open(const Options &options, Heap **heap) {
    if (options.folder == nullptr)
        return fail(Status::INVALID, "a heap needs a folder");
    auto state = std::make_unique<State>();
    Status status = state->segments.map_all(options);
    if (status == Status::OK)
        status = state->recover();
    if (status == Status::OK)
        *heap = new Heap(std::move(state));
    return status;
}

/* ---- allocation ---- */

unsigned Heap::State::own_core() const {
    int core = chosen_core >= 0 ? chosen_core : sched_getcpu();
    return core < 0 ? 0 : static_cast<unsigned>(core) % segments.cores();
}

/* The own allocator first, then the others in turn: one may have a free block where no segment can be made (§4.6). What room there
 * is for less than a segment is used by their holes: so defragmentation takes nothing from small requests for good. */
Status Heap::State::allocate_small(unsigned first, unsigned size_class, const PPtrBase &argument) {
    Status status = Status::OUT_OF_MEMORY;
    for (unsigned i = 0; i < smalls.size() && status == Status::OUT_OF_MEMORY; i++)
        status = smalls[(first + i) % smalls.size()].allocate(size_class, argument);
    for (unsigned i = 0; i < smalls.size() && status == Status::OUT_OF_MEMORY; i++)
        if (Small &small = smalls[(first + i) % smalls.size()]; small.fill_hole())
            status = small.allocate(size_class, argument);
    return status;
}

Status Heap::State::allocate_once(unsigned first, uint64_t bytes, PPtrBase &pointer, const PPtrBase &argument) {
    unsigned size_class = class_of(bytes);
    if (size_class < CLASSES)
        return allocate_small(first, size_class, argument);
    if (bytes >= BIG_LIMIT)
        return segments.acquire_huge(pointer, bytes);
    Status status = Status::OUT_OF_MEMORY;
    for (unsigned i = 0; i < bigs.size() && status == Status::OUT_OF_MEMORY; i++)
        status = bigs[(first + i) % bigs.size()].allocate(bytes, argument);
    for (unsigned i = 0; i < bigs.size() && status == Status::OUT_OF_MEMORY; i++)
        status = bigs[(first + i) % bigs.size()].allocate_in_hole(bytes, argument);
    return status;
}

uint64_t Heap::State::segment_bytes_for(uint64_t bytes) const {
    return bytes >= BIG_LIMIT ? HEADER_BYTES + rounded_up(bytes, OS_PAGE_BYTES) : SEGMENT_BYTES;
}

Status Heap::allocate(PPtrBase &pointer, uint64_t bytes) {
    const PPtrBase argument = state->segments.persistent(&pointer);
    if (argument.is_null() || argument.offset % alignof(PPtrBase) != 0)
        return fail(Status::INVALID, "the persistent pointer does not lie in the heap");
    if (!pointer.is_null())
        return fail(Status::INVALID, "the persistent pointer is not null");
    if (bytes > UINT64_MAX / 2)
        return fail(Status::OUT_OF_MEMORY, "%llu bytes are more than there can be", static_cast<unsigned long long>(bytes));
    unsigned core = state->own_core();
    Status status = state->allocate_once(core, bytes, pointer, argument);
    /* Each time for a segment more: leaves may need one too, and what is made and found too little is not made again. */
    uint64_t wanted = state->segment_bytes_for(bytes);
    for (; status == Status::OUT_OF_MEMORY && state->make_room(wanted) == Status::OK; wanted += SEGMENT_BYTES)
        status = state->allocate_once(core, bytes, pointer, argument);
    return status;
}

Status Heap::deallocate(PPtrBase &pointer) {
    Segments &segments = state->segments;
    const PPtrBase block = pointer, argument = segments.persistent(&pointer);
    if (argument.is_null() || argument.offset % alignof(PPtrBase) != 0)
        return fail(Status::INVALID, "the persistent pointer does not lie in the heap");
    Owner owner = segments.owner(block.file);
    unsigned cores = segments.cores();
    if (block.is_null() || block.file == ANCHOR_FILE || owner == OWNER_NONE)
        return fail(Status::INVALID, "the persistent pointer is to no object");
    if (owner == OWNER_HUGE) {
        if (block.offset != HEADER_BYTES)
            return fail(Status::INVALID, "segment %llu, offset %#llx: no object in use starts there",
                        static_cast<unsigned long long>(block.file), static_cast<unsigned long long>(block.offset));
        segments.destroy(pointer);
        return Status::OK;
    }
    unsigned number = static_cast<unsigned>(owner);
    return number < cores ? state->smalls[number].deallocate(argument, block)
                          : state->bigs[number - cores].deallocate(argument, block);
}

/* ---- defragmentation ---- */

uint64_t Heap::State::reclaimable() {
    uint64_t bytes = segments.free_list_bytes();
    for (Big &big : bigs)
        bytes += big.free_bytes();
    for (Small &small : smalls)
        bytes += small.free_page_bytes();
    return bytes;
}

/* Free segments first, then the largest free block of all cores again and again, then free pages. Nothing is done for a request that
 * all of it could not satisfy. */
Status Heap::State::reclaim(uint64_t bytes) {
    if (uint64_t most = reclaimable(); most < bytes)
        return fail(Status::OUT_OF_MEMORY, "%llu bytes are wanted, defragmentation could give back %llu",
                    static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(most));
    const uint64_t before = segments.occupied();
    auto is_enough = [&] { return segments.occupied() + bytes <= before; };
    while (!is_enough() && segments.destroy_a_free_one())
        continue;
    for (uint64_t punched = 1; !is_enough() && punched != 0;) {
        auto largest =
            std::max_element(bigs.begin(), bigs.end(), [](Big &a, Big &b) { return a.largest_free() < b.largest_free(); });
        punched = largest->punch_largest();
    }
    for (Small &small : smalls)
        while (!is_enough() && small.punch_free_page())
            continue;
    return is_enough() ? Status::OK
                       : fail(Status::OUT_OF_MEMORY, "defragmentation did not give back %llu bytes",
                              static_cast<unsigned long long>(bytes));
}

/* So that a segment of this size can be made. */
Status Heap::State::make_room(uint64_t bytes) {
    std::lock_guard guard(defragmenting);
    uint64_t room = segments.is_disk_full() ? 0 : segments.room();
    if (bytes <= room)
        return Status::OUT_OF_MEMORY; /* something else is short */
    return reclaim(bytes - room);
}

Status Heap::defragment(uint64_t bytes) {
    std::lock_guard guard(state->defragmenting);
    return state->reclaim(bytes);
}

/* ---- looking ---- */

PPtrBase &Heap::root(unsigned number) { return state->segments.anchor().roots[number % ROOTS]; }
void *Heap::to_pointer(const PPtrBase &pointer) const { return pointer.is_null() ? nullptr : state->segments.address_of(pointer); }
PPtrBase Heap::to_persistent(const void *pointer) const { return state->segments.persistent(pointer); }
uint64_t Heap::occupied_bytes() const { return state->segments.occupied(); }

uint64_t Heap::usable_bytes(const PPtrBase &pointer) const {
    Owner owner = pointer.is_null() ? OWNER_NONE : state->segments.owner(pointer.file);
    unsigned cores = state->segments.cores();
    if (owner == OWNER_NONE || pointer.file == ANCHOR_FILE)
        return 0;
    if (owner == OWNER_HUGE)
        return pointer.offset == HEADER_BYTES ? state->segments.bytes_of(pointer.file) - HEADER_BYTES : 0;
    unsigned number = static_cast<unsigned>(owner);
    return number < cores ? state->smalls[number].block_bytes(pointer) : state->bigs[number - cores].block_bytes(pointer);
}

void Heap::State::walk_file(uint64_t file, const std::function<void(const Part &)> &visit) const {
    Owner owner = segments.owner(file);
    uint64_t bytes = segments.bytes_of(file);
    if (file == ANCHOR_FILE) {
        visit({file, 0, bytes, PartState::METADATA});
    } else if (owner == OWNER_NONE) {
        visit({file, 0, HEADER_BYTES, PartState::METADATA});
        visit({file, HEADER_BYTES, bytes - HEADER_BYTES, PartState::FREE});
    } else if (owner == OWNER_HUGE) {
        visit({file, 0, HEADER_BYTES, PartState::METADATA});
        visit({file, HEADER_BYTES, bytes - HEADER_BYTES, PartState::ALLOCATED});
    } else if (static_cast<unsigned>(owner) < smalls.size()) {
        smalls[static_cast<unsigned>(owner)].walk(file, visit);
    } else {
        bigs[static_cast<unsigned>(owner) - smalls.size()].walk(file, visit);
    }
}

/* Leaves of the trees are blocks of small segments, but nobody's objects. */
Status Heap::walk(const std::function<void(const Part &)> &visit) const {
    std::vector<std::pair<uint64_t, uint64_t>> leaves;
    for (unsigned i = 0; i < state->segments.cores(); i++) {
        const Core &core = state->segments.core(i);
        for (PPtrBase at : {core.free_tree, core.info_tree})
            for (; !at.is_null(); at = state->segments.at<Leaf>(at)->next)
                leaves.emplace_back(at.file, at.offset);
    }
    std::sort(leaves.begin(), leaves.end());
    for (uint64_t file : state->segments.files())
        state->walk_file(file, [&](const Part &part) {
            bool is_leaf = part.state == PartState::ALLOCATED &&
                           std::binary_search(leaves.begin(), leaves.end(), std::pair(part.file, part.offset));
            visit(is_leaf ? Part{part.file, part.offset, part.bytes, PartState::METADATA} : part);
        });
    return Status::OK;
}

Status Heap::check() const {
    for (const Small &small : state->smalls)
        if (Status status = small.check(); status != Status::OK)
            return status;
    for (const Big &big : state->bigs)
        if (Status status = big.check(); status != Status::OK)
            return status;
    if (state->segments.anchor().segment_item.state != SEGMENT_NONE || !state->segments.anchor().leaving.is_null())
        return fail(Status::CORRUPT, "the segment recovery item is not empty");
    for (uint64_t file : state->segments.files())
        if (file > state->segments.anchor().segment_counter)
            return fail(Status::CORRUPT, "segment %llu is newer than the counter, %llu", static_cast<unsigned long long>(file),
                        static_cast<unsigned long long>(state->segments.anchor().segment_counter));
    return Status::OK;
}

Counters Heap::State::count_segments() const {
    Counters counters{};
    for (uint64_t file : segments.files()) {
        Owner owner = segments.owner(file);
        uint64_t &kind = owner == OWNER_NONE                               ? counters.free_segments
                         : owner == OWNER_HUGE                             ? counters.huge_segments
                         : static_cast<unsigned>(owner) < segments.cores() ? counters.small_segments
                                                                           : counters.big_segments;
        kind += file != ANCHOR_FILE;
    }
    return counters;
}

Counters Heap::counters() const {
    const Segments &segments = state->segments;
    Counters counters = state->count_segments();
    counters.defragmented_bytes = segments.punched_bytes;
    counters.punched_holes = segments.punched;
    counters.created_segments = segments.created;
    counters.destroyed_segments = segments.destroyed;
    for (const Big &big : state->bigs)
        counters.tree_levels = std::max<uint64_t>(counters.tree_levels, big.levels());
    return counters;
}

} // namespace pallocator
