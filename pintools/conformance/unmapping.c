/* SPDX-License-Identifier: Apache-2.0 */
/* munmap of the front, the middle, the end, of two mappings and the hole between them; a file outside PM mapped over one. */
#include "program.h"

#define PAGE 4096

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    MUST(ftruncate(descriptor, 8 * PAGE) == 0);
    volatile char *heap = map_at(HEAP, descriptor, 0, 8 * PAGE);
    MUST(munmap((void *)heap, PAGE) == 0);
    MUST(munmap((void *)(heap + 7 * PAGE), 100) == 0); /* whole OS pages go */
    MUST(munmap((void *)(heap + 3 * PAGE), PAGE) == 0);
    heap[PAGE] = 1;
    heap[4 * PAGE] = 2;
    heap[7 * PAGE - 1] = 3;
    MUST(munmap((void *)(heap + 2 * PAGE), 3 * PAGE) == 0); /* end of one, hole, front of another */
    heap[2 * PAGE - 1] = 4;
    heap[5 * PAGE] = 5;
    MUST(munmap((void *)(heap + 2 * PAGE), PAGE) == 0); /* nothing is there: no event */
    int outside = open("../unmapping.outside", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(outside >= 0 && ftruncate(outside, PAGE) == 0 && unlink("../unmapping.outside") == 0);
    MUST(mmap((void *)(heap + 5 * PAGE), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, outside, 0) == heap + 5 * PAGE);
    heap[5 * PAGE] = 6; /* not PM */
    heap[6 * PAGE] = 7;
    map_at((char *)heap, descriptor, 7 * PAGE, PAGE); /* the file's last page where its first was */
    heap[0] = 8;
    return 0;
}
