/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tree.cpp - the hybrid tree against std::map: random operations, with a power failure at every event (recorded.h).
 *
 *     test_tree [--seeds N] [--first-seed N] [--operations N] [--expect RULE]
 *
 * The tree lies in a heap without big objects, in the place of core 0's BlockInfo tree. Each crash image is recovered by the tree's own
 * recovery: it holds what the map held before the pending operation or after it, every leaf is a block in use, and nothing else is.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "recorded.h"
#include "small.h"
#include "tree.h"

using namespace pallocator;

namespace {

using Map = std::map<std::pair<uint64_t, uint64_t>, uint64_t>;

struct Leaves final : LeafMemory {
    explicit Leaves(Small &small, Segments &segments) : small(small), segments(segments) {}
    Status allocate_leaf(PPtrBase &pointer) override {
        return is_out_of_memory ? fail(Status::OUT_OF_MEMORY, "no memory for leaves")
                                : small.allocate(class_of(sizeof(Leaf)), segments.persistent(&pointer));
    }
    void free_leaf(PPtrBase &pointer) override { small.deallocate(segments.persistent(&pointer), pointer); }
    Small &small;
    Segments &segments;
    bool is_out_of_memory = false;
};

/* A heap of one core, opened for the tree alone. */
struct Opened {
    Segments segments;
    std::unique_ptr<Small> small;
    std::unique_ptr<Leaves> leaves;
    std::unique_ptr<Tree> tree;

    void make() {
        small = std::make_unique<Small>(segments, 0);
        leaves = std::make_unique<Leaves>(*small, segments);
        tree = std::make_unique<Tree>(2, segments, *leaves, segments.core(0).info_tree, segments.core(0).info_log);
    }

    Status recover(const std::string &folder) {
        Status status = segments.map_all({.folder = folder.c_str()});
        if (status != Status::OK)
            return status;
        segments.recover();
        make();
        small->recover();
        status = small->take_ownership();
        return status == Status::OK ? tree->recover([](const TreeEntry &) {}) : status;
    }
};

std::string folder, scratch, where, finding_text;
const char *rule;
uint64_t random_state, judged;
unsigned deepest;
Map before, after;

uint64_t chance(uint64_t below) { return next_random(&random_state) % below; }

void finding(const char *id, const std::string &text) {
    if (rule != nullptr)
        return;
    rule = id;
    finding_text = where + ": " + text + ": " + message();
}

Map content(const Tree &tree) {
    Map map;
    tree.each([&](const TreeEntry &entry) { map[{entry.words[0], entry.words[1]}] = entry.words[2]; });
    return map;
}

/* Leaves and nothing else are in use. */
void judge_leaves(Opened &opened) {
    uint64_t leaves = 0, used = 0;
    for (PPtrBase at = opened.segments.core(0).info_tree; !at.is_null(); at = opened.segments.at<Leaf>(at)->next)
        leaves++;
    for (uint64_t file : opened.segments.files())
        if (opened.segments.owner(file) == 0)
            opened.small->walk(file, [&](const Part &part) { used += part.state == PartState::ALLOCATED; });
    if (leaves != used)
        finding(used > leaves ? "FL010" : "FL008",
                std::to_string(used) + " blocks are in use, the tree has " + std::to_string(leaves));
    if (opened.small->check() != Status::OK || opened.tree->check() != Status::OK)
        finding("FL011", "check");
}

void judge(const Image &image) {
    Opened opened;
    judged++;
    write_image(scratch, image);
    if (opened.recover(scratch) != Status::OK)
        return finding("FL003", "recovery");
    Map found = content(*opened.tree);
    if (found != before && found != after)
        finding("FL004", std::to_string(found.size()) + " entries, expected " + std::to_string(before.size()) + " or " +
                             std::to_string(after.size()));
    judge_leaves(opened);
}

void judge_tree(const Tree &tree, const Map &map) {
    if (content(tree) != map || tree.check() != Status::OK)
        return finding("FL004", "the tree and the map differ");
    const Key key{chance(3), chance(40) * 8, 0};
    auto next = map.lower_bound({key[0], key[1]});
    auto same = [](const TreeEntry *entry, Map::const_iterator at, Map::const_iterator none) {
        return at == none ? entry == nullptr : entry != nullptr && std::pair(entry->words[0], entry->words[1]) == at->first;
    };
    if (!same(tree.lower_bound(key), next, map.end()) ||
        !same(tree.before(key), next == map.begin() ? map.end() : std::prev(next), map.end()) ||
        !same(tree.last(), map.empty() ? map.end() : std::prev(map.end()), map.end()))
        finding("FL004", "looking up");
}

void run_operation(Opened &opened, unsigned phase) {
    Tree &tree = *opened.tree;
    const Key key{chance(3), chance(40) * 8, 0};
    uint64_t value = next_random(&random_state);
    before = after;
    switch (chance(8)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        if (chance(10) < phase) {
            after.erase({key[0], key[1]});
            tree.erase(key);
            break;
        }
        opened.leaves->is_out_of_memory = chance(12) == 0;
        if (tree.prepare(key) == Status::OK && !after.contains({key[0], key[1]})) {
            after[{key[0], key[1]}] = value;
            opened.leaves->is_out_of_memory = true; /* prepared */
            tree.insert({{key[0], key[1], value}});
        }
        opened.leaves->is_out_of_memory = false;
        break;
    case 5:
        after.erase({key[0], key[1]});
        tree.erase(key);
        break;
    default:
        if (after.contains({key[0], key[1]}))
            after[{key[0], key[1]}] = value;
        tree.update(key, value);
        fl_fence();
    }
    before = after;
    recorder_position();
    deepest = std::max(deepest, tree.levels());
    judge_tree(tree, after);
}

void run(uint64_t seed, unsigned operations) {
    random_state = seed;
    before.clear();
    after.clear();
    write_image(folder, {});
    auto opened = std::make_unique<Opened>();
    opened->segments.create_anchor({.folder = folder.c_str(), .limit_bytes = 1 << 20, .identity = 5}, 1);
    opened = std::make_unique<Opened>();
    Recorder recording = record(folder, [](recorder *workload, void *) {
        if (rule == nullptr && chance(3) == 0)
            judge(image_of(workload, chance(6) == 0 ? IMAGE_FLOOR : chance(6) == 0 ? IMAGE_PREFIX : IMAGE_RANDOM, random_state));
    });
    if (opened->recover(folder) != Status::OK)
        finding("FL003", "opening");
    for (unsigned i = 0; i < operations && rule == nullptr; i++) {
        where = "seed " + std::to_string(seed) + ", operation " + std::to_string(i);
        run_operation(*opened, i % 100 < 60 ? 1 : 9);
        if (chance(25) == 0) { /* inner nodes are made anew */
            opened = std::make_unique<Opened>();
            if (opened->recover(folder) != Status::OK)
                finding("FL003", "reopening");
        }
    }
}

} // namespace

int main(int count, char **arguments) {
    unsigned seeds = 3, operations = 300, first_seed = 1;
    const char *expected = "none";
    for (int i = 1; i + 1 < count; i += 2) {
        unsigned value = static_cast<unsigned>(atoi(arguments[i + 1]));
        if (strcmp(arguments[i], "--seeds") == 0)
            seeds = value;
        else if (strcmp(arguments[i], "--first-seed") == 0)
            first_seed = value;
        else if (strcmp(arguments[i], "--operations") == 0)
            operations = value;
        else if (strcmp(arguments[i], "--expect") == 0)
            expected = arguments[i + 1];
        else
            return fprintf(stderr, "test_tree: unknown argument %s\n", arguments[i]), 2;
    }
    char top[] = "/dev/shm/pallocator-tree-XXXXXX";
    if (mkdtemp(top) == nullptr)
        return perror(top), 3;
    folder = std::string(top) + "/heap";
    scratch = std::string(top) + "/scratch";
    mkdir(folder.c_str(), 0777);
    mkdir(scratch.c_str(), 0777);
    for (unsigned seed = first_seed; seed < first_seed + seeds && rule == nullptr; seed++)
        run(seed, operations);
    if (system((std::string("rm -rf ") + top).c_str()) != 0)
        return 3;
    printf("%llu images judged, trees of up to %u levels; first finding: %s %s\n", static_cast<unsigned long long>(judged), deepest,
           rule == nullptr ? "none" : rule, finding_text.c_str());
    bool is_passed = strcmp(rule == nullptr ? "none" : rule, expected) == 0 && deepest >= 3;
    printf("%d passed, %d failed\n", is_passed, !is_passed);
    return !is_passed;
}
