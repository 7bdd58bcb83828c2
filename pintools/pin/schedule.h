/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h - which thread runs. One thread runs at a time: it has the turn, and hands it on at points of its own execution (a slice
 * ends, a system call waits, the thread ends) to a thread that can run without another's help. So the interleaving follows from the
 * program and the seed, as long as no thread waits for something that only the kernel knows the end of.
 *
 * Waiting at futexes is done here, not in the kernel: a waiter is woken by the FUTEX_WAKE that this file sees, in order of waiting.
 * What it asked the kernel for is then not done at all (Step::SKIP_LATER), and answered here.
 *
 * Seed 0: a thread runs until it waits, yields or ends, then the next in order of creation. Any other: slices of 1 to 64 events, and
 * any thread that can run comes next. In both a slice ends at a pause instruction, and after a fixed number of steps (basic blocks under
 * the Pin tool, instructions under the native driver), so that a thread that spins lets others run.
 *
 * The order is lost, and no progress, where only the kernel knows the end: children, poll, sockets, locks of files, signals, time-outs
 * that expire. A thread that a signal interrupts here waits in the kernel the next time, so that the next signal finds it there.
 */
#ifndef FAULTLINE_PIN_SCHEDULE_H
#define FAULTLINE_PIN_SCHEDULE_H

#include "target.h"

#include <vector>

/* What a thread that makes a system call does. */
enum class Step {
    RUN,        /* the call, and keeps the turn */
    RUN_LATER,  /* hands the turn on; the call, when it has the turn again */
    SKIP_LATER, /* hands the turn on; when it has it again, the call counts as made, with Schedule::answer() as its result */
    OUTSIDE,    /* hands the turn on and makes the call; back() when it has returned */
};

class Schedule {
  public:
    explicit Schedule(uint64_t seed);

    /* A thread exists. kernel_number: of the kernel; cleared_word: that the kernel clears when the thread ends, or 0. */
    void add(uint16_t thread, int kernel_number, uint64_t cleared_word);
    void set_cleared_word(uint16_t thread, uint64_t word) { task(thread).cleared_word = word; }
    void remove(uint16_t thread);
    /* In a forked child, which has one thread. */
    void forked(uint16_t thread, int kernel_number);
    /* The process has forked: others may wake what waits here. */
    void has_relatives() { has_relatives_ = true; }

    Step before_call(uint16_t thread, uint64_t number, const uint64_t *arguments, const Target &target);
    /* A thread that was told to wait has the turn again: what it does now. OUTSIDE: a signal is there for it, and only the kernel can say
     * what that does to the call. */
    Step resumes(uint16_t thread, Step told);
    int64_t answer(uint16_t thread) { return task(thread).answer; }
    /* How many waiters the call woke here: the kernel does not count them. */
    uint64_t woken(uint16_t thread) { return task(thread).woken; }
    void back(uint16_t thread);

    /* The thread that has the turn; 0: none. */
    uint16_t running() const { return running_; }
    /* Gives the turn to a thread that can run: its number, or 0 if there is none; then a thread outside that is back, a descriptor, or
     * time brings the next one. */
    uint16_t choose(const Target &target, uint64_t now_ns);
    bool is_alone() const { return tasks_.size() < 2; }

    void count_event() { events_left_ -= events_left_ > 0; }
    bool is_slice_over() const { return events_left_ == 0 && !is_alone(); }
    void end_slice() { events_left_ = 0; }

  private:
    Step decide(uint16_t thread, uint64_t number, const uint64_t *arguments, const Target &target);
    enum class Wait { READY, FUTEX, JOIN, DESCRIPTOR, SLEEP, OUTSIDE };
    struct Task {
        uint16_t thread;
        int kernel_number;
        uint64_t cleared_word;
        Wait wait;
        uint64_t word, deadline_ns; /* FUTEX; deadline 0: none */
        uint32_t bits;
        uint64_t since; /* order of waiting */
        int descriptor; /* DESCRIPTOR */
        unsigned patience; /* SLEEP: handovers left */
        int64_t answer;
        uint64_t woken;
        bool is_interrupted;
        bool waits_outside; /* the next time: a signal that comes then must find it in the kernel */
    };

    Task &task(uint16_t thread);
    const Task *with_cleared_word(uint64_t word) const;
    Step before_futex(Task *task, const uint64_t *arguments, const Target &target);
    Step wait_at_futex(Task *task, const uint64_t *arguments, const Target &target);
    uint64_t wake(uint64_t word, uint64_t most, uint32_t bits);
    uint64_t requeue(uint64_t word, uint64_t most, uint64_t to);
    Step wait_for_descriptor(Task *task, int descriptor, bool for_writing, const Target &target);
    void interrupt(int kernel_number); /* 0: any thread */
    Step wait(Task *task, Wait wait, Step step);
    void look_at(Task *task, const Target &target, uint64_t now_ns);
    uint64_t draw();
    void start_slice();

    std::vector<Task> tasks_; /* in order of creation */
    uint64_t seed_, random_, events_left_, wait_count_;
    uint16_t running_;
    bool has_relatives_;
};

/* Monotonic time. */
uint64_t now_ns();

#endif
