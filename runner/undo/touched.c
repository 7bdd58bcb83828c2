/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of which a run may have touched little. To read all of it would make the kernel map each OS page that nobody has
 * touched; /proc/self/pagemap says which those are. It also says whether a run stored to a private mapping of a file.
 */
#include "undo/undo.h"
#include <string.h>
#include <sys/mman.h>

#define BATCH 1024u /* pages asked for at a time */
#define PRESENT (3ull << 62) /* in memory, or swapped out */
#define OF_FILE (1ull << 61) /* it is the file's */

static int pagemap = -1;

void touched_open(void) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return; /* all of it is read then */
    pagemap = move_away(fd);
    syscall(SYS_close, fd);
}

static bool is_zero(const uint8_t *page) {
    uint64_t first;
    memcpy(&first, page, sizeof first);
    return first == 0 && memcmp(page, page + sizeof first, OS_PAGE_BYTES - sizeof first) == 0;
}

/* Of each page, what the kernel says of it. False: nothing. */
static bool ask(uintptr_t start, size_t count, uint64_t said[]) {
    off_t offset = (off_t)(start / OS_PAGE_BYTES * sizeof *said);
    ssize_t wanted = (ssize_t)(count * sizeof *said);
    return pagemap >= 0 && syscall(SYS_pread64, pagemap, said, wanted, offset) == wanted;
}

bool touched_visit(const void *start, size_t bytes, size_t most, void (*visit)(const void *bytes, size_t count)) {
    static uint64_t said[BATCH];
    const uint8_t *pages = start;
    size_t visited = 0, count = bytes / OS_PAGE_BYTES;
    bool is_said = false;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *page = pages + i * OS_PAGE_BYTES;
        if (i % BATCH == 0)
            is_said = ask((uintptr_t)page, count - i < BATCH ? count - i : BATCH, said);
        if ((is_said && (said[i % BATCH] & PRESENT) == 0) || is_zero(page))
            continue;
        if ((visited += OS_PAGE_BYTES) > most)
            return false;
        visit(&i, sizeof i);
        visit(page, OS_PAGE_BYTES);
    }
    visit(&visited, sizeof visited);
    return true;
}

bool touched_is_stored_to(const void *start, size_t bytes) {
    static uint64_t said[BATCH];
    size_t count = bytes / OS_PAGE_BYTES;
    bool is_said = false;
    for (size_t i = 0; i < count; i++) {
        if (i % BATCH == 0)
            is_said = ask((uintptr_t)start + i * OS_PAGE_BYTES, count - i < BATCH ? count - i : BATCH, said);
        if (!is_said || ((said[i % BATCH] & PRESENT) != 0 && (said[i % BATCH] & OF_FILE) == 0))
            return true;
    }
    return false;
}
