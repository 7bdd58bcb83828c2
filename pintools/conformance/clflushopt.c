/* SPDX-License-Identifier: Apache-2.0 */
/* clflushopt with every form of memory operand. The one outside PM counts at its site. */
#include "program.h"

#include <asm/prctl.h>
#include <sys/syscall.h>

/* Mapped over below: a PM address that RIP-relative operands reach. */
static char window[8192] __attribute__((aligned(4096)));

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    char *heap = map_at(HEAP, descriptor, 0, HEAP_BYTES);
    MUST(mmap(window, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 4096) == window);
    register char *r12 __asm__("r12") = heap;
    register char *r13 __asm__("r13") = heap;
    register long r14 __asm__("r14") = 100;
    char outside = 0;
    MUST(syscall(SYS_arch_prctl, ARCH_SET_GS, (long)heap) == 0);
    __asm__ volatile("clflushopt (%0)\n\t"
                     "clflushopt 1(%0)\n\t"
                     "clflushopt 4095(%0)\n\t"
                     "clflushopt -1(%0, %1)\n\t"
                     "clflushopt 2(%0, %1, 2)\n\t"
                     "clflushopt (%0, %1, 8)\n\t"
                     "clflushopt (%2)\n\t"            /* r12: needs a SIB byte */
                     "clflushopt (%3)\n\t"            /* r13: needs a displacement */
                     "clflushopt 3(%2, %4, 4)\n\t"    /* REX.B and REX.X */
                     "clflushopt (%3, %4)\n\t"
                     "clflushopt 5(%1, %3)\n\t"       /* r13 as index */
                     "clflushopt (%5, %1)\n\t"        /* rbp as base, needs a displacement */
                     "clflushopt (, %6, 8)\n\t"       /* no base */
                     "clflushopt %7\n\t"              /* RIP-relative */
                     "clflushopt 70 + %7\n\t"
                     "clflushopt %%gs:6(%1)\n\t"      /* GS prefix */
                     "clflushopt %8\n\t"
                     :
                     : "r"(heap), "r"(64L), "r"(r12), "r"(r13), "r"(r14), "r"(heap), "r"((long)heap / 8), "m"(window[8]),
                       "m"(outside)
                     : "memory");
    return 0;
}
