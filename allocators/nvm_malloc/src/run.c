/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - small objects: bins, runs and their slots (§3.2, §3.4, §3.5.1).
 *
 * Reserving a slot touches volatile structures only. A new run takes one free block; its header goes on saying FREE, one
 * block, until the first slot is activated. A run that becomes empty stays a run (§3.5.3) until memory is short or the
 * heap is opened again.
 *
 * After an opening a run's VHeader is made by whoever comes to the run first: the scan, or a free in it (§3.7). A run header
 * on media with the heap's present version has one; one with an older version has none yet. Both look and change under
 * the bin's lock.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"

static uint64_t free_slots(const struct nvm_vheader *run) {
    return ~(run->activated | run->reserved) & nvm_class_mask(run->size_class);
}

struct nvm_bin *nvm_run_bin(struct nvm_heap *heap, uint32_t block, uint32_t size_class) {
    return &nvm_arena_of(heap, block)->bins[size_class];
}

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

/* ---- reserve ---- */

/* The run that allocations of this class use now. */
static int current_run(struct nvm_heap *heap, struct nvm_arena *arena, uint32_t size_class, struct nvm_vheader **current) {
    struct nvm_bin *bin = &arena->bins[size_class];
    if (bin->current == NULL && bin->non_full != NULL) {
        bin->current = bin->non_full;
        take_from_list(bin, bin->current);
    }
    if (bin->current == NULL) {
        struct nvm_vheader *run;
        int status = nvm_range_take(heap, arena, 1, NVM_ROLE_RUN, &run);
        if (status != NVM_OK)
            return status;
        run->size_class = (uint8_t)size_class;
        run->activated = run->reserved = 0;
        run->is_on_media = run->is_listed = false;
        bin->current = run;
    }
    *current = bin->current;
    return NVM_OK;
}

int nvm_run_reserve(struct nvm_heap *heap, struct nvm_arena *arena, uint32_t size_class, struct nvm_vheader **run, uint8_t *slot) {
    struct nvm_bin *bin = &arena->bins[size_class];
    pthread_mutex_lock(&bin->lock);
    int status = current_run(heap, arena, size_class, run);
    if (status == NVM_OK) {
        uint64_t candidates = free_slots(*run);
        nvm_assert(candidates != 0);
        *slot = (uint8_t)__builtin_ctzll(candidates); /* first fit */
        (*run)->reserved |= (uint64_t)1 << *slot;
        if (free_slots(*run) == 0)
            bin->current = NULL; /* full runs are not tracked */
    }
    pthread_mutex_unlock(&bin->lock);
    return status;
}

/* ---- with the bin's lock ---- */

/* A slot became free: a run that was full is tracked again. */
void nvm_run_relist(struct nvm_bin *bin, struct nvm_vheader *run) {
    if (bin->current != run && !run->is_listed && free_slots(run) != 0)
        put_in_list(bin, run);
}

/* Of a run that an earlier opening left. Its header is told that there is a VHeader now. Recovery is right whether that
 * persists or not; at once it does, so that a failure finds one such word undecided at most, and not one for each run. Of the
 * fence mutate tells no loss, and of the flush none in reopen 50: without it, reopen 100 has more crash states than it keeps. */
static int make_vheader(struct nvm_heap *heap, uint32_t block, struct nvm_vheader **made) {
    struct nvm_header *header = nvm_header_at(heap, block);
    struct nvm_vheader *run = calloc(1, sizeof *run);
    if (run == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    run->first = block;
    run->count = 1;
    run->size_class = nvm_run_class(header->run);
    run->activated = header->bitmap;
    run->is_on_media = true;
    fl_store8(&header->run, nvm_run_word(run->size_class, nvm_run_slot(header->run), heap->version));
    fl_persist(&header->run, sizeof header->run);
    nvm_set_role(heap, block, NVM_ROLE_RUN, run);
    nvm_run_relist(nvm_run_bin(heap, block, run->size_class), run);
    *made = run;
    return NVM_OK;
}

/* The VHeader of a run, which is made if nobody did yet. */
int nvm_run_known(struct nvm_heap *heap, uint32_t block, struct nvm_vheader **run) {
    *run = nvm_vheader(heap, block);
    bool is_on_media = *run == NULL || (*run)->is_on_media;
    if (is_on_media && nvm_run_version(nvm_load8(&nvm_header_at(heap, block)->run)) != heap->version)
        return make_vheader(heap, block, run);
    if (*run == NULL)
        return nvm_fail(NVM_CORRUPT, "the run at %#llx has this opening's version, %u, but nobody knows it",
                        (unsigned long long)nvm_block_offset(block), heap->version);
    return NVM_OK;
}

#if defined(MUTANT_RUN_LISTED_TWICE)
/* A VHeader for each ring entry, whatever else knows the run. */
void nvm_run_list_pending(struct nvm_heap *heap, uint32_t block) {
    struct nvm_header *header = nvm_header_at(heap, block);
    struct nvm_vheader *run;
    uint64_t before = header->run;
    if (nvm_tag_kind(header->tag) == NVM_KIND_RUN && header->bitmap != 0 && make_vheader(heap, block, &run) == NVM_OK)
        fl_store8(&header->run, before);
}
#endif

/* ---- memory is short ---- */

/* An empty run leaves its bin, for a list linked by next. It stays a run until its block is given back. */
static void detach_if_empty(struct nvm_heap *heap, struct nvm_bin *bin, struct nvm_vheader *run, struct nvm_vheader **empty) {
    if ((run->activated | run->reserved) != 0 || !nvm_is_scanned(nvm_chunk_of(heap, run->first)))
        return;
    if (bin->current == run)
        bin->current = NULL;
    else
        take_from_list(bin, run);
    run->next = *empty;
    *empty = run;
}

static void detach_empty_runs(struct nvm_heap *heap, struct nvm_bin *bin, struct nvm_vheader **empty) {
    pthread_mutex_lock(&bin->lock);
    if (bin->current != NULL)
        detach_if_empty(heap, bin, bin->current, empty);
    for (struct nvm_vheader *run = bin->non_full, *next; run != NULL; run = next) {
        next = run->next;
        detach_if_empty(heap, bin, run, empty);
    }
    pthread_mutex_unlock(&bin->lock);
}

/* Turns all empty runs back into free ranges, those of an arena at once. Who needs one of its runs meanwhile, and finds no block for
 * a new one, waits for the shortage lock, which the caller has. */
void nvm_run_reclaim_empty(struct nvm_heap *heap) {
    for (uint32_t i = 0; i < NVM_ARENAS; i++) {
        struct nvm_vheader *empty = NULL;
        for (uint32_t size_class = 0; size_class < NVM_SMALL_CLASSES; size_class++)
            detach_empty_runs(heap, &heap->arenas[i].bins[size_class], &empty);
        nvm_range_give_back_all(heap, &heap->arenas[i], empty);
    }
}
