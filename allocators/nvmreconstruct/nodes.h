/* SPDX-License-Identifier: Apache-2.0
 *
 * nodes.h - the objects under test: all that a persistent object can point to. The application's bytes come behind a node.
 */
#ifndef NVRECONSTRUCT_NODES_H
#define NVRECONSTRUCT_NODES_H

#include "adapter.h"
#include "nvreconstruct.h"

/* Of one execution, in DRAM. */
struct Life {
    uint64_t number;
};
extern Life *current_life;

struct Node {
    virtual uint64_t identity() const = 0;
#ifdef NEXT_VERSION
    nv::transient<uint64_t> seen;
    uint64_t number;
#endif
    Node *fields[FL_GRAPH_FIELDS];
#ifndef NEXT_VERSION
    uint64_t number;             /* the slot that it was made for */
#endif
    nv::transient<Life *> life;  /* the reconstructor's */
#ifndef NEXT_VERSION
    nv::transient<uint64_t> seen; /* the execution in which it was made; zero in all others */
#endif
    uint64_t (*code)(uint64_t);
    const char *text;
#ifdef NEXT_VERSION
    uint64_t added[3];
#endif

    static void nv_reconstruct(Node *node);
    char *tail() { return reinterpret_cast<char *>(this + 1); }
    bool is_right(const nv::Type *type, uint64_t execution) const; /* every field is what it was made as, or of this execution */
};

struct Even : Node {
    uint64_t identity() const override;
};

struct Odd : Node {
    uint64_t identity() const override;
};

Node *new_node_of(void *place, uint64_t number);
void set_up(Node *node, uint64_t number, uint64_t execution);

#endif
