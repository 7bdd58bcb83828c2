/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c - free ranges, of blocks in an arena or of chunks in the heap, ordered by size (§3.4).
 *
 * A treap: a search tree by (count, first) that is a heap by a priority, here a hash of first, so that its shape is a
 * function of the set of ranges alone.
 */
#include "types.h"

static bool precedes(const struct nvm_vheader *a, const struct nvm_vheader *b) {
    return a->count != b->count ? a->count < b->count : a->first < b->first;
}

static uint64_t priority(const struct nvm_vheader *range) {
    uint64_t x = range->first + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Everything in root that precedes pivot goes to *less, the rest to *more. */
static void split(struct nvm_vheader *root, const struct nvm_vheader *pivot, struct nvm_vheader **less, struct nvm_vheader **more) {
    while (root != NULL) {
        if (precedes(root, pivot)) {
            *less = root;
            less = &root->right;
            root = root->right;
        } else {
            *more = root;
            more = &root->left;
            root = root->left;
        }
    }
    *less = *more = NULL;
}

/* All of less precedes all of more. */
static struct nvm_vheader *join(struct nvm_vheader *less, struct nvm_vheader *more) {
    struct nvm_vheader *root, **hole = &root;
    while (less != NULL && more != NULL) {
        if (priority(less) > priority(more)) {
            *hole = less;
            hole = &less->right;
            less = less->right;
        } else {
            *hole = more;
            hole = &more->left;
            more = more->left;
        }
    }
    *hole = less != NULL ? less : more;
    return root;
}

void nvm_tree_insert(struct nvm_vheader **root, struct nvm_vheader *range) {
    while (*root != NULL && priority(*root) >= priority(range))
        root = precedes(*root, range) ? &(*root)->right : &(*root)->left;
    split(*root, range, &range->left, &range->right);
    *root = range;
}

void nvm_tree_remove(struct nvm_vheader **root, struct nvm_vheader *range) {
    while (*root != range) {
        nvm_assert(*root != NULL);
        root = precedes(*root, range) ? &(*root)->right : &(*root)->left;
    }
    *root = join(range->left, range->right);
    range->left = range->right = NULL;
}

/* The smallest range of at least so many blocks or chunks, the first of these by address. */
struct nvm_vheader *nvm_tree_best_fit(struct nvm_vheader *root, uint32_t count) {
    struct nvm_vheader *best = NULL;
    while (root != NULL) {
        if (root->count >= count) {
            best = root;
            root = root->left;
        } else {
            root = root->right;
        }
    }
    return best;
}
