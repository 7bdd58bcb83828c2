/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - what lies in persistent memory (PAllocator §4.2 to §4.5), and why a power failure at any point leaves it repairable.
 *
 *     anchor        Anchor | Core[cores] | SegmentEntry[segment_entries]
 *     segment-ID    SegmentHeader, then
 *       small         logical pages; the first is the header: | Page: PageHeader, entries (2 bytes each), blocks of one size | ...
 *       big           4 KiB header | blocks of whole OS pages, as the BlockInfo tree says |
 *       huge          4 KiB header | one block |
 *
 * A segment's kind is nowhere written: small ones are in a core's active or full list, big ones are the ones a BlockInfo tree knows,
 * free ones are in the list of free segments, and the rest are huge (§4.7).
 *
 * Persistent pointers. (file, offset), 16 bytes, null is file == NO_FILE. The file is stored last, both words are on one line, so
 * (Px86 R1) null becomes valid at once, and valid becomes null by one store. From one valid value to another is not atomic: that
 * happens only under a recovery item that says how to do it again.
 *
 * Recovery items. Every change is one of them from begin to end, and recovery goes forward: it does the steps of the state it
 * finds again, from the first on, and then the rest of the operation. So three things hold for each state:
 *   1. fields first, state last. An item's first line holds the state; stores to it persist in order (R1). What lies on a second
 *      line (BigItem) is persisted before. A field that the present state reads is never overwritten for the next one.
 *   2. steps depend only on the item and on what the state's own steps do not change: they may be done any number of times.
 *   3. a state ends by a fence, after which the next state, or NONE, is stored. So steps need no order among themselves.
 * An operation is durable when it returns: NONE is persisted. Where one manager hands something to another (a segment to a core, a
 * leaf to a tree, an object to the application) it does so by a persistent pointer in the receiver's item, which it sets (or
 * clears) under its own item and lock, as the application's pointer is set: so at any time exactly one of the two owns it.
 *
 * SegmentItem: CREATE, file made, header written, entry listed, pointer set. Found without the pointer set, it is taken back: entry,
 *   then file. DESTROY: entry removed, then the file: a listed segment always has its file. TAKE, RETURN: the list of free segments.
 * SmallItem: see small.cpp; BigItem: see big.cpp; TreeLog: see tree.h.
 */
#ifndef PALLOCATOR_LAYOUT_H
#define PALLOCATOR_LAYOUT_H

#include <bit>
#include <cstddef>
#include <cstdint>

#ifndef PAL_SEGMENT_BYTES
#define PAL_SEGMENT_BYTES (128u << 20)
#endif
#ifndef PAL_PAGE_BYTES
#define PAL_PAGE_BYTES (64u << 10)
#endif
#ifndef PAL_BIG_LIMIT
#define PAL_BIG_LIMIT (16u << 20)
#endif
#ifndef PAL_LEAF_ENTRIES
#define PAL_LEAF_ENTRIES 32
#endif
#ifndef PAL_SEGMENT_ENTRIES
#define PAL_SEGMENT_ENTRIES 65536u
#endif

namespace pallocator {

constexpr uint64_t OS_PAGE_BYTES = 4096;
constexpr uint64_t LINE_BYTES = 64;
constexpr uint64_t SEGMENT_BYTES = PAL_SEGMENT_BYTES; /* of small and big segments */
constexpr uint64_t PAGE_BYTES = PAL_PAGE_BYTES;       /* of a logical page */
constexpr uint64_t SMALL_LIMIT = PAGE_BYTES / 4;      /* larger requests are big */
constexpr uint64_t BIG_LIMIT = PAL_BIG_LIMIT;         /* requests from here on are huge */
constexpr uint64_t HEADER_BYTES = OS_PAGE_BYTES;      /* of big and huge segments: blocks are whole OS pages */
constexpr uint64_t NO_FILE = ~UINT64_C(0);
constexpr uint64_t ANCHOR_FILE = 0;
constexpr unsigned MOST_CORES = 64;
constexpr unsigned ROOTS = 16;
constexpr unsigned CLASSES = 40;
constexpr unsigned LEAF_ENTRIES = PAL_LEAF_ENTRIES;

/* Size classes, bytes: multiples of a line (§4.4). The largest eight are what 12 to 4 blocks a page of 64 KiB leave room for. */
constexpr uint16_t CLASS_BYTES[CLASSES] = {64,   128,  192,  256,  320,  384,  448,  512,  576,  640,   704,   768,  832,  896,
                                           960,  1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048,  2304,  2560, 2816, 3072,
                                           3328, 3584, 3840, 4096, 5120, 6528, 7232, 8128, 9344, 10880, 13056, 15360};

/* PPtrBase of §4.2. The application keeps it in persistent memory and sets it to null before it passes it on. */
struct alignas(16) PPtrBase {
    uint64_t file = NO_FILE;
    uint64_t offset = 0;

    bool is_null() const { return file == NO_FILE; }
    bool operator==(const PPtrBase &other) const { return file == other.file && (is_null() || offset == other.offset); }
};

/* Both kinds of list nodes (segments, pages) have their links at the same place. */
struct Links {
    PPtrBase next, previous;
};

struct Node {
    uint64_t words[4];
    Links links;
};

/* ---- segments ---- */

constexpr uint64_t SEGMENT_MAGIC = 0x746e656d6753'4150; /* "PASgment" */
constexpr uint16_t NO_INDEX = 0xffff;

/* Logical pages of a small segment, in one word. Pages from `fresh` on were never used. */
struct SegmentPages {
    uint16_t first_free; /* NO_INDEX: none; page 0 is the header */
    uint16_t used;
    uint16_t fresh;
    uint16_t holes;
};

struct SegmentHeader {
    uint64_t magic;
    uint64_t heap; /* identity of the heap it belongs to */
    uint64_t id;
    uint64_t bytes;
    Links links;
    uint64_t pages; /* SegmentPages */
};

constexpr uint64_t PAGES = SEGMENT_BYTES / PAGE_BYTES;

/* ---- pages ---- */

constexpr uint64_t PAGE_USED = UINT64_C(0x5041757365640000); /* | class */
constexpr uint64_t PAGE_FREE = UINT64_C(0x5041667265650000); /* | index of the next free page */

struct PageBlocks {
    uint16_t first_free; /* block whose entry goes on; NO_INDEX: full */
    uint16_t used;
    uint16_t count;
    uint16_t unused;
};

struct PageHeader {
    uint64_t blocks; /* PageBlocks */
    uint64_t kind;
    uint64_t unused[2];
    Links links;
    uint64_t entries[]; /* four BlockEntry each: next free block; of a block in use it means nothing */
};

constexpr uint64_t rounded_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }
constexpr uint64_t blocks_offset(uint64_t count) { return rounded_up(sizeof(PageHeader) + count * 2, LINE_BYTES); }

constexpr uint16_t block_count(unsigned size_class) {
    uint64_t count = (PAGE_BYTES - sizeof(PageHeader)) / CLASS_BYTES[size_class];
    while (count > 0 && blocks_offset(count) + count * CLASS_BYTES[size_class] > PAGE_BYTES)
        count--;
    return static_cast<uint16_t>(count);
}

/* ---- trees (tree.h) ---- */

/* Of the free-blocks tree: bytes, file, offset; of the BlockInfo tree: file, offset, BlockInfo. */
struct TreeEntry {
    uint64_t words[3];
};

struct Leaf {
    uint64_t bitmap; /* which entries are there */
    uint64_t unused;
    PPtrBase next;
    uint8_t fingerprints[(LEAF_ENTRIES + 31) / 32 * 32];
    TreeEntry entries[LEAF_ENTRIES];
};

enum TreeState : uint64_t { TREE_NONE = 0, TREE_FIRST, TREE_SPLIT, TREE_UNLINK, TREE_STATES };

struct alignas(64) TreeLog {
    uint64_t state; /* TreeState */
    uint64_t unused;
    PPtrBase leaf;
    PPtrBase other; /* FIRST, SPLIT: the new leaf; UNLINK: the one before, or null */
};

/* BlockInfo, 8 bytes (§4.5): the size, a multiple of OS_PAGE_BYTES, and flags. */
enum BlockFlags : uint64_t { BLOCK_USED = 1, BLOCK_LAST = 2, BLOCK_HOLE = 4, BLOCK_FLAGS = 7 };

/* ---- recovery items ---- */

enum SegmentState : uint64_t { SEGMENT_NONE = 0, SEGMENT_CREATE, SEGMENT_DESTROY, SEGMENT_TAKE, SEGMENT_RETURN, SEGMENT_STATES };

struct alignas(64) SegmentItem {
    uint64_t state; /* SegmentState | entry << 8 */
    uint64_t id;
    uint64_t bytes;
    uint64_t unused;
    PPtrBase pointer; /* where the persistent pointer lies that is set or cleared */
    PPtrBase list;    /* TAKE: the new head; RETURN: the old one */
};

enum SmallState : uint64_t {
    SMALL_NONE = 0,
    SMALL_WANT_SEGMENT,
    SMALL_NEW_SEGMENT,
    SMALL_TAKE_PAGE,
    SMALL_LEAVE_ACTIVE,
    SMALL_JOIN_FULL,
    SMALL_ALLOCATE,
    SMALL_FREE,
    SMALL_JOIN_PAGES,
    SMALL_RETURN_PAGE,
    SMALL_LEAVE_FULL,
    SMALL_JOIN_ACTIVE,
    SMALL_RETURN_SEGMENT,
    SMALL_PUNCH_PAGE,
    SMALL_PUNCH_LEAVE,
    SMALL_PUNCH_JOIN,
    SMALL_FILL_PAGE,
    SMALL_STATES,
};

/* SmallRcItem, one line (§4.4). */
struct alignas(64) SmallItem {
    uint64_t state;  /* SmallState | class << 8 | index << 16 */
    uint64_t before; /* the page's PageBlocks before ALLOCATE, FREE */
    PPtrBase argument;
    PPtrBase page;
    PPtrBase other; /* a segment on its way; the head of a list that something joins; its offset: SegmentPages before a change */
};

enum BigState : uint64_t {
    BIG_NONE = 0,
    BIG_WANT_SEGMENT,
    BIG_NEW_SEGMENT,
    BIG_ALLOCATE,
    BIG_FREE,
    BIG_RETURN_SEGMENT,
    BIG_DEFRAGMENT,
    BIG_STATES,
};

/* BigRcItem, two lines (§4.5). */
struct alignas(64) BigItem {
    uint64_t state; /* BigState */
    uint64_t wanted;
    PPtrBase argument;
    PPtrBase block;
    PPtrBase segment; /* on its way */
    uint64_t info;    /* of the block, before */
    uint64_t left;    /* FREE: bytes of the free neighbours, 0: none */
    uint64_t right;
    uint64_t left_hole; /* DEFRAGMENT: the same of holes */
    uint64_t right_hole;
    uint64_t right_last; /* BLOCK_LAST or 0, of the right neighbour that is joined */
    uint64_t hole_last;  /* the same, of the whole hole */
    uint64_t is_hole;    /* RETURN_SEGMENT: nothing is left of it */
};

/* ---- the anchor ---- */

constexpr uint64_t ANCHOR_MAGIC = UINT64_C(0x726f68636e414150); /* "PAAnchor" */
constexpr uint64_t VERSION = 1;
constexpr uint64_t STATUS_READY = 1;

struct Anchor {
    uint64_t magic;
    uint64_t version;
    uint64_t heap; /* identity */
    uint64_t status;
    uint64_t unused[4];
    uint64_t segment_bytes, page_bytes, big_limit, leaf_entries, segment_entries; /* as it was built */
    uint64_t cores;
    uint64_t limit_bytes;
    uint64_t unused2;
    PPtrBase roots[ROOTS];
    uint64_t segment_counter; /* the highest id ever used */
    uint64_t unused3;
    PPtrBase free_segments;
    PPtrBase leaving; /* a free segment on its way to be destroyed */
    SegmentItem segment_item;
};

/* Persistent part of one SmallPAllocator and one BigPAllocator. */
struct alignas(64) Core {
    PPtrBase active, full;   /* segments */
    PPtrBase pages[CLASSES]; /* PageListManager: partly free pages */
    PPtrBase free_tree, info_tree; /* BigBlockManager: first leaves */
    SmallItem small_item;
    BigItem big_item;
    TreeLog free_log, info_log;
};

struct alignas(16) SegmentEntry {
    uint64_t id; /* 0: none */
    uint64_t bytes;
};

constexpr uint64_t anchor_bytes(uint64_t cores, uint64_t entries) {
    return rounded_up(sizeof(Anchor) + cores * sizeof(Core) + entries * sizeof(SegmentEntry), OS_PAGE_BYTES);
}

static_assert(sizeof(PPtrBase) == 16 && sizeof(Links) == 32 && sizeof(Node) == 64);
static_assert(offsetof(SegmentHeader, links) == offsetof(Node, links) && offsetof(PageHeader, links) == offsetof(Node, links));
static_assert(sizeof(SegmentHeader) <= HEADER_BYTES && sizeof(SegmentHeader) <= PAGE_BYTES);
static_assert(sizeof(SegmentPages) == 8 && sizeof(PageBlocks) == 8 && sizeof(TreeEntry) == 24);
static_assert(offsetof(PageHeader, entries) == 64 && offsetof(Leaf, entries) % 64 == 0);
static_assert(sizeof(SmallItem) == 64 && sizeof(SegmentItem) == 64 && sizeof(TreeLog) == 64 && sizeof(BigItem) == 128);
static_assert(offsetof(BigItem, info) == 64 && offsetof(Anchor, segment_item) % 64 == 0 && sizeof(Anchor) % 64 == 0);
static_assert(SEGMENT_BYTES % PAGE_BYTES == 0 && PAGE_BYTES % OS_PAGE_BYTES == 0 && PAGES >= 2 && PAGES < NO_INDEX);
static_assert(BIG_LIMIT <= SEGMENT_BYTES - HEADER_BYTES + 1 && BIG_LIMIT % OS_PAGE_BYTES == 0);
static_assert(LEAF_ENTRIES >= 2 && LEAF_ENTRIES <= 64 && sizeof(Leaf) <= SMALL_LIMIT);

} // namespace pallocator
#endif
