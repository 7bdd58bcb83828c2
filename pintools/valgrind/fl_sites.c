/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_sites.c - instruction addresses to module and offset, with the calls that led there.
 *
 * The offset is the address as the module's symbols count it (load bias subtracted), so addr2line takes it as it is. A
 * store inside the C library is attributed to the first caller outside of it. A site names the site that called it, and so
 * on, as far as the calls lie in the same module: a helper that flushes is one instruction, who asked it to is what matters.
 *
 * Unwinding at each event costs too much. An instruction's distance from the stack pointer to its return address is nearly
 * always the same, and so is that to the return address of its caller, if the first one is. So what was unwound once is
 * remembered with the places where its return addresses lay, and holds again where they are found there again.
 */
#include "fl.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_guest.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_machine.h"
#include "pub_tool_stacktrace.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_xarray.h"

#include <elf.h>

#define MOST_FRAMES 24
#define MOST_PATHS 64 /* remembered of a point; the one that was longest not needed goes */
#define BUILD_ID_HEX_BYTES 130 /* 64 bytes in hexadecimal, rounded up */
#define MOST_NOTE_BYTES 4096

struct module {
    HChar *path;
    HChar build_id[BUILD_ID_HEX_BYTES];
    PtrdiffT bias;
    Bool is_library; /* the C library or the loader: sites in it are attributed to their caller */
    Bool is_program; /* the executable: the runner, where an allocator is a library */
};

struct site {
    struct site *next; /* as VgHashNode wants it */
    UWord key;         /* hash of the rest */
    UInt module;
    UInt caller; /* id of another site, or FL_NO_SITE */
    Addr offset;
    UInt id;
};

struct fl_stack fl_stack;

static XArray *modules; /* of struct module; id = index + 1 */
static XArray *sites;   /* of struct site *; id = index + 1 */
static VgHashTable *site_table;
static VgHashTable *call_points; /* of struct call_point */

/* Where system calls are made. */
struct call_point {
    struct call_point *next; /* as VgHashNode wants it */
    UWord key;               /* the instruction behind the call */
    struct fl_point point;
};

static Bool read_at(Int descriptor, ULong offset, void *to, UInt bytes) {
    return VG_(lseek)(descriptor, offset, VKI_SEEK_SET) == (Off64T)offset && VG_(read)(descriptor, to, bytes) == (Int)bytes;
}

static Bool find_build_id(const UChar *notes, UInt bytes, HChar *hex) {
    for (UInt at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
        Elf64_Nhdr note;
        VG_(memcpy)(&note, notes + at, sizeof note);
        UInt name_at = at + sizeof note;
        if (note.n_namesz > bytes || note.n_descsz > bytes)
            return False;
        UInt content_at = name_at + ((note.n_namesz + 3) & ~3u);
        if (content_at + note.n_descsz > bytes)
            return False;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && VG_(memcmp)(notes + name_at, "GNU", 4) == 0 &&
            note.n_descsz * 2 < BUILD_ID_HEX_BYTES) {
            for (UInt i = 0; i < note.n_descsz; i++)
                VG_(sprintf)(hex + 2 * i, "%02x", notes[content_at + i]);
            return True;
        }
        at = content_at + ((note.n_descsz + 3) & ~3u);
    }
    return False;
}

/* From the file's PT_NOTE segments; the empty string if there is none or the file cannot be read. */
static void read_build_id(const HChar *path, HChar *hex) {
    hex[0] = '\0';
    Int descriptor = VG_(fd_open)(path, VKI_O_RDONLY, 0);
    if (descriptor < 0)
        return;
    Elf64_Ehdr header;
    Bool is_found = False;
    if (read_at(descriptor, 0, &header, sizeof header) && VG_(memcmp)(header.e_ident, ELFMAG, SELFMAG) == 0) {
        for (UInt i = 0; i < header.e_phnum && !is_found; i++) {
            Elf64_Phdr segment;
            static UChar notes[MOST_NOTE_BYTES];
            if (!read_at(descriptor, header.e_phoff + (ULong)i * header.e_phentsize, &segment, sizeof segment))
                break;
            if (segment.p_type == PT_NOTE && segment.p_filesz <= sizeof notes &&
                read_at(descriptor, segment.p_offset, notes, segment.p_filesz))
                is_found = find_build_id(notes, segment.p_filesz, hex);
        }
    }
    VG_(close)(descriptor);
}

const HChar *fl_clo_module_root;

/* Relative if the module lies below --module-root: a trace does not depend on where the traced program was built. */
static const HChar *shown_path(const HChar *path) {
    UInt bytes = fl_clo_module_root == NULL ? 0 : VG_(strlen)(fl_clo_module_root);
    return bytes > 0 && VG_(strncmp)(path, fl_clo_module_root, bytes) == 0 && path[bytes] == '/' ? path + bytes + 1 : path;
}

static void emit_module(UInt id, const struct module *module) {
    const HChar *path = shown_path(module->path);
    UInt path_bytes = VG_(strlen)(path) + 1, hex_bytes = VG_(strlen)(module->build_id) + 1;
    HChar *text = VG_(malloc)("fl.sites.text", path_bytes + hex_bytes);
    VG_(memcpy)(text, path, path_bytes);
    VG_(memcpy)(text + path_bytes, module->build_id, hex_bytes);
    fl_emit_text((struct fl_record){.kind = FL_MODULE, .value = id}, text, path_bytes + hex_bytes);
    VG_(free)(text);
}

static void emit_site(const struct site *site) {
    fl_emit(
        (struct fl_record){.kind = FL_SITE, .site = site->id, .size = site->caller, .value = site->module, .offset = site->offset});
}

static Bool starts_with(const HChar *text, const HChar *start) {
    return text != NULL && VG_(strncmp)(text, start, VG_(strlen)(start)) == 0;
}

static Bool is_same_file(const HChar *path, const HChar *other) {
    struct vg_stat one, two;
    return !sr_isError(VG_(stat)(path, &one)) && !sr_isError(VG_(stat)(other, &two)) && one.dev == two.dev && one.ino == two.ino;
}

/* Id of the module that holds the address, 0 if it is in none (generated code). */
static UInt module_of(Addr address) {
    DebugInfo *info = VG_(find_DebugInfo)(VG_(current_DiEpoch)(), address);
    if (info == NULL)
        return 0;
    const HChar *path = VG_(DebugInfo_get_filename)(info);
    PtrdiffT bias = VG_(DebugInfo_get_text_bias)(info);
    for (Word i = 0; i < VG_(sizeXA)(modules); i++) {
        const struct module *known = VG_(indexXA)(modules, i);
        if (known->bias == bias && VG_(strcmp)(known->path, path) == 0)
            return i + 1;
    }
    const HChar *soname = VG_(DebugInfo_get_soname)(info);
    struct module module = {.path = VG_(strdup)("fl.sites.path", path),
                            .bias = bias,
                            .is_library = starts_with(soname, "libc.so") || starts_with(soname, "ld-linux"),
                            .is_program = is_same_file(path, VG_(args_the_exename))};
    read_build_id(path, module.build_id);
    UInt id = VG_(addToXA)(modules, &module) + 1;
    emit_module(id, &module);
    return id;
}

static Bool is_library(UInt module) {
    return module != 0 && ((const struct module *)VG_(indexXA)(modules, module - 1))->is_library;
}

static Bool is_program(UInt module) {
    return module != 0 && ((const struct module *)VG_(indexXA)(modules, module - 1))->is_program;
}

/* Code that works for its caller. */
static Bool is_passed_over(UInt module, Addr address) { return is_library(module) || fl_recording_is_hook(address); }

/* The first frame from here on that lies not in the C library, and for a call not in the program either; the last one where all do. */
static UInt first_frame(const Addr *frames, UInt *modules_of, UInt count, Bool is_call) {
    UInt first = 0;
    while (first < count - 1 && (is_passed_over(modules_of[first], frames[first]) || (is_call && is_program(modules_of[first])))) {
        first++;
        modules_of[first] = module_of(frames[first]);
    }
    return first;
}

static void init_tables(void) {
    if (site_table != NULL)
        return;
    site_table = VG_(HT_construct)("fl.sites.table");
    modules = VG_(newXA)(VG_(malloc), "fl.sites.modules", VG_(free), sizeof(struct module));
    sites = VG_(newXA)(VG_(malloc), "fl.sites.sites", VG_(free), sizeof(struct site *));
}

static Word compare_sites(const void *one, const void *other) {
    const struct site *a = one, *b = other;
    return !(a->module == b->module && a->caller == b->caller && a->offset == b->offset);
}

static UInt site_of(UInt module, Addr address, UInt caller) {
    Addr offset = module == 0 ? address : address - ((const struct module *)VG_(indexXA)(modules, module - 1))->bias;
    UWord key = ((((UWord)module << 48) ^ offset) + caller) * 0x9e3779b97f4a7c15ull;
    struct site wanted = {.key = key, .module = module, .caller = caller, .offset = offset};
    const struct site *known = VG_(HT_gen_lookup)(site_table, &wanted, compare_sites);
    if (known != NULL)
        return known->id;
    struct site *site = VG_(malloc)("fl.sites.site", sizeof *site);
    *site = wanted;
    site->id = VG_(sizeXA)(sites) + 1;
    VG_(HT_add_node)(site_table, site);
    VG_(addToXA)(sites, &site);
    emit_site(site);
    return site->id;
}

/* Frames 1 to last of the stack, as the next look finds them. */
static void remember(struct fl_path *path, const Addr *frames, const Addr *pointers, UInt last, Addr stack) {
    path->count = 0;
    path->reach = 0;
    for (UInt i = 1; i <= last; i++) {
        Addr place = pointers[i] - sizeof(Addr);
        if (*(Addr *)place - 1 != frames[i]) { /* not called: a signal's frame, say */
            path->count = 0;
            return;
        }
        path->calls[path->count++] = (struct fl_call){.distance = place - stack, .address = frames[i]};
        path->reach = place + sizeof(Addr) - stack;
    }
}

void fl_stack_forget(void) { fl_stack = (struct fl_stack){0, 0}; }

/* Anew whenever somebody looks slowly: threads have stacks of their own, and programs may switch to others. */
static void find_stack(Addr stack) {
    const NSegment *segment = VG_(am_find_nsegment)(stack);
    fl_stack_forget();
    if (segment != NULL && segment->hasR)
        fl_stack = (struct fl_stack){.start = segment->start, .bytes = segment->end + 1 - segment->start};
}

/* The site and its callers, innermost first: what lies in the C library is left out at the start, and ends the path later, as
 * every other module does. The frame that ends it is remembered too, or another caller would be taken for it. */
static void unwind(struct fl_point *point, struct fl_path *path) {
    Addr frames[MOST_FRAMES], pointers[MOST_FRAMES];
    UInt modules_of[MOST_FRAMES];
    ThreadId thread = VG_(get_running_tid)();
    Addr delta = point->address - VG_(get_IP)(thread);
    UInt count = VG_(get_StackTrace)(thread, frames, MOST_FRAMES, pointers, NULL, delta);
    frames[0] = point->address;
    count = count == 0 ? 1 : count;
    modules_of[0] = module_of(frames[0]);
    UInt first = first_frame(frames, modules_of, count, point->is_call);
    if (point->is_call && (modules_of[first] == 0 || is_library(modules_of[first]) || is_program(modules_of[first])))
        first = first_frame(frames, modules_of, count, False); /* the program's own: what lies outside of its start is no frame */
    if (is_library(modules_of[first]))
        first = 0; /* nobody called it */
    UInt end = first + 1;
    while (end < count && end - first < FL_PATH_SITES && (modules_of[end] = module_of(frames[end])) == modules_of[first])
        end++;
    UInt last = end < count ? end : count - 1;
    remember(path, frames, pointers, last < FL_PATH_CALLS ? last : FL_PATH_CALLS, VG_(get_SP)(thread));
    if (last > FL_PATH_CALLS)
        path->count = 0; /* what is remembered would stand for other callers, too */
    path->site = FL_NO_SITE;
    for (UInt i = end; i-- > first;)
        path->site = site_of(modules_of[i], frames[i], path->site);
}

static void init_path(struct fl_point *point, struct fl_path **place) {
    struct fl_path *path = *place;
    if (path == NULL)
        path = VG_(malloc)("fl.sites.path", sizeof *path);
    *place = NULL;
    unwind(point, path);
    path->next = point->path;
    point->path = path;
}

UInt fl_site_slowly(struct fl_point *point) {
    init_tables();
    Addr stack = VG_(get_SP)(VG_(get_running_tid)());
    find_stack(stack);
    struct fl_path **place = &point->path;
    for (UInt i = 1; *place != NULL; place = &(*place)->next, i++) {
        struct fl_path *path = *place;
        if (fl_is_on_path(path, stack)) {
            *place = path->next; /* to the front */
            path->next = point->path;
            point->path = path;
            return path->site;
        }
        if (i == MOST_PATHS)
            break; /* this one makes room */
    }
    init_path(point, place);
    return point->path->site;
}

UInt fl_own_site(struct fl_point *point) {
    if (point->own_site == FL_NO_SITE) {
        init_tables();
        point->own_site = site_of(module_of(point->address), point->address, FL_NO_SITE);
    }
    return point->own_site;
}

UInt fl_fence_site(struct fl_point *point) {
    if (point->own_site != FL_NO_SITE)
        return point->own_site;
    init_tables();
    return is_library(module_of(point->address)) ? fl_own_site(point) : fl_site(point);
}

UInt fl_place_site(struct fl_point *point) {
    UInt own = fl_own_site(point);
    UInt module = (*(struct site **)VG_(indexXA)(sites, own - 1))->module;
    return is_passed_over(module, point->address) ? fl_site(point) : own;
}

UInt fl_call_site(ThreadId thread) {
    if (call_points == NULL)
        call_points = VG_(HT_construct)("fl.sites.calls");
    Addr behind = VG_(get_IP)(thread);
    struct call_point *call = VG_(HT_lookup)(call_points, behind);
    if (call == NULL) {
        call = VG_(calloc)("fl.sites.call", 1, sizeof *call);
        call->key = behind;
        call->point = (struct fl_point){.address = behind - 1, .is_call = True};
        VG_(HT_add_node)(call_points, call);
    }
    return fl_site(&call->point);
}

Bool fl_site_place(UInt site, const HChar **path, Addr *offset) {
    const struct site *place = *(struct site **)VG_(indexXA)(sites, site - 1);
    if (place->module == 0)
        return False;
    *path = ((const struct module *)VG_(indexXA)(modules, place->module - 1))->path;
    *offset = place->offset;
    return True;
}

Bool fl_site_is_in_module_of(UInt site, Addr address) {
    return (*(struct site **)VG_(indexXA)(sites, site - 1))->module == module_of(address);
}

/* ld-linux: what it maps for itself is modules and their variables. */
Bool fl_is_in_loader(Addr address) {
    DebugInfo *info = VG_(find_DebugInfo)(VG_(current_DiEpoch)(), address);
    return info != NULL && starts_with(VG_(DebugInfo_get_soname)(info), "ld-linux");
}

static const HChar *base_name(const HChar *path) {
    const HChar *slash = VG_(strrchr)(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Without debug information: the module and the offset in it. */
static UInt describe_code(Addr address, const HChar *module, Addr offset, HChar *out, UInt bytes) {
    DiEpoch now = VG_(current_DiEpoch)();
    const HChar *function, *file;
    UInt line;
    Bool has_function = VG_(get_fnname)(now, address, &function),
         has_line = VG_(get_filename_linenum)(now, address, &file, NULL, &line);
    if (has_function && has_line)
        return VG_(snprintf)(out, bytes, "%s (%s:%u)", function, file, line);
    const HChar *where = module == NULL ? "generated code" : base_name(module);
    if (has_function)
        return VG_(snprintf)(out, bytes, "%s (%s)", function, where);
    return VG_(snprintf)(out, bytes, "%s+%#lx", where, offset);
}

static UInt describe_frame(const struct site *frame, HChar *out, UInt bytes) {
    const struct module *module = frame->module == 0 ? NULL : VG_(indexXA)(modules, frame->module - 1);
    Addr address = frame->offset + (module == NULL ? 0 : module->bias);
    return describe_code(address, module == NULL ? NULL : module->path, frame->offset, out, bytes);
}

void fl_address_describe(Addr address, HChar *out, UInt bytes) {
    DebugInfo *info = VG_(find_DebugInfo)(VG_(current_DiEpoch)(), address);
    Addr bias = info == NULL ? 0 : VG_(DebugInfo_get_text_bias)(info);
    describe_code(address, info == NULL ? NULL : VG_(DebugInfo_get_filename)(info), address - bias, out, bytes);
}

void fl_site_describe(UInt site, HChar *out, UInt bytes) {
    UInt used = VG_(snprintf)(out, bytes, "%s", site == FL_NO_SITE ? "the kernel" : "");
    while (site != FL_NO_SITE) {
        const struct site *frame = *(struct site **)VG_(indexXA)(sites, site - 1);
        used += describe_frame(frame, out + used, bytes - used);
        site = frame->caller;
        if (site != FL_NO_SITE && used < bytes - 1)
            used += VG_(snprintf)(out + used, bytes - used, " < ");
        if (used >= bytes - 1)
            return;
    }
}

void fl_sites_define_again(void) {
    init_tables();
    for (Word i = 0; i < VG_(sizeXA)(modules); i++)
        emit_module(i + 1, VG_(indexXA)(modules, i));
    for (Word i = 0; i < VG_(sizeXA)(sites); i++)
        emit_site(*(struct site **)VG_(indexXA)(sites, i));
}
