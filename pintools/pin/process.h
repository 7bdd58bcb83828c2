/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h - one traced process: from what its threads do to records of the trace. Whoever runs the process (tool.cpp under Pin,
 * drive.cpp by single steps) calls these functions for the thread that has the turn (schedule.h), and for no other.
 *
 * An access is announced before it is made, and recorded when it was made, with the value that it left. What faults is announced and
 * never made.
 */
#ifndef FAULTLINE_PIN_PROCESS_H
#define FAULTLINE_PIN_PROCESS_H

#include "calls.h"
#include "classify.h"
#include "schedule.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

struct Options {
    Options() : process(1), schedule_seed(0) {}

    std::string trace, pm_folder, module_root;
    uint32_t process;
    uint64_t schedule_seed;
};

/* An instruction that is about to be executed. */
struct Access {
    Class kind;
    uint64_t instruction, stack; /* addresses */
    std::vector<Range> ranges;   /* that it stores to; of a flush its operand, with no bytes in it */
    bool is_first;               /* REPEATED: no iteration of this execution came before */
    uint64_t count;              /* REPEATED: the count register, before this iteration */
};

struct Thread {
    Thread() : number(0), is_pending(false), is_joining(false), joined() {}

    uint16_t number;
    CallStack stack;
    SystemCall call;

    bool is_pending; /* the access was announced */
    Access pending;
    /* A rep in progress: what it has stored in one direction so far. R3 wants one wide store. */
    bool is_joining;
    struct {
        uint64_t instruction;
        uint32_t site;
        Range range;
    } joined;

    bool is_idle() const { return !is_pending && !is_joining; }
};

class Process {
  public:
    Process(const Options &options, const Target *target);

    /* Empty, or one line that says what is wrong. */
    std::string start(const Options &options);
    /* In a child that was forked while `parent` ran there. */
    void become_child(Thread *parent, const Target *target);
    void forks(Thread *thread);      /* before it does */
    void has_forked(Thread *thread); /* in the parent; a child that did not come to be counts, too */
    /* value: as FL_PROCESS_END has it. */
    void ends(Thread *thread, uint64_t value);

    /* In order of creation. 0: the trace has room for no more. */
    uint16_t start_thread(Thread *thread, int kernel_number, uint64_t cleared_word);
    void end_thread(Thread *thread);

    void before(Thread *thread, const Access &access);
    /* The access that was announced has been made. flags: RFLAGS after it. */
    void made(Thread *thread, uint64_t flags);
    /* The thread is about to execute another instruction than a rep that it was at. */
    void moves_on(Thread *thread, uint64_t instruction);
    /* A signal: the thread was at this instruction, with this count register. */
    void is_interrupted(Thread *thread, uint64_t instruction, uint64_t count);
    /* Instructions that cannot be followed, or are not known. */
    void refuse(Thread *thread, uint64_t instruction, const std::string &what);

    /* A client request; false: it is none of ours. */
    bool on_request(Thread *thread, const uint64_t *request);
    void call_begins(Thread *thread, uint64_t number, const uint64_t *arguments, uint64_t instruction, uint64_t stack);
    void call_ends(Thread *thread, int64_t result, uint64_t instruction, uint64_t stack);

    /* The trace could not be written, or has no more room: why; empty while all is well. */
    std::string failure() const;

    Traced traced;
    Schedule schedule;

  private:
    struct Elsewhere {
        uint64_t count;
        uint8_t detail;
        uint16_t thread;
    };

    fl_record record(const Thread &thread, uint8_t kind, uint8_t detail, uint32_t site);
    uint32_t site(Thread *thread, Place place);
    void store(Thread *thread);
    void store_locked(Thread *thread, uint64_t flags);
    void flush(Thread *thread);
    void flush_elsewhere(Thread *thread);
    void join(Thread *thread);
    void close_joined(Thread *thread);
    void end_flushes_elsewhere();

    uint32_t child_count_;
    uint16_t thread_count_;
    bool is_ended_;
    std::string failure_;
    std::map<uint32_t, Elsewhere> elsewhere_; /* by site */
};

#endif
