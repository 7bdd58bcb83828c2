/* SPDX-License-Identifier: Apache-2.0
 *
 * maps.cpp - see maps.h.
 */
#include "maps.h"

#include <algorithm>

namespace {

void emit_mapping(uint8_t kind, const Mapping &mapping, uint16_t thread, Writer *writer) {
    fl_record record = fl_record();
    record.kind = kind;
    record.detail = kind == FL_MAP ? mapping.flags : uint8_t(0);
    record.thread = thread;
    record.file = mapping.file;
    record.offset = mapping.offset;
    record.value = mapping.end - mapping.start;
    writer->emit(record);
}

/* The part of a mapping between two addresses inside it. */
Mapping cut(const Mapping &mapping, uint64_t start, uint64_t end) {
    Mapping part = mapping;
    part.offset = mapping.offset_of(start);
    part.start = start;
    part.end = end;
    return part;
}

bool ends_before(const Mapping &mapping, uint64_t address) { return mapping.end <= address; }

} // namespace

size_t Maps::first_behind(uint64_t address) const {
    return size_t(std::lower_bound(mappings_.begin(), mappings_.end(), address, ends_before) - mappings_.begin());
}

void Maps::update_bounds() {
    lowest_ = highest_ = 0;
    for (const Mapping &mapping : mappings_) {
        if (!mapping.is_shared())
            continue;
        if (highest_ == 0)
            lowest_ = mapping.start;
        highest_ = mapping.end;
    }
}

void Maps::add(const Mapping &mapping, uint16_t thread, Writer *writer) {
    mappings_.insert(mappings_.begin() + long(first_behind(mapping.start)), mapping);
    update_bounds();
    emit_mapping(FL_MAP, mapping, thread, writer);
}

void Maps::remove(uint64_t start, uint64_t end, uint16_t thread, Writer *writer) {
    std::vector<Mapping> left;
    for (const Mapping &mapping : mappings_) {
        uint64_t from = std::max(mapping.start, start), to = std::min(mapping.end, end);
        if (from >= to) {
            left.push_back(mapping);
            continue;
        }
        if (mapping.start < from)
            left.push_back(cut(mapping, mapping.start, from));
        if (to < mapping.end)
            left.push_back(cut(mapping, to, mapping.end));
        emit_mapping(FL_UNMAP, cut(mapping, from, to), thread, writer);
    }
    mappings_.swap(left);
    update_bounds();
}

void Maps::define_again(uint16_t thread, Writer *writer) const {
    for (const Mapping &mapping : mappings_)
        emit_mapping(FL_MAP, mapping, thread, writer);
}

const Mapping *Maps::find_any(uint64_t address) const {
    size_t at = first_behind(address);
    return at < mappings_.size() && mappings_[at].start <= address ? &mappings_[at] : nullptr;
}

const Mapping *Maps::find(uint64_t address) const {
    const Mapping *mapping = is_far(address, address + 1) ? nullptr : find_any(address);
    return mapping != nullptr && mapping->is_shared() ? mapping : nullptr;
}

std::vector<Part> Maps::parts(uint64_t start, uint64_t end) const {
    std::vector<Part> found;
    if (is_far(start, end))
        return found;
    for (size_t at = first_behind(start); at < mappings_.size() && mappings_[at].start < end; at++)
        if (mappings_[at].is_shared())
            found.push_back(Part{&mappings_[at], std::max(start, mappings_[at].start), std::min(end, mappings_[at].end)});
    return found;
}
