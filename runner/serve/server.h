/* SPDX-License-Identifier: Apache-2.0
 *
 * serve/server.h - between the files of the fork server.
 */
#ifndef FAULTLINE_SERVER_H
#define FAULTLINE_SERVER_H

#include "probe/probe.h"
#include "protocol.h"
#include <limits.h>

struct served_file {
    char *name; /* null: no such file */
    int fd;
    uint64_t bytes;
};

/* ---- server.c */
extern struct server {
    const struct options *options;
    struct probed_heap probed;
    char base[PATH_MAX], copy[PATH_MAX], aside[PATH_MAX];
    struct served_file *files; /* of the image, by the number that the engine gave them */
    uint32_t file_count;
    struct tree tree;
    bool is_tree_old;
    int watch;
    int input, output;
    bool is_worker;
} server;

void server_clean_up(void);
#define FAIL(code, ...) (server_clean_up(), fail(code, __VA_ARGS__))

/* ---- streams.c: server and worker share the input that was read ahead */
void streams_map(void); /* once */
/* False: the input ended before the first byte. */
bool take(void *target, size_t bytes);
void take_payload(void *target, size_t bytes);
/* A piece of a payload of which so many bytes are left, where it lies. */
const uint8_t *take_piece(uint64_t left, size_t *bytes);
/* Each with its length in front; null: its length only. */
void send_all(const void *const answers[], const uint32_t bytes[], int count);
void send_answer(const void *answer, uint32_t bytes);

/* ---- image.c */
/* Commands that change which files there are, their sizes, or what of them can be loaded. */
bool image_is_rebuilt_by(const struct fl_command *command);
void image_rebuild(const struct fl_command *command);
void image_write(const struct fl_command *command);
void image_watch_folder(const char *path);
int image_descriptor(uint32_t file); /* -1: there is no such file */
_Noreturn void image_fail(const char *what, const char *path);

#endif
