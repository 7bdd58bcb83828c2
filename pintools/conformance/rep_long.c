/* SPDX-License-Identifier: Apache-2.0 */
/* A rep stos larger than the tracer's buffer is one record all the same; rep movs within PM reads what it wrote. */
#include "program.h"

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    enum { BYTES = 1 << 20 };
    MUST(ftruncate(descriptor, BYTES) == 0);
    char *heap = map_at(HEAP, descriptor, 0, BYTES), *to = heap;
    char *anonymous = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(anonymous != MAP_FAILED);
    long count = BYTES;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0x5a) : "memory"); /* whole file */
    to = anonymous, count = BYTES;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory"); /* not PM */
    return 0;
}
