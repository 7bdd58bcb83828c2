/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.h - a small Px86: every content a line may have after a power failure, and random images made of them.
 *
 * A line's versions are its contents after each store, oldest first; the floor is the oldest one that may still be on media.
 * Stores by fl_store8 make a version each. Other stores (content) are noticed at the next event, in one version, of which
 * any subset of 8-byte units may be there.
 *
 * Files are told apart by their inodes, and numbered in the order in which they come. One that is mapped for the first time, or a
 * part of it, is persisted as it is; lines stay as dirty as they were when it is mapped again. Creating, punching and unlinking a
 * file is whole and durable when the test says that it has happened (recorder_add, recorder_punched, recorder_unlinked). A heap that
 * changes no names needs none of these.
 *
 * Tests see their allocator through it: built with -Irecorded before -I../../include, so that recorded/persist.h is its persist.h.
 */
#ifndef FAULTLINE_TESTING_RECORDER_H
#define FAULTLINE_TESTING_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#include "random.h"

#ifdef __cplusplus
extern "C" {
#endif

struct recorder;

enum recorder_image { IMAGE_PREFIX, IMAGE_FLOOR, IMAGE_RANDOM, IMAGE_KINDS };

/* Called after every event that changes what is possible (store, fence, position), with the recorder switched off. */
typedef void (*recorder_crash)(struct recorder *recorder, void *context);

struct recorder *recorder_new(recorder_crash crash, void *context);
void recorder_delete(struct recorder *recorder);
/* Everything is recorded here from now on; null: nothing is. Returns the recorder before. */
struct recorder *recorder_switch(struct recorder *recorder);
/* A crash position without an event: an operation begins or returns. */
void recorder_position(void);

/* All files, one behind the other in the order of their numbers: recorder_bytes() bytes, 0: nothing known yet. */
size_t recorder_bytes(const struct recorder *recorder);
void recorder_make_image(const struct recorder *recorder, enum recorder_image kind, uint64_t *random, char *image);
/* Of each file, by number, its bytes in the image and its name without folders; null: there are no more. */
const char *recorder_file(const struct recorder *recorder, size_t number, size_t *bytes);

/* Of the recorder that is switched on, if any. Each is a crash position before it and behind it only if the test says so. */
void recorder_add(const char *path); /* as it is now, persisted */
/* The name is without folders. The bytes are whole lines. */
void recorder_punched(const char *name, size_t offset, size_t bytes);
void recorder_unlinked(const char *name);

#ifdef __cplusplus
}
#endif
#endif
