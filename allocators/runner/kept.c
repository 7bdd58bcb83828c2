/* SPDX-License-Identifier: Apache-2.0
 *
 * Mappings and descriptors of in-process runs. Making them anew for each run, with a fault for every OS page, would cost many
 * times what the run costs. So they are kept: what a target unmaps or closes (or power failure does), stays; and when the same
 * is asked for again, it is there.
 *
 * For the target nothing of this shows: calls answer as the kernel would. Where an answer needs the addresses of something kept,
 * that goes. What a target reads or stores where it has nothing mapped is found by the hooks (kept_is_unmapped). Calls that do
 * not fit this picture make the run an isolated one.
 *
 * Reservations (PROT_NONE) hold nothing, so other mappings may lie over them.
 */
#include "inprocess.h"
#include "loads.h"
#include <string.h>
#include <sys/mman.h>

#define MOST_MAPPINGS 128u
#define MOST_DESCRIPTORS 64u
#define ZEROED_BYTES (256u << 10) /* larger anonymous mappings are given back instead */

struct request {
    void *address;
    size_t bytes;
    int protection, flags;
    uint64_t device, inode; /* 0: anonymous */
    off_t offset;
};

struct mapping {
    struct request request;
    uintptr_t start, end;           /* of what was mapped */
    uintptr_t live_start, live_end; /* what the target has of it now; equal: nothing */
};

struct descriptor {
    int fd;
    int flags;
    bool is_live, is_heap;
    struct stat info;
    char path[PATH_MAX];
};

static struct {
    struct mapping mappings[MOST_MAPPINGS];
    size_t mapping_count;
    struct descriptor descriptors[MOST_DESCRIPTORS];
    size_t descriptor_count;
} kept;

static uint64_t whole_pages(uint64_t bytes) { return (bytes + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES * OS_PAGE_BYTES; }

/* ---- descriptors -------------------------------------------------------------------------------------------------------- */

static struct descriptor *find_descriptor(int fd) {
    for (size_t i = 0; i < kept.descriptor_count; i++)
        if (kept.descriptors[i].fd == fd && kept.descriptors[i].is_live)
            return &kept.descriptors[i];
    return NULL;
}

static struct descriptor *find_unused(const char *path, int flags) {
    for (size_t i = 0; i < kept.descriptor_count; i++) {
        struct descriptor *descriptor = &kept.descriptors[i];
        if (!descriptor->is_live && descriptor->flags == flags && strcmp(descriptor->path, path) == 0)
            return descriptor;
    }
    return NULL;
}

int kept_open(const struct vfs_path *path, int flags) {
    if ((flags & (O_APPEND | O_ASYNC | O_NONBLOCK | O_PATH)) != 0)
        inprocess_leave("opens a file in a way that is not kept");
    struct descriptor *known = path->is_heap ? find_unused(path->path, flags) : NULL;
    if (known != NULL) {
        syscall(SYS_lseek, known->fd, 0, SEEK_SET);
        known->is_live = true;
        return known->fd;
    }
    int fd = (int)syscall(SYS_openat, path->folder, path->path, flags, 0);
    if (fd < 0)
        return fd;
    if (kept.descriptor_count == MOST_DESCRIPTORS || strlen(path->path) >= PATH_MAX) {
        syscall(SYS_close, fd);
        inprocess_leave("opens more than 64 files");
    }
    struct descriptor *descriptor = &kept.descriptors[kept.descriptor_count++];
    descriptor->fd = fd;
    descriptor->flags = flags;
    descriptor->is_live = true;
    descriptor->is_heap = path->is_heap;
    strcpy(descriptor->path, path->path);
    syscall(SYS_fstat, fd, &descriptor->info);
    return fd;
}

static void forget_descriptor(struct descriptor *descriptor) {
    syscall(SYS_close, descriptor->fd);
    *descriptor = kept.descriptors[--kept.descriptor_count];
}

int kept_close(int fd) {
    struct descriptor *descriptor = find_descriptor(fd);
    if (descriptor == NULL) {
        inprocess_leave("closes a descriptor that it did not open");
        return errno = EBADF, -1;
    }
    if (descriptor->is_heap)
        descriptor->is_live = false;
    else
        forget_descriptor(descriptor);
    return 0;
}

bool kept_grow(int fd, uint64_t bytes, bool has_media, uint64_t media_from, int *error) {
    struct stat info;
    const struct descriptor *descriptor = find_descriptor(fd);
    if (descriptor == NULL || (descriptor->flags & O_ACCMODE) == O_RDONLY || syscall(SYS_fstat, fd, &info) != 0 ||
        (!has_media && bytes < (uint64_t)info.st_size))
        return false;
    uint32_t number = vfs_file_number(fd);
    if (number == NO_FILE)
        return false;
    if (bytes > (uint64_t)info.st_size)
        undo_note_growth(number);
    long result = has_media ? syscall(SYS_fallocate, fd, 0, media_from, bytes - media_from) : syscall(SYS_ftruncate, fd, bytes);
    *error = result == 0 ? 0 : errno;
    return true;
}

uint64_t kept_heap_bytes(void) {
    uint64_t sum = vfs_image_bytes();
    if (!undo_has_grown())
        return sum;
    uint64_t seen[MOST_DESCRIPTORS];
    size_t count = 0;
    for (size_t i = 0; i < kept.descriptor_count; i++) {
        const struct descriptor *descriptor = &kept.descriptors[i];
        uint32_t number = vfs_file_number(descriptor->fd);
        struct stat info;
        bool is_seen = number == NO_FILE;
        for (size_t j = 0; j < count; j++)
            is_seen |= seen[j] == number;
        if (is_seen || syscall(SYS_fstat, descriptor->fd, &info) != 0)
            continue;
        seen[count++] = number;
        sum += (uint64_t)info.st_size - undo_image_bytes(number);
    }
    return sum;
}

/* ---- mappings ----------------------------------------------------------------------------------------------------------- */

static bool is_reservation(const struct request *request) { return request->protection == PROT_NONE && request->inode == 0; }
static bool is_live(const struct mapping *mapping) { return mapping->live_start < mapping->live_end; }

/* A live mapping with content in the range. */
static bool is_in_use(uintptr_t start, uintptr_t end, bool counts_reservations) {
    for (size_t i = 0; i < kept.mapping_count; i++) {
        const struct mapping *mapping = &kept.mappings[i];
        if (is_live(mapping) && mapping->live_start < end && start < mapping->live_end &&
            (counts_reservations || !is_reservation(&mapping->request)))
            return true;
    }
    return false;
}

static bool is_same(const struct request *one, const struct request *other) {
    return one->address == other->address && one->bytes == other->bytes && one->protection == other->protection &&
           one->flags == other->flags && one->device == other->device && one->inode == other->inode && one->offset == other->offset;
}

static struct mapping *find_unmapped(const struct request *request) {
    for (size_t i = 0; i < kept.mapping_count; i++) {
        struct mapping *mapping = &kept.mappings[i];
        bool may_lie_over = (request->flags & MAP_FIXED) != 0 && !is_reservation(request);
        if (!is_live(mapping) && is_same(&mapping->request, request) && !is_in_use(mapping->start, mapping->end, !may_lie_over))
            return mapping;
    }
    return NULL;
}

/* Of everything that is kept there and that the target has unmapped; with content, other mappings lie on it no more. */
static void release(uintptr_t start, uintptr_t end) {
    for (size_t i = kept.mapping_count; i-- > 0;) {
        struct mapping *mapping = &kept.mappings[i];
        if (is_live(mapping) || mapping->end <= start || end <= mapping->start)
            continue;
        uintptr_t from = mapping->start, to = mapping->end;
        bool has_content = !is_reservation(&mapping->request);
        *mapping = kept.mappings[--kept.mapping_count];
        if (is_in_use(from, to, true)) { /* a reservation that it lies over, or what lies over that reservation */
            if (has_content)
                syscall(SYS_mmap, from, to - from, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            continue;
        }
        syscall(SYS_munmap, from, to - from);
        release(from, to); /* what lay over it is gone, too */
        i = kept.mapping_count;
    }
}

static void make_zero(const struct mapping *mapping) {
    if (mapping->request.inode != 0 || (mapping->request.protection & PROT_WRITE) == 0)
        return;
    if (mapping->end - mapping->start <= ZEROED_BYTES)
        memset((void *)mapping->start, 0, mapping->end - mapping->start);
    else
        syscall(SYS_madvise, mapping->start, mapping->end - mapping->start, MADV_DONTNEED);
}

static void *answer(int error) {
    errno = error;
    return MAP_FAILED;
}

static bool is_fixed(const struct request *request) { return (request->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0; }

static void *map_anew(const struct request *request, int fd) {
    uintptr_t wanted = (uintptr_t)request->address, wanted_end = wanted + whole_pages(request->bytes);
    if (is_fixed(request)) {
        bool replaces = (request->flags & MAP_FIXED) != 0;
        if (is_in_use(wanted, wanted_end, !replaces)) {
            if (!replaces)
                return answer(EEXIST);
            inprocess_leave("maps over what it has mapped");
        }
        release(wanted, wanted_end);
    }
    if (kept.mapping_count == MOST_MAPPINGS)
        inprocess_leave("has more than 128 mappings");
    void *base =
        (void *)syscall(SYS_mmap, request->address, request->bytes, request->protection, request->flags, fd, request->offset);
    if (base == MAP_FAILED)
        return base;
    uintptr_t start = (uintptr_t)base, end = start + whole_pages(request->bytes);
    kept.mappings[kept.mapping_count++] = (struct mapping){*request, start, end, start, end};
    return base;
}

/* What the file system would say; 0: go on. */
static int refusal(const struct request *request, int fd) {
    const struct descriptor *descriptor = find_descriptor(fd);
    if (descriptor == NULL)
        return inprocess_leave("maps a file that it did not open"), EBADF;
    int access_mode = descriptor->flags & O_ACCMODE;
    bool is_shared = (request->flags & MAP_TYPE) != MAP_PRIVATE;
    if ((request->flags & MAP_TYPE) == MAP_SHARED_VALIDATE && (request->flags & MAP_SYNC) != 0 && !vfs_has_sync())
        return EOPNOTSUPP;
    if (access_mode == O_WRONLY || (is_shared && (request->protection & PROT_WRITE) != 0 && access_mode != O_RDWR))
        return EACCES;
    if (!is_shared && (request->protection & PROT_WRITE) != 0)
        inprocess_leave("maps a file privately");
    return 0;
}

void *kept_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    bool is_file = (flags & MAP_ANONYMOUS) == 0;
    struct request request = {address, bytes, protection, flags, 0, 0, offset};
    if (is_file) {
        int error = refusal(&request, fd);
        if (error != 0)
            return answer(error);
        const struct descriptor *descriptor = find_descriptor(fd);
        request.device = descriptor->info.st_dev;
        request.inode = descriptor->info.st_ino;
    } else if ((flags & MAP_TYPE) != MAP_PRIVATE || (protection & PROT_EXEC) != 0)
        inprocess_leave("maps shared or executable memory");
    void *base;
    struct mapping *known = find_unmapped(&request);
    if (known != NULL) {
        known->live_start = known->start;
        known->live_end = known->end;
        make_zero(known);
        base = (void *)known->start;
    } else
        base = map_anew(&request, fd);
    if (base != MAP_FAILED && is_file)
        vfs_note_kept((uintptr_t)base, bytes, request.device, request.inode, (uint64_t)offset, (flags & MAP_TYPE) != MAP_PRIVATE,
                      protection);
    return base;
}

/* Of one mapping. Reservations may lose their ends. */
static void unmap_part(struct mapping *mapping, uintptr_t start, uintptr_t end) {
    bool cuts_start = start <= mapping->live_start, cuts_end = mapping->live_end <= end;
    if (!(cuts_start && cuts_end) && (!is_reservation(&mapping->request) || (!cuts_start && !cuts_end)))
        inprocess_leave("unmaps a part of a mapping");
    if (cuts_start && cuts_end)
        mapping->live_end = mapping->live_start;
    else if (cuts_start)
        mapping->live_start = end;
    else
        mapping->live_end = start;
}

int kept_munmap(void *address, size_t bytes) {
    uintptr_t start = (uintptr_t)address, end = start + whole_pages(bytes);
    if (bytes == 0 || start % OS_PAGE_BYTES != 0)
        return errno = EINVAL, -1;
    bool found = false;
    for (size_t i = 0; i < kept.mapping_count; i++) {
        struct mapping *mapping = &kept.mappings[i];
        if (!is_live(mapping) || mapping->live_end <= start || end <= mapping->live_start)
            continue;
        unmap_part(mapping, start, end);
        found = true;
    }
    if (!found)
        inprocess_leave("unmaps what it has not mapped");
    vfs_forget_mapping(start, bytes);
    return 0;
}

bool kept_range(uintptr_t *lowest, uintptr_t *highest) {
    *lowest = UINTPTR_MAX;
    *highest = 0;
    for (size_t i = 0; i < kept.mapping_count; i++) {
        const struct mapping *mapping = &kept.mappings[i];
        if (mapping->request.inode == 0)
            continue;
        *lowest = mapping->start < *lowest ? mapping->start : *lowest;
        *highest = mapping->end > *highest ? mapping->end : *highest;
    }
    return *highest > 0;
}

bool kept_is_unmapped(uintptr_t address) {
    bool is_there = false;
    for (size_t i = 0; i < kept.mapping_count; i++) {
        const struct mapping *mapping = &kept.mappings[i];
        if (mapping->request.inode == 0 || address < mapping->start || mapping->end <= address)
            continue;
        if (is_live(mapping))
            return false;
        is_there = true;
    }
    return is_there;
}

void kept_end_life(void) {
    for (size_t i = 0; i < kept.mapping_count; i++)
        kept.mappings[i].live_end = kept.mappings[i].live_start = kept.mappings[i].start;
    for (size_t i = kept.descriptor_count; i-- > 0;) {
        if (kept.descriptors[i].is_heap)
            kept.descriptors[i].is_live = false;
        else
            forget_descriptor(&kept.descriptors[i]);
    }
}
