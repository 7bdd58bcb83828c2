/* SPDX-License-Identifier: Apache-2.0
 *
 * chunk.c - chunks (§3.2, §3.4): the tree of free ones, huge objects over whole ones, arena chunks, growth of the file.
 *
 * layout.h says in which order each change reaches the media. Growth takes no more chunks than the request lacks: free chunks
 * at the end of the file and the new ones become one range. A crash during growth leaves a file that is longer than heap_bytes;
 * nvm_adopt_growth does the rest of it when the heap is opened.
 *
 * The chunk lock is held by all of these functions, or by the callers of the static ones.
 */
#include "types.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "persist.h"
#include "stage.h"

/* ---- free chunks, volatile ---- */

/* put_in_tree, take_from_tree, free_at and the merging in give_back have their like in range.c, for blocks: what is wrong in one is
 * likely to be wrong in the other. */

static void put_in_tree(struct nvm_heap *heap, struct nvm_vheader *range) {
    heap->chunks[range->first].range = range;
    heap->chunks[range->first + range->count - 1].range = range;
    nvm_set_chunk_kind(&heap->chunks[range->first], NVM_CHUNK_FREE);
    nvm_tree_insert(&heap->free_chunks, range);
}

static void take_from_tree(struct nvm_heap *heap, struct nvm_vheader *range) {
    nvm_tree_remove(&heap->free_chunks, range);
    nvm_set_chunk_kind(&heap->chunks[range->first], NVM_CHUNK_INSIDE);
    heap->chunks[range->first + range->count - 1].range = NULL;
    heap->chunks[range->first].range = NULL;
}

/* Free chunks that begin, or end, with this one; null if it is not free. The VHeaders of others are not looked at: their owners
 * may free them meanwhile. */
static struct nvm_vheader *free_at(const struct nvm_heap *heap, uint32_t chunk) {
    enum nvm_chunk_kind kind = chunk < nvm_chunk_count(heap) ? nvm_chunk_kind(&heap->chunks[chunk]) : NVM_CHUNK_ARENA;
    return kind == NVM_CHUNK_FREE || kind == NVM_CHUNK_INSIDE ? heap->chunks[chunk].range : NULL;
}

/* ---- headers ---- */

static uint64_t free_tag(uint32_t count) { return nvm_tag(NVM_KIND_CHUNK_FREE, NVM_STATE_IDLE, 0, count); }

/* Not fenced. What the header's line held before is content. */
void nvm_format_chunks(struct nvm_heap *heap, uint32_t first, uint32_t count, uint64_t tag) {
    struct nvm_chunk_header *header = &nvm_chunk_at(heap, first)->header;
    nvm_assert(nvm_tag_count(tag) == count);
    (void)count;
    fl_store8(&header->magic, NVM_CHUNK_MAGIC);
    fl_store8(&header->index, first);
    fl_store8(&header->tag, tag);
    fl_flush(header, sizeof *header);
}

static void store_tag(struct nvm_heap *heap, uint32_t chunk, uint64_t tag) {
    struct nvm_chunk_header *header = &nvm_chunk_at(heap, chunk)->header;
    fl_store8(&header->tag, tag);
    fl_flush(header, sizeof *header);
    /* After one crash a lock or the next fence does it as well; after a second one growth.workload tells its loss. */
    fl_fence();
}

static void split_on_media(struct nvm_heap *heap, const struct nvm_vheader *range, uint32_t count) {
    uint32_t rest = range->first + count, rest_count = range->count - count;
#if defined(MUTANT_CHUNK_SPLIT_ORDER)
    store_tag(heap, range->first, free_tag(count));
#endif
    nvm_format_chunks(heap, rest, rest_count, free_tag(rest_count));
    fl_fence();
#if !defined(MUTANT_CHUNK_SPLIT_ORDER)
    store_tag(heap, range->first, free_tag(count));
#endif
}

/* ---- growth ---- */

int nvm_chunk_map(struct nvm_heap *heap, uint32_t first, uint32_t count) {
    int is_emulated;
    char *at = heap->base + first * heap->chunk_bytes;
    if (fl_map((uintptr_t)at, count * heap->chunk_bytes, heap->fd, first * heap->chunk_bytes, 1, &is_emulated) == MAP_FAILED)
        return nvm_fail(NVM_ERROR, "cannot map chunk %u of the heap file: %s", first, strerror(errno));
    heap->is_emulated = is_emulated;
    return NVM_OK;
}

/* The chunks are part of the heap once heap_bytes counts them. */
static void count_on_media(struct nvm_heap *heap, uint32_t chunks) {
    fl_store8(&heap->media->heap.heap_bytes, chunks * heap->chunk_bytes);
    fl_flush(&heap->media->heap, sizeof heap->media->heap);
    fl_fence(); /* the next fence comes before anything in the new chunks is reachable, too: mutate tells no loss */
}

/* A header for chunks that the file has and the heap has not. */
static void add_on_media(struct nvm_heap *heap, uint32_t first, uint32_t count) {
#if defined(MUTANT_GROWTH_ORDER)
    count_on_media(heap, first + count);
#endif
    nvm_format_chunks(heap, first, count, free_tag(count));
#if !defined(MUTANT_MISSING_FENCE_GROWTH)
    fl_fence();
#endif
    count_on_media(heap, first + count);
}

/* The file and the mapping get chunks [first, first + count), or nothing changes. */
static int grow_file(struct nvm_heap *heap, uint32_t first, uint32_t count) {
    off_t bytes = (off_t)(first * heap->chunk_bytes), more = (off_t)(count * heap->chunk_bytes);
#if defined(MUTANT_SIZE_BEFORE_GROWTH)
    count_on_media(heap, first + count);
#endif
    int error = posix_fallocate(heap->fd, bytes, more);
    int status = error == 0 ? NVM_OK
                            : nvm_fail(NVM_OUT_OF_MEMORY, "the heap file cannot grow from %lld bytes by %lld: %s", (long long)bytes,
                                       (long long)more, strerror(error));
    if (status == NVM_OK && fsync(heap->fd) != 0) /* the file's size: heap_bytes relies on it */
        status = nvm_fail(NVM_ERROR, "the heap file's growth to %lld bytes cannot be persisted: %s", (long long)(bytes + more),
                          strerror(errno));
    if (status == NVM_OK)
        status = nvm_chunk_map(heap, first, count);
    if (status != NVM_OK && ftruncate(heap->fd, bytes) != 0)
        return nvm_fail(NVM_ERROR, "the heap file cannot be cut back to %lld bytes: %s", (long long)bytes, strerror(errno));
    return status;
}

static void give_back(struct nvm_heap *heap, struct nvm_vheader *range);

/* Makes a free range of at least so many chunks at the end of the file. */
static int grow(struct nvm_heap *heap, uint32_t count) {
    uint32_t first = nvm_chunk_count(heap), limit = nvm_chunk_limit(heap);
    const struct nvm_vheader *last = free_at(heap, first - 1);
    count -= last == NULL ? 0 : last->count;
    if (count > limit - first)
        return nvm_fail(NVM_OUT_OF_MEMORY, "%u more chunks of %llu bytes are needed, and the heap's limit leaves %u", count,
                        (unsigned long long)heap->chunk_bytes, limit - first);
    struct nvm_vheader *range = calloc(1, sizeof *range);
    if (range == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    int status = grow_file(heap, first, count);
    if (status != NVM_OK) {
        free(range);
        return status;
    }
    add_on_media(heap, first, count);
    __atomic_store_n(&heap->chunk_count, first + count, __ATOMIC_RELEASE);
    range->first = first;
    range->count = count;
    give_back(heap, range);
    return NVM_OK;
}

/* Recovery: the file, which is mapped, is longer than the heap knows. Before anything else is done to the heap. */
int nvm_adopt_growth(struct nvm_heap *heap, uint64_t file_bytes) {
    uint32_t known = (uint32_t)(heap->media->heap.heap_bytes / heap->chunk_bytes),
             whole = (uint32_t)(file_bytes / heap->chunk_bytes);
    if (file_bytes % heap->chunk_bytes != 0 && ftruncate(heap->fd, (off_t)(whole * heap->chunk_bytes)) != 0)
        return nvm_fail(NVM_ERROR, "the heap file cannot be cut back to %u chunks: %s", whole, strerror(errno));
#if !defined(MUTANT_RECOVERY_IGNORES_GROWTH)
    if (whole > known) {
        if (nvm_chunk_at(heap, known)->header.tag == 0)
            FL_STAGE("growth: the file is longer, the new chunks have no header");
        else
            FL_STAGE("growth: the new chunks have a header, the heap does not count them");
        add_on_media(heap, known, whole - known);
    }
    known = whole;
#endif
    __atomic_store_n(&heap->chunk_count, known, __ATOMIC_RELEASE);
    return NVM_OK;
}

/* ---- taking and giving back ---- */

static int take(struct nvm_heap *heap, uint32_t count, struct nvm_vheader **taken) {
    struct nvm_vheader *range = nvm_tree_best_fit(heap->free_chunks, count);
    if (range == NULL) {
        int status = grow(heap, count);
        if (status != NVM_OK)
            return status;
        range = nvm_tree_best_fit(heap->free_chunks, count);
    }
    if (range->count > count) {
        struct nvm_vheader *rest = calloc(1, sizeof *rest);
        if (rest == NULL)
            return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
        split_on_media(heap, range, count);
        take_from_tree(heap, range);
        rest->first = range->first + count;
        rest->count = range->count - count;
        range->count = count;
        put_in_tree(heap, rest);
    } else {
        take_from_tree(heap, range);
    }
    *taken = range;
    return NVM_OK;
}

/* For a huge object. */
int nvm_chunk_take(struct nvm_heap *heap, uint32_t count, struct nvm_vheader **range) {
    pthread_mutex_lock(&heap->chunk_lock);
    int status = take(heap, count, range);
    if (status == NVM_OK) {
        heap->chunks[(*range)->first].range = *range;
        nvm_set_chunk_kind(&heap->chunks[(*range)->first], NVM_CHUNK_RESERVED);
    }
    pthread_mutex_unlock(&heap->chunk_lock);
    return status;
}

/* Recovery: makes chunks known that are free on media and have no free neighbour. */
void nvm_chunk_adopt(struct nvm_heap *heap, struct nvm_vheader *range) { put_in_tree(heap, range); }

/* The chunks are free on media, and known to nobody else. */
static void give_back(struct nvm_heap *heap, struct nvm_vheader *range) {
    struct nvm_vheader *after = free_at(heap, range->first + range->count);
    struct nvm_vheader *before = free_at(heap, range->first - 1); /* chunk 0 is never free */
    nvm_set_chunk_kind(&heap->chunks[range->first], NVM_CHUNK_INSIDE);
    heap->chunks[range->first].range = NULL;
    if (after != NULL) {
        take_from_tree(heap, after);
        range->count += after->count;
        free(after);
    }
    if (before != NULL) {
        take_from_tree(heap, before);
        range->first = before->first;
        range->count += before->count;
        free(before);
    }
    if (nvm_load8(&nvm_chunk_at(heap, range->first)->header.tag) != free_tag(range->count))
        store_tag(heap, range->first, free_tag(range->count)); /* fenced: headers merged away may be overwritten from here on */
    put_in_tree(heap, range);
}

/* Takes the VHeader over. */
void nvm_chunk_give_back(struct nvm_heap *heap, struct nvm_vheader *range) {
    pthread_mutex_lock(&heap->chunk_lock);
    give_back(heap, range);
    pthread_mutex_unlock(&heap->chunk_lock);
}

/* ---- arena chunks ---- */

/* Room for what is volatile about an arena chunk. It stays when the chunk becomes something else. */
int nvm_chunk_prepare(struct nvm_heap *heap, uint32_t number) {
    struct nvm_chunk *chunk = &heap->chunks[number];
    if (chunk->roles == NULL)
        chunk->roles = calloc(heap->chunk_blocks, sizeof *chunk->roles);
    if (chunk->vheaders == NULL)
        chunk->vheaders = calloc(heap->chunk_blocks, sizeof(struct nvm_vheader *));
    if (chunk->roles == NULL || chunk->vheaders == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for the blocks of a chunk");
    chunk->roles[0] = NVM_ROLE_METADATA;
    return NVM_OK;
}

/* A free range over all blocks and an empty object table, whatever content the chunk held before; then the chunk's tag. */
static void format_arena_chunk(struct nvm_heap *heap, uint32_t chunk, uint16_t arena) {
    struct nvm_chunk_block *block = nvm_chunk_at(heap, chunk);
    struct nvm_header *header = nvm_header_at(heap, chunk * heap->chunk_blocks + 1);
    uint64_t arena_tag = nvm_tag(NVM_KIND_CHUNK_ARENA, NVM_STATE_IDLE, arena, 1);
#if defined(MUTANT_CONVERT_ORDER)
    store_tag(heap, chunk, arena_tag);
#endif
#if !defined(MUTANT_TABLE_NOT_CLEARED)
    for (uint32_t i = 0; i < NVM_TABLE_ENTRIES; i++) {
        uint64_t *state = (uint64_t *)&block->table[i] + 1;
        fl_store8(state, 0); /* not looked at: what power failure left of an object's content may be anything */
        fl_flush(state, sizeof *state);
    }
#endif
    fl_store8(&header->tag, nvm_tag(NVM_KIND_FREE, NVM_STATE_IDLE, arena, heap->chunk_blocks - 1));
    fl_flush(header, sizeof *header);
#if !defined(MUTANT_MISSING_FENCE_CONVERT)
    fl_fence();
#endif
#if !defined(MUTANT_CONVERT_ORDER)
    store_tag(heap, chunk, arena_tag);
#endif
    (void)block;
}

/* One more chunk for the arena, whose lock is held: its only free range, in no tree. */
int nvm_chunk_to_arena(struct nvm_heap *heap, struct nvm_arena *arena, struct nvm_vheader **taken) {
    struct nvm_vheader *range;
    pthread_mutex_lock(&heap->chunk_lock);
    int status = take(heap, 1, &range);
    if (status == NVM_OK && nvm_chunk_prepare(heap, range->first) != NVM_OK) {
        give_back(heap, range);
        status = NVM_ERROR;
    }
    if (status == NVM_OK) {
        struct nvm_chunk *chunk = &heap->chunks[range->first];
        format_arena_chunk(heap, range->first, arena->id);
        __atomic_store_n(&chunk->arena, arena->id, __ATOMIC_RELAXED);
        chunk->entries = 0;
        __atomic_store_n(&chunk->is_scanned, 1, __ATOMIC_RELEASE);
        nvm_set_chunk_kind(chunk, NVM_CHUNK_ARENA);
        range->first = range->first * heap->chunk_blocks + 1;
        range->count = heap->chunk_blocks - 1;
        *taken = range;
    }
    pthread_mutex_unlock(&heap->chunk_lock);
    return status;
}

/* Makes an arena's chunk free. Its arena's lock is held; range covers all its blocks, is in no tree, and becomes the VHeader of
 * the free chunk. False, and nothing happened, if the chunk's object table is in use. */
bool nvm_chunk_from_arena(struct nvm_heap *heap, uint32_t number, struct nvm_vheader *range) {
    struct nvm_chunk *chunk = &heap->chunks[number];
    pthread_mutex_lock(&heap->chunk_lock);
    bool is_unused = number != 0 && chunk->entries == 0;
    if (is_unused) {
        store_tag(heap, number, free_tag(1)); /* fenced: the blocks' headers may be overwritten from here on */
        nvm_set_chunk_kind(chunk, NVM_CHUNK_INSIDE);
        range->first = number;
        range->count = 1;
        give_back(heap, range);
    }
    pthread_mutex_unlock(&heap->chunk_lock);
    return is_unused;
}
