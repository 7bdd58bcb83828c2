/* SPDX-License-Identifier: Apache-2.0
 *
 * test_growth.c - more than one chunk: growth of the file, huge objects, the object table over many chunks, and the slot layouts
 * of the adapter. Built and run as test_nvm_malloc.c is, with -DNVM_CHUNK_BYTES=65536.
 */
#include "common.h"

#include <errno.h>
#include <sys/syscall.h>

#include "adapter.h"
#include "stage.h"

static struct nvm_heap *create_limited(const char *folder, uint64_t chunks, uint64_t limit) {
    struct nvm_options options = {folder, chunks * CHUNK, CHUNK, HINT, limit * CHUNK, 0};
    struct nvm_heap *heap;
    if (nvm_heap_create(&options, &heap) != NVM_OK) {
        printf("cannot create a heap: %s\n", nvm_message());
        exit(3);
    }
    return heap;
}

static struct nvm_heap *open_limited(const char *folder, uint64_t limit, uintptr_t hint) {
    struct nvm_options options = {.folder = folder, .address_hint = hint, .limit_bytes = limit * CHUNK};
    struct nvm_heap *heap = NULL;
    int status = nvm_heap_open(&options, &heap);
    EXPECT(status == NVM_OK);
    if (heap == NULL)
        exit(3);
    return heap;
}

static uint64_t file_bytes(const char *folder) {
    struct stat status;
    EXPECT(stat(file_of(folder), &status) == 0);
    return (uint64_t)status.st_size;
}

/* ---- growth ---- */

static void the_file_grows_by_chunks_up_to_its_limit(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 5);
    uint64_t *roots = make_roots(heap, 2000), count = 0, grown = 1;
    EXPECT(file_bytes(folder) == CHUNK);
    while (allocate(heap, &roots[count], 1500) != NULL) {
        count++;
        EXPECT(file_bytes(folder) == nvm_heap_bytes(heap) && nvm_heap_bytes(heap) - grown * CHUNK <= CHUNK);
        grown = nvm_heap_bytes(heap) / CHUNK;
    }
    EXPECT(grown == 5 && count == 2 * (10 + 4 * 15)); /* two slots a run; the roots take 4 of chunk 0's 14 blocks */
    totals_of(heap);
    nvm_heap_close(heap);
    heap = open_limited(folder, 5, 0);
    roots = nvm_heap_get_id(heap, "roots");
    for (uint64_t i = 0; i < count; i++)
        EXPECT(free_root(heap, &roots[i]) == NVM_OK);
    nvm_heap_close(heap);
    heap = open_limited(folder, 6, HINT); /* one more than before, and empty arena chunks are free ones again */
    void *object;
    EXPECT(nvm_heap_reserve(heap, 5 * CHUNK - 64, &object) == NVM_OK && file_bytes(folder) == 6 * CHUNK);
    EXPECT(nvm_heap_reserve(heap, CHUNK / 2, &object) == NVM_OUT_OF_MEMORY);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* Every image that the events of one growth can leave, built by hand. */
static void interrupted_growth_loses_nothing(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 2, 2);
    struct totals before = totals_of(heap);
    nvm_heap_close(heap);
    static const uint64_t lengths[] = {2 * CHUNK + 1, 2 * CHUNK + 4096, 3 * CHUNK - 1, 3 * CHUNK, 3 * CHUNK + 77, 5 * CHUNK};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        EXPECT(truncate(file_of(folder), 2 * CHUNK) == 0 && truncate(file_of(folder), (off_t)lengths[i]) == 0);
        if (lengths[i] >= 3 * CHUNK && i % 2 == 0) { /* half a header: its tag is stored last */
            int fd = open(file_of(folder), O_RDWR);
            uint64_t magic = NVM_CHUNK_MAGIC;
            EXPECT(pwrite(fd, &magic, 8, 2 * CHUNK) == 8);
            close(fd);
        }
        heap = open_limited(folder, 8, HINT);
        EXPECT(nvm_heap_bytes(heap) == lengths[i] / CHUNK * CHUNK && file_bytes(folder) == nvm_heap_bytes(heap));
        struct totals after = totals_of(heap);
        EXPECT(after.bytes[NVM_PART_FREE] == before.bytes[NVM_PART_FREE] + nvm_heap_bytes(heap) - 2 * CHUNK);
        void *object;
        EXPECT(nvm_heap_reserve(heap, 7 * CHUNK - 64, &object) == NVM_OK); /* it and later growth are one range */
        nvm_heap_close(heap);
        heap = open_limited(folder, 8, HINT);
        EXPECT(nvm_heap_bytes(heap) == 8 * CHUNK);
        nvm_heap_close(heap);
        int fd = open(file_of(folder), O_RDWR);
        uint64_t bytes = 2 * CHUNK, tag = nvm_tag(NVM_KIND_CHUNK_FREE, NVM_STATE_IDLE, 0, 1);
        EXPECT(pwrite(fd, &bytes, 8, NVM_BLOCK_BYTES + NVM_LINE_BYTES + 16) == 8 && pwrite(fd, &tag, 8, CHUNK + 56) == 8);
        close(fd);
    }
}

static void growth_that_fails_changes_nothing(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 100);
    struct rlimit before, small = {5 * CHUNK / 2, RLIM_INFINITY};
    uint64_t *roots = make_roots(heap, 10);
    struct totals totals = totals_of(heap);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    void *object;
    EXPECT(nvm_heap_reserve(heap, 3 * CHUNK, &object) == NVM_OUT_OF_MEMORY);
    EXPECT(file_bytes(folder) == CHUNK && memcmp(&totals, &(struct totals){0}, sizeof totals) != 0);
    struct totals after = totals_of(heap);
    EXPECT(memcmp(&totals, &after, sizeof totals) == 0);
    EXPECT(allocate(heap, &roots[0], CHUNK / 2) != NULL && file_bytes(folder) == 2 * CHUNK); /* what there is room for works */
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(allocate(heap, &roots[1], 3 * CHUNK) != NULL);
    nvm_heap_close(heap);
    EXPECT(totals_of(heap = open_limited(folder, 100, 0)).parts[NVM_PART_ALLOCATED] == 3);
    nvm_heap_close(heap);
}

/* Stands in for libc's: the call that is counted down to fails. */
static int fsyncs_until_failure;

int fsync(int fd) {
    if (fsyncs_until_failure > 0 && --fsyncs_until_failure == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static void a_file_that_cannot_be_persisted_is_told(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_options options = {folder, CHUNK, CHUNK, HINT, 5 * CHUNK, 0};
    struct nvm_heap *heap;
    for (int which = 1; which <= 2; which++) { /* the file's, the folder's */
        fsyncs_until_failure = which;
        EXPECT(nvm_heap_create(&options, &heap) == NVM_ERROR && heap == NULL && access(file_of(folder), F_OK) != 0);
    }
    heap = create_limited(folder, 1, 5);
    struct totals before = totals_of(heap);
    void *object;
    fsyncs_until_failure = 1;
    EXPECT(nvm_heap_reserve(heap, CHUNK / 2, &object) == NVM_ERROR && strstr(nvm_message(), "persisted") != NULL);
    struct totals after = totals_of(heap);
    EXPECT(memcmp(&before, &after, sizeof after) == 0 && file_bytes(folder) == CHUNK);
    EXPECT(nvm_heap_reserve(heap, CHUNK / 2, &object) == NVM_OK && file_bytes(folder) == 2 * CHUNK);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* ---- huge objects ---- */

static void huge_objects_split_and_merge_chunks(void) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int o = 0; o < 6; o++) {
        char folder[128];
        snprintf(folder, sizeof folder, "%s", new_folder());
        struct nvm_heap *heap = create_limited(folder, 1, 9);
        uint64_t *roots = make_roots(heap, 10);
        EXPECT(allocate(heap, &roots[0], CHUNK / 2) != NULL); /* one chunk */
        EXPECT(allocate(heap, &roots[1], CHUNK) != NULL);     /* with the header, two */
        EXPECT(allocate(heap, &roots[2], 3 * CHUNK - 64) != NULL);
        EXPECT(nvm_heap_bytes(heap) == 7 * CHUNK && totals_of(heap).parts[NVM_PART_ALLOCATED] == 4);
        for (int i = 0; i < 3; i++)
            EXPECT(nvm_heap_usable_bytes(heap, nvm_heap_absolute(heap, roots[i])) == (uint64_t)(i + 1) * CHUNK - 64);
        heap = reopen(heap, folder, HINT + 0x10000000);
        roots = nvm_heap_get_id(heap, "roots");
        for (int i = 0; i < 3; i++) {
            EXPECT(free_root(heap, &roots[orders[o][i]]) == NVM_OK);
            totals_of(heap);
        }
        EXPECT(allocate(heap, &roots[3], 6 * CHUNK - 64) != NULL && nvm_heap_bytes(heap) == 7 * CHUNK);
        EXPECT(free_root(heap, &roots[3]) == NVM_OK);
        EXPECT(allocate(heap, &roots[3], 2 * CHUNK) != NULL && allocate(heap, &roots[4], 3 * CHUNK - 64) != NULL);
        EXPECT(totals_of(heap).bytes[NVM_PART_FREE] < CHUNK);
        nvm_heap_close(heap);
    }
}

/* An arena's chunk becomes a free chunk and one of a huge object, and back, whatever content it held. */
static void chunks_change_hands(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 4);
    uint64_t *roots = make_roots(heap, 1000);
    for (int round = 0; round < 4; round++) {
        uint64_t count = 0;
        while (allocate(heap, &roots[count], 4032) != NULL) /* all chunks are the arena's */
            count++;
        EXPECT(allocate(heap, &roots[count], CHUNK / 2) == NULL && count == 12 + 3 * 15);
        for (uint64_t i = 0; i < count; i++)
            EXPECT(free_root(heap, &roots[i]) == NVM_OK);
        uint64_t *huge = allocate(heap, &roots[0], 3 * CHUNK - 64);
        EXPECT(huge != NULL);
        if (huge == NULL)
            return;
        memset(huge, 0xff, 3 * CHUNK - 64); /* as unlike an empty object table as can be */
        EXPECT(free_root(heap, &roots[0]) == NVM_OK);
        totals_of(heap);
        if (round % 2 == 1) {
            heap = reopen(heap, folder, HINT);
            roots = nvm_heap_get_id(heap, "roots");
        }
    }
    nvm_heap_close(heap);
}

static void links_may_lie_in_huge_objects(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 9);
    uint64_t *roots = make_roots(heap, 10), *small;
    char *huge = allocate(heap, &roots[0], 2 * CHUNK);
    EXPECT(nvm_heap_reserve(heap, 64, (void **)&small) == NVM_OK);
    EXPECT(nvm_heap_activate(heap, small, huge - 8, small, NULL, NULL) == NVM_INVALID); /* its header */
    EXPECT(nvm_heap_activate(heap, small, huge + CHUNK, small, huge + 2 * CHUNK - 8, huge) == NVM_OK);
    EXPECT(*(uint64_t *)(huge + CHUNK) == nvm_heap_relative(heap, small));
    EXPECT(nvm_heap_free(heap, huge + 64, NULL, NULL, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_free(heap, huge + CHUNK, NULL, NULL, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_free(heap, huge, &roots[0], small, NULL, NULL) == NVM_OK);
    EXPECT(nvm_heap_activate(heap, small, huge + 64, small, NULL, NULL) == NVM_INVALID); /* free chunks */
    EXPECT(nvm_heap_reserve_id(heap, "huge", CHUNK, (void **)&huge) == NVM_OK && nvm_heap_activate_id(heap, "huge") == NVM_OK);
    heap = reopen(heap, folder, 0);
    EXPECT(nvm_heap_get_id(heap, "huge") != NULL && totals_of(heap).parts[NVM_PART_ALLOCATED] == 3);
    EXPECT(nvm_heap_free_id(heap, "huge") == NVM_OK);
    nvm_heap_close(heap);
}

/* ---- random operations against a model, huge ones too ---- */

enum { OBJECTS = 40 };

static void random_operations_keep_every_object(uint64_t random) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 24);
    uint64_t sizes[OBJECTS] = {0}, seeds[OBJECTS] = {0}, *roots = make_roots(heap, OBJECTS);
    for (int step = 0; step < 800; step++) {
        int i = (int)(next_random(&random) % OBJECTS);
        uint64_t kind = next_random(&random) % 8;
        if (roots[i] != 0) {
            EXPECT(is_filled(nvm_heap_absolute(heap, roots[i]), seeds[i], sizes[i]));
            EXPECT(free_root(heap, &roots[i]) == NVM_OK);
            sizes[i] = 0;
        } else {
            uint64_t bytes = 1 + next_random(&random) % (kind == 0 ? 4 * CHUNK : kind < 3 ? CHUNK / 2 : 2500);
            void *object;
            if (nvm_heap_reserve(heap, bytes, &object) != NVM_OK)
                continue;
            sizes[i] = bytes;
            seeds[i] = next_random(&random);
            fill(object, seeds[i], bytes);
            nvm_persist(object, bytes);
            EXPECT(nvm_heap_activate(heap, object, &roots[i], object, NULL, NULL) == NVM_OK);
        }
        if (step % 200 != 199)
            continue;
        totals_of(heap);
        nvm_heap_close(heap);
        heap = open_limited(folder, 24, step % 400 == 199 ? HINT + 0x30000000 : 0);
        roots = nvm_heap_get_id(heap, "roots");
        uint64_t live = 1;
        for (int o = 0; o < OBJECTS; o++) {
            live += sizes[o] != 0;
            EXPECT((roots[o] != 0) == (sizes[o] != 0));
            EXPECT(sizes[o] == 0 || is_filled(nvm_heap_absolute(heap, roots[o]), seeds[o], sizes[o]));
        }
        EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == live);
    }
    nvm_heap_close(heap);
}

/* ---- fragmentation ---- */

/* Every second object of one size is freed; the holes serve that size and smaller ones, in full. */
static void holes_are_used_up(void) {
    static const uint64_t sizes[] = {64, 1000, 4032, 12000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct nvm_heap *heap = create_limited(new_folder(), 1, 6);
        uint64_t *roots = make_roots(heap, 6000), count = 0, again = 0;
        while (allocate(heap, &roots[count], sizes[s]) != NULL)
            count++;
        for (uint64_t i = 0; i < count; i += 2)
            EXPECT(free_root(heap, &roots[i]) == NVM_OK);
        for (uint64_t i = 0; i < count; i += 2)
            again += allocate(heap, &roots[i], sizes[s]) != NULL;
        EXPECT(again == (count + 1) / 2);
        for (uint64_t i = 0; i < count; i++)
            EXPECT(free_root(heap, &roots[(i * 7919) % count]) == NVM_OK);
        EXPECT(allocate(heap, &roots[0], 4 * CHUNK - 64) !=
               NULL); /* all but chunk 0 and the roots: nothing is left in the arenas */
        nvm_heap_close(heap);
    }
}

/* ---- names ---- */

static void names_need_as_many_chunks_as_it_takes(void) {
    char folder[128], id[32];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 4);
    void *object;
    int count = 0;
    for (;; count++) {
        snprintf(id, sizeof id, "name %d", count);
        if (nvm_heap_reserve_id(heap, id, 64, &object) != NVM_OK)
            break;
        EXPECT(nvm_heap_activate_id(heap, id) == NVM_OK);
    }
    EXPECT(count == 4 * 63);
    totals_of(heap);
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof id, "name %d", i);
        EXPECT(i % 63 == 0 || nvm_heap_free_id(heap, id) == NVM_OK);
    }
    EXPECT(nvm_heap_reserve(heap, CHUNK / 2, &object) == NVM_OUT_OF_MEMORY); /* a used entry holds its chunk */
    nvm_heap_close(heap);
    heap = open_limited(folder, 4, 0);
    for (int i = 0; i < count; i += 63) {
        snprintf(id, sizeof id, "name %d", i);
        EXPECT(nvm_heap_get_id(heap, id) != NULL && nvm_heap_free_id(heap, id) == NVM_OK);
    }
    EXPECT(nvm_heap_reserve(heap, 3 * CHUNK - 64, &object) == NVM_OK);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* ---- arenas ---- */

/* A heap of a library with more arenas, or other ones. */
static void arenas_of_others_are_served(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = create_limited(folder, 1, 3);
    uint64_t *roots = make_roots(heap, 100), count = 0;
    while (nvm_heap_bytes(heap) < 2 * CHUNK && allocate(heap, &roots[count], 4000) != NULL)
        count++;
    EXPECT(allocate(heap, &roots[count], 100) != NULL);
    nvm_heap_close(heap);
    int fd = open(file_of(folder), O_RDWR);
    for (off_t block = 0; block < 16; block++) {
        uint64_t tag;
        EXPECT(pread(fd, &tag, 8, CHUNK + block * 4096 + 56) == 8);
        tag |= (uint64_t)777 << 16; /* chunk 1 is arena 777's; headers of blocks that are none get it too, to no effect */
        EXPECT(pwrite(fd, &tag, 8, CHUNK + block * 4096 + 56) == 8);
    }
    close(fd);
    heap = open_limited(folder, 3, 0);
    roots = nvm_heap_get_id(heap, "roots");
    for (uint64_t i = 0; i <= count; i++)
        EXPECT(free_root(heap, &roots[i]) == NVM_OK);
    void *object;
    EXPECT(nvm_heap_reserve(heap, 2 * CHUNK - 64, &object) == NVM_OK);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* ---- the adapter's slot layouts ---- */

static void fill_object(void *context, void *object, uint64_t from, uint64_t bytes) {
    memset((char *)object + from, *(int *)context, bytes);
    nvm_persist((char *)object + from, bytes);
}

static uint64_t allocated_bytes, walked;
static void add_block(void *context, const struct fl_block *block) {
    (void)context;
    EXPECT(block->offset == walked);
    walked += block->bytes;
    allocated_bytes += block->state == FL_BLOCK_ALLOCATED ? block->bytes : 0;
}

enum { SLOTS = 12 };

static void expect_slots(const struct fl_adapter *adapter, fl_heap *heap, const uint64_t *sizes, const int *contents) {
    uint64_t live = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct fl_location location;
        struct fl_block block;
        EXPECT(adapter->read_slot(heap, slot, &location) == FL_OK && (location.is_set != 0) == (sizes[slot] != 0));
        if (!location.is_set)
            continue;
        EXPECT(adapter->bounds(heap, &location, &block) == FL_OK && block.offset == location.offset && block.bytes >= sizes[slot]);
        EXPECT(block.state == FL_BLOCK_ALLOCATED && location.offset % 64 == 0);
        live += block.bytes;
        const char *object = (const char *)HINT + location.offset;
        EXPECT(object[0] == contents[slot] && object[sizes[slot] - 1] == contents[slot]);
    }
    allocated_bytes = walked = 0;
    EXPECT(adapter->walk(heap, add_block, NULL) == FL_OK && allocated_bytes == live && adapter->check(heap) == FL_OK);
}

static void a_layout_keeps_its_slots(uint32_t layout, uint64_t random) {
    const struct fl_adapter *adapter = faultline_adapter();
    struct fl_heap_options options = {NULL, CHUNK, 16 * CHUNK, SLOTS + 100, 0, HINT, layout, SLOTS};
    char folder[128];
    fl_heap *heap;
    uint64_t sizes[SLOTS] = {0};
    int contents[SLOTS] = {0};
    snprintf(folder, sizeof folder, "%s", new_folder());
    options.folder = folder;
    EXPECT(adapter->create(&options, &heap) == FL_OK);
    for (int step = 0; step < 300; step++) {
        uint32_t slot = (uint32_t)(next_random(&random) % SLOTS);
        uint64_t bytes = 1 + next_random(&random) % (step % 16 == 0 ? 2 * CHUNK : 3000);
        int content = 1 + (int)(next_random(&random) % 100);
        if (sizes[slot] == 0) {
            EXPECT(adapter->allocate(heap, slot, bytes, fill_object, &content) == FL_OK);
            EXPECT(adapter->allocate(heap, slot, bytes, fill_object, &content) == FL_ERROR);
        } else if (step % 3 == 0) {
            uint64_t kept = bytes < sizes[slot] ? bytes : sizes[slot];
            struct fl_location location;
            EXPECT(adapter->reallocate(heap, slot, sizes[slot], bytes, fill_object, &content) == FL_OK);
            adapter->read_slot(heap, slot, &location);
            char *object = (char *)HINT + location.offset;
            EXPECT(object[0] == contents[slot] && object[kept - 1] == contents[slot] &&
                   (kept == bytes || object[bytes - 1] == content));
            memset(object, content, bytes);
        } else {
            EXPECT(adapter->free(heap, slot) == FL_OK && adapter->free(heap, slot) == FL_ERROR);
            bytes = 0;
        }
        sizes[slot] = bytes;
        contents[slot] = content;
        if (step % 25 == 0) {
            EXPECT(adapter->close(heap) == FL_OK);
            options.flags = step % 50 == 0 ? FL_OPEN_LAZY : 0;
            EXPECT(adapter->open(&options, &heap) == FL_OK && adapter->settle(heap) == FL_OK);
        }
        if (step % 5 == 0)
            expect_slots(adapter, heap, sizes, contents);
    }
    EXPECT(adapter->allocate(heap, SLOTS, 50, fill_object, contents) == FL_OK); /* the others are in the roots */
    EXPECT(adapter->close(heap) == FL_OK);
    struct fl_heap_options other = options;
    other.slot_layout = (layout + 1) % 3;
    EXPECT(adapter->open(&other, &heap) == FL_ERROR && adapter->message()[0] != '\0');
}

static void a_damaged_chain_is_told(void) {
    const struct fl_adapter *adapter = faultline_adapter();
    struct fl_heap_options options = {NULL, CHUNK, CHUNK, SLOTS + 100, 0, HINT, FL_SLOTS_CHAIN, SLOTS};
    char folder[128];
    fl_heap *heap;
    int content = 3;
    struct fl_location location;
    snprintf(folder, sizeof folder, "%s", new_folder());
    options.folder = folder;
    EXPECT(adapter->create(&options, &heap) == FL_OK);
    for (uint32_t slot = 0; slot < 5; slot++)
        EXPECT(adapter->allocate(heap, slot, 100, fill_object, &content) == FL_OK);
    EXPECT(adapter->read_slot(heap, 2, &location) == FL_OK);
    uint64_t *node = (uint64_t *)((char *)HINT + location.offset - 64);
    for (int word = 0; word < 3; word++) { /* next, previous, slot */
        uint64_t right = node[word];
        static const uint64_t wrong[] = {0, 64, UINT64_MAX, SLOTS, CHUNK - 64};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            node[word] = wrong[i];
            if (word < 2 || wrong[i] >= SLOTS) /* another number that exists is no damage of the list */
                EXPECT(adapter->check(heap) == FL_CORRUPT && adapter->read_slot(heap, 7, &location) == FL_CORRUPT);
        }
        node[word] = right;
    }
    EXPECT(adapter->check(heap) == FL_OK);
    EXPECT(adapter->close(heap) == FL_OK);
}

/* ---- recovery stages are known to the runner ---- */

static void stages_are_listed_once(void) {
    size_t count;
    struct fl_stage *const *stages = faultline_stages(&count);
    EXPECT(count >= 38);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            EXPECT(strcmp(stages[i]->name, stages[j]->name) != 0);
}

int main(void) {
    begin_tests("nvm");
    the_file_grows_by_chunks_up_to_its_limit();
    interrupted_growth_loses_nothing();
    growth_that_fails_changes_nothing();
    a_file_that_cannot_be_persisted_is_told();
    huge_objects_split_and_merge_chunks();
    chunks_change_hands();
    links_may_lie_in_huge_objects();
    for (uint64_t seed = 1; seed <= 3; seed++)
        random_operations_keep_every_object(seed);
    holes_are_used_up();
    names_need_as_many_chunks_as_it_takes();
    arenas_of_others_are_served();
    for (uint32_t layout = FL_SLOTS_ROOT; layout <= FL_SLOTS_CHAIN; layout++)
        a_layout_keeps_its_slots(layout, layout + 1);
    a_damaged_chain_is_told();
    stages_are_listed_once();
    return end_tests();
}
