/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: mappings, and what would share or duplicate memory.
 */
#undef _FORTIFY_SOURCE
#include "calls/calls.h"
#include "base/traced.h"
#include "loads/loads.h"
#include "persist.h"
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>

#define MOST_WAITED_MS 2000 /* for a child process that its parent may have to help to its end */

static void *refuse(int error) {
    errno = error;
    return MAP_FAILED;
}

/* Flags that make a private mapping stand in for the shared one that the target asks for. */
static int stand_in_flags(int flags) { return (flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_PRIVATE | MAP_NORESERVE; }

/* A shared mapping of a heap file in ISOLATE. The answers are those that the file system would give. */
static void *map_heap_file(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    int wanted = vfs_wanted_flags(fd);
    int access_mode = wanted < 0 ? O_RDWR : wanted & O_ACCMODE;
    if ((flags & MAP_TYPE) == MAP_SHARED_VALIDATE && (flags & MAP_SYNC) != 0 && !vfs_has_sync())
        return refuse(EOPNOTSUPP);
    if (access_mode == O_WRONLY || ((protection & PROT_WRITE) != 0 && access_mode != O_RDWR))
        return refuse(EACCES);
    if (vfs_overlaps(fd, (uint64_t)offset, bytes)) {
        vfs_materialise();
        return guarded_mmap(address, bytes, protection, flags, fd, offset);
    }
    return guarded_mmap(address, bytes, protection, stand_in_flags(flags), fd, offset);
}

static void *map_file(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    bool is_shared = (flags & MAP_TYPE) != MAP_PRIVATE;
    if ((flags & MAP_FIXED) != 0 && vfs_is_modified((uintptr_t)address, bytes))
        vfs_materialise();
    if (!is_shared && vfs_is_protected(fd))
        before_read(fd); /* a private mapping shows what others stored to shared ones before */
    void *base = is_shared && vfs_is_protected(fd) ? map_heap_file(address, bytes, protection, flags, fd, offset)
                                                   : guarded_mmap(address, bytes, protection, flags, fd, offset);
    if (base != MAP_FAILED) {
        vfs_forget_mapping((uintptr_t)base, bytes);
        vfs_note_mapping((uintptr_t)base, bytes, fd, (uint64_t)offset, is_shared, protection);
        vfs_cover_poison();
    }
    return base;
}

INTERPOSED void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (inprocess_is_running())
        return kept_mmap(address, bytes, protection, flags, fd, offset);
    bool is_file = (flags & MAP_ANONYMOUS) == 0 && fd >= 0;
    if (vfs_mode() == VFS_PASS || (!is_file && (flags & MAP_FIXED) == 0))
        return guarded_mmap(address, bytes, protection, flags, fd, offset);
    vfs_lock();
    void *base;
    if (is_file)
        base = map_file(address, bytes, protection, flags, fd, offset);
    else {
        if (vfs_is_modified((uintptr_t)address, bytes))
            vfs_materialise();
        base = guarded_mmap(address, bytes, protection, flags, fd, offset);
        if (base != MAP_FAILED)
            vfs_forget_mapping((uintptr_t)base, bytes);
    }
    vfs_unlock();
    return base;
}

INTERPOSED void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap(address, bytes, protection, flags, fd, offset);
}

INTERPOSED int munmap(void *address, size_t bytes) {
    if (inprocess_is_running())
        return kept_munmap(address, bytes);
    if (vfs_mode() == VFS_PASS)
        return guarded_munmap(address, bytes);
    vfs_lock();
    if (vfs_is_modified((uintptr_t)address, bytes))
        vfs_materialise();
    int result = guarded_munmap(address, bytes);
    if (result == 0)
        vfs_forget_mapping((uintptr_t)address, bytes);
    vfs_unlock();
    return result;
}

INTERPOSED void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    inprocess_leave("calls mremap");
    if (vfs_mode() == VFS_PASS)
        return guarded_mremap(address, old_bytes, new_bytes, flags, wanted);
    if (vfs_maps_poison((uintptr_t)address, old_bytes))
        vfs_refuse("it moves or resizes a mapping that shows a poisoned page");
    vfs_lock();
    if (vfs_stands_in((uintptr_t)address, old_bytes) || (wanted != NULL && vfs_is_modified((uintptr_t)wanted, new_bytes)))
        vfs_materialise();
    void *base = guarded_mremap(address, old_bytes, new_bytes, flags, wanted);
    if (base != MAP_FAILED)
        vfs_move_mapping((uintptr_t)address, old_bytes, (uintptr_t)base, new_bytes);
    vfs_unlock();
    return base;
}

/* A shared mapping keeps its content over DONTNEED; the private one that stands in for it would lose it. */
INTERPOSED int madvise(void *address, size_t bytes, int advice) {
    inprocess_leave("calls madvise");
    bool discards = advice == MADV_DONTNEED || advice == MADV_REMOVE || advice == MADV_FREE;
    if (vfs_mode() == VFS_ISOLATE && discards && vfs_stands_in((uintptr_t)address, bytes)) {
        if (advice == MADV_DONTNEED)
            return 0;
        vfs_materialise();
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* MS_ASYNC guarantees nothing. */
INTERPOSED int msync(void *address, size_t bytes, int flags) {
    int result = (int)syscall(SYS_msync, address, bytes, flags);
    if (result == 0 && (flags & MS_SYNC) != 0)
        events_synced(address, whole_pages(bytes), CALLER);
    return result;
}

/* Another thread could store while the copy is made, another process would not share the stores: the copy comes first. */
void before_sharing(void) {
    inprocess_leave("starts a thread or a process");
    if (loads_is_recording() && !is_traced)
        loads_unknown(FL_LOADS_SHARED, NULL);
    if (vfs_mode() == VFS_ISOLATE)
        vfs_materialise();
}

INTERPOSED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    before_sharing();
    return REAL(pthread_create)(thread, attributes, start, argument);
}

INTERPOSED int thrd_create(thrd_t *thread, thrd_start_t start, void *argument) {
    before_sharing();
    return REAL(thrd_create)(thread, start, argument);
}

/* A tracer follows the child's loads and events. For them to have one order, the child runs until it ends, and then its parent goes on. */
static void wait_for_process(pid_t child) {
    siginfo_t info;
    for (int waited = 0; waited < MOST_WAITED_MS; waited++) {
        info.si_pid = 0;
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
            return;
        syscall(SYS_nanosleep, &(struct timespec){0, 1000000}, NULL);
    }
    loads_unknown(FL_LOADS_SHARED, NULL);
}

INTERPOSED pid_t fork(void) {
    before_sharing();
    recording_starts_process(true);
    pid_t child = REAL(fork)();
    recording_starts_process(false);
    if (child > 0 && is_traced && loads_is_recording()) {
        int saved = errno;
        wait_for_process(child);
        errno = saved;
    }
    return child;
}
