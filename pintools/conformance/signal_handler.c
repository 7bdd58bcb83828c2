/* SPDX-License-Identifier: Apache-2.0 */
/* A store that faults is none; the handler's stores come where it ran. */
#include "program.h"

#include <setjmp.h>
#include <signal.h>

static volatile char *heap;
static sigjmp_buf back;

static void on_fault(int number) {
    heap[8] = (char)number;
    siglongjmp(back, 1);
}

int main(int argc, char **argv) {
    heap = create_and_map_heap(argc, argv);
    signal(SIGSEGV, on_fault);
    MUST(mprotect((void *)(heap + 4096), 4096, PROT_READ) == 0);
    if (sigsetjmp(back, 1) == 0)
        heap[4096] = 1;
    heap[16] = 2;
    return 0;
}
