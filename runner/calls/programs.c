/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: what starts another program. What that reads of the heap no engine sees but the isolated one, which needs not. And it sees
 * the files: what the target stored before is put there first.
 */
#include "calls/calls.h"
#include "base/traced.h"
#include "hooks/hooks.h"
#include "loads/loads.h"
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>

#define BEFORE_PROGRAM(name) before_program(CALLER, name)

static void before_program(const void *caller, const char *name) {
    char text[64];
    snprintf(text, sizeof text, "%s starts another program", name);
    loads_unseen(caller, text);
    if (is_traced && loads_is_recording())
        loads_unknown(FL_LOADS_UNSEEN, text);
    before_sharing();
}

INTERPOSED FILE *popen(const char *command, const char *mode) {
    BEFORE_PROGRAM("popen");
    return REAL(popen)(command, mode);
}

INTERPOSED int system(const char *command) {
    if (command != NULL)
        BEFORE_PROGRAM("system");
    return REAL(system)(command);
}

INTERPOSED int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    BEFORE_PROGRAM("posix_spawn");
    return REAL(posix_spawn)(child, path, actions, attributes, arguments, environment);
}

INTERPOSED int posix_spawnp(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    BEFORE_PROGRAM("posix_spawnp");
    return REAL(posix_spawnp)(child, file, actions, attributes, arguments, environment);
}

/* A process of its own from the start: what it does to memory before it is another program is no matter of its parent's. */
INTERPOSED pid_t vfork(void) { return fork(); }
