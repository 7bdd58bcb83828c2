/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_waits.c - system calls that wait: what they mean for the turn (fl_schedule.c), and how their threads wait.
 *
 * Before a call its arguments say what it waits for. A call known to end by itself keeps the turn; an unknown one is OUTSIDE,
 * which costs determinism and never a deadlock (one exception, futexes shared with unrelated processes: fl_schedule.c). The calls
 * that the model follows do not wait in the kernel as they are: the core's function that makes the system call is replaced, and
 * makes another one with a copy of the client's registers, a wait at the thread's gate (or a poll of the descriptor), so that
 * signals interrupt it as they would the client's own.
 */
#include "fl_schedule.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_guest.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_vkiscnums.h"

#include <stddef.h>

/* In libcoregrind, not in its public headers. */
extern Int VG_(fcntl)(Int descriptor, Int command, Addr argument);

#define FL_ETIMEDOUT 110
#define FL_CLONE_CHILD_CLEARTID 0x200000
#define FL_TIMER_ABSTIME 1
#define FL_CLOCK_REALTIME 0
#define FL_CLOCK_MONOTONIC 1
#define FL_SA_RESTART 0x10000000
#define FL_F_SETLKW 7
#define FL_F_OFD_SETLKW 38
#define FL_POLLIN 1
#define FL_POLLOUT 4
#define FL_PIPE_ROOM 4096 /* a pipe that can be written takes as much without waiting */
#define FL_ANY_BIT 0xffffffffu
#define FL_SECOND_NS 1000000000ull
#define SYSCALL_BYTES 2   /* of the instruction */
#define IDLE_LOOK_NS 20000000 /* how often a waiter looks whether its word changed though nobody woke it */

static Bool is_readable(Addr address, SizeT bytes) { return VG_(am_is_valid_for_client)(address, bytes, VKI_PROT_READ); }

/* ---- descriptors ---- */

static Bool is_ready(Int descriptor, Short events) {
    struct vki_pollfd asked = {.fd = descriptor, .events = events};
    return !sr_isError(VG_(poll)(&asked, 1, 0)) && asked.revents != 0;
}

Bool fl_can_be_read(Int descriptor) { return is_ready(descriptor, FL_POLLIN); }

static UInt kind_of_descriptor(Int descriptor) {
    struct vg_stat status;
    return descriptor >= 0 && VG_(fstat)(descriptor, &status) == 0 ? status.mode & VKI_S_IFMT : 0;
}

static Bool never_waits(Int descriptor) {
    UInt kind = kind_of_descriptor(descriptor);
    return kind == 0 || kind == VKI_S_IFREG || kind == VKI_S_IFDIR || kind == VKI_S_IFBLK ||
           (VG_(fcntl)(descriptor, VKI_F_GETFL, 0) & VKI_O_NONBLOCK);
}

static UChar classify_read(struct task *task, Int descriptor) {
    if (never_waits(descriptor) || fl_can_be_read(descriptor))
        return CALL_FINITE;
    if (kind_of_descriptor(descriptor) == VKI_S_IFSOCK)
        return CALL_OUTSIDE; /* may have a time-out of its own */
    task->descriptor = descriptor;
    return CALL_DESCRIPTOR;
}

static UChar classify_write(Int descriptor, ULong bytes) {
    return never_waits(descriptor) || (bytes <= FL_PIPE_ROOM && is_ready(descriptor, FL_POLLOUT)) ? CALL_FINITE : CALL_OUTSIDE;
}

static UChar classify_open(Int folder, UWord path) {
    struct vki_stat status;
    if (fl_kernel(__NR_newfstatat, folder, path, (UWord)&status, 0, 0, 0) != 0)
        return CALL_FINITE; /* the open fails too, or creates a file */
    return VKI_S_ISREG(status.st_mode) || VKI_S_ISDIR(status.st_mode) ? CALL_FINITE : CALL_OUTSIDE;
}

/* ---- time ---- */

static ULong nanoseconds(UWord timespec) {
    if (!is_readable(timespec, sizeof(struct vki_timespec)))
        return 0;
    const struct vki_timespec *time = (const struct vki_timespec *)timespec;
    return (ULong)time->tv_sec * FL_SECOND_NS + time->tv_nsec;
}

static UChar classify_clock_sleep(const UWord *a) {
    Bool is_known = a[0] == FL_CLOCK_REALTIME || a[0] == FL_CLOCK_MONOTONIC;
    return is_known ? CALL_SLEEP : CALL_OUTSIDE;
}

/* Set by classify for the sleep that begins. An absolute time counts as it is: it orders sleepers among themselves. */
static ULong sleep_ns;
ULong fl_sleep_nanoseconds(const struct task *task) {
    (void)task;
    return sleep_ns;
}

/* ---- futexes ---- */

static UInt futex_command(UWord operation) { return operation & ~(UWord)(VKI_FUTEX_PRIVATE_FLAG | VKI_FUTEX_CLOCK_REALTIME); }

static UChar classify_wait(struct task *task, const UWord *a, UInt bits) {
    if (task->is_woken && task->word == a[0])
        return CALL_FINITE; /* woken and interrupted at once: the call is made again, and has its answer */
    task->is_woken = False;
    if (!is_readable(a[0], sizeof(UInt)) || *(volatile UInt *)a[0] != (UInt)a[2] || bits == 0)
        return CALL_FINITE;
    task->word = a[0];
    task->value = a[2];
    task->bits = bits;
    task->is_timed = a[3] != 0;
    task->is_shared = !(a[1] & VKI_FUTEX_PRIVATE_FLAG);
    return CALL_FUTEX;
}

/* Waking more waiters than the kernel would is allowed: every waiter looks at its word again. */
static void wake_for(struct task *task, UInt command, const UWord *a) {
    fl_lock_model();
    switch (command) {
    case VKI_FUTEX_WAKE: task->woken = fl_wake(a[0], a[2], FL_ANY_BIT); break;
    case VKI_FUTEX_WAKE_BITSET: task->woken = fl_wake(a[0], a[2], a[5]); break;
    case VKI_FUTEX_WAKE_OP: task->woken = fl_wake(a[0], a[2], FL_ANY_BIT) + fl_wake(a[4], a[3], FL_ANY_BIT); break;
    case VKI_FUTEX_CMP_REQUEUE:
    case VKI_FUTEX_REQUEUE:
        if (!is_readable(a[0], sizeof(UInt)) || !is_readable(a[4], sizeof(UInt)) ||
            (command == VKI_FUTEX_CMP_REQUEUE && *(volatile UInt *)a[0] != (UInt)a[5]))
            break;
        task->woken = fl_wake(a[0], a[2], FL_ANY_BIT);
        UInt moved = fl_requeue(a[0], a[3], a[4]);
        task->woken += command == VKI_FUTEX_CMP_REQUEUE ? moved : 0;
        break;
    default: break;
    }
    fl_unlock_model();
}

static UChar classify_futex(struct task *task, const UWord *a) {
    UInt command = futex_command(a[1]);
    switch (command) {
    case VKI_FUTEX_WAIT: return classify_wait(task, a, FL_ANY_BIT);
    case VKI_FUTEX_WAIT_BITSET: return classify_wait(task, a, a[5]);
    case VKI_FUTEX_LOCK_PI:
    case VKI_FUTEX_WAIT_REQUEUE_PI: return CALL_OUTSIDE;
    default: wake_for(task, command, a); return CALL_FINITE;
    }
}

/* ---- before and after a call ---- */

static UChar classify(struct task *task, UInt number, const UWord *a) {
    switch (number) {
    case __NR_sched_yield: return CALL_YIELD;
    case __NR_futex: return classify_futex(task, a);
    case __NR_nanosleep: sleep_ns = nanoseconds(a[0]); return CALL_SLEEP;
    case __NR_clock_nanosleep: sleep_ns = nanoseconds(a[2]); return classify_clock_sleep(a);
    case __NR_read:
    case __NR_readv: return classify_read(task, a[0]);
    case __NR_recvfrom:
    case __NR_recvmsg: return never_waits(a[0]) || fl_can_be_read(a[0]) ? CALL_FINITE : CALL_OUTSIDE;
    case __NR_write: return classify_write(a[0], a[2]);
    case __NR_writev: return classify_write(a[0], FL_PIPE_ROOM + 1);
    case __NR_sendto: return classify_write(a[0], a[2]);
    case __NR_open:
    case __NR_creat: return classify_open(VKI_AT_FDCWD, a[0]);
    case __NR_openat: return classify_open(a[0], a[1]);
    case __NR_fcntl: return a[1] == FL_F_SETLKW || a[1] == FL_F_OFD_SETLKW ? CALL_OUTSIDE : CALL_FINITE;
    case __NR_sendfile:
    case __NR_copy_file_range: return never_waits(a[number == __NR_sendfile ? 0 : 2]) ? CALL_FINITE : CALL_OUTSIDE;
    case __NR_poll: return (Int)a[2] == 0 ? CALL_FINITE : CALL_OUTSIDE;
    case __NR_epoll_wait: return (Int)a[3] == 0 ? CALL_FINITE : CALL_OUTSIDE;
    case __NR_pread64:
    case __NR_preadv:
    case __NR_pwrite64:
    case __NR_pwritev:
    case __NR_pwritev2:
    case __NR_fsync:
    case __NR_fdatasync:
    case __NR_sync:
    case __NR_syncfs:
    case __NR_sync_file_range:
    case __NR_msync:
    case __NR_fallocate:
    case __NR_truncate:
    case __NR_ftruncate:
    case __NR_unlink:
    case __NR_unlinkat:
    case __NR_rename:
    case __NR_renameat:
    case __NR_renameat2:
    case __NR_link:
    case __NR_linkat:
    case __NR_symlink:
    case __NR_symlinkat:
    case __NR_mkdir:
    case __NR_mkdirat:
    case __NR_rmdir:
    case __NR_stat:
    case __NR_lstat:
    case __NR_fstat:
    case __NR_newfstatat:
    case __NR_statx:
    case __NR_access:
    case __NR_faccessat:
    case __NR_readlink:
    case __NR_readlinkat:
    case __NR_getdents:
    case __NR_getdents64:
    case __NR_chmod:
    case __NR_fchmod:
    case __NR_close:
    case __NR_dup:
    case __NR_dup2:
    case __NR_dup3:
    case __NR_ioctl:
    case __NR_getrandom:
    case __NR_madvise:
    case __NR_mmap:
    case __NR_munmap:
    case __NR_mremap:
    case __NR_mprotect:
    case __NR_kill:
    case __NR_tkill:
    case __NR_tgkill: return CALL_FINITE;
    default: return CALL_OUTSIDE;
    }
}

/* Of the clone in progress. */
static Addr word_to_clear;

void fl_schedule_before_call(ThreadId thread, UInt number, const UWord *arguments) {
    struct task *task = &fl_tasks[thread];
    task->waits_in = TASK_NONE;
    task->interrupted_at = 0;
    task->woken = 0;
    if (number != __NR_futex)
        task->is_woken = False;
    task->call = fl_task_count > 1 ? classify(task, number, arguments) : CALL_NONE; /* alone, it keeps the turn */
    if (number == __NR_set_tid_address)
        task->cleared_word = arguments[0];
    else if (number == __NR_clone)
        word_to_clear = arguments[0] & FL_CLONE_CHILD_CLEARTID ? arguments[3] : 0;
}

static void set_result(ThreadId thread, Long result) {
    PtrdiffT offset = offsetof(VexGuestAMD64State, guest_RAX);
    VG_(set_shadow_regs_area)(thread, 0, offset, sizeof result, (UChar *)&result);
}

/* The signal came before the call itself: the client makes it when the handler has returned. */
static void make_again(ThreadId thread, UInt number) {
    set_result(thread, number);
    VG_(set_IP)(thread, VG_(get_IP)(thread) - SYSCALL_BYTES);
}

/* A handler with SA_RESTART: the kernel would have made the client's call again, but not what stands in for it (poll, a futex
 * wait with a time-out). Known when the signal is about to be delivered, just after the call. */
static Bool restarts[_VKI_NSIG + 1]; /* by signal */

static void learn_handler(const UWord *a) {
    if (a[1] != 0 && a[0] <= _VKI_NSIG && is_readable(a[1], 2 * sizeof(UWord)))
        restarts[a[0]] = (((const UWord *)a[1])[1] & FL_SA_RESTART) != 0; /* handler, flags, ... */
}

void fl_schedule_before_signal(ThreadId thread, Int signal, Bool is_on_own_stack) {
    struct task *task = &fl_tasks[thread];
    (void)is_on_own_stack;
    if (task->interrupted_at == VG_(get_IP)(thread) && signal <= _VKI_NSIG && restarts[signal])
        make_again(thread, task->interrupted_call);
    task->interrupted_at = 0;
}

/* What is left of an interrupted sleep is said to be all of it. */
static void end_sleep(ThreadId thread, UInt number, const UWord *a, SysRes result) {
    UWord asked = number == __NR_nanosleep ? a[0] : a[2], left = number == __NR_nanosleep ? a[1] : a[3];
    Bool is_relative = number == __NR_nanosleep || !(a[1] & FL_TIMER_ABSTIME);
    if (!sr_isError(result) || sr_Err(result) == FL_ETIMEDOUT || sr_Err(result) == VKI_EAGAIN)
        set_result(thread, 0);
    else if (sr_Err(result) == VKI_EINTR && is_relative && left != 0 &&
             VG_(am_is_valid_for_client)(left, sizeof(struct vki_timespec), VKI_PROT_READ | VKI_PROT_WRITE))
        *(struct vki_timespec *)left = *(const struct vki_timespec *)asked;
}

/* A signal may come when the tool's call in place of the client's is over and its result is not yet in the client's
 * registers: the core then takes what lies there, or the time-out of a gate for the client's. */
void fl_schedule_after_call(ThreadId thread, UInt number, const UWord *arguments, SysRes result) {
    struct task *task = &fl_tasks[thread];
    task->call = CALL_NONE;
    if (number == __NR_clone && !sr_isError(result))
        fl_schedule_learn_thread(sr_Res(result), word_to_clear);
    if (number == __NR_futex && task->woken > 0 && !sr_isError(result))
        set_result(thread, (Long)sr_Res(result) + task->woken);
    Bool is_interrupted = sr_isError(result) && (sr_Err(result) == VKI_EINTR || task->is_timed);
    if (task->waits_in == TASK_FUTEX && (task->is_woken || !is_interrupted))
        set_result(thread, 0);
    else if (task->waits_in == TASK_SLEEP)
        end_sleep(thread, number, arguments, result);
    else if (task->waits_in == TASK_DESCRIPTOR && !sr_isError(result))
        make_again(thread, number);
    Bool is_stand_in = task->waits_in == TASK_DESCRIPTOR || (task->waits_in == TASK_FUTEX && !task->is_timed && !task->is_woken);
    if (is_stand_in && sr_isError(result) && sr_Err(result) == VKI_EINTR) {
        task->interrupted_at = VG_(get_IP)(thread);
        task->interrupted_call = number;
    }
    if (number == __NR_rt_sigaction && !sr_isError(result))
        learn_handler(arguments);
    task->waits_in = TASK_NONE;
    task->is_woken = False;
}

/* ---- waiting ---- */

extern UWord __real_vgModuleLocal_do_syscall_for_client_WRK(Word number, void *guest, const vki_sigset_t *mask,
                                                            const vki_sigset_t *mask_after, Word mask_bytes);
UWord __wrap_vgModuleLocal_do_syscall_for_client_WRK(Word number, void *guest, const vki_sigset_t *mask,
                                                     const vki_sigset_t *mask_after, Word mask_bytes);

/* A client's call in progress, and how to make another in its place. */
struct stand_in {
    VexGuestAMD64State *guest;
    VexGuestAMD64State copy;
    const vki_sigset_t *mask, *mask_after;
    Word mask_bytes;
    UWord failed; /* the core's own error */
};

static Long make(struct stand_in *call, UWord number, UWord a, UWord b, UWord c, UWord d, UWord f) {
    call->copy.guest_RDI = a, call->copy.guest_RSI = b, call->copy.guest_RDX = c;
    call->copy.guest_R10 = d, call->copy.guest_R8 = 0, call->copy.guest_R9 = f;
    call->failed =
        __real_vgModuleLocal_do_syscall_for_client_WRK(number, &call->copy, call->mask, call->mask_after, call->mask_bytes);
    return call->copy.guest_RAX;
}

static Bool is_open(struct task *task) { return __atomic_load_n(&task->gate, __ATOMIC_ACQUIRE) != task->gate_seen; }

/* Who ended the wait: a wake that came first counts, whatever the kernel says. */
static Long end_futex_wait(struct task *task, Long result) {
    fl_lock_model();
    if (task->is_woken)
        result = 0;
    task->state = TASK_READY;
    fl_unlock_model();
    return result;
}

/* The word of an idle process changed: another process, or the kernel for a thread that died with a lock, did it. Where
 * processes share memory by fork, a shared word is looked at while others run too: they may run until this waiter is back. */
static Bool was_changed_from_outside(struct task *task) {
    fl_lock_model();
    Bool may_be_outside = fl_is_idle() || (task->is_shared && fl_has_relatives());
    Bool is_changed = may_be_outside && is_readable(task->word, sizeof(UInt)) && *(volatile UInt *)task->word != task->value;
    fl_unlock_model();
    return is_changed;
}

static void wait_for_wake(struct task *task, struct stand_in *call) {
    UWord gate = (UWord)&task->gate;
    struct vki_timespec look = {.tv_sec = 0, .tv_nsec = IDLE_LOOK_NS};
    UWord clock = call->guest->guest_RSI & VKI_FUTEX_CLOCK_REALTIME, command = futex_command(call->guest->guest_RSI);
    Long result;
    do {
        if (task->is_timed)
            result = make(call, __NR_futex, gate, command | clock | VKI_FUTEX_PRIVATE_FLAG, task->gate_seen, call->guest->guest_R10,
                          FL_ANY_BIT);
        else
            result = make(call, __NR_futex, gate, VKI_FUTEX_WAIT | VKI_FUTEX_PRIVATE_FLAG, task->gate_seen, (UWord)&look, 0);
        if (call->failed)
            return;
    } while (!task->is_timed && !is_open(task) && !(result == -FL_ETIMEDOUT && was_changed_from_outside(task)));
    call->guest->guest_RAX = end_futex_wait(task, task->is_timed && !is_open(task) ? result : 0);
}

static void wait_for_time(struct task *task, struct stand_in *call, Bool is_plain) {
    const VexGuestAMD64State *guest = call->guest;
    Bool is_absolute = !is_plain && (guest->guest_RSI & FL_TIMER_ABSTIME);
    UWord command = is_absolute ? VKI_FUTEX_WAIT_BITSET : VKI_FUTEX_WAIT;
    if (is_absolute && guest->guest_RDI == FL_CLOCK_REALTIME)
        command |= VKI_FUTEX_CLOCK_REALTIME;
    UWord until = is_plain ? guest->guest_RDI : guest->guest_RDX;
    Long result = make(call, __NR_futex, (UWord)&task->gate, command | VKI_FUTEX_PRIVATE_FLAG, task->gate_seen, until, FL_ANY_BIT);
    if (!call->failed)
        call->guest->guest_RAX = result == -FL_ETIMEDOUT || result == -VKI_EAGAIN ? 0 : result;
}

/* Returns with the turn: the read itself then ends at once. */
static void wait_for_descriptor(struct task *task, struct stand_in *call) {
    struct vki_pollfd asked = {.fd = task->descriptor, .events = FL_POLLIN};
    for (;;) {
        make(call, __NR_poll, (UWord)&asked, 1, (UWord)-1, 0, 0);
        if (call->failed)
            return;
        fl_lock_model();
        task->has_arrived = True;
        fl_arrive(task);
        fl_unlock_model();
        fl_wait_for_turn(task->lwp);
        if (fl_can_be_read(task->descriptor))
            return;
        fl_lock_model(); /* another thread has read it */
        task->state = TASK_DESCRIPTOR;
        fl_hand_on_turn(task, True);
        fl_unlock_model();
    }
}

UWord __wrap_vgModuleLocal_do_syscall_for_client_WRK(Word number, void *guest, const vki_sigset_t *mask,
                                                     const vki_sigset_t *mask_after, Word mask_bytes) {
    struct task *task = fl_task_of_lwp(VG_(gettid)());
    if (task != NULL && number == __NR_futex && task->waits_in == TASK_NONE && task->is_woken) {
        ((VexGuestAMD64State *)guest)->guest_RAX = 0;
        return 0;
    }
    if (task != NULL && task->waits_in != TASK_NONE && task->waits_in != TASK_OUTSIDE) {
        struct stand_in call = {.guest = guest, .mask = mask, .mask_after = mask_after, .mask_bytes = mask_bytes};
        call.copy = *call.guest;
        if (task->waits_in == TASK_FUTEX)
            wait_for_wake(task, &call);
        else if (task->waits_in == TASK_SLEEP)
            wait_for_time(task, &call, number == __NR_nanosleep);
        else
            wait_for_descriptor(task, &call);
        if (call.failed || task->waits_in != TASK_DESCRIPTOR)
            return call.failed;
        task->waits_in = TASK_NONE;
    }
    return __real_vgModuleLocal_do_syscall_for_client_WRK(number, guest, mask, mask_after, mask_bytes);
}
