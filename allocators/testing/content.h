/* SPDX-License-Identifier: Apache-2.0
 *
 * content.h - what allocators' tests write into objects, and find there again.
 */
#ifndef FAULTLINE_TESTING_CONTENT_H
#define FAULTLINE_TESTING_CONTENT_H

#include "random.h"

#include <stdbool.h>

static inline void fill(void *object, uint64_t seed, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        ((uint8_t *)object)[i] = (uint8_t)next_random(&seed);
}

static inline bool is_filled(const void *object, uint64_t seed, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        if (((const uint8_t *)object)[i] != (uint8_t)next_random(&seed))
            return false;
    return true;
}

#endif
