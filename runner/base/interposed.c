/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <dlfcn.h>

void *real_function(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL)
        fail(EXIT_INFRASTRUCTURE, "the C library has no function %s", name);
    return function;
}
