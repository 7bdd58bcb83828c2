/* SPDX-License-Identifier: Apache-2.0
 *
 * base/target.h - the adapter that is tested: loading it, and the stages of recovery that it names.
 */
#ifndef FAULTLINE_TARGET_H
#define FAULTLINE_TARGET_H

#include "base/base.h"

/* ---- adapter_load.c */
const struct fl_adapter *adapter_load(const char *path);
void *adapter_library(void); /* that was loaded last, as dlopen(3) names it */
const void *adapter_base(const struct fl_adapter *adapter); /* where its file is mapped */
void adapter_describe(const struct fl_adapter *adapter);
const char *status_name(int status);

/* ---- lazy.c */
void lazy_check(const struct options *options, const struct fl_adapter *adapter); /* that it can open so, if it is to */
int open_adapter(const struct fl_adapter *adapter, const struct fl_heap_options *options, bool is_lazy, fl_heap **heap);
/* The next piece, if there are steps and one is left. What it answers; after an error there are no more. */
int lazy_step(const struct fl_adapter *adapter, fl_heap *heap, bool *is_settled);

/* ---- code_moves.c */
void code_move(void); /* what is loaded from now on goes to other addresses */

/* ---- stages.c */
struct fl_stage;
/* Takes note of a library's stages; list: its faultline_stages, null when it names none. */
void stages_find(struct fl_stage *const *(*list)(size_t *count));
/* From now on this process and its children count the stages they enter; stages_stop: this one no more. */
void stages_map(void);
void stages_stop(void);
void stages_pause(bool is_paused); /* the same until it is false again */
/* What FL_COMMAND_STAGES answers, to be freed. */
void *stages_list(uint32_t *bytes);

#endif
