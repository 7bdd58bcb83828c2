/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stages of its recovery (stage.h) a target entered on crash images. The counters lie in shared memory, so that a
 * recovery that crashes, or whose process is gone for any other reason, has counted all the same.
 */
#include "base/target.h"
#include "stage.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    struct fl_stage *const *stages;
    size_t count;
    uint64_t *counters; /* null: nothing is counted */
} known;

void stages_find(struct fl_stage *const *(*list)(size_t *count)) {
    if (list != NULL)
        known.stages = list(&known.count);
}

void stages_map(void) {
    if (known.count == 0)
        return;
    known.counters = map_or_fail(known.count * sizeof *known.counters, MAP_SHARED, -1, "the counters of recovery stages");
    for (size_t i = 0; i < known.count; i++)
        known.stages[i]->entered = &known.counters[i];
}

void stages_pause(bool is_paused) {
    for (size_t i = 0; i < known.count; i++)
        known.stages[i]->entered = is_paused ? NULL : &known.counters[i];
}

void stages_stop(void) { stages_pause(true); }

/* The same stage may be listed several times: a function of a header is in every file that includes it. */
static uint64_t sum_of(const char *name) {
    uint64_t sum = 0;
    for (size_t i = 0; i < known.count; i++)
        if (strcmp(known.stages[i]->name, name) == 0)
            sum += __atomic_load_n(&known.counters[i], __ATOMIC_RELAXED);
    return sum;
}

static bool is_first_of_its_name(size_t stage) {
    for (size_t i = 0; i < stage; i++)
        if (strcmp(known.stages[i]->name, known.stages[stage]->name) == 0)
            return false;
    return true;
}

void *stages_list(uint32_t *bytes) {
    size_t room = 0;
    for (size_t i = 0; i < known.count; i++)
        room += sizeof(uint64_t) + strlen(known.stages[i]->name) + 1;
    char *list = allocate_or_fail(NULL, room + 1), *end = list;
    for (size_t i = 0; i < known.count; i++) {
        if (!is_first_of_its_name(i))
            continue;
        uint64_t sum = sum_of(known.stages[i]->name);
        end = (char *)memcpy(end, &sum, sizeof sum) + sizeof sum;
        end = stpcpy(end, known.stages[i]->name) + 1;
    }
    *bytes = (uint32_t)(end - list);
    return list;
}
