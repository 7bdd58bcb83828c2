/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs each instruction of instructions.c twice from the same random state of registers, flags, red zone and memory: as it is, and
 * with announcements. Prints what was announced, and fails where the two leave something else behind. The runner's own part of an
 * announcement is real (runner/hooks/entry.c); what comes after it is hook_instruction below, which changes everything that an
 * ordinary function may change.
 */
#include "hooks/hooks.h"
#include "loads/loads.h"
#include "state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state the_state;
uint8_t memory[MEMORY_BYTES] __attribute__((aligned(4096)));
uint8_t before[MEMORY_BYTES], after[MEMORY_BYTES];

/* What entry.c asks for. */
struct fl_hook_near fl_hook_near;
struct loads_window loads_window;
uint32_t loads_accesses;
bool events_is_on = true, events_is_by_hooks = true;
bool undo_has_resized(void) { return false; }

static bool is_printing;
static const uint64_t *stack; /* as the instruction finds it */

static void clobber(void) {
    uint64_t junk[8] = {0x7ff8dead, 0x7ff8beef, 3, 4, 5, 6, 7, 8};
    unsigned other = 0x1fa0;
    __asm__ volatile("vmovdqu %0, %%ymm0\n\tvmovdqu %0, %%ymm1\n\tvmovdqu %0, %%ymm2\n\tvmovdqu %0, %%ymm3\n\t"
                     "vmovdqu %0, %%ymm4\n\tvmovdqu %0, %%ymm5\n\tvmovdqu %0, %%ymm6\n\tvmovdqu %0, %%ymm7\n\t"
                     "vmovdqu %0, %%ymm8\n\tvmovdqu %0, %%ymm9\n\tvmovdqu %0, %%ymm10\n\tvmovdqu %0, %%ymm11\n\t"
                     "vmovdqu %0, %%ymm12\n\tvmovdqu %0, %%ymm13\n\tvmovdqu %0, %%ymm14\n\tvmovdqu %0, %%ymm15\n\t"
                     "fldz\n\tfstp %%st(0)\n\tldmxcsr %1\n\tcmpb $1, %2"
                     :
                     : "m"(junk), "m"(other), "m"(junk)
                     : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

void hook_instruction(struct hook_call *call) {
    uintptr_t address = (uintptr_t)call->address, start = (uintptr_t)memory;
    if (((uintptr_t)__builtin_frame_address(0) & 15) != 0)
        abort(); /* the stack is as the ABI asks */
    if (is_printing) {
        if (call->kind == HOOK_STRING)
            printf(" string:%u:%u:%lld:%lld", call->detail, call->bytes, (long long)(call->rsi - start),
                   (long long)(call->rdi - start));
        else if (call->kind == HOOK_UNSEEN)
            printf(" unseen:%s", (const char *)call->address);
        else if (call->kind == HOOK_SYSTEM_CALL)
            printf(" syscall:%llu", (unsigned long long)call->rax);
        else if (call->kind == HOOK_FENCE)
            printf(" fence:%u", call->detail);
        else if (address == 0)
            printf(" %u:0:%u:%u", call->kind, call->bytes, call->detail);
        else if (address - start < sizeof memory)
            printf(" %u:%lld:%u:%u", call->kind, (long long)(address - start), call->bytes, call->detail);
        else
            printf(" %u:stack+%lld:%u:%u", call->kind, (long long)(address - (uintptr_t)stack), call->bytes, call->detail);
    }
    clobber();
}

static uint64_t draw(void) {
    static uint64_t x = 88172645463325252ull;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

static void fill(void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)(draw() >> 24);
}

/* rdi, rsi, rbp and r8 lead to memory; rbx and rcx are small. */
static void prepare(struct state *state) {
    fill(state, sizeof *state);
    fill(before, sizeof before);
    state->registers[RDI] = state->registers[R8] = (uintptr_t)memory + 1024;
    state->registers[RSI] = (uintptr_t)memory + 2048;
    state->registers[RBP] = (uintptr_t)memory + 3072;
    state->registers[RBX] = 2;
    state->registers[RCX] = 3;
    state->flags = (draw() & 0x8d5) | 0x202; /* arithmetic flags */
    state->mxcsr = 0x1f80 | (unsigned)(draw() & 3) << 13;
}

static struct state run(void (*instruction)(void), const struct state *first) {
    the_state = *first;
    memcpy(memory, before, sizeof memory);
    instruction();
    stack = (const uint64_t *)the_state.stack;
    return the_state;
}

static void compare(const char *name, const struct state *plain, const struct state *announced, const uint8_t *memory_of_plain) {
    for (int i = 0; i < REGISTERS; i++)
        if (plain->registers[i] != announced->registers[i]) {
            printf("\n%s: register %d is 0x%llx, not 0x%llx\n", name, i, (unsigned long long)announced->registers[i],
                   (unsigned long long)plain->registers[i]);
            exit(1);
        }
    if (plain->flags != announced->flags || plain->mxcsr != announced->mxcsr ||
        memcmp(plain->red_zone, announced->red_zone, 128) != 0 ||
        memcmp(plain->vectors, announced->vectors, sizeof plain->vectors) != 0) {
        printf("\n%s: flags 0x%llx, not 0x%llx, or the red zone or vectors are others\n", name,
               (unsigned long long)announced->flags, (unsigned long long)plain->flags);
        exit(1);
    }
    if (memcmp(memory_of_plain, memory, sizeof memory) != 0) {
        printf("\n%s: memory is other\n", name);
        exit(1);
    }
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    fl_hook_near.start = 0;
    fl_hook_near.bytes = UINT64_MAX;
    for (const struct corpus *item = corpus; item->name != NULL; item++) {
        for (int i = 0; i < rounds; i++) {
            struct state first;
            prepare(&first);
            struct state plain = run(item->plain, &first);
            memcpy(after, memory, sizeof memory);
            is_printing = i == 0;
            if (is_printing)
                printf("%s", item->name);
            struct state announced = run(item->announced, &first);
            compare(item->name, &plain, &announced, after);
        }
        printf("\n");
    }
    return 0;
}
