/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crash.c - power failures at every event of random workloads, with random images of what Px86 allows (recorder.h).
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -DNVM_CHUNK_BYTES=65536 -DNVM_ARENAS=3 -I../testing/recorded \
 *         -Isrc -I. -I../testing -I../../include src/?*.c adapter*.c ../testing/recorder.c tests/test_crash.c -pthread \
 *         -o /tmp/test_crash && /tmp/test_crash
 *
 *     test_crash [--seeds N] [--operations N] [--images N] [--prefix] [--expect RULE]
 *
 * In the folder of the allocator. A second, much simpler opinion beside the faultline engine, which needs no tracer: a
 * workload runs through the adapter, and after each event some images are recovered and judged against
 *   - the slots before the pending operation or after it, contents included,
 *   - the allocator's own check, and an account of every byte of the file,
 *   - the twin: the same heap recovered without a crash, which must have the very same parts, free chunks at the end aside: how
 *     far a file has grown is no difference.
 * The file grows in every workload, each operation is a thread's of its own, so that objects are freed in other arenas than the
 * thread's, and the slot layouts take turns.
 * Some recoveries are recorded in turn and crash again. --prefix judges only program-order images. --expect RULE is for
 * mutants: passes if the first finding has that rule; "none": passes without finding.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapter.h"
#include "layout.h"
#include "recorder.h"

enum { SLOTS = 14, CHUNK_BYTES = 65536, LIMIT_BYTES = 5 * CHUNK_BYTES, PARTS = LIMIT_BYTES / 64 };

struct model {
    uint64_t bytes[SLOTS]; /* 0: the slot is empty */
    uint8_t *content[SLOTS];
};

struct parts {
    uint32_t count;
    struct fl_block part[PARTS];
};

struct test {
    const struct fl_adapter *adapter;
    struct fl_heap_options options;
    struct fl_heap_options scratch; /* where images are recovered */
    struct fl_heap_options deeper;  /* ... and those of crashes in these recoveries */
    uint64_t random;
    unsigned images; /* random images after each event */
    bool is_prefix_only;
    bool is_creating;           /* no heap is a fine answer */
    struct model before, after; /* the pending operation */
    struct parts twin_before, twin_after;
    uint64_t judged, nested;
    const char *rule; /* of the first finding; null: none */
    char finding[512];
    char where[128];
    struct queued {
        char *image;
        size_t bytes;
    } *queue;
    size_t queued, queue_size;
};

static struct test test;
static sigjmp_buf after_signal;

static void finding(const char *rule, const char *text, uint64_t a, uint64_t b) {
    if (test.rule != NULL)
        return;
    test.rule = rule;
    snprintf(test.finding, sizeof test.finding, "%s: %s (%#llx, %#llx): %s", test.where, text, (unsigned long long)a,
             (unsigned long long)b, test.adapter->message());
}

/* ---- files ---- */

static void write_image(const struct fl_heap_options *options, const char *image, size_t bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/heap", options->folder);
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(3);
    }
}

static size_t heap_bytes(const struct fl_heap_options *options) {
    char path[256];
    struct stat status;
    snprintf(path, sizeof path, "%s/heap", options->folder);
    if (stat(path, &status) != 0) {
        perror(path);
        exit(3);
    }
    return (size_t)status.st_size;
}

static void remove_heap(const struct fl_heap_options *options) {
    char path[256];
    snprintf(path, sizeof path, "%s/heap", options->folder);
    unlink(path);
}

/* ---- judging one recovered heap ---- */

static void add_part(void *context, const struct fl_block *block) {
    struct parts *parts = context;
    if (parts->count < PARTS)
        parts->part[parts->count] = *block;
    parts->count++;
}

/* Without the free chunks that the file ends with. */
static uint32_t count_to_free_tail(const struct parts *parts) {
    uint32_t count = parts->count;
    bool has_tail =
        count >= 2 && parts->part[count - 1].state == FL_BLOCK_FREE && parts->part[count - 1].offset % CHUNK_BYTES == 64;
    return has_tail ? count - 2 : count;
}

static bool is_same_parts(const struct parts *a, const struct parts *b) {
    uint32_t count = count_to_free_tail(a);
    return count == count_to_free_tail(b) && memcmp(a->part, b->part, count * sizeof *a->part) == 0;
}

static const struct fl_block *allocated_part(const struct parts *parts, uint64_t offset) {
    for (uint32_t i = 0; i < parts->count; i++)
        if (parts->part[i].offset == offset && parts->part[i].state == FL_BLOCK_ALLOCATED)
            return &parts->part[i];
    return NULL;
}

/* The hint is free, so the heap lies there. */
static char *memory_of(const struct fl_heap_options *options) { return (char *)options->address_hint; }

static void judge_accounting(const struct parts *parts) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < parts->count && i < PARTS; i++) {
        if (parts->part[i].offset != at)
            finding("FL011", "the parts have a gap or overlap", at, parts->part[i].offset);
        at = parts->part[i].offset + parts->part[i].bytes;
    }
    if (at != heap_bytes(&test.scratch))
        finding("FL011", "the parts do not add up to the file", at, heap_bytes(&test.scratch));
}

/* The slots are exactly those of the model. Null: they are; else the rule that is violated. */
static const char *compare_slots(struct fl_heap *heap, const struct parts *parts, const struct model *model, const char **why) {
    uint32_t live = 0, allocated = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct fl_location location;
        test.adapter->read_slot(heap, slot, &location);
        if (location.is_set) {
            const struct fl_block *part = allocated_part(parts, location.offset);
            if (part == NULL)
                return *why = "a slot points to no live heap block", "FL008";
            if (part->bytes < model->bytes[slot])
                return *why = "a heap block is too small", "FL007";
        }
        if (location.is_set != (model->bytes[slot] != 0))
            return location.is_set ? (*why = "a freed object is back", "FL005") : (*why = "an object is lost", "FL004");
        if (location.is_set && memcmp(memory_of(&test.scratch) + location.offset, model->content[slot], model->bytes[slot]) != 0)
            return *why = "content changed", "FL009";
        live += location.is_set;
    }
    for (uint32_t i = 0; i < parts->count; i++)
        allocated += parts->part[i].state == FL_BLOCK_ALLOCATED;
    return allocated != live ? (*why = "leak", "FL010") : NULL;
}

static void judge_heap(struct fl_heap *heap) {
    static struct parts parts;
    const char *why_before = "", *why_after = "";
    parts.count = 0;
    test.adapter->walk(heap, add_part, &parts);
    judge_accounting(&parts);
    if (test.adapter->check(heap) != FL_OK)
        finding("FL011", "check", 0, 0);
    const char *before = compare_slots(heap, &parts, &test.before, &why_before);
    const char *after = compare_slots(heap, &parts, &test.after, &why_after);
    if (before != NULL && after != NULL)
        finding(strcmp(before, "FL010") == 0 ? before : after, strcmp(before, "FL010") == 0 ? why_before : why_after, 0, 0);
    else if (!(before == NULL && is_same_parts(&parts, &test.twin_before)) &&
             !(after == NULL && is_same_parts(&parts, &test.twin_after)))
        finding("FL012", "the recovered heap differs from its twin", parts.count, test.twin_before.count);
}

static void crash_again(struct recorder *recorder, void *context);

static void recover_and_judge(bool is_nested) {
    struct fl_heap *heap = NULL;
    struct recorder *nested = NULL;
    if (is_nested) {
        nested = recorder_new(crash_again, NULL);
        recorder_switch(nested);
    }
    int status = test.adapter->open(&test.scratch, &heap);
    recorder_switch(NULL);
    if (nested != NULL)
        recorder_delete(nested);
    if (status == FL_NOT_A_HEAP && test.is_creating)
        return;
    if (status != FL_OK) {
        finding("FL003", "open failed", (uint64_t)status, 0);
        return;
    }
    judge_heap(heap);
    test.adapter->close(heap);
}

static void on_signal(int number) { siglongjmp(after_signal, number); }

static void judge_image(const char *image, size_t bytes, bool is_nested) {
    test.judged++;
    write_image(&test.scratch, image, bytes);
    if (sigsetjmp(after_signal, 1) != 0) { /* leaks the heap: the test is over anyway */
        recorder_switch(NULL);
        finding("FL001", "recovery crashed", 0, 0);
        return;
    }
    recover_and_judge(is_nested);
}

/* During an operation images are only collected: its twin is known when it has returned. */
static void collect(struct recorder *recorder, void *context) {
    (void)context;
    size_t bytes = recorder_bytes(recorder);
    unsigned images = test.is_prefix_only ? 1 : 2 + test.images;
    for (unsigned i = 0; i < images; i++) {
        if (test.queued == test.queue_size) {
            test.queue_size = test.queue_size * 2 + 64;
            test.queue = realloc(test.queue, test.queue_size * sizeof *test.queue);
        }
        struct queued *queued = &test.queue[test.queued++];
        queued->bytes = bytes;
        queued->image = bytes == 0 ? NULL : malloc(bytes);
        if (bytes != 0)
            recorder_make_image(recorder, i < 2 ? (enum recorder_image)i : IMAGE_RANDOM, &test.random, queued->image);
    }
}

/* The operation returned: its images may be the heap before or after it. */
static void judge_queue(void) {
    struct recorder *recorder = recorder_switch(NULL);
    for (size_t i = 0; i < test.queued; i++) {
        bool is_nested = !test.is_prefix_only && next_random(&test.random) % 16 == 0;
        if (test.rule == NULL)
            judge_image(test.queue[i].image, test.queue[i].bytes, is_nested);
        free(test.queue[i].image);
    }
    test.queued = 0;
    recorder_switch(recorder);
}

/* After each event of a recovery. The crashed recovery has its file mapped, so this one happens elsewhere. */
static void crash_again(struct recorder *recorder, void *context) {
    (void)context;
    size_t bytes = recorder_bytes(recorder);
    char *image = malloc(bytes);
    struct fl_heap_options outer = test.scratch;
    sigjmp_buf outer_signal;
    memcpy(&outer_signal, &after_signal, sizeof outer_signal);
    test.scratch = test.deeper;
    test.nested++;
    for (unsigned i = 0; i < 3 && test.rule == NULL; i++) {
        recorder_make_image(recorder, (enum recorder_image)i, &test.random, image);
        judge_image(image, bytes, false);
    }
    test.scratch = outer;
    memcpy(&after_signal, &outer_signal, sizeof outer_signal);
    free(image);
}

/* ---- the workload ---- */

static void fill(void *context, void *object, uint64_t from, uint64_t bytes) {
    const uint8_t *content = context;
    memcpy((char *)object + from, content + from, bytes);
    uintptr_t line = ((uintptr_t)object + from) & ~(uintptr_t)63;
    extern void recorder_flush_line(const void *);
    extern void recorder_fence(void);
    for (; line < (uintptr_t)object + from + bytes; line += 64)
        recorder_flush_line((const void *)line);
    recorder_fence();
}

/* Of the heap as it is. */
static void make_twin(struct parts *twin) {
    struct recorder *recorder = recorder_switch(NULL);
    struct fl_heap *heap;
    twin->count = 0;
    write_image(&test.scratch, memory_of(&test.options), heap_bytes(&test.options));
    if (test.adapter->open(&test.scratch, &heap) != FL_OK)
        finding("FL003", "open of the twin failed", 0, 0);
    else {
        test.adapter->walk(heap, add_part, twin);
        test.adapter->close(heap);
    }
    recorder_switch(recorder);
}

static uint64_t random_bytes(void) {
    static const uint64_t paths[] = {1,    64,    65,    640,   1984,  1985,  2048,  4032,  4033,
                                     8128, 12000, 16000, 32767, 32768, 65472, 65473, 140000};
    uint64_t choice = next_random(&test.random);
    if (choice % 3 == 0)
        return paths[(choice >> 8) % (sizeof paths / sizeof *paths)];
    return 1 + (choice >> 8) % (choice % 3 == 1 ? 700 : 12000);
}

static uint8_t *random_content(uint64_t bytes) {
    uint8_t *content = malloc(bytes + 8);
    for (uint64_t i = 0; i < bytes; i += 8) {
        /* Content that looks like headers of every kind is the worst to run into. */
        uint64_t word = next_random(&test.random);
        if (word % 4 == 0)
            word = nvm_tag((enum nvm_kind)(1 + word / 4 % 4), (enum nvm_state)(1 + word / 64 % 3), 0, 1 + word / 1024 % 3);
        memcpy(content + i, &word, 8);
    }
    return content;
}

struct operation {
    struct fl_heap *heap;
    uint32_t slot;
    int status;
};

static int operate(struct fl_heap *heap, uint32_t slot) {
    uint64_t old_bytes = test.before.bytes[slot];
    bool is_free = old_bytes != 0 && next_random(&test.random) % 2 == 0;
    test.after = test.before;
    if (is_free) {
        test.after.bytes[slot] = 0;
        test.after.content[slot] = NULL;
        return test.adapter->free(heap, slot);
    }
    uint64_t bytes = random_bytes();
    test.after.bytes[slot] = bytes;
    test.after.content[slot] = random_content(bytes);
    if (old_bytes == 0)
        return test.adapter->allocate(heap, slot, bytes, fill, test.after.content[slot]);
    memcpy(test.after.content[slot], test.before.content[slot], old_bytes < bytes ? old_bytes : bytes);
    return test.adapter->reallocate(heap, slot, old_bytes, bytes, fill, test.after.content[slot]);
}

static void *run_in_thread(void *context) {
    struct operation *operation = context;
    operation->status = operate(operation->heap, operation->slot);
    return NULL;
}

/* In a thread that has the next arena in turn. */
static int run_operation(struct fl_heap *heap, uint32_t slot) {
    struct operation operation = {heap, slot, FL_ERROR};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_in_thread, &operation) != 0)
        exit(3);
    pthread_join(thread, NULL);
    return operation.status;
}

static void run_workload(uint64_t seed, unsigned operations) {
    struct recorder *recorder = recorder_new(collect, NULL);
    struct fl_heap *heap;
    test.random = seed;
    test.options.slot_layout = test.scratch.slot_layout = test.deeper.slot_layout = (uint32_t)(seed % 3);
    memset(&test.before, 0, sizeof test.before);
    memset(&test.after, 0, sizeof test.after);
    remove_heap(&test.options);

    snprintf(test.where, sizeof test.where, "seed %llu, create", (unsigned long long)seed);
    /* What a new heap looks like. */
    if (test.adapter->create(&test.options, &heap) != FL_OK)
        finding("FL003", "create failed", 0, 0);
    make_twin(&test.twin_after);
    test.adapter->close(heap);
    test.twin_before = test.twin_after;
    remove_heap(&test.options);

    test.is_creating = true;
    recorder_switch(recorder);
    if (test.adapter->create(&test.options, &heap) != FL_OK)
        finding("FL003", "create failed", 0, 0);
    judge_queue();
    test.is_creating = false;
    for (unsigned i = 0; i < operations && test.rule == NULL; i++) {
        uint32_t slot = (uint32_t)(next_random(&test.random) % SLOTS);
        snprintf(test.where, sizeof test.where, "seed %llu, operation %u, slot %u", (unsigned long long)seed, i, slot);
        recorder_position();
        int status = run_operation(heap, slot);
        make_twin(&test.twin_after);
        if (status == FL_OUT_OF_MEMORY) {
            free(test.after.content[slot]);
            test.after = test.before;
        } else if (status != FL_OK) {
            finding("FL003", "the operation failed", (uint64_t)status, 0);
        }
        recorder_position(); /* the last image of the pending operation, and the first without */
        judge_queue();
        if (test.before.content[slot] != test.after.content[slot])
            free(test.before.content[slot]);
        test.before = test.after;
        test.twin_before = test.twin_after;
        recorder_position(); /* durable now */
        judge_queue();
        if (next_random(&test.random) % 16 == 0) {
            snprintf(test.where, sizeof test.where, "seed %llu, reopen after operation %u", (unsigned long long)seed, i);
            test.adapter->close(heap);
            if (test.adapter->open(&test.options, &heap) != FL_OK) {
                finding("FL003", "reopen failed", 0, 0);
                return;
            }
            judge_queue();
        }
    }
    if (test.rule == NULL) {
        test.adapter->close(heap);
        judge_queue();
    }
    recorder_switch(NULL);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        free(test.before.content[slot]);
    recorder_delete(recorder);
}

int main(int count, char **arguments) {
    unsigned seeds = 6, operations = 24;
    const char *expected = NULL;
    test.images = 4;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (strcmp(arguments[i], "--prefix") == 0)
            test.is_prefix_only = true;
        else if (strcmp(arguments[i], "--seeds") == 0)
            seeds = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--operations") == 0)
            operations = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--images") == 0)
            test.images = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--expect") == 0)
            expected = value, i++;
        else
            return fprintf(stderr, "test_crash: unknown argument %s\n", arguments[i]), 2;
    }
    char folder[] = "/dev/shm/nvm-crash-XXXXXX", scratch[300], deeper[300], command[400];
    if (mkdtemp(folder) == NULL)
        return perror(folder), 3;
    snprintf(scratch, sizeof scratch, "%s/scratch", folder);
    snprintf(deeper, sizeof deeper, "%s/scratch/deeper", folder);
    snprintf(command, sizeof command, "mkdir -p %s", deeper);
    if (system(command) != 0)
        return 3;
    test.adapter = faultline_adapter();
    test.options =
        (struct fl_heap_options){folder, CHUNK_BYTES, LIMIT_BYTES, SLOTS, 0, (uintptr_t)0x200000000000, FL_SLOTS_ROOT, SLOTS};
    test.scratch = test.options;
    test.scratch.folder = scratch;
    test.scratch.address_hint = 0x210000000000;
    test.deeper = test.scratch;
    test.deeper.folder = deeper;
    test.deeper.address_hint = 0x220000000000;
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGABRT, on_signal);

    for (unsigned seed = 1; seed <= seeds && test.rule == NULL; seed++)
        run_workload(seed, operations);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        return 3;
    printf("%llu images judged, %llu crash positions in recoveries; first finding: %s %s\n", (unsigned long long)test.judged,
           (unsigned long long)test.nested, test.rule == NULL ? "none" : test.rule, test.finding);
    const char *rule = test.rule == NULL ? "none" : test.rule;
    bool is_passed = strcmp(rule, expected == NULL ? "none" : expected) == 0;
    printf("%d passed, %d failed\n", is_passed, !is_passed);
    return !is_passed;
}
