/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_schedule.c - which thread runs: the turn.
 *
 * Valgrind runs one thread at a time, under its big lock; which one gets the lock next is the kernel's choice, and so differs
 * from run to run. Here the big lock is replaced by a turn that its holder hands to a thread of the tool's choice.
 *
 * Invariant: client code runs only in the thread that has the turn. The turn is handed on only by its holder, only at points
 * of its own execution (a slice ends, a system call that waits begins, the thread ends), and only to a thread that is READY
 * in the model below. What is READY changes at such points only. So the choice is a function of the client's execution so far
 * and of the seed, and by induction the execution is a function of the program, its input and the seed.
 *
 * A chosen thread that is still on its way (out of a system call, into its first instruction) is waited for: a thread is
 * READY only if it arrives without another's help, so this ends.
 *
 * The model: what a thread waits for (fl_waits.c decides at the start of each system call).
 *   - A system call that ends by itself (a file's) keeps the turn.
 *   - A futex wait is done by the tool: the thread waits at a gate of its own, and FUTEX_WAKE opens the gates of the first
 *     waiters in order of waiting. The kernel's wake at a thread's end (pthread_join) is done when the thread hands on the
 *     turn for the last time; the next holder then waits until the kernel has cleared the thread's word.
 *   - A read that would wait becomes READY when its descriptor can be read at a handover.
 *   - A sleep ends after SLEEP_HANDOVERS handovers, early or late, or when no thread is READY and its time is up.
 *   - Of all other waiting (children, sockets, poll, locks of files, time-outs, signals) only the kernel knows the end. Such a
 *     thread becomes READY when it is back, and a trace in which others ran meanwhile may differ from run to run. If no
 *     thread is READY nobody has the turn, and the first that is back takes it: the tool adds no deadlock to the client's.
 *   - A futex that another process changes: a process that has forked or was forked looks at it every 20 ms, any other only
 *     while nobody has the turn. That is the one exception (a limit in pintools/README.md): in a process of the second kind,
 *     a thread that spins until a waiter at such a futex is back spins for ever.
 *
 * The seed. 0: a thread runs until it waits, yields or ends, then the next READY one in order of creation. Otherwise a slice is
 * 1 to 64 events long (stores, flushes and fences of PM, locked instructions anywhere; short ones are more likely) and ends
 * at the end of the basic block; the next thread is any READY one; both are drawn from a generator with this seed. In
 * both cases Valgrind's own limit of 100,000 basic blocks ends a slice, so that a thread that spins lets others run. A slice
 * does not end within a `rep`, which is one store.
 *
 * Of the core's functions, these are replaced at link time: those of the scheduler lock, and the one that makes a client's
 * system call (fl_waits.c). A process with one thread never hands on the turn.
 */
#include "fl_schedule.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_guest.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vkiscnums.h"

#include <stddef.h>

#define SLEEP_HANDOVERS 64
#define NO_LIMIT (~0ull)
#define MOST_SLICE_BITS 7    /* slices of 1 to 2^6 events */
#define END_SPINS 1000       /* before a handover sleeps for a thread that ends */
#define END_PAUSE_NS 50000
#define MOST_END_PAUSES 100000 /* 5 s: then something other than the kernel owns that word */

ULong fl_clo_schedule_seed;
ULong fl_events_left = NO_LIMIT;

struct task *fl_tasks;
UInt fl_highest_task;

UInt fl_task_count;
static struct task *holder;    /* null: nobody, or before the first thread */
static Int turn;               /* lwp of the holder; 0: nobody. What others wait for */
static Int model_lock;
static ThreadId newest;        /* created by the system call in progress */
static UInt ending_count;      /* threads that have handed on the turn for the last time, with a word to be cleared */
static Bool has_relatives; /* this process has forked or was forked */
static ULong wait_count;
static ULong virtual_now;
static ULong random_state;

/* ---- small parts ---- */

static ULong draw(void) { /* splitmix64 */
    ULong word = random_state += 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

static ULong draw_slice(void) {
    if (fl_clo_schedule_seed == 0 || fl_task_count < 2)
        return NO_LIMIT;
    UInt bits = draw() % MOST_SLICE_BITS;
    return 1 + draw() % (1ull << bits);
}

static void seed_generator(void) { random_state = fl_clo_schedule_seed ^ ((ULong)fl_process << 32); }

/* Held for a few hundred instructions, by threads that run in the tool. */
void fl_lock_model(void) {
    while (__atomic_exchange_n(&model_lock, 1, __ATOMIC_ACQUIRE) != 0)
        fl_kernel(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
}

void fl_unlock_model(void) { __atomic_store_n(&model_lock, 0, __ATOMIC_RELEASE); }

static Int current_turn(void) { return __atomic_load_n(&turn, __ATOMIC_ACQUIRE); }

Bool fl_has_relatives(void) { return has_relatives; }

Bool fl_is_idle(void) { return holder == NULL && current_turn() == 0; }

static UInt turn_bit(Int lwp) { return 1u << (lwp & 31); }

struct task *fl_task_of_lwp(Int lwp) {
    for (UInt i = 1; i <= fl_highest_task; i++)
        if (fl_tasks[i].state != TASK_NONE && fl_tasks[i].lwp == lwp)
            return &fl_tasks[i];
    return NULL;
}

void fl_open_gate(struct task *task) {
    __atomic_add_fetch(&task->gate, 1, __ATOMIC_RELEASE);
    fl_kernel(__NR_futex, (UWord)&task->gate, VKI_FUTEX_WAKE | VKI_FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
}

/* ---- futexes ---- */

static struct task *first_waiter(Addr word, UInt bits) {
    struct task *first = NULL;
    for (UInt i = 1; i <= fl_highest_task; i++) {
        struct task *task = &fl_tasks[i];
        if (task->state == TASK_FUTEX && task->word == word && (task->bits & bits) && (first == NULL || task->since < first->since))
            first = task;
    }
    return first;
}

UInt fl_wake(Addr word, UInt most, UInt bits) {
    UInt woken = 0;
    struct task *task;
    while (woken < most && (task = first_waiter(word, bits)) != NULL) {
        task->state = TASK_READY;
        task->is_woken = True;
        fl_open_gate(task);
        woken++;
    }
    return woken;
}

UInt fl_requeue(Addr word, UInt most, Addr to) {
    UInt moved = 0;
    struct task *task;
    while (word != to && moved < most && (task = first_waiter(word, ~0u)) != NULL) {
        task->word = to;
        task->value = *(UInt *)to;
        task->since = ++wait_count;
        moved++;
    }
    return moved;
}

/* ---- who is next ---- */

static void find_readable(void) {
    for (UInt i = 1; i <= fl_highest_task; i++)
        if (fl_tasks[i].state == TASK_DESCRIPTOR && fl_can_be_read(fl_tasks[i].descriptor))
            fl_tasks[i].state = TASK_READY;
}

static void age_sleepers(void) {
    for (UInt i = 1; i <= fl_highest_task; i++) {
        struct task *task = &fl_tasks[i];
        if (task->state == TASK_SLEEP && ++task->handovers >= SLEEP_HANDOVERS) {
            task->state = TASK_READY;
            fl_open_gate(task);
        }
    }
}

/* The READY task with the lowest number above, else the lowest of all; null if none is READY. */
static struct task *next_in_order(UInt above) {
    struct task *lowest = NULL, *next = NULL;
    UInt lowest_number = ~0u, next_number = ~0u;
    for (UInt i = 1; i <= fl_highest_task; i++) {
        if (fl_tasks[i].state != TASK_READY)
            continue;
        UInt number = fl_number_of(i);
        if (number < lowest_number)
            lowest = &fl_tasks[i], lowest_number = number;
        if (number > above && number < next_number)
            next = &fl_tasks[i], next_number = number;
    }
    return next != NULL ? next : lowest;
}

static struct task *any_ready(const struct task *except) {
    UInt count = 0, number = 0;
    for (UInt i = 1; i <= fl_highest_task; i++)
        count += fl_tasks[i].state == TASK_READY && &fl_tasks[i] != except;
    if (count == 0)
        return NULL;
    /* In order of creation: Valgrind's ids are reused. */
    struct task *task = NULL;
    for (ULong skip = draw() % count + 1; skip > 0;) {
        task = next_in_order(number);
        number = fl_number_of(task - fl_tasks);
        skip -= task != except;
    }
    return task;
}

/* Nobody is READY. The sleeper that ends first, if nothing else can end; else a thread that is back already; else null. */
static struct task *next_waiting(void) {
    struct task *soonest = NULL, *arrived = NULL;
    Bool is_certain = True;
    for (UInt i = 1; i <= fl_highest_task; i++) {
        struct task *task = &fl_tasks[i];
        if (task->has_arrived && (task->state == TASK_SLEEP || task->state == TASK_DESCRIPTOR))
            arrived = task;
        if (task->state == TASK_SLEEP && (soonest == NULL || task->deadline < soonest->deadline))
            soonest = task;
        is_certain &=
            task->state != TASK_OUTSIDE && task->state != TASK_DESCRIPTOR && !(task->state == TASK_FUTEX && task->is_timed);
    }
    return is_certain ? soonest : arrived;
}

static struct task *choose(struct task *from, Bool may_keep) {
    find_readable();
    age_sleepers();
    struct task *next;
    if (fl_clo_schedule_seed == 0)
        next = next_in_order(fl_number_of(from - fl_tasks));
    else if ((next = any_ready(may_keep ? NULL : from)) == NULL && from->state == TASK_READY)
        next = from;
    return next != NULL ? next : next_waiting();
}

/* ---- the turn ---- */

static void give_turn(struct task *task) {
    Int lwp = task == NULL ? 0 : task->lwp;
    if (task != NULL) {
        if (task->state == TASK_SLEEP && task->deadline > virtual_now)
            virtual_now = task->deadline;
        task->state = TASK_READY;
        task->has_arrived = False;
    }
    holder = task;
    fl_events_left = draw_slice();
    if (lwp == current_turn())
        return;
    __atomic_store_n(&turn, lwp, __ATOMIC_RELEASE);
    if (lwp != 0)
        fl_kernel(__NR_futex, (UWord)&turn, VKI_FUTEX_WAKE_BITSET | VKI_FUTEX_PRIVATE_FLAG, 0x7fffffff, 0, 0, turn_bit(lwp));
}

void fl_hand_on_turn(struct task *from, Bool may_keep) { give_turn(choose(from, may_keep)); }

void fl_arrive(struct task *task) {
    if (fl_is_idle())
        give_turn(task);
}

/* Threads that have handed on the turn for the last time are over when the kernel has cleared their word. */
static void see_off_ended(void) {
    for (UInt i = 1; i <= fl_highest_task && ending_count > 0; i++) {
        Addr word = fl_tasks[i].cleared_word;
        if (fl_tasks[i].state != TASK_NONE || word == 0)
            continue;
        struct vki_timespec pause = {.tv_sec = 0, .tv_nsec = END_PAUSE_NS};
        for (UInt tries = 0; tries < END_SPINS + MOST_END_PAUSES; tries++) {
            if (!VG_(am_is_valid_for_client)(word, sizeof(Int), VKI_PROT_READ) || *(volatile Int *)word == 0)
                break;
            if (tries < END_SPINS)
                fl_kernel(__NR_sched_yield, 0, 0, 0, 0, 0, 0);
            else
                fl_kernel(__NR_nanosleep, (UWord)&pause, 0, 0, 0, 0, 0);
        }
        fl_tasks[i].cleared_word = 0;
        ending_count--;
    }
}

void fl_wait_for_turn(Int lwp) {
    Int seen;
    while ((seen = current_turn()) != lwp)
        fl_kernel(__NR_futex, (UWord)&turn, VKI_FUTEX_WAIT_BITSET | VKI_FUTEX_PRIVATE_FLAG, seen, 0, 0, turn_bit(lwp));
    if (UNLIKELY(ending_count > 0))
        see_off_ended();
}

/* ---- the core's lock ---- */

struct sched_lock {
    Bool is_there; /* the core wants an address */
};
struct sched_lock *__wrap_vgModuleLocal_create_sched_lock(void);
void __wrap_vgModuleLocal_destroy_sched_lock(struct sched_lock *lock);
void __wrap_vgModuleLocal_acquire_sched_lock(struct sched_lock *lock);
void __wrap_vgModuleLocal_release_sched_lock(struct sched_lock *lock);
Int __wrap_vgModuleLocal_get_sched_lock_owner(struct sched_lock *lock);

/* At the start of the process, and in a forked child, which may have inherited a locked model. */
struct sched_lock *__wrap_vgModuleLocal_create_sched_lock(void) {
    static struct sched_lock the_lock = {True};
    model_lock = 0;
    turn = VG_(gettid)();
    return &the_lock;
}

void __wrap_vgModuleLocal_destroy_sched_lock(struct sched_lock *lock) { (void)lock; }

Int __wrap_vgModuleLocal_get_sched_lock_owner(struct sched_lock *lock) {
    (void)lock;
    return current_turn();
}

/* A thread that is not READY comes from a system call that the kernel or a signal has ended. */
void __wrap_vgModuleLocal_acquire_sched_lock(struct sched_lock *lock) {
    (void)lock;
    Int lwp = VG_(gettid)();
    if (current_turn() != lwp) {
        fl_lock_model();
        struct task *task = fl_task_of_lwp(lwp); /* null: a new thread, its creator has the turn */
        if (task != NULL) {
            task->has_arrived = True;
            if (task->state != TASK_SLEEP)
                task->state = TASK_READY;
            fl_arrive(task);
        }
        fl_unlock_model();
    }
    fl_wait_for_turn(lwp);
}

static void end_task(struct task *task) {
    task->state = TASK_NONE;
    task->is_exiting = False;
    fl_task_count--;
    if (task->cleared_word != 0) {
        ending_count++;
        fl_wake(task->cleared_word, 1, ~0u);
    }
}

static void begin_waiting(struct task *task, UChar call) {
    static const UChar states[] = {
        [CALL_FUTEX] = TASK_FUTEX, [CALL_SLEEP] = TASK_SLEEP, [CALL_DESCRIPTOR] = TASK_DESCRIPTOR, [CALL_OUTSIDE] = TASK_OUTSIDE};
    task->state = task->waits_in = states[call];
    task->has_arrived = False;
    task->since = ++wait_count;
    task->gate_seen = task->gate;
    task->handovers = 0;
    if (call == CALL_SLEEP)
        task->deadline = virtual_now + fl_sleep_nanoseconds(task);
}

void __wrap_vgModuleLocal_release_sched_lock(struct sched_lock *lock) {
    (void)lock;
    struct task *task = holder;
    if (task == NULL || (fl_task_count == 1 && !task->is_exiting))
        return;
    UChar call = task->call;
    task->call = CALL_NONE;
    if (call == CALL_FINITE)
        return;
    if (call == CALL_NONE && !task->is_exiting && fl_is_joining()) {
        fl_events_left = draw_slice();
        return;
    }
    fl_lock_model();
    if (task->is_exiting)
        end_task(task);
    else if (call != CALL_NONE && call != CALL_YIELD)
        begin_waiting(task, call);
    fl_hand_on_turn(task, call != CALL_YIELD);
    fl_unlock_model();
}

/* The block in progress is the slice's last or last but one: 0 would stop the core's own nested runs. */
void fl_schedule_end_slice(void) {
    ThreadId thread = VG_(get_running_tid)();
    PtrdiffT offset = offsetof(VexGuestAMD64State, host_EvC_COUNTER);
    UInt left;
    fl_events_left = NO_LIMIT;
    VG_(get_shadow_regs_area)(thread, (UChar *)&left, 0, offset, sizeof left);
    if (left <= 1)
        return;
    left = 1;
    VG_(set_shadow_regs_area)(thread, 0, offset, sizeof left, (UChar *)&left);
}

/* ---- life of threads ---- */

void fl_schedule_thread_created(ThreadId parent, ThreadId child) {
    if (fl_tasks == NULL) {
        fl_tasks = VG_(calloc)("fl.schedule.tasks", VG_N_THREADS, sizeof *fl_tasks);
        seed_generator();
    }
    fl_lock_model();
    struct task *task = &fl_tasks[child];
    UInt gate = task->gate;
    VG_(memset)(task, 0, sizeof *task);
    task->gate = gate;
    task->state = TASK_READY;
    if (child > fl_highest_task)
        fl_highest_task = child;
    fl_task_count++;
    if (parent == VG_INVALID_THREADID) {
        task->lwp = VG_(gettid)();
        holder = task;
    } else {
        newest = child;
        if (fl_task_count == 2)
            fl_events_left = draw_slice();
    }
    fl_unlock_model();
}

/* Also of a thread that could not be created. */
void fl_schedule_thread_exits(ThreadId thread) {
    struct task *task = &fl_tasks[thread];
    if (task == holder) {
        task->is_exiting = True;
        return;
    }
    fl_lock_model();
    task->cleared_word = 0;
    end_task(task);
    newest = VG_INVALID_THREADID;
    fl_unlock_model();
}

/* The number that the kernel gave the thread just created, and the word that it clears at the thread's end. */
void fl_schedule_learn_thread(Int lwp, Addr cleared_word) {
    if (newest == VG_INVALID_THREADID)
        return;
    fl_tasks[newest].cleared_word = cleared_word;
    fl_tasks[newest].lwp = lwp;
    newest = VG_INVALID_THREADID;
}

void fl_schedule_forks(void) { has_relatives = True; }

void fl_schedule_forked(ThreadId thread) {
    struct task *task = &fl_tasks[thread];
    for (UInt i = 1; i <= fl_highest_task; i++)
        if (i != thread)
            VG_(memset)(&fl_tasks[i], 0, sizeof fl_tasks[i]);
    task->state = TASK_READY;
    task->call = CALL_NONE;
    task->lwp = VG_(gettid)();
    holder = task;
    turn = task->lwp;
    model_lock = 0;
    fl_task_count = 1;
    ending_count = 0;
    newest = VG_INVALID_THREADID;
    fl_events_left = NO_LIMIT;
    seed_generator();
}
