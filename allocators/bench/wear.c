/* SPDX-License-Identifier: Apache-2.0
 *
 * wear.c - a workload file (docs/workloads.md) of one heap and one thread, run for `faultline wear`. What the application does for its
 * part is the same whoever the allocator is (Moraru et al., section 8.1.1): each object is written whole, once, from its first byte to its
 * last, by the widest plain stores that fit its size, and flushed and fenced.
 *
 * reallocate allocates, writes the new object and frees the old one: not all of these allocators have more. An allocation that fails has no
 * effect, and what follows on its slot is skipped. An allocator that wants to be told a link pointer gets one of BENCH_THREADS, by slot. Nothing here takes memory from malloc: its heap is what may be counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "persist.h"

enum { SLOTS = 65536 };

static void *objects[SLOTS];

struct run {
    const struct bench_allocator *allocator;
    const char *at, *end;                      /* of the text that is left */
    uint64_t allocations, frees, failed, bytes; /* bytes: of all objects that were allocated */
};

static void fail(const char *path) {
    bench_fail(path, errno != 0 ? strerror(errno) : "expected a workload file of `allocate`, `free`, `reallocate` and one `case`");
}

/* The next word, or false at the end of the line, which is then passed over. */
static bool next_word(struct run *run, const char **word, size_t *length) {
    while (run->at < run->end && *run->at == ' ')
        run->at++;
    *word = run->at;
    if (run->at == run->end)
        return false;
    if (*run->at == '\n') {
        run->at++;
        return false;
    }
    while (run->at < run->end && *run->at != ' ' && *run->at != '\n')
        run->at++;
    *length = (size_t)(run->at - *word);
    return true;
}

static bool next_number(struct run *run, uint64_t *number) {
    const char *word;
    size_t length;
    *number = 0;
    if (!next_word(run, &word, &length))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (word[i] < '0' || word[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(word[i] - '0');
    }
    return true;
}

/* volatile: one store each, in this order, and no call of memset. */
__attribute__((noinline)) static void write_whole(void *object, uint64_t bytes, uint64_t value) {
    volatile uint64_t *words = object;
    uint64_t count = bytes / sizeof *words;
    for (uint64_t i = 0; i < count; i++)
        words[i] = value;
    volatile unsigned char *rest = (volatile unsigned char *)(words + count);
    for (uint64_t i = 0; i < bytes % sizeof *words; i++)
        rest[i] = (unsigned char)value;
    fl_persist(object, bytes);
}

__attribute__((noinline)) static void *allocate(struct run *run, uint64_t bytes, unsigned thread) {
    void *object = run->allocator->allocate(thread, bytes);
    if (object == NULL) {
        run->failed++;
        return NULL;
    }
    run->allocations++;
    run->bytes += bytes;
    write_whole(object, bytes, run->allocations);
    return object;
}

__attribute__((noinline)) static void release(struct run *run, void *object, unsigned thread) {
    run->frees++;
    run->allocator->free(thread, object);
}

static bool is_word(const char *word, size_t length, const char *wanted) {
    return length == strlen(wanted) && memcmp(word, wanted, length) == 0;
}

/* False: the line is not one of those that this program runs. */
static bool run_line(struct run *run, const char *word, size_t length) {
    uint64_t slot, bytes = 0;
    bool is_allocate = is_word(word, length, "allocate"), is_reallocate = is_word(word, length, "reallocate");
    if (!is_allocate && !is_reallocate && !is_word(word, length, "free"))
        return false;
    if (!next_number(run, &slot) || slot >= SLOTS || ((is_allocate || is_reallocate) && (!next_number(run, &bytes) || bytes == 0)))
        return false;
    void *old = objects[slot];
    unsigned thread = (unsigned)(slot % BENCH_THREADS);
    if (!is_allocate && old == NULL)
        return true; /* its allocation failed */
    void *new = bytes > 0 ? allocate(run, bytes, thread) : NULL;
    if (is_reallocate && new == NULL)
        return true;
    if (!is_allocate)
        release(run, old, thread);
    objects[slot] = new;
    return true;
}

static void run_text(struct run *run, const char *path) {
    const char *word;
    size_t length = 0;
    for (unsigned line = 0; run->at < run->end; line++) {
        if (!next_word(run, &word, &length))
            continue;
        if (line < 3) /* `workload 1`, `slots N`, `case`: the harness has read them */
            while (next_word(run, &word, &length))
                continue;
        else if (!run_line(run, word, length) || next_word(run, &word, &length))
            fail(path);
    }
}

/* Not by stdio, whose buffer is from malloc. */
static int say(const struct run *run) {
    char words[160];
    int bytes =
        snprintf(words, sizeof words, "{\"allocations\": %llu, \"frees\": %llu, \"failed\": %llu, \"object_bytes\": %llu}\n",
                 (unsigned long long)run->allocations, (unsigned long long)run->frees, (unsigned long long)run->failed,
                 (unsigned long long)run->bytes);
    return write(STDOUT_FILENO, words, (size_t)bytes) == bytes ? 0 : 1;
}

int bench_wear(const struct bench_allocator *allocator, const char *folder, uint64_t limit_bytes, const char *path) {
    struct stat status;
    struct run run = {.allocator = allocator};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &status) != 0)
        fail(path);
    run.at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (run.at == MAP_FAILED)
        fail(path);
    run.end = run.at + status.st_size;
    errno = 0;
    if (!allocator->create(folder, limit_bytes))
        bench_fail("create", allocator->message());
    run_text(&run, path);
    if (allocator->check != NULL && !allocator->check())
        bench_fail("check", allocator->message());
    if (!allocator->close())
        bench_fail("close", allocator->message());
    return say(&run);
}
