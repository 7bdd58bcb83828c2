/* SPDX-License-Identifier: Apache-2.0
 *
 * The runner's own conservative mark: the reference that an allocator's collector is judged by. Sequential, and as plain as it can
 * be: every aligned word of every reached heap block is looked at once, whole extent, padding included.
 */
#include "probe/probe.h"
#include <stdlib.h>
#include <string.h>

static size_t first_marked(size_t *waiting, const uint8_t *is_marked, size_t block_count) {
    size_t count = 0;
    for (size_t block = 0; block < block_count; block++)
        if (is_marked[block])
            waiting[count++] = block;
    return count;
}

void mark_conservatively(const struct marking *marking, uint8_t *is_marked) {
    size_t *waiting = malloc((marking->block_count + 1) * sizeof *waiting); /* each block once */
    if (waiting == NULL)
        report_broken("no memory for the conservative mark");
    size_t count = first_marked(waiting, is_marked, marking->block_count);
    while (count > 0) {
        uint64_t bytes;
        const uint8_t *content = marking->content(marking->context, waiting[--count], &bytes);
        for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, content + at, sizeof word);
            size_t target = marking->target(marking->context, word);
            if (target == MARK_NOTHING || is_marked[target])
                continue;
            is_marked[target] = 1;
            waiting[count++] = target;
        }
    }
    free(waiting);
}
