/* SPDX-License-Identifier: Apache-2.0
 *
 * recorded.cpp - see recorded.h.
 */
#include "recorded.h"

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "files.h"

/* ---- images ---- */

Recorder record(const std::string &folder, recorder_crash crash) {
    Recorder recorder(recorder_new(crash, nullptr), recorder_delete);
    recorder_switch(recorder.get());
    for (const std::string &name : names_in(folder))
        recorder_add((folder + "/" + name).c_str());
    return recorder;
}

Image image_of(const recorder *recorder, recorder_image kind, uint64_t &random) {
    Image image;
    std::vector<char> all(recorder_bytes(recorder));
    recorder_make_image(recorder, kind, &random, all.data());
    size_t bytes, number = 0;
    const char *at = all.data();
    while (const char *name = recorder_file(recorder, number++, &bytes)) {
        image[name].assign(at, at + bytes);
        at += bytes;
    }
    return image;
}

/* Sorted. */
std::vector<std::string> names_in(const std::string &folder) {
    std::vector<std::string> names;
    DIR *listing = opendir(folder.c_str());
    assert(listing != nullptr);
    while (dirent *entry = readdir(listing))
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    closedir(listing);
    std::sort(names.begin(), names.end());
    return names;
}

void write_image(const std::string &folder, const Image &image) {
    for (const std::string &name : names_in(folder))
        unlink((folder + "/" + name).c_str());
    for (auto &[name, content] : image) {
        FILE *file = fopen((folder + "/" + name).c_str(), "w");
        assert(file != nullptr && fwrite(content.data(), 1, content.size(), file) == content.size());
        fclose(file);
    }
}

/* ---- files.h ---- */

namespace pallocator {

static const char *name_of(const char *path) { return strrchr(path, '/') + 1; }

int files_create(const char *path, uint64_t bytes) {
    recorder_position();
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0)
        abort();
    if (fd >= 0)
        recorder_add(path);
    recorder_position();
    return fd;
}

void files_punch(const char *path, uint64_t offset, uint64_t bytes) {
    recorder_position();
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 ||
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
        abort();
    close(fd);
    recorder_punched(name_of(path), offset, bytes);
    recorder_position();
}

bool files_fill(const char *, uint64_t, uint64_t) { return true; } /* no byte changes */

void files_unlink(const char *path) {
    recorder_position();
    if (unlink(path) == 0)
        recorder_unlinked(name_of(path));
    recorder_position();
}

} // namespace pallocator
