/* SPDX-License-Identifier: Apache-2.0
 *
 * tool.cpp - the Pin tool: what Pin says of the program, given to process.h. Nothing else in this folder knows Pin.
 *
 *     pin -t faultline.so -trace FILE -pm_folder DIR [-module_root DIR] [-process N] [-schedule_seed N] -- PROGRAM ...
 *
 * Analysis routines run in the thread that they are about, and a thread that runs the program's code has the turn (schedule.h): so what
 * they change is theirs. Pin calls back under a lock of its own (new threads, ends of system calls); nobody may wait there, so such
 * calls leave a note in the thread, and the thread acts on it at the start of its next block of code (attend()), where it may wait.
 *
 * An access is announced before its instruction and recorded after it. Where Pin has no place after it (a rep, which is a loop to Pin)
 * it is recorded at the start of the next block: a rep ends its block.
 */
#include "pin.H"

#include "numbers.h"
#include "process.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <poll.h>
#include <unistd.h>

namespace {

KNOB<std::string> knob_trace(KNOB_MODE_WRITEONCE, "pintool", "trace", "", "append the trace to this file");
KNOB<std::string> knob_pm_folder(KNOB_MODE_WRITEONCE, "pintool", "pm_folder", "", "files below this folder are persistent memory");
KNOB<std::string> knob_module_root(KNOB_MODE_WRITEONCE, "pintool", "module_root", "",
                                   "name modules below this folder relative to it");
KNOB<UINT32> knob_process(KNOB_MODE_WRITEONCE, "pintool", "process", "1", "number of this process in the trace");
KNOB<UINT64> knob_schedule_seed(KNOB_MODE_WRITEONCE, "pintool", "schedule_seed", "0",
                                "how threads take turns; 0: each until it waits");

const UINT32 SLICE_BLOCKS = 100000;
const UINT32 IDLE_MS = 1;
const uint64_t THREAD_FLAG = 0x10000, CLEARS_WORD = 0x200000; /* CLONE_THREAD, CLONE_CHILD_CLEARTID */

class Own : public Target {
  public:
    bool read(uint64_t address, void *to, size_t bytes) const override {
        return PIN_SafeCopy(to, reinterpret_cast<const VOID *>(address), bytes) == bytes;
    }
    std::string proc() const override { return "/proc/self"; }
    int number() const override { return PIN_GetPid(); }
    bool is_ready(int descriptor, bool for_writing) const override {
        struct pollfd asked = {descriptor, short(for_writing ? POLLOUT : POLLIN), 0};
        return poll(&asked, 1, 0) != 0;
    }
};

/* A thread of the program. */
struct Runner {
    Runner()
        : kernel_number(0), blocks(0), has_note(1), is_new(true), is_outside(false), is_in_call(false), has_result(false),
          is_answered(false), is_gone(false) {
        PIN_SemaphoreInit(&turn);
        result = answer = 0;
        call_at = call_stack = 0;
    }

    Thread thread;
    int kernel_number;
    PIN_SEMAPHORE turn; /* set: it has the turn */
    UINT32 blocks;      /* of code, since its last slice began */
    UINT32 has_note;    /* attend() has something to do */
    bool is_new, is_outside, is_in_call;
    bool has_result; /* the call has ended, and attend() has not seen it */
    bool is_answered; /* the call was not made: answer is its result */
    bool is_gone;
    int64_t result, answer;
    uint64_t call_at, call_stack;
};

Own own;
Process *process;
Options options;
REG runner_register; /* holds the thread's Runner */
PIN_MUTEX runners_lock, turn_lock;
std::map<THREADID, Runner *> runners;
volatile bool
    is_over; /* the process has ended for the trace: threads that wait for the turn are let go, so that Pin can end them */

VOID stop(INT32 status, const std::string &text) {
    std::fprintf(stderr, "faultline: error: %s\n", text.c_str());
    PIN_ExitProcess(status);
}

/* ---- the turn ---- */

Runner *runner_of(uint16_t number) {
    Runner *found = nullptr;
    PIN_MutexLock(&runners_lock);
    for (const auto &entry : runners)
        if (entry.second->thread.number == number && !entry.second->is_gone)
            found = entry.second;
    PIN_MutexUnlock(&runners_lock);
    return found;
}

/* With turn_lock: somebody who can run gets the turn. */
VOID choose() {
    uint16_t next = process->schedule.choose(own, now_ns());
    Runner *runner = next == 0 ? nullptr : runner_of(next);
    if (runner != nullptr)
        PIN_SemaphoreSet(&runner->turn);
}

VOID hand_on() {
    PIN_MutexLock(&turn_lock);
    choose();
    PIN_MutexUnlock(&turn_lock);
}

/* While nobody has the turn, whoever waits for it looks whether a descriptor, time or a call outside made a thread ready. */
VOID wait_for_turn(Runner *runner) {
    while (!is_over && !PIN_SemaphoreTimedWait(&runner->turn, IDLE_MS)) {
        PIN_MutexLock(&turn_lock);
        if (process->schedule.running() == 0)
            choose();
        PIN_MutexUnlock(&turn_lock);
    }
    PIN_SemaphoreClear(&runner->turn);
}

VOID end_slice(Runner *runner) {
    runner->blocks = 0;
    hand_on();
    wait_for_turn(runner);
}

/* ---- notes ---- */

VOID note(Runner *runner) { runner->has_note = 1; }

/* The new thread's own callback says its number; the turn is its parent's meanwhile. */
Runner *await_thread(int kernel_number) {
    for (;;) {
        PIN_MutexLock(&runners_lock);
        Runner *found = nullptr;
        for (const auto &entry : runners)
            if (entry.second->kernel_number == kernel_number && entry.second->is_new && !entry.second->is_gone)
                found = entry.second;
        PIN_MutexUnlock(&runners_lock);
        if (found != nullptr)
            return found;
        PIN_Sleep(1);
    }
}

VOID adopt_thread(Runner *parent) {
    const SystemCall &call = parent->thread.call;
    uint64_t flags = call.arguments[0], word = call.arguments[3];
    if (call.number == SYS_clone3) { /* struct clone_args: flags, pidfd, child_tid */
        uint64_t asked[3];
        if (!own.read(call.arguments[0], asked, sizeof asked))
            return;
        flags = asked[0];
        word = asked[2];
    }
    if ((flags & THREAD_FLAG) == 0 || parent->result <= 0)
        return;
    Runner *child = await_thread(int(parent->result));
    if (process->start_thread(&child->thread, child->kernel_number, (flags & CLEARS_WORD) != 0 ? word : 0) == 0)
        stop(3, process->failure());
}

VOID finish_call(Runner *runner) {
    runner->is_in_call = runner->has_result = false;
    process->call_ends(&runner->thread, runner->result, runner->call_at, runner->call_stack);
    if (runner->thread.call.number == SYS_set_tid_address)
        process->schedule.set_cleared_word(runner->thread.number, runner->thread.call.arguments[0]);
    if (runner->thread.call.number == SYS_clone || runner->thread.call.number == SYS_clone3)
        adopt_thread(runner);
}

/* At the start of each block: is there a note, or is the slice over? Short, so that Pin inlines it. */
ADDRINT PIN_FAST_ANALYSIS_CALL has_to_attend(Runner *runner) { return runner->has_note | (++runner->blocks >= SLICE_BLOCKS); }

VOID attend(Runner *runner, ADDRINT instruction) {
    runner->has_note = 0;
    if (runner->is_new || runner->is_outside) {
        if (runner->is_outside) {
            PIN_MutexLock(&turn_lock);
            process->schedule.back(runner->thread.number);
            PIN_MutexUnlock(&turn_lock);
        }
        wait_for_turn(runner);
        runner->is_new = runner->is_outside = false;
    }
    if (is_over)
        return;
    process->moves_on(&runner->thread, instruction);
    if (runner->has_result)
        finish_call(runner);
    if (!process->failure().empty())
        stop(3, process->failure());
    if (runner->blocks >= SLICE_BLOCKS) {
        process->schedule.end_slice();
        runner->blocks = 0;
    }
    if (!runner->thread.is_idle())
        note(runner); /* within a rep */
    else if (process->schedule.is_slice_over())
        end_slice(runner);
}

/* ---- accesses ---- */

ADDRINT PIN_FAST_ANALYSIS_CALL is_near(ADDRINT address, ADDRINT bytes, const uint64_t *lowest, const uint64_t *highest) {
    return ADDRINT(address + bytes > *lowest) & ADDRINT(address < *highest);
}

VOID announce(Runner *runner, const Access &access) {
    if (is_over)
        return;
    process->before(&runner->thread, access);
    note(runner);
}

VOID on_access(Runner *runner, UINT32 kind, ADDRINT instruction, ADDRINT stack, ADDRINT address, UINT32 bytes) {
    Access access = Access();
    access.kind = Class(kind);
    access.instruction = instruction;
    access.stack = stack;
    access.ranges.assign(1, Range{address, address + (access.kind == Class::STATE ? xsave_bytes() : bytes)});
    announce(runner, access);
}

VOID on_fence(Runner *runner, UINT32 kind, ADDRINT instruction, ADDRINT stack) {
    Access access = Access();
    access.kind = Class(kind);
    access.instruction = instruction;
    access.stack = stack;
    announce(runner, access);
}

VOID on_repeated(Runner *runner, ADDRINT instruction, ADDRINT stack, ADDRINT address, UINT32 bytes, BOOL is_first, ADDRINT count) {
    Access access = Access();
    access.kind = Class::REPEATED;
    access.instruction = instruction;
    access.stack = stack;
    access.is_first = is_first;
    access.count = count;
    access.ranges.assign(1, Range{address, address + bytes});
    announce(runner, access);
}

/* What on_masked() has to know of its instruction, which lives as long as the tool. */
struct Masked {
    Class kind;
    REG mask;         /* a mask register or a vector; invalid: everything is selected */
    unsigned element; /* bytes */
    bool is_vector;
    unsigned bytes;
};

VOID on_masked(Runner *runner, const Masked *masked, ADDRINT instruction, const CONTEXT *context, ADDRINT address) {
    UINT8 value[64] = {0};
    uint64_t bits = ~0ull;
    Access access = Access();
    access.kind = masked->kind;
    access.instruction = instruction;
    access.stack = PIN_GetContextReg(context, REG_STACK_PTR);
    if (REG_valid(masked->mask)) {
        PIN_GetContextRegval(context, masked->mask, value);
        std::memcpy(&bits, value, sizeof bits);
    }
    if (masked->kind == Class::COMPRESSED) {
        unsigned count = 0;
        for (unsigned i = 0; i < masked->bytes / masked->element; i++)
            count += bits >> i & 1;
        access.ranges.assign(count > 0, Range{address, address + count * masked->element});
    } else {
        access.ranges = selected_ranges(address, masked->is_vector ? selected_by_vector(value, masked->bytes, masked->element)
                                                                   : selected_by_bits(bits, masked->bytes, masked->element));
    }
    announce(runner, access);
}

VOID on_scattered(Runner *runner, ADDRINT instruction, ADDRINT stack, IMULTI_ELEMENT_OPERAND *operand) {
    Access access = Access();
    access.kind = Class::SCATTERED;
    access.instruction = instruction;
    access.stack = stack;
    for (UINT32 i = 0; i < operand->NumOfElements(); i++)
        if (operand->ElementMaskValue(i) != 0)
            access.ranges.push_back(Range{operand->ElementAddress(i), operand->ElementAddress(i) + operand->ElementSize(i)});
    announce(runner, access);
}

ADDRINT PIN_FAST_ANALYSIS_CALL has_announced(Runner *runner) { return runner->has_note; }

VOID on_made(Runner *runner, ADDRINT flags) {
    process->made(&runner->thread, flags);
    note(runner); /* a slice may be over */
}

/* pause: it waits for another thread. */
VOID on_pause(Runner *runner) {
    process->schedule.end_slice();
    note(runner);
}

VOID on_refused(Runner *runner, ADDRINT instruction, const CHAR *why) { process->refuse(&runner->thread, instruction, why); }

VOID on_call(Runner *runner, ADDRINT stack, ADDRINT return_address) {
    runner->thread.stack.made(stack - sizeof(ADDRINT), return_address);
}

/* The new value of RDX. */
ADDRINT on_request(Runner *runner, ADDRINT request, ADDRINT otherwise) {
    uint64_t words[6];
    return own.read(request, words, sizeof words) && process->on_request(&runner->thread, words) ? 0 : otherwise;
}

/* ---- system calls ---- */

/* Before one: the number of the call that is made. */
ADDRINT on_call_begins(Runner *runner, ADDRINT instruction, ADDRINT stack, ADDRINT number, ADDRINT a, ADDRINT b, ADDRINT c,
                       ADDRINT d, ADDRINT e, ADDRINT f) {
    const uint64_t arguments[6] = {a, b, c, d, e, f};
    if (is_over)
        return number;
    runner->call_at = instruction;
    runner->call_stack = stack;
    process->call_begins(&runner->thread, number, arguments, instruction, stack);
    runner->is_in_call = true;
    if (number == SYS_exit_group) {
        process->ends(&runner->thread, a & 0xff);
        is_over = true;
        return number;
    }
    if (number == SYS_exit && !process->schedule.is_alone()) {
        process->end_thread(&runner->thread);
        runner->is_gone = true;
        hand_on();
        return number;
    }
    Step step = process->schedule.before_call(runner->thread.number, number, arguments, own);
    if (step == Step::RUN_LATER || step == Step::SKIP_LATER) {
        hand_on();
        wait_for_turn(runner);
        step = process->schedule.resumes(runner->thread.number, step);
    }
    if (step == Step::OUTSIDE) {
        runner->is_outside = true;
        hand_on();
    }
    if (step != Step::SKIP_LATER)
        return number;
    runner->is_answered = true;
    runner->answer = process->schedule.answer(runner->thread.number);
    return SYS_sched_yield; /* in its place: it does nothing */
}

/* Under Pin's lock: notes only. */
VOID on_call_ends(THREADID number, CONTEXT *context, SYSCALL_STANDARD, VOID *) {
    PIN_MutexLock(&runners_lock);
    Runner *runner = runners[number];
    PIN_MutexUnlock(&runners_lock);
    if (runner == nullptr || !runner->is_in_call)
        return;
    runner->result = int64_t(PIN_GetContextReg(context, REG_GAX));
    uint64_t woken = runner->is_outside || runner->is_answered ? 0 : process->schedule.woken(runner->thread.number);
    if (runner->is_answered)
        runner->result = runner->answer;
    else if (woken > 0 && runner->result >= 0)
        runner->result += int64_t(woken); /* the kernel did not count whom the schedule woke */
    if (runner->is_answered || woken > 0)
        PIN_SetContextReg(context, REG_GAX, ADDRINT(runner->result));
    runner->is_answered = false;
    runner->has_result = true;
    note(runner);
}

/* ---- threads, processes, signals ---- */

VOID on_thread_starts(THREADID number, CONTEXT *context, INT32, VOID *) {
    Runner *runner = new Runner();
    runner->kernel_number = int(PIN_GetTid());
    PIN_MutexLock(&runners_lock);
    bool is_first = runners.empty();
    runners[number] = runner;
    PIN_MutexUnlock(&runners_lock);
    if (is_first) { /* it has the turn */
        process->start_thread(&runner->thread, runner->kernel_number, 0);
        runner->is_new = false;
    }
    PIN_SetContextReg(context, runner_register, ADDRINT(runner));
}

/* The Runner stays: a routine of a thread that looks for another may hold it. */
VOID on_thread_ends(THREADID number, const CONTEXT *, INT32, VOID *) {
    PIN_MutexLock(&runners_lock);
    runners.erase(number);
    PIN_MutexUnlock(&runners_lock);
}

VOID on_context_changes(THREADID number, CONTEXT_CHANGE_REASON reason, const CONTEXT *from, CONTEXT *, INT32 signal, VOID *) {
    PIN_MutexLock(&runners_lock);
    Runner *runner = runners[number];
    PIN_MutexUnlock(&runners_lock);
    if (runner == nullptr)
        return;
    bool has_turn = !runner->is_new && !runner->is_outside && process->schedule.running() == runner->thread.number;
    if (has_turn && from != nullptr && reason != CONTEXT_CHANGE_REASON_SIGRETURN)
        process->is_interrupted(&runner->thread, PIN_GetContextReg(from, REG_INST_PTR), PIN_GetContextReg(from, REG_GCX));
    if (reason == CONTEXT_CHANGE_REASON_FATALSIGNAL) {
        process->ends(has_turn ? &runner->thread : nullptr, uint64_t(256 + signal));
        is_over = true;
    }
    note(runner);
}

VOID before_fork(THREADID number, const CONTEXT *, VOID *) { process->forks(&runners[number]->thread); }

VOID after_fork_in_parent(THREADID number, const CONTEXT *, VOID *) { process->has_forked(&runners[number]->thread); }

VOID after_fork_in_child(THREADID number, const CONTEXT *, VOID *) {
    PIN_MutexInit(&runners_lock); /* another thread, which is not here, may have held them */
    PIN_MutexInit(&turn_lock);
    Runner *runner = runners[number];
    runners.clear();
    runners[number] = runner;
    runner->kernel_number = PIN_GetPid();
    process->become_child(&runner->thread, &own);
}

/* The last thread's exit, without exit_group. */
VOID on_end(INT32 status, VOID *) { process->ends(nullptr, uint64_t(status & 0xff)); }

/* ---- instrumentation ---- */

bool ends_marker(INS instruction) {
    static const UINT8 MARKER[] = {0x48, 0xC1, 0xC7, 0x03, 0x48, 0xC1, 0xC7, 0x0D, 0x48, 0xC1,
                                   0xC7, 0x3D, 0x48, 0xC1, 0xC7, 0x33, 0x48, 0x87, 0xDB};
    UINT8 bytes[sizeof MARKER];
    ADDRINT start = INS_Address(instruction) + INS_Size(instruction) - sizeof bytes;
    return INS_Opcode(instruction) == XED_ICLASS_XCHG && INS_Size(instruction) == 3 && own.read(start, bytes, sizeof bytes) &&
           std::memcmp(bytes, MARKER, sizeof bytes) == 0;
}

/* The memory operand that is written; of a flush the only one. -1: none. */
INT32 operand_of(INS instruction, Class kind) {
    for (UINT32 i = 0; i < INS_MemoryOperandCount(instruction); i++)
        if (is_flush(kind) || INS_MemoryOperandIsWritten(instruction, i))
            return INT32(i);
    return -1;
}

/* Of vmaskmov the first vector register, of maskmovdqu and maskmovq the last one. */
REG vector_mask(INS instruction, bool is_last) {
    REG found = REG_INVALID();
    for (UINT32 i = 0; i < INS_OperandCount(instruction); i++) {
        if (!INS_OperandIsReg(instruction, i))
            continue;
        REG reg = INS_OperandReg(instruction, i);
        bool is_vector = REG_is_xmm(reg) || REG_is_ymm(reg) || REG_is_mm(reg);
        if (is_vector && (is_last || !REG_valid(found)))
            found = reg;
    }
    return found;
}

VOID add_after(INS instruction, Class kind) {
    if (!INS_IsValidForIpointAfter(instruction))
        return; /* the next block's start does it */
    INS_InsertIfCall(instruction, IPOINT_AFTER, AFUNPTR(has_announced), IARG_FAST_ANALYSIS_CALL, IARG_REG_VALUE, runner_register,
                     IARG_END);
    if (is_compare(kind))
        INS_InsertThenCall(instruction, IPOINT_AFTER, AFUNPTR(on_made), IARG_REG_VALUE, runner_register, IARG_REG_VALUE, REG_GFLAGS,
                           IARG_END);
    else
        INS_InsertThenCall(instruction, IPOINT_AFTER, AFUNPTR(on_made), IARG_REG_VALUE, runner_register, IARG_ADDRINT, ADDRINT(0),
                           IARG_END);
}

VOID add_masked(INS instruction, Class kind, const std::string &name, UINT32 operand) {
    Masked *masked = new Masked();
    masked->kind = kind;
    masked->bytes = UINT32(INS_MemoryOperandSize(instruction, operand));
    masked->is_vector = vector_mask_element(name) != 0 || kind == Class::MASKED_NON_TEMPORAL;
    if (masked->is_vector) {
        masked->element = kind == Class::MASKED_NON_TEMPORAL ? 1 : vector_mask_element(name);
        masked->mask = vector_mask(instruction, kind == Class::MASKED_NON_TEMPORAL);
    } else {
        masked->element = UINT32(INS_MemoryOperandElementSize(instruction, operand));
        masked->mask = INS_MaskRegister(instruction);
        if (masked->mask == REG_K0)
            masked->mask = REG_INVALID();
    }
    INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_masked), IARG_REG_VALUE, runner_register, IARG_PTR, masked, IARG_INST_PTR,
                   IARG_CONST_CONTEXT, IARG_MEMORYOP_EA, operand, IARG_END);
}

/* Only where persistent memory lies, what a store costs elsewhere is a comparison. Locked instructions and flushes count anywhere. */
VOID add_access(INS instruction, Class kind, UINT32 operand) {
    UINT32 bytes = is_flush(kind) ? 0 : UINT32(INS_MemoryOperandSize(instruction, operand));
    UINT32 reach = kind == Class::STATE ? xsave_bytes() : bytes;
    if (is_flush(kind) || is_locked(kind)) {
        INS_InsertPredicatedCall(instruction, IPOINT_BEFORE, AFUNPTR(on_access), IARG_REG_VALUE, runner_register, IARG_UINT32,
                                 UINT32(kind), IARG_INST_PTR, IARG_REG_VALUE, REG_STACK_PTR, IARG_MEMORYOP_EA, operand, IARG_UINT32,
                                 bytes, IARG_END);
        return;
    }
    INS_InsertIfPredicatedCall(instruction, IPOINT_BEFORE, AFUNPTR(is_near), IARG_FAST_ANALYSIS_CALL, IARG_MEMORYOP_EA, operand,
                               IARG_ADDRINT, ADDRINT(reach), IARG_PTR, process->traced.maps.lowest(), IARG_PTR,
                               process->traced.maps.highest(), IARG_END);
    if (kind == Class::REPEATED)
        INS_InsertThenPredicatedCall(instruction, IPOINT_BEFORE, AFUNPTR(on_repeated), IARG_REG_VALUE, runner_register,
                                     IARG_INST_PTR, IARG_REG_VALUE, REG_STACK_PTR, IARG_MEMORYOP_EA, operand, IARG_UINT32, bytes,
                                     IARG_FIRST_REP_ITERATION, IARG_REG_VALUE, INS_RepCountRegister(instruction), IARG_END);
    else
        INS_InsertThenPredicatedCall(instruction, IPOINT_BEFORE, AFUNPTR(on_access), IARG_REG_VALUE, runner_register, IARG_UINT32,
                                     UINT32(kind), IARG_INST_PTR, IARG_REG_VALUE, REG_STACK_PTR, IARG_MEMORYOP_EA, operand,
                                     IARG_UINT32, bytes, IARG_END);
}

VOID add_refusal(INS instruction, const std::string &why) {
    INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_refused), IARG_REG_VALUE, runner_register, IARG_INST_PTR, IARG_PTR,
                   strdup(why.c_str()), IARG_END);
}

VOID instrument_access(INS instruction) {
    std::string name = INS_Mnemonic(instruction);
    REG mask = INS_MaskRegister(instruction);
    bool writes = INS_IsMemoryWrite(instruction) || (INS_HasScatteredMemoryAccess(instruction) && INS_IsVscatter(instruction));
    Class kind = classify(Form{name, bool(INS_LockPrefix(instruction)), bool(INS_HasRealRep(instruction)), writes,
                               REG_valid(mask) && mask != REG_K0});
    if (kind == Class::NOTHING)
        return;
    if (kind == Class::REFUSED) {
        add_refusal(instruction, why_refused(name));
        return;
    }
    if (is_fence(kind)) {
        INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_fence), IARG_REG_VALUE, runner_register, IARG_UINT32, UINT32(kind),
                       IARG_INST_PTR, IARG_REG_VALUE, REG_STACK_PTR, IARG_END);
    } else if (kind == Class::SCATTERED) {
        UINT32 operand = INS_MemoryOperandIndexToOperandIndex(instruction, 0);
        INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_scattered), IARG_REG_VALUE, runner_register, IARG_INST_PTR,
                       IARG_REG_VALUE, REG_STACK_PTR, IARG_MULTI_ELEMENT_OPERAND, operand, IARG_END);
    } else {
        INT32 operand = operand_of(instruction, kind);
        if (operand < 0)
            add_refusal(instruction, name + ": its operand is not known to Pin");
        else if (kind == Class::MASKED || kind == Class::MASKED_NON_TEMPORAL || kind == Class::COMPRESSED)
            add_masked(instruction, kind, name, UINT32(operand));
        else
            add_access(instruction, kind, UINT32(operand));
    }
    add_after(instruction, kind);
}

VOID instrument(INS instruction) {
    if (ends_marker(instruction)) {
        INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_request), IARG_REG_VALUE, runner_register, IARG_REG_VALUE, REG_GAX,
                       IARG_REG_VALUE, REG_GDX, IARG_RETURN_REGS, REG_GDX, IARG_END);
        return;
    }
    if (INS_IsSyscall(instruction)) {
        INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_call_begins), IARG_REG_VALUE, runner_register, IARG_INST_PTR,
                       IARG_REG_VALUE, REG_STACK_PTR, IARG_SYSCALL_NUMBER, IARG_SYSARG_VALUE, 0, IARG_SYSARG_VALUE, 1,
                       IARG_SYSARG_VALUE, 2, IARG_SYSARG_VALUE, 3, IARG_SYSARG_VALUE, 4, IARG_SYSARG_VALUE, 5, IARG_RETURN_REGS,
                       REG_GAX, IARG_END);
        return;
    }
    if (INS_Opcode(instruction) == XED_ICLASS_PAUSE)
        INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_pause), IARG_REG_VALUE, runner_register, IARG_END);
    if (INS_IsCall(instruction))
        INS_InsertCall(instruction, IPOINT_BEFORE, AFUNPTR(on_call), IARG_REG_VALUE, runner_register, IARG_REG_VALUE, REG_STACK_PTR,
                       IARG_ADDRINT, INS_NextAddress(instruction), IARG_END);
    instrument_access(instruction);
}

VOID instrument_trace(TRACE trace, VOID *) {
    for (BBL block = TRACE_BblHead(trace); BBL_Valid(block); block = BBL_Next(block)) {
        INS first = BBL_InsHead(block);
        INS_InsertIfCall(first, IPOINT_BEFORE, AFUNPTR(has_to_attend), IARG_FAST_ANALYSIS_CALL, IARG_REG_VALUE, runner_register,
                         IARG_CALL_ORDER, CALL_ORDER_FIRST, IARG_END);
        INS_InsertThenCall(first, IPOINT_BEFORE, AFUNPTR(attend), IARG_REG_VALUE, runner_register, IARG_INST_PTR, IARG_CALL_ORDER,
                           CALL_ORDER_FIRST, IARG_END);
        for (INS instruction = first; INS_Valid(instruction); instruction = INS_Next(instruction))
            instrument(instruction);
    }
}

VOID add_callbacks() {
    TRACE_AddInstrumentFunction(instrument_trace, nullptr);
    PIN_AddSyscallExitFunction(on_call_ends, nullptr);
    PIN_AddThreadStartFunction(on_thread_starts, nullptr);
    PIN_AddThreadFiniFunction(on_thread_ends, nullptr);
    PIN_AddContextChangeFunction(on_context_changes, nullptr);
    PIN_AddForkFunction(FPOINT_BEFORE, before_fork, nullptr);
    PIN_AddForkFunction(FPOINT_AFTER_IN_PARENT, after_fork_in_parent, nullptr);
    PIN_AddForkFunction(FPOINT_AFTER_IN_CHILD, after_fork_in_child, nullptr);
    PIN_AddFiniFunction(on_end, nullptr);
}

} // namespace

int main(int count, char **arguments) {
    if (PIN_Init(count, arguments)) {
        std::fprintf(stderr, "%s", KNOB_BASE::StringKnobSummary().c_str());
        return 2;
    }
    options.trace = knob_trace.Value();
    options.pm_folder = knob_pm_folder.Value();
    options.module_root = knob_module_root.Value();
    options.process = knob_process.Value();
    options.schedule_seed = knob_schedule_seed.Value();
    process = new Process(options, &own);
    std::string wrong = process->start(options);
    runner_register = PIN_ClaimToolRegister();
    if (wrong.empty() && !REG_valid(runner_register))
        wrong = "Pin has no register left for the tool; run it without other tools";
    if (!wrong.empty()) {
        std::fprintf(stderr, "faultline: error: %s\n", wrong.c_str());
        return 2;
    }
    PIN_MutexInit(&runners_lock);
    PIN_MutexInit(&turn_lock);
    add_callbacks();
    PIN_StartProgram(); /* does not return */
    return 3;
}
