/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h - the trace: what a tracer records and crashgen reads.
 *
 * A trace is one observed interleaving of one workload, over all its processes, in memory order. Tracers record and do
 * not judge. Every tracer writes this format; every reader rejects a version it does not know.
 *
 *     file  := fl_trace_header  chunk*  fl_trace_footer
 *     chunk := fl_trace_chunk  fl_record[chunk.record_count]
 *
 * Everything is little-endian and made of fixed 32-byte cells. A record whose value does not fit its `value` field is
 * followed by FL_PAYLOAD_CELLS(bytes) raw cells that hold the bytes, zero padded; they count in record_count. A chunk
 * never splits a record from its payload.
 *
 * Several processes append to one file (O_APPEND, one write(2) a chunk, flushed before fork and at exit), each chunk
 * naming its process. Ids of files, modules and sites are those of the process that wrote the chunk. The footer is
 * written once, when all processes are done (faultline-engine seal): a file without it is truncated.
 *
 * A flush of an address that is no PM persists nothing and is no event. The first one of a site is recorded, with value 1, and
 * when the process ends how many more came from there.
 *
 * If you change anything here, bump FL_TRACE_VERSION: harness/tests/cover/test_formats.py compares a digest of this file.
 */
#ifndef FAULTLINE_TRACE_H
#define FAULTLINE_TRACE_H

#include <stdint.h>

#define FL_TRACE_MAGIC "FLTRACE"  /* with its NUL: 8 bytes */
#define FL_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */
#define FL_FOOTER_MAGIC 0x444e4546u /* "FEND" */
#define FL_TRACE_VERSION 6u
#define FL_RECORD_BYTES 32u
#define FL_PAYLOAD_CELLS(bytes) (((uint64_t)(bytes) + FL_RECORD_BYTES - 1) / FL_RECORD_BYTES)
#define FL_NO_SITE 0u

/* 64 bytes. */
struct fl_trace_header {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes;
    uint64_t schedule_seed; /* 0: the tracer's own deterministic schedule */
    char tracer[24];        /* "valgrind", "pin", "pmemcheck", NUL padded */
    uint8_t reserved[16];
};

/* 32 bytes, before the records it describes. */
struct fl_trace_chunk {
    uint32_t magic;
    uint32_t process;      /* 1, 2, ... in order of start; a forked child: see FL_PROCESS_FORK */
    uint64_t record_count; /* 32-byte cells that follow, payload cells included */
    uint64_t checksum;     /* fl_checksum of those cells */
    uint64_t reserved;
};

/* 64 bytes. */
struct fl_trace_footer {
    uint32_t magic;
    uint32_t version;
    uint64_t record_count; /* cells over all chunks */
    uint8_t sha256[32];    /* of everything before the footer: the trace hash */
    uint8_t reserved[16];
};

/* 32 bytes. The meaning of the fields depends on the kind; a field not named there is zero. */
struct fl_record {
    uint8_t kind;    /* enum fl_kind */
    uint8_t detail;  /* enum of the kind */
    uint16_t thread; /* 1, 2, ... in order of creation within the process */
    uint32_t site;   /* id of a FL_SITE record, FL_NO_SITE when unknown */
    uint32_t file;   /* id of a FL_FILE record; 0: not in a PM file */
    uint32_t size;   /* bytes */
    uint64_t offset; /* in the file */
    uint64_t value;
};

enum fl_kind {
    /* Definitions; each id is defined before its first use by the same process. */
    FL_PROCESS = 1, /* first record of a process. detail: enum fl_process_detail; offset: parent process or 0 */
    FL_PROCESS_END, /* last record of a process. value: exit code, or 256 + signal */
    FL_MODULE,      /* size: bytes of payload; value: module id; payload: path NUL build-id-hex NUL; the path is relative for
                       what was built for the trace, so that another clone gives the same bytes */
    FL_SITE,        /* site: its id; value: module id (0: none); offset: address in the module as its symbols count it;
                       size: id of the FL_SITE that called it, FL_NO_SITE where the path ends: an instruction that is called
                       from two places is two sites. A caller's address lies in its call */
    FL_FILE,        /* file: its id; size: bytes of payload; payload: path relative to the PM folder, no NUL */

    /* Persistency events. */
    FL_STORE, /* detail: enum fl_store. file, offset, size, value (little-endian, size <= 8, else payload and 0) */
    FL_FLUSH, /* detail: enum fl_flush. file, offset: of the operand, not rounded. Outside PM: 0, 0, and value counts them */
    FL_FENCE, /* detail: enum fl_fence. Recorded wherever their operand lies */

    /* Files under the PM folder. FL_FILE_BEGIN and FL_FILE_END of one operation carry the same detail and fields; value of
     * FL_FILE_END: 0 or the errno it failed with (the effect is then none). site: who made the call. */
    FL_FILE_BEGIN,
    FL_FILE_END,
    FL_MAP,   /* file, offset, value: bytes mapped; detail: enum fl_map flags */
    FL_UNMAP, /* file, offset, value: bytes unmapped */

    /* Markers, emitted by the runner. */
    FL_OPERATION_BEGIN,  /* detail: enum fl_operation; file: slot; size: index of the operation in the workload, from 0;
                            offset: bytes (reallocate: new bytes; link, unlink, load: the field); value: object id (link: the
                            slot linked to; load: the slot whose object's field is loaded; write: the first byte written) */
    FL_OPERATION_RETURN, /* detail: enum fl_operation; size: index; value: enum fl_status of adapter.h */

    /* What the tracer could not follow; a reader reports it: such a trace is never complete. size: bytes of payload (text) */
    FL_UNSUPPORTED,
};

enum fl_process_detail { FL_PROCESS_START = 1, FL_PROCESS_FORK = 2, FL_PROCESS_EXEC = 3 };

/* A forked child's number is parent * FL_FORK_RADIX + n, n = 1, 2, ... in order of fork. */
#define FL_FORK_RADIX 256u

enum fl_store {
    FL_STORE_PLAIN = 1,
    FL_STORE_NT,     /* non-temporal: movnti, movntq, movntps, movntdq, vmovnt*, maskmovdqu */
    FL_STORE_RMW,    /* locked read-modify-write that stored: fence first, then store (R6) */
    FL_STORE_REP,    /* one whole rep movs / rep stos, or what a system call copies into a mapping: one wide store (R3) */
};

enum fl_flush { FL_CLFLUSH = 1, FL_CLFLUSHOPT, FL_CLWB };

enum fl_fence {
    FL_SFENCE = 1,
    FL_MFENCE,
    FL_RMW_FENCE,  /* locked RMW outside PM, or a compare-exchange that failed anywhere */
};

enum fl_file_operation {
    FL_CREATE = 1, /* file; open(O_CREAT) that made it */
    FL_TRUNCATE,   /* file; offset: new size (open(O_TRUNC), ftruncate, truncate) */
    FL_ALLOCATE,   /* fallocate, posix_fallocate: file, offset, size in value of BEGIN; grows the file unless KEEP_SIZE */
    FL_PUNCH,      /* fallocate(PUNCH_HOLE): file, offset; bytes in value of BEGIN */
    FL_UNLINK,     /* file */
    FL_RENAME,     /* file; size: bytes of payload (new relative path) on both records */
    FL_MSYNC,      /* file, offset; bytes in value of BEGIN */
    FL_FSYNC,      /* file */
    FL_WRITE,      /* file, offset, size: bytes of payload on FL_FILE_BEGIN only; value of FL_FILE_END: 0 */
    FL_MKDIR,      /* size: bytes of payload (relative path) on both; file 0 */
    FL_RMDIR,      /* likewise */
    FL_SYNC_FOLDER, /* fsync of a folder: likewise; the PM folder itself is "." */
    FL_SYNC_ALL,   /* sync, syncfs of the PM folder's file system; file 0 */
};

/* FL_MAP_REFUSED: MAP_SYNC was asked for where the file system has none, and nothing is mapped (value 0). What the process maps of
 * the file after that stands for what it would have there. */
enum fl_map { FL_MAP_SHARED = 1, FL_MAP_PRIVATE = 2, FL_MAP_SYNCED = 4, FL_MAP_WRITABLE = 8, FL_MAP_REFUSED = 16 };

enum fl_operation {
    FL_OP_CASE = 1, /* begin only: a new heap starts; size: number of the case, from 0. Its files lie under "case-N/" */
    FL_OP_CREATE,
    FL_OP_OPEN,
    FL_OP_CLOSE,
    FL_OP_ALLOCATE,
    FL_OP_FREE,
    FL_OP_REALLOCATE,
    FL_OP_LINK,
    FL_OP_UNLINK,
    FL_OP_COLLECT,
    FL_OP_DROP,
    FL_OP_LOAD,
    FL_OP_BEGIN, /* of a transaction; the kinds have no slot: begin, commit, abort */
    FL_OP_COMMIT,
    FL_OP_ABORT,
    FL_OP_WRITE, /* a part of an object */
};

/* Client requests by which a runner marks operations (VALGRIND_DO_CLIENT_REQUEST and its like under other tracers);
 * the five arguments are detail, index, slot, bytes, object (BEGIN) and detail, index, status (RETURN). */
#define FL_REQUEST_BASE 0x464c0000u /* "FL" */
#define FL_REQUEST_BEGIN (FL_REQUEST_BASE + 1)
#define FL_REQUEST_RETURN (FL_REQUEST_BASE + 2)

/* Checksum of a chunk: over its cells as 64-bit words w, sum = (sum ^ w) * 0x9e3779b97f4a7c15, sum ^= sum >> 32. */
static inline uint64_t fl_checksum(const void *cells, uint64_t cell_count) {
    const uint64_t *word = (const uint64_t *)cells;
    uint64_t sum = 0x666c74726163651ull;
    for (uint64_t i = 0; i < cell_count * (FL_RECORD_BYTES / 8); i++) {
        sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15ull;
        sum ^= sum >> 32;
    }
    return sum;
}

#ifdef __cplusplus
static_assert(sizeof(fl_trace_header) == 64 && sizeof(fl_trace_chunk) == 32 && sizeof(fl_trace_footer) == 64 &&
                  sizeof(fl_record) == 32,
              "trace format");
#else
_Static_assert(sizeof(struct fl_trace_header) == 64, "trace format");
_Static_assert(sizeof(struct fl_trace_chunk) == 32, "trace format");
_Static_assert(sizeof(struct fl_trace_footer) == 64, "trace format");
_Static_assert(sizeof(struct fl_record) == 32, "trace format");
#endif

#endif
