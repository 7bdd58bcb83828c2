/* SPDX-License-Identifier: Apache-2.0
 *
 * serve/serve.h - the commands that run probes.
 */
#ifndef FAULTLINE_SERVE_H
#define FAULTLINE_SERVE_H

#include "base/base.h"

/* ---- serve.c */
int run_serve(const struct options *options);

/* ---- probe_command.c */
int run_probe_command(const struct options *options);

/* ---- rehearse.c */
int run_rehearse(const struct options *options);

/* ---- twins.c */
int run_twins(const struct options *options);

#endif
