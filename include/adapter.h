/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.h - how faultline drives an allocator.
 *
 * An adapter is a shared object that exports faultline_adapter(), which returns the table below. It needs no change in the
 * allocator's sources. Vocabulary:
 *
 *   heap      a folder of files, at most options.limit_bytes in all
 *   slot      a persistent pointer that the application owns, numbered from 0; ready and null when create returns. Their
 *             storage is reported by walk as metadata.
 *   layout    where the slots of a workload live (enum fl_slot_layout). The root layout (a root object, out-parameters, ...)
 *             is the adapter's choice; the others are for allocators that have such a thing. The first layout_slots slots
 *             are kept as slot_layout says, all others (the probe's) in the root layout. In a layout of its own the probe
 *             allocates in those of the first that are empty, too.
 *   location  (file, offset): pointers never cross the interface except in fill
 *   fill      writes an object's content and makes it durable. The adapter calls it at the allocator's proper moment:
 *             after reserve and before activate, in the constructor, before the store that publishes.
 *
 * Operation markers are the runner's business, not the adapter's. Functions that return int return enum fl_status, which is also
 * what the trace records, but for has_recovered. One call at a time a thread; calls from several threads only if the contract's
 * `threads` allows it.
 */
#ifndef FAULTLINE_ADAPTER_H
#define FAULTLINE_ADAPTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_ADAPTER_ABI 8u
#define FL_GRAPH_FIELDS 2u

enum fl_status {
    FL_OK = 0,
    FL_OUT_OF_MEMORY = 1, /* the operation had no effect */
    FL_NOT_A_HEAP = 2,    /* open: the folder holds no completely created heap */
    FL_CORRUPT = 3,       /* damage was detected */
    FL_UNSUPPORTED_CALL = 4,
    FL_ERROR = 5,         /* anything else; say what in message() */
};

enum fl_block_state {
    FL_BLOCK_ALLOCATED = 1,
    FL_BLOCK_RESERVED,  /* handed out, not yet published; volatile */
    FL_BLOCK_FREE,
    FL_BLOCK_METADATA,
    FL_BLOCK_UNUSABLE,  /* padding and tails that no allocation can ever use */
};

enum fl_capability {
    FL_CAN_WALK = 1u << 0,
    FL_CAN_CHECK = 1u << 1,
    FL_CAN_BOUNDS = 1u << 2,
    FL_CAN_SETTLE = 1u << 3,            /* recovers lazily: FL_OPEN_LAZY, settle, perhaps step */
    FL_CAN_COLLECT = 1u << 4,
    FL_CAN_THREADS = 1u << 5,
    FL_CAN_LINK = 1u << 6,              /* FL_SLOTS_GRAPH; needs FL_CAN_WALK */
    /* 1u << 7 is retired: no ABI gives it another meaning. */
    FL_CAN_RELOCATE = 1u << 8,          /* may be opened at another address than it was created at */
    FL_CAN_NAMES = 1u << 9,             /* FL_SLOTS_NAMES */
    FL_CAN_CHAIN = 1u << 10,            /* FL_SLOTS_CHAIN */
    FL_CAN_TRANSACTIONS = 1u << 11,     /* begin, commit, abort and write */
};

enum fl_slot_layout {
    FL_SLOTS_ROOT = 0, /* an array of persistent pointers, or what the allocator has instead */
    FL_SLOTS_NAMES,    /* each slot is a named allocation, found again by its name */
    FL_SLOTS_CHAIN,    /* the objects are the nodes of one linked list: each holds its slot's number and the pointers to its
                          neighbours, in front of what the application sees. An allocation links a node, a free unlinks it */
    FL_SLOTS_GRAPH,    /* the objects have FL_GRAPH_FIELDS persistent pointers to other objects, in front of what the application
                          sees; null and durable before fill and publication. The slots are the graph's roots */
};

struct fl_location {
    uint32_t file;   /* number that file_name() turns into a path relative to the heap folder */
    uint32_t is_set; /* 0: null */
    uint64_t offset; /* of the object, as the application sees it */
};

struct fl_block {
    uint32_t file;
    uint32_t state;  /* enum fl_block_state */
    uint64_t offset; /* of the part an application may use, or of the metadata */
    uint64_t bytes;
};

struct fl_heap_options {
    const char *folder;    /* exists; empty for create */
    uint64_t heap_bytes;   /* size to create */
    uint64_t limit_bytes;  /* most that the files may ever occupy: FL_BLOCK_UNUSABLE left out */
    uint32_t slot_count;
    uint32_t flags;        /* enum fl_open_flags */
    uintptr_t address_hint; /* map here if possible (MAP_FIXED_NOREPLACE); 0: anywhere */
    uint32_t slot_layout;  /* enum fl_slot_layout; the same for create and open of one heap */
    uint32_t layout_slots; /* the first slots, kept in that layout */
};

enum fl_open_flags {
    FL_OPEN_LAZY = 1u << 0, /* open: what can be done later is left to step and settle. Asked of those with FL_CAN_SETTLE */
};

typedef struct fl_heap fl_heap; /* the adapter's own */

/* Writes bytes [from, from + bytes) of the object that starts at object, and persists them. */
typedef void (*fl_fill)(void *context, void *object, uint64_t from, uint64_t bytes);
typedef void (*fl_visit)(void *context, const struct fl_block *block);
typedef void (*fl_visit_slot)(void *context, uint32_t slot, const struct fl_location *location);

struct fl_adapter {
    uint32_t abi_version; /* FL_ADAPTER_ABI */
    uint32_t struct_size; /* sizeof(struct fl_adapter) as the adapter was compiled; grows only at the end */
    const char *name;
    uint64_t capabilities; /* enum fl_capability */

    /* Required. */
    int (*create)(const struct fl_heap_options *options, fl_heap **heap);
    int (*open)(const struct fl_heap_options *options, fl_heap **heap); /* recovers */
    int (*close)(fl_heap *heap);
    int (*allocate)(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context);
    int (*free)(fl_heap *heap, uint32_t slot);
    /* The first min(old, new) bytes are kept, and made durable by the adapter where it moves them; fill is called for the rest. */
    int (*reallocate)(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context);
    int (*read_slot)(fl_heap *heap, uint32_t slot, struct fl_location *location);
    const char *(*file_name)(fl_heap *heap, uint32_t file); /* valid until close */
    const char *(*message)(void); /* why the last call of this thread failed, one line; never null */

    /* Optional, by capability bit; null otherwise. */
    int (*walk)(fl_heap *heap, fl_visit visit, void *context); /* every heap block, in order of file and offset */
    int (*check)(fl_heap *heap); /* the allocator's own consistency check */
    int (*bounds)(fl_heap *heap, const struct fl_location *object, struct fl_block *block);
    int (*settle)(fl_heap *heap); /* finishes all that a lazy open left, if anything is */
    int (*collect)(fl_heap *heap); /* free what the slots do not reach */
    int (*thread_attach)(fl_heap *heap);
    int (*thread_detach)(fl_heap *heap);
    /* FL_CAN_LINK, in the graph layout only. Each of the first four is one atomic store of a pointer, persisted on return. */
    int (*link)(fl_heap *heap, uint32_t slot, uint32_t field, uint32_t target_slot); /* field := the object in target_slot */
    int (*unlink)(fl_heap *heap, uint32_t slot, uint32_t field); /* field := null */
    int (*drop)(fl_heap *heap, uint32_t slot); /* slot := null; nothing is freed */
    int (*load)(fl_heap *heap, uint32_t slot, uint32_t from_slot, uint32_t field); /* empty slot := field of that object */
    /* object: as read_slot or read_field gave it, in an allocated heap block. What the field holds may be anything. */
    int (*read_field)(fl_heap *heap, const struct fl_location *object, uint32_t field, struct fl_location *target);
    /* FL_CAN_COLLECT: the object that the collector takes this word for a pointer to; is_set 0: it takes it for none.
     * The runner's own mark believes this: an answer that finds objects where there are none hides leaks. */
    int (*word_target)(fl_heap *heap, uint64_t word, struct fl_location *target);

    /* Optional, may be null: visits those of the slots [first, first + count) that are set, in order. It answers what read_slot would
     * of each, and is asked instead: every recovery reads all slots, and calls in between cost more than the reading. */
    int (*read_slots)(fl_heap *heap, uint32_t first, uint32_t count, fl_visit_slot visit, void *context);

    /* Optional, may be null; what the contract's `clean_close` is judged by. Whether the open that made heap had to recover it: 0 if
     * it took the heap as a close had left it. */
    int (*has_recovered)(const fl_heap *heap);

    /* FL_CAN_TRANSACTIONS. allocate, free, reallocate and write between begin and commit take effect together, when commit returns; after
     * abort, or a crash before that, none has. They see what those before them in the transaction did: a slot that one allocated, a
     * later one may free. One of these four that answers FL_OUT_OF_MEMORY has no effect, and its transaction goes on; if commit
     * does, the transaction has none. begin and abort must find room. One transaction at a time, by one thread; no heap is closed in one. */
    int (*begin)(fl_heap *heap);
    int (*commit)(fl_heap *heap);
    int (*abort)(fl_heap *heap);
    /* Overwrites bytes [from, from + bytes) of the slot's object: fill writes them, at the object or where they are logged. Outside
     * a transaction they are durable on return, and power may leave any part of them before. */
    int (*write)(fl_heap *heap, uint32_t slot, uint64_t from, uint64_t bytes, fl_fill fill, void *context);

    /* FL_CAN_SETTLE, may be null: one piece of what a lazy open left, in this thread; *is_settled: nothing is left, and it is not called
     * again. With it a lazy open starts no thread: the runner calls it between operations of the main thread, beside those of workers if
     * there are any. After an error neither it nor settle is called again. A heap may be closed before all is done. Without it threads of
     * the adapter do the work. */
    int (*step)(fl_heap *heap, int *is_settled);
};

/* The one exported symbol. */
__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void);
#define FL_ADAPTER_SYMBOL "faultline_adapter"

#ifdef __cplusplus
}
#endif
#endif
