/* SPDX-License-Identifier: Apache-2.0
 *
 * Where instructions announce themselves (runner/assembler): the target's registers, flags and vector registers are as they were when an
 * announcement returns. Most announcements are over before anything but general registers is used, which is why this file is compiled
 * for those alone; for the others all of the processor's state is saved first.
 */
#include "hooks/hooks.h"
#include "loads/loads.h"
#include "undo/undo.h"
#include <cpuid.h>

/* What xsave is asked for: x87, SSE, AVX, AVX-512 (Intel SDM vol. 1, 13.1). Other components are nothing that the runner or the C
 * library changes. 0: the processor, or the kernel, has no xsave. */
#define SAVED_STATE 0xe7u
#define FXSAVE_BYTES 512u
__attribute__((used, visibility("hidden"))) uint32_t hook_state_mask, hook_state_bytes = FXSAVE_BYTES;

__attribute__((constructor)) static void find_state(void) {
    uint32_t a, b, c, d, low, high;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0 || __get_cpuid_count(0xd, 0, &a, &b, &c, &d) == 0)
        return;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    hook_state_mask = low & SAVED_STATE;
    hook_state_bytes = b; /* of all that is enabled: as much or more */
}

#pragma GCC target("general-regs-only")

#define IS_NEAR(address) ((uintptr_t)(address) - fl_hook_near.start < fl_hook_near.bytes)

/* Within one unit, of which nothing is to be noted (loads_is_settled); is_store: that the undo log has, too. */
static bool is_settled(const void *address, uint64_t bytes, bool is_store) {
    uint64_t at = (uintptr_t)address - loads_window.start;
    return at < loads_window.bytes && at % 8 + bytes <= 8 && (loads_window.undecided[at / 512] >> at / 8 % 64 & 1) == 0 &&
           (!is_store || loads_window.is_noted[at / 64] != 0) && loads_accesses++ < LOADS_MOST_ACCESSES;
}

/* Nothing is to be noted of it. */
__attribute__((used, visibility("hidden"))) bool hook_is_over(struct hook_call *call) {
    bool is_told = events_is_by_hooks;
    switch (call->kind) {
    case HOOK_LOAD: return !IS_NEAR(call->address) || is_settled(call->address, call->bytes, false);
    case HOOK_STORE:
    case HOOK_STORE_SOME:
    case HOOK_UPDATE:
    case HOOK_STREAM: return !IS_NEAR(call->address) || (!is_told && is_settled(call->address, call->bytes, true));
    case HOOK_LOCKED:
    case HOOK_LOCKED_IF: return !is_told && (!IS_NEAR(call->address) || is_settled(call->address, call->bytes, true));
    case HOOK_FENCE: return !is_told;
    case HOOK_FLUSH:
        /* In-process the image is ordinary memory, where no power fails: a flush changes nothing and takes time. A flush of what is
         * not mapped, or lies behind a file's end, has to fault; what is around the last access is mapped, and behind the end only
         * where the run has cut the file. */
        call->rcx = (uintptr_t)call->address - loads_window.start >= loads_window.bytes || undo_has_resized();
        return !is_told;
    default: return false;
    }
}

/* clang-format off */
__asm__(
    ".text\n"
    ".globl fl_hook_instruction\n"
    ".type fl_hook_instruction, @function\n"
    "fl_hook_instruction:\n"
    "\tpushq %rax\n\tpushq %rcx\n\tpushq %rdx\n\tpushq %r8\n\tpushq %r9\n\tpushq %r10\n\tpushq %r11\n"
    "\tpushfq\n\tpushq %rdi\n\tpushq %rsi\n"
    "\tcld\n"
    "\tmovq %rsp, %rdi\n"
    "\tcall hook_is_over\n"
    "\ttestb %al, %al\n"
    "\tjnz 1f\n"
    "\tpushq %rbp\n"
    "\tmovq %rsp, %rbp\n"
    "\tmovl hook_state_bytes(%rip), %eax\n"
    "\tsubq %rax, %rsp\n"
    "\tandq $-64, %rsp\n"
    "\tmovl hook_state_mask(%rip), %eax\n"
    "\txorl %edx, %edx\n"
    "\ttestl %eax, %eax\n"
    "\tjz 2f\n"
    "\tmovq %rdx, 512(%rsp)\n\tmovq %rdx, 520(%rsp)\n\tmovq %rdx, 528(%rsp)\n\tmovq %rdx, 536(%rsp)\n" /* xsave's header */
    "\tmovq %rdx, 544(%rsp)\n\tmovq %rdx, 552(%rsp)\n\tmovq %rdx, 560(%rsp)\n\tmovq %rdx, 568(%rsp)\n"
    "\txsave64 (%rsp)\n"
    "\tleaq 8(%rbp), %rdi\n"
    "\tcall hook_instruction\n"
    "\tmovl hook_state_mask(%rip), %eax\n"
    "\txorl %edx, %edx\n"
    "\txrstor64 (%rsp)\n"
    "\tjmp 3f\n"
    "2:\tfxsave64 (%rsp)\n"
    "\tleaq 8(%rbp), %rdi\n"
    "\tcall hook_instruction\n"
    "\tfxrstor64 (%rsp)\n"
    "3:\tmovq %rbp, %rsp\n"
    "\tpopq %rbp\n"
    "1:\tleaq 16(%rsp), %rsp\n"
    "\tpopfq\n"
    "\tpopq %r11\n\tpopq %r10\n\tpopq %r9\n\tpopq %r8\n\tpopq %rdx\n\tpopq %rcx\n\tpopq %rax\n"
    "\tret\n"
    ".size fl_hook_instruction, . - fl_hook_instruction\n");
/* clang-format on */
