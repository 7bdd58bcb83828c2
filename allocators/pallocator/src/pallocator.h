/* SPDX-License-Identifier: Apache-2.0
 *
 * pallocator.h - a persistent-memory allocator after Oukid, Booss, Lespinasse, Lehner, Willhalm, Gomes: "Memory Management
 * Techniques for Large-Scale Persistent-Main-Memory Systems", VLDB 2017, section 4.
 *
 * A heap is a folder of files: an anchor and segments, made when they are needed. Allocation and publication are one step: the
 * caller gives a persistent pointer that lies in the heap and is null; when allocate has returned OK, or power failed and the pointer
 * is set, the object is the application's. Until then it is the allocator's, and recovery brings the operation to its end or
 * takes it back. deallocate sets the pointer to null. So nothing is leaked, and nothing is collected.
 *
 *     Heap *heap;
 *     Heap::create({.folder = "/pmem/heap"}, &heap);
 *     heap->allocate(heap->root(0), sizeof(Table));       // content is the application's business: write, then persist it
 *     Table *table = heap->to<Table>(heap->root(0));
 *
 * Requests below 15 KB go to a SmallPAllocator, below 16 MB to a BigPAllocator, one of each a core; larger ones get a
 * segment each. When no segment can be made the other cores are asked, then holes of former defragmentations get their
 * space back if there is room, and then memory is defragmented by punching holes.
 *
 * Threads: allocate, deallocate, defragment and the conversions may be called by any number of threads, everything else by one
 * while no other is inside.
 */
#ifndef PALLOCATOR_H
#define PALLOCATOR_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "layout.h"

namespace pallocator {

enum class Status {
    OK = 0,
    OUT_OF_MEMORY, /* the operation had no effect */
    NOT_A_HEAP,    /* no completely created heap there */
    EXISTS,        /* create: there is a heap already */
    CORRUPT,       /* a file is missing, foreign, cut or not what it should be; nothing was changed */
    VERSION,       /* of another version, or built with other sizes; nothing was changed */
    INVALID,       /* an argument is wrong; nothing was changed */
    ERROR,         /* the operating system failed */
};

/* Why the last call of this thread that failed did so: one line, never null. */
const char *message();

struct Options {
    const char *folder = nullptr;
    uint64_t limit_bytes = UINT64_MAX; /* create: most that the files may occupy, holes left out */
    unsigned cores = 0;                /* create: allocator objects of each kind; 0: as many as there are processors */
    uint64_t identity = 0;             /* create: tells this heap's files from another's; 0: made from the time */
    uintptr_t address = 0;             /* map near here if possible; 0: anywhere */
};

/* A persistent pointer that knows its type (§4.2). */
template <typename T> struct PPtr : PPtrBase {
    template <typename U> PPtr<U> &as() { return reinterpret_cast<PPtr<U> &>(*this); }
};

enum class PartState { METADATA, ALLOCATED, FREE, UNUSABLE };

struct Part {
    uint64_t file, offset, bytes;
    PartState state;
};

struct Counters {
    uint64_t defragmented_bytes, punched_holes, created_segments, destroyed_segments;
    uint64_t small_segments, big_segments, huge_segments, free_segments, tree_levels;
};

class Heap {
  public:
    /* The folder exists; of a heap whose creation was cut short what is there is thrown away. */
    static Status create(const Options &options, Heap **heap);
    /* Recovers (§4.7). */
    static Status open(const Options &options, Heap **heap);
    ~Heap(); /* unmaps; all that matters is persisted already */
    Heap(const Heap &) = delete;
    Heap &operator=(const Heap &) = delete;

    /* pointer lies in the heap and is null. */
    Status allocate(PPtrBase &pointer, uint64_t bytes);
    /* pointer lies in the heap and is what allocate made it, or a copy; null afterwards. */
    Status deallocate(PPtrBase &pointer);
    /* Gives bytes back to the file system, by whole free segments and holes (§4.6); OUT_OF_MEMORY, with nothing done, if there are not as many. */
    Status defragment(uint64_t bytes);

    PPtrBase &root(unsigned number);

    /* Swizzling. Null if there is no such place. */
    void *to_pointer(const PPtrBase &pointer) const;
    PPtrBase to_persistent(const void *pointer) const;
    template <typename T> T *to(const PPtrBase &pointer) const { return static_cast<T *>(to_pointer(pointer)); }

    /* The object's block, bytes; 0 if the pointer is to no object's start. */
    uint64_t usable_bytes(const PPtrBase &pointer) const;

    /* Every byte of every file, in order of file and offset. */
    Status walk(const std::function<void(const Part &)> &visit) const;
    /* All that must hold of persistent and volatile metadata. */
    Status check() const;
    Counters counters() const;
    uint64_t occupied_bytes() const;

    /* Which core's allocators this thread uses from now on, modulo their number; -1: the processor's it runs on. */
    static void use_core(int core);

    struct State;

  private:
    explicit Heap(std::unique_ptr<State> state);
    std::unique_ptr<State> state;
};

/* "anchor", or "segment-" and the number. */
void file_name(uint64_t file, char (&name)[32]);

} // namespace pallocator
#endif
