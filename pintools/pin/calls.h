/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h - system calls, as events: file operations below the PM folder, mappings, and what the kernel writes into persistent memory.
 *
 * An operation is a pair: its FL_FILE_BEGIN is written before the call, its FL_FILE_END after, with the errno. What a trace cannot
 * express is FL_UNSUPPORTED. So is a call that this file does not know and that is given an address of persistent memory: what the
 * kernel writes there would be lost in silence.
 */
#ifndef FAULTLINE_PIN_CALLS_H
#define FAULTLINE_PIN_CALLS_H

#include "classify.h"
#include "files.h"
#include "maps.h"
#include "sites.h"
#include "target.h"
#include "writer.h"

#include <string>
#include <vector>

/* What is known of the traced process. A forked child starts with a copy. */
struct Traced {
    const Target *target;
    Writer writer;
    Files files;
    Maps maps;
    Sites sites;

    /* What cannot be followed. */
    void refuse(uint16_t thread, const std::string &text);
    /* Copies a value out of the target into a store record; false: it cannot be read any more. */
    bool emit_store(const Part &part, uint8_t detail, uint16_t thread, uint32_t site);
};

/* A thread's system call in progress, and what it has begun in the trace. */
struct SystemCall {
    SystemCall() : number(0), arguments(), created(0), bytes_to_write(0), takes_name_away(false), has_ended(false) {}

    uint64_t number;
    uint64_t arguments[6];

    struct Begun {
        fl_record begin;
        std::string text; /* the payload of both records; of named operations only */
        bool is_written;  /* its begin is in the trace */
    };
    std::vector<Begun> begun;
    uint32_t created;        /* file that is bound to its inode once it exists */
    uint64_t bytes_to_write; /* 0: not a write */
    bool takes_name_away;    /* a rename or an unlink: of old_name; new_name is empty for an unlink */
    std::string old_name, new_name;
    bool has_ended; /* execve: nothing may follow in the trace */
};

/* A thread that makes a system call, for the time of one look at it. */
class Caller {
  public:
    Caller(Traced *traced, SystemCall *call, CallStack *stack, uint16_t thread, uint64_t instruction, uint64_t stack_pointer)
        : traced_(*traced), call_(*call), stack_(stack), thread_(thread), instruction_(instruction), stack_pointer_(stack_pointer) {
    }

    void begins();
    /* result: as the kernel answers, -errno where it failed. */
    void ends(int64_t result);

  private:
    typedef uint64_t Word;

    uint32_t site();
    fl_record record(uint8_t kind, uint8_t operation, uint32_t file);
    void begin(uint8_t operation, uint32_t file, uint64_t offset, uint64_t value);
    void begin_named(uint8_t operation, uint32_t file, const std::string &name);
    void end_all(uint64_t error);
    void unsupported(const std::string &text) { traced_.refuse(thread_, text); }

    bool pm_path(int folder, Word path, std::string *relative, std::string *absolute);
    uint32_t pm_file(int descriptor, struct stat *status);
    void before_open(int folder, Word path, Word flags);
    void before_open_below(const std::string &relative, const std::string &absolute, Word flags);
    void before_open_outside(const std::string &absolute, Word flags);
    void before_truncate_path();
    void before_truncate();
    void before_unlink(int folder, Word path, bool is_folder);
    void before_rename(int old_folder, Word old_path, int new_folder, Word new_path, Word flags);
    void before_mkdir(int folder, Word path);
    void before_fallocate();
    void before_fsync();
    void before_sync_all(int descriptor);
    void before_range(uint8_t operation);
    void before_write(bool is_positioned);
    void before_vector_write(bool is_positioned, Word flags);
    void write_pieces(const std::vector<Range> &pieces, bool is_positioned, Word position, Word flags);
    void before_exec(int folder, Word path);
    void refuse_name(const char *what, int folder, Word path);
    void refuse_content(const char *what, int descriptor);
    bool begins_named_operation();
    bool begins_content_operation();
    void begins_refused();

    void after_open(int descriptor);
    void after_mmap(uint64_t start);
    void after_refused_mmap(uint64_t error);
    void after_mremap(uint64_t start);
    void after_unmap();
    void change_mappings(uint64_t result);
    void kernel_wrote(uint64_t start, uint64_t bytes);
    void kernel_filled(Word pieces, Word count, uint64_t bytes);
    bool kernel_writes(uint64_t result);
    void look_for_unknown();

    Traced &traced_;
    SystemCall &call_;
    CallStack *stack_;
    uint16_t thread_;
    uint64_t instruction_, stack_pointer_;
};

/* The pieces of an iovec array of the target; false: they cannot be read. */
bool read_pieces(const Target &target, uint64_t array, uint64_t count, std::vector<Range> *pieces);

#endif
