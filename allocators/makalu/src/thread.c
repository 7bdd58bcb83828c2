/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.c - each thread's small-object freelists (§5.7). They come with a thread's first call in a life of the region, which
 * also is what marks the region as being in use, and go with the thread or at close.
 */
#include "types.h"

#include <stdlib.h>

/* What close frees is not looked at: the life tells. */
static _Thread_local struct {
    struct mak_thread *thread;
    uint64_t life;
} self;

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void on_thread_end(void *value) {
    (void)value;
    MAK_thread_exit();
}

static void make_key(void) { pthread_key_create(&key, on_thread_end); }

/* One piece of memory: the thread and room for all its lists. */
static struct mak_thread *new_thread(void) {
    size_t objects = 0;
    for (uint32_t class = 1; class <= MAK_SMALL_CLASSES; class ++)
        objects += mak_list_capacity(class);
    struct mak_thread *thread = malloc(sizeof *thread + objects * sizeof(void *));
    if (thread == NULL)
        return mak_fail(MAK_ERROR, "out of volatile memory for a thread's freelists"), NULL;
    void **room = (void **)(thread + 1);
    for (uint32_t class = 1; class <= MAK_SMALL_CLASSES; class ++) {
        thread->lists[class] = (struct mak_list){0, room};
        room += mak_list_capacity(class);
    }
    return thread;
}

static struct mak_thread *attach(void) {
    struct mak_thread *thread = new_thread();
    if (thread == NULL)
        return NULL;
    pthread_once(&key_once, make_key);
    pthread_setspecific(key, thread); /* not null: on_thread_end is called */
    pthread_mutex_lock(&mak.threads_lock);
    thread->previous = NULL;
    thread->next = mak.threads;
    if (mak.threads != NULL)
        mak.threads->previous = thread;
    mak.threads = thread;
    pthread_mutex_unlock(&mak.threads_lock);
    self.thread = thread;
    self.life = mak.life;
    mak_go_in_use();
    return thread;
}

/* The calling thread's freelists; null: out of volatile memory. */
struct mak_thread *mak_thread(void) { return self.thread != NULL && self.life == mak.life ? self.thread : attach(); }

/* §6.1, "a gracefully terminating thread gives each remaining object back to the block". */
void mak_thread_give_back(struct mak_thread *thread) {
    for (uint32_t class = 1; class <= MAK_SMALL_CLASSES; class ++) {
        mak_give_back(class, thread->lists[class].objects, thread->lists[class].count);
        thread->lists[class].count = 0;
    }
}

void MAK_thread_exit(void) {
    struct mak_thread *thread = self.thread;
    self.thread = NULL;
    if (thread == NULL || self.life != mak.life || mak.phase != MAK_PHASE_ONLINE)
        return;
    mak_thread_give_back(thread);
    pthread_mutex_lock(&mak.threads_lock);
    if (thread->next != NULL)
        thread->next->previous = thread->previous;
    if (thread->previous != NULL)
        thread->previous->next = thread->next;
    else
        mak.threads = thread->next;
    pthread_mutex_unlock(&mak.threads_lock);
    free(thread);
}

/* At close, which is the only call inside: all threads' freelists, and those of medium classes. */
void mak_threads_give_back(void) {
    while (mak.threads != NULL) {
        struct mak_thread *thread = mak.threads;
        mak.threads = thread->next;
        mak_thread_give_back(thread);
        free(thread);
    }
    for (uint32_t class = MAK_SMALL_CLASSES + 1; class <= MAK_CLASSES; class ++) {
        struct mak_list *list = &mak.classes[class].list;
        mak_give_back(class, list->objects, list->count);
        list->count = 0;
    }
    for (uint32_t class = 1; class <= MAK_CLASSES; class ++)
        mak_free_empty_blocks(class);
}
