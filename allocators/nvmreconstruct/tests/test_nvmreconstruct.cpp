/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nvmreconstruct.cpp - a program that links the library: objects that survive moves of the heap, in each mode.
 */
#include <map>
#include <string>
#include <vector>

#include "nvreconstruct.h"

#define EXPECT_MESSAGE() nv::message()
#include "expect.h"
#include "persist.h"

static int reconstructed;
static int answer_of(int value) { return value + 1; }
NV_FUNCTION(answer_of);

union Both {
    uint64_t number;
    double real;
};

namespace shapes {

struct Shape {
    virtual int area() const = 0;
    Shape *next = nullptr;
    Shape *inside = nullptr; /* may point into another object */
    nv::transient<int *> counter;
    int (*answer)(int) = answer_of;
    const char *label = "a shape";
    unsigned small : 3 = 5;
    unsigned large : 11 = 1000;
};

template <int WIDTH> struct Wide : Shape {
    int height = 0;
    int area() const override { return WIDTH * height; }
};

struct Counted : Shape {
    int area() const override { return 7; }
    static void nv_reconstruct(Counted *shape) {
        reconstructed++;
        shape->counter = &reconstructed;
        shape->both.number++;
    }
    Both both{};
    struct {
        Shape *pair[2] = {};
        nv::transient<uint64_t> seen;
    } parts;
};

} // namespace shapes

using shapes::Counted;
using shapes::Shape;
using Square = shapes::Wide<3>;

static std::string folder_of_heap() {
    static int count;
    std::string folder = std::string(top) + "/" + std::to_string(count++);
    if (mkdir(folder.c_str(), 0700) != 0)
        give_up(folder.c_str());
    return folder;
}

static nv::Heap *opened(const std::string &folder, uintptr_t address, nv::Mode mode = nv::Mode::EAGER, bool compacts = false) {
    nv::Heap *heap = nullptr;
    nv::Options options{.folder = folder.c_str(), .address = address, .mode = mode, .compacts = compacts};
    nv::Status status = nv::Heap::open(options, &heap);
    EXPECT(status == nv::Status::OK);
    if (status != nv::Status::OK)
        exit(1);
    return heap;
}

static nv::Heap *created(const std::string &folder, uint64_t bytes = 1 << 20, uint32_t roots = 16) {
    nv::Heap *heap = nullptr;
    nv::Options options{.folder = folder.c_str(), .heap_bytes = bytes, .root_count = roots, .address = UINT64_C(1) << 40};
    EXPECT(nv::Heap::create(options, &heap) == nv::Status::OK);
    EXPECT(nv::Heap::create(options, &heap) == nv::Status::EXISTS);
    return heap;
}

static const auto NOTHING = [](auto *) {};

/* A square, a counted one that it leads to, which leads back, in and out of a tail. */
static void make_ring(nv::Heap *heap) {
    EXPECT(heap->make<Square>(heap->root<Shape>(0), 0, [](Square *square) { square->height = 4; }) == nv::Status::OK);
    Shape *first = heap->root<Shape>(0);
    EXPECT(heap->make<Counted>(first->next, 10000, [&](Counted *counted) {
        counted->both.number = 40;
        counted->parts.pair[1] = first;
        counted->parts.seen = 9;
        memset(static_cast<void *>(counted + 1), 'x', 10000);
        fl_persist(counted + 1, 10000);
    }) == nv::Status::OK);
    auto *second = static_cast<Counted *>(first->next);
    heap->store(second->next, first);
    heap->store(first->inside, reinterpret_cast<Shape *>(&second->parts.pair[0]));
}

static void expect_ring(nv::Heap *heap, uint64_t opens) {
    Shape *first = heap->root<Shape>(0);
    heap->touch(first);
    auto *second = static_cast<Counted *>(first->next);
    heap->touch(second);
    EXPECT(first->area() == 12 && second->area() == 7);
    EXPECT(first->answer(1) == 2 && second->answer(4) == 5);
    EXPECT(std::string(first->label) == "a shape");
    EXPECT(first->counter == nullptr && second->counter == &reconstructed);
    EXPECT(first->small == 5 && first->large == 1000);
    EXPECT(second->next == first && second->parts.pair[1] == first && second->parts.pair[0] == nullptr);
    EXPECT(first->inside == reinterpret_cast<Shape *>(&second->parts.pair[0]));
    EXPECT(second->parts.seen == 0 && second->both.number == 40 + opens);
    const char *tail = reinterpret_cast<const char *>(second + 1);
    EXPECT(std::string(tail, 10000) == std::string(10000, 'x'));
}

static void test_objects_survive_moves() {
    for (nv::Mode mode : {nv::Mode::EAGER, nv::Mode::ON_TOUCH, nv::Mode::TRAPPING}) {
        std::string folder = folder_of_heap();
        nv::Heap *heap = created(folder);
        make_ring(heap);
        heap->close();
        for (uint64_t opens = 1; opens < 40; opens++) {
            heap = opened(folder, (1 + opens % 3) << 40, mode);
            expect_ring(heap, opens);
            EXPECT(heap->check() == nv::Status::OK);
            EXPECT(heap->execution() == opens + 1);
            heap->close();
        }
    }
}

/* Pages that nobody goes to stay of the execution that they are of, as long as there is room for its record. */
static void test_pages_of_many_executions() {
    std::string folder = folder_of_heap();
    nv::Heap *heap = created(folder);
    for (uint32_t number = 0; number < 16; number++) {
        EXPECT(heap->make<Square>(heap->root<Shape>(number), 4000,
                                  [&](Square *square) { square->height = static_cast<int>(number); }) == nv::Status::OK);
    }
    heap->close();
    for (uint32_t life = 0; life < 40; life++) {
        heap = opened(folder, (1 + uint64_t{life} % 5) << 40, nv::Mode::ON_TOUCH);
        Shape *shape = heap->root<Shape>(life % 16);
        heap->touch(shape);
        EXPECT(shape->area() == static_cast<int>(life % 16) * 3);
        if (life % 7 == 6)
            heap->settle();
        EXPECT(life % 7 != 6 || !heap->step());
        heap->close();
    }
}

static uint64_t live_bytes(nv::Heap *heap) {
    uint64_t bytes = 0, next = 0;
    uint32_t file = 0;
    heap->walk([&](const nv::Part &part) {
        EXPECT(part.offset == (part.file == file ? next : 0));
        file = part.file;
        next = part.offset + part.bytes;
        bytes += part.state == nv::PartState::ALLOCATED ? part.bytes : 0;
    });
    return bytes;
}

static void test_what_nothing_reaches_goes() {
    std::string folder = folder_of_heap();
    nv::Heap *heap = created(folder);
    make_ring(heap);
    for (uint32_t number = 1; number < 8; number++) {
        EXPECT(heap->make<Square>(heap->root<Shape>(number), 3000, NOTHING) == nv::Status::OK);
        heap->store<Shape>(heap->root<Shape>(number), nullptr);
    }
    EXPECT(live_bytes(heap) > 7 * 3000 + 10000);
    heap->close();
    heap = opened(folder, UINT64_C(3) << 40, nv::Mode::EAGER, true);
    EXPECT(live_bytes(heap) > 10000 && live_bytes(heap) < 17000);
    EXPECT(std::string(heap->file_name(nv::HEAP_FILE)) == "heap.1");
    expect_ring(heap, 1);
    heap->close();
    heap = opened(folder, UINT64_C(2) << 40, nv::Mode::EAGER, true);
    EXPECT(std::string(heap->file_name(nv::HEAP_FILE)) == "heap.1"); /* there was nothing to do */
    expect_ring(heap, 2);
    heap->close();
}

/* Of everything there is, in a random order, against a map. */
static void test_random() {
    uint64_t state = 7;
    auto below = [&](uint64_t bound) { return next_random(&state) % bound; };
    std::string folder = folder_of_heap();
    nv::Heap *heap = created(folder, 200000, 64);
    std::map<uint32_t, int> expected;
    for (int step = 0; step < 6000; step++) {
        auto slot = static_cast<uint32_t>(below(64));
        Shape *&root = heap->root<Shape>(slot);
        bool is_live = expected.count(slot) != 0;
        heap->touch(root);
        EXPECT((root != nullptr) == is_live && (!is_live || root->area() == expected[slot] * 3));
        if (is_live && below(3) == 0) {
            EXPECT(heap->destroy(root) == nv::Status::OK);
            expected.erase(slot);
        } else {
            nv::Status status = heap->make<Square>(root, below(9000), [&](Square *square) { square->height = step; });
            EXPECT(status == nv::Status::OK || status == nv::Status::OUT_OF_MEMORY);
            if (status == nv::Status::OK)
                expected[slot] = step;
        }
        if (below(100) == 0) {
            heap->close();
            auto mode = static_cast<nv::Mode>(below(3));
            heap = opened(folder, (1 + below(5)) << 40, mode, below(4) == 0);
            EXPECT(mode == nv::Mode::TRAPPING || heap->check() == nv::Status::OK);
        }
    }
    heap->close();
}

static void test_wrong_input() {
    nv::Heap *heap = nullptr;
    std::string folder = folder_of_heap();
    EXPECT(nv::Heap::open({.folder = folder.c_str()}, &heap) == nv::Status::NOT_A_HEAP);
    EXPECT(nv::Heap::open({.folder = "/nowhere"}, &heap) == nv::Status::NOT_A_HEAP);
    heap = created(folder, 4096);
    EXPECT(heap->make<Square>(heap->root<Shape>(0), 100000, NOTHING) == nv::Status::OUT_OF_MEMORY);
    EXPECT(heap->make<Square>(heap->root<Shape>(0), UINT64_MAX - 4, NOTHING) == nv::Status::OUT_OF_MEMORY);
    EXPECT(heap->destroy(heap->root<Shape>(0)) == nv::Status::INVALID);
    heap->close();
    if (truncate((folder + "/heap.0").c_str(), 4096) != 0)
        give_up("truncate");
    EXPECT(nv::Heap::open({.folder = folder.c_str()}, &heap) == nv::Status::CORRUPT);
}

/* Whatever a byte of meta's is, open comes to an end, and says what it found. */
static void test_damaged_meta() {
    std::string folder = folder_of_heap(), copy = folder_of_heap();
    nv::Heap *heap = created(folder, 16384, 2);
    EXPECT(heap->make<Square>(heap->root<Shape>(0), 5000, NOTHING) == nv::Status::OK);
    EXPECT(heap->make<Square>(heap->root<Shape>(1), 0, NOTHING) == nv::Status::OK);
    heap->close();
    unsigned refused = 0;
    for (uint64_t place = 0; place < 9000; place += place < 300 ? 1 : 37) {
        std::string command = "cp " + folder + "/* " + copy;
        if (system(command.c_str()) != 0)
            give_up("cp");
        FILE *meta = fopen((copy + "/meta").c_str(), "r+");
        if (meta == nullptr || fseek(meta, static_cast<long>(place), SEEK_SET) != 0)
            give_up("meta");
        int byte = fgetc(meta);
        fseek(meta, static_cast<long>(place), SEEK_SET);
        fputc(byte ^ 0xff, meta);
        fclose(meta);
        nv::Heap *opened = nullptr;
        nv::Status status = nv::Heap::open({.folder = copy.c_str()}, &opened);
        EXPECT(status == nv::Status::OK || std::string(nv::message()).size() > 10);
        refused += status != nv::Status::OK;
        if (status == nv::Status::OK)
            opened->close();
    }
    EXPECT(refused > 50);
}

int main() {
    begin_tests("nvmreconstruct");
    test_objects_survive_moves();
    test_pages_of_many_executions();
    test_what_nothing_reaches_goes();
    test_random();
    test_wrong_input();
    test_damaged_meta();
    return end_tests();
}
