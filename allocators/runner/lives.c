/* SPDX-License-Identifier: Apache-2.0
 *
 * The lives of a probe, one after the other. The image itself is only ever looked at: life 0 sees it through copy-on-write
 * mappings, the later lives work on one private copy.
 */
#include "runner.h"
#include "planted.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct run {
    const struct place *place;
    enum life_kind kind;
    enum vfs_mode mode;
};

static void live(void *context) {
    const struct run *run = context;
    const struct place *place = run->place;
    vfs_on_failure((void (*)(const char *))report_broken);
    vfs_set(run->mode, place->base, place->copy, place->tree);
    probe_life(&place->probe, run->kind);
}

/* A copy that stays behind would be the next run's: that ends the runner. */
static void remove_copy(const struct place *place) {
    if (planted("reuse-copy"))
        return;
    int error = tree_remove(place->copy);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be removed: %s", place->copy, strerror(error));
}

static bool copy_image(const struct place *place) {
    if (planted("reuse-copy") && access(place->copy, F_OK) == 0)
        return true;
    int error = tree_copy(place->tree, place->base, place->copy);
    if (error == 0)
        return true;
    char text[512];
    snprintf(text, sizeof text, "%s: the heap cannot be copied for the later lives: %s", place->copy, strerror(error));
    report_break(text);
    return false;
}

bool run_life(const struct place *place, uint32_t life, enum life_kind kind, enum vfs_mode mode) {
    struct run run = {place, kind, mode};
    uint32_t signal;
    report_life(life);
    enum fl_outcome outcome = child_run(live, &run, &signal);
    report_finish_life(outcome, signal);
    return report_outcome() == FL_OUTCOME_DONE && report_result()->open_status == FL_OK;
}

void run_later_lives(const struct place *place, uint32_t first_life) {
    static const enum life_kind KINDS[] = {[1] = LIFE_POWER, [2] = LIFE_STAGES, [3] = LIFE_LAST};
    for (uint32_t life = first_life; life <= 3; life++)
        if (!run_life(place, life, KINDS[life], VFS_REDIRECT))
            return;
}

void run_probe(const struct place *place, enum fl_probe kind) {
    report_begin();
    bool goes_on = run_life(place, 0, LIFE_FIRST, planted("reuse-dirty-image") ? VFS_PASS : VFS_ISOLATE);
    bool has_no_heap = report_outcome() == FL_OUTCOME_DONE && report_result()->open_status == FL_NOT_A_HEAP;
    if (report_result()->made_copy || report_outcome() != FL_OUTCOME_DONE)
        remove_copy(place);
    if (kind != FL_PROBE_FULL || !(goes_on || has_no_heap))
        return;
    if (copy_image(place)) {
        if (goes_on)
            run_later_lives(place, 1);
        else
            run_life(place, 1, LIFE_RECREATE, VFS_REDIRECT);
    }
    remove_copy(place);
}
