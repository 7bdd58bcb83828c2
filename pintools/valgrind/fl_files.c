/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_files.c - system calls: file operations, mapping and unmapping.
 *
 * An operation below the PM folder is a pair: its FL_FILE_BEGIN is written before the call, its FL_FILE_END after, with the
 * errno. What the trace cannot express (links, clones, asynchronous input and output) is FL_UNSUPPORTED: such a trace is
 * never complete.
 */
#include "fl.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_guest.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vkiscnums.h"
#include "pub_tool_xarray.h"

#include <stddef.h>

/* In libcoregrind, not in its public headers. */
extern Int VG_(fcntl)(Int descriptor, Int command, Addr argument);
extern const HChar *VG_(strerror)(UWord);

#define PAGE_BYTES 4096ull
#define FL_O_TMPFILE_BIT 020000000
#define FL_MAP_TYPE 0x0f
#define FL_MAP_TYPE_SHARED 1
#define FL_MAP_TYPE_PRIVATE 2
#define FL_MAP_TYPE_VALIDATE 3
#define FL_MAP_SYNC 0x80000
#define FL_MAP_FIXED_NOREPLACE 0x100000
#define FL_MAP_STACK 0x20000
#define FL_EOPNOTSUPP 95
#define FL_MREMAP_DONTUNMAP 4
#define FL_MS_SYNC 4
#define FL_MADV_REMOVE 9
#define FL_AT_REMOVEDIR 0x200
#define FL_RENAME_EXCHANGE 2
#define FL_RENAME_WHITEOUT 4
#define FL_RWF_SYNCED 0x06 /* RWF_DSYNC, RWF_SYNC */
#define FL_RWF_APPEND 0x10
#define FL_O_DSYNC_BIT 010000
#define FL_MOST_PIECES 1024 /* UIO_MAXIOV */
#define FL_MOST_WRITE_BYTES (1u << 30)
#define FL_FALLOC_KEEP_SIZE 1
#define FL_FALLOC_PUNCH_HOLE 2
#define FL_FALLOC_ZERO_RANGE 0x10
#define FL_FICLONE 0x40049409
#define FL_FICLONERANGE 0x4020940d
#define FL_FIDEDUPERANGE 0xc0189436

#ifndef __NR_openat2
#define __NR_openat2 437
#endif

/* A begun operation: its end record and, for names, its payload. A thread has one at a time in the trace: of the further
 * ones of one call (msync over several mappings) the begin is written when the one before has ended. */
struct begun {
    struct fl_record begin, end;
    HChar *text; /* or null */
    UInt text_bytes;
};

/* What a thread's system call in progress has begun. */
struct call {
    XArray *begun;       /* of struct begun; null until first used */
    UInt created;         /* file to bind to its inode once it exists */
    ULong bytes_to_write; /* 0: not a write */
    Addr received;        /* buffer of a recvfrom: the core says that all of it was written */
    Bool has_ended;       /* execve: nothing may follow in the trace */
    HChar *old_name;      /* that a rename or an unlink takes away; or null */
    HChar *new_name;      /* of the rename; null for an unlink */
};

static struct call *calls; /* by ThreadId */

static struct call *call_of(ThreadId thread) {
    if (calls == NULL)
        calls = VG_(calloc)("fl.files.calls", VG_N_THREADS, sizeof *calls);
    struct call *call = &calls[thread];
    if (call->begun == NULL)
        call->begun = VG_(newXA)(VG_(malloc), "fl.files.begun", VG_(free), sizeof(struct begun));
    return call;
}

static void remember_end(ThreadId thread, struct fl_record begin, const HChar *text) {
    struct begun begun = {.begin = begin, .end = begin};
    begun.end.kind = FL_FILE_END;
    begun.end.value = 0;
    if (text != NULL) {
        begun.text = VG_(strdup)("fl.files.text", text);
        begun.text_bytes = VG_(strlen)(text);
    }
    VG_(addToXA)(call_of(thread)->begun, &begun);
}

static void begin(ThreadId thread, UChar operation, UInt file, ULong offset, ULong value) {
    struct fl_record record = {.kind = FL_FILE_BEGIN,
                               .detail = operation,
                               .thread = fl_thread,
                               .site = fl_call_site(thread),
                               .file = file,
                               .offset = offset,
                               .value = value};
    if (VG_(sizeXA)(call_of(thread)->begun) == 0)
        fl_emit(record);
    remember_end(thread, record, NULL);
}

static void begin_named(ThreadId thread, UChar operation, UInt file, const HChar *name) {
    struct fl_record record = {
        .kind = FL_FILE_BEGIN, .detail = operation, .thread = fl_thread, .site = fl_call_site(thread), .file = file};
    fl_emit_text(record, name, VG_(strlen)(name));
    remember_end(thread, record, name);
}

static void end_one(struct begun *begun, ULong error) {
    begun->end.value = error;
    begun->end.thread = fl_thread;
    if (begun->text != NULL) {
        fl_emit_text(begun->end, begun->text, begun->text_bytes);
        VG_(free)(begun->text);
    } else {
        fl_emit(begun->end);
    }
}

static void end_all(struct call *call, ULong error) {
    for (Word i = 0; i < VG_(sizeXA)(call->begun); i++) {
        struct begun *begun = VG_(indexXA)(call->begun, i);
        if (i > 0)
            fl_emit(begun->begin);
        end_one(begun, error);
    }
    VG_(dropTailXA)(call->begun, VG_(sizeXA)(call->begun));
    if (call->old_name != NULL) {
        if (error == 0)
            fl_file_renamed(call->old_name, call->new_name);
        VG_(free)(call->old_name);
        if (call->new_name != NULL)
            VG_(free)(call->new_name);
        call->old_name = call->new_name = NULL;
    }
    call->created = 0;
    call->bytes_to_write = 0;
}

static void remember_names(ThreadId thread, const HChar *old_name, const HChar *new_name) {
    struct call *call = call_of(thread);
    call->old_name = VG_(strdup)("fl.files.name", old_name);
    call->new_name = new_name == NULL ? NULL : VG_(strdup)("fl.files.name", new_name);
}

/* ---- which file ---- */

static Bool is_readable(Addr address, SizeT bytes) { return VG_(am_is_valid_for_client)(address, bytes, VKI_PROT_READ); }

/* Resolves a path argument; null if it is bad or does not lead below the PM folder. */
static const HChar *pm_path(Int folder, UWord path, HChar *out) {
    if (!is_readable(path, 1) || !fl_resolve(folder, (const HChar *)path, out))
        return NULL;
    return fl_below_pm(out);
}

static Bool pm_file_of_descriptor(Int descriptor, UInt *file, struct vg_stat *status) {
    HChar path[FL_PATH_BYTES];
    if (descriptor < 0 || VG_(fstat)(descriptor, status) != 0 || !VKI_S_ISREG(status->mode) ||
        !fl_path_of_descriptor(descriptor, path))
        return False;
    const HChar *relative = fl_below_pm(path);
    if (relative == NULL)
        return False;
    *file = fl_file_of(status->dev, status->ino, relative);
    return True;
}

static Bool exists(const HChar *path, struct vg_stat *status) { return !sr_isError(VG_(stat)(path, status)); }

/* ---- names: open, truncate, unlink, rename, folders ---- */

/* A later run may believe what this one keeps there. */
static void before_open_outside(const HChar *absolute, ULong flags) {
    struct vg_stat status;
    Bool is_there = exists(absolute, &status);
    Bool is_written = is_there && VKI_S_ISREG(status.mode) && (flags & VKI_O_ACCMODE) != VKI_O_RDONLY;
    Bool is_made = !is_there && (flags & VKI_O_CREAT) != 0;
    if ((is_written || is_made) && (flags & FL_O_TMPFILE_BIT) == 0 && fl_is_state_outside(absolute))
        fl_unsupported("it changes %s, which is no file of the heap: no crash image holds what it keeps there", absolute);
}

static void before_open(ThreadId thread, Int folder, UWord path, ULong flags) {
    HChar absolute[FL_PATH_BYTES];
    struct vg_stat status;
    Bool may_create = (flags & VKI_O_CREAT) != 0;
    Bool truncates = (flags & VKI_O_TRUNC) && (flags & VKI_O_ACCMODE) != VKI_O_RDONLY;
    if (fl_mode == FL_TRACES && is_readable(path, 1) && fl_resolve(folder, (const HChar *)path, absolute) &&
        fl_below_pm(absolute) == NULL) {
        before_open_outside(absolute, flags);
        return;
    }
    if (!may_create && !truncates && !(flags & FL_O_TMPFILE_BIT))
        return;
    const HChar *relative = pm_path(folder, path, absolute);
    if (relative == NULL)
        return;
    if (flags & FL_O_TMPFILE_BIT) {
        fl_unsupported("open(O_TMPFILE) in %s: a file without a name", relative);
    } else if (!exists(absolute, &status)) {
        if (!may_create)
            return;
        UInt file = fl_file_new(relative);
        begin(thread, FL_CREATE, file, 0, 0);
        call_of(thread)->created = file;
    } else if (truncates && VKI_S_ISREG(status.mode) && !(may_create && (flags & VKI_O_EXCL))) {
        begin(thread, FL_TRUNCATE, fl_file_of(status.dev, status.ino, relative), 0, 0);
    }
}

static void after_open(struct call *call, Int descriptor) {
    struct vg_stat status;
    if (call->created != 0 && VG_(fstat)(descriptor, &status) == 0)
        fl_file_bind(call->created, status.dev, status.ino);
}

static void before_truncate_path(ThreadId thread, UWord path, ULong bytes) {
    HChar absolute[FL_PATH_BYTES];
    struct vg_stat status;
    const HChar *relative = pm_path(VKI_AT_FDCWD, path, absolute);
    if (relative != NULL && exists(absolute, &status) && VKI_S_ISREG(status.mode))
        begin(thread, FL_TRUNCATE, fl_file_of(status.dev, status.ino, relative), bytes, 0);
}

static void before_unlink(ThreadId thread, Int folder, UWord path, Bool is_folder) {
    HChar absolute[FL_PATH_BYTES];
    struct vg_stat status;
    const HChar *relative = pm_path(folder, path, absolute);
    if (relative == NULL)
        return;
    if (is_folder) {
        begin_named(thread, FL_RMDIR, 0, relative);
    } else if (exists(absolute, &status) && VKI_S_ISREG(status.mode)) {
        begin(thread, FL_UNLINK, fl_file_of(status.dev, status.ino, relative), 0, 0);
        remember_names(thread, relative, NULL);
    }
}

static void before_rename(ThreadId thread, Int old_folder, UWord old, Int new_folder, UWord new, ULong flags) {
    HChar old_absolute[FL_PATH_BYTES], new_absolute[FL_PATH_BYTES];
    struct vg_stat status;
    const HChar *from = pm_path(old_folder, old, old_absolute), *to = pm_path(new_folder, new, new_absolute);
    if (from == NULL && to == NULL)
        return;
    if (from == NULL || to == NULL || (flags & (FL_RENAME_EXCHANGE | FL_RENAME_WHITEOUT))) {
        fl_unsupported("rename of %s to %s: across the edge of the PM folder, or an exchange", from ? from : "a file outside",
                       to ? to : "a name outside");
    } else if (exists(old_absolute, &status)) {
        begin_named(thread, FL_RENAME, fl_file_of(status.dev, status.ino, from), to);
        remember_names(thread, from, to);
    }
}

static void before_mkdir(ThreadId thread, Int folder, UWord path) {
    HChar absolute[FL_PATH_BYTES];
    const HChar *relative = pm_path(folder, path, absolute);
    if (relative != NULL)
        begin_named(thread, FL_MKDIR, 0, relative);
}

static void refuse_name(const HChar *what, Int folder, UWord path) {
    HChar absolute[FL_PATH_BYTES];
    const HChar *relative = pm_path(folder, path, absolute);
    if (relative != NULL)
        fl_unsupported("%s makes %s", what, relative);
}

/* ---- content: fallocate, sync, write ---- */

static void before_truncate(ThreadId thread, Int descriptor, ULong bytes) {
    struct vg_stat status;
    UInt file;
    if (pm_file_of_descriptor(descriptor, &file, &status))
        begin(thread, FL_TRUNCATE, file, bytes, 0);
}

/* With KEEP_SIZE the range is clipped to the file: FL_ALLOCATE grows the file, and what it adds within is nothing. */
static void before_fallocate(ThreadId thread, Int descriptor, UWord mode, ULong offset, ULong bytes) {
    struct vg_stat status;
    UInt file;
    if (!pm_file_of_descriptor(descriptor, &file, &status))
        return;
    ULong size = status.size;
    ULong inside = offset >= size ? 0 : offset + bytes > size ? size - offset : bytes;
    Bool keeps_size = (mode & FL_FALLOC_KEEP_SIZE) != 0;
    if (keeps_size && inside == 0)
        return; /* nothing of the file changes */
    if ((mode & ~(UWord)FL_FALLOC_KEEP_SIZE) == 0)
        begin(thread, FL_ALLOCATE, file, offset, keeps_size ? inside : bytes);
    else if (mode == (FL_FALLOC_PUNCH_HOLE | FL_FALLOC_KEEP_SIZE))
        begin(thread, FL_PUNCH, file, offset, bytes);
    else if ((mode & ~(UWord)FL_FALLOC_KEEP_SIZE) == FL_FALLOC_ZERO_RANGE && (keeps_size || inside == bytes))
        begin(thread, FL_PUNCH, file, offset, inside);
    else
        fl_unsupported("fallocate with mode %#lx", mode);
}

static void before_fsync(ThreadId thread, Int descriptor) {
    struct vg_stat status;
    HChar path[FL_PATH_BYTES];
    const HChar *folder = NULL;
    UInt file;
    if (pm_file_of_descriptor(descriptor, &file, &status)) {
        begin(thread, FL_FSYNC, file, 0, 0);
        return;
    }
    if (descriptor >= 0 && VG_(fstat)(descriptor, &status) == 0 && VKI_S_ISDIR(status.mode) &&
        fl_path_of_descriptor(descriptor, path))
        folder = fl_folder_in_pm(path);
    if (folder != NULL)
        begin_named(thread, FL_SYNC_FOLDER, 0, folder);
}

/* Of the file system that holds the PM folder, as far as the descriptor tells: it leads there, or there is none. */
static void before_sync_all(ThreadId thread, Int descriptor) {
    HChar path[FL_PATH_BYTES];
    if (descriptor < 0 || (fl_path_of_descriptor(descriptor, path) && fl_folder_in_pm(path) != NULL))
        begin(thread, FL_SYNC_ALL, 0, 0, 0);
}

/* msync and madvise(MADV_REMOVE): for each shared mapping in the range. */
static void before_range(ThreadId thread, UChar operation, Addr start, SizeT bytes) {
    UInt from = 0;
    const struct fl_mapping *mapping;
    while ((mapping = fl_next_mapping(start, bytes, &from)) != NULL) {
        if (!(mapping->flags & FL_MAP_SHARED))
            continue;
        Addr end = mapping->start + mapping->bytes;
        Addr first = start > mapping->start ? start : mapping->start;
        begin(thread, operation, mapping->file, mapping->offset + (first - mapping->start),
              (start + bytes < end ? start + bytes : end) - first);
    }
}

/* rwf: flags of pwritev2. What is written synchronously is a write and then a sync of what it wrote. */
static void before_write(ThreadId thread, Int descriptor, const struct vki_iovec *pieces, UInt count, Bool is_positioned,
                         ULong position, UWord rwf) {
    struct vg_stat status;
    UInt file;
    ULong bytes = 0;
    if (!pm_file_of_descriptor(descriptor, &file, &status))
        return;
    for (UInt i = 0; i < count; i++) {
        if (!is_readable((Addr)pieces[i].iov_base, pieces[i].iov_len))
            return; /* the call fails: EFAULT */
        bytes += pieces[i].iov_len;
    }
    if (bytes == 0)
        return;
    if (bytes > FL_MOST_WRITE_BYTES) {
        fl_unsupported("a write of %llu bytes at once", bytes);
        return;
    }
    Int flags = VG_(fcntl)(descriptor, VKI_F_GETFL, 0);
    if ((rwf & FL_RWF_APPEND) || (flags & VKI_O_APPEND))
        position = status.size;
    else if (!is_positioned)
        position = VG_(lseek)(descriptor, 0, VKI_SEEK_CUR);

    UInt site = fl_call_site(thread);
    ULong cells = FL_PAYLOAD_CELLS(bytes);
    struct fl_record *record = fl_reserve(1 + cells);
    if (fl_mode == FL_COUNTS)
        fl_wear_store(file, position, bytes, True, site);
    *record = (struct fl_record){.kind = FL_FILE_BEGIN,
                                 .detail = FL_WRITE,
                                 .thread = fl_thread,
                                 .site = site,
                                 .file = file,
                                 .size = bytes,
                                 .offset = position};
    struct fl_record end = *record;
    end.size = 0;
    record[cells] = (struct fl_record){0};
    UChar *to = (UChar *)(record + 1);
    for (UInt i = 0; i < count; i++) {
        VG_(memcpy)(to, pieces[i].iov_base, pieces[i].iov_len);
        to += pieces[i].iov_len;
    }
    remember_end(thread, end, NULL);
    if ((rwf & FL_RWF_SYNCED) || (flags & FL_O_DSYNC_BIT))
        begin(thread, FL_MSYNC, file, position, bytes);
    call_of(thread)->bytes_to_write = bytes;
}

static void before_plain_write(ThreadId thread, UWord *arguments, Bool is_positioned) {
    struct vki_iovec piece = {.iov_base = (void *)arguments[1], .iov_len = arguments[2]};
    before_write(thread, arguments[0], &piece, 1, is_positioned, is_positioned ? arguments[3] : 0, 0);
}

static void before_vector_write(ThreadId thread, UWord *arguments, Bool is_positioned, UWord flags) {
    const struct vki_iovec *pieces = (const struct vki_iovec *)arguments[1];
    UWord count = arguments[2];
    if (count == 0 || count > FL_MOST_PIECES || !is_readable(arguments[1], count * sizeof *pieces))
        return;
    before_write(thread, arguments[0], pieces, count, is_positioned, is_positioned ? arguments[3] : 0, flags);
}

Bool fl_is_itself(UWord process) { return (Int)process == VG_(getpid)(); }

/* process_vm_writev to the process itself: Valgrind does not say what it wrote. */
static void after_remote_write(ThreadId thread, const UWord *arguments, ULong bytes) {
    const struct vki_iovec *pieces = (const struct vki_iovec *)arguments[3];
    for (UWord i = 0; i < arguments[4] && bytes > 0; i++) {
        ULong written = pieces[i].iov_len < bytes ? pieces[i].iov_len : bytes;
        fl_on_kernel_write(Vg_CoreSysCall, thread, (Addr)pieces[i].iov_base, written);
        bytes -= written;
    }
}

static void refuse_content(const HChar *what, Int descriptor) {
    struct vg_stat status;
    UInt file;
    if (pm_file_of_descriptor(descriptor, &file, &status))
        fl_unsupported("%s writes a file of the PM folder", what);
}

static void before_ioctl(UWord *arguments) {
    UInt request = arguments[1];
    if (request == FL_FICLONE || request == FL_FICLONERANGE || request == FL_FIDEDUPERANGE)
        refuse_content("a clone ioctl", arguments[0]);
}

/* Starts like a program or a script, so that execve will not fail with ENOEXEC (a shell then tries another way). */
static Bool is_program(const HChar *path) {
    struct vg_stat status;
    UChar start[4] = {0};
    if (!exists(path, &status) || !VKI_S_ISREG(status.mode) || (status.mode & 0111) == 0)
        return False;
    Int descriptor = VG_(fd_open)(path, VKI_O_RDONLY, 0);
    if (descriptor < 0)
        return True; /* executable, not readable */
    Int bytes = VG_(read)(descriptor, start, sizeof start);
    VG_(close)(descriptor);
    return bytes == sizeof start && (VG_(memcmp)(start, "\177ELF", 4) == 0 || VG_(memcmp)(start, "#!", 2) == 0);
}

/* The new program is not traced, and this one ends without another word: its last record is written now. */
static void before_exec(ThreadId thread, Int folder, UWord path) {
    HChar absolute[FL_PATH_BYTES];
    if (!is_readable(path, 1) || !fl_resolve(folder, (const HChar *)path, absolute) || !is_program(absolute))
        return;
    fl_unsupported("execve of %s: the new program is not traced", absolute);
    fl_emit((struct fl_record){.kind = FL_PROCESS_END});
    fl_trace_flush();
    call_of(thread)->has_ended = True;
}

/* ---- mappings ---- */

static SizeT whole_pages(SizeT bytes) { return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1); }

/* ---- the process's own heap (fl_wear.c): brk, and private anonymous mappings ---- */

static void watch_memory(Addr start, SizeT bytes) {
    if (bytes > 0)
        fl_mappings_add(start, bytes, fl_wear_memory_file(), start, FL_MAP_SHARED | FL_MAP_WRITABLE);
}

static Bool is_heap(ThreadId thread, const UWord *arguments) {
    UWord wanted = FL_MAP_TYPE_PRIVATE | VKI_MAP_ANONYMOUS;
    return fl_clo_wear_memory && (arguments[3] & (FL_MAP_TYPE | VKI_MAP_ANONYMOUS)) == wanted && !(arguments[3] & FL_MAP_STACK) &&
           !fl_is_in_loader(VG_(get_IP)(thread));
}

/* The first call asks where the area starts: nothing is in it yet. */
static void after_brk(Addr wanted, Addr end) {
    static Addr start, known_end;
    if (!fl_clo_wear_memory)
        return;
    if (wanted > end)
        fl_wear_brk_refused();
    if (start == 0)
        start = known_end = whole_pages(end);
    end = whole_pages(end);
    if (end == known_end)
        return;
    fl_mappings_remove(start, known_end - start);
    known_end = end < start ? start : end;
    watch_memory(start, known_end - start);
}

static void after_mmap(ThreadId thread, const UWord *arguments, Addr start) {
    SizeT bytes = whole_pages(arguments[1]);
    UInt type = arguments[3] & FL_MAP_TYPE;
    struct vg_stat status;
    UInt file;
    fl_mappings_remove(start, bytes); /* MAP_FIXED over others */
    if (is_heap(thread, arguments))
        watch_memory(start, bytes);
    if ((arguments[3] & VKI_MAP_ANONYMOUS) || !pm_file_of_descriptor(arguments[4], &file, &status))
        return;
    UChar flags = type == FL_MAP_TYPE_PRIVATE ? FL_MAP_PRIVATE : FL_MAP_SHARED;
    if (type == FL_MAP_TYPE_VALIDATE && (arguments[3] & FL_MAP_SYNC))
        flags |= FL_MAP_SYNCED;
    if (arguments[2] & VKI_PROT_WRITE)
        flags |= FL_MAP_WRITABLE;
    fl_mappings_add(start, bytes, file, arguments[5], flags);
}

/* The file system has no MAP_SYNC, and the process may go on without. Beside MAP_FIXED_NOREPLACE Linux refuses it on every one. */
static void after_refused_mmap(ThreadId thread, const UWord *arguments, UWord error) {
    Bool is_asked = (arguments[3] & FL_MAP_TYPE) == FL_MAP_TYPE_VALIDATE && (arguments[3] & FL_MAP_SYNC) &&
                    !(arguments[3] & FL_MAP_FIXED_NOREPLACE);
    struct vg_stat status;
    UInt file;
    if (is_asked && (error == FL_EOPNOTSUPP || error == VKI_EINVAL) && pm_file_of_descriptor(arguments[4], &file, &status))
        fl_emit((struct fl_record){.kind = FL_MAP,
                                   .detail = FL_MAP_SHARED | FL_MAP_REFUSED,
                                   .thread = fl_number_of(thread),
                                   .file = file,
                                   .offset = arguments[5]});
}

static void after_mremap(const UWord *arguments, Addr start) {
    Addr old = arguments[0];
    SizeT old_bytes = whole_pages(arguments[1]), bytes = whole_pages(arguments[2]);
    UInt from = 0;
    const struct fl_mapping *mapping = fl_next_mapping(old, 1, &from);
    struct fl_mapping moved = mapping == NULL ? (struct fl_mapping){0} : *mapping;
    Bool is_memory = fl_clo_wear_memory && moved.file == fl_wear_memory_file();
    if (old_bytes > 0 && !(arguments[3] & FL_MREMAP_DONTUNMAP))
        fl_mappings_remove(old, old_bytes);
    fl_mappings_remove(start, bytes);
    if (mapping != NULL)
        fl_mappings_add(start, bytes, moved.file, is_memory ? start : moved.offset + (old - moved.start), moved.flags);
}

/* ---- the two hooks ---- */

static void before_call(ThreadId thread, UInt number, UWord *a) {
    switch (number) {
    case __NR_open: before_open(thread, VKI_AT_FDCWD, a[0], a[1]); break;
    case __NR_openat: before_open(thread, a[0], a[1], a[2]); break;
    case __NR_openat2:
        if (is_readable(a[2], sizeof(ULong)))
            before_open(thread, a[0], a[1], *(ULong *)a[2]);
        break;
    case __NR_creat: before_open(thread, VKI_AT_FDCWD, a[0], VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY); break;
    case __NR_truncate: before_truncate_path(thread, a[0], a[1]); break;
    case __NR_ftruncate: before_truncate(thread, a[0], a[1]); break;
    case __NR_fallocate: before_fallocate(thread, a[0], a[1], a[2], a[3]); break;
    case __NR_unlink: before_unlink(thread, VKI_AT_FDCWD, a[0], False); break;
    case __NR_unlinkat: before_unlink(thread, a[0], a[1], (a[2] & FL_AT_REMOVEDIR) != 0); break;
    case __NR_rmdir: before_unlink(thread, VKI_AT_FDCWD, a[0], True); break;
    case __NR_rename: before_rename(thread, VKI_AT_FDCWD, a[0], VKI_AT_FDCWD, a[1], 0); break;
    case __NR_renameat: before_rename(thread, a[0], a[1], a[2], a[3], 0); break;
    case __NR_renameat2: before_rename(thread, a[0], a[1], a[2], a[3], a[4]); break;
    case __NR_mkdir: before_mkdir(thread, VKI_AT_FDCWD, a[0]); break;
    case __NR_mkdirat: before_mkdir(thread, a[0], a[1]); break;
    case __NR_msync:
        if (a[2] & FL_MS_SYNC)
            before_range(thread, FL_MSYNC, a[0], whole_pages(a[1]));
        break;
    case __NR_madvise:
        if (a[2] == FL_MADV_REMOVE)
            before_range(thread, FL_PUNCH, a[0], whole_pages(a[1]));
        break;
    case __NR_fsync:
    case __NR_fdatasync: before_fsync(thread, a[0]); break;
    case __NR_write: before_plain_write(thread, a, False); break;
    case __NR_pwrite64: before_plain_write(thread, a, True); break;
    case __NR_writev: before_vector_write(thread, a, False, 0); break;
    case __NR_pwritev: before_vector_write(thread, a, True, 0); break;
    case __NR_pwritev2: before_vector_write(thread, a, a[3] != (UWord)-1, a[5]); break;

    case __NR_link: refuse_name("link", VKI_AT_FDCWD, a[1]); break;
    case __NR_linkat: refuse_name("linkat", a[2], a[3]); break;
    case __NR_symlink: refuse_name("symlink", VKI_AT_FDCWD, a[1]); break;
    case __NR_symlinkat: refuse_name("symlinkat", a[1], a[2]); break;
    case __NR_mknod: refuse_name("mknod", VKI_AT_FDCWD, a[0]); break;
    case __NR_mknodat: refuse_name("mknodat", a[0], a[1]); break;
    case __NR_copy_file_range: refuse_content("copy_file_range", a[2]); break;
    case __NR_splice: refuse_content("splice", a[2]); break;
    case __NR_sendfile: refuse_content("sendfile", a[0]); break;
    case __NR_ioctl: before_ioctl(a); break;
    case __NR_io_submit: fl_unsupported("io_submit: asynchronous writes are not followed"); break;
    case __NR_io_uring_enter: fl_unsupported("io_uring_enter: asynchronous writes are not followed"); break;
    case __NR_process_vm_writev:
        if (!fl_is_itself(a[0]))
            fl_unsupported("process_vm_writev: writes into another process are not followed");
        break;
    case __NR_remap_file_pages: fl_unsupported("remap_file_pages"); break;
    case __NR_sync: before_sync_all(thread, -1); break;
    case __NR_syncfs: before_sync_all(thread, a[0]); break;
    case __NR_execve: before_exec(thread, VKI_AT_FDCWD, a[0]); break;
    case __NR_execveat: before_exec(thread, a[0], a[1]); break;
    default: break;
    }
}

void fl_pre_syscall(ThreadId thread, UInt number, UWord *arguments, UInt count) {
    (void)count;
    fl_close_joined();
    fl_thread = fl_number_of(thread);
    fl_signals_before_call(number, arguments);
    if (fl_mode == FL_SERVES) {
        fl_recording_before_call(thread, number, arguments);
        fl_schedule_before_call(thread, number, arguments);
        return;
    }
    struct call *call = call_of(thread);
    if (UNLIKELY(VG_(sizeXA)(call->begun) > 0))
        end_all(call, VKI_EINTR); /* a signal came before the call took place; it is being restarted */
    call->received = number == __NR_recvfrom ? arguments[1] : 0;
    before_call(thread, number, arguments);
    fl_schedule_before_call(thread, number, arguments);
}

SizeT fl_bytes_written(ThreadId thread, Addr address, SizeT bytes) {
    ULong result;
    if (calls == NULL || calls[thread].received != address)
        return bytes;
    VG_(get_shadow_regs_area)(thread, (UChar *)&result, 0, offsetof(VexGuestAMD64State, guest_RAX), sizeof result);
    return result < bytes ? result : bytes;
}

static void after_write(struct call *call, ULong written) {
    if (call->bytes_to_write != 0 && written != call->bytes_to_write)
        fl_unsupported("write of %llu bytes wrote %llu only", call->bytes_to_write, written);
}

void fl_post_syscall(ThreadId thread, UInt number, UWord *arguments, UInt count, SysRes result) {
    (void)count;
    fl_thread = fl_number_of(thread);
    fl_schedule_after_call(thread, number, arguments, result);
    if (number == __NR_process_vm_writev && !sr_isError(result) && fl_is_itself(arguments[0]))
        after_remote_write(thread, arguments, sr_Res(result));
    if (fl_mode == FL_SERVES)
        return;
    struct call *call = call_of(thread);
    if (call->has_ended)
        fl_stop(3, "execve failed (%s) after the trace of this process was ended", VG_(strerror)(sr_Err(result)));
    if (!sr_isError(result)) {
        UWord value = sr_Res(result);
        switch (number) {
        case __NR_open:
        case __NR_openat:
        case __NR_openat2:
        case __NR_creat: after_open(call, value); break;
        case __NR_write:
        case __NR_pwrite64:
        case __NR_writev:
        case __NR_pwritev:
        case __NR_pwritev2: after_write(call, value); break;
        case __NR_mmap: after_mmap(thread, arguments, value); break;
        case __NR_brk: after_brk(arguments[0], value); break;
        case __NR_munmap: fl_mappings_remove(arguments[0], whole_pages(arguments[1])); break;
        case __NR_mremap: after_mremap(arguments, value); break;
        default: break;
        }
    }
    if (number == __NR_mmap && sr_isError(result))
        after_refused_mmap(thread, arguments, sr_Err(result));
    if (VG_(sizeXA)(call->begun) > 0)
        end_all(call, sr_isError(result) ? sr_Err(result) : 0);
}
