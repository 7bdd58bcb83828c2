/* SPDX-License-Identifier: Apache-2.0
 *
 * files/files.h - what the target's file calls reach: the heap folder itself, or a private view of it (vfs.c).
 */
#ifndef FAULTLINE_FILES_H
#define FAULTLINE_FILES_H

#include "base/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- vfs.c: modes, paths, descriptors */
enum vfs_mode {
    VFS_PASS,     /* calls reach the files they name */
    VFS_TRACK,    /* the same, and mappings are remembered */
    VFS_ISOLATE,  /* the heap folder is seen, never changed: the first change makes a copy */
    VFS_REDIRECT, /* calls that name the heap folder reach the copy */
    VFS_IN_PROCESS, /* the image itself is used, and what happens to it is taken back later (undo/) */
};
enum vfs_mode vfs_mode(void);
/* The heap folder as the target sees it, where a copy of it may be made, and what is in it. */
void vfs_set(enum vfs_mode mode, const char *base, const char *copy, struct tree *tree);
const char *vfs_folder(void); /* empty before vfs_set */
/* Called with one line when a private view cannot be kept up; must not return. */
void vfs_on_failure(void (*failure)(const char *message));
/* The heap folder's file system has MAP_SYNC; remembered once there is a file to ask with. */
bool vfs_has_sync(void);

/* A path as the target named it, and what the call is to use. */
struct vfs_path {
    int folder;       /* descriptor that path is relative to */
    const char *path;
    bool is_heap;     /* it names something in the heap folder, or the folder */
    char buffer[PATH_MAX];
};

/* The target does what cannot be followed: this run says nothing. In words. */
_Noreturn void vfs_refuse(const char *what);

bool vfs_is_active(void); /* ISOLATE, REDIRECT or IN_PROCESS: paths matter */
bool vfs_shows_image(void); /* ISOLATE or IN_PROCESS: what changes files has to be noticed */
void vfs_locate(int folder, const char *path, struct vfs_path *located);
/* For a call that would make, empty or write a file: what lies outside of the heap folder outlives the run, and a later run may believe
 * it. Such a run cannot be judged; it ends. */
void vfs_refuse_outside(int folder, const char *path);
/* The path under which the target knows what was located, which is in the heap. */
void vfs_target_path(const struct vfs_path *located, char out[PATH_MAX]);
/* Whether the descriptor is one of a heap file (or folder) that must not be changed: ISOLATE and IN_PROCESS. */
bool vfs_is_protected(int fd);
/* The path in the heap folder of what the descriptor leads to, and of what was located; false: it is not in there. */
bool vfs_heap_path(int fd, char out[PATH_MAX]);
bool vfs_located_heap_path(const struct vfs_path *located, char out[PATH_MAX]);
/* What the image's folder holds. */
const struct tree *vfs_tree(void);
/* What the heap folder holds now, as the target sees it. 0 or errno; the tree is to be freed. */
int vfs_list(struct tree *tree);
bool vfs_is_listing(void); /* in this thread: folders are the C library's to list */
/* The access that the target asked for when it opened the protected file; -1: unknown. */
int vfs_wanted_flags(int fd);
void vfs_note_wanted(int fd, int flags);

void vfs_lock(void);
void vfs_unlock(void);

/* ---- mappings.c */
/* Called whenever the heap's mappings have changed. */
void vfs_on_mappings(void (*changed)(void));
bool vfs_is_heap_mapped(void);
/* A private mapping stands in for a shared one of the same file part. */
bool vfs_overlaps(int fd, uint64_t offset, uint64_t bytes);
/* Stores were made to private mappings in this range, which would be lost by unmapping it. */
bool vfs_is_modified(uintptr_t address, uint64_t bytes);
/* A file of the heap is mapped from somewhere in this range on. */
bool vfs_maps_in(uintptr_t address, uint64_t bytes);
/* The range holds private mappings that stand in for shared ones. */
bool vfs_stands_in(uintptr_t address, uint64_t bytes);
void vfs_note_mapping(uintptr_t address, uint64_t bytes, int fd, uint64_t offset, bool is_shared, int protection);
void vfs_note_kept(uintptr_t address, uint64_t bytes, uint64_t device, uint64_t inode, uint64_t offset, bool is_shared,
                   int protection); /* the same, of a known file */
void vfs_forget_mapping(uintptr_t address, uint64_t bytes);
void vfs_forget_mappings(void);
void vfs_move_mapping(uintptr_t from, uint64_t old_bytes, uintptr_t to, uint64_t new_bytes);

/* A part of this process's memory that shows a file of the heap. */
struct vfs_view {
    uintptr_t start, end;
    uint64_t offset; /* of start in the file */
    uint32_t file; /* number that the engine gave the file; NO_FILE: none, recovery made it */
    uint64_t inode;
    bool is_shared; /* stores reach the file, as far as the target can see */
    int protection; /* that the target asked for */
};
bool vfs_view(size_t index, struct vfs_view *view); /* false: there are no more */
uint32_t vfs_file_number(int fd); /* NO_FILE: it leads to no file that the engine made */
/* The byte of the file (a path relative to the heap folder) in this process's memory; null when it is not mapped. *available:
 * how many bytes from there are mapped and inside the file. */
const uint8_t *vfs_address(const char *file, uint64_t offset, uint64_t *available);
/* Before the first of a row of those calls, during which the target changes no file. */
void vfs_look_anew(void);

/* ---- poison.c */
/* From now on these bytes of a file, whole OS pages, can be neither loaded nor stored; before, others could not. No bytes: all can. */
void vfs_poison(uint32_t file, uint64_t offset, uint64_t bytes);
bool vfs_has_poison(void);
bool vfs_is_poisoned(int fd, uint64_t offset, uint64_t bytes); /* of what is behind the descriptor */
void vfs_cover_poison(void); /* after the mappings have changed */
bool vfs_maps_poison(uintptr_t address, uint64_t bytes);

/* ---- stray.c */
void vfs_stray(uint32_t file, uint64_t offset, uint64_t word); /* from now on vfs_store_stray stores it there */
void vfs_no_stray(void);
bool vfs_has_stray(void);
bool vfs_store_stray(void); /* false: it is kept out: no mapping of this process's shows the place and can be stored to */

/* ---- private_copy.c */
/* From now on this process works on a private copy of the heap folder, with its descriptors and mappings. */
void vfs_materialise(void);
/* As vfs_locate, for a call that changes what is there: makes the private copy first. */
void vfs_locate_for_change(int folder, const char *path, struct vfs_path *located);
/* Makes the private copy if fd is protected: for calls that change what is behind fd. */
void vfs_before_change(int fd);
/* Makes the private copy if fd's content was changed through mappings: for calls that read behind fd. */
void vfs_before_read(int fd);

#endif
