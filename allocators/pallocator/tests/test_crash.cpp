/* SPDX-License-Identifier: Apache-2.0
 *
 * test_crash.cpp - power failures at every event of random workloads, with random images of what Px86 allows (recorded.h).
 *
 *     test_crash [--seeds N] [--first-seed N] [--operations N] [--images N] [--expect RULE]
 *
 * A second, much simpler opinion beside the faultline engine. The workload allocates and frees objects of all three kinds through
 * persistent pointers, defragments, and now and then closes and opens the heap. After each event some images are recovered:
 *   - each pointer is as before the pending operation or as after it, and what was written durably is there,
 *   - exactly what pointers name is allocated; parts cover every file; the allocator's own check passes,
 *   - some recoveries are recorded in turn, and fail at each of their events: the second recovery finds the same,
 *   - for some, the heap is used up and freed again, closed and opened, and all this still holds.
 * Now and then the workload itself goes on from one of the images. --expect RULE is for mutants: passes if the first finding has that
 * rule; "none": passes without finding.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "pallocator.h"
#include "persist.h"
#include "recorded.h"

using namespace pallocator;

namespace {

constexpr unsigned SLOTS = 40;
constexpr uint64_t LIMIT = 320 << 10;

struct Object {
    uint64_t bytes = 0; /* 0: null */
    uint64_t seed = 0;  /* 0: content unknown */
    bool operator==(const Object &) const = default;
};

struct Pending {
    unsigned slot = SLOTS; /* none */
    Object after;
};

std::string folder, scratch, nested_folder, where;
std::vector<Object> slots(SLOTS);
Pending pending;
bool is_creating;
uint64_t random_state, judged, nested_judged, generations, used_up;
unsigned image_count = 2;
const char *rule = nullptr;
std::string finding_text;
std::unique_ptr<Heap> heap;
Recorder recording(nullptr, recorder_delete);
Image kept_image;
unsigned sparseness = 4; /* one in so many positions is judged */
bool expects_signal;

uint64_t chance(uint64_t below) { return next_random(&random_state) % below; }

void finding(const char *id, const std::string &text) {
    if (rule != nullptr)
        return;
    rule = id;
    finding_text = where + ": " + text + ": " + message();
}

Options options(const std::string &path) { return {.folder = path.c_str(), .limit_bytes = LIMIT, .cores = 2, .identity = 7}; }

PPtrBase *slots_of(Heap &heap) { return heap.to<PPtrBase>(heap.root(0)); }

uint64_t word(const Object &object, uint64_t index) { return object.seed * UINT64_C(0x9e3779b97f4a7c15) + index; }

/* ---- judging ---- */

void judge_content(Heap &heap, const PPtrBase &pointer, const Object &object, unsigned slot) {
    const uint64_t *words = heap.to<uint64_t>(pointer);
    for (uint64_t i = 0; object.seed != 0 && i < object.bytes / 8; i++)
        if (words[i] != word(object, i))
            return finding("FL009", "content of slot " + std::to_string(slot) + ", word " + std::to_string(i));
}

void judge_slots(Heap &heap) {
    const PPtrBase *pointers = slots_of(heap);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        const Object *expected = &slots[slot];
        const PPtrBase pointer = pointers[slot];
        if (slot == pending.slot && pointer.is_null() == (pending.after.bytes == 0))
            expected = &pending.after;
        if (pointer.is_null() != (expected->bytes == 0))
            return finding(pointer.is_null() ? "FL004" : "FL005", "slot " + std::to_string(slot));
        if (pointer.is_null())
            continue;
        uint64_t usable = heap.usable_bytes(pointer);
        if (usable == 0 || usable < expected->bytes)
            return finding(usable == 0 ? "FL008" : "FL007", "slot " + std::to_string(slot) + ", segment " +
                                                                std::to_string(pointer.file) + ", offset " +
                                                                std::to_string(pointer.offset));
        judge_content(heap, pointer, *expected, slot);
    }
}

void judge_parts(Heap &heap, const std::string &path, unsigned extra) {
    uint64_t allocated = 0, file = ~uint64_t{0}, end = 0, sum = 0, expected = 1 + extra, size = 0;
    heap.walk([&](const Part &part) {
        if (part.file != file && part.offset != 0)
            finding("FL011", "a file does not begin with a part");
        if (part.file == file && part.offset != end)
            finding("FL011", "gap or overlap in segment " + std::to_string(file));
        file = part.file;
        end = part.offset + part.bytes;
        sum += part.bytes;
        allocated += part.state == PartState::ALLOCATED;
    });
    for (const std::string &name : names_in(path)) {
        struct stat info;
        stat((path + "/" + name).c_str(), &info);
        size += static_cast<uint64_t>(info.st_size);
    }
    if (size != sum)
        finding("FL011", "parts make " + std::to_string(sum) + " bytes, files " + std::to_string(size));
    const PPtrBase *pointers = slots_of(heap);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        expected += !pointers[slot].is_null();
    if (allocated != expected)
        finding(allocated > expected ? "FL010" : "FL004",
                std::to_string(allocated) + " objects are allocated, pointers name " + std::to_string(expected));
    if (heap.check() != Status::OK)
        finding("FL011", "check");
    if (heap.occupied_bytes() > LIMIT)
        finding("FL011", "the limit is exceeded");
}

void judge_heap(Heap &heap, const std::string &path) {
    const PPtrBase root = heap.root(0);
    if (root.is_null() || heap.usable_bytes(root) < SLOTS * sizeof(PPtrBase))
        return finding("FL004", "root 0");
    judge_slots(heap);
    if (rule == nullptr)
        judge_parts(heap, path, 0);
}

/* New objects in all empty slots touch nothing that lives; then they are freed. */
void use_heap(std::unique_ptr<Heap> &used, const std::string &path) {
    static const uint64_t sizes[] = {40000, 16384, 12288, 8192, 4096, 960, 512, 64, 64};
    std::vector<PPtrBase *> made;
    used_up++;
    for (unsigned slot = 0, size = 0; slot < SLOTS && size < std::size(sizes);) {
        PPtrBase &pointer = slots_of(*used)[slot];
        if (!pointer.is_null() || slot == pending.slot) {
            slot++;
            continue;
        }
        Status status = used->allocate(pointer, sizes[size]);
        if (status == Status::OUT_OF_MEMORY) {
            size++;
            continue;
        }
        if (status != Status::OK)
            return finding("FL012", "an allocation after recovery");
        memset(used->to_pointer(pointer), 0xf1, used->usable_bytes(pointer));
        made.push_back(&pointer);
        size += slot % 3 == 0;
    }
    judge_parts(*used, path, 0);
    for (PPtrBase *pointer : made)
        if (used->deallocate(*pointer) != Status::OK)
            return finding("FL012", "freeing after recovery");
    judge_heap(*used, path);
    used.reset();
    Heap *opened;
    if (Heap::open(options(path), &opened) != Status::OK)
        return finding("FL012", "opening after a close");
    used.reset(opened);
    judge_heap(*used, path);
}

std::unique_ptr<Heap> open_image(const std::string &path, const Image &image) {
    Heap *opened = nullptr;
    write_image(path, image);
    Status status = Heap::open(options(path), &opened);
    if (status != Status::OK && !(is_creating && status == Status::NOT_A_HEAP))
        finding("FL003", "open answered " + std::to_string(static_cast<int>(status)));
    return std::unique_ptr<Heap>(opened);
}

bool is_ready(Heap &heap) { return !is_creating || !heap.root(0).is_null(); }

/* Recovers the image while its own recovery is recorded and fails in turn. */
void judge_nested(const Image &image) {
    write_image(nested_folder, image);
    Recorder nested = record(nested_folder, [](recorder *recovery, void *) {
        if (rule != nullptr || chance(4) != 0)
            return;
        nested_judged++;
        auto again = open_image(scratch, image_of(recovery, chance(3) == 0 ? IMAGE_FLOOR : IMAGE_RANDOM, random_state));
        if (again != nullptr && rule == nullptr && is_ready(*again))
            judge_heap(*again, scratch);
    });
    Heap *opened = nullptr;
    Heap::open(options(nested_folder), &opened);
    recorder_switch(nullptr);
    delete opened;
}

/* A recovery that had something to finish knows the same of the room that there is as one that had not. */
void judge_room(std::unique_ptr<Heap> &used, const std::string &path) {
    uint64_t occupied = used->occupied_bytes();
    used.reset();
    Heap *opened;
    if (Heap::open(options(path), &opened) != Status::OK)
        return finding("FL012", "opening after a close");
    used.reset(opened);
    if (used->occupied_bytes() != occupied)
        finding("FL012", std::to_string(occupied) + " bytes occupied after recovery, " + std::to_string(used->occupied_bytes()) +
                             " when opened again");
}

void judge_image(const Image &image) {
    judged++;
    auto opened = open_image(scratch, image);
    if (opened == nullptr || rule != nullptr || !is_ready(*opened))
        return;
    judge_heap(*opened, scratch);
    if (rule == nullptr && !is_creating && chance(4) == 0)
        judge_room(opened, scratch);
    if (rule == nullptr && chance(40) == 0 && !is_creating)
        use_heap(opened, scratch);
}

void on_position(recorder *workload, void *) {
    if (rule != nullptr || chance(sparseness) != 0)
        return;
    for (unsigned i = 0; i < 2 + image_count && rule == nullptr; i++) {
        Image image = image_of(workload, i == 0 ? IMAGE_PREFIX : i == 1 ? IMAGE_FLOOR : IMAGE_RANDOM, random_state);
        judge_image(image);
        if (rule == nullptr && chance(100) == 0)
            judge_nested(image);
        if (chance(10) == 0)
            kept_image = std::move(image);
    }
}

/* ---- the workload ---- */

void forget_pending() { pending = {}; }

void write_content(unsigned slot) {
    Object &object = slots[slot];
    uint64_t seed = next_random(&random_state) | 1, *words = heap->to<uint64_t>(slots_of(*heap)[slot]);
    for (uint64_t i = 0; i < object.bytes / 8; i++)
        words[i] = word({object.bytes, seed}, i);
    fl_persist(words, object.bytes);
    object.seed = seed;
}

void run_allocate(unsigned slot) {
    static const uint64_t sizes[] = {64,   64,   128,  192,  448,  512,   704,   960,   960,   961,
                                     4096, 4096, 4096, 8192, 8192, 12288, 16383, 16384, 30000, 50000};
    Object object{sizes[chance(std::size(sizes))], 0};
    pending = {slot, object};
    Status status = heap->allocate(slots_of(*heap)[slot], object.bytes);
    if (status == Status::OK)
        slots[slot] = object;
    else if (status != Status::OUT_OF_MEMORY)
        finding("FL012", "allocate answered " + std::to_string(static_cast<int>(status)));
    forget_pending();
    recorder_position();
    if (status == Status::OK && rule == nullptr)
        write_content(slot);
}

void run_free(unsigned slot) {
    pending = {slot, {}};
    if (heap->deallocate(slots_of(*heap)[slot]) != Status::OK)
        finding("FL012", "deallocate");
    slots[slot] = {};
    forget_pending();
    recorder_position();
}

void start_recording(const std::string &path) { recording = record(path, on_position); }

void stop_recording() { recording.reset(); }

void open_heap() {
    Heap *opened = nullptr;
    heap.reset();
    if (Heap::open(options(folder), &opened) != Status::OK)
        finding("FL003", "open");
    heap.reset(opened);
}

/* The next generation: the workload goes on from a crash image, with its recovery recorded. */
void go_on_from(const Image &image, const Object &before, unsigned slot) {
    generations++;
    stop_recording();
    heap.reset();
    write_image(folder, image);
    if (!(slots[slot] == before)) { /* either: the one that is live, or null */
        if (before.bytes != 0)
            slots[slot] = before;
        slots[slot].seed = before.seed; /* the image may be older than the content */
        pending.slot = slot;
    }
    start_recording(folder);
    open_heap();
    if (rule == nullptr && slots_of(*heap)[slot].is_null())
        slots[slot] = {};
    forget_pending();
}

void run_operation() {
    unsigned slot = static_cast<unsigned>(chance(SLOTS));
    const Object before = slots[slot];
    const bool is_full = chance(2) == 0; /* long phases that fill and that empty */
    kept_image.clear();
    recorder_position();
    if (chance(60) == 0)
        heap->defragment(4096 << chance(6));
    else if (slots[slot].bytes == 0)
        run_allocate(slot);
    else if (is_full)
        run_free(slot);
    if (rule == nullptr && !kept_image.empty() && chance(8) == 0)
        go_on_from(kept_image, before, slot);
    else if (rule == nullptr && chance(30) == 0)
        open_heap();
}

void create_heap() {
    Heap *created = nullptr;
    is_creating = true;
    start_recording(folder);
    if (Heap::create(options(folder), &created) != Status::OK)
        finding("FL003", "create");
    heap.reset(created);
    stop_recording();
    if (rule != nullptr || heap->allocate(heap->root(0), SLOTS * sizeof(PPtrBase)) != Status::OK)
        return finding("FL012", "the slots");
    for (unsigned slot = 0; slot < SLOTS; slot++)
        slots_of(*heap)[slot] = {};
    is_creating = false;
    heap.reset();
    start_recording(folder);
    open_heap();
}

void run_workload(uint64_t seed, unsigned operations) {
    write_image(folder, {});
    random_state = seed;
    slots.assign(SLOTS, {});
    forget_pending();
    where = "seed " + std::to_string(seed) + ", create";
    create_heap();
    for (unsigned i = 0; i < operations && rule == nullptr; i++) {
        where = "seed " + std::to_string(seed) + ", operation " + std::to_string(i);
        run_operation();
    }
    stop_recording();
    heap.reset();
}

void on_signal(int number) {
    static const char text[] = "a signal during recovery, or a failed assertion\n";
    if (write(1, text, sizeof text - 1) < 0)
        _exit(3);
    printf("%s: signal %d\n", where.c_str(), number);
    fflush(stdout);
    _exit(expects_signal ? 0 : 1);
}

} // namespace

int main(int count, char **arguments) {
    unsigned seeds = 4, operations = 120, first_seed = 1;
    const char *expected = "none";
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string name = arguments[i];
        unsigned value = static_cast<unsigned>(atoi(arguments[i + 1]));
        if (name == "--seeds")
            seeds = value;
        else if (name == "--first-seed")
            first_seed = value;
        else if (name == "--operations")
            operations = value;
        else if (name == "--images")
            image_count = value;
        else if (name == "--sparse")
            sparseness = value;
        else if (name == "--expect")
            expected = arguments[i + 1];
        else
            return fprintf(stderr, "test_crash: unknown argument %s\n", arguments[i]), 2;
    }
    expects_signal = strcmp(expected, "FL001") == 0;
    for (int number : {SIGSEGV, SIGBUS, SIGABRT})
        signal(number, on_signal);
    char top[] = "/dev/shm/pallocator-crash-XXXXXX";
    if (mkdtemp(top) == nullptr)
        return perror(top), 3;
    for (std::string *path : {&folder, &scratch, &nested_folder}) {
        static unsigned number;
        *path = std::string(top) + "/" + std::to_string(number++);
        mkdir(path->c_str(), 0777);
    }
    for (unsigned seed = first_seed; seed < first_seed + seeds && rule == nullptr; seed++)
        run_workload(seed, operations);
    if (system((std::string("rm -rf ") + top).c_str()) != 0)
        return 3;
    printf("%llu images judged, %llu of recoveries that failed in turn, %llu generations, %llu used up; first finding: %s %s\n",
           static_cast<unsigned long long>(judged), static_cast<unsigned long long>(nested_judged),
           static_cast<unsigned long long>(generations), static_cast<unsigned long long>(used_up), rule == nullptr ? "none" : rule,
           finding_text.c_str());
    bool is_passed = strcmp(rule == nullptr ? "none" : rule, expected) == 0;
    printf("%d passed, %d failed\n", is_passed, !is_passed);
    return !is_passed;
}
