/* SPDX-License-Identifier: Apache-2.0
 *
 * A small allocator for the runner's own tests. Its tables and, in the chain layout, the nodes' headers are all its metadata:
 *
 *     0      struct head
 *     4096   slot table: offset and bytes of each slot's object
 *            name table (names layout): the same, and the name each is found by
 *     data   objects, first fit, in units of 64 bytes (chain layout: a node header of one unit before the object)
 *
 * One lock makes it fit for threads, which must attach before they call and detach before close.
 *
 * -DMUTANT_KEEPS_RESERVATION: a place is reserved before its object is written, and recovery forgets to give it back.
 *
 * -DGROWS: each allocation makes a file beside the heap's, and a folder, and the file longer by each kind of call: nine growths.
 *
 * -DLAZY: a lazy open leaves three pieces; -DBREAKS: the second of them fails.
 *
 * -DBEHAVIOUR=NAME makes open do something to the process or to its files, see behaviour_NAME. A behaviour that does something
 * to its files also checks that it sees what a process alone on a file system would see.
 */
#define _GNU_SOURCE
#include "adapter.h"
#include "persist.h"
#include "stage.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAGIC 0x7465737468656170ull
#define UNIT 64u

struct head {
    uint64_t magic, bytes, slot_count;
    uint64_t scratch; /* for behaviours */
    uint64_t chain;   /* chain layout: offset of the first node; 0: none */
    struct {
        uint64_t offset, bytes; /* offset 0: nothing; set last */
    } reserved, lost;
};

struct slot {
    uint64_t offset, bytes; /* offset 0: null; set last */
};

struct named {
    struct slot slot;
    char name[16];
};

/* Right before a node's object. */
struct node {
    uint64_t slot, bytes;
    uint64_t next; /* 0: the last */
    uint8_t unused[UNIT - 24];
};

struct fl_heap {
    char folder[4096], path[4200];
    int fd;
    uint8_t *base;
    uint64_t bytes;
    struct head *head;
    struct slot *slots;
    struct named *names;
    uint64_t data;
    uint32_t layout, layout_slots;
    pthread_mutex_t lock;
    int attached; /* threads */
    int pieces; /* that a lazy open left */
    int listings; /* behaviours LISTED_*: how often the second half is in the list of free places */
};

static _Thread_local int is_attached;

static char reason[256] = "no failure";

static int fail_with(const char *text) {
    snprintf(reason, sizeof reason, "%s", text);
    return FL_ERROR;
}

#define EXPECT(condition)                                                                                                          \
    do                                                                                                                             \
        if (!(condition)) {                                                                                                        \
            snprintf(reason, sizeof reason, "line %d: " #condition, __LINE__);                                                     \
            return FL_ERROR;                                                                                                       \
        }                                                                                                                          \
    while (0)

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static int map_heap(struct fl_heap *heap, uintptr_t address) {
    int is_emulated;
    heap->base = fl_map(address, heap->bytes, heap->fd, 0, 0, &is_emulated);
    if (heap->base == MAP_FAILED)
        return fail_with("mmap");
    heap->head = (struct head *)heap->base;
    heap->slots = (struct slot *)(heap->base + 4096);
    heap->names = (struct named *)(heap->base + heap->data) - heap->layout_slots;
    return FL_OK;
}

/* ---- behaviours ----------------------------------------------------------------------------------------------------------- */

#define SCRATCH(heap) (*(volatile uint64_t *)&(heap)->head->scratch)
#define SCRATCH_OFFSET offsetof(struct head, scratch)

static int is_listed(const struct fl_heap *heap, const char *name) {
    DIR *folder = opendir(heap->folder);
    int found = 0;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        found |= strcmp(entry->d_name, name) == 0;
    closedir(folder);
    return found;
}

static void in_folder(const struct fl_heap *heap, const char *name, char path[4200]) {
    snprintf(path, 4200, "%s/%s", heap->folder, name);
}

__attribute__((unused)) static int behaviour_NONE(struct fl_heap *heap) { return (void)heap, FL_OK; }
__attribute__((unused)) static int behaviour_CRASH(struct fl_heap *heap) { return (void)heap, *(volatile int *)8 = 0; }
__attribute__((unused)) static int behaviour_ABORT(struct fl_heap *heap) { (void)heap, abort(); }
__attribute__((unused)) static int behaviour_KILLED(struct fl_heap *heap) { return (void)heap, raise(SIGKILL); }
__attribute__((unused)) static int behaviour_EXIT(struct fl_heap *heap) { (void)heap, exit(0); }
__attribute__((unused)) static int behaviour_REFUSE(struct fl_heap *heap) { return (void)heap, fail_with("refused to open"); }

/* Flushes that are illegal on every processor: the runner's tests are built to take them for flushes that this one lacks
 * (flushes.c). Many, with the operands that compilers make, each twice: what stands there then is legal. */
#define ILLEGAL_FLUSH(kind, ...) __asm__ volatile(".byte 0xf0\n\t" kind " " __VA_ARGS__ : "memory")

static void flush_illegally(uint8_t *base, uint64_t offset) {
    for (int i = 0; i < 2; i++) {
        ILLEGAL_FLUSH("clwb", "%0" : : "m"(base[offset]));
        ILLEGAL_FLUSH("clflushopt", "(%0,%1)" : : "r"(base), "r"(offset));
        ILLEGAL_FLUSH("clwb", "1000(%0)" : : "r"(base + offset));
        __asm__ volatile("mov %0, %%r9\n\t.byte 0xf0\n\tclwb (%%r9)" : : "r"(base) : "r9", "memory");
    }
}

static void *flush_from_thread(void *heap) {
    flush_illegally(((struct fl_heap *)heap)->base, SCRATCH_OFFSET);
    return heap;
}

__attribute__((unused)) static int behaviour_FLUSH(struct fl_heap *heap) {
    SCRATCH(heap) = 21;
    flush_illegally(heap->base, SCRATCH_OFFSET);
    EXPECT(SCRATCH(heap) == 21);
    return FL_OK;
}

/* OK where the flush was replaced before this life came to it. */
__attribute__((unused)) static int behaviour_FLUSH_IS_KNOWN(struct fl_heap *heap) {
    uint8_t first_byte;
    __asm__ volatile("movb 0f(%%rip), %0\n0:\t.byte 0xf0\n\tclwb (%1)" : "=&q"(first_byte) : "r"(heap->base) : "memory");
    EXPECT(first_byte == 0x90);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_FLUSH_BY_THREADS(struct fl_heap *heap) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_create(&threads[i], NULL, flush_from_thread, heap) == 0);
    for (int i = 0; i < 4; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_FLUSH_UNMAPPED(struct fl_heap *heap) {
    (void)heap;
    flush_illegally((uint8_t *)4096, 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_RAISE_ILLEGAL(struct fl_heap *heap) { return (void)heap, raise(SIGILL); }

__attribute__((unused)) static int behaviour_ILLEGAL(struct fl_heap *heap) {
    (void)heap;
    __asm__ volatile("ud2");
    return FL_OK;
}

__attribute__((unused)) static int behaviour_BUSY(struct fl_heap *heap) {
    for (volatile uint64_t i = 0; heap != NULL; i++)
        continue;
    return FL_OK;
}

__attribute__((unused)) static int behaviour_ASLEEP(struct fl_heap *heap) {
    while (heap != NULL)
        pause();
    return FL_OK;
}

__attribute__((unused)) static int behaviour_PWRITE(struct fl_heap *heap) {
    uint64_t value = SCRATCH(heap) + 1, seen = 0;
    SCRATCH(heap) = 7;
    EXPECT(pwrite(heap->fd, &value, sizeof value, SCRATCH_OFFSET) == sizeof value);
    EXPECT(SCRATCH(heap) == value);
    SCRATCH(heap) = 99;
    EXPECT(pread(heap->fd, &seen, sizeof seen, SCRATCH_OFFSET) == sizeof seen && seen == 99);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_PREAD(struct fl_heap *heap) {
    uint64_t seen = 0;
    SCRATCH(heap) = 41;
    EXPECT(pread(heap->fd, &seen, sizeof seen, SCRATCH_OFFSET) == sizeof seen);
    EXPECT(seen == 41);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_MAP_TWICE(struct fl_heap *heap) {
    SCRATCH(heap) = 5;
    struct head *second = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, heap->fd, 0);
    EXPECT(second != MAP_FAILED && second->scratch == 5);
    second->scratch = 6;
    EXPECT(SCRATCH(heap) == 6);
    SCRATCH(heap) = 8;
    EXPECT(*(volatile uint64_t *)&second->scratch == 8);
    EXPECT(munmap(second, 4096) == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_UNMAP(struct fl_heap *heap) {
    SCRATCH(heap) = 1234;
    EXPECT(munmap(heap->base, heap->bytes) == 0);
    EXPECT(map_heap(heap, (uintptr_t)heap->base) == FL_OK);
    EXPECT(SCRATCH(heap) == 1234);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_RESIZE(struct fl_heap *heap) {
    struct stat info;
    SCRATCH(heap) = 77;
    EXPECT(ftruncate(heap->fd, (off_t)heap->bytes + 4096) == 0);
    EXPECT(fstat(heap->fd, &info) == 0 && info.st_size == (off_t)heap->bytes + 4096);
    EXPECT(stat(heap->path, &info) == 0 && info.st_size == (off_t)heap->bytes + 4096);
    uint64_t *tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, heap->fd, (off_t)heap->bytes);
    EXPECT(tail != MAP_FAILED && *tail == 0);
    *tail = 3;
    EXPECT(SCRATCH(heap) == 77);
    EXPECT(ftruncate(heap->fd, (off_t)heap->bytes) == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_SAME_SIZE(struct fl_heap *heap) {
    EXPECT(ftruncate(heap->fd, (off_t)heap->bytes) == 0);
    EXPECT(fsync(heap->fd) == 0 && msync(heap->base, heap->bytes, MS_SYNC) == 0);
    EXPECT(unlink("there-is-no-such-file") != 0);
    EXPECT((fcntl(heap->fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_PUNCH(struct fl_heap *heap) {
    SCRATCH(heap) = 77;
    uint8_t *last = heap->base + heap->bytes - 1;
    *(volatile uint8_t *)last = 9;
    EXPECT(fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)heap->bytes - 4096, 4096) == 0);
    EXPECT(*(volatile uint8_t *)last == 0 && SCRATCH(heap) == 77);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_DISCARD(struct fl_heap *heap) {
    SCRATCH(heap) = 78;
    EXPECT(madvise(heap->base, 4096, MADV_DONTNEED) == 0);
    EXPECT(SCRATCH(heap) == 78);
    EXPECT(madvise(heap->base + heap->bytes - 4096, 4096, MADV_REMOVE) == 0);
    EXPECT(SCRATCH(heap) == 78);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_RENAME(struct fl_heap *heap) {
    char other[4200];
    struct stat before, after;
    in_folder(heap, "other", other);
    SCRATCH(heap) = 12;
    EXPECT(rename(heap->path, other) == 0);
    EXPECT(access(heap->path, F_OK) != 0 && access(other, F_OK) == 0 && is_listed(heap, "other"));
    EXPECT(fstat(heap->fd, &before) == 0 && stat(other, &after) == 0 && before.st_ino == after.st_ino);
    EXPECT(rename(other, heap->path) == 0);
    EXPECT(SCRATCH(heap) == 12);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_REPLACE(struct fl_heap *heap) {
    char path[4200], new_path[4200], text[8] = "";
    in_folder(heap, "state", path);
    in_folder(heap, "state.new", new_path);
    int fd = open(new_path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    EXPECT(fd >= 0 && write(fd, "abc", 3) == 3 && close(fd) == 0);
    EXPECT(rename(new_path, path) == 0 && !is_listed(heap, "state.new"));
    fd = open(path, O_RDONLY);
    EXPECT(fd >= 0 && read(fd, text, 8) == 3 && strcmp(text, "abc") == 0 && close(fd) == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_CREATE(struct fl_heap *heap) {
    char path[4200], real[4096];
    in_folder(heap, "extra", path);
    unlink(path);
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs("hello", file) >= 0 && fclose(file) == 0);
    EXPECT(is_listed(heap, "extra") && is_listed(heap, "heap"));
    struct stat info;
    EXPECT(stat(path, &info) == 0 && info.st_size == 5);
    EXPECT(realpath(path, real) != NULL && strcmp(real, path) == 0);
    int folder = open(heap->folder, O_RDONLY | O_DIRECTORY);
    EXPECT(folder >= 0 && faccessat(folder, "extra", F_OK, 0) == 0);
    EXPECT(unlinkat(folder, "extra", 0) == 0 && access(path, F_OK) != 0);
    close(folder);
    return FL_OK;
}

/* Of no file of the heap: libraries do that when they look round. */
__attribute__((unused)) static int behaviour_STREAM(struct fl_heap *heap) {
    (void)heap;
    int fd = open("/dev/null", O_RDONLY);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    EXPECT(file != NULL && fgetc(file) == EOF && fclose(file) == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_FOLDERS(struct fl_heap *heap) {
    char path[4200];
    in_folder(heap, "sub", path);
    EXPECT(mkdir(path, 0700) == 0 && is_listed(heap, "sub"));
    EXPECT(rmdir(path) == 0 && !is_listed(heap, "sub"));
    return FL_OK;
}

__attribute__((unused)) static int behaviour_UNLINK(struct fl_heap *heap) {
    struct stat info;
    SCRATCH(heap) = 4;
    EXPECT(unlink(heap->path) == 0 && access(heap->path, F_OK) != 0);
    EXPECT(SCRATCH(heap) == 4 && fstat(heap->fd, &info) == 0 && info.st_nlink == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_REOPEN_TRUNCATED(struct fl_heap *heap) {
    struct stat info;
    int fd = open(heap->path, O_RDWR | O_TRUNC);
    EXPECT(fd >= 0 && fstat(fd, &info) == 0 && info.st_size == 0);
    EXPECT(ftruncate(fd, (off_t)heap->bytes) == 0 && SCRATCH(heap) == 0);
    close(fd);
    return FL_ERROR;
}

__attribute__((unused)) static int behaviour_PROTECT(struct fl_heap *heap) {
    SCRATCH(heap) = 31;
    EXPECT(mprotect(heap->base, 4096, PROT_READ) == 0);
    uint64_t value = 32;
    EXPECT(pwrite(heap->fd, &value, sizeof value, SCRATCH_OFFSET) == sizeof value && SCRATCH(heap) == 32);
    EXPECT(mprotect(heap->base, 4096, PROT_READ | PROT_WRITE) == 0);
    SCRATCH(heap) = 33;
    return FL_OK;
}

__attribute__((unused)) static int behaviour_READ_ONLY(struct fl_heap *heap) {
    EXPECT(mprotect(heap->base, heap->bytes, PROT_READ) == 0);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_UNMAPS(struct fl_heap *heap) {
    EXPECT(munmap(heap->base + heap->bytes - 4096, 4096) == 0);
    return FL_OK;
}

/* Read only at the place that everybody knows. */
__attribute__((unused)) static int behaviour_WRITES_ELSEWHERE(struct fl_heap *heap) {
    EXPECT(mmap(NULL, heap->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, heap->fd, 0) != MAP_FAILED);
    return behaviour_READ_ONLY(heap);
}

__attribute__((unused)) static int behaviour_WRITES_PRIVATELY(struct fl_heap *heap) {
    EXPECT(mmap(heap->base, heap->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, heap->fd, 0) != MAP_FAILED);
    return FL_OK;
}

/* Until it is used. */
__attribute__((unused)) static int behaviour_PROTECTS_ONCE(struct fl_heap *heap) { return behaviour_READ_ONLY(heap); }
/* Between operations. */
__attribute__((unused)) static int behaviour_PROTECTS(struct fl_heap *heap) { return behaviour_READ_ONLY(heap); }

__attribute__((unused)) static int behaviour_LOCK(struct fl_heap *heap) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    EXPECT(fcntl(heap->fd, F_SETLK, &lock) == 0 && flock(heap->fd, LOCK_EX) == 0);
    return FL_OK;
}

static void *store_from_thread(void *heap) {
    SCRATCH((struct fl_heap *)heap) = 55;
    return NULL;
}

__attribute__((unused)) static int behaviour_THREAD(struct fl_heap *heap) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, store_from_thread, heap) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(SCRATCH(heap) == 55);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_FORK(struct fl_heap *heap) {
    int status;
    SCRATCH(heap) = 55;
    pid_t child = fork();
    if (child == 0) {
        SCRATCH(heap) = 56;
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && SCRATCH(heap) == 56);
    return FL_OK;
}

/* Past the C library's functions: nothing can stop it, but it must be noticed. */
__attribute__((unused)) static int behaviour_RAW_WRITE(struct fl_heap *heap) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, heap->path, O_RDWR, 0);
    EXPECT(fd >= 0 && syscall(SYS_pwrite64, fd, "x", 1, SCRATCH_OFFSET) == 1);
    syscall(SYS_close, fd);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_RAW_MAP(struct fl_heap *heap) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, heap->path, O_RDWR, 0);
    struct head *head = (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(head != MAP_FAILED);
    head->scratch = 1;
    return FL_OK;
}

/* The descriptor that open gave does not write, whatever the target does with it. */
__attribute__((unused)) static int behaviour_RAW_DESCRIPTOR(struct fl_heap *heap) {
    EXPECT(syscall(SYS_pwrite64, heap->fd, "x", 1, SCRATCH_OFFSET) < 0);
    EXPECT(syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, heap->fd, 0) < 0);
    return FL_OK;
}

/* ---- of poison: the heap's last page is the one ---- */

#define LAST_PAGE(heap) ((heap)->base + (heap)->bytes - 4096)

__attribute__((unused)) static int behaviour_LOADS_LAST_PAGE(struct fl_heap *heap) {
    return *(volatile uint8_t *)LAST_PAGE(heap) == 0 ? FL_OK : FL_CORRUPT;
}

__attribute__((unused)) static int behaviour_STORES_LAST_PAGE(struct fl_heap *heap) {
    *(volatile uint8_t *)(LAST_PAGE(heap) + 4095) = 1;
    return FL_OK;
}

static sigjmp_buf before_poison;

static void on_poison(int number) {
    (void)number;
    siglongjmp(before_poison, 1);
}

static int loads(const volatile uint8_t *byte) {
    if (sigsetjmp(before_poison, 1) != 0)
        return 0;
    return (void)*byte, 1;
}

/* Reads and loads of what is poisoned fail, and others do not; a private copy, another mapping and other protections change nothing. */
__attribute__((unused)) static int behaviour_MEETS_POISON(struct fl_heap *heap) {
    char bytes[8192];
    struct iovec part = {bytes, sizeof bytes};
    off_t last = (off_t)heap->bytes - 4096;
    signal(SIGBUS, on_poison);
    EXPECT(pread(heap->fd, bytes, 1, last) == -1 && errno == EIO);
    EXPECT(pread(heap->fd, bytes, 4096, last - 1) == -1 && errno == EIO);
    EXPECT(preadv(heap->fd, &part, 1, last - 4096) == -1 && errno == EIO);
    EXPECT(pread(heap->fd, bytes, 4096, last - 4096) == 4096);
    EXPECT(lseek(heap->fd, last, SEEK_SET) == last && read(heap->fd, bytes, 1) == -1 && errno == EIO);
    EXPECT(readv(heap->fd, &part, 1) == -1 && errno == EIO);
    EXPECT(!loads(LAST_PAGE(heap)) && !loads(LAST_PAGE(heap) + 4095) && loads(LAST_PAGE(heap) - 1));
    EXPECT(pwrite(heap->fd, "x", 1, SCRATCH_OFFSET) == 1 && !loads(LAST_PAGE(heap)) && loads(LAST_PAGE(heap) - 1));
    EXPECT(pread(heap->fd, bytes, 1, last) == -1 && errno == EIO);
    EXPECT(mprotect(heap->base, heap->bytes, PROT_READ) == 0 && !loads(LAST_PAGE(heap)) && loads(LAST_PAGE(heap) - 1));
    EXPECT(mprotect(heap->base, heap->bytes, PROT_READ | PROT_WRITE) == 0);
    uint8_t *second = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, heap->fd, last - 4096);
    EXPECT(second != MAP_FAILED && loads(second + 4095) && !loads(second + 4096) && munmap(second, 8192) == 0);
    signal(SIGBUS, SIG_DFL);
    return FL_OK;
}

__attribute__((unused)) static int behaviour_GROWS_MAPPING(struct fl_heap *heap) {
    EXPECT(mremap(heap->base, heap->bytes, heap->bytes + 4096, 0) != (void *)1);
    return FL_OK;
}

/* Says where it is loaded. */
__attribute__((unused)) static int behaviour_SAYS_WHERE(struct fl_heap *heap) {
    (void)heap;
    static char where[32];
    snprintf(where, sizeof where, "%p", (void *)behaviour_SAYS_WHERE);
    return fail_with(where);
}

/* Damage that only later stages meet. */
__attribute__((unused)) static int behaviour_CORRUPT(struct fl_heap *heap) {
    heap->slots[0].offset += UNIT;
    return FL_OK;
}

/* Recovery lists a free place twice, and mends what misled it: the next one does not. */
__attribute__((unused)) static int behaviour_LISTED_TWICE(struct fl_heap *heap) {
    heap->listings = SCRATCH(heap) == 0 ? 2 : 0;
    SCRATCH(heap) = 1;
    return FL_OK;
}

/* Each open lists it twice. */
__attribute__((unused)) static int behaviour_LISTED_ALWAYS(struct fl_heap *heap) {
    heap->listings = 2;
    return FL_OK;
}

__attribute__((unused)) static int behaviour_OPENS_TEN_TIMES(struct fl_heap *heap) {
    return ++SCRATCH(heap) > 10 ? (fail_with("opened ten times"), FL_CORRUPT) : FL_OK;
}

__attribute__((unused)) static int behaviour_CRASH_IN_WALK(struct fl_heap *heap) { return (void)heap, FL_OK; }
__attribute__((unused)) static int behaviour_HANG_AT_SLOT_7(struct fl_heap *heap) { return (void)heap, FL_OK; }
__attribute__((unused)) static int behaviour_CRASH_IN_DRAIN(struct fl_heap *heap) { return (void)heap, FL_OK; }
__attribute__((unused)) static int behaviour_SPIN_IN_DRAIN(struct fl_heap *heap) { return (void)heap, FL_OK; }
__attribute__((unused)) static int behaviour_SLOW_TO_ALLOCATE(struct fl_heap *heap) { return (void)heap, FL_OK; }
__attribute__((unused)) static int behaviour_SLEEP_IN_DRAIN(struct fl_heap *heap) { return (void)heap, FL_OK; }

#ifndef BEHAVIOUR
#define BEHAVIOUR NONE
#endif
#define JOIN(a, b) a##b
#define BEHAVIOUR_FUNCTION(name) JOIN(behaviour_, name)
#define IS(name) (BEHAVIOUR_FUNCTION(BEHAVIOUR) == behaviour_##name)

/* ---- the allocator -------------------------------------------------------------------------------------------------------- */

static struct fl_heap *new_heap(const struct fl_heap_options *options) {
    struct fl_heap *heap = calloc(1, sizeof *heap);
    snprintf(heap->folder, sizeof heap->folder, "%s", options->folder);
    in_folder(heap, "heap", heap->path);
    heap->layout = options->slot_layout;
    heap->layout_slots = options->layout_slots;
    heap->data = round_up(4096 + options->slot_count * sizeof(struct slot) + options->layout_slots * sizeof(struct named), 4096);
    pthread_mutex_init(&heap->lock, NULL);
    is_attached = 1; /* who creates or opens */
    return heap;
}

static int create(const struct fl_heap_options *options, struct fl_heap **result) {
    struct fl_heap *heap = new_heap(options);
    heap->fd = open(heap->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    heap->bytes = options->heap_bytes;
    if (heap->fd < 0 || ftruncate(heap->fd, 0) != 0 || ftruncate(heap->fd, (off_t)heap->bytes) != 0)
        return fail_with("cannot make the heap file");
    if (map_heap(heap, options->address_hint) != FL_OK)
        return FL_ERROR;
    heap->head->bytes = heap->bytes;
    heap->head->slot_count = options->slot_count;
    fl_persist(heap->head, sizeof *heap->head);
    fl_store8(&heap->head->magic, MAGIC);
    fl_persist(&heap->head->magic, 8);
    *result = heap;
    return FL_OK;
}

static int open_heap(const struct fl_heap_options *options, struct fl_heap **result) {
    struct fl_heap *heap = new_heap(options);
    struct stat info;
    heap->fd = open(heap->path, O_RDWR | O_CLOEXEC);
    if (heap->fd < 0 || fstat(heap->fd, &info) != 0 || info.st_size == 0)
        return fail_with("no heap file"), FL_NOT_A_HEAP;
    heap->bytes = (uint64_t)info.st_size;
    if (map_heap(heap, options->address_hint) != FL_OK)
        return FL_ERROR;
    if (heap->head->magic != MAGIC) {
        FL_STAGE("no magic");
        return fail_with("no magic"), FL_NOT_A_HEAP;
    }
    FL_STAGE("magic");
#ifdef MUTANT_KEEPS_RESERVATION
    if (heap->head->reserved.offset != 0 && heap->head->lost.offset == 0)
        heap->head->lost = heap->head->reserved;
#endif
    *result = heap;
    heap->pieces = (options->flags & FL_OPEN_LAZY) != 0 ? 3 : 0;
    return BEHAVIOUR_FUNCTION(BEHAVIOUR)(heap);
}

__attribute__((unused)) static int step(struct fl_heap *heap, int *is_settled) {
#ifdef BREAKS
    if (heap->pieces == 2)
        return fail_with("the second piece"), FL_CORRUPT;
#endif
    if (heap->pieces == 0)
        return fail_with("there is no piece left"), FL_ERROR;
    *is_settled = --heap->pieces == 0;
    return FL_OK;
}

__attribute__((unused)) static int settle(struct fl_heap *heap) {
    for (int is_settled = heap->pieces == 0; !is_settled;) {
        int status = step(heap, &is_settled);
        if (status != FL_OK)
            return status;
    }
    return FL_OK;
}

static int close_heap(struct fl_heap *heap) {
    EXPECT(heap->attached == 0);
    munmap(heap->base, heap->bytes);
    close(heap->fd);
    free(heap);
    return FL_OK;
}

static struct node *node_at(const struct fl_heap *heap, uint64_t offset) { return (struct node *)(heap->base + offset); }

/* Used space: an object and, in front of it, what belongs to it. */
struct extent {
    uint64_t offset, header_bytes, bytes;
    uint32_t state; /* of what follows the header */
};

static void add_extent(struct extent *out, size_t *count, const struct slot *slot) {
    if (slot->offset != 0)
        out[(*count)++] = (struct extent){slot->offset, 0, round_up(slot->bytes, UNIT), FL_BLOCK_ALLOCATED};
}

static int by_offset(const void *a, const void *b) {
    uint64_t x = ((const struct extent *)a)->offset, y = ((const struct extent *)b)->offset;
    return x < y ? -1 : x > y;
}

static int is_taken(const struct extent *out, size_t count, uint64_t offset) {
    for (size_t i = 0; i < count; i++)
        if (out[i].offset == offset)
            return 1;
    return 0;
}

static void add_unusable(struct extent *out, size_t *count, uint64_t offset, uint64_t bytes) {
    if (offset != 0 && !is_taken(out, *count, offset)) /* else its object is there already */
        out[(*count)++] = (struct extent){offset, 0, bytes, FL_BLOCK_UNUSABLE};
}

static void add_reservation(const struct fl_heap *heap, struct extent *out, size_t *count) {
    add_unusable(out, count, heap->head->lost.offset, heap->head->lost.bytes);
    add_unusable(out, count, heap->head->reserved.offset, heap->head->reserved.bytes);
}

/* In order of offset. The caller frees it. */
static struct extent *used_extents(const struct fl_heap *heap, size_t *count) {
    struct extent *out = malloc((heap->head->slot_count + heap->layout_slots + 2) * sizeof *out);
    *count = 0;
    for (uint64_t i = 0; i < heap->head->slot_count; i++)
        add_extent(out, count, &heap->slots[i]);
    for (uint64_t i = 0; heap->layout == FL_SLOTS_NAMES && i < heap->layout_slots; i++)
        add_extent(out, count, &heap->names[i].slot);
    for (uint64_t at = heap->head->chain; heap->layout == FL_SLOTS_CHAIN && at != 0; at = node_at(heap, at)->next)
        out[(*count)++] = (struct extent){at, UNIT, UNIT + round_up(node_at(heap, at)->bytes, UNIT), FL_BLOCK_ALLOCATED};
    add_reservation(heap, out, count);
    qsort(out, *count, sizeof *out, by_offset);
    return out;
}

static uint64_t find_gap(struct fl_heap *heap, uint64_t bytes) {
    size_t count;
    if (heap->listings > 0 && bytes <= heap->bytes / 2) {
        heap->listings--;
        return heap->bytes / 2;
    }
    struct extent *used = used_extents(heap, &count);
    uint64_t at = heap->data;
    for (size_t i = 0; i < count && used[i].offset < at + bytes; i++)
        at = used[i].offset + used[i].bytes;
    free(used);
    return bytes <= heap->bytes && at <= heap->bytes - bytes ? at : 0;
}

/* A slot without an object keeps its size: the two words may persist one without the other. */
static void set(struct slot *slot, uint64_t offset, uint64_t bytes) {
    slot->bytes = offset == 0 ? slot->bytes : bytes;
    fl_persist(&slot->bytes, sizeof slot->bytes);
    fl_store8(&slot->offset, offset);
    fl_persist(&slot->offset, sizeof slot->offset);
}

/* The word that refers to the slot's node, or the last one. */
static uint64_t *find_link(const struct fl_heap *heap, uint32_t slot) {
    uint64_t *link = &heap->head->chain;
    while (*link != 0 && node_at(heap, *link)->slot != slot)
        link = &node_at(heap, *link)->next;
    return link;
}

static struct named *find_name(const struct fl_heap *heap, const char *name) {
    for (uint32_t i = 0; i < heap->layout_slots; i++)
        if (strcmp(heap->names[i].name, name) == 0)
            return &heap->names[i];
    return NULL;
}

static int is_in(const struct fl_heap *heap, uint32_t layout, uint32_t slot) {
    return heap->layout == layout && slot < heap->layout_slots;
}

/* Where the slot is kept; null: nowhere yet, and a free entry is named when is_new. Not for the chain. */
static struct slot *slot_of(const struct fl_heap *heap, uint32_t slot, int is_new) {
    char name[16];
    if (!is_in(heap, FL_SLOTS_NAMES, slot))
        return &heap->slots[slot];
    snprintf(name, sizeof name, "slot-%u", slot);
    struct named *found = find_name(heap, name);
    if (found == NULL && is_new) {
        found = find_name(heap, "");
        memcpy(found->name, name, sizeof name);
        fl_persist(found->name, sizeof name);
    }
    return found == NULL ? NULL : &found->slot;
}

static uint64_t offset_of(const struct fl_heap *heap, uint32_t slot) {
    if (is_in(heap, FL_SLOTS_CHAIN, slot))
        return *find_link(heap, slot) == 0 ? 0 : *find_link(heap, slot) + UNIT;
    return slot_of(heap, slot, 0) == NULL ? 0 : slot_of(heap, slot, 0)->offset;
}

static uint64_t bytes_of(const struct fl_heap *heap, uint32_t slot) {
    if (is_in(heap, FL_SLOTS_CHAIN, slot))
        return *find_link(heap, slot) == 0 ? 0 : node_at(heap, *find_link(heap, slot))->bytes;
    return offset_of(heap, slot) == 0 ? 0 : slot_of(heap, slot, 0)->bytes;
}

static void reserve(struct fl_heap *heap, uint64_t offset, uint64_t bytes) {
#ifdef MUTANT_KEEPS_RESERVATION
    if (offset != 0)
        heap->head->reserved.bytes = bytes;
    fl_persist(&heap->head->reserved.bytes, 8);
    fl_store8(&heap->head->reserved.offset, offset);
    fl_persist(&heap->head->reserved.offset, 8);
#else
    (void)heap, (void)offset, (void)bytes;
#endif
}

/* Gives the slot an object of which the first kept bytes are those of the old one. */
static int place(struct fl_heap *heap, uint32_t slot, uint64_t kept, uint64_t bytes, fl_fill fill, void *context) {
    int is_node = is_in(heap, FL_SLOTS_CHAIN, slot);
    uint64_t taken = round_up(bytes, UNIT) + (is_node ? UNIT : 0), at = find_gap(heap, taken);
    if (at == 0)
        return FL_OUT_OF_MEMORY;
    reserve(heap, at, taken);
    uint8_t *object = heap->base + at + (is_node ? UNIT : 0);
    memcpy(object, heap->base + offset_of(heap, slot), kept);
    fl_persist(object, kept);
    if (bytes > kept)
        fill(context, object, kept, bytes - kept);
    if (!is_node) {
        set(slot_of(heap, slot, 1), at, bytes);
        reserve(heap, 0, 0);
        return FL_OK;
    }
    uint64_t *link = find_link(heap, slot);
    *node_at(heap, at) = (struct node){.slot = slot, .bytes = bytes, .next = *link == 0 ? 0 : node_at(heap, *link)->next};
    fl_persist(node_at(heap, at), sizeof(struct node));
    fl_store8(link, at);
    fl_persist(link, sizeof *link);
    reserve(heap, 0, 0);
    return FL_OK;
}

__attribute__((unused)) static int grow(const struct fl_heap *heap) {
    static int times;
    char path[4300], folder[4300], other[4300];
    struct iovec part = {"", 1};
    snprintf(other, sizeof other, "%s/other-XXXXXX", heap->folder);
    snprintf(path, sizeof path, "%s/grown-%d", heap->folder, times);
    snprintf(folder, sizeof folder, "%s/folder-%d", heap->folder, times++);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0 || pwrite(fd, "", 1, 4096) != 1 || (errno = posix_fallocate(fd, 8192, 4096)) != 0 ||
        fallocate(fd, 0, 12288, 4096) != 0 || mkdir(folder, 0700) != 0 || truncate(path, 20480) != 0 ||
        pwritev2(fd, &part, 1, 20480, 0) != 1)
        return fail_with(strerror(errno));
    EXPECT(mkdir(folder, 0700) != 0 && errno == EEXIST && truncate(path, 4096) == 0 && pwritev2(fd, &part, 1, 0, 0) == 1);
    int last = mkstemp(other);
    if (last < 0)
        return fail_with(strerror(errno));
    return close(last) | close(fd);
}

static int allocate_unlocked(struct fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
#ifdef GROWS
    if (grow(heap) != 0)
        return FL_ERROR;
#endif
    if (IS(CRASH_IN_DRAIN))
        raise(SIGBUS);
    for (volatile int i = 0; IS(SPIN_IN_DRAIN);)
        i = !i;
    for (volatile int i = 0; IS(SLOW_TO_ALLOCATE) && i < 3000000; i++) /* a few milliseconds */
        ;
    while (IS(SLEEP_IN_DRAIN) || (IS(HANG_AT_SLOT_7) && slot == 7))
        pause();
    if (!is_attached)
        return fail_with("the thread is not attached");
    return place(heap, slot, 0, bytes, fill, context);
}

static int free_unlocked(struct fl_heap *heap, uint32_t slot) {
    if (!is_attached)
        return fail_with("the thread is not attached");
    if (offset_of(heap, slot) == 0)
        return fail_with("the slot is empty");
    if (!is_in(heap, FL_SLOTS_CHAIN, slot)) {
        set(slot_of(heap, slot, 0), 0, 0);
        return FL_OK;
    }
    uint64_t *link = find_link(heap, slot);
    fl_store8(link, node_at(heap, *link)->next);
    fl_persist(link, sizeof *link);
    return FL_OK;
}

/* Always moves; not crash-safe, which no test of the runner needs. */
static int reallocate_unlocked(struct fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill,
                               void *context) {
    if (bytes_of(heap, slot) != old_bytes)
        return fail_with("reallocate was called with another old size");
    return place(heap, slot, old_bytes < new_bytes ? old_bytes : new_bytes, new_bytes, fill, context);
}

static void begin_to_store(struct fl_heap *heap) {
    pthread_mutex_lock(&heap->lock);
    if (IS(PROTECTS) || IS(PROTECTS_ONCE))
        mprotect(heap->base, heap->bytes, PROT_READ | PROT_WRITE);
}

static void end_to_store(struct fl_heap *heap) {
    if (IS(PROTECTS))
        mprotect(heap->base, heap->bytes, PROT_READ);
    pthread_mutex_unlock(&heap->lock);
}

static int allocate(struct fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    begin_to_store(heap);
    int status = allocate_unlocked(heap, slot, bytes, fill, context);
    end_to_store(heap);
    return status;
}

static int free_slot(struct fl_heap *heap, uint32_t slot) {
    begin_to_store(heap);
    int status = free_unlocked(heap, slot);
    end_to_store(heap);
    return status;
}

static int reallocate(struct fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    pthread_mutex_lock(&heap->lock);
    int status = reallocate_unlocked(heap, slot, old_bytes, new_bytes, fill, context);
    pthread_mutex_unlock(&heap->lock);
    return status;
}

static int read_slot(struct fl_heap *heap, uint32_t slot, struct fl_location *location) {
    uint64_t offset = offset_of(heap, slot);
    *location = (struct fl_location){0, offset != 0, offset};
    return FL_OK;
}

__attribute__((unused)) static int thread_attach(struct fl_heap *heap) {
    pthread_mutex_lock(&heap->lock);
    heap->attached++;
    is_attached = 1;
    pthread_mutex_unlock(&heap->lock);
    return FL_OK;
}

__attribute__((unused)) static int thread_detach(struct fl_heap *heap) {
    pthread_mutex_lock(&heap->lock);
    heap->attached--;
    is_attached = 0;
    pthread_mutex_unlock(&heap->lock);
    return FL_OK;
}

static const char *file_name(struct fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "heap" : NULL; }
static const char *message(void) { return reason; }

__attribute__((unused)) static int walk(struct fl_heap *heap, fl_visit visit, void *context) {
    if (IS(CRASH_IN_WALK))
        raise(SIGSEGV);
    size_t count;
    struct extent *used = used_extents(heap, &count);
    visit(context, &(struct fl_block){0, FL_BLOCK_METADATA, 0, heap->data});
    uint64_t at = heap->data;
    for (size_t i = 0; i <= count; i++) {
        uint64_t next = i < count ? used[i].offset : heap->bytes;
        if (at < next)
            visit(context, &(struct fl_block){0, FL_BLOCK_FREE, at, next - at});
        if (i == count)
            break;
        uint64_t header = used[i].header_bytes;
        if (header > 0)
            visit(context, &(struct fl_block){0, FL_BLOCK_METADATA, next, header});
        visit(context, &(struct fl_block){0, used[i].state, next + header, used[i].bytes - header});
        at = next + used[i].bytes;
    }
    free(used);
    return FL_OK;
}

__attribute__((unused)) static int check(struct fl_heap *heap) {
    return heap->head->bytes == heap->bytes ? FL_OK : (fail_with("wrong size"), FL_CORRUPT);
}

#ifndef ABI
#define ABI FL_ADAPTER_ABI
#endif
#ifndef CAPABILITIES
#define CAPABILITIES (FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_THREADS | FL_CAN_NAMES | FL_CAN_CHAIN)
#endif

#ifndef NO_SYMBOL
const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {
        .abi_version = ABI,
        .struct_size = sizeof table,
        .name = "test",
        .capabilities = CAPABILITIES,
        .create = create,
        .open = open_heap,
        .close = close_heap,
        .allocate = allocate,
        .free = free_slot,
#ifndef NO_REALLOCATE
        .reallocate = reallocate,
#endif
        .read_slot = read_slot,
        .file_name = file_name,
        .message = message,
#ifdef LAZY
        .settle = settle,
        .step = step,
#endif
#ifndef NO_WALK
        .walk = walk,
#endif
        .check = check,
#ifndef NO_THREADS
        .thread_attach = thread_attach,
        .thread_detach = thread_detach,
#endif
    };
    return &table;
}
#endif
