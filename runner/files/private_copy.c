/* SPDX-License-Identifier: Apache-2.0
 *
 * The private copy of a heap folder (vfs.c): when a target makes one, and how its mappings and descriptors move there.
 */
#include "files/internal.h"
#include "base/traced.h"
#include "base/in_process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_PIECES 1024

/* ---- the private copy ------------------------------------------------------------------------------------------------- */

struct piece { /* of the address space, with one protection */
    uintptr_t start, end;
    int protection;
};
static struct piece pieces[MAX_PIECES];
static size_t piece_count;

static bool is_moved(const struct mapping *mapping) {
    return mapping->is_shared && tree_find(vfs.tree, mapping->device, mapping->inode) != NULL;
}

static void note_piece(const char *line) {
    unsigned long start, end;
    char protection[5];
    if (sscanf(line, "%lx-%lx %4s", &start, &end, protection) != 3)
        return;
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        if (!is_moved(mapping) || end <= mapping->start || mapping->end <= start)
            continue;
        if (piece_count == MAX_PIECES)
            vfs_give_up("its mappings have too many protections", ENOMEM);
        pieces[piece_count++] = (struct piece){
            start > mapping->start ? start : mapping->start,
            end < mapping->end ? end : mapping->end,
            (protection[0] == 'r' ? PROT_READ : 0) | (protection[1] == 'w' ? PROT_WRITE : 0) |
                (protection[2] == 'x' ? PROT_EXEC : 0),
        };
    }
}

static void learn_protections(void) {
    static char text[1 << 16];
    size_t kept = 0;
    piece_count = 0;
    int fd = raw_open("/proc/self/maps", O_RDONLY);
    for (;;) {
        long got = fd < 0 ? -1 : syscall(SYS_read, fd, text + kept, sizeof text - 1 - kept);
        if (got < 0)
            vfs_give_up("/proc/self/maps", errno);
        if (got == 0)
            break;
        kept += (size_t)got;
        text[kept] = '\0';
        char *line = text, *end;
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
            note_piece(line);
        kept = strlen(line);
        memmove(text, line, kept);
    }
    syscall(SYS_close, fd);
}

static int copy_fd = -1;
static uint64_t copy_bytes;

static bool store_run(const struct mapping *mapping, uintptr_t start, uintptr_t end) {
    uint64_t offset = mapping->offset + (start - mapping->start);
    uint64_t bytes = end - start;
    if (offset >= copy_bytes)
        return true;
    bytes = bytes < copy_bytes - offset ? bytes : copy_bytes - offset;
    for (uint64_t done = 0; done < bytes;) {
        long put = syscall(SYS_pwrite64, copy_fd, start + done, bytes - done, offset + done);
        if (put <= 0)
            vfs_give_up("writing it", put == 0 ? EIO : errno);
        done += (uint64_t)put;
    }
    return true;
}

static int open_copy(const struct tree_entry *entry, int flags) {
    static char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s%s", vfs.copy, entry == NULL ? "" : "/", entry == NULL ? "" : entry->path) >= PATH_MAX)
        vfs_give_up("a path", ENAMETOOLONG);
    int fd = raw_open(path, flags);
    if (fd < 0)
        vfs_give_up("opening it", errno);
    return fd;
}

/* What the process stored so far becomes the copy's content; then the copy takes the mapping's place. */
static void move_mapping(struct mapping *mapping) {
    struct stat info;
    copy_fd = open_copy(tree_find(vfs.tree, mapping->device, mapping->inode), O_RDWR);
    if (raw_stat(copy_fd, &info) != 0)
        vfs_give_up("looking at it", errno);
    copy_bytes = (uint64_t)info.st_size;
    if (mapping->is_stand_in) {
        syscall(SYS_mprotect, mapping->start, mapping->end - mapping->start, PROT_READ);
        mappings_visit_modified(mapping, mapping->start, mapping->end, store_run);
    }
    for (size_t i = 0; i < piece_count; i++) {
        const struct piece *piece = &pieces[i];
        if (piece->start < mapping->start || mapping->end < piece->end)
            continue;
        if (syscall(SYS_mmap, piece->start, piece->end - piece->start, piece->protection, MAP_SHARED | MAP_FIXED, copy_fd,
                    mapping->offset + (piece->start - mapping->start)) == -1)
            vfs_give_up("mapping it", errno);
    }
    mapping->device = info.st_dev;
    mapping->inode = info.st_ino;
    mapping->is_stand_in = false;
    syscall(SYS_close, copy_fd);
}

static void move_descriptor(int fd) {
    struct stat info;
    if (raw_stat(fd, &info) != 0)
        return;
    const struct tree_entry *entry = tree_find(vfs.tree, info.st_dev, info.st_ino);
    bool is_folder = vfs_is_root(fd);
    if (entry == NULL && !is_folder)
        return;
    int wanted = vfs_wanted_flags(fd);
    int flags = wanted >= 0 ? wanted : S_ISDIR(info.st_mode) ? O_RDONLY | O_DIRECTORY : O_RDWR;
    int copy = open_copy(is_folder ? NULL : entry, flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW));
    long offset = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    if (offset > 0)
        syscall(SYS_lseek, copy, offset, SEEK_SET);
    long close_on_exec = syscall(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC;
    if (syscall(SYS_dup3, copy, fd, close_on_exec != 0 ? O_CLOEXEC : 0) < 0)
        vfs_give_up("a descriptor", errno);
    syscall(SYS_close, copy);
}

struct directory_entry { /* of getdents64 */
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static void move_descriptors(void) {
    const struct directory_entry *entry;
    static char buffer[1 << 14] __attribute__((aligned(8)));
    static int open_fds[4096];
    size_t count = 0;
    int listing = raw_open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    long got;
    while ((got = listing < 0 ? -1 : syscall(SYS_getdents64, listing, buffer, sizeof buffer)) > 0)
        for (long at = 0; at < got; at += entry->bytes) {
            entry = (const void *)(buffer + at);
            int fd = entry->name[0] == '.' ? -1 : atoi(entry->name);
            if (fd >= 0 && fd != listing && count < sizeof open_fds / sizeof open_fds[0])
                open_fds[count++] = fd;
        }
    if (got < 0)
        vfs_give_up("/proc/self/fd", errno);
    syscall(SYS_close, listing);
    for (size_t i = 0; i < count; i++)
        move_descriptor(open_fds[i]);
}

void vfs_materialise(void) {
    int saved = errno;
    inprocess_leave("changes files");
    vfs_lock();
    if (vfs.mode == VFS_ISOLATE || vfs.mode == VFS_TRACK) {
        traced_pause(true);
        int error = tree_copy(vfs.tree, vfs.base, vfs.copy);
        if (error != 0)
            vfs_give_up("copying the folder", error);
        learn_protections();
        for (size_t i = 0; i < mappings.count; i++)
            if (is_moved(&mappings.list[i]))
                move_mapping(&mappings.list[i]);
        vfs_cover_poison();
        move_descriptors();
        vfs.mode = VFS_REDIRECT;
        mappings_have_changed();
        traced_pause(false);
    }
    vfs_unlock();
    errno = saved;
}

/* ---- what makes one ------------------------------------------------------------------------------------------------------ */

void vfs_locate_for_change(int folder, const char *path, struct vfs_path *located) {
    vfs_locate(folder, path, located);
    if (located->is_heap && vfs_shows_image()) {
        vfs_materialise();
        vfs_locate(folder, path, located);
    }
}

void vfs_before_change(int fd) {
    if (vfs_is_protected(fd))
        vfs_materialise();
}

void vfs_before_read(int fd) {
    struct stat info;
    if (vfs.mode != VFS_ISOLATE || !vfs_is_heap_mapped() || raw_stat(fd, &info) != 0)
        return;
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        bool is_same = mapping->is_stand_in && mapping->device == info.st_dev && mapping->inode == info.st_ino;
        if (is_same && mapping_is_modified(mapping, mapping->start, mapping->end)) {
            vfs_materialise();
            return;
        }
    }
}
