/* SPDX-License-Identifier: Apache-2.0
 *
 * files.h - the file operations that change a heap. Each is whole and durable when it returns: directories and files are fsynced.
 */
#ifndef PALLOCATOR_FILES_H
#define PALLOCATOR_FILES_H

#include <cstdint>

namespace pallocator {

/* A new file with all its space reserved, zero. Its descriptor; -1 with errno and without a file. */
int files_create(const char *path, uint64_t bytes);
void files_punch(const char *path, uint64_t offset, uint64_t bytes);
/* What was punched has its space again, and reads as zero. False with errno if there is none. */
bool files_fill(const char *path, uint64_t offset, uint64_t bytes);
void files_unlink(const char *path); /* if it is there */

} // namespace pallocator
#endif
