/* SPDX-License-Identifier: Apache-2.0
 *
 * Which parts of this process's memory show files of the heap, and which OS pages of them a target has stored to.
 */
#include "files/internal.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_MAPPINGS 64

static struct mapping first_mappings[FIRST_MAPPINGS];
struct mappings mappings = {first_mappings, 0, FIRST_MAPPINGS};
static void (*on_change)(void);

void vfs_on_mappings(void (*changed)(void)) { on_change = changed; }

void mappings_have_changed(void) {
    if (on_change != NULL)
        on_change();
}

/* ---- mappings --------------------------------------------------------------------------------------------------------- */

static void add_mapping(const struct mapping *mapping) {
    if (mappings.count == mappings.capacity) {
        size_t bytes = mappings.capacity * sizeof *mappings.list;
        long memory = syscall(SYS_mmap, NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == -1)
            vfs_give_up("its mappings", errno);
        memcpy((void *)memory, mappings.list, bytes);
        mappings.list = (struct mapping *)memory; /* the smaller table stays: a handful of OS pages at most */
        mappings.capacity *= 2;
    }
    mappings.list[mappings.count++] = *mapping;
}

void vfs_forget_mapping(uintptr_t address, uint64_t bytes) {
    uintptr_t end = address + whole_pages(bytes);
    for (size_t i = mappings.count; i-- > 0;) {
        struct mapping old = mappings.list[i];
        if (old.end <= address || end <= old.start)
            continue;
        mappings.list[i] = mappings.list[--mappings.count];
        struct mapping before = old, after = old;
        before.end = address;
        after.start = end;
        after.offset += end - old.start;
        if (old.start < address)
            add_mapping(&before);
        if (end < old.end)
            add_mapping(&after);
    }
    mappings_have_changed();
}

void vfs_note_mapping(uintptr_t address, uint64_t bytes, int fd, uint64_t offset, bool is_shared, int protection) {
    struct stat info;
    if (raw_stat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    bool is_stand_in = is_shared && vfs.mode == VFS_ISOLATE && tree_find(vfs.tree, info.st_dev, info.st_ino) != NULL;
    add_mapping(&(struct mapping){
        .start = address,
        .end = address + whole_pages(bytes),
        .offset = offset,
        .device = info.st_dev,
        .inode = info.st_ino,
        .protection = protection,
        .is_shared = is_shared,
        .is_stand_in = is_stand_in,
    });
    mappings_have_changed();
}

void vfs_note_kept(uintptr_t address, uint64_t bytes, uint64_t device, uint64_t inode, uint64_t offset, bool is_shared,
                   int protection) {
    add_mapping(&(struct mapping){
        .start = address,
        .end = address + whole_pages(bytes),
        .offset = offset,
        .device = device,
        .inode = inode,
        .protection = protection,
        .is_shared = is_shared,
    });
    mappings_have_changed();
}

void vfs_forget_mappings(void) {
    mappings.count = 0;
    mappings_have_changed();
}

void vfs_move_mapping(uintptr_t from, uint64_t old_bytes, uintptr_t to, uint64_t new_bytes) {
    for (size_t i = 0; i < mappings.count; i++) {
        struct mapping mapping = mappings.list[i];
        if (from < mapping.start || mapping.end <= from)
            continue;
        mapping.offset += from - mapping.start;
        mapping.start = to;
        mapping.end = to + whole_pages(new_bytes);
        vfs_forget_mapping(from, old_bytes);
        vfs_forget_mapping(to, new_bytes);
        add_mapping(&mapping);
        mappings_have_changed();
        return;
    }
}

/* An inode number that a copy had before its file was removed may be a new file's: that one counts as the old one then. */
static uint32_t number_of(uint64_t device, uint64_t inode) {
    for (size_t i = 0; vfs.tree != NULL && i < vfs.tree->count && device == vfs.tree->device; i++)
        if (vfs.tree->entries[i].inode == inode || vfs.tree->entries[i].copy_inode == inode)
            return vfs.tree->entries[i].number;
    return NO_FILE;
}

uint32_t mapping_file(const struct mapping *mapping) { return number_of(mapping->device, mapping->inode); }

uint32_t vfs_file_number(int fd) {
    struct stat info;
    return raw_stat(fd, &info) == 0 ? number_of(info.st_dev, info.st_ino) : NO_FILE;
}

bool vfs_view(size_t index, struct vfs_view *view) {
    if (index >= mappings.count)
        return false;
    const struct mapping *mapping = &mappings.list[index];
    *view = (struct vfs_view){
        .start = mapping->start,
        .end = mapping->end,
        .offset = mapping->offset,
        .file = number_of(mapping->device, mapping->inode),
        .inode = mapping->inode,
        .is_shared = mapping->is_shared,
        .protection = mapping->protection,
    };
    return true;
}

bool vfs_overlaps(int fd, uint64_t offset, uint64_t bytes) {
    struct stat info;
    if (raw_stat(fd, &info) != 0)
        return false;
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        bool is_same = mapping->device == info.st_dev && mapping->inode == info.st_ino;
        if (is_same && offset < mapping->offset + (mapping->end - mapping->start) && mapping->offset < offset + whole_pages(bytes))
            return true;
    }
    return false;
}

bool vfs_is_heap_mapped(void) {
    for (size_t i = 0; i < mappings.count; i++)
        if (mappings.list[i].is_stand_in)
            return true;
    return false;
}

bool vfs_maps_in(uintptr_t address, uint64_t bytes) {
    for (size_t i = 0; i < mappings.count; i++)
        if (mappings.list[i].start - address < bytes)
            return true;
    return false;
}

bool vfs_stands_in(uintptr_t address, uint64_t bytes) {
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        if (mapping->is_stand_in && address < mapping->end && mapping->start < address + bytes)
            return true;
    }
    return false;
}

/* ---- which OS pages of a private mapping were stored to ----------------------------------------------------------------- */

/* Documentation/admin-guide/mm/pagemap.rst: an OS page that is present or swapped out and is not file-mapped is a private copy. */
#define PAGEMAP_FILE (1ull << 61)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_PRESENT (1ull << 63)

static bool is_private_copy(uint64_t entry) {
    return (entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != 0 && (entry & PAGEMAP_FILE) == 0;
}

/* Calls run for each row of changed OS pages in [start, end) of the mapping. */
bool mappings_visit_modified(const struct mapping *mapping, uintptr_t start, uintptr_t end, page_run run) {
    static uint64_t entries[512];
    int fd = raw_open("/proc/self/pagemap", O_RDONLY);
    if (fd < 0)
        return run(mapping, start, end); /* nothing tells: all of it */
    bool goes_on = true;
    for (uintptr_t at = start; goes_on && at < end;) {
        size_t count = (end - at) / OS_PAGE_BYTES;
        count = count > 512 ? 512 : count;
        if (syscall(SYS_pread64, fd, entries, count * 8, at / OS_PAGE_BYTES * 8) != (long)(count * 8))
            vfs_give_up("/proc/self/pagemap", EIO);
        for (size_t i = 0; goes_on && i < count;) {
            size_t first = i;
            while (i < count && is_private_copy(entries[i]))
                i++;
            if (i > first)
                goes_on = run(mapping, at + first * OS_PAGE_BYTES, at + i * OS_PAGE_BYTES);
            else
                i++;
        }
        at += count * OS_PAGE_BYTES;
    }
    syscall(SYS_close, fd);
    return goes_on;
}

static bool stop_at_first(const struct mapping *mapping, uintptr_t start, uintptr_t end) {
    (void)mapping, (void)start, (void)end;
    return false;
}

bool mapping_is_modified(const struct mapping *mapping, uintptr_t start, uintptr_t end) {
    return !mappings_visit_modified(mapping, start, end, stop_at_first);
}

bool vfs_is_modified(uintptr_t address, uint64_t bytes) {
    uintptr_t end = address + whole_pages(bytes);
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        uintptr_t from = mapping->start > address ? mapping->start : address, to = mapping->end < end ? mapping->end : end;
        if (mapping->is_stand_in && from < to && mapping_is_modified(mapping, from, to))
            return true;
    }
    return false;
}

/* ---- for the probe ---------------------------------------------------------------------------------------------------- */

static bool stat_heap_file(const char *file, struct stat *info) {
    char path[PATH_MAX];
    const char *root = vfs.mode == VFS_REDIRECT ? vfs.copy : vfs.base;
    return snprintf(path, sizeof path, "%s/%s", root, file) < PATH_MAX && syscall(SYS_newfstatat, AT_FDCWD, path, info, 0) == 0;
}

/* The heap file that was looked at last: objects are scanned by the hundred, most of them in the same one as the one before. */
static struct {
    char file[NAME_MAX + 1]; /* empty: none */
    struct stat info;
} looked_at;

void vfs_look_anew(void) { looked_at.file[0] = '\0'; }

static bool look_at(const char *file) {
    if (looked_at.file[0] != '\0' && strcmp(looked_at.file, file) == 0)
        return true;
    vfs_look_anew();
    if (!stat_heap_file(file, &looked_at.info))
        return false;
    if (strlen(file) <= NAME_MAX)
        strcpy(looked_at.file, file);
    return true;
}

const uint8_t *vfs_address(const char *file, uint64_t offset, uint64_t *available) {
    if (!look_at(file) || offset >= (uint64_t)looked_at.info.st_size)
        return NULL;
    const struct stat *info = &looked_at.info;
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        uint64_t bytes = mapping->end - mapping->start;
        if (mapping->device != info->st_dev || mapping->inode != info->st_ino || !mapping->is_shared || offset < mapping->offset ||
            offset - mapping->offset >= bytes)
            continue;
        uint64_t mapped = bytes - (offset - mapping->offset), inside = (uint64_t)info->st_size - offset;
        *available = mapped < inside ? mapped : inside;
        return (const uint8_t *)mapping->start + (offset - mapping->offset);
    }
    return NULL;
}
