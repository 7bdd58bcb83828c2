/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's own stores, whatever instructions it takes. */
#include "program.h"

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    enum { BYTES = 1 << 18 };
    MUST(ftruncate(descriptor, BYTES) == 0);
    char *heap = map_at(HEAP, descriptor, 0, BYTES);
    char *source = malloc(BYTES);
    MUST(source != NULL);
    for (int i = 0; i < BYTES; i++)
        source[i] = (char)(i * 7 + i / 251);
    char *to = heap;
    for (size_t bytes = 1; bytes < 20000; bytes = bytes * 3 / 2 + 1) { /* all size classes, ends unaligned */
        memcpy(to, source + bytes % 13, bytes);
        memset(to + bytes, (int)bytes, bytes);
        to += 2 * bytes;
    }
    memmove(heap + 100, heap, 5000);
    memmove(heap, heap + 77, 5000);
    strcpy(to, "a string");
    snprintf(to + 64, 64, "%s %d", "formatted", 42);
    memcpy(heap + BYTES - 70000, source, 70000);
    return 0;
}
