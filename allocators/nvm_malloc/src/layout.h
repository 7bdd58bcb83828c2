/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - everything nvm_malloc keeps on persistent memory, and nothing else.
 *
 * A heap is one file, "heap": a whole number of chunks, to which more are added on demand. Every pointer on media is relative
 * to the heap's base (§3.1), so that 0, which is the first chunk's header, can mean null.
 *
 *     file           | chunk 0 | chunk 1 | ...                               chunk_bytes each, 4 MiB unless asked otherwise
 *     chunk 0 and on:  chunk header, which tells how many chunks it covers
 *         arena chunk  | chunk header, 63 object table entries | block 1 | block 2 | ...     1 chunk, blocks of 4 KiB
 *         free chunks  | chunk header, kind CHUNK_FREE | any content ............ |          1..n chunks
 *         huge object  | chunk header, kind CHUNK_HUGE | object ................. |          1..n chunks
 *     chunk 0 is an arena chunk, whose block 1 is the heap block:  | header | heap header | ring, 64 entries | unused |
 *     all other blocks belong to a region, whose first 64 bytes are a header that tells how many blocks it covers:
 *         free range   | header, kind FREE  | any content ................................. |   1..n blocks
 *         large object | header, kind LARGE | object ...................................... |   1..n blocks
 *         run          | header, kind RUN   | slot 0 | slot 1 | ... | unusable tail         |   1 block
 *
 * Invariant (§3.2): at every moment, crashes included, the headers account for the whole heap. From chunk 0 on, header +
 * chunks is the next chunk header, up to heap_bytes; from an arena chunk's block 1 on, header + blocks is the next header, up
 * to the chunk's end. Each step that changes the chains is one store of a tag, made when everything it leads to is persisted:
 *
 *     split      the remainder's header, then the old one shrinks
 *     merge      the first header grows; the others are content from then on
 *     to arena   a free chunk gets an empty object table and a free range, then it is an arena chunk. And back: the tag alone
 *     growth     the file grows, the new chunks get a header, then heap_bytes counts them. What the file has beyond heap_bytes
 *                is growth that a crash interrupted; recovery does the rest of it (or cuts off what is no whole chunk)
 *
 * Every header is one line, so that its stores persist in program order (Px86): a field is valid because a store that
 * came after it on the same line is there. All words are 8 bytes and stored atomically.
 */
#ifndef NVM_LAYOUT_H
#define NVM_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define NVM_FILE_NAME "heap"
#define NVM_HEAP_MAGIC 0x31434c4d4d564e46ull  /* "FNVMMLC1" */
#define NVM_CHUNK_MAGIC 0x314b4e434d564e46ull /* "FNVMCNK1" */
#define NVM_FORMAT 2u

#define NVM_LINE_BYTES 64u
#define NVM_BLOCK_BYTES 4096u
#ifndef NVM_CHUNK_BYTES
#define NVM_CHUNK_BYTES ((uint64_t)4 << 20) /* default; a heap may be created with another power of two */
#endif
#define NVM_CHUNK_BYTES_MIN ((uint64_t)4 * NVM_BLOCK_BYTES)
#define NVM_CHUNK_BYTES_MAX ((uint64_t)1 << 30)

#define NVM_RING_ENTRIES 64u
#define NVM_ID_BYTES 55u
#define NVM_TABLE_ENTRIES 63u /* object table entries in a chunk */

#define NVM_SMALL_CLASSES 31u /* 64, 128, ... 1984 bytes (Table 5) */
#define NVM_SMALL_MAX (NVM_SMALL_CLASSES * NVM_LINE_BYTES)
#define NVM_RUN_BYTES (NVM_BLOCK_BYTES - NVM_LINE_BYTES)

/* What a header describes. FREE, LARGE, RUN and HEAP_BLOCK in block headers, the CHUNK kinds in chunk headers. */
enum nvm_kind {
    NVM_KIND_NONE = 0, /* never valid: fresh media */
    NVM_KIND_FREE = 1,
    NVM_KIND_LARGE = 2,
    NVM_KIND_RUN = 3,
    NVM_KIND_HEAP_BLOCK = 4,
    NVM_KIND_CHUNK_ARENA = 5, /* divided into blocks */
    NVM_KIND_CHUNK_FREE = 6,
    NVM_KIND_CHUNK_HUGE = 7, /* a huge object */
};

/* What is being done to the region (§3.5). A header that is not IDLE has its offset in the ring. */
enum nvm_state {
    NVM_STATE_IDLE = 1,
    NVM_STATE_ACTIVATING = 2,
    NVM_STATE_FREEING = 3,
};

/* A word that activate or free sets together with the header: *(base + address) = target. address 0: none. */
struct nvm_link {
    uint64_t address;
    uint64_t target;
};

/* Block header. The tag decides what the other words mean, so it is stored after them. */
struct nvm_header {
    uint64_t bitmap; /* run: bit i is set when slot i is activated */
    uint64_t run;    /* run: size class, slot of the pending operation, version: nvm_run_word */
    struct nvm_link links[2]; /* of the pending operation */
    uint64_t reserved;
    uint64_t tag; /* kind, state, arena, count: nvm_tag */
};

/* Links and tag lie where a block header has them: activate and free treat both alike. */
struct nvm_chunk_header {
    uint64_t magic;
    uint64_t index;           /* number of the chunk */
    struct nvm_link links[2]; /* of the pending operation on a huge object */
    uint64_t reserved;
    uint64_t tag; /* counts chunks */
};

enum nvm_entry_state {
    NVM_ENTRY_EMPTY = 0,
    NVM_ENTRY_ACTIVATING = 1, /* used if its object is activated, else empty */
    NVM_ENTRY_USED = 2,
    NVM_ENTRY_FREEING = 3, /* its object must be freed, if it still is activated, then the entry is empty */
};

/* Object table entry (§3.6). state is stored after the rest on the way to ACTIVATING. */
struct nvm_entry {
    uint64_t object; /* relative pointer */
    uint8_t state;   /* enum nvm_entry_state */
    char id[NVM_ID_BYTES]; /* zero padded; no terminator when 55 characters long */
};

/* In the heap block. magic is persisted after everything else that create writes. */
struct nvm_heap_header {
    uint64_t magic;
    uint64_t format;
    uint64_t heap_bytes; /* what the chunk headers account for; grows after they do */
    uint64_t chunk_bytes;
    uint64_t ring_entries;
    uint64_t reserved[2];
    uint64_t version; /* counts openings (§3.7); persisted before any run header has the new one */
};

struct nvm_chunk_block {
    struct nvm_chunk_header header;
    struct nvm_entry table[NVM_TABLE_ENTRIES];
};

struct nvm_heap_block {
    struct nvm_header header;
    struct nvm_heap_header heap;
    uint64_t ring[NVM_RING_ENTRIES]; /* offsets of headers that may not be idle; 0: unused (§3.7) */
    uint8_t unused[NVM_BLOCK_BYTES - 2 * NVM_LINE_BYTES - NVM_RING_ENTRIES * 8];
};

_Static_assert(sizeof(struct nvm_header) == NVM_LINE_BYTES, "a header is one line");
_Static_assert(offsetof(struct nvm_header, bitmap) == 0 && offsetof(struct nvm_header, run) == 8, "on-media layout");
_Static_assert(offsetof(struct nvm_header, links) == 16 && offsetof(struct nvm_header, tag) == 56, "on-media layout");
_Static_assert(sizeof(struct nvm_chunk_header) == NVM_LINE_BYTES, "a header is one line");
_Static_assert(offsetof(struct nvm_chunk_header, tag) == offsetof(struct nvm_header, tag), "one protocol for both");
_Static_assert(offsetof(struct nvm_chunk_header, links) == offsetof(struct nvm_header, links), "one protocol for both");
_Static_assert(sizeof(struct nvm_entry) == NVM_LINE_BYTES, "a table entry is one line");
_Static_assert(offsetof(struct nvm_entry, state) == 8 && offsetof(struct nvm_entry, id) == 9, "on-media layout");
_Static_assert(sizeof(struct nvm_heap_header) == NVM_LINE_BYTES, "the heap header is one line");
_Static_assert(sizeof(struct nvm_chunk_block) == NVM_BLOCK_BYTES, "the chunk header fills block 0");
_Static_assert(sizeof(struct nvm_heap_block) == NVM_BLOCK_BYTES, "the heap block is one block");
_Static_assert(NVM_RUN_BYTES / NVM_LINE_BYTES == 63, "a run's bitmap is one word");

/* ---- packed words ---- */

static inline uint64_t nvm_tag(enum nvm_kind kind, enum nvm_state state, uint16_t arena, uint32_t count) {
    return (uint64_t)kind | (uint64_t)state << 8 | (uint64_t)arena << 16 | (uint64_t)count << 32;
}
static inline enum nvm_kind nvm_tag_kind(uint64_t tag) { return (enum nvm_kind)(tag & 0xff); }
static inline enum nvm_state nvm_tag_state(uint64_t tag) { return (enum nvm_state)(tag >> 8 & 0xff); }
static inline uint16_t nvm_tag_arena(uint64_t tag) { return (uint16_t)(tag >> 16); }
static inline uint32_t nvm_tag_count(uint64_t tag) { return (uint32_t)(tag >> 32); }

static inline uint64_t nvm_run_word(uint8_t size_class, uint8_t slot, uint32_t version) {
    return (uint64_t)size_class | (uint64_t)slot << 8 | (uint64_t)version << 32;
}
static inline uint8_t nvm_run_class(uint64_t run) { return (uint8_t)run; }
static inline uint8_t nvm_run_slot(uint64_t run) { return (uint8_t)(run >> 8); }
static inline uint32_t nvm_run_version(uint64_t run) { return (uint32_t)(run >> 32); }

static inline uint32_t nvm_class_bytes(uint32_t size_class) { return (size_class + 1) * NVM_LINE_BYTES; }
static inline uint32_t nvm_class_slots(uint32_t size_class) { return NVM_RUN_BYTES / nvm_class_bytes(size_class); }
static inline uint64_t nvm_class_mask(uint32_t size_class) { return ((uint64_t)1 << nvm_class_slots(size_class)) - 1; }

#endif
