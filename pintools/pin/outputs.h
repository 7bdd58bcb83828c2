/* SPDX-License-Identifier: Apache-2.0
 *
 * outputs.h - the table of system calls: where each writes into the memory of its caller (Linux, man 2). calls.cpp reads it.
 */
#ifndef FAULTLINE_PIN_OUTPUTS_H
#define FAULTLINE_PIN_OUTPUTS_H

#include <cstddef>
#include <cstdint>

/* How many bytes a call writes at an address that it was given. */
enum class Extent {
    NOTHING,  /* none: the call reads what it is given */
    FIXED,    /* `operand` */
    RESULT,   /* as many as it answers */
    MULTIPLE, /* `operand` times what it answers */
    ARRAY,    /* 8 times the argument `operand` */
    PIECES,   /* into the iovec array there, whose length is the argument `operand`, as many as it answers */
};

struct Output {
    uint64_t number;
    unsigned argument; /* that holds the address */
    Extent extent;
    unsigned operand;
};

extern const Output OUTPUTS[];
extern const size_t OUTPUT_COUNT;

#endif
