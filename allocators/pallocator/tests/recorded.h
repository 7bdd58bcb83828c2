/* SPDX-License-Identifier: Apache-2.0
 *
 * recorded.h - a heap of many files under ../../testing/recorder.h: its images by the names of the files. files.h is implemented
 * here in place of src/files.cpp: without fsync, and each file operation has a crash position before it and behind it.
 */
#ifndef PALLOCATOR_TESTS_RECORDED_H
#define PALLOCATOR_TESTS_RECORDED_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "recorder.h"

using Image = std::map<std::string, std::vector<char>>; /* files by name */
using Recorder = std::unique_ptr<recorder, decltype(&recorder_delete)>;

/* Switched on, with all files of the folder, which are persisted. Nobody has them mapped yet. */
Recorder record(const std::string &folder, recorder_crash crash);
Image image_of(const recorder *recorder, recorder_image kind, uint64_t &random);
void write_image(const std::string &folder, const Image &image); /* the folder holds nothing else afterwards */
std::vector<std::string> names_in(const std::string &folder);

#endif
