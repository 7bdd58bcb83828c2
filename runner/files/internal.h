/* SPDX-License-Identifier: Apache-2.0
 *
 * files/internal.h - between the files of this folder.
 */
#ifndef FAULTLINE_FILES_INTERNAL_H
#define FAULTLINE_FILES_INTERNAL_H

#include "files/files.h"

struct vfs {
    enum vfs_mode mode;
    char base[PATH_MAX], copy[PATH_MAX];
    size_t base_length, copy_length;
    struct tree *tree;
    void (*failure)(const char *message);
    bool has_sync, is_sync_known;
};
extern struct vfs vfs;

/* A private view of the heap cannot be kept up. */
_Noreturn void vfs_give_up(const char *what, int error);

int raw_stat(int fd, struct stat *info);
int raw_open(const char *path, int flags);
bool vfs_is_root(int fd); /* the descriptor leads to the image's folder */

struct mapping {
    uintptr_t start, end;
    uint64_t offset; /* of start in the file */
    uint64_t device, inode;
    int protection;   /* as the target asked */
    bool is_shared;   /* as the target asked */
    bool is_stand_in; /* a private mapping instead of a shared one */
};
extern struct mappings {
    struct mapping *list;
    size_t count, capacity;
} mappings;

void mappings_have_changed(void);
uint32_t mapping_file(const struct mapping *mapping); /* as vfs_file_number */

typedef bool (*page_run)(const struct mapping *mapping, uintptr_t start, uintptr_t end); /* false: stop */
/* Calls run for each row of OS pages in [start, end) of the private mapping that were stored to. False: it stopped. */
bool mappings_visit_modified(const struct mapping *mapping, uintptr_t start, uintptr_t end, page_run run);
bool mapping_is_modified(const struct mapping *mapping, uintptr_t start, uintptr_t end);

#endif
