/* SPDX-License-Identifier: Apache-2.0 */
/* A stack that is deep first and then not: what lies above it cannot be read. */
#include "program.h"

#include <pthread.h>

#define STACK_BYTES (1 << 20)
#define ROOM_BYTES (1 << 18)
#define GUARD_BYTES ((size_t)2 * ROOM_BYTES)

static char *heap;

__attribute__((noinline)) static void stores(void) { *(volatile char *)heap = 1; }
__attribute__((noinline)) static void allocates(size_t bytes) {
    volatile char *room = __builtin_alloca(bytes);
    room[0] = 1;
    stores();
    heap[64] = room[0];
}

static void *deep_then_shallow(void *unused) {
    allocates(ROOM_BYTES);
    allocates(16);
    allocates(ROOM_BYTES);
    return unused;
}

int main(int argc, char **argv) {
    heap = create_and_map_heap(argc, argv);
    char *stack = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(stack != MAP_FAILED && mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE) == 0);
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
    MUST(pthread_create(&thread, &attributes, deep_then_shallow, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
