/* SPDX-License-Identifier: Apache-2.0
 *
 * inprocess/inprocess.h - the in-process engine: many lives in one process, the worker.
 */
#ifndef FAULTLINE_INPROCESS_H
#define FAULTLINE_INPROCESS_H

#include "base/in_process.h"
#include "protocol.h"
#include "probe/probe.h"

/* ---- inprocess.c */
/* For the server. */
void inprocess_map(int (*descriptor)(uint32_t file)); /* once; descriptor: of a file of the image */
/* Whether runs may still be in-process. */
bool inprocess_is_trusted(void);
bool inprocess_is_first(void); /* one run was begun so far */
/* Why the worker gave the turn back. */
enum inprocess_turn {
    TURN_COMMAND, /* a command that is not the worker's */
    TURN_END, /* of the input */
    TURN_ISOLATE, /* that run is to be done in the isolated engine */
    TURN_COMPARE, /* it was done; and is to be done there, too */
};
/* The worker has the turn, with this command; *command: the one that it gave back, not obeyed or not answered. work: of the worker,
 * in which it obeys commands; it calls inprocess_give_back. */
enum inprocess_turn inprocess_give_turn(struct fl_command *command, void (*work)(struct fl_command *command));
/* The worker's files and image are no longer those of the server. */
void inprocess_end_worker(void);
pid_t inprocess_worker(void); /* 0: there is none */
/* In the worker; returns with the next command when it has the turn again. */
void inprocess_give_back(enum inprocess_turn why, struct fl_command *command);
/* In the worker: runs the probe, takes back what it stored. False: the run was given back and is answered. */
bool inprocess_run(const struct probed_heap *probed, struct fl_command *command);
/* Of a run to be compared: remembers its report and list of loads; then in what those of the isolated run differ, null: in nothing. */
void inprocess_remember(bool is_recorded);
const char *inprocess_difference(bool is_recorded);
/* Then: where the lists of loads part, and what either has there, null at its end. */
uint32_t inprocess_different_load(const struct fl_load **here, const struct fl_load **isolated);
/* Whether the image is what it should be; its bytes are, afterwards. Not null: runs that are over may have seen another one, for a
 * reason that goes on after `the target `. Null also if it was found after the first run: no more of them are trusted. */
const char *inprocess_damage(void);
void inprocess_note_isolated(void); /* a run, for the last reason */
void inprocess_distrust(const char *reason); /* no more runs are in-process; the reason is the last one */
void *inprocess_engines(uint32_t *bytes); /* what FL_COMMAND_ENGINES answers, to be freed */

/* ---- reference.c: in the server, but for reference_write */
void reference_begin(uint32_t count, int (*descriptor)(uint32_t file));
bool reference_is_there(void);
void reference_write(uint32_t number, uint64_t offset, const void *bytes, size_t count);
bool reference_differs(void); /* what does is put back */
bool reference_has_other_files(void); /* or other sizes */
void reference_end(void);

#endif
