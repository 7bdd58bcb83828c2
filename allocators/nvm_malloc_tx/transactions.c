/* SPDX-License-Identifier: Apache-2.0
 *
 * transactions.c - transactions over nvm_malloc: an option of its adapter, which this file includes, and no other allocator.
 *
 * A log in an object of the heap (LOG_ID) has one record an operation. Until the commit the slots and the objects that were there stay as
 * they are:
 *
 *     allocate      the object is filled and activated at once; the link pointer of that is in its record, which so owns it
 *     free          a record
 *     write         a record with the bytes
 *     reallocate    a free, and an allocation of what the old object holds
 *
 * The word `head` says how many bytes of records there are, how many of them are applied, and whether they are committed; it is one
 * store. Commit sets the flag, applies the records in order and clears the word. What a crash leaves:
 *
 *     not committed   objects that records own are freed (as abort does)
 *     committed       the records that are not applied are. Each may have been: a slot that is set again, bytes that are written again,
 *                     and a free that took the object from its record in one step are the same the second time
 */
#define faultline_adapter nvm_malloc_adapter
#include "../nvm_malloc/adapter.c"
#undef faultline_adapter
#include "stage.h"

#define LOG_ID "faultline.log"
#define LOG_BYTES 4096u

enum record_kind { RECORD_ALLOCATE = 1, RECORD_FREE, RECORD_WRITE };

struct record {
    uint32_t kind, slot;
    uint64_t object; /* relative; 0 in RECORD_FREE once it is freed */
    uint64_t from, bytes; /* RECORD_WRITE; the bytes follow */
};

struct log {
    uint64_t head;
    uint8_t records[LOG_BYTES - sizeof(uint64_t)];
};

#define COMMITTED ((uint64_t)1)
#define APPLIED_SHIFT 1
#define USED_SHIFT 32

static struct log *log_of_heap;
static bool is_open;

static uint64_t used(void) { return log_of_heap->head >> USED_SHIFT; }
static uint64_t applied(void) { return (uint32_t)log_of_heap->head >> APPLIED_SHIFT; }

static void set_head(uint64_t used, uint64_t applied, uint64_t flags) {
    __atomic_store_n(&log_of_heap->head, used << USED_SHIFT | applied << APPLIED_SHIFT | flags, __ATOMIC_RELEASE);
    nvm_persist(&log_of_heap->head, sizeof log_of_heap->head);
}

static struct record *record_at(uint64_t at) { return (struct record *)&log_of_heap->records[at]; }

static uint64_t record_bytes(const struct record *record) {
    return sizeof *record + (record->kind == RECORD_WRITE ? record->bytes : 0);
}

/* ---- records ---- */

#if defined(MUTANT_WRITE_ABSOLUTE)
#define ABSOLUTE RECORD_WRITE
#elif defined(MUTANT_FREE_ABSOLUTE)
#define ABSOLUTE RECORD_FREE
#else
#define ABSOLUTE 0 /* no kind */
#endif

/* What a record says of an object, and which object it means. */
static uint64_t said_of(const fl_heap *heap, uint32_t kind, uint64_t object) {
    return kind == ABSOLUTE ? (uintptr_t)nvm_heap_absolute(heap->heap, object) : object;
}
static uint64_t meant_by(const fl_heap *heap, const struct record *record) {
    return record->kind == ABSOLUTE ? nvm_heap_relative(heap->heap, (const void *)record->object) : record->object;
}

static bool has_room(uint64_t bytes) { return used() + bytes <= sizeof log_of_heap->records; }

/* The record becomes one of the log, with what follows it. */
static void append(const struct record *record) {
    uint64_t bytes = record_bytes(record);
#if defined(MUTANT_RECORD_NOT_FLUSHED)
    if (record->kind != RECORD_ALLOCATE)
        nvm_persist(record, bytes);
#elif !defined(MUTANT_MARK_BEFORE_DATA)
    nvm_persist(record, bytes);
#endif
    set_head(used() + bytes, 0, 0);
}

static struct record *new_record(uint32_t kind, uint32_t slot, uint64_t object) {
    struct record *record = record_at(used());
    *record = (struct record){.kind = kind, .slot = slot, .object = object};
    return record;
}

/* What the slot holds for the operations that follow in the transaction. */
static uint64_t object_in(fl_heap *heap, uint32_t slot) {
    uint64_t object = heap->roots->slots[slot];
    for (uint64_t at = 0; at < used(); at += record_bytes(record_at(at))) {
        const struct record *record = record_at(at);
        if (record->slot == slot && record->kind != RECORD_WRITE)
            object = record->kind == RECORD_ALLOCATE ? record->object : 0;
    }
    return object;
}

/* What was written to an object in the transaction, over a copy of it. */
static void copy_written(const fl_heap *heap, uint64_t object, uint8_t *copy, uint64_t bytes) {
    for (uint64_t at = 0; at < used(); at += record_bytes(record_at(at))) {
        const struct record *record = record_at(at);
        if (record->kind == RECORD_WRITE && meant_by(heap, record) == object && record->from < bytes) {
            uint64_t room = bytes - record->from;
            memcpy(copy + record->from, record + 1, record->bytes < room ? record->bytes : room);
        }
    }
}

/* ---- applying and undoing ---- */

static int apply_record(fl_heap *heap, struct record *record) {
    uint64_t *word = &heap->roots->slots[record->slot];
    void *object = nvm_heap_absolute(heap->heap, meant_by(heap, record));
    switch (record->kind) {
    case RECORD_ALLOCATE:
        __atomic_store_n(word, record->object, __ATOMIC_RELEASE);
        nvm_persist(word, sizeof *word);
        return FL_OK;
    case RECORD_WRITE:
        memcpy((uint8_t *)object + record->from, record + 1, record->bytes);
        nvm_persist((uint8_t *)object + record->from, record->bytes);
        return FL_OK;
    case RECORD_FREE:
        return object == NULL ? FL_OK : adapter_status(nvm_heap_free(heap->heap, object, word, NULL, &record->object, NULL));
    default: return adapter_fail(FL_CORRUPT, "the log has a record of no kind");
    }
}

static int apply(fl_heap *heap) {
    while (applied() < used()) {
        struct record *record = record_at(applied());
        int status = apply_record(heap, record);
        if (status != FL_OK)
            return status;
        set_head(used(), applied() + record_bytes(record), COMMITTED);
#if defined(MUTANT_SECOND_RECORD_FORGOTTEN)
        if (!is_open)
            break; /* in recovery: the first is done, and that is taken for all */
#endif
    }
#if defined(MUTANT_LOG_NOT_CLEARED)
    set_head(used(), 0, COMMITTED);
#else
    set_head(0, 0, 0);
#endif
    return FL_OK;
}

static int undo(fl_heap *heap) {
    for (uint64_t at = 0; at < used(); at += record_bytes(record_at(at))) {
        struct record *record = record_at(at);
        if (record->kind != RECORD_ALLOCATE || record->object == 0)
            continue;
        void *object = nvm_heap_absolute(heap->heap, record->object);
#if defined(MUTANT_ABORT_FREES_TWICE)
        int status = adapter_status(nvm_heap_free(heap->heap, object, NULL, NULL, NULL, NULL));
#else
        int status = adapter_status(nvm_heap_free(heap->heap, object, &record->object, NULL, NULL, NULL));
#endif
        if (status != FL_OK)
            return status;
    }
    set_head(0, 0, 0);
    return FL_OK;
}

/* ---- begin, commit, abort ---- */

static int begin(fl_heap *heap) {
    (void)heap;
#if defined(MUTANT_LOG_NOT_CLEARED)
    set_head(0, 0, 0); /* not before the next transaction */
#endif
    is_open = true;
    return FL_OK;
}

static int commit(fl_heap *heap) {
    if (used() > 0) {
        set_head(used(), 0, COMMITTED);
#if defined(MUTANT_MARK_BEFORE_DATA)
        nvm_persist(log_of_heap->records, used());
#endif
        int status = apply(heap);
        if (status != FL_OK)
            return status;
    }
    is_open = false;
    return FL_OK;
}

static int abort_all(fl_heap *heap) {
    is_open = false;
    return undo(heap);
}

/* ---- operations ---- */

/* A filled object that the record at the log's end will own. */
static int log_allocation(fl_heap *heap, uint32_t slot, void *object) {
    struct record *record = new_record(RECORD_ALLOCATE, slot, 0);
    append(record);
    return adapter_status(nvm_heap_activate(heap->heap, object, &record->object, object, NULL, NULL));
}

static int out_of_log(void) { return adapter_fail(FL_OUT_OF_MEMORY, "the log has no room for the record"); }

static int allocate_logged(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    void *object;
    if (!is_open)
        return allocate(heap, slot, bytes, fill, context);
    if (object_in(heap, slot) != 0)
        return adapter_fail(FL_ERROR, "the slot is in use");
    if (!has_room(sizeof(struct record)))
        return out_of_log();
    int status = adapter_status(nvm_heap_reserve(heap->heap, bytes, &object));
    if (status != FL_OK)
        return status;
    fill(context, object, 0, bytes);
    return log_allocation(heap, slot, object);
}

static int free_logged(fl_heap *heap, uint32_t slot) {
    if (!is_open)
        return free_slot(heap, slot);
    uint64_t object = object_in(heap, slot);
    if (object == 0)
        return adapter_fail(FL_ERROR, "the slot is empty");
    if (!has_room(sizeof(struct record)))
        return out_of_log();
    append(new_record(RECORD_FREE, slot, said_of(heap, RECORD_FREE, object)));
    return FL_OK;
}

static int reallocate_logged(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    void *object;
    if (!is_open)
        return reallocate(heap, slot, old_bytes, new_bytes, fill, context);
    uint64_t old = object_in(heap, slot);
    if (old == 0)
        return adapter_fail(FL_ERROR, "the slot is empty");
    if (!has_room(2 * sizeof(struct record)))
        return out_of_log();
    int status = adapter_status(nvm_heap_reserve(heap->heap, new_bytes, &object));
    if (status != FL_OK)
        return status;
    memcpy(object, nvm_heap_absolute(heap->heap, old), kept);
    copy_written(heap, old, object, kept);
    nvm_persist(object, kept);
    if (kept < new_bytes)
        fill(context, object, kept, new_bytes - kept);
    append(new_record(RECORD_FREE, slot, said_of(heap, RECORD_FREE, old)));
    return log_allocation(heap, slot, object);
}

static int write_logged(fl_heap *heap, uint32_t slot, uint64_t from, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t object = is_open ? object_in(heap, slot) : heap->roots->slots[slot];
    if (object == 0)
        return adapter_fail(FL_ERROR, "the slot is empty");
    if (!is_open) {
        fill(context, nvm_heap_absolute(heap->heap, object), from, bytes);
        return FL_OK;
    }
    if (!has_room(sizeof(struct record) + bytes))
        return out_of_log();
    struct record *record = new_record(RECORD_WRITE, slot, said_of(heap, RECORD_WRITE, object));
    record->from = from;
    record->bytes = bytes;
    fill(context, (uint8_t *)(record + 1) - from, from, bytes);
    append(record);
    return FL_OK;
}

/* ---- the heap with its log ---- */

static int make_log(fl_heap *heap) {
    void *object;
    int status = adapter_status(nvm_heap_reserve_id(heap->heap, LOG_ID, sizeof(struct log), &object));
    if (status != FL_OK)
        return status;
    log_of_heap = object;
    log_of_heap->head = 0;
    nvm_persist(&log_of_heap->head, sizeof log_of_heap->head);
    return adapter_status(nvm_heap_activate_id(heap->heap, LOG_ID));
}

static int create_logged(const struct fl_heap_options *options, fl_heap **created) {
    fl_heap *heap;
    if (options->slot_layout != FL_SLOTS_ROOT)
        return adapter_fail(FL_ERROR, "transactions know the root layout only");
    int status = create(options, &heap);
    if (status != FL_OK)
        return status;
    status = make_log(heap);
    if (status != FL_OK)
        close_heap(heap);
    else
        *created = heap;
    return status;
}

static int recover_log(fl_heap *heap) {
    if ((log_of_heap->head & COMMITTED) == 0) {
        FL_STAGE("transactions: undone");
        return undo(heap);
    }
    if (applied() == 0) {
        FL_STAGE("transactions: committed, nothing is applied");
    } else {
        FL_STAGE("transactions: committed, a part is applied");
    }
    return apply(heap);
}

static int open_logged(const struct fl_heap_options *options, fl_heap **opened) {
    fl_heap *heap;
    int status = open_heap(options, &heap);
    if (status != FL_OK)
        return status;
    is_open = false;
    log_of_heap = nvm_heap_get_id(heap->heap, LOG_ID);
    bool is_changed = log_of_heap != NULL && log_of_heap->head != 0;
    if (log_of_heap == NULL)
        status = adapter_fail(FL_NOT_A_HEAP, "the heap has no object named " LOG_ID ": its creation was not completed");
    else if (is_changed)
        status = recover_log(heap);
    if (status != FL_OK || is_changed)
        close_heap(heap);
    if (status == FL_OK && is_changed) {
        status = open_heap(options, &heap); /* opening again turns runs that this emptied into free memory */
        log_of_heap = status == FL_OK ? nvm_heap_get_id(heap->heap, LOG_ID) : NULL;
    }
    *opened = heap;
    return status;
}

struct visitor {
    fl_visit visit;
    void *context;
    uint64_t log;
};

static void visit_with_log(void *context, const struct fl_block *block) {
    const struct visitor *visitor = context;
    struct fl_block seen = *block;
    if (block->offset == visitor->log)
        seen.state = FL_BLOCK_METADATA;
    visitor->visit(visitor->context, &seen);
}

static int walk_with_log(fl_heap *heap, fl_visit visit, void *context) {
    struct visitor visitor = {visit, context, nvm_heap_relative(heap->heap, log_of_heap)};
    return walk_heap(heap, visit_with_log, &visitor);
}

__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static struct fl_adapter table;
    table = *nvm_malloc_adapter();
    table.name = "nvm_malloc_tx";
    table.capabilities &= ~(uint64_t)(FL_CAN_THREADS | FL_CAN_NAMES | FL_CAN_CHAIN);
    table.capabilities |= FL_CAN_TRANSACTIONS;
    table.thread_attach = NULL;
    table.thread_detach = NULL;
    table.create = create_logged;
    table.open = open_logged;
    table.allocate = allocate_logged;
    table.free = free_logged;
    table.reallocate = reallocate_logged;
    table.walk = walk_with_log;
    table.begin = begin;
    table.commit = commit;
    table.abort = abort_all;
    table.write = write_logged;
    return &table;
}
