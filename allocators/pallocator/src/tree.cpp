/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.cpp - see tree.h.
 */
#include "tree.h"

#include <algorithm>

#include "stage.h"

#ifndef PAL_INNER_CHILDREN
#define PAL_INNER_CHILDREN 128
#endif

namespace pallocator {

static constexpr uint64_t FULL = LEAF_ENTRIES == 64 ? ~UINT64_C(0) : (UINT64_C(1) << LEAF_ENTRIES) - 1;
static_assert(PAL_INNER_CHILDREN >= 3);

/* ---- inner nodes ---- */

/* limits[i]: no key below child i is larger; the last child has none. Limits may be larger than any key that is left. */
struct Tree::Inner {
    std::vector<Key> limits;
    std::vector<std::unique_ptr<Inner>> inners; /* either these or leaves */
    std::vector<Leaf *> leaves;

    bool is_lowest() const { return inners.empty(); }
    size_t count() const { return is_lowest() ? leaves.size() : inners.size(); }
    size_t child_for(const Key &key) const {
        return static_cast<size_t>(std::lower_bound(limits.begin(), limits.end(), key) - limits.begin());
    }

    Leaf *rightmost() const {
        const Inner *at = this;
        while (!at->is_lowest())
            at = at->inners.back().get();
        return at->leaves.back();
    }

    void remove_child(size_t child) {
        if (!limits.empty())
            limits.erase(limits.begin() + static_cast<long>(std::min(child, limits.size() - 1)));
        if (is_lowest())
            leaves.erase(leaves.begin() + static_cast<long>(child));
        else
            inners.erase(inners.begin() + static_cast<long>(child));
    }

    /* The upper half, and the limit of the lower one. */
    std::unique_ptr<Inner> cut(Key *limit) {
        auto upper = std::make_unique<Inner>();
        size_t half = count() / 2;
        auto move_tail = [](auto &from, auto &to, size_t first) {
            std::move(from.begin() + static_cast<long>(first), from.end(), std::back_inserter(to));
            from.erase(from.begin() + static_cast<long>(first), from.end());
        };
        *limit = limits[half - 1];
        is_lowest() ? move_tail(leaves, upper->leaves, half) : move_tail(inners, upper->inners, half);
        move_tail(limits, upper->limits, half);
        limits.pop_back();
        return upper;
    }

    /* upper comes right behind lower, which keeps the keys up to limit. Returns what does not fit any more, with *limit. */
    std::unique_ptr<Inner> add(Leaf *lower, Leaf *upper, Key *limit) {
        size_t child = child_for(*limit);
        if (is_lowest()) {
            leaves.insert(leaves.begin() + static_cast<long>(child) + 1, upper);
        } else {
            auto more = inners[child]->add(lower, upper, limit);
            if (more == nullptr)
                return nullptr;
            inners.insert(inners.begin() + static_cast<long>(child) + 1, std::move(more));
        }
        limits.insert(limits.begin() + static_cast<long>(child), *limit);
        return count() > PAL_INNER_CHILDREN ? cut(limit) : nullptr;
    }

    /* Whether nothing is left. */
    bool remove(const Leaf *leaf, const Key &key) {
        size_t child = child_for(key);
        if (is_lowest() ? leaves[child] == leaf : inners[child]->remove(leaf, key))
            remove_child(child);
        return leaves.empty() && inners.empty();
    }
};

void Tree::add_to_inner(Leaf &lower, const Key &limit, Leaf &upper) {
    Key up = limit;
    auto more = root->add(&lower, &upper, &up);
    if (more == nullptr)
        return;
    auto top = std::make_unique<Inner>();
    top->limits.push_back(up);
    top->inners.push_back(std::move(root));
    top->inners.push_back(std::move(more));
    root = std::move(top);
}

void Tree::remove_from_inner(Leaf &leaf, const Key &key) {
    if (root->remove(&leaf, key)) {
        root = nullptr;
        return;
    }
    while (!root->is_lowest() && root->inners.size() == 1) {
        auto child = std::move(root->inners.front());
        root = std::move(child);
    }
}

/* Level by level, from the leaves up. */
void Tree::rebuild(const std::vector<std::pair<Leaf *, Key>> &leaves) {
    std::vector<std::pair<std::unique_ptr<Inner>, Key>> level;
    auto next_node = [](auto &nodes) -> Inner & {
        if (nodes.empty() || nodes.back().first->count() == PAL_INNER_CHILDREN)
            nodes.emplace_back(std::make_unique<Inner>(), Key{});
        else
            nodes.back().first->limits.push_back(nodes.back().second);
        return *nodes.back().first;
    };
    for (auto &[leaf, limit] : leaves) {
        next_node(level).leaves.push_back(leaf);
        level.back().second = limit;
    }
    while (level.size() > 1) {
        std::vector<std::pair<std::unique_ptr<Inner>, Key>> above;
        for (auto &[node, limit] : level) {
            next_node(above).inners.push_back(std::move(node));
            above.back().second = limit;
        }
        level = std::move(above);
    }
    root = level.empty() ? nullptr : std::move(level.front().first);
}

unsigned Tree::levels() const {
    unsigned count = root == nullptr ? 0 : 2;
    for (const Inner *at = root.get(); at != nullptr && !at->is_lowest(); at = at->inners.front().get())
        count++;
    return count;
}

/* ---- entries ---- */

Tree::Tree(unsigned key_words, Segments &segments, LeafMemory &memory, PPtrBase &head, TreeLog &log)
    : key_words(key_words), segments(segments), memory(memory), head(head), log(log) {}

Tree::~Tree() = default;

Key Tree::key_of(const TreeEntry &entry) const {
    Key key{};
    std::copy_n(entry.words, key_words, key.begin());
    return key;
}

int Tree::compare(const TreeEntry &entry, const Key &key) const {
    for (unsigned i = 0; i < key_words; i++)
        if (entry.words[i] != key[i])
            return entry.words[i] < key[i] ? -1 : 1;
    return 0;
}

uint8_t Tree::fingerprint(const Key &key) const {
    uint64_t hash = 0;
    for (unsigned i = 0; i < key_words; i++)
        hash = (hash ^ key[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return static_cast<uint8_t>(hash >> 56);
}

template <typename Visit> static void each_in(const Leaf &leaf, Visit visit) {
    for (uint64_t left = leaf.bitmap; left != 0; left &= left - 1)
        visit(leaf.entries[std::countr_zero(left)]);
}

std::vector<const TreeEntry *> Tree::sorted(const Leaf &leaf) const {
    std::vector<const TreeEntry *> entries;
    each_in(leaf, [&](const TreeEntry &entry) { entries.push_back(&entry); });
    std::sort(entries.begin(), entries.end(), [&](auto *a, auto *b) { return compare(*a, key_of(*b)) < 0; });
    return entries;
}

int Tree::index_in(const Leaf &leaf, const Key &key) const {
    uint8_t wanted = fingerprint(key);
    for (uint64_t left = leaf.bitmap; left != 0; left &= left - 1) {
        int index = std::countr_zero(left);
        if (leaf.fingerprints[index] == wanted && compare(leaf.entries[index], key) == 0)
            return index;
    }
    return -1;
}

const TreeEntry *Tree::smallest_from(const Leaf &leaf, const Key *key) const {
    const TreeEntry *best = nullptr;
    each_in(leaf, [&](const TreeEntry &entry) {
        if ((key == nullptr || compare(entry, *key) >= 0) && (best == nullptr || compare(entry, key_of(*best)) < 0))
            best = &entry;
    });
    return best;
}

const TreeEntry *Tree::largest_before(const Leaf &leaf, const Key *key) const {
    const TreeEntry *best = nullptr;
    each_in(leaf, [&](const TreeEntry &entry) {
        if ((key == nullptr || compare(entry, *key) < 0) && (best == nullptr || compare(entry, key_of(*best)) > 0))
            best = &entry;
    });
    return best;
}

Tree::Place Tree::place_of(const Key &key) const {
    Place place{nullptr, nullptr};
    const Inner *at = root.get();
    if (at == nullptr)
        return place;
    const Inner *left = nullptr; /* everything below it comes before the place */
    for (;;) {
        size_t child = at->child_for(key);
        if (at->is_lowest()) {
            place.leaf = at->leaves[child];
            place.previous = child > 0 ? at->leaves[child - 1] : left != nullptr ? left->rightmost() : nullptr;
            return place;
        }
        if (child > 0)
            left = at->inners[child - 1].get();
        at = at->inners[child].get();
    }
}

const TreeEntry *Tree::find(const Key &key) const {
    const Leaf *leaf = place_of(key).leaf;
    int index = leaf == nullptr ? -1 : index_in(*leaf, key);
    return index < 0 ? nullptr : &leaf->entries[index];
}

const TreeEntry *Tree::lower_bound(const Key &key) const {
    for (const Leaf *leaf = place_of(key).leaf; leaf != nullptr; leaf = leaf_at(leaf->next))
        if (const TreeEntry *found = smallest_from(*leaf, &key))
            return found;
    return nullptr;
}

const TreeEntry *Tree::before(const Key &key) const {
    const Place place = place_of(key);
    const TreeEntry *found = place.leaf == nullptr ? nullptr : largest_before(*place.leaf, &key);
    return found != nullptr || place.previous == nullptr ? found : largest_before(*place.previous, nullptr);
}

const TreeEntry *Tree::last() const { return root == nullptr ? nullptr : largest_before(*root->rightmost(), nullptr); }

void Tree::each(const std::function<void(const TreeEntry &)> &visit) const {
    for (const Leaf *leaf = leaf_at(head); leaf != nullptr; leaf = leaf_at(leaf->next))
        for (const TreeEntry *entry : sorted(*leaf))
            visit(*entry);
}

bool Tree::has_room_before(const Place &place, const Key &key) const {
    return place.previous != nullptr && place.previous->bitmap != FULL && compare(*smallest_from(*place.leaf, nullptr), key) > 0;
}

void Tree::insert(const TreeEntry &entry) {
    const Key key = key_of(entry);
    if (find(key) != nullptr)
        return;
    const Place place = place_of(key);
    Leaf *leaf = place.leaf->bitmap == FULL ? place.previous : place.leaf;
    int index = std::countr_one(leaf->bitmap);
    for (unsigned i = 0; i < 3; i++)
        store(leaf->entries[index].words[i], entry.words[i]);
    fl_flush(&leaf->entries[index], sizeof(TreeEntry));
    /* The first 32 fingerprints lie in the line of the bitmap, which is flushed behind them. */
    uint64_t &word = reinterpret_cast<uint64_t *>(leaf->fingerprints)[index / 8];
    unsigned shift = static_cast<unsigned>(index % 8) * 8;
    store_flushed(word, (word & ~(UINT64_C(0xff) << shift)) | uint64_t{fingerprint(key)} << shift);
#ifndef MUTANT_LEAF_BITMAP_FIRST
    fl_fence();
#endif
    store_flushed(leaf->bitmap, leaf->bitmap | UINT64_C(1) << index);
    fl_fence(); /* there when this returns; who inserts has an item, which is persisted behind another fence */
    if (leaf == place.previous) { /* its limit must cover the key again */
        std::vector<std::pair<Leaf *, Key>> leaves;
        for (Leaf *at = leaf_at(head); at != nullptr; at = leaf_at(at->next))
            leaves.emplace_back(at, key_of(*largest_before(*at, nullptr)));
        rebuild(leaves);
    }
}

void Tree::erase(const Key &key) {
    const Place place = place_of(key);
    int index = place.leaf == nullptr ? -1 : index_in(*place.leaf, key);
    if (index < 0)
        return;
    uint64_t left = place.leaf->bitmap & ~(UINT64_C(1) << index);
    if (left != 0) {
        store_flushed(place.leaf->bitmap, left);
        fl_fence(); /* as in insert */
    } else {
        remove_from_inner(*place.leaf, key);
        unlink(*place.leaf, place.previous);
    }
}

void Tree::update(const Key &key, uint64_t value) {
    if (const TreeEntry *entry = find(key))
        store_flushed(const_cast<TreeEntry *>(entry)->words[2], value);
}

/* ---- leaves ---- */

void Tree::begin(TreeState state, const PPtrBase &leaf, const PPtrBase &other) {
    store(log.leaf, leaf);
    store(log.other, other);
    store(log.state, state);
    fl_flush(&log, sizeof log);
    fl_fence();
}

void Tree::end() {
    fl_fence();
    store_flushed(log.state, TREE_NONE);
    fl_fence(); /* over when this returns; recovery would do it again, and the next log is in the same line, behind this store (R4) */
}

Status Tree::prepare(const Key &key) {
    if (root == nullptr)
        return make_first_leaf();
    if (find(key) != nullptr)
        return Status::OK;
    const Place place = place_of(key);
    if (place.leaf->bitmap != FULL || has_room_before(place, key))
        return Status::OK;
    return split(*place.leaf);
}

Status Tree::make_first_leaf() {
    begin(TREE_FIRST, {}, {});
    Status status = memory.allocate_leaf(log.other);
    if (status == Status::OK) {
        finish_first();
        root = std::make_unique<Inner>();
        root->leaves.push_back(leaf_at(head));
    }
    end();
    return status;
}

void Tree::finish_first() {
    Leaf &leaf = *leaf_at(log.other);
    store(leaf.next, {});
    store_flushed(leaf.bitmap, 0); /* both are in one line */
    fl_fence(); /* empty before it is found; until end(), which fences, recovery does it again */
    store_flushed(head, log.other);
}

Status Tree::split(Leaf &leaf) {
    begin(TREE_SPLIT, segments.persistent(&leaf), {});
    Status status = memory.allocate_leaf(log.other);
    if (status == Status::OK) {
        finish_split();
        Key limit = key_of(*largest_before(leaf, nullptr));
        add_to_inner(leaf, limit, *leaf_at(log.other));
    }
    end();
    return status;
}

/* The lower leaf's bitmap decides: full until all of the new leaf is persisted. */
void Tree::finish_split() {
    Leaf &lower = *leaf_at(log.leaf), &upper = *leaf_at(log.other);
    if (lower.bitmap == FULL) {
        const auto entries = sorted(lower);
        uint64_t moved = 0;
        for (size_t i = entries.size() / 2; i < entries.size(); i++)
            moved |= UINT64_C(1) << (entries[i] - lower.entries);
        for (size_t word = 2; word < sizeof(Leaf) / 8; word++) /* bitmap apart */
            store(reinterpret_cast<uint64_t *>(&upper)[word], reinterpret_cast<const uint64_t *>(&lower)[word]);
        store(upper.bitmap, moved);
#ifndef MUTANT_SPLIT_NOT_FLUSHED
        fl_flush(&upper, sizeof upper);
#endif
        fl_fence();
#ifdef MUTANT_SPLIT_LINKED_FIRST
        store_flushed(lower.next, log.other);
        fl_fence();
#endif
        store_flushed(lower.bitmap, FULL & ~moved);
#ifndef MUTANT_SPLIT_NOT_FLUSHED
        fl_fence(); /* bitmap and next are one line, which keeps their order by itself (R4) */
#endif
    }
    store_flushed(lower.next, log.other);
}

void Tree::unlink(Leaf &leaf, Leaf *previous) {
    begin(TREE_UNLINK, segments.persistent(&leaf), previous == nullptr ? PPtrBase{} : segments.persistent(previous));
    finish_unlink();
    end();
}

void Tree::finish_unlink() {
    Leaf &leaf = *leaf_at(log.leaf);
#ifdef MUTANT_LEAF_FREED_FIRST
    const PPtrBase next = leaf.next;
    memory.free_leaf(log.leaf);
    store_flushed(log.other.is_null() ? head : leaf_at(log.other)->next, next);
#else
    store_flushed(log.other.is_null() ? head : leaf_at(log.other)->next, leaf.next);
    fl_fence();
    memory.free_leaf(log.leaf);
#endif
}

/* ---- recovery ---- */

void Tree::recover_log() {
    switch (log.state) {
    case TREE_FIRST:
        if (log.other.is_null()) {
            FL_STAGE("tree: a first leaf was wanted");
        } else {
            FL_STAGE("tree: the first leaf was made");
            finish_first();
        }
        break;
    case TREE_SPLIT:
        if (log.other.is_null()) {
            FL_STAGE("tree: a leaf was to be split");
        } else if (leaf_at(log.leaf)->bitmap == FULL) {
            FL_STAGE("tree: a split was taken back");
            memory.free_leaf(log.other);
        } else {
            FL_STAGE("tree: a split was finished");
#ifndef MUTANT_RECOVERY_SPLIT_NOT_FLUSHED
            finish_split();
#else
            store(leaf_at(log.leaf)->next, log.other);
#endif
        }
        break;
    case TREE_UNLINK:
        if (log.leaf.is_null()) {
            FL_STAGE("tree: an empty leaf was freed");
        } else {
            FL_STAGE("tree: an empty leaf was unlinked");
            finish_unlink();
        }
        break;
    default: FL_STAGE("tree: nothing pending"); return;
    }
    end();
}

/* Most of a recovery is waiting for leaves: the lines of one are asked for while the one before it is looked at. */
static void prefetch(const Leaf *leaf) {
    for (uint64_t at = 0; leaf != nullptr && at < sizeof(Leaf); at += LINE_BYTES)
        __builtin_prefetch(reinterpret_cast<const char *>(leaf) + at);
}

Status Tree::recover(const std::function<void(const TreeEntry &)> &visit) {
    recover_log();
    std::vector<std::pair<Leaf *, Key>> leaves;
    Leaf *leaf = leaf_at(head), *next;
    for (PPtrBase at = head; !at.is_null(); at = leaves.back().first->next, leaf = next) {
        next = leaf == nullptr ? nullptr : leaf_at(leaf->next);
        prefetch(next);
        bool is_first = leaves.empty(); /* which alone may be empty, until the insertion that it was made for */
        if (leaf == nullptr || (leaf->bitmap == 0 && !(is_first && leaf->next.is_null())) || leaves.size() > (UINT64_C(1) << 32))
            return fail(Status::CORRUPT, "the list of tree leaves is broken at segment %llu, offset %#llx",
                        static_cast<unsigned long long>(at.file), static_cast<unsigned long long>(at.offset));
        each_in(*leaf, visit);
        leaves.emplace_back(leaf, leaf->bitmap == 0 ? Key{} : key_of(*largest_before(*leaf, nullptr)));
        if (leaves.size() > 1 && !(leaves[leaves.size() - 2].second < leaves.back().second))
            return fail(Status::CORRUPT, "tree leaves are out of order at segment %llu, offset %#llx",
                        static_cast<unsigned long long>(at.file), static_cast<unsigned long long>(at.offset));
    }
    rebuild(leaves);
    return Status::OK;
}

/* Order, no key twice, every key found, and leaves of the inner nodes the same as of the list. */
Status Tree::check() const {
    Status status = log.state == TREE_NONE ? Status::OK : fail(Status::CORRUPT, "a tree's log is not empty");
    std::unique_ptr<Key> previous;
    each([&](const TreeEntry &entry) {
        const Key key = key_of(entry);
        if (previous != nullptr && !(*previous < key))
            status = fail(Status::CORRUPT, "tree entries are out of order, or there twice");
        if (find(key) != &entry)
            status = fail(Status::CORRUPT, "a tree entry is not found by its key");
        previous = std::make_unique<Key>(key);
    });
    return status;
}

} // namespace pallocator
