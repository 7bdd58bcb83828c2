/* SPDX-License-Identifier: Apache-2.0
 *
 * writer.h - the trace file (../trace.h): a buffer of cells, written as one chunk with one write(2) when it is full, before a fork
 * and at the end. A record larger than the buffer makes the buffer grow, so a chunk never splits a record from its payload.
 *
 * Under Pin the descriptor lies in the traced program's own table. So it is a high number, and each chunk is preceded by a look
 * whether it is still the trace: a program that closes all descriptors must not have its next file written over.
 */
#ifndef FAULTLINE_PIN_WRITER_H
#define FAULTLINE_PIN_WRITER_H

#include "../trace.h"

#include <string>
#include <vector>

class Writer {
  public:
    Writer() : process(1), descriptor_(-1), device_(0), inode_(0) { forget(); }

    /* Empty, or what is wrong. A new file gets its header. */
    std::string open(const std::string &path, uint64_t schedule_seed);
    void emit(const fl_record &record) { *room(1) = record; }
    /* The record, and bytes behind it. Its size is the caller's to set. */
    void emit_with(const fl_record &record, const void *payload, size_t bytes);
    /* A record whose size is the text's. */
    void emit_text(fl_record record, const std::string &text);
    /* All that is buffered; false if it cannot be written: error() says why. */
    bool flush();
    bool is_ours(int descriptor) const { return descriptor == descriptor_; }
    const std::string &error() const { return error_; }

    uint32_t process; /* of the chunks */

  private:
    fl_record *room(size_t cells);
    void forget() { cells_.assign(1, fl_record()); } /* cell 0 is the chunk's header */
    bool reopen();
    bool is_still_open() const;
    bool write_all(const void *bytes, size_t count);

    std::string path_, error_;
    std::vector<fl_record> cells_;
    int descriptor_;
    uint64_t device_, inode_;
};

#endif
