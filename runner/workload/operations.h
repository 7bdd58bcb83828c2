/* SPDX-License-Identifier: Apache-2.0
 *
 * workload/operations.h - the kinds of operations: what workload files and messages call them, and what they do to a slot. trace.h numbers
 * them (enum fl_operation).
 */
#ifndef FAULTLINE_OPERATIONS_H
#define FAULTLINE_OPERATIONS_H

#include "trace.h"
#include <stdbool.h>
#include <stddef.h>

/* A word that follows the operation's own in a workload file. */
enum operand {
    OPERAND_NONE,
    OPERAND_SLOT,
    OPERAND_BYTES,
    OPERAND_FIELD,
    OPERAND_TARGET, /* the slot linked to */
    OPERAND_FROM,   /* the slot whose object's field is loaded */
    OPERAND_START,  /* the first byte written */
    OPERAND_LENGTH, /* how many bytes are written */
};
#define MOST_OPERANDS 3u

struct operation {
    enum fl_operation kind;
    const char *word;
    enum operand
        operands[MOST_OPERANDS]; /* none: it is the main thread's alone, and no line of its own unless it bounds a transaction */
    bool fills_slot;    /* needs an empty slot; the others a slot with an object */
    bool empties_slot;
    bool makes_object;  /* asks for memory, and fills it */
    bool may_lack_room; /* and then it has no effect */
    bool is_of_graph;   /* of the graph layout only */
    bool is_of_threads; /* workers run it, too */
    bool bounds_transaction; /* begins or ends one: a line of the main thread's alone */
};

extern const struct operation OPERATIONS[];
extern const size_t OPERATION_COUNT;

/* SLOT, BYTES, ...: as messages say them. */
const char *operand_name(enum operand operand);

/* Null: there is none with that number, or no line that begins with that word. */
const struct operation *operation_of(enum fl_operation kind);
const struct operation *find_operation(const char *word);
bool is_line(const struct operation *operation);
/* On a slot, between two markers; the others are of a whole heap. */
bool has_slot(enum fl_operation kind);

#endif
