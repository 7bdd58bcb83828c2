/* SPDX-License-Identifier: Apache-2.0
 *
 * What a target keeps outside the image, so that an in-process life begins where a process of its own would: its heap, the globals
 * of the libraries that were loaded for it, their thread-locals, its thread-specific data.
 *
 * While a target is loaded and while a life runs in-process, malloc and its like (the runner's, the C library's and the C++
 * library's calls too) take from one arena of fixed addresses: two areas, for small and for large allocations, each a bump pointer,
 * and free lists by size. What was allocated by the end of loading is part of the snapshot; everything above is zeroed when a life is
 * over. Of large allocations most is often never touched, so their area is given back to the kernel instead. At all other times they
 * are the C library's own.
 *
 * What the C library holds for its callers (streams, exit handlers, signal actions, locale, environment) cannot be reset:
 * calls/state.c makes a run that changes such a thing an isolated one.
 */
#include "undo/undo.h"
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#define AREA_BYTES (1ull << 30)
#define LARGE_BYTES (64ull << 10)  /* from here on an allocation is a large one */
#define ZEROED_BYTES (1ull << 20)  /* used part of the small area above this is given back to the kernel instead */
#define MOST_VISITED_BYTES (16ull << 20)   /* of the large area, to be part of what is known of a run's state */
#define SMALL_BYTES 1024u         /* up to here each multiple of 16 has a list of its own */
#define CLASSES 192u
#define IN_USE 0x6e6975u
#define IS_FREE 0x656572u
#define MOST_PARTS 64u

struct head { /* 16 bytes, in front of each allocation */
    uint64_t bytes; /* that it has */
    uint32_t class, state;
};

struct part { /* of memory, to be restored */
    uint8_t *start, *saved;
    size_t bytes;
};

struct area {
    uint8_t *start, *top, *end, *base_top;
};

static struct {
    struct area small, large;
    struct head *lists[CLASSES], *base_lists[CLASSES];
    bool is_on;
    struct part parts[MOST_PARTS];
    size_t part_count;
    size_t libraries_before; /* that were loaded when there was no target yet */
    unsigned control;        /* of the floating-point unit */
} arena;

/* ---- allocating --------------------------------------------------------------------------------------------------------- */

/* Lists hold what has at least the bytes of their class. *bytes: rounded up to what such an allocation gets. */
static uint32_t class_of(uint64_t *bytes) {
    if (*bytes <= SMALL_BYTES) {
        *bytes = *bytes == 0 ? 16 : (*bytes + 15) / 16 * 16;
        return (uint32_t)(*bytes / 16);
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(*bytes - 1);
    uint64_t step = 1ull << (power - 2);
    *bytes = (*bytes + step - 1) / step * step;
    return SMALL_BYTES / 16 + (power - 10) * 4 + (uint32_t)(*bytes / step) - 4; /* 5 to 8 steps: 65 and up */
}

static struct head *head_of(void *memory) { return (struct head *)memory - 1; }
static bool is_in(const struct area *area, const void *memory) {
    return (const uint8_t *)memory >= area->start && (const uint8_t *)memory < area->end;
}
static bool is_ours(const void *memory) { return is_in(&arena.small, memory) || is_in(&arena.large, memory); }

static void *take_fresh(uint64_t bytes, uint32_t class, size_t alignment) {
    struct area *area = bytes < LARGE_BYTES ? &arena.small : &arena.large;
    uintptr_t at = ((uintptr_t)area->top + sizeof(struct head) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (bytes > AREA_BYTES || at + bytes > (uintptr_t)area->end)
        inprocess_leave("has a heap larger than 1 GiB");
    area->top = (uint8_t *)at + bytes;
    *head_of((void *)at) = (struct head){bytes, class, IN_USE};
    return (void *)at;
}

static void *take(uint64_t bytes, size_t alignment, bool is_zeroed) {
    if (bytes > AREA_BYTES)
        return errno = ENOMEM, NULL;
    uint64_t wanted = bytes;
    uint32_t class = class_of(&wanted);
    struct head *head = alignment > 16 ? NULL : arena.lists[class];
    if (head == NULL)
        return take_fresh(wanted, class, alignment < 16 ? 16 : alignment);
    memcpy(&arena.lists[class], head + 1, sizeof(void *));
    head->state = IN_USE;
    if (is_zeroed)
        memset(head + 1, 0, head->bytes);
    return head + 1;
}

static void give(void *memory) {
    struct head *head = head_of(memory);
    if (head->state != IN_USE || head->class >= CLASSES) {
        inprocess_leave("frees what is not allocated, or wrote past the end of an allocation");
        abort(); /* isolated, as the C library does */
    }
    head->state = IS_FREE;
    memcpy(memory, &arena.lists[head->class], sizeof(void *));
    arena.lists[head->class] = head;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they have their own */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

INTERPOSED void *malloc(size_t bytes) { return arena.is_on ? take(bytes, 16, false) : __libc_malloc(bytes); }

INTERPOSED void *calloc(size_t count, size_t each) {
    size_t bytes;
    if (!arena.is_on)
        return __libc_calloc(count, each);
    return __builtin_mul_overflow(count, each, &bytes) ? (errno = ENOMEM, NULL) : take(bytes, 16, true);
}

INTERPOSED void free(void *memory) {
    if (is_ours(memory))
        give(memory);
    else if (memory != NULL) {
        if (arena.is_on)
            inprocess_leave("frees memory that is not its own");
        __libc_free(memory);
    }
}

INTERPOSED void *realloc(void *old, size_t bytes) {
    if (old == NULL)
        return malloc(bytes);
    if (!is_ours(old)) {
        if (arena.is_on)
            inprocess_leave("frees memory that is not its own");
        return __libc_realloc(old, bytes);
    }
    if (bytes == 0)
        return free(old), NULL;
    size_t kept = head_of(old)->bytes < bytes ? head_of(old)->bytes : bytes;
    if (kept == bytes)
        return old;
    void *moved = malloc(bytes);
    if (moved == NULL)
        return NULL;
    memcpy(moved, old, kept);
    free(old);
    return moved;
}

INTERPOSED void *memalign(size_t alignment, size_t bytes);
INTERPOSED void *memalign(size_t alignment, size_t bytes) {
    if (!arena.is_on)
        return __libc_memalign(alignment, bytes);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        return errno = EINVAL, NULL;
    return take(bytes, alignment, false);
}
INTERPOSED void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
INTERPOSED void *valloc(size_t bytes) { return memalign(OS_PAGE_BYTES, bytes); }
INTERPOSED int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    int saved = errno;
    void *taken = memalign(alignment, bytes);
    errno = saved;
    if (taken == NULL)
        return ENOMEM;
    *memory = taken;
    return 0;
}

#endif

/* ---- thread-specific data ------------------------------------------------------------------------------------------------- */

#define KEYS "has many keys of thread-specific data, or deletes one of before"
#define FIRST_KEYS 32u /* for which the C library allocates nothing */

static struct {
    bool is_set, is_new;
    void *value; /* before this life */
} keys[FIRST_KEYS];

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static void note_key(pthread_key_t key, bool is_new) {
    if (key >= FIRST_KEYS)
        inprocess_leave(KEYS);
    keys[key].value = keys[key].is_set ? keys[key].value : pthread_getspecific(key);
    keys[key].is_set = true;
    keys[key].is_new |= is_new;
}

INTERPOSED int pthread_key_create(pthread_key_t *key, void (*end)(void *)) {
    int error = REAL(pthread_key_create)(key, end);
    if (error == 0 && inprocess_is_running())
        note_key(*key, true);
    return error;
}

INTERPOSED int pthread_setspecific(pthread_key_t key, const void *value) {
    if (inprocess_is_running())
        note_key(key, false);
    return REAL(pthread_setspecific)(key, value);
}

INTERPOSED int pthread_key_delete(pthread_key_t key) {
    if (inprocess_is_running() && (key >= FIRST_KEYS || !keys[key].is_new))
        inprocess_leave(KEYS);
    if (inprocess_is_running())
        keys[key].is_set = keys[key].is_new = false;
    return REAL(pthread_key_delete)(key);
}

#endif

static void reset_keys(void) {
    for (pthread_key_t key = 0; key < FIRST_KEYS; key++) {
        if (!keys[key].is_set)
            continue;
        REAL(pthread_setspecific)(key, keys[key].value);
        if (keys[key].is_new)
            REAL(pthread_key_delete)(key);
        keys[key].is_set = keys[key].is_new = false;
    }
}

/* ---- snapshot and reset --------------------------------------------------------------------------------------------------- */

static int count_library(struct dl_phdr_info *info, size_t bytes, void *count) {
    (void)info, (void)bytes;
    ++*(size_t *)count;
    return 0;
}

static void map_area(struct area *area) {
    area->start = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area->start == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no addresses for the targets' heap: %s", strerror(errno));
    area->top = area->start;
    area->end = area->start + AREA_BYTES;
}

void arena_begin_load(void) {
    map_area(&arena.small);
    map_area(&arena.large);
    dl_iterate_phdr(count_library, &arena.libraries_before);
    arena.is_on = true;
}

void arena_end_load(void) { arena.is_on = false; }

static void add_part(void *start, size_t bytes) {
    if (bytes == 0)
        return;
    if (arena.part_count == MOST_PARTS)
        fail(EXIT_INFRASTRUCTURE, "the adapter has more than %u parts of writable memory", MOST_PARTS);
    struct part *part = &arena.parts[arena.part_count++];
    *part = (struct part){start, allocate_or_fail(NULL, bytes), bytes};
    memcpy(part->saved, start, bytes);
}

extern void *__tls_get_addr(size_t place[2]);

/* Writable segments but for what the linker made read-only, and the thread-locals of this thread. */
static int add_library(struct dl_phdr_info *info, size_t bytes, void *number) {
    (void)bytes;
    if ((*(size_t *)number)++ < arena.libraries_before)
        return 0;
    uintptr_t fixed_end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
            fixed_end =
                (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz) & ~(uintptr_t)(OS_PAGE_BYTES - 1);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
        if (header->p_type == PT_TLS)
            add_part(__tls_get_addr((size_t[2]){info->dlpi_tls_modid, 0}), header->p_memsz);
        if (header->p_type != PT_LOAD || (header->p_flags & PF_W) == 0)
            continue;
        start = start < fixed_end && fixed_end <= end ? fixed_end : start;
        add_part((void *)start, end - start);
    }
    return 0;
}

static void add_area(struct area *area) {
    add_part(area->start, (size_t)(area->top - area->start));
    area->base_top = area->top;
}

void arena_take_snapshot(void) {
    static char buffer[BUFSIZ];
    size_t number = 0;
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* its own would be of the first life's heap */
    dl_iterate_phdr(add_library, &number);
    arena.large.top = (uint8_t *)whole_pages((uintptr_t)arena.large.top);
    add_area(&arena.small);
    add_area(&arena.large);
    memcpy(arena.base_lists, arena.lists, sizeof arena.lists);
    arena.control = _mm_getcsr();
}

void arena_begin_life(void) {
    arena.is_on = true;
    errno = 0;
}
void arena_pause(bool is_paused) { arena.is_on = !is_paused; }

bool arena_visit_state(void (*visit)(const void *bytes, size_t count)) {
    unsigned control = _mm_getcsr();
    for (size_t i = 0; i < arena.part_count; i++)
        visit(arena.parts[i].start, arena.parts[i].bytes);
    size_t large = (size_t)(arena.large.top - arena.large.base_top);
    visit(arena.small.base_top, (size_t)(arena.small.top - arena.small.base_top));
    visit(&large, sizeof large);
    visit(arena.lists, sizeof arena.lists);
    visit(&control, sizeof control);
    for (pthread_key_t key = 0; key < FIRST_KEYS; key++) {
        void *value = keys[key].is_set ? pthread_getspecific(key) : NULL;
        visit(&keys[key], sizeof keys[key]);
        visit(&value, sizeof value);
    }
    return touched_visit(arena.large.base_top, whole_pages(large), MOST_VISITED_BYTES, visit);
}

static void give_back(const uint8_t *start, const uint8_t *end) {
    syscall(SYS_madvise, start, end - start, MADV_DONTNEED); /* not the interposed one, which is the target's */
}

void arena_end_life(void) {
    struct area *small = &arena.small, *large = &arena.large;
    size_t used = (size_t)(small->top - small->base_top), zeroed = used < ZEROED_BYTES ? used : ZEROED_BYTES;
    reset_keys();
    arena.is_on = false;
    memset(small->base_top, 0, zeroed);
    if (used > zeroed)
        give_back((uint8_t *)((uintptr_t)(small->base_top + zeroed) & ~(uintptr_t)(OS_PAGE_BYTES - 1)), small->top);
    if (large->top > large->base_top)
        give_back(large->base_top, large->top);
    small->top = small->base_top;
    large->top = large->base_top;
    memcpy(arena.lists, arena.base_lists, sizeof arena.lists);
    for (size_t i = 0; i < arena.part_count; i++)
        memcpy(arena.parts[i].start, arena.parts[i].saved, arena.parts[i].bytes);
    _mm_setcsr(arena.control);
}
