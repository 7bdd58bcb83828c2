/* SPDX-License-Identifier: Apache-2.0
 *
 * protocol.c - activate and free on media (§3.5).
 *
 * Activate and free are one protocol, each numbered step persisted before the next one begins:
 *
 *   1. ring entry                      the header may be inconsistent from here on
 *   2. header: links (and slot), then the tag with state ACTIVATING or FREEING
 *                                      one line, so the state is never there without the links. The point of no return.
 *   3. the links are set; the bitmap   the header's line again, after the state
 *   4. tag with state IDLE             the operation is done; the links in the header are cleared
 *   5. ring entry cleared
 *
 * Recovery repeats 3 and 4 (nvm_header_complete) for headers that are not IDLE: all of it may be repeated any number of
 * times. A crash before 2 leaves nothing of the operation.
 *
 * A run's header is shared by its slots, so the bin's lock is held; any other header belongs to the one who activates or frees.
 */
#include "types.h"

#include "persist.h"

/* Step 2. The tag is stored last: R1 makes everything else persist with it. */
static void store_intent(struct nvm_header *header, const struct nvm_links *links, uint64_t tag) {
#if defined(MUTANT_LINK_AFTER_STATE)
    fl_store8(&header->tag, tag);
#endif
    for (int i = 0; i < 2; i++) {
        if (links->link[i].address != 0)
            fl_store8(&header->links[i].target, links->link[i].target);
        fl_store8(&header->links[i].address, links->link[i].address);
    }
#if !defined(MUTANT_LINK_AFTER_STATE)
    fl_store8(&header->tag, tag);
#endif
#if defined(MUTANT_WRONG_FLUSH_ADDRESS)
    fl_flush(&header, sizeof header);
#else
    fl_flush(header, sizeof *header);
#endif
    fl_fence();
}

#if defined(MUTANT_REPLAY_LINKS_NOT_FLUSHED)
bool nvm_is_replaying;
#endif

/* Step 3, the links. True if there were any. */
static bool set_links(struct nvm_heap *heap, const struct nvm_header *header) {
    bool is_any = false;
    for (int i = 0; i < 2; i++) {
        if (header->links[i].address == 0)
            continue;
#if defined(MUTANT_LOG_ABSOLUTE)
        uint64_t *word = (uint64_t *)header->links[i].address;
#else
        uint64_t *word = (uint64_t *)(heap->base + header->links[i].address);
#endif
        fl_store8(word, header->links[i].target);
#if defined(MUTANT_REPLAY_LINKS_NOT_FLUSHED)
        if (!nvm_is_replaying)
            fl_flush(word, sizeof *word);
#elif !defined(MUTANT_MISSING_FLUSH_LINK)
        fl_flush(word, sizeof *word);
#endif
        is_any = true;
    }
    return is_any;
}

static enum nvm_kind freed_kind(enum nvm_kind kind) {
    return kind == NVM_KIND_LARGE ? NVM_KIND_FREE : kind == NVM_KIND_CHUNK_HUGE ? NVM_KIND_CHUNK_FREE : kind;
}

uint64_t nvm_idle_tag(uint64_t tag) {
    enum nvm_kind kind = nvm_tag_kind(tag);
    return nvm_tag(nvm_tag_state(tag) == NVM_STATE_FREEING ? freed_kind(kind) : kind, NVM_STATE_IDLE, nvm_tag_arena(tag),
                   nvm_tag_count(tag));
}

/* Steps 3 and 4, from what the header says. */
void nvm_header_complete(struct nvm_heap *heap, struct nvm_header *header) {
    uint64_t tag = header->tag;
    bool has_links = set_links(heap, header);
    if (nvm_tag_kind(tag) == NVM_KIND_RUN) {
        uint64_t bit = (uint64_t)1 << nvm_run_slot(header->run);
        bool is_activating = nvm_tag_state(tag) == NVM_STATE_ACTIVATING;
        fl_store8(&header->bitmap, is_activating ? header->bitmap | bit : header->bitmap & ~bit);
    }
    if (has_links) {
#if !defined(MUTANT_MISSING_FENCE_LINK)
        fl_fence(); /* IDLE makes recovery forget the links, so they must be there */
#endif
    }
    fl_store8(&header->tag, nvm_idle_tag(tag));
    for (int i = 0; i < 2; i++)
        if (header->links[i].address != 0)
            fl_store8(&header->links[i].address, 0);
#if !defined(MUTANT_MISSING_FLUSH_IDLE)
    fl_flush(header, sizeof *header);
#endif
    fl_fence(); /* the caller returns, and may overwrite the links by itself */
}

/* tag: the intent. run_word: of runs only. */
void nvm_protocol_run(struct nvm_heap *heap, struct nvm_header *header, uint64_t tag, uint64_t run_word,
                      const struct nvm_links *links) {
#if defined(MUTANT_HUGE_WITHOUT_RING)
    bool is_logged = nvm_tag_kind(tag) != NVM_KIND_CHUNK_HUGE;
    uint32_t entry = is_logged ? nvm_ring_begin(heap, (uint64_t)((char *)header - heap->base)) : 0;
#else
    uint32_t entry = nvm_ring_begin(heap, (uint64_t)((char *)header - heap->base));
#endif
    if (nvm_tag_kind(tag) == NVM_KIND_RUN) {
        if (nvm_tag_kind(header->tag) == NVM_KIND_FREE) /* the first slot: the block becomes a run now */
            fl_store8(&header->bitmap, 0);
        fl_store8(&header->run, run_word);
    }
#if defined(MUTANT_LOG_ABSOLUTE)
    struct nvm_links absolute = *links;
    for (int i = 0; i < 2; i++)
        if (absolute.link[i].address != 0)
            absolute.link[i].address += (uint64_t)heap->base;
    links = &absolute;
#endif
    store_intent(header, links, tag);
    nvm_header_complete(heap, header);
#if defined(MUTANT_HUGE_WITHOUT_RING)
    if (!is_logged)
        return;
#endif
    nvm_ring_end(heap, entry);
}
