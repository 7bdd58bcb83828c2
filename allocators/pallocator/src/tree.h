/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h - the hybrid tree of a BigBlockManager (§4.5), after the FPTree: entries lie in leaves in persistent memory, a linked list
 * in the order of keys; inner nodes lie in volatile memory and are made anew at recovery from the largest key of each leaf.
 *
 * In a leaf entries have no order. Which places hold one is a bitmap, changed by one store after the entry and its fingerprint are
 * persisted: so an insertion has happened or not, and an erasure too. The value of an entry is changed in place by one store.
 *
 * Leaves come and go by the tree's log, one line:
 *   FIRST    leaf allocated into log.other; made empty; list head = leaf
 *   SPLIT    leaf allocated into log.other; filled with the upper half; then, by one store, the lower leaf's bitmap loses it; next.
 *            Recovery: the lower bitmap is still full: the new leaf is freed, nothing happened. Else the rest is done again.
 *   UNLINK   an emptied leaf: the one before (or the head) goes on to the next; then freed through log.leaf
 *
 * prepare(key) makes room for key, and is the only thing that can fail. After it insert(key) finds room even in a tree whose inner
 * nodes were made anew: where the leaf that the key leads to is full and begins after the key, the leaf before it has room.
 */
#ifndef PALLOCATOR_TREE_H
#define PALLOCATOR_TREE_H

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "segments.h"

namespace pallocator {

using Key = std::array<uint64_t, 3>;

/* Where leaves come from: the small allocators. */
struct LeafMemory {
    virtual Status allocate_leaf(PPtrBase &pointer) = 0;
    virtual void free_leaf(PPtrBase &pointer) = 0;
    virtual ~LeafMemory() = default;
};

class Tree {
  public:
    /* key_words: how many words of an entry, from the first, are its key. */
    Tree(unsigned key_words, Segments &segments, LeafMemory &memory, PPtrBase &head, TreeLog &log);
    ~Tree();

    /* Finishes what the log says, then makes the inner nodes; visits every entry. CORRUPT if the list is broken. */
    Status recover(const std::function<void(const TreeEntry &)> &visit);

    Status prepare(const Key &key);
    void insert(const TreeEntry &entry); /* prepared; nothing happens if the key is there */
    void erase(const Key &key);          /* nothing happens if it is not there */
    void update(const Key &key, uint64_t value); /* the last word of the entry, which is not of the key */

    const TreeEntry *find(const Key &key) const;
    const TreeEntry *lower_bound(const Key &key) const; /* the first one not before key; null: none */
    const TreeEntry *before(const Key &key) const;      /* the last one before key */
    const TreeEntry *last() const;
    void each(const std::function<void(const TreeEntry &)> &visit) const; /* in order */
    unsigned levels() const; /* of leaves and inner nodes; 0: empty */
    Status check() const;

  private:
    struct Inner;
    struct Place {
        Leaf *leaf;     /* that the key leads to; null: the tree is empty */
        Leaf *previous; /* the leaf before it, or null */
    };

    int compare(const TreeEntry &entry, const Key &key) const;
    Key key_of(const TreeEntry &entry) const;
    uint8_t fingerprint(const Key &key) const;
    Leaf *leaf_at(const PPtrBase &pointer) const { return pointer.is_null() ? nullptr : segments.at<Leaf>(pointer); }
    Place place_of(const Key &key) const;
    int index_in(const Leaf &leaf, const Key &key) const; /* -1: not there */
    const TreeEntry *smallest_from(const Leaf &leaf, const Key *key) const;
    const TreeEntry *largest_before(const Leaf &leaf, const Key *key) const;
    std::vector<const TreeEntry *> sorted(const Leaf &leaf) const;
    bool has_room_before(const Place &place, const Key &key) const;

    Status make_first_leaf();
    Status split(Leaf &leaf);
    void unlink(Leaf &leaf, Leaf *previous);
    void begin(TreeState state, const PPtrBase &leaf, const PPtrBase &other);
    void end();
    void finish_first();
    void finish_split();
    void finish_unlink();
    void recover_log();

    void rebuild(const std::vector<std::pair<Leaf *, Key>> &leaves);
    void add_to_inner(Leaf &lower, const Key &separator, Leaf &upper);
    void remove_from_inner(Leaf &leaf, const Key &some_key);

    unsigned key_words;
    Segments &segments;
    LeafMemory &memory;
    PPtrBase &head;
    TreeLog &log;
    std::unique_ptr<Inner> root;
};

} // namespace pallocator
#endif
