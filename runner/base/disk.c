/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk that becomes full while a workload runs: the calls of the target that take space are counted, and refused from some on.
 */
#include "base/base.h"
#include <errno.h>

static struct {
    uint64_t left; /* growths */
    bool is_limited;
} disk;
static _Thread_local bool is_counting; /* the target runs in this thread, and what it does counts */

void disk_has(uint64_t growths) {
    disk.is_limited = growths != ENDLESS_SPACE;
    disk.left = growths;
}

void disk_counts(bool is_counted) { is_counting = is_counted; }

bool disk_is_watched(void) { return disk.is_limited && is_counting; }

bool disk_refuses(void) {
    if (!disk_is_watched())
        return false;
    uint64_t left = __atomic_load_n(&disk.left, __ATOMIC_RELAXED);
    while (left > 0)
        if (__atomic_compare_exchange_n(&disk.left, &left, left - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return false;
    errno = ENOSPC;
    return true;
}
