/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: calls on descriptors. A write behind a heap file's descriptor makes the private copy first; the descriptor then
 * leads to the copy, and the write goes on. In-process runs change the image itself, after they have noted what was there
 * (kept_mappings.c).
 */
#undef _FORTIFY_SOURCE
#include "calls/calls.h"
#include "loads/loads.h"
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* ---- for loads/loads.h: system calls read mapped memory, and files past the mappings. What they store is no load. ---------------- */

static void hand_over(const void *bytes, size_t count) {
    loads_read(bytes, count);
    loads_open(bytes, count);
}

static void hand_over_parts(const struct iovec *parts, int count) {
    loads_read(parts, (size_t)count * sizeof *parts);
    for (int i = 0; i < count; i++)
        loads_read(parts[i].iov_base, parts[i].iov_len);
    for (int i = 0; i < count; i++)
        loads_open(parts[i].iov_base, parts[i].iov_len);
}

static uint64_t open_parts(const struct iovec *parts, int count) {
    uint64_t sum = 0;
    loads_read(parts, (size_t)count * sizeof *parts);
    for (int i = 0; i < count; i++) {
        loads_filled(parts[i].iov_base, parts[i].iov_len);
        sum += parts[i].iov_len;
    }
    return sum;
}

/* Before a read behind the descriptor. False: the medium lost a part of what it would give. offset null: where the descriptor is. */
static bool can_read(int fd, const off_t *offset, uint64_t count, const void *caller) {
    before_read(fd);
    if (!loads_is_recording() && !vfs_has_poison())
        return true;
    long at = offset != NULL ? *offset : syscall(SYS_lseek, fd, 0, SEEK_CUR);
    uint64_t from = at < 0 ? 0 : (uint64_t)at;
    if (vfs_is_poisoned(fd, from, count)) {
        errno = EIO;
        return false;
    }
    loads_caller = caller;
    loads_read_file(fd, from, count);
    loads_caller = NULL;
    return true;
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct iovec *parts, int count) {
    uint64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += parts[i].iov_len;
    return sum;
}

/* offset null: where the descriptor is. */
static void before_change_at(int fd, const off_t *offset, uint64_t count) {
    if (inprocess_is_running() && vfs_is_protected(fd))
        kept_will_write(fd, offset, count);
    else
        vfs_before_change(fd);
}

/* A write there, or a change of its size, takes space that a full disk does not have; offset null: where the descriptor is. */
static bool is_out_of_space(int fd, const off_t *offset, uint64_t bytes) {
    if (!disk_is_watched())
        return false;
    struct stat info;
    int saved = errno;
    bool is_file = syscall(SYS_fstat, fd, &info) == 0 && S_ISREG(info.st_mode);
    uint64_t from = offset != NULL ? (uint64_t)*offset : (uint64_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    bool appends = (syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) != 0;
    errno = saved;
    return is_file && (appends || from + bytes > (uint64_t)info.st_size) && disk_refuses();
}

/* What a copy from file to file writes is not recorded. */
static void before_copy_to(int fd) {
    char path[PATH_MAX];
    if (events_are_recorded() && vfs_heap_path(fd, path))
        events_files_changed();
}

/* Where a call wrote so many bytes; offset null, or at the end because the descriptor appends: it left its end there. */
static uint64_t written_at(int fd, const off_t *offset, uint64_t bytes, int flags) {
    struct stat info;
    bool appends = (flags & RWF_APPEND) != 0 || (syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) != 0;
    if (offset != NULL && !appends)
        return (uint64_t)*offset;
    if (offset == NULL)
        return (uint64_t)syscall(SYS_lseek, fd, 0, SEEK_CUR) - bytes;
    return syscall(SYS_fstat, fd, &info) == 0 ? (uint64_t)info.st_size - bytes : 0;
}

/* Of a write: it has made what it wrote persistent when it returns. */
static bool is_synced(int fd, int flags) {
    return (flags & (RWF_DSYNC | RWF_SYNC)) != 0 || (syscall(SYS_fcntl, fd, F_GETFL) & O_DSYNC) != 0; /* O_SYNC has that bit, too */
}

/* result: of a call that wrote the first bytes of these parts. */
static ssize_t record_write(int fd, const off_t *offset, const struct iovec *parts, int flags, ssize_t result, const void *caller) {
    int saved = errno;
    if (events_are_recorded() && result > 0) {
        uint64_t bytes = (uint64_t)result, at = written_at(fd, offset, bytes, flags);
        events_wrote(fd, at, parts, bytes, caller);
        if (is_synced(fd, flags))
            events_synced_file(fd, at, bytes, caller);
    }
    errno = saved;
    return result;
}

EXPANDED ssize_t write_here(int fd, const void *bytes, size_t count) {
    struct iovec part = {(void *)bytes, count};
    if (is_out_of_space(fd, NULL, count))
        return -1;
    before_change_at(fd, NULL, count);
    hand_over(bytes, count);
    return record_write(fd, NULL, &part, 0, syscall(SYS_write, fd, bytes, count), CALLER);
}

EXPANDED ssize_t write_at(int fd, const void *bytes, size_t count, off_t offset) {
    struct iovec part = {(void *)bytes, count};
    if (is_out_of_space(fd, &offset, count))
        return -1;
    before_change_at(fd, &offset, count);
    hand_over(bytes, count);
    return record_write(fd, &offset, &part, 0, syscall(SYS_pwrite64, fd, bytes, count, offset), CALLER);
}

INTERPOSED ssize_t write(int fd, const void *bytes, size_t count) { return write_here(fd, bytes, count); }
INTERPOSED ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return write_at(fd, bytes, count, offset); }
INTERPOSED ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset) { return write_at(fd, bytes, count, offset); }

INTERPOSED ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (is_out_of_space(fd, NULL, bytes_of(parts, count)))
        return -1;
    before_change_at(fd, NULL, bytes_of(parts, count));
    hand_over_parts(parts, count);
    return record_write(fd, NULL, parts, 0, syscall(SYS_writev, fd, parts, count), CALLER);
}

/* The kernel takes the offset in two halves; on 64-bit machines the first holds all of it. */
EXPANDED ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t offset) {
    if (is_out_of_space(fd, &offset, bytes_of(parts, count)))
        return -1;
    before_change_at(fd, &offset, bytes_of(parts, count));
    hand_over_parts(parts, count);
    return record_write(fd, &offset, parts, 0, syscall(SYS_pwritev, fd, parts, count, offset, 0), CALLER);
}

INTERPOSED ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return write_parts(fd, parts, count, offset);
}

INTERPOSED ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
    return write_parts(fd, parts, count, offset);
}

INTERPOSED ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    if (is_out_of_space(fd, offset == -1 ? NULL : &offset, bytes_of(parts, count)))
        return -1;
    vfs_before_change(fd);
    hand_over_parts(parts, count);
    ssize_t written = syscall(SYS_pwritev2, fd, parts, count, offset, 0, flags);
    return record_write(fd, offset == -1 ? NULL : &offset, parts, flags, written, CALLER);
}

INTERPOSED ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t count, unsigned flags) {
    vfs_before_change(to);
    before_copy_to(to);
    if (!can_read(from, from_offset, count, CALLER))
        return -1;
    return syscall(SYS_copy_file_range, from, from_offset, to, to_offset, count, flags);
}

INTERPOSED ssize_t sendfile(int to, int from, off_t *offset, size_t count) {
    vfs_before_change(to);
    before_copy_to(to);
    if (!can_read(from, offset, count, CALLER))
        return -1;
    return syscall(SYS_sendfile, to, from, offset, count);
}

INTERPOSED ssize_t sendfile64(int to, int from, off_t *offset, size_t count) { return sendfile(to, from, offset, count); }

INTERPOSED ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t count, unsigned flags) {
    vfs_before_change(to);
    before_copy_to(to);
    if (!can_read(from, from_offset, count, CALLER))
        return -1;
    return syscall(SYS_splice, from, from_offset, to, to_offset, count, flags);
}

/* ---- size and allocation ---------------------------------------------------------------------------------------------- */

/* Recoveries like to set the size that a file has already: nothing changes, so no copy is needed. */
static bool has_size(int fd, off_t bytes) {
    struct stat info;
    return syscall(SYS_fstat, fd, &info) == 0 && info.st_size == bytes;
}

/* Of a call that worked on a file and changed its size or content; result: what it answered. */
static int record_effect(enum fl_event_effect effect, int fd, uint64_t offset, uint64_t bytes, int result) {
    char path[PATH_MAX];
    if (events_are_recorded() && result == 0 && vfs_heap_path(fd, path))
        events_file(effect, offset, bytes, path, NULL);
    return result;
}

static int record_fallocate(int fd, int mode, off_t offset, off_t bytes, int result) {
    if (mode == 0)
        return record_effect(FL_DID_EXTEND, fd, 0, (uint64_t)(offset + bytes), result);
    if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
        return record_effect(FL_DID_PUNCH, fd, (uint64_t)offset, (uint64_t)bytes, result);
    if (mode != FALLOC_FL_KEEP_SIZE)
        events_files_changed();
    return result;
}

INTERPOSED int ftruncate(int fd, off_t bytes) {
    if (is_out_of_space(fd, &bytes, 0))
        return -1;
    bool is_protected = vfs_is_protected(fd);
    if (is_protected && inprocess_is_running())
        return kept_truncate(fd, bytes);
    if (is_protected) {
        int wanted = vfs_wanted_flags(fd);
        if (wanted >= 0 && (wanted & O_ACCMODE) != O_RDONLY && has_size(fd, bytes))
            return 0;
        vfs_before_change(fd);
    }
    return record_effect(FL_DID_TRUNCATE, fd, 0, (uint64_t)bytes, (int)syscall(SYS_ftruncate, fd, bytes));
}

INTERPOSED int ftruncate64(int fd, off_t bytes) { return ftruncate(fd, bytes); }

INTERPOSED int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    bool is_given_back = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)) != 0;
    if (!is_given_back && is_out_of_space(fd, &offset, (uint64_t)bytes))
        return -1;
    if (inprocess_is_running() && vfs_is_protected(fd))
        return kept_fallocate(fd, mode, offset, bytes);
    vfs_before_change(fd);
    return record_fallocate(fd, mode, offset, bytes, (int)syscall(SYS_fallocate, fd, mode, offset, bytes));
}

INTERPOSED int fallocate64(int fd, int mode, off_t offset, off_t bytes) { return fallocate(fd, mode, offset, bytes); }

INTERPOSED int posix_fallocate(int fd, off_t offset, off_t bytes) {
    if (vfs_mode() == VFS_PASS)
        return is_out_of_space(fd, &offset, (uint64_t)bytes) ? ENOSPC : REAL(posix_fallocate)(fd, offset, bytes);
    int saved = errno;
    int error = fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
    errno = saved;
    return error == EOPNOTSUPP ? REAL(posix_fallocate)(fd, offset, bytes) : error;
}

INTERPOSED int posix_fallocate64(int fd, off_t offset, off_t bytes) { return posix_fallocate(fd, offset, bytes); }

/* ---- reading what mappings may have changed --------------------------------------------------------------------------- */

/* result: of a call that filled the first bytes of these parts. */
static ssize_t record_read(const struct iovec *parts, int count, ssize_t result, const void *caller) {
    uint64_t left = result > 0 ? (uint64_t)result : 0;
    for (int i = 0; events_by_hooks() && left > 0 && i < count; i++) {
        uint64_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        events_filled_by_kernel(parts[i].iov_base, part, caller);
        left -= part;
    }
    return result;
}

EXPANDED ssize_t read_here(int fd, void *bytes, size_t count) {
    struct iovec part = {bytes, count};
    if (!can_read(fd, NULL, count, CALLER))
        return -1;
    loads_filled(bytes, count);
    return record_read(&part, 1, syscall(SYS_read, fd, bytes, count), CALLER);
}

EXPANDED ssize_t read_at(int fd, void *bytes, size_t count, off_t offset) {
    struct iovec part = {bytes, count};
    if (!can_read(fd, &offset, count, CALLER))
        return -1;
    loads_filled(bytes, count);
    return record_read(&part, 1, syscall(SYS_pread64, fd, bytes, count, offset), CALLER);
}

EXPANDED ssize_t read_parts(int fd, const struct iovec *parts, int count, off_t offset) {
    if (!can_read(fd, &offset, open_parts(parts, count), CALLER))
        return -1;
    return record_read(parts, count, syscall(SYS_preadv, fd, parts, count, offset, 0), CALLER);
}

INTERPOSED ssize_t read(int fd, void *bytes, size_t count) { return read_here(fd, bytes, count); }
INTERPOSED ssize_t pread(int fd, void *bytes, size_t count, off_t offset) { return read_at(fd, bytes, count, offset); }
INTERPOSED ssize_t pread64(int fd, void *bytes, size_t count, off_t offset) { return read_at(fd, bytes, count, offset); }

INTERPOSED ssize_t readv(int fd, const struct iovec *parts, int count) {
    if (!can_read(fd, NULL, open_parts(parts, count), CALLER))
        return -1;
    return record_read(parts, count, syscall(SYS_readv, fd, parts, count), CALLER);
}

INTERPOSED ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    return read_parts(fd, parts, count, offset);
}

INTERPOSED ssize_t preadv64(int fd, const struct iovec *parts, int count, off_t offset) {
    return read_parts(fd, parts, count, offset);
}

INTERPOSED ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    if (!can_read(fd, offset == -1 ? NULL : &offset, open_parts(parts, count), CALLER))
        return -1;
    return record_read(parts, count, syscall(SYS_preadv2, fd, parts, count, offset, 0, flags), CALLER);
}

INTERPOSED ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return preadv2(fd, parts, count, offset, flags);
}

/* What compilers call instead with _FORTIFY_SOURCE. */
ssize_t __read_chk(int fd, void *bytes, size_t count, size_t capacity);
ssize_t __pread_chk(int fd, void *bytes, size_t count, off_t offset, size_t capacity);
ssize_t __pread64_chk(int fd, void *bytes, size_t count, off_t offset, size_t capacity);

INTERPOSED ssize_t __read_chk(int fd, void *bytes, size_t count, size_t capacity) {
    return count > capacity ? (__builtin_trap(), -1) : read_here(fd, bytes, count);
}

INTERPOSED ssize_t __pread_chk(int fd, void *bytes, size_t count, off_t offset, size_t capacity) {
    return count > capacity ? (__builtin_trap(), -1) : read_at(fd, bytes, count, offset);
}

INTERPOSED ssize_t __pread64_chk(int fd, void *bytes, size_t count, off_t offset, size_t capacity) {
    return count > capacity ? (__builtin_trap(), -1) : read_at(fd, bytes, count, offset);
}

/* ---- durability: what a crash of a recovery leaves is the engine's business, so nothing need reach a disk -------------------- */

EXPANDED int sync_file(int fd, long call) {
    int result = vfs_is_protected(fd) ? 0 : (int)syscall(call, fd);
    if (result == 0)
        events_synced_file(fd, 0, UINT64_MAX, CALLER); /* a folder's names are durable anyway */
    return result;
}

INTERPOSED int fsync(int fd) { return sync_file(fd, SYS_fsync); }
INTERPOSED int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

/* ---- attributes and locks --------------------------------------------------------------------------------------------- */

INTERPOSED int fstat(int fd, struct stat *info) { return (int)syscall(SYS_fstat, fd, info); }
INTERPOSED int fstat64(int fd, struct stat64 *info) { return (int)syscall(SYS_fstat, fd, info); }
int __fxstat(int version, int fd, struct stat *info);
int __fxstat64(int version, int fd, struct stat64 *info);
INTERPOSED int __fxstat(int version, int fd, struct stat *info) { return (void)version, fstat(fd, info); }
INTERPOSED int __fxstat64(int version, int fd, struct stat64 *info) { return (void)version, fstat64(fd, info); }

INTERPOSED int fchmod(int fd, mode_t mode) {
    vfs_before_change(fd);
    return (int)syscall(SYS_fchmod, fd, mode);
}

INTERPOSED int fchown(int fd, uid_t owner, gid_t group) {
    vfs_before_change(fd);
    return (int)syscall(SYS_fchown, fd, owner, group);
}

INTERPOSED int futimens(int fd, const struct timespec times[2]) {
    vfs_before_change(fd);
    return (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

static bool is_lock(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

/* A write lock needs a descriptor for writing, which only the copy's are. */
INTERPOSED int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command != F_GETFL && command != F_GETFD && command != F_SETFD)
        inprocess_leave("locks or duplicates a descriptor");
    bool is_protected = vfs_mode() == VFS_ISOLATE && (is_lock(command) || command == F_GETFL) && vfs_is_protected(fd);
    if (is_protected && is_lock(command))
        vfs_materialise();
    int result = (int)syscall(SYS_fcntl, fd, command, argument);
    int wanted = is_protected && command == F_GETFL && result >= 0 ? vfs_wanted_flags(fd) : -1;
    if (inprocess_is_plain() && command == F_GETFL && result >= 0)
        wanted = kept_flags(fd);
    return wanted < 0 ? result : (result & ~O_ACCMODE) | (wanted & O_ACCMODE);
}

INTERPOSED int fcntl64(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fcntl(fd, command, argument);
}

/* Of an isolated life it is the kernel's: the lock goes with the process. */
INTERPOSED int flock(int fd, int operation) {
    return inprocess_is_running() ? kept_flock(fd, operation) : (int)syscall(SYS_flock, fd, operation);
}

INTERPOSED int lockf(int fd, int command, off_t bytes) {
    vfs_before_change(fd);
    return REAL(lockf)(fd, command, bytes);
}

INTERPOSED int lockf64(int fd, int command, off_t bytes) { return lockf(fd, command, bytes); }
