/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.cpp - NVMReconstruction under faultline.
 *
 * The slots are roots, and hold ordinary pointers to nodes (nodes.h); an application's object is what comes behind a node.
 * Allocation, reallocation and free are one change each, so nothing leaks and nothing dangles. A graph's fields are the node's.
 * Besides the heap's own check, check calls a virtual function, a function by pointer, and looks at text and transients of
 * every node.
 *
 * Built with NODES_TRAP, pages are reconstructed when they are first accessed; with NODES_COMPACT, each open compacts first.
 */
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "nodes.h"
#include "persist.h"

struct fl_heap {
    nv::Heap *heap;
    Life life;
};

namespace {

thread_local char own_message[128];

int fail(int status, const char *text) {
    snprintf(own_message, sizeof own_message, "%s", text);
    return status;
}

const char *adapter_message() { return own_message[0] != '\0' ? own_message : nv::message(); }

int status_of(nv::Status status) {
    own_message[0] = '\0';
    switch (status) {
    case nv::Status::OK: return FL_OK;
    case nv::Status::OUT_OF_MEMORY: return FL_OUT_OF_MEMORY;
    case nv::Status::NOT_A_HEAP: return FL_NOT_A_HEAP;
    case nv::Status::CORRUPT: return FL_CORRUPT;
    default: return FL_ERROR;
    }
}

nv::Options options_of(const fl_heap_options *options) {
    nv::Options made{.folder = options->folder, .heap_bytes = options->heap_bytes, .root_count = options->slot_count};
    made.address = options->address_hint;
#if defined(NODES_TRAP)
    made.mode = nv::Mode::TRAPPING;
#else
    made.mode = (options->flags & FL_OPEN_LAZY) != 0 ? nv::Mode::ON_TOUCH : nv::Mode::EAGER;
#endif
#if defined(NODES_COMPACT)
    made.compacts = true;
#endif
    return made;
}

/* The life that reconstructors find is the one that begins. */
int start(nv::Status (*how)(const nv::Options &, nv::Heap **), const fl_heap_options *options, fl_heap **started) {
    auto *heap = new fl_heap{};
    current_life = &heap->life;
    int status = status_of(how(options_of(options), &heap->heap));
    if (status == FL_OK && heap->heap->root_count() != options->slot_count) {
        heap->heap->close();
        status = fail(FL_ERROR, "the heap was created with another number of slots");
    }
    if (status == FL_OK)
        *started = heap;
    else
        delete heap;
    return status;
}

int create(const fl_heap_options *options, fl_heap **heap) { return start(nv::Heap::create, options, heap); }
int open_heap(const fl_heap_options *options, fl_heap **heap) { return start(nv::Heap::open, options, heap); }

int close_heap(fl_heap *heap) {
    heap->heap->close();
    delete heap;
    return FL_OK;
}

/* ---- objects ---- */

Node **slot_of(fl_heap *heap, uint32_t slot, bool is_live) {
    if (slot >= heap->heap->root_count())
        return fail(0, "no such slot"), nullptr;
    Node *&root = heap->heap->root<Node>(slot);
    if ((root != nullptr) != is_live)
        return fail(0, is_live ? "the slot is empty" : "the slot is in use"), nullptr;
    if (is_live)
        heap->heap->touch(root);
    return &root;
}

template <typename Init> int make(fl_heap *heap, Node *&root, uint64_t number, uint64_t tail_bytes, Init &&init) {
    auto set = [&](Node *node) {
        set_up(node, number, heap->heap->execution());
        init(node);
    };
    bool is_odd = number % 2 != 0;
    return status_of(is_odd ? heap->heap->make<Odd>(root, tail_bytes, set) : heap->heap->make<Even>(root, tail_bytes, set));
}

int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    Node **root = slot_of(heap, slot, false);
    if (root == nullptr)
        return FL_ERROR;
    return make(heap, *root, slot, bytes, [&](Node *node) {
        node->fields[0] = node->fields[1] = nullptr;
        fill(context, node->tail(), 0, bytes);
    });
}

int free_slot(fl_heap *heap, uint32_t slot) {
    Node **root = slot_of(heap, slot, true);
    return root == nullptr ? FL_ERROR : status_of(heap->heap->destroy(*root));
}

int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    Node **root = slot_of(heap, slot, true);
    if (root == nullptr)
        return FL_ERROR;
    Node *old = *root;
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    return make(heap, *root, old->number, new_bytes, [&](Node *node) {
        memcpy(node->fields, old->fields, sizeof node->fields);
        memcpy(node->tail(), old->tail(), kept);
        fl_persist(node->tail(), kept);
        if (kept < new_bytes)
            fill(context, node->tail(), kept, new_bytes - kept);
    });
}

/* ---- graphs ---- */

Node **field_of(fl_heap *heap, uint32_t slot, uint32_t field) {
    Node **root = slot_of(heap, slot, true);
    if (root == nullptr || field >= FL_GRAPH_FIELDS)
        return fail(0, "the object has no such field"), nullptr;
    return &(*root)->fields[field];
}

int link_field(fl_heap *heap, uint32_t slot, uint32_t field, uint32_t target_slot) {
    Node **word = field_of(heap, slot, field), **target = slot_of(heap, target_slot, true);
    if (word == nullptr || target == nullptr)
        return FL_ERROR;
    heap->heap->store(*word, *target);
    return FL_OK;
}

int unlink_field(fl_heap *heap, uint32_t slot, uint32_t field) {
    Node **word = field_of(heap, slot, field);
    if (word == nullptr)
        return FL_ERROR;
    heap->heap->store<Node>(*word, nullptr);
    return FL_OK;
}

int drop_slot(fl_heap *heap, uint32_t slot) {
    Node **root = slot_of(heap, slot, true);
    if (root == nullptr)
        return FL_ERROR;
    heap->heap->store<Node>(*root, nullptr);
    return FL_OK;
}

int load_field(fl_heap *heap, uint32_t slot, uint32_t from_slot, uint32_t field) {
    Node **root = slot_of(heap, slot, false), **from = field_of(heap, from_slot, field);
    if (root == nullptr || from == nullptr)
        return FL_ERROR;
    if (*from == nullptr)
        return fail(FL_ERROR, "the field is null");
    heap->heap->store(*root, *from);
    return FL_OK;
}

/* ---- looking ---- */

fl_location location_of(fl_heap *heap, Node *node) {
    return node == nullptr ? fl_location{} : fl_location{nv::HEAP_FILE, 1, heap->heap->offset_of(node->tail())};
}

int read_slot(fl_heap *heap, uint32_t slot, fl_location *location) {
    if (slot >= heap->heap->root_count())
        return fail(FL_ERROR, "no such slot");
    Node *node = heap->heap->root<Node>(slot);
    heap->heap->touch(node);
    *location = location_of(heap, node);
    return FL_OK;
}

int read_field(fl_heap *heap, const fl_location *object, uint32_t field, fl_location *target) {
    Node *node = static_cast<Node *>(heap->heap->at(object->offset)) - 1;
    heap->heap->touch(node);
    *target = location_of(heap, node->fields[field]);
    return FL_OK;
}

const char *file_name(fl_heap *heap, uint32_t file) { return heap->heap->file_name(file); }

fl_block block_of(const nv::Part &part) {
    static const uint32_t states[] = {FL_BLOCK_METADATA, FL_BLOCK_ALLOCATED, FL_BLOCK_RESERVED, FL_BLOCK_FREE, FL_BLOCK_UNUSABLE};
    return {part.file, states[static_cast<int>(part.state)], part.offset, part.bytes};
}

int walk_heap(fl_heap *heap, fl_visit visit, void *context) {
    return status_of(heap->heap->walk([&](const nv::Part &part) {
        fl_block block = block_of(part);
        visit(context, &block);
    }));
}

int bounds(fl_heap *heap, const fl_location *object, fl_block *block) {
    bool is_found = false;
    heap->heap->walk([&](const nv::Part &part) {
        if (part.file != object->file || object->offset - part.offset >= part.bytes)
            return;
        *block = block_of(part);
        is_found = true;
    });
    return is_found ? FL_OK : fail(FL_ERROR, "the location is not in the heap");
}

int check(fl_heap *heap) {
    int status = status_of(heap->heap->check());
    if (status != FL_OK)
        return status;
    heap->heap->walk([&](const nv::Part &part) {
        if (part.state != nv::PartState::ALLOCATED || status != FL_OK)
            return;
        auto *node = static_cast<Node *>(heap->heap->at(part.offset));
        if (!node->is_right(heap->heap->type_at(node), heap->heap->execution()))
            status = fail(FL_CORRUPT, "a node is not what it was made as: its type, what it calls or a transient");
    });
    return status;
}

int settle(fl_heap *heap) { return heap->heap->settle(), FL_OK; }

int step(fl_heap *heap, int *is_settled) {
    *is_settled = !heap->heap->step();
    return FL_OK;
}

int thread_attach(fl_heap *) { return FL_OK; }
int thread_detach(fl_heap *) { return FL_OK; }

} // namespace

extern "C" __attribute__((visibility("default"))) const fl_adapter *faultline_adapter(void) {
    static fl_adapter table;
    table.abi_version = FL_ADAPTER_ABI;
    table.struct_size = sizeof(fl_adapter);
    table.name = "nvmreconstruct";
    table.capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_BOUNDS | FL_CAN_THREADS | FL_CAN_LINK | FL_CAN_RELOCATE;
#if !defined(NODES_TRAP)
    table.capabilities |= FL_CAN_SETTLE;
    table.settle = settle;
    table.step = step;
#endif
    table.create = create;
    table.open = open_heap;
    table.close = close_heap;
    table.allocate = allocate;
    table.free = free_slot;
    table.reallocate = reallocate;
    table.read_slot = read_slot;
    table.file_name = file_name;
    table.message = adapter_message;
    table.walk = walk_heap;
    table.check = check;
    table.bounds = bounds;
    table.thread_attach = thread_attach;
    table.thread_detach = thread_detach;
    table.link = link_field;
    table.unlink = unlink_field;
    table.drop = drop_slot;
    table.load = load_field;
    table.read_field = read_field;
    return &table;
}
