/* SPDX-License-Identifier: Apache-2.0 */
#include "workload/operations.h"
#include <string.h>

const struct operation OPERATIONS[] = {
    {.kind = FL_OP_CASE, .word = "case"},
    {.kind = FL_OP_CREATE, .word = "create"},
    {.kind = FL_OP_OPEN, .word = "open"},
    {.kind = FL_OP_CLOSE, .word = "close"},
    {.kind = FL_OP_ALLOCATE,
     .word = "allocate",
     .operands = {OPERAND_SLOT, OPERAND_BYTES},
     .fills_slot = true,
     .makes_object = true,
     .may_lack_room = true,
     .is_of_threads = true},
    {.kind = FL_OP_FREE, .word = "free", .operands = {OPERAND_SLOT}, .empties_slot = true, .is_of_threads = true},
    {.kind = FL_OP_REALLOCATE,
     .word = "reallocate",
     .operands = {OPERAND_SLOT, OPERAND_BYTES},
     .makes_object = true,
     .may_lack_room = true,
     .is_of_threads = true},
    {.kind = FL_OP_LINK, .word = "link", .operands = {OPERAND_SLOT, OPERAND_FIELD, OPERAND_TARGET}, .is_of_graph = true},
    {.kind = FL_OP_UNLINK, .word = "unlink", .operands = {OPERAND_SLOT, OPERAND_FIELD}, .is_of_graph = true},
    {.kind = FL_OP_DROP, .word = "drop", .operands = {OPERAND_SLOT}, .empties_slot = true, .is_of_graph = true},
    {.kind = FL_OP_LOAD,
     .word = "load",
     .operands = {OPERAND_SLOT, OPERAND_FROM, OPERAND_FIELD},
     .fills_slot = true,
     .is_of_graph = true},
    {.kind = FL_OP_BEGIN, .word = "begin", .bounds_transaction = true},
    {.kind = FL_OP_COMMIT, .word = "commit", .may_lack_room = true, .bounds_transaction = true},
    {.kind = FL_OP_ABORT, .word = "abort", .bounds_transaction = true},
    {.kind = FL_OP_WRITE, .word = "write", .operands = {OPERAND_SLOT, OPERAND_START, OPERAND_LENGTH}, .may_lack_room = true},
};
const size_t OPERATION_COUNT = sizeof OPERATIONS / sizeof OPERATIONS[0];

const char *operand_name(enum operand operand) {
    static const char *const NAMES[] = {
        [OPERAND_NONE] = "",         [OPERAND_SLOT] = "SLOT", [OPERAND_BYTES] = "BYTES", [OPERAND_FIELD] = "FIELD",
        [OPERAND_TARGET] = "TARGET", [OPERAND_FROM] = "FROM", [OPERAND_START] = "START", [OPERAND_LENGTH] = "LENGTH",
    };
    return NAMES[operand];
}

const struct operation *operation_of(enum fl_operation kind) {
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        if (OPERATIONS[i].kind == kind)
            return &OPERATIONS[i];
    return NULL;
}

bool is_line(const struct operation *operation) { return operation->operands[0] != OPERAND_NONE || operation->bounds_transaction; }

const struct operation *find_operation(const char *word) {
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        if (is_line(&OPERATIONS[i]) && strcmp(OPERATIONS[i].word, word) == 0)
            return &OPERATIONS[i];
    return NULL;
}

bool has_slot(enum fl_operation kind) {
    const struct operation *operation = operation_of(kind);
    return operation != NULL && operation->operands[0] != OPERAND_NONE;
}
