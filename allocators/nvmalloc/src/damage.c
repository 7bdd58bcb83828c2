/* SPDX-License-Identifier: Apache-2.0
 *
 * damage.c - what is done with an incorrect header (§3.2): it is marked, and the application is told.
 *
 * The mark is a correct header of state damaged over all that the damage costs. So the chain is whole again, and the next scan finds
 * nothing new. Content is not touched: the application may want to read it.
 */
#include "types.h"

#include "persist.h"

void nvmalloc_tell(struct nvmalloc_heap *heap, enum nvmalloc_damage_place place, uint32_t line, uint32_t lines, uint64_t header) {
    const struct nvmalloc_damage damage = {place, (uint64_t)line * NVMALLOC_LINE_BYTES, (uint64_t)lines * NVMALLOC_LINE_BYTES,
                                           header};
    if (heap->on_damage != NULL)
        heap->on_damage(heap->context, &damage);
}

void nvmalloc_isolate(struct nvmalloc_heap *heap, enum nvmalloc_damage_place place, uint32_t line, uint32_t end) {
    struct nvmalloc_header *header = nvmalloc_header_at(heap, line);
    uint64_t found = nvmalloc_load(&header->word);
    nvmalloc_may_store(heap, line);
    fl_store8(&header->wait, NVMALLOC_WAIT_OF_DAMAGED);
    fl_store8(&header->word, nvmalloc_make_word(line, end - line, NVMALLOC_DAMAGED, 0));
    fl_persist(header, sizeof *header);
    bits_set(heap->starts, line);
    bits_set_range(heap->used, line, end);
    nvmalloc_tell(heap, place, line, end - line, found);
}

void nvmalloc_set_aside(struct nvmalloc_heap *heap, uint32_t line) {
    uint32_t end = nvmalloc_block_end(heap, line);
    if (nvmalloc_is_correct(heap, line))
        bits_set_range(heap->used, line, end);
    else
        nvmalloc_isolate(heap, NVMALLOC_DAMAGE_ALLOCATE, line, end);
}
