/* SPDX-License-Identifier: Apache-2.0
 *
 * writer.cpp - see writer.h.
 */
#include "writer.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

const size_t BUFFER_CELLS = 8192;
/* Above what programs get by opening files, below the usual limit of 1024. */
const int LOWEST_DESCRIPTOR = 900;
const size_t MOST_BYTES_A_WRITE = size_t(1) << 30;

} // namespace

bool Writer::reopen() {
    int low = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    struct stat status;
    if (low < 0) {
        error_ = std::strerror(errno);
        return false;
    }
    descriptor_ = fcntl(low, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (descriptor_ < 0)
        descriptor_ = fcntl(low, F_DUPFD_CLOEXEC, 0); /* a low limit */
    close(low);
    if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
        error_ = std::strerror(errno);
        return false;
    }
    device_ = status.st_dev;
    inode_ = status.st_ino;
    return true;
}

bool Writer::is_still_open() const {
    struct stat status;
    return fstat(descriptor_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

std::string Writer::open(const std::string &path, uint64_t schedule_seed) {
    struct stat status;
    path_ = path;
    if (!reopen())
        return "cannot open the trace " + path + ": " + error_ + "; name a file in a folder that can be written";
    if (fstat(descriptor_, &status) == 0 && status.st_size == 0) {
        fl_trace_header header = fl_trace_header();
        std::memcpy(header.magic, FL_TRACE_MAGIC, sizeof header.magic);
        header.version = FL_TRACE_VERSION;
        header.record_bytes = FL_RECORD_BYTES;
        header.schedule_seed = schedule_seed;
        std::memcpy(header.tracer, "pin", 3);
        if (!write_all(&header, sizeof header))
            return "cannot write the trace " + path + ": " + error_ + "; make room and trace again";
    }
    return "";
}

bool Writer::write_all(const void *bytes, size_t count) {
    const char *from = static_cast<const char *>(bytes);
    while (count > 0) {
        ssize_t written = ::write(descriptor_, from, count < MOST_BYTES_A_WRITE ? count : MOST_BYTES_A_WRITE);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            error_ = written < 0 ? std::strerror(errno) : "nothing was written";
            return false;
        }
        from += written;
        count -= size_t(written);
    }
    return true;
}

bool Writer::flush() {
    size_t count = cells_.size() - 1;
    if (count == 0)
        return true;
    fl_trace_chunk chunk = fl_trace_chunk();
    chunk.magic = FL_CHUNK_MAGIC;
    chunk.process = process;
    chunk.record_count = count;
    chunk.checksum = fl_checksum(&cells_[1], count);
    std::memcpy(&cells_[0], &chunk, sizeof chunk);
    bool is_written = (is_still_open() || reopen()) && write_all(&cells_[0], (count + 1) * FL_RECORD_BYTES);
    forget();
    return is_written;
}

fl_record *Writer::room(size_t cells) {
    if (cells_.size() > 1 && cells_.size() + cells > BUFFER_CELLS)
        flush(); /* a failure stays in error(), and is looked at where the process can be ended */
    size_t first = cells_.size();
    cells_.resize(first + cells, fl_record());
    return &cells_[first];
}

void Writer::emit_with(const fl_record &record, const void *payload, size_t bytes) {
    fl_record *first = room(1 + FL_PAYLOAD_CELLS(bytes));
    *first = record;
    if (bytes > 0)
        std::memcpy(static_cast<void *>(first + 1), payload, bytes);
}

void Writer::emit_text(fl_record record, const std::string &text) {
    record.size = uint32_t(text.size());
    emit_with(record, text.data(), text.size());
}
