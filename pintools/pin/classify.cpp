/* SPDX-License-Identifier: Apache-2.0
 *
 * classify.cpp - see classify.h.
 */
#include "classify.h"

#include "../trace.h"

#include <cctype>
#include <cpuid.h>
#include <cstring>

namespace {

struct Named {
    const char *name;
    Class kind;
};

/* Instructions that mean something whatever they write. */
const Named ALWAYS[] = {
    {"sfence", Class::SFENCE},         {"mfence", Class::MFENCE},    {"clflush", Class::CLFLUSH},   {"clwb", Class::CLWB},
    {"clflushopt", Class::CLFLUSHOPT}, {"xbegin", Class::REFUSED},   {"enqcmd", Class::REFUSED},    {"enqcmds", Class::REFUSED},
    {"clzero", Class::REFUSED},        {"cldemote", Class::NOTHING}, {"prefetchw", Class::NOTHING},
};

/* Of instructions that write memory. */
const Named WRITING[] = {
    {"movnti", Class::NON_TEMPORAL},
    {"movntq", Class::NON_TEMPORAL},
    {"movntdq", Class::NON_TEMPORAL},
    {"movntps", Class::NON_TEMPORAL},
    {"movntpd", Class::NON_TEMPORAL},
    {"movntss", Class::NON_TEMPORAL},
    {"movntsd", Class::NON_TEMPORAL},
    {"vmovntdq", Class::NON_TEMPORAL},
    {"vmovntps", Class::NON_TEMPORAL},
    {"vmovntpd", Class::NON_TEMPORAL},
    {"movdiri", Class::NON_TEMPORAL},
    {"movdir64b", Class::NON_TEMPORAL},
    {"maskmovq", Class::MASKED_NON_TEMPORAL},
    {"maskmovdqu", Class::MASKED_NON_TEMPORAL},
    {"vmaskmovdqu", Class::MASKED_NON_TEMPORAL},
    {"vmaskmovps", Class::MASKED},
    {"vmaskmovpd", Class::MASKED},
    {"vpmaskmovd", Class::MASKED},
    {"vpmaskmovq", Class::MASKED},
    {"vpcompressb", Class::COMPRESSED},
    {"vpcompressw", Class::COMPRESSED},
    {"vpcompressd", Class::COMPRESSED},
    {"vpcompressq", Class::COMPRESSED},
    {"vcompressps", Class::COMPRESSED},
    {"vcompresspd", Class::COMPRESSED},
    {"vpscatterdd", Class::SCATTERED},
    {"vpscatterdq", Class::SCATTERED},
    {"vpscatterqd", Class::SCATTERED},
    {"vpscatterqq", Class::SCATTERED},
    {"vscatterdps", Class::SCATTERED},
    {"vscatterdpd", Class::SCATTERED},
    {"vscatterqps", Class::SCATTERED},
    {"vscatterqpd", Class::SCATTERED},
    {"cmpxchg", Class::COMPARE},
    {"cmpxchg8b", Class::COMPARE},
    {"cmpxchg16b", Class::COMPARE},
    {"xchg", Class::LOCKED}, /* with memory, it needs no prefix */
};

/* Their area has the size that the processor gives it. */
const char *const STATE[] = {"xsave", "xsave64", "xsaveopt", "xsaveopt64", "xsavec", "xsavec64"};
const char *const REPEATED[] = {"movsb", "movsw", "movsd", "movsq", "stosb", "stosw", "stosd", "stosq"};

template <size_t N> bool has(const char *const (&names)[N], const std::string &name) {
    for (const char *known : names)
        if (name == known)
            return true;
    return false;
}

template <size_t N> Class find(const Named (&names)[N], const std::string &name, Class otherwise) {
    for (const Named &known : names)
        if (name == known.name)
            return known.kind;
    return otherwise;
}

bool drop_start(std::string *name, const char *start) {
    size_t bytes = std::strlen(start);
    if (name->compare(0, bytes, start) != 0)
        return false;
    name->erase(0, bytes);
    return true;
}

bool drop_end(std::string *name, const char *end) {
    size_t bytes = std::strlen(end);
    if (name->size() < bytes || name->compare(name->size() - bytes, bytes, end) != 0)
        return false;
    name->resize(name->size() - bytes);
    return true;
}

/* The manual's name; what XED adds to it goes into the form. */
Form normal(Form form) {
    for (char &letter : form.name)
        letter = char(std::tolower(static_cast<unsigned char>(letter)));
    if (drop_start(&form.name, "rep_") || drop_start(&form.name, "repe_") || drop_start(&form.name, "repne_"))
        form.is_repeated = true;
    if (drop_end(&form.name, "_lock"))
        form.has_lock = true;
    return form;
}

Class of_writing(const Form &form) {
    if (form.is_repeated && has(REPEATED, form.name))
        return Class::REPEATED;
    if (has(STATE, form.name))
        return Class::STATE;
    Class kind = find(WRITING, form.name, Class::PLAIN);
    if (form.has_lock)
        return kind == Class::COMPARE ? Class::LOCKED_COMPARE : Class::LOCKED;
    if (kind == Class::PLAIN && form.is_masked)
        return Class::MASKED;
    return kind;
}

} // namespace

Class classify(const Form &given) {
    Form form = normal(given);
    Class kind = find(ALWAYS, form.name, Class::PLAIN);
    if (kind != Class::PLAIN)
        return kind;
    return form.writes_memory ? of_writing(form) : Class::NOTHING;
}

std::string why_refused(const std::string &name) {
    Form form = normal(Form{name, false, false, false, false});
    if (form.name == "xbegin")
        return "a transaction of the processor (xbegin): what it stores may be undone";
    return form.name + ": what it does to memory is not followed";
}

unsigned vector_mask_element(const std::string &name) {
    std::string plain = normal(Form{name, false, false, false, false}).name;
    if (plain == "vmaskmovps" || plain == "vpmaskmovd")
        return 4;
    return plain == "vmaskmovpd" || plain == "vpmaskmovq" ? 8 : 0;
}

uint8_t store_detail(Class kind) {
    switch (kind) {
    case Class::NON_TEMPORAL:
    case Class::MASKED_NON_TEMPORAL: return FL_STORE_NT;
    case Class::LOCKED:
    case Class::LOCKED_COMPARE: return FL_STORE_RMW;
    case Class::REPEATED: return FL_STORE_REP;
    default: return FL_STORE_PLAIN;
    }
}

uint8_t flush_detail(Class kind) {
    return uint8_t(kind == Class::CLFLUSH ? FL_CLFLUSH : kind == Class::CLFLUSHOPT ? FL_CLFLUSHOPT : FL_CLWB);
}

std::vector<Range> selected_ranges(uint64_t address, const std::vector<bool> &selected) {
    std::vector<Range> ranges;
    for (size_t i = 0; i < selected.size(); i++) {
        if (!selected[i])
            continue;
        if (ranges.empty() || ranges.back().end != address + i)
            ranges.push_back(Range{address + i, address + i});
        ranges.back().end++;
    }
    return ranges;
}

std::vector<bool> selected_by_vector(const uint8_t *mask, unsigned bytes, unsigned element) {
    std::vector<bool> selected(bytes);
    for (unsigned i = 0; i < bytes; i++)
        selected[i] = (mask[i / element * element + element - 1] & 0x80) != 0;
    return selected;
}

std::vector<bool> selected_by_bits(uint64_t mask, unsigned bytes, unsigned element) {
    std::vector<bool> selected(bytes);
    for (unsigned i = 0; i < bytes; i++)
        selected[i] = (mask >> (i / element) & 1) != 0;
    return selected;
}

unsigned xsave_bytes() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(0xd, 0, &a, &b, &c, &d) != 0 ? b : 512;
}
