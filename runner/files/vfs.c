/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps what a target does to its heap folder away from the crash image. The target does not notice.
 *
 * ISOLATE is for the life that runs on the image itself. Heap files are opened for reading only, whatever the target asks for. A
 * shared mapping becomes a private one (copy on write). It stands in for the shared one as long as nothing else looks at the
 * same bytes. What private mappings cannot show truthfully ends the mode: a second mapping of the same bytes, a resize, a write
 * by system call, a change of names, a thread or a process that would share the memory. Then vfs_materialise() (private_copy.c)
 * copies the folder, stores what private mappings hold into the copy, puts shared mappings of the copy where they were, and lets
 * open descriptors lead to the copy.
 *
 * REDIRECT: paths in the heap folder lead to the copy; everything else is the kernel's. The target goes on seeing the paths that
 * it was given. TRACK: nothing is redirected, mappings are remembered, and vfs_materialise() moves this process to a copy.
 *
 * System calls that a target makes directly are not seen here. They cannot write through descriptors that were opened here, and
 * the server watches the image for anything else (serve/serve.c).
 */
#include "files/internal.h"
#include "base/in_process.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "persist.h"

#define WANTED_MAX 1024

struct vfs vfs;
static int wanted[WANTED_MAX]; /* flags of open + 1; 0: not opened by the target */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

enum vfs_mode vfs_mode(void) { return vfs.mode; }
bool vfs_is_active(void) { return vfs.mode >= VFS_ISOLATE; }
bool vfs_shows_image(void) { return vfs.mode == VFS_ISOLATE || vfs.mode == VFS_IN_PROCESS; }
void vfs_on_failure(void (*failure)(const char *message)) { vfs.failure = failure; }
void vfs_lock(void) { pthread_mutex_lock(&mutex); }
void vfs_unlock(void) { pthread_mutex_unlock(&mutex); }

void vfs_give_up(const char *what, int error) {
    char text[PATH_MAX + 256];
    snprintf(text, sizeof text, "%s: private copy of the heap: %s: %s", vfs.copy, what, strerror(error));
    if (vfs.failure != NULL)
        vfs.failure(text);
    fail(EXIT_INFRASTRUCTURE, "%s", text);
}

void vfs_refuse(const char *what) {
    inprocess_leave("makes a call that is not followed");
    if (vfs.failure != NULL)
        vfs.failure(what);
    fail(EXIT_INFRASTRUCTURE, "%s", what);
}

const char *vfs_folder(void) { return vfs.base; }
const struct tree *vfs_tree(void) { return vfs.tree; }

void vfs_set(enum vfs_mode mode, const char *base, const char *copy, struct tree *tree) {
    vfs.mode = mode;
    vfs.tree = tree;
    vfs.base_length = strlen(base);
    vfs.copy_length = strlen(copy);
    if (vfs.base_length >= PATH_MAX || vfs.copy_length >= PATH_MAX)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", base);
    memcpy(vfs.base, base, vfs.base_length + 1);
    memcpy(vfs.copy, copy, vfs.copy_length + 1);
}

int raw_stat(int fd, struct stat *info) { return (int)syscall(SYS_fstat, fd, info); }

int raw_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0); }

/* ---- paths ------------------------------------------------------------------------------------------------------------ */

/* The absolute path without `.`, `..` and `//`; false when it does not fit. Links are not followed: heaps have none. */
static bool normalise(const char *start, const char *path, char out[PATH_MAX]) {
    size_t length = 0;
    out[0] = '\0';
    for (int part = 0; part < 2; part++) {
        const char *rest = part == 0 ? (path[0] == '/' ? "" : start) : path;
        while (*(rest += strspn(rest, "/")) != '\0') {
            size_t name = strcspn(rest, "/");
            if (name == 2 && rest[0] == '.' && rest[1] == '.')
                while (length > 0 && out[--length] != '/')
                    continue;
            else if (name != 1 || rest[0] != '.') {
                if (length + name + 2 > PATH_MAX)
                    return false;
                out[length++] = '/';
                memcpy(out + length, rest, name);
                length += name;
            }
            out[length] = '\0';
            rest += name;
        }
    }
    return true;
}

/* Where a relative path starts. */
static bool start_folder(int folder, char out[PATH_MAX]) {
    if (folder == AT_FDCWD)
        return syscall(SYS_getcwd, out, PATH_MAX) > 0;
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
    if (length <= 0)
        return false;
    out[length] = '\0';
    return true;
}

static bool is_below(const char *path, const char *folder, size_t length) {
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

void vfs_locate(int folder, const char *path, struct vfs_path *located) {
    located->folder = folder;
    located->path = path;
    located->is_heap = false;
    if (!vfs_is_active() || path == NULL || path[0] == '\0')
        return;
    char start[PATH_MAX] = "", whole[PATH_MAX];
    if ((path[0] != '/' && !start_folder(folder, start)) || !normalise(start, path, whole))
        return;
    const char *rest;
    if (is_below(whole, vfs.base, vfs.base_length))
        rest = whole + vfs.base_length;
    else if (vfs.mode == VFS_REDIRECT && is_below(whole, vfs.copy, vfs.copy_length))
        rest = whole + vfs.copy_length; /* relative to a folder of the heap that was opened */
    else
        return;
    located->is_heap = true;
    located->folder = AT_FDCWD;
    located->path = located->buffer;
    const char *root = vfs.mode == VFS_REDIRECT ? vfs.copy : vfs.base;
    if (snprintf(located->buffer, PATH_MAX, "%s%s", root, rest) >= PATH_MAX)
        vfs_give_up("a path", ENAMETOOLONG);
}

/* Devices are no files, and what /proc and /sys show is the kernel's. POSIX shared memory is a file like others: it outlives a run. */
static bool is_of_kernel(const char *path) {
    return is_below(path, "/proc", 5) || is_below(path, "/sys", 4) || (is_below(path, "/dev", 4) && !is_below(path, "/dev/shm", 8));
}

void vfs_refuse_outside(int folder, const char *path) {
    char start[PATH_MAX] = "", whole[PATH_MAX], text[PATH_MAX + 128];
    if (!vfs_is_active() || path == NULL || path[0] == '\0')
        return;
    if ((path[0] != '/' && !start_folder(folder, start)) || !normalise(start, path, whole))
        return;
    if (is_below(whole, vfs.base, vfs.base_length) || is_below(whole, vfs.copy, vfs.copy_length) || is_of_kernel(whole))
        return;
    snprintf(text, sizeof text, "it changes %s, which is no file of the heap: no crash image holds what it keeps there", whole);
    vfs_refuse(text);
}

void vfs_target_path(const struct vfs_path *located, char out[PATH_MAX]) {
    size_t root = vfs.mode == VFS_REDIRECT ? vfs.copy_length : vfs.base_length;
    snprintf(out, PATH_MAX, "%s%s", vfs.base, located->buffer + root);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------------ */

static const struct tree_entry *entry_of(int fd) {
    struct stat info;
    return raw_stat(fd, &info) == 0 ? tree_find(vfs.tree, info.st_dev, info.st_ino) : NULL;
}

bool vfs_is_root(int fd) {
    struct stat info;
    return raw_stat(fd, &info) == 0 && info.st_dev == vfs.tree->device && info.st_ino == vfs.tree->folder_inode;
}

bool vfs_is_protected(int fd) {
    int saved = errno;
    bool is_protected = vfs_shows_image() && fd >= 0 && (entry_of(fd) != NULL || vfs_is_root(fd));
    errno = saved;
    return is_protected;
}

static bool below_root(const char *path, char out[PATH_MAX]) {
    size_t root = vfs.mode == VFS_REDIRECT ? vfs.copy_length : vfs.base_length;
    if (!is_below(path, vfs.mode == VFS_REDIRECT ? vfs.copy : vfs.base, root) || path[root] != '/')
        return false;
    snprintf(out, PATH_MAX, "%s", path + root + 1);
    return true;
}

bool vfs_heap_path(int fd, char out[PATH_MAX]) {
    char link[64], whole[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, whole, sizeof whole - 1);
    whole[length < 0 ? 0 : length] = '\0';
    return below_root(whole, out);
}

bool vfs_located_heap_path(const struct vfs_path *located, char out[PATH_MAX]) {
    return located->is_heap && below_root(located->buffer, out);
}

int vfs_wanted_flags(int fd) { return fd >= 0 && fd < WANTED_MAX && wanted[fd] != 0 ? wanted[fd] - 1 : -1; }

void vfs_note_wanted(int fd, int flags) {
    if (fd >= 0 && fd < WANTED_MAX)
        wanted[fd] = flags + 1;
}

bool vfs_has_sync(void) {
    if (!vfs.is_sync_known) {
        int fd = -1;
        for (size_t i = 0; fd < 0 && i < vfs.tree->count; i++) {
            char path[PATH_MAX];
            if (S_ISREG(vfs.tree->entries[i].mode) && vfs.tree->entries[i].bytes > 0 &&
                snprintf(path, sizeof path, "%s/%s", vfs.base, vfs.tree->entries[i].path) < PATH_MAX)
                fd = raw_open(path, O_RDONLY);
        }
        long at = fd < 0 ? -1 : syscall(SYS_mmap, NULL, 1, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
        vfs.has_sync = at != -1;
        if (at != -1)
            syscall(SYS_munmap, at, 1);
        if (fd >= 0)
            syscall(SYS_close, fd);
        vfs.is_sync_known = fd >= 0;
    }
    return vfs.has_sync;
}

/* ---- what is there now ------------------------------------------------------------------------------------------------- */

static _Thread_local bool is_listing;

bool vfs_is_listing(void) { return is_listing; }

int vfs_list(struct tree *tree) {
    is_listing = true;
    int error = tree_list(vfs.base, tree); /* its calls find where the folder is */
    is_listing = false;
    return error;
}
