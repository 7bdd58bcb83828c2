/* SPDX-License-Identifier: Apache-2.0
 *
 * signals/signals.h - what a signal in a life means: that it dies, or that the processor lacks an instruction.
 */
#ifndef FAULTLINE_SIGNALS_H
#define FAULTLINE_SIGNALS_H

#include "files/files.h"
#include "protocol.h"
#include <stdio.h>

/* ---- deaths.c */
struct death_report {
    struct fl_death death;
    struct fl_death_call calls[FL_DEATH_CALLS];
    char paths[4 * PATH_MAX];
    uint32_t path_bytes;
};
void deaths_want(bool is_wanted); /* in the server: of the runs from now on */
bool deaths_are_wanted(void);
void deaths_describe(struct death_report *told);
/* The calls, a line each: call OFFSET MODULE, the innermost one first. */
void deaths_print(FILE *answer, const struct death_report *report);
void deaths_begin_life(void);
void deaths_note(int number, const siginfo_t *info, const void *context); /* for those who handle signals themselves */

/* ---- flushes.c */
/* From here on a flush instruction that the processor lacks is a clflush. */
void flushes_prepare(void);
/* Before a fork: what forked processes replaced is replaced here, so that none of those to come has to. */
void flushes_take_over(void);
/* Whether a clflush, clflushopt or clwb stands there. */
bool is_flush(const uint8_t *code);
/* What is to stand there instead of a clwb or clflushopt, up to its operand; its length. 0: there is neither. */
#define FL_FLUSH_BYTES 18u
size_t flush_replacement(const uint8_t *code, uint8_t replacement[FL_FLUSH_BYTES]);

#endif
