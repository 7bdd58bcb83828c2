/* SPDX-License-Identifier: Apache-2.0
 *
 * portability.cpp - section 6.3 of the paper: `portability FOLDER make` makes a list of objects and prints it; `portability
 * FOLDER` opens the heap elsewhere and prints the list. Built twice, with other flags and with -DADDED: a field more in each
 * type. The code that prints has no static information about the types.
 */
#include <cstdio>
#include <cstdlib>

#include "nvreconstruct.h"

struct Printable {
    virtual void print() const = 0;
    Printable *next = nullptr;
#ifdef ADDED
    bool is_added = false;
#endif
};

template <int NUMBER> struct PrintableInt : Printable {
    void print() const override { printf("%d\n", NUMBER); }
};

struct PrintableHello : Printable {
    void print() const override { printf("hello world\n"); }
};

template <typename T> static void push(nv::Heap *heap) {
    Printable *&first = heap->root<Printable>(0), *&made = heap->root<Printable>(1), *before = first;
    if (heap->make<T>(made, 0, [&](T *fresh) { fresh->next = before; }) != nv::Status::OK)
        exit(2);
    heap->store(first, made);
    heap->store<Printable>(made, nullptr);
}

int main(int count, char **arguments) {
    bool is_first = count > 2;
    nv::Heap *heap = nullptr;
    nv::Options options{.folder = arguments[1], .heap_bytes = 1 << 16, .root_count = 2, .address = UINT64_C(1) << 40};
    if (!is_first)
        options.address *= 3;
    if ((is_first ? nv::Heap::create(options, &heap) : nv::Heap::open(options, &heap)) != nv::Status::OK) {
        fprintf(stderr, "%s\n", nv::message());
        return 1;
    }
    for (int turn = 0; turn < 20 && is_first; turn++) {
        push<PrintableInt<3>>(heap);
        push<PrintableHello>(heap);
        push<PrintableInt<5>>(heap);
    }
    for (Printable *element = heap->root<Printable>(0); element != nullptr; element = element->next)
        element->print();
    heap->close();
    return 0;
}
