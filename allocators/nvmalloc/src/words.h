/* SPDX-License-Identifier: Apache-2.0
 *
 * words.h - loads, stores and flushes of a header's two words, for who is named with them where something is told of one: a part of
 * types.h, and `helpers` of allocator.toml.
 */
#ifndef NVMALLOC_TYPES_H
#error "include types.h"
#endif

#include "persist.h"

static inline uint64_t nvmalloc_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

static inline uint64_t nvmalloc_word_at(const struct nvmalloc_heap *heap, uint32_t line) {
    return nvmalloc_load(&heap->lines[line].header.word);
}

static inline void nvmalloc_store_word(struct nvmalloc_heap *heap, uint32_t line, uint32_t lines, enum nvmalloc_state state,
                                       uint64_t wait) {
    nvmalloc_may_store(heap, line);
    fl_store8(&nvmalloc_header_at(heap, line)->word, nvmalloc_make_word(line, lines, state, wait));
}

static inline void nvmalloc_store_wait(struct nvmalloc_heap *heap, uint32_t line, uint64_t wait) {
    nvmalloc_may_store(heap, line);
    fl_store8(&nvmalloc_header_at(heap, line)->wait, wait);
}

static inline void nvmalloc_persist_header(struct nvmalloc_heap *heap, uint32_t line) {
    fl_persist(nvmalloc_header_at(heap, line), sizeof(struct nvmalloc_header));
}
