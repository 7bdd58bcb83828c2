/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator with instructions of its own, for tests of what the hooks see of them (runner/assembler): nothing of persist.h.
 *
 *     line 0: magic, number of slots   line 1: a   line 2: b   lines 3 and 4: a pair and a wide value   line 5: the redo record
 *     slots: unit | units << 32, 0 where empty             units of 64 bytes
 *
 * Before each change of a slot `a` gets a new value, and then `b` the same. A recovery that finds b ahead of a, or the pair or the
 * wide value in pieces, says that the heap is corrupt. The slot is changed by way of the record. Mutants leave out what orders them, or
 * do it another way, or load in another way.
 */
#define _GNU_SOURCE
#include "adapter.h"
#include <fcntl.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(MUTANT_LOADS_BY_COPY) || defined(MUTANT_LOADS_BY_ASSEMBLY) || defined(MUTANT_LOADS_BY_GATHER) ||                       \
    defined(MUTANT_LOADS_BY_SYSTEM_CALL) || defined(MUTANT_LOADS_BY_PRINTF)
#define UNFENCED 1
#endif
#define MAGIC 0x6f776e0001ull
#define UNIT 64u

struct record {
    uint64_t is_valid, slot, value, spare[5];
};
struct head {
    uint64_t magic, slot_count, spare[6];
    uint64_t a, spare_a[7];
    uint64_t b, spare_b[7];
    uint64_t spare_pair[6], pair[2]; /* the end of a line */
    uint64_t wide[4], spare_wide[4];
    struct record record;
    uint64_t slots[];
};
_Static_assert(offsetof(struct head, pair) % 16 == 0 && offsetof(struct head, record) % 64 == 0, "the layout above");

struct fl_heap {
    struct head *head, *alias; /* two mappings of the same file */
    uint64_t bytes, first, units;
    uint8_t *used;
    int fd;
};

static char text[100];
static int fail(int status, const char *why) {
    snprintf(text, sizeof text, "%s", why);
    return status;
}

/* ---- flushes and fences ---- */

#if defined(MUTANT_INTRINSICS)
__attribute__((target("clwb"))) static void flush(const void *address) { _mm_clwb((void *)(uintptr_t)address); }
static void fence(void) { _mm_sfence(); }
#elif defined(MUTANT_BYTES)
static void flush(const void *address) { __asm__ volatile(".byte 0x66; xsaveopt %0" : : "m"(*(const char *)address) : "memory"); }
static void fence(void) { __asm__ volatile(".byte 0x0f, 0xae, 0xf8" : : : "memory"); }
#else
static void flush(const void *address) { __asm__ volatile("clwb %0" : : "m"(*(const char *)address) : "memory"); }
static void fence(void) { __asm__ volatile("sfence" : : : "memory"); }
#endif

static void persist(const void *address, size_t bytes) {
    uintptr_t end = (uintptr_t)address + bytes;
    for (uintptr_t line = (uintptr_t)address & ~63ul; line < end; line += 64)
        flush((const void *)line);
    fence();
}

static void set(uint64_t *word, uint64_t value) { *(volatile uint64_t *)word = value; }

/* ---- a, then b ---- */

static void order(struct fl_heap *heap) {
    struct head *head = heap->head;
    uint64_t next = head->a + 1;
#if defined(MUTANT_STREAM) || defined(MUTANT_STREAM_UNFENCED)
    _mm_stream_si64((long long *)&head->a, (long long)next);
#else
    set(&head->a, next);
#endif
#if defined(MUTANT_ALIAS)
    __asm__ volatile("clflush %0" : : "m"(heap->alias->a) : "memory");
    fence();
#elif defined(MUTANT_ALIAS_WRONG_LINE)
    __asm__ volatile("clflush %0" : : "m"(heap->alias->b) : "memory");
    fence();
#elif defined(MUTANT_EXCHANGE)
    uint64_t given = next; /* completes the flush, and stores b */
    flush(&head->a);
    __asm__ volatile("xchgq %0, %1" : "+r"(given), "+m"(head->b) : : "memory");
#elif defined(MUTANT_WIDE_EXCHANGE_ELSEWHERE)
    static unsigned __int128 elsewhere;
    uint64_t low = 0, high = 0;
    flush(&head->a);
    __asm__ volatile("lock cmpxchg16b %2" : "+a"(low), "+d"(high), "+m"(elsewhere) : "b"(0ul), "c"(0ul) : "cc", "memory");
#elif defined(MUTANT_STREAM)
    fence();
#elif defined(UNFENCED)
    flush(&head->a);
#elif !defined(MUTANT_STREAM_UNFENCED)
    persist(&head->a, 8);
#endif
    set(&head->b, next);
    persist(&head->b, 8);
#if defined(MUTANT_PAIR_TORN)
    uint64_t low = head->pair[0], high = head->pair[1];
    __asm__ volatile("lock cmpxchg16b %2"
                     : "+a"(low), "+d"(high), "+m"(*(unsigned __int128 *)head->pair)
                     : "b"(next), "c"(next)
                     : "cc", "memory");
    persist(head->pair, sizeof head->pair);
#elif defined(MUTANT_WIDE_TORN) /* half of it in the pair's line */
    __asm__ volatile("vmovq %0, %%xmm0\n\tvpbroadcastq %%xmm0, %%ymm0\n\tvmovdqu %%ymm0, %1\n\tvzeroupper"
                     :
                     : "r"(next), "m"(*(char(*)[32])head->pair)
                     : "xmm0", "memory");
    persist(head->pair, 32);
#endif
}

/* ---- recovery's loads ---- */

static void load_both(struct fl_heap *heap, uint64_t *a, uint64_t *b) {
    struct head *head = heap->head;
#if defined(MUTANT_LOADS_BY_COPY)
    struct {
        uint64_t a, spare[7], b;
    } copy;
    void *to = &copy;
    const void *from = &head->a;
    size_t bytes = sizeof copy;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    *a = copy.a, *b = copy.b;
#elif defined(MUTANT_LOADS_BY_ASSEMBLY) /* open has just looped over slots that lie on the same OS page */
    __asm__ volatile("movq %1, %0" : "=r"(*a) : "m"(head->a));
    __asm__ volatile("movq %1, %0" : "=r"(*b) : "m"(head->b));
#elif defined(MUTANT_LOADS_BY_GATHER)
    static const long long INDEXES[4] = {0, 8, 0, 8};
    uint64_t found[4];
    __asm__ volatile("vpcmpeqd %%ymm2, %%ymm2, %%ymm2\n\tvmovdqu (%1), %%ymm1\n\tvpgatherqq %%ymm2, (%2,%%ymm1,8), %%ymm0\n\t"
                     "vmovdqu %%ymm0, (%0)\n\tvzeroupper"
                     :
                     : "r"(found), "r"(INDEXES), "r"(&head->a)
                     : "xmm0", "xmm1", "xmm2", "memory");
    *a = found[0], *b = found[1];
#elif defined(MUTANT_LOADS_BY_SYSTEM_CALL)
    uint64_t *to[] = {a, b};
    off_t offsets[] = {offsetof(struct head, a), offsetof(struct head, b)};
    for (int i = 0; i < 2; i++) {
        register off_t in_r10 __asm__("r10") = offsets[i];
        long answer;
        __asm__ volatile("syscall"
                         : "=a"(answer)
                         : "a"((long)SYS_pread64), "D"((long)heap->fd), "S"(to[i]), "d"(8ul), "r"(in_r10)
                         : "rcx", "r11", "memory");
    }
#elif defined(MUTANT_LOADS_BY_PRINTF) /* a library that was not built here */
    char line[16];
    snprintf(line, sizeof line, "%.8s%.8s", (char *)&head->a, (char *)&head->b);
    *a = *(volatile uint64_t *)&head->a, *b = *(volatile uint64_t *)&head->b;
#else
    *a = head->a, *b = head->b;
#endif
}

static int recover(struct fl_heap *heap) {
    struct head *head = heap->head;
    struct record *record = &head->record;
    uint64_t a = 0, b = 0;
    load_both(heap, &a, &b);
    if (b > a)
        return fail(FL_CORRUPT, "b is ahead of a");
#if defined(MUTANT_PAIR_TORN)
    if (head->pair[0] != head->pair[1])
        return fail(FL_CORRUPT, "the pair is torn");
#elif defined(MUTANT_WIDE_TORN)
    if (head->pair[0] != head->pair[1] || head->pair[0] != head->wide[0] || head->wide[0] != head->wide[1])
        return fail(FL_CORRUPT, "the wide value is torn");
#endif
    if (record->is_valid == 0)
        return FL_OK;
    set(&head->slots[record->slot], record->value);
#if !defined(MUTANT_RECOVERY_FORGETS)
    persist(&head->slots[record->slot], 8);
#endif
    set(&record->is_valid, 0);
    persist(&record->is_valid, 8);
    return FL_OK;
}

static void change_slot(struct fl_heap *heap, uint32_t slot, uint64_t value) {
    struct record *record = &heap->head->record;
    order(heap);
    record->slot = slot, record->value = value;
    persist(record, sizeof *record);
    set(&record->is_valid, 1);
    persist(&record->is_valid, 8);
    set(&heap->head->slots[slot], value);
    persist(&heap->head->slots[slot], 8);
    set(&record->is_valid, 0);
    persist(&record->is_valid, 8);
}

/* ---- the heap ---- */

static int close_heap(struct fl_heap *heap) {
    if (heap->head != NULL)
        munmap(heap->head, heap->bytes);
    if (heap->alias != NULL && heap->alias != heap->head)
        munmap(heap->alias, heap->bytes);
    if (heap->fd >= 0)
        close(heap->fd);
    free(heap->used);
    free(heap);
    return FL_OK;
}

static void *map(const struct fl_heap *heap, uintptr_t address) {
    void *mapped = mmap((void *)address, heap->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, heap->fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static int begin(const struct fl_heap_options *options, int flags, struct fl_heap **out) {
    char path[4200];
    struct fl_heap *heap = *out = calloc(1, sizeof *heap);
    snprintf(path, sizeof path, "%s/heap", options->folder);
    heap->fd = open(path, O_RDWR | flags, 0600);
    heap->bytes = options->heap_bytes;
    if (heap->fd < 0 || (flags != 0 && ftruncate(heap->fd, (off_t)heap->bytes) != 0))
        return fail(FL_NOT_A_HEAP, "no file");
    struct stat info;
    if (fstat(heap->fd, &info) != 0 || (uint64_t)info.st_size < heap->bytes)
        return fail(FL_NOT_A_HEAP, "a short file");
    heap->head = map(heap, options->address_hint);
    heap->alias = heap->head;
#if defined(MUTANT_ALIAS) || defined(MUTANT_ALIAS_WRONG_LINE)
    heap->alias = map(heap, options->address_hint + 0x40000000);
#endif
    if (heap->head == NULL || heap->alias == NULL)
        return fail(FL_ERROR, "no mapping");
    heap->first = (sizeof(struct head) + options->slot_count * 8ull + UNIT - 1) / UNIT;
    heap->units = heap->bytes / UNIT;
    heap->used = calloc(1, heap->units);
    return FL_OK;
}

static int create(const struct fl_heap_options *options, fl_heap **out) {
    int status = begin(options, O_CREAT, out);
    if (status != FL_OK)
        return close_heap(*out), status;
    struct head *head = (*out)->head;
    head->slot_count = options->slot_count;
    persist(head, sizeof *head);
    set(&head->magic, MAGIC);
    persist(head, 8);
    return FL_OK;
}

static int open_heap(const struct fl_heap_options *options, fl_heap **out) {
    int status = begin(options, 0, out);
    struct fl_heap *heap = *out;
    if (status == FL_OK && heap->head->magic != MAGIC)
        status = fail(FL_NOT_A_HEAP, "no magic");
    uint64_t sum = 0;
    for (uint32_t i = 0; status == FL_OK && i < heap->head->slot_count; i++)
        sum += heap->head->slots[i];
    if (status == FL_OK && sum != 1)
        status = recover(heap);
    for (uint32_t i = 0; status == FL_OK && i < heap->head->slot_count; i++) {
        uint64_t unit = heap->head->slots[i] & 0xffffffff, count = heap->head->slots[i] >> 32;
        if (unit + count > heap->units)
            status = fail(FL_CORRUPT, "a slot leads out of the heap");
        else
            memset(heap->used + unit, 1, count);
    }
    return status == FL_OK ? FL_OK : (close_heap(heap), status);
}

static uint64_t take(struct fl_heap *heap, uint64_t bytes) {
    uint64_t count = bytes == 0 ? 1 : (bytes + UNIT - 1) / UNIT, free_units = 0;
    for (uint64_t unit = heap->first; unit < heap->units; unit++) {
        free_units = heap->used[unit] ? 0 : free_units + 1;
        if (free_units == count) {
            memset(heap->used + unit + 1 - count, 1, count);
            return (unit + 1 - count) | count << 32;
        }
    }
    return 0;
}
static void give(struct fl_heap *heap, uint64_t run) { memset(heap->used + (run & 0xffffffff), 0, run >> 32); }
static char *at(struct fl_heap *heap, uint64_t run) { return (char *)heap->head + (run & 0xffffffff) * UNIT; }

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t run = take(heap, bytes);
    if (run == 0)
        return fail(FL_OUT_OF_MEMORY, "full");
    fill(context, at(heap, run), 0, bytes);
    change_slot(heap, slot, run);
    return FL_OK;
}
static int free_slot(fl_heap *heap, uint32_t slot) {
    uint64_t run = heap->head->slots[slot];
    change_slot(heap, slot, 0);
    give(heap, run);
    return FL_OK;
}
static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t before = heap->head->slots[slot], run = take(heap, bytes), kept = old < bytes ? old : bytes;
    if (run == 0)
        return fail(FL_OUT_OF_MEMORY, "full");
    memcpy(at(heap, run), at(heap, before), kept);
    persist(at(heap, run), kept);
    if (bytes > kept)
        fill(context, at(heap, run), kept, bytes - kept);
    change_slot(heap, slot, run);
    give(heap, before);
    return FL_OK;
}
static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    uint64_t run = heap->head->slots[slot];
    *location = (struct fl_location){0, run != 0, (run & 0xffffffff) * UNIT};
    return FL_OK;
}
static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "heap" : NULL; }
static const char *message(void) { return text; }

const struct fl_adapter *faultline_adapter(void);
const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {.abi_version = FL_ADAPTER_ABI,
                                            .struct_size = sizeof table,
                                            .name = "own",
                                            .create = create,
                                            .open = open_heap,
                                            .close = close_heap,
                                            .allocate = allocate,
                                            .free = free_slot,
                                            .reallocate = reallocate,
                                            .read_slot = read_slot,
                                            .file_name = file_name,
                                            .message = message};
    return &table;
}
