/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe script: what is done to a heap image, stage by stage, each with its section of the heap report. It is a function
 * of image and configuration only: it knows no history. The lives are described in protocol.h.
 */
#include "probe/probe.h"
#include "base/traced.h"
#include "files/files.h"
#include "loads/loads.h"
#include "trace.h"
#include "undo/undo.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST_DRAIN_BYTES 64u

struct life {
    const struct fl_adapter *adapter;
    const struct probe *probe;
    fl_heap *heap;
    uint32_t numbers[16]; /* report numbers of the adapter's first files, + 1; 0: not asked yet */
    uint64_t largest;     /* that the drain got, bytes */
    uint8_t *is_drained;  /* by slot: the drain allocated it */
    bool is_emptied;      /* all objects were freed */
    bool is_lazy;         /* it was opened so, and has not been settled */
    bool is_settled;      /* nothing is left of a lazy open */
    bool is_kept_out;     /* a stray store is */
    bool is_recorded;     /* what it does to PM is, and its operations */
    enum fl_section_kind doing; /* in the follow-up */
    struct blocks blocks;    /* of the last walk */
    struct objects objects;  /* graph layout: as they were after open */
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

/* Where the probe's allocations begin: the empty slots of the workload serve, too, where they are of a layout of their own, so that
 * its path (names, a list) is used after a recovery. */
static uint32_t first_slot(const struct life *life) {
    return life->probe->options.slot_layout == FL_SLOTS_ROOT ? life->probe->slots : 0;
}

static bool has_fields(const struct life *life) { return life->probe->options.slot_layout == FL_SLOTS_GRAPH; }

/* ---- open, slots, objects, walk ------------------------------------------------------------------------------------------ */

static enum fl_open_kind open_kind(const struct life *life) {
    if (life->adapter->has_recovered == NULL)
        return FL_OPEN_NOT_TOLD;
    return life->adapter->has_recovered(life->heap) ? FL_OPEN_RECOVERED : FL_OPEN_AS_CLOSED;
}

static bool is_moved(const struct fl_heap_options *options) { return vfs_maps_in(options->address_hint, options->limit_bytes); }

static bool opens_lazily(const struct probe *probe, enum life_kind kind) {
    bool is_compared = kind == LIFE_SECOND || kind == LIFE_USE; /* with lives that do */
    return probe->is_lazy && !is_compared && kind != LIFE_EMPTIED_LAST; /* the last one looks at all that is left */
}

static bool opens_crash_image(enum life_kind kind) {
    return kind == LIFE_FIRST || kind == LIFE_ONLY || kind == LIFE_POWER || kind == LIFE_USE || kind == LIFE_EMPTIED;
}

/* Of a heap that has been opened. */
static uint64_t told_of_open(const struct life *life) {
    uint64_t told = open_kind(life);
    if (life->probe->relocated_by != 0 && !is_moved(&life->probe->options))
        told |= FL_OPEN_NOT_MOVED;
    if (life->is_kept_out)
        told |= FL_OPEN_KEPT_OUT;
    return told;
}

static int open_heap(struct life *life, enum life_kind kind) {
    life->is_lazy = opens_lazily(life->probe, kind);
    life->is_settled = !life->is_lazy;
    report_stage(FL_SECTION_OPEN);
    int status = open_adapter(life->adapter, &life->probe->options, life->is_lazy, &life->heap);
    life->is_kept_out = status == FL_OK && opens_crash_image(kind) && vfs_has_stray() && !vfs_store_stray();
    report_status(life, FL_SECTION_OPEN, status, status == FL_OK ? told_of_open(life) : FL_OPEN_NOT_TOLD);
    report_result()->open_status = (uint32_t)status;
    return status;
}

/* Of a lazy open: all that is left of it. */
static void settle(struct life *life) {
    if (!life->is_lazy)
        return;
    report_stage(FL_SECTION_SETTLE);
    int status = life->is_settled ? FL_OK : life->adapter->settle(life->heap);
    life->is_lazy = false;
    life->is_settled = true;
    report_status(life, FL_SECTION_SETTLE, status, 0);
}

struct slots {
    struct life *life;
    uint32_t count;
};

static void report_slot(void *context, uint32_t slot, const struct fl_location *location) {
    struct slots *slots = context;
    struct fl_slot_entry *entry = report_append(sizeof *entry);
    *entry = (struct fl_slot_entry){slot, file_number(slots->life, location->file), location->offset};
    slots->count++;
}

static int read_slots(struct life *life, fl_visit_slot visit, void *context) {
    if (life->adapter->read_slots != NULL)
        return life->adapter->read_slots(life->heap, 0, slot_count(life), visit, context);
    int status = FL_OK;
    for (uint32_t slot = 0; slot < slot_count(life) && status == FL_OK; slot++) {
        struct fl_location location = {0};
        status = life->adapter->read_slot(life->heap, slot, &location);
        if (status == FL_OK && location.is_set)
            visit(context, slot, &location);
    }
    return status;
}

static void report_slots(struct life *life) {
    report_stage(FL_SECTION_SLOTS);
    report_section(FL_SECTION_SLOTS);
    struct slots slots = {life, 0};
    int status = read_slots(life, report_slot, &slots);
    end_with_message(life, FL_SECTION_SLOTS, status, slots.count, slot_count(life));
}

/* Those of life 1 are not reported: they are those of life 0. */
static int find_objects(struct life *life) {
    int status = blocks_learn(&life->blocks, life->adapter, life->heap);
    if (status == FL_OK)
        status = objects_reach(&life->objects, &life->blocks, life->adapter, life->heap, life->probe->options.layout_slots,
                               slot_count(life));
    return status;
}

static struct fl_field_entry field_entry(struct life *life, const struct fl_location *field) {
    return field->is_set ? (struct fl_field_entry){file_number(life, field->file), 1, field->offset} : (struct fl_field_entry){0};
}

static void report_objects(struct life *life) {
    report_stage(FL_SECTION_OBJECTS);
    report_section(FL_SECTION_OBJECTS);
    int status = find_objects(life);
    for (uint32_t number = 0; number < life->objects.count; number++) {
        const struct object *object = &life->objects.list[number];
        struct fl_object_entry *entry = report_append(sizeof *entry);
        *entry = (struct fl_object_entry){.file = file_number(life, object->location.file), .offset = object->location.offset};
        for (uint32_t field = 0; field < FL_GRAPH_FIELDS; field++)
            entry->fields[field] = field_entry(life, &object->fields[field]);
    }
    if (status == FL_OK && life->objects.is_bounded)
        report_end(FL_OUT_OF_MEMORY, life->objects.count, 0);
    else
        end_with_message(life, FL_SECTION_OBJECTS, status, life->objects.count, 0);
}

struct walk {
    struct life *life;
    const struct fl_block_entry *entries; /* in the heap report */
    uint32_t count;
};

static void report_block(void *context, const struct fl_block *block) {
    struct walk *walk = context;
    struct fl_block_entry *entry = report_append(sizeof *entry);
    *entry = (struct fl_block_entry){file_number(walk->life, block->file), block->state, block->offset, block->bytes};
    if (walk->count++ == 0)
        walk->entries = entry;
}

/* The files in the heap folder as the target sees them. own: a tree for a new list; the caller frees it. */
static const struct tree *heap_files(struct tree *own) {
    *own = (struct tree){0};
    bool is_image = inprocess_is_running() ? !names_are_changed() && !undo_has_resized() : vfs_mode() != VFS_REDIRECT;
    if (is_image)
        return vfs_tree();
    char text[128];
    int error = vfs_list(own);
    if (error != 0) {
        snprintf(text, sizeof text, "the files of the heap cannot be listed: %s", strerror(error));
        report_broken(text);
    }
    return own;
}

static bool is_walked(const struct walk *walk, uint32_t file) {
    for (uint32_t i = 0; i < walk->count; i++)
        if (walk->entries[i].file == file)
            return true;
    return false;
}

static bool is_mapped(const struct tree_entry *file) {
    struct vfs_view view;
    for (size_t i = 0; vfs_view(i, &view); i++)
        if (view.inode == file->inode || view.inode == file->copy_inode)
            return true;
    return false;
}

static void report_unwalked(const struct walk *walk, const struct tree *files) {
    uint32_t count = 0;
    for (size_t i = 0; i < files->count; i++) {
        const struct tree_entry *file = &files->entries[i];
        if (file->bytes == 0)
            continue;
        uint32_t number = report_file(file->path);
        if (is_walked(walk, number))
            continue;
        if (count++ == 0)
            report_section(FL_SECTION_UNWALKED);
        struct fl_unwalked_entry *entry = report_append(sizeof *entry);
        *entry = (struct fl_unwalked_entry){number, is_mapped(file), file->bytes};
    }
    if (count > 0)
        report_end(FL_OK, count, 0);
}

static void report_walk(struct life *life) {
    report_stage(FL_SECTION_WALK);
    report_section(FL_SECTION_WALK);
    struct walk walk = {life, NULL, 0};
    bool has_walk = life->adapter->walk != NULL;
    int status = has_walk ? life->adapter->walk(life->heap, report_block, &walk) : FL_UNSUPPORTED_CALL;
    struct tree own;
    const struct tree *files = heap_files(&own);
    if (has_walk)
        end_with_message(life, FL_SECTION_WALK, status, walk.count, tree_bytes(files));
    else
        report_end(status, 0, tree_bytes(files));
    if (status == FL_OK)
        report_unwalked(&walk, files);
    tree_free(&own);
}

/* ---- retained: what only a conservative collector keeps ------------------------------------------------------------------ */

static void report_left_over(struct life *life, const struct retained *retained) {
    uint32_t count = 0;
    for (size_t i = 0; i < life->blocks.count; i++) {
        const struct fl_block *block = &life->blocks.list[i];
        if (!retained->is_marked[i] || retained->is_reached[i])
            continue;
        struct fl_block_entry *entry = report_append(sizeof *entry);
        *entry = (struct fl_block_entry){file_number(life, block->file), block->state, block->offset, block->bytes};
        count++;
    }
    report_end(FL_OK, count, retained->left_over_count);
}

static void report_retained(struct life *life) {
    if (life->adapter->collect == NULL)
        return;
    report_stage(FL_SECTION_RETAINED);
    vfs_look_anew();
    if (blocks_learn(&life->blocks, life->adapter, life->heap) != FL_OK)
        return; /* the stage walk has reported it */
    struct retained retained = {.adapter = life->adapter, .heap = life->heap, .blocks = &life->blocks, .objects = &life->objects};
    int status = retained_find(&retained, slot_count(life));
    if (status != FL_OK || retained.left_over_count > 0)
        report_section(FL_SECTION_RETAINED);
    if (status != FL_OK)
        end_with_message(life, FL_SECTION_RETAINED, status, 0, 0);
    else if (retained.left_over_count > 0)
        report_left_over(life, &retained);
    retained_free(&retained);
}

/* ---- check --------------------------------------------------------------------------------------------------------------- */

static void report_check(struct life *life) {
    if (life->probe->is_unchecked)
        return;
    report_stage(FL_SECTION_CHECK);
    if (life->adapter->check == NULL)
        report_empty(FL_SECTION_CHECK, FL_UNSUPPORTED_CALL, 0);
    else
        report_status(life, FL_SECTION_CHECK, life->adapter->check(life->heap), 0);
}

/* ---- contents --------------------------------------------------------------------------------------------------------- */

/* Bytes from the object's start to its heap block's end; false: nothing tells. */
static bool object_limit(struct life *life, const struct fl_location *object, uint64_t *limit) {
    struct fl_block block = {0};
    const struct fl_block *found = blocks_find(&life->blocks, object);
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

static void report_content(void *context, uint32_t object, uint64_t from, uint64_t to) {
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
    traced_pause(true);
    pattern_scan(object, is_known && limit < available ? limit : available, !is_known, report_content, contents);
    traced_pause(false);
}

static int scan_objects(struct life *life, struct contents *contents) {
    for (contents->slot = 0; contents->slot < life->objects.count; contents->slot++)
        scan_object(life, &life->objects.list[contents->slot].location, contents);
    return FL_OK;
}

static int scan_slots(struct life *life, struct contents *contents) {
    int status = FL_OK;
    for (uint32_t slot = 0; slot < slot_count(life) && status == FL_OK; slot++) {
        struct fl_location location = {0};
        contents->slot = slot;
        status = life->adapter->read_slot(life->heap, slot, &location);
        if (status == FL_OK && location.is_set)
            scan_object(life, &location, contents);
    }
    return status;
}

static void report_contents(struct life *life) {
    report_stage(FL_SECTION_CONTENTS);
    vfs_look_anew();
    blocks_learn(&life->blocks, life->adapter, life->heap);
    report_section(FL_SECTION_CONTENTS);
    struct contents contents = {0};
    int status = has_fields(life) ? scan_objects(life, &contents) : scan_slots(life, &contents);
    end_with_message(life, FL_SECTION_CONTENTS, status, contents.count, 0);
}

/* ---- drain, free all, maximal ----------------------------------------------------------------------------------------- */

static int allocate_probe_object(struct life *life, uint32_t slot, uint64_t bytes) {
    struct fill fill = {.object = PROBE_OBJECT}; /* no power fails here: nothing need be flushed */
    return life->adapter->allocate(life->heap, slot, bytes, pattern_fill, &fill);
}

/* The next empty slot from slot on; slot_count when there is none. */
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
    life->is_drained[slot] = 1;
    if (bytes > life->largest)
        life->largest = bytes;
    int status = life->adapter->read_slot(life->heap, slot, &location);
    struct fl_block_entry *entry = report_append(sizeof *entry);
    *entry = (struct fl_block_entry){file_number(life, location.file), FL_BLOCK_ALLOCATED, location.offset, bytes};
    return status;
}

/* Before a twin is used: it was closed and not recovered, so what a recovery collects it has still. A failure is one of the stage that
 * comes next. */
static int collect_in_twin(struct life *life, enum fl_section_kind next) {
    if (!life->probe->is_twin || life->adapter->collect == NULL)
        return FL_OK;
    report_stage(next);
    int status = life->adapter->collect(life->heap);
    if (status != FL_OK)
        report_status(life, next, status, 0);
    return status;
}

static uint64_t power_of_two_below(uint64_t bytes) {
    while ((bytes & (bytes - 1)) != 0)
        bytes &= bytes - 1;
    return bytes;
}

/* Where memory ends the process, the drain asks for pieces of this size: the probe's slots hold so many of them as fit. */
static uint64_t piece_bytes(const struct life *life) {
    uint64_t pieces = slot_count(life) - life->probe->slots;
    uint64_t bytes = 2 * power_of_two_below(life->probe->options.limit_bytes / pieces);
    return bytes > SMALLEST_DRAIN_BYTES ? bytes : SMALLEST_DRAIN_BYTES;
}

/* Largest first and halving: what is left of the heap after each size is too small for it. Where memory ends the process, only the
 * emptied heap is filled, which ends its life; the others get one object of each size. */
static int drain(struct life *life) {
    report_stage(FL_SECTION_DRAIN);
    life->is_drained = calloc(slot_count(life), 1);
    if (life->is_drained == NULL)
        report_broken("no memory for the drain");
    bool ends = life->probe->ends_when_full, is_filled = !ends || life->is_emptied;
    if (ends && is_filled)
        report_drain_until_end();
    else
        report_section(FL_SECTION_DRAIN);
    uint64_t total = 0, bytes = ends ? piece_bytes(life) : power_of_two_below(life->probe->options.limit_bytes / 2);
    uint32_t count = 0, slot = first_slot(life);
    int status = FL_OK;
    while (bytes >= SMALLEST_DRAIN_BYTES) {
        slot = empty_slot(life, slot, &status);
        if (status != FL_OK || slot == slot_count(life))
            break;
        status = allocate_probe_object(life, slot, bytes);
        if (status == FL_OUT_OF_MEMORY) {
            status = FL_OK;
            bytes /= 2;
            continue;
        }
        if (status != FL_OK || (status = note_drained(life, slot, bytes)) != FL_OK)
            break;
        total += bytes;
        count++;
        if (!is_filled)
            bytes /= 2;
    }
    bool is_failed = status != FL_OK;
    if (!is_failed && (bytes >= SMALLEST_DRAIN_BYTES || !is_filled))
        status = FL_OUT_OF_MEMORY; /* of probe slots: there may be more memory */
    report_end(status, count, total);
    if (is_failed)
        report_message(FL_SECTION_DRAIN, life->adapter->message());
    return is_failed ? status : FL_OK;
}

/* The heap has been used by now: what was kept out of it may not be any more. */
static void report_freed(struct life *life, int status) {
    life->is_kept_out = life->is_kept_out && !vfs_store_stray();
    report_status(life, FL_SECTION_FREE_ALL, status, life->is_kept_out ? FL_OPEN_KEPT_OUT : 0);
}

static int free_drained(struct life *life) {
    report_stage(FL_SECTION_FREE_ALL);
    int status = FL_OK;
    for (uint32_t slot = 0; slot < slot_count(life) && status == FL_OK; slot++)
        if (life->is_drained[slot])
            status = life->adapter->free(life->heap, slot);
    report_freed(life, status);
    return status;
}

/* Where others may point to an object it is not freed, but let go of. */
static int give_up(struct life *life, uint32_t slot) {
    struct fl_location location = {0};
    int status = life->adapter->read_slot(life->heap, slot, &location);
    if (status != FL_OK || !location.is_set)
        return status;
    bool is_in_graph = has_fields(life) && slot < life->probe->options.layout_slots;
    return is_in_graph ? life->adapter->drop(life->heap, slot) : life->adapter->free(life->heap, slot);
}

/* The workload's objects, too: none is left. */
static int free_all(struct life *life) {
    report_stage(FL_SECTION_FREE_ALL);
    int status = FL_OK;
    for (uint32_t slot = 0; slot < slot_count(life) && status == FL_OK; slot++)
        status = give_up(life, slot);
    if (status == FL_OK && has_fields(life) && life->adapter->collect != NULL)
        status = life->adapter->collect(life->heap);
    report_freed(life, status);
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

/* ---- the follow-up of a recovery ----------------------------------------------------------------------------------------- */

static int allocate_in_follow_up(struct life *life, uint32_t slot, uint64_t bytes) {
    if (!life->is_recorded)
        return allocate_probe_object(life, slot, bytes);
    uint32_t index = events_operation_begins(FL_OP_ALLOCATE, slot, bytes);
    struct fill fill = {.object = index + 1, .is_persisted = true};
    int status = life->adapter->allocate(life->heap, slot, bytes, pattern_fill, &fill);
    events_operation_returned(FL_OP_ALLOCATE, index, status);
    return status;
}

static int free_in_follow_up(struct life *life, uint32_t slot) {
    if (!life->is_recorded)
        return life->adapter->free(life->heap, slot);
    uint32_t index = events_operation_begins(FL_OP_FREE, slot, 0);
    int status = life->adapter->free(life->heap, slot);
    events_operation_returned(FL_OP_FREE, index, status);
    return status;
}

/* What the life does from now on, in a use that is not recorded: a failure is one of that. */
static void use_begins(struct life *life, enum fl_section_kind doing) {
    life->doing = doing;
    if (!life->is_recorded)
        report_stage(doing);
}

/* Of a lazy open: a piece of it after each operation. */
static int go_on_lazily(struct life *life, int status) {
    if (status != FL_OK || life->is_settled)
        return status;
    enum fl_section_kind doing = life->doing;
    use_begins(life, FL_SECTION_SETTLE);
    status = lazy_step(life->adapter, life->heap, &life->is_settled);
    if (status == FL_OK)
        use_begins(life, doing);
    return status;
}

/* Ends with the first operation that fails but for want of memory, and answers what that did: of a recovery that is not lazy the full
 * probe says what it means. */
static int follow_up(struct life *life) {
    static const uint64_t BYTES[] = FL_FOLLOW_UP_BYTES;
    uint32_t made[sizeof BYTES / sizeof BYTES[0]], count = 0, slot = first_slot(life);
    int status = FL_OK;
    use_begins(life, FL_SECTION_DRAIN);
    for (size_t i = 0; i < sizeof BYTES / sizeof BYTES[0] && status == FL_OK; i++, slot++) {
        slot = empty_slot(life, slot, &status);
        if (status != FL_OK || slot == slot_count(life))
            break;
        if (life->probe->ends_when_full && BYTES[i] > piece_bytes(life))
            break;
        status = allocate_in_follow_up(life, slot, BYTES[i]);
        if (status == FL_OK)
            made[count++] = slot;
        status = go_on_lazily(life, status == FL_OUT_OF_MEMORY ? FL_OK : status);
    }
    if (status == FL_OK)
        use_begins(life, FL_SECTION_FREE_ALL);
    for (uint32_t i = 0; i < count && status == FL_OK; i++)
        status = go_on_lazily(life, free_in_follow_up(life, made[i]));
    return status;
}

/* Before a lazy open is settled. Where memory ends the process, nothing is known to be left. */
static void use_lazily(struct life *life) {
    int status = life->probe->ends_when_full ? FL_OK : follow_up(life);
    if (status == FL_OK)
        settle(life);
    else
        report_status(life, life->doing, status, 0);
}

static void traced_life(struct life *life) {
    life->is_recorded = true;
    events_start(life->probe->generation);
    loads_follow(); /* events are of mappings that nobody looked at so far */
    uint32_t index = events_operation_begins(FL_OP_OPEN, 0, 0);
    int status = open_heap(life, LIFE_TRACED);
    events_operation_returned(FL_OP_OPEN, index, status);
    if (status != FL_OK)
        return;
    report_slots(life);
    if (has_fields(life)) {
        settle(life); /* a walk tells what the objects are */
        report_objects(life);
    }
    if (life->probe->has_follow_up)
        status = follow_up(life);
    if (status == FL_OK)
        settle(life);
}

/* ---- lives ------------------------------------------------------------------------------------------------------------ */

/* A stage that failed is the end of the stages, but not of the life: whether the heap can be closed and opened is still reported. */
static void use_heap(struct life *life) {
    int status = collect_in_twin(life, FL_SECTION_DRAIN);
    if (status == FL_OK)
        status = drain(life);
    report_contents(life);
    if (status != FL_OK || free_drained(life) != FL_OK)
        return;
    report_contents(life);
    allocate_maximal(life);
}

static void empty_heap(struct life *life) {
    if (collect_in_twin(life, FL_SECTION_FREE_ALL) != FL_OK || free_all(life) != FL_OK)
        return;
    life->is_emptied = true;
    drain(life);
}

void probe_empty_open(const struct probe *probe, fl_heap *heap) {
    struct life life = {.adapter = probe->adapter, .probe = probe, .heap = heap};
    empty_heap(&life);
}

/* ---- the deep probe ------------------------------------------------------------------------------------------------------ */

#define PARTS_OF_HEAP 64u /* no object of a long use is larger than one of them */
#define LARGEST_OF_FEW 64u /* where memory ends the process: all of them together take no more than the drain of life 3 */

static void report_long_use(struct life *life) {
    static struct long_use use;
    report_stage(FL_SECTION_DRAIN);
    uint64_t part = power_of_two_below(life->probe->options.limit_bytes / PARTS_OF_HEAP);
    uint64_t largest = life->probe->ends_when_full ? LARGEST_OF_FEW : part;
    use_long(life->probe, life->heap, first_slot(life), largest, &use);
    report_section(FL_SECTION_DRAIN);
    uint64_t total = 0;
    for (uint32_t i = 0; i < use.count; i++) {
        const struct long_object *object = &use.objects[i];
        struct fl_block_entry *entry = report_append(sizeof *entry);
        *entry = (struct fl_block_entry){file_number(life, object->location.file), FL_BLOCK_ALLOCATED, object->location.offset,
                                         object->bytes};
        total += object->bytes;
    }
    report_end(use.status, use.count, total);
    if (use.status != FL_OK)
        report_message(FL_SECTION_DRAIN, use.message[0] != '\0' ? use.message : life->adapter->message());
}

static void open_and_close(struct life *life) {
    report_stage(FL_SECTION_OPEN);
    int status = open_adapter(life->adapter, &life->probe->options, life->probe->is_lazy, &life->heap);
    report_result()->open_status = (uint32_t)status;
    if (status != FL_OK) {
        report_status(life, FL_SECTION_OPEN, status, FL_OPEN_NOT_TOLD);
        return;
    }
    report_stage(FL_SECTION_CLOSE);
    status = life->adapter->close(life->heap);
    if (status == FL_OK)
        return;
    report_result()->open_status = (uint32_t)status; /* no other life opens it */
    report_empty(FL_SECTION_OPEN, FL_OK, FL_OPEN_NOT_TOLD);
    report_status(life, FL_SECTION_CLOSE, status, 0);
}

static void recreate(struct life *life) {
    report_stage(FL_SECTION_RECREATE);
    int status = life->adapter->create(&life->probe->options, &life->heap);
    report_status(life, FL_SECTION_RECREATE, status, 0);
}

void probe_life(const struct probe *probe, enum life_kind kind) {
    struct life life;
    memset(&life, 0, sizeof life); /* tail_end_first looks at its padding, too */
    life.adapter = probe->adapter;
    life.probe = probe;
    if (kind != LIFE_FIRST && kind != LIFE_ONLY)
        stages_stop(); /* what the later lives recover is no crash image */
    if (kind == LIFE_RECREATE) {
        recreate(&life);
        return;
    }
    if (kind == LIFE_TRACED) {
        traced_life(&life);
        return;
    }
    if (kind == LIFE_OPENED) {
        open_and_close(&life);
        return;
    }
    if (open_heap(&life, kind) != FL_OK)
        return;
    if (kind == LIFE_EMPTIED_LAST)
        return;
    if (kind == LIFE_FIRST)
        tail_opened();
    if (kind == LIFE_POWER) {
        tail_go_on();
        if (life.is_lazy)
            use_lazily(&life);
        if (has_fields(&life))
            find_objects(&life);
        report_contents(&life);
        return;
    }
    if (kind == LIFE_EMPTIED) {
        tail_go_on();
        empty_heap(&life);
        close_heap(&life);
        return;
    }
    report_slots(&life);
    settle(&life);
    if (has_fields(&life))
        report_objects(&life);
    report_walk(&life);
    report_retained(&life);
    report_check(&life);
    if (kind == LIFE_FIRST) {
        tail_end_first(&life, sizeof life);
        return;
    }
    if (kind == LIFE_USE)
        tail_go_on();
    if (kind == LIFE_ONLY && loads_is_every)
        return;
    report_contents(&life);
    if (kind == LIFE_ONLY || kind == LIFE_SECOND)
        return;
    if (kind == LIFE_USE)
        use_heap(&life);
    if (kind == LIFE_LAST && probe->is_deep)
        report_long_use(&life);
    close_heap(&life);
}
