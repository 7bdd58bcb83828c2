/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nvmalloc.c - nvmalloc is a correct allocator: unit tests, and random work against a reference model.
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc -I../testing -I../../include src/?*.c tests/test_nvmalloc.c -pthread \
 *         -o /tmp/test_nvmalloc && /tmp/test_nvmalloc
 *
 * In the folder of the allocator.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"

/* ---- objects ---- */

static void objects_are_aligned_large_enough_and_durable(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    struct nvmalloc_heap *heap = create(&options);
    static const uint64_t sizes[] = {0, 1, 16, 48, 49, 112, 113, 4080, 4081, 4096, 10000};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    uint64_t offsets[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        char *object = allocate(heap, sizes[i]);
        EXPECT(object != NULL && (uintptr_t)object % 16 == 0);
        EXPECT(nvmalloc_heap_usable_bytes(heap, object) >= sizes[i] && nvmalloc_heap_usable_bytes(heap, object) < sizes[i] + 64);
        fill(object, i, sizes[i]);
        offsets[i] = nvmalloc_heap_offset(heap, object);
    }
    EXPECT(nvmalloc_heap_set_root(heap, nvmalloc_heap_address(heap, offsets[3])) == NVMALLOC_OK);
    EXPECT(nvmalloc_heap_set_root(heap, (char *)nvmalloc_heap_address(heap, offsets[3]) + 16) == NVMALLOC_INVALID);
    totals_of(heap);
    nvmalloc_heap_close(heap);
    options.address_hint = 0; /* elsewhere */
    heap = open_heap(&options);
    EXPECT(heap != NULL && nvmalloc_heap_offset(heap, nvmalloc_heap_root(heap)) == offsets[3]);
    for (unsigned i = 0; i < COUNT; i++)
        EXPECT(is_filled(nvmalloc_heap_address(heap, offsets[i]), i, sizes[i]));
    EXPECT(nvmalloc_heap_set_root(heap, NULL) == NVMALLOC_OK && nvmalloc_heap_root(heap) == NULL);
    EXPECT(counts_of(heap).allocated_blocks == COUNT);
    nvmalloc_heap_close(heap);
}

static void what_is_no_object_is_not_freed(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 2, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *object = allocate(heap, 200);
    char outside[64];
    EXPECT(nvmalloc_heap_free(heap, object + 16) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_free(heap, object + 64) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_free(heap, outside) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_free(heap, NULL) == NVMALLOC_OK);
    EXPECT(nvmalloc_heap_free(heap, object) == NVMALLOC_OK);
    EXPECT(nvmalloc_heap_free(heap, object) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_usable_bytes(heap, object) == 0);
    EXPECT(told.count == 4 && told.last.place == NVMALLOC_DAMAGE_INVALID_FREE);
    EXPECT(allocate(heap, 300) != NULL && nvmalloc_heap_free(heap, object) == NVMALLOC_INVALID); /* it waits */
    EXPECT(allocate(heap, 300) != NULL && nvmalloc_heap_free(heap, object) == NVMALLOC_INVALID); /* it does not wait any more */
    void *none;
    EXPECT(nvmalloc_heap_allocate(heap, 257 * KIB, &none) == NVMALLOC_TOO_LARGE);
    EXPECT(nvmalloc_heap_allocate(heap, UINT64_MAX, &none) == NVMALLOC_TOO_LARGE);
    EXPECT(nvmalloc_heap_allocate(heap, 261900, &none) == NVMALLOC_OUT_OF_MEMORY);
    nvmalloc_heap_close(heap);
}

/* ---- regions and hints ---- */

static void neighbours_are_one_region_without_a_write(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    struct nvmalloc_heap *heap = create(&options);
    char *first = allocate(heap, 48), *second = allocate(heap, 48), *third = allocate(heap, 240), *last = allocate(heap, 48);
    nvmalloc_heap_free(heap, first);
    nvmalloc_heap_free(heap, third);
    nvmalloc_heap_free(heap, second);
    uint64_t words[] = {((uint64_t *)first)[-2], ((uint64_t *)second)[-2], ((uint64_t *)third)[-2]};
    EXPECT(nvmalloc_word_lines(words[0]) == 1 && nvmalloc_word_lines(words[1]) == 1 && nvmalloc_word_lines(words[2]) == 4);
    EXPECT(counts_of(heap).free_bytes == 6 * 64);
    EXPECT(allocate(heap, 176) == first); /* three lines: covers the second header, ends inside the third block */
    EXPECT(((uint64_t *)second)[-2] == words[1]);
    EXPECT(nvmalloc_word_lines(((uint64_t *)(third + 64))[-2]) == 3);
    totals_of(heap);
    nvmalloc_heap_close(heap);
    heap = open_heap(&options);
    EXPECT(heap != NULL && counts_of(heap).free_bytes == 3 * 64 && counts_of(heap).allocated_blocks == 2);
    EXPECT(allocate(heap, 176) == third + 64); /* the hint is there again */
    EXPECT(nvmalloc_heap_free(heap, last) == NVMALLOC_OK);
    EXPECT(allocate(heap, 500) == last); /* the end of the chain and unformatted memory */
    totals_of(heap);
    nvmalloc_heap_close(heap);
}

/* The file grows by the OS pages that are needed, or by multiples of what was asked for. */
static void the_file_grows_by_what_is_needed(void) {
    for (uint64_t grow = 0; grow <= 64 * KIB; grow += 64 * KIB) {
        struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
        options.grow_bytes = grow;
        struct nvmalloc_heap *heap = create(&options);
        EXPECT(allocate(heap, 3000) != NULL && nvmalloc_heap_bytes(heap) == 4 * KIB);
        EXPECT(allocate(heap, 4900) != NULL && nvmalloc_heap_bytes(heap) == (grow == 0 ? 8 : 68) * KIB);
        totals_of(heap);
        nvmalloc_heap_close(heap);
        heap = open_heap(&options);
        EXPECT(heap != NULL && counts_of(heap).formatted_bytes == 128 + 3072 + 4928);
        nvmalloc_heap_close(heap);
    }
}

/* ---- the don't-allocate list ---- */

static void freed_blocks_wait_in_order_of_their_frees(void) {
    struct nvmalloc_options options = options_of(new_folder(), 4, NULL);
    struct nvmalloc_heap *heap = create(&options);
    char *objects[3], *guards[3];
    for (int i = 0; i < 3; i++) {
        objects[i] = allocate(heap, 40);
        guards[i] = allocate(heap, 100);
    }
    nvmalloc_heap_free(heap, objects[1]); /* tick 7 */
    nvmalloc_heap_free(heap, objects[0]);
    nvmalloc_heap_free(heap, objects[2]);
    EXPECT(counts_of(heap).waiting_blocks == 3);
    EXPECT(allocate(heap, 40) > (void *)guards[2]); /* tick 10: none has waited for 4 ticks */
    EXPECT(allocate(heap, 40) == objects[1]);
    nvmalloc_heap_close(heap);
    heap = open_heap(&options); /* the newest timestamp is the clock: 9 */
    EXPECT(heap != NULL && counts_of(heap).waiting_blocks == 2);
    for (int i = 0; i < 2; i++)
        EXPECT(allocate(heap, 40) > (void *)guards[2]); /* ticks 10 and 11 */
    EXPECT(allocate(heap, 40) == objects[0]);
    EXPECT(allocate(heap, 40) == objects[2]);
    EXPECT(counts_of(heap).cut_short == 0);
    nvmalloc_heap_close(heap);
}

static void waits_are_cut_short_rather_than_a_request_refused(void) {
    struct nvmalloc_options options = options_of(new_folder(), 1000, NULL);
    struct nvmalloc_heap *heap = create(&options);
    char *large = allocate(heap, 200 * KIB), *small = allocate(heap, 40);
    nvmalloc_heap_free(heap, small);
    nvmalloc_heap_free(heap, large);
    EXPECT(allocate(heap, 30 * KIB) != NULL && counts_of(heap).cut_short == 0);
    EXPECT(allocate(heap, 100 * KIB) == large && counts_of(heap).cut_short == 2);
    totals_of(heap);
    nvmalloc_heap_close(heap);
}

/* The file system is full, or the process may write no larger files. */
static void waits_are_cut_short_when_the_file_cannot_grow(void) {
    struct nvmalloc_options options = options_of(new_folder(), 1000, NULL);
    struct nvmalloc_heap *heap = create(&options);
    char *object = allocate(heap, 3000);
    nvmalloc_heap_free(heap, object);
    struct rlimit saved, four_kib;
    EXPECT(getrlimit(RLIMIT_FSIZE, &saved) == 0);
    four_kib = (struct rlimit){4 * KIB, saved.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    EXPECT(setrlimit(RLIMIT_FSIZE, &four_kib) == 0);
    EXPECT(allocate(heap, 2000) == object && counts_of(heap).cut_short == 1);
    EXPECT(allocate(heap, 3000) == NULL && strstr(nvmalloc_message(), "cannot grow") != NULL);
    EXPECT(setrlimit(RLIMIT_FSIZE, &saved) == 0 && signal(SIGXFSZ, handler) == SIG_IGN);
    EXPECT(allocate(heap, 3000) != NULL);
    totals_of(heap);
    nvmalloc_heap_close(heap);
}

static void time_passes_while_the_heap_is_closed(void) {
    struct nvmalloc_options options = options_of(new_folder(), 60, NULL);
    options.clock = NVMALLOC_CLOCK_MILLISECONDS;
    struct nvmalloc_heap *heap = create(&options);
    char *object = allocate(heap, 40);
    allocate(heap, 40);
    nvmalloc_heap_free(heap, object);
    EXPECT(allocate(heap, 40) != object);
    nvmalloc_heap_close(heap);
    usleep(70 * 1000);
    heap = open_heap(&options);
    EXPECT(heap != NULL && counts_of(heap).waiting_blocks == 0 && allocate(heap, 40) == object);
    nvmalloc_heap_close(heap);
}

/* ---- random work against a reference model ---- */

enum { MODEL_SLOTS = 64, LINES = 256 * 1024 / 64 };

struct model {
    uint64_t offset[MODEL_SLOTS]; /* 0: empty */
    uint64_t bytes[MODEL_SLOTS], seed[MODEL_SLOTS];
    bool is_live[LINES];
    uint64_t freed_at[LINES]; /* operation; 0: never */
    uint64_t operation;
};

static void mark_lines(struct model *model, uint64_t offset, uint64_t bytes, bool is_live) {
    for (uint64_t line = offset / 64; line * 64 < offset + bytes; line++) {
        EXPECT(model->is_live[line] != is_live);
        model->is_live[line] = is_live;
        if (!is_live)
            model->freed_at[line] = model->operation;
    }
}

static void expect_waited(const struct model *model, uint64_t offset, uint64_t bytes, uint32_t ticks) {
    bool has_waited = true;
    for (uint64_t line = offset / 64; line * 64 < offset + bytes; line++)
        has_waited &= model->freed_at[line] == 0 || model->operation - model->freed_at[line] >= ticks;
    EXPECT(has_waited);
}

static void model_allocate(struct model *model, struct nvmalloc_heap *heap, uint32_t slot, uint64_t bytes, uint32_t ticks) {
    uint64_t cut_short = counts_of(heap).cut_short;
    void *object = allocate(heap, bytes);
    if (object == NULL)
        return;
    uint64_t offset = nvmalloc_heap_offset(heap, object);
    mark_lines(model, offset, bytes, true);
    if (counts_of(heap).cut_short == cut_short && cut_short == 0)
        expect_waited(model, offset, bytes, ticks);
    model->offset[slot] = offset;
    model->bytes[slot] = bytes;
    model->seed[slot] = model->operation;
    fill(object, model->operation, bytes);
}

static void model_free(struct model *model, struct nvmalloc_heap *heap, uint32_t slot) {
    void *object = nvmalloc_heap_address(heap, model->offset[slot]);
    EXPECT(is_filled(object, model->seed[slot], model->bytes[slot]));
    EXPECT(nvmalloc_heap_free(heap, object) == NVMALLOC_OK);
    mark_lines(model, model->offset[slot], model->bytes[slot], false);
    model->offset[slot] = 0;
}

static void expect_objects(const struct model *model, struct nvmalloc_heap *heap) {
    uint64_t blocks = 0;
    for (uint32_t slot = 0; slot < MODEL_SLOTS; slot++) {
        if (model->offset[slot] == 0)
            continue;
        blocks++;
        void *object = nvmalloc_heap_address(heap, model->offset[slot]);
        EXPECT(nvmalloc_heap_usable_bytes(heap, object) >= model->bytes[slot]);
        EXPECT(is_filled(object, model->seed[slot], model->bytes[slot]));
    }
    EXPECT(counts_of(heap).allocated_blocks == blocks);
}

static uint64_t random_bytes(uint64_t *random) {
    static const uint64_t most[] = {64, 300, 300, 1000, 4096, 30000};
    return 1 + next_random(random) % most[next_random(random) % (sizeof most / sizeof most[0])];
}

static void random_work_agrees_with_the_model(uint64_t seed, uint32_t ticks, unsigned operations) {
    struct model *model = calloc(1, sizeof *model);
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), ticks, &told);
    struct nvmalloc_heap *heap = create(&options);
    uint64_t random = seed;
    for (unsigned i = 0; i < operations; i++) {
        uint32_t slot = (uint32_t)(next_random(&random) % MODEL_SLOTS);
        model->operation++;
        if (model->offset[slot] == 0)
            model_allocate(model, heap, slot, random_bytes(&random), ticks);
        else
            model_free(model, heap, slot);
        if (i % 16 == 0)
            totals_of(heap);
        if (i % 200 == 199) {
            nvmalloc_heap_close(heap);
            heap = open_heap(&options);
            EXPECT(heap != NULL);
            expect_objects(model, heap);
            totals_of(heap);
        }
    }
    EXPECT(told.count == 0);
    nvmalloc_heap_close(heap);
    free(model);
}

/* ---- bad input ---- */

static bool open_says(const struct nvmalloc_options *options, int status, const char *words) {
    struct nvmalloc_heap *heap = NULL;
    int said = nvmalloc_heap_open(options, &heap);
    if (said == NVMALLOC_OK)
        nvmalloc_heap_close(heap);
    return said == status && strstr(nvmalloc_message(), words) != NULL;
}

static void what_is_no_heap_is_refused(void) {
    char folder[256];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvmalloc_options options = options_of(folder, 0, NULL);
    EXPECT(open_says(&options, NVMALLOC_NOT_A_HEAP, "does not exist: create the heap first"));
    char zeros[8192] = {0};
    write_file(file_of(folder), "hello", 5);
    EXPECT(open_says(&options, NVMALLOC_NOT_A_HEAP, "is 5 bytes long, but heap files have whole OS pages"));
    write_file(file_of(folder), zeros, sizeof zeros);
    EXPECT(open_says(&options, NVMALLOC_NOT_A_HEAP, "holds no heap, or its creation was not completed"));
    struct nvmalloc_heap *heap;
    EXPECT(nvmalloc_heap_create(&options, &heap) == NVMALLOC_ERROR && strstr(nvmalloc_message(), "exists already") != NULL);
    unlink(file_of(folder));
    heap = create(&options);
    allocate(heap, 9000);
    nvmalloc_heap_close(heap);
    uint64_t bytes;
    char *content = read_file(file_of(folder), &bytes);
    EXPECT(bytes == 12 * KIB);
    write_file(file_of(folder), content, 8 * KIB);
    EXPECT(open_says(&options, NVMALLOC_CORRUPT, "was it truncated?"));
    write_file(file_of(folder), content, 8 * KIB + 100);
    EXPECT(open_says(&options, NVMALLOC_NOT_A_HEAP, "truncated"));
    write_file(file_of(folder), content, bytes);
    heap = open_heap(&options);
    void *root = allocate(heap, 100); /* the file is cut between two blocks: only the root can tell */
    EXPECT(nvmalloc_heap_bytes(heap) == bytes && allocate(heap, 12 * KIB - 128 - 9024 - 128 - 16) != NULL);
    EXPECT(root != NULL && nvmalloc_heap_set_root(heap, allocate(heap, 100)) == NVMALLOC_OK);
    nvmalloc_heap_close(heap);
    content = (free(content), read_file(file_of(folder), &bytes));
    EXPECT(bytes == 16 * KIB);
    write_file(file_of(folder), content, 12 * KIB);
    EXPECT(open_says(&options, NVMALLOC_CORRUPT, "the root is at offset 0x3000: was it truncated?"));
    content[7] = '2';
    content[64 + 7] = '2';
    write_file(file_of(folder), content, bytes);
    EXPECT(open_says(&options, NVMALLOC_NOT_A_HEAP, "another version of the format"));
    free(content);
}

static void wrong_options_are_refused(void) {
    struct nvmalloc_options options = options_of("/nowhere/at/all", 0, NULL);
    EXPECT(open_says(&options, NVMALLOC_ERROR, "cannot use the heap folder"));
    options.folder = "";
    EXPECT(open_says(&options, NVMALLOC_INVALID, "no heap folder"));
    options = options_of("/dev/null", 0, NULL);
    EXPECT(open_says(&options, NVMALLOC_ERROR, "is not a folder"));
    options = options_of(new_folder(), 0x80000000u, NULL);
    EXPECT(open_says(&options, NVMALLOC_INVALID, "freed blocks wait 2147483648 ticks"));
    options = options_of(options.folder, 0, NULL);
    options.limit_bytes = NVMALLOC_MAX_LIMIT_BYTES + 1;
    EXPECT(open_says(&options, NVMALLOC_INVALID, "expected at most"));
    options = options_of(options.folder, 0, NULL);
    options.heap_bytes = 300 * KIB;
    struct nvmalloc_heap *heap;
    EXPECT(nvmalloc_heap_create(&options, &heap) == NVMALLOC_INVALID);
}

/* ---- the names of malloc ---- */

static void the_names_of_malloc_work(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    errno = 0;
    EXPECT(nvmalloc(1) == NULL && errno == ENOMEM);
    EXPECT(nvmalloc_start(&options) == NVMALLOC_OK && nvmalloc_start(&options) == NVMALLOC_INVALID);
    char *object = nvcalloc(10, 30);
    char zeros[300] = {0};
    EXPECT(object != NULL && memcmp(object, zeros, 300) == 0 && nvmalloc_usable_size(object) == 304);
    fill(object, 1, 300);
    char *moved = nvrealloc(object, 5000);
    EXPECT(moved != NULL && moved != object && is_filled(moved, 1, 300));
    EXPECT(nvrealloc(moved, 10) == moved && nvrealloc(NULL, 10) != NULL && nvrealloc(moved, 0) == NULL);
    errno = 0;
    EXPECT(nvcalloc(SIZE_MAX, 2) == NULL && errno == ENOMEM);
    object = nvmalloc(100);
    EXPECT(nvset_root(object) == NVMALLOC_OK && nvaddress(nvoffset(object)) == object);
    nvpersist(object, 100);
    nvmalloc_stop();
    EXPECT(nvmalloc_start(&options) == NVMALLOC_OK && nvroot() != NULL);
    nvfree(nvroot());
    nvfree(NULL);
    nvmalloc_stop();
}

/* ---- threads ---- */

enum { THREADS = 4 };

static struct nvmalloc_heap *shared;

static void *work(void *argument) {
    uint64_t random = (uint64_t)(uintptr_t)argument, seeds[16], bytes[16];
    void *objects[16] = {0};
    for (int i = 0; i < 2000; i++) {
        unsigned slot = (unsigned)(next_random(&random) % 16);
        if (nvmalloc_heap_bytes(shared) == 0)
            return "wrong";
        if (objects[slot] == NULL) {
            seeds[slot] = next_random(&random);
            bytes[slot] = 1 + next_random(&random) % 800;
            objects[slot] = allocate(shared, bytes[slot]);
            if (objects[slot] != NULL)
                fill(objects[slot], seeds[slot], bytes[slot]);
        } else {
            bool is_right = is_filled(objects[slot], seeds[slot], bytes[slot]);
            if (!is_right || nvmalloc_heap_free(shared, objects[slot]) != NVMALLOC_OK)
                return "wrong";
            objects[slot] = NULL;
        }
    }
    for (unsigned slot = 0; slot < 16; slot++)
        if (nvmalloc_heap_free(shared, objects[slot]) != NVMALLOC_OK)
            return "wrong";
    return NULL;
}

static void threads_share_a_heap(void) {
    struct nvmalloc_options options = options_of(new_folder(), 20, NULL);
    pthread_t threads[THREADS];
    shared = create(&options);
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        void *result;
        EXPECT(pthread_join(threads[i], &result) == 0 && result == NULL);
    }
    EXPECT(counts_of(shared).allocated_blocks == 0);
    totals_of(shared);
    nvmalloc_heap_close(shared);
}

/* ---- the checksum ---- */

/* Check value of CRC-32C: "123456789" gives 0xe3069283; here in words of 8 bytes, so of "12345678". */
static void both_checksums_are_crc32c(void) {
    uint64_t word;
    memcpy(&word, "12345678", sizeof word);
    EXPECT(~nvmalloc_crc32c_table(~0u, word) == 0x6087809au);
    uint64_t random = 1;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = next_random(&random);
        EXPECT(nvmalloc_crc32c((uint32_t)i, value) == nvmalloc_crc32c_table((uint32_t)i, value));
    }
}

/* ---- protection ---- */

/* The kernel stores the word that is there already, or says that it cannot. */
static bool can_be_stored(void *word) {
    int ends[2];
    uint64_t value = *(uint64_t *)word;
    if (pipe(ends) != 0 || write(ends[1], &value, sizeof value) != sizeof value)
        return false;
    bool is_stored = read(ends[0], word, sizeof value) == sizeof value;
    close(ends[0]);
    close(ends[1]);
    return is_stored;
}

static bool can_any_page_be_stored(struct nvmalloc_heap *heap) {
    bool can = false;
    for (uint64_t offset = 0; offset < nvmalloc_heap_bytes(heap); offset += 4 * KIB)
        can |= can_be_stored((char *)heap->lines + offset);
    return can;
}

static void between_operations_nothing_can_be_stored(void) {
    struct nvmalloc_options options = options_of(new_folder(), 2, NULL);
    options.is_protected = 1;
    struct nvmalloc_heap *heap = create(&options);
    EXPECT(nvmalloc_heap_is_protected(heap) && !can_any_page_be_stored(heap));
    void *objects[40];
    for (unsigned i = 0; i < 40; i++) {
        objects[i] = allocate(heap, 100 + 100 * i); /* the file grows */
        EXPECT(objects[i] != NULL && !can_any_page_be_stored(heap));
    }
    for (unsigned i = 0; i < 40; i += 2)
        EXPECT(nvmalloc_heap_free(heap, objects[i]) == NVMALLOC_OK && !can_any_page_be_stored(heap));
    EXPECT(nvmalloc_heap_set_root(heap, objects[1]) == NVMALLOC_OK && !can_any_page_be_stored(heap));
    for (void *object = objects[0]; object != NULL; object = allocate(heap, 2 * KIB))
        EXPECT(!can_any_page_be_stored(heap));
    EXPECT(nvmalloc_heap_is_protected(heap));
    totals_of(heap);
    nvmalloc_heap_close(heap);
    heap = open_heap(&options);
    EXPECT(heap != NULL && !can_any_page_be_stored(heap) && allocate(heap, 10) != NULL && !can_any_page_be_stored(heap));
    nvmalloc_heap_close(heap);
}

static void what_the_application_stores_to_can_be_stored(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    options.is_protected = 1;
    struct nvmalloc_heap *heap = create(&options);
    char *object = allocate(heap, 9000), *other = allocate(heap, 9000);
    EXPECT(nvmalloc_heap_unprotect(heap, object, 9000) == NVMALLOC_OK);
    fill(object, 1, 9000);
    EXPECT(!can_be_stored(other + 8192));
    EXPECT(nvmalloc_heap_free(heap, other) == NVMALLOC_OK && can_be_stored(object + 8984)); /* to the same page */
    EXPECT(nvmalloc_heap_unprotect(heap, object + 4096, 8) == NVMALLOC_OK); /* somebody else */
    EXPECT(nvmalloc_heap_protect(heap, object, 9000) == NVMALLOC_OK);
    EXPECT(can_be_stored(object + 4096) && !can_be_stored(object) && !can_be_stored(object + 8984));
    EXPECT(nvmalloc_heap_protect(heap, object + 4096, 8) == NVMALLOC_OK && !can_any_page_be_stored(heap));
    EXPECT(nvmalloc_heap_protect(heap, object, 8) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_unprotect(heap, object, 1 << 20) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_unprotect(heap, &options, 8) == NVMALLOC_INVALID);
    EXPECT(nvmalloc_heap_unprotect(heap, object, 0) == NVMALLOC_OK && nvmalloc_heap_protect(heap, object, 0) == NVMALLOC_OK);
    EXPECT(is_filled(object, 1, 9000) && !can_any_page_be_stored(heap));
    nvmalloc_heap_close(heap);
}

static void a_heap_that_is_not_protected_takes_all_stores(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    struct nvmalloc_heap *heap = create(&options);
    char *object = allocate(heap, 100);
    EXPECT(!nvmalloc_heap_is_protected(heap) && can_be_stored(object));
    EXPECT(nvmalloc_heap_unprotect(heap, object, 8) == NVMALLOC_OK && nvmalloc_heap_protect(heap, object, 8) == NVMALLOC_OK);
    EXPECT(can_be_stored(object));
    nvmalloc_heap_close(heap);
}

static void an_operation_may_store_to_more_pages_than_it_remembers(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    options.is_protected = 1;
    struct nvmalloc_heap *heap = create(&options);
    EXPECT(allocate(heap, 60 * 4 * KIB) != NULL);
    nvmalloc_lock(heap);
    for (uint32_t page = 0; page < 60; page++) {
        nvmalloc_may_store(heap, page * 64);
        EXPECT(can_be_stored((char *)heap->lines + page * 4 * KIB));
    }
    nvmalloc_unlock(heap);
    EXPECT(!can_any_page_be_stored(heap));
    nvmalloc_heap_close(heap);
}

struct storing {
    struct nvmalloc_heap *heap;
    unsigned seed;
    bool is_wrong;
};

static void *store_and_free(void *context) {
    struct storing *storing = context;
    for (unsigned step = 0; step < 500; step++) {
        uint64_t bytes = 1 + (storing->seed = storing->seed * 1103515245 + 12345) / 65536 % 500;
        char *object = allocate(storing->heap, bytes);
        if (object == NULL)
            continue;
        storing->is_wrong |= nvmalloc_heap_unprotect(storing->heap, object, bytes) != NVMALLOC_OK;
        fill(object, step, bytes);
        storing->is_wrong |= !is_filled(object, step, bytes);
        storing->is_wrong |= nvmalloc_heap_protect(storing->heap, object, bytes) != NVMALLOC_OK;
        storing->is_wrong |= nvmalloc_heap_free(storing->heap, object) != NVMALLOC_OK;
    }
    return NULL;
}

static void threads_that_store_to_one_page_do_not_protect_it_from_each_other(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    options.is_protected = 1;
    struct nvmalloc_heap *heap = create(&options);
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct storing storing[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        storing[i] = (struct storing){heap, i, false};
        pthread_create(&threads[i], NULL, store_and_free, &storing[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EXPECT(!storing[i].is_wrong);
    }
    EXPECT(nvmalloc_heap_is_protected(heap) && !can_any_page_be_stored(heap));
    EXPECT(nvmalloc_heap_check(heap) == NVMALLOC_OK);
    nvmalloc_heap_close(heap);
}

/* Takes all mappings that the system lets a process have but so many: each second OS page of a large one has other rights. */
static void *take_mappings(uint64_t *bytes, unsigned left) {
    unsigned long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    EXPECT(file != NULL && fscanf(file, "%lu", &limit) == 1);
    fclose(file);
    *bytes = (limit + 2) * 2 * 4 * KIB;
    char *base = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(base != MAP_FAILED);
    uint64_t taken = 0;
    while (mprotect(base + (2 * taken + 1) * 4 * KIB, 4 * KIB, PROT_NONE) == 0)
        taken++;
    for (uint64_t page = taken; left > 0; left -= left < 2 ? left : 2) /* each gives two */
        mprotect(base + (2 * --page + 1) * 4 * KIB, 4 * KIB, PROT_READ);
    return base;
}

static void where_no_more_mappings_are_to_be_had_all_can_be_stored(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    options.is_protected = 1;
    unsigned protected = 0, made = 0;
    for (unsigned left = 0; left <= 6; left++) {
        options.folder = new_folder();
        struct nvmalloc_heap *heap = create(&options);
        char *object = allocate(heap, 20000), *other = allocate(heap, 20000);
        EXPECT(nvmalloc_heap_unprotect(heap, object, 100) == NVMALLOC_OK);
        uint64_t bytes;
        void *taken = take_mappings(&bytes, left);
        EXPECT(nvmalloc_heap_unprotect(heap, other + 9000, 100) == NVMALLOC_OK);
        fill(other + 9000, left, 100);
        void *more[8];
        for (unsigned i = 0; i < 8; i++)
            more[i] = allocate(heap, 6000); /* null: what the file would grow by cannot be mapped */
        fill(object, left, 100);
        EXPECT(nvmalloc_heap_protect(heap, other + 9000, 100) == NVMALLOC_OK);
        munmap(taken, bytes);
        for (unsigned i = 0; i < 8; i++)
            EXPECT(nvmalloc_heap_free(heap, more[i]) == NVMALLOC_OK);
        EXPECT(nvmalloc_heap_protect(heap, object, 100) == NVMALLOC_OK);
        EXPECT(nvmalloc_heap_is_protected(heap) ? !can_any_page_be_stored(heap) : can_be_stored(heap->lines));
        EXPECT(nvmalloc_heap_check(heap) == NVMALLOC_OK);
        protected += (unsigned)nvmalloc_heap_is_protected(heap);
        made += more[7] != NULL;
        nvmalloc_heap_close(heap);
    }
    EXPECT(protected > 0 && protected < 7 && made > 0);
}

static void the_names_of_malloc_store_in_a_protected_heap(void) {
    struct nvmalloc_options options = options_of(new_folder(), 0, NULL);
    options.is_protected = 1;
    EXPECT(nvunprotect(&options, 8) == NVMALLOC_INVALID && nvprotect(&options, 8) == NVMALLOC_INVALID); /* not started */
    EXPECT(nvmalloc_start(&options) == NVMALLOC_OK);
    char *object = nvcalloc(10, 10);
    EXPECT(object != NULL && object[99] == 0 && !can_be_stored(object));
    EXPECT(nvunprotect(object, 100) == NVMALLOC_OK);
    memset(object, 7, 100);
    EXPECT(nvprotect(object, 100) == NVMALLOC_OK);
    object = nvrealloc(object, 5000);
    EXPECT(object != NULL && object[99] == 7 && !can_be_stored(object));
    nvfree(object);
    nvmalloc_stop();
}

int main(void) {
    begin_tests("nvmalloc");
    objects_are_aligned_large_enough_and_durable();
    between_operations_nothing_can_be_stored();
    what_the_application_stores_to_can_be_stored();
    a_heap_that_is_not_protected_takes_all_stores();
    an_operation_may_store_to_more_pages_than_it_remembers();
    threads_that_store_to_one_page_do_not_protect_it_from_each_other();
    where_no_more_mappings_are_to_be_had_all_can_be_stored();
    the_names_of_malloc_store_in_a_protected_heap();
    what_is_no_object_is_not_freed();
    neighbours_are_one_region_without_a_write();
    the_file_grows_by_what_is_needed();
    freed_blocks_wait_in_order_of_their_frees();
    waits_are_cut_short_rather_than_a_request_refused();
    waits_are_cut_short_when_the_file_cannot_grow();
    time_passes_while_the_heap_is_closed();
    for (uint64_t seed = 1; seed <= 6; seed++)
        random_work_agrees_with_the_model(seed, (uint32_t)(seed % 3 * 10), 1500);
    what_is_no_heap_is_refused();
    wrong_options_are_refused();
    the_names_of_malloc_work();
    threads_share_a_heap();
    both_checksums_are_crc32c();
    return end_tests();
}
