/* SPDX-License-Identifier: Apache-2.0
 *
 * OS pages of a heap file that the medium lost. Where a mapping shows them, one of a file without bytes covers it: a load or a store there
 * raises SIGBUS, as it does after a memory failure. A read behind a descriptor answers EIO, as of bad blocks.
 */
#include "files/internal.h"
#include <sys/mman.h>

static struct {
    uint32_t file;
    uint64_t start, end; /* bytes of it; equal: nothing is poisoned */
} poison;

void vfs_poison(uint32_t file, uint64_t offset, uint64_t bytes) {
    poison.file = file;
    poison.start = offset;
    poison.end = offset + bytes;
}

bool vfs_has_poison(void) { return poison.start < poison.end; }

bool vfs_is_poisoned(int fd, uint64_t offset, uint64_t bytes) {
    bool is_there = vfs_has_poison() && offset < poison.end && (poison.start < offset || poison.start - offset < bytes);
    return is_there && bytes > 0 && vfs_file_number(fd) == poison.file;
}

/* The poisoned part of the mapping. False: it has none. */
static bool poisoned_part(const struct mapping *mapping, uintptr_t *start, uintptr_t *end) {
    if (!vfs_has_poison() || mapping_file(mapping) != poison.file)
        return false;
    uint64_t shown_end = mapping->offset + (mapping->end - mapping->start);
    uint64_t from = poison.start > mapping->offset ? poison.start : mapping->offset;
    uint64_t to = poison.end < shown_end ? poison.end : shown_end;
    *start = mapping->start + (from - mapping->offset);
    *end = mapping->start + (to - mapping->offset);
    return from < to;
}

static void cover(const struct mapping *mapping) {
    uintptr_t start, end;
    if (!poisoned_part(mapping, &start, &end))
        return;
    long nothing = syscall(SYS_memfd_create, "poison", MFD_CLOEXEC);
    if (nothing < 0 || syscall(SYS_mmap, start, end - start, mapping->protection, MAP_SHARED | MAP_FIXED, nothing, 0) == -1)
        vfs_give_up("covering a poisoned page", errno);
    syscall(SYS_close, nothing);
}

void vfs_cover_poison(void) {
    for (size_t i = 0; i < mappings.count; i++)
        cover(&mappings.list[i]);
}

bool vfs_maps_poison(uintptr_t address, uint64_t bytes) {
    uintptr_t start, end;
    for (size_t i = 0; i < mappings.count; i++)
        if (poisoned_part(&mappings.list[i], &start, &end) && start < address + bytes && address < end)
            return true;
    return false;
}
