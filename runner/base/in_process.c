/* SPDX-License-Identifier: Apache-2.0 */
#include "base/in_process.h"
#include <stdio.h>

struct in_process in_process;

void inprocess_leave(const char *reason) {
    if (!in_process.is_running)
        return;
    snprintf(in_process.reason, REASON_BYTES, "%s", reason);
    siglongjmp(in_process.way_out, 1);
}
