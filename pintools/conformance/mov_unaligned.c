/* SPDX-License-Identifier: Apache-2.0 */
/* One store of 8 bytes across two lines, one across two OS pages of the file, one that leaves the mapping: only its part in
 * PM counts. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    char *after = mmap(heap + HEAP_BYTES, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    char *before = mmap(heap - 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    MUST(after == heap + HEAP_BYTES && before == heap - 4096);
    __asm__ volatile("movq %1, 60(%0)\n\t"
                     "movq %1, 4093(%0)\n\t"
                     "movq %1, 8186(%0)\n\t"
                     "movq %1, -5(%0)\n\t"
                     "movq %1, 8192(%0)\n\t"
                     "movq %1, -8(%0)"
                     :
                     : "r"(heap), "r"(0x1122334455667788)
                     : "memory");
    return 0;
}
