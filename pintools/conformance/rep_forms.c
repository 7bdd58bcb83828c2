/* SPDX-License-Identifier: Apache-2.0 */
/* Every form of rep movs and rep stos, upwards and downwards, over itself, across mappings, out of PM and into a fault. */
#include "program.h"

#include <setjmp.h>
#include <signal.h>

static char *heap, source[256];
static sigjmp_buf before_fault;

#define STOS(suffix)                                                                                                               \
    static void stos##suffix(char *to, uint64_t value, long count) {                                                               \
        __asm__ volatile("rep stos" #suffix : "+D"(to), "+c"(count) : "a"(value) : "memory");                                      \
    }                                                                                                                              \
    static void stos##suffix##_down(char *to, uint64_t value, long count) {                                                        \
        __asm__ volatile("std\n\trep stos" #suffix "\n\tcld" : "+D"(to), "+c"(count) : "a"(value) : "memory");                     \
    }
#define MOVS(suffix)                                                                                                               \
    static void movs##suffix(char *to, const char *from, long count) {                                                             \
        __asm__ volatile("rep movs" #suffix : "+D"(to), "+S"(from), "+c"(count)::"memory");                                        \
    }                                                                                                                              \
    static void movs##suffix##_down(char *to, const char *from, long count) {                                                      \
        __asm__ volatile("std\n\trep movs" #suffix "\n\tcld" : "+D"(to), "+S"(from), "+c"(count)::"memory");                       \
    }
STOS(b)
STOS(w)
STOS(l)
STOS(q)
MOVS(b)
MOVS(w)
MOVS(l)
MOVS(q)

static void on_fault(int number) {
    (void)number;
    siglongjmp(before_fault, 1);
}

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    heap = map_at(HEAP, descriptor, 0, 4096);
    map_at(HEAP + 4096, descriptor, 4096, 4096);
    for (int i = 0; i < 256; i++)
        source[i] = (char)i;
    const uint64_t value = 0x1122334455667788;
    stosb(heap, value, 3);
    stosw(heap + 16, value, 3);
    stosl(heap + 32, value, 3);
    stosq(heap + 64, value, 3);
    stosb_down(heap + 130, value, 3); /* 128 to 130 */
    stosw_down(heap + 148, value, 3); /* 144 to 149 */
    stosl_down(heap + 168, value, 3);
    stosq_down(heap + 208, value, 3);
    movsb(heap + 256, source, 3);
    movsw(heap + 272, source, 3);
    movsl(heap + 288, source, 3);
    movsq(heap + 320, source, 3);
    movsb_down(heap + 386, source + 2, 3);
    movsw_down(heap + 404, source + 4, 3);
    movsl_down(heap + 424, source + 8, 3);
    movsq_down(heap + 464, source + 16, 3);
    movsb(heap + 1, heap, 10);       /* fills with the first byte */
    movsb_down(heap + 40, heap + 36, 4);
    movsq(heap + 512, heap + 64, 1); /* a count of one is one store */
    for (int i = 0; i < 2; i++)
        stosb(heap + 600 + i, i, 1); /* the same instruction twice, side by side: two stores */
    stosb(heap + 4094, 7, 4);        /* across two mappings of one file: a store on each */
    stosq(heap + 8184, 8, 1);
    struct sigaction action = {.sa_handler = on_fault};
    MUST(sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(heap + 4096, 4096, PROT_READ) == 0);
    if (sigsetjmp(before_fault, 1) == 0)
        stosb(heap + 4090, 9, 10); /* 6 bytes, then the fault */
    heap[5] = 1;
    return 0;
}
