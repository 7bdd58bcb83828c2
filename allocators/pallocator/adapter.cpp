/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.cpp - PAllocator under faultline.
 *
 * The slots are persistent pointers of 16 bytes in one object that root 0 names: out-parameters of allocate and deallocate, so allocation
 * and publication are one step, and content is written after it. A heap is ready once the object's count is set.
 *
 * PAllocator has no reallocate, and a slot cannot go from one object to another in one store. So there is a move record beside the slots:
 *   fresh = the new object (allocate's out-parameter), content; old = slot's value; slot + 1 commits; slot = fresh; old is freed
 *   through the record; fresh = null; slot 0.
 * Recovery: not committed: fresh is freed. Committed: the rest is done again.
 */
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "adapter.h"
#include "pallocator.h"
#include "persist.h"
#include "stage.h"
#include "store.h"

using namespace pallocator;

struct Move {
    PPtrBase fresh, old;
    uint64_t slot; /* + 1; 0: not committed */
    uint64_t unused;
};

struct Slots {
    uint64_t count; /* 0: not ready */
    uint64_t unused;
    Move move;
    PPtrBase pointers[];
};

struct fl_heap {
    Heap *heap;
    Slots *slots;
    std::mutex moving;
    std::mutex names_lock;
    std::map<uint32_t, std::string> names;
};

static thread_local char own_message[256]; /* empty: ask the allocator */

static int fail_with(int status, const char *text) {
    snprintf(own_message, sizeof own_message, "%s", text);
    return status;
}

static const char *adapter_message() { return own_message[0] != '\0' ? own_message : message(); }

static int status_of(Status status) {
    own_message[0] = '\0';
    switch (status) {
    case Status::OK: return FL_OK;
    case Status::OUT_OF_MEMORY: return FL_OUT_OF_MEMORY;
    case Status::NOT_A_HEAP: return FL_NOT_A_HEAP;
    case Status::CORRUPT: return FL_CORRUPT;
    default: return FL_ERROR;
    }
}

/* ---- create, open, close ---- */

static uint64_t slots_bytes(uint64_t count) { return sizeof(Slots) + count * sizeof(PPtrBase); }

static bool is_ready(Heap *heap) {
    const Slots *slots = heap->to<Slots>(heap->root(0));
    return slots != nullptr && slots->count != 0;
}

/* A creation that was cut short here is gone on with. */
static int make_slots(fl_heap *heap, uint32_t count) {
    PPtrBase &root = heap->heap->root(0);
    Status status = root.is_null() ? heap->heap->allocate(root, slots_bytes(count)) : Status::OK;
    if (status != Status::OK)
        return status_of(status);
    Slots *slots = heap->slots = heap->heap->to<Slots>(root);
    store(slots->move.fresh, {});
    store(slots->move.old, {});
    store(slots->move.slot, 0);
    memset(slots->pointers, 0xff, count * sizeof(PPtrBase)); /* null */
    fl_persist(slots, slots_bytes(count));
    store_flushed(slots->count, count);
    fl_fence();
    return FL_OK;
}

static Options options_of(const fl_heap_options *options) {
    return {.folder = options->folder,
            .limit_bytes = options->limit_bytes,
            .cores = 2,
            .identity = 0x6661756c746c696e,
            .address = options->address_hint};
}

static int close_heap(fl_heap *heap) {
    delete heap->heap;
    delete heap;
    return FL_OK;
}

static int create(const fl_heap_options *options, fl_heap **created) {
    auto *heap = new fl_heap{};
    Heap::use_core(0);
    Status status = Heap::create(options_of(options), &heap->heap);
    if (status == Status::EXISTS)
        status = Heap::open(options_of(options), &heap->heap);
    if (status != Status::OK) {
        delete heap;
        return status_of(status);
    }
    int result = is_ready(heap->heap) ? fail_with(FL_ERROR, "there is a heap already") : make_slots(heap, options->slot_count);
    if (result != FL_OK)
        close_heap(heap);
    else
        *created = heap;
    return result;
}

/* Everything behind the commit may have been done already, and is done again by recovery until the slot is cleared: so the fences
 * between its steps can be told from none by nothing (mutate), and Move is in one line, which keeps its stores in order (R4). */
static int finish_move(fl_heap *heap) {
    Move &move = heap->slots->move;
    PPtrBase &slot = heap->slots->pointers[move.slot - 1];
    Status status = Status::OK;
    if (!move.fresh.is_null()) {
        store_flushed(slot, move.fresh);
        fl_fence();
        if (!move.old.is_null())
            status = heap->heap->deallocate(move.old);
        store_flushed(move.fresh, {});
        fl_fence();
    }
    store_flushed(move.slot, 0);
    fl_fence();
    return status_of(status);
}

static int recover_move(fl_heap *heap) {
    Move &move = heap->slots->move;
    if (move.slot != 0) {
        FL_STAGE("adapter: a committed move was finished");
        return finish_move(heap);
    }
    store_flushed(move.old, {}); /* not committed: old means nothing, and is gone before the next move begins */
    fl_fence();
    if (move.fresh.is_null()) {
        FL_STAGE("adapter: nothing was moving");
        return FL_OK;
    }
    FL_STAGE("adapter: a move was taken back");
    return status_of(heap->heap->deallocate(move.fresh));
}

static int open_heap(const fl_heap_options *options, fl_heap **opened) {
    auto *heap = new fl_heap{};
    Heap::use_core(0);
    Status status = Heap::open(options_of(options), &heap->heap);
    if (status != Status::OK) {
        delete heap;
        return status_of(status);
    }
    heap->slots = heap->heap->to<Slots>(heap->heap->root(0));
    int result = FL_OK;
    if (!is_ready(heap->heap))
        result = fail_with(FL_NOT_A_HEAP, "the creation of the slots was not completed");
    else if (heap->slots->count != options->slot_count)
        result = fail_with(FL_ERROR, "the heap was created with another number of slots");
    else
        result = recover_move(heap);
    if (result != FL_OK)
        close_heap(heap);
    else
        *opened = heap;
    return result;
}

/* ---- objects ---- */

static PPtrBase *slot_of(fl_heap *heap, uint32_t slot, bool is_live) {
    if (slot >= heap->slots->count)
        return fail_with(0, "no such slot"), nullptr;
    if (heap->slots->pointers[slot].is_null() == is_live)
        return fail_with(0, is_live ? "the slot is empty" : "the slot is in use"), nullptr;
    return &heap->slots->pointers[slot];
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    PPtrBase *pointer = slot_of(heap, slot, false);
    if (pointer == nullptr)
        return FL_ERROR;
    Status status = heap->heap->allocate(*pointer, bytes);
    if (status == Status::OK)
        fill(context, heap->heap->to_pointer(*pointer), 0, bytes);
    return status_of(status);
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    PPtrBase *pointer = slot_of(heap, slot, true);
    return pointer == nullptr ? FL_ERROR : status_of(heap->heap->deallocate(*pointer));
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    PPtrBase *pointer = slot_of(heap, slot, true);
    if (pointer == nullptr)
        return FL_ERROR;
    std::lock_guard guard(heap->moving);
    Move &move = heap->slots->move;
    Status status = heap->heap->allocate(move.fresh, new_bytes);
    if (status != Status::OK)
        return status_of(status);
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    auto *object = static_cast<char *>(heap->heap->to_pointer(move.fresh));
    memcpy(object, heap->heap->to_pointer(*pointer), kept);
    fl_persist(object, kept); /* its fence is that of the commit, too */
    if (kept < new_bytes)
        fill(context, object, kept, new_bytes - kept);
    store_flushed(move.old, *pointer); /* in the line of slot, before it: this flush and fence are the commit's, too */
    fl_fence();
    store_flushed(move.slot, uint64_t{slot} + 1);
    fl_fence();
    return finish_move(heap);
}

/* ---- looking ---- */

static int read_slot(fl_heap *heap, uint32_t slot, fl_location *location) {
    if (slot >= heap->slots->count)
        return fail_with(FL_ERROR, "no such slot");
    const PPtrBase pointer = heap->slots->pointers[slot];
    *location = pointer.is_null() ? fl_location{} : fl_location{static_cast<uint32_t>(pointer.file), 1, pointer.offset};
    return FL_OK;
}

static const char *name_of_file(fl_heap *heap, uint32_t file) {
    std::lock_guard guard(heap->names_lock);
    char name[32];
    file_name(file, name);
    return heap->names.try_emplace(file, name).first->second.c_str();
}

static fl_block block_of(fl_heap *heap, const Part &part) {
    static const uint32_t states[] = {FL_BLOCK_METADATA, FL_BLOCK_ALLOCATED, FL_BLOCK_FREE, FL_BLOCK_UNUSABLE};
    const PPtrBase &slots = heap->heap->root(0);
    bool is_slots = part.state == PartState::ALLOCATED && part.file == slots.file && part.offset == slots.offset;
    return {static_cast<uint32_t>(part.file), is_slots ? FL_BLOCK_METADATA : states[static_cast<int>(part.state)], part.offset,
            part.bytes};
}

static int walk_heap(fl_heap *heap, fl_visit visit, void *context) {
    return status_of(heap->heap->walk([&](const Part &part) {
        fl_block block = block_of(heap, part);
        visit(context, &block);
    }));
}

static int check(fl_heap *heap) { return status_of(heap->heap->check()); }

static int bounds(fl_heap *heap, const fl_location *object, fl_block *block) {
    bool is_found = false;
    heap->heap->walk([&](const Part &part) {
        bool contains = part.file == object->file && object->offset >= part.offset && object->offset - part.offset < part.bytes;
        if (contains) {
            *block = block_of(heap, part);
            is_found = true;
        }
    });
    return is_found ? FL_OK : fail_with(FL_ERROR, "the location is not in the heap");
}

/* Threads take the cores' allocators in turn, by the number of their attaching: the same in every run. */
static int thread_attach(fl_heap *) {
    static int attached;
    Heap::use_core(__atomic_add_fetch(&attached, 1, __ATOMIC_RELAXED));
    return FL_OK;
}

static int thread_detach(fl_heap *) { return FL_OK; }

extern "C" __attribute__((visibility("default"))) const fl_adapter *faultline_adapter(void) {
    static fl_adapter table;
    table.abi_version = FL_ADAPTER_ABI;
    table.struct_size = sizeof(fl_adapter);
    table.name = "pallocator";
    table.capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_BOUNDS | FL_CAN_THREADS | FL_CAN_RELOCATE;
    table.create = create;
    table.open = open_heap;
    table.close = close_heap;
    table.allocate = allocate;
    table.free = free_slot;
    table.reallocate = reallocate;
    table.read_slot = read_slot;
    table.file_name = name_of_file;
    table.message = adapter_message;
    table.walk = walk_heap;
    table.check = check;
    table.bounds = bounds;
    table.thread_attach = thread_attach;
    table.thread_detach = thread_detach;
    return &table;
}
