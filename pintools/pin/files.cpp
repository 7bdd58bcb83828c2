/* SPDX-License-Identifier: Apache-2.0
 *
 * files.cpp - see files.h.
 */
#include "files.h"

#include <climits>
#include <fcntl.h>
#include <unistd.h>

namespace {

const char GONE[] = " (deleted)";

bool is_in(const std::string &absolute, const std::string &folder) {
    return absolute.compare(0, folder.size(), folder) == 0 && (absolute.size() == folder.size() || absolute[folder.size()] == '/');
}

/* Of a folder that exists, as the kernel names it: no link and no dot is left. */
bool canonical(const std::string &folder, std::string *name) {
    int descriptor = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    *name = link_target("/proc/self/fd/" + std::to_string(descriptor));
    close(descriptor);
    return !name->empty();
}

} // namespace

std::string link_target(const std::string &link) {
    char name[PATH_MAX];
    ssize_t bytes = readlink(link.c_str(), name, sizeof name);
    return bytes <= 0 ? std::string() : std::string(name, size_t(bytes));
}

bool Target::read_text(uint64_t address, std::string *text) const {
    text->clear();
    while (text->size() < PATH_MAX) { /* no page is read that the text does not reach */
        char page[256];
        size_t bytes = sizeof page - address % sizeof page;
        if (!read(address, page, bytes))
            return false;
        for (size_t i = 0; i < bytes; i++) {
            if (page[i] == '\0')
                return true;
            text->push_back(page[i]);
        }
        address += bytes;
    }
    return false;
}

bool Files::set_folder(const std::string &pm_folder) { return canonical(pm_folder, &folder_); }

bool Files::resolve(const Target &target, int folder, const std::string &path, std::string *absolute) const {
    std::string whole = path;
    if (path.empty() || path[0] != '/') {
        std::string base = link_target(target.proc() + (folder == AT_FDCWD ? "/cwd" : "/fd/" + std::to_string(folder)));
        if (base.empty())
            return false;
        whole = base + "/" + path;
    }
    while (whole.size() > 1 && whole[whole.size() - 1] == '/')
        whole.resize(whole.size() - 1);
    size_t slash = whole.rfind('/');
    std::string last = whole.substr(slash + 1);
    if (last.empty() || last == "." || last == "..")
        return canonical(whole, absolute);
    std::string above;
    if (!canonical(slash == 0 ? "/" : whole.substr(0, slash), &above))
        return false;
    *absolute = (above == "/" ? "" : above) + "/" + last;
    return true;
}

bool Files::is_below(const std::string &absolute, std::string *relative) const {
    if (absolute.size() <= folder_.size() || !is_in(absolute, folder_))
        return false;
    *relative = absolute.substr(folder_.size() + 1);
    return true;
}

bool Files::is_in_folder(const Target &target, int descriptor, std::string *relative) const {
    std::string path = link_target(target.proc() + "/fd/" + std::to_string(descriptor));
    *relative = ".";
    return path == folder_ || is_below(path, relative);
}

bool Files::is_folder(const Target &target, int descriptor, std::string *relative) const {
    struct stat status;
    std::string link = target.proc() + "/fd/" + std::to_string(descriptor);
    return descriptor >= 0 && stat(link.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
           is_in_folder(target, descriptor, relative);
}

bool Files::is_state_outside(const std::string &absolute) const {
    if (absolute.compare(0, folder_.size(), folder_) == 0) /* what the runner's sessions hand over lies beside it */
        return false;
    bool is_device = is_in(absolute, "/dev") && !is_in(absolute, "/dev/shm");
    return !is_device && !is_in(absolute, "/proc") && !is_in(absolute, "/sys");
}

uint32_t Files::of_descriptor(const Target &target, int descriptor, struct stat *status, Writer *writer) {
    std::string link = target.proc() + "/fd/" + std::to_string(descriptor), relative;
    if (descriptor < 0 || stat(link.c_str(), status) != 0 || !S_ISREG(status->st_mode) || !is_below(link_target(link), &relative))
        return 0;
    return id_of(*status, relative, writer);
}

void Files::define(uint32_t file, Writer *writer) const {
    fl_record record = fl_record();
    record.kind = FL_FILE;
    record.file = file;
    writer->emit_text(record, names_[file - 1]);
}

uint32_t Files::make(const std::string &relative, Writer *writer) {
    names_.push_back(relative);
    define(uint32_t(names_.size()), writer);
    return uint32_t(names_.size());
}

void Files::bind(uint32_t file, const struct stat &status) {
    ids_[std::make_pair(uint64_t(status.st_dev), uint64_t(status.st_ino))] = file;
}

uint32_t Files::id_of(const struct stat &status, const std::string &relative, Writer *writer) {
    auto known = ids_.find(std::make_pair(uint64_t(status.st_dev), uint64_t(status.st_ino)));
    if (known != ids_.end())
        return known->second;
    uint32_t file = make(relative, writer);
    bind(file, status);
    return file;
}

/* Names are kept true for the definitions that a forked child makes. */
void Files::rename_below(const std::string &old_name, const std::string &new_name, const std::string &end) {
    for (std::string &name : names_)
        if (is_in(name, old_name))
            name = new_name + name.substr(old_name.size()) + end;
}

void Files::removed(const std::string &name) { rename_below(name, name, GONE); }

void Files::renamed(const std::string &old_name, const std::string &new_name) {
    removed(new_name); /* what it stood in the place of */
    rename_below(old_name, new_name, "");
}

void Files::define_again(Writer *writer) const {
    for (uint32_t file = 1; file <= names_.size(); file++)
        define(file, writer);
}
