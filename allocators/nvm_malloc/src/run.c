/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - small objects: bins, runs and their slots (§3.2, §3.4, §3.5.1).
 *
 * Reserving a slot touches volatile structures only. A new run takes one free block; its header goes on saying FREE, one
 * block, until the first slot is activated. A run that becomes empty stays a run (§3.5.3) until memory is short or the
 * heap is opened again.
 */
#include "types.h"

#include <stdlib.h>

static uint64_t free_slots(const struct nvm_vheader *run) {
    return ~(run->activated | run->reserved) & nvm_class_mask(run->size_class);
}

static struct nvm_bin *bin_of(struct nvm_heap *heap, const struct nvm_vheader *run) { return &heap->arena.bins[run->size_class]; }

static void put_in_list(struct nvm_bin *bin, struct nvm_vheader *run) {
    run->previous = NULL;
    run->next = bin->non_full;
    if (run->next != NULL)
        run->next->previous = run;
    bin->non_full = run;
    run->is_listed = true;
}

static void take_from_list(struct nvm_bin *bin, struct nvm_vheader *run) {
    if (run->previous != NULL)
        run->previous->next = run->next;
    else
        bin->non_full = run->next;
    if (run->next != NULL)
        run->next->previous = run->previous;
    run->next = run->previous = NULL;
    run->is_listed = false;
}

/* The run that allocations of this class use now. */
static int current_run(struct nvm_heap *heap, uint32_t size_class, struct nvm_vheader **current) {
    struct nvm_bin *bin = &heap->arena.bins[size_class];
    if (bin->current == NULL && bin->non_full != NULL) {
        bin->current = bin->non_full;
        take_from_list(bin, bin->current);
    }
    if (bin->current == NULL) {
        struct nvm_vheader *run;
        int status = nvm_range_take(heap, 1, &run);
        if (status != NVM_OK)
            return status;
        run->size_class = (uint8_t)size_class;
        run->activated = run->reserved = 0;
        run->is_on_media = false;
        heap->roles[run->block] = NVM_ROLE_RUN;
        heap->vheaders[run->block] = run;
        bin->current = run;
    }
    *current = bin->current;
    return NVM_OK;
}

int nvm_run_reserve(struct nvm_heap *heap, uint32_t size_class, struct nvm_vheader **run, uint8_t *slot) {
    int status = current_run(heap, size_class, run);
    if (status != NVM_OK)
        return status;
    uint64_t candidates = free_slots(*run);
    nvm_assert(candidates != 0);
    *slot = (uint8_t)__builtin_ctzll(candidates); /* first fit */
    (*run)->reserved |= (uint64_t)1 << *slot;
    if (free_slots(*run) == 0)
        bin_of(heap, *run)->current = NULL; /* full runs are not tracked */
    return NVM_OK;
}

/* A slot became free: a run that was full is tracked again. */
void nvm_run_relist(struct nvm_heap *heap, struct nvm_vheader *run) {
    struct nvm_bin *bin = bin_of(heap, run);
    if (bin->current != run && !run->is_listed && free_slots(run) != 0)
        put_in_list(bin, run);
}

/* Recovery: makes a run known that is on media. */
void nvm_run_adopt(struct nvm_heap *heap, struct nvm_vheader *run) {
    heap->roles[run->block] = NVM_ROLE_RUN;
    heap->vheaders[run->block] = run;
    nvm_run_relist(heap, run);
}

static bool reclaim_if_empty(struct nvm_heap *heap, struct nvm_vheader *run) {
    struct nvm_bin *bin = bin_of(heap, run);
    if ((run->activated | run->reserved) != 0)
        return false;
    if (bin->current == run)
        bin->current = NULL;
    else
        take_from_list(bin, run);
    nvm_range_give_back(heap, run);
    return true;
}

/* Memory is short: turns all empty runs back into free ranges. True if there were any. */
bool nvm_run_reclaim_empty(struct nvm_heap *heap) {
    bool is_any = false;
    for (uint32_t size_class = 0; size_class < NVM_SMALL_CLASSES; size_class++) {
        struct nvm_bin *bin = &heap->arena.bins[size_class];
        if (bin->current != NULL && reclaim_if_empty(heap, bin->current))
            is_any = true;
        for (struct nvm_vheader *run = bin->non_full, *next; run != NULL; run = next) {
            next = run->next;
            if (reclaim_if_empty(heap, run))
                is_any = true;
        }
    }
    return is_any;
}
