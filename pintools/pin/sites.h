/* SPDX-License-Identifier: Apache-2.0
 *
 * sites.h - places in code. A site is module, address in it, and the site that called it. Callers come from a stack of calls that
 * the tracer keeps of each thread: no frame pointer and no unwind table is needed, and what is not called has no frame.
 */
#ifndef FAULTLINE_PIN_SITES_H
#define FAULTLINE_PIN_SITES_H

#include "target.h"
#include "writer.h"

#include <map>
#include <string>
#include <vector>

/* Return addresses of one thread, outermost first. */
class CallStack {
  public:
    /* A call was made: `slot` is where its return address lies. */
    void made(uint64_t slot, uint64_t return_address);
    /* Addresses of code, innermost first: the instruction, then the calls that led to it, at most `most`. Calls whose return address
     * lies below the stack pointer have returned, however. */
    std::vector<uint64_t> frames(uint64_t instruction, uint64_t stack, size_t most);

  private:
    struct Call {
        uint64_t slot, return_address;
    };
    void drop_returned(uint64_t stack);
    std::vector<Call> calls_;
};

/* Whose code counts as the place of an event. */
enum class Place {
    STORE, /* what the C library stores, its caller stores */
    OWN, /* the instruction, wherever it lies */
    FENCE, /* the instruction in the C library, with callers elsewhere */
    CALL, /* a system call: who asked the C library, and the program's own functions that stand before it */
};

class Sites {
  public:
    Sites() : is_stale_(true) {}
    /* Programs and libraries below the folder are named relative to it. */
    void set_module_root(const std::string &folder) { root_ = folder; }

    uint32_t site(const Target &target, CallStack *calls, uint64_t instruction, uint64_t stack, Place place, Writer *writer);
    /* Something was mapped or unmapped there. */
    void memory_changed(uint64_t start, uint64_t end);
    void define_again(Writer *writer) const;
    /* "MODULE+0xOFFSET". */
    std::string describe(const Target &target, uint64_t address);

  private:
    struct Module {
        std::string path, build_id;
        uint64_t bias;
        bool is_library, is_program;
        uint32_t id; /* 0: not defined in the trace yet */
    };
    struct Span {
        uint64_t start, end;
        size_t module;
    };
    struct Site {
        uint32_t module, caller;
        uint64_t offset;
        bool operator<(const Site &other) const;
    };
    static const size_t NONE = ~size_t(0);

    size_t module_of(const Target &target, uint64_t address);
    void read_modules(const Target &target);
    void add_module(const std::string &path, uint64_t start, uint64_t end, uint64_t offset, const std::string &program);
    uint32_t define_module(size_t module, Writer *writer);
    uint32_t define_site(size_t module, uint64_t address, uint32_t caller, Writer *writer);
    bool is_passed_over(size_t module, bool is_call) const;
    size_t first_frame(const Target &target, const std::vector<uint64_t> &frames, bool is_call);
    void emit_module(const Module &module, Writer *writer) const;

    std::string root_;
    bool is_stale_;
    std::vector<Module> modules_;
    std::vector<Span> spans_;
    std::vector<size_t> defined_modules_; /* by id, less one */
    std::vector<Site> sites_;
    std::map<Site, uint32_t> ids_;
};

#endif
