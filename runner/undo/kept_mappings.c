/* SPDX-License-Identifier: Apache-2.0
 *
 * Mappings and descriptors of in-process runs. To make them anew for each run, with a fault for every OS page, would cost many
 * times what the run costs. So they are kept. What a target unmaps or closes stays there, and so does what it has when power
 * fails. When the target asks for the same again, it gets that. What belongs to a file that the run made is not kept: the file
 * goes when the run is over.
 *
 * The target sees nothing of this: calls answer as the kernel would. A kept mapping gives way when an answer needs its
 * addresses. Hooks find accesses where the target has nothing mapped (kept_is_unmapped). Calls that do not fit this picture make
 * the run an isolated one.
 *
 * Of a target without hooks shared mappings of files are private, and neither mappings nor descriptors are kept: what it uses
 * after it has let go of it faults as it should.
 *
 * Reservations (PROT_NONE) hold nothing, so other mappings may lie over them.
 */
#include "undo/undo.h"
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>

#define MOST_MAPPINGS 128u
#define MOST_DESCRIPTORS 64u
#define ZEROED_BYTES (256u << 10) /* larger anonymous mappings are given back instead */
#define MOST_VISITED_BYTES (4u << 20)     /* of an anonymous mapping, to be part of what is known of a run's state */

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
    bool is_kept;
};

struct descriptor {
    int fd;
    int flags;
    bool is_live, is_kept, was_locked; /* the last one: in this life */
    struct stat info;
    char path[PATH_MAX];
};

static struct {
    struct mapping mappings[MOST_MAPPINGS];
    size_t mapping_count;
    struct descriptor descriptors[MOST_DESCRIPTORS];
    size_t descriptor_count;
} kept;

#define CHANGES "changes files, without hooks"

/* ---- descriptors -------------------------------------------------------------------------------------------------------- */

static struct descriptor *find_descriptor(int fd) {
    for (size_t i = 0; i < kept.descriptor_count; i++)
        if (kept.descriptors[i].fd == fd && kept.descriptors[i].is_live)
            return &kept.descriptors[i];
    return NULL;
}

/* The name still leads to what was opened by it. */
static bool is_at(const struct descriptor *descriptor, const char *path) {
    struct stat info;
    return !names_are_changed() || (syscall(SYS_newfstatat, AT_FDCWD, path, &info, 0) == 0 &&
                                    info.st_dev == descriptor->info.st_dev && info.st_ino == descriptor->info.st_ino);
}

static struct descriptor *find_unused(const char *path, int flags) {
    for (size_t i = 0; i < kept.descriptor_count; i++) {
        struct descriptor *descriptor = &kept.descriptors[i];
        if (!descriptor->is_live && descriptor->flags == flags && strcmp(descriptor->path, path) == 0 && is_at(descriptor, path))
            return descriptor;
    }
    return NULL;
}

/* Opens a file that is made or emptied by that. */
static int open_anew(const struct vfs_path *path, int flags, mode_t mode) {
    struct stat info;
    bool is_there = syscall(SYS_newfstatat, path->folder, path->path, &info, 0) == 0;
    if ((flags & O_TMPFILE) == O_TMPFILE || (is_there && (flags & O_ACCMODE) == O_RDONLY))
        inprocess_leave("opens a file in a way that is not kept");
    if (!is_there)
        names_will_make(path);
    int fd = (int)syscall(SYS_openat, path->folder, path->path, flags & ~O_TRUNC, mode);
    if (fd < 0 || !is_there)
        return fd;
    if (vfs_is_protected(fd))
        undo_note_resize(vfs_file_number(fd), (uint64_t)info.st_size, 0);
    if (syscall(SYS_ftruncate, fd, 0) == 0)
        return fd;
    syscall(SYS_close, fd);
    inprocess_leave("empties a file that cannot be emptied");
    return -1;
}

/* Without the changes of this run, too, the name leads there. */
static bool is_of_image(const struct vfs_path *path, const struct stat *info) {
    char name[PATH_MAX];
    const struct tree *tree = vfs_tree();
    if (info->st_dev == tree->device && info->st_ino == tree->folder_inode)
        return true;
    const struct tree_entry *entry = tree_find(tree, info->st_dev, info->st_ino);
    return entry != NULL && vfs_located_heap_path(path, name) && strcmp(entry->path, name) == 0;
}

/* Without hooks nothing but the target's own memory may change: a file of the heap is opened for reading. */
static int open_known(const struct vfs_path *path, int flags) {
    bool is_view = inprocess_is_plain() && path->is_heap && (flags & O_ACCMODE) != O_RDONLY && (flags & O_DIRECTORY) == 0;
    if (!is_view)
        return (int)syscall(SYS_openat, path->folder, path->path, flags, 0);
    struct stat info;
    int fd = (int)syscall(SYS_openat, path->folder, path->path, (flags & ~(O_ACCMODE | O_TRUNC)) | O_RDONLY, 0);
    if (fd < 0 || syscall(SYS_fstat, fd, &info) != 0 || !S_ISDIR(info.st_mode))
        return fd;
    syscall(SYS_close, fd);
    errno = EISDIR;
    return -1;
}

int kept_open(const struct vfs_path *path, int flags, mode_t mode, bool is_change) {
    if (is_change && inprocess_is_plain())
        inprocess_leave(CHANGES);
    if ((flags & (O_APPEND | O_ASYNC | O_NONBLOCK | O_PATH)) != 0)
        inprocess_leave("opens a file in a way that is not kept");
    struct descriptor *known = path->is_heap && !is_change ? find_unused(path->path, flags) : NULL;
    if (known != NULL) {
        syscall(SYS_lseek, known->fd, 0, SEEK_SET);
        known->is_live = true;
        return known->fd;
    }
    int fd = is_change ? open_anew(path, flags, mode) : open_known(path, flags);
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
    descriptor->was_locked = false;
    strcpy(descriptor->path, path->path);
    syscall(SYS_fstat, fd, &descriptor->info);
    descriptor->is_kept = path->is_heap && !is_change && !inprocess_is_plain() && is_of_image(path, &descriptor->info);
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
    if (descriptor->is_kept)
        descriptor->is_live = false;
    else
        forget_descriptor(descriptor);
    return 0;
}

/* A lock on a file of the image is nobody's business but this life's: whoever has it open besides is no program that the target would
 * meet. When the kernel lets go of a lock depends on descriptors and mappings, so what is locked by two descriptors is a matter of the
 * isolated engine. Without hooks neither is kept, so the lock goes with them. */
int kept_flock(int fd, int operation) {
    if (inprocess_is_plain())
        return (int)syscall(SYS_flock, fd, operation);
    struct descriptor *descriptor = find_descriptor(fd);
    int kind = operation & ~LOCK_NB;
    if (descriptor == NULL || !descriptor->is_kept || (kind != LOCK_SH && kind != LOCK_EX && kind != LOCK_UN))
        inprocess_leave("locks a file in a way that is not kept");
    for (size_t i = 0; i < kept.descriptor_count; i++) {
        const struct descriptor *other = &kept.descriptors[i];
        bool is_same = other->info.st_dev == descriptor->info.st_dev && other->info.st_ino == descriptor->info.st_ino;
        if (other != descriptor && other->was_locked && is_same)
            inprocess_leave("locks a file by two descriptors");
    }
    descriptor->was_locked |= kind != LOCK_UN;
    return 0;
}

int kept_flags(int fd) {
    const struct descriptor *descriptor = find_descriptor(fd);
    return descriptor == NULL ? -1 : descriptor->flags;
}

/* ---- changes of files of the image ------------------------------------------------------------------------------------------ */

/* *bytes_now: its size. NO_FILE: the kernel will say that the descriptor is not for that. */
static uint32_t file_to_change(int fd, uint64_t *bytes_now) {
    struct stat info;
    const struct descriptor *descriptor = find_descriptor(fd);
    if (descriptor == NULL)
        inprocess_leave("changes a file that it did not open");
    if (descriptor == NULL || (descriptor->flags & O_ACCMODE) == O_RDONLY || syscall(SYS_fstat, fd, &info) != 0)
        return NO_FILE;
    *bytes_now = (uint64_t)info.st_size;
    return vfs_file_number(fd);
}

int kept_truncate(int fd, off_t bytes) {
    uint64_t bytes_now;
    uint32_t number = file_to_change(fd, &bytes_now);
    if (inprocess_is_plain() && number != NO_FILE && (uint64_t)bytes == bytes_now)
        return 0;
    if (inprocess_is_plain())
        inprocess_leave(CHANGES);
    if (number != NO_FILE && bytes >= 0 && (uint64_t)bytes != bytes_now)
        undo_note_resize(number, bytes_now, (uint64_t)bytes);
    return (int)syscall(SYS_ftruncate, fd, bytes);
}

int kept_fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (inprocess_is_plain())
        inprocess_leave(CHANGES);
    uint64_t bytes_now;
    uint32_t number = file_to_change(fd, &bytes_now);
    bool is_meant = number != NO_FILE && offset >= 0 && bytes > 0;
    if (is_meant && mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
        undo_note_zeroing(number, (uint64_t)offset, (uint64_t)bytes);
    else if (is_meant && mode == 0 && (uint64_t)offset + (uint64_t)bytes > bytes_now)
        undo_note_resize(number, bytes_now, (uint64_t)offset + (uint64_t)bytes);
    else if (is_meant && mode != 0 && mode != FALLOC_FL_KEEP_SIZE)
        inprocess_leave("changes a file by fallocate in another way than to extend or to punch it");
    return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

void kept_will_write(int fd, const off_t *offset, uint64_t count) {
    if (inprocess_is_plain())
        inprocess_leave(CHANGES);
    uint64_t bytes_now;
    uint32_t number = file_to_change(fd, &bytes_now);
    long from = offset != NULL ? *offset : syscall(SYS_lseek, fd, 0, SEEK_CUR);
    if (number != NO_FILE && from >= 0 && count > 0)
        undo_note_write(number, bytes_now, (uint64_t)from, count);
}

/* ---- mappings ----------------------------------------------------------------------------------------------------------- */

static bool is_reservation(const struct request *request) { return request->protection == PROT_NONE && request->inode == 0; }
static bool is_live(const struct mapping *mapping) { return mapping->live_start < mapping->live_end; }

static bool is_private_view(const struct mapping *mapping) {
    const struct request *request = &mapping->request;
    return inprocess_is_plain() && request->inode != 0 && (request->flags & MAP_TYPE) != MAP_PRIVATE;
}

/* The target has some of that part of the file mapped; is_view: as only it can see it. */
static bool has_mapped(uint64_t device, uint64_t inode, uint64_t offset, uint64_t bytes, bool is_view) {
    for (size_t i = 0; i < kept.mapping_count; i++) {
        const struct mapping *mapping = &kept.mappings[i];
        const struct request *request = &mapping->request;
        bool is_it =
            request->device == device && request->inode == inode && is_live(mapping) && (!is_view || is_private_view(mapping));
        if (is_it && (uint64_t)request->offset < offset + bytes && offset < (uint64_t)request->offset + whole_pages(request->bytes))
            return true;
    }
    return false;
}

void kept_will_read(int fd) {
    const struct descriptor *descriptor = inprocess_is_plain() ? find_descriptor(fd) : NULL;
    if (descriptor != NULL && has_mapped(descriptor->info.st_dev, descriptor->info.st_ino, 0, INT64_MAX, true))
        inprocess_leave("reads a file that it has mapped, without hooks");
}

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
        guarded_munmap((void *)from, to - from);
        release(from, to); /* what lay over it is gone, too */
        i = kept.mapping_count;
    }
}

/* Of what is not kept, and unmapped. */
static void release_others(void) {
    for (size_t i = kept.mapping_count; i-- > 0;) {
        const struct mapping *mapping = &kept.mappings[i];
        if (mapping->is_kept || is_live(mapping))
            continue;
        release(mapping->start, mapping->end);
        i = kept.mapping_count;
    }
}

static void unmap_whole(struct mapping *mapping) { mapping->live_end = mapping->live_start = mapping->start; }

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
    int flags = request->flags;
    bool is_view = inprocess_is_plain() && request->inode != 0 && (flags & MAP_TYPE) != MAP_PRIVATE;
    if (is_view)
        flags = (flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_PRIVATE | MAP_NORESERVE;
    void *base = guarded_mmap(request->address, request->bytes, request->protection, flags, fd, request->offset);
    if (base == MAP_FAILED)
        return base;
    uintptr_t start = (uintptr_t)base, end = start + whole_pages(request->bytes);
    bool is_kept = !inprocess_is_plain() && (request->inode == 0 || vfs_file_number(fd) != NO_FILE);
    kept.mappings[kept.mapping_count++] = (struct mapping){*request, start, end, start, end, is_kept};
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
        if (inprocess_is_plain() && has_mapped(request.device, request.inode, (uint64_t)offset, whole_pages(bytes), false))
            inprocess_leave("maps a part of a file twice, without hooks");
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
        if (is_private_view(mapping) && touched_is_stored_to((void *)mapping->start, mapping->end - mapping->start))
            inprocess_leave("unmaps a file that it stored to, without hooks");
        unmap_part(mapping, start, end);
        found = true;
    }
    if (!found)
        inprocess_leave("unmaps what it has not mapped");
    release_others();
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
        if (!kept.mappings[i].is_kept)
            unmap_whole(&kept.mappings[i]);
    release_others(); /* while the reservations that they lie over are there */
    for (size_t i = 0; i < kept.mapping_count; i++)
        unmap_whole(&kept.mappings[i]);
    for (size_t i = kept.descriptor_count; i-- > 0;) {
        kept.descriptors[i].was_locked = false;
        if (kept.descriptors[i].is_kept)
            kept.descriptors[i].is_live = false;
        else
            forget_descriptor(&kept.descriptors[i]);
    }
}

static bool visit_mapping(const struct mapping *mapping, void (*visit)(const void *bytes, size_t count)) {
    const struct request *request = &mapping->request;
    size_t bytes = mapping->live_end - mapping->live_start;
    bool is_memory = request->inode == 0 && request->protection != PROT_NONE;
    visit(request, sizeof *request);
    visit((uintptr_t[3]){mapping->start, mapping->live_start, mapping->live_end}, 3 * sizeof(uintptr_t));
    if (is_memory && (request->protection & PROT_READ) == 0)
        return false;
    return !is_memory || touched_visit((const void *)mapping->live_start, bytes, MOST_VISITED_BYTES, visit);
}

bool kept_visit_state(void (*visit)(const void *bytes, size_t count)) {
    for (size_t i = 0; i < kept.mapping_count; i++)
        if (is_live(&kept.mappings[i]) && !visit_mapping(&kept.mappings[i], visit))
            return false;
    for (size_t i = 0; i < kept.descriptor_count; i++) {
        const struct descriptor *descriptor = &kept.descriptors[i];
        if (!descriptor->is_live && !descriptor->was_locked)
            continue;
        long place = descriptor->is_live ? syscall(SYS_lseek, descriptor->fd, 0, SEEK_CUR) : -1;
        visit((long[4]){descriptor->fd, descriptor->flags, place, descriptor->was_locked}, 4 * sizeof(long));
        visit(descriptor->path, strlen(descriptor->path) + 1);
    }
    return true;
}
