/* SPDX-License-Identifier: Apache-2.0
 *
 * arena.c - which thread uses which arena (§3.4): the first that comes the first one, and so on in turn. The thread library's
 * own map from threads to values holds the assignment, for constant-time lookup.
 */
#include "types.h"

int nvm_arenas_init(struct nvm_heap *heap) {
    for (uint32_t i = 0; i < NVM_ARENAS; i++) {
        struct nvm_arena *arena = &heap->arenas[i];
        arena->id = (uint16_t)i;
        pthread_mutex_init(&arena->lock, NULL);
        for (uint32_t size_class = 0; size_class < NVM_SMALL_CLASSES; size_class++)
            pthread_mutex_init(&arena->bins[size_class].lock, NULL);
    }
    pthread_mutex_init(&heap->shortage_lock, NULL);
    pthread_mutex_init(&heap->scan_lock, NULL);
    pthread_mutex_init(&heap->chunk_lock, NULL);
    pthread_mutex_init(&heap->ring_lock, NULL);
    if (pthread_key_create(&heap->thread_arena, NULL) != 0)
        return nvm_fail(NVM_ERROR, "too many heaps are open: no thread-specific data key is left");
    return NVM_OK;
}

void nvm_arenas_destroy(struct nvm_heap *heap) {
    pthread_key_delete(heap->thread_arena);
    for (uint32_t i = 0; i < NVM_ARENAS; i++) {
        pthread_mutex_destroy(&heap->arenas[i].lock);
        for (uint32_t size_class = 0; size_class < NVM_SMALL_CLASSES; size_class++)
            pthread_mutex_destroy(&heap->arenas[i].bins[size_class].lock);
    }
    pthread_mutex_destroy(&heap->shortage_lock);
    pthread_mutex_destroy(&heap->scan_lock);
    pthread_mutex_destroy(&heap->chunk_lock);
    pthread_mutex_destroy(&heap->ring_lock);
}

struct nvm_arena *nvm_arena_of_thread(struct nvm_heap *heap) {
    uintptr_t number = (uintptr_t)pthread_getspecific(heap->thread_arena);
    if (number == 0) {
        number = __atomic_fetch_add(&heap->next_arena, 1, __ATOMIC_RELAXED) % NVM_ARENAS + 1;
        pthread_setspecific(heap->thread_arena, (void *)number);
    }
    return &heap->arenas[number - 1];
}
