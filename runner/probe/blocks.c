/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap blocks of one walk, to look locations up in. One walk is cheaper than bounds for each object, which some allocators
 * answer by a walk.
 */
#include "probe/probe.h"
#include <stdlib.h>

static void keep_block(void *context, const struct fl_block *block) {
    struct blocks *blocks = context;
    if (blocks->count == blocks->capacity) {
        blocks->capacity = blocks->capacity == 0 ? 1024 : blocks->capacity * 2;
        blocks->list = realloc(blocks->list, blocks->capacity * sizeof *blocks->list);
        if (blocks->list == NULL)
            report_broken("no memory to keep the walk in");
    }
    blocks->list[blocks->count++] = *block;
}

int blocks_learn(struct blocks *blocks, const struct fl_adapter *adapter, fl_heap *heap) {
    blocks->count = 0;
    int status = adapter->walk == NULL ? FL_UNSUPPORTED_CALL : adapter->walk(heap, keep_block, blocks);
    if (status != FL_OK)
        blocks->count = 0;
    return status;
}

const struct fl_block *blocks_find(const struct blocks *blocks, const struct fl_location *object) {
    size_t low = 0, high = blocks->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct fl_block *block = &blocks->list[middle];
        bool is_after = block->file > object->file || (block->file == object->file && block->offset > object->offset);
        if (is_after)
            high = middle;
        else
            low = middle + 1;
    }
    const struct fl_block *block = low > 0 ? &blocks->list[low - 1] : NULL;
    bool contains = block != NULL && block->file == object->file && object->offset - block->offset < block->bytes;
    return contains ? block : NULL;
}

const struct fl_block *blocks_find_allocated(const struct blocks *blocks, const struct fl_location *object) {
    const struct fl_block *block = object->is_set ? blocks_find(blocks, object) : NULL;
    return block != NULL && block->state == FL_BLOCK_ALLOCATED ? block : NULL;
}
