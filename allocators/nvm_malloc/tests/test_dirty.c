/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dirty.c - lines that were stored and never flushed when recovery or the allocator comes to them:
 *   - content that the application never flushed, in what becomes metadata
 *   - metadata that a process stored before it was killed. The heap is opened again while those lines are dirty, and power
 *     fails at each event from then on
 * Every image must open, check clean, and tell what is linked (recorder.h).
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layout.h"
#include "nvm_malloc.h"
#include "persist.h"
#include "recorder.h"

enum { CHUNK_BYTES = 65536, LIMIT_BYTES = 5 * CHUNK_BYTES, IMAGES = 3 };

static struct {
    char folder[64], scratch[64];
    unsigned long events_to_kill; /* 0: nobody is killed */
    jmp_buf killed;
    bool is_judging;
    uint64_t random;
    unsigned long judged, findings, kill, event;
} test;

static void finding(const char *text) {
    if (test.findings++ < 5)
        printf("killed at event %lu, power fails %lu events later: %s\n", test.kill, test.event, text);
}

static struct nvm_options options(const char *folder) {
    return (struct nvm_options){
        .folder = folder, .heap_bytes = CHUNK_BYTES, .chunk_bytes = CHUNK_BYTES, .limit_bytes = LIMIT_BYTES};
}

/* What the root links is allocated; what it does not link is not. */
static void judge_heap(struct nvm_heap *heap) {
    uint64_t *root = nvm_heap_get_id(heap, "root");
    if (nvm_heap_check(heap) != NVM_OK)
        finding(nvm_message());
    for (int i = 0; root != NULL && i < 4; i++)
        if (root[i] != 0 && nvm_heap_usable_bytes(heap, nvm_heap_absolute(heap, root[i])) == 0)
            finding("a link to what is not allocated");
}

static void judge_image(const char *image, size_t bytes) {
    char path[128];
    snprintf(path, sizeof path, "%s/heap", test.scratch);
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0)
        abort();
    struct nvm_options opened = options(test.scratch);
    struct nvm_heap *heap;
    test.judged++;
    if (nvm_heap_open(&opened, &heap) != NVM_OK) {
        finding(nvm_message());
        return;
    }
    judge_heap(heap);
    nvm_heap_close(heap);
}

static void judge_power_failure(struct recorder *recorder) {
    size_t bytes = recorder_bytes(recorder);
    char *image = malloc(bytes + 1);
    for (int i = 0; i < IMAGES && bytes > 0; i++) {
        recorder_make_image(recorder, i == 0 ? IMAGE_FLOOR : IMAGE_RANDOM, &test.random, image);
        judge_image(image, bytes);
    }
    free(image);
}

static void on_event(struct recorder *recorder, void *context) {
    (void)context;
    if (test.events_to_kill > 0 && --test.events_to_kill == 0) {
        recorder_switch(NULL);
        longjmp(test.killed, 1);
    }
    test.event++;
    if (test.is_judging)
        judge_power_failure(recorder);
}

static void expect(int status) {
    if (status != NVM_OK) {
        printf("%s\n", nvm_message());
        exit(1);
    }
}

static void *linked(struct nvm_heap *heap, uint64_t bytes, uint64_t *link) {
    void *object;
    expect(nvm_heap_reserve(heap, bytes, &object));
    memset(object, 1, bytes);
    nvm_persist(object, bytes);
    expect(nvm_heap_activate(heap, object, link, object, NULL, NULL));
    return object;
}

/* Every kind of operation on regions of every kind, with splits, merges, growth and a chunk for an arena. */
static void operations(struct nvm_heap *heap, uint64_t *root) {
    void *named;
    void *small = linked(heap, 100, &root[0]);
    void *large = linked(heap, 5000, &root[1]);
    void *huge = linked(heap, 40000, &root[2]);
    expect(nvm_heap_reserve_id(heap, "name", 3000, &named));
    expect(nvm_heap_activate_id(heap, "name"));
    expect(nvm_heap_free(heap, large, &root[1], NULL, NULL, NULL));
    expect(nvm_heap_free_id(heap, "name"));
    expect(nvm_heap_free(heap, huge, &root[2], NULL, NULL, NULL));
    linked(heap, 30000, &root[1]);
    linked(heap, 30000, &root[2]);
    expect(nvm_heap_free(heap, small, &root[0], NULL, NULL, NULL));
    linked(heap, 9000, &root[3]);
}

/* By the process that comes after: what the killed one split or merged is used. */
static void go_on(struct nvm_heap *heap) {
    uint64_t *root = nvm_heap_get_id(heap, "root");
    for (int i = 0; i < 4; i++)
        if (root[i] == 0)
            linked(heap, i == 2 ? 100 : 20000, &root[i]); /* more than was being split off, so from the rest */
}

static struct nvm_heap *new_heap(uint64_t **root) {
    char path[128];
    snprintf(path, sizeof path, "%s/heap", test.folder);
    unlink(path);
    struct nvm_options created = options(test.folder);
    struct nvm_heap *heap;
    void *object;
    expect(nvm_heap_create(&created, &heap));
    expect(nvm_heap_reserve_id(heap, "root", 4 * sizeof(uint64_t), &object));
    memset(object, 0, 4 * sizeof(uint64_t));
    nvm_persist(object, 4 * sizeof(uint64_t));
    expect(nvm_heap_activate_id(heap, "root"));
    *root = object;
    return heap;
}

/* False: the operations ended first. The killed process's mapping stays, as its dirty lines do. */
static bool kill_and_open(unsigned long kill) {
    struct recorder *recorder = recorder_new(on_event, NULL);
    uint64_t *root;
    recorder_switch(recorder);
    struct nvm_heap *heap = new_heap(&root), *opened;
    test.kill = test.events_to_kill = kill;
    if (setjmp(test.killed) == 0) {
        operations(heap, root);
        test.events_to_kill = 0;
        recorder_switch(NULL);
        return false;
    }
    test.event = 0;
    test.is_judging = true;
    recorder_switch(recorder);
    struct nvm_options again = options(test.folder);
    expect(nvm_heap_open(&again, &opened));
    go_on(opened);
    recorder_position();
    recorder_switch(NULL);
    test.is_judging = false;
    return true;
}

/* Zeros that the application never flushed must not pass for an empty object table. */
static void freed_content_becomes_an_object_table(void) {
    struct recorder *recorder = recorder_new(on_event, NULL);
    uint64_t *root;
    void *reserved;
    recorder_switch(recorder);
    struct nvm_heap *heap = new_heap(&root);
    uint64_t *huge = linked(heap, 40000, &root[0]);
    for (int i = 0; i < 1000; i++)
        fl_store8(&huge[i], 0);
    expect(nvm_heap_free(heap, huge, &root[0], NULL, NULL, NULL));
    for (int i = 0; i < 30; i++) /* more than the first chunk has */
        expect(nvm_heap_reserve(heap, 4000, &reserved));
    recorder_switch(NULL);
    judge_power_failure(recorder);
}

int main(void) {
    snprintf(test.folder, sizeof test.folder, "/dev/shm/nvm-dirty-XXXXXX");
    snprintf(test.scratch, sizeof test.scratch, "/dev/shm/nvm-dirty-XXXXXX");
    if (mkdtemp(test.folder) == NULL || mkdtemp(test.scratch) == NULL)
        abort();
    freed_content_becomes_an_object_table();
    unsigned long kill = 1;
    while (kill_and_open(kill))
        kill++;
    char command[160];
    snprintf(command, sizeof command, "rm -r %s %s", test.folder, test.scratch);
    int left = system(command);
    printf("%lu kills, %lu images judged, %lu findings\n", kill, test.judged, test.findings);
    return test.findings != 0 || test.judged < 1000 || left != 0;
}
