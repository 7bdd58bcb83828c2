/* SPDX-License-Identifier: Apache-2.0 */
#include "inventory.h"
#include "persist.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char text[INVENTORY_BYTES];

static int compare_names(const void *one, const void *other) { return strcmp(one, other); }

void list_names(const char *folder, struct names *names) {
    DIR *opened = opendir(folder);
    names->count = 0;
    for (struct dirent *entry; opened != NULL && (entry = readdir(opened)) != NULL;)
        if (entry->d_name[0] != '.' && names->count < 64)
            snprintf(names->list[names->count++], NAME_BYTES, "%.31s", entry->d_name);
    if (opened != NULL)
        closedir(opened);
    qsort(names->list, names->count, NAME_BYTES, compare_names);
}

/* CRC-32 as zlib has it. */
static uint32_t digest(const uint8_t *bytes, uint64_t count) {
    uint32_t rest = UINT32_MAX;
    for (uint64_t i = 0; i < count; i++) {
        rest ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (UINT32_C(0xedb88320) & -(rest & 1));
    }
    return ~rest;
}

/* As a process sees the file that has it mapped. */
static void add_file(const char *path, const char *name) {
    struct stat info = {0};
    int is_emulated, fd = open(path, O_RDWR);
    void *bytes = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0)
        bytes = fl_map(0, (size_t)info.st_size, fd, 0, 0, &is_emulated);
    uint64_t size = (uint64_t)info.st_size;
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, " %s:%llu:%08x", name, (unsigned long long)size,
             digest(bytes, bytes == MAP_FAILED ? 0 : size));
    if (bytes != MAP_FAILED)
        munmap(bytes, size);
    if (fd >= 0)
        close(fd);
}

void inventory_begin(void) { text[0] = '\0'; }

void inventory_add(const char *folder, const char *title) {
    struct names names;
    list_names(folder, &names);
    strncat(text, title, sizeof text - strlen(text) - 1);
    for (size_t i = 0; i < names.count; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", folder, names.list[i]);
        add_file(path, names.list[i]);
    }
}

const char *inventory_text(void) { return text; }
