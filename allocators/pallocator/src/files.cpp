/* SPDX-License-Identifier: Apache-2.0
 *
 * files.cpp - see files.h.
 */
#include "files.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace pallocator {

/* The name, too, survives a power failure. */
static void sync_folder_of(const char *path) {
    std::string folder(path);
    folder.erase(folder.rfind('/'));
    int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

int files_create(const char *path, uint64_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    int error = fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 && fsync(fd) == 0 ? 0 : errno;
    if (error != 0) {
        close(fd);
#ifdef MUTANT_UNMADE_NOT_SYNCED
        unlink(path);
#else
        files_unlink(path); /* a segment that is back, and that no record knows, would be refused */
#endif
        errno = error;
        return -1;
    }
#ifndef MUTANT_NAME_NOT_SYNCED
    sync_folder_of(path);
#endif
    return fd;
}

/* Free space stays as it is if the file system has no holes; that costs space, not truth. */
void files_punch(const char *path, uint64_t offset, uint64_t bytes) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0)
        fsync(fd);
    close(fd);
}

bool files_fill(const char *path, uint64_t offset, uint64_t bytes) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_filled =
        fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 && fsync(fd) == 0;
    int error = errno;
    close(fd);
    errno = error;
    return is_filled;
}

void files_unlink(const char *path) {
    int status = unlink(path);
#ifndef MUTANT_REMOVAL_NOT_SYNCED
    if (status == 0)
        sync_folder_of(path);
#else
    (void)status;
#endif
}

} // namespace pallocator
