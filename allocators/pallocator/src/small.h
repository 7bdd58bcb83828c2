/* SPDX-License-Identifier: Apache-2.0
 *
 * small.h - SmallPAllocator (§4.4): segregated fit. A segment is cut into logical pages, a page into blocks of one size class.
 */
#ifndef PALLOCATOR_SMALL_H
#define PALLOCATOR_SMALL_H

#include <mutex>

#include "segments.h"

namespace pallocator {

/* The size class, or CLASSES: the request is not small. */
unsigned class_of(uint64_t bytes);

class Small {
  public:
    Small(Segments &segments, unsigned core) : segments(segments), core(segments.core(core)), owner(static_cast<Owner>(core)) {}

    Status allocate(unsigned size_class, const PPtrBase &argument); /* argument: where the application's pointer lies */
    Status deallocate(const PPtrBase &argument, const PPtrBase &block);

    void recover();          /* what the item says, to its end */
    Status take_ownership(); /* of the segments in its lists; CORRUPT if a list is broken */
    bool punch_free_page();  /* false: there is none */
    uint64_t free_page_bytes();
    bool fill_hole(); /* of a page, which is free again; false: there is none, or no room for it */

    /* The block at this place, bytes; 0: none in use starts there. */
    uint64_t block_bytes(const PPtrBase &block) const;
    void walk(uint64_t file, const std::function<void(const Part &)> &visit) const;
    Status check() const;
    mutable std::mutex lock;

  private:
    PageHeader &page_at(const PPtrBase &page) const { return *segments.at<PageHeader>(page); }
    SegmentHeader &segment_of(const PPtrBase &page) const { return *segments.header(page.file); }
    SmallItem &item() const { return core.small_item; }
    SmallState state() const { return static_cast<SmallState>(item().state & 0xff); }
    unsigned item_class() const { return item().state >> 8 & 0xff; }
    uint16_t item_index() const { return static_cast<uint16_t>(item().state >> 16); }
    PPtrBase item_segment() const { return {item().page.file, 0}; }

    void set_state(SmallState state, unsigned size_class, uint16_t index);
    void next(SmallState state) { set_state(state, item_class(), item_index()); }
    void next_joining(SmallState state, const PPtrBase &head);
    void end();

    Status begin_page(unsigned size_class, const PPtrBase &argument);
    void new_segment();
    void begin_taking_page();
    void take_page();
    void begin_allocating();
    void log_argument(const PPtrBase &argument);
    PPtrBase *logged_argument();
    void allocate_block();
    void free_block();
    void return_page();
    void punch_page();
    bool find_hole(PPtrBase *page) const;
    void fill_page();
    void run(); /* the states from the present one to NONE */

    Status check_segment(const PPtrBase &segment, bool is_full, uint64_t *listed_pages) const;
    Status check_page(const PPtrBase &page, unsigned size_class, const PPtrBase &previous) const;

    Segments &segments;
    Core &core;
    Owner owner;
};

} // namespace pallocator
#endif
