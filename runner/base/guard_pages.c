/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the kernel chooses the address of a mapping, it puts it beside another one. What runs over an end of it would read or
 * change the neighbour, perhaps the tester's own memory, and nobody would notice. So an OS page that cannot be accessed lies on
 * either side, as long as the mapping beside it is there and the target wants no other mapping in its place.
 */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 64u

static uintptr_t first_pages[FIRST_CAPACITY];
static struct {
    uintptr_t *pages;
    size_t count, capacity;
} guards = {first_pages, 0, FIRST_CAPACITY};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Where the file system has no MAP_SYNC, Valgrind asks once more, at address 0. Who is not root, or in a container, may not map
 * there, and would have EPERM for an answer: libpmem and persist.h know EOPNOTSUPP, and then do without. */
static void *raw_mmap(uintptr_t address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *base = (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
    bool asks_for_sync = (flags & MAP_TYPE) == MAP_SHARED_VALIDATE && (flags & MAP_SYNC) != 0;
    if (base == MAP_FAILED && errno == EPERM && asks_for_sync)
        errno = EOPNOTSUPP;
    return base;
}

static bool has_room(void) {
    if (guards.count + 2 <= guards.capacity)
        return true;
    size_t bytes = guards.capacity * sizeof *guards.pages;
    void *memory = raw_mmap(0, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    memcpy(memory, guards.pages, bytes);
    guards.pages = memory; /* the smaller one stays: a handful of OS pages at most */
    guards.capacity *= 2;
    return true;
}

/* Guard pages in the range are unmapped, and are none any more. */
static void give_way(uintptr_t start, uintptr_t end) {
    pthread_mutex_lock(&mutex);
    for (size_t i = guards.count; i-- > 0;) {
        uintptr_t page = guards.pages[i];
        if (end <= page || page + OS_PAGE_BYTES <= start)
            continue;
        syscall(SYS_munmap, page, OS_PAGE_BYTES);
        guards.pages[i] = guards.pages[--guards.count];
    }
    pthread_mutex_unlock(&mutex);
}

/* MAP_FAILED also where there is no room for the pages beside it. */
static void *map_between(size_t bytes, int protection, int flags, int fd, off_t offset) {
    size_t whole = whole_pages(bytes);
    if (whole == 0 || whole > SIZE_MAX / 2 || !has_room())
        return MAP_FAILED;
    void *reserved = raw_mmap(0, whole + 2 * OS_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return MAP_FAILED;
    uintptr_t start = (uintptr_t)reserved + OS_PAGE_BYTES;
    void *base = raw_mmap(start, bytes, protection, flags | MAP_FIXED, fd, offset);
    if (base == MAP_FAILED)
        syscall(SYS_munmap, reserved, whole + 2 * OS_PAGE_BYTES);
    else {
        guards.pages[guards.count++] = (uintptr_t)reserved;
        guards.pages[guards.count++] = start + whole;
    }
    return base;
}

void *guarded_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *base = MAP_FAILED;
    if (address != NULL || (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0) {
        give_way((uintptr_t)address, (uintptr_t)address + whole_pages(bytes));
        base = raw_mmap((uintptr_t)address, bytes, protection, flags, fd, offset);
        if (base == address || base == MAP_FAILED)
            return base;
        syscall(SYS_munmap, base, bytes);
        if ((flags & MAP_FIXED_NOREPLACE) != 0) { /* Valgrind takes it for a wish; Linux refuses */
            errno = EEXIST;
            return MAP_FAILED;
        }
    }
    if ((flags & (MAP_HUGETLB | MAP_GROWSDOWN)) == 0) {
        pthread_mutex_lock(&mutex);
        base = map_between(bytes, protection, flags, fd, offset);
        pthread_mutex_unlock(&mutex);
        if (base != MAP_FAILED)
            return base;
    }
    return raw_mmap(0, bytes, protection, flags, fd, offset);
}

int guarded_munmap(void *address, size_t bytes) {
    uintptr_t start = (uintptr_t)address;
    give_way(start - OS_PAGE_BYTES, start + whole_pages(bytes) + OS_PAGE_BYTES);
    return (int)syscall(SYS_munmap, address, bytes);
}

void *guarded_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *wanted) {
    uintptr_t start = (uintptr_t)address;
    give_way(start - OS_PAGE_BYTES, start + whole_pages(old_bytes) + OS_PAGE_BYTES);
    if ((flags & MREMAP_FIXED) != 0)
        give_way((uintptr_t)wanted, (uintptr_t)wanted + whole_pages(new_bytes));
    return (void *)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, wanted);
}
