/* SPDX-License-Identifier: Apache-2.0
 *
 * wear.h - what a tracer counted in wear mode: how often each line of the watched memory was written. One process, no trace.
 *
 *     file := fl_wear_header  fl_wear_line[line_count]  fl_wear_use[use_count]  text
 *
 * Little-endian. Lines are sorted by file, then by number; only lines that were written are there. A line is line_bytes of a file
 * below the PM folder, or of the process's own heap (file 1, named FL_WEAR_MEMORY, counted only where that was asked for), where
 * its number is its address divided by line_bytes. text holds names, each ended by NUL: first those of files 1 to file_count, then
 * those of the sites that uses name by their place in text.
 *
 * Two views (Moraru et al., section 8.1.1, and a cache):
 *
 *   stores       stores to the line, consecutive ones coalesced: a store counts unless the store before it, of any thread, to watched
 *                memory ended in the same line. What the kernel writes counts as a store.
 *   write_backs  how often the line left the cache for the medium: wear_cache.h
 *
 * If you change anything here, bump FL_WEAR_VERSION: harness/tests/cover/test_formats.py compares a digest of this file.
 */
#ifndef FAULTLINE_WEAR_H
#define FAULTLINE_WEAR_H

#include <stdint.h>

#define FL_WEAR_MAGIC "FLWEAR\0" /* with the NUL that C adds: 8 bytes */
#define FL_WEAR_VERSION 2u
#define FL_WEAR_HOTTEST 32u /* lines whose uses are listed: those with most stores */
#define FL_WEAR_MEMORY "memory"

enum fl_wear_flag {
    FL_WEAR_FORKED = 1, /* there were child processes, whose stores are not counted */
    FL_WEAR_BRK_REFUSED = 2, /* brk gave less than the process asked for: Valgrind has 8 MiB for it */
};

/* Why a line was written back. */
enum fl_wear_reason {
    FL_WEAR_FLUSH = 0,    /* clwb, clflushopt, clflush of a dirty line */
    FL_WEAR_EVICTION = 1, /* a dirty line made room for another one */
    FL_WEAR_NT = 2,       /* non-temporal stores, and a dirty line that one of them met */
    FL_WEAR_END = 3,      /* still dirty when the process ended */
    FL_WEAR_REASONS = 4,
};

/* 128 bytes. */
struct fl_wear_header {
    char magic[8];
    uint32_t version;
    uint32_t line_bytes;
    uint64_t cache_bytes;
    uint32_t cache_ways;
    uint32_t flags; /* enum fl_wear_flag */
    uint32_t file_count;
    uint32_t use_count;
    uint64_t line_count;
    uint64_t text_bytes;
    uint64_t executed; /* stores, each as often as it has lines: not coalesced */
    uint64_t flushes;  /* flush instructions */
    uint64_t fences;   /* fences and locked instructions, wherever they are */
    uint64_t write_backs[FL_WEAR_REASONS];
    uint64_t reserved[2];
};

/* 32 bytes. */
struct fl_wear_line {
    uint64_t number; /* in its file: offset / line_bytes */
    uint64_t stores;
    uint64_t write_backs;
    uint32_t file;
    uint32_t reserved;
};

/* 24 bytes: a site's share of a line. Sorted by line, then by stores, most first. */
struct fl_wear_use {
    uint64_t line; /* index in the array of lines */
    uint64_t stores;
    uint64_t site; /* place in text: "FUNCTION (FILE:LINE)", and its callers behind " < " */
};

#endif
