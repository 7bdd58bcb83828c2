/* SPDX-License-Identifier: Apache-2.0
 *
 * big.h - BigPAllocator (§4.5, §4.6): best fit over blocks of whole OS pages. All it knows is in two trees:
 *
 *     free-blocks tree   (bytes, file, offset): the free blocks
 *     BlockInfo tree     (file, offset) -> BlockInfo: all blocks, in use, free and holes
 *
 * The blocks of a segment follow each other from behind its header to its end. Free neighbours are joined, holes are too. A segment all of
 * which is free goes back to the list of free segments; one all of which is a hole is gone.
 */
#ifndef PALLOCATOR_BIG_H
#define PALLOCATOR_BIG_H

#include "tree.h"

namespace pallocator {

class Big {
  public:
    Big(Segments &segments, LeafMemory &memory, unsigned core);

    Status allocate(uint64_t bytes, const PPtrBase &argument);
    Status allocate_in_hole(uint64_t bytes, const PPtrBase &argument); /* where there is room, but not for a segment */
    Status deallocate(const PPtrBase &argument, const PPtrBase &block);

    Status recover_trees(); /* and ownership of the segments that they know, and their holes */
    void recover();         /* what the item says, to its end */

    uint64_t free_bytes() const;
    uint64_t largest_free() const;
    uint64_t punch_largest(); /* one iteration of the defragmentation; bytes punched, 0: no free block */

    uint64_t block_bytes(const PPtrBase &block) const;
    void walk(uint64_t file, const std::function<void(const Part &)> &visit) const;
    Status check() const;
    unsigned levels() const { return info_tree.levels(); }
    mutable std::mutex lock;

  private:
    BigItem &item() const { return core.big_item; }
    void set_state(BigState state);
    void end();
    void begin_free(const PPtrBase &argument, const PPtrBase &block, const TreeEntry &entry);
    void begin_defragmenting(const PPtrBase &block, uint64_t info);
    uint64_t neighbour_before(const PPtrBase &block, uint64_t flags) const;
    uint64_t neighbour_after(const PPtrBase &block, uint64_t info, uint64_t flags, uint64_t *is_last) const;

    bool add_segment();
    bool begin_allocating();
    bool allocate_block();
    Status status_of_allocation() const;
    void note_filled_hole();
    uint64_t hole_bytes(uint64_t file) const;
    void free_block();
    void punch_block();
    void name_punching() const;
    void run();

    void set_argument(const PPtrBase &value);
    void set_info(const PPtrBase &block, uint64_t info) { info_tree.update(info_key(block), info); }
    static Key info_key(const PPtrBase &block) { return {block.file, block.offset, 0}; }
    static Key free_key(uint64_t bytes, const PPtrBase &block) { return {bytes, block.file, block.offset}; }
    void free_insert(uint64_t bytes, const PPtrBase &block);
    void free_erase(uint64_t bytes, const PPtrBase &block);

    Segments &segments;
    Core &core;
    Owner owner;
    Tree free_tree, info_tree;
    uint64_t free_bytes_ = 0;
};

} // namespace pallocator
#endif
