/* pegs: objects in a file of persistent memory, each on a numbered peg. Standard C, no library. */
#ifndef PEGS_H
#define PEGS_H

#include <stddef.h>
#include <stdint.h>

struct pegs;

/* The file at path, mapped at address if that is free (0: anywhere). Null with errno on failure; EPROTO: the file is no complete
 * board of pegs. */
struct pegs *pegs_create(const char *path, size_t bytes, uint32_t count, uintptr_t address);
struct pegs *pegs_open(const char *path, uintptr_t address);
void pegs_close(struct pegs *pegs);

/* Memory that no peg has yet; a crash takes it back. Null: there is no room. */
void *pegs_reserve(struct pegs *pegs, size_t bytes);
/* Hangs it on the peg, in the place of what was there. It stays when power fails after the return. */
void pegs_hang(struct pegs *pegs, uint32_t peg, void *object, size_t bytes);
void pegs_clear(struct pegs *pegs, uint32_t peg);

/* What is on the peg; null: nothing. bytes, if not null: how many it may have. */
void *pegs_at(const struct pegs *pegs, uint32_t peg, size_t *bytes);
const void *pegs_base(const struct pegs *pegs);
/* Makes what was written to memory persistent. */
void pegs_persist(const void *address, size_t bytes);

#endif
