/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's own stores, whatever instructions it takes. */
#include "program.h"

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    enum { BYTES = 1 << 18, COPIED_BYTES = 70000 };
    MUST(ftruncate(descriptor, BYTES) == 0);
    char *heap = map_at(HEAP, descriptor, 0, BYTES);
    char *source = malloc(COPIED_BYTES);
    MUST(source != NULL);
    for (uint64_t at = 0; at < COPIED_BYTES; at += sizeof at) { /* whole words: the driver of the Pin tool single-steps */
        uint64_t word = (at + 1) * 0x9e3779b97f4a7c15;
        memcpy(source + at, &word, sizeof word);
    }
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
    memcpy(heap + BYTES - COPIED_BYTES, source, COPIED_BYTES);
    return 0;
}
