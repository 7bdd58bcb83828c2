/* SPDX-License-Identifier: Apache-2.0
 *
 * Which allocated heap blocks are reached by slots and fields, and which others the conservative mark of mark.c keeps.
 */
#include "probe/probe.h"
#include "base/traced.h"
#include "files/files.h"
#include "loads/loads.h"
#include <stdlib.h>
#include <string.h>

/* Number of the allocated heap block that holds the location. */
static size_t allocated_block(const struct retained *retained, const struct fl_location *location) {
    const struct fl_block *block = blocks_find_allocated(retained->blocks, location);
    return block == NULL ? MARK_NOTHING : (size_t)(block - retained->blocks->list);
}

static uint8_t *room_for(struct retained *retained, uint64_t bytes) {
    free(retained->content);
    retained->content = malloc(bytes);
    if (retained->content == NULL)
        report_broken("no memory for the content of a heap block");
    return retained->content;
}

static const uint8_t *content(void *context, size_t number, uint64_t *bytes) {
    struct retained *retained = context;
    const struct fl_block *block = &retained->blocks->list[number];
    const char *name = retained->adapter->file_name(retained->heap, block->file);
    uint64_t available = 0, skipped = -block->offset % sizeof(uint64_t); /* to the first aligned word */
    const uint8_t *start = name == NULL ? NULL : vfs_address(name, block->offset + skipped, &available);
    *bytes = start == NULL || skipped > block->bytes ? 0 : block->bytes - skipped;
    if (*bytes > available)
        *bytes = available;
    if (*bytes == 0)
        return NULL;
    loads_looked_at(start, *bytes); /* holds for what comes next only: not over calls of the target */
    uint8_t *copy = room_for(retained, *bytes);
    traced_pause(true);
    memcpy(copy, start, *bytes);
    traced_pause(false);
    return copy;
}

static size_t target(void *context, uint64_t word) {
    const struct retained *retained = context;
    struct fl_location location = {0};
    int status = retained->adapter->word_target(retained->heap, word, &location);
    return status == FL_OK ? allocated_block(retained, &location) : MARK_NOTHING;
}

static void reach(struct retained *retained, const struct fl_location *location) {
    size_t block = allocated_block(retained, location);
    if (block != MARK_NOTHING)
        retained->is_reached[block] = 1;
}

static int reach_all(struct retained *retained, uint32_t slots) {
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct fl_location location = {0};
        int status = retained->adapter->read_slot(retained->heap, slot, &location);
        if (status != FL_OK)
            return status;
        reach(retained, &location);
    }
    for (uint32_t number = 0; number < retained->objects->count; number++)
        reach(retained, &retained->objects->list[number].location);
    return FL_OK;
}

int retained_find(struct retained *retained, uint32_t slots) {
    size_t count = retained->blocks->count;
    retained->is_reached = calloc(count + 1, 1);
    retained->is_marked = calloc(count + 1, 1);
    if (retained->is_reached == NULL || retained->is_marked == NULL)
        report_broken("no memory for the marks of heap blocks");
    int status = reach_all(retained, slots);
    for (size_t i = 0; i < count; i++)
        retained->left_over_count += retained->blocks->list[i].state == FL_BLOCK_ALLOCATED && !retained->is_reached[i];
    if (status != FL_OK || retained->left_over_count == 0)
        return status;
    memcpy(retained->is_marked, retained->is_reached, count);
    mark_conservatively(&(struct marking){count, content, target, retained}, retained->is_marked);
    return FL_OK;
}

void retained_free(struct retained *retained) {
    free(retained->is_reached);
    free(retained->is_marked);
    free(retained->content);
}
