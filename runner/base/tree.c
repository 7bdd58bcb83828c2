/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing, copying and removing a heap folder. Copying happens inside the target's file calls, so it uses system calls and
 * static memory only: the target may hold its own heap's lock.
 */
#include "base/tree.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- listing ---------------------------------------------------------------------------------------------------------- */

static int join(char out[PATH_MAX], const char *folder, const char *name) {
    int length = snprintf(out, PATH_MAX, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name);
    return length < PATH_MAX ? 0 : ENAMETOOLONG;
}

static int list_entry(const char *folder, const char *relative, struct tree *tree);

static int list_folder(const char *folder, const char *relative, struct tree *tree) {
    char path[PATH_MAX], child[PATH_MAX];
    if (join(path, folder, relative) != 0)
        return ENAMETOOLONG;
    struct dirent **names;
    int count = scandir(relative[0] == '\0' ? folder : path, &names, NULL, alphasort);
    if (count < 0)
        return errno;
    int error = 0;
    for (int i = 0; i < count; i++) {
        bool is_self = strcmp(names[i]->d_name, ".") == 0 || strcmp(names[i]->d_name, "..") == 0;
        if (error == 0 && !is_self && (error = join(child, relative, names[i]->d_name)) == 0)
            error = list_entry(folder, child, tree);
        free(names[i]);
    }
    free(names);
    return error;
}

static int list_entry(const char *folder, const char *relative, struct tree *tree) {
    char path[PATH_MAX];
    struct stat info;
    if (join(path, folder, relative) != 0)
        return ENAMETOOLONG;
    if (lstat(path, &info) != 0)
        return errno;
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return EINVAL; /* a heap is made of files and folders */
    tree->entries = allocate_or_fail(tree->entries, (tree->count + 1) * sizeof *tree->entries);
    tree->entries[tree->count++] = (struct tree_entry){
        .path = strcpy(allocate_or_fail(NULL, strlen(relative) + 1), relative),
        .inode = info.st_ino,
        .number = NO_FILE,
        .mode = info.st_mode,
        .bytes = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0,
    };
    return S_ISDIR(info.st_mode) ? list_folder(folder, relative, tree) : 0;
}

int tree_list(const char *folder, struct tree *tree) {
    struct stat info;
    *tree = (struct tree){0};
    if (stat(folder, &info) != 0)
        return errno;
    tree->device = info.st_dev;
    tree->folder_inode = info.st_ino;
    return list_folder(folder, "", tree);
}

void tree_free(struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++)
        free(tree->entries[i].path);
    free(tree->entries);
    *tree = (struct tree){0};
}

const struct tree_entry *tree_find(const struct tree *tree, uint64_t device, uint64_t inode) {
    if (device != tree->device)
        return NULL;
    for (size_t i = 0; i < tree->count; i++)
        if (tree->entries[i].inode == inode)
            return &tree->entries[i];
    return NULL;
}

uint64_t tree_bytes(const struct tree *tree) {
    uint64_t sum = 0;
    for (size_t i = 0; i < tree->count; i++)
        sum += tree->entries[i].bytes;
    return sum;
}

/* ---- copying ---------------------------------------------------------------------------------------------------------- */

static int copy_range(int from, int to, off_t start, off_t end) {
    static char buffer[1 << 16];
    while (start < end) {
        size_t want = (size_t)(end - start) < sizeof buffer ? (size_t)(end - start) : sizeof buffer;
        ssize_t got = syscall(SYS_pread64, from, buffer, want, start);
        if (got <= 0)
            return got == 0 ? EIO : errno;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = syscall(SYS_pwrite64, to, buffer + done, (size_t)(got - done), start + done);
            if (put < 0)
                return errno;
            done += put;
        }
        start += got;
    }
    return 0;
}

static int copy_content(int from, int to) {
    struct stat info;
    if (syscall(SYS_fstat, from, &info) != 0 || syscall(SYS_ftruncate, to, info.st_size) != 0)
        return errno;
    off_t data, hole = 0;
    while ((data = syscall(SYS_lseek, from, hole, SEEK_DATA)) >= 0) {
        hole = syscall(SYS_lseek, from, data, SEEK_HOLE);
        if (hole < 0)
            return errno;
        int error = copy_range(from, to, data, hole);
        if (error != 0)
            return error;
    }
    return errno == ENXIO ? 0 : errno;
}

static int copy_file(const char *from, const char *to, struct tree_entry *entry) {
    int source = (int)syscall(SYS_openat, AT_FDCWD, from, O_RDONLY | O_CLOEXEC);
    if (source < 0)
        return errno;
    int target = (int)syscall(SYS_openat, AT_FDCWD, to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, (entry->mode & 0777) | 0600);
    int error = target < 0 ? errno : copy_content(source, target);
    struct stat info;
    entry->copy_inode = target >= 0 && syscall(SYS_fstat, target, &info) == 0 ? info.st_ino : 0;
    if (target >= 0)
        syscall(SYS_close, target);
    syscall(SYS_close, source);
    return error;
}

int tree_copy(struct tree *tree, const char *from, const char *to) {
    static char source[PATH_MAX], target[PATH_MAX];
    if (syscall(SYS_mkdir, to, 0700) != 0)
        return errno;
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_entry *entry = &tree->entries[i];
        if (join(source, from, entry->path) != 0 || join(target, to, entry->path) != 0)
            return ENAMETOOLONG;
        int error = 0;
        if (S_ISDIR(entry->mode))
            error = syscall(SYS_mkdir, target, (entry->mode & 0777) | 0700) == 0 ? 0 : errno;
        else
            error = copy_file(source, target, entry);
        if (error != 0)
            return error;
    }
    return 0;
}

/* ---- removing --------------------------------------------------------------------------------------------------------- */

static int remove_content(int folder) {
    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *listing = copy < 0 ? NULL : fdopendir(copy);
    if (listing == NULL)
        return errno;
    int error = 0;
    for (struct dirent *entry; error == 0 && (entry = readdir(listing)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(folder, entry->d_name, 0) == 0)
            continue;
        int below = errno == EISDIR ? openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (below < 0)
            return closedir(listing), errno;
        error = remove_content(below);
        close(below);
        if (error == 0 && unlinkat(folder, entry->d_name, AT_REMOVEDIR) != 0)
            error = errno;
    }
    closedir(listing);
    return error;
}

int tree_remove(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    int error = remove_content(fd);
    close(fd);
    return error != 0 ? error : rmdir(folder) == 0 ? 0 : errno;
}
