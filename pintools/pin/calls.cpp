/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.cpp - see calls.h.
 */
#include "calls.h"

#include "numbers.h"
#include "outputs.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <unistd.h>

namespace {

/* Of the kernel's headers, which the C library of a Pin kit does not have all of. */
const uint64_t PAGE = 4096;
const uint64_t CREATES = 0100, EXCLUSIVE = 0200, TRUNCATES = 01000, ACCESS = 3, APPENDS = 02000, SYNCHRONOUS = 010000,
               NAMELESS = 020000000; /* O_TMPFILE's own bit */
const uint64_t MAP_TYPE_MASK = 0xf, PRIVATE = 2, VALIDATED = 3, ANONYMOUS = 0x20, SYNCED = 0x80000, WRITABLE = 2,
               NOT_REPLACING = 0x100000;
const uint64_t KEEPS_OLD = 4; /* MREMAP_DONTUNMAP */
const uint64_t SYNC_NOW = 4;  /* MS_SYNC */
const uint64_t REMOVES = 9;   /* MADV_REMOVE */
const uint64_t REMOVES_FOLDER = 0x200; /* AT_REMOVEDIR */
const uint64_t EXCHANGES = 2, WHITEOUT = 4;
const uint64_t KEEPS_SIZE = 1, PUNCHES = 2, ZEROES = 0x10; /* fallocate */
const uint64_t WRITE_SYNCED = 0x06, WRITE_APPENDS = 0x10;  /* RWF_DSYNC, RWF_SYNC; RWF_APPEND */
const uint64_t CLONE = 0x40049409, CLONE_RANGE = 0x4020940d, DEDUPE_RANGE = 0xc0189436;
const uint64_t MOST_PIECES = 1024; /* UIO_MAXIOV */
const uint64_t MOST_BYTES = 1ull << 30; /* of one record */
const uint64_t LONGEST_ERRNO = 4095, RESTARTS = 512;

uint64_t whole_pages(uint64_t bytes) { return (bytes + PAGE - 1) & ~(PAGE - 1); }

/* A number of /proc/N/fdinfo/M ("pos:\t12"), in the base that the kernel writes it in. */
uint64_t fdinfo(const Target &target, int descriptor, const char *key, int base) {
    char text[512];
    std::string path = target.proc() + "/fdinfo/" + std::to_string(descriptor);
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    text[bytes < 0 ? 0 : bytes] = '\0';
    const char *at = std::strstr(text, key);
    return at == nullptr ? 0 : std::strtoull(at + std::strlen(key), nullptr, base);
}

bool is_there(const std::string &path, struct stat *status) { return stat(path.c_str(), status) == 0; }

/* Starts like a program or a script, so that execve will not fail with ENOEXEC (a shell then tries another way). */
bool is_program(const std::string &path) {
    struct stat status;
    char start[4] = {0};
    if (!is_there(path, &status) || !S_ISREG(status.st_mode) || (status.st_mode & 0111) == 0)
        return false;
    int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return true; /* executable, not readable */
    ssize_t bytes = read(file, start, sizeof start);
    close(file);
    return bytes == ssize_t(sizeof start) && (std::memcmp(start, "\177ELF", 4) == 0 || std::memcmp(start, "#!", 2) == 0);
}

bool is_address_space(uint64_t number) {
    return number == SYS_mmap || number == SYS_munmap || number == SYS_mremap || number == SYS_brk;
}

} // namespace

bool read_pieces(const Target &target, uint64_t array, uint64_t count, std::vector<Range> *pieces) {
    uint64_t piece[2];
    if (count > MOST_PIECES)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        if (!target.read(array + i * sizeof piece, piece, sizeof piece))
            return false;
        pieces->push_back(Range{piece[0], piece[0] + piece[1]});
    }
    return true;
}

void Traced::refuse(uint16_t thread, const std::string &text) {
    fl_record record = fl_record();
    record.kind = FL_UNSUPPORTED;
    record.thread = thread;
    writer.emit_text(record, text);
}

bool Traced::emit_store(const Part &part, uint8_t detail, uint16_t thread, uint32_t site) {
    std::vector<uint8_t> bytes;
    for (uint64_t at = part.start; at < part.end; at += bytes.size()) {
        bytes.resize(size_t(std::min(part.end - at, MOST_BYTES)));
        if (!target->read(at, &bytes[0], bytes.size()))
            return false;
        fl_record record = fl_record();
        record.kind = FL_STORE;
        record.detail = detail;
        record.thread = thread;
        record.site = site;
        record.file = part.mapping->file;
        record.size = uint32_t(bytes.size());
        record.offset = part.mapping->offset_of(at);
        if (bytes.size() <= sizeof record.value) {
            std::memcpy(&record.value, &bytes[0], bytes.size());
            writer.emit(record);
        } else {
            writer.emit_with(record, &bytes[0], bytes.size());
        }
    }
    return true;
}

/* ---- pairs of records ---- */

uint32_t Caller::site() {
    return traced_.sites.site(*traced_.target, stack_, instruction_, stack_pointer_, Place::CALL, &traced_.writer);
}

fl_record Caller::record(uint8_t kind, uint8_t operation, uint32_t file) {
    fl_record made = fl_record();
    made.kind = kind;
    made.detail = operation;
    made.thread = thread_;
    made.site = site();
    made.file = file;
    return made;
}

/* A thread has one operation at a time in the trace: of the further ones of one call the begin is written when the one before ended. */
void Caller::begin(uint8_t operation, uint32_t file, uint64_t offset, uint64_t value) {
    SystemCall::Begun begun;
    begun.begin = record(FL_FILE_BEGIN, operation, file);
    begun.begin.offset = offset;
    begun.begin.value = value;
    begun.is_written = call_.begun.empty();
    if (begun.is_written)
        traced_.writer.emit(begun.begin);
    call_.begun.push_back(begun);
}

void Caller::begin_named(uint8_t operation, uint32_t file, const std::string &name) {
    SystemCall::Begun begun;
    begun.begin = record(FL_FILE_BEGIN, operation, file);
    begun.text = name;
    begun.is_written = true;
    traced_.writer.emit_text(begun.begin, name);
    call_.begun.push_back(begun);
}

void Caller::end_all(uint64_t error) {
    for (SystemCall::Begun &begun : call_.begun) {
        if (!begun.is_written)
            traced_.writer.emit(begun.begin);
        fl_record end = begun.begin;
        end.kind = FL_FILE_END;
        end.value = error;
        end.size = 0;
        traced_.writer.emit_text(end, begun.text);
    }
    call_.begun.clear();
    if (call_.takes_name_away && error == 0) {
        if (call_.new_name.empty())
            traced_.files.removed(call_.old_name);
        else
            traced_.files.renamed(call_.old_name, call_.new_name);
    }
    call_.takes_name_away = false;
    call_.created = 0;
    call_.bytes_to_write = 0;
}

/* ---- names ---- */

/* A path argument that leads below the PM folder. */
bool Caller::pm_path(int folder, Word path, std::string *relative, std::string *absolute) {
    std::string text;
    return traced_.target->read_text(path, &text) && traced_.files.resolve(*traced_.target, folder, text, absolute) &&
           traced_.files.is_below(*absolute, relative);
}

uint32_t Caller::pm_file(int descriptor, struct stat *status) {
    return traced_.files.of_descriptor(*traced_.target, descriptor, status, &traced_.writer);
}

/* A later run may believe what this one keeps there. */
void Caller::before_open_outside(const std::string &absolute, Word flags) {
    struct stat status;
    bool exists = is_there(absolute, &status);
    bool is_written = exists && S_ISREG(status.st_mode) && (flags & ACCESS) != 0;
    bool is_made = !exists && (flags & CREATES) != 0;
    if ((is_written || is_made) && (flags & NAMELESS) == 0 && traced_.files.is_state_outside(absolute))
        unsupported("it changes " + absolute + ", which is no file of the heap: no crash image holds what it keeps there");
}

void Caller::before_open_below(const std::string &relative, const std::string &absolute, Word flags) {
    struct stat status;
    bool may_create = (flags & CREATES) != 0;
    if ((flags & NAMELESS) != 0) {
        unsupported("open(O_TMPFILE) in " + relative + ": a file without a name");
    } else if (!is_there(absolute, &status)) {
        if (!may_create)
            return;
        uint32_t file = traced_.files.make(relative, &traced_.writer);
        begin(FL_CREATE, file, 0, 0);
        call_.created = file;
    } else if ((flags & TRUNCATES) != 0 && (flags & ACCESS) != 0 && S_ISREG(status.st_mode) &&
               !(may_create && (flags & EXCLUSIVE))) {
        begin(FL_TRUNCATE, traced_.files.id_of(status, relative, &traced_.writer), 0, 0);
    }
}

void Caller::before_open(int folder, Word path, Word flags) {
    std::string text, relative, absolute;
    if (!traced_.target->read_text(path, &text) || !traced_.files.resolve(*traced_.target, folder, text, &absolute))
        return;
    if (traced_.files.is_below(absolute, &relative))
        before_open_below(relative, absolute, flags);
    else
        before_open_outside(absolute, flags);
}

void Caller::after_open(int descriptor) {
    struct stat status;
    if (call_.created != 0 && is_there(traced_.target->proc() + "/fd/" + std::to_string(descriptor), &status))
        traced_.files.bind(call_.created, status);
}

void Caller::before_truncate_path() {
    std::string relative, absolute;
    struct stat status;
    if (pm_path(AT_FDCWD, call_.arguments[0], &relative, &absolute) && is_there(absolute, &status) && S_ISREG(status.st_mode))
        begin(FL_TRUNCATE, traced_.files.id_of(status, relative, &traced_.writer), call_.arguments[1], 0);
}

void Caller::before_unlink(int folder, Word path, bool is_folder) {
    std::string relative, absolute;
    struct stat status;
    if (!pm_path(folder, path, &relative, &absolute))
        return;
    if (is_folder) {
        begin_named(FL_RMDIR, 0, relative);
    } else if (is_there(absolute, &status) && S_ISREG(status.st_mode)) {
        begin(FL_UNLINK, traced_.files.id_of(status, relative, &traced_.writer), 0, 0);
        call_.takes_name_away = true;
        call_.old_name = relative;
        call_.new_name.clear();
    }
}

void Caller::before_rename(int old_folder, Word old_path, int new_folder, Word new_path, Word flags) {
    std::string from, to, old_absolute, new_absolute;
    struct stat status;
    bool is_from = pm_path(old_folder, old_path, &from, &old_absolute), is_to = pm_path(new_folder, new_path, &to, &new_absolute);
    if (!is_from && !is_to)
        return;
    if (!is_from || !is_to || (flags & (EXCHANGES | WHITEOUT)) != 0) {
        unsupported("rename of " + (is_from ? from : "a file outside") + " to " + (is_to ? to : "a name outside") +
                    ": across the edge of the PM folder, or an exchange");
    } else if (is_there(old_absolute, &status)) {
        begin_named(FL_RENAME, traced_.files.id_of(status, from, &traced_.writer), to);
        call_.takes_name_away = true;
        call_.old_name = from;
        call_.new_name = to;
    }
}

void Caller::before_mkdir(int folder, Word path) {
    std::string relative, absolute;
    if (pm_path(folder, path, &relative, &absolute))
        begin_named(FL_MKDIR, 0, relative);
}

void Caller::refuse_name(const char *what, int folder, Word path) {
    std::string relative, absolute;
    if (pm_path(folder, path, &relative, &absolute))
        unsupported(std::string(what) + " makes " + relative);
}

/* ---- content ---- */

void Caller::before_truncate() {
    struct stat status;
    if (uint32_t file = pm_file(int(call_.arguments[0]), &status))
        begin(FL_TRUNCATE, file, call_.arguments[1], 0);
}

/* With KEEP_SIZE the range is clipped to the file: FL_ALLOCATE grows the file, and what it adds within is nothing. */
void Caller::before_fallocate() {
    struct stat status;
    uint32_t file = pm_file(int(call_.arguments[0]), &status);
    if (file == 0)
        return;
    Word mode = call_.arguments[1], offset = call_.arguments[2], bytes = call_.arguments[3], size = Word(status.st_size);
    Word inside = offset >= size ? 0 : std::min(bytes, size - offset);
    bool keeps_size = (mode & KEEPS_SIZE) != 0;
    if (keeps_size && inside == 0)
        return; /* nothing of the file changes */
    if ((mode & ~KEEPS_SIZE) == 0)
        begin(FL_ALLOCATE, file, offset, keeps_size ? inside : bytes);
    else if (mode == (PUNCHES | KEEPS_SIZE))
        begin(FL_PUNCH, file, offset, bytes);
    else if ((mode & ~KEEPS_SIZE) == ZEROES && (keeps_size || inside == bytes))
        begin(FL_PUNCH, file, offset, inside);
    else
        unsupported("fallocate with mode " + std::to_string(mode));
}

void Caller::before_fsync() {
    struct stat status;
    std::string folder;
    int descriptor = int(call_.arguments[0]);
    if (uint32_t file = pm_file(descriptor, &status))
        begin(FL_FSYNC, file, 0, 0);
    else if (traced_.files.is_folder(*traced_.target, descriptor, &folder))
        begin_named(FL_SYNC_FOLDER, 0, folder);
}

/* Of the file system that holds the PM folder, as far as the descriptor tells: it leads there, or there is none. */
void Caller::before_sync_all(int descriptor) {
    std::string path;
    if (descriptor < 0 || traced_.files.is_in_folder(*traced_.target, descriptor, &path))
        begin(FL_SYNC_ALL, 0, 0, 0);
}

/* msync and madvise(MADV_REMOVE): for each shared mapping in the range. */
void Caller::before_range(uint8_t operation) {
    Word start = call_.arguments[0];
    for (const Part &part : traced_.maps.parts(start, start + whole_pages(call_.arguments[1])))
        begin(operation, part.mapping->file, part.mapping->offset_of(part.start), part.end - part.start);
}

/* flags: of pwritev2. What is written synchronously is a write, and then a sync of what it wrote. */
void Caller::write_pieces(const std::vector<Range> &pieces, bool is_positioned, Word position, Word flags) {
    struct stat status;
    int descriptor = int(call_.arguments[0]);
    uint32_t file = pm_file(descriptor, &status);
    std::vector<uint8_t> bytes;
    uint64_t count = 0;
    if (file == 0)
        return;
    for (const Range &piece : pieces)
        count += piece.end - piece.start;
    if (count > MOST_BYTES) {
        unsupported("a write of " + std::to_string(count) + " bytes at once");
        return;
    }
    bytes.resize(size_t(count));
    size_t at = 0;
    for (const Range &piece : pieces) {
        if (piece.end > piece.start && !traced_.target->read(piece.start, &bytes[at], size_t(piece.end - piece.start)))
            return; /* the call fails: EFAULT */
        at += size_t(piece.end - piece.start);
    }
    if (count == 0)
        return;
    Word mode = fdinfo(*traced_.target, descriptor, "flags:", 8);
    if (((flags & WRITE_APPENDS) | (mode & APPENDS)) != 0)
        position = Word(status.st_size);
    else if (!is_positioned)
        position = fdinfo(*traced_.target, descriptor, "pos:", 10);
    SystemCall::Begun begun;
    begun.begin = record(FL_FILE_BEGIN, FL_WRITE, file);
    begun.begin.offset = position;
    begun.is_written = true;
    fl_record written = begun.begin;
    written.size = uint32_t(count);
    traced_.writer.emit_with(written, &bytes[0], bytes.size());
    call_.begun.push_back(begun);
    if (((flags & WRITE_SYNCED) | (mode & SYNCHRONOUS)) != 0)
        begin(FL_MSYNC, file, position, count);
    call_.bytes_to_write = count;
}

void Caller::before_write(bool is_positioned) {
    const Word *a = call_.arguments;
    write_pieces(std::vector<Range>(1, Range{a[1], a[1] + a[2]}), is_positioned, is_positioned ? a[3] : 0, 0);
}

void Caller::before_vector_write(bool is_positioned, Word flags) {
    const Word *a = call_.arguments;
    std::vector<Range> pieces;
    if (read_pieces(*traced_.target, a[1], a[2], &pieces))
        write_pieces(pieces, is_positioned, is_positioned ? a[3] : 0, flags);
}

void Caller::refuse_content(const char *what, int descriptor) {
    struct stat status;
    if (pm_file(descriptor, &status) != 0)
        unsupported(std::string(what) + " writes a file of the PM folder");
}

/* The new program is not traced, and this one ends without another word: its last record is written now. */
void Caller::before_exec(int folder, Word path) {
    std::string text, absolute;
    if (!traced_.target->read_text(path, &text) || !traced_.files.resolve(*traced_.target, folder, text, &absolute) ||
        !is_program(absolute))
        return;
    unsupported("execve of " + absolute + ": the new program is not traced");
    fl_record end = fl_record();
    end.kind = FL_PROCESS_END;
    traced_.writer.emit(end);
    traced_.writer.flush();
    call_.has_ended = true;
}

/* ---- before a call ---- */

bool Caller::begins_named_operation() {
    const Word *a = call_.arguments;
    Word flags = 0;
    switch (call_.number) {
    case SYS_open: before_open(AT_FDCWD, a[0], a[1]); return true;
    case SYS_openat: before_open(int(a[0]), a[1], a[2]); return true;
    case SYS_openat2:
        if (traced_.target->read(a[2], &flags, sizeof flags))
            before_open(int(a[0]), a[1], flags);
        return true;
    case SYS_creat: before_open(AT_FDCWD, a[0], CREATES | TRUNCATES | 1); return true;
    case SYS_truncate: before_truncate_path(); return true;
    case SYS_unlink: before_unlink(AT_FDCWD, a[0], false); return true;
    case SYS_unlinkat: before_unlink(int(a[0]), a[1], (a[2] & REMOVES_FOLDER) != 0); return true;
    case SYS_rmdir: before_unlink(AT_FDCWD, a[0], true); return true;
    case SYS_rename: before_rename(AT_FDCWD, a[0], AT_FDCWD, a[1], 0); return true;
    case SYS_renameat: before_rename(int(a[0]), a[1], int(a[2]), a[3], 0); return true;
    case SYS_renameat2: before_rename(int(a[0]), a[1], int(a[2]), a[3], a[4]); return true;
    case SYS_mkdir: before_mkdir(AT_FDCWD, a[0]); return true;
    case SYS_mkdirat: before_mkdir(int(a[0]), a[1]); return true;
    case SYS_execve: before_exec(AT_FDCWD, a[0]); return true;
    case SYS_execveat: before_exec(int(a[0]), a[1]); return true;
    default: return false;
    }
}

bool Caller::begins_content_operation() {
    const Word *a = call_.arguments;
    switch (call_.number) {
    case SYS_ftruncate: before_truncate(); return true;
    case SYS_fallocate: before_fallocate(); return true;
    case SYS_fsync:
    case SYS_fdatasync: before_fsync(); return true;
    case SYS_sync: before_sync_all(-1); return true;
    case SYS_syncfs: before_sync_all(int(a[0])); return true;
    case SYS_msync:
        if ((a[2] & SYNC_NOW) != 0)
            before_range(FL_MSYNC);
        return true;
    case SYS_madvise:
        if (a[2] == REMOVES)
            before_range(FL_PUNCH);
        return true;
    case SYS_write: before_write(false); return true;
    case SYS_pwrite64: before_write(true); return true;
    case SYS_writev: before_vector_write(false, 0); return true;
    case SYS_pwritev: before_vector_write(true, 0); return true;
    case SYS_pwritev2: before_vector_write(a[3] != Word(-1), a[5]); return true;
    default: return false;
    }
}

void Caller::begins_refused() {
    const Word *a = call_.arguments;
    switch (call_.number) {
    case SYS_link: refuse_name("link", AT_FDCWD, a[1]); break;
    case SYS_linkat: refuse_name("linkat", int(a[2]), a[3]); break;
    case SYS_symlink: refuse_name("symlink", AT_FDCWD, a[1]); break;
    case SYS_symlinkat: refuse_name("symlinkat", int(a[1]), a[2]); break;
    case SYS_mknod: refuse_name("mknod", AT_FDCWD, a[0]); break;
    case SYS_mknodat: refuse_name("mknodat", int(a[0]), a[1]); break;
    case SYS_copy_file_range: refuse_content("copy_file_range", int(a[2])); break;
    case SYS_splice: refuse_content("splice", int(a[2])); break;
    case SYS_sendfile: refuse_content("sendfile", int(a[0])); break;
    case SYS_ioctl:
        if (uint32_t(a[1]) == CLONE || uint32_t(a[1]) == CLONE_RANGE || uint32_t(a[1]) == DEDUPE_RANGE)
            refuse_content("a clone ioctl", int(a[0]));
        break;
    case SYS_io_submit: unsupported("io_submit: asynchronous writes are not followed"); break;
    case SYS_io_uring_enter: unsupported("io_uring_enter: asynchronous writes are not followed"); break;
    case SYS_process_vm_writev:
        if (int(a[0]) != traced_.target->number())
            unsupported("process_vm_writev: writes into another process are not followed");
        break;
    case SYS_remap_file_pages: unsupported("remap_file_pages"); break;
    case SYS_futex:
        if ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE_OP && traced_.maps.find(a[4]) != nullptr)
            unsupported("FUTEX_WAKE_OP: the kernel changes persistent memory");
        break;
    default: break;
    }
}

void Caller::begins() {
    if (!call_.begun.empty())
        end_all(EINTR); /* a signal came before the call took place; it is being restarted */
    if (!begins_named_operation() && !begins_content_operation())
        begins_refused();
}

/* ---- mappings ---- */

void Caller::after_mmap(uint64_t start) {
    const Word *a = call_.arguments;
    uint64_t end = start + whole_pages(a[1]);
    Word type = a[3] & MAP_TYPE_MASK;
    struct stat status;
    traced_.maps.remove(start, end, thread_, &traced_.writer); /* MAP_FIXED over others */
    if ((a[3] & ANONYMOUS) != 0)
        return;
    uint32_t file = pm_file(int(a[4]), &status);
    if (file == 0)
        return;
    unsigned flags = type == PRIVATE ? FL_MAP_PRIVATE : FL_MAP_SHARED;
    if (type == VALIDATED && (a[3] & SYNCED) != 0)
        flags |= FL_MAP_SYNCED;
    if ((a[2] & WRITABLE) != 0)
        flags |= FL_MAP_WRITABLE;
    traced_.maps.add(Mapping{start, end, a[5], file, uint8_t(flags)}, thread_, &traced_.writer);
}

/* The file system has no MAP_SYNC, and the process may go on without. Beside MAP_FIXED_NOREPLACE Linux refuses it on every one. */
void Caller::after_refused_mmap(uint64_t error) {
    const Word *a = call_.arguments;
    bool is_asked = (a[3] & MAP_TYPE_MASK) == VALIDATED && (a[3] & SYNCED) != 0 && (a[3] & (ANONYMOUS | NOT_REPLACING)) == 0;
    struct stat status;
    uint32_t file = is_asked && (error == EOPNOTSUPP || error == EINVAL) ? pm_file(int(a[4]), &status) : 0;
    if (file == 0)
        return;
    fl_record refused = fl_record();
    refused.kind = FL_MAP;
    refused.detail = FL_MAP_SHARED | FL_MAP_REFUSED;
    refused.thread = thread_;
    refused.file = file;
    refused.offset = a[5];
    traced_.writer.emit(refused);
}

void Caller::after_mremap(uint64_t start) {
    const Word *a = call_.arguments;
    uint64_t old = a[0], old_bytes = whole_pages(a[1]), bytes = whole_pages(a[2]);
    const Mapping *found = traced_.maps.find_any(old);
    bool is_followed = found != nullptr;
    Mapping moved = is_followed ? *found : Mapping();
    if (old_bytes > 0 && (a[3] & KEEPS_OLD) == 0)
        traced_.maps.remove(old, old + old_bytes, thread_, &traced_.writer);
    traced_.maps.remove(start, start + bytes, thread_, &traced_.writer);
    if (is_followed)
        traced_.maps.add(Mapping{start, start + bytes, moved.offset_of(old), moved.file, moved.flags}, thread_, &traced_.writer);
}

void Caller::after_unmap() {
    Word start = call_.arguments[0];
    traced_.maps.remove(start, start + whole_pages(call_.arguments[1]), thread_, &traced_.writer);
}

void Caller::change_mappings(uint64_t result) {
    const Word *a = call_.arguments;
    switch (call_.number) {
    case SYS_mmap:
        after_mmap(result);
        traced_.sites.memory_changed(result, result + whole_pages(a[1]));
        break;
    case SYS_munmap:
        after_unmap();
        traced_.sites.memory_changed(a[0], a[0] + whole_pages(a[1]));
        break;
    case SYS_mremap:
        after_mremap(result);
        traced_.sites.memory_changed(a[0], a[0] + whole_pages(a[1]));
        break;
    default: break;
    }
}

/* ---- what the kernel wrote ---- */

/* One copy, as of rep movs. */
void Caller::kernel_wrote(uint64_t start, uint64_t bytes) {
    for (const Part &part : traced_.maps.parts(start, start + bytes))
        traced_.emit_store(part, FL_STORE_REP, thread_, site());
}

void Caller::kernel_filled(Word array, Word count, uint64_t bytes) {
    std::vector<Range> pieces;
    if (!read_pieces(*traced_.target, array, count, &pieces))
        return;
    for (const Range &piece : pieces) {
        uint64_t written = std::min(piece.end - piece.start, bytes);
        if (written > 0)
            kernel_wrote(piece.start, written);
        bytes -= written;
    }
}

/* False: the call is none that outputs.cpp knows. */
bool Caller::kernel_writes(uint64_t result) {
    const Word *a = call_.arguments;
    bool is_known = false;
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        const Output &output = OUTPUTS[i];
        if (output.number != call_.number)
            continue;
        is_known = true;
        if (a[output.argument] == 0)
            continue;
        switch (output.extent) {
        case Extent::NOTHING: break;
        case Extent::FIXED: kernel_wrote(a[output.argument], output.operand); break;
        case Extent::RESULT: kernel_wrote(a[output.argument], result); break;
        case Extent::MULTIPLE: kernel_wrote(a[output.argument], output.operand * result); break;
        case Extent::ARRAY: kernel_wrote(a[output.argument], 8 * a[output.operand]); break;
        case Extent::PIECES: kernel_filled(a[output.argument], a[output.operand], result); break;
        }
    }
    return is_known;
}

void Caller::look_for_unknown() {
    for (Word argument : call_.arguments) {
        if (traced_.maps.find(argument) == nullptr)
            continue;
        unsupported("system call " + std::to_string(call_.number) +
                    " is given an address of persistent memory: what it writes there is not followed");
        return;
    }
}

/* ---- after a call ---- */

void Caller::ends(int64_t result) {
    bool has_failed = result < 0 && uint64_t(-result) <= LONGEST_ERRNO;
    if (!has_failed) {
        if (call_.created != 0)
            after_open(int(result));
        if (call_.bytes_to_write != 0 && uint64_t(result) != call_.bytes_to_write)
            unsupported("write of " + std::to_string(call_.bytes_to_write) + " bytes wrote " + std::to_string(result) + " only");
        if (is_address_space(call_.number))
            change_mappings(uint64_t(result));
        else if (call_.number == SYS_process_vm_writev && int(call_.arguments[0]) == traced_.target->number())
            kernel_filled(call_.arguments[3], call_.arguments[4], uint64_t(result));
        if (!kernel_writes(uint64_t(result)))
            look_for_unknown();
    }
    uint64_t error = has_failed ? uint64_t(-result) : 0;
    if (has_failed && call_.number == SYS_mmap)
        after_refused_mmap(error);
    end_all(error >= RESTARTS && error < RESTARTS + 8 ? uint64_t(EINTR) : error);
}
