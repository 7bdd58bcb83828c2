#include "shelf.h"
#include "persist.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31666c656873ull
#define UNIT 64ull

struct head {
    uint64_t magic, bytes, slot_count;
    uint64_t slots[]; /* offsets of objects; 0: none */
};

/* units: of each run, where it begins; 0 for all others. In DRAM: each open makes it anew. */
struct shelf {
    struct head *head;
    uint32_t *units;
    int fd;
};

static uint64_t units_of(uint64_t bytes) { return (bytes + UNIT - 1) / UNIT; }
static uint64_t first_unit(const struct shelf *shelf) { return units_of(sizeof(struct head) + shelf->head->slot_count * 8); }
static uint64_t unit_count(const struct shelf *shelf) { return shelf->head->bytes / UNIT; }
/* An object begins with the number of its units. */
static uint64_t *size_of_run(const struct shelf *shelf, uint64_t offset) { return (uint64_t *)((char *)shelf->head + offset); }

static struct shelf *fail(struct shelf *shelf, int error) {
    shelf_close(shelf);
    errno = error;
    return NULL;
}

static struct shelf *map(const char *path, int flags, size_t bytes, uintptr_t address) {
    struct stat info;
    int is_emulated;
    struct shelf *shelf = calloc(1, sizeof *shelf);
    if (shelf == NULL)
        return NULL;
    shelf->fd = open(path, O_RDWR | flags, 0600);
    if (shelf->fd < 0)
        return fail(shelf, errno == ENOENT ? EPROTO : errno);
    if (bytes != 0 && (ftruncate(shelf->fd, 0) != 0 || ftruncate(shelf->fd, (off_t)bytes) != 0))
        return fail(shelf, errno);
    if (fstat(shelf->fd, &info) != 0 || (size_t)info.st_size < sizeof(struct head))
        return fail(shelf, EPROTO);
    void *base = fl_map(address, (size_t)info.st_size, shelf->fd, 0, 0, &is_emulated);
    if (base == MAP_FAILED)
        return fail(shelf, errno);
    shelf->head = base;
    shelf->units = calloc((size_t)info.st_size / UNIT, sizeof *shelf->units);
    return shelf->units != NULL ? shelf : fail(shelf, ENOMEM);
}

struct shelf *shelf_create(const char *path, size_t bytes, uint32_t slots, uintptr_t address) {
    struct shelf *shelf = map(path, O_CREAT, bytes, address);
    if (shelf == NULL)
        return NULL;
    shelf->head->bytes = bytes;
    shelf->head->slot_count = slots;
    fl_persist(shelf->head, sizeof(struct head) + slots * 8ull);
    fl_store8(&shelf->head->magic, MAGIC); /* last: without it this is no shelf */
    fl_persist(&shelf->head->magic, 8);
    return shelf;
}

struct shelf *shelf_open(const char *path, uintptr_t address) {
    struct shelf *shelf = map(path, 0, 0, address);
    if (shelf == NULL)
        return NULL;
    if (shelf->head->magic != MAGIC)
        return fail(shelf, EPROTO);
    for (uint32_t slot = 0; slot < shelf->head->slot_count; slot++)
        if (shelf->head->slots[slot] != 0)
            shelf->units[shelf->head->slots[slot] / UNIT] = (uint32_t)*size_of_run(shelf, shelf->head->slots[slot] / UNIT * UNIT);
    return shelf;
}

void shelf_close(struct shelf *shelf) {
    if (shelf->head != NULL)
        munmap(shelf->head, shelf->head->bytes);
    if (shelf->fd >= 0)
        close(shelf->fd);
    free(shelf->units);
    free(shelf);
}

void *shelf_reserve(struct shelf *shelf, size_t bytes) {
    uint64_t wanted = units_of(8 + bytes), free_units = 0;
    for (uint64_t unit = first_unit(shelf); unit < unit_count(shelf);) {
        if (shelf->units[unit] != 0) {
            unit += shelf->units[unit];
            free_units = 0;
            continue;
        }
        unit++;
        if (++free_units < wanted)
            continue;
        uint64_t run = unit - wanted;
        shelf->units[run] = (uint32_t)wanted;
        *size_of_run(shelf, run * UNIT) = wanted;
        fl_persist(size_of_run(shelf, run * UNIT), 8);
        return (char *)shelf->head + run * UNIT + 8;
    }
    return NULL;
}

void shelf_publish(struct shelf *shelf, uint32_t slot, void *object) {
    uint64_t before = shelf->head->slots[slot];
    fl_store8(&shelf->head->slots[slot], object == NULL ? 0 : (uint64_t)((char *)object - (char *)shelf->head));
    if (before != 0)
        shelf->units[before / UNIT] = 0;
}

void *shelf_object(const struct shelf *shelf, uint32_t slot) {
    uint64_t offset = shelf->head->slots[slot];
    return offset == 0 ? NULL : (char *)shelf->head + offset;
}

void shelf_walk(const struct shelf *shelf, void (*visit)(void *context, uint64_t offset, uint64_t bytes, int is_free),
                void *context) {
    for (uint64_t unit = first_unit(shelf), end; unit < unit_count(shelf); unit = end) {
        int is_free = shelf->units[unit] == 0;
        for (end = unit + 1; is_free && end < unit_count(shelf) && shelf->units[end] == 0; end++)
            ;
        end = is_free ? end : unit + shelf->units[unit];
        visit(context, unit * UNIT, (end - unit) * UNIT, is_free);
    }
}

const void *shelf_base(const struct shelf *shelf) { return shelf->head; }
uint64_t shelf_first_run(const struct shelf *shelf) { return first_unit(shelf) * UNIT; }
