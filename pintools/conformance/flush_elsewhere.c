/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes outside PM: of the stack, of a private mapping, of a page of nobody's. The first at a site is a record, the rest are one at the
 * end; a child counts its own. */
#include "program.h"

#include <sys/wait.h>

static __attribute__((noinline)) void flush(char *heap) {
    char *volatile pointer = heap; /* the pointer is flushed, and not what it points to */
    __asm__ volatile("clwb %0" : : "m"(pointer) : "memory");
}

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    char *heap = map_at(HEAP, descriptor, 0, HEAP_BYTES);
    char *own = mmap(HEAP - 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE, descriptor, 0);
    char *other = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(own == HEAP - 4096 && other != MAP_FAILED);
    for (volatile int i = 0; i < 3; i++) {
        heap[0] = i;
        flush(heap);
    }
    __asm__ volatile("clflushopt (%0)\n\t"
                     "clflush (%1)"
                     :
                     : "r"(own), "r"(other)
                     : "memory");
    pid_t child = fork();
    if (child == 0) {
        for (volatile int i = 0; i < 2; i++)
            flush(heap);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    return 0;
}
