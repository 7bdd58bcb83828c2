/* SPDX-License-Identifier: Apache-2.0
 *
 * test_makalu.c - unit and model tests. In the folder of the allocator:
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -DMAK_HEADER_SPACE_BYTES=4096 -DMAK_MAP_BOTTOM=16 \
 *         -DMAK_GROW_BYTES=65536 -DMAK_VISIBLE_LINES=16 -DMAK_MARK_STACK=8 -DMAK_MARK_POOL=32 -DMAK_EMPTY_BLOCKS=2 -Isrc -I. -I../testing \
 *         -I../../include src/?*.c adapter*.c tests/test_makalu.c -pthread -o /tmp/test_makalu && /tmp/test_makalu
 *
 * and the same with -fsanitize=address,undefined -fno-sanitize-recover=all, with -fsanitize=thread, and without the -D, which
 * make everything small. Prints `N passed, M failed`; exit code 0 if M is 0.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapter.h"
#include "common.h"

/* ---- lives of a region ---- */

static void test_what_is_closed_can_be_restarted(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    char *object = MAK_malloc(100);
    EXPECT(object != NULL && (uintptr_t)object % 16 == 0);
    strcpy(object, "kept");
    EXPECT(MAK_set_root(511, object) == MAK_OK);
    EXPECT(MAK_set_root(512, object) == MAK_INVALID);
    EXPECT(MAK_restart(folder) == MAK_INVALID); /* it is open */
    EXPECT(MAK_close() == MAK_OK);
    EXPECT(MAK_close() == MAK_INVALID);
    EXPECT(MAK_malloc(8) == NULL && MAK_get_root(0) == NULL);
    EXPECT(MAK_restart(folder) == MAK_OK);
    EXPECT(MAK_get_root(511) == object && strcmp(object, "kept") == 0 && MAK_get_root(0) == NULL);
    struct totals totals = totals_of_region();
    EXPECT(totals.parts[MAK_PART_ALLOCATED] == 1 && totals.bytes[MAK_PART_ALLOCATED] == 112);
    EXPECT(MAK_collect() == MAK_INVALID); /* offline only */
    EXPECT(MAK_close() == MAK_OK);
}

static void test_a_failure_before_the_first_call_harms_nothing(void) { /* §11.1, §11.2 */
    char folder[128], other[128];
    start(folder, INITIAL, LIMIT);
    uint64_t bytes;
    void *image = read_file(file_of(folder), &bytes);
    MAK_close();
    snprintf(other, 128, "%s", new_folder());
    write_file(file_of(other), image, bytes);
    EXPECT(MAK_restart(other) == MAK_OK);
    free(image);
    image = read_file(file_of(other), &bytes);
    MAK_close();
    write_file(file_of(other), image, bytes);
    EXPECT(MAK_restart(other) == MAK_OK);
    MAK_free(MAK_malloc(1));
    free(image);
    image = read_file(file_of(other), &bytes);
    MAK_close();
    write_file(file_of(other), image, bytes);
    EXPECT(MAK_restart(other) == MAK_DIRTY);
    EXPECT(MAK_start_off(other) == MAK_OK);
    EXPECT(MAK_malloc(1) == NULL); /* offline */
    EXPECT(MAK_restart_in_place() == MAK_INVALID);
    EXPECT(MAK_close() == MAK_OK);
    EXPECT(MAK_restart(other) == MAK_DIRTY); /* recovered, not collected */
    EXPECT(MAK_start_off(other) == MAK_OK && MAK_collect() == MAK_OK && MAK_collect() == MAK_OK && MAK_close() == MAK_OK);
    EXPECT(MAK_restart(other) == MAK_OK);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    MAK_close();
    free(image);
}

/* Damaged by one word at this offset, the region is refused with this status, and stays as it is. What recovery would mend, it is
 * not asked to. */
static void expect_refusal(const char *folder, const void *image, uint64_t bytes, uint64_t offset, uint64_t word, int status) {
    bool is_for_recovery = status == MAK_DIRTY || (offset >= MAK_MAP_OFFSET && offset < mak_first_space_offset(LIMIT));
    uint64_t now_bytes;
    char *damaged = malloc(bytes);
    memcpy(damaged, image, bytes);
    memcpy(damaged + offset, &word, 8);
    write_file(file_of(folder), damaged, bytes);
    EXPECT(MAK_restart(folder) == status);
    if (!is_for_recovery)
        EXPECT(MAK_start_off(folder) == status);
    EXPECT(strchr(MAK_message(), '\n') == NULL && strstr(MAK_message(), "region") != NULL);
    char *now = read_file(file_of(folder), &now_bytes);
    EXPECT(now_bytes == bytes && memcmp(now, damaged, bytes) == 0);
    free(now);
    free(damaged);
}

static void test_bad_input_is_refused_and_left_alone(void) {
    char folder[128], empty[128];
    start(folder, INITIAL, LIMIT);
    struct MAK_options options = {folder, INITIAL, LIMIT, ADDRESS};
    EXPECT(MAK_start(&options) == MAK_INVALID); /* one region a process */
    MAK_close();
    EXPECT(MAK_start(&options) == MAK_ERROR); /* exists */
    uint64_t bytes;
    char *image = read_file(file_of(folder), &bytes);
    EXPECT(bytes == INITIAL);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, magic), 0x31434c4d4d564e46ull, MAK_NOT_A_REGION);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, format), MAK_FORMAT + 1, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, rgn_base), ADDRESS + 8, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, md_roots_start), 0, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, limit_bytes), 0, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, header_space_bytes), 12288, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, rgn_curr), ADDRESS + INITIAL + 4096, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, state), 7, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, offsetof(struct mak_base, state), MAK_STATE_IN_USE, MAK_DIRTY);
    expect_refusal(folder, image, INITIAL - 8192, 0, MAK_MAGIC, MAK_CORRUPT); /* truncated */
    expect_refusal(folder, image, 100, 0, MAK_MAGIC, MAK_NOT_A_REGION);
    write_file(file_of(folder), image, bytes);
    snprintf(empty, 128, "%s", new_folder());
    EXPECT(MAK_restart(empty) == MAK_NOT_A_REGION && MAK_restart("") == MAK_INVALID);
    void *taken = mmap((void *)(ADDRESS + LIMIT / 2), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT(MAK_restart(folder) == MAK_ADDRESS_TAKEN && strstr(MAK_message(), "something else is mapped") != NULL);
    EXPECT(MAK_start_off(folder) == MAK_ADDRESS_TAKEN);
    options.folder = empty;
    EXPECT(MAK_start(&options) == MAK_ADDRESS_TAKEN && access(file_of(empty), F_OK) != 0);
    munmap(taken, 4096);
    options.heap_bytes = 8192;
    EXPECT(MAK_start(&options) == MAK_INVALID);
    options.heap_bytes = LIMIT + 4096;
    EXPECT(MAK_start(&options) == MAK_INVALID);
    options.heap_bytes = 1000;
    EXPECT(MAK_start(&options) == MAK_INVALID);
    EXPECT(MAK_restart(folder) == MAK_OK);
    MAK_close();
    free(image);
}

static void test_a_header_that_contradicts_the_heap_is_found(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    MAK_set_root(0, MAK_malloc(5000));
    uint64_t bytes = MAK_file_bytes(), space = mak_first_space_offset(LIMIT);
    char *image = malloc(bytes);
    memcpy(image, MAK_base(), bytes);
    MAK_close();
    static const struct {
        uint64_t header, offset, value;
    } damage[] = {
        {0, 0, ADDRESS + 1}, {0, 0, ADDRESS + LIMIT}, {0, 8, 0}, {0, 8, 24}, {0, 8, LIMIT}, {0, 16, 2}, {1, 8, 4096}, {1, 0, 0}};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char *damaged = malloc(bytes);
        memcpy(damaged, image, bytes);
        memcpy(damaged + space + damage[i].header * sizeof(struct mak_header) + damage[i].offset, &damage[i].value, 8);
        write_file(file_of(folder), damaged, bytes);
        EXPECT(MAK_start_off(folder) == MAK_CORRUPT);
        free(damaged);
    }
    free(image);
}

/* ---- objects ---- */

static void test_objects_of_every_size_are_apart(void) {
    enum { COUNT = 700 };
    char folder[128];
    static unsigned char *objects[COUNT];
    start(folder, INITIAL, LIMIT);
    for (unsigned i = 0; i < COUNT; i++) {
        size_t bytes = i < 500 ? i + 1 : i * 7;
        objects[i] = MAK_malloc(bytes);
        EXPECT(objects[i] != NULL && (uintptr_t)objects[i] % 16 == 0 && MAK_usable_bytes(objects[i]) >= bytes);
        memset(objects[i], (int)i, MAK_usable_bytes(objects[i]));
    }
    totals_of_region();
    bool is_kept = true;
    for (unsigned i = 0; i < COUNT; i++)
        for (uint64_t at = 0; at < MAK_usable_bytes(objects[i]); at++)
            is_kept &= objects[i][at] == (unsigned char)i;
    EXPECT(is_kept);
    for (unsigned i = 0; i < COUNT; i += 2)
        MAK_free(objects[i]);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == COUNT / 2);
    for (unsigned i = 1; i < COUNT; i += 2)
        MAK_free(objects[i]);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    EXPECT(MAK_usable_bytes(objects[0] + 8) == 0 && MAK_usable_bytes(&folder) == 0);
    MAK_free(&folder); /* left alone */
    MAK_close();
    EXPECT(MAK_restart(folder) == MAK_OK);
    struct totals totals = totals_of_region();
    EXPECT(totals.parts[MAK_PART_ALLOCATED] == 0 && totals.parts[MAK_PART_UNUSABLE] == 0); /* all blocks were freed */
    MAK_close();
}

static void test_freelists_are_truncated(void) { /* §7.1, §7.2 */
    enum { COUNT = 4096 };
    char folder[128];
    static void *objects[COUNT];
    start(folder, INITIAL, LIMIT);
    for (unsigned i = 0; i < COUNT; i++)
        objects[i] = MAK_malloc(64);
    uint64_t allocated_blocks = COUNT / 64;
    struct totals before = totals_of_region();
    EXPECT(before.bytes[MAK_PART_ALLOCATED] == allocated_blocks * 4096);
    for (unsigned i = 0; i < COUNT; i++)
        MAK_free(objects[i]);
    struct totals after = totals_of_region();
    EXPECT(after.parts[MAK_PART_ALLOCATED] == 0);
#if defined(MAK_EMPTY_BLOCKS) /* by default more empty blocks are kept than there are here */
    /* What a freelist may hold, 2 blocks' worth, can keep as many blocks from being freed as it has objects: here few. */
    EXPECT(after.parts[MAK_PART_FREE] < 300);
#endif
    void *large = MAK_malloc(50 * 4096);
    EXPECT(large != NULL);
    MAK_close();
}

static void test_realloc_and_calloc(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    char *object = MAK_realloc(NULL, 10);
    strcpy(object, "content");
    char *same = MAK_realloc(object, 16);
    EXPECT(same == object);
    char *moved = MAK_realloc(object, 10000);
    EXPECT(moved != NULL && moved != object && strcmp(moved, "content") == 0);
    moved = MAK_realloc(moved, 8);
    EXPECT(moved != NULL && strcmp(moved, "content") == 0 && MAK_usable_bytes(moved) == 16);
    EXPECT(MAK_realloc(moved, LIMIT * 2) == NULL && strcmp(moved, "content") == 0);
    EXPECT(MAK_realloc(moved + 1, 100) == NULL);
    MAK_free(moved);
    char *zeros = MAK_calloc(10, 100);
    bool is_zero = zeros != NULL;
    for (unsigned i = 0; i < 1000; i++)
        is_zero &= zeros[i] == 0;
    EXPECT(is_zero);
    EXPECT(MAK_calloc(SIZE_MAX, 2) == NULL && MAK_malloc(SIZE_MAX) == NULL && MAK_malloc(SIZE_MAX - 100) == NULL);
    EXPECT(MAK_malloc(0) != NULL);
    MAK_free(NULL);
    totals_of_region();
    MAK_close();
}

static void *reported;
static void report_free(void *object) { reported = object; }

static void test_deferred_free(void) { /* §10.1 */
    char folder[128];
    start(folder, INITIAL, LIMIT);
    void *object = MAK_malloc(64);
    MAK_set_free_cb(report_free);
    MAK_free(object);
    EXPECT(reported == object && totals_of_region().parts[MAK_PART_ALLOCATED] == 1);
    MAK_safe_free(object);
    MAK_safe_free(NULL);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    MAK_close();
    reported = NULL;
    MAK_restart(folder);
    MAK_free(MAK_malloc(64)); /* the callback is of the life before */
    EXPECT(reported == NULL);
    MAK_close();
}

/* Until out-of-memory; how many bytes. */
static uint64_t fill(uint64_t *random, void **objects, unsigned room, unsigned *count) {
    uint64_t bytes = 0;
    for (*count = 0; *count < room; ++*count) {
        uint64_t choice = next_random(random), size = choice % 4 == 0 ? 1 + choice / 4 % 20000 : 1 + choice / 4 % 2500;
        objects[*count] = MAK_malloc(size);
        if (objects[*count] == NULL)
            break;
        memset(objects[*count], 0x5a, size);
        bytes += size;
    }
    return bytes;
}

static void test_out_of_memory_and_back(void) {
    enum { ROOM = 20000 };
    char folder[128];
    static void *objects[ROOM];
    unsigned count;
    start(folder, INITIAL, LIMIT);
    for (uint64_t round = 1; round <= 3; round++) {
        uint64_t random = round, bytes = fill(&random, objects, ROOM, &count);
        EXPECT(count < ROOM && bytes > LIMIT * 6 / 10 && MAK_file_bytes() <= LIMIT);
        EXPECT(strstr(MAK_message(), "full") != NULL);
        while (MAK_malloc(16) != NULL)
            continue; /* to the last granule; leaks */
        totals_of_region();
        for (unsigned i = count; i-- > 0;)
            MAK_free(objects[i]);
        totals_of_region();
        if (round < 3)
            fail_and_recover(folder); /* what leaked is garbage */
        EXPECT(MAK_malloc(100 << 10) != NULL || round == 3); /* chunks have grown together, between header spaces */
        if (round < 3)
            fail_and_recover(folder);
    }
    MAK_close();
    EXPECT(MAK_restart(folder) == MAK_OK);
    totals_of_region();
    MAK_close();
}

static void test_too_few_free_objects_for_a_sweep_still_count(void) {
    enum { ROOM = LIMIT / 16 };
    char folder[128];
    static void *objects[ROOM];
    unsigned count = 0;
    start(folder, INITIAL, LIMIT);
    while ((objects[count] = MAK_malloc(16)) != NULL)
        count++;
    for (unsigned i = 0; i < count; i += 100) /* 2 or 3 in each block: no block is worth a reclaim list */
        MAK_free(objects[i]);
    unsigned again = 0;
    while (MAK_malloc(16) != NULL)
        again++;
    EXPECT(again == (count + 99) / 100);
    totals_of_region();
    MAK_close();
}

/* ---- growth ---- */

static void test_the_heap_grows_to_its_limit(void) { /* §6.4 */
    char folder[128];
    start(folder, INITIAL, LIMIT);
    EXPECT(MAK_file_bytes() == INITIAL);
    unsigned blocks = 0;
    while (MAK_malloc(4096) != NULL)
        blocks++;
    struct mak_base *base = MAK_base();
    EXPECT(blocks > (LIMIT / 4096) * 9 / 10 && base->header_space_count >= 2 - (MAK_HEADER_SPACE_BYTES > 4096));
    totals_of_region();
    fail_and_recover(folder);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    unsigned again = 0;
    while (MAK_malloc(4096) != NULL)
        again++;
    EXPECT(again == blocks);
    MAK_close();
}

/* As many blocks as there is room for in a file of that size, one by one, then all that the heap can have. */
static unsigned take_blocks(uint64_t most_file_bytes) {
    struct rlimit before, small;
    unsigned blocks = 0;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){most_file_bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    while (MAK_malloc(4096) != NULL)
        blocks++;
    setrlimit(RLIMIT_FSIZE, &before);
    return blocks;
}

/* What the file system has no room for is not acquired, neither as heap nor as headers; what it has room for is. */
static void test_a_file_system_without_room_takes_nothing(void) { /* §6.4 */
    char folder[128];
    for (uint64_t room = INITIAL; room <= INITIAL + 24 * 4096 + 2 * MAK_HEADER_SPACE_BYTES; room += 4096) {
        start(folder, INITIAL, LIMIT);
        unsigned blocks = take_blocks(room);
        uint64_t end = MAK_file_bytes();
        struct totals totals = totals_of_region();
        EXPECT(end <= room && room - end <= MAK_HEADER_SPACE_BYTES && totals.at == end && MAK_check() == MAK_OK);
        EXPECT(totals.parts[MAK_PART_ALLOCATED] == blocks && MAK_malloc(2 * INITIAL) != NULL);
        EXPECT(MAK_file_bytes() > room);
        fail_and_recover(folder);
        EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
        MAK_close();
    }
}

static void test_a_surplus_of_the_file_is_used(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    MAK_set_root(0, MAK_malloc(100));
    MAK_close();
    EXPECT(truncate(file_of(folder), INITIAL + 3 * 4096) == 0);
    EXPECT(MAK_restart(folder) == MAK_OK);
    totals_of_region();
    EXPECT(MAK_malloc(INITIAL) != NULL);
    totals_of_region();
    fail_and_recover(folder);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 1);
    MAK_close();
}

/* ---- collection ---- */

static void test_what_roots_reach_survives(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    void **a = MAK_calloc(1, 48), **b = MAK_calloc(1, 500), **c = MAK_calloc(1, 9000), **lost = MAK_calloc(1, 48);
    char *inside = MAK_calloc(1, 300);
    a[2] = b;
    b[60] = c;
    c[1100] = a; /* a cycle */
    c[0] = inside + 299; /* a pointer into an object */
    lost[0] = a;         /* garbage may point to what lives */
    c[1] = (void *)&folder; /* not of this region */
    c[2] = (void *)(ADDRESS + 64); /* metadata */
    c[3] = (void *)(ADDRESS + LIMIT - 8);
    MAK_set_root(3, a);
    MAK_malloc(12345);
    fail_and_recover(folder);
    struct totals totals = totals_of_region();
    EXPECT(totals.parts[MAK_PART_ALLOCATED] == 4);
    EXPECT(MAK_get_root(3) == a && a[2] == b && b[60] == c && c[1100] == a && MAK_is_object(inside) && !MAK_is_object(lost));
    MAK_set_root(3, NULL);
    fail_and_recover(folder);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    MAK_close();
}

/* Every auxiliary word that a life may have stored to, and a failure may have left with any value of its past. */
static void spoil_auxiliary(char *image) {
    const struct mak_base *base = (const struct mak_base *)image;
    uint64_t tops = (base->rgn_curr - ADDRESS + MAK_MAP_BOTTOM * MAK_BLOCK_BYTES - 1) / (MAK_MAP_BOTTOM * MAK_BLOCK_BYTES);
    memset(image + offsetof(struct mak_base, hfl_first), 0xa5, MAK_LINE_BYTES);
    memset(image + MAK_MAP_OFFSET, 0xa5, tops * 8);
    memset(image + MAK_MAP_OFFSET + mak_map_top_bytes(LIMIT), 0xa5, tops * MAK_MAP_BOTTOM * 8);
    for (uint32_t i = 0; i < base->header_space_count; i++)
        for (uint64_t at = 0; at < base->header_space_bytes; at += sizeof(struct mak_header))
            memset(image + (base->header_spaces[i] - ADDRESS) + at + MAK_LINE_BYTES, 0xa5, MAK_LINE_BYTES);
}

static struct totals recovered_and_filled(char folder[128], void *image, uint64_t bytes) {
    fail_at_and_start_off(folder, image, bytes);
    EXPECT(MAK_collect() == MAK_OK && MAK_restart_in_place() == MAK_OK);
    struct totals totals = totals_of_region();
    while (MAK_malloc(3000) != NULL) /* the heap grows to its limit, and with it the header map */
        continue;
    EXPECT(MAK_check() == MAK_OK);
    return totals;
}

static void test_recovery_does_not_depend_on_auxiliary_metadata(void) { /* §8.1, §9.1 */
    char folder[128];
    void *objects[60];
    start(folder, INITIAL, LIMIT);
    for (unsigned i = 0; i < 60; i++)
        MAK_set_root(i, objects[i] = MAK_malloc(i % 3 == 0 ? 6000 : 16 + 40 * i));
    for (unsigned i = 0; i < 60; i += 2) { /* headers become free, chunks join */
        MAK_set_root(i, NULL);
        MAK_free(objects[i]);
    }
    uint64_t bytes;
    void *image = copy_region(&bytes), *spoiled = copy_region(&bytes);
    spoil_auxiliary(spoiled);
    struct totals expected = recovered_and_filled(folder, image, bytes);
    struct totals found = recovered_and_filled(folder, spoiled, bytes);
    EXPECT(memcmp(&expected, &found, sizeof expected) == 0);
    EXPECT(found.parts[MAK_PART_ALLOCATED] == 30);
    MAK_close();
}

static void test_a_long_chain_is_marked(void) {
    enum { LENGTH = 20000 };
    char folder[128];
    start(folder, INITIAL, LIMIT);
    void **first = NULL;
    for (unsigned i = 0; i < LENGTH; i++) {
        void **node = MAK_malloc(64);
        memset(node, 0, 64);
        node[i % 8] = first;
        first = node;
    }
    MAK_set_root(0, first);
    fail_and_recover(folder);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == LENGTH);
    MAK_close();
}

/* ---- random graphs against a model ---- */

enum { NODES = 1500, FIELDS = 6 };

struct node {
    void *object; /* null: not allocated */
    uint64_t bytes;
    uint32_t fields[FIELDS]; /* node + 1; 0: null */
    bool is_reached;
};

struct graph {
    struct node nodes[NODES];
    uint32_t roots[MAK_ROOTS];
    uint64_t random;
};

static uint64_t tag_of(uint32_t node, uint64_t bytes) { return 0xf1ed000000000000ull | (uint64_t)node << 32 | bytes; }

/* Fields are spread over the object, so that their place is no help: field f is word 1 + f * stride. */
static uint64_t *field_of(const struct node *node, uint32_t field) {
    uint64_t words = node->bytes / 8, stride = (words - 1) / FIELDS;
    return stride == 0 ? NULL : (uint64_t *)node->object + 1 + field * stride;
}

static void make_node(struct graph *graph, uint32_t number) {
    struct node *node = &graph->nodes[number];
    uint64_t choice = next_random(&graph->random), kind = choice % 16;
    node->bytes = kind == 0 ? 4096 * (1 + choice / 16 % 5) : kind < 4 ? 416 + choice / 16 % 100 * 16 : 16 + choice / 16 % 25 * 16;
    node->object = MAK_malloc(node->bytes);
    memset(node->fields, 0, sizeof node->fields);
    if (node->object == NULL)
        return;
    for (uint64_t i = 0; i < node->bytes / 8; i++) /* also what an earlier object left */
        ((uint64_t *)node->object)[i] = tag_of(number, node->bytes);
    for (uint32_t field = 0; field < FIELDS; field++)
        if (field_of(node, field) != NULL)
            *field_of(node, field) = 0;
}

static void set_field(struct graph *graph, uint32_t from, uint32_t field, uint32_t to) {
    struct node *node = &graph->nodes[from];
    if (node->object == NULL || field_of(node, field) == NULL || (to != 0 && graph->nodes[to - 1].object == NULL))
        return;
    node->fields[field] = to;
    uint64_t inside =
        to == 0 || next_random(&graph->random) % 4 != 0 ? 0 : next_random(&graph->random) % graph->nodes[to - 1].bytes;
    *field_of(node, field) = to == 0 ? 0 : (uint64_t)(uintptr_t)graph->nodes[to - 1].object + inside;
}

/* The simple sequential reference: what roots reach. */
static uint32_t reach(struct graph *graph) {
    static uint32_t queue[NODES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < NODES; i++)
        graph->nodes[i].is_reached = false;
    for (uint32_t root = 0; root < MAK_ROOTS; root++)
        if (graph->roots[root] != 0 && !graph->nodes[graph->roots[root] - 1].is_reached) {
            graph->nodes[graph->roots[root] - 1].is_reached = true;
            queue[count++] = graph->roots[root] - 1;
        }
    for (uint32_t at = 0; at < count; at++)
        for (uint32_t field = 0; field < FIELDS; field++) {
            uint32_t target = graph->nodes[queue[at]].fields[field];
            if (target == 0 || graph->nodes[target - 1].is_reached)
                continue;
            graph->nodes[target - 1].is_reached = true;
            queue[count++] = target - 1;
        }
    return count;
}

static void mutate(struct graph *graph) {
    uint64_t choice = next_random(&graph->random);
    uint32_t a = (uint32_t)(next_random(&graph->random) % NODES), b = (uint32_t)(next_random(&graph->random) % NODES);
    uint32_t field = (uint32_t)(choice >> 8) % FIELDS, root = (uint32_t)(choice >> 16) % MAK_ROOTS;
    switch (choice % 8) {
    case 0:
    case 1:
    case 2:
        if (graph->nodes[a].object == NULL)
            make_node(graph, a);
        break;
    case 3:
    case 4: set_field(graph, a, field, b + 1); break;
    case 5: set_field(graph, a, field, 0); break;
    case 6:
        if (graph->nodes[a].object != NULL && (choice >> 32) % 2 == 0) {
            graph->roots[root] = a + 1;
            MAK_set_root(root, graph->nodes[a].object);
        } else {
            graph->roots[root] = 0;
            MAK_set_root(root, NULL);
        }
        break;
    case 7: /* free what nothing reaches */
        if (graph->nodes[a].object == NULL)
            break;
        reach(graph);
        if (graph->nodes[a].is_reached)
            break;
        for (uint32_t i = 0; i < NODES; i++) /* nor garbage: it might be collected later, and must not name this */
            for (uint32_t f = 0; graph->nodes[i].object != NULL && f < FIELDS; f++)
                if (graph->nodes[i].fields[f] == a + 1)
                    set_field(graph, i, f, 0);
        MAK_free(graph->nodes[a].object);
        graph->nodes[a].object = NULL;
        break;
    }
}

/* The region holds exactly the model's objects, with their content. */
static void expect_graph(struct graph *graph) {
    bool is_there = true, is_content = true;
    uint32_t count = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->object == NULL)
            continue;
        count++;
        is_there &= MAK_is_object(node->object) && MAK_usable_bytes(node->object) == node->bytes;
        for (uint64_t word = 0; word < node->bytes / 8; word++) {
            const uint64_t *at = (const uint64_t *)node->object + word;
            bool is_field = false;
            for (uint32_t f = 0; f < FIELDS; f++)
                is_field |= at == field_of(node, f);
            is_content &= is_field || *at == tag_of(i, node->bytes);
        }
        for (uint32_t f = 0; f < FIELDS && field_of(node, f) != NULL; f++) {
            uint64_t word = *field_of(node, f);
            const struct node *target = node->fields[f] == 0 ? NULL : &graph->nodes[node->fields[f] - 1];
            is_content &= target == NULL ? word == 0 : word - (uint64_t)(uintptr_t)target->object < target->bytes;
        }
    }
    EXPECT(is_there && is_content);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == count);
}

static void forget_garbage(struct graph *graph) {
    reach(graph);
    for (uint32_t i = 0; i < NODES; i++)
        if (!graph->nodes[i].is_reached)
            graph->nodes[i].object = NULL;
}

static void test_random_graphs(uint64_t seeds, unsigned mutations) {
    static struct graph graph;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        char folder[128];
        memset(&graph, 0, sizeof graph);
        graph.random = seed;
        start(folder, INITIAL, LIMIT);
        for (unsigned round = 0; round < 6; round++) {
            for (unsigned i = 0; i < mutations; i++)
                mutate(&graph);
            expect_graph(&graph);
            MAK_set_mark_threads(1 + (unsigned)(seed + round) % 4);
            if (next_random(&graph.random) % 3 == 0) {
                EXPECT(MAK_close() == MAK_OK && MAK_restart(folder) == MAK_OK);
            } else {
                fail_and_recover(folder);
                forget_garbage(&graph);
            }
            expect_graph(&graph);
        }
        MAK_close();
    }
    MAK_set_mark_threads(0);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 20000, MAILBOXES = 64 };

static struct mailbox {
    pthread_mutex_t lock;
    void *object;
    uint64_t bytes;
} mailboxes[MAILBOXES];

static void check_and_free(void *object, uint64_t bytes, unsigned *errors) {
    uint64_t *words = object;
    for (uint64_t i = 0; i < bytes / 8; i++)
        *errors += words[i] != (uint64_t)(uintptr_t)object;
    if (bytes >= 8)
        words[0] = 0;
    MAK_free(object);
}

/* Each allocates, leaves objects in mailboxes, and frees what others left there. */
static void *exchange(void *context) {
    uint64_t random = (uint64_t)(uintptr_t)context;
    unsigned errors = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t choice = next_random(&random);
        uint64_t bytes = choice % 64 == 0  ? 2500 + choice / 64 % 9000
                         : choice % 8 == 0 ? 401 + choice / 64 % 1600
                                           : 1 + choice / 64 % 400;
        void *object = MAK_malloc(bytes);
        for (uint64_t word = 0; object != NULL && word < bytes / 8; word++)
            ((uint64_t *)object)[word] = (uint64_t)(uintptr_t)object;
        struct mailbox *mailbox = &mailboxes[(choice >> 32) % MAILBOXES];
        pthread_mutex_lock(&mailbox->lock);
        void *other = mailbox->object;
        uint64_t other_bytes = mailbox->bytes;
        mailbox->object = object;
        mailbox->bytes = bytes;
        pthread_mutex_unlock(&mailbox->lock);
        if (other != NULL)
            check_and_free(other, other_bytes, &errors);
    }
    return (void *)(uintptr_t)errors;
}

static void run_threads(void *(*body)(void *), unsigned count) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < count; i++) {
        void *errors;
        pthread_join(threads[i], &errors);
        EXPECT(errors == NULL);
    }
}

static void test_threads_free_each_others_objects(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    for (unsigned i = 0; i < MAILBOXES; i++)
        pthread_mutex_init(&mailboxes[i].lock, NULL);
    for (unsigned round = 0; round < 2; round++) {
        run_threads(exchange, THREADS);
        totals_of_region();
    }
    unsigned errors = 0, left = 0;
    for (unsigned i = 0; i < MAILBOXES; i++)
        left += mailboxes[i].object != NULL;
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == left);
    for (unsigned i = 0; i < MAILBOXES; i++)
        if (mailboxes[i].object != NULL)
            check_and_free(mailboxes[i].object, mailboxes[i].bytes, &errors);
    EXPECT(errors == 0);
    MAK_close();
    EXPECT(MAK_restart(folder) == MAK_OK);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    MAK_close();
}

static void *fill_up(void *context) {
    (void)context;
    void *object;
    for (unsigned i = 0; (object = MAK_malloc(48)) != NULL; i++)
        if (i % 3 == 0)
            MAK_free(object);
    return NULL;
}

static void test_threads_run_out_of_memory_together(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    run_threads(fill_up, THREADS);
    totals_of_region();
    fail_and_recover(folder);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == 0);
    MAK_close();
}

#if defined(MAK_WIDEN)
static void *freed_in_between[2];
static void *image_in_between;
static uint64_t image_bytes;

void mak_widen(void) {
    if (freed_in_between[0] == NULL) {
        sched_yield();
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        void *object = freed_in_between[i];
        freed_in_between[i] = NULL;
        MAK_free(object);
    }
    free(image_in_between);
    image_in_between = copy_region(&image_bytes);
}
#endif

static void *take_one_block_at_a_time(void *context) {
    uintptr_t failures = 0;
    (void)context;
    for (unsigned i = 0; i < 3000; i++) {
        char *object = MAK_malloc(4096);
        failures += object == NULL;
        if (object != NULL)
            object[4095] = 1;
        MAK_free(object);
    }
    return (void *)failures;
}

/* One chunk is left, with a block for each thread. While one cuts it (§6.2: under the lock of its freelist only) the others find
 * no chunk at all, and a block that is freed behind it finds no neighbour to join. */
static void test_a_chunk_that_is_being_cut_is_not_missed(void) {
    enum { BLOCKS = INITIAL / 4096 };
    static void *objects[BLOCKS];
    unsigned count = 0;
    char folder[128];
    start(folder, INITIAL, INITIAL);
    while (count < BLOCKS && (objects[count] = MAK_malloc(4096)) != NULL)
        count++;
    MAK_free(objects[count - 4]);
    MAK_free(objects[count - 3]);
#if defined(MAK_WIDEN)
    freed_in_between[0] = objects[count - 2];
    EXPECT(MAK_malloc(4096) == objects[count - 4] && MAK_check() == MAK_OK && MAK_malloc(2 * 4096) == objects[count - 3]);
    MAK_free(objects[count - 4]);
    MAK_free(objects[count - 3]);
#else
    MAK_free(objects[count - 2]);
#endif
    MAK_free(objects[count - 1]);
    run_threads(take_one_block_at_a_time, THREADS);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == count - THREADS);
    EXPECT(MAK_malloc(THREADS * 4096) == objects[count - THREADS]);
    MAK_close();
}

#if defined(MAK_WIDEN)
/* Blocks on both sides of a claimed chunk are freed and find no neighbour to join; then power fails. */
static void test_recovery_joins_what_a_claimed_chunk_kept_apart(void) {
    enum { BLOCKS = INITIAL / 4096 };
    static void *objects[BLOCKS];
    unsigned count = 0;
    char folder[128];
    start(folder, INITIAL, INITIAL);
    for (; count < BLOCKS && (objects[count] = MAK_malloc(4096)) != NULL; count++)
        MAK_set_root(count, objects[count]);
    for (unsigned i = count - 4; i < count - 1; i++)
        MAK_set_root(i, NULL);
    MAK_free(objects[count - 3]);
    freed_in_between[0] = objects[count - 4];
    freed_in_between[1] = objects[count - 2];
    EXPECT(MAK_malloc(4096) == objects[count - 3] && MAK_check() == MAK_OK);
    fail_at_and_start_off(folder, image_in_between, image_bytes);
    image_in_between = NULL;
    EXPECT(MAK_collect() == MAK_OK);
    struct totals totals = totals_of_region();
    EXPECT(totals.parts[MAK_PART_ALLOCATED] == count - 3);
    EXPECT(totals.parts[MAK_PART_FREE] == 1 && totals.bytes[MAK_PART_FREE] == 3 * 4096);
    EXPECT(MAK_restart_in_place() == MAK_OK && MAK_malloc(3 * 4096) == objects[count - 4]);
    EXPECT(MAK_check() == MAK_OK);
    MAK_close();
}
#endif

/* What the adapter adds to the library: slots, locations, collect. */
static void write_pattern(void *context, void *object, uint64_t from, uint64_t bytes) {
    memset((char *)object + from, *(const char *)context, bytes);
}

static void test_the_adapter_collects_and_locates(void) {
    const struct fl_adapter *adapter = faultline_adapter();
    char folder[128];
    snprintf(folder, 128, "%s", new_folder());
    struct fl_heap_options options = {folder, INITIAL, LIMIT, 32, 0, ADDRESS, 0, 0};
    fl_heap *heap;
    struct fl_location first, second;
    EXPECT(adapter->create(&options, &heap) == FL_OK);
    EXPECT(adapter->allocate(heap, 0, 64, write_pattern, "a") == FL_OK &&
           adapter->allocate(heap, 1, 600, write_pattern, "b") == FL_OK);
    EXPECT(adapter->read_slot(heap, 0, &first) == FL_OK && adapter->read_slot(heap, 1, &second) == FL_OK);
    EXPECT(adapter->free(heap, 5) == FL_ERROR && adapter->allocate(heap, 0, 64, write_pattern, "a") == FL_ERROR);
    EXPECT(adapter->reallocate(heap, 0, 64, 128, write_pattern, "c") == FL_OK);
    EXPECT(adapter->collect(heap) == FL_OK && adapter->check(heap) == FL_OK);
    struct fl_block block;
    EXPECT(adapter->bounds(heap, &second, &block) == FL_OK && block.state == FL_BLOCK_ALLOCATED && block.bytes == 608);
    EXPECT(adapter->bounds(heap, &first, &block) == FL_OK && block.state == FL_BLOCK_FREE);
    uint64_t inside = (uint64_t)(uintptr_t)MAK_base() + second.offset + 607;
    struct fl_location target;
    EXPECT(adapter->word_target(heap, inside, &target) == FL_OK && target.is_set && target.offset == second.offset);
    EXPECT(adapter->word_target(heap, inside + LIMIT, &target) == FL_OK && !target.is_set);
    EXPECT(adapter->close(heap) == FL_OK && adapter->open(&options, &heap) == FL_OK);
    EXPECT(adapter->free(heap, 0) == FL_OK && adapter->free(heap, 1) == FL_OK && adapter->thread_detach(heap) == FL_OK);
    EXPECT(adapter->check(heap) == FL_OK && adapter->close(heap) == FL_OK);
}

/* The heap's file stays as it is, byte for byte, and one line says why. */
static void expect_open_fails(const struct fl_heap_options *options, int status, const char *why) {
    const struct fl_adapter *adapter = faultline_adapter();
    uint64_t bytes, bytes_after;
    char *before = read_file(file_of(options->folder), &bytes);
    fl_heap *heap;
    EXPECT(adapter->open(options, &heap) == status);
    EXPECT(strstr(adapter->message(), why) != NULL && strchr(adapter->message(), '\n') == NULL);
    char *after = read_file(file_of(options->folder), &bytes_after);
    EXPECT(bytes == bytes_after && memcmp(before, after, bytes) == 0);
    free(before);
    free(after);
}

static void test_the_adapter_refuses_what_is_no_heap_of_its_own(void) {
    const struct fl_adapter *adapter = faultline_adapter();
    struct fl_heap_options options = {strdup(new_folder()), INITIAL, LIMIT, 32, 0, ADDRESS, 0, 0};
    fl_heap *heap;
    uint64_t bytes, word;
    EXPECT(adapter->create(&options, &heap) == FL_OK && adapter->allocate(heap, 0, 64, write_pattern, "a") == FL_OK &&
           adapter->close(heap) == FL_OK);
    char *image = read_file(file_of(options.folder), &bytes);
    void *taken = mmap((void *)(ADDRESS + LIMIT / 2), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    expect_open_fails(&options, FL_ERROR, "something else is mapped there");
    munmap(taken, 4096);
    options.slot_count = 33;
    expect_open_fails(&options, FL_ERROR, "another number of slots");
    options.slot_count = 32;
    memcpy(&word, image + MAK_ROOTS_OFFSET, 8); /* the slots, as create leaves them when power fails before they are persisted */
    uint64_t *count = (uint64_t *)(image + word - ADDRESS), whole = *count;
    *count = 0;
    write_file(file_of(options.folder), image, bytes);
    expect_open_fails(&options, FL_NOT_A_HEAP, "creation was not completed");
    *count = whole;
    uint64_t slots = word, nowhere = ADDRESS + bytes - 16;
    memcpy(image + MAK_ROOTS_OFFSET, &nowhere, 8);
    write_file(file_of(options.folder), image, bytes);
    expect_open_fails(&options, FL_CORRUPT, "root 0 of the region refers to no object");
    memcpy(image + MAK_ROOTS_OFFSET, &slots, 8);
    write_file(file_of(options.folder), image, bytes / 2);
    expect_open_fails(&options, FL_CORRUPT, "was it truncated?");
    write_file(file_of(options.folder), image, 1000);
    expect_open_fails(&options, FL_NOT_A_HEAP, "too short for a region");
    write_file(file_of(options.folder), "", 0);
    expect_open_fails(&options, FL_NOT_A_HEAP, "too short for a region");
    memcpy(&word, image + offsetof(struct mak_base, format), 8);
    word++;
    memcpy(image + offsetof(struct mak_base, format), &word, 8);
    write_file(file_of(options.folder), image, bytes);
    expect_open_fails(&options, FL_CORRUPT, "has format");
    memcpy(image, "\x46\x4e\x56\x4d\x4c\x4d\x43\x31", 8); /* of another allocator */
    write_file(file_of(options.folder), image, bytes);
    expect_open_fails(&options, FL_NOT_A_HEAP, "holds no region");
    EXPECT(adapter->create(&options, &heap) == FL_ERROR && strstr(adapter->message(), "exists already") != NULL);
    free(image);
    free((char *)options.folder);
}

/* Clean, but the header map leads astray: found before anything follows it. */
static void test_a_header_map_that_leads_nowhere_is_found(void) {
    char folder[128];
    start(folder, INITIAL, LIMIT);
    MAK_set_root(0, MAK_malloc(20000));
    MAK_close();
    uint64_t bytes, bottoms = MAK_MAP_OFFSET + mak_map_top_bytes(LIMIT);
    char *image = read_file(file_of(folder), &bytes);
    uint64_t tops[] = {8, ADDRESS + bottoms + 8, ADDRESS + bottoms + LIMIT, 0};
    for (unsigned i = 0; i < 4; i++)
        expect_refusal(folder, image, bytes, MAK_MAP_OFFSET, tops[i], MAK_CORRUPT);
    uint64_t first = mak_first_space_offset(LIMIT) / 4096 + mak_space_bytes(LIMIT) / 4096;
    expect_refusal(folder, image, bytes, bottoms + first % MAK_MAP_BOTTOM * 8, ADDRESS, MAK_CORRUPT);
    expect_refusal(folder, image, bytes, bottoms + first % MAK_MAP_BOTTOM * 8, ADDRESS + bytes - 8, MAK_CORRUPT);
    EXPECT(MAK_start_off(folder) == MAK_OK && MAK_collect() == MAK_OK && MAK_check() == MAK_OK && MAK_close() == MAK_OK);
    free(image);
}

/* With -v each test's name is printed before it begins. */
#define RUN(call)                                                                                                                  \
    do {                                                                                                                           \
        if (count > 1)                                                                                                             \
            fprintf(stderr, "%s\n", #call);                                                                                        \
        call;                                                                                                                      \
    } while (0)

int main(int count, char **arguments) {
    (void)arguments;
    begin_tests("makalu");
    RUN(test_what_is_closed_can_be_restarted());
    RUN(test_a_failure_before_the_first_call_harms_nothing());
    RUN(test_bad_input_is_refused_and_left_alone());
    RUN(test_a_header_that_contradicts_the_heap_is_found());
    RUN(test_objects_of_every_size_are_apart());
    RUN(test_freelists_are_truncated());
    RUN(test_realloc_and_calloc());
    RUN(test_deferred_free());
    RUN(test_out_of_memory_and_back());
    RUN(test_too_few_free_objects_for_a_sweep_still_count());
    RUN(test_the_heap_grows_to_its_limit());
    RUN(test_a_file_system_without_room_takes_nothing());
    RUN(test_a_surplus_of_the_file_is_used());
    RUN(test_what_roots_reach_survives());
    RUN(test_recovery_does_not_depend_on_auxiliary_metadata());
    RUN(test_a_long_chain_is_marked());
    RUN(test_random_graphs(6, 4000));
    RUN(test_threads_free_each_others_objects());
    RUN(test_threads_run_out_of_memory_together());
    RUN(test_a_chunk_that_is_being_cut_is_not_missed());
#if defined(MAK_WIDEN)
    RUN(test_recovery_joins_what_a_claimed_chunk_kept_apart());
#endif
    RUN(test_the_adapter_collects_and_locates());
    RUN(test_the_adapter_refuses_what_is_no_heap_of_its_own());
    RUN(test_a_header_map_that_leads_nowhere_is_found());
    return end_tests();
}
