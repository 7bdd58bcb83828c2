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
