/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pallocator.cpp - unit, model and threads tests, bad input included. Built by harness/tests/quality/test_parts.py, with and without
 * the sizes that make everything small, and with each sanitizer. Prints `N passed, M failed`.
 */
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

#include "pallocator.h"
#include "persist.h"
#include "small.h"

#define EXPECT_MESSAGE() pallocator::message()
#include "expect.h"

using namespace pallocator;

static constexpr bool IS_SMALL = SEGMENT_BYTES < (1u << 20);
static constexpr uint64_t LIMIT = IS_SMALL ? 1 << 20 : 600 << 20;

static uint64_t free_space = UINT64_MAX; /* that the file system has for new files */

/* In the place of the C library's. */
extern "C" int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (mode == 0 && static_cast<uint64_t>(bytes) > free_space) {
        syscall(SYS_fallocate, fd, mode, offset, OS_PAGE_BYTES);
        errno = ENOSPC;
        return -1;
    }
    if (mode == 0 && free_space != UINT64_MAX)
        free_space -= static_cast<uint64_t>(bytes);
    return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
}

static std::string make_folder() { return new_folder(); }

static Options options(const std::string &folder, uint64_t limit = LIMIT, unsigned cores = 2, uint64_t identity = 0) {
    return {.folder = folder.c_str(), .limit_bytes = limit, .cores = cores, .identity = identity};
}

static Heap *create(const Options &options) {
    Heap *heap = nullptr;
    EXPECT(Heap::create(options, &heap) == Status::OK);
    return heap;
}

static Heap *reopen(Heap *heap, const Options &options) {
    delete heap;
    heap = nullptr;
    EXPECT(Heap::open(options, &heap) == Status::OK);
    return heap;
}

static std::set<std::string> names(const std::string &folder) {
    std::set<std::string> found;
    FILE *listing = popen(("ls -A " + folder).c_str(), "r");
    char line[256];
    while (fgets(line, sizeof line, listing) != nullptr)
        found.insert(std::string(line, strlen(line) - 1));
    pclose(listing);
    return found;
}

/* ---- size classes ---- */

static void classes_grow_and_hold_what_is_asked_for() {
    unsigned before = 0;
    for (uint64_t bytes = 0; bytes < SMALL_LIMIT; bytes++) {
        unsigned found = class_of(bytes);
        if (found == CLASSES)
            break;
        if (found < before || CLASS_BYTES[found] < bytes || (found > 0 && CLASS_BYTES[found - 1] >= bytes))
            return EXPECT(false);
        before = found;
    }
    EXPECT(before + 1 == CLASSES || IS_SMALL);
    for (unsigned i = 0; i <= before; i++)
        if (block_count(i) < 3 || blocks_offset(block_count(i)) + uint64_t{block_count(i)} * CLASS_BYTES[i] > PAGE_BYTES)
            return EXPECT(false);
    EXPECT(class_of(SMALL_LIMIT) == CLASSES);
}

/* ---- objects ---- */

static void objects_of_every_kind_survive() {
    const std::string folder = make_folder();
    Heap *heap = create(options(folder));
    const uint64_t sizes[] = {1, 64, 65, SMALL_LIMIT / 2, SMALL_LIMIT, BIG_LIMIT - 1, BIG_LIMIT, BIG_LIMIT + 5000};
    for (unsigned i = 0; i < std::size(sizes); i++) {
        EXPECT(heap->allocate(heap->root(i), sizes[i]) == Status::OK);
        EXPECT(heap->usable_bytes(heap->root(i)) >= sizes[i]);
        memset(heap->to_pointer(heap->root(i)), static_cast<int>(i + 1), sizes[i]);
    }
    heap = reopen(heap, options(folder));
    for (unsigned i = 0; i < std::size(sizes); i++) {
        const unsigned char *object = heap->to<unsigned char>(heap->root(i));
        bool is_right = true;
        for (uint64_t at = 0; at < sizes[i]; at++)
            is_right = is_right && object[at] == i + 1;
        EXPECT(is_right);
    }
    EXPECT(heap->check() == Status::OK);
    Counters counters = heap->counters();
    EXPECT(counters.small_segments >= 1 && counters.big_segments >= 1 && counters.huge_segments == 2);
    for (unsigned i = 0; i < std::size(sizes); i++) {
        EXPECT(heap->deallocate(heap->root(i)) == Status::OK);
        EXPECT(heap->root(i).is_null());
    }
    EXPECT(heap->check() == Status::OK);
    EXPECT(heap->counters().huge_segments == 0 && heap->counters().big_segments == 0);
    delete heap;
}

static void pointers_swizzle_both_ways() {
    const std::string folder = make_folder();
    Heap *heap = create(options(folder));
    EXPECT(heap->allocate(heap->root(0), 100) == Status::OK);
    const PPtrBase pointer = heap->root(0);
    char *object = heap->to<char>(pointer);
    EXPECT(heap->to_persistent(object) == pointer);
    EXPECT((heap->to_persistent(object + 10) == PPtrBase{pointer.file, pointer.offset + 10}));
    EXPECT(heap->to_persistent(&heap).is_null());
    EXPECT(heap->to_pointer({}) == nullptr);
    EXPECT(heap->to_pointer({pointer.file, SEGMENT_BYTES}) == nullptr);
    EXPECT(heap->to_pointer({12345, 0}) == nullptr);
    EXPECT((PPtrBase{NO_FILE, 1} == PPtrBase{NO_FILE, 2}));
    PPtr<int> typed;
    EXPECT(&typed.as<char>() == reinterpret_cast<PPtr<char> *>(&typed));
    delete heap;
}

static void what_is_wrong_is_refused_and_changes_nothing() {
    const std::string folder = make_folder();
    Heap *heap = create(options(folder));
    PPtrBase outside;
    EXPECT(heap->allocate(outside, 64) == Status::INVALID);
    EXPECT(heap->deallocate(outside) == Status::INVALID);
    EXPECT(heap->allocate(heap->root(0), 64) == Status::OK);
    EXPECT(heap->allocate(heap->root(0), 64) == Status::INVALID);
    heap->root(1) = {heap->root(0).file, heap->root(0).offset + 8};
    EXPECT(heap->deallocate(heap->root(1)) == Status::INVALID);
    heap->root(1) = {77, 4096};
    EXPECT(heap->deallocate(heap->root(1)) == Status::INVALID);
    heap->root(1) = {ANCHOR_FILE, 0};
    EXPECT(heap->deallocate(heap->root(1)) == Status::INVALID);
    heap->root(1) = {};
    EXPECT(heap->allocate(heap->root(1), UINT64_MAX) == Status::OUT_OF_MEMORY);
    EXPECT(heap->root(1).is_null());
    EXPECT(heap->check() == Status::OK);
    delete heap;
}

/* ---- against a model ---- */

struct Object {
    uint64_t bytes;
    unsigned char byte;
};

static bool holds(Heap &heap, const PPtrBase &pointer, const Object &object) {
    const auto *content = heap.to<unsigned char>(pointer);
    return content[0] == object.byte && content[object.bytes / 2] == object.byte && content[object.bytes - 1] == object.byte;
}

/* Random operations of all kinds on a heap that is nearly full all the time. */
static void a_model_agrees(unsigned operations, unsigned seed) {
    const std::string folder = make_folder();
    constexpr unsigned SLOTS = 200;
    Heap *heap = create(options(folder, 512 << 10));
    uint64_t random = seed, refused = 0;
    std::map<unsigned, Object> model;
    EXPECT(heap->allocate(heap->root(0), SLOTS * sizeof(PPtrBase)) == Status::OK);
    auto slots = [&] { return heap->to<PPtrBase>(heap->root(0)); };
    for (unsigned i = 0; i < SLOTS; i++)
        slots()[i] = {};
    for (unsigned i = 0; i < operations; i++) {
        unsigned slot = static_cast<unsigned>(next_random(&random) % SLOTS);
        uint64_t kind = next_random(&random) % 20;
        Heap::use_core(static_cast<int>(next_random(&random) % 2));
        if (model.contains(slot)) {
            if (!holds(*heap, slots()[slot], model[slot]))
                return EXPECT(false);
            EXPECT(heap->deallocate(slots()[slot]) == Status::OK);
            model.erase(slot);
        } else {
            uint64_t most = kind < 10 ? SMALL_LIMIT : kind < 19 ? BIG_LIMIT : BIG_LIMIT * 2;
            Object object{1 + next_random(&random) % most, static_cast<unsigned char>(i)};
            Status status = heap->allocate(slots()[slot], object.bytes);
            if (status == Status::OUT_OF_MEMORY) {
                refused++;
                continue;
            }
            if (status != Status::OK)
                return EXPECT(false);
            auto *content = heap->to<unsigned char>(slots()[slot]);
            content[0] = content[object.bytes / 2] = content[object.bytes - 1] = object.byte;
            model[slot] = object;
        }
        if (i % 97 == 0) {
            EXPECT(heap->check() == Status::OK);
            heap = reopen(heap, options(folder));
            EXPECT(heap->check() == Status::OK);
        }
    }
    for (auto &[slot, object] : model)
        EXPECT(holds(*heap, slots()[slot], object) && heap->deallocate(slots()[slot]) == Status::OK);
    EXPECT(heap->check() == Status::OK);
    EXPECT(refused > 0);
    delete heap;
}

/* ---- defragmentation ---- */

/* The stress of §5, Table 2, scaled: fill, free every other object, ask for objects of twice the size. */
static void fragmented_memory_is_used_again() {
    if (!IS_SMALL)
        return;
    const std::string folder = make_folder();
    constexpr unsigned SLOTS = 512;
    Heap *heap = create(options(folder, 640 << 10));
    EXPECT(heap->allocate(heap->root(0), SLOTS * sizeof(PPtrBase)) == Status::OK);
    auto *slots = heap->to<PPtrBase>(heap->root(0));
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = {};
    uint64_t live = 0;
    for (uint64_t bytes = 4096; bytes <= 65536; bytes *= 2) {
        unsigned made = 0;
        for (unsigned i = 0; i < SLOTS; i++)
            if (slots[i].is_null() && heap->allocate(slots[i], bytes) == Status::OK)
                made++;
        EXPECT(made > 0);
        live = 0;
        for (unsigned i = 0; i < SLOTS; i++)
            if (!slots[i].is_null() && live++ % 2 == 0)
                EXPECT(heap->deallocate(slots[i]) == Status::OK);
        EXPECT(heap->check() == Status::OK);
    }
    EXPECT(heap->counters().punched_holes > 0);
    EXPECT(heap->occupied_bytes() <= 640 << 10);
    heap = reopen(heap, options(folder));
    EXPECT(heap->check() == Status::OK && heap->occupied_bytes() <= 640 << 10);
    delete heap;
}

static void defragmentation_of_too_much_does_nothing() {
    const std::string folder = make_folder();
    Heap *heap = create(options(folder));
    EXPECT(heap->allocate(heap->root(0), SMALL_LIMIT + 1) == Status::OK);
    uint64_t occupied = heap->occupied_bytes();
    EXPECT(heap->defragment(LIMIT) == Status::OUT_OF_MEMORY);
    EXPECT(heap->occupied_bytes() == occupied && heap->counters().punched_holes == 0);
    EXPECT(heap->defragment(OS_PAGE_BYTES) == Status::OK);
    EXPECT(heap->occupied_bytes() < occupied && heap->counters().punched_holes == 1);
    EXPECT(heap->check() == Status::OK);
    delete heap;
}

/* Room for less than a segment: what was punched serves requests of its size again. */
static void holes_are_used_again() {
    if (!IS_SMALL)
        return;
    const std::string folder = make_folder();
    const uint64_t limit = anchor_bytes(2, PAL_SEGMENT_ENTRIES) + 2 * SEGMENT_BYTES;
    Heap *heap = create(options(folder, limit));
    for (unsigned i = 0; i < 7; i++)
        EXPECT(heap->allocate(heap->root(i), OS_PAGE_BYTES) == Status::OK);
    EXPECT(heap->occupied_bytes() == limit && heap->allocate(heap->root(7), OS_PAGE_BYTES) == Status::OUT_OF_MEMORY);
    for (unsigned i : {2, 3})
        EXPECT(heap->deallocate(heap->root(i)) == Status::OK);
    EXPECT(heap->defragment(2 * OS_PAGE_BYTES) == Status::OK && heap->occupied_bytes() == limit - 2 * OS_PAGE_BYTES);
    EXPECT(heap->allocate(heap->root(2), OS_PAGE_BYTES) == Status::OK && heap->occupied_bytes() == limit - OS_PAGE_BYTES);
    EXPECT(heap->check() == Status::OK);
    EXPECT(heap->allocate(heap->root(3), OS_PAGE_BYTES) == Status::OK && heap->occupied_bytes() == limit);
    EXPECT(heap->check() == Status::OK);
    const uint64_t pages = 6 * PAGE_BYTES; /* the seventh has leaves */
    EXPECT(heap->defragment(pages) == Status::OK && heap->occupied_bytes() == limit - pages);
    heap = reopen(heap, options(folder));
    for (unsigned i = 0; i < 6; i++)
        EXPECT(heap->allocate(heap->root(8 + i), CLASS_BYTES[i == 2 ? 11 : i]) == Status::OK);
    EXPECT(heap->occupied_bytes() == limit);
    EXPECT(heap->check() == Status::OK);
    heap = reopen(heap, options(folder));
    EXPECT(heap->occupied_bytes() == limit && heap->check() == Status::OK);
    for (unsigned i = 0; i < 14; i++)
        EXPECT(i == 7 || heap->deallocate(heap->root(i)) == Status::OK);
    EXPECT(heap->check() == Status::OK);
    delete heap;
}

/* ---- files that are not what they should be ---- */

struct Broken {
    std::string folder;
    std::set<std::string> files;
};

static Broken heap_with_segments() {
    Broken broken{make_folder(), {}};
    Heap *heap = create(options(broken.folder, LIMIT, 2, 99));
    const uint64_t sizes[] = {64, SMALL_LIMIT + 1, BIG_LIMIT};
    for (unsigned i = 0; i < 3; i++)
        EXPECT(heap->allocate(heap->root(i), sizes[i]) == Status::OK);
    delete heap;
    broken.files = names(broken.folder);
    return broken;
}

static std::map<std::string, uint64_t> digests(const std::string &folder) {
    std::map<std::string, uint64_t> result;
    for (const std::string &name : names(folder)) {
        uint64_t bytes, sum = 0;
        auto *content = static_cast<unsigned char *>(read_file((folder + "/" + name).c_str(), &bytes));
        for (uint64_t i = 0; i < bytes; i++)
            sum = sum * 31 + content[i];
        free(content);
        result[name] = sum;
    }
    return result;
}

static void expect_refused(const std::string &folder, Status status, const char *words) {
    const auto before = digests(folder);
    Heap *heap = nullptr;
    EXPECT(Heap::open(options(folder), &heap) == status);
    EXPECT(strstr(message(), words) != nullptr);
    EXPECT(heap == nullptr && digests(folder) == before);
}

static void damaged_files_are_refused_and_left_alone() {
    if (!IS_SMALL)
        return;
    for (const std::string name : {"segment-1", "segment-2", "segment-3"}) {
        Broken missing = heap_with_segments();
        unlink((missing.folder + "/" + name).c_str());
        expect_refused(missing.folder, Status::CORRUPT, name.c_str());
        Broken cut = heap_with_segments();
        EXPECT(truncate((cut.folder + "/" + name).c_str(), 4096) == 0);
        expect_refused(cut.folder, Status::CORRUPT, "bytes, expected");
    }
    Broken copied = heap_with_segments();
    EXPECT(system(("cp " + copied.folder + "/segment-1 " + copied.folder + "/segment-2").c_str()) == 0);
    expect_refused(copied.folder, Status::CORRUPT, "segment-2");
    Broken doubled = heap_with_segments();
    EXPECT(system(("cp " + doubled.folder + "/segment-1 " + doubled.folder + "/segment-9").c_str()) == 0);
    expect_refused(doubled.folder, Status::CORRUPT, "segment-9");
    Broken other = heap_with_segments();
    const std::string stranger = make_folder();
    Heap *heap = create(options(stranger, LIMIT, 2, 100));
    EXPECT(heap->allocate(heap->root(0), 64) == Status::OK);
    delete heap;
    EXPECT(system(("cp " + stranger + "/segment-1 " + other.folder + "/segment-1").c_str()) == 0);
    expect_refused(other.folder, Status::CORRUPT, "no segment of this heap");
    Broken garbage = heap_with_segments();
    EXPECT(system(("head -c 32768 /dev/urandom > " + garbage.folder + "/segment-2").c_str()) == 0);
    expect_refused(garbage.folder, Status::CORRUPT, "no segment of this heap");
}

static void change_word(const std::string &path, uint64_t index, uint64_t value) {
    int fd = open(path.c_str(), O_RDWR);
    EXPECT(fd >= 0 && pwrite(fd, &value, 8, static_cast<off_t>(index * 8)) == 8);
    close(fd);
}

static void other_anchors_are_refused_and_left_alone() {
    if (!IS_SMALL)
        return;
    Broken version = heap_with_segments();
    change_word(version.folder + "/anchor", 1, 2);
    expect_refused(version.folder, Status::VERSION, "version 2, expected 1");
    Broken built = heap_with_segments();
    change_word(built.folder + "/anchor", 8, SEGMENT_BYTES * 2);
    expect_refused(built.folder, Status::VERSION, "other sizes");
    Broken unfinished = heap_with_segments();
    change_word(unfinished.folder + "/anchor", 3, 0);
    expect_refused(unfinished.folder, Status::NOT_A_HEAP, "not completed");
    const uint64_t core = sizeof(Anchor);
    const uint64_t items[] = {offsetof(Anchor, segment_item), core + offsetof(Core, small_item), core + offsetof(Core, big_item),
                              core + sizeof(Core) + offsetof(Core, free_log), core + offsetof(Core, info_log)};
    for (uint64_t offset : items) {
        Broken item = heap_with_segments();
        change_word(item.folder + "/anchor", offset / 8, 77);
        expect_refused(item.folder, Status::CORRUPT, "no state of a recovery item");
    }
    Broken foreign = heap_with_segments();
    change_word(foreign.folder + "/anchor", 0, 1234);
    expect_refused(foreign.folder, Status::CORRUPT, "no anchor");
    Heap *heap = nullptr;
    EXPECT(Heap::create(options(foreign.folder), &heap) == Status::CORRUPT);
    for (long bytes : {0L, 100L, static_cast<long>(anchor_bytes(2, PAL_SEGMENT_ENTRIES) - OS_PAGE_BYTES), -1L}) {
        Broken cut = heap_with_segments(); /* -1: there is none */
        const std::string anchor = cut.folder + "/anchor";
        EXPECT((bytes < 0 ? unlink(anchor.c_str()) : truncate(anchor.c_str(), bytes)) == 0);
        const auto before = digests(cut.folder);
        bool is_known = bytes > 100;
        expect_refused(cut.folder, is_known ? Status::CORRUPT : Status::NOT_A_HEAP, bytes < 0 ? "No such file" : "anchor");
        EXPECT(Heap::create(options(cut.folder), &heap) == Status::CORRUPT && digests(cut.folder) == before);
        EXPECT(is_known || strstr(message(), "no segment of this heap") != nullptr);
    }
    const std::string empty = make_folder();
    EXPECT(Heap::open(options(empty), &heap) == Status::NOT_A_HEAP);
    EXPECT(names(empty).empty());
    EXPECT(Heap::create(options(version.folder), &heap) == Status::VERSION);
    Broken there = heap_with_segments();
    EXPECT(Heap::create(options(there.folder), &heap) == Status::EXISTS && names(there.folder) == there.files);
}

/* As after a failure before the status was persisted. */
static void an_unfinished_creation_is_begun_again() {
    const std::string folder = make_folder();
    delete create(options(folder));
    change_word(folder + "/anchor", 3, 0);
    Heap *heap = create(options(folder));
    EXPECT(heap->allocate(heap->root(0), 64) == Status::OK);
    delete heap;
}

/* A full file system: of what is asked for it reserves what it has, and fails. */
static void a_full_file_system_leaves_everything_as_it_was() {
    if (!IS_SMALL)
        return;
    const std::string folder = make_folder();
    Heap *heap = create(options(folder, UINT64_MAX));
    free_space = 4 * SEGMENT_BYTES;
    unsigned made = 0;
    while (made < ROOTS && heap->allocate(heap->root(made), BIG_LIMIT) == Status::OK)
        made++;
    EXPECT(made > 0 && made < ROOTS);
    EXPECT(strstr(message(), "No space") != nullptr || strstr(message(), "defragmentation") != nullptr);
    EXPECT(heap->root(made).is_null() && heap->check() == Status::OK && names(folder).size() == made + 1);
    for (uint64_t bytes : {uint64_t{64}, OS_PAGE_BYTES}) /* one that there is room for in no segment */
        EXPECT(heap->allocate(heap->root(made), bytes) == Status::OUT_OF_MEMORY && names(folder).size() == made + 1);
    heap = reopen(heap, options(folder, UINT64_MAX));
    EXPECT(names(folder).size() == made + 1 && heap->check() == Status::OK);
    EXPECT(heap->deallocate(heap->root(0)) == Status::OK);
    free_space = HEADER_BYTES + BIG_LIMIT;
    EXPECT(heap->allocate(heap->root(0), BIG_LIMIT) == Status::OK);
    free_space = UINT64_MAX;
    delete heap;
}

/* ---- threads ---- */

static void threads_do_not_disturb_one_another(unsigned thread_count, unsigned operations) {
    const std::string folder = make_folder();
    constexpr unsigned SLOTS = 60;
    Heap *heap = create(options(folder, 2 << 20, 3));
    EXPECT(heap->allocate(heap->root(0), thread_count * SLOTS * sizeof(PPtrBase)) == Status::OK);
    auto *all = heap->to<PPtrBase>(heap->root(0));
    for (unsigned i = 0; i < thread_count * SLOTS; i++)
        all[i] = {};
    std::atomic<unsigned> wrong = 0;
    auto work = [&](unsigned number) {
        uint64_t random = number + 1;
        std::map<unsigned, Object> model;
        Heap::use_core(number % 4 == 3 ? -1 : static_cast<int>(number));
        for (unsigned i = 0; i < operations; i++) {
            unsigned index = static_cast<unsigned>(next_random(&random) % SLOTS);
            PPtrBase &slot = all[number * SLOTS + index];
            if (model.contains(index)) {
                wrong += !holds(*heap, slot, model[index]) || heap->deallocate(slot) != Status::OK;
                model.erase(index);
                continue;
            }
            uint64_t kind = next_random(&random) % 16;
            Object object{1 + next_random(&random) % (kind < 12 ? SMALL_LIMIT : BIG_LIMIT + 4096), static_cast<unsigned char>(i)};
            Status status = heap->allocate(slot, object.bytes);
            if (status != Status::OK) {
                wrong += status != Status::OUT_OF_MEMORY;
                continue;
            }
            auto *content = heap->to<unsigned char>(slot);
            content[0] = content[object.bytes / 2] = content[object.bytes - 1] = object.byte;
            model[index] = object;
            if (i % 50 == 0)
                heap->defragment(SEGMENT_BYTES);
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < thread_count; i++)
        threads.emplace_back(work, i);
    for (std::thread &thread : threads)
        thread.join();
    EXPECT(wrong == 0);
    EXPECT(heap->check() == Status::OK);
    heap = reopen(heap, options(folder));
    EXPECT(heap->check() == Status::OK);
    delete heap;
}

int main() {
    begin_tests("pallocator");
    classes_grow_and_hold_what_is_asked_for();
    objects_of_every_kind_survive();
    pointers_swizzle_both_ways();
    what_is_wrong_is_refused_and_changes_nothing();
    for (unsigned seed = 1; IS_SMALL && seed <= 4; seed++)
        a_model_agrees(1500, seed);
    fragmented_memory_is_used_again();
    defragmentation_of_too_much_does_nothing();
    holes_are_used_again();
    damaged_files_are_refused_and_left_alone();
    other_anchors_are_refused_and_left_alone();
    an_unfinished_creation_is_begun_again();
    a_full_file_system_leaves_everything_as_it_was();
    if (IS_SMALL) /* else every segment takes 128 MB of memory */
        threads_do_not_disturb_one_another(4, 600);
    return end_tests();
}
