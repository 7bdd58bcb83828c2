/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crash.c - power failures at every event of random work, with random images of what Px86 allows (recorder.h).
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I../testing/recorded -Isrc -I../testing -I../../include src/?*.c \
 *         ../testing/recorder.c tests/test_crash.c -pthread -o /tmp/test_crash && /tmp/test_crash
 *
 *     test_crash [SEEDS [OPERATIONS]]
 *
 * In the folder of the allocator. A second, much simpler opinion beside the faultline engine, which needs no tracer and no adapter.
 * After each event some images are opened and judged:
 *   - what nvmalloc returned is allocated, what nvfree took is free, and the pending operation has happened or not; nothing else is
 *     allocated,
 *   - contents that were persisted are there,
 *   - no header is damaged, the heap's own check passes, and opening writes nothing, unless set_root is pending,
 *   - in some of them: all memory can be allocated and written without touching a live object.
 * Two lives of each heap: the second begins with an image of the first one.
 */
#include "common.h"

#include "persist.h"
#include "recorder.h"

enum { SLOTS = 24, RANDOM_IMAGES = 2, DRAIN_ONE_IN = 16 };

struct object {
    uint64_t offset, bytes, seed; /* offset 0: none */
    bool is_filled;
};

static struct {
    struct nvmalloc_options options, scratch;
    struct told told;
    struct object objects[SLOTS];
    uint64_t freeing; /* offset of the object that is being freed; 0: none */
    uint64_t root, next_root; /* offsets; the same unless set_root is pending */
    bool is_allocating, is_creating;
    uint64_t random, judged, drained;
    char scratch_folder[128];
} test;

/* ---- judging ---- */

static uint64_t expect_objects(struct nvmalloc_heap *heap) {
    uint64_t live = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        const struct object *object = &test.objects[slot];
        if (object->offset == 0)
            continue;
        void *content = nvmalloc_heap_address(heap, object->offset);
        uint64_t usable = nvmalloc_heap_usable_bytes(heap, content);
        live += usable != 0;
        if (object->offset == test.freeing)
            continue; /* the free has happened or not */
        EXPECT(usable >= object->bytes);
        if (object->is_filled)
            EXPECT(is_filled(content, object->seed, object->bytes));
    }
    return live;
}

static void drain(struct nvmalloc_heap *heap) {
    test.drained++;
    for (uint64_t lines = 1024; lines > 0; lines /= 2)
        for (void *object; (object = allocate(heap, lines * 64 - 16)) != NULL;)
            memset(object, 0xff, lines * 64 - 16);
    expect_objects(heap);
    EXPECT(nvmalloc_heap_check(heap) == NVMALLOC_OK && counts_of(heap).waiting_blocks == 0);
}

static void judge(struct nvmalloc_heap *heap) {
    uint64_t live = expect_objects(heap), allocated = counts_of(heap).allocated_blocks;
    EXPECT(allocated == live || (test.is_allocating && allocated == live + 1));
    uint64_t root = nvmalloc_heap_offset(heap, nvmalloc_heap_root(heap));
    EXPECT(root == test.root || root == test.next_root);
    totals_of(heap);
    if (next_random(&test.random) % DRAIN_ONE_IN == 0)
        drain(heap);
}

static void judge_image(const char *image, size_t bytes) {
    test.judged++;
    write_file(file_of(test.scratch_folder), image, bytes);
    test.told.count = 0;
    struct nvmalloc_heap *heap = NULL;
    int status = nvmalloc_heap_open(&test.scratch, &heap);
    if (status == NVMALLOC_NOT_A_HEAP && test.is_creating)
        return;
    EXPECT(status == NVMALLOC_OK && test.told.count == 0);
    if (status != NVMALLOC_OK)
        return;
    if (!test.is_creating && test.root == test.next_root)
        EXPECT(memcmp(heap->lines, image, bytes) == 0);
    judge(heap);
    nvmalloc_heap_close(heap);
}

static void crash(struct recorder *recorder, void *context) {
    (void)context;
    size_t bytes = recorder_bytes(recorder);
    char *image = malloc(bytes + 1);
    for (unsigned i = 0; i < 2 + RANDOM_IMAGES && bytes != 0 && failed == 0; i++) {
        recorder_make_image(recorder, i < 2 ? (enum recorder_image)i : IMAGE_RANDOM, &test.random, image);
        judge_image(image, bytes);
    }
    free(image);
}

/* ---- work ---- */

static void allocate_one(struct nvmalloc_heap *heap, struct object *object) {
    static const uint64_t most[] = {100, 100, 400, 1000, 5000, 40000};
    object->bytes = 1 + next_random(&test.random) % most[next_random(&test.random) % 6];
    object->seed = next_random(&test.random);
    test.is_allocating = true;
    void *content = allocate(heap, object->bytes);
    test.is_allocating = false;
    if (content == NULL)
        return;
    object->is_filled = false;
    object->offset = nvmalloc_heap_offset(heap, content);
    recorder_position();
    fill(content, object->seed, object->bytes);
    fl_persist(content, object->bytes);
    object->is_filled = true;
}

static void free_one(struct nvmalloc_heap *heap, struct object *object) {
    test.freeing = object->offset;
    EXPECT(nvmalloc_heap_free(heap, nvmalloc_heap_address(heap, object->offset)) == NVMALLOC_OK);
    test.freeing = object->offset = 0;
    recorder_position();
}

static void set_root(struct nvmalloc_heap *heap, const struct object *object) {
    test.next_root = object->offset;
    EXPECT(nvmalloc_heap_set_root(heap, nvmalloc_heap_address(heap, object->offset)) == NVMALLOC_OK);
    test.root = test.next_root;
    recorder_position();
}

static void work(struct nvmalloc_heap *heap, unsigned operations) {
    recorder_position();
    for (unsigned i = 0; i < operations && failed == 0; i++) {
        struct object *object = &test.objects[next_random(&test.random) % SLOTS];
        if (next_random(&test.random) % 8 == 0)
            set_root(heap, object);
        if (object->offset == 0)
            allocate_one(heap, object);
        else
            free_one(heap, object);
    }
}

/* A life from creation, and one from what an image of its end shows. */
static void two_lives(uint64_t seed, unsigned operations) {
    memset(&test.objects, 0, sizeof test.objects);
    test.root = test.next_root = 0;
    test.random = seed;
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    test.options = options_of(folder, (uint32_t)(seed % 4 * 3), NULL);
    struct recorder *recorder = recorder_new(crash, NULL);
    recorder_switch(recorder);
    struct nvmalloc_heap *heap;
    test.is_creating = true;
    EXPECT(nvmalloc_heap_create(&test.options, &heap) == NVMALLOC_OK);
    test.is_creating = false;
    work(heap, operations);
    recorder_switch(NULL);
    size_t bytes = recorder_bytes(recorder);
    char *image = malloc(bytes);
    recorder_make_image(recorder, IMAGE_FLOOR, &test.random, image);
    recorder_delete(recorder);
    write_file(file_of(test.options.folder), image, bytes);
    free(image);
    nvmalloc_heap_close(heap);
    recorder_switch(recorder = recorder_new(crash, NULL));
    EXPECT(nvmalloc_heap_open(&test.options, &heap) == NVMALLOC_OK);
    work(heap, operations);
    recorder_switch(NULL);
    recorder_delete(recorder);
    nvmalloc_heap_close(heap);
}

int main(int count, char **arguments) {
    unsigned seeds = count > 1 ? (unsigned)atoi(arguments[1]) : 8, operations = count > 2 ? (unsigned)atoi(arguments[2]) : 60;
    begin_tests("nvmalloc-crash");
    snprintf(test.scratch_folder, sizeof test.scratch_folder, "%s", new_folder());
    for (uint64_t seed = 1; seed <= seeds && failed == 0; seed++) {
        test.scratch = options_of(test.scratch_folder, (uint32_t)(seed % 4 * 3), &test.told);
        test.scratch.address_hint = 0;
        two_lives(seed, operations);
    }
    printf("%llu images judged, %llu of them drained\n", (unsigned long long)test.judged, (unsigned long long)test.drained);
    return end_tests();
}
