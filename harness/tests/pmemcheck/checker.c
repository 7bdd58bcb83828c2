/* SPDX-License-Identifier: Apache-2.0
 *
 * pmreorder's checker for any allocator whose heap is one file: checker ADAPTER HEAP_BYTES LIMIT_BYTES SLOTS ADDRESS FILE. A copy of the
 * file is opened by the allocator's own recovery, its slots are read, its own check is made where it has one, and it is closed. The
 * copy is for pmreorder, which goes on from what a checker leaves in the file. */
#define _GNU_SOURCE
#include "adapter.h"
#include "images.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S 10 /* of one recovery */

typedef const struct fl_adapter *(*adapter_entry)(void);

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(3);
}

static const char *map(const char *path, uint64_t *bytes) {
    struct stat info;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &info) != 0)
        fail(path);
    *bytes = (uint64_t)info.st_size;
    const char *base = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        fail(path);
    close(fd);
    return base;
}

static void write_copy(const char *path, const char *image, uint64_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        fail(path);
    for (uint64_t at = 0; at < bytes;) {
        ssize_t written = write(fd, image + at, bytes - at);
        if (written < 0)
            fail(path);
        at += (uint64_t)written;
    }
    close(fd);
}

static int is_bad(const struct fl_adapter *adapter, const struct fl_heap_options *options) {
    fl_heap *heap;
    struct fl_location location;
    if (adapter->open(options, &heap) != FL_OK)
        return 1;
    for (uint32_t slot = 0; slot < options->slot_count; slot++) {
        if (adapter->read_slot(heap, slot, &location) != FL_OK)
            return 1;
    }
    if ((adapter->capabilities & FL_CAN_CHECK) != 0 && adapter->check(heap) != FL_OK)
        return 1;
    return adapter->close(heap) != FL_OK;
}

/* In a process of its own: recovery may die of what it finds. */
static int is_bad_apart(const struct fl_adapter *adapter, const struct fl_heap_options *options) {
    int status;
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        alarm(LIMIT_S);
        _exit(is_bad(adapter, options));
    }
    if (waitpid(child, &status, 0) != child)
        fail("waitpid");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGILL) {
        fprintf(stderr, "%s: this processor lacks its flush instruction\n", adapter->name);
        exit(3);
    }
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: checker ADAPTER HEAP_BYTES LIMIT_BYTES SLOTS ADDRESS FILE\n");
        return 3;
    }
    char folder[PATH_MAX], copy[PATH_MAX + NAME_MAX], *name = strdup(argv[6]);
    uint64_t bytes;
    const char *image = map(argv[6], &bytes);
    void *library = dlopen(argv[1], RTLD_NOW);
    adapter_entry entry = library == NULL ? NULL : (adapter_entry)dlsym(library, FL_ADAPTER_SYMBOL);
    if (entry == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    snprintf(folder, sizeof folder, "%s.copy-XXXXXX", argv[6]);
    if (mkdtemp(folder) == NULL)
        fail(folder);
    snprintf(copy, sizeof copy, "%s/%s", folder, basename(name));
    write_copy(copy, image, bytes);
    struct fl_heap_options options = {
        .folder = folder,
        .heap_bytes = strtoull(argv[2], NULL, 0),
        .limit_bytes = strtoull(argv[3], NULL, 0),
        .slot_count = (uint32_t)strtoull(argv[4], NULL, 0),
        .address_hint = strtoull(argv[5], NULL, 0),
    };
    int bad = is_bad_apart(entry(), &options);
    unlink(copy);
    rmdir(folder);
    images_note(image, bytes, bad);
    free(name);
    return bad;
}
