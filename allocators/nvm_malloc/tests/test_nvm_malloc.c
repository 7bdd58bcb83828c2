/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nvm_malloc.c - unit tests. In the folder of the allocator:
 *
 *     gcc -std=gnu11 -D_GNU_SOURCE -DNVM_DEBUG=2 -O1 -g -Wall -Wextra -Werror -Isrc -I../testing -I../../include -I. src/?*.c \
 *         adapter*.c tests/test_nvm_malloc.c -pthread -o /tmp/test_nvm_malloc && /tmp/test_nvm_malloc
 *
 * and the same with -fsanitize=address,undefined -fno-sanitize-recover=all. Prints `N passed, M failed`; exit code 0 if M is 0.
 * With NVM_DEBUG=2 the whole heap is checked after every operation.
 */
#include "common.h"

#include "adapter.h"

/* ---- random operations against a model ---- */

enum { OBJECTS = 60 };

static void compare_with_model(struct nvm_heap *heap, const uint64_t *sizes, const uint64_t *seeds) {
    const uint64_t *roots = nvm_heap_get_id(heap, "roots");
    uint64_t live = 1;
    for (int i = 0; i < OBJECTS; i++) {
        EXPECT((roots[i] != 0) == (sizes[i] != 0));
        live += sizes[i] != 0;
        if (sizes[i] != 0)
            EXPECT(roots[i] % 64 == 0 && is_filled(nvm_heap_absolute(heap, roots[i]), seeds[i], sizes[i]));
    }
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == live);
}

static void random_operations_keep_every_object(uint64_t random) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create(folder, 6), *copy;
    uint64_t sizes[OBJECTS] = {0}, seeds[OBJECTS] = {0}, *roots = make_roots(heap, OBJECTS);
    for (int step = 0; step < 1500; step++) {
        int i = (int)(next_random(&random) % OBJECTS);
        if (roots[i] != 0) {
            EXPECT(is_filled(nvm_heap_absolute(heap, roots[i]), seeds[i], sizes[i]));
            EXPECT(free_root(heap, &roots[i]) == NVM_OK && roots[i] == 0);
            sizes[i] = 0;
        } else {
            uint64_t bytes = 1 + next_random(&random) % (next_random(&random) % 4 == 0 ? CHUNK / 2 - 1 : 2500);
            void *object;
            if (nvm_heap_reserve(heap, bytes, &object) != NVM_OK)
                continue;
            EXPECT(nvm_heap_usable_bytes(heap, object) >= bytes && (uintptr_t)object % 64 == 0);
            seeds[i] = next_random(&random);
            fill(object, seeds[i], bytes);
            nvm_persist(object, bytes);
            EXPECT(nvm_heap_activate(heap, object, &roots[i], object, NULL, NULL) == NVM_OK);
            sizes[i] = bytes;
        }
        if (step % 250 == 0) {
            const char *folder_of_copy = copy_of(heap);
            EXPECT(open_at(folder_of_copy, 0, &copy) == NVM_OK); /* without close, and elsewhere */
            compare_with_model(copy, sizes, seeds);
            nvm_heap_close(copy);
        }
        if (step % 400 == 399) {
            heap = reopen(heap, folder, step % 800 == 399 ? HINT + 0x1003000 : HINT);
            roots = nvm_heap_get_id(heap, "roots");
            compare_with_model(heap, sizes, seeds);
        }
    }
    nvm_heap_close(heap);
}

/* ---- room ---- */

static void everything_can_be_allocated_and_freed_again(void) {
    static const uint64_t sizes[] = {64, 100, 640, 1984, 1985, 4032, 4033, 20000, CHUNK / 2 - 1};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char folder[128];
        snprintf(folder, sizeof folder, "%s", new_folder());
        struct nvm_heap *heap = create(folder, 3);
        uint64_t *roots = make_roots(heap, 3000), first = 0;
        struct totals empty = totals_of(heap);
        for (int round = 0; round < 3; round++) {
            uint64_t count = 0;
            while (allocate(heap, &roots[count], sizes[s]) != NULL)
                count++;
            void *object;
            EXPECT(nvm_heap_reserve(heap, sizes[s], &object) == NVM_OUT_OF_MEMORY);
            EXPECT(count > 0 && (round == 0 || count == first));
            first = count;
            for (uint64_t i = 0; i < count; i++)
                EXPECT(free_root(heap, &roots[(i * 7919) % count]) == NVM_OK);
            if (round == 1) {
                heap = reopen(heap, folder, HINT);
                roots = nvm_heap_get_id(heap, "roots");
                struct totals again = totals_of(heap);
                EXPECT(memcmp(&again, &empty, sizeof empty) == 0); /* merged to what it was */
            }
        }
        nvm_heap_close(heap);
    }
}

static void neighbours_are_merged_whatever_the_order(void) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int o = 0; o < 6; o++) {
        struct nvm_heap *heap = create(new_folder(), 1);
        uint64_t *roots = make_roots(heap, 20); /* chunk of 16 blocks: 13 are left */
        for (int i = 0; i < 3; i++)
            EXPECT(allocate(heap, &roots[i], 4 * 4096 - 64) != NULL);
        EXPECT(allocate(heap, &roots[3], 4032) != NULL && allocate(heap, &roots[4], 4032) == NULL);
        for (int i = 0; i < 3; i++)
            EXPECT(free_root(heap, &roots[orders[o][i]]) == NVM_OK);
        EXPECT(allocate(heap, &roots[0], 7 * 4096) != NULL); /* 8 blocks */
        EXPECT(allocate(heap, &roots[1], 4 * 4096 - 64) != NULL);
        nvm_heap_close(heap);
    }
}

static void empty_runs_serve_other_sizes_when_memory_is_short(void) {
    struct nvm_heap *heap = create(new_folder(), 1);
    uint64_t *roots = make_roots(heap, 1200), count = 0;
    while (allocate(heap, &roots[count], 64) != NULL)
        count++;
    EXPECT(allocate(heap, &roots[count], 4032) == NULL);
    for (uint64_t i = 0; i < count; i++)
        EXPECT(free_root(heap, &roots[i]) == NVM_OK);
    EXPECT(allocate(heap, &roots[0], CHUNK / 4) != NULL);
    EXPECT(allocate(heap, &roots[1], 1984) != NULL);
    totals_of(heap);
    nvm_heap_close(heap);
}

static void reservations_are_forgotten_by_a_crash(void) {
    struct nvm_heap *heap = create(new_folder(), 2), *copy;
    make_roots(heap, 10);
    const char *untouched_folder = copy_of(heap);
    void *objects[4];
    EXPECT(open_at(untouched_folder, 0, &copy) == NVM_OK);
    struct totals untouched = totals_of(copy);
    nvm_heap_close(copy);

    EXPECT(nvm_heap_reserve(heap, 64, &objects[0]) == NVM_OK && nvm_heap_reserve(heap, 700, &objects[1]) == NVM_OK);
    EXPECT(nvm_heap_reserve(heap, 9000, &objects[2]) == NVM_OK && nvm_heap_reserve_id(heap, "x", 64, &objects[3]) == NVM_OK);
    EXPECT(totals_of(heap).parts[NVM_PART_RESERVED] == 4);
    EXPECT(open_at(copy_of(heap), 0, &copy) == NVM_OK);
    struct totals recovered = totals_of(copy);
    EXPECT(memcmp(&recovered, &untouched, sizeof untouched) == 0 && nvm_heap_get_id(copy, "x") == NULL);
    nvm_heap_close(copy);

    for (int i = 0; i < 3; i++)
        EXPECT(nvm_heap_free(heap, objects[i], NULL, NULL, NULL, NULL) == NVM_OK);
    EXPECT(nvm_heap_free_id(heap, "x") == NVM_OK);
    EXPECT(totals_of(heap).parts[NVM_PART_RESERVED] == 0);
    nvm_heap_close(heap);
}

/* ---- link pointers ---- */

static void two_links_are_set_and_cleared_with_the_object(void) {
    struct nvm_heap *heap = create(new_folder(), 2);
    uint64_t *roots = make_roots(heap, 10);
    static const uint64_t sizes[] = {64, 5000};
    for (int i = 0; i < 2; i++) {
        uint64_t *object;
        EXPECT(nvm_heap_reserve(heap, sizes[i], (void **)&object) == NVM_OK);
        EXPECT(nvm_heap_activate(heap, object, &roots[0], object, &roots[1], roots) == NVM_OK);
        EXPECT(roots[0] == nvm_heap_relative(heap, object) && roots[1] == nvm_heap_relative(heap, roots));
        uint64_t *second;
        EXPECT(nvm_heap_reserve(heap, sizes[i], (void **)&second) == NVM_OK);
        EXPECT(nvm_heap_activate(heap, second, NULL, NULL, &object[3], second) == NVM_OK); /* a link inside an object */
        EXPECT(object[3] == nvm_heap_relative(heap, second));
        EXPECT(nvm_heap_free(heap, second, &object[3], NULL, &roots[2], object) == NVM_OK);
        EXPECT(object[3] == 0 && roots[2] == nvm_heap_relative(heap, object));
        EXPECT(nvm_heap_free(heap, object, &roots[0], NULL, &roots[1], NULL) == NVM_OK && roots[0] == 0 && roots[1] == 0);
        EXPECT(nvm_heap_reserve(heap, sizes[i], (void **)&object) == NVM_OK);
        EXPECT(nvm_heap_activate(heap, object, NULL, NULL, NULL, NULL) == NVM_OK); /* no links: allowed */
        EXPECT(nvm_heap_free(heap, object, NULL, NULL, NULL, NULL) == NVM_OK);
    }
    nvm_heap_close(heap);
}

static void wrong_pointers_are_refused_without_effect(void) {
    struct nvm_heap *heap = create(new_folder(), 2);
    uint64_t *roots = make_roots(heap, 10), outside = 0;
    char *small, *large;
    EXPECT(nvm_heap_reserve(heap, 100, (void **)&small) == NVM_OK && nvm_heap_reserve(heap, 9000, (void **)&large) == NVM_OK);
    char *const header = large - 64, *base = (char *)nvm_heap_absolute(heap, 1) - 1;
    void *const bad_links[] = {&outside, (char *)roots + 4, header, base, base + 4096 + 64, base + 2 * CHUNK, base + 2 * CHUNK - 4};
    for (size_t i = 0; i < sizeof bad_links / sizeof *bad_links; i++)
        EXPECT(nvm_heap_activate(heap, large, bad_links[i], large, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_activate(heap, large, &roots[0], &outside, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_free(heap, large, &roots[0], NULL, NULL, NULL) == NVM_INVALID); /* only reserved */
    EXPECT(nvm_heap_activate(heap, large, &roots[0], large, NULL, NULL) == NVM_OK);
    EXPECT(nvm_heap_activate(heap, small, &roots[1], small, NULL, NULL) == NVM_OK);
    EXPECT(nvm_heap_activate(heap, small, &roots[1], small, NULL, NULL) == NVM_INVALID); /* twice */
    EXPECT(nvm_heap_activate(heap, large, &roots[1], large, NULL, NULL) == NVM_INVALID);
    void *const bad_objects[] = {&outside,   NULL,      large + 64,  large + 4096, header,
                                 small + 64, small + 4, small + 128, base,         base + 64};
    for (size_t i = 0; i < sizeof bad_objects / sizeof *bad_objects; i++)
        EXPECT(nvm_heap_free(heap, bad_objects[i], NULL, NULL, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_usable_bytes(heap, small + 64) == 0 && nvm_heap_usable_bytes(heap, large) == 3 * 4096 - 64);
    EXPECT(free_root(heap, &roots[0]) == NVM_OK && free_root(heap, &roots[1]) == NVM_OK);
    EXPECT(nvm_heap_free(heap, large, NULL, NULL, NULL, NULL) == NVM_INVALID); /* twice */
    EXPECT(nvm_heap_free(heap, small, NULL, NULL, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_reserve(heap, 0, (void **)&small) == NVM_INVALID);
    EXPECT(nvm_heap_reserve(heap, 2 * CHUNK, (void **)&small) == NVM_TOO_LARGE);
    EXPECT(nvm_heap_reserve(heap, UINT64_MAX, (void **)&small) == NVM_TOO_LARGE);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* ---- names ---- */

static void names_work_up_to_a_full_table(void) {
    char folder[128], id[80];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create(folder, 2);
    void *object;
    for (int i = 0; i < 126; i++) { /* 63 a chunk; ids of 55 characters, without a terminator on media */
        snprintf(id, sizeof id, "%055d", i);
        EXPECT(nvm_heap_reserve_id(heap, id, 64 + (uint64_t)i, &object) == NVM_OK);
        *(int *)object = i;
        nvm_persist(object, sizeof(int));
        EXPECT(nvm_heap_get_id(heap, id) == NULL); /* not before it is activated */
        EXPECT(nvm_heap_activate_id(heap, id) == NVM_OK && nvm_heap_get_id(heap, id) == object);
    }
    EXPECT(nvm_heap_reserve_id(heap, "one more", 64, &object) == NVM_OUT_OF_MEMORY);
    heap = reopen(heap, folder, 0);
    for (int i = 0; i < 126; i++) {
        snprintf(id, sizeof id, "%055d", i);
        EXPECT(nvm_heap_get_id(heap, id) != NULL && *(int *)nvm_heap_get_id(heap, id) == i);
        if (i % 2 == 0)
            EXPECT(nvm_heap_free_id(heap, id) == NVM_OK && nvm_heap_get_id(heap, id) == NULL);
    }
    EXPECT(nvm_heap_reserve_id(heap, "one more", 64, &object) == NVM_OK && nvm_heap_activate_id(heap, "one more") == NVM_OK);
    heap = reopen(heap, folder, HINT);
    EXPECT(nvm_heap_get_id(heap, "one more") != NULL && totals_of(heap).parts[NVM_PART_ALLOCATED] == 64);
    nvm_heap_close(heap);
}

/* Or the next open would find a name without an object. */
static void named_objects_are_freed_by_their_ids_only(void) {
    static const uint64_t sizes[] = {64, 9000, CHUNK / 2};
    char folder[128], id[32];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create(folder, 6);
    void *object;
    for (int i = 0; i < 3 * 70; i++) { /* more than the names' table begins with */
        snprintf(id, sizeof id, "%d", i);
        EXPECT(nvm_heap_reserve_id(heap, id, i < 3 ? sizes[i] : 64, &object) == NVM_OK);
        EXPECT(nvm_heap_free(heap, object, NULL, NULL, NULL, NULL) == NVM_INVALID);
        EXPECT(nvm_heap_activate_id(heap, id) == NVM_OK);
        EXPECT(nvm_heap_free(heap, object, NULL, NULL, NULL, NULL) == NVM_INVALID && strstr(nvm_message(), "name") != NULL);
    }
    heap = reopen(heap, folder, HINT);
    for (int i = 0; i < 3 * 70; i++) {
        snprintf(id, sizeof id, "%d", i);
        object = nvm_heap_get_id(heap, id);
        EXPECT(object != NULL && nvm_heap_free(heap, object, NULL, NULL, NULL, NULL) == NVM_INVALID);
        EXPECT(nvm_heap_free_id(heap, id) == NVM_OK);
    }
    EXPECT(nvm_heap_reserve(heap, 64, &object) == NVM_OK); /* where a named one was */
    EXPECT(nvm_heap_free(heap, object, NULL, NULL, NULL, NULL) == NVM_OK);
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == 0);
    nvm_heap_close(heap);
}

static void wrong_ids_are_refused(void) {
    struct nvm_heap *heap = create(new_folder(), 1);
    void *object;
    EXPECT(nvm_heap_reserve_id(heap, "", 64, &object) == NVM_INVALID &&
           nvm_heap_reserve_id(heap, NULL, 64, &object) == NVM_INVALID);
    EXPECT(nvm_heap_reserve_id(heap, "12345678901234567890123456789012345678901234567890123456", 64, &object) == NVM_INVALID);
    EXPECT(nvm_heap_activate_id(heap, "a") == NVM_INVALID && nvm_heap_free_id(heap, "a") == NVM_INVALID);
    EXPECT(nvm_heap_reserve_id(heap, "a", 64, &object) == NVM_OK && nvm_heap_reserve_id(heap, "a", 64, &object) == NVM_INVALID);
    EXPECT(nvm_heap_activate_id(heap, "a") == NVM_OK && nvm_heap_activate_id(heap, "a") == NVM_INVALID);
    EXPECT(nvm_heap_reserve_id(heap, "a", 64, &object) == NVM_INVALID);
    EXPECT(nvm_heap_reserve_id(heap, "b", CHUNK, &object) == NVM_TOO_LARGE && nvm_heap_get_id(heap, "b") == NULL);
    EXPECT(nvm_heap_free_id(heap, "a") == NVM_OK && nvm_heap_free_id(heap, "a") == NVM_INVALID);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* ---- bad folders and damaged heaps ---- */

static int create_status(const char *folder, uint64_t heap_bytes, uint64_t chunk_bytes) {
    struct nvm_options options = {folder, heap_bytes, chunk_bytes, 0, 0, 0};
    struct nvm_heap *heap;
    int status = nvm_heap_create(&options, &heap);
    if (status == NVM_OK)
        nvm_heap_close(heap);
    return status;
}

static int open_status(const char *folder) {
    struct nvm_heap *heap;
    int status = open_at(folder, 0, &heap);
    if (status == NVM_OK)
        nvm_heap_close(heap);
    return status;
}

static void change_word(const char *folder, off_t offset, uint64_t word) {
    int fd = open(file_of(folder), O_RDWR);
    EXPECT(pwrite(fd, &word, sizeof word, offset) == sizeof word);
    close(fd);
}

static void bad_options_and_folders_are_told(void) {
    char folder[128];
    EXPECT(create_status("/nonexistent/folder", CHUNK, CHUNK) == NVM_ERROR && open_status("/nonexistent/folder") == NVM_ERROR);
    EXPECT(create_status("", CHUNK, CHUNK) == NVM_INVALID && create_status(NULL, CHUNK, CHUNK) == NVM_INVALID);
    snprintf(folder, sizeof folder, "%s", new_folder());
    EXPECT(create_status(folder, CHUNK + 4096, CHUNK) == NVM_INVALID && create_status(folder, 0, CHUNK) == NVM_INVALID);
    EXPECT(create_status(folder, 3 * CHUNK, 3 * CHUNK) == NVM_INVALID && create_status(folder, 4096, 4096) == NVM_INVALID);
    EXPECT(open_status(folder) == NVM_NOT_A_HEAP);
    EXPECT(create_status(folder, CHUNK, CHUNK) == NVM_OK && create_status(folder, CHUNK, CHUNK) == NVM_ERROR);
    EXPECT(create_status(file_of(folder), CHUNK, CHUNK) == NVM_ERROR && open_status(file_of(folder)) == NVM_ERROR);

    snprintf(folder, sizeof folder, "%s", new_folder());
    mkdir(file_of(folder), 0777);
    EXPECT(open_status(folder) == NVM_ERROR && create_status(folder, CHUNK, CHUNK) == NVM_ERROR);

    /* A file system that has no room, by the file size limit. Nothing must be left behind. */
    struct rlimit before, small = {CHUNK / 2, RLIM_INFINITY};
    snprintf(folder, sizeof folder, "%s", new_folder());
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT(create_status(folder, CHUNK, CHUNK) == NVM_ERROR);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(access(file_of(folder), F_OK) != 0 && create_status(folder, CHUNK, CHUNK) == NVM_OK);

    if (geteuid() != 0) { /* root may write anywhere */
        EXPECT(chmod(file_of(folder), 0444) == 0 && open_status(folder) == NVM_ERROR);
        snprintf(folder, sizeof folder, "%s", new_folder());
        EXPECT(chmod(folder, 0555) == 0 && create_status(folder, CHUNK, CHUNK) == NVM_ERROR);
    }
}

static void damaged_heaps_are_told(void) {
    const off_t heap_header = NVM_BLOCK_BYTES + NVM_LINE_BYTES, ring = heap_header + NVM_LINE_BYTES;
    static const struct {
        off_t offset;
        uint64_t word;
        int status;
    } damages[] = {
        {heap_header, 0, NVM_NOT_A_HEAP},
        {heap_header, 12345, NVM_NOT_A_HEAP},
        {heap_header + 8, 99, NVM_CORRUPT},                    /* format */
        {heap_header + 16, 7 * CHUNK, NVM_CORRUPT},            /* heap_bytes */
        {heap_header + 24, 0, NVM_CORRUPT},
        {heap_header + 24, 12345, NVM_CORRUPT}, /* chunk_bytes */
        {ring, 17, NVM_CORRUPT},
        {ring, CHUNK + 64, NVM_CORRUPT},
        {ring, 1ull << 40, NVM_CORRUPT},
        {0, 0, NVM_CORRUPT},
        {CHUNK + 56, 0, NVM_CORRUPT},     /* chunk headers */
        {2 * NVM_BLOCK_BYTES + 56, 0, NVM_CORRUPT},
        {2 * NVM_BLOCK_BYTES + 56, 0x63ull << 32 | 0x101, NVM_CORRUPT},
        {64 + 8, 0x4141414141414109, NVM_CORRUPT},
        {64 + 8, 0x41414141414100 | NVM_ENTRY_USED, NVM_CORRUPT}, /* table */
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char folder[128];
        snprintf(folder, sizeof folder, "%s", new_folder());
        nvm_heap_close(create(folder, 2));
        EXPECT(open_status(folder) == NVM_OK);
        change_word(folder, damages[i].offset, damages[i].word);
        EXPECT(open_status(folder) == damages[i].status && strlen(nvm_message()) > 0);
    }
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    nvm_heap_close(create(folder, 2));
    EXPECT(truncate(file_of(folder), CHUNK) == 0 && open_status(folder) == NVM_CORRUPT);
    EXPECT(truncate(file_of(folder), 5000) == 0 && open_status(folder) == NVM_NOT_A_HEAP);
    EXPECT(truncate(file_of(folder), 0) == 0 && open_status(folder) == NVM_NOT_A_HEAP);
}

/* Any damage to metadata: a status, never a crash. */
static void random_damage_never_crashes_open(void) {
    uint64_t random = 7;
    struct nvm_heap *heap = create(new_folder(), 2), *damaged;
    uint64_t *roots = make_roots(heap, 12);
    for (int i = 0; i < 12; i++)
        allocate(heap, &roots[i], i % 3 == 0 ? 5000 : (uint64_t)i * 100 + 1);
    free_root(heap, &roots[3]);
    const char *folder = copy_of(heap);
    char *image = malloc(nvm_heap_bytes(heap));
    memcpy(image, (char *)nvm_heap_absolute(heap, 1) - 1, nvm_heap_bytes(heap));
    int fd = open(file_of(folder), O_RDWR);
    for (int round = 0; round < 3000; round++) {
        EXPECT(pwrite(fd, image, nvm_heap_bytes(heap), 0) == (ssize_t)nvm_heap_bytes(heap));
        for (uint64_t i = 0; i <= next_random(&random) % 3; i++) {
            uint64_t block = next_random(&random) % (2 * CHUNK / NVM_BLOCK_BYTES), where = next_random(&random);
            uint64_t word = next_random(&random);
            word = where % 5 == 0   ? nvm_tag(word % 6, word / 8 % 4, 0, word / 64 % 20)
                   : where % 5 == 1 ? word % (3 * CHUNK)
                                    : word % 9 << word % 64;
            off_t offset = (off_t)(block * NVM_BLOCK_BYTES + where / 8 % (where % 3 == 0 ? 24 : 8) * 8);
            EXPECT(pwrite(fd, &word, 8, offset) == 8);
        }
        if (open_at(folder, 0, &damaged) == NVM_OK) {
            nvm_heap_check(damaged);
            struct totals totals = {0};
            nvm_heap_walk(damaged, add_part, &totals);
            EXPECT(!totals.has_gap && totals.at == 2 * CHUNK);
            nvm_heap_close(damaged);
        }
    }
    close(fd);
    free(image);
    nvm_heap_close(heap);
}

/* ---- the interface of Table 3: the list of Listing 1 ---- */

struct element {
    uint64_t next, previous;
    int number;
};

static void a_list_survives(void) {
    const char *folder = new_folder();
    EXPECT(nvm_reserve(64) == NULL && nvm_activate(NULL, NULL, NULL, NULL, NULL) == NVM_INVALID && nvm_get_id("list") == NULL);
    EXPECT(nvm_initialize(folder, 1) == NVM_NOT_A_HEAP && nvm_initialize(folder, 0) == NVM_OK);
    EXPECT(nvm_initialize(folder, 0) == NVM_INVALID);
    struct element *root = nvm_reserve_id("list", sizeof *root), *last = root;
    *root = (struct element){0, 0, 0};
    nvm_persist(root, sizeof *root);
    EXPECT(nvm_activate_id("list") == NVM_OK);
    for (int i = 1; i < 100; i++) {
        struct element *e = nvm_reserve(sizeof *e);
        *e = (struct element){0, nvm_relative(last), i};
        nvm_persist(e, sizeof *e);
        EXPECT(nvm_activate(e, &last->next, e, NULL, NULL) == NVM_OK);
        last = e;
    }
    nvm_shutdown();
    nvm_shutdown();
    EXPECT(nvm_initialize(folder, 1) == NVM_OK);
    int count = 0;
    for (struct element *e = nvm_get_id("list"); e != NULL; e = nvm_absolute(e->next))
        EXPECT(e->number == count++);
    EXPECT(count == 100);
    root = nvm_get_id("list"); /* unlink the second element: both neighbours change in one step */
    struct element *second = nvm_absolute(root->next), *third = nvm_absolute(second->next);
    EXPECT(nvm_free(second, &root->next, third, &third->previous, root) == NVM_OK);
    EXPECT(nvm_absolute(root->next) == third && nvm_absolute(third->previous) == root);
    EXPECT(nvm_free_id("list") == NVM_OK && nvm_get_id("list") == NULL);
    nvm_shutdown();
}

/* ---- the adapter ---- */

static void fill_object(void *context, void *object, uint64_t from, uint64_t bytes) {
    memset((char *)object + from, *(int *)context, bytes);
    nvm_persist((char *)object + from, bytes);
}

static uint64_t sum_blocks;
static uint32_t allocated_blocks;
static void add_block(void *context, const struct fl_block *block) {
    (void)context;
    EXPECT(block->offset == sum_blocks);
    sum_blocks += block->bytes;
    allocated_blocks += block->state == FL_BLOCK_ALLOCATED;
}

static void the_adapter_keeps_its_contract(void) {
    const struct fl_adapter *adapter = faultline_adapter();
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct fl_heap_options options = {folder, 8 << 20, 8 << 20, 64 + 1024, 0, HINT, FL_SLOTS_ROOT, 64}, other = options;
    struct fl_location location, moved;
    struct fl_block block;
    fl_heap *heap;
    int content = 5;
    EXPECT(adapter->open(&options, &heap) == FL_NOT_A_HEAP && adapter->message()[0] != '\0');
    other.limit_bytes = 4096;
    EXPECT(adapter->create(&other, &heap) == FL_ERROR && adapter->create(&options, &heap) == FL_OK);
    for (uint32_t slot = 0; slot < options.slot_count; slot++)
        EXPECT(adapter->read_slot(heap, slot, &location) == FL_OK && !location.is_set);
    EXPECT(adapter->read_slot(heap, options.slot_count, &location) == FL_ERROR);
    EXPECT(adapter->allocate(heap, options.slot_count, 64, fill_object, &content) == FL_ERROR);
    EXPECT(adapter->allocate(heap, 1087, 100, fill_object, &content) == FL_OK);
    EXPECT(adapter->allocate(heap, 1087, 100, fill_object, &content) == FL_ERROR);
    EXPECT(adapter->allocate(heap, 3, 4 << 20, fill_object, &content) == FL_OUT_OF_MEMORY);
    EXPECT(adapter->free(heap, 3) == FL_ERROR && adapter->reallocate(heap, 3, 1, 2, fill_object, &content) == FL_ERROR);
    adapter->read_slot(heap, 1087, &location);
    EXPECT(adapter->bounds(heap, &location, &block) == FL_OK && block.offset == location.offset && block.bytes == 128);
    content = 6;
    EXPECT(adapter->reallocate(heap, 1087, 100, 110, fill_object, &content) == FL_OK); /* same class: moves all the same */
    adapter->read_slot(heap, 1087, &moved);
    EXPECT(moved.is_set && moved.offset != location.offset);
    const char *object = (const char *)HINT + moved.offset;
    EXPECT(object[0] == 5 && object[99] == 5 && object[100] == 6 && object[109] == 6);
    EXPECT(adapter->reallocate(heap, 1087, 110, 50, fill_object, &content) == FL_OK);
    EXPECT(adapter->reallocate(heap, 1087, 50, 4 << 20, fill_object, &content) == FL_OUT_OF_MEMORY);
    EXPECT(adapter->check(heap) == FL_OK && adapter->settle(heap) == FL_OK);
    adapter->walk(heap, add_block, NULL);
    EXPECT(sum_blocks == 8 << 20 && allocated_blocks == 1);
    EXPECT(adapter->close(heap) == FL_OK);

    other = options;
    other.slot_count = 10;
    EXPECT(adapter->open(&other, &heap) == FL_ERROR && adapter->message()[0] != '\0');
    EXPECT(adapter->create(&options, &heap) == FL_ERROR);
    other = options;
    other.address_hint = 0;
    EXPECT(adapter->open(&other, &heap) == FL_OK && adapter->free(heap, 1087) == FL_OK && adapter->close(heap) == FL_OK);

    /* A heap without the roots: creation was not completed. */
    snprintf(folder, sizeof folder, "%s", new_folder());
    nvm_heap_close(create(folder, 2));
    EXPECT(adapter->open(&options, &heap) == FL_NOT_A_HEAP);
}

int main(void) {
    begin_tests("nvm");
    for (uint64_t seed = 1; seed <= 4; seed++)
        random_operations_keep_every_object(seed);
    everything_can_be_allocated_and_freed_again();
    neighbours_are_merged_whatever_the_order();
    empty_runs_serve_other_sizes_when_memory_is_short();
    reservations_are_forgotten_by_a_crash();
    two_links_are_set_and_cleared_with_the_object();
    wrong_pointers_are_refused_without_effect();
    names_work_up_to_a_full_table();
    named_objects_are_freed_by_their_ids_only();
    wrong_ids_are_refused();
    bad_options_and_folders_are_told();
    damaged_heaps_are_told();
    random_damage_never_crashes_open();
    a_list_survives();
    the_adapter_keeps_its_contract();
    return end_tests();
}
