/* SPDX-License-Identifier: Apache-2.0 */
/* mprotect: a store that faults is no event, with a store of several lines neither; what may be written again is seen. */
#include "program.h"

#include <setjmp.h>
#include <signal.h>

static sigjmp_buf before_fault;
static int faults;

static void on_fault(int number) {
    (void)number;
    faults++;
    siglongjmp(before_fault, 1);
}

static void try_to_store(volatile char *at, char value) {
    if (sigsetjmp(before_fault, 1) == 0)
        *at = value;
}

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    struct sigaction action = {.sa_handler = on_fault};
    MUST(sigaction(SIGSEGV, &action, NULL) == 0);
    volatile char *heap = mmap(HEAP, HEAP_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, descriptor, 0);
    MUST(heap == HEAP);
    try_to_store(heap, 1);
    MUST(mprotect((void *)heap, 4096, PROT_READ | PROT_WRITE) == 0);
    try_to_store(heap, 2);
    try_to_store(heap + 4096, 3);
    if (sigsetjmp(before_fault, 1) == 0)
        *(volatile uint64_t *)(heap + 4092) = 4; /* half of it would be possible */
    MUST(mprotect((void *)heap, HEAP_BYTES, PROT_NONE) == 0);
    try_to_store(heap + 1, 5);
    MUST(mprotect((void *)heap, HEAP_BYTES, PROT_READ | PROT_WRITE) == 0);
    *(volatile uint64_t *)(heap + 4092) = 6;
    MUST(faults == 4);
    return 0;
}
