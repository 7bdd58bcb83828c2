/* SPDX-License-Identifier: Apache-2.0
 *
 * process.cpp - see process.h.
 */
#include "process.h"

#include <algorithm>
#include <cstring>

namespace {

const uint64_t ZERO_FLAG = 1 << 6;
const uint32_t MOST_CHILDREN = FL_FORK_RADIX - 1;
const uint32_t MOST_PROCESSES = 0xffffff; /* a child's number needs 8 bits more */

} // namespace

Process::Process(const Options &options, const Target *target)
    : traced(), schedule(options.schedule_seed), child_count_(0), thread_count_(0), is_ended_(false) {
    traced.target = target;
    traced.writer.process = options.process;
    traced.sites.set_module_root(options.module_root);
}

std::string Process::start(const Options &options) {
    if (options.trace.empty())
        return "-trace FILE is missing; name the file that the trace is appended to";
    if (options.pm_folder.empty())
        return "-pm_folder DIR is missing; name the folder of the persistent files";
    if (options.process == 0 || options.process > MOST_PROCESSES)
        return "-process " + std::to_string(options.process) + ": a process has a number from 1 to " +
               std::to_string(MOST_PROCESSES);
    if (!traced.files.set_folder(options.pm_folder))
        return "-pm_folder " + options.pm_folder + " is not a folder that can be read; create it first";
    std::string wrong = traced.writer.open(options.trace, options.schedule_seed);
    if (!wrong.empty())
        return wrong;
    fl_record first = fl_record();
    first.kind = FL_PROCESS;
    first.detail = FL_PROCESS_START;
    traced.writer.emit(first);
    return "";
}

std::string Process::failure() const {
    if (!traced.writer.error().empty())
        return "cannot write the trace: " + traced.writer.error() + "; make room and trace again";
    return failure_;
}

/* ---- processes and threads ---- */

void Process::forks(Thread *thread) {
    made(thread, 0);
    close_joined(thread);
    traced.writer.flush();
    child_count_++;
    schedule.has_relatives();
}

void Process::has_forked(Thread *thread) {
    if (child_count_ > MOST_CHILDREN)
        traced.refuse(thread->number, "fork number " + std::to_string(child_count_) + ": child processes after the " +
                                          std::to_string(MOST_CHILDREN) + "th are not recorded");
}

/* The ids of files, modules and sites stay; their definitions are the process's own. */
void Process::become_child(Thread *thread, const Target *target) {
    uint32_t parent = traced.writer.process;
    traced.target = target;
    if (child_count_ > MOST_CHILDREN || parent > MOST_PROCESSES)
        failure_ = "child " + std::to_string(child_count_) + " of process " + std::to_string(parent) + ": a trace has room for " +
                   std::to_string(MOST_CHILDREN) + " children a process, and four generations";
    traced.writer.process = parent * FL_FORK_RADIX + child_count_;
    child_count_ = 0;
    elsewhere_.clear();
    thread->number = thread_count_ = 1;
    schedule.forked(1, target->number());
    fl_record first = fl_record();
    first.kind = FL_PROCESS;
    first.detail = FL_PROCESS_FORK;
    first.offset = parent;
    traced.writer.emit(first);
    traced.files.define_again(&traced.writer);
    traced.sites.define_again(&traced.writer);
    traced.maps.define_again(thread->number, &traced.writer);
}

uint16_t Process::start_thread(Thread *thread, int kernel_number, uint64_t cleared_word) {
    thread->number = ++thread_count_;
    if (thread_count_ == 0)
        failure_ = "more than 65535 threads; a trace has room for no more";
    schedule.add(thread->number, kernel_number, cleared_word);
    return thread->number;
}

void Process::end_thread(Thread *thread) {
    made(thread, 0);
    close_joined(thread);
    schedule.remove(thread->number);
}

void Process::ends(Thread *thread, uint64_t value) {
    if (is_ended_)
        return;
    is_ended_ = true;
    if (thread != nullptr) {
        made(thread, 0);
        close_joined(thread);
    }
    end_flushes_elsewhere();
    fl_record last = fl_record();
    last.kind = FL_PROCESS_END;
    last.value = value;
    traced.writer.emit(last);
    traced.writer.flush();
}

/* ---- records ---- */

fl_record Process::record(const Thread &thread, uint8_t kind, uint8_t detail, uint32_t site) {
    fl_record made = fl_record();
    made.kind = kind;
    made.detail = detail;
    made.thread = thread.number;
    made.site = site;
    return made;
}

uint32_t Process::site(Thread *thread, Place place) {
    return traced.sites.site(*traced.target, &thread->stack, thread->pending.instruction, thread->pending.stack, place,
                             &traced.writer);
}

void Process::before(Thread *thread, const Access &access) {
    made(thread, 0);
    if (thread->is_joining && (access.instruction != thread->joined.instruction || access.is_first))
        close_joined(thread);
    thread->pending = access;
    thread->is_pending = !is_ended_;
}

void Process::moves_on(Thread *thread, uint64_t instruction) {
    made(thread, 0);
    if (thread->is_joining && thread->joined.instruction != instruction)
        close_joined(thread);
}

void Process::is_interrupted(Thread *thread, uint64_t instruction, uint64_t count) {
    bool is_at = thread->is_pending && thread->pending.instruction == instruction;
    bool was_made = thread->is_pending && thread->pending.kind == Class::REPEATED && thread->pending.count != count;
    if (is_at && !was_made)
        thread->is_pending = false;
    made(thread, 0);
    close_joined(thread);
}

void Process::made(Thread *thread, uint64_t flags) {
    if (!thread->is_pending)
        return;
    thread->is_pending = false;
    Class kind = thread->pending.kind;
    if (is_flush(kind)) {
        flush(thread);
    } else if (is_fence(kind)) {
        uint8_t detail = uint8_t(kind == Class::SFENCE ? FL_SFENCE : FL_MFENCE);
        traced.writer.emit(record(*thread, FL_FENCE, detail, site(thread, Place::FENCE)));
        schedule.count_event();
    } else if (is_locked(kind) || is_compare(kind)) {
        store_locked(thread, flags);
    } else if (kind == Class::REPEATED) {
        join(thread);
    } else {
        store(thread);
    }
}

void Process::store(Thread *thread) {
    bool is_event = false;
    for (const Range &range : thread->pending.ranges)
        for (const Part &part : traced.maps.parts(range.start, range.end)) {
            traced.emit_store(part, store_detail(thread->pending.kind), thread->number, site(thread, Place::STORE));
            is_event = true;
        }
    if (is_event)
        schedule.count_event();
}

/* A compare-exchange has stored if it found what it expected. */
void Process::store_locked(Thread *thread, uint64_t flags) {
    Class kind = thread->pending.kind;
    bool has_stored = !is_compare(kind) || (flags & ZERO_FLAG) != 0;
    const Range &range = thread->pending.ranges.at(0);
    bool is_pm = traced.maps.find(range.start) != nullptr;
    if (has_stored && (is_pm || !is_locked(kind))) {
        store(thread);
        return;
    }
    if (!is_locked(kind))
        return;
    traced.writer.emit(record(*thread, FL_FENCE, FL_RMW_FENCE, site(thread, Place::OWN)));
    schedule.count_event();
}

/* ---- rep ---- */

void Process::close_joined(Thread *thread) {
    if (!thread->is_joining)
        return;
    thread->is_joining = false;
    for (const Part &part : traced.maps.parts(thread->joined.range.start, thread->joined.range.end))
        traced.emit_store(part, FL_STORE_REP, thread->number, thread->joined.site);
}

/* Contiguous iterations in one mapping grow one store, up or down. */
void Process::join(Thread *thread) {
    Range all = thread->pending.ranges.at(0);
    for (const Part &part : traced.maps.parts(all.start, all.end)) {
        Range &joined = thread->joined.range;
        bool is_same = thread->is_joining && traced.maps.find(joined.start) == part.mapping;
        if (is_same && part.start == joined.end) {
            joined.end = part.end;
            continue;
        }
        if (is_same && part.end == joined.start) {
            joined.start = part.start;
            continue;
        }
        close_joined(thread);
        thread->is_joining = true;
        thread->joined.instruction = thread->pending.instruction;
        thread->joined.site = site(thread, Place::STORE);
        joined = Range{part.start, part.end};
        schedule.count_event();
    }
}

/* ---- flushes ---- */

void Process::flush(Thread *thread) {
    uint64_t address = thread->pending.ranges.at(0).start;
    const Mapping *mapping = traced.maps.find(address);
    if (mapping == nullptr) {
        flush_elsewhere(thread);
        return;
    }
    fl_record made = record(*thread, FL_FLUSH, flush_detail(thread->pending.kind), site(thread, Place::STORE));
    made.file = mapping->file;
    made.offset = mapping->offset_of(address);
    traced.writer.emit(made);
    schedule.count_event();
}

/* The first one of a site is a record at once, the others are one at the end of the process. */
void Process::flush_elsewhere(Thread *thread) {
    uint32_t where = site(thread, Place::STORE);
    Elsewhere &known = elsewhere_[where];
    if (known.count++ > 0)
        return;
    known.detail = flush_detail(thread->pending.kind);
    known.thread = thread->number;
    fl_record first = record(*thread, FL_FLUSH, known.detail, where);
    first.value = 1;
    traced.writer.emit(first);
}

void Process::end_flushes_elsewhere() {
    for (const auto &entry : elsewhere_) {
        if (entry.second.count < 2)
            continue;
        fl_record rest = fl_record();
        rest.kind = FL_FLUSH;
        rest.detail = entry.second.detail;
        rest.thread = entry.second.thread;
        rest.site = entry.first;
        rest.value = entry.second.count - 1;
        traced.writer.emit(rest);
    }
    elsewhere_.clear();
}

/* ---- what the program asks for ---- */

void Process::refuse(Thread *thread, uint64_t instruction, const std::string &what) {
    moves_on(thread, 0);
    traced.refuse(thread->number, what + " at " + traced.sites.describe(*traced.target, instruction));
}

bool Process::on_request(Thread *thread, const uint64_t *request) {
    if (request[0] != FL_REQUEST_BEGIN && request[0] != FL_REQUEST_RETURN)
        return false;
    moves_on(thread, 0);
    fl_record marker =
        record(*thread, request[0] == FL_REQUEST_BEGIN ? FL_OPERATION_BEGIN : FL_OPERATION_RETURN, uint8_t(request[1]), 0);
    marker.size = uint32_t(request[2]);
    if (request[0] == FL_REQUEST_BEGIN) {
        marker.file = uint32_t(request[3]);
        marker.offset = request[4];
        marker.value = request[5];
    } else {
        marker.value = request[3];
    }
    traced.writer.emit(marker);
    return true;
}

void Process::call_begins(Thread *thread, uint64_t number, const uint64_t *arguments, uint64_t instruction, uint64_t stack) {
    moves_on(thread, 0);
    if (is_ended_)
        return;
    thread->call.number = number;
    std::memcpy(thread->call.arguments, arguments, sizeof thread->call.arguments);
    Caller(&traced, &thread->call, &thread->stack, thread->number, instruction, stack).begins();
    if (thread->call.has_ended)
        is_ended_ = true;
}

void Process::call_ends(Thread *thread, int64_t result, uint64_t instruction, uint64_t stack) {
    if (thread->call.has_ended) {
        failure_ = std::string("execve failed (") + std::strerror(int(-result)) + ") after the trace of this process was ended";
        return;
    }
    if (!is_ended_)
        Caller(&traced, &thread->call, &thread->stack, thread->number, instruction, stack).ends(result);
}
