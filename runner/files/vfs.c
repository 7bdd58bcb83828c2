/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps what a target does to its heap folder away from the crash image, without the target noticing.
 *
 * ISOLATE, for the life that runs on the image itself. Heap files are opened for reading only, whatever the target asks for;
 * a shared mapping becomes a private one (copy on write), which stands in for it as long as nothing else looks at the same
 * bytes. Whatever private mappings cannot show truthfully, ends the mode: a second mapping of the same bytes, a resize, a
 * write by system call, any change of names, a thread or a process that would share the memory. Then
 *
 *     vfs_materialise()   copies the folder, stores what private mappings hold into the copy, puts shared mappings of the copy
 *                         where they were, and lets open descriptors lead to the copy
 *
 * REDIRECT: paths in the heap folder lead to the copy; everything else is the kernel's. The target goes on seeing the paths
 * it was given. TRACK: nothing is redirected, mappings are remembered, and vfs_materialise() moves this process to a copy.
 *
 * What goes past the C library (system calls made directly) is not seen here. It cannot write through descriptors opened
 * here, and the server watches the image for anything else (serve.c).
 */
#include "vfs.h"
#include "inprocess.h"
#include "planted.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "persist.h"

#define WANTED_MAX 1024
#define FIRST_MAPPINGS 64
#define MAX_PIECES 1024

struct mapping {
    uintptr_t start, end;
    uint64_t offset; /* of start in the file */
    uint64_t device, inode;
    int protection;   /* as the target asked */
    bool is_shared;   /* as the target asked */
    bool is_stand_in; /* a private mapping instead of a shared one */
};

static struct {
    enum vfs_mode mode;
    char base[PATH_MAX], copy[PATH_MAX];
    size_t base_length, copy_length;
    struct tree *tree;
    void (*failure)(const char *message);
    struct mapping *mappings;
    size_t mapping_count, mapping_capacity;
    bool has_sync, is_sync_known;
    int wanted[WANTED_MAX]; /* flags of open + 1; 0: not opened by the target */
} vfs;

static struct mapping first_mappings[FIRST_MAPPINGS];
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

enum vfs_mode vfs_mode(void) { return vfs.mode; }
bool vfs_is_active(void) { return vfs.mode >= VFS_ISOLATE; }
bool vfs_shows_image(void) { return vfs.mode == VFS_ISOLATE || vfs.mode == VFS_IN_PROCESS; }
void vfs_on_failure(void (*failure)(const char *message)) { vfs.failure = failure; }
void vfs_lock(void) { pthread_mutex_lock(&mutex); }
void vfs_unlock(void) { pthread_mutex_unlock(&mutex); }

static _Noreturn void give_up(const char *what, int error) {
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
    if (vfs.mappings == NULL) {
        vfs.mappings = first_mappings;
        vfs.mapping_capacity = FIRST_MAPPINGS;
    }
}

void *vfs_real(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL)
        give_up(name, ENOSYS);
    return function;
}

static int raw_stat(int fd, struct stat *info) { return (int)syscall(SYS_fstat, fd, info); }

static int raw_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0); }

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
        give_up("a path", ENAMETOOLONG);
}

void vfs_locate_for_change(int folder, const char *path, struct vfs_path *located) {
    vfs_locate(folder, path, located);
    if (located->is_heap && vfs_shows_image()) {
        vfs_materialise();
        vfs_locate(folder, path, located);
    }
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

static bool is_root(int fd) {
    struct stat info;
    return raw_stat(fd, &info) == 0 && info.st_dev == vfs.tree->device && info.st_ino == vfs.tree->folder_inode;
}

bool vfs_is_protected(int fd) {
    int saved = errno;
    bool is_protected = vfs_shows_image() && fd >= 0 && (entry_of(fd) != NULL || is_root(fd));
    errno = saved;
    return is_protected;
}

void vfs_before_change(int fd) {
    if (vfs_is_protected(fd) && !planted("file-change-leaks"))
        vfs_materialise();
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

int vfs_wanted_flags(int fd) { return fd >= 0 && fd < WANTED_MAX && vfs.wanted[fd] != 0 ? vfs.wanted[fd] - 1 : -1; }

void vfs_note_wanted(int fd, int flags) {
    if (fd >= 0 && fd < WANTED_MAX)
        vfs.wanted[fd] = flags + 1;
}

/* ---- mappings --------------------------------------------------------------------------------------------------------- */

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

static void add_mapping(const struct mapping *mapping) {
    if (vfs.mapping_count == vfs.mapping_capacity) {
        size_t bytes = vfs.mapping_capacity * sizeof *vfs.mappings;
        long memory = syscall(SYS_mmap, NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == -1)
            give_up("its mappings", errno);
        memcpy((void *)memory, vfs.mappings, bytes);
        vfs.mappings = (struct mapping *)memory; /* the smaller table stays: a handful of OS pages at most */
        vfs.mapping_capacity *= 2;
    }
    vfs.mappings[vfs.mapping_count++] = *mapping;
}

void vfs_forget_mapping(uintptr_t address, uint64_t bytes) {
    uintptr_t end = address + whole_pages(bytes);
    for (size_t i = vfs.mapping_count; i-- > 0;) {
        struct mapping old = vfs.mappings[i];
        if (old.end <= address || end <= old.start)
            continue;
        vfs.mappings[i] = vfs.mappings[--vfs.mapping_count];
        struct mapping before = old, after = old;
        before.end = address;
        after.start = end;
        after.offset += end - old.start;
        if (old.start < address)
            add_mapping(&before);
        if (end < old.end)
            add_mapping(&after);
    }
    loads_follow();
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
    loads_follow();
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
    loads_follow();
}

void vfs_forget_mappings(void) {
    vfs.mapping_count = 0;
    loads_follow();
}

void vfs_move_mapping(uintptr_t from, uint64_t old_bytes, uintptr_t to, uint64_t new_bytes) {
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        struct mapping mapping = vfs.mappings[i];
        if (from < mapping.start || mapping.end <= from)
            continue;
        mapping.offset += from - mapping.start;
        mapping.start = to;
        mapping.end = to + whole_pages(new_bytes);
        vfs_forget_mapping(from, old_bytes);
        vfs_forget_mapping(to, new_bytes);
        add_mapping(&mapping);
        loads_follow();
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

uint32_t vfs_file_number(int fd) {
    struct stat info;
    return raw_stat(fd, &info) == 0 ? number_of(info.st_dev, info.st_ino) : NO_FILE;
}

bool vfs_view(size_t index, struct vfs_view *view) {
    if (index >= vfs.mapping_count)
        return false;
    const struct mapping *mapping = &vfs.mappings[index];
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
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        const struct mapping *mapping = &vfs.mappings[i];
        bool is_same = mapping->device == info.st_dev && mapping->inode == info.st_ino;
        if (is_same && offset < mapping->offset + (mapping->end - mapping->start) && mapping->offset < offset + whole_pages(bytes))
            return true;
    }
    return false;
}

bool vfs_is_heap_mapped(void) {
    for (size_t i = 0; i < vfs.mapping_count; i++)
        if (vfs.mappings[i].is_stand_in)
            return true;
    return false;
}

bool vfs_stands_in(uintptr_t address, uint64_t bytes) {
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        const struct mapping *mapping = &vfs.mappings[i];
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

typedef bool (*page_run)(const struct mapping *mapping, uintptr_t start, uintptr_t end); /* false: stop */

static bool is_private_copy(uint64_t entry) {
    return (entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != 0 && (entry & PAGEMAP_FILE) == 0;
}

/* Calls run for each row of changed OS pages in [start, end) of the mapping. */
static bool visit_modified(const struct mapping *mapping, uintptr_t start, uintptr_t end, page_run run) {
    static uint64_t entries[512];
    int fd = raw_open("/proc/self/pagemap", O_RDONLY);
    if (fd < 0)
        return run(mapping, start, end); /* nothing tells: all of it */
    bool goes_on = true;
    for (uintptr_t at = start; goes_on && at < end;) {
        size_t count = (end - at) / OS_PAGE_BYTES;
        count = count > 512 ? 512 : count;
        if (syscall(SYS_pread64, fd, entries, count * 8, at / OS_PAGE_BYTES * 8) != (long)(count * 8))
            give_up("/proc/self/pagemap", EIO);
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

bool vfs_is_modified(uintptr_t address, uint64_t bytes) {
    uintptr_t end = address + whole_pages(bytes);
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        const struct mapping *mapping = &vfs.mappings[i];
        uintptr_t from = mapping->start > address ? mapping->start : address, to = mapping->end < end ? mapping->end : end;
        if (mapping->is_stand_in && from < to && !visit_modified(mapping, from, to, stop_at_first))
            return true;
    }
    return false;
}

void vfs_before_read(int fd) {
    struct stat info;
    kept_will_read(fd);
    if (vfs.mode != VFS_ISOLATE || !vfs_is_heap_mapped() || raw_stat(fd, &info) != 0)
        return;
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        const struct mapping *mapping = &vfs.mappings[i];
        bool is_same = mapping->is_stand_in && mapping->device == info.st_dev && mapping->inode == info.st_ino;
        if (is_same && !visit_modified(mapping, mapping->start, mapping->end, stop_at_first)) {
            vfs_materialise();
            return;
        }
    }
}

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
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        const struct mapping *mapping = &vfs.mappings[i];
        if (!is_moved(mapping) || end <= mapping->start || mapping->end <= start)
            continue;
        if (piece_count == MAX_PIECES)
            give_up("its mappings have too many protections", ENOMEM);
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
            give_up("/proc/self/maps", errno);
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
            give_up("writing it", put == 0 ? EIO : errno);
        done += (uint64_t)put;
    }
    return true;
}

static int open_copy(const struct tree_entry *entry, int flags) {
    static char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s%s", vfs.copy, entry == NULL ? "" : "/", entry == NULL ? "" : entry->path) >= PATH_MAX)
        give_up("a path", ENAMETOOLONG);
    int fd = raw_open(path, flags);
    if (fd < 0)
        give_up("opening it", errno);
    return fd;
}

/* What the process stored so far becomes the copy's content; then the copy takes the mapping's place. */
static void move_mapping(struct mapping *mapping) {
    struct stat info;
    copy_fd = open_copy(tree_find(vfs.tree, mapping->device, mapping->inode), O_RDWR);
    if (raw_stat(copy_fd, &info) != 0)
        give_up("looking at it", errno);
    copy_bytes = (uint64_t)info.st_size;
    if (mapping->is_stand_in) {
        syscall(SYS_mprotect, mapping->start, mapping->end - mapping->start, PROT_READ);
        visit_modified(mapping, mapping->start, mapping->end, store_run);
    }
    for (size_t i = 0; i < piece_count; i++) {
        const struct piece *piece = &pieces[i];
        if (piece->start < mapping->start || mapping->end < piece->end)
            continue;
        if (syscall(SYS_mmap, piece->start, piece->end - piece->start, piece->protection, MAP_SHARED | MAP_FIXED, copy_fd,
                    mapping->offset + (piece->start - mapping->start)) == -1)
            give_up("mapping it", errno);
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
    bool is_folder = is_root(fd);
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
        give_up("a descriptor", errno);
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
        give_up("/proc/self/fd", errno);
    syscall(SYS_close, listing);
    for (size_t i = 0; i < count; i++)
        move_descriptor(open_fds[i]);
}

void vfs_materialise(void) {
    int saved = errno;
    inprocess_leave("changes files");
    vfs_lock();
    if (vfs.mode == VFS_ISOLATE || vfs.mode == VFS_TRACK) {
        report_result()->made_copy = 1;
        int error = tree_copy(vfs.tree, vfs.base, vfs.copy);
        if (error != 0)
            give_up("copying the folder", error);
        learn_protections();
        for (size_t i = 0; i < vfs.mapping_count; i++)
            if (is_moved(&vfs.mappings[i]))
                move_mapping(&vfs.mappings[i]);
        move_descriptors();
        vfs.mode = VFS_REDIRECT;
        loads_follow();
    }
    vfs_unlock();
    errno = saved;
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
    for (size_t i = 0; i < vfs.mapping_count; i++) {
        const struct mapping *mapping = &vfs.mappings[i];
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

uint64_t vfs_heap_bytes(void) {
    bool is_image = vfs.mode == VFS_IN_PROCESS ? !names_are_changed() && !undo_has_resized() : vfs.mode != VFS_REDIRECT;
    if (is_image)
        return tree_bytes(vfs.tree);
    struct tree tree;
    int error = vfs_list(&tree);
    if (error != 0)
        give_up("listing it", error);
    uint64_t bytes = tree_bytes(&tree);
    tree_free(&tree);
    return bytes;
}
