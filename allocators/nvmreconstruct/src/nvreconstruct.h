/* SPDX-License-Identifier: Apache-2.0
 *
 * nvreconstruct.h - persistent objects that hold ordinary pointers and survive a move of heap and code, after Cohen, Aksun, Larus:
 * Object-Oriented Recovery for Non-volatile Memory, OOPSLA 2018.
 *
 *     struct Node {
 *         virtual void print();
 *         Node *next;                                // relocated when the heap lies elsewhere
 *         nv::transient<Lock *> lock;                // zero in each new execution
 *         static void nv_reconstruct(Node *node);    // called then: may set transients anew; sees no other persistent object
 *     };
 *
 *     nv::Heap *heap;
 *     nv::Heap::create({.folder = "/mnt/pmem/nodes", .heap_bytes = 1 << 30, .root_count = 1}, &heap);
 *     heap->make<Node>(heap->root<Node>(0), 0, [](Node *node) { node->next = nullptr; });
 *     heap->destroy(heap->root<Node>(0));
 *     heap->close();
 *
 * There is no language extension: what the paper's compiler emits, tools/nv_types.py makes of the debug information (g++ -g) of the
 * program's objects, a C++ source that is linked with them.
 *
 * An execution is the time from open to close. Each page remembers the execution that its pointers are of. A page of an earlier
 * one is reconstructed before it is used (section 4.2): all of them in open (EAGER), each when the program says that it goes
 * there (ON_TOUCH: touch, step, settle), or each when it is first accessed (TRAPPING: memory protection, a handler of SIGSEGV).
 *
 * A type is at most a page (NVR_PAGE_BYTES); a tail of plain bytes may follow an object, as long as the heap has room. Objects are
 * aligned to 8.
 * Functions may be called by several threads; one object is the business of one thread at a time. One heap is open at a time
 * where it is TRAPPING.
 */
#ifndef NVRECONSTRUCT_H
#define NVRECONSTRUCT_H

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
#include <type_traits>

namespace nv {

enum class Status { OK, OUT_OF_MEMORY, NOT_A_HEAP, EXISTS, CORRUPT, NO_TYPES, OTHER_BUILD, INVALID, ERROR };
enum class Mode { EAGER, ON_TOUCH, TRAPPING };

const char *message(); /* why this thread's last call failed, one line */

/* A field that means nothing in another execution. */
template <typename T> class transient {
    static_assert(std::is_trivially_copyable_v<T>, "what is zeroed cannot have a constructor");

  public:
    transient() = default;
    transient(T value) : value(value) {}
    transient &operator=(T other) { return value = other, *this; }
    operator T() const { return value; }
    T *operator&() { return &value; }
    T operator->() const { return value; }

  private:
    T value{};
};

/* ---- types: what nv_types.py writes ---- */

enum class Kind : uint32_t { PLAIN, POINTER, CODE, VIRTUAL_TABLE, TRANSIENT };

struct Field {
    uint32_t name; /* name_hash */
    uint32_t offset;
    uint32_t bytes;
    Kind kind;
    bool operator==(const Field &) const = default;
};

struct Type {
    const char *name;
    uint32_t bytes;
    const Field *fields;
    uint32_t field_count;
    void *const *virtual_table; /* what an object's first word is; null: it has none */
};

/* FNV-1a: names are the same in every build, which is all that is asked of them. */
constexpr uint32_t name_hash(std::string_view name) {
    uint32_t hash = 2166136261u;
    for (char letter : name)
        hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
    return hash;
}

/* The types of one program or library: which of them, is known by where this lies. */
class Module {
  public:
    Module(const Type *types, uint32_t count);
    const Type *types;
    uint32_t count;
    Module *next;
};

/* A function that persistent objects point to: found again by its name in a program that was built anew. */
#define NV_FUNCTION(function)                                                                                                      \
    static const ::nv::Function nv_function_##function { #function, reinterpret_cast<void (*)()>(function) }
class Function {
  public:
    Function(const char *name, void (*address)());
    uint32_t name;
    void (*address)();
    Function *next;
};

using Reconstructor = void (*)(void *object);

class Made {
  public:
    Made(std::string_view name, Reconstructor reconstructor);
    uint32_t name;
    std::string_view text;
    Reconstructor reconstructor;
    Made *next;
};

template <typename T> constexpr std::string_view type_name() {
    std::string_view text = __PRETTY_FUNCTION__;
    text.remove_prefix(text.find("T = ") + 4);
    return text.substr(0, text.find_first_of(text.find(';') == text.npos ? "]" : ";"));
}

/* Every type that is made has one: nv_types.py looks for it. */
template <typename T> struct Registration {
    static constexpr uint32_t name = name_hash(type_name<T>());
    static Reconstructor reconstructor() {
        if constexpr (requires(T *object) { T::nv_reconstruct(object); })
            return [](void *object) { T::nv_reconstruct(static_cast<T *>(object)); };
        else
            return nullptr;
    }
    static inline const Made made{type_name<T>(), reconstructor()};
};

/* ---- the heap ---- */

struct Options {
    const char *folder;
    uint64_t heap_bytes = 0;  /* create: of the objects' file, rounded up to pages */
    uint32_t root_count = 1;  /* create */
    uintptr_t address = 0;    /* where it is mapped if possible; 0: anywhere */
    Mode mode = Mode::EAGER;
    bool compacts = false;    /* open: first without garbage and holes (section 4.3) */
};

enum class PartState { METADATA, ALLOCATED, RESERVED, FREE, UNUSABLE };
enum File : uint32_t { META_FILE = 0, HEAP_FILE = 1 };

struct Part {
    uint32_t file;
    PartState state;
    uint64_t offset;
    uint64_t bytes;
};

class Heap {
  public:
    static Status create(const Options &options, Heap **heap); /* a new execution begins */
    static Status open(const Options &options, Heap **heap);   /* recovers, and compacts first if a type's fields have changed */
    void close();

    /* Makes an object of T and tail_bytes behind it; init(T *) sets up and persists the tail. Then destination, null before, or the
     * object that it pointed to, gone with this, leads to it: together or not at all. Base: T, or a class at its start. */
    template <typename T, typename Base, typename Init> Status make(Base *&destination, uint64_t tail_bytes, Init &&init) {
        static_assert(std::is_base_of_v<Base, T> || std::is_same_v<Base, T>, "destination cannot point to it");
        static_assert(alignof(T) <= 8, "objects are aligned to 8 bytes");
        static_assert(std::is_trivially_destructible_v<T>, "nobody calls destructors of what a power failure ends");
        (void)Registration<T>::made;
        void *place = nullptr;
        Status status = reserve(Registration<T>::name, sizeof(T), tail_bytes, &place);
        if (status != Status::OK)
            return status;
        T *object = new (place) T;
        init(object);
        assert(static_cast<void *>(static_cast<Base *>(object)) == place);
        return publish(reinterpret_cast<void **>(&destination), place, sizeof(T));
    }
    template <typename T> Status destroy(T *&destination) { return unpublish(reinterpret_cast<void **>(&destination)); }
    /* One atomic store of a pointer in an object or a root, durable on return. */
    template <typename T> void store(T *&field, T *value) { store_pointer(reinterpret_cast<void **>(&field), value); }
    template <typename T> T *&root(uint32_t number) { return *reinterpret_cast<T **>(root_place(number)); }
    uint32_t root_count() const;

    void touch(const void *place); /* before the first access to what lies there; nothing to do but in ON_TOUCH */
    bool step(); /* reconstructs one more page; false: none is left */
    void settle(); /* all of them */

    uint64_t offset_of(const void *place) const; /* in HEAP_FILE */
    void *at(uint64_t offset) const;
    const Type *type_at(const void *object); /* by its header */
    uint64_t execution() const;
    const char *file_name(uint32_t file) const;
    Status walk(const std::function<void(const Part &)> &visit); /* by file and offset, without gap or overlap */
    Status check();

    struct State; /* state.h */

  private:
    State *state;

    explicit Heap(State *state) : state(state) {}
    static Status start(State *state, const Options &options, Heap **heap);
    Status reserve(uint32_t type, uint64_t type_bytes, uint64_t tail_bytes, void **place);
    Status publish(void **destination, void *object, uint64_t type_bytes);
    Status unpublish(void **destination);
    void store_pointer(void **field, void *value);
    void **root_place(uint32_t number);
};

} // namespace nv
#endif
