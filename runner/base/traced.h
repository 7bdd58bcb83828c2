/* SPDX-License-Identifier: Apache-2.0
 *
 * base/traced.h - whether the server runs under a tracer that sees what lives do (runner/recording.h): the traced engine. Here, at the
 * bottom, because every part that accesses PM for the runner has to say so.
 */
#ifndef FAULTLINE_TRACED_H
#define FAULTLINE_TRACED_H

#include "base/base.h"

extern bool is_traced;
/* From here on, and until false, this thread accesses PM for the runner, which announces what counts. */
void traced_pause(bool is_paused);
/* A life is about to be forked. */
void traced_warm(void);
/* The number in events of this thread; 0: the life's first one, or no tracer numbers them. */
uint16_t traced_thread(void);

#endif
