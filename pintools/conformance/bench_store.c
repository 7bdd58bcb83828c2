/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_store.c - how much slower a program runs under a tracer: `bench_store FOLDER OPERATIONS`, timed with and without.
 *
 * The mix of a persistent allocator with its application: size classes with bitmaps in PM, an undo log of one entry, object
 * headers, slots that publish; beside them a hash index, free lists and key generation in DRAM. An operation is an
 * allocation, which fills its object and publishes it, or a free; about 20 stores to PM, 6 flushes, 4 fences.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLASS_COUNT 4
#define CLASS_OBJECTS 4096
#define SLOT_COUNT 8192
#define INDEX_BUCKETS 4096
#define NO_OBJECT 0xffffffffu

static const uint32_t class_bytes[CLASS_COUNT] = {64, 128, 256, 512};

/* In PM. Objects of class c lie at objects_offset[c]. */
struct log_entry {
    uint64_t is_valid, kind, slot, object;
    uint64_t reserved[4];
};
struct heap {
    struct log_entry log;
    uint64_t slots[SLOT_COUNT]; /* offset of the object; 0: empty */
    uint64_t bitmap[CLASS_COUNT][CLASS_OBJECTS / 64];
};
struct object_header {
    uint64_t bytes, key, checksum, generation;
};

/* In DRAM. */
struct index_node {
    uint64_t key;
    uint32_t slot, next;
};
static struct heap *heap;
static uint64_t objects_offset[CLASS_COUNT];
static uint32_t free_lists[CLASS_COUNT][CLASS_OBJECTS], free_counts[CLASS_COUNT];
static struct index_node nodes[SLOT_COUNT];
static uint32_t buckets[INDEX_BUCKETS];
static uint32_t object_of_slot[SLOT_COUNT];
static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t mix(uint64_t value) {
    for (int i = 0; i < 4; i++) {
        value = (value ^ (value >> 31)) * 0xbf58476d1ce4e5b9;
        value ^= value >> 29;
    }
    return value;
}

static void flush(const void *from, size_t bytes) {
    uintptr_t end = (uintptr_t)from + bytes;
    for (uintptr_t line = (uintptr_t)from & ~(uintptr_t)63; line < end; line += 64)
        __asm__ volatile("clwb %0" : : "m"(*(const char *)line) : "memory");
}

static void fence(void) { __asm__ volatile("sfence" ::: "memory"); }

static void persist(const void *from, size_t bytes) {
    flush(from, bytes);
    fence();
}

static void index_insert(uint64_t key, uint32_t slot) {
    uint32_t bucket = mix(key) % INDEX_BUCKETS;
    nodes[slot] = (struct index_node){.key = key, .slot = slot, .next = buckets[bucket]};
    buckets[bucket] = slot;
}

static void index_remove(uint64_t key, uint32_t slot) {
    uint32_t *link = &buckets[mix(key) % INDEX_BUCKETS];
    while (*link != slot)
        link = &nodes[*link].next;
    *link = nodes[slot].next;
}

static void log_begin(uint64_t kind, uint64_t slot, uint64_t object) {
    heap->log.kind = kind;
    heap->log.slot = slot;
    heap->log.object = object;
    __asm__ volatile("" ::: "memory");
    heap->log.is_valid = 1;
    persist(&heap->log, sizeof heap->log);
}

static void log_end(void) {
    heap->log.is_valid = 0;
    persist(&heap->log, sizeof heap->log);
}

static void fill(char *object, uint32_t bytes, uint64_t key) {
    struct object_header *header = (struct object_header *)object;
    uint64_t *words = (uint64_t *)(header + 1);
    uint32_t count = (bytes - sizeof *header) / 8;
    uint64_t sum = key;
    for (uint32_t i = 0; i < count; i++) {
        words[i] = key + i;
        sum = (sum ^ (key + i)) * 0x9e3779b97f4a7c15;
    }
    header->bytes = bytes;
    header->key = key;
    header->checksum = sum;
    header->generation++;
    flush(object, bytes);
}

static void allocate(uint32_t slot, uint32_t class) {
    uint32_t object = free_lists[class][--free_counts[class]];
    uint64_t offset = objects_offset[class] + (uint64_t)object * class_bytes[class];
    uint64_t key = next_random();
    fill((char *)heap + offset, class_bytes[class], key);
    log_begin(1, slot, offset);
    heap->bitmap[class][object / 64] |= 1ull << (object % 64);
    flush(&heap->bitmap[class][object / 64], 8);
    heap->slots[slot] = offset;
    persist(&heap->slots[slot], 8);
    log_end();
    object_of_slot[slot] = class * CLASS_OBJECTS + object;
    index_insert(key, slot);
}

static void free_slot(uint32_t slot) {
    uint32_t class = object_of_slot[slot] / CLASS_OBJECTS, object = object_of_slot[slot] % CLASS_OBJECTS;
    log_begin(2, slot, heap->slots[slot]);
    heap->slots[slot] = 0;
    flush(&heap->slots[slot], 8);
    heap->bitmap[class][object / 64] &= ~(1ull << (object % 64));
    persist(&heap->bitmap[class][object / 64], 8);
    log_end();
    index_remove(nodes[slot].key, slot);
    free_lists[class][free_counts[class]++] = object;
    object_of_slot[slot] = NO_OBJECT;
}

static void create(const char *folder) {
    char path[4096];
    uint64_t bytes = (sizeof *heap + 4095) & ~4095ull;
    for (uint32_t class = 0; class < CLASS_COUNT; class ++) {
        objects_offset[class] = bytes;
        bytes += (uint64_t)class_bytes[class] * CLASS_OBJECTS;
        for (uint32_t i = 0; i < CLASS_OBJECTS; i++)
            free_lists[class][i] = i;
        free_counts[class] = CLASS_OBJECTS;
    }
    snprintf(path, sizeof path, "%s/heap", folder);
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (descriptor < 0 || ftruncate(descriptor, bytes) != 0 ||
        (heap = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)) == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    memset(object_of_slot, 0xff, sizeof object_of_slot);
    memset(buckets, 0xff, sizeof buckets);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: bench_store FOLDER OPERATIONS\n");
        return 2;
    }
    create(argv[1]);
    for (long operation = atol(argv[2]); operation > 0; operation--) {
        uint32_t slot = next_random() % SLOT_COUNT, class = next_random() % CLASS_COUNT;
        if (object_of_slot[slot] != NO_OBJECT)
            free_slot(slot);
        else if (free_counts[class] > 0)
            allocate(slot, class);
    }
    printf("%016llx\n", (unsigned long long)mix(heap->slots[1] + random_state));
    return 0;
}
