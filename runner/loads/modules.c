/* SPDX-License-Identifier: Apache-2.0
 *
 * The modules that places in code name (protocol.h), in memory that server, lives and tracer share.
 */
#include "base/base.h"
#include "loads/loads.h"
#include "recording.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct fl_modules *modules;

struct fl_modules *modules_map(const char *adapter) {
    modules = map_or_fail(sizeof *modules, MAP_SHARED, -1, "the list of modules");
    char *path = realpath(adapter, NULL);
    modules->count = 1;
    snprintf(modules->paths[0], sizeof modules->paths[0], "%s", path == NULL ? adapter : path);
    free(path);
    return modules;
}

const struct fl_modules *modules_known(void) { return modules; }

uint32_t modules_number(const char *path) {
    for (uint32_t i = 0; i < modules->count; i++)
        if (strcmp(modules->paths[i], path) == 0)
            return i;
    if (modules->count == FL_MOST_MODULES || strlen(path) >= FL_MODULE_PATH_BYTES)
        return FL_MOST_MODULES;
    strcpy(modules->paths[modules->count], path);
    return modules->count++;
}
