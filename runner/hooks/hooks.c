/* SPDX-License-Identifier: Apache-2.0
 *
 * What a target of build variant `hooks` calls around its accesses: the functions that compilers emit for -fsanitize=thread
 * (without its library), and, by the linker's --wrap, those of the C library that read or write memory for their caller
 * (harness/faultline/pipeline/build.py has the list). Each tells loads.c before it reads. gcc 12 was looked at; clang's names are there
 * too, but it leaves out the hook of a load that a store to the same address follows, which is harmless: stores count as loads.
 *
 * A compiler's hook of a store tells less than it seems: one of a bit-field says the width of its container and not that the
 * neighbours are read; and in `*a = *b` it comes before the hook of the load. So each counts as a load. Atomics make their
 * access here, so what they do is certain.
 */
#ifndef __SANITIZE_THREAD__ /* a runner that is itself looked at by the sanitizer has its functions */
#include "loads/loads.h"
#include "undo/undo.h"
#include <stdlib.h>
#include <string.h>

/* A section of their own: under a tracer their accesses are the target's (recording.h). */
#define HOOK INTERPOSED __attribute__((section("fl_hooks")))

/* ---- plain loads and stores --------------------------------------------------------------------------------------------- */

/* A load is told, with who makes it. */
#define TELL(telling)                                                                                                              \
    do {                                                                                                                           \
        loads_caller = CALLER;                                                                                                     \
        telling;                                                                                                                   \
        loads_caller = NULL;                                                                                                       \
    } while (0)

EXPANDED void touch(const volatile void *address, uint64_t bytes) {
    if (loads_are_near(address) && !loads_is_settled(address, bytes))
        TELL(loads_read((const void *)address, bytes));
}

EXPANDED void touch_update(const volatile void *address, uint64_t bytes) {
    if (loads_are_near(address) && !loads_is_stored_already(address, bytes))
        TELL(loads_updated((const void *)address, bytes));
}

EXPANDED void touch_store(const volatile void *address, uint64_t bytes) {
    if (!loads_are_near(address))
        return;
    if (!loads_is_stored_already(address, bytes))
        TELL(loads_stored((const void *)address, bytes));
    if (events_by_hooks())
        events_will_store((const void *)address, bytes, false, CALLER);
}

/* Of any length: it may begin far below the heap. */
static bool is_near(const void *address, uint64_t bytes) {
    return (uintptr_t)address < fl_hook_near.start + fl_hook_near.bytes && (uintptr_t)address + bytes > fl_hook_near.start;
}

EXPANDED void touch_range(const void *address, uint64_t bytes) {
    if (is_near(address, bytes))
        TELL(loads_read(address, bytes));
}

#define PLAIN(bytes)                                                                                                               \
    HOOK void __tsan_read##bytes(void *address);                                                                                   \
    HOOK void __tsan_write##bytes(void *address);                                                                                  \
    HOOK void __tsan_unaligned_read##bytes(void *address);                                                                         \
    HOOK void __tsan_unaligned_write##bytes(void *address);                                                                        \
    HOOK void __tsan_volatile_read##bytes(void *address);                                                                          \
    HOOK void __tsan_volatile_write##bytes(void *address);                                                                         \
    HOOK void __tsan_read##bytes(void *address) { touch(address, bytes); }                                                         \
    HOOK void __tsan_write##bytes(void *address) { touch_store(address, bytes); }                                                  \
    HOOK void __tsan_unaligned_read##bytes(void *address) { touch(address, bytes); }                                               \
    HOOK void __tsan_unaligned_write##bytes(void *address) { touch_store(address, bytes); }                                        \
    HOOK void __tsan_volatile_read##bytes(void *address) { touch(address, bytes); }                                                \
    HOOK void __tsan_volatile_write##bytes(void *address) { touch_store(address, bytes); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
_Static_assert(FL_WIDEST_ACCESS >= 16, "the quick test must not miss an access that begins below the heap");

HOOK void __tsan_read_range(void *address, uint64_t bytes);
HOOK void __tsan_write_range(void *address, uint64_t bytes);
HOOK void __tsan_vptr_update(void **pointer, void *value);
HOOK void __tsan_vptr_read(void **pointer);
HOOK void __tsan_read_range(void *address, uint64_t bytes) { touch_range(address, bytes); }
HOOK void __tsan_write_range(void *address, uint64_t bytes) {
    if (!is_near(address, bytes))
        return;
    TELL(loads_stored(address, bytes));
    if (events_by_hooks())
        events_will_store(address, bytes, true, CALLER);
}
HOOK void __tsan_vptr_update(void **pointer, void *value) { (void)value, touch_store(pointer, sizeof *pointer); }
HOOK void __tsan_vptr_read(void **pointer) { touch(pointer, sizeof *pointer); }

HOOK void __tsan_init(void);
HOOK void __tsan_func_entry(void *caller);
HOOK void __tsan_func_exit(void);
HOOK void __tsan_init(void) { in_process.has_hooks = true; }
HOOK void __tsan_func_entry(void *caller) { (void)caller; }
HOOK void __tsan_func_exit(void) {}

/* ---- atomics: stores as asked, on x86 all else is sequentially consistent anyway ------------------------------------------- */

/* After a locked instruction, wherever its operand lies: it completes flushes. */
#define LOCKED(address, is_stored)                                                                                                 \
    do {                                                                                                                           \
        if (events_by_hooks())                                                                                                     \
            events_exchanged((const void *)(address), sizeof *(address), is_stored, CALLER);                                       \
    } while (0)

/* The hook's own access, which it has announced: no fault has to tell of it. */
#define OWN(address, access)                                                                                                       \
    do {                                                                                                                           \
        unsigned lent = loads_is_guarded && loads_are_near(address) ? guard_lend((const void *)(address), sizeof *(address)) : 0;  \
        access;                                                                                                                    \
        if (lent != 0)                                                                                                             \
            guard_take_back(lent);                                                                                                 \
    } while (0)

#define MODIFY(bits, type, name)                                                                                                   \
    HOOK type __tsan_atomic##bits##_##name(volatile type *address, type value, int order);                                         \
    HOOK type __tsan_atomic##bits##_##name(volatile type *address, type value, int order) {                                        \
        (void)order, touch_update(address, sizeof value);                                                                          \
        type before;                                                                                                               \
        OWN(address, before = __atomic_##name(address, value, __ATOMIC_SEQ_CST));                                                  \
        LOCKED(address, true);                                                                                                     \
        return before;                                                                                                             \
    }
#define EXCHANGE_IF(bits, type, strength)                                                                                          \
    HOOK bool __tsan_atomic##bits##_compare_exchange_##strength(volatile type *address, type *expected, type value, int order,     \
                                                                int failure_order);                                                \
    HOOK bool __tsan_atomic##bits##_compare_exchange_##strength(volatile type *address, type *expected, type value, int order,     \
                                                                int failure_order) {                                               \
        (void)order, (void)failure_order, touch(expected, sizeof value), touch_update(address, sizeof value);                      \
        type wanted = *expected;                                                                                                   \
        bool is_done;                                                                                                              \
        OWN(address, is_done = __atomic_compare_exchange_n(address, &wanted, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));   \
        if (!is_done)                                                                                                              \
            *expected = wanted;                                                                                                    \
        LOCKED(address, is_done);                                                                                                  \
        return is_done;                                                                                                            \
    }
#define ATOMIC(bits, type)                                                                                                         \
    HOOK type __tsan_atomic##bits##_load(const volatile type *address, int order);                                                 \
    HOOK void __tsan_atomic##bits##_store(volatile type *address, type value, int order);                                          \
    HOOK type __tsan_atomic##bits##_exchange(volatile type *address, type value, int order);                                       \
    HOOK type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected, type value, int order,             \
                                                         int failure_order);                                                       \
    HOOK type __tsan_atomic##bits##_load(const volatile type *address, int order) {                                                \
        (void)order, touch(address, sizeof(type));                                                                                 \
        type loaded;                                                                                                               \
        OWN(address, loaded = __atomic_load_n(address, __ATOMIC_SEQ_CST));                                                         \
        return loaded;                                                                                                             \
    }                                                                                                                              \
    HOOK void __tsan_atomic##bits##_store(volatile type *address, type value, int order) {                                         \
        if (loads_are_near(address) && !loads_is_stored_already(address, sizeof value))                                            \
            loads_written((const void *)address, sizeof value);                                                                    \
        /* Sequentially consistent it would be an exchange, which loads. */                                                        \
        OWN(address, __atomic_store_n(address, value, __ATOMIC_RELEASE));                                                          \
        if (order == __ATOMIC_SEQ_CST) { /* without hooks it is that exchange; with a fence it is no weaker */                     \
            __atomic_thread_fence(__ATOMIC_SEQ_CST);                                                                               \
            LOCKED(address, true);                                                                                                 \
        } else if (events_by_hooks())                                                                                              \
            events_stored((const void *)address, sizeof value, CALLER);                                                            \
    }                                                                                                                              \
    HOOK type __tsan_atomic##bits##_exchange(volatile type *address, type value, int order) {                                      \
        (void)order, touch_update(address, sizeof value);                                                                          \
        type before;                                                                                                               \
        OWN(address, before = __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST));                                              \
        LOCKED(address, true);                                                                                                     \
        return before;                                                                                                             \
    }                                                                                                                              \
    HOOK type __tsan_atomic##bits##_compare_exchange_val(volatile type *address, type expected, type value, int order,             \
                                                         int failure_order) {                                                      \
        (void)order, (void)failure_order, touch_update(address, sizeof value);                                                     \
        bool is_done;                                                                                                              \
        OWN(address, is_done = __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        LOCKED(address, is_done);                                                                                                  \
        return expected;                                                                                                           \
    }                                                                                                                              \
    EXCHANGE_IF(bits, type, strong)                                                                                                \
    EXCHANGE_IF(bits, type, weak)                                                                                                  \
    MODIFY(bits, type, fetch_add)                                                                                                  \
    MODIFY(bits, type, fetch_sub)                                                                                                  \
    MODIFY(bits, type, fetch_and)                                                                                                  \
    MODIFY(bits, type, fetch_or)                                                                                                   \
    MODIFY(bits, type, fetch_xor)                                                                                                  \
    MODIFY(bits, type, fetch_nand)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

/* Of 16 bytes: lock cmpxchg16b, as the atomic library has it on processors that have it. */
typedef unsigned __int128 wide;

__attribute__((target("cx16"))) static wide exchange_wide(volatile wide *address, wide expected, wide value) {
    return __sync_val_compare_and_swap(address, expected, value);
}

HOOK wide __tsan_atomic128_load(const volatile wide *address, int order);
HOOK wide __tsan_atomic128_load(const volatile wide *address, int order) {
    (void)order, touch(address, sizeof *address);
    wide loaded;
    OWN(address, loaded = *address); /* one instruction, and one access where there is AVX (Intel SDM vol. 3, 9.1.1) */
    return loaded;
}

#define WIDE_MODIFY(name, modified)                                                                                                \
    HOOK wide __tsan_atomic128_##name(volatile wide *address, wide value, int order);                                              \
    HOOK wide __tsan_atomic128_##name(volatile wide *address, wide value, int order) {                                             \
        (void)order, touch_update(address, sizeof value);                                                                          \
        wide before, found;                                                                                                        \
        OWN(address, {                                                                                                             \
            before = *address;                                                                                                     \
            while ((found = exchange_wide(address, before, modified)) != before)                                                   \
                before = found;                                                                                                    \
        });                                                                                                                        \
        LOCKED(address, true);                                                                                                     \
        return before;                                                                                                             \
    }
WIDE_MODIFY(exchange, value)
WIDE_MODIFY(fetch_add, before + value)
WIDE_MODIFY(fetch_sub, before - value)
WIDE_MODIFY(fetch_and, before &value)
WIDE_MODIFY(fetch_or, before | value)
WIDE_MODIFY(fetch_xor, before ^ value)
WIDE_MODIFY(fetch_nand, ~(before &value))

HOOK void __tsan_atomic128_store(volatile wide *address, wide value, int order);
HOOK void __tsan_atomic128_store(volatile wide *address, wide value, int order) {
    (void)order;
    if (loads_are_near(address))
        loads_written((const void *)address, sizeof value);
    wide before, found;
    OWN(address, {
        before = *address;
        while ((found = exchange_wide(address, before, value)) != before)
            before = found;
    });
    LOCKED(address, true);
}

EXPANDED bool compare_exchange_wide(volatile wide *address, wide *expected, wide value) {
    touch_update(address, sizeof value);
    wide wanted = *expected;
    OWN(address, *expected = exchange_wide(address, wanted, value));
    LOCKED(address, *expected == wanted);
    return *expected == wanted;
}

HOOK wide __tsan_atomic128_compare_exchange_val(volatile wide *address, wide expected, wide value, int order, int failure_order);
HOOK wide __tsan_atomic128_compare_exchange_val(volatile wide *address, wide expected, wide value, int order, int failure_order) {
    (void)order, (void)failure_order, compare_exchange_wide(address, &expected, value);
    return expected;
}

#define WIDE_EXCHANGE_IF(strength)                                                                                                 \
    HOOK bool __tsan_atomic128_compare_exchange_##strength(volatile wide *address, wide *expected, wide value, int order,          \
                                                           int failure_order);                                                     \
    HOOK bool __tsan_atomic128_compare_exchange_##strength(volatile wide *address, wide *expected, wide value, int order,          \
                                                           int failure_order) {                                                    \
        (void)order, (void)failure_order, touch_update(expected, sizeof value);                                                    \
        return compare_exchange_wide(address, expected, value);                                                                    \
    }
WIDE_EXCHANGE_IF(strong)
WIDE_EXCHANGE_IF(weak)

HOOK void __tsan_atomic_thread_fence(int order);
HOOK void __tsan_atomic_signal_fence(int order);
HOOK void __tsan_atomic_thread_fence(int order) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (order == __ATOMIC_SEQ_CST && events_by_hooks())
        events_fenced(FL_FENCED_MFENCE, CALLER);
}
HOOK void __tsan_atomic_signal_fence(int order) { (void)order, __atomic_signal_fence(__ATOMIC_SEQ_CST); }

/* ---- copies: byte by byte in the processor, so that nothing else is loaded ------------------------------------------------ */

__attribute__((section("fl_hooks"))) static void move(void *to, const void *from, size_t bytes, bool is_backward) {
    if (is_backward) {
        const char *source = (const char *)from + bytes - 1;
        char *target = (char *)to + bytes - 1;
        __asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory", "cc");
    } else
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

EXPANDED void *copy(void *to, const void *from, size_t bytes) {
    if (!is_near(to, bytes) && !is_near(from, bytes))
        return memmove(to, from, bytes);
    TELL(loads_read(from, bytes));
    loads_written(to, bytes);
    loads_open(from, bytes);
    loads_open(to, bytes);
    move(to, from, bytes, (uintptr_t)to - (uintptr_t)from < bytes);
    if (events_by_hooks())
        events_stored(to, bytes, CALLER);
    return to;
}

#define WRAP(result, name, ...)                                                                                                    \
    HOOK result __wrap_##name(__VA_ARGS__);                                                                                        \
    HOOK result __wrap_##name(__VA_ARGS__)

WRAP(void *, memcpy, void *to, const void *from, size_t bytes) { return copy(to, from, bytes); }
WRAP(void *, memmove, void *to, const void *from, size_t bytes) { return copy(to, from, bytes); }
WRAP(void *, mempcpy, void *to, const void *from, size_t bytes) { return (char *)copy(to, from, bytes) + bytes; }
WRAP(void, bcopy, const void *from, void *to, size_t bytes) { copy(to, from, bytes); }

EXPANDED void *fill(void *to, int byte, size_t bytes) {
    if (!is_near(to, bytes))
        return memset(to, byte, bytes);
    loads_written(to, bytes);
    loads_open(to, bytes);
    void *target = to;
    size_t count = bytes;
    __asm__ volatile("rep stosb" : "+D"(target), "+c"(count) : "a"(byte) : "memory");
    if (events_by_hooks())
        events_stored(to, bytes, CALLER);
    return to;
}
WRAP(void *, memset, void *to, int byte, size_t bytes) { return fill(to, byte, bytes); }
WRAP(void, bzero, void *to, size_t bytes) { fill(to, 0, bytes); }
WRAP(void, explicit_bzero, void *to, size_t bytes) { fill(to, 0, bytes); }

/* ---- comparing and searching: only what decides is loaded ------------------------------------------------------------------ */

EXPANDED uint8_t byte_at(const void *address, size_t index) {
    const volatile uint8_t *byte = (const volatile uint8_t *)address + index;
    touch(byte, 1);
    return *byte;
}

/* Compares up to limit bytes; has_end: and no further than a NUL. */
EXPANDED int compare(const void *left, const void *right, size_t limit, bool has_end) {
    for (size_t i = 0; i < limit; i++) {
        uint8_t a = byte_at(left, i), b = byte_at(right, i);
        if (a != b || (has_end && a == 0))
            return a - b;
    }
    return 0;
}

/* The first of limit bytes that is byte, or with has_end NUL; limit: none. */
EXPANDED size_t search(const void *from, int byte, size_t limit, bool has_end) {
    for (size_t i = 0; i < limit; i++) {
        uint8_t found = byte_at(from, i);
        if (found == (uint8_t)byte || (has_end && found == 0))
            return i;
    }
    return limit;
}

EXPANDED int compare_memory(const void *left, const void *right, size_t bytes) {
    return is_near(left, bytes) || is_near(right, bytes) ? compare(left, right, bytes, false) : memcmp(left, right, bytes);
}

EXPANDED size_t length_of(const char *text) { return search(text, 0, SIZE_MAX, true); }

/* Returns the end. */
EXPANDED char *copy_text(char *to, const char *from) {
    size_t length = length_of(from);
    return (char *)copy(to, from, length + 1) + length;
}

WRAP(int, memcmp, const void *left, const void *right, size_t bytes) { return compare_memory(left, right, bytes); }
WRAP(int, bcmp, const void *left, const void *right, size_t bytes) { return compare_memory(left, right, bytes); }
WRAP(int, strcmp, const char *left, const char *right) { return compare(left, right, SIZE_MAX, true); }
WRAP(int, strncmp, const char *left, const char *right, size_t most) { return compare(left, right, most, true); }
WRAP(size_t, strlen, const char *text) { return length_of(text); }
WRAP(size_t, strnlen, const char *text, size_t most) { return search(text, 0, most, true); }
WRAP(void *, memchr, const void *from, int byte, size_t bytes) {
    size_t at = search(from, byte, bytes, false);
    return at == bytes ? NULL : (char *)from + at;
}
WRAP(void *, rawmemchr, const void *from, int byte) { return (char *)from + search(from, byte, SIZE_MAX, false); }
WRAP(char *, strchr, const char *text, int byte) {
    size_t at = search(text, byte, SIZE_MAX, true);
    return text[at] == (char)byte ? (char *)text + at : NULL;
}
WRAP(char *, strchrnul, const char *text, int byte) { return (char *)text + search(text, byte, SIZE_MAX, true); }
WRAP(char *, strrchr, const char *text, int byte) {
    for (size_t at = length_of(text) + 1; at-- > 0;)
        if (byte_at(text, at) == (uint8_t)byte)
            return (char *)text + at;
    return NULL;
}
WRAP(char *, stpcpy, char *to, const char *from) { return copy_text(to, from); }
WRAP(char *, strcpy, char *to, const char *from) {
    copy_text(to, from);
    return to;
}
WRAP(char *, strncpy, char *to, const char *from, size_t bytes) {
    size_t length = search(from, 0, bytes, true);
    copy(to, from, length);
    fill(to + length, 0, bytes - length);
    return to;
}
WRAP(char *, strcat, char *to, const char *from) {
    copy_text(to + length_of(to), from);
    return to;
}
EXPANDED char *duplicate(const char *text, size_t most) {
    size_t length = search(text, 0, most, true);
    char *twin = malloc(length + 1);
    if (twin == NULL)
        return NULL;
    copy(twin, text, length);
    twin[length] = '\0';
    return twin;
}
WRAP(char *, strndup, const char *text, size_t most) { return duplicate(text, most); }
WRAP(char *, strdup, const char *text) { return duplicate(text, SIZE_MAX); }

/* ---- sorting: the C library moves and the target compares; the whole of the array is read ------------------------------------ */

WRAP(void, qsort, void *from, size_t count, size_t bytes, int (*order)(const void *, const void *)) {
    if (is_near(from, count * bytes))
        TELL(loads_updated(from, count * bytes));
    qsort(from, count, bytes, order);
}

/* Of clang. */
HOOK void *__tsan_memcpy(void *to, const void *from, size_t bytes);
HOOK void *__tsan_memmove(void *to, const void *from, size_t bytes);
HOOK void *__tsan_memset(void *to, int byte, size_t bytes);
HOOK void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return copy(to, from, bytes); }
HOOK void *__tsan_memmove(void *to, const void *from, size_t bytes) { return copy(to, from, bytes); }
HOOK void *__tsan_memset(void *to, int byte, size_t bytes) { return fill(to, byte, bytes); }

#endif
