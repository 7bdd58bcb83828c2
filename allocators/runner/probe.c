/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe script: what is done to a heap image, stage by stage, each with its section of the heap report. It is a function
 * of image and configuration only: it knows no history. The lives are described in heap_report.h.
 */
#include "runner.h"
#include "planted.h"
#include <stdlib.h>
#include <string.h>

#define SMALLEST_DRAIN_BYTES 64u

struct life {
    const struct fl_adapter *adapter;
    const struct probe *probe;
    fl_heap *heap;
    uint32_t numbers[16]; /* report numbers of the adapter's first files, + 1; 0: not asked yet */
    uint64_t largest;     /* that the drain got, bytes */
    uint8_t *is_drained;  /* by probe slot: the drain allocated it */
    struct fl_block *blocks; /* of the last walk, for contents */
    size_t block_count, block_capacity;
};

/* ---- helpers ---------------------------------------------------------------------------------------------------------- */

static void end_with_message(const struct life *life, enum fl_section_kind kind, int status, uint32_t count, uint64_t value) {
    report_end(status, count, value);
    if (status != FL_OK)
        report_message(kind, life->adapter->message());
}

static void report_status(const struct life *life, enum fl_section_kind kind, int status, uint64_t value) {
    report_section(kind);
    end_with_message(life, kind, status, 0, value);
}

static uint32_t ask_file(const struct life *life, uint32_t file) {
    const char *name = life->adapter->file_name(life->heap, file);
    return report_file(name == NULL ? "?" : name);
}

/* Number in the report of the adapter's file. */
static uint32_t file_number(struct life *life, uint32_t file) {
    if (file >= sizeof life->numbers / sizeof life->numbers[0])
        return ask_file(life, file);
    if (life->numbers[file] == 0)
        life->numbers[file] = ask_file(life, file) + 1;
    return life->numbers[file] - 1;
}

static uint32_t slot_count(const struct life *life) { return life->probe->options.slot_count; }

/* ---- open, slots, walk, check ----------------------------------------------------------------------------------------- */

static int open_heap(struct life *life) {
    report_stage(FL_SECTION_OPEN);
    int status = life->adapter->open(&life->probe->options, &life->heap);
    report_status(life, FL_SECTION_OPEN, status, 0);
    report_result()->open_status = (uint32_t)status;
    return status;
}

static void report_slots(struct life *life) {
    report_stage(FL_SECTION_SLOTS);
    report_section(FL_SECTION_SLOTS);
    uint32_t count = 0;
    int status = FL_OK;
    for (uint32_t slot = 0; slot < slot_count(life) && status == FL_OK; slot++) {
        struct fl_location location = {0};
        status = life->adapter->read_slot(life->heap, slot, &location);
        if (status != FL_OK || !location.is_set)
            continue;
        struct fl_slot_entry *entry = report_append(sizeof *entry);
        *entry = (struct fl_slot_entry){slot, file_number(life, location.file), location.offset};
        count++;
    }
    end_with_message(life, FL_SECTION_SLOTS, status, count, slot_count(life));
}

struct walk {
    struct life *life;
    uint32_t count;
};

static void report_block(void *context, const struct fl_block *block) {
    struct walk *walk = context;
    struct fl_block_entry *entry = report_append(sizeof *entry);
    *entry = (struct fl_block_entry){file_number(walk->life, block->file), block->state, block->offset, block->bytes};
    walk->count++;
}

static void report_walk(struct life *life) {
    report_stage(FL_SECTION_WALK);
    report_section(FL_SECTION_WALK);
    struct walk walk = {life, 0};
    if (life->adapter->walk == NULL) {
        report_end(FL_UNSUPPORTED_CALL, 0, vfs_heap_bytes());
        return;
    }
    int status = life->adapter->walk(life->heap, report_block, &walk);
    end_with_message(life, FL_SECTION_WALK, status, walk.count, vfs_heap_bytes());
}

static void report_check(struct life *life) {
    report_stage(FL_SECTION_CHECK);
    if (life->adapter->check == NULL)
        report_empty(FL_SECTION_CHECK, FL_UNSUPPORTED_CALL, 0);
    else
        report_status(life, FL_SECTION_CHECK, life->adapter->check(life->heap), 0);
}

/* ---- contents --------------------------------------------------------------------------------------------------------- */

static void keep_block(void *context, const struct fl_block *block) {
    struct life *life = context;
    if (life->block_count == life->block_capacity) {
        life->block_capacity = life->block_capacity == 0 ? 1024 : life->block_capacity * 2;
        life->blocks = realloc(life->blocks, life->block_capacity * sizeof *life->blocks);
        if (life->blocks == NULL)
            report_broken("no memory to keep the walk in");
    }
    life->blocks[life->block_count++] = *block;
}

/* One walk is cheaper than bounds for each object, which some allocators answer by a walk. */
static void learn_blocks(struct life *life) {
    life->block_count = 0;
    if (life->adapter->walk != NULL && life->adapter->walk(life->heap, keep_block, life) != FL_OK)
        life->block_count = 0;
}

/* The heap block that a broken walk order could hide is only not found: contents are then searched to the first mismatch. */
static const struct fl_block *walked_block(const struct life *life, const struct fl_location *object) {
    size_t low = 0, high = life->block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct fl_block *block = &life->blocks[middle];
        bool is_after = block->file > object->file || (block->file == object->file && block->offset > object->offset);
        if (is_after)
            high = middle;
        else
            low = middle + 1;
    }
    const struct fl_block *block = low > 0 ? &life->blocks[low - 1] : NULL;
    bool contains = block != NULL && block->file == object->file && object->offset - block->offset < block->bytes;
    return contains ? block : NULL;
}

/* Bytes from the object's start to its heap block's end; false: nothing tells. */
static bool object_limit(struct life *life, const struct fl_location *object, uint64_t *limit) {
    struct fl_block block = {0};
    const struct fl_block *found = walked_block(life, object);
    if (found == NULL && life->adapter->bounds != NULL && life->adapter->bounds(life->heap, object, &block) == FL_OK)
        found = &block;
    if (found == NULL || object->offset < found->offset || object->offset - found->offset > found->bytes)
        return false;
    *limit = found->bytes - (object->offset - found->offset);
    return true;
}

struct contents {
    uint32_t slot, count;
};

static void report_run(void *context, uint32_t object, uint64_t from, uint64_t to) {
    struct contents *contents = context;
    struct fl_content_entry *entry = report_append(sizeof *entry);
    *entry = (struct fl_content_entry){contents->slot, object, from, to};
    contents->count++;
}

static void scan_object(struct life *life, const struct fl_location *location, struct contents *contents) {
    const char *name = life->adapter->file_name(life->heap, location->file);
    uint64_t available, limit;
    const uint8_t *object = name == NULL ? NULL : vfs_address(name, location->offset, &available);
    if (object == NULL)
        return;
    bool is_known = object_limit(life, location, &limit);
    pattern_scan(object, is_known && limit < available ? limit : available, !is_known, report_run, contents);
}

static void report_contents(struct life *life) {
    report_stage(FL_SECTION_CONTENTS);
    learn_blocks(life);
    report_section(FL_SECTION_CONTENTS);
    struct contents contents = {0};
    int status = FL_OK;
    for (uint32_t slot = 0; slot < slot_count(life) && status == FL_OK; slot++) {
        struct fl_location location = {0};
        contents.slot = slot;
        status = life->adapter->read_slot(life->heap, slot, &location);
        if (status == FL_OK && location.is_set)
            scan_object(life, &location, &contents);
    }
    end_with_message(life, FL_SECTION_CONTENTS, status, contents.count, 0);
}

/* ---- drain, free all, maximal ----------------------------------------------------------------------------------------- */

static int allocate_probe_object(struct life *life, uint32_t slot, uint64_t bytes) {
    struct fill fill = {.object = PROBE_OBJECT}; /* no power fails here: nothing need be flushed */
    return life->adapter->allocate(life->heap, slot, bytes, pattern_fill, &fill);
}

/* The next empty probe slot from slot on; slot_count when there is none. */
static uint32_t empty_slot(struct life *life, uint32_t slot, int *status) {
    for (; slot < slot_count(life); slot++) {
        struct fl_location location = {0};
        *status = life->adapter->read_slot(life->heap, slot, &location);
        if (*status != FL_OK || !location.is_set)
            break;
    }
    return slot;
}

static int note_drained(struct life *life, uint32_t slot, uint64_t bytes) {
    struct fl_location location = {0};
    life->is_drained[slot - life->probe->slots] = 1;
    if (bytes > life->largest)
        life->largest = bytes;
    int status = life->adapter->read_slot(life->heap, slot, &location);
    struct fl_block_entry *entry = report_append(sizeof *entry);
    *entry = (struct fl_block_entry){file_number(life, location.file), FL_BLOCK_ALLOCATED, location.offset, bytes};
    return status;
}

/* Largest first and halving: what is left of the heap after each size is too small for it. */
static int drain(struct life *life) {
    report_stage(FL_SECTION_DRAIN);
    report_section(FL_SECTION_DRAIN);
    uint64_t total = 0, bytes = life->probe->options.limit_bytes / 2;
    while ((bytes & (bytes - 1)) != 0)
        bytes &= bytes - 1; /* down to a power of two */
    uint32_t count = 0, slot = life->probe->slots;
    int status = FL_OK;
    while (bytes >= SMALLEST_DRAIN_BYTES) {
        slot = empty_slot(life, slot, &status);
        if (status != FL_OK || slot == slot_count(life))
            break;
        status = allocate_probe_object(life, slot, bytes);
        if (status == FL_OUT_OF_MEMORY && planted("drain-stops-early")) {
            status = FL_OK;
            break;
        }
        if (status == FL_OUT_OF_MEMORY) {
            status = FL_OK;
            bytes /= 2;
            continue;
        }
        if (status != FL_OK || (status = note_drained(life, slot, bytes)) != FL_OK)
            break;
        total += bytes;
        count++;
    }
    bool is_failed = status != FL_OK;
    if (!is_failed && bytes >= SMALLEST_DRAIN_BYTES)
        status = FL_OUT_OF_MEMORY; /* of probe slots: there may be more memory */
    report_end(status, count, total);
    if (is_failed)
        report_message(FL_SECTION_DRAIN, life->adapter->message());
    return is_failed ? status : FL_OK;
}

static int free_all(struct life *life) {
    report_stage(FL_SECTION_FREE_ALL);
    int status = FL_OK;
    for (uint32_t slot = life->probe->slots; slot < slot_count(life) && status == FL_OK; slot++)
        if (life->is_drained[slot - life->probe->slots])
            status = life->adapter->free(life->heap, slot);
    report_status(life, FL_SECTION_FREE_ALL, status, 0);
    return status;
}

static int allocate_maximal(struct life *life) {
    report_stage(FL_SECTION_MAXIMAL);
    int status = FL_OK;
    uint32_t slot = empty_slot(life, life->probe->slots, &status);
    if (status == FL_OK && life->largest > 0 && slot < slot_count(life))
        status = allocate_probe_object(life, slot, life->largest);
    report_status(life, FL_SECTION_MAXIMAL, status, life->largest);
    return status;
}

static void close_heap(struct life *life) {
    report_stage(FL_SECTION_CLOSE);
    report_status(life, FL_SECTION_CLOSE, life->adapter->close(life->heap), 0);
}

/* ---- lives ------------------------------------------------------------------------------------------------------------ */

/* A stage that failed is the end of the stages, but not of the life: whether the heap can be closed and opened is still told. */
static void use_heap(struct life *life) {
    life->is_drained = calloc(FL_PROBE_SLOTS, 1);
    if (life->is_drained == NULL)
        report_broken("no memory for the drain");
    int status = drain(life);
    report_contents(life);
    if (status != FL_OK || free_all(life) != FL_OK)
        return;
    report_contents(life);
    allocate_maximal(life);
}

static void recreate(struct life *life) {
    report_stage(FL_SECTION_RECREATE);
    int status = life->adapter->create(&life->probe->options, &life->heap);
    report_status(life, FL_SECTION_RECREATE, status, 0);
}

void probe_life(const struct probe *probe, enum life_kind kind) {
    struct life life = {.adapter = probe->adapter, .probe = probe};
    if (kind != LIFE_FIRST)
        stages_stop(); /* what the later lives recover is no crash image */
    if (kind == LIFE_RECREATE) {
        recreate(&life);
        return;
    }
    if (open_heap(&life) != FL_OK)
        return;
    if (kind == LIFE_POWER) {
        report_contents(&life);
        return;
    }
    report_slots(&life);
    report_walk(&life);
    report_check(&life);
    if (kind == LIFE_FIRST)
        return;
    report_contents(&life);
    if (kind == LIFE_SECOND)
        return;
    if (kind == LIFE_USE)
        use_heap(&life);
    close_heap(&life);
}
