/* The file: a head of one line, a word for each peg, then units of 64 bytes. A word is 0, or the object's first unit in its upper half
 * and how many units it has in the lower one. Both change in one store, so no crash leaves half of a change. Which units are taken
 * stands nowhere in the file: opening counts them. */
#define _GNU_SOURCE
#include "pegs.h"
#include <immintrin.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x7367657067657073ull
#define UNIT 64u

struct board {
    uint64_t magic, bytes, count, unused[5];
    uint64_t words[];
};

struct pegs {
    struct board *board;
    uint64_t bytes;
    uint8_t *is_taken; /* of each unit */
};

static uint64_t units_of(uint64_t bytes) { return (bytes + UNIT - 1) / UNIT; }

void pegs_persist(const void *address, size_t bytes) {
    for (uintptr_t line = (uintptr_t)address & ~63ul; line < (uintptr_t)address + bytes; line += 64)
        _mm_clflush((const void *)line);
    _mm_sfence();
}

static struct pegs *fail(struct pegs *pegs, int fd, int error) {
    if (fd >= 0)
        close(fd);
    pegs_close(pegs);
    errno = error;
    return NULL;
}

static struct pegs *map(const char *path, int flags, size_t bytes, uintptr_t address) {
    struct stat info;
    struct pegs *pegs = calloc(1, sizeof *pegs);
    int fd = open(path, O_RDWR | flags, 0600);
    if (pegs == NULL || fd < 0)
        return fail(pegs, fd, errno == ENOENT ? EPROTO : errno);
    if (bytes != 0 && (ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)bytes) != 0))
        return fail(pegs, fd, errno);
    if (fstat(fd, &info) != 0 || (size_t)info.st_size < sizeof(struct board))
        return fail(pegs, fd, EPROTO);
    pegs->bytes = (uint64_t)info.st_size;
    int fixed = address != 0 ? MAP_FIXED_NOREPLACE : 0;
    void *base = mmap((void *)address, pegs->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd, 0);
    if (base == MAP_FAILED)
        return fail(pegs, fd, errno);
    close(fd);
    pegs->board = base;
    pegs->is_taken = calloc(pegs->bytes / UNIT, 1);
    return pegs->is_taken != NULL ? pegs : fail(pegs, -1, ENOMEM);
}

static void take(struct pegs *pegs, uint64_t word, int is_taken) {
    memset(pegs->is_taken + (word >> 32), is_taken, (uint32_t)word);
}

static void take_head(struct pegs *pegs) { take(pegs, units_of(sizeof(struct board) + pegs->board->count * 8), 1); }

struct pegs *pegs_create(const char *path, size_t bytes, uint32_t count, uintptr_t address) {
    if (bytes < sizeof(struct board) + count * 8ull)
        return fail(NULL, -1, EINVAL);
    struct pegs *pegs = map(path, O_CREAT, bytes, address);
    if (pegs == NULL)
        return NULL;
    pegs->board->bytes = bytes;
    pegs->board->count = count;
    pegs_persist(pegs->board, sizeof(struct board) + count * 8ull);
    pegs->board->magic = MAGIC; /* last: before it this is no board */
    pegs_persist(&pegs->board->magic, 8);
    take_head(pegs);
    return pegs;
}

struct pegs *pegs_open(const char *path, uintptr_t address) {
    struct pegs *pegs = map(path, 0, 0, address);
    if (pegs == NULL)
        return NULL;
    if (pegs->board->magic != MAGIC)
        return fail(pegs, -1, EPROTO);
    take_head(pegs);
    for (uint32_t peg = 0; peg < pegs->board->count; peg++)
        take(pegs, pegs->board->words[peg], 1);
    return pegs;
}

void pegs_close(struct pegs *pegs) {
    if (pegs == NULL)
        return;
    if (pegs->board != NULL)
        munmap(pegs->board, pegs->bytes);
    free(pegs->is_taken);
    free(pegs);
}

void *pegs_reserve(struct pegs *pegs, size_t bytes) {
    uint64_t wanted = units_of(bytes), free_units = 0;
    for (uint64_t unit = 0; unit < pegs->bytes / UNIT; unit++) {
        free_units = pegs->is_taken[unit] ? 0 : free_units + 1;
        if (free_units == wanted && wanted != 0) {
            unit -= wanted - 1;
            take(pegs, unit << 32 | wanted, 1);
            return (char *)pegs->board + unit * UNIT;
        }
    }
    return NULL;
}

static void set_word(struct pegs *pegs, uint32_t peg, uint64_t word) {
    uint64_t before = pegs->board->words[peg];
    pegs->board->words[peg] = word;
    _mm_clflushopt(&pegs->board->words[peg]);
    take(pegs, before, 0);
}

void pegs_hang(struct pegs *pegs, uint32_t peg, void *object, size_t bytes) {
    uint64_t unit = (uint64_t)((char *)object - (char *)pegs->board) / UNIT;
    set_word(pegs, peg, unit << 32 | units_of(bytes));
}

void pegs_clear(struct pegs *pegs, uint32_t peg) { set_word(pegs, peg, 0); }

void *pegs_at(const struct pegs *pegs, uint32_t peg, size_t *bytes) {
    uint64_t word = pegs->board->words[peg];
    if (bytes != NULL)
        *bytes = (uint32_t)word * UNIT;
    return word == 0 ? NULL : (char *)pegs->board + (word >> 32) * UNIT;
}

const void *pegs_base(const struct pegs *pegs) { return pegs->board; }
