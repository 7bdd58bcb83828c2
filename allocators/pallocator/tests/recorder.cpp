/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.cpp - see recorder.h.
 */
#include "recorder.h"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "persist.h"

Recorder *Recorder::current;

static constexpr size_t LINE = 64, STEP = 4096;

Recorder::Recorder(std::string folder, std::function<void()> on_position)
    : folder(std::move(folder)), on_position(std::move(on_position)) {
    for (const std::string &name : names_in(this->folder))
        adopt(name);
    find_mappings();
}

Recorder::~Recorder() {
    for (auto &[name, file] : files)
        munmap(file.base, file.newest.size());
    if (current == this)
        current = nullptr;
}

/* A file as it is now: persisted. */
void Recorder::adopt(const std::string &name) {
    int fd = open((folder + "/" + name).c_str(), O_RDONLY);
    struct stat info;
    assert(fd >= 0 && fstat(fd, &info) == 0);
    size_t bytes = static_cast<size_t>(info.st_size);
    char *base = static_cast<char *>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0));
    assert(base != MAP_FAILED);
    close(fd);
    files[name] = {base, std::vector<char>(base, base + bytes), {}};
}

/* ---- versions ---- */

void Recorder::add_version(File &file, size_t number, bool is_torn) {
    Line &line = file.lines[number];
    Version version;
    if (line.versions.empty()) {
        memcpy(version.content, &file.newest[number * LINE], LINE);
        version.is_torn = false;
        line.versions.push_back(version);
    }
    memcpy(version.content, file.base + number * LINE, LINE);
    version.is_torn = is_torn;
    line.versions.push_back(version);
    memcpy(&file.newest[number * LINE], file.base + number * LINE, LINE);
}

void Recorder::notice_changes() {
    for (auto &[name, file] : files)
        for (size_t from = 0; from < file.newest.size(); from += STEP) {
            if (memcmp(&file.newest[from], file.base + from, STEP) == 0)
                continue;
            for (size_t at = from; at < from + STEP; at += LINE)
                if (memcmp(&file.newest[at], file.base + at, LINE) != 0)
                    add_version(file, at / LINE, true);
        }
}

Recorder::File *Recorder::find(const void *address, size_t *offset) {
    const char *at = static_cast<const char *>(address);
    for (const Range &range : ranges)
        if (at >= range.start && at < range.start + range.bytes) {
            auto found = files.find(range.name);
            *offset = static_cast<size_t>(at - range.start);
            return found == files.end() ? nullptr : &found->second;
        }
    return nullptr;
}

void Recorder::position() {
    notice_changes();
    Recorder *self = current;
    current = nullptr;
    on_position();
    current = self;
}

/* ---- hooks ---- */

/* Where the heap has its files, the kernel knows; the recorder's own mappings are for reading only. */
void Recorder::find_mappings() {
    ranges.clear();
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long long start, end;
    while (fgets(line, sizeof line, maps) != nullptr) {
        const char *path = strchr(line, '/');
        if (path == nullptr || strstr(line, " rw-s ") == nullptr || sscanf(line, "%llx-%llx", &start, &end) != 2)
            continue;
        std::string name(path);
        name.pop_back();
        if (name.compare(0, folder.size() + 1, folder + "/") == 0)
            ranges.push_back({reinterpret_cast<char *>(start), end - start, name.substr(folder.size() + 1)});
    }
    fclose(maps);
}

bool Recorder::store8(void *address, uint64_t value) {
    size_t offset;
    notice_changes();
    File *file = find(address, &offset);
    if (file == nullptr)
        return false;
    __atomic_store_n(static_cast<uint64_t *>(address), value, __ATOMIC_RELEASE);
    if (memcmp(&file->newest[offset / LINE * LINE], file->base + offset / LINE * LINE, LINE) != 0)
        add_version(*file, offset / LINE, false);
    position();
    return true;
}

void Recorder::flush_line(const void *address) {
    size_t offset;
    notice_changes();
    File *file = find(address, &offset);
    auto found = file == nullptr ? std::map<size_t, Line>::iterator{} : file->lines.find(offset / LINE);
    if (file != nullptr && found != file->lines.end())
        found->second.flushed = found->second.versions.size() - 1;
}

void Recorder::fence() {
    notice_changes();
    for (auto &[name, file] : files)
        for (auto at = file.lines.begin(); at != file.lines.end();) {
            Line &line = at->second;
            line.floor = std::max(line.floor, line.flushed);
            at = line.floor + 1 == line.versions.size() ? file.lines.erase(at) : std::next(at);
        }
    position();
}

void Recorder::created(const std::string &path, uint64_t) {
    adopt(path.substr(folder.size() + 1));
    position();
}

void Recorder::punched(const std::string &path, uint64_t offset, uint64_t bytes) {
    File &file = files.at(path.substr(folder.size() + 1));
    std::fill_n(file.newest.begin() + static_cast<long>(offset), bytes, 0);
    for (size_t line = offset / LINE; line < (offset + bytes) / LINE; line++)
        file.lines.erase(line);
    position();
}

void Recorder::unlinked(const std::string &path) {
    auto found = files.find(path.substr(folder.size() + 1));
    if (found == files.end())
        return;
    munmap(found->second.base, found->second.newest.size());
    files.erase(found);
    position();
}

void recorder_mapped(void *, size_t, size_t) {
    if (Recorder::current != nullptr)
        Recorder::current->find_mappings();
}

void recorder_store8(void *address, uint64_t value) {
    assert(reinterpret_cast<uintptr_t>(address) % sizeof value == 0);
    if (Recorder::current == nullptr || !Recorder::current->store8(address, value))
        __atomic_store_n(static_cast<uint64_t *>(address), value, __ATOMIC_RELEASE);
}

void recorder_flush_line(const void *address) {
    if (Recorder::current != nullptr)
        Recorder::current->flush_line(address);
}

void recorder_fence() {
    if (Recorder::current != nullptr)
        Recorder::current->fence();
}

/* ---- files.h, without fsync ---- */

namespace pallocator {

int files_create(const char *path, uint64_t bytes) {
    if (Recorder::current != nullptr)
        Recorder::current->position();
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0)
        abort();
    if (fd >= 0 && Recorder::current != nullptr)
        Recorder::current->created(path, bytes);
    return fd;
}

void files_punch(const char *path, uint64_t offset, uint64_t bytes) {
    if (Recorder::current != nullptr)
        Recorder::current->position();
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 ||
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
        abort();
    close(fd);
    if (Recorder::current != nullptr)
        Recorder::current->punched(path, offset, bytes);
}

void files_unlink(const char *path) {
    if (Recorder::current != nullptr)
        Recorder::current->position();
    bool was_there = unlink(path) == 0;
    if (was_there && Recorder::current != nullptr)
        Recorder::current->unlinked(path);
}

} // namespace pallocator

/* ---- images ---- */

/* The units of a torn version over the version before it. */
static void tear(const char *before, const char *version, uint64_t units, char *content) {
    for (unsigned unit = 0; unit < LINE / 8; unit++)
        memcpy(content + unit * 8, (units >> unit & 1 ? version : before) + unit * 8, 8);
}

Image Recorder::image(Kind kind, uint64_t &random) const {
    Image image;
    uint64_t eagerness = next_random(&random) % 5; /* how often a line is the newest differs between images */
    for (auto &[name, file] : files) {
        std::vector<char> &content = image[name] = file.newest;
        if (kind == Kind::PREFIX)
            continue;
        for (auto &[number, line] : file.lines) {
            size_t cut = line.floor, choices = line.versions.size() - line.floor;
            if (kind == Kind::RANDOM) {
                uint64_t way = next_random(&random) % 4;
                if (way < eagerness)
                    cut = line.versions.size() - 1;
                if (way == 3)
                    cut = line.floor + next_random(&random) % choices;
            }
            const Version &version = line.versions[cut];
            memcpy(&content[number * LINE], version.content, LINE);
            if (kind == Kind::RANDOM && cut > line.floor && version.is_torn)
                tear(line.versions[cut - 1].content, version.content, next_random(&random), &content[number * LINE]);
        }
    }
    return image;
}

std::vector<std::string> names_in(const std::string &folder) {
    std::vector<std::string> names;
    DIR *listing = opendir(folder.c_str());
    assert(listing != nullptr);
    while (dirent *entry = readdir(listing))
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    closedir(listing);
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
