/* SPDX-License-Identifier: Apache-2.0
 *
 * A word that the application stores where it should not, while the heap is open. The kernel stores it, which minds what the target
 * protects: nothing dies where it may not be stored.
 */
#include "files/internal.h"

static struct {
    uint32_t file;
    uint64_t offset, word;
    bool is_there;
} stray;

void vfs_stray(uint32_t file, uint64_t offset, uint64_t word) {
    stray.file = file;
    stray.offset = offset;
    stray.word = word;
    stray.is_there = true;
}

void vfs_no_stray(void) { stray.is_there = false; }

bool vfs_has_stray(void) { return stray.is_there; }

static bool shows(const struct mapping *mapping) {
    return mapping_file(mapping) == stray.file && stray.offset >= mapping->offset &&
           stray.offset - mapping->offset < mapping->end - mapping->start;
}

static bool store_at(uintptr_t address) {
    int ends[2];
    if (syscall(SYS_pipe2, ends, O_CLOEXEC) != 0)
        vfs_give_up("a stray store", errno);
    bool is_sent = syscall(SYS_write, ends[1], &stray.word, sizeof stray.word) == (long)sizeof stray.word;
    long got = syscall(SYS_read, ends[0], address, sizeof stray.word);
    int error = is_sent && got < 0 ? errno : 0;
    syscall(SYS_close, ends[0]);
    syscall(SYS_close, ends[1]);
    if (error != EFAULT && got != (long)sizeof stray.word)
        vfs_give_up("a stray store", error);
    return error == 0;
}

static bool store_in(bool is_shared) {
    for (size_t i = 0; i < mappings.count; i++) {
        const struct mapping *mapping = &mappings.list[i];
        bool is_one = mapping->is_shared == is_shared && shows(mapping);
        if (is_one && store_at(mapping->start + (stray.offset - mapping->offset)))
            return true;
    }
    return false;
}

bool vfs_store_stray(void) { return store_in(true) || store_in(false); }
