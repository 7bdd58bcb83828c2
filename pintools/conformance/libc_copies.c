/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's copies and fills, over all its size classes and alignments: just the bytes asked for, each marked call. */
#include "program.h"

#include <strings.h>
#include <wchar.h>

enum { BYTES = 1 << 16, SOURCE = 1 << 14 };

static char *heap, *source;
static unsigned calls;

/* What was stored since the last mark belongs to the call before it. */
static void mark(void) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, FL_OP_ALLOCATE, calls, 0, 0, 0);
    calls++;
}

static void copies(size_t bytes, size_t from, size_t to) {
    mark();
    memcpy(heap + to, source + from, bytes);
    mark();
    MUST(mempcpy(heap + to, source + from, bytes) == heap + to + bytes);
    mark();
    memset(heap + to, (int)bytes, bytes);
    mark();
    memmove(heap + to + bytes / 3, heap + to, bytes); /* upwards */
    mark();
    memmove(heap + to, heap + to + bytes / 3, bytes); /* downwards */
    mark();
    memmove(heap + to + 1, heap + to, bytes);
    mark();
    memmove(heap + to + BYTES / 2, heap + to, bytes); /* apart */
}

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    MUST(ftruncate(descriptor, BYTES) == 0);
    heap = map_at(HEAP, descriptor, 0, BYTES);
    source = malloc(SOURCE);
    MUST(source != NULL);
    for (int i = 0; i < SOURCE; i++)
        source[i] = (char)(i * 7 + i / 251 + 1);
    for (size_t bytes = 0; bytes <= 34; bytes++)
        copies(bytes, bytes % 5, 64 + bytes % 7);
    static const size_t sizes[] = {48, 63, 64, 65, 96, 127, 128, 129, 255, 256, 257, 511, 513, 1024, 2047, 2049, 4097, 9001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        copies(sizes[i], 0, 4096);
        copies(sizes[i], 3, 4096 + 13);
    }
    mark();
    MUST(memccpy(heap + 100, "abcdefgh", 'e', 8) == heap + 105);
    mark();
    MUST(memccpy(heap + 100, "abcdefgh", 'z', 8) == NULL);
    mark();
    bcopy(source, heap + 3, 77);
    mark();
    bcopy(heap + 3, heap + 40, 77);
    mark();
    bzero(heap + 5, 99);
    mark();
    explicit_bzero(heap + 300, 33);
    mark();
    wmemset((wchar_t *)(heap + 400), L'x', 50);
    mark();
    wmemcpy((wchar_t *)(heap + 800), (wchar_t *)(heap + 400), 50);
    mark();
    swab(source, heap + 1001, 40);
    mark();
    return 0;
}
