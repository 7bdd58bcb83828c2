/* SPDX-License-Identifier: Apache-2.0
 *
 * flush.c - flush and fence of the allocator's own metadata.
 */
#include "types.h"

void mak_flush(const void *address, size_t bytes) { fl_flush(address, bytes); }

void mak_fence(void) { fl_fence(); }

void mak_persist(const void *address, size_t bytes) {
    mak_flush(address, bytes);
    mak_fence();
}
