/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that recovers a heap has the allocator's code at another address than the one that made it: loaders choose where code
 * goes anew for each process. Here no address is chosen by chance (main.c), so it is this file that moves the code.
 */
#include "base/target.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOVED_BYTES (16ul << 20)
#define MOST_HOLES 4096u

static uintptr_t reserve(size_t bytes) {
    return (uintptr_t)syscall(SYS_mmap, NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* The kernel looks for room in one direction, from the holes between mappings to where nothing is mapped yet; Valgrind does in the other
 * direction. The first two reservations are behind all holes and say which. Then the holes are closed, so that whatever is loaded goes
 * behind the second one. */
void code_move(void) {
    uintptr_t first = reserve(MOVED_BYTES), second = reserve(MOVED_BYTES);
    uint32_t holes = 0;
    for (size_t bytes = MOVED_BYTES / 2; bytes >= OS_PAGE_BYTES && holes < MOST_HOLES; bytes /= 2)
        for (; holes < MOST_HOLES; holes++) {
            uintptr_t here = reserve(bytes);
            if ((here < second) == (second < first)) {
                munmap((void *)here, bytes);
                break;
            }
        }
}
