/* SPDX-License-Identifier: Apache-2.0
 *
 * sites.cpp - see sites.h.
 */
#include "sites.h"

#include "elf.h"
#include "files.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <tuple>
#include <unistd.h>

namespace {

const size_t MOST_FRAMES = 50;
const size_t MOST_PATH_SITES = 6; /* a site with its callers, and theirs */
/* A stack pointer that is so far away belongs to another stack: the calls of this one have not returned. */
const uint64_t ANOTHER_STACK = 64ull << 20;

std::string contents_of(const std::string &path) {
    std::string text;
    char piece[4096];
    ssize_t bytes;
    int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return text;
    while ((bytes = read(descriptor, piece, sizeof piece)) > 0)
        text.append(piece, size_t(bytes));
    close(descriptor);
    return text;
}

bool is_library(const std::string &path) {
    std::string name = path.substr(path.rfind('/') + 1);
    return name.compare(0, 7, "libc.so") == 0 || name.compare(0, 8, "ld-linux") == 0;
}

/* A line of /proc/N/maps: "start-end rights offset device inode   /path". */
struct MapsLine {
    uint64_t start, end, offset;
    std::string path; /* empty: no file */
};

MapsLine parse(const std::string &line) {
    MapsLine parsed = MapsLine();
    char *at = nullptr;
    parsed.start = std::strtoull(line.c_str(), &at, 16);
    parsed.end = std::strtoull(at + (*at == '-'), &at, 16);
    at = std::strchr(at + (*at == ' '), ' '); /* behind the rights */
    parsed.offset = at == nullptr ? 0 : std::strtoull(at, nullptr, 16);
    size_t slash = line.find('/');
    if (slash != std::string::npos)
        parsed.path = line.substr(slash);
    return parsed;
}

} // namespace

/* ---- the stack of calls ---- */

void CallStack::drop_returned(uint64_t stack) {
    while (!calls_.empty() && calls_.back().slot < stack && stack - calls_.back().slot < ANOTHER_STACK)
        calls_.pop_back();
}

void CallStack::made(uint64_t slot, uint64_t return_address) {
    drop_returned(slot + 1); /* a slot is used again when what lay there has returned */
    calls_.push_back(Call{slot, return_address});
}

std::vector<uint64_t> CallStack::frames(uint64_t instruction, uint64_t stack, size_t most) {
    std::vector<uint64_t> found(1, instruction);
    drop_returned(stack);
    for (size_t i = calls_.size(); i > 0 && found.size() < most; i--)
        found.push_back(calls_[i - 1].return_address - 1); /* inside the call */
    return found;
}

/* ---- modules ---- */

void Sites::add_module(const std::string &path, uint64_t start, uint64_t end, uint64_t offset, const std::string &program) {
    uint64_t address = 0;
    std::string build_id;
    if (!elf_look_up(path, offset, &address, &build_id))
        return;
    uint64_t bias = start - address;
    size_t module = 0;
    while (module < modules_.size() && (modules_[module].bias != bias || modules_[module].path != path))
        module++;
    if (module == modules_.size())
        modules_.push_back(Module{path, build_id, bias, is_library(path), path == program, 0});
    spans_.push_back(Span{start, end, module});
}

void Sites::read_modules(const Target &target) {
    std::string maps = contents_of(target.proc() + "/maps"), program = link_target(target.proc() + "/exe");
    spans_.clear();
    is_stale_ = false;
    for (size_t at = 0, end; (end = maps.find('\n', at)) != std::string::npos; at = end + 1) {
        std::string line = maps.substr(at, end - at);
        bool is_code = line.size() > 20 && line.find('x', line.find(' ')) == line.find(' ') + 3;
        MapsLine parsed = parse(line);
        if (is_code && !parsed.path.empty())
            add_module(parsed.path, parsed.start, parsed.end, parsed.offset, program);
    }
}

void Sites::memory_changed(uint64_t start, uint64_t end) {
    std::vector<Span> left;
    for (const Span &span : spans_)
        if (span.end <= start || end <= span.start)
            left.push_back(span);
    spans_.swap(left);
    is_stale_ = true;
}

size_t Sites::module_of(const Target &target, uint64_t address) {
    for (int look = 0; look < 2; look++) {
        for (const Span &span : spans_)
            if (span.start <= address && address < span.end)
                return span.module;
        if (!is_stale_)
            break;
        read_modules(target);
    }
    return NONE;
}

void Sites::emit_module(const Module &module, Writer *writer) const {
    bool is_below = !root_.empty() && module.path.compare(0, root_.size(), root_) == 0 && module.path[root_.size()] == '/';
    std::string text = is_below ? module.path.substr(root_.size() + 1) : module.path;
    text.push_back('\0');
    text += module.build_id;
    text.push_back('\0');
    fl_record record = fl_record();
    record.kind = FL_MODULE;
    record.value = module.id;
    writer->emit_text(record, text);
}

uint32_t Sites::define_module(size_t module, Writer *writer) {
    if (module == NONE)
        return 0;
    if (modules_[module].id == 0) {
        defined_modules_.push_back(module);
        modules_[module].id = uint32_t(defined_modules_.size());
        emit_module(modules_[module], writer);
    }
    return modules_[module].id;
}

/* ---- sites ---- */

bool Sites::Site::operator<(const Site &other) const {
    return std::tie(module, caller, offset) < std::tie(other.module, other.caller, other.offset);
}

namespace {

void emit_site(uint32_t id, uint32_t module, uint32_t caller, uint64_t offset, Writer *writer) {
    fl_record record = fl_record();
    record.kind = FL_SITE;
    record.site = id;
    record.size = caller;
    record.value = module;
    record.offset = offset;
    writer->emit(record);
}

} // namespace

uint32_t Sites::define_site(size_t module, uint64_t address, uint32_t caller, Writer *writer) {
    Site site{define_module(module, writer), caller, module == NONE ? address : address - modules_[module].bias};
    auto known = ids_.find(site);
    if (known != ids_.end())
        return known->second;
    sites_.push_back(site);
    uint32_t id = uint32_t(sites_.size());
    ids_[site] = id;
    emit_site(id, site.module, site.caller, site.offset, writer);
    return id;
}

bool Sites::is_passed_over(size_t module, bool is_call) const {
    return module != NONE && (modules_[module].is_library || (is_call && modules_[module].is_program));
}

/* The first frame that counts as somebody's who wants something; NONE: there is none. */
size_t Sites::first_frame(const Target &target, const std::vector<uint64_t> &frames, bool is_call) {
    size_t first = 0;
    while (first < frames.size() && is_passed_over(module_of(target, frames[first]), is_call))
        first++;
    return first == frames.size() ? NONE : first;
}

uint32_t Sites::site(const Target &target, CallStack *calls, uint64_t instruction, uint64_t stack, Place place, Writer *writer) {
    std::vector<uint64_t> frames = calls->frames(instruction, stack, MOST_FRAMES);
    size_t own = module_of(target, instruction);
    if (place == Place::OWN || (place == Place::FENCE && is_passed_over(own, false)))
        return define_site(own, instruction, FL_NO_SITE, writer);
    size_t first = NONE;
    if (place == Place::CALL)
        first = first_frame(target, frames, true);
    /* A call that the program makes for nobody but itself. What no module holds is no one's wish. */
    if (first == NONE || module_of(target, frames[first]) == NONE)
        first = first_frame(target, frames, false);
    if (first == NONE)
        first = 0; /* nobody called the library */
    size_t module = module_of(target, frames[first]), end = first + 1;
    while (end < frames.size() && end - first < MOST_PATH_SITES && module_of(target, frames[end]) == module)
        end++;
    uint32_t site = FL_NO_SITE;
    for (size_t i = end; i > first; i--)
        site = define_site(module, frames[i - 1], site, writer);
    return site;
}

void Sites::define_again(Writer *writer) const {
    for (size_t module : defined_modules_)
        emit_module(modules_[module], writer);
    for (size_t i = 0; i < sites_.size(); i++)
        emit_site(uint32_t(i + 1), sites_[i].module, sites_[i].caller, sites_[i].offset, writer);
}

std::string Sites::describe(const Target &target, uint64_t address) {
    char text[32];
    size_t module = module_of(target, address);
    std::snprintf(text, sizeof text, "0x%llx",
                  static_cast<unsigned long long>(module == NONE ? address : address - modules_[module].bias));
    return module == NONE ? std::string("generated code at ") + text
                          : modules_[module].path.substr(modules_[module].path.rfind('/') + 1) + "+" + text;
}
