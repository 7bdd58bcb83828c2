/* SPDX-License-Identifier: Apache-2.0 */
/* A program that dies of a signal: its end says which, and what it stored before is there. */
#include "program.h"

#include <signal.h>

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    heap[0] = 1;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
    return 0;
}
