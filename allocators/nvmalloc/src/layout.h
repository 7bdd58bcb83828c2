/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - everything nvmalloc keeps on persistent memory, and nothing else.
 *
 * A heap is one file, "heap", of whole OS pages (4 KiB), to which more are added on demand. Its unit is the line, 64 bytes (§3.1); a
 * heap block is one line or more, and begins with a header of 16 bytes.
 *
 *     line   0         1         2 ...                                    top ...            end of the file
 *           | root    | root    | block | block | block | ... | block    | zeros             |
 *           | line    | again   |                                        | (unformatted)     |
 *
 *     block, allocated   | word | unused    | object ......................... |
 *     block, free        | word | wait word | any content .................... |
 *     block, damaged     | word | all ones  | what the damage left ........... |
 *
 * The word holds size, state and checksum in the 8 bytes that persist at once, so a block changes its state in one store. The wait
 * word of a free block, timestamp and link of the don't-allocate list, is covered by the checksum too: it is stored before the word,
 * on the same line, so that whoever sees the one sees the other (Px86). What it holds while a block is allocated means nothing. One
 * bit is between free and damaged, and a checksum over other words need not notice it: so a damaged block has a wait word that no
 * free one has.
 *
 * Invariant: at every moment, crashes included, the chain that begins at line 2 (next block = this block + its size) leads over
 * correct headers to the first line that never was part of a block, whose words are all 0, as are all those behind it, or to the
 * end of the file. Growth of the file changes nothing in that. The steps:
 *
 *     allocate   The block takes lines of one free region, from its front. Where the block ends inside a free block of the chain, what
 *                is left of that gets a header first, which nothing leads to yet, and which is persisted before the block's own word:
 *                that makes the chain end at it. Where the block ends at a header or in unformatted memory, its word is all there is.
 *     free       wait word, then word.
 *     merge      nothing. Free neighbours stay blocks of their own in the chain; that they are one region is known in DRAM only. A
 *                block that takes several of them covers their headers with its content. So old headers may lie inside blocks, but
 *                all of these say free: a header says allocated only while its block is in the chain, for it was persisted as free
 *                before its lines could become part of another block. scan.c depends on that.
 *
 * The root lines hold the same: the magic, and the line of the root object. The first is the newer one where they differ; it is
 * persisted first, so zeros in it, beside a second one that has something, are damage.
 */
#ifndef NVMALLOC_LAYOUT_H
#define NVMALLOC_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define NVMALLOC_FILE_NAME "heap"
#define NVMALLOC_MAGIC 0x31434f4c414d564eull /* "NVMALOC1": the last character is the format's version */
#define NVMALLOC_MAGIC_WITHOUT_VERSION 0x00ffffffffffffffull

#define NVMALLOC_LINE_BYTES 64u
#define NVMALLOC_OS_PAGE_BYTES 4096u
#define NVMALLOC_FIRST_LINE 2u
#define NVMALLOC_ROOT_LINES 2u

enum nvmalloc_state {
    NVMALLOC_ALLOCATED = 1,
    NVMALLOC_FREE = 2,
    NVMALLOC_DAMAGED = 3, /* was incorrect when it was found; holds what the damage costs until it is freed */
};

struct nvmalloc_header {
    uint64_t word; /* nvmalloc_word */
    uint64_t wait; /* free: nvmalloc_wait_word; damaged: NVMALLOC_WAIT_OF_DAMAGED */
};

struct nvmalloc_line {
    struct nvmalloc_header header;
    uint64_t content[6];
};

struct nvmalloc_root_line {
    uint64_t magic;
    uint64_t root; /* nvmalloc_root_word */
    uint64_t unused[6];
};

_Static_assert(sizeof(struct nvmalloc_header) == 16, "objects are aligned to 16 bytes");
_Static_assert(offsetof(struct nvmalloc_header, word) == 0 && offsetof(struct nvmalloc_header, wait) == 8, "on-media layout");
_Static_assert(sizeof(struct nvmalloc_line) == NVMALLOC_LINE_BYTES, "a line is a line");
_Static_assert(sizeof(struct nvmalloc_root_line) == NVMALLOC_LINE_BYTES, "a root line is a line");
_Static_assert(offsetof(struct nvmalloc_root_line, root) == 8, "on-media layout");

/* ---- packed words ---- */

/* checksum in bits 0 to 31, size in lines in bits 32 to 61, state in 62 and 63. */
static inline uint64_t nvmalloc_word(uint32_t checksum, uint32_t lines, enum nvmalloc_state state) {
    return (uint64_t)checksum | (uint64_t)lines << 32 | (uint64_t)state << 62;
}
static inline uint32_t nvmalloc_word_checksum(uint64_t word) { return (uint32_t)word; }
static inline uint32_t nvmalloc_word_lines(uint64_t word) { return (uint32_t)(word >> 32) & 0x3fffffffu; }
static inline enum nvmalloc_state nvmalloc_word_state(uint64_t word) { return (enum nvmalloc_state)(word >> 62); }

/* When the block was freed, by the heap's clock, and the line of the block that was freed before it; 0: none that still waits. */
static inline uint64_t nvmalloc_wait_word(uint32_t timestamp, uint32_t older) {
    return (uint64_t)timestamp | (uint64_t)older << 32;
}
static inline uint32_t nvmalloc_wait_timestamp(uint64_t wait) { return (uint32_t)wait; }
static inline uint32_t nvmalloc_wait_older(uint64_t wait) { return (uint32_t)(wait >> 32); }

#define NVMALLOC_WAIT_OF_DAMAGED (~(uint64_t)0)

/* checksum in bits 0 to 31, line of the root's block in 32 to 63; line 0: no root. A word of zeros: the root never was set. */
static inline uint64_t nvmalloc_root_word(uint32_t checksum, uint32_t line) { return (uint64_t)checksum | (uint64_t)line << 32; }
static inline uint32_t nvmalloc_root_checksum(uint64_t root) { return (uint32_t)root; }
static inline uint32_t nvmalloc_root_line_of(uint64_t root) { return (uint32_t)(root >> 32); }

#endif
