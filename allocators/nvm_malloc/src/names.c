/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c - named allocations: the object table and its volatile copy (§3.6).
 *
 * A name and its object come and go together. The table entry says what is intended before the object's header changes,
 * and says it is done after; recovery decides an intention by whether the object is activated:
 *
 *     activate_id:  entry ACTIVATING -> object activated -> entry USED        not activated: the entry is empty
 *     free_id:      entry FREEING    -> object freed     -> entry EMPTY       still activated: it is freed first
 *
 * The freed memory is given back after the entry is empty, or recovery could free what somebody else got since.
 *
 * Entries lie in the first block of each arena chunk (Figure 3). The names' lock is held over a whole operation on a name.
 */
#include "types.h"

#include <stdlib.h>
#include <string.h>

#include "persist.h"
#include "stage.h"

/* ---- volatile copy ---- */

enum { FIRST_BUCKETS = 64 };

int nvm_names_init(struct nvm_heap *heap) {
    pthread_mutex_init(&heap->names.lock, NULL);
    pthread_mutex_init(&heap->names.by_object_lock, NULL);
    heap->names.buckets = calloc(FIRST_BUCKETS, sizeof(struct nvm_name *));
    heap->names.by_object = calloc(FIRST_BUCKETS, sizeof(struct nvm_name *));
    if (heap->names.buckets == NULL || heap->names.by_object == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for the names");
    heap->names.bucket_count = FIRST_BUCKETS;
    return NVM_OK;
}

void nvm_names_destroy(struct nvm_heap *heap) {
    for (uint32_t i = 0; i < heap->names.bucket_count; i++)
        for (struct nvm_name *name = heap->names.buckets[i], *next; name != NULL; name = next) {
            next = name->next;
            free(name);
        }
    free(heap->names.buckets);
    free(heap->names.by_object);
    pthread_mutex_destroy(&heap->names.by_object_lock);
    pthread_mutex_destroy(&heap->names.lock);
}

static struct nvm_name **bucket_of(const struct nvm_names *names, const char *id) {
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *id != '\0'; id++)
        hash = (hash ^ (uint8_t)*id) * 0x100000001b3ull;
    return &names->buckets[(hash ^ hash >> 32) % names->bucket_count];
}

static struct nvm_name **bucket_of_object(const struct nvm_names *names, uint64_t object) {
    return &names->by_object[object / NVM_LINE_BYTES % names->bucket_count];
}

static struct nvm_name *find(const struct nvm_names *names, const char *id) {
    struct nvm_name *name = *bucket_of(names, id);
    while (name != NULL && strcmp(name->id, id) != 0)
        name = name->next;
    return name;
}

const struct nvm_name *nvm_names_find(const struct nvm_heap *heap, const char *id) { return find(&heap->names, id); }

/* An object that somebody reserved or activated under an id. */
bool nvm_names_has_object(struct nvm_heap *heap, uint64_t object) {
    struct nvm_names *names = &heap->names;
    pthread_mutex_lock(&names->by_object_lock);
    const struct nvm_name *name = *bucket_of_object(names, object);
    while (name != NULL && name->object != object)
        name = name->next_by_object;
    pthread_mutex_unlock(&names->by_object_lock);
    return name != NULL;
}

static void put_by_id(struct nvm_names *names, struct nvm_name *name) {
    struct nvm_name **bucket = bucket_of(names, name->id);
    name->next = *bucket;
    *bucket = name;
}

static void put_by_object(struct nvm_names *names, struct nvm_name *name) {
    struct nvm_name **bucket = bucket_of_object(names, name->object);
    name->next_by_object = *bucket;
    *bucket = name;
}

/* Whether nvm_free is refused. It is not from the moment on at which the memory may become somebody else's. */
static void keep_object(struct nvm_names *names, struct nvm_name *name, bool is_kept) {
    pthread_mutex_lock(&names->by_object_lock);
    if (is_kept) {
        put_by_object(names, name);
    } else {
        struct nvm_name **link = bucket_of_object(names, name->object);
        while (*link != name)
            link = &(*link)->next_by_object;
        *link = name->next_by_object;
    }
    pthread_mutex_unlock(&names->by_object_lock);
}

/* Twice the buckets; as before if there is no memory for them. */
static void widen(struct nvm_names *names) {
    struct nvm_names wider = {.bucket_count = names->bucket_count * 2};
    wider.buckets = calloc(wider.bucket_count, sizeof *wider.buckets);
    wider.by_object = calloc(wider.bucket_count, sizeof *wider.by_object);
    if (wider.buckets == NULL || wider.by_object == NULL) {
        free(wider.buckets);
        free(wider.by_object);
        return;
    }
    for (uint32_t i = 0; i < names->bucket_count; i++)
        for (struct nvm_name *name = names->buckets[i], *next; name != NULL; name = next) {
            next = name->next;
            put_by_id(&wider, name);
            put_by_object(&wider, name);
        }
    free(names->buckets);
    free(names->by_object);
    names->buckets = wider.buckets;
    names->by_object = wider.by_object;
    names->bucket_count = wider.bucket_count;
}

/* id: up to 55 bytes, without a terminator if it has 55. Null: out of memory. */
static struct nvm_name *add_name(struct nvm_names *names, const char *id, uint32_t number, uint64_t object) {
    struct nvm_name *name = calloc(1, sizeof *name);
    if (name == NULL)
        return NULL;
    memcpy(name->id, id, strnlen(id, NVM_ID_BYTES));
    name->number = number;
    name->object = object;
    pthread_mutex_lock(&names->by_object_lock);
    if (names->count++ >= names->bucket_count)
        widen(names);
    put_by_id(names, name);
    put_by_object(names, name);
    pthread_mutex_unlock(&names->by_object_lock);
    return name;
}

/* Its object is kept no more. */
static void forget(struct nvm_names *names, struct nvm_name *name) {
    struct nvm_name **link = bucket_of(names, name->id);
    while (*link != name)
        link = &(*link)->next;
    *link = name->next;
    names->count--;
    free(name);
}

/* ---- which entries are in use: the chunk lock ---- */

static const uint64_t ALL_ENTRIES = ((uint64_t)1 << NVM_TABLE_ENTRIES) - 1;

/* The first unused entry of any arena chunk: such a chunk stays one as long as an entry of it is in use. */
static bool take_entry(struct nvm_heap *heap, uint32_t *number) {
    bool is_found = false;
    pthread_mutex_lock(&heap->chunk_lock);
    for (uint32_t i = 0; i < nvm_chunk_count(heap) && !is_found; i++) {
        struct nvm_chunk *chunk = &heap->chunks[i];
        if (nvm_chunk_kind(chunk) != NVM_CHUNK_ARENA || chunk->entries == ALL_ENTRIES)
            continue;
        uint32_t entry = (uint32_t)__builtin_ctzll(~chunk->entries);
        chunk->entries |= (uint64_t)1 << entry;
        *number = i * NVM_TABLE_ENTRIES + entry;
        is_found = true;
    }
    pthread_mutex_unlock(&heap->chunk_lock);
    return is_found;
}

static void release_entry(struct nvm_heap *heap, uint32_t number) {
    pthread_mutex_lock(&heap->chunk_lock);
    heap->chunks[number / NVM_TABLE_ENTRIES].entries &= ~((uint64_t)1 << number % NVM_TABLE_ENTRIES);
    pthread_mutex_unlock(&heap->chunk_lock);
}

/* When all entries are in use, a further chunk brings 63 more. */
static int take_or_add_entry(struct nvm_heap *heap, uint32_t *number) {
    int status = NVM_OK;
    while (status == NVM_OK && !take_entry(heap, number)) {
        bool is_all_known = nvm_scan_is_settled(heap);
        status = nvm_range_add_chunk(heap, nvm_arena_of_thread(heap));
        if (status == NVM_OUT_OF_MEMORY && !is_all_known)
            status = nvm_scan_wait(heap); /* it may give chunks back */
    }
    return status;
}

/* ---- on media ---- */

struct nvm_entry *nvm_entry_at(const struct nvm_heap *heap, uint32_t number) {
    return &nvm_chunk_at(heap, number / NVM_TABLE_ENTRIES)->table[number % NVM_TABLE_ENTRIES];
}

uint64_t nvm_object_of(const struct nvm_heap *heap, const struct nvm_entry *entry) {
#if defined(MUTANT_NAME_ABSOLUTE)
    return entry->object - (uint64_t)heap->base;
#else
    (void)heap;
    return entry->object;
#endif
}

/* The state shares its word with the first characters of the id: one atomic store. */
static void store_entry_state(struct nvm_entry *entry, enum nvm_entry_state state) {
    uint64_t word;
    struct nvm_entry changed = *entry;
    changed.state = (uint8_t)state;
    memcpy(&word, (const char *)&changed + offsetof(struct nvm_entry, state), sizeof word);
    fl_store8((char *)entry + offsetof(struct nvm_entry, state), word);
#if !defined(MUTANT_MISSING_FLUSH_NAME)
    fl_persist(entry, sizeof *entry); /* of its fence, mutate tells no loss: a ring entry fences before or after */
#endif
}

/* All of the entry, the word with the state last. */
static void store_entry(struct nvm_entry *entry, const struct nvm_name *name) {
    struct nvm_entry content = {.object = name->object, .state = NVM_ENTRY_ACTIVATING};
    memcpy(content.id, name->id, NVM_ID_BYTES);
    uint64_t words[NVM_LINE_BYTES / sizeof(uint64_t)];
    memcpy(words, &content, sizeof words);
#if defined(MUTANT_NAME_STATE_FIRST)
    fl_store8((uint64_t *)entry + 1, words[1]);
#endif
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (i != offsetof(struct nvm_entry, state) / sizeof *words)
            fl_store8((uint64_t *)entry + i, words[i]);
    fl_store8((uint64_t *)entry + 1, words[1]);
    fl_persist(entry, sizeof *entry); /* of its fence, mutate tells no loss: the ring entry of the activation fences */
}

/* ---- recovery: before the chunks are scanned, so from the headers alone ---- */

/* The header and the slot of a named object; false if the pointer cannot be one. */
static bool locate(const struct nvm_heap *heap, uint64_t object, struct nvm_header **header, uint8_t *slot) {
    uint32_t block = (uint32_t)(object / NVM_BLOCK_BYTES), chunk = (uint32_t)(object / heap->chunk_bytes);
    uint64_t inside = object % NVM_BLOCK_BYTES;
    *slot = 0;
    if (object >= nvm_heap_bytes(heap) || block == 1 || inside < NVM_LINE_BYTES)
        return false;
    *header = nvm_header_at(heap, block);
    if (block % heap->chunk_blocks == 0)
        return inside == NVM_LINE_BYTES && nvm_chunk_kind(&heap->chunks[chunk]) != NVM_CHUNK_ARENA;
    if (nvm_tag_kind((*header)->tag) == NVM_KIND_RUN && nvm_run_class((*header)->run) < NVM_SMALL_CLASSES) {
        uint32_t bytes = nvm_class_bytes(nvm_run_class((*header)->run));
        *slot = (uint8_t)((inside - NVM_LINE_BYTES) / bytes);
        return (inside - NVM_LINE_BYTES) % bytes == 0 && *slot < nvm_class_slots(nvm_run_class((*header)->run));
    }
    return true; /* a free range: its content could be any reserved object */
}

static bool is_activated_on_media(const struct nvm_header *header, uint8_t slot) {
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    return kind == NVM_KIND_RUN ? (header->bitmap >> slot & 1) != 0 : kind == NVM_KIND_LARGE || kind == NVM_KIND_CHUNK_HUGE;
}

/* Without links, freeing is one atomic store. */
static void free_at_once(struct nvm_header *header, uint8_t slot) {
    uint64_t tag = header->tag;
    enum nvm_kind kind = nvm_tag_kind(tag) == NVM_KIND_LARGE ? NVM_KIND_FREE : NVM_KIND_CHUNK_FREE;
    if (nvm_tag_kind(tag) == NVM_KIND_RUN)
        fl_store8(&header->bitmap, header->bitmap & ~((uint64_t)1 << slot));
    else
        fl_store8(&header->tag, nvm_tag(kind, NVM_STATE_IDLE, nvm_tag_arena(tag), nvm_tag_count(tag)));
    fl_persist(header, sizeof *header);
}

/* Decides an intention. True if the entry is used afterwards. */
static bool settle_entry(struct nvm_entry *entry, struct nvm_header *header, uint8_t slot, bool is_activated) {
    if (entry->state == NVM_ENTRY_ACTIVATING) {
        if (is_activated)
            FL_STAGE("name: activating, its object is activated");
        else
            FL_STAGE("name: activating, its object is not activated");
    }
    if (entry->state == NVM_ENTRY_FREEING) {
        if (is_activated)
            FL_STAGE("name: freeing, its object is still activated");
        else
            FL_STAGE("name: freeing, its object is free");
    }
    if (entry->state == NVM_ENTRY_FREEING && is_activated)
        free_at_once(header, slot);
    if (entry->state == NVM_ENTRY_FREEING || !is_activated) {
        store_entry_state(entry, NVM_ENTRY_EMPTY);
        return false;
    }
    if (entry->state == NVM_ENTRY_ACTIVATING)
        store_entry_state(entry, NVM_ENTRY_USED);
    else
        FL_STAGE("name: used");
    return true;
}

static int load_entry(struct nvm_heap *heap, uint32_t number) {
    struct nvm_entry *entry = nvm_entry_at(heap, number);
    struct nvm_header *header;
    uint8_t slot;
    if (entry->state == NVM_ENTRY_EMPTY)
        return NVM_OK; /* the rest of it may be anything */
    uint64_t object = nvm_object_of(heap, entry);
    if (entry->state > NVM_ENTRY_FREEING || entry->id[0] == '\0' || !locate(heap, object, &header, &slot))
        return nvm_fail(NVM_CORRUPT, "object table entry %u is damaged: state %u, object %#llx", number, entry->state,
                        (unsigned long long)object);
    bool is_activated = is_activated_on_media(header, slot);
    if (entry->state == NVM_ENTRY_USED && !is_activated)
        return nvm_fail(NVM_CORRUPT, "object table entry %u names an object at %#llx that is not allocated", number,
                        (unsigned long long)object);
#if defined(MUTANT_SETTLED_ENTRY_IS_FREE)
    const bool is_settled = entry->state != NVM_ENTRY_USED;
#endif
    if (!settle_entry(entry, header, slot, is_activated))
        return NVM_OK;

    char id[NVM_ID_BYTES + 1] = "";
    memcpy(id, entry->id, NVM_ID_BYTES);
    if (find(&heap->names, id) != NULL)
        return nvm_fail(NVM_CORRUPT, "object table entry %u: the id '%s' is there twice", number, id);
    struct nvm_name *name = add_name(&heap->names, id, number, object);
    if (name == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a name");
    name->is_used = true;
#if defined(MUTANT_SETTLED_ENTRY_IS_FREE)
    if (is_settled)
        return NVM_OK;
#endif
    heap->chunks[number / NVM_TABLE_ENTRIES].entries |= (uint64_t)1 << number % NVM_TABLE_ENTRIES;
    return NVM_OK;
}

/* Of one arena chunk. */
int nvm_names_load(struct nvm_heap *heap, uint32_t chunk) {
    struct nvm_chunk_block *block = nvm_chunk_at(heap, chunk);
    int status = NVM_OK;
    fl_persist(block->table, sizeof block->table); /* empty ones, too: a killed process leaves some, mutate has none */
    for (uint32_t i = 0; i < NVM_TABLE_ENTRIES && status == NVM_OK; i++)
        status = load_entry(heap, chunk * NVM_TABLE_ENTRIES + i);
    return status;
}

/* ---- the interface ---- */

static int check_id(const char *id) {
    if (id == NULL || id[0] == '\0')
        return nvm_fail(NVM_INVALID, "an id must not be empty");
    if (strlen(id) > NVM_ID_BYTES)
        return nvm_fail(NVM_INVALID, "the id '%.60s...' is longer than %u characters", id, NVM_ID_BYTES);
    return NVM_OK;
}

static int reserve_id(struct nvm_heap *heap, const char *id, uint64_t bytes, void **object) {
    uint32_t number;
    if (find(&heap->names, id) != NULL)
        return nvm_fail(NVM_INVALID, "the id '%s' is in use", id);
    int status = nvm_region_reserve(heap, bytes, object);
    if (status != NVM_OK)
        return status;
    status = take_or_add_entry(heap, &number);
    if (status == NVM_OK && add_name(&heap->names, id, number, nvm_heap_relative(heap, *object)) == NULL) {
        release_entry(heap, number);
        status = nvm_fail(NVM_ERROR, "out of volatile memory for a name");
    }
    struct nvm_region region;
    if (status != NVM_OK && nvm_region_of(heap, *object, &region) == NVM_OK)
        nvm_region_free(heap, &region, &(struct nvm_links){0}, NULL, NULL);
    return status;
}

static int region_of_name(const struct nvm_heap *heap, const struct nvm_name *name, struct nvm_region *region) {
    return nvm_region_of(heap, nvm_heap_absolute(heap, name->object), region);
}

static int activate_id(struct nvm_heap *heap, const char *id) {
    struct nvm_name *name = find(&heap->names, id);
    struct nvm_region region;
    if (name == NULL || name->is_used)
        return nvm_fail(NVM_INVALID, "the id '%s' is not reserved, so it cannot be activated", id);
    if (region_of_name(heap, name, &region) != NVM_OK || !nvm_region_is_reserved(heap, &region))
        return nvm_fail(NVM_INVALID, "the object of the id '%s' was activated or freed without its id", id);
    struct nvm_entry *entry = nvm_entry_at(heap, name->number);
#if defined(MUTANT_NAME_ABSOLUTE)
    struct nvm_name absolute = *name;
    absolute.object += (uint64_t)heap->base;
    store_entry(entry, &absolute);
#else
    store_entry(entry, name);
#endif
    int status = nvm_region_activate(heap, &region, &(struct nvm_links){0});
    store_entry_state(entry, status == NVM_OK ? NVM_ENTRY_USED : NVM_ENTRY_EMPTY);
    name->is_used = status == NVM_OK;
    return status;
}

static void entry_of_freed(void *context, bool is_freed) {
#if defined(MUTANT_NAME_CLEARED_FIRST)
    if (!is_freed)
        store_entry_state(context, NVM_ENTRY_EMPTY);
#elif defined(MUTANT_NAME_NOT_FREEING)
    if (is_freed)
        store_entry_state(context, NVM_ENTRY_EMPTY);
#else
    store_entry_state(context, is_freed ? NVM_ENTRY_EMPTY : NVM_ENTRY_FREEING);
#endif
}

static int free_id(struct nvm_heap *heap, const char *id) {
    struct nvm_name *name = find(&heap->names, id);
    struct nvm_region region;
    if (name == NULL)
        return nvm_fail(NVM_INVALID, "no object has the id '%s'", id);
    int status = region_of_name(heap, name, &region);
    if (status == NVM_OK && name->is_used && nvm_region_is_reserved(heap, &region))
        status = nvm_fail(NVM_INVALID, "the object of the id '%s' was freed without its id", id);
    if (status != NVM_OK)
        return status;
    keep_object(&heap->names, name, false);
    /* reserved only: its entry is empty and stays so */
    status = nvm_region_free(heap, &region, &(struct nvm_links){0}, name->is_used ? entry_of_freed : NULL,
                             nvm_entry_at(heap, name->number));
    if (status != NVM_OK) {
        keep_object(&heap->names, name, true);
        return status;
    }
    release_entry(heap, name->number);
    forget(&heap->names, name);
    return NVM_OK;
}

int nvm_heap_reserve_id(struct nvm_heap *heap, const char *id, uint64_t bytes, void **object) {
    int status = check_id(id);
    if (status != NVM_OK)
        return status;
    pthread_mutex_lock(&heap->names.lock);
    status = reserve_id(heap, id, bytes, object);
    pthread_mutex_unlock(&heap->names.lock);
    nvm_assert_heap(heap);
    return status;
}

int nvm_heap_activate_id(struct nvm_heap *heap, const char *id) {
    int status = check_id(id);
    if (status != NVM_OK)
        return status;
    pthread_mutex_lock(&heap->names.lock);
    status = activate_id(heap, id);
    pthread_mutex_unlock(&heap->names.lock);
    nvm_assert_heap(heap);
    return status;
}

int nvm_heap_free_id(struct nvm_heap *heap, const char *id) {
    int status = check_id(id);
    if (status != NVM_OK)
        return status;
    pthread_mutex_lock(&heap->names.lock);
    status = free_id(heap, id);
    pthread_mutex_unlock(&heap->names.lock);
    nvm_assert_heap(heap);
    return status;
}

void *nvm_heap_get_id(struct nvm_heap *heap, const char *id) {
    if (check_id(id) != NVM_OK)
        return NULL;
    pthread_mutex_lock(&heap->names.lock);
    const struct nvm_name *name = find(&heap->names, id);
    void *object = name == NULL || !name->is_used ? NULL : nvm_heap_absolute(heap, name->object);
    pthread_mutex_unlock(&heap->names.lock);
    if (object == NULL)
        nvm_fail(NVM_INVALID, "no object has the id '%s'", id);
    return object;
}
