/* SPDX-License-Identifier: Apache-2.0
 *
 * pbit without faultline: `client init FILE` makes a heap, `client run FILE` works on it under pmemcheck, `client check FILE` is
 * pmreorder's checker (images.h). The golden logs are of `run`. */
#define _GNU_SOURCE
#include "images.h"
#include "pbit.h"
#ifdef WITHOUT_PMEMCHECK /* its header comes with that Valgrind; `check` and `init` do without */
#define VALGRIND_PMC_REGISTER_PMEM_MAPPING(base, bytes)
#define VALGRIND_PMC_REGISTER_PMEM_FILE(fd, base, bytes, offset)
#define VALGRIND_PMC_EMIT_LOG(text)
#else
#include "pmemcheck.h"
#endif
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS (8 + 1024) /* of the workload, and those that faultline's probe script has */

static void fill(void *context, void *object, uint64_t from, uint64_t bytes) {
    (void)context;
    for (uint64_t word = from / 8; word < (from + bytes) / 8; word++)
        ((volatile uint64_t *)object)[word] = 0xf1ed000000000000ull | word;
    fl_persist((char *)object + from, bytes);
}

static struct pbit_heap *map(const char *path, int flags, uint64_t *bytes) {
    struct stat info;
    int fd = open(path, O_RDWR | flags, 0600);
    if (fd < 0 || (flags && ftruncate(fd, (off_t)pbit_file_bytes(SLOTS)) != 0) || fstat(fd, &info) != 0)
        return perror(path), exit(2), NULL;
    *bytes = (uint64_t)info.st_size;
    void *base = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return perror(path), exit(2), NULL;
    VALGRIND_PMC_REGISTER_PMEM_MAPPING(base, *bytes);
    VALGRIND_PMC_REGISTER_PMEM_FILE(fd, base, *bytes, 0);
    close(fd);
    return base;
}

int main(int argc, char **argv) {
    uint64_t bytes;
    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "init") == 0)
        return pbit_create(map(argv[2], O_CREAT | O_TRUNC, &bytes), SLOTS), 0;
    struct pbit_heap *heap = map(argv[2], 0, &bytes);
    if (strcmp(argv[1], "check") == 0) {
        int is_bad = heap->magic != PBIT_MAGIC || pbit_file_bytes(heap->slot_count) > bytes || pbit_check(heap) != NULL;
        images_note(heap, bytes, is_bad);
        return is_bad;
    }
    VALGRIND_PMC_EMIT_LOG("work.BEGIN");
    for (uint64_t slot = 0; slot < 3; slot++)
        pbit_allocate(heap, slot, 32, fill, NULL);
    pbit_free(heap, 1);
    pbit_allocate(heap, 5, 16, fill, NULL);
    VALGRIND_PMC_EMIT_LOG("work.END");
    return 0;
}
