/* SPDX-License-Identifier: Apache-2.0
 *
 * loads/internal.h - between the files of this folder: the set of hot units, the bits of a run, and its list of loads.
 */
#ifndef FAULTLINE_LOADS_INTERNAL_H
#define FAULTLINE_LOADS_INTERNAL_H

#include "loads/loads.h"

#define MOST_UNITS (1ull << 29) /* of the hot files: 4 GiB; 64 MiB of bits for each set */
#define MOST_LOADS (1u << 20)   /* 16 MiB of list; a recovery that reads more hot units is no recovery to explore by loads */

/* ---- hot.c */
struct hot_file {
    uint32_t number;
    uint64_t first_bit, units; /* bit first_bit + u is unit u */
    uint64_t room; /* units that have a bit; those from `units` on are never hot */
};

/* What may be hot; server and worker both set it. */
struct hot_set {
    uint64_t number; /* that the engine gave it */
    uint64_t unit_count;
    size_t file_count, part_count;
    struct hot_file files[65536];
    struct {
        uint64_t first, end;
    } parts[4096]; /* words; there are no bits in others */
    uint64_t bits[MOST_UNITS / 64];
};

/* Of the run. */
struct unit_bits {
    struct hot_set *hot;
    uint64_t *undecided, *unscanned;
    const uint64_t *none;  /* of as many bits: where nothing is hot */
    bool are_words_known;  /* all but those noted as changed are those of hot */
    bool are_spoilt; /* the last run set bits of what is not hot */
};
extern struct unit_bits crash_units;

void units_map(void); /* once */
/* As the crash left them: words that may have changed, or all. */
void units_begin(void);
void units_note_changed(uint64_t word); /* of undecided or unscanned */
void units_copy_hot(uint64_t *to); /* hot bits, where there are any */
const struct hot_file *units_file(uint32_t number); /* null: none of its units is hot */
/* False: the unit is not hot. */
bool units_find(const struct fl_load *load, uint64_t *bit);
static inline bool is_set(const uint64_t *bits, uint64_t bit) { return (bits[bit / 64] >> bit % 64 & 1) != 0; }

/* ---- list.c: memory that server and lives share */
struct load_list {
    struct fl_loads_header header;
    struct fl_load loads[MOST_LOADS];
    uint32_t tail; /* the first load of the tail of the run; MOST_LOADS: there is none */
    char text[256]; /* not where the answer has it: behind the last load */
};
extern struct load_list *load_list;
void list_map(void); /* once */
void list_begin(void); /* before a recorded run */
uint32_t list_count(void);
void list_load(enum fl_load_kind kind, uint32_t life, uint32_t file, uint64_t unit);

/* ---- tail.c */
void loads_tail_map(void); /* once */

#endif
