/* SPDX-License-Identifier: Apache-2.0
 *
 * object.c - allocation and deallocation of objects (§6, §7): freelists, sweeping, truncation.
 *
 * The rule for mark bits: an object's bit is clear exactly if a sweep may take it. Allocated objects and those in freelists
 * have it set. So a failure loses freelists, and the garbage collection that follows finds their objects unreachable.
 */
#include "types.h"

#include <stdlib.h>
#include <string.h>

static bool is_small(uint32_t class) { return class <= MAK_SMALL_CLASSES; }

int mak_objects_init(void) {
    mak.empty_blocks = 0;
    for (uint32_t class = 1; class <= MAK_CLASSES; class ++) {
        struct mak_class *c = &mak.classes[class];
        pthread_mutex_init(&c->lock, NULL);
        c->reclaim = 0;
        c->list = (struct mak_list){0, NULL};
        if (is_small(class))
            continue;
        c->list.objects = calloc(mak_list_capacity(class), sizeof *c->list.objects);
        if (c->list.objects == NULL)
            return mak_fail(MAK_ERROR, "out of volatile memory for freelists");
    }
    return MAK_OK;
}

void mak_objects_destroy(void) {
    for (uint32_t class = 1; class <= MAK_CLASSES; class ++) {
        free(mak.classes[class].list.objects);
        mak.classes[class].list = (struct mak_list){0, NULL};
        pthread_mutex_destroy(&mak.classes[class].lock);
    }
}

/* ---- reclaim lists, under the class lock ---- */

static uint32_t class_of_header(const struct mak_header *header) { return mak_class_of(header->hb_sz); }

void mak_reclaim_list(struct mak_header *header) {
    struct mak_class *c = &mak.classes[class_of_header(header)];
    uint32_t block = mak_block_of(header->hb_block);
    mak_assert(mak.links[block].list == MAK_LISTED_NOWHERE);
    mak.links[block] = (struct mak_link){c->reclaim, 0, MAK_LISTED_RECLAIM};
    if (c->reclaim != 0)
        mak.links[c->reclaim].previous = block;
    c->reclaim = block;
}

static void reclaim_unlist(struct mak_class *c, uint32_t block) {
    struct mak_link *link = &mak.links[block];
    mak_assert(link->list == MAK_LISTED_RECLAIM);
    if (link->next != 0)
        mak.links[link->next].previous = link->previous;
    if (link->previous != 0)
        mak.links[link->previous].next = link->next;
    else
        c->reclaim = link->next;
    *link = (struct mak_link){0, 0, MAK_LISTED_NOWHERE};
}

/* §7.1: "a sufficient number of objects have become free". */
static bool is_worth_sweeping(const struct mak_header *header) {
    uint64_t count = mak_object_count(header->hb_sz), free_objects = count - header->hb_n_mark_bits;
    return free_objects >= (count + 7) / 8;
}

/* ---- giving objects back to their blocks, §6.1, §7.1 ---- */

static void clear_mark(struct mak_header *header, uint32_t index) {
    uint64_t *word = &header->hb_mark_bits[index / 64], bit = (uint64_t)1 << index % 64;
    mak_assert((*word & bit) != 0);
    fl_store8(word, *word & ~bit);
    fl_store8(&header->hb_n_mark_bits, header->hb_n_mark_bits - 1);
}

static uint32_t empty_blocks(void) { return __atomic_load_n(&mak.empty_blocks, __ATOMIC_RELAXED); }
static void count_empty(int change) { __atomic_fetch_add(&mak.empty_blocks, (uint32_t)change, __ATOMIC_RELAXED); }

/* After mark bits of the block were cleared. */
static void settle(struct mak_class *c, struct mak_header *header) {
    uint32_t block = mak_block_of(header->hb_block);
    bool is_listed = mak.links[block].list == MAK_LISTED_RECLAIM, is_empty = header->hb_n_mark_bits == 0;
    mak_visible_later(&header->hb_n_mark_bits);
    if (is_empty && empty_blocks() >= MAK_EMPTY_BLOCKS) { /* §7.2 */
        if (is_listed)
            reclaim_unlist(c, block);
        mak_blocks_free(header);
        return;
    }
    if (is_empty)
        count_empty(1);
    if (!is_listed && is_worth_sweeping(header))
        mak_reclaim_list(header);
}

/* Objects of one block often follow each other: its header is dealt with once for all of them. */
static void give_back_locked(uint32_t class, void **objects, uint32_t count) {
    struct mak_class *c = &mak.classes[class];
    struct mak_header *header, *before = NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index;
        bool is_there = mak_locate(objects[i], &header, &index);
        mak_assert(is_there);
        (void)is_there;
        if (before != NULL && header != before)
            settle(c, before);
        clear_mark(header, index);
        before = header;
    }
    if (before != NULL)
        settle(c, before);
}

/* Objects of one class, all with their mark bits set. */
void mak_give_back(uint32_t class, void **objects, uint32_t count) {
    if (count == 0)
        return;
    pthread_mutex_lock(&mak.classes[class].lock);
    give_back_locked(class, objects, count);
    pthread_mutex_unlock(&mak.classes[class].lock);
}

void mak_free_empty_blocks(uint32_t class) {
    struct mak_class *c = &mak.classes[class];
    pthread_mutex_lock(&c->lock);
    for (uint32_t block = c->reclaim, next; block != 0; block = next) {
        struct mak_header *header = mak_map_find(block);
        next = mak.links[block].next;
        if (header->hb_n_mark_bits != 0)
            continue;
        reclaim_unlist(c, block);
        count_empty(-1);
        mak_blocks_free(header);
    }
    pthread_mutex_unlock(&c->lock);
}

/* ---- refilling, §6.1; under the class lock ---- */

/* Takes the block's objects with clear mark bits; the one at the lowest address comes out first. */
static void sweep(struct mak_header *header, struct mak_list *list) {
    uint32_t count = mak_object_count(header->hb_sz);
    for (uint32_t index = count; index-- > 0;)
        if ((header->hb_mark_bits[index / 64] >> index % 64 & 1) == 0)
            list->objects[list->count++] = (void *)(uintptr_t)(header->hb_block + index * header->hb_sz);
    for (uint32_t word = 0; word < MAK_MARK_WORDS; word++) {
        uint32_t bits = count > word * 64 ? (count - word * 64 < 64 ? count - word * 64 : 64) : 0;
        fl_store8(&header->hb_mark_bits[word], bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1);
    }
    fl_store8(&header->hb_n_mark_bits, count);
    mak_visible_later(&header->hb_n_mark_bits);
}

static bool refill(uint32_t class, struct mak_list *list) {
    struct mak_class *c = &mak.classes[class];
    if (c->reclaim != 0) {
        uint32_t block = c->reclaim;
        struct mak_header *header = mak_map_find(block);
        reclaim_unlist(c, block);
        if (header->hb_n_mark_bits == 0)
            count_empty(-1);
        sweep(header, list);
        mak_assert(list->count != 0);
        return true;
    }
    struct mak_header *header = mak_blocks_allocate(1, mak_class_bytes(class));
    if (header == NULL)
        return false;
    for (uint32_t index = mak_object_count(header->hb_sz); index-- > 0;)
        list->objects[list->count++] = (void *)(uintptr_t)(header->hb_block + index * header->hb_sz);
    return true;
}

/* ---- the last resort before out-of-memory ---- */

/* Blocks with too few free objects to be worth sweeping wait outside the reclaim lists; now every object counts. */
static void list_all_blocks(uint32_t class) {
    pthread_mutex_lock(&mak.classes[class].lock);
    pthread_mutex_lock(&mak.global);
    for (uint32_t block = mak.first_block; block < mak_end_block(); block = mak_map_next(block)) {
        struct mak_header *header = mak_map_find(block);
        if (header != NULL && header->hb_flag == MAK_IN_USE && header->hb_sz == mak_class_bytes(class) &&
            header->hb_n_mark_bits < mak_object_count(header->hb_sz) && mak.links[block].list == MAK_LISTED_NOWHERE)
            mak_reclaim_list(header);
    }
    pthread_mutex_unlock(&mak.global);
    pthread_mutex_unlock(&mak.classes[class].lock);
}

/* Empties the calling thread's freelists and the medium ones: blocks become empty, and chunks large again. */
static void give_back_all(void) {
    mak_thread_give_back(mak_thread());
    for (uint32_t class = MAK_SMALL_CLASSES + 1; class <= MAK_CLASSES; class ++) {
        struct mak_class *c = &mak.classes[class];
        pthread_mutex_lock(&c->lock);
        give_back_locked(class, c->list.objects, c->list.count);
        c->list.count = 0;
        pthread_mutex_unlock(&c->lock);
    }
    for (uint32_t class = 1; class <= MAK_CLASSES; class ++)
        mak_free_empty_blocks(class);
}

/* ---- allocation ---- */

static void *allocate_small(uint32_t class) {
    struct mak_thread *thread = mak_thread();
    if (thread == NULL)
        return NULL;
    struct mak_list *list = &thread->lists[class];
    if (list->count == 0) {
        pthread_mutex_lock(&mak.classes[class].lock);
        bool is_filled = refill(class, list);
        pthread_mutex_unlock(&mak.classes[class].lock);
        if (!is_filled)
            return NULL;
    }
    return list->objects[--list->count];
}

static void *allocate_medium(uint32_t class) {
    struct mak_class *c = &mak.classes[class];
    pthread_mutex_lock(&c->lock);
    void *object = c->list.count != 0 || refill(class, &c->list) ? c->list.objects[--c->list.count] : NULL;
    pthread_mutex_unlock(&c->lock);
    return object;
}

static void *allocate_large(size_t bytes) {
    if (bytes > mak.limit_bytes)
        return NULL;
    uint64_t blocks = (bytes + MAK_BLOCK_BYTES - 1) / MAK_BLOCK_BYTES;
    struct mak_header *header = mak_blocks_allocate((uint32_t)blocks, blocks * MAK_BLOCK_BYTES);
    return header == NULL ? NULL : (void *)(uintptr_t)header->hb_block;
}

static void *allocate(size_t bytes) {
    if (bytes <= MAK_SMALL_MAX)
        return allocate_small(mak_class_of(bytes));
    return bytes <= MAK_MEDIUM_MAX ? allocate_medium(mak_class_of(bytes)) : allocate_large(bytes);
}

static void *allocate_at_last(size_t bytes) {
    give_back_all();
    if (bytes <= MAK_MEDIUM_MAX)
        list_all_blocks(mak_class_of(bytes));
    void *object = allocate(bytes);
    if (object == NULL)
        mak_fail(MAK_OUT_OF_MEMORY, "%zu bytes: the region is full: %llu bytes long, at most %llu", bytes,
                 (unsigned long long)mak.file_bytes, (unsigned long long)mak.limit_bytes);
    return object;
}

static bool is_online(void) {
    if (mak.phase == MAK_PHASE_ONLINE)
        return true;
    mak_fail(MAK_INVALID, mak.phase == MAK_PHASE_CLOSED ? "no region is open: call MAK_start or MAK_restart first"
                                                        : "the region is offline: call MAK_restart first");
    return false;
}

void *MAK_malloc(size_t bytes) {
    if (!is_online() || mak_thread() == NULL)
        return NULL;
    bytes += bytes == 0;
    void *object = allocate(bytes);
    return object != NULL ? object : allocate_at_last(bytes);
}

void *MAK_calloc(size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        mak_fail(MAK_OUT_OF_MEMORY, "%zu objects of %zu bytes are more than an address can tell", count, bytes);
        return NULL;
    }
    void *object = MAK_malloc(total);
    return object == NULL ? NULL : memset(object, 0, total);
}

/* ---- deallocation, §7 ---- */

/* Which object begins at this address. */
bool mak_locate(const void *object, struct mak_header **header, uint32_t *index) {
    uint64_t address = (uint64_t)(uintptr_t)object;
    if (address < mak_address_of(mak.first_block) || address >= mak_address_of(mak_end_block()))
        return false;
    *header = mak_map_find(mak_block_of(address));
    if (*header == NULL || (*header)->hb_flag != MAK_IN_USE)
        return false;
    uint64_t offset = address - (*header)->hb_block;
    if ((*header)->hb_sz > MAK_MEDIUM_MAX)
        return *index = 0, offset == 0;
    uint32_t bytes = (uint32_t)(*header)->hb_sz; /* 32 bits divide faster, and this is the fast path of free */
    *index = (uint32_t)offset / bytes;
    return (uint32_t)offset % bytes == 0 && *index < MAK_BLOCK_BYTES / bytes;
}

/* §7.1: the top half stays for the allocations that come next. */
static void truncate_list(uint32_t class, struct mak_list *list) {
    uint32_t half = list->count / 2;
    if (is_small(class))
        mak_give_back(class, list->objects, half);
    else
        give_back_locked(class, list->objects, half);
    list->count -= half;
    memmove(list->objects, list->objects + half, list->count * sizeof *list->objects);
}

static void push(uint32_t class, struct mak_list *list, void *object) {
    list->objects[list->count++] = object;
    if (list->count == mak_list_capacity(class))
        truncate_list(class, list);
}

static void free_object(void *object) {
    struct mak_header *header;
    uint32_t index;
    if (!is_online() || mak_thread() == NULL)
        return;
    if (!mak_locate(object, &header, &index)) {
        mak_fail(MAK_INVALID, "%p is not the start of an object of this region", object);
        return;
    }
    if (header->hb_sz > MAK_MEDIUM_MAX) {
        mak_blocks_free(header);
        return;
    }
    uint32_t class = class_of_header(header);
    if (is_small(class)) {
        push(class, &mak_thread()->lists[class], object);
        return;
    }
    pthread_mutex_lock(&mak.classes[class].lock);
    push(class, &mak.classes[class].list, object);
    pthread_mutex_unlock(&mak.classes[class].lock);
}

void MAK_safe_free(void *object) {
    if (object != NULL)
        free_object(object);
}

void MAK_free(void *object) {
    if (object == NULL)
        return;
    if (mak.free_callback != NULL)
        mak.free_callback(object);
    else
        free_object(object);
}

void MAK_set_free_cb(void (*callback)(void *object)) { mak.free_callback = callback; }

void *MAK_realloc(void *object, size_t bytes) {
    if (object == NULL)
        return MAK_malloc(bytes);
    uint64_t usable = MAK_usable_bytes(object);
    if (usable == 0) {
        mak_fail(MAK_INVALID, "%p is not the start of an object of this region", object);
        return NULL;
    }
    if (bytes <= usable && bytes >= usable / 2)
        return object;
    void *moved = MAK_malloc(bytes);
    if (moved == NULL)
        return NULL;
    memcpy(moved, object, bytes < usable ? bytes : usable);
    MAK_free(object);
    return moved;
}

uint64_t MAK_usable_bytes(const void *object) {
    struct mak_header *header;
    uint32_t index;
    return mak.phase != MAK_PHASE_CLOSED && mak_locate(object, &header, &index) ? header->hb_sz : 0;
}

int MAK_is_object(const void *object) {
    struct mak_header *header;
    uint32_t index;
    return mak.phase != MAK_PHASE_CLOSED && mak_locate(object, &header, &index) &&
           (header->hb_mark_bits[index / 64] >> index % 64 & 1) != 0;
}

/* ---- the first change of a life ---- */

/* §11.1, §11.2: until here a failure would have found the region as it was closed. */
void mak_go_in_use(void) {
    pthread_mutex_lock(&mak.global);
    if (!mak.is_in_use) {
#if !defined(MUTANT_USE_NOT_MARKED)
        fl_store8(&mak.media->state, MAK_STATE_IN_USE);
#endif
#if !defined(MUTANT_USE_NOT_FLUSHED)
        mak_persist(&mak.media->state, 8);
#endif
        mak.is_in_use = true;
    }
    pthread_mutex_unlock(&mak.global);
}

int MAK_go_online(void) {
    if (!is_online())
        return MAK_INVALID;
    mak_go_in_use();
    return MAK_OK;
}
