/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's string functions store a string, its end, and its padding: no byte more, none less. */
#include "program.h"

enum { LONGEST = 700 };

static char *heap, text[LONGEST + 1];
static unsigned calls;

static void mark(void) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, FL_OP_ALLOCATE, calls, 0, 0, 0);
    calls++;
}

#pragma GCC diagnostic ignored "-Wstringop-truncation"

static void strings(size_t length, size_t at) {
    const char *from = text + LONGEST - length;
    char *to = heap + at;
    mark();
    strcpy(to, from);
    mark();
    MUST(stpcpy(to, from) == to + length);
    mark();
    strcat(to, from);
    mark();
    strncat(to, from, length / 2 + 1);
    mark();
    strncpy(to, from, length / 2 + 1);
    mark();
    strncpy(to, from, length + 50);
    mark();
    MUST(stpncpy(to, from, length + 3) == to + length);
    mark();
    snprintf(to, 4096, "%s", from);
}

int main(int argc, char **argv) {
    heap = create_and_map_heap(argc, argv);
    for (int i = 0; i < LONGEST; i++)
        text[i] = (char)('a' + i % 26);
    for (size_t length = 0; length <= 34; length++)
        strings(length, 64 + length % 9);
    static const size_t lengths[] = {63, 64, 65, 95, 96, 127, 128, 129, 200, 255, 256, 300, 511, 512, LONGEST};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t at = 63; at < 65; at++)
            strings(lengths[i], at);
    mark();
    return 0;
}
