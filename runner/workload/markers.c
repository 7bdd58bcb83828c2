/* SPDX-License-Identifier: Apache-2.0
 *
 * Markers for somebody who looks on from outside, and for whom this machine may end at any moment: each is a line in a file, or on a serial
 * line, and is out before the process goes on.
 *
 *   case NUMBER
 *   begin INDEX WORD
 *   return INDEX STATUS
 *   mapped SYNCED OTHERS       after a create or an open: mappings of files of the heap with MAP_SYNC, as the kernel granted it, and others
 */
#include "workload/workload.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static const char *path;
static const char *heaps; /* the folder of their files */
static int file = -1;

void markers_begin(const char *to, const char *folder) {
    path = to;
    heaps = folder;
    file = open(to, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0666);
    if (file < 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be written: %s", to, strerror(errno));
    sync(); /* the folders of the cases are there before the workload begins */
}

static void say(const char *line, int bytes) {
    if (write(file, line, (size_t)bytes) != bytes || (isatty(file) && tcdrain(file) != 0))
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be written: %s", path, strerror(errno));
}

/* From /proc/self/smaps (Linux Documentation/filesystems/proc.rst): `sf` among the flags is a synchronous page fault. */
static void say_mappings(void) {
    FILE *list = fopen("/proc/self/smaps", "re");
    if (list == NULL)
        fail(EXIT_INFRASTRUCTURE, "/proc/self/smaps: %s", strerror(errno));
    char line[8192], text[64];
    bool is_of_heap = false;
    unsigned synced = 0, others = 0;
    while (fgets(line, sizeof line, list) != NULL) {
        const char *name = strchr(line, '/');
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            is_of_heap = name != NULL && strncmp(name, heaps, strlen(heaps)) == 0;
        else if (is_of_heap && strncmp(line, "VmFlags:", 8) == 0)
            *(strstr(line, " sf ") != NULL ? &synced : &others) += 1;
    }
    fclose(list);
    say(text, snprintf(text, sizeof text, "mapped %u %u\n", synced, others));
}

void markers_say_begin(const struct step *step) {
    char line[64];
    if (file < 0)
        return;
    if (step->kind == FL_OP_CASE)
        say(line, snprintf(line, sizeof line, "case %u\n", step->case_number));
    else
        say(line, snprintf(line, sizeof line, "begin %u %s\n", step->index, operation_of(step->kind)->word));
}

void markers_say_return(const struct step *step, int status) {
    char line[64];
    if (file < 0)
        return;
    say(line, snprintf(line, sizeof line, "return %u %d\n", step->index, status));
    if (step->kind == FL_OP_CREATE || step->kind == FL_OP_OPEN)
        say_mappings();
}
