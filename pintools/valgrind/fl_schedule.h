/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_schedule.h - what fl_schedule.c (the turn) and fl_waits.c (system calls that wait) share.
 */
#ifndef FL_SCHEDULE_H
#define FL_SCHEDULE_H

#include "fl.h"

enum task_state {
    TASK_NONE,
    TASK_READY,      /* runs, or will without help from another thread: it may be given the turn, which then waits for it */
    TASK_FUTEX,      /* until another thread wakes it, a time-out or a signal */
    TASK_SLEEP,      /* until SLEEP_HANDOVERS turns were handed on, or nothing else can run and its time is up */
    TASK_DESCRIPTOR, /* until its descriptor can be read */
    TASK_OUTSIDE,    /* in a system call that only the kernel knows the end of */
};

/* What a system call means for the turn. */
enum task_call {
    CALL_NONE,
    CALL_FINITE, /* ends by itself: the turn is kept */
    CALL_YIELD,
    CALL_FUTEX,
    CALL_SLEEP,
    CALL_DESCRIPTOR,
    CALL_OUTSIDE,
};

/* A thread of the client. Written by the thread that has the turn, or under the model's lock; `call`, `waits_in` and what
 * before_call() notes are the thread's own. */
struct task {
    Int lwp; /* the kernel's id; 0 until the creator has learned it */
    UChar state;
    UChar call;     /* announced; taken by the next release of the lock */
    UChar waits_in; /* state that this system call began to wait in; TASK_NONE: it kept the turn, or needs no help */
    Bool is_exiting;
    Bool has_arrived; /* TASK_SLEEP, TASK_DESCRIPTOR: out of the kernel and waiting for the turn */
    Addr cleared_word; /* that the kernel clears when the thread ends */

    Addr word; /* TASK_FUTEX */
    UInt value, bits;
    Bool is_timed, is_woken, is_shared; /* shared: without FUTEX_PRIVATE_FLAG */
    ULong since; /* order of waiting */
    UInt gate, gate_seen; /* what the thread really waits at: opened by adding 1 */
    Int descriptor;
    ULong deadline; /* TASK_SLEEP, in nanoseconds of virtual time */
    UInt handovers;
    Addr interrupted_at; /* instruction after a call that a signal has interrupted; 0: none */
    UInt interrupted_call;
    UInt woken; /* what a FUTEX_WAKE of this thread did */
};

extern struct task *fl_tasks; /* by ThreadId */
extern UInt fl_highest_task;
extern UInt fl_task_count;

struct task *fl_task_of_lwp(Int lwp);
void fl_lock_model(void);
void fl_unlock_model(void);

/* With the model's lock. */
void fl_open_gate(struct task *task);
UInt fl_wake(Addr word, UInt most, UInt bits);
UInt fl_requeue(Addr word, UInt most, Addr to);
void fl_hand_on_turn(struct task *from, Bool may_keep);
void fl_arrive(struct task *task); /* takes the turn if nobody has it */
Bool fl_is_idle(void);
Bool fl_has_relatives(void); /* a process of the client's that may change shared words */

void fl_wait_for_turn(Int lwp); /* without it */

void fl_schedule_learn_thread(Int lwp, Addr cleared_word);
Bool fl_can_be_read(Int descriptor);
ULong fl_sleep_nanoseconds(const struct task *task);

static inline Long fl_kernel(UWord number, UWord a, UWord b, UWord c, UWord d, UWord e, UWord f) {
    Long result = number;
    register UWord r10 __asm__("r10") = d;
    register UWord r8 __asm__("r8") = e;
    register UWord r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

#endif
