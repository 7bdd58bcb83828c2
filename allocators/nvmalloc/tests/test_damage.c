/* SPDX-License-Identifier: Apache-2.0
 *
 * test_damage.c - stray writes (§3.2): what hits a header is found, told, and costs the heap blocks it touches and no other.
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Isrc -I../testing -I../../include src/?*.c tests/test_damage.c -pthread \
 *         -o /tmp/test_damage && /tmp/test_damage
 *
 * In the folder of the allocator. The exhaustive part turns every bit of every header field of a small heap, one at a time: size,
 * state and checksum of each block (64 bits), timestamp and link of each free one (64 more), magic and root of both root lines
 * (128 each), and the word that ends the chain (64). It prints how many.
 */
#include <time.h>

#include "common.h"

enum { OBJECTS = 24, MOST_BLOCKS = 64 };

struct object {
    uint64_t offset, bytes; /* offset 0: was freed */
};

/* A closed heap with everything in it: allocated blocks of several sizes, some with old headers inside; free ones that wait, that do
 * not, and that are what others left; regions of several blocks. */
struct sample {
    char folder[128];
    struct nvmalloc_options options;
    struct told told;
    struct object objects[OBJECTS];
    uint32_t root;
    char *image;
    uint64_t image_bytes;
    uint32_t blocks[MOST_BLOCKS], block_count; /* their lines */
    struct nvmalloc_counts counts;
};

static void sample_allocate(struct sample *sample, struct nvmalloc_heap *heap, unsigned index, uint64_t bytes) {
    void *object = allocate(heap, bytes);
    EXPECT(object != NULL);
    sample->objects[index] = (struct object){nvmalloc_heap_offset(heap, object), bytes};
}

static void sample_free(struct sample *sample, struct nvmalloc_heap *heap, unsigned index) {
    EXPECT(nvmalloc_heap_free(heap, nvmalloc_heap_address(heap, sample->objects[index].offset)) == NVMALLOC_OK);
    sample->objects[index].offset = 0;
}

/* Content is written at the end, and leaves the old headers of the lines' earlier blocks alone: the first 16 bytes of each line. */
static void sample_fill(struct sample *sample, struct nvmalloc_heap *heap, bool is_check) {
    for (unsigned i = 0; i < OBJECTS; i++) {
        const struct object *object = &sample->objects[i];
        for (uint64_t at = 0; object->offset != 0 && at < object->bytes; at++) {
            uint8_t *byte = (uint8_t *)nvmalloc_heap_address(heap, object->offset + at);
            if ((object->offset + at) % 64 < 16)
                continue;
            if (is_check && *byte != (uint8_t)(i * 7 + at))
                EXPECT(!"content of a live object is as it was");
            *byte = (uint8_t)(i * 7 + at);
        }
    }
}

static void note_blocks(struct sample *sample, const struct nvmalloc_heap *heap) {
    for (uint32_t line = NVMALLOC_FIRST_LINE; line < heap->top; line = nvmalloc_block_end(heap, line))
        sample->blocks[sample->block_count++] = line;
}

static void make_sample(struct sample *sample) {
    memset(sample, 0, sizeof *sample);
    snprintf(sample->folder, sizeof sample->folder, "%s", new_folder());
    sample->options = options_of(sample->folder, 3, &sample->told);
    sample->options.limit_bytes = 32 * KIB;
    struct nvmalloc_heap *heap = create(&sample->options);
    static const uint64_t sizes[] = {48, 40, 500, 48, 1000, 48, 112, 700, 48, 48, 48, 600, 48, 2000};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        sample_allocate(sample, heap, i, sizes[i]);
    static const unsigned freed[] = {1, 2, 4, 6, 8, 9, 11};
    for (unsigned i = 0; i < sizeof freed / sizeof freed[0]; i++)
        sample_free(sample, heap, freed[i]);
    for (unsigned i = 14; i < 17; i++)
        sample_allocate(sample, heap, i, 1200); /* time passes */
    sample_allocate(sample, heap, 17, 170); /* covers old headers, leaves a remainder */
    sample_allocate(sample, heap, 18, 230); /* behind the old header that reaches over it */
    sample_allocate(sample, heap, 19, 48);
    sample_allocate(sample, heap, 20, 600);
    sample_free(sample, heap, 7);
    sample_free(sample, heap, 15);
    sample_free(sample, heap, 0);
    sample_fill(sample, heap, false);
    EXPECT(nvmalloc_heap_set_root(heap, nvmalloc_heap_address(heap, sample->objects[13].offset)) == NVMALLOC_OK);
    nvmalloc_heap_close(heap);
    heap = open_heap(&sample->options);
    EXPECT(heap != NULL && sample->told.count == 0 && nvmalloc_heap_bytes(heap) > (uint64_t)heap->top * 64);
    note_blocks(sample, heap);
    sample->counts = counts_of(heap);
    EXPECT(sample->counts.waiting_blocks >= 2 && sample->counts.free_bytes > 0);
    nvmalloc_heap_close(heap);
    sample->image = read_file(file_of(sample->folder), &sample->image_bytes);
}

static uint32_t block_lines(const struct sample *sample, uint32_t line) {
    return nvmalloc_word_lines(((const struct nvmalloc_line *)sample->image)[line].header.word);
}

static enum nvmalloc_state block_state(const struct sample *sample, uint32_t line) {
    return nvmalloc_word_state(((const struct nvmalloc_line *)sample->image)[line].header.word);
}

/* Opens the sample as it is in image now; told is empty before. */
static struct nvmalloc_heap *open_image(struct sample *sample) {
    write_file(file_of(sample->folder), sample->image, sample->image_bytes);
    sample->told.count = 0;
    return open_heap(&sample->options);
}

/* Allocates all there is and overwrites it: what is live must stay as it was. */
static void drain(struct sample *sample, struct nvmalloc_heap *heap) {
    for (uint64_t lines = 256; lines > 0; lines /= 2)
        for (void *object; (object = allocate(heap, lines * 64 - 16)) != NULL;)
            memset(object, 0xff, lines * 64 - 16);
    sample_fill(sample, heap, true);
}

static void expect_live(const struct sample *sample, struct nvmalloc_heap *heap, uint32_t damaged) {
    for (unsigned i = 0; i < OBJECTS; i++) {
        const struct object *object = &sample->objects[i];
        if (object->offset != 0 && object->offset / 64 != damaged)
            EXPECT(nvmalloc_heap_usable_bytes(heap, nvmalloc_heap_address(heap, object->offset)) >= object->bytes);
    }
}

/* The block at this line is damaged, and no other. */
static void expect_isolated(struct sample *sample, struct nvmalloc_heap *heap, uint32_t line, uint32_t lines) {
    const struct told *told = &sample->told;
    EXPECT(told->count == 1 && told->last.place == NVMALLOC_DAMAGE_SCAN && told->last.offset == line * 64);
    EXPECT(told->last.bytes >= 64 && told->last.bytes <= lines * 64);
    struct nvmalloc_counts counts = counts_of(heap);
    EXPECT(counts.damaged_blocks == 1 && counts.damaged_bytes == told->last.bytes);
    uint64_t lost = lines * 64, free_before = sample->counts.free_bytes + sample->counts.waiting_bytes;
    EXPECT(counts.allocated_bytes + counts.waiting_bytes + counts.free_bytes + lost >=
           sample->counts.allocated_bytes + free_before);
    expect_live(sample, heap, line);
    totals_of(heap);
}

/* ---- one bit ---- */

static void try_header_bit(struct sample *sample, uint32_t line, unsigned bit) {
    uint8_t *byte = (uint8_t *)sample->image + (uint64_t)line * 64 + bit / 8;
    uint32_t lines = block_lines(sample, line);
    struct object *hit = NULL;
    for (unsigned i = 0; i < OBJECTS; i++)
        if (sample->objects[i].offset == (uint64_t)line * 64 + 16)
            hit = &sample->objects[i];
    struct object saved = hit == NULL ? (struct object){0} : *hit;
    *byte ^= (uint8_t)(1 << bit % 8);
    struct nvmalloc_heap *heap = open_image(sample);
    *byte ^= (uint8_t)(1 << bit % 8);
    EXPECT(heap != NULL);
    if (heap == NULL)
        return;
    expect_isolated(sample, heap, line, lines);
    EXPECT(nvmalloc_heap_root(heap) == nvmalloc_heap_address(heap, sample->objects[13].offset));
    if (hit != NULL)
        hit->offset = 0; /* its content may be overwritten */
    drain(sample, heap);
    nvmalloc_heap_close(heap);
    sample->told.count = 0;
    heap = open_heap(&sample->options); /* marked: nothing new is found */
    EXPECT(heap != NULL && sample->told.count == 0 && counts_of(heap).damaged_blocks == 1);
    EXPECT(nvmalloc_heap_free(heap, (char *)&heap->lines[line] + 16) == NVMALLOC_OK && counts_of(heap).damaged_blocks == 0);
    totals_of(heap);
    nvmalloc_heap_close(heap);
    if (hit != NULL)
        *hit = saved;
}

static void try_root_bit(struct sample *sample, uint32_t copy, unsigned bit) {
    uint8_t *byte = (uint8_t *)sample->image + (uint64_t)copy * 64 + bit / 8;
    *byte ^= (uint8_t)(1 << bit % 8);
    for (int turn = 0; turn < 2; turn++) {
        struct nvmalloc_heap *heap = turn == 0 ? open_image(sample) : open_heap(&sample->options);
        EXPECT(heap != NULL && sample->told.count == 1 && sample->told.last.place == NVMALLOC_DAMAGE_ROOT);
        EXPECT(sample->told.last.offset == copy * 64 && sample->told.last.bytes == 64);
        EXPECT(nvmalloc_heap_root(heap) == nvmalloc_heap_address(heap, sample->objects[13].offset));
        expect_live(sample, heap, 0);
        nvmalloc_heap_close(heap);
    }
    *byte ^= (uint8_t)(1 << bit % 8);
}

static void try_end_bit(struct sample *sample, uint32_t top, unsigned bit) {
    uint8_t *byte = (uint8_t *)sample->image + (uint64_t)top * 64 + bit / 8;
    *byte ^= (uint8_t)(1 << bit % 8);
    struct nvmalloc_heap *heap = open_image(sample);
    EXPECT(heap != NULL && sample->told.count == 1 && sample->told.last.offset == top * 64 && sample->told.last.bytes == 64);
    expect_live(sample, heap, 0);
    drain(sample, heap);
    nvmalloc_heap_close(heap);
    *byte ^= (uint8_t)(1 << bit % 8);
}

static void every_turned_bit_is_found_and_costs_one_block(void) {
    struct sample sample;
    make_sample(&sample);
    uint64_t flips = 0;
    uint32_t free_blocks = 0;
    for (uint32_t i = 0; i < sample.block_count; i++) {
        bool is_free = block_state(&sample, sample.blocks[i]) == NVMALLOC_FREE;
        free_blocks += is_free;
        for (unsigned bit = 0; bit < (is_free ? 128 : 64); bit++, flips++)
            try_header_bit(&sample, sample.blocks[i], bit);
    }
    for (uint32_t copy = 0; copy < NVMALLOC_ROOT_LINES; copy++)
        for (unsigned bit = 0; bit < 128; bit++, flips++)
            try_root_bit(&sample, copy, bit);
    uint32_t top = sample.blocks[sample.block_count - 1] + block_lines(&sample, sample.blocks[sample.block_count - 1]);
    for (unsigned bit = 0; bit < 64; bit++, flips++)
        try_end_bit(&sample, top, bit);
    printf("%llu flips tried: 64 bits of %u allocated headers, 128 of %u free ones, 128 of 2 root lines, 64 of the chain's end\n",
           (unsigned long long)flips, sample.block_count - free_blocks, free_blocks);
    EXPECT(flips == 64 * (sample.block_count - free_blocks) + 128 * (free_blocks + 2) + 64 && free_blocks >= 6);
    free(sample.image);
}

/* ---- a root line ---- */

/* Zeros that a stray write left in the first root line are not "no root", and not "creation was cut short". */
static void zeros_over_a_root_line_are_damage(void) {
    struct sample sample;
    make_sample(&sample);
    struct nvmalloc_line *lines = (struct nvmalloc_line *)sample.image;
    static const unsigned from[] = {0, 0, 8};
    for (unsigned i = 0; i < 3; i++) {
        struct nvmalloc_line saved = lines[0];
        memset((char *)&lines[0] + from[i], 0, i == 1 ? 8 : 64 - from[i]);
        struct nvmalloc_heap *heap = open_image(&sample);
        lines[0] = saved;
        EXPECT(heap != NULL && sample.told.count >= 1 && sample.told.last.place == NVMALLOC_DAMAGE_ROOT);
        EXPECT(sample.told.last.offset == 0 && sample.told.last.bytes == 64);
        EXPECT(nvmalloc_heap_root(heap) == nvmalloc_heap_address(heap, sample.objects[13].offset));
        nvmalloc_heap_close(heap);
        sample.told.count = 0;
        heap = open_heap(&sample.options);
        EXPECT(heap != NULL && sample.told.count == 0 && nvmalloc_heap_set_root(heap, NULL) == NVMALLOC_OK);
        nvmalloc_heap_close(heap);
        heap = open_heap(&sample.options);
        EXPECT(heap != NULL && sample.told.count == 0 && nvmalloc_heap_root(heap) == NULL);
        nvmalloc_heap_close(heap);
    }
    free(sample.image);
}

/* ---- the one bit between two states that cover different words ---- */

/* The timestamp with which a free block at this line has the checksum of a damaged one: CRC32C run backwards over the wait word. */
static uint32_t timestamp_that_collides(uint32_t line, uint32_t lines) {
    uint32_t crc = nvmalloc_word_checksum(nvmalloc_make_word(line, lines, NVMALLOC_DAMAGED, 0));
    for (int bit = 0; bit < 64; bit++)
        crc = (crc & 0x80000000u) != 0 ? (crc ^ 0x82f63b78u) << 1 | 1 : crc << 1;
    return crc ^ nvmalloc_crc32c(nvmalloc_crc32c(~0u, nvmalloc_word(0, lines, NVMALLOC_FREE)), line);
}

static void no_timestamp_makes_a_free_block_look_damaged(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 0, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *object = allocate(heap, 100);
    EXPECT(allocate(heap, 48) != NULL && nvmalloc_heap_free(heap, object) == NVMALLOC_OK);
    struct nvmalloc_header *header = (struct nvmalloc_header *)object - 1;
    uint32_t line = (uint32_t)(nvmalloc_heap_offset(heap, object) / 64);
    header->wait = nvmalloc_wait_word(timestamp_that_collides(line, 2), 0);
    header->word = nvmalloc_make_word(line, 2, NVMALLOC_FREE, header->wait);
    uint64_t damaged = nvmalloc_make_word(line, 2, NVMALLOC_DAMAGED, 0);
    EXPECT((header->word ^ damaged) == (uint64_t)1 << 62 && nvmalloc_is_correct(heap, line));
    header->word = damaged;
    nvmalloc_heap_close(heap);
    heap = open_heap(&options);
    EXPECT(heap != NULL && told.count == 1 && told.last.bytes == 128 && counts_of(heap).damaged_blocks == 1);
    nvmalloc_heap_close(heap);
}

/* ---- more than a bit ---- */

/* Any two bits of the word, and garbage over header and beginning of the object. */
static void larger_damage_costs_one_block_too(void) {
    struct sample sample;
    make_sample(&sample);
    struct nvmalloc_line *lines = (struct nvmalloc_line *)sample.image;
    uint64_t random = 1;
    for (unsigned i = 0; i < 600; i++) {
        uint32_t line = sample.blocks[next_random(&random) % sample.block_count], count = block_lines(&sample, line);
        struct nvmalloc_line saved = lines[line];
        unsigned first = (unsigned)(next_random(&random) % 64), second = (unsigned)(next_random(&random) % 63);
        if (i % 3 == 0)
            lines[line].header.word ^= (uint64_t)1 << first | (uint64_t)1 << (first + 1 + second) % 64;
        else if (i % 3 == 1)
            lines[line].header.word = next_random(&random);
        else
            memset(&lines[line], (int)(i / 3), sizeof lines[line]);
        struct nvmalloc_heap *heap = lines[line].header.word == 0 && i % 3 == 2 ? NULL : open_image(&sample);
        lines[line] = saved;
        if (heap == NULL)
            continue;
        EXPECT(sample.told.count == 1);
        expect_isolated(&sample, heap, line, count);
        nvmalloc_heap_close(heap);
    }
    free(sample.image);
}

/* A header of zeros is not the chain's end while there is something behind it. */
static void zeros_over_a_header_are_damage(void) {
    struct sample sample;
    make_sample(&sample);
    struct nvmalloc_line *lines = (struct nvmalloc_line *)sample.image;
    for (uint32_t i = 0; i + 1 < sample.block_count; i++) {
        uint32_t line = sample.blocks[i];
        struct nvmalloc_line saved = lines[line];
        uint32_t count = block_lines(&sample, line);
        memset(&lines[line], 0, i % 2 == 0 ? sizeof lines[line] : 16);
        struct nvmalloc_heap *heap = open_image(&sample);
        lines[line] = saved;
        EXPECT(heap != NULL);
        expect_isolated(&sample, heap, line, count);
        nvmalloc_heap_close(heap);
    }
    free(sample.image);
}

/* Two neighbours at once: both are lost, and nothing else. */
static void damage_to_neighbours_costs_these(void) {
    struct sample sample;
    make_sample(&sample);
    struct nvmalloc_line *lines = (struct nvmalloc_line *)sample.image;
    for (uint32_t i = 0; i + 1 < sample.block_count; i++) {
        uint32_t first = sample.blocks[i], second = sample.blocks[i + 1];
        uint32_t count = block_lines(&sample, first) + block_lines(&sample, second);
        lines[first].header.word ^= 1;
        lines[second].header.word ^= (uint64_t)1 << 40;
        struct nvmalloc_heap *heap = open_image(&sample);
        lines[first].header.word ^= 1;
        lines[second].header.word ^= (uint64_t)1 << 40;
        EXPECT(heap != NULL && sample.told.count >= 1 && sample.told.count <= 2);
        EXPECT(counts_of(heap).damaged_bytes <= count * 64);
        for (unsigned object = 0; object < OBJECTS; object++) {
            uint64_t offset = sample.objects[object].offset;
            if (offset != 0 && offset / 64 != first && offset / 64 != second)
                EXPECT(nvmalloc_heap_usable_bytes(heap, nvmalloc_heap_address(heap, offset)) >= sample.objects[object].bytes);
        }
        nvmalloc_heap_close(heap);
    }
    free(sample.image);
}

/* Position is part of the checksum: a block that was copied over another one, header and all, is found. */
static void a_copied_block_is_found(void) {
    struct sample sample;
    make_sample(&sample);
    struct nvmalloc_line *lines = (struct nvmalloc_line *)sample.image;
    uint32_t from = (uint32_t)(sample.objects[3].offset / 64), to = (uint32_t)(sample.objects[5].offset / 64);
    struct nvmalloc_line saved = lines[to];
    EXPECT(block_lines(&sample, from) == 1 && block_lines(&sample, to) == 1);
    lines[to] = lines[from];
    struct nvmalloc_heap *heap = open_image(&sample);
    lines[to] = saved;
    EXPECT(heap != NULL);
    expect_isolated(&sample, heap, to, 1);
    nvmalloc_heap_close(heap);
    free(sample.image);
}

/* An old free header inside a damaged block, which says a size that reaches over a live one. */
static void old_headers_cost_no_live_block(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 0, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *first = allocate(heap, 48), *old = allocate(heap, 600), *guard = allocate(heap, 48);
    nvmalloc_heap_free(heap, first);
    nvmalloc_heap_free(heap, old);
    EXPECT(allocate(heap, 170) == first); /* three lines; the old header is in the second one, and says ten */
    char *live = allocate(heap, 200);
    EXPECT(live == first + 3 * 64);
    fill(live, 1, 200);
    fill(guard, 2, 48);
    ((uint64_t *)first)[-2] ^= 1;
    nvmalloc_heap_close(heap);
    heap = open_heap(&options);
    EXPECT(heap != NULL && told.count == 1 && nvmalloc_heap_offset(heap, first) - 16 == told.last.offset);
    EXPECT(told.last.bytes == 3 * 64 && counts_of(heap).allocated_blocks == 2);
    for (void *object; (object = allocate(heap, 48)) != NULL;)
        memset(object, 0xff, 48);
    EXPECT(is_filled(live, 1, 200) && is_filled(guard, 2, 48));
    nvmalloc_heap_close(heap);
}

/* ---- while the heap is open ---- */

static void damage_is_found_on_free_and_on_allocate(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 0, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *objects[8];
    for (unsigned i = 0; i < 8; i++)
        objects[i] = allocate(heap, 100);
    ((uint64_t *)objects[1])[-2] ^= (uint64_t)1 << 33;
    EXPECT(nvmalloc_heap_free(heap, objects[1]) == NVMALLOC_CORRUPT && told.count == 1);
    EXPECT(told.last.place == NVMALLOC_DAMAGE_FREE && told.last.bytes == 128);
    nvmalloc_heap_free(heap, objects[3]);
    nvmalloc_heap_free(heap, objects[4]);
    ((uint64_t *)objects[3])[-2] ^= 1;
    EXPECT(allocate(heap, 220) > (void *)objects[7]); /* not over the damaged header */
    EXPECT(told.count == 2 && told.last.place == NVMALLOC_DAMAGE_ALLOCATE && told.last.bytes == 128);
    EXPECT(allocate(heap, 100) == objects[4]);
    EXPECT(counts_of(heap).damaged_bytes == 256);
    totals_of(heap);
    EXPECT(nvmalloc_heap_free(heap, objects[1]) == NVMALLOC_OK); /* of no use any more: given back */
    EXPECT(allocate(heap, 100) == objects[1]);
    heap->lines[heap->top + 3].header.word = 77; /* never was part of a block */
    char *last = allocate(heap, 3 * 64 - 16);
    EXPECT(last != NULL && told.count == 3 && told.last.place == NVMALLOC_DAMAGE_UNFORMATTED);
    totals_of(heap);
    nvmalloc_heap_close(heap);
    heap = open_heap(&options);
    EXPECT(heap != NULL && told.count == 3);
    nvmalloc_heap_close(heap);
}

static void damage_to_a_waiting_block_costs_that_block(void) {
    for (unsigned hit = 0; hit < 5; hit++) {
        struct told told = {0};
        struct nvmalloc_options options = options_of(new_folder(), 12, &told);
        struct nvmalloc_heap *heap = create(&options);
        char *objects[10];
        for (unsigned i = 0; i < 10; i++)
            objects[i] = allocate(heap, 40);
        for (unsigned i = 0; i < 10; i += 2)
            nvmalloc_heap_free(heap, objects[i]);
        ((uint64_t *)objects[2 * hit])[-1] ^= (uint64_t)1 << 40; /* the link */
        bool is_again[5] = {false};
        for (unsigned i = 0; i < 40; i++) {
            void *object = allocate(heap, 40);
            for (unsigned j = 0; j < 5; j++)
                is_again[j] |= object == objects[2 * j];
        }
        for (unsigned j = 0; j < 5; j++)
            EXPECT(is_again[j] == (j != hit));
        EXPECT(told.count == 1 && told.last.place == NVMALLOC_DAMAGE_ALLOCATE && told.last.bytes == 64);
        totals_of(heap);
        nvmalloc_heap_close(heap);
    }
}

/* A waiting block that is damaged and freed a second time leaves the list: giving its bytes back makes it wait once, not link to itself. */
static void damage_to_a_waiting_block_found_on_free_is_given_back_once(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 4, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *objects[4];
    for (unsigned i = 0; i < 4; i++)
        objects[i] = allocate(heap, 40);
    nvmalloc_heap_free(heap, objects[0]);
    nvmalloc_heap_free(heap, objects[2]); /* the newest one: the next one freed is linked to it */
    ((uint64_t *)objects[2])[-2] ^= 1;
    EXPECT(nvmalloc_heap_free(heap, objects[2]) == NVMALLOC_CORRUPT && told.count == 1 && counts_of(heap).waiting_blocks == 1);
    EXPECT(nvmalloc_heap_free(heap, objects[2]) == NVMALLOC_OK && counts_of(heap).waiting_blocks == 2);
    unsigned again[2] = {0};
    for (unsigned i = 0; i < 40; i++) {
        void *object = allocate(heap, 40);
        again[0] += object == objects[0];
        again[1] += object == objects[2];
    }
    EXPECT(again[0] == 1 && again[1] == 1 && told.count == 1);
    totals_of(heap);
    nvmalloc_heap_close(heap);
}

/* The damaged block is as large as the heap, and of zeros but for its end: the scan reads it once, not once a line (minutes). */
static void damage_to_a_large_block_is_found_quickly(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 0, &told);
    options.limit_bytes = 48 * 1024 * KIB;
    struct nvmalloc_heap *heap = create(&options);
    uint64_t bytes = 32 * 1024 * KIB;
    char *large = allocate(heap, bytes), *last = allocate(heap, 48);
    EXPECT(large != NULL && last != NULL);
    ((uint64_t *)large)[-2] ^= 1;
    nvmalloc_heap_close(heap);
    struct timespec begun, ended;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
    heap = open_heap(&options);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    EXPECT(ended.tv_sec - begun.tv_sec < 10);
    EXPECT(heap != NULL && told.count == 1 && told.last.bytes == bytes + 64 && counts_of(heap).allocated_blocks == 1);
    nvmalloc_heap_close(heap);
}

/* Volatile structures may be wrong: what has a checksum is believed. */
static void a_wrong_bitmap_costs_no_live_block(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 0, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *live = allocate(heap, 100), *next = allocate(heap, 100);
    fill(live, 1, 100);
    uint32_t line = (uint32_t)(nvmalloc_heap_offset(heap, live) / 64);
    bits_clear_range(heap->used, line, line + 2);
    nvmalloc_add_hint(heap, line);
    EXPECT(allocate(heap, 100) > (void *)next && told.count == 0 && is_filled(live, 1, 100));
    EXPECT(nvmalloc_heap_free(heap, live) == NVMALLOC_OK);
    nvmalloc_heap_close(heap);
}

/* An entry of the don't-allocate list that leads into a live block. */
static void a_wrong_list_costs_no_live_block(void) {
    struct told told = {0};
    struct nvmalloc_options options = options_of(new_folder(), 5, &told);
    struct nvmalloc_heap *heap = create(&options);
    char *live = allocate(heap, 300), *freed = allocate(heap, 100);
    fill(live, 1, 300);
    nvmalloc_heap_free(heap, freed);
    EXPECT(heap->waiting.batch_count == 1);
    heap->waiting.batch[0] = (uint32_t)(nvmalloc_heap_offset(heap, live) / 64) + 2;
    EXPECT(allocate(heap, 100) != NULL && told.count == 0 && is_filled(live, 1, 300));
    totals_of(heap);
    nvmalloc_heap_close(heap);
}

int main(void) {
    begin_tests("nvmalloc-damage");
    every_turned_bit_is_found_and_costs_one_block();
    no_timestamp_makes_a_free_block_look_damaged();
    zeros_over_a_root_line_are_damage();
    larger_damage_costs_one_block_too();
    zeros_over_a_header_are_damage();
    damage_to_neighbours_costs_these();
    a_copied_block_is_found();
    old_headers_cost_no_live_block();
    damage_is_found_on_free_and_on_allocate();
    damage_to_a_waiting_block_costs_that_block();
    damage_to_a_waiting_block_found_on_free_is_given_back_once();
    damage_to_a_large_block_is_found_quickly();
    a_wrong_bitmap_costs_no_live_block();
    a_wrong_list_costs_no_live_block();
    return end_tests();
}
