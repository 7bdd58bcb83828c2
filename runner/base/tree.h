/* SPDX-License-Identifier: Apache-2.0
 *
 * base/tree.h - listing, copying and removing a heap folder.
 */
#ifndef FAULTLINE_TREE_H
#define FAULTLINE_TREE_H

#include "base/base.h"

struct tree_entry {
    char *path; /* relative */
    uint64_t inode;
    uint64_t copy_inode; /* in the last copy that was made */
    uint32_t number;     /* that the engine gave the file; NO_FILE: none */
    mode_t mode;
    uint64_t bytes; /* when it was listed */
};
#define NO_FILE UINT32_MAX
struct tree {
    struct tree_entry *entries; /* parents before their children */
    size_t count;
    uint64_t device;
    uint64_t folder_inode;
};
int tree_list(const char *folder, struct tree *tree); /* 0 or errno */
void tree_free(struct tree *tree);
const struct tree_entry *tree_find(const struct tree *tree, uint64_t device, uint64_t inode);
uint64_t tree_bytes(const struct tree *tree);
/* Copies what tree lists from one folder into another, which is made, holes as holes. Uses no heap memory. 0 or errno. */
int tree_copy(struct tree *tree, const char *from, const char *to);
int tree_remove(const char *folder); /* 0 or errno; a folder that is not there is removed */

#endif
