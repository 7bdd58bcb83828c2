/* SPDX-License-Identifier: Apache-2.0
 *
 * classify.h - what an instruction may mean for persistent memory, by the name that Intel's manual gives it (SDM vol. 2; XED's
 * iclass and other decoders' mnemonics are these names). Data, so that the Pin tool and the native driver cannot differ in it.
 */
#ifndef FAULTLINE_PIN_CLASSIFY_H
#define FAULTLINE_PIN_CLASSIFY_H

#include <cstdint>
#include <string>
#include <vector>

enum class Class : uint8_t {
    NOTHING,             /* writes no memory, orders nothing */
    PLAIN,
    NON_TEMPORAL,        /* direct stores (movdiri, movdir64b), too: they pass the cache by as well */
    MASKED,              /* a mask register says which elements are stored */
    MASKED_NON_TEMPORAL, /* maskmovq, maskmovdqu: by bytes */
    COMPRESSED,          /* as many elements as the mask has bits, one behind the other */
    SCATTERED,           /* each element to an address of its own */
    STATE,               /* xsave and its like: as much as the processor has */
    REPEATED,            /* rep movs, rep stos */
    LOCKED,              /* read-modify-write */
    COMPARE,             /* stores if it finds what it expects (ZF) */
    LOCKED_COMPARE,
    SFENCE,
    MFENCE,
    CLFLUSH,
    CLFLUSHOPT,
    CLWB,
    REFUSED, /* what a trace cannot express */
};

/* As decoders see an instruction. name: of the manual or of XED, in any case; XED's own additions to names (REP_, _LOCK) count. */
struct Form {
    std::string name;
    bool has_lock;
    bool is_repeated;
    bool writes_memory;
    bool is_masked; /* an AVX-512 mask register other than k0 */
};

Class classify(const Form &form);
/* Why an instruction of class REFUSED is refused. */
std::string why_refused(const std::string &name);
/* Bytes of an element, of instructions of class MASKED whose mask is a vector register (vmaskmov); 0: any other. */
unsigned vector_mask_element(const std::string &name);

inline bool is_flush(Class kind) { return kind == Class::CLFLUSH || kind == Class::CLFLUSHOPT || kind == Class::CLWB; }
inline bool is_fence(Class kind) { return kind == Class::SFENCE || kind == Class::MFENCE; }
inline bool is_locked(Class kind) { return kind == Class::LOCKED || kind == Class::LOCKED_COMPARE; }
inline bool is_compare(Class kind) { return kind == Class::COMPARE || kind == Class::LOCKED_COMPARE; }
uint8_t store_detail(Class kind); /* enum fl_store */
uint8_t flush_detail(Class kind); /* enum fl_flush */

/* Bytes [start, end) of memory. */
struct Range {
    uint64_t start, end;
};

/* Runs of selected bytes: selected has one bit a byte, from `address` on. One store a run. */
std::vector<Range> selected_ranges(uint64_t address, const std::vector<bool> &selected);
/* Of a vector mask: the highest bit of each element selects it. */
std::vector<bool> selected_by_vector(const uint8_t *mask, unsigned bytes, unsigned element);
/* Of a mask register: bit i selects element i. */
std::vector<bool> selected_by_bits(uint64_t mask, unsigned bytes, unsigned element);

/* Bytes that xsave may write, by CPUID. */
unsigned xsave_bytes();

#endif
