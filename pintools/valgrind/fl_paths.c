/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_paths.c - names below the PM folder, identities of files.
 *
 * A file is its inode: renamed, it keeps its id; created anew with a recycled inode number, it gets a new one.
 */
#include "fl.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_xarray.h"

#define FL_O_PATH 010000000
#define FL_O_DIRECTORY 0200000

struct file {
    struct file *next; /* as VgHashNode wants it */
    UWord key;
    ULong device, inode;
    UInt id;
};

const HChar *fl_clo_pm_folder;

static HChar pm_folder[FL_PATH_BYTES]; /* canonical, without a slash at the end */
static UInt pm_folder_bytes;
static VgHashTable *files;
static XArray *file_paths; /* of HChar *; id = index + 1 */

/* The canonical name of a folder that exists, by opening it and asking the kernel: no symlink or dot is left. */
static Bool canonical_folder(const HChar *folder, HChar *out) {
    Int descriptor = VG_(fd_open)(folder, FL_O_PATH | FL_O_DIRECTORY, 0);
    if (descriptor < 0)
        return False;
    Bool is_found = fl_path_of_descriptor(descriptor, out);
    VG_(close)(descriptor);
    return is_found;
}

static Bool read_link(const HChar *link, HChar *out) {
    SSizeT bytes = VG_(readlink)(link, out, FL_PATH_BYTES - 1);
    if (bytes <= 0)
        return False;
    out[bytes] = '\0';
    return True;
}

Bool fl_path_of_descriptor(Int descriptor, HChar *out) {
    HChar link[64];
    VG_(sprintf)(link, "/proc/self/fd/%d", descriptor);
    return read_link(link, out);
}

void fl_paths_init(void) {
    if (!canonical_folder(fl_clo_pm_folder, pm_folder))
        fl_stop(2, "--pm-folder=%s is not a folder that can be read; create it first", fl_clo_pm_folder);
    pm_folder_bytes = VG_(strlen)(pm_folder);
    files = VG_(HT_construct)("fl.paths.files");
    file_paths = VG_(newXA)(VG_(malloc), "fl.paths.paths", VG_(free), sizeof(HChar *));
}

Bool fl_resolve(Int folder, const HChar *path, HChar *out) {
    HChar whole[FL_PATH_BYTES];
    UInt bytes = VG_(strlen)(path);
    UInt base = 0;
    if (bytes == 0 || path[0] != '/') {
        Bool is_found = folder == VKI_AT_FDCWD ? read_link("/proc/self/cwd", whole) : fl_path_of_descriptor(folder, whole);
        if (!is_found)
            return False;
        base = VG_(strlen)(whole);
        whole[base++] = '/';
    }
    if (base + bytes >= sizeof whole)
        return False;
    VG_(strcpy)(whole + base, path);
    for (UInt end = base + bytes; end > 1 && whole[end - 1] == '/'; end--)
        whole[end - 1] = '\0';

    HChar *slash = VG_(strrchr)(whole, '/');
    if (slash[1] == '\0' || VG_(strcmp)(slash, "/.") == 0 || VG_(strcmp)(slash, "/..") == 0)
        return canonical_folder(whole, out);
    *slash = '\0';
    if (!canonical_folder(whole[0] == '\0' ? "/" : whole, out))
        return False;
    UInt folder_bytes = VG_(strlen)(out);
    if (folder_bytes + 1 + VG_(strlen)(slash + 1) >= FL_PATH_BYTES)
        return False;
    if (folder_bytes > 1)
        out[folder_bytes++] = '/';
    VG_(strcpy)(out + folder_bytes, slash + 1);
    return True;
}

const HChar *fl_below_pm(const HChar *absolute) {
    if (VG_(strncmp)(absolute, pm_folder, pm_folder_bytes) != 0 || absolute[pm_folder_bytes] != '/')
        return NULL;
    return absolute + pm_folder_bytes + 1;
}

const HChar *fl_folder_in_pm(const HChar *absolute) { return VG_(strcmp)(absolute, pm_folder) == 0 ? "." : fl_below_pm(absolute); }

static Bool is_in(const HChar *absolute, const HChar *folder) {
    UInt bytes = VG_(strlen)(folder);
    return VG_(strncmp)(absolute, folder, bytes) == 0 && (absolute[bytes] == '/' || absolute[bytes] == '\0');
}

Bool fl_is_state_outside(const HChar *absolute) {
    if (VG_(strncmp)(absolute, pm_folder, pm_folder_bytes) == 0) /* what the runner's sessions hand over lies beside it */
        return False;
    Bool is_device = is_in(absolute, "/dev") && !is_in(absolute, "/dev/shm");
    return !is_device && !is_in(absolute, "/proc") && !is_in(absolute, "/sys");
}

static UWord key_of(ULong device, ULong inode) { return inode ^ (device << 40); }

static void define_file(UInt file) {
    const HChar *path = *(HChar **)VG_(indexXA)(file_paths, file - 1);
    fl_emit_text((struct fl_record){.kind = FL_FILE, .file = file}, path, VG_(strlen)(path));
}

UInt fl_file_new(const HChar *relative) {
    HChar *path = VG_(strdup)("fl.paths.path", relative);
    UInt file = VG_(addToXA)(file_paths, &path) + 1;
    define_file(file);
    return file;
}

void fl_file_bind(UInt file, ULong device, ULong inode) {
    UWord key = key_of(device, inode);
    struct file *old = VG_(HT_remove)(files, key);
    if (old != NULL)
        VG_(free)(old);
    struct file *node = VG_(malloc)("fl.paths.file", sizeof *node);
    *node = (struct file){.key = key, .device = device, .inode = inode, .id = file};
    VG_(HT_add_node)(files, node);
}

UInt fl_file_of(ULong device, ULong inode, const HChar *relative) {
    const struct file *known = VG_(HT_lookup)(files, key_of(device, inode));
    if (known != NULL && known->device == device && known->inode == inode)
        return known->id;
    UInt file = fl_file_new(relative);
    fl_file_bind(file, device, inode);
    return file;
}

/* Names are kept up to date for the definitions that a forked child makes. */
static void replace_name(Word file, const HChar *start, const HChar *rest) {
    HChar *name = VG_(malloc)("fl.paths.path", VG_(strlen)(start) + VG_(strlen)(rest) + 1);
    VG_(sprintf)(name, "%s%s", start, rest);
    HChar **entry = VG_(indexXA)(file_paths, file);
    VG_(free)(*entry);
    *entry = name;
}

void fl_file_renamed(const HChar *old_name, const HChar *new_name) {
    UInt old_bytes = VG_(strlen)(old_name);
    for (Word i = 0; i < VG_(sizeXA)(file_paths); i++) {
        const HChar *name = *(HChar **)VG_(indexXA)(file_paths, i);
        if (new_name != NULL && VG_(strcmp)(name, new_name) == 0)
            replace_name(i, new_name, " (deleted)");
        else if (VG_(strncmp)(name, old_name, old_bytes) == 0 && (name[old_bytes] == '\0' || name[old_bytes] == '/'))
            replace_name(i, new_name == NULL ? old_name : new_name, new_name == NULL ? " (deleted)" : name + old_bytes);
    }
}

const HChar *fl_file_name(UInt file) {
    return file == 0 || file > VG_(sizeXA)(file_paths) ? NULL : *(HChar **)VG_(indexXA)(file_paths, file - 1);
}

void fl_files_define_again(void) {
    for (Word i = 0; i < VG_(sizeXA)(file_paths); i++)
        define_file(i + 1);
}
