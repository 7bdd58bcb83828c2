/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runner says to a tracer under which it serves (runner/recording.h).
 */
#include "base/traced.h"
#include "recording.h"
#include <valgrind/valgrind.h>

bool is_traced;

void traced_pause(bool is_paused) {
    if (is_traced)
        VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_PAUSE, is_paused, 0, 0, 0, 0);
}

void traced_warm(void) {
    if (is_traced)
        VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_WARM, 0, 0, 0, 0, 0);
}

uint16_t traced_thread(void) {
    return is_traced ? (uint16_t)VALGRIND_DO_CLIENT_REQUEST_EXPR(0, FL_REQUEST_THREAD, 0, 0, 0, 0, 0) : 0;
}
