/* SPDX-License-Identifier: Apache-2.0 */
/* push and call store too: a stack that lies in PM is recorded. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    __asm__ volatile("movq %%rsp, %%rbx\n\t"
                     "leaq 256(%0), %%rsp\n\t"
                     "pushq $0x55\n\t"
                     "movq $0x66, -16(%%rsp)\n\t"
                     "popq %%rax\n\t"
                     "movq %%rbx, %%rsp"
                     :
                     : "r"(heap)
                     : "rax", "rbx", "memory");
    return 0;
}
