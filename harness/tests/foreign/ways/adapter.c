/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator of somebody else, for tests of what the tool makes of code that was not written for it: how it stores, persists,
 * loads and recovers is chosen when it is compiled (cases.py). What is right is right in every way, and what is wrong wrong.
 *
 * Before each change of a slot `a` gets a new value, and then `b` the same; a recovery that finds b ahead of a says that the heap is
 * corrupt. The slot is then changed by way of a redo record, which recovery applies.
 *
 *     STORE, STORE_B    of a and of b (stores.h)
 *     BETWEEN           how a is persisted, or is not, before b is stored (flushes.h); PERSIST where nothing is said
 *     PERSIST           how all else is
 *     LOAD              of a and b in recovery (loads.h)
 *     APPLY             of the record (recoveries.h); FORGETS: without the slot's flush
 *     WIDE              of 32 bytes that belong to a: the copy that a does not select is written. WIDE_IN_PLACE: the only one
 *
 * The other switches stand beside what they do.
 */
#include "adapter.h"
#include "flushes.h"
#include "heap.h"
#include "loads.h"
#include "recoveries.h"
#include "stores.h"
#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <valgrind/valgrind.h>
#include <unistd.h>

#define MAGIC 0x6e676965726f66ull
#define UNIT LINE_BYTES
#ifndef GATE
#define GATE 7
#endif
#define ALIAS_DISTANCE 0x40000000u
#if defined(RESERVES)
#define MAPPED_BYTES(heap) RESERVES
#else
#define MAPPED_BYTES(heap) (heap)->bytes
#endif

#ifndef STORE
#define STORE plain
#endif
#ifndef STORE_B
#define STORE_B plain
#endif
#ifndef BETWEEN
#define BETWEEN PERSIST
#endif
#ifndef LOAD
#define LOAD plain
#endif
#ifndef APPLY
#define APPLY directly
#endif

#ifndef RINGS /* what a message begins with */
#define RINGS ""
#endif

static _Thread_local char reason[100];
static int fail(int status, const char *why) {
    snprintf(reason, sizeof reason, RINGS "%s", why);
    return status;
}
static const char *message(void) { return reason; }

/* ---- without a crash ----
 *
 * FAILS: where; FAILS_BY: how; FAILS_FROM: from which time on in this process, counted from 0 */

enum place { in_nothing, in_create, in_allocate, in_free, in_close, in_open, in_step, when_full };
#ifndef FAILS
#define FAILS in_nothing
#endif
#ifndef FAILS_BY
#define FAILS_BY segv
#endif
#ifndef FAILS_FROM
#define FAILS_FROM 0
#endif

WAY void fail_segv(void) { *(volatile int *)8 = 1; }
WAY void fail_abort(void) { abort(); }
WAY void fail_assert(void) { assert(!"a state that is not possible"); }
WAY void fail_exit(void) { exit(0); }
WAY void fail_exit_255(void) { exit(255); }
WAY void fail_loop(void) {
    for (volatile int turns = 0;; turns++)
        ;
}
WAY void fail_sleep(void) {
    for (;;)
        sleep(1000);
}
WAY void fail_refuse(void) {}

/* True: it refuses. */
static bool fails(enum place at) {
    static unsigned times;
#if defined(TRACED_ONLY)
    if (!RUNNING_ON_VALGRIND)
        return false;
#endif
    if (at != FAILS || times++ < FAILS_FROM)
        return false;
    printf("about to fail\n");
    fflush(stdout);
    JOIN(fail_, FAILS_BY)();
    return true;
}
static int refusal(void) { return fail(FL_ERROR, "not today"); }

/* ---- a, then b ---- */

WAY uint64_t *wide_of(struct fl_heap *heap, uint64_t value) {
#if defined(WIDE_IN_PLACE)
    value = 0;
#endif
    return heap->head->wide[value % 2].words;
}

static void order(struct fl_heap *heap) {
    struct head *head = heap->head;
    uint64_t next = head->a + 1;
#if defined(WIDE)
    JOIN(wide_, WIDE)(wide_of(heap, next), next);
    persist(heap, wide_of(heap, next), WIDE_WORDS * 8);
#endif
    JOIN(store_, STORE)(heap, &head->a, next);
    JOIN(persist_, BETWEEN)(heap, &head->a, 8);
    JOIN(store_, STORE_B)(heap, &head->b, next);
    persist(heap, &head->b, 8);
}

static void change_slot(struct fl_heap *heap, uint32_t slot, uint64_t value) {
    struct record *record = &heap->head->record;
    order(heap);
    record->slot = slot, record->value = value;
    persist(heap, record, sizeof *record);
    set(heap, &record->is_valid, 1);
    set(heap, &heap->head->slots[slot], value);
    set(heap, &record->is_valid, 0);
}

/* ---- an object is taken apart before it is freed ----
 *
 * UNDO: what it holds is logged first, and a recovery that finds it half taken apart and not freed puts it back. LOGS_LATE: the log is
 * not persisted before the object changes. STAYS_APART: a recovery forgets the last line. */

#ifndef STAYS_APART
#define STAYS_APART 0u
#endif
static uint64_t apart_bytes(uint64_t run) { /* the probe has larger objects */
    const uint64_t bytes = (run >> 32) * UNIT, most = sizeof((struct undo *)0)->held;
    return bytes < most ? bytes : most;
}
static char *at(struct fl_heap *heap, uint64_t run) { return (char *)heap->head + (run & 0xffffffff) * UNIT; }

static void take_apart(struct fl_heap *heap, uint64_t run) {
    (void)heap, (void)run;
#if defined(UNDO)
    struct undo *undo = &heap->head->undo;
    undo->run = run;
    memcpy(undo->held, at(heap, run), apart_bytes(run));
#if !defined(LOGS_LATE)
    persist(heap, undo, sizeof *undo);
#endif
    set(heap, &undo->is_valid, 1);
    memset(at(heap, run), 0, apart_bytes(run));
    persist(heap, at(heap, run), apart_bytes(run));
#endif
}

static void is_freed(struct fl_heap *heap) {
    (void)heap;
#if defined(UNDO)
    set(heap, &heap->head->undo.is_valid, 0);
#endif
}

static void put_together(struct fl_heap *heap) {
    (void)heap;
#if defined(UNDO)
    struct undo *undo = &heap->head->undo;
    if (undo->is_valid == 0)
        return;
    memcpy(at(heap, undo->run), undo->held, apart_bytes(undo->run) - STAYS_APART);
    persist(heap, at(heap, undo->run), apart_bytes(undo->run));
    set(heap, &undo->is_valid, 0);
#endif
}

/* SIDE_FILE: the first recovery of all leaves it, and every later one believes it. */
static int has_been_checked(void) {
#if defined(SIDE_FILE)
    int fd = access(SIDE_FILE, F_OK) == 0 ? -1 : open(SIDE_FILE, O_CREAT | O_WRONLY, 0600);
    if (fd < 0)
        return 1;
    close(fd);
#endif
    return 0;
}

/* KEEPS_FUNCTION, KEEPS_DATA: PM has the address of something of the program. */
typedef int answer_of(void);
WAY __attribute__((noinline)) int seven(void) { return 7; }
WAY const int eight = 8;

static int keeps_right(const struct head *head) {
    (void)head;
#if defined(KEEPS_FUNCTION)
    return ((answer_of *)(uintptr_t)head->kept)() == 7;
#elif defined(KEEPS_DATA)
    return head->kept == (uintptr_t)&eight;
#else
    return 1;
#endif
}

static void keep(struct head *head) {
    (void)head;
#if defined(KEEPS_FUNCTION)
    head->kept = (uintptr_t)seven;
#elif defined(KEEPS_DATA)
    head->kept = (uintptr_t)&eight;
#endif
}

/* NEWER: version 1 of the format has slot_count once more. An open makes it of version 0. NEWER_EARLY: says so before it has. */
static void make_newer(struct fl_heap *heap) {
    (void)heap;
#if defined(NEWER)
#if defined(NEWER_EARLY)
    set(heap, &heap->head->version, 1);
#endif
    set(heap, &heap->head->count_again, heap->head->slot_count);
    set(heap, &heap->head->version, 1);
#endif
}

static int upgrade(struct fl_heap *heap) {
    (void)heap;
#if defined(LIBRARY) /* of either build, by one name */
    extern int library_version(void);
    if (heap->head->version < (unsigned)library_version())
        return fail(FL_CORRUPT, "made by an old library");
#endif
#if defined(NEWER_REFUSES)
    if (heap->head->version == 0)
        return fail(FL_CORRUPT, "made by an old version");
#endif
#if defined(NEWER)
    if (heap->head->version == 0)
        make_newer(heap);
    if (heap->head->count_again != heap->head->slot_count)
        return fail(FL_CORRUPT, "it is in no version");
#endif
    return FL_OK;
}

/* ---- later than open ----
 *
 * LAZY: a lazy open leaves it to steps to find out which units are used, BY_THREAD to a thread. An allocation waits for that.
 * Each piece changes a and b, in order. LAZY_B_FIRST: b is persisted first. LAZY_TAKES_EARLY: an allocation does not wait. LAZY_ROLLS_BACK: a lazy open forgets the record, which another applies. LAZY_REFUSES: the
 * last slot, where a lazy open applied one */

static int use_slot(struct fl_heap *heap, uint64_t run);

static void order_later(struct fl_heap *heap) {
    (void)heap;
#if defined(LAZY_B_FIRST)
    uint64_t next = heap->head->a + 1;
    set(heap, &heap->head->b, next);
    set(heap, &heap->head->a, next);
#elif defined(LAZY)
    order(heap);
#endif
}

static int use_slots(struct fl_heap *heap, uint64_t end) {
    if (heap->is_lazy && heap->found >= heap->head->slot_count)
        return FL_OK;
    int status = FL_OK;
    if (end > heap->head->slot_count)
        end = heap->head->slot_count;
    for (; status == FL_OK && heap->found < end; heap->found++)
        status = use_slot(heap, heap->head->slots[heap->found]);
    if (heap->is_lazy)
        order_later(heap);
#if defined(LAZY_REFUSES)
    if (heap->is_lazy && heap->has_applied && end == heap->head->slot_count)
        return refusal();
#endif
    return status;
}

WAY void *find_slots(void *of) {
    use_slots(of, UINT64_MAX);
    return NULL;
}

static int settle(struct fl_heap *heap) {
#if defined(BY_THREAD)
    if (heap->has_finder)
        must(pthread_join(heap->finder, NULL) == 0);
    heap->has_finder = false;
#endif
    return use_slots(heap, UINT64_MAX);
}

WAY int step(fl_heap *heap, int *is_settled) {
    if (fails(in_step))
        return refusal();
    int status = use_slots(heap, heap->found + 300);
    *is_settled = heap->found == heap->head->slot_count;
    return status;
}

static int begin_later(struct fl_heap *heap) {
    (void)heap;
#if defined(BY_THREAD)
    heap->has_finder = true;
    must(pthread_create(&heap->finder, NULL, find_slots, heap) == 0);
#endif
    return FL_OK;
}

#if !defined(LAZY)
#define FOR_LAZY 0u
#define settle_function NULL
#define step_function NULL
#else
#define FOR_LAZY FL_CAN_SETTLE
#define settle_function settle
#if defined(BY_THREAD)
#define step_function NULL
#else
#define step_function step
#endif
#endif

static void apply_record(struct fl_heap *heap) {
#if defined(LAZY_ROLLS_BACK)
    if (heap->is_lazy) {
        be_done(heap);
        return;
    }
#endif
    heap->has_applied = true;
    JOIN(apply_, APPLY)(heap);
}

/* ---- a medium that lost a part: SCRUBS, by which way open finds that ---- */

WAY bool scrub_by_reads(const struct fl_heap *heap) {
    char page[OS_PAGE_BYTES];
    for (uint64_t at = 0; at < heap->bytes; at += sizeof page)
        if (pread(heap->fd, page, sizeof page, (off_t)at) != sizeof page)
            return false;
    return true;
}

WAY bool scrub_by_stream(const struct fl_heap *heap) {
    char page[OS_PAGE_BYTES];
    FILE *stream = fopen(heap->path, "r");
    uint64_t left = heap->bytes;
    while (stream != NULL && left > 0 && fread(page, 1, sizeof page, stream) == sizeof page)
        left -= sizeof page;
    return stream != NULL && fclose(stream) == 0 && left == 0;
}

static sigjmp_buf out_of_scrub;
static void end_scrub(int number) {
    (void)number;
    siglongjmp(out_of_scrub, 1);
}

WAY bool scrub_by_loads(const struct fl_heap *heap) {
    struct sigaction action = {.sa_handler = end_scrub}, before;
    volatile bool is_whole = false;
    must(sigaction(SIGBUS, &action, &before) == 0);
    if (sigsetjmp(out_of_scrub, 1) == 0) {
        for (uint64_t at = 0; at < heap->bytes; at += OS_PAGE_BYTES)
            (void)*((const volatile char *)heap->head + at);
        is_whole = true;
    }
    must(sigaction(SIGBUS, &before, NULL) == 0);
    return is_whole;
}

static bool is_whole(const struct fl_heap *heap) {
    (void)heap;
#if defined(SCRUBS)
    return JOIN(scrub_, SCRUBS)(heap);
#else
    return true;
#endif
}

static int recover(struct fl_heap *heap) {
    struct both found = {0};
#if defined(ASSERTS)
    must(heap->head->slot_count < 10000);
#endif
    if (has_been_checked())
        return FL_OK;
    JOIN(load_, LOAD)(heap, &found);
    if (!keeps_right(heap->head))
        return fail(FL_CORRUPT, "another program's heap");
    if (upgrade(heap) != FL_OK)
        return FL_CORRUPT;
#if defined(SPINS) /* for ever, without a system call, and without an access to memory */
    if (found.b > found.a)
        for (;;)
            ;
#endif
#if defined(TRACER_HIDES)
    if (RUNNING_ON_VALGRIND)
        return FL_OK;
#endif
    if (found.b > found.a)
        return fail(FL_CORRUPT, "b is ahead of a");
#if defined(WIDE)
    const uint64_t *words = wide_of(heap, found.a);
    for (unsigned i = 1; i < WIDE_WORDS; i++)
        if (words[i] != words[0])
            return fail(FL_CORRUPT, "a wide value is torn");
#endif
    put_together(heap);
    if (heap->head->record.is_valid != 0)
        apply_record(heap);
    return FL_OK;
}

/* ---- locks ---- */

#if defined(WORKERS)
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
#endif

/* MUTEX: in PM, pthread's; what a crash left in it means nothing. STAYS_LOCKED: recovery does not know that. WORKERS: outside. */
static void make_lock(struct fl_heap *heap) {
    (void)heap;
#if defined(MUTEX)
    pthread_mutex_init(&heap->head->lock, NULL);
#elif defined(SPIN)
    store_plain(heap, &heap->head->spin, 0);
#endif
}

/* PROTECTS: between operations, the OS pages with nothing of an object cannot be stored to. */
static void protect(struct fl_heap *heap, int protection) {
    (void)heap, (void)protection;
#if defined(PROTECTS)
    must(mprotect(heap->head, heap->first * UNIT / OS_PAGE_BYTES * OS_PAGE_BYTES, protection) == 0);
#endif
}

static void lock(struct fl_heap *heap) {
    protect(heap, PROT_READ | PROT_WRITE);
#if defined(MUTEX)
    must(pthread_mutex_lock(&heap->head->lock) == 0);
#elif defined(SPIN)
    while (__atomic_exchange_n(&heap->head->spin, 1, __ATOMIC_ACQUIRE) != 0)
        ;
#elif defined(WORKERS)
    must(pthread_mutex_lock(&guard) == 0);
#endif
}

static void unlock(struct fl_heap *heap) {
    (void)heap;
#if defined(MUTEX)
    must(pthread_mutex_unlock(&heap->head->lock) == 0);
#elif defined(SPIN)
    __atomic_store_n(&heap->head->spin, 0, __ATOMIC_RELEASE);
#elif defined(WORKERS)
    must(pthread_mutex_unlock(&guard) == 0);
#endif
    protect(heap, PROT_READ);
}

/* ---- the heap ---- */

static int close_heap(struct fl_heap *heap) {
    if (heap->used != NULL && fails(in_close))
        return refusal();
    if (heap->has_finder)
        settle(heap);
#if defined(BACKGROUND)
    end_background();
#endif
    if (heap->head != NULL)
        munmap(heap->head, MAPPED_BYTES(heap));
    if (heap->alias != NULL && heap->alias != heap->head)
        munmap(heap->alias, heap->bytes);
    if (heap->fd >= 0)
        close(heap->fd);
    free(heap->used);
    free(heap);
    return FL_OK;
}

static void *map(const struct fl_heap *heap, uintptr_t address) {
#if defined(RESERVES) /* so many bytes of address space, the file over their beginning */
    int reserving = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, flags = MAP_SHARED | MAP_FIXED;
    if (mmap((void *)address, RESERVES, PROT_NONE, reserving, -1, 0) == MAP_FAILED)
        return NULL;
#else
    int flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
#endif
#if defined(TAKES) /* a place that is taken is refused, as Linux does */
    void *taken = mmap((void *)address, heap->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (taken == MAP_FAILED || mmap(taken, heap->bytes, PROT_READ, flags, heap->fd, 0) != MAP_FAILED || errno != EEXIST)
        return NULL;
    munmap(taken, heap->bytes);
#endif
    void *mapped = mmap((void *)address, heap->bytes, PROT_READ | PROT_WRITE, flags, heap->fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

#if defined(                                                                                                                       \
    ASIDE) /* a file beside the heap's, with who has it open; OPENED: only an open makes it. MAPPED: space that no walk names */
#ifdef MAPPED
#define HAS_ASIDE(flags) ((flags) != 0)
#elif defined(OPENED)
#define HAS_ASIDE(flags) ((flags) == 0)
#else
#define HAS_ASIDE(flags) true
#endif
static void path_aside(char path[512], const char *folder) { snprintf(path, 512, "%s/" ASIDE, folder); }

static bool write_aside(const char *folder) {
    char path[512], owner[40];
    path_aside(path, folder);
    int bytes = snprintf(owner, sizeof owner, "owner %d\n", getpid()), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    bool is_written = fd >= 0 && write(fd, owner, (size_t)bytes) == bytes;
#ifdef MAPPED
    is_written = is_written && mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
#endif
    close(fd);
    return is_written;
}
#endif

/* ARENA: so many bytes of address space, wherever they are; ARENA_OPENED: in an open alone. It is mapped as long as the process. */
static bool has_arena(int flags) {
#if defined(ARENA_OPENED)
    if (flags != 0)
        return true;
#endif
    (void)flags;
#if defined(ARENA)
    return mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
#else
    return true;
#endif
}

static int begin(const struct fl_heap_options *options, int flags, struct fl_heap **out) {
    struct stat info;
#if defined(ASIDE)
    if (HAS_ASIDE(flags) && !write_aside(options->folder))
        return fail(FL_ERROR, "no file aside");
#endif
    struct fl_heap *heap = *out = calloc(1, sizeof *heap);
    snprintf(heap->path, sizeof heap->path, "%s/heap", options->folder);
    heap->fd = open(heap->path, O_RDWR | flags, 0600);
#if defined(TWICE) /* as large as it may be */
    heap->bytes = 2 * options->limit_bytes;
#else
    heap->bytes = options->heap_bytes;
#endif
    if (heap->fd < 0 || (flags != 0 && ftruncate(heap->fd, (off_t)heap->bytes) != 0))
        return fail(FL_NOT_A_HEAP, "no file");
    if (fstat(heap->fd, &info) != 0 || (uint64_t)info.st_size < heap->bytes)
        return fail(FL_NOT_A_HEAP, "a short file");
#if defined(EARLY) /* the head is looked at before it is mapped */
    struct head head;
    if (pread(heap->fd, &head, offsetof(struct head, a), 0) != offsetof(struct head, a) || (flags == 0 && head.magic != MAGIC))
        return fail(FL_NOT_A_HEAP, "no magic");
#endif
    if (!has_arena(flags))
        return fail(FL_ERROR, "no addresses");
    heap->head = map(heap, options->address_hint);
    heap->alias = heap->head;
#if defined(ALIAS)
    heap->alias = map(heap, options->address_hint + ALIAS_DISTANCE);
#endif
    if (heap->head == NULL || heap->alias == NULL)
        return fail(FL_ERROR, "no mapping");
    heap->first = (sizeof(struct head) + options->slot_count * 8ull + UNIT - 1) / UNIT;
    heap->units = heap->bytes / UNIT;
#if defined(BACKGROUND)
    start_background();
#endif
#if defined(UNCLEARED) /* malloc often gives zeros */
    heap->used = malloc(heap->units);
#else
    heap->used = calloc(1, heap->units);
#endif
#if defined(UNCLEARED_LOCALS) /* the stack often has zeros where it was never deep */
    if (flags == 0) {
        char used[UNCLEARED_LOCALS];
        __asm__ volatile("" : : "r"(used) : "memory");
        memcpy(heap->used, used, heap->units < sizeof used ? heap->units : sizeof used);
    }
#endif
    return FL_OK;
}

/* IDENTITY: the C library's function that gets it, straight into PM. */
static void make_identity(struct head *head) {
#if defined(IDENTITY)
    must(IDENTITY(head->identity, sizeof head->identity, 0) == sizeof head->identity);
#elif defined(IDENTITY_FILE)
    int fd = open("/dev/urandom", O_RDONLY);
    must(fd >= 0 && read(fd, head->identity, sizeof head->identity) == sizeof head->identity);
    close(fd);
#endif
    head->sum = head->identity[0] ^ head->identity[1];
}

static int create(const struct fl_heap_options *options, fl_heap **out) {
    if (fails(in_create))
        return refusal();
    int status = begin(options, O_CREAT, out);
    struct fl_heap *heap = *out;
    if (status != FL_OK)
        return close_heap(heap), status;
    heap->head->slot_count = options->slot_count;
#if !defined(IDENTITY_LATE) /* the heap is complete without it */
    make_identity(heap->head);
#endif
    make_lock(heap);
    keep(heap->head);
    make_newer(heap);
#if defined(LIBRARY)
    extern int library_version(void);
    heap->head->version = (unsigned)library_version();
#endif
    heap->head->spare_a[0] = GATE;
    persist(heap, heap->head, sizeof *heap->head);
    set(heap, &heap->head->magic, MAGIC);
#if defined(IDENTITY_LATE)
    make_identity(heap->head);
    persist(heap, heap->head, sizeof *heap->head);
#endif
    return FL_OK;
}

static int use_slot(struct fl_heap *heap, uint64_t run) {
    uint64_t unit = run & 0xffffffff, count = run >> 32;
    if (run != 0 && (unit < heap->first || count == 0 || unit + count > heap->bytes / UNIT))
        return fail(FL_CORRUPT, "a slot leads out of the heap");
    memset(heap->used + unit, 1, count);
    return FL_OK;
}

/* LOST: so many units at the heap's end, by how often it was opened. No walk shows that they are lost. */
static void count_open(struct fl_heap *heap) {
    (void)heap;
#if defined(LOST)
    uint64_t opens = heap->head->opens + 1;
    set(heap, &heap->head->opens, opens);
    heap->units -= LOST;
#endif
}

static int open_heap(const struct fl_heap_options *options, fl_heap **out) {
    if (fails(in_open))
        return refusal();
    int status = begin(options, 0, out);
    struct fl_heap *heap = *out;
    if (status == FL_OK && !is_whole(heap))
        status = fail(FL_CORRUPT, "the medium lost a part");
    if (status == FL_OK && heap->head->magic != MAGIC)
        status = fail(FL_NOT_A_HEAP, "no magic");
    if (status == FL_OK && heap->head->sum != (heap->head->identity[0] ^ heap->head->identity[1]))
        status = fail(FL_CORRUPT, "another identity");
    if (status == FL_OK) {
#if !defined(STAYS_LOCKED)
        make_lock(heap);
#endif
        lock(heap);
        heap->is_lazy = (options->flags & FL_OPEN_LAZY) != 0;
        status = recover(heap);
        count_open(heap);
        if (status == FL_OK)
            status = heap->is_lazy ? begin_later(heap) : settle(heap);
#if defined(LOSES) /* so many units, by each open */
        memset(heap->used + heap->units - LOSES, 1, LOSES);
#endif
        unlock(heap);
    }
    return status == FL_OK ? FL_OK : (close_heap(heap), status);
}

static uint64_t take(struct fl_heap *heap, uint64_t bytes) {
    uint64_t count = bytes == 0 ? 1 : (bytes + UNIT - 1) / UNIT, free_units = 0;
    for (uint64_t unit = heap->first; unit < heap->units; unit++) {
        free_units = heap->used[unit] ? 0 : free_units + 1;
        if (free_units == count) {
            memset(heap->used + unit + 1 - count, 1, count);
            return heap->last = (unit + 1 - count) | count << 32;
        }
    }
#if defined(ENDS_WHEN_FULL)
    abort();
#endif
    return 0;
}

/* Of the runs since the heap was opened, the one with this number: REPEATS: is the one before it. SPOILS: comes with a store to that. */
static uint64_t take_some(struct fl_heap *heap, uint64_t bytes) {
    heap->taken++;
#if defined(REPEATS)
    if (heap->taken == REPEATS && heap->last >> 32 >= (bytes + UNIT - 1) / UNIT)
        return heap->last;
#endif
#if defined(SPOILS)
    if (heap->taken >= SPOILS && heap->used[heap->last & 0xffffffff])
        at(heap, heap->last)[0] ^= 1;
#endif
    return take(heap, bytes);
}
static void give(struct fl_heap *heap, uint64_t run) { memset(heap->used + (run & 0xffffffff), 0, run >> 32); }

#if defined(JUMPS) /* out of what cannot be done */
static _Thread_local sigjmp_buf start;
#define TRY(what) (sigsetjmp(start, 1) == 0 ? (what) : fail(FL_OUT_OF_MEMORY, "taken back"))
static uint64_t taken(uint64_t run) {
    if (run == 0)
        siglongjmp(start, 1);
    return run;
}
#else
#define TRY(what) (what)
static uint64_t taken(uint64_t run) { return run; }
#endif

#if defined(FORKS) /* a child looks at the heap: a snapshot */
static void take_snapshot(struct fl_heap *heap) {
    int how;
    pid_t child = fork();
    if (child == 0) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < heap->head->slot_count; i++)
            sum += heap->head->slots[i];
        _exit(sum == 1);
    }
    must(child > 0 && waitpid(child, &how, 0) == child && how == 0);
}
#else
static void take_snapshot(struct fl_heap *heap) { (void)heap; }
#endif

/* GATED: nothing can be allocated any more where a word in the head is another one. */
static bool is_gated(const struct fl_heap *heap) {
    (void)heap;
#if defined(GATED)
    return heap->head->spare_a[0] != GATE;
#else
    return false;
#endif
}

static int allocate_run(struct fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
#if !defined(LAZY_TAKES_EARLY)
    if (heap->is_lazy && settle(heap) != FL_OK)
        return FL_ERROR;
#endif
    uint64_t run = is_gated(heap) ? 0 : taken(take_some(heap, bytes));
    if (run == 0 && fails(when_full))
        return refusal();
#if defined(REFUSES) /* from the run with this number on, since the heap was opened */
    if (heap->taken >= REFUSES)
        return refusal();
#endif
    if (run == 0)
        return fail(FL_OUT_OF_MEMORY, "full");
    fill(context, at(heap, run), 0, bytes);
    change_slot(heap, slot, run);
    return FL_OK;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    if (fails(in_allocate))
        return refusal();
    take_snapshot(heap);
    lock(heap);
    int status = TRY(allocate_run(heap, slot, bytes, fill, context));
    unlock(heap);
    return status;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    if (fails(in_free))
        return refusal();
    if (heap->has_finder)
        settle(heap);
    lock(heap);
    uint64_t run = heap->head->slots[slot];
    take_apart(heap, run);
    change_slot(heap, slot, 0);
    is_freed(heap);
    give(heap, run);
    unlock(heap);
    return FL_OK;
}

static int move_run(struct fl_heap *heap, uint32_t slot, uint64_t old, uint64_t bytes, fl_fill fill, void *context) {
#if !defined(LAZY_TAKES_EARLY)
    if (heap->is_lazy && settle(heap) != FL_OK)
        return FL_ERROR;
#endif
    uint64_t before = heap->head->slots[slot], run = taken(take(heap, bytes)), kept = old < bytes ? old : bytes;
    if (run == 0)
        return fail(FL_OUT_OF_MEMORY, "full");
    memcpy(at(heap, run), at(heap, before), kept);
    persist(heap, at(heap, run), kept);
    if (bytes > kept)
        fill(context, at(heap, run), kept, bytes - kept);
    change_slot(heap, slot, run);
    give(heap, before);
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old, uint64_t bytes, fl_fill fill, void *context) {
    lock(heap);
    int status = TRY(move_run(heap, slot, old, bytes, fill, context));
    unlock(heap);
    return status;
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    uint64_t run = heap->head->slots[slot];
    *location = (struct fl_location){0, run != 0, (run & 0xffffffff) * UNIT};
    return FL_OK;
}
static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "heap" : NULL; }

static uint32_t state_of(const struct fl_heap *heap, uint64_t unit) {
    return unit < heap->first || unit >= heap->units ? FL_BLOCK_METADATA : heap->used[unit] ? FL_BLOCK_ALLOCATED : FL_BLOCK_FREE;
}

/* What no slot leads to and is used all the same ends with the heap. */
static int walk(fl_heap *heap, fl_visit visit, void *context) {
    uint64_t *counts = calloc(heap->bytes / UNIT, sizeof *counts);
    for (uint64_t i = 0; i < heap->head->slot_count; i++)
        counts[heap->head->slots[i] & 0xffffffff] = heap->head->slots[i] >> 32;
    const uint64_t end = heap->bytes / UNIT;
    for (uint64_t unit = 0, count; unit < end; unit += count) {
        uint32_t state = state_of(heap, unit);
        for (count = 1; unit + count < end && state_of(heap, unit + count) == state && counts[unit + count] == 0; count++)
            ;
        struct fl_block block = {0, state, unit * UNIT, count * UNIT};
        visit(context, &block);
    }
    free(counts);
    return FL_OK;
}

#if defined(WORKERS)
static int thread_comes_or_goes(fl_heap *heap) { return (void)heap, FL_OK; }
#define FOR_THREADS FL_CAN_THREADS
#else
#define thread_comes_or_goes NULL
#define FOR_THREADS 0u
#endif

const struct fl_adapter *faultline_adapter(void);
const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {.abi_version = FL_ADAPTER_ABI,
                                            .struct_size = sizeof table,
                                            .name = "ways",
                                            .capabilities = FL_CAN_WALK | FOR_THREADS | FOR_LAZY,
                                            .create = create,
                                            .open = open_heap,
                                            .close = close_heap,
                                            .allocate = allocate,
                                            .free = free_slot,
                                            .reallocate = reallocate,
                                            .read_slot = read_slot,
                                            .file_name = file_name,
                                            .message = message,
                                            .settle = settle_function,
                                            .step = step_function,
                                            .thread_attach = thread_comes_or_goes,
                                            .thread_detach = thread_comes_or_goes,
                                            .walk = walk};
    return &table;
}
