/* SPDX-License-Identifier: Apache-2.0
 *
 * calls/calls.h - what the interposed calls share. Targets call them, by the C library's names; nothing else here does.
 */
#ifndef FAULTLINE_CALLS_H
#define FAULTLINE_CALLS_H

#include "files/files.h"
#include "undo/undo.h"

/* Before a thread or a process is started. */
void before_sharing(void);

/* For calls that read behind the descriptor: what mappings hold has to be there. */
static inline void before_read(int fd) {
    kept_will_read(fd);
    vfs_before_read(fd);
}

#endif
