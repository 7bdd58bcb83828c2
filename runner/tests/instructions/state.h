/* SPDX-License-Identifier: Apache-2.0
 *
 * What an instruction finds and leaves behind. Offsets are those of test_instructions.py.
 */
#ifndef FAULTLINE_TEST_STATE_H
#define FAULTLINE_TEST_STATE_H

#include <stddef.h>
#include <stdint.h>

#define MEMORY_BYTES 4096u

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, REGISTERS };

struct state {
    uint64_t registers[REGISTERS], flags;
    uint64_t red_zone[16];
    uint64_t stack; /* the stack pointer */
    uint32_t mxcsr, unused;
    uint8_t vectors[16][32];
};
_Static_assert(offsetof(struct state, red_zone) == 128 && offsetof(struct state, stack) == 256 &&
                   offsetof(struct state, vectors) == 272,
               "test_instructions.py has these offsets");

struct corpus {
    const char *name;
    void (*plain)(void), (*announced)(void);
};
extern const struct corpus corpus[];

#endif
