/* SPDX-License-Identifier: Apache-2.0
 *
 * files.h - names below the PM folder, and the identity of files. A file is its inode: renamed it keeps its id, made anew with an
 * inode number that was used before it is another.
 */
#ifndef FAULTLINE_PIN_FILES_H
#define FAULTLINE_PIN_FILES_H

#include "target.h"
#include "writer.h"

#include <map>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

class Files {
  public:
    /* False: the folder is not there. */
    bool set_folder(const std::string &pm_folder);

    /* The canonical absolute name of a path that the target gave, relative to a folder's descriptor; false if its folder is not there. */
    bool resolve(const Target &target, int folder, const std::string &path, std::string *absolute) const;
    /* The part of an absolute name below the PM folder; false if it does not lie there. */
    bool is_below(const std::string &absolute, std::string *relative) const;
    /* Whether the descriptor leads to the PM folder or below it; there, in `relative`: "." for the PM folder itself. */
    bool is_in_folder(const Target &target, int descriptor, std::string *relative) const;
    /* The same, and it is a folder's. */
    bool is_folder(const Target &target, int descriptor, std::string *relative) const;
    /* A file of this name outlives the run, and is none of the heap's. */
    bool is_state_outside(const std::string &absolute) const;
    /* The regular file below the PM folder that a descriptor of the target leads to; 0: none. */
    uint32_t of_descriptor(const Target &target, int descriptor, struct stat *status, Writer *writer);

    uint32_t id_of(const struct stat &status, const std::string &relative, Writer *writer); /* defined at first sight */
    uint32_t make(const std::string &relative, Writer *writer); /* that is about to be created */
    void bind(uint32_t file, const struct stat &status);
    void renamed(const std::string &old_name, const std::string &new_name);
    void removed(const std::string &name);
    void define_again(Writer *writer) const;

  private:
    void define(uint32_t file, Writer *writer) const;
    void rename_below(const std::string &old_name, const std::string &new_name, const std::string &end);

    std::string folder_; /* canonical, no slash at its end */
    std::vector<std::string> names_; /* by id, less one */
    std::map<std::pair<uint64_t, uint64_t>, uint32_t> ids_; /* by device and inode */
};

/* Where a link of /proc leads; empty if it is not there. */
std::string link_target(const std::string &link);

#endif
