/* SPDX-License-Identifier: Apache-2.0
 *
 * The image: real files in the server's folder, changed by commands. By system calls, never through a mapping, so that the server stays
 * small.
 */
#include "serve/server.h"
#include "files/files.h"
#include "inprocess/inprocess.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 65536u
#define WATCHED (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF)

/* A relative path below the heap folder, absolute in path. Returns the relative part. */
static char *take_name(const struct fl_command *command, char path[PATH_MAX]) {
    static char name[PATH_MAX];
    if (command->payload_bytes == 0 || command->payload_bytes >= sizeof name)
        FAIL(EXIT_BAD_INPUT, "command %u: a name of %llu bytes", command->kind, (unsigned long long)command->payload_bytes);
    take_payload(name, command->payload_bytes);
    name[command->payload_bytes] = '\0';
    bool climbs = strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 || strstr(name, "/../") != NULL;
    size_t length = strlen(name);
    climbs |= length >= 3 && strcmp(name + length - 3, "/..") == 0;
    if (length != command->payload_bytes || name[0] == '/' || climbs)
        FAIL(EXIT_BAD_INPUT, "command %u: `%s` is no path below the heap folder", command->kind, name);
    if (snprintf(path, PATH_MAX, "%s/%s", server.base, name) >= PATH_MAX)
        FAIL(EXIT_BAD_INPUT, "%s: the path is too long", name);
    return name;
}

/* path: absolute, or below the heap folder. */
_Noreturn void image_fail(const char *what, const char *path) {
    int error = errno;
    FAIL(EXIT_INFRASTRUCTURE, "%s%s%s: %s: %s%s", path[0] == '/' ? "" : server.base, path[0] == '/' ? "" : "/", path, what,
         strerror(error), error == ENOSPC ? "; free space there or choose another folder" : "");
}

static struct served_file *file_of(const struct fl_command *command) {
    if (command->change.file >= server.file_count || server.files[command->change.file].name == NULL)
        FAIL(EXIT_BAD_INPUT, "command %u: there is no file %u", command->kind, command->change.file);
    return &server.files[command->change.file];
}

static void check_size(const struct fl_command *command, uint64_t offset, uint64_t bytes) {
    if (offset + bytes < offset || offset + bytes > INT64_MAX)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu do not fit a file", command->kind, (unsigned long long)bytes,
             (unsigned long long)offset);
}

static struct served_file *new_file(const struct fl_command *command) {
    if (command->change.file >= MAX_FILES)
        FAIL(EXIT_BAD_INPUT, "command %u: file number %u, expected less than %u", command->kind, command->change.file, MAX_FILES);
    if (command->change.file >= server.file_count) {
        uint32_t count = command->change.file + 64;
        server.files = allocate_or_fail(server.files, count * sizeof *server.files);
        memset(server.files + server.file_count, 0, (count - server.file_count) * sizeof *server.files);
        server.file_count = count;
    }
    if (server.files[command->change.file].name != NULL)
        FAIL(EXIT_BAD_INPUT, "command %u: file %u is there already", command->kind, command->change.file);
    return &server.files[command->change.file];
}

static void create_file(const struct fl_command *command) {
    char path[PATH_MAX];
    check_size(command, 0, command->change.size);
    struct served_file *file = new_file(command);
    const char *name = take_name(command, path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)command->change.size) != 0)
        image_fail("cannot be made", path);
    *file = (struct served_file){strdup(name), fd, command->change.size};
    if (file->name == NULL)
        FAIL(EXIT_INFRASTRUCTURE, "no memory");
}

static void resize_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    check_size(command, 0, command->change.size);
    if (file->bytes == command->change.size)
        return;
    if (ftruncate(file->fd, (off_t)command->change.size) != 0)
        image_fail("cannot be resized", file->name);
    file->bytes = command->change.size;
}

static void punch_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    check_size(command, command->change.offset, command->change.size);
    if (command->change.size > 0 && fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)command->change.offset,
                                              (off_t)command->change.size) != 0)
        image_fail("cannot be punched", file->name);
}

static void forget_file(struct served_file *file) {
    close(file->fd);
    free(file->name);
    *file = (struct served_file){0};
}

static void remove_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", server.base, file->name);
    if (unlink(path) != 0)
        image_fail("cannot be removed", path);
    forget_file(file);
}

static void rename_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    char from[2 * PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/%s", server.base, file->name);
    const char *name = take_name(command, to);
    if (strcmp(name, file->name) == 0)
        return;
    if (rename(from, to) != 0)
        image_fail("cannot be renamed", from);
    for (uint32_t i = 0; i < server.file_count; i++) /* the one whose name it takes is gone */
        if (server.files[i].name != NULL && strcmp(server.files[i].name, name) == 0)
            forget_file(&server.files[i]);
    free(file->name);
    file->name = strdup(name);
    if (file->name == NULL)
        FAIL(EXIT_INFRASTRUCTURE, "no memory");
}

void image_write(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    uint64_t bytes = command->payload_bytes;
    check_size(command, command->change.offset, bytes);
    if (command->change.offset + bytes > file->bytes)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu of %s, which has %llu", command->kind, (unsigned long long)bytes,
             (unsigned long long)command->change.offset, file->name, (unsigned long long)file->bytes);
    off_t offset = (off_t)command->change.offset;
    for (uint64_t left = bytes; left > 0;) {
        size_t count;
        const uint8_t *piece = take_piece(left, &count);
        reference_write(command->change.file, (uint64_t)offset, piece, count);
        for (size_t done = 0; done < count;) {
            ssize_t put = pwrite(file->fd, piece + done, count - done, offset);
            if (put <= 0)
                image_fail("cannot be written", file->name);
            done += (size_t)put;
            offset += put;
        }
        left -= count;
    }
}

void image_watch_folder(const char *path) {
    if (inotify_add_watch(server.watch, path, WATCHED) < 0)
        image_fail("cannot be watched", path);
}

static void poison_file(const struct fl_command *command) {
    uint64_t offset = command->change.offset, bytes = command->change.size;
    if (bytes == 0) {
        vfs_poison(0, 0, 0);
        return;
    }
    struct served_file *file = file_of(command);
    check_size(command, offset, bytes);
    if (offset % OS_PAGE_BYTES != 0 || bytes % OS_PAGE_BYTES != 0)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu of %s, expected whole OS pages", command->kind,
             (unsigned long long)bytes, (unsigned long long)offset, file->name);
    vfs_poison(command->change.file, offset, bytes);
}

static void note_stray(const struct fl_command *command) {
    uint64_t offset = command->change.offset, bytes = command->payload_bytes, word = 0;
    if (bytes == 0) {
        vfs_no_stray();
        return;
    }
    struct served_file *file = file_of(command);
    check_size(command, offset, bytes);
    if (bytes != sizeof word || offset % sizeof word != 0)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu of %s, expected a word of 8 bytes, aligned to 8", command->kind,
             (unsigned long long)bytes, (unsigned long long)offset, file->name);
    take_payload(&word, bytes);
    vfs_stray(command->change.file, offset, word);
}

static void make_folder(const struct fl_command *command) {
    char path[PATH_MAX];
    take_name(command, path);
    if (mkdir(path, 0700) != 0)
        image_fail("cannot be made", path);
    image_watch_folder(path);
}

static void remove_folder(const struct fl_command *command) {
    char path[PATH_MAX];
    take_name(command, path);
    if (rmdir(path) != 0)
        image_fail("cannot be removed", path);
}

bool image_is_rebuilt_by(const struct fl_command *command) {
    switch (command->kind) {
    case FL_COMMAND_CREATE:
    case FL_COMMAND_RESIZE:
    case FL_COMMAND_PUNCH:
    case FL_COMMAND_REMOVE:
    case FL_COMMAND_RENAME:
    case FL_COMMAND_MKDIR:
    case FL_COMMAND_RMDIR:
    case FL_COMMAND_POISON:
    case FL_COMMAND_STRAY: return true;
    }
    return false;
}

void image_rebuild(const struct fl_command *command) {
    switch (command->kind) {
    case FL_COMMAND_CREATE: create_file(command); break;
    case FL_COMMAND_RESIZE: resize_file(command); break;
    case FL_COMMAND_PUNCH: punch_file(command); break;
    case FL_COMMAND_REMOVE: remove_file(command); break;
    case FL_COMMAND_RENAME: rename_file(command); break;
    case FL_COMMAND_MKDIR: make_folder(command); break;
    case FL_COMMAND_RMDIR: remove_folder(command); break;
    case FL_COMMAND_POISON: poison_file(command); break;
    case FL_COMMAND_STRAY: note_stray(command); break;
    }
}

int image_descriptor(uint32_t file) {
    return file < server.file_count && server.files[file].name != NULL ? server.files[file].fd : -1;
}
