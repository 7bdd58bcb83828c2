/* SPDX-License-Identifier: Apache-2.0
 *
 * pallocator.cpp - pallocator in the benchmark driver. Its persistent pointers, which an operation sets or clears, are those of one object,
 * a line for each thread; what turns them into pointers and back is part of the cost.
 */
#include "pallocator.h"
#include "bench.h"
#include "persist.h"

using namespace pallocator;

namespace {

struct Anchor {
    uint64_t roots[BENCH_ROOTS]; /* words */
    struct alignas(FL_LINE_BYTES) {
        PPtrBase pointer;
    } links[BENCH_THREADS];
};

constexpr unsigned OFFSET_BITS = 40; /* of a word: file number and offset */

Heap *heap;
Anchor *anchor;

Options options_for(const char *folder, uint64_t limit_bytes) {
    Options options;
    options.folder = folder;
    options.limit_bytes = limit_bytes;
    return options;
}

/* 0 is the front of the anchor file, where no object is. */
uint64_t word_of(const void *object) {
    PPtrBase pointer = heap->to_persistent(object);
    return pointer.file << OFFSET_BITS | pointer.offset;
}

void *object_of(uint64_t word) { return heap->to_pointer({word >> OFFSET_BITS, word & ((UINT64_C(1) << OFFSET_BITS) - 1)}); }

bool create(const char *folder, uint64_t limit_bytes) {
    if (Heap::create(options_for(folder, limit_bytes), &heap) != Status::OK ||
        heap->allocate(heap->root(0), sizeof(Anchor)) != Status::OK)
        return false;
    anchor = heap->to<Anchor>(heap->root(0));
    *anchor = Anchor();
    fl_persist(anchor, sizeof *anchor);
    return true;
}

bool close_heap() {
    delete heap;
    return true;
}

void *allocate(unsigned thread, size_t bytes) {
    PPtrBase &pointer = anchor->links[thread].pointer;
    pointer = PPtrBase();
    return heap->allocate(pointer, bytes) == Status::OK ? heap->to_pointer(pointer) : nullptr;
}

void free_object(unsigned thread, void *object) {
    PPtrBase &pointer = anchor->links[thread].pointer;
    pointer = heap->to_persistent(object);
    if (heap->deallocate(pointer) != Status::OK)
        bench_fail("free", message());
}

void set_root(unsigned root, void *object) {
    fl_store8(&anchor->roots[root], word_of(object));
    fl_persist(&anchor->roots[root], sizeof anchor->roots[root]);
}

void *get_root(unsigned root) { return anchor->roots[root] == 0 ? nullptr : object_of(anchor->roots[root]); }

bool recover(const char *folder, uint64_t limit_bytes) {
    if (Heap::open(options_for(folder, limit_bytes), &heap) != Status::OK)
        return false;
    anchor = heap->to<Anchor>(heap->root(0));
    return true;
}

bool check() { return heap->check() == Status::OK; }
uint64_t defragmented() { return heap->counters().defragmented_bytes; }

} // namespace

extern "C" {
extern const struct bench_allocator bench_pallocator;
const struct bench_allocator bench_pallocator = {
    .name = "pallocator",
    .create = create,
    .close = close_heap,
    .message = message,
    .allocate = allocate,
    .free = free_object,
    .word_of = word_of,
    .object_of = object_of,
    .set_root = set_root,
    .get_root = get_root,
    .recover = recover,
    .collect = nullptr,
    .check = check,
    .defragmented = defragmented,
};
}
