/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.h - a small Px86: every content a line may have after a power failure, and random images made of them.
 *
 * A line's versions are its contents after each store, oldest first; the floor is the oldest one that may still be on media.
 * Stores by fl_store8 make a version each. Other stores (content) are noticed at the next event, in one version, of which
 * any subset of 8-byte units may be there. One file, mapped once at a time; a part that is mapped for the first time is persisted as
 * it is.
 *
 * Tests see their allocator through it: built with -Irecorded before -I../include, so that recorded/persist.h is its persist.h.
 */
#ifndef FAULTLINE_TESTING_RECORDER_H
#define FAULTLINE_TESTING_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "random.h"

struct recorder;

enum recorder_image { IMAGE_PREFIX, IMAGE_FLOOR, IMAGE_RANDOM, IMAGE_KINDS };

/* Called after every event that changes what is possible (store, fence, position), with the recorder switched off. */
typedef void (*recorder_crash)(struct recorder *recorder, void *context);

struct recorder *recorder_new(recorder_crash crash, void *context);
void recorder_delete(struct recorder *recorder);
/* Everything is recorded here from now on; null: nothing is. Returns the recorder before. */
struct recorder *recorder_switch(struct recorder *recorder);
size_t recorder_bytes(const struct recorder *recorder); /* 0: nothing mapped yet */
void recorder_make_image(const struct recorder *recorder, enum recorder_image kind, uint64_t *random, char *image);
/* A crash position without an event: an operation begins or returns. */
void recorder_position(void);

#endif
