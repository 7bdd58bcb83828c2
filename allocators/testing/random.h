/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h - seeded random numbers for allocators' tests: the same on every machine.
 */
#ifndef FAULTLINE_TESTING_RANDOM_H
#define FAULTLINE_TESTING_RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

#endif
