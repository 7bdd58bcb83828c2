/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted in the runner itself, to show that its own tests notice them: as crashgen/planted does for the engine. A runner
 * built with -DFL_PLANTED holds all of them, and the environment variable FAULTLINE_PLANTED names the one that a process has.
 * Without it nothing is left of them. harness/tests/quality/test_planted.py has the table.
 */
#ifndef FAULTLINE_RUNNER_PLANTED_H
#define FAULTLINE_RUNNER_PLANTED_H

#include <stdbool.h>

#ifdef FL_PLANTED
#include <stdlib.h>
#include <string.h>

static inline bool planted(const char *fault) {
    const char *chosen = getenv("FAULTLINE_PLANTED");
    return chosen != NULL && strcmp(chosen, fault) == 0;
}
#else
#define planted(fault) false
#endif

#endif
