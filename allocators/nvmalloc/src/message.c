/* SPDX-License-Identifier: Apache-2.0
 *
 * message.c - why a call failed, for nvmalloc_message().
 */
#include "types.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_message[512];

const char *nvmalloc_message(void) { return last_message; }

int nvmalloc_fail(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_message, sizeof last_message, format, arguments);
    va_end(arguments);
    return status;
}
