/* SPDX-License-Identifier: Apache-2.0 */
/* A program that closes its heap and opens it in a handler of SIGSEGV, from which it resumes: its registers are those at the store. */
#include "program.h"

#include <signal.h>
#include <ucontext.h>

#define PAGE_BYTES 4096
#define STORES 4

static volatile char *heap;

static void open_heap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    mprotect((void *)heap, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE);
}

/* Between the loads and stores of one block all but `base` changes. */
static void store_words(volatile long *base) {
    register long value = 1;
    for (int i = 0; i < STORES; i++) {
        __asm__ volatile("add $5, %0\n\tmov %0, (%1)\n\tadd $8, %1" : "+r"(value), "+r"(base) : : "memory");
    }
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = open_heap, .sa_flags = SA_SIGINFO};
    heap = create_and_map_heap(argc, argv);
    sigaction(SIGSEGV, &action, NULL);
    mprotect((void *)heap, 2 * PAGE_BYTES, PROT_NONE);
    store_words((volatile long *)heap);
    return 0;
}
