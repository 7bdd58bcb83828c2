/* SPDX-License-Identifier: Apache-2.0
 *
 * flush.h - flush and fence of the allocator's own metadata.
 */
#ifndef MAKALU_FLUSH_H
#define MAKALU_FLUSH_H

#include "persist.h"

static inline void mak_flush(const void *address, size_t bytes) { fl_flush(address, bytes); }

static inline void mak_fence(void) { fl_fence(); }

static inline void mak_persist(const void *address, size_t bytes) {
    mak_flush(address, bytes);
    mak_fence();
}

#endif
