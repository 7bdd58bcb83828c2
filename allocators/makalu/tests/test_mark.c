/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mark.c - the parallel mark (§9.2) of random graphs against a reference that is neither parallel nor clever: it reads
 * media and headers only, one word after the other, and has a queue that never runs over. Built as test_makalu.c is; with the
 * small stacks, so that they run over, and without, so that threads share work; with -fsanitize=thread too.
 */
#include "common.h"

enum { OBJECTS = 3000, MARK_LIMIT = 16 << 20, BLOCKS = MARK_LIMIT / 4096, GRANULES = MARK_LIMIT / 16, LARGEST = 40 * 4096 };

/* ---- the reference ---- */

static struct {
    const struct mak_header *owner[BLOCKS]; /* of blocks in use */
    struct object {
        uint64_t start, bytes;
    } queue[GRANULES];
    uint32_t count;
    bool is_reached[GRANULES]; /* an object that begins in this granule */
} reference;

static uint64_t base_address(void) { return (uint64_t)(uintptr_t)MAK_base(); }

static void find_owners(void) {
    const struct mak_base *base = MAK_base();
    memset(&reference, 0, sizeof reference);
    for (uint32_t space = 0; space < base->header_space_count; space++) {
        const struct mak_header *headers = (const struct mak_header *)(uintptr_t)base->header_spaces[space];
        for (uint64_t i = 0; i < base->header_space_bytes / sizeof *headers; i++) {
            if (headers[i].hb_block == 0 || headers[i].hb_flag != MAK_IN_USE)
                continue;
            uint64_t bytes = headers[i].hb_sz <= 2048 ? 4096 : headers[i].hb_sz;
            for (uint64_t at = headers[i].hb_block; at < headers[i].hb_block + bytes; at += 4096)
                reference.owner[(at - base_address()) / 4096] = &headers[i];
        }
    }
}

/* Anything that lies in an object is a pointer to it. */
static void reach(uint64_t word) {
    if (word < base_address() || word >= base_address() + MARK_LIMIT)
        return;
    const struct mak_header *header = reference.owner[(word - base_address()) / 4096];
    if (header == NULL)
        return;
    uint64_t start = word - (word - header->hb_block) % header->hb_sz, bytes = header->hb_sz;
    if (bytes <= 2048 && start + bytes > header->hb_block + 4096) /* the tail of a block is no object */
        return;
    bool *is_reached = &reference.is_reached[(start - base_address()) / 16];
    if (!*is_reached)
        reference.queue[reference.count++] = (struct object){start, bytes};
    *is_reached = true;
}

static void compute_reference(void) {
    const uint64_t *roots = (const uint64_t *)((const char *)MAK_base() + MAK_ROOTS_OFFSET);
    find_owners();
    for (uint32_t root = 0; root < MAK_ROOTS; root++)
        reach(roots[root]);
    for (uint32_t at = 0; at < reference.count; at++)
        for (uint64_t offset = 0; offset < reference.queue[at].bytes; offset += 8)
            reach(*(const uint64_t *)(uintptr_t)(reference.queue[at].start + offset));
}

/* All of what was reached is allocated, and that is all. */
static void expect_reference(void) {
    bool is_there = true;
    for (uint32_t i = 0; i < reference.count; i++)
        is_there &= MAK_is_object((void *)(uintptr_t)reference.queue[i].start) != 0;
    EXPECT(is_there);
    EXPECT(totals_of_region().parts[MAK_PART_ALLOCATED] == reference.count);
}

/* ---- random graphs ---- */

static struct object objects[OBJECTS];

static uint64_t random_size(uint64_t choice) {
    if (choice % 40 == 0)
        return 4096 + choice / 64 % (LARGEST - 4096);
    return choice % 5 == 0 ? 401 + choice / 64 % 1648 : 1 + choice / 64 % 400;
}

/* To an object, into it, behind it; to what was freed; to anywhere in the region and outside; no pointer at all. */
static uint64_t random_word(uint64_t *random, uint32_t count) {
    uint64_t choice = next_random(random);
    const struct object *object = &objects[choice / 64 % count];
    switch (choice % 16) {
    case 0: return object->start + next_random(random) % object->bytes;
    case 1: return object->start + object->bytes;
    case 2: return base_address() + next_random(random) % (MARK_LIMIT + 65536);
    case 3: return next_random(random);
    default: return object->start;
    }
}

static void make_graph(uint64_t *random) {
    for (uint32_t i = 0; i < OBJECTS; i++) {
        uint64_t bytes = random_size(next_random(random));
        uint64_t *object = MAK_malloc(bytes);
        objects[i] = (struct object){(uint64_t)(uintptr_t)object, MAK_usable_bytes(object)};
        memset(object, 0, objects[i].bytes);
        for (uint32_t pointers = (uint32_t)(next_random(random) % 4); pointers > 0; pointers--)
            object[next_random(random) % (objects[i].bytes / 8)] = random_word(random, i + 1);
        if (i != 0 && next_random(random) % 8 == 0) /* a cycle, perhaps */
            *(uint64_t *)(uintptr_t)objects[next_random(random) % i].start = objects[i].start;
    }
    for (uint32_t i = 0; i < OBJECTS; i++)
        if (next_random(random) % 4 == 0)
            MAK_free((void *)(uintptr_t)objects[i].start); /* what points there is a stale word now */
    for (uint32_t i = 0; i < 12; i++)
        MAK_set_root((unsigned)(next_random(random) % MAK_ROOTS), (void *)(uintptr_t)random_word(random, OBJECTS));
}

static void test_the_mark_is_that_of_the_reference(uint64_t seed) {
    static const unsigned threads[] = {4, 1, 2, 3, 8};
    char folder[128];
    uint64_t random = seed;
    start(folder, INITIAL, MARK_LIMIT);
    make_graph(&random);
    fail_and_start_off(folder);
    compute_reference();
    EXPECT(reference.count > 50);
    for (unsigned i = 0; i < 5; i++) { /* the first one frees blocks; the others find the same again */
        MAK_set_mark_threads(threads[(i + seed) % 5]);
        EXPECT(MAK_collect() == MAK_OK);
        expect_reference();
    }
    MAK_set_mark_threads(0);
    MAK_close();
}

/* One pointer decides about all the rest: deep, and wide. */
static void test_a_chain_and_a_comb_are_marked(unsigned threads) {
    char folder[128];
    start(folder, INITIAL, MARK_LIMIT);
    uint64_t *chain = NULL, *comb = MAK_calloc(2000, 8);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t *node = MAK_calloc(1, 64);
        node[i % 8] = (uint64_t)(uintptr_t)chain;
        chain = node;
    }
    for (unsigned i = 0; i < 2000; i++)
        comb[i] = (uint64_t)(uintptr_t)MAK_calloc(1, 16 + i % 500);
    MAK_set_root(0, chain);
    MAK_set_root(511, comb);
    fail_and_start_off(folder);
    compute_reference();
    EXPECT(reference.count == 20000 + 2000 + 1);
    MAK_set_mark_threads(threads);
    EXPECT(MAK_collect() == MAK_OK);
    expect_reference();
    MAK_set_mark_threads(0);
    MAK_close();
}

int main(void) {
    begin_tests("makalu-mark");
    for (uint64_t seed = 1; seed <= 5; seed++)
        test_the_mark_is_that_of_the_reference(seed);
    test_a_chain_and_a_comb_are_marked(1);
    test_a_chain_and_a_comb_are_marked(4);
    return end_tests();
}
