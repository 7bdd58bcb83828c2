/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.h - a small Px86 for a heap of many files: what each line of each file may hold after a power failure.
 *
 * The model is that of ../../testing/recorder.h: a line's versions are its contents after each store, the floor is the oldest that may
 * still be on media, stores other than fl_store8 are noticed at the next event and may be torn into units of 8 bytes. Creating, punching
 * and unlinking a file is whole and durable when it returns. The hooks are those of ../../testing/recorded/persist.h, and files.h,
 * which is implemented here in place of src/files.cpp.
 */
#ifndef PALLOCATOR_TESTS_RECORDER_H
#define PALLOCATOR_TESTS_RECORDER_H

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "random.h"

using Image = std::map<std::string, std::vector<char>>; /* files by name */

enum class Kind { PREFIX, FLOOR, RANDOM };

class Recorder {
  public:
    explicit Recorder(std::string folder, std::function<void()> on_position);
    ~Recorder();
    Recorder(const Recorder &) = delete;

    Image image(Kind kind, uint64_t &random) const;
    void position(); /* a crash position without an event */

    /* Hooks. */
    void find_mappings();
    bool store8(void *address, uint64_t value);
    void flush_line(const void *address);
    void fence();
    void created(const std::string &path, uint64_t bytes);
    void punched(const std::string &path, uint64_t offset, uint64_t bytes);
    void unlinked(const std::string &path);

    static Recorder *current; /* null: nothing is recorded */

  private:
    struct Version {
        char content[64];
        bool is_torn;
    };
    struct Line {
        std::vector<Version> versions;
        size_t floor = 0, flushed = 0;
    };
    struct File {
        char *base; /* the recorder's own mapping */
        std::vector<char> newest;
        std::map<size_t, Line> lines; /* that are not clean */
    };
    struct Range {
        char *start;
        size_t bytes;
        std::string name;
    };

    void notice_changes();
    void add_version(File &file, size_t line, bool is_torn);
    File *find(const void *address, size_t *offset);
    void adopt(const std::string &name);

    std::string folder;
    std::function<void()> on_position;
    std::map<std::string, File> files;
    std::vector<Range> ranges;
};

void write_image(const std::string &folder, const Image &image); /* the folder holds nothing else afterwards */
std::vector<std::string> names_in(const std::string &folder);

#endif
