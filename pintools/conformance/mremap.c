/* SPDX-License-Identifier: Apache-2.0 */
/* mremap: grows in place and elsewhere, shrinks, moves a part, over another; three mappings of one file meanwhile. */
#include "program.h"

/* Valgrind lets mappings grow below 64 GB only. */
#define LOW ((char *)0x400000000)
#define AT(number) ((volatile char *)(0x210000000000 + 0x10000000000 * (number)))

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    MUST(ftruncate(descriptor, 32768) == 0);
    volatile char *heap = map_at(LOW, descriptor, 0, 8192);
    map_at((char *)AT(0), descriptor, 8192, 16384);
    MUST(mremap((void *)heap, 8192, 16384, 0) == heap); /* in place */
    heap[16383] = 1;
    heap[8193] = 2;
    AT(0)[2] = 3; /* the same file's bytes 8194 */
    MUST(mremap((void *)heap, 16384, 4096, 0) == heap); /* shrinks */
    heap[4095] = 4;
    MUST(mmap((void *)(heap + 4096), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == heap + 4096);
    heap[4096] = 5; /* what was cut off is no PM now */
    volatile char *moved = mremap((void *)heap, 4096, 12288, MREMAP_MAYMOVE); /* there is no room here */
    MUST(moved != MAP_FAILED && moved != heap);
    moved[12287] = 6;
    MUST(mremap((void *)(AT(0) + 4096), 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)AT(1)) == AT(1)); /* the middle */
    AT(0)[4095] = 7;
    AT(0)[8192] = 8;
    AT(1)[0] = 9;
    void *copy = mremap((void *)AT(1), 0, 8192, MREMAP_MAYMOVE); /* Linux maps the same pages once more, Valgrind refuses */
    MUST(copy == MAP_FAILED || munmap(copy, 8192) == 0);
    map_at((char *)AT(2), descriptor, 12288, 8192); /* a third view */
    AT(2)[4096] = 10;
    AT(1)[1] = 11;
    MUST(mremap((void *)AT(2), 8192, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)AT(1)) == AT(1)); /* over another */
    AT(1)[4095] = 12;
    MUST(mremap((void *)AT(3), 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED); /* nothing is mapped there */
    MUST(mmap((void *)AT(3), 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, descriptor, 0) == AT(3));
    MUST(mremap((void *)AT(3), 8192, 4096, 0) == AT(3));
    AT(3)[1] = 13; /* private */
    return 0;
}
