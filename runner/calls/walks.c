/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: calls of the C library that look through folders by themselves. The other interposed calls do not see what they
 * open.
 *
 *     glob         gets functions of ours (GLOB_ALTDIRFUNC): names in order, of whatever the target sees now
 *     nftw, ftw    walk a private copy, whose order says nothing of the image; the target is shown its own paths
 *     fts_open     shows paths in structures of its own, so a heap that is walked by it cannot be followed: the run says so
 */
#undef _FORTIFY_SOURCE
#include "calls/calls.h"
#include <dirent.h>
#include <ftw.h>
#include <fts.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

/* ---- glob ----------------------------------------------------------------------------------------------------------------- */

static void *open_for_glob(const char *name) { return opendir(name); }
static struct dirent *read_for_glob(void *directory) { return readdir(directory); }
static void close_for_glob(void *directory) { closedir(directory); }
static int stat_for_glob(const char *name, struct stat *info) { return stat(name, info); }
static int lstat_for_glob(const char *name, struct stat *info) { return lstat(name, info); }

INTERPOSED int glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found) {
    if (!vfs_is_active() || (flags & GLOB_ALTDIRFUNC) != 0)
        return REAL(glob)(pattern, flags, on_error, found);
    found->gl_opendir = open_for_glob;
    found->gl_readdir = read_for_glob;
    found->gl_closedir = close_for_glob;
    found->gl_stat = stat_for_glob;
    found->gl_lstat = lstat_for_glob;
    int result = REAL(glob)(pattern, flags | GLOB_ALTDIRFUNC, on_error, found);
    found->gl_flags &= ~GLOB_ALTDIRFUNC; /* the target did not ask for it */
    return result;
}

_Static_assert(sizeof(glob_t) == sizeof(glob64_t), "the same on x86-64");

INTERPOSED int glob64(const char *pattern, int flags, int (*on_error)(const char *, int), glob64_t *found) {
    return glob(pattern, flags, on_error, (glob_t *)found);
}

/* ---- nftw ----------------------------------------------------------------------------------------------------------------- */

/* A walk of a folder in the copy. */
struct walk {
    __nftw_func_t visit; /* the target's; null: ftw's */
    __ftw_func_t visit_plainly;
    const char *name; /* of the folder, as the target gave it */
    int name_length, copy_length;
};
static _Thread_local const struct walk *walk; /* that goes on in this thread */

/* The path as the target would see it. */
static void show(const char *path, char shown[PATH_MAX]) {
    snprintf(shown, PATH_MAX, "%.*s%s", walk->name_length, walk->name, path + walk->copy_length);
}

static int visit(const char *path, const struct stat *info, int kind, struct FTW *place) {
    char shown[PATH_MAX];
    show(path, shown);
    const char *last = strrchr(shown, '/');
    struct FTW shown_place = {.base = last != NULL && last[1] != '\0' ? (int)(last + 1 - shown) : 0, .level = place->level};
    return walk->visit(shown, info, kind, &shown_place);
}

static int visit_plainly(const char *path, const struct stat *info, int kind) {
    char shown[PATH_MAX];
    show(path, shown);
    return walk->visit_plainly(shown, info, kind);
}

/* Where the folder is now: of one in the heap, in a copy. */
static struct walk walk_of(const char *name, struct vfs_path *path) {
    vfs_locate_for_change(AT_FDCWD, name, path);
    size_t length = strlen(name);
    while (length > 0 && name[length - 1] == '/')
        length--;
    return (struct walk){.name = name, .name_length = (int)length, .copy_length = (int)strlen(path->path)};
}

INTERPOSED int nftw(const char *name, __nftw_func_t function, int descriptors, int flags) {
    struct vfs_path path;
    struct walk this = walk_of(name, &path);
    if (!path.is_heap)
        return REAL(nftw)(path.path, function, descriptors, flags);
    this.visit = function;
    const struct walk *outer = walk;
    walk = &this;
    int result = REAL(nftw)(path.path, visit, descriptors, flags);
    walk = outer;
    return result;
}

INTERPOSED int ftw(const char *name, __ftw_func_t function, int descriptors) {
    struct vfs_path path;
    struct walk this = walk_of(name, &path);
    if (!path.is_heap)
        return REAL(ftw)(path.path, function, descriptors);
    this.visit_plainly = function;
    const struct walk *outer = walk;
    walk = &this;
    int result = REAL(ftw)(path.path, visit_plainly, descriptors);
    walk = outer;
    return result;
}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "the same on x86-64");

INTERPOSED int nftw64(const char *name, __nftw64_func_t function, int descriptors, int flags) {
    return nftw(name, (__nftw_func_t)function, descriptors, flags);
}

INTERPOSED int ftw64(const char *name, __ftw64_func_t function, int descriptors) {
    return ftw(name, (__ftw_func_t)function, descriptors);
}

/* ---- fts ------------------------------------------------------------------------------------------------------------------ */

static void refuse_in_heap(char *const *names) {
    struct vfs_path path;
    for (; *names != NULL; names++) {
        vfs_locate(AT_FDCWD, *names, &path);
        if (path.is_heap)
            vfs_refuse("fts_open in the heap folder is not followed; use opendir, scandir, glob or nftw");
    }
}

INTERPOSED FTS *fts_open(char *const *names, int options, int (*compare)(const FTSENT **, const FTSENT **)) {
    refuse_in_heap(names);
    return REAL(fts_open)(names, options, compare);
}

INTERPOSED FTS64 *fts64_open(char *const *names, int options, int (*compare)(const FTSENT64 **, const FTSENT64 **)) {
    refuse_in_heap(names);
    return REAL(fts64_open)(names, options, compare);
}
