/* SPDX-License-Identifier: Apache-2.0 */
/* One file mapped twice, in part, remapped, grown, unmapped in the middle, mapped over. Private mappings are not PM. MAP_SYNC that the file
 * system refuses is in the trace; MAP_SYNC that the kernel refuses, because of MAP_FIXED_NOREPLACE beside it, is not. */
#include "program.h"

#define SECOND ((volatile char *)0x210000000000)
#define PRIVATE ((volatile char *)0x220000000000)
#define ELSEWHERE ((volatile char *)0x230000000000)

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    MUST(ftruncate(descriptor, 16384) == 0);
    const int synced = MAP_SHARED_VALIDATE | 0x80000 /* MAP_SYNC */;
    MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE, synced, descriptor, 0) == MAP_FAILED);
    MUST(mmap(HEAP, 4096, PROT_READ | PROT_WRITE, synced | MAP_FIXED_NOREPLACE, descriptor, 0) == MAP_FAILED);
    volatile char *heap = map_at(HEAP, descriptor, 0, 16384);
    heap[1] = 1;
    map_at((char *)SECOND, descriptor, 4096, 4096);
    SECOND[2] = 2;
    heap[4096] = 3;
    MUST(mmap((void *)PRIVATE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, descriptor, 0) == PRIVATE);
    PRIVATE[5] = 4;
    MUST(munmap((void *)PRIVATE, 4096) == 0);
    MUST(mremap((void *)SECOND, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)ELSEWHERE) == ELSEWHERE);
    ELSEWHERE[4096] = 5;
    MUST(munmap((void *)(heap + 4096), 4096) == 0);
    heap[4095] = 6;
    heap[8192] = 7;
    MUST(mmap((void *)ELSEWHERE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == ELSEWHERE);
    ELSEWHERE[0] = 8;
    ELSEWHERE[4097] = 9;
    MUST(mprotect((void *)heap, 4096, PROT_READ) == 0 && mprotect((void *)heap, 4096, PROT_READ | PROT_WRITE) == 0);
    heap[9] = 10;
    return 0;
}
