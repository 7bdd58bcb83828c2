/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.h - names the stages of a recovery, so that a campaign can say which of them its crash states entered.
 *
 *     FL_STAGE("ring: pending free of a run, two links");
 *
 * counts, at no cost worth naming, that execution came here. Every stage of a library is known from its start, entered or not:
 * a stage that no crash state enters is a hole in the workload, and is reported. Put one wherever recovery decides: each
 * kind of log entry it finds, each half-done step it completes or takes back, and the way it takes when nothing was pending.
 * The text is the stage's name in reports: unique, stable, words of the design. A stage reached on ordinary paths too counts
 * only what recovery of crash images enters (the runner counts there).
 *
 * The counters lie where the runner puts them (memory that outlives a recovery that crashes); without a runner nothing is
 * counted. Names are a linker section of the library, so this works in C and C++, in any number of files, without a table.
 */
#ifndef FAULTLINE_STAGE_H
#define FAULTLINE_STAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fl_stage {
    const char *name;
    uint64_t *entered; /* null: not counted */
};

extern struct fl_stage *const __start_fl_stages[] __attribute__((weak, visibility("hidden")));
extern struct fl_stage *const __stop_fl_stages[] __attribute__((weak, visibility("hidden")));

#ifndef __cplusplus
#define FL_STAGE(text)                                                                                                             \
    do {                                                                                                                           \
        static struct fl_stage stage = {text, NULL};                                                                               \
        static struct fl_stage *const listed __attribute__((section("fl_stages"), used)) = &stage;                                 \
        (void)listed;                                                                                                              \
        if (stage.entered != NULL)                                                                                                 \
            __atomic_fetch_add(stage.entered, 1, __ATOMIC_RELAXED);                                                                \
    } while (0)
#else
/* A variable of an inline, member or template function lies in a group of its own, which GCC does not let share a section with
 * others. The assembler does: there the stage is made, once a copy of the code. Stages of one name are counted as one. */
#define FL_STAGE(text)                                                                                                             \
    do {                                                                                                                           \
        struct fl_stage *stage;                                                                                                    \
        __asm__ volatile(".pushsection .data.fl_stage, \"aw\"\n"                                                                   \
                         ".balign 8\n"                                                                                             \
                         "771: .quad %c1, 0\n"                                                                                     \
                         ".popsection\n"                                                                                           \
                         ".pushsection fl_stages, \"aw\"\n"                                                                        \
                         ".balign 8\n"                                                                                             \
                         ".quad 771b\n"                                                                                            \
                         ".popsection\n"                                                                                           \
                         "lea 771b(%%rip), %0"                                                                                     \
                         : "=r"(stage)                                                                                             \
                         : "i"(text));                                                                                             \
        if (stage->entered != NULL)                                                                                                \
            __atomic_fetch_add(stage->entered, 1, __ATOMIC_RELAXED);                                                               \
    } while (0)
#endif

/* All stages of the library, in no particular order. Exported by every library whose sources include this file. */
#define FL_STAGES_SYMBOL "faultline_stages"
__attribute__((weak, visibility("default"))) struct fl_stage *const *faultline_stages(size_t *count);
__attribute__((weak, visibility("default"))) struct fl_stage *const *faultline_stages(size_t *count) {
    *count = __start_fl_stages == NULL ? 0 : (size_t)(__stop_fl_stages - __start_fl_stages);
    return __start_fl_stages;
}

#ifdef __cplusplus
}
#endif
#endif
