/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crash.c - power failures at every event of random graph workloads, with random images of what Px86 allows (recorder.h).
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -DMAK_HEADER_SPACE_BYTES=4096 -DMAK_MAP_BOTTOM=16 \
 *         -DMAK_GROW_BYTES=16384 -DMAK_VISIBLE_LINES=16 -DMAK_MARK_STACK=2 -DMAK_MARK_POOL=2 -DMAK_EMPTY_BLOCKS=1 -DMAK_MARK_THREADS=1 \
 *         -I../testing/recorded -Isrc -I. -I../testing -I../../include src/?*.c adapter*.c ../testing/recorder.c tests/test_crash.c -pthread \
 *         -o /tmp/test_crash && /tmp/test_crash
 *
 *     test_crash [--seeds N] [--first-seed N] [--operations N] [--images N] [--prefix] [--generations]
 *                [--expect RULE [--unchecked]]
 *
 * In the folder of the allocator. A second, much simpler opinion beside the faultline engine, which needs no tracer. The
 * workload changes a graph of objects, one persisted word an operation: it publishes new objects, links old ones (cycles
 * included), clears words and frees what became unreachable, or leaves it as garbage. After each event some images are recovered:
 *   - the graph is the one before the pending operation or after it, every word of every object,
 *   - exactly the objects that roots reach are allocated, the allocator's own check passes, and parts cover the whole file,
 *   - for some: the region can be used, closed and restarted, and all this still holds.
 * Now and then the workload itself goes on from one of the images, as the next generation, with its recovery recorded: its
 * crash images must recover to the same graph. With --generations that is after every operation that left an unfinished
 * failure-atomic section in an image, so that what a recovery undid is followed by work on the same headers and by the next
 * failure: a log that was replayed once must not be replayed again over later work. --prefix judges only program-order images.
 * --expect RULE is for mutants: passes if the first finding has that rule; "none": passes without finding. With --unchecked the
 * allocator's own check is not asked: what is found is what the mutant does to the heap, not what it looks like.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recorder.h"
#include "types.h"

#define ADDRESS ((uintptr_t)0x200000000000)

enum { HEAP_BYTES = 16 * 4096, LIMIT_BYTES = 64 * 4096, ROOTS = 6, OBJECTS = 48, MOST_IMAGES = 1 << 16, PARTS = LIMIT_BYTES / 16 };

struct object {
    uint64_t address; /* 0: not there */
    uint64_t bytes;
    uint64_t *content; /* all words, pointers too */
    bool is_reached;
};

/* The one word that an operation changes: of root `root`, or word `word` of an object. */
struct place {
    int object; /* -1: a root */
    uint32_t word;
};

struct verdict {
    const char *rule; /* null: none. The same in child and parent, which share their text segment. */
    char text[512];
    uint64_t judged;
    uint8_t is_after[MOST_IMAGES]; /* the image shows the graph after the operation */
};

static struct {
    char folder[64], scratch[96];
    uint64_t random;
    unsigned images; /* random images after each event */
    bool is_prefix_only, is_creating, is_about_generations, is_unchecked;
    uint64_t roots[ROOTS];
    struct object objects[OBJECTS];
    struct place place; /* of the pending operation */
    uint64_t before, after;
    char where[128];
    struct verdict *verdict; /* shared with children */
    struct recorder *recorder;
    struct queued {
        char *image;
        size_t bytes;
    } queue[MOST_IMAGES];
    size_t queued;
    uint64_t generations, nested, undone; /* ... that began with an unfinished section */
    uint64_t garbage[4096]; /* addresses of what the workload lost by itself */
    size_t garbage_count;
} test;

static void finding(const char *rule, const char *text, uint64_t a, uint64_t b) {
    if (test.verdict->rule != NULL)
        return;
    test.verdict->rule = rule;
    snprintf(test.verdict->text, sizeof test.verdict->text, "%s: %s (%#llx, %#llx): %s", test.where, text, (unsigned long long)a,
             (unsigned long long)b, MAK_message());
}

/* ---- the model ---- */

static uint64_t *word_at(struct place place) {
    return place.object < 0 ? &test.roots[place.word] : &test.objects[place.object].content[place.word];
}

static int object_of(uint64_t word) {
    for (int i = 0; i < OBJECTS; i++)
        if (test.objects[i].address != 0 && word - test.objects[i].address < test.objects[i].bytes)
            return i;
    return -1;
}

/* What roots reach; how many objects. */
static uint32_t reach(void) {
    int queue[OBJECTS];
    uint32_t count = 0;
    for (int i = 0; i < OBJECTS; i++)
        test.objects[i].is_reached = false;
    for (uint32_t root = 0; root < ROOTS; root++) {
        int object = object_of(test.roots[root]);
        if (object >= 0 && !test.objects[object].is_reached) {
            test.objects[object].is_reached = true;
            queue[count++] = object;
        }
    }
    for (uint32_t at = 0; at < count; at++)
        for (uint64_t word = 0; word < test.objects[queue[at]].bytes / 8; word++) {
            int object = object_of(test.objects[queue[at]].content[word]);
            if (object >= 0 && !test.objects[object].is_reached) {
                test.objects[object].is_reached = true;
                queue[count++] = object;
            }
        }
    return count;
}

/* ---- judging a recovered region ---- */

struct parts {
    uint64_t at, count;
    bool has_gap;
    struct MAK_part allocated[PARTS];
};

static void add_part(void *context, const struct MAK_part *part) {
    struct parts *parts = context;
    parts->has_gap |= part->offset != parts->at;
    parts->at = part->offset + part->bytes;
    if (part->state == MAK_PART_ALLOCATED && parts->count < PARTS)
        parts->allocated[parts->count++] = *part;
}

/* Null: the region shows the model's graph; else the rule that it breaks. */
static const char *compare_graph(const struct parts *parts, uint64_t extra, const char **why) {
    uint32_t reached = reach();
    for (uint32_t root = 0; root < ROOTS; root++)
        if ((uint64_t)(uintptr_t)MAK_get_root(root) != test.roots[root])
            return *why = "a root is another one", "FL004";
    for (int i = 0; i < OBJECTS; i++) {
        const struct object *object = &test.objects[i];
        if (!object->is_reached)
            continue;
        if (!MAK_is_object((void *)(uintptr_t)object->address) ||
            MAK_usable_bytes((void *)(uintptr_t)object->address) < object->bytes)
            return *why = "an object that is reached is not allocated", "FL008";
        if (memcmp((void *)(uintptr_t)object->address, object->content, object->bytes) != 0)
            return *why = "content changed", "FL009";
    }
    return parts->count != reached + extra ? (*why = "an object that nothing reaches is allocated", "FL010") : NULL;
}

static const char *judge_graph(uint64_t extra, const char **why) {
    static struct parts parts;
    memset(&parts, 0, offsetof(struct parts, allocated));
    MAK_walk(add_part, &parts);
    if (parts.has_gap || parts.at != MAK_file_bytes())
        finding("FL011", "the parts do not cover the file", parts.at, MAK_file_bytes());
    if (!test.is_unchecked && MAK_check() != MAK_OK)
        finding("FL011", "check", 0, 0);
    return compare_graph(&parts, extra, why);
}

/* Which graph the region shows: 0 before the operation, 1 after it. */
static int judge_region(void) {
    const char *why_before = "", *why_after = "";
    uint64_t *word = word_at(test.place);
    *word = test.before;
    const char *before = judge_graph(0, &why_before);
    if (before == NULL && test.before != test.after) {
        *word = test.after;
        return judge_graph(0, &why_after) == NULL;
    }
    if (before == NULL)
        return 0;
    *word = test.after;
    const char *after = judge_graph(0, &why_after);
    if (after == NULL)
        return 1;
    bool is_before_nearer = strcmp(before, "FL010") == 0 || strcmp(after, "FL004") == 0;
    finding(is_before_nearer ? before : after, is_before_nearer ? why_before : why_after, test.before, test.after);
    return 0;
}

static int recover(const char *folder) {
    int status = MAK_restart(folder);
    if (status != MAK_DIRTY)
        return status;
    status = MAK_start_off(folder);
    if (status == MAK_OK)
        status = MAK_collect();
    return status == MAK_OK ? MAK_restart_in_place() : status;
}

/* Allocations after recovery touch nothing that lives, and a graceful close keeps everything. */
static void use_region(int is_after) {
    static const uint64_t sizes[] = {16, 48, 400, 416, 1024, 2048, 4096, 9000, 16};
    const char *why = "";
    uint64_t made = 0;
    *word_at(test.place) = is_after ? test.after : test.before;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *object = MAK_malloc(sizes[i]);
        if (object == NULL)
            continue;
        memset(object, 0xf1, MAK_usable_bytes(object));
        made++;
    }
    const char *rule = judge_graph(made, &why);
    if (rule != NULL)
        finding(rule, "after allocations", made, 0);
    if (MAK_close() != MAK_OK || MAK_restart(test.scratch) != MAK_OK)
        finding("FL012", "close and restart", 0, 0);
    else if ((rule = judge_graph(made, &why)) != NULL)
        finding(rule, "after a graceful close", made, 0);
}

static void write_image(const char *folder, const char *image, size_t bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, MAK_FILE_NAME);
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(3);
    }
}

static int judge_image(const struct queued *queued) {
    test.verdict->judged++;
    write_image(test.scratch, queued->image, queued->bytes);
    int status = recover(test.scratch), is_after = 0;
    if (status == MAK_NOT_A_REGION && test.is_creating)
        return 0;
    if (status != MAK_OK) {
        finding("FL003", "recovery failed", (uint64_t)status, 0);
        return 0;
    }
    is_after = judge_region();
    if (test.verdict->rule == NULL && next_random(&test.random) % 8 == 0)
        use_region(is_after);
    MAK_close();
    return is_after;
}

/* A child takes over nothing of the region that its parent has open. */
static void abandon(void) {
    if (mak.base != NULL)
        munmap(mak.base, mak.limit_bytes);
    if (mak.fd >= 0)
        close(mak.fd);
    mak_visible_forget();
    mak.base = NULL;
    mak.links = NULL;
    mak.fd = -1;
    mak.file_bytes = 0;
    mak.threads = NULL;
    mak.life++;
    mak.log_next = 0;
    mak.phase = MAK_PHASE_CLOSED;
}

static void on_signal(int number) {
    finding(number == SIGALRM ? "FL002" : "FL001", "recovery crashed", (uint64_t)number, 0);
    _exit(0);
}

static void judge_in_child(void) {
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    alarm(300);
    freopen("/dev/null", "w", stderr); /* assertions */
    abandon();
    for (size_t i = 0; i < test.queued && test.verdict->rule == NULL; i++)
        test.verdict->is_after[i] = (uint8_t)judge_image(&test.queue[i]);
    _exit(0);
}

/* All images since the last time, in a child, since only one region can be open and all have the same address. */
static void judge_queue(void) {
    struct recorder *recorder = recorder_switch(NULL);
    fflush(stdout);
    pid_t child = test.queued == 0 || test.verdict->rule != NULL ? -1 : fork();
    if (child == 0)
        judge_in_child();
    if (child > 0)
        waitpid(child, NULL, 0);
    test.random += test.queued; /* as the child went on */
    recorder_switch(recorder);
}

static void empty_queue(void) {
    for (size_t i = 0; i < test.queued; i++)
        free(test.queue[i].image);
    test.queued = 0;
}

/* Called after each event. */
static void collect(struct recorder *recorder, void *context) {
    (void)context;
    size_t bytes = recorder_bytes(recorder);
    unsigned images = test.is_prefix_only ? 1 : 2 + test.images;
    for (unsigned i = 0; i < images && bytes != 0 && test.queued < MOST_IMAGES; i++) {
        struct queued *queued = &test.queue[test.queued++];
        queued->bytes = bytes;
        queued->image = malloc(bytes);
        recorder_make_image(recorder, i < 2 ? (enum recorder_image)i : IMAGE_RANDOM, &test.random, queued->image);
    }
}

/* ---- the workload ---- */

static void no_operation(void) {
    test.place = (struct place){-1, 0};
    test.before = test.after = test.roots[0];
}

/* A root, or a word of an object that roots reach. */
static struct place random_place(void) {
    uint64_t choice = next_random(&test.random);
    uint32_t reached = reach();
    if (choice % 3 == 0 || reached == 0)
        return (struct place){-1, (uint32_t)(choice >> 8) % ROOTS};
    uint32_t wanted = (uint32_t)(choice >> 8) % reached;
    for (int i = 0; i < OBJECTS; i++)
        if (test.objects[i].is_reached && wanted-- == 0)
            return (struct place){i, (uint32_t)((choice >> 32) % (test.objects[i].bytes / 8))};
    return (struct place){-1, 0};
}

static void store_word(struct place place, uint64_t value) {
    test.place = place;
    test.before = *word_at(place);
    test.after = value;
    *word_at(place) = value;
    if (place.object < 0) {
        MAK_set_root(place.word, (void *)(uintptr_t)value);
        return;
    }
    uint64_t *media = (uint64_t *)(uintptr_t)test.objects[place.object].address + place.word;
    MAK_go_online();
    fl_store8(media, value);
    fl_persist(media, 8);
}

static void forget(struct object *object) {
    free(object->content);
    *object = (struct object){0};
}

static void publish_new_object(struct place place) {
    static const uint64_t sizes[] = {16, 48, 64, 208, 400, 416, 1008, 1360, 2048, 4096, 8192, 12288, 24576, 36864, 49152};
    struct object *object = test.objects;
    while (object < test.objects + OBJECTS && object->address != 0)
        object++;
    if (object == test.objects + OBJECTS)
        return;
    uint64_t choice = next_random(&test.random), bytes = sizes[choice % (sizeof sizes / sizeof *sizes)];
    uint64_t *media = MAK_malloc(bytes);
    if (media == NULL)
        return;
    object->bytes = bytes;
    object->content = malloc(bytes);
    for (uint64_t i = 0; i < bytes / 8; i++)
        object->content[i] = next_random(&test.random) | 0xf1edull << 48; /* no address */
    memcpy(media, object->content, bytes);
    fl_persist(media, bytes);
    object->address = (uint64_t)(uintptr_t)media;
    store_word(place, object->address);
}

static void link_old_object(struct place place) {
    uint64_t choice = next_random(&test.random);
    const struct object *target = &test.objects[choice % OBJECTS];
    reach();
    if (target->is_reached)
        store_word(place, target->address + (choice >> 32) % target->bytes); /* often a pointer into it */
}

/* Once the operation has returned: what it made unreachable is freed, or left as garbage that nobody names any more. */
static void free_unreachable(void) {
    bool leaves_garbage = next_random(&test.random) % 4 == 0;
    reach();
    for (int i = 0; i < OBJECTS; i++) {
        struct object *object = &test.objects[i];
        if (object->address == 0 || object->is_reached)
            continue;
        if (leaves_garbage)
            test.garbage[test.garbage_count++] = object->address;
        else
            MAK_free((void *)(uintptr_t)object->address);
        forget(object);
    }
}

/* The next generation: the workload goes on from this image, whose recovery is recorded too. */
static void go_on_from(const struct queued *queued, bool is_after) {
    test.generations++;
    recorder_switch(NULL);
    recorder_delete(test.recorder);
    abandon();
    *word_at(test.place) = is_after ? test.after : test.before;
    write_image(test.folder, queued->image, queued->bytes);
    empty_queue();
    no_operation();
    test.garbage_count = 0;
    reach(); /* garbage is gone */
    for (int i = 0; i < OBJECTS; i++)
        if (test.objects[i].address != 0 && !test.objects[i].is_reached)
            forget(&test.objects[i]);
    test.recorder = recorder_new(collect, NULL);
    recorder_switch(test.recorder);
    int status = recover(test.folder);
    if (status != MAK_OK)
        finding("FL003", "recovery failed", (uint64_t)status, 0);
    test.nested += test.queued;
    judge_queue();
    empty_queue();
}

/* Power failed in a failure-atomic section (§8). */
static bool is_in_section(const struct queued *queued) {
    const struct mak_base *base = (const struct mak_base *)queued->image;
    const struct mak_log_entry *log = (const struct mak_log_entry *)(queued->image + MAK_LOG_OFFSET);
    return log->version == base->md_log_version;
}

/* An image for the next generation to begin with; none: this one goes on. */
static const struct queued *next_generation(void) {
    if (test.verdict->rule != NULL || test.queued == 0)
        return NULL;
    if (!test.is_about_generations)
        return next_random(&test.random) % 6 == 0 ? &test.queue[next_random(&test.random) % test.queued] : NULL;
    const struct queued *chosen = NULL;
    uint64_t candidates = 0;
    for (size_t i = 0; i < test.queued; i++)
        if (is_in_section(&test.queue[i]) && next_random(&test.random) % ++candidates == 0)
            chosen = &test.queue[i];
    return chosen;
}

static void run_operation(void) {
    uint64_t choice = next_random(&test.random);
    struct place place = random_place();
    recorder_position();
    if (choice % 8 < 4)
        publish_new_object(place);
    else if (choice % 8 < 6)
        link_old_object(place);
    else
        store_word(place, place.object < 0 ? 0 : 0xf1edull << 48 | choice >> 16);
    recorder_position(); /* the last image of the pending operation */
    judge_queue();
    const struct queued *chosen = next_generation();
    if (chosen != NULL) {
        test.undone += is_in_section(chosen);
        go_on_from(chosen, test.verdict->is_after[chosen - test.queue]);
    }
    empty_queue();
    no_operation(); /* durable now */
    recorder_position();
    free_unreachable();
    judge_queue();
    empty_queue();
}

/* A graceful close keeps what the workload lost, as it must; so it is found again before. */
static void close_and_restart(void) {
    while (test.garbage_count > 0)
        MAK_free((void *)(uintptr_t)test.garbage[--test.garbage_count]);
    MAK_close();
    int status = MAK_restart(test.folder);
    if (status != MAK_OK)
        finding("FL003", "restart failed", (uint64_t)status, 0);
    judge_queue();
    empty_queue();
}

static void run_workload(uint64_t seed, unsigned operations) {
    const struct MAK_options options = {test.folder, HEAP_BYTES, LIMIT_BYTES, ADDRESS};
    char path[256];
    snprintf(path, sizeof path, "%s/%s", test.folder, MAK_FILE_NAME);
    unlink(path);
    test.random = seed;
    test.garbage_count = 0;
    memset(test.roots, 0, sizeof test.roots);
    for (int i = 0; i < OBJECTS; i++)
        forget(&test.objects[i]);
    snprintf(test.where, sizeof test.where, "seed %llu, start", (unsigned long long)seed);
    no_operation();
    test.recorder = recorder_new(collect, NULL);
    recorder_switch(test.recorder);
    test.is_creating = true;
    if (MAK_start(&options) != MAK_OK)
        finding("FL003", "start failed", 0, 0);
    judge_queue();
    empty_queue();
    test.is_creating = false;
    for (unsigned i = 0; i < operations && test.verdict->rule == NULL; i++) {
        snprintf(test.where, sizeof test.where, "seed %llu, operation %u", (unsigned long long)seed, i);
        run_operation();
        if (test.verdict->rule == NULL && next_random(&test.random) % 12 == 0)
            close_and_restart();
    }
    if (test.verdict->rule == NULL)
        close_and_restart();
    recorder_switch(NULL);
    recorder_delete(test.recorder);
    abandon();
}

int main(int count, char **arguments) {
    unsigned seeds = 8, operations = 60, first_seed = 1;
    const char *expected = NULL;
    test.images = 3;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (strcmp(arguments[i], "--prefix") == 0)
            test.is_prefix_only = true;
        else if (strcmp(arguments[i], "--generations") == 0)
            test.is_about_generations = true;
        else if (strcmp(arguments[i], "--unchecked") == 0)
            test.is_unchecked = true;
        else if (strcmp(arguments[i], "--seeds") == 0)
            seeds = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--first-seed") == 0)
            first_seed = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--operations") == 0)
            operations = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--images") == 0)
            test.images = (unsigned)atoi(value), i++;
        else if (strcmp(arguments[i], "--expect") == 0)
            expected = value, i++;
        else
            return fprintf(stderr, "test_crash: unknown argument %s\n", arguments[i]), 2;
    }
    snprintf(test.folder, sizeof test.folder, "/dev/shm/makalu-crash-XXXXXX");
    if (mkdtemp(test.folder) == NULL)
        return perror(test.folder), 3;
    char command[256];
    snprintf(test.scratch, sizeof test.scratch, "%s/scratch", test.folder);
    snprintf(command, sizeof command, "mkdir %s", test.scratch);
    if (system(command) != 0)
        return 3;
    test.verdict = mmap(NULL, sizeof *test.verdict, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (unsigned seed = first_seed; seed < first_seed + seeds && test.verdict->rule == NULL; seed++)
        run_workload(seed, operations);
    snprintf(command, sizeof command, "rm -rf %s", test.folder);
    if (system(command) != 0)
        return 3;
    const char *rule = test.verdict->rule == NULL ? "none" : test.verdict->rule;
    printf("%llu images judged, %llu of them of recoveries; %llu generations, %llu of them began with an unfinished section; first "
           "finding: %s %s\n",
           (unsigned long long)test.verdict->judged, (unsigned long long)test.nested,
           (unsigned long long)(test.generations + seeds), (unsigned long long)test.undone, rule, test.verdict->text);
    bool is_passed = strcmp(rule, expected == NULL ? "none" : expected) == 0;
    is_passed &= !test.is_about_generations || test.undone != 0 || expected != NULL; /* else it says nothing */
    printf("%d passed, %d failed\n", is_passed, !is_passed);
    return !is_passed;
}
