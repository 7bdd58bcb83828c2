/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: calls that name files. Names in the heap folder are looked up in the image until a call would change something,
 * then in the private copy. In-process runs change the image itself (names.c, kept_mappings.c).
 */
#undef _FORTIFY_SOURCE
#include "calls/calls.h"
#include "loads/loads.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a call that changed what a name leads to; result: what it answered. */
static int record_effect(enum fl_event_effect effect, const struct vfs_path *path, uint64_t bytes, int result) {
    char name[PATH_MAX];
    if (events_are_recorded() && result == 0 && vfs_located_heap_path(path, name))
        events_file(effect, 0, bytes, name, NULL);
    return result;
}

static int record_rename(const struct vfs_path *from, const struct vfs_path *to, unsigned flags, int result) {
    char name[PATH_MAX], new_name[PATH_MAX];
    if (!events_are_recorded() || result != 0 || !(from->is_heap || to->is_heap))
        return result;
    if ((flags & ~RENAME_NOREPLACE) == 0 && vfs_located_heap_path(from, name) && vfs_located_heap_path(to, new_name))
        events_file(FL_DID_RENAME, 0, 0, name, new_name);
    else
        events_files_changed();
    return result;
}

/* Of an open that made or emptied a file. */
static void record_opened(const struct vfs_path *path, bool was_there, int fd) {
    struct stat info;
    char name[PATH_MAX];
    if (!events_are_recorded() || !vfs_located_heap_path(path, name) || syscall(SYS_fstat, fd, &info) != 0)
        return;
    if (was_there)
        events_file(FL_DID_TRUNCATE, 0, 0, name, NULL);
    else
        events_file_made(info.st_ino, name);
}

static bool exists(const struct vfs_path *path) { return syscall(SYS_faccessat, path->folder, path->path, F_OK) == 0; }

/* ---- open ------------------------------------------------------------------------------------------------------------- */

/* Whether opening changes the folder or the file; an image's own file is then opened for reading, whatever was asked. */
static bool open_changes(const struct vfs_path *path, int flags) {
    struct stat info;
    if ((flags & (O_CREAT | O_TRUNC)) == 0 && (flags & O_TMPFILE) != O_TMPFILE)
        return false;
    bool is_there = syscall(SYS_newfstatat, path->folder, path->path, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_there || (flags & O_TMPFILE) == O_TMPFILE)
        return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    bool is_new_only = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    return !is_new_only && (flags & O_TRUNC) != 0 && S_ISREG(info.st_mode) && info.st_size > 0;
}

/* A file that is not the heap's: whether it is made, emptied or may be written. One without a name ends with its descriptor. */
static bool opens_to_change(const struct vfs_path *path, int flags) {
    struct stat info;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return false;
    bool is_there = syscall(SYS_newfstatat, path->folder, path->path, &info, 0) == 0;
    return is_there ? S_ISREG(info.st_mode) && (flags & O_ACCMODE) != O_RDONLY : (flags & O_CREAT) != 0;
}

static int open_at(int folder, const char *name, int flags, mode_t mode) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    if ((flags & O_CREAT) != 0 && disk_is_watched() && !exists(&path) && disk_refuses())
        return -1;
    if (!path.is_heap && opens_to_change(&path, flags))
        vfs_refuse_outside(folder, name);
    bool is_change = path.is_heap && open_changes(&path, flags), was_there = is_change && exists(&path);
    if (inprocess_is_running())
        return kept_open(&path, flags, mode, is_change);
    if (is_change && vfs_shows_image())
        vfs_locate_for_change(folder, name, &path);
    bool is_view = path.is_heap && vfs_mode() == VFS_ISOLATE && (flags & O_ACCMODE) != O_RDONLY && (flags & O_DIRECTORY) == 0;
    int used = is_view ? (flags & ~(O_ACCMODE | O_TRUNC | O_APPEND)) | O_RDONLY : flags;
    int fd = (int)syscall(SYS_openat, path.folder, path.path, used, mode);
    if (fd >= 0 && vfs_mode() == VFS_ISOLATE)
        vfs_note_wanted(fd, flags);
    if (fd >= 0 && is_change)
        record_opened(&path, was_there, fd);
    struct stat info;
    if (fd >= 0 && is_view && syscall(SYS_fstat, fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        syscall(SYS_close, fd);
        errno = EISDIR;
        return -1;
    }
    return fd;
}

#define MODE_ARGUMENT(flags, mode)                                                                                                 \
    mode_t mode = 0;                                                                                                               \
    if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                          \
        va_list arguments;                                                                                                         \
        va_start(arguments, flags);                                                                                                \
        mode = va_arg(arguments, mode_t);                                                                                          \
        va_end(arguments);                                                                                                         \
    }

INTERPOSED int open(const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    return open_at(AT_FDCWD, path, flags, mode);
}

INTERPOSED int open64(const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    return open_at(AT_FDCWD, path, flags, mode);
}

INTERPOSED int openat(int folder, const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    return open_at(folder, path, flags, mode);
}

INTERPOSED int openat64(int folder, const char *path, int flags, ...) {
    MODE_ARGUMENT(flags, mode)
    return open_at(folder, path, flags, mode);
}

/* What compilers call instead with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);
INTERPOSED int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
INTERPOSED int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
INTERPOSED int __openat_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0); }
INTERPOSED int __openat64_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0); }

INTERPOSED int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
INTERPOSED int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* ---- streams: their reads and writes happen inside the C library, so they get the copy when they could matter ----------------- */

#define STREAMS "opens a stream" /* which the C library keeps */

static void locate_stream(const char *name, const char *mode, struct vfs_path *path) {
    bool only_reads = mode[0] == 'r' && strchr(mode, '+') == NULL;
    vfs_locate(AT_FDCWD, name, path);
    if (!path->is_heap && !only_reads)
        vfs_refuse_outside(AT_FDCWD, name);
    if (path->is_heap && !only_reads)
        events_files_changed();
    if (path->is_heap && vfs_shows_image() && (!only_reads || vfs_is_heap_mapped()) && (mode[0] != 'r' || exists(path)))
        vfs_locate_for_change(AT_FDCWD, name, path);
}

/* The reads of a stream are not seen one by one. */
static FILE *read_whole(FILE *stream) {
    if (stream == NULL)
        return NULL;
    if (vfs_is_poisoned(fileno(stream), 0, UINT64_MAX))
        vfs_refuse("it has a stream of a file with a poisoned page");
    loads_read_file(fileno(stream), 0, UINT64_MAX);
    return stream;
}

INTERPOSED FILE *fopen(const char *name, const char *mode) {
    if (!vfs_is_active())
        return REAL(fopen)(name, mode);
    inprocess_leave(STREAMS);
    struct vfs_path path;
    locate_stream(name, mode, &path);
    return read_whole(REAL(fopen)(path.path, mode));
}

INTERPOSED FILE *fopen64(const char *name, const char *mode) { return fopen(name, mode); }

INTERPOSED FILE *freopen(const char *name, const char *mode, FILE *stream) {
    if (!vfs_is_active() || name == NULL)
        return REAL(freopen)(name, mode, stream);
    inprocess_leave(STREAMS);
    struct vfs_path path;
    locate_stream(name, mode, &path);
    return read_whole(REAL(freopen)(path.path, mode, stream));
}

INTERPOSED FILE *fdopen(int fd, const char *mode) {
    inprocess_leave(STREAMS);
    vfs_before_change(fd);
    if (vfs_file_number(fd) != NO_FILE && strcmp(mode, "r") != 0)
        events_files_changed();
    return read_whole(REAL(fdopen)(fd, mode));
}

/* ---- changes of names --------------------------------------------------------------------------------------------------- */

/* Removing or renaming what is not there changes nothing, and recoveries like to try. */
static void locate_existing(int folder, const char *name, struct vfs_path *path) {
    vfs_locate(folder, name, path);
    if (path->is_heap && vfs_shows_image() && exists(path))
        vfs_locate_for_change(folder, name, path);
}

static void locate_new(int folder, const char *name, struct vfs_path *path) {
    vfs_locate(folder, name, path);
    if (!path->is_heap)
        vfs_refuse_outside(folder, name);
    if (path->is_heap && vfs_shows_image() && !exists(path))
        vfs_locate_for_change(folder, name, path);
}

INTERPOSED int unlinkat(int folder, const char *name, int flags) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    if (path.is_heap && inprocess_is_running())
        return names_unlink(&path, flags);
    locate_existing(folder, name, &path);
    enum fl_event_effect effect = (flags & AT_REMOVEDIR) != 0 ? FL_DID_REMOVE_FOLDER : FL_DID_UNLINK;
    return record_effect(effect, &path, 0, (int)syscall(SYS_unlinkat, path.folder, path.path, flags));
}

INTERPOSED int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
INTERPOSED int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

INTERPOSED int remove(const char *name) {
    int result = unlink(name);
    return result != 0 && errno == EISDIR ? rmdir(name) : result;
}

INTERPOSED int renameat2(int from_folder, const char *from_name, int to_folder, const char *to_name, unsigned flags) {
    struct vfs_path from, to;
    vfs_locate(from_folder, from_name, &from);
    vfs_locate(to_folder, to_name, &to);
    if ((from.is_heap || to.is_heap) && inprocess_is_running())
        return names_rename(&from, &to, flags);
    locate_existing(from_folder, from_name, &from);
    if (from.is_heap && vfs_mode() == VFS_REDIRECT)
        vfs_locate(to_folder, to_name, &to);
    else
        vfs_locate_for_change(to_folder, to_name, &to);
    if (to.is_heap)
        vfs_locate(from_folder, from_name, &from); /* the copy may be new */
    return record_rename(&from, &to, flags, (int)syscall(SYS_renameat2, from.folder, from.path, to.folder, to.path, flags));
}

INTERPOSED int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return renameat2(from_folder, from, to_folder, to, 0);
}

INTERPOSED int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

INTERPOSED int linkat(int from_folder, const char *from_name, int to_folder, const char *to_name, int flags) {
    struct vfs_path from, to;
    vfs_locate_for_change(from_folder, from_name, &from);
    vfs_locate_for_change(to_folder, to_name, &to);
    vfs_locate(from_folder, from_name, &from);
    events_files_changed();
    return (int)syscall(SYS_linkat, from.folder, from.path, to.folder, to.path, flags);
}

INTERPOSED int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

INTERPOSED int symlinkat(const char *content, int folder, const char *name) {
    struct vfs_path path;
    locate_new(folder, name, &path);
    events_files_changed();
    return (int)syscall(SYS_symlinkat, content, path.folder, path.path);
}

INTERPOSED int symlink(const char *content, const char *name) { return symlinkat(content, AT_FDCWD, name); }

INTERPOSED int mkdirat(int folder, const char *name, mode_t mode) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    if (disk_is_watched() && !exists(&path) && disk_refuses())
        return -1;
    locate_new(folder, name, &path);
    return record_effect(FL_DID_MAKE_FOLDER, &path, 0, (int)syscall(SYS_mkdirat, path.folder, path.path, mode));
}

INTERPOSED int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

static int truncate_here(const struct vfs_path *path, off_t bytes) {
    int fd = kept_open(path, O_WRONLY | O_CLOEXEC, 0, false);
    int result = fd < 0 ? -1 : ftruncate(fd, bytes), error = errno;
    if (fd >= 0)
        kept_close(fd);
    errno = error;
    return result;
}

static bool grows(const struct vfs_path *path, off_t bytes) {
    struct stat info;
    int saved = errno;
    bool is_there = syscall(SYS_newfstatat, path->folder, path->path, &info, 0) == 0;
    errno = saved;
    return is_there && bytes > info.st_size;
}

INTERPOSED int truncate(const char *name, off_t bytes) {
    struct vfs_path path;
    vfs_locate(AT_FDCWD, name, &path);
    if (disk_is_watched() && grows(&path, bytes) && disk_refuses())
        return -1;
    if (path.is_heap && inprocess_is_running())
        return truncate_here(&path, bytes);
    locate_existing(AT_FDCWD, name, &path);
    return record_effect(FL_DID_TRUNCATE, &path, (uint64_t)bytes, (int)syscall(SYS_truncate, path.path, bytes));
}

INTERPOSED int truncate64(const char *name, off_t bytes) { return truncate(name, bytes); }

INTERPOSED int mkostemps(char *name, int suffix, int flags) {
    struct vfs_path path;
    if (disk_refuses())
        return -1;
    vfs_locate_for_change(AT_FDCWD, name, &path);
    if (!path.is_heap)
        return REAL(mkostemps)(name, suffix, flags);
    int fd = REAL(mkostemps)(path.buffer, suffix, flags);
    if (fd >= 0)
        record_opened(&path, false, fd);
    if (fd >= 0) { /* the random part, in the target's own name */
        size_t tail = 6 + (size_t)suffix;
        memcpy(name + strlen(name) - tail, path.buffer + strlen(path.buffer) - tail, tail);
    }
    return fd;
}

INTERPOSED int mkstemps(char *name, int suffix) { return mkostemps(name, suffix, 0); }
INTERPOSED int mkostemp(char *name, int flags) { return mkostemps(name, 0, flags); }
INTERPOSED int mkstemp(char *name) { return mkostemps(name, 0, 0); }
INTERPOSED int mkstemp64(char *name) { return mkostemps(name, 0, 0); }

/* ---- attributes ----------------------------------------------------------------------------------------------------------- */

INTERPOSED int fstatat(int folder, const char *name, struct stat *info, int flags) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    return (int)syscall(SYS_newfstatat, path.folder, path.path, info, flags);
}

INTERPOSED int fstatat64(int folder, const char *name, struct stat64 *info, int flags) {
    return fstatat(folder, name, (struct stat *)info, flags);
}

INTERPOSED int stat(const char *name, struct stat *info) { return fstatat(AT_FDCWD, name, info, 0); }
INTERPOSED int stat64(const char *name, struct stat64 *info) { return fstatat64(AT_FDCWD, name, info, 0); }
INTERPOSED int lstat(const char *name, struct stat *info) { return fstatat(AT_FDCWD, name, info, AT_SYMLINK_NOFOLLOW); }
INTERPOSED int lstat64(const char *name, struct stat64 *info) { return fstatat64(AT_FDCWD, name, info, AT_SYMLINK_NOFOLLOW); }

/* Of libraries that were built with a C library before 2.33. */
int __xstat(int version, const char *name, struct stat *info);
int __xstat64(int version, const char *name, struct stat64 *info);
int __lxstat(int version, const char *name, struct stat *info);
int __lxstat64(int version, const char *name, struct stat64 *info);
int __fxstatat(int version, int folder, const char *name, struct stat *info, int flags);
int __fxstatat64(int version, int folder, const char *name, struct stat64 *info, int flags);
INTERPOSED int __xstat(int version, const char *name, struct stat *info) { return (void)version, stat(name, info); }
INTERPOSED int __xstat64(int version, const char *name, struct stat64 *info) { return (void)version, stat64(name, info); }
INTERPOSED int __lxstat(int version, const char *name, struct stat *info) { return (void)version, lstat(name, info); }
INTERPOSED int __lxstat64(int version, const char *name, struct stat64 *info) { return (void)version, lstat64(name, info); }
INTERPOSED int __fxstatat(int version, int folder, const char *name, struct stat *info, int flags) {
    return (void)version, fstatat(folder, name, info, flags);
}
INTERPOSED int __fxstatat64(int version, int folder, const char *name, struct stat64 *info, int flags) {
    return (void)version, fstatat64(folder, name, info, flags);
}

INTERPOSED int statx(int folder, const char *name, int flags, unsigned mask, struct statx *info) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    return (int)syscall(SYS_statx, path.folder, path.path, flags, mask, info);
}

INTERPOSED int faccessat(int folder, const char *name, int mode, int flags) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    return path.is_heap && flags == 0 ? (int)syscall(SYS_faccessat, path.folder, path.path, mode)
                                      : REAL(faccessat)(path.folder, path.path, mode, flags);
}

INTERPOSED int access(const char *name, int mode) {
    struct vfs_path path;
    vfs_locate(AT_FDCWD, name, &path);
    return (int)syscall(SYS_faccessat, path.folder, path.path, mode);
}

INTERPOSED int fchmodat(int folder, const char *name, mode_t mode, int flags) {
    struct vfs_path path;
    vfs_locate_for_change(folder, name, &path);
    return REAL(fchmodat)(path.folder, path.path, mode, flags);
}

INTERPOSED int chmod(const char *name, mode_t mode) { return fchmodat(AT_FDCWD, name, mode, 0); }

INTERPOSED int utimensat(int folder, const char *name, const struct timespec times[2], int flags) {
    struct vfs_path path;
    vfs_locate_for_change(folder, name, &path);
    return (int)syscall(SYS_utimensat, path.folder, path.path, times, flags);
}

/* ---- the rest ------------------------------------------------------------------------------------------------------------------- */

/* The target is to see its own path, also of what only the copy has. */
INTERPOSED char *realpath(const char *name, char *resolved) {
    struct vfs_path path;
    vfs_locate(AT_FDCWD, name, &path);
    if (!path.is_heap || !exists(&path))
        return REAL(realpath)(name, resolved);
    char *out = resolved != NULL ? resolved : malloc(PATH_MAX);
    if (out != NULL)
        vfs_target_path(&path, out);
    return out;
}
