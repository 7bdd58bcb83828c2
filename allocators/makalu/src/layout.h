/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - everything Makalu keeps on persistent memory, and nothing else.
 *
 * A region is one file, "region", always mapped at the address it was created for: pointers on media are absolute (§2.2).
 * It grows at its end, up to a limit that is fixed when it is created (§5, Figure 4):
 *
 *     rgn_base                                                                             rgn_curr   end of file   limit
 *     | base metadata | log space | roots | header map | header space 0.. | heap | space | heap | surplus | not there yet |
 *       4 KiB           4 KiB       4 KiB   about 8       whole heap blocks, each, wherever the region stood
 *                                           bytes a       when it was needed
 *                                           heap block
 *                                           of the limit
 *
 *     header map, two levels (§5.2; as bdwgc has it)
 *         | top index | bottom index | bottom index | ... room for as many as the top has words |
 *         top index       a word for each MAK_MAP_BOTTOM blocks of the region: address of their bottom index; 0: none yet
 *         bottom index    a word for each of these blocks: address of its header; 0: none. Handed out in order of first use
 *
 *     header (128 bytes, two lines)
 *         core line       | hb_block | hb_sz | hb_flag | unused ............. |   changed only in failure-atomic sections (§8)
 *         auxiliary line  | hb_n_mark_bits | hb_mark_bits[4] | hb_next | .... |   right only after a graceful close (§8.1)
 *
 *     heap block, 4 KiB, by its header
 *         chunk           hb_flag FREE:   hb_sz bytes from hb_block on are free, no free chunk is next to it (but for
 *                                         a moment beside a claimed one, types.h)
 *         small, medium   hb_flag IN_USE: hb_sz <= 2048: | object 0 | object 1 | ... | unusable tail |
 *         large           hb_flag IN_USE: hb_sz is a multiple of 4096: one object
 *     A header whose hb_block is 0 is free.
 *
 * From the first header space's end to rgn_curr, chunks, blocks in use and header spaces lie end to end: headers account for
 * the whole heap at every moment outside of a failure-atomic section.
 *
 * Core metadata: base metadata but for its auxiliary line, log space, roots, core lines of headers. Auxiliary: all else; it is
 * rebuilt from the core after a failure. Core and auxiliary words never share a line, so that flushing one never decides
 * about the other. All words are 8 bytes (hb_flag: 4, header_space_count: 1) and stored atomically.
 */
#ifndef MAK_LAYOUT_H
#define MAK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define MAK_FILE_NAME "region"
#define MAK_MAGIC 0x314e4752554c414bull /* "KALURGN1" */
#define MAK_FORMAT 3u

#define MAK_LINE_BYTES 64u
#define MAK_GRANULE_BYTES 16u
#define MAK_BLOCK_BYTES 4096u
#define MAK_SMALL_MAX 400u                    /* §5.7 */
#define MAK_MEDIUM_MAX (MAK_BLOCK_BYTES / 2u) /* §5.7 */
#define MAK_ROOTS 512u                        /* §5.4 */
#define MAK_LOG_ENTRIES 20u                   /* §8 */
#define MAK_MARK_WORDS (MAK_BLOCK_BYTES / MAK_GRANULE_BYTES / 64u)
#define MAK_HEADER_SPACES 255u

/* Blocks that a bottom index of the header map is for. */
#ifndef MAK_MAP_BOTTOM
#define MAK_MAP_BOTTOM 512u
#endif

/* Smallest header space; regions with a high limit have larger ones (mak_space_bytes). */
#ifndef MAK_HEADER_SPACE_BYTES
#define MAK_HEADER_SPACE_BYTES ((uint64_t)64 << 10)
#endif

enum mak_state {
    MAK_STATE_CLEAN = 0x4e41454c43, /* "CLEAN": auxiliary metadata can be trusted */
    MAK_STATE_IN_USE = 0x455355,    /* "USE": only core metadata can */
};

/* §5.5. Each group that changes by itself has a line of its own. */
struct mak_base {
    /* Never changes. The magic is persisted after everything else (§11.1). */
    uint64_t magic;
    uint64_t format;
    uint64_t rgn_base;
    uint64_t limit_bytes;
    uint64_t md_log_space_start;
    uint64_t md_roots_start;
    uint64_t md_header_map_start;
    uint64_t header_space_bytes;

    uint64_t md_log_version; /* of the section that runs now or comes next; §8 */
    uint64_t unused_1[7];

    uint64_t rgn_curr; /* first byte past the heap and the header spaces; logged */
    uint8_t header_space_count; /* logged */
    uint8_t unused_2[55];

    uint64_t state; /* enum mak_state */
    uint64_t unused_3[7];

    /* Auxiliary: the header freelist (§5.1). Headers were never in use from number hfl_fresh on and are not listed. */
    uint64_t hfl_first; /* address of the first free header; 0: none */
    uint64_t hfl_fresh;
    uint64_t map_fresh; /* the first of the bottom indices of the header map that are not handed out yet */
    uint64_t unused_4[5];

    uint64_t header_spaces[MAK_HEADER_SPACES]; /* addresses of the first header_space_count, in order of age; logged */

    uint8_t unused_5[MAK_BLOCK_BYTES - 5 * MAK_LINE_BYTES - MAK_HEADER_SPACES * 8];
};

enum mak_log_type {
    MAK_LOG_WORD = 1,
    MAK_LOG_ADDR = 2,
    MAK_LOG_INT = 3,  /* 4 bytes */
    MAK_LOG_CHAR = 4, /* 1 byte */
};

/* §8. The version is stored last: with the rest on one line, it publishes the entry (R1: prefix order within a line). */
struct mak_log_entry {
    uint64_t addr;
    uint64_t val; /* before the store */
    uint64_t type; /* enum mak_log_type */
    uint64_t version;
};

enum mak_flag {
    MAK_FREE = 0,
    MAK_IN_USE = 1,
};

struct mak_header {
    uint64_t hb_block;
    uint64_t hb_sz;
    int32_t hb_flag; /* enum mak_flag */
    int32_t unused_1;
    uint64_t unused_2[5];

    uint64_t hb_n_mark_bits;
    uint64_t hb_mark_bits[MAK_MARK_WORDS]; /* bit i: object i is allocated, or in some thread's freelist */
    uint64_t hb_next; /* of a free header: the next one; 0: none */
    uint64_t unused_3[2];
};

_Static_assert(sizeof(struct mak_base) == MAK_BLOCK_BYTES, "base metadata fills a block");
_Static_assert(offsetof(struct mak_base, header_space_bytes) == 56, "the constants fill one line");
_Static_assert(offsetof(struct mak_base, md_log_version) == 64, "on-media layout");
_Static_assert(offsetof(struct mak_base, rgn_curr) == 128, "on-media layout");
_Static_assert(offsetof(struct mak_base, state) == 192, "on-media layout");
_Static_assert(offsetof(struct mak_base, hfl_first) == 256, "on-media layout");
_Static_assert(offsetof(struct mak_base, header_spaces) == 320, "on-media layout");
_Static_assert(sizeof(struct mak_log_entry) == 32, "a log entry lies in one line");
_Static_assert(MAK_LOG_ENTRIES * sizeof(struct mak_log_entry) <= MAK_BLOCK_BYTES, "the log space is a block");
_Static_assert(MAK_ROOTS * 8 == MAK_BLOCK_BYTES, "the root space is a block");
_Static_assert(sizeof(struct mak_header) == 2 * MAK_LINE_BYTES, "a header is two lines");
_Static_assert(offsetof(struct mak_header, hb_n_mark_bits) == MAK_LINE_BYTES, "core and auxiliary do not share a line");
_Static_assert(offsetof(struct mak_header, hb_flag) == 16 && offsetof(struct mak_header, hb_next) == 104, "on-media layout");
_Static_assert(offsetof(struct mak_base, header_space_count) == 136 && MAK_HEADER_SPACES <= UINT8_MAX, "on-media layout");
_Static_assert(MAK_MAP_BOTTOM * 8 % MAK_LINE_BYTES == 0, "bottom indices share no line");
_Static_assert(MAK_HEADER_SPACE_BYTES % MAK_BLOCK_BYTES == 0, "header spaces are whole blocks");

#define MAK_LOG_OFFSET MAK_BLOCK_BYTES
#define MAK_ROOTS_OFFSET (2 * MAK_BLOCK_BYTES)
#define MAK_MAP_OFFSET (3 * MAK_BLOCK_BYTES)

static inline uint64_t mak_round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Words of the header map's top index; the bottom indices begin at the next line. */
static inline uint64_t mak_map_tops(uint64_t limit_bytes) {
    return (limit_bytes / MAK_BLOCK_BYTES + MAK_MAP_BOTTOM - 1) / MAK_MAP_BOTTOM;
}
static inline uint64_t mak_map_top_bytes(uint64_t limit_bytes) {
    return mak_round_up(mak_map_tops(limit_bytes) * 8, MAK_LINE_BYTES);
}
static inline uint64_t mak_map_bytes(uint64_t limit_bytes) {
    return mak_round_up(mak_map_top_bytes(limit_bytes) + mak_map_tops(limit_bytes) * MAK_MAP_BOTTOM * 8, MAK_BLOCK_BYTES);
}
static inline uint64_t mak_first_space_offset(uint64_t limit_bytes) { return MAK_MAP_OFFSET + mak_map_bytes(limit_bytes); }

/* Bytes of a header space: a 64th of what the limit needs. No chunk reaches over a header space, so this decides how large an
 * object can be that finds no room but what was freed; and the list never runs out. */
static inline uint64_t mak_space_bytes(uint64_t limit_bytes) {
    uint64_t share = mak_round_up(limit_bytes / MAK_BLOCK_BYTES * sizeof(struct mak_header) / 64, MAK_BLOCK_BYTES);
    return share > MAK_HEADER_SPACE_BYTES ? share : MAK_HEADER_SPACE_BYTES;
}

/* What a header in use says of its block: §5.1, "hb_sz stores the size of memory objects". */
static inline uint64_t mak_bytes_covered(const struct mak_header *header) {
    return header->hb_flag == MAK_IN_USE && header->hb_sz <= MAK_MEDIUM_MAX ? MAK_BLOCK_BYTES : header->hb_sz;
}
static inline uint32_t mak_object_count(uint64_t object_bytes) {
    return object_bytes <= MAK_MEDIUM_MAX ? (uint32_t)(MAK_BLOCK_BYTES / object_bytes) : 1;
}

#endif
