/* SPDX-License-Identifier: Apache-2.0
 *
 * nodes.cpp - see nodes.h.
 */
#include "nodes.h"

Life *current_life;

static uint64_t twice(uint64_t number) { return number * 2; }
static uint64_t thrice(uint64_t number) { return number * 3; }
NV_FUNCTION(twice);
NV_FUNCTION(thrice);

static const char EVEN[] = "even", ODD[] = "odd";

uint64_t Even::identity() const { return number * 2; }
uint64_t Odd::identity() const { return number * 2 + 1; }

static bool is_odd(const Node *node) { return node->number % 2 != 0; }

void set_up(Node *node, uint64_t number, uint64_t execution) {
    node->number = number;
    node->seen = execution;
    node->life = current_life;
    node->code = is_odd(node) ? thrice : twice;
    node->text = is_odd(node) ? ODD : EVEN;
}

/* What is zero is made anew, and nothing else, so that a transient that was not zeroed is seen. */
void Node::nv_reconstruct(Node *node) {
    if (node->life == nullptr)
        node->life = current_life;
    if (node->text == nullptr)
        node->text = is_odd(node) ? ODD : EVEN;
}

bool Node::is_right(const nv::Type *type, uint64_t execution) const {
    bool is_of_odd = is_odd(this);
    return type != nullptr && nv::name_hash(type->name) == nv::name_hash(is_of_odd ? "Odd" : "Even") &&
           identity() == number * 2 + is_of_odd && code(number) == number * (2 + is_of_odd) &&
           std::string_view(text) == (is_of_odd ? ODD : EVEN) && life == current_life && (seen == 0 || seen == execution);
}
