/* SPDX-License-Identifier: Apache-2.0 */
/* rep stos and rep movs are one wide store each, whatever their unit; two in a row stay two. A count of 0 stores nothing. */
#include "program.h"

static void stosb(char *to, char value, long count) {
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(value) : "memory");
}

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    char source[64];
    for (int i = 0; i < 64; i++)
        source[i] = i;
    stosb(heap, 0x5a, 5);
    stosb(heap + 5, 0x5b, 20);
    stosb(heap + 25, 0x5c, 0);
    stosb(heap + 25, 0x5d, 1);
    char *to = heap + 64, *from = source;
    long count = 37;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    to = heap + 128, from = source, count = 3;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    to = heap + 160, count = 3;
    __asm__ volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(0x11223344) : "memory");
    to = heap + 256 + 8, from = source + 24, count = 2; /* downwards */
    __asm__ volatile("std\n\trep movsq\n\tcld" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    to = heap + 512, from = source;
    __asm__ volatile("movsq\n\tmovsb" : "+D"(to), "+S"(from)::"memory"); /* no rep: plain */
    return 0;
}
