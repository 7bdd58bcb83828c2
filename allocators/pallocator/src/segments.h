/* SPDX-License-Identifier: Apache-2.0
 *
 * segments.h - SegmentListManager (§4.3): the files of a heap, who owns them, and persistent pointers to addresses and back.
 */
#ifndef PALLOCATOR_SEGMENTS_H
#define PALLOCATOR_SEGMENTS_H

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "pallocator.h"
#include "store.h"

namespace pallocator {

Status fail(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

using Owner = int; /* core: its small allocator; cores + core: its big one */
constexpr Owner OWNER_HUGE = -1, OWNER_NONE = -2;

class Segments {
  public:
    ~Segments();

    /* The anchor and everything that it lists. Changes nothing. */
    Status create_anchor(const Options &options, unsigned cores);
    Status map_all(const Options &options);
    Status look_for_strangers(const char *folder) const; /* CORRUPT: a segment file that is none of this heap's */
    /* What a power failure left in the segment item. Needs the files mapped. */
    void recover();
    bool is_pending(uint64_t file) const; /* map_all: half made or half destroyed */

    Anchor &anchor() const { return *anchor_; }
    Core &core(unsigned number) const { return reinterpret_cast<Core *>(anchor_ + 1)[number]; }
    unsigned cores() const { return static_cast<unsigned>(anchor_->cores); }

    /* A free segment, or a new one; *pointer, null so far, becomes (id, 0). */
    Status acquire(PPtrBase &pointer);
    /* A segment of its own for a huge block; *pointer becomes (id, HEADER_BYTES). */
    Status acquire_huge(PPtrBase &pointer, uint64_t bytes);
    /* To the list of free segments; pointer becomes null. The caller has taken it out of every other list. */
    void give_back(PPtrBase &pointer);
    /* The file is gone; pointer becomes null. */
    void destroy(PPtrBase &pointer);
    bool destroy_a_free_one(); /* false: there is none */

    /* Bytes of a segment, of whole OS pages, go back to the file system. Does nothing if there is no such segment any more. */
    void punch(uint64_t file, uint64_t offset, uint64_t bytes);
    void note_hole(uint64_t file, uint64_t bytes); /* these are not occupied (any more) */
    void note_filled(uint64_t file, uint64_t bytes); /* of holes: they are occupied again */
    void set_holes(uint64_t file, uint64_t bytes); /* all that are there, whatever was noted */
    /* Bytes of a hole get their space back, and are noted as filled. False, and nothing has happened, if there is no room. */
    bool fill(uint64_t file, uint64_t offset, uint64_t bytes);
    uint64_t room() const;       /* bytes that new files may occupy */
    uint64_t occupied() const;
    uint64_t free_list_bytes() const;
    bool is_disk_full() const { return is_disk_full_; } /* the last creation failed below the limit */

    void *address_of(const PPtrBase &pointer) const; /* null: no such place */
    template <typename T> T *at(const PPtrBase &pointer) const { return static_cast<T *>(address_of(pointer)); }
    PPtrBase persistent(const void *address) const; /* null: not in the heap */
    SegmentHeader *header(uint64_t file) const { return at<SegmentHeader>({file, 0}); }
    uint64_t bytes_of(uint64_t file) const; /* 0: no such file */
    Owner owner(uint64_t file) const;
    void set_owner(uint64_t file, Owner owner);
    std::vector<uint64_t> files() const; /* sorted */

    std::atomic<uint64_t> created = 0, destroyed = 0, punched = 0, punched_bytes = 0; /* in this life */

  private:
    struct Info {
        char *base;
        uint64_t bytes;
        uint64_t holes; /* bytes */
        uint64_t entry;
        Owner owner; /* SegIDToAllocID */
    };

    std::string path(uint64_t file) const;
    SegmentEntry &entry(uint64_t number) const { return reinterpret_cast<SegmentEntry *>(&core(cores()))[number]; }
    void begin(SegmentState state, uint64_t entry, uint64_t id, uint64_t bytes, const PPtrBase &pointer, const PPtrBase &list);
    void end();
    Status create(PPtrBase &pointer, uint64_t bytes, uint64_t offset);
    Status make_file(uint64_t id, uint64_t bytes, char **base);
    void take_back_creation();
    void name_step() const;
    void finish_destroying();
    void finish_taking();
    void finish_returning();
    Status map_anchor(const Options &options);
    uint64_t identity() const; /* of the heap, in the headers of its segments */
    Status map_segment(uint64_t number);
    Status check_items() const;
    char *map(int fd, uint64_t bytes);
    void add(uint64_t file, char *base, uint64_t bytes, uint64_t entry);
    void remove(uint64_t file);
    bool free_entry(uint64_t *number) const;
    void set(const PPtrBase &pointer, const PPtrBase &value);

    std::string folder;
    uintptr_t next_address = 0;
    Anchor *anchor_ = nullptr;
    mutable std::recursive_mutex lock; /* of the segment item and all lists of segments that no core owns */
    mutable std::shared_mutex maps_lock;
    std::unordered_map<uint64_t, Info> id_to_info; /* SegIDToAddress and SegIDToAllocID */
    std::map<uintptr_t, uint64_t> address_to_id;   /* AddressToSegInfo */
    uint64_t occupied_bytes = 0;
    std::atomic<bool> is_disk_full_ = false;
};

/* ---- lists with links in both directions, done again after a failure from the state's first step ---- */

/* Joins as the new head. `head_before` is what head was, or null. */
void list_join(const Segments &segments, PPtrBase &head, const PPtrBase &node, const PPtrBase &head_before);
/* Leaves. The node's own links stay, so that it can be done again. */
void list_leave(const Segments &segments, PPtrBase &head, const PPtrBase &node);

} // namespace pallocator
#endif
