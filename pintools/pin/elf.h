/* SPDX-License-Identifier: Apache-2.0
 *
 * elf.h - what the tracer needs of a program's or library's file.
 */
#ifndef FAULTLINE_PIN_ELF_H
#define FAULTLINE_PIN_ELF_H

#include <cstdint>
#include <string>

/* Address by the file's symbols of what lies at `offset` in it; false: no segment that is loaded holds it. build_id: in hex, empty if
 * there is none. */
bool elf_look_up(const std::string &path, uint64_t offset, uint64_t *address, std::string *build_id);

#endif
