/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int move_away(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    if (moved < 0)
        fail(EXIT_INFRASTRUCTURE, "descriptor %d: %s", fd, strerror(errno));
    return moved;
}

void hide_streams(bool is_verbose) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        fail(EXIT_INFRASTRUCTURE, "/dev/null: %s", strerror(errno));
    error_fd = move_away(2);
    dup2(null, 0);
    dup2(is_verbose ? error_fd : null, 1);
    if (!is_verbose)
        dup2(null, 2);
    close(null);
}
