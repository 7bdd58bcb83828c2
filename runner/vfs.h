/* SPDX-License-Identifier: Apache-2.0
 *
 * vfs.h - between vfs.c and the interposed calls.
 */
#ifndef FAULTLINE_VFS_H
#define FAULTLINE_VFS_H

#include "runner.h"
#include "loads.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Interposed calls are found by the adapter's dynamic linker. */
#define INTERPOSED __attribute__((visibility("default"), used))
/* What they share is expanded in each of them: CALLER is there the code of the target that calls. */
#define EXPANDED static inline __attribute__((always_inline))
#define CALLER __builtin_return_address(0)

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
/* The same for a call that changes what is there: makes the private copy first. */
void vfs_locate_for_change(int folder, const char *path, struct vfs_path *located);
/* The path under which the target knows what was located, which is in the heap. */
void vfs_target_path(const struct vfs_path *located, char out[PATH_MAX]);
/* Whether the descriptor is one of a heap file (or folder) that must not be changed: ISOLATE and IN_PROCESS. */
bool vfs_is_protected(int fd);
/* Makes the private copy if fd is protected: for calls that change what is behind fd. */
void vfs_before_change(int fd);
/* The path in the heap folder of what the descriptor leads to, and of what was located; false: it is not in there. */
bool vfs_heap_path(int fd, char out[PATH_MAX]);
bool vfs_located_heap_path(const struct vfs_path *located, char out[PATH_MAX]);
/* What the image's folder holds. */
const struct tree *vfs_tree(void);
/* What the heap folder holds now, as the target sees it. 0 or errno; the tree is to be freed. */
int vfs_list(struct tree *tree);
bool vfs_is_listing(void); /* in this thread: folders are the C library's to list */
/* Makes the private copy if fd's content was changed through mappings: for calls that read behind fd. */
void vfs_before_read(int fd);
/* The access that the target asked for when it opened the protected file; -1: unknown. */
int vfs_wanted_flags(int fd);
void vfs_note_wanted(int fd, int flags);
bool vfs_is_heap_mapped(void);

/* A private mapping stands in for a shared one of the same file part. */
bool vfs_overlaps(int fd, uint64_t offset, uint64_t bytes);
/* Stores were made to private mappings in this range, which would be lost by unmapping it. */
bool vfs_is_modified(uintptr_t address, uint64_t bytes);
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
    uint32_t file;   /* number that the engine gave the file; NO_FILE: none, recovery made it */
    uint64_t inode;
    bool is_shared;  /* stores reach the file, as far as the target can see */
    int protection;  /* that the target asked for */
};
bool vfs_view(size_t index, struct vfs_view *view); /* false: there are no more */
uint32_t vfs_file_number(int fd);                   /* NO_FILE: it leads to no file that the engine made */

/* ---- guard_pages.c: the system calls, for mappings of the target and the tester */
void *guarded_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int guarded_munmap(void *address, size_t bytes);
void *guarded_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *wanted);

/* ---- deaths.c */
struct deaths_told {
    struct fl_death death;
    struct fl_death_call calls[FL_DEATH_CALLS];
    char paths[4 * PATH_MAX];
    uint32_t path_bytes;
};
void deaths_want(bool is_wanted); /* in the server: of the runs from now on */
void deaths_tell(struct deaths_told *told);
void deaths_begin_life(void);
void deaths_note(int number, const siginfo_t *info, const void *context); /* for those who handle signals themselves */

/* ---- guard.c: for loads.c, in guarded runs */
void guard_map(void); /* once, in the server */
/* In the server: hooks are counted anew, over all lives of the run. seed: chooses which calls of those known well are looked at. */
void guard_begin_run(uint64_t seed);
void guard_forget(void);
void guard_close(const struct vfs_view *view);
void guard_announce(const void *address, uint64_t bytes);
/* Until the next announcement. */
void guard_open(const void *address, uint64_t bytes);
/* For a hook that accesses what it has announced; returns what it gives back, not 0. */
unsigned guard_lend(const void *address, uint64_t bytes);
void guard_take_back(unsigned lent);

/* The libc's own function of that name; REAL: looked up once. */
void *vfs_real(const char *name);
#define REAL(name)                                                                                                                 \
    (*({                                                                                                                           \
        static __typeof__(&name) real;                                                                                             \
        if (real == NULL)                                                                                                          \
            real = (__typeof__(real))vfs_real(#name);                                                                              \
        real;                                                                                                                      \
    }))

void vfs_lock(void);
void vfs_unlock(void);

#endif
