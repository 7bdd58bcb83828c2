/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel writes into PM for a system call: a copy, as of rep movs, at the place of the call. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    int ends[2];
    MUST(pipe(ends) == 0 && write(ends[1], "0123456789", 10) == 10);
    MUST(read(ends[0], heap + 7, 4) == 4);
    MUST(read(ends[0], heap + 64, 100) == 6); /* only what came */
    return 0;
}
