/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.cpp - see schedule.h.
 */
#include "schedule.h"

#include "numbers.h"

#include <cerrno>
#include <climits>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/stat.h>

namespace {

const uint64_t NO_LIMIT = ~0ull;
const unsigned SLEEP_HANDOVERS = 64;
const unsigned MOST_SLICE_BITS = 7; /* slices of 1 to 2^6 events; short ones are more likely */
const uint64_t SECOND_NS = 1000000000;

/* Calls that only the kernel knows the end of. */
bool is_outside(uint64_t number, const uint64_t *arguments) {
    switch (number) {
    case SYS_wait4:
    case SYS_waitid:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_flock:
    case SYS_connect:
    case SYS_msgrcv:
    case SYS_msgsnd:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_mq_timedreceive:
    case SYS_mq_timedsend: return true;
    case SYS_fcntl: return arguments[1] == F_SETLKW || arguments[1] == 38; /* F_OFD_SETLKW */
    default: return false;
    }
}

bool reads_descriptor(uint64_t number) {
    return number == SYS_read || number == SYS_readv || number == SYS_recvfrom || number == SYS_recvmsg || number == SYS_accept ||
           number == SYS_accept4;
}

/* Which waits until the other end is opened. */
bool opens_fifo(uint64_t number, const uint64_t *arguments, const Target &target) {
    std::string path, folder = target.proc() + "/cwd/";
    struct stat status;
    if ((number != SYS_open && number != SYS_openat) || !target.read_text(arguments[number == SYS_openat ? 1 : 0], &path))
        return false;
    if (number == SYS_openat && int(arguments[0]) != AT_FDCWD)
        folder = target.proc() + "/fd/" + std::to_string(int(arguments[0])) + "/";
    return stat((path.compare(0, 1, "/") == 0 ? path : folder + path).c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
}

bool writes_descriptor(uint64_t number) {
    return number == SYS_write || number == SYS_writev || number == SYS_sendto || number == SYS_sendmsg;
}

} // namespace

uint64_t now_ns() {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return uint64_t(time.tv_sec) * SECOND_NS + uint64_t(time.tv_nsec);
}

Schedule::Schedule(uint64_t seed)
    : seed_(seed), random_(seed * 0x2545f4914f6cdd1dull + 1), events_left_(NO_LIMIT), wait_count_(0), running_(0),
      has_relatives_(false) {}

uint64_t Schedule::draw() { /* xorshift64* (Vigna 2016) */
    random_ ^= random_ >> 12;
    random_ ^= random_ << 25;
    random_ ^= random_ >> 27;
    return random_ * 0x2545f4914f6cdd1dull >> 16;
}

void Schedule::start_slice() {
    events_left_ = NO_LIMIT;
    if (seed_ == 0 || is_alone())
        return;
    uint64_t most = 1ull << draw() % MOST_SLICE_BITS;
    events_left_ = 1 + draw() % most;
}

Schedule::Task &Schedule::task(uint16_t thread) {
    size_t i = 0;
    while (i + 1 < tasks_.size() && tasks_[i].thread != thread)
        i++;
    return tasks_[i];
}

void Schedule::add(uint16_t thread, int kernel_number, uint64_t cleared_word) {
    Task task = Task();
    task.thread = thread;
    task.kernel_number = kernel_number;
    task.cleared_word = cleared_word;
    tasks_.push_back(task);
    if (running_ == 0 && tasks_.size() == 1)
        running_ = thread;
    if (tasks_.size() == 2)
        start_slice();
}

void Schedule::remove(uint16_t thread) {
    for (size_t i = 0; i < tasks_.size(); i++) {
        if (tasks_[i].thread != thread)
            continue;
        uint64_t word = tasks_[i].cleared_word;
        tasks_.erase(tasks_.begin() + long(i));
        for (Task &other : tasks_)
            if (word != 0 && other.wait == Wait::JOIN && other.word == word)
                other.wait = Wait::READY;
        break;
    }
    if (running_ == thread)
        running_ = 0;
}

void Schedule::forked(uint16_t thread, int kernel_number) {
    tasks_.clear();
    running_ = 0;
    has_relatives_ = true;
    events_left_ = NO_LIMIT;
    add(thread, kernel_number, 0);
}

/* ---- system calls ---- */

Step Schedule::wait(Task *task, Wait wait, Step step) {
    task->wait = wait;
    task->since = ++wait_count_;
    task->answer = 0;
    return step;
}

const Schedule::Task *Schedule::with_cleared_word(uint64_t word) const {
    for (const Task &task : tasks_)
        if (task.cleared_word == word)
            return &task;
    return nullptr;
}

Step Schedule::wait_at_futex(Task *task, const uint64_t *arguments, const Target &target) {
    uint64_t operation = arguments[1] & FUTEX_CMD_MASK;
    bool is_private = (arguments[1] & FUTEX_PRIVATE_FLAG) != 0;
    uint32_t value = 0;
    struct timespec limit = {0, 0};
    if (!target.read(arguments[0], &value, sizeof value) || value != uint32_t(arguments[2]))
        return Step::RUN; /* which fails at once */
    if (arguments[3] != 0 && !target.read(arguments[3], &limit, sizeof limit))
        return Step::RUN;
    task->word = arguments[0];
    task->bits = operation == FUTEX_WAIT_BITSET ? uint32_t(arguments[5]) : FUTEX_BITSET_MATCH_ANY;
    task->deadline_ns = 0;
    if (!is_private && arguments[3] == 0 && with_cleared_word(arguments[0]) != nullptr)
        return wait(task, Wait::JOIN, Step::RUN_LATER); /* the kernel clears the word of a thread that has ended: that is soon */
    if (!is_private && has_relatives_)
        return wait(task, Wait::OUTSIDE, Step::OUTSIDE); /* another process may wake it */
    if (arguments[3] != 0) {
        uint64_t time = uint64_t(limit.tv_sec) * SECOND_NS + uint64_t(limit.tv_nsec), now = now_ns();
        if (operation == FUTEX_WAIT) {
            time += now;
        } else if ((arguments[1] & FUTEX_CLOCK_REALTIME) != 0) {
            struct timespec real;
            clock_gettime(CLOCK_REALTIME, &real);
            time += now - (uint64_t(real.tv_sec) * SECOND_NS + uint64_t(real.tv_nsec));
        }
        task->deadline_ns = int64_t(time) <= 0 ? 1 : time;
    }
    return wait(task, Wait::FUTEX, Step::SKIP_LATER);
}

uint64_t Schedule::wake(uint64_t word, uint64_t most, uint32_t bits) {
    uint64_t count = 0;
    while (count < most) {
        Task *first = nullptr;
        for (Task &task : tasks_)
            if (task.wait == Wait::FUTEX && task.word == word && (task.bits & bits) != 0 &&
                (first == nullptr || task.since < first->since))
                first = &task;
        if (first == nullptr)
            break;
        first->wait = Wait::READY;
        count++;
    }
    return count;
}

uint64_t Schedule::requeue(uint64_t word, uint64_t most, uint64_t to) {
    uint64_t count = 0;
    for (Task &task : tasks_)
        if (count < most && task.wait == Wait::FUTEX && task.word == word) {
            task.word = to;
            count++;
        }
    return count;
}

Step Schedule::before_futex(Task *task, const uint64_t *arguments, const Target &target) {
    uint32_t value = 0;
    switch (arguments[1] & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET: return wait_at_futex(task, arguments, target);
    case FUTEX_WAKE: task->woken = wake(arguments[0], arguments[2], FUTEX_BITSET_MATCH_ANY); return Step::RUN;
    case FUTEX_WAKE_BITSET: task->woken = wake(arguments[0], arguments[2], uint32_t(arguments[5])); return Step::RUN;
    case FUTEX_WAKE_OP: /* whether the second word's waiters are meant is known later; a waiter may be woken for nothing */
        task->woken =
            wake(arguments[0], arguments[2], FUTEX_BITSET_MATCH_ANY) + wake(arguments[4], arguments[3], FUTEX_BITSET_MATCH_ANY);
        return Step::RUN;
    case FUTEX_CMP_REQUEUE:
        if (!target.read(arguments[0], &value, sizeof value) || value != uint32_t(arguments[5]))
            return Step::RUN;
        /* fall through */
    case FUTEX_REQUEUE:
        task->woken = wake(arguments[0], arguments[2], FUTEX_BITSET_MATCH_ANY);
        task->woken += requeue(arguments[0], arguments[3], arguments[4]);
        return Step::RUN;
    case FUTEX_UNLOCK_PI: return Step::RUN;
    default: return wait(task, Wait::OUTSIDE, Step::OUTSIDE);
    }
}

Step Schedule::wait_for_descriptor(Task *task, int descriptor, bool for_writing, const Target &target) {
    if (target.is_ready(descriptor, for_writing))
        return Step::RUN;
    if (for_writing)
        return wait(task, Wait::OUTSIDE, Step::OUTSIDE);
    task->descriptor = descriptor;
    return wait(task, Wait::DESCRIPTOR, Step::RUN_LATER);
}

/* A signal for a thread that waits here: it then makes its call, which the signal ends, or which begins anew, or which it ignores. */
void Schedule::interrupt(int kernel_number) {
    for (Task &task : tasks_) {
        if ((kernel_number != 0 && task.kernel_number != kernel_number) || task.wait == Wait::READY || task.wait == Wait::OUTSIDE)
            continue;
        task.is_interrupted = true;
        task.wait = Wait::READY;
    }
}

Step Schedule::resumes(uint16_t thread, Step told) {
    Task *resumed = &task(thread);
    if (!resumed->is_interrupted)
        return told;
    resumed->is_interrupted = false;
    resumed->waits_outside = true;
    return wait(resumed, Wait::OUTSIDE, Step::OUTSIDE);
}

Step Schedule::before_call(uint16_t thread, uint64_t number, const uint64_t *arguments, const Target &target) {
    Step step = decide(thread, number, arguments, target);
    Task *caller = &task(thread);
    if (!caller->waits_outside || (caller->wait != Wait::FUTEX && caller->wait != Wait::DESCRIPTOR))
        return step;
    caller->waits_outside = false;
    return wait(caller, Wait::OUTSIDE, Step::OUTSIDE);
}

Step Schedule::decide(uint16_t thread, uint64_t number, const uint64_t *arguments, const Target &target) {
    Task *caller = &task(thread);
    caller->woken = 0;
    if (is_alone())
        return Step::RUN;
    if (number == SYS_futex)
        return before_futex(caller, arguments, target);
    if (number == SYS_sched_yield)
        return wait(caller, Wait::READY, Step::RUN_LATER);
    if (number == SYS_nanosleep || number == SYS_clock_nanosleep) {
        caller->patience = SLEEP_HANDOVERS;
        return wait(caller, Wait::SLEEP, Step::RUN_LATER);
    }
    if (reads_descriptor(number) || writes_descriptor(number))
        return wait_for_descriptor(caller, int(arguments[0]), writes_descriptor(number), target);
    if (number == SYS_tgkill || number == SYS_tkill)
        interrupt(int(arguments[number == SYS_tgkill ? 1 : 0]));
    if (number == SYS_kill && int(arguments[0]) == target.number())
        interrupt(0);
    if (opens_fifo(number, arguments, target))
        return wait(caller, Wait::OUTSIDE, Step::OUTSIDE);
    return is_outside(number, arguments) ? wait(caller, Wait::OUTSIDE, Step::OUTSIDE) : Step::RUN;
}

void Schedule::back(uint16_t thread) { task(thread).wait = Wait::READY; }

/* ---- the turn ---- */

void Schedule::look_at(Task *task, const Target &target, uint64_t now) {
    if (task->wait == Wait::FUTEX && task->deadline_ns != 0 && task->deadline_ns <= now) {
        task->answer = -ETIMEDOUT;
        task->wait = Wait::READY;
    } else if (task->wait == Wait::DESCRIPTOR && target.is_ready(task->descriptor, false)) {
        task->wait = Wait::READY;
    } else if (task->wait == Wait::SLEEP && task->patience-- == 0) {
        task->wait = Wait::READY;
    }
}

uint16_t Schedule::choose(const Target &target, uint64_t now) {
    std::vector<Task *> ready;
    for (Task &task : tasks_)
        look_at(&task, target, now);
    for (Task &task : tasks_)
        if (task.wait == Wait::READY)
            ready.push_back(&task);
    if (ready.empty()) { /* who sleeps does so while nobody else can run */
        Task *first = nullptr;
        for (Task &task : tasks_)
            if (task.wait == Wait::SLEEP && (first == nullptr || task.since < first->since))
                first = &task;
        if (first != nullptr) {
            first->wait = Wait::READY;
            ready.push_back(first);
        }
    }
    uint16_t last = running_;
    running_ = 0;
    if (!ready.empty() && seed_ != 0) {
        running_ = ready[draw() % ready.size()]->thread;
    } else if (!ready.empty()) {
        running_ = ready[0]->thread;
        for (size_t i = ready.size(); i > 0; i--)
            if (ready[i - 1]->thread > last)
                running_ = ready[i - 1]->thread;
    }
    if (running_ != 0) /* or looks while nobody can run would be counted by the generator */
        start_slice();
    return running_;
}
