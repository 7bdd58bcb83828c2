/* SPDX-License-Identifier: Apache-2.0 */
/* More addresses than Valgrind has below its own memory; each reservation has its own. */
#include "program.h"

#include <errno.h>

#define RESERVED_BYTES (100ull << 30)

static char *reserve(void *hint) {
    char *start = mmap(hint, RESERVED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(start != MAP_FAILED);
    return start;
}

static int are_apart(const char *one, const char *other) { return one + RESERVED_BYTES <= other || other + RESERVED_BYTES <= one; }

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    char *first = reserve(NULL), *second = reserve(NULL), *third = reserve((void *)0x10000000);
    MUST(are_apart(first, second) && are_apart(first, third) && are_apart(second, third));
    MUST(munmap(first, RESERVED_BYTES) == 0);
    char *last = second + RESERVED_BYTES - 4096;
    char *again = reserve(NULL);
    MUST(!RUNNING_ON_VALGRIND || again == first); /* which has no more addresses */
    MUST(are_apart(again, second) && are_apart(again, third) && mprotect(last, 4096, PROT_READ | PROT_WRITE) == 0);
    heap[0] = last[0] = 1;
    errno = 0;
    MUST(mmap(NULL, 100ull << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED && errno != 0);
    return heap[0] == last[0] ? 0 : 1;
}
