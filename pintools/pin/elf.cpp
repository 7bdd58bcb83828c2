/* SPDX-License-Identifier: Apache-2.0
 *
 * elf.cpp - see elf.h. Layouts: the System V ABI, "Object Files"; System V ABI AMD64, "Notes".
 */
#include "elf.h"

#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

namespace {

struct Header {
    unsigned char identity[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, segments_at, sections_at;
    uint32_t flags;
    uint16_t header_bytes, segment_bytes, segment_count, section_bytes, section_count, names_index;
};

struct Segment {
    uint32_t type, flags;
    uint64_t offset, address, physical, file_bytes, memory_bytes, alignment;
};

struct Note {
    uint32_t name_bytes, content_bytes, type;
};

static_assert(sizeof(Header) == 64 && sizeof(Segment) == 56 && sizeof(Note) == 12, "as the ABI lays them out");

const uint32_t LOADED = 1, NOTES = 4, BUILD_ID = 3;
const uint64_t PAGE = 4096, MOST_NOTE_BYTES = 1 << 16;

bool read_at(int descriptor, uint64_t offset, void *to, size_t bytes) {
    return lseek(descriptor, off_t(offset), SEEK_SET) == off_t(offset) && read(descriptor, to, bytes) == ssize_t(bytes);
}

size_t padded(size_t bytes) { return (bytes + 3) & ~size_t(3); }

std::string hex_of(const unsigned char *bytes, size_t count) {
    static const char DIGITS[] = "0123456789abcdef";
    std::string hex;
    for (size_t i = 0; i < count; i++) {
        hex.push_back(DIGITS[bytes[i] >> 4]);
        hex.push_back(DIGITS[bytes[i] & 15]);
    }
    return hex;
}

std::string build_id_in(const std::vector<unsigned char> &notes) {
    size_t at = 0;
    while (at + sizeof(Note) <= notes.size()) {
        Note note;
        std::memcpy(&note, &notes[at], sizeof note);
        size_t content = at + sizeof note + padded(note.name_bytes);
        if (note.name_bytes > notes.size() || note.content_bytes > notes.size() || content + note.content_bytes > notes.size())
            return "";
        if (note.type == BUILD_ID && note.name_bytes == 4 && std::memcmp(&notes[at + sizeof note], "GNU", 4) == 0)
            return hex_of(&notes[content], note.content_bytes);
        at = content + padded(note.content_bytes);
    }
    return "";
}

bool holds(const Segment &segment, uint64_t offset) {
    return segment.type == LOADED && (segment.offset & ~(PAGE - 1)) <= offset && offset < segment.offset + segment.file_bytes;
}

bool look_up(int descriptor, uint64_t offset, uint64_t *address, std::string *build_id) {
    Header header;
    bool is_found = false;
    if (!read_at(descriptor, 0, &header, sizeof header) || std::memcmp(header.identity, "\177ELF\2", 5) != 0)
        return false;
    for (unsigned i = 0; i < header.segment_count; i++) {
        Segment segment;
        if (!read_at(descriptor, header.segments_at + uint64_t(i) * header.segment_bytes, &segment, sizeof segment))
            return false;
        if (!is_found && holds(segment, offset)) {
            *address = segment.address - segment.offset + offset;
            is_found = true;
        }
        if (segment.type == NOTES && segment.file_bytes <= MOST_NOTE_BYTES && build_id->empty()) {
            std::vector<unsigned char> notes(segment.file_bytes);
            if (!notes.empty() && read_at(descriptor, segment.offset, &notes[0], notes.size()))
                *build_id = build_id_in(notes);
        }
    }
    return is_found;
}

} // namespace

bool elf_look_up(const std::string &path, uint64_t offset, uint64_t *address, std::string *build_id) {
    int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    bool is_found = look_up(descriptor, offset, address, build_id);
    close(descriptor);
    return is_found;
}
