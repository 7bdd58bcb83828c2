/* shelf - an allocator of one file, as an example. Objects lie in runs of 64-byte units. A slot of the file's head holds the offset of
 * its object; what no slot refers to is free. So nothing can leak, and recovery only reads. */
#ifndef SHELF_H
#define SHELF_H

#include <stddef.h>
#include <stdint.h>

struct shelf;

/* The file at path, mapped at address. Null with errno set on failure: EPROTO, the file is no complete shelf. */
struct shelf *shelf_create(const char *path, size_t bytes, uint32_t slots, uintptr_t address);
struct shelf *shelf_open(const char *path, uintptr_t address);
void shelf_close(struct shelf *shelf);

/* Memory for an object, which no crash makes permanent before it is published. Null: there is no room. */
void *shelf_reserve(struct shelf *shelf, size_t bytes);
/* The slot refers to the object from now on, or to none (null). What it referred to before is free. */
void shelf_publish(struct shelf *shelf, uint32_t slot, void *object);
void *shelf_object(const struct shelf *shelf, uint32_t slot);

/* Calls visit for each run of units, in order; object is null where it is free. */
void shelf_walk(const struct shelf *shelf, void (*visit)(void *context, uint64_t offset, uint64_t bytes, int is_free),
                void *context);
const void *shelf_base(const struct shelf *shelf);
uint64_t shelf_first_run(const struct shelf *shelf);

#endif
