/* SPDX-License-Identifier: Apache-2.0
 *
 * The lives of a probe, one after the other. The image itself is only ever looked at: life 0 sees it through copy-on-write
 * mappings, the later lives work on private copies: lives 1 and 2 on one, lives 3 and 4 on another, lives 5 and 6 on a third one, so
 * that lives 3 and 5 are a first recovery again. The deep probe opens the second and the third copy many times more.
 */
#include "probe/probe.h"
#include "files/files.h"
#include "loads/loads.h"
#include "undo/undo.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of a heap that is relocated: how far from the hint each life maps it. The lives that open the crash image itself do so where it was
 * not made, each other life where the one before it did not. No two of the places are congruent modulo 64 KiB, unless the allocator needs
 * that: then these are rounded up. */
#define NEAR 0x10000003000ull
#define FAR 0x20000005000ull
static const uint64_t MOVED[FL_LAST_LIFE + 1] = {NEAR, NEAR, 0, FAR, NEAR, FAR, 0};
#define HALF_OF_ADDRESSES (1ull << 46) /* from here on heaps are moved down: above 1 << 47 nothing can be mapped */

static uintptr_t address_of(const struct probe *probe, uint32_t life, enum life_kind kind) {
    uint64_t hint = probe->options.address_hint, moved = MOVED[life];
    if (kind == LIFE_TRACED) /* opens what the generation before it left, and is not where life 0 opens what it leaves */
        moved = probe->generation % 2 == 1 ? FAR : 0;
    if (probe->relocated_by == 0)
        return hint;
    moved = (moved + probe->relocated_by - 1) / probe->relocated_by * probe->relocated_by;
    return hint < HALF_OF_ADDRESSES ? hint + moved : hint - moved;
}

struct run {
    const struct probed_heap *probed;
    uint32_t life;
    enum life_kind kind;
    enum vfs_mode mode;
};

static void live(void *context) {
    const struct run *run = context;
    const struct probed_heap *probed = run->probed;
    vfs_on_failure((void (*)(const char *))report_broken);
    vfs_set(inprocess_is_running() ? VFS_IN_PROCESS : run->mode, probed->base, probed->copy, probed->tree);
    struct probe probe = probed->probe;
    if (probe.adapter == NULL)
        probe.adapter = adapter_load(probe.adapter_file);
    probe.options.address_hint = address_of(&probe, run->life, run->kind);
    probe_life(&probe, run->kind);
}

/* A copy that stays behind would be the next run's: that ends the runner. */
static void remove_copy(const struct probed_heap *probed) {
    if (inprocess_is_running()) {
        undo_apply();
        return;
    }
    int error = tree_remove(probed->copy);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be removed: %s", probed->copy, strerror(error));
}

static bool copy_image(const struct probed_heap *probed) {
    int error = 0;
    if (inprocess_is_running())
        undo_apply(); /* the image itself serves as the copy */
    else
        error = tree_copy(probed->tree, probed->base, probed->copy);
    loads_copy_is_fresh();
    if (error == 0)
        return true;
    char text[512];
    snprintf(text, sizeof text, "%s: the heap cannot be copied for the later lives: %s", probed->copy, strerror(error));
    report_break(text);
    return false;
}

/* One life, in its own process. True: go on with the next. */
static bool run_life(const struct probed_heap *probed, uint32_t life, enum life_kind kind, enum vfs_mode mode) {
    struct run run = {probed, life, kind, mode};
    uint32_t signal = 0;
    report_life(life);
    loads_life(life);
    enum fl_outcome outcome = FL_OUTCOME_DONE;
    if (inprocess_is_running())
        inprocess_live(live, &run);
    else
        outcome = child_run(live, &run, &signal);
    report_finish_life(outcome, signal);
    return report_outcome() == FL_OUTCOME_DONE && report_result()->open_status == FL_OK;
}

/* Of the deep probe: reported as the life that comes next, if one of them fails. */
static bool open_often(const struct probed_heap *probed, uint32_t life) {
    for (uint32_t i = 0; i < FL_DEEP_OPENS; i++)
        if (!run_life(probed, life, LIFE_OPENED, VFS_REDIRECT))
            return false;
    return true;
}

bool run_lives(const struct probed_heap *probed, uint32_t first, uint32_t last) {
    static const enum life_kind KINDS[] = {
        [1] = LIFE_POWER, [2] = LIFE_SECOND, [3] = LIFE_USE, [4] = LIFE_LAST, [5] = LIFE_EMPTIED, [6] = LIFE_EMPTIED_LAST};
    _Static_assert(sizeof KINDS / sizeof KINDS[0] == FL_LAST_LIFE + 1, "each life has a kind");
    for (uint32_t life = first; life <= last; life++) {
        bool is_after_many = probed->probe.is_deep && (KINDS[life] == LIFE_LAST || KINDS[life] == LIFE_EMPTIED);
        if (is_after_many && !open_often(probed, life))
            return false;
        child_expect_long(probed->probe.is_deep && KINDS[life] == LIFE_LAST);
        bool goes_on = run_life(probed, life, KINDS[life], VFS_REDIRECT);
        child_expect_long(false);
        if (!goes_on)
            return false;
    }
    return true;
}

/* There is one copy at a time: serve made sure of room for no more. */
static bool run_lives_afresh(const struct probed_heap *probed, uint32_t first, uint32_t last) {
    bool goes_on = copy_image(probed) && run_lives(probed, first, last);
    remove_copy(probed);
    return goes_on;
}

static void recreate(const struct probed_heap *probed) {
    if (copy_image(probed))
        run_life(probed, 1, LIFE_RECREATE, VFS_REDIRECT);
    remove_copy(probed);
}

void run_probe(const struct probed_heap *probed, enum fl_probe kind) {
    report_begin();
    bool is_traced = kind == FL_PROBE_GENERATION || kind == FL_PROBE_RECOVERY;
    enum life_kind first = is_traced ? LIFE_TRACED : kind == FL_PROBE_FIRST ? LIFE_ONLY : LIFE_FIRST;
    bool goes_on = run_life(probed, 0, first, VFS_ISOLATE);
    bool has_no_heap = report_outcome() == FL_OUTCOME_DONE && report_result()->open_status == FL_NOT_A_HEAP;
    if (!inprocess_is_running() || report_outcome() != FL_OUTCOME_DONE)
        remove_copy(probed);
    bool has_later = kind == FL_PROBE_FULL || kind == FL_PROBE_DEEP;
    if (!has_later || !(goes_on || has_no_heap) || tail_is_known())
        return;
    if (has_no_heap)
        recreate(probed);
    else if (run_lives_afresh(probed, 1, 2) && run_lives_afresh(probed, 3, 4))
        run_lives_afresh(probed, 5, 6);
}
