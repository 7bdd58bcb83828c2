/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.h - a small Px86: every content a line may have after a power failure, and random images made of them.
 *
 * A line's versions are its contents after each store, oldest first; the floor is the oldest one that may still be on media.
 * Stores by fl_store8 make a version each. Other stores (content) are noticed at the next event, in one version, of which
 * any subset of 8-byte units may be there. A file that grows is mapped piece by piece, from its start on.
 */
#ifndef MAK_TESTS_RECORDER_H
#define MAK_TESTS_RECORDER_H

#include <stddef.h>
#include <stdint.h>

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

static inline uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

#endif
