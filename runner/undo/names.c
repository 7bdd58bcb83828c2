/* SPDX-License-Identifier: Apache-2.0
 *
 * What an in-process run did to the names in the heap folder, so that it can be taken back:
 *
 *     made       removed again
 *     removed    a file of the image is put aside, in a folder that no target knows, and comes back: it is the same file all the
 *                time, with its content, mappings and descriptors. One that the run made is removed
 *     renamed    named back; a file whose name it takes is removed first
 *
 * The last change is taken back first. The log lies in memory that worker and server share, so the server can take back what a
 * run did that died. An entry is written before its change is made, so the last entry may be of a change that was not made. To
 * take it back does nothing: what it would have moved is not there.
 *
 * Folders, links and whatever else has a name are not followed: such a run is done in the isolated engine.
 */
#include "undo/undo.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_CHANGES 4096u
#define NAME_BYTES 256u

enum change_kind { MADE, PUT_ASIDE, RENAMED };

struct change {
    enum change_kind kind;
    char name[NAME_BYTES]; /* in the heap folder, before the change; MADE: after it */
    char new_name[NAME_BYTES]; /* RENAMED */
};

struct shared {
    uint32_t count;
    struct change changes[MOST_CHANGES];
};

static struct {
    struct shared *shared;
    const char *base, *aside;
} names;

void names_map(const char *base, const char *aside) {
    names.base = base;
    names.aside = aside;
    names.shared = map_or_fail(sizeof *names.shared, MAP_SHARED, -1, "in-process runs");
}

bool names_are_changed(void) { return names.shared != NULL && names.shared->count > 0; }

/* ---- in the worker, before changes ---------------------------------------------------------------------------------------- */

static void copy_name(char name[NAME_BYTES], const struct vfs_path *path) {
    char whole[PATH_MAX];
    if (!vfs_located_heap_path(path, whole) || strlen(whole) >= NAME_BYTES)
        inprocess_leave("makes, removes or renames a file with a long name");
    memcpy(name, whole, strlen(whole) + 1);
}

static uint32_t note(enum change_kind kind, const struct vfs_path *path, const struct vfs_path *new_path) {
    uint32_t number = names.shared->count;
    if (number >= MOST_CHANGES) {
        inprocess_leave("changes names more than 4096 times");
        abort(); /* only in-process runs come here */
    }
    struct change *change = &names.shared->changes[number];
    change->kind = kind;
    copy_name(change->name, path);
    if (new_path != NULL)
        copy_name(change->new_name, new_path);
    __atomic_store_n(&names.shared->count, number + 1, __ATOMIC_RELEASE);
    return number;
}

void names_will_make(const struct vfs_path *path) { note(MADE, path, NULL); }

static bool look_at(const struct vfs_path *path, struct stat *info) {
    return syscall(SYS_newfstatat, path->folder, path->path, info, AT_SYMLINK_NOFOLLOW) == 0;
}

static void aside_path(char path[PATH_MAX], uint32_t number) { snprintf(path, PATH_MAX, "%s/%u", names.aside, number); }

/* A file that is there. */
static int remove_file(const struct vfs_path *path, const struct stat *info) {
    char aside[PATH_MAX];
    if (tree_find(vfs_tree(), info->st_dev, info->st_ino) == NULL)
        return (int)syscall(SYS_unlinkat, path->folder, path->path, 0);
    aside_path(aside, note(PUT_ASIDE, path, NULL));
    if (syscall(SYS_renameat2, path->folder, path->path, AT_FDCWD, aside, RENAME_NOREPLACE) != 0)
        inprocess_leave("removes a file that cannot be put aside");
    return 0;
}

int names_unlink(const struct vfs_path *path, int flags) {
    struct stat info;
    if (!look_at(path, &info) || S_ISDIR(info.st_mode) != ((flags & AT_REMOVEDIR) != 0))
        return (int)syscall(SYS_unlinkat, path->folder, path->path, flags); /* says why it cannot be */
    if (!S_ISREG(info.st_mode) || inprocess_is_plain())
        inprocess_leave(S_ISREG(info.st_mode) ? "changes files, without hooks" : "removes what is no file");
    return remove_file(path, &info);
}

int names_rename(const struct vfs_path *from, const struct vfs_path *to, unsigned flags) {
    struct stat info, other;
    if (!from->is_heap || !to->is_heap || (flags & ~RENAME_NOREPLACE) != 0)
        inprocess_leave("moves a file into or out of its heap, or exchanges two");
    bool is_there = look_at(from, &info), replaces = look_at(to, &other);
    if (is_there && (!S_ISREG(info.st_mode) || (replaces && !S_ISREG(other.st_mode))))
        inprocess_leave("renames what is no file");
    bool is_same = is_there && replaces && info.st_dev == other.st_dev && info.st_ino == other.st_ino;
    if (!is_there || is_same || (replaces && (flags & RENAME_NOREPLACE) != 0))
        return (int)syscall(SYS_renameat2, from->folder, from->path, to->folder, to->path, flags); /* changes nothing */
    if (inprocess_is_plain())
        inprocess_leave("changes files, without hooks");
    if (replaces && remove_file(to, &other) != 0)
        inprocess_leave("replaces a file that cannot be removed");
    note(RENAMED, from, to);
    return (int)syscall(SYS_renameat2, from->folder, from->path, to->folder, to->path, RENAME_NOREPLACE);
}

/* ---- taking them back ------------------------------------------------------------------------------------------------------ */

/* Where there is nothing by the first name, the change was not made, or what it made was removed later. */
static void move_back(const char *from, const char *to) {
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) != 0 && errno != ENOENT)
        fail(EXIT_INFRASTRUCTURE, "%s: the image cannot get its file back: %s", to, strerror(errno));
}

/* The log is where a target may overwrite it. */
static bool leads_out(const char *name) { return strncmp(name, "../", 3) == 0 || strstr(name, "/../") != NULL; }

static void take_back(uint32_t number) {
    struct change *change = &names.shared->changes[number];
    char path[PATH_MAX], other[PATH_MAX];
    change->name[NAME_BYTES - 1] = change->new_name[NAME_BYTES - 1] = '\0';
    if (leads_out(change->name) || leads_out(change->new_name))
        fail(EXIT_INFRASTRUCTURE, "the image cannot get its names back: the log of an in-process run is damaged");
    snprintf(path, sizeof path, "%s/%s", names.base, change->name);
    switch (change->kind) {
    case MADE:
        if (syscall(SYS_unlinkat, AT_FDCWD, path, 0) != 0 && errno != ENOENT)
            fail(EXIT_INFRASTRUCTURE, "%s: what an in-process run made cannot be removed: %s", path, strerror(errno));
        return;
    case PUT_ASIDE:
        aside_path(other, number);
        move_back(other, path);
        return;
    case RENAMED:
        snprintf(other, sizeof other, "%s/%s", names.base, change->new_name);
        move_back(other, path);
        return;
    }
}

void names_take_back(void) {
    for (uint32_t number = names.shared->count < MOST_CHANGES ? names.shared->count : MOST_CHANGES; number-- > 0;)
        take_back(number);
    names.shared->count = 0;
}
