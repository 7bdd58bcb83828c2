/* SPDX-License-Identifier: Apache-2.0
 *
 * maps.h - which addresses are persistent memory: disjoint mappings of files below the PM folder, in order of address. One file
 * may be mapped several times. Private mappings are kept, because the trace says when they go, but nothing stored to them counts.
 */
#ifndef FAULTLINE_PIN_MAPS_H
#define FAULTLINE_PIN_MAPS_H

#include "writer.h"

#include <vector>

struct Mapping {
    uint64_t start, end; /* whole pages */
    uint64_t offset;     /* of start in the file */
    uint32_t file;
    uint8_t flags; /* enum fl_map */

    bool is_shared() const { return (flags & FL_MAP_SHARED) != 0; }
    uint64_t offset_of(uint64_t address) const { return offset + (address - start); }
};

/* A part of memory that one mapping shows. */
struct Part {
    const Mapping *mapping;
    uint64_t start, end;
};

class Maps {
  public:
    Maps() : lowest_(0), highest_(0) {}

    void add(const Mapping &mapping, uint16_t thread, Writer *writer);
    void remove(uint64_t start, uint64_t end, uint16_t thread, Writer *writer);
    /* In a forked child: the mappings that it inherited. */
    void define_again(uint16_t thread, Writer *writer) const;

    /* Nothing of [start, end) can be persistent memory: a test for each access. */
    bool is_far(uint64_t start, uint64_t end) const { return end <= lowest_ || start >= highest_; }
    /* The shared mapping that holds the address, or null. */
    const Mapping *find(uint64_t address) const;
    /* The first mapping of either kind that holds the address, or null. */
    const Mapping *find_any(uint64_t address) const;
    /* What shared mappings show of [start, end), in order of address. */
    std::vector<Part> parts(uint64_t start, uint64_t end) const;

    /* Where shared mappings lie, for a test inline. */
    const uint64_t *lowest() const { return &lowest_; }
    const uint64_t *highest() const { return &highest_; }

  private:
    void update_bounds();
    size_t first_behind(uint64_t address) const;

    std::vector<Mapping> mappings_;
    uint64_t lowest_, highest_;
};

#endif
