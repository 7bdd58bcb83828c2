/* SPDX-License-Identifier: Apache-2.0
 *
 * drive.cpp - the native driver: runs a program by single steps and gives the Pin tool's own parts (all of ../ but tool.cpp) what Pin
 * would give them. It exists to test them where no Pin kit is; thousands of times slower than the program, it is no tracer for people.
 *
 *     drive -trace FILE -pm_folder DIR [-module_root DIR] [-process N] [-schedule_seed N] -- PROGRAM ...
 *
 * Of each traced process one thread is stepped at a time, the one that has the turn; beside it run those that are outside, in a system
 * call that only the kernel knows the end of.
 */
#include "../numbers.h"
#include "../process.h"
#include "instructions.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <linux/sched.h>
#include <map>
#include <memory>
#include <poll.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

const unsigned SLICE_INSTRUCTIONS = 20000;
const unsigned IDLE_US = 500;
const int64_t RESTARTS = 512; /* ERESTARTSYS of the kernel */

class Remote : public Target {
  public:
    explicit Remote(pid_t process) : process_(process), pidfd_(int(syscall(SYS_pidfd_open, process, 0))) {}
    ~Remote() override { close(pidfd_); }

    bool read(uint64_t address, void *to, size_t bytes) const override {
        struct iovec here = {to, bytes}, there = {reinterpret_cast<void *>(address), bytes};
        return process_vm_readv(process_, &here, 1, &there, 1, 0) == ssize_t(bytes);
    }
    std::string proc() const override { return "/proc/" + std::to_string(process_); }
    int number() const override { return process_; }
    bool is_ready(int descriptor, bool for_writing) const override {
        int copy = int(syscall(SYS_pidfd_getfd, pidfd_, descriptor, 0));
        struct pollfd asked = {copy, short(for_writing ? POLLOUT : POLLIN), 0};
        bool is_ready = copy < 0 || poll(&asked, 1, 0) != 0; /* a bad descriptor fails at once */
        close(copy);
        return is_ready;
    }

  private:
    pid_t process_;
    int pidfd_;
};

struct Traced_process {
    Traced_process(const Options &options, pid_t number) : target(new Remote(number)), events(options, target.get()) {}
    Traced_process(const Traced_process &parent, pid_t number) : target(new Remote(number)), events(parent.events) {}

    std::unique_ptr<Remote> target;
    Process events;
    Decoder decoder;
};

/* A thread, as the kernel stops and resumes it. */
struct Tracee {
    pid_t number;
    std::shared_ptr<Traced_process> process;
    Thread thread;
    bool is_stopped, is_outside, is_in_call;
    Step waits_as; /* it waits for the turn in a call, of which it was told this; RUN: it does not */
    int signal; /* to be delivered when it is resumed */
    uint64_t stepped_at, last_at, call_at;
    uint64_t return_to; /* of the call that is stepped; 0: it is none */
    unsigned steps;
    bool is_let_go; /* of another program: it runs untraced */
};

std::map<pid_t, Tracee> tracees;

[[noreturn]] void stop(int status, const std::string &text) {
    std::fprintf(stderr, "drive: error: %s\n", text.c_str());
    for (const auto &entry : tracees)
        kill(entry.first, SIGKILL);
    std::exit(status);
}

user_regs_struct registers_of(pid_t thread) {
    user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, nullptr, &registers) != 0)
        std::memset(&registers, 0, sizeof registers);
    return registers;
}

void step(Tracee *tracee) {
    tracee->is_stopped = false;
    ptrace(PTRACE_SINGLESTEP, tracee->number, nullptr, tracee->signal);
    tracee->signal = 0;
}

Tracee *with_turn(const Traced_process &process) {
    for (auto &entry : tracees)
        if (entry.second.process.get() == &process && !entry.second.is_let_go &&
            entry.second.thread.number == process.events.schedule.running())
            return &entry.second;
    return nullptr;
}

void advance(Tracee *tracee);

/* Hands the turn on; whoever has it then goes on, as soon as it is stopped. */
void hand_on(Traced_process *process) {
    process->events.schedule.choose(*process->target, now_ns());
    Tracee *next = with_turn(*process);
    if (next != nullptr && next->is_stopped)
        advance(next);
}

/* ---- system calls ---- */

void copy_arguments(const user_regs_struct &r, uint64_t *arguments) {
    const uint64_t all[] = {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9};
    std::memcpy(arguments, all, sizeof all);
}

void call_returned(Tracee *tracee, const user_regs_struct &registers) {
    Process &events = tracee->process->events;
    bool was_made = registers.rip != tracee->call_at; /* else a signal came before it */
    int64_t result = was_made ? int64_t(registers.rax) : -RESTARTS;
    uint64_t woken = events.schedule.woken(tracee->thread.number);
    tracee->is_in_call = false;
    events.call_ends(&tracee->thread, result, tracee->call_at, registers.rsp);
    if (woken > 0 && result >= 0) { /* the kernel did not count whom the schedule woke */
        user_regs_struct changed = registers;
        changed.rax += woken;
        ptrace(PTRACE_SETREGS, tracee->number, nullptr, &changed);
    }
    if (tracee->thread.call.number == SYS_set_tid_address)
        events.schedule.set_cleared_word(tracee->thread.number, tracee->thread.call.arguments[0]);
    if (tracee->thread.call.number == SYS_mmap || tracee->thread.call.number == SYS_munmap ||
        tracee->thread.call.number == SYS_mprotect || tracee->thread.call.number == SYS_mremap)
        tracee->process->decoder.forget();
}

void go_outside(Tracee *tracee) {
    tracee->is_outside = true;
    step(tracee);
    hand_on(tracee->process.get());
}

/* False: another thread goes on in its place. */
bool begin_call(Tracee *tracee, const user_regs_struct &registers) {
    uint64_t arguments[6];
    Process &events = tracee->process->events;
    copy_arguments(registers, arguments);
    tracee->call_at = registers.rip;
    events.call_begins(&tracee->thread, registers.rax, arguments, registers.rip, registers.rsp);
    tracee->is_in_call = true;
    Step next = events.schedule.before_call(tracee->thread.number, registers.rax, arguments, *tracee->process->target);
    if (registers.rax == SYS_fork || registers.rax == SYS_vfork || registers.rax == SYS_clone || registers.rax == SYS_clone3)
        events.traced.writer.flush(); /* what a child's copy starts with is in the file already */
    if (next == Step::RUN)
        return true;
    tracee->waits_as = next;
    if (next == Step::OUTSIDE)
        go_outside(tracee);
    else
        hand_on(tracee->process.get());
    return false;
}

/* It has the turn again, and its call counts as made. */
void skip_call(Tracee *tracee) {
    user_regs_struct registers = registers_of(tracee->number);
    registers.rax = uint64_t(tracee->process->events.schedule.answer(tracee->thread.number));
    registers.rip += tracee->process->decoder.at(*tracee->process->target, registers.rip)->length;
    ptrace(PTRACE_SETREGS, tracee->number, nullptr, &registers);
    call_returned(tracee, registers);
}

/* ---- one instruction ---- */

void answer_request(Tracee *tracee, user_regs_struct *registers, const Instruction &marker) {
    uint64_t request[6];
    bool is_ours = tracee->process->target->read(registers->rax, request, sizeof request) &&
                   tracee->process->events.on_request(&tracee->thread, request);
    if (is_ours)
        registers->rdx = 0;
    registers->rip += marker.length;
    ptrace(PTRACE_SETREGS, tracee->number, nullptr, registers);
}

void announce(Tracee *tracee, const Instruction &instruction, const user_regs_struct &registers) {
    Process &events = tracee->process->events;
    if (instruction.kind == Class::REFUSED) {
        events.refuse(&tracee->thread, registers.rip, why_refused(instruction.name));
        return;
    }
    Access access = Access();
    access.kind = instruction.kind;
    access.instruction = registers.rip;
    access.stack = registers.rsp;
    access.is_first = tracee->last_at != registers.rip;
    access.count = registers.rcx;
    if (instruction.kind == Class::REPEATED && registers.rcx == 0)
        return;
    access.ranges = ranges_of(instruction, tracee->number, registers);
    bool may_matter = is_flush(access.kind) || is_fence(access.kind) || is_locked(access.kind);
    for (const Range &range : access.ranges)
        may_matter = may_matter || !events.traced.maps.is_far(range.start, range.end);
    if (may_matter)
        events.before(&tracee->thread, access);
}

/* The tracee is stopped and has the turn: on to its next instruction, or to another thread's. */
void advance(Tracee *tracee) {
    Process &events = tracee->process->events;
    Step told = tracee->waits_as;
    tracee->waits_as = Step::RUN;
    if (told != Step::RUN)
        told = events.schedule.resumes(tracee->thread.number, told);
    if (told == Step::OUTSIDE) {
        go_outside(tracee);
        return;
    }
    if (told == Step::SKIP_LATER)
        skip_call(tracee);
    if (tracee->signal != 0 || tracee->is_in_call) {
        step(tracee);
        return;
    }
    for (;;) {
        user_regs_struct registers = registers_of(tracee->number);
        events.moves_on(&tracee->thread, registers.rip);
        if (!events.failure().empty())
            stop(3, events.failure());
        if (++tracee->steps % SLICE_INSTRUCTIONS == 0)
            events.schedule.end_slice();
        if (events.schedule.is_slice_over() && tracee->thread.is_idle()) {
            hand_on(tracee->process.get());
            return;
        }
        const Instruction *instruction = tracee->process->decoder.at(*tracee->process->target, registers.rip);
        tracee->return_to = instruction != nullptr && instruction->is_call ? registers.rip + instruction->length : 0;
        tracee->stepped_at = registers.rip;
        if (instruction != nullptr && instruction->is_marker) {
            answer_request(tracee, &registers, *instruction);
            continue;
        }
        if (instruction != nullptr && instruction->decoded.mnemonic == ZYDIS_MNEMONIC_PAUSE)
            events.schedule.end_slice(); /* it waits for another thread */
        if (instruction != nullptr && instruction->is_system_call && !begin_call(tracee, registers))
            return;
        if (instruction != nullptr && instruction->kind != Class::NOTHING)
            announce(tracee, *instruction, registers);
        step(tracee);
        return;
    }
}

/* A step is done. */
void stepped(Tracee *tracee) {
    user_regs_struct registers = registers_of(tracee->number);
    Process &events = tracee->process->events;
    if (tracee->is_in_call)
        call_returned(tracee, registers);
    events.made(&tracee->thread, registers.eflags);
    if (tracee->return_to != 0)
        tracee->thread.stack.made(registers.rsp, tracee->return_to);
    tracee->last_at = tracee->stepped_at;
    tracee->return_to = 0;
}

/* ---- what the kernel says ---- */

void go_on(Tracee *tracee) {
    Schedule &schedule = tracee->process->events.schedule;
    if (tracee->is_outside) {
        tracee->is_outside = false;
        tracee->waits_as = Step::RUN;
        schedule.back(tracee->thread.number);
        if (schedule.running() == 0)
            hand_on(tracee->process.get());
        return;
    }
    if (schedule.running() == tracee->thread.number)
        advance(tracee);
}

void signaled(Tracee *tracee, int signal) {
    user_regs_struct registers = registers_of(tracee->number);
    if (tracee->is_in_call)
        call_returned(tracee, registers);
    tracee->process->events.is_interrupted(&tracee->thread, registers.rip, registers.rcx);
    tracee->return_to = 0;
    tracee->signal = signal;
    go_on(tracee);
}

uint64_t cleared_word_of(const Tracee &parent) {
    const SystemCall &call = parent.thread.call;
    uint64_t flags = call.arguments[0], word = call.arguments[3];
    if (call.number == SYS_clone3) {
        struct clone_args asked;
        if (!parent.process->target->read(call.arguments[0], &asked, CLONE_ARGS_SIZE_VER0))
            return 0;
        flags = asked.flags;
        word = asked.child_tid;
    }
    return (flags & CLONE_CHILD_CLEARTID) != 0 ? word : 0;
}

Tracee new_tracee(pid_t number, const std::shared_ptr<Traced_process> &process) {
    Tracee made = Tracee();
    made.number = number;
    made.process = process;
    return made;
}

/* A new thread or process. It may have stopped before this was said. */
void appeared(Tracee *parent, pid_t number, bool is_thread) {
    bool is_early = tracees.count(number) != 0;
    if (is_thread) {
        Tracee made = new_tracee(number, parent->process);
        parent->process->events.start_thread(&made.thread, number, cleared_word_of(*parent));
        made.is_stopped = is_early;
        tracees[number] = made;
        return;
    }
    parent->process->events.forks(&parent->thread);
    Tracee made = new_tracee(number, std::make_shared<Traced_process>(*parent->process, number));
    made.thread = parent->thread;
    made.process->events.become_child(&made.thread, made.process->target.get());
    parent->process->events.has_forked(&parent->thread);
    made.is_stopped = is_early;
    tracees[number] = made;
    if (is_early)
        advance(&tracees[number]);
}

void happened(Tracee *tracee, int event) {
    unsigned long number = 0;
    ptrace(PTRACE_GETEVENTMSG, tracee->number, nullptr, &number);
    if (event == PTRACE_EVENT_EXEC) { /* a thread that is not the first takes the first one's number */
        tracee->is_let_go = true;
        ptrace(PTRACE_DETACH, tracee->number, nullptr, nullptr);
        return;
    }
    if (event == PTRACE_EVENT_CLONE)
        appeared(tracee, pid_t(number),
                 (tracee->thread.call.number == SYS_clone3) || (tracee->thread.call.arguments[0] & CLONE_THREAD) != 0);
    else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
        appeared(tracee, pid_t(number), false);
    step(tracee);
}

bool is_last_of(const Tracee &tracee) {
    for (const auto &entry : tracees)
        if (entry.second.number != tracee.number && entry.second.process == tracee.process)
            return false;
    return true;
}

void ended(Tracee *tracee, int status) {
    std::shared_ptr<Traced_process> process = tracee->process;
    bool had_turn = process->events.schedule.running() == tracee->thread.number;
    if (is_last_of(*tracee) || WIFSIGNALED(status)) {
        process->events.ends(&tracee->thread, uint64_t(WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status)));
        tracees.erase(tracee->number);
        return;
    }
    process->events.end_thread(&tracee->thread);
    tracees.erase(tracee->number);
    if (had_turn)
        hand_on(process.get());
}

bool is_of_a_step(pid_t thread) {
    siginfo_t info;
    return ptrace(PTRACE_GETSIGINFO, thread, nullptr, &info) == 0 && info.si_code != SI_KERNEL && info.si_code != SI_USER;
}

void stopped(Tracee *tracee, int status) {
    int signal = WSTOPSIG(status);
    tracee->is_stopped = true;
    if (status >> 16 != 0) {
        happened(tracee, status >> 16);
    } else if (signal == SIGTRAP && is_of_a_step(tracee->number)) {
        stepped(tracee);
        go_on(tracee);
    } else {
        signaled(tracee, signal);
    }
}

/* A process in which nobody has the turn, or null: only time, a descriptor or a call outside brings its next thread. */
Traced_process *idle_process() {
    for (auto &entry : tracees)
        if (!entry.second.is_let_go && entry.second.process->events.schedule.running() == 0)
            return entry.second.process.get();
    return nullptr;
}

/* The next thread that the kernel has something to say of. */
pid_t next_event(int *status) {
    for (;;) {
        Traced_process *idle = idle_process();
        pid_t number = waitpid(-1, status, __WALL | (idle != nullptr ? WNOHANG : 0));
        if (number != 0)
            return number;
        usleep(IDLE_US);
        hand_on(idle);
    }
}

/* Until the first process has ended; its status. */
int run(pid_t first) {
    std::map<pid_t, bool> early; /* stopped before their creation was said */
    int first_status = 0;
    while (!tracees.empty()) {
        int status;
        pid_t number = next_event(&status);
        if (number < 0)
            break;
        auto found = tracees.find(number);
        if (found == tracees.end()) {
            early[number] = true;
            continue;
        }
        Tracee &tracee = found->second;
        if (WIFSTOPPED(status)) {
            bool is_new = WSTOPSIG(status) == SIGSTOP && tracee.last_at == 0 && tracee.stepped_at == 0;
            if (is_new) {
                tracee.is_stopped = true;
                tracee.stepped_at = 1;
                go_on(&tracee);
            } else {
                stopped(&tracee, status);
            }
        } else {
            if (number == first)
                first_status = status;
            if (tracee.is_let_go)
                tracees.erase(number);
            else
                ended(&tracee, status);
        }
        for (auto entry = early.begin(); entry != early.end();) {
            auto late = tracees.find(entry->first);
            if (late == tracees.end()) {
                ++entry;
                continue;
            }
            late->second.is_stopped = true;
            late->second.stepped_at = 1;
            go_on(&late->second);
            entry = early.erase(entry);
        }
    }
    return first_status;
}

std::string read_options(int count, char **arguments, Options *options, char ***program) {
    int at = 1;
    for (; at < count && std::strcmp(arguments[at], "--") != 0; at += 2) {
        std::string name = arguments[at];
        if (at + 1 >= count)
            return name + " needs a value";
        char *value = arguments[at + 1];
        if (name == "-trace")
            options->trace = value;
        else if (name == "-pm_folder")
            options->pm_folder = value;
        else if (name == "-module_root")
            options->module_root = value;
        else if (name == "-process")
            options->process = uint32_t(std::strtoul(value, nullptr, 10));
        else if (name == "-schedule_seed")
            options->schedule_seed = std::strtoull(value, nullptr, 10);
        else
            return "unknown option " + name;
    }
    if (at + 1 >= count)
        return "no program; write -- PROGRAM ...";
    *program = arguments + at + 1;
    return "";
}

} // namespace

int main(int count, char **arguments) {
    Options options;
    char **program = nullptr;
    std::string wrong = read_options(count, arguments, &options, &program);
    if (!wrong.empty())
        stop(2, wrong);
    pid_t child = fork();
    if (child == 0) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        execvp(program[0], program);
        std::fprintf(stderr, "drive: error: cannot start %s: %s\n", program[0], std::strerror(errno));
        _exit(2);
    }
    int status;
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status))
        return WEXITSTATUS(status);
    ptrace(PTRACE_SETOPTIONS, child, nullptr,
           PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC);
    auto process = std::make_shared<Traced_process>(options, child);
    Tracee &first = tracees[child] = new_tracee(child, process);
    wrong = process->events.start(options);
    if (!wrong.empty())
        stop(2, wrong);
    process->events.start_thread(&first.thread, child, 0);
    first.is_stopped = true;
    first.stepped_at = 1;
    advance(&first);
    status = run(child);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
