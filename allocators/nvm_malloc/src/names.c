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
 */
#include "types.h"

#include <stdlib.h>
#include <string.h>

#include "persist.h"

/* ---- volatile copy ---- */

int nvm_names_init(struct nvm_heap *heap) {
    struct nvm_names *names = &heap->names;
    names->count = nvm_chunk_count(heap) * NVM_TABLE_ENTRIES;
    names->names = calloc(names->count, sizeof *names->names);
    names->buckets = calloc(names->count, sizeof *names->buckets);
    if (names->names == NULL || names->buckets == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for the names");
    return NVM_OK;
}

void nvm_names_destroy(struct nvm_heap *heap) {
    free(heap->names.names);
    free(heap->names.buckets);
}

static uint32_t *bucket_of(const struct nvm_names *names, const char *id) {
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (; *id != '\0'; id++)
        hash = (hash ^ (uint8_t)*id) * 0x100000001b3ull;
    return &names->buckets[(hash ^ hash >> 32) % names->count];
}

static struct nvm_name *find(const struct nvm_names *names, const char *id) {
    uint32_t number = *bucket_of(names, id);
    while (number != 0 && strcmp(names->names[number - 1].id, id) != 0)
        number = names->names[number - 1].next_same_hash;
    return number == 0 ? NULL : &names->names[number - 1];
}

const struct nvm_name *nvm_names_find(const struct nvm_heap *heap, const char *id) { return find(&heap->names, id); }

static void put_in_bucket(struct nvm_names *names, struct nvm_name *name) {
    uint32_t *bucket = bucket_of(names, name->id);
    name->next_same_hash = *bucket;
    *bucket = (uint32_t)(name - names->names) + 1;
}

static void forget(struct nvm_names *names, struct nvm_name *name) {
    uint32_t *link = bucket_of(names, name->id);
    while (*link != (uint32_t)(name - names->names) + 1)
        link = &names->names[*link - 1].next_same_hash;
    *link = name->next_same_hash;
    memset(name, 0, sizeof *name);
}

/* ---- on media ---- */

struct nvm_entry *nvm_entry_at(const struct nvm_heap *heap, uint32_t number) {
    return &nvm_chunk_at(heap, number / NVM_TABLE_ENTRIES)->table[number % NVM_TABLE_ENTRIES];
}

static struct nvm_entry *entry_of(const struct nvm_heap *heap, const struct nvm_name *name) {
    return nvm_entry_at(heap, (uint32_t)(name - heap->names.names));
}

/* The state shares its word with the first characters of the id: one atomic store. */
static void store_entry_state(struct nvm_entry *entry, enum nvm_entry_state state) {
    uint64_t word;
    struct nvm_entry changed = *entry;
    changed.state = (uint8_t)state;
    memcpy(&word, (const char *)&changed + offsetof(struct nvm_entry, state), sizeof word);
    fl_store8((char *)entry + offsetof(struct nvm_entry, state), word);
    fl_persist(entry, sizeof *entry);
}

/* All of the entry, the word with the state last. */
static void store_entry(struct nvm_entry *entry, const struct nvm_name *name) {
    struct nvm_entry content = {.object = name->object, .state = NVM_ENTRY_EMPTY};
    memcpy(content.id, name->id, NVM_ID_BYTES);
    uint64_t words[NVM_LINE_BYTES / sizeof(uint64_t)];
    memcpy(words, &content, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (i != offsetof(struct nvm_entry, state) / sizeof *words)
            fl_store8((uint64_t *)entry + i, words[i]);
    content.state = NVM_ENTRY_ACTIVATING;
    memcpy(words, &content, sizeof words);
    fl_store8((uint64_t *)entry + 1, words[1]);
    fl_persist(entry, sizeof *entry);
}

/* ---- recovery: before the chunks are scanned, so from the headers alone ---- */

/* The header and the slot of a named object; false if the pointer cannot be one. */
static bool locate(const struct nvm_heap *heap, uint64_t object, struct nvm_header **header, uint8_t *slot) {
    uint32_t block = (uint32_t)(object / NVM_BLOCK_BYTES);
    uint64_t inside = object % NVM_BLOCK_BYTES;
    *slot = 0;
    if (object >= heap->heap_bytes || block % heap->chunk_blocks == 0 || block == 1 || inside < NVM_LINE_BYTES)
        return false;
    *header = nvm_header_at(heap, block);
    if (nvm_tag_kind((*header)->tag) == NVM_KIND_RUN && nvm_run_class((*header)->run) < NVM_SMALL_CLASSES) {
        uint32_t bytes = nvm_class_bytes(nvm_run_class((*header)->run));
        *slot = (uint8_t)((inside - NVM_LINE_BYTES) / bytes);
        return (inside - NVM_LINE_BYTES) % bytes == 0 && *slot < nvm_class_slots(nvm_run_class((*header)->run));
    }
    return true; /* a free range: its content could be any reserved object */
}

static bool is_activated_on_media(const struct nvm_header *header, uint8_t slot) {
    if (nvm_tag_kind(header->tag) == NVM_KIND_RUN)
        return (header->bitmap >> slot & 1) != 0;
    return nvm_tag_kind(header->tag) == NVM_KIND_LARGE;
}

/* Without links, freeing is one atomic store. */
static void free_at_once(struct nvm_header *header, uint8_t slot) {
    uint64_t tag = header->tag;
    if (nvm_tag_kind(tag) == NVM_KIND_RUN)
        fl_store8(&header->bitmap, header->bitmap & ~((uint64_t)1 << slot));
    else
        fl_store8(&header->tag, nvm_tag(NVM_KIND_FREE, NVM_STATE_IDLE, nvm_tag_arena(tag), nvm_tag_blocks(tag)));
    fl_persist(header, sizeof *header);
}

static int load_entry(struct nvm_heap *heap, uint32_t number) {
    struct nvm_entry *entry = nvm_entry_at(heap, number);
    struct nvm_header *header;
    uint8_t slot;
    if (entry->state == NVM_ENTRY_EMPTY)
        return NVM_OK;
    if (entry->state > NVM_ENTRY_FREEING || entry->id[0] == '\0' || !locate(heap, entry->object, &header, &slot))
        return nvm_fail(NVM_CORRUPT, "object table entry %u is damaged: state %u, object %#llx", number, entry->state,
                        (unsigned long long)entry->object);

    bool is_activated = is_activated_on_media(header, slot);
    if (entry->state == NVM_ENTRY_USED && !is_activated)
        return nvm_fail(NVM_CORRUPT, "object table entry %u names an object at %#llx that is not allocated", number,
                        (unsigned long long)entry->object);
    if (entry->state == NVM_ENTRY_FREEING && is_activated)
        free_at_once(header, slot);
    if (entry->state == NVM_ENTRY_FREEING || !is_activated) {
        store_entry_state(entry, NVM_ENTRY_EMPTY);
        return NVM_OK;
    }
    if (entry->state == NVM_ENTRY_ACTIVATING)
        store_entry_state(entry, NVM_ENTRY_USED);

    struct nvm_name *name = &heap->names.names[number];
    memcpy(name->id, entry->id, NVM_ID_BYTES);
    if (find(&heap->names, name->id) != NULL)
        return nvm_fail(NVM_CORRUPT, "object table entry %u: the id '%s' is there twice", number, name->id);
    name->object = entry->object;
    name->state = NVM_NAME_USED;
    put_in_bucket(&heap->names, name);
    return NVM_OK;
}

int nvm_names_load(struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t number = 0; number < heap->names.count && status == NVM_OK; number++)
        status = load_entry(heap, number);
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

static struct nvm_name *empty_name(struct nvm_names *names) {
    for (uint32_t i = 0; i < names->count; i++)
        if (names->names[i].state == NVM_NAME_EMPTY)
            return &names->names[i];
    return NULL;
}

int nvm_heap_reserve_id(struct nvm_heap *heap, const char *id, uint64_t bytes, void **object) {
    int status = check_id(id);
    if (status != NVM_OK)
        return status;
    if (find(&heap->names, id) != NULL)
        return nvm_fail(NVM_INVALID, "the id '%s' is in use", id);
    struct nvm_name *name = empty_name(&heap->names);
    if (name == NULL)
        return nvm_fail(NVM_OUT_OF_MEMORY, "all %u entries of the object table are used", heap->names.count);
    status = nvm_heap_reserve(heap, bytes, object);
    if (status != NVM_OK)
        return status;
    strcpy(name->id, id);
    name->object = nvm_heap_relative(heap, *object);
    name->state = NVM_NAME_RESERVED;
    put_in_bucket(&heap->names, name);
    return NVM_OK;
}

static int region_of_name(const struct nvm_heap *heap, const struct nvm_name *name, struct nvm_region *region) {
    return nvm_region_of(heap, nvm_heap_absolute(heap, name->object), region);
}

int nvm_heap_activate_id(struct nvm_heap *heap, const char *id) {
    int status = check_id(id);
    if (status != NVM_OK)
        return status;
    struct nvm_name *name = find(&heap->names, id);
    struct nvm_region region;
    if (name == NULL || name->state != NVM_NAME_RESERVED)
        return nvm_fail(NVM_INVALID, "the id '%s' is not reserved, so it cannot be activated", id);
    status = region_of_name(heap, name, &region);
    if (status != NVM_OK)
        return status;
    if (!nvm_region_is_reserved(&region))
        return nvm_fail(NVM_INVALID, "the object of the id '%s' was activated or freed without its id", id);
    store_entry(entry_of(heap, name), name);
    nvm_region_activate(heap, &region, &(struct nvm_links){0});
    store_entry_state(entry_of(heap, name), NVM_ENTRY_USED);
    name->state = NVM_NAME_USED;
    nvm_assert_heap(heap);
    return NVM_OK;
}

int nvm_heap_free_id(struct nvm_heap *heap, const char *id) {
    int status = check_id(id);
    if (status != NVM_OK)
        return status;
    struct nvm_name *name = find(&heap->names, id);
    struct nvm_region region;
    if (name == NULL)
        return nvm_fail(NVM_INVALID, "no object has the id '%s'", id);
    status = region_of_name(heap, name, &region);
    if (status != NVM_OK)
        return status;
    if (name->state == NVM_NAME_USED) {
        if (!nvm_region_is_activated(&region))
            return nvm_fail(NVM_INVALID, "the object of the id '%s' was freed without its id", id);
        status = nvm_region_prepare_release(heap, &region);
        if (status != NVM_OK)
            return status;
        store_entry_state(entry_of(heap, name), NVM_ENTRY_FREEING);
        nvm_region_free_on_media(heap, &region, &(struct nvm_links){0});
        store_entry_state(entry_of(heap, name), NVM_ENTRY_EMPTY);
    }
    forget(&heap->names, name);
    nvm_region_release(heap, &region);
    nvm_assert_heap(heap);
    return NVM_OK;
}

void *nvm_heap_get_id(struct nvm_heap *heap, const char *id) {
    if (check_id(id) != NVM_OK)
        return NULL;
    const struct nvm_name *name = find(&heap->names, id);
    if (name == NULL || name->state != NVM_NAME_USED) {
        nvm_fail(NVM_INVALID, "no object has the id '%s'", id);
        return NULL;
    }
    return nvm_heap_absolute(heap, name->object);
}
