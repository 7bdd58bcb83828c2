/* SPDX-License-Identifier: Apache-2.0
 *
 * hash_map.cpp - the key-value store of section 6.1 of the paper: a hash map whose elements are persistent objects with a
 * buffer behind.
 *
 *   hash_map FOLDER make ELEMENTS BUFFER_BYTES HEAP_BYTES
 *   hash_map FOLDER eager | compact          opens it elsewhere; prints seconds
 *   hash_map FOLDER run uniform | zipf TICKS opens it elsewhere, with traps: half reads, half writes; prints how many in each 10 ms
 *
 * zipf: skew 1, as in the paper.
 */
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "nvreconstruct.h"
#include "persist.h"
#include "random.h"

struct Element {
    Element *next = nullptr;
    uint64_t key = 0;
    uint64_t buffer_bytes = 0;
    char *buffer() { return reinterpret_cast<char *>(this + 1); }
};

using Clock = std::chrono::steady_clock;
static double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

static void expect(nv::Status status) {
    if (status == nv::Status::OK)
        return;
    fprintf(stderr, "%s\n", nv::message());
    exit(3);
}

static Element *&bucket(nv::Heap *heap, uint64_t key) {
    uint64_t state = key;
    return heap->root<Element>(static_cast<uint32_t>(1 + next_random(&state) % (heap->root_count() - 1)));
}

/* The new element is in front of its bucket's list: its own pointer is set before it is published. */
static void put(nv::Heap *heap, uint64_t key, uint64_t buffer_bytes) {
    Element *&first = bucket(heap, key);
    Element *before = first, *&fresh = heap->root<Element>(0);
    expect(heap->make<Element>(fresh, buffer_bytes, [&](Element *element) {
        element->next = before;
        element->key = key;
        element->buffer_bytes = buffer_bytes;
        memset(element->buffer(), static_cast<int>(key), buffer_bytes);
        fl_flush(element->buffer(), buffer_bytes);
    }));
    heap->store(first, fresh);
    heap->store<Element>(fresh, nullptr);
}

static Element *find(nv::Heap *heap, uint64_t key) {
    Element *element = bucket(heap, key);
    while (element != nullptr && element->key != key)
        element = element->next;
    return element;
}

/* Ranks by the inverse of the distribution function, approximated by the integral: 1 / x has the logarithm. */
static uint64_t pick(uint64_t *state, uint64_t elements, bool is_zipf) {
    double share = static_cast<double>(next_random(state) >> 11) / 9007199254740992.0;
    double rank = is_zipf ? std::exp(share * std::log(static_cast<double>(elements))) - 1 : share * static_cast<double>(elements);
    auto key = static_cast<uint64_t>(rank);
    return key < elements ? key : elements - 1;
}

static void run(nv::Heap *heap, uint64_t elements, bool is_zipf, uint64_t ticks) {
    uint64_t state = 1, done = 0, wrong = 0;
    std::vector<uint64_t> counts;
    Clock::time_point start = Clock::now();
    while (counts.size() < ticks) {
        uint64_t key = pick(&state, elements, is_zipf);
        Element *element = find(heap, key);
        if (element == nullptr || element->buffer()[0] != static_cast<char>(key))
            wrong++;
        else if (next_random(&state) % 2 == 0) {
            memset(element->buffer(), static_cast<int>(key), element->buffer_bytes);
            fl_persist(element->buffer(), element->buffer_bytes);
        }
        done++;
        while (counts.size() < ticks && seconds_since(start) >= 0.01 * static_cast<double>(counts.size() + 1)) {
            counts.push_back(done);
            done = 0;
        }
    }
    for (uint64_t count : counts)
        printf("%llu ", static_cast<unsigned long long>(count));
    printf("\n");
    if (wrong > 0)
        exit(3);
}

int main(int count, char **arguments) {
    std::string what = count > 2 ? arguments[2] : "";
    nv::Heap *heap = nullptr;
    if (what == "make" && count == 6) {
        uint64_t elements = strtoull(arguments[3], nullptr, 10), bytes = strtoull(arguments[4], nullptr, 10);
        nv::Options options{.folder = arguments[1], .heap_bytes = strtoull(arguments[5], nullptr, 10)};
        options.root_count = static_cast<uint32_t>(elements + 1);
        options.address = UINT64_C(1) << 40;
        expect(nv::Heap::create(options, &heap));
        for (uint64_t key = 0; key < elements; key++)
            put(heap, key, bytes);
        heap->close();
        return 0;
    }
    nv::Options options{.folder = arguments[1], .address = UINT64_C(3) << 40};
    if (what != "eager" && what != "compact" && (what != "run" || count != 5)) {
        fprintf(stderr,
                "usage: hash_map FOLDER make ELEMENTS BUFFER_BYTES HEAP_BYTES | eager | compact | run uniform|zipf TICKS\n");
        return 2;
    }
    options.mode = what == "run" ? nv::Mode::TRAPPING : nv::Mode::EAGER;
    options.compacts = what == "compact";
    Clock::time_point start = Clock::now();
    expect(nv::Heap::open(options, &heap));
    if (what == "run")
        run(heap, heap->root_count() - 1, std::string(arguments[3]) == "zipf", strtoull(arguments[4], nullptr, 10));
    else
        printf("%.6f\n", seconds_since(start));
    heap->close();
    return 0;
}
