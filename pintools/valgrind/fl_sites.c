/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_sites.c - instruction addresses to module and offset.
 *
 * The offset is the address as the module's symbols count it (load bias subtracted), so addr2line takes it as it is. A
 * store inside the C library is attributed to the first caller outside of it. That costs an unwinding the first time; then
 * a leaf such as memcpy, whose return address lies on top of the stack, needs a look at that word only.
 */
#include "fl.h"
#include "pub_tool_guest.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_machine.h"
#include "pub_tool_stacktrace.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_xarray.h"

#include <elf.h>

#define MOST_FRAMES 24
#define BUILD_ID_HEX_BYTES 130 /* 64 bytes in hexadecimal, rounded up */
#define MOST_NOTE_BYTES 4096

struct module {
    HChar *path;
    HChar build_id[BUILD_ID_HEX_BYTES];
    PtrdiffT bias;
    Bool is_library; /* the C library or the loader: sites in it are attributed to their caller */
};

struct site {
    struct site *next; /* as VgHashNode wants it */
    UWord key;         /* module and offset */
    UInt module;
    UInt id;
    Addr offset;
};

static XArray *modules; /* of struct module; id = index + 1 */
static XArray *sites;   /* of struct site *; id = index + 1 */
static VgHashTable *site_table;

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
    fl_emit((struct fl_record){.kind = FL_SITE, .site = site->id, .value = site->module, .offset = site->offset});
}

static Bool starts_with(const HChar *text, const HChar *start) {
    return text != NULL && VG_(strncmp)(text, start, VG_(strlen)(start)) == 0;
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
                            .is_library = starts_with(soname, "libc.so") || starts_with(soname, "ld-linux")};
    read_build_id(path, module.build_id);
    UInt id = VG_(addToXA)(modules, &module) + 1;
    emit_module(id, &module);
    return id;
}

static Bool is_library(UInt module) {
    return module != 0 && ((const struct module *)VG_(indexXA)(modules, module - 1))->is_library;
}

static void init_tables(void) {
    if (site_table != NULL)
        return;
    site_table = VG_(HT_construct)("fl.sites.table");
    modules = VG_(newXA)(VG_(malloc), "fl.sites.modules", VG_(free), sizeof(struct module));
    sites = VG_(newXA)(VG_(malloc), "fl.sites.sites", VG_(free), sizeof(struct site *));
}

static UInt site_of(UInt module, Addr address) {
    Addr offset = module == 0 ? address : address - ((const struct module *)VG_(indexXA)(modules, module - 1))->bias;
    UWord key = ((UWord)module << 48) ^ offset;
    const struct site *known = VG_(HT_lookup)(site_table, key);
    if (known != NULL)
        return known->id;
    struct site *site = VG_(malloc)("fl.sites.site", sizeof *site);
    *site = (struct site){.key = key, .module = module, .offset = offset, .id = VG_(sizeXA)(sites) + 1};
    VG_(HT_add_node)(site_table, site);
    VG_(addToXA)(sites, &site);
    emit_site(site);
    return site->id;
}

/* The first frame outside the C library; the point itself if there is none. */
static Addr unwind(struct fl_point *point) {
    Addr frames[MOST_FRAMES];
    ThreadId thread = VG_(get_running_tid)();
    UInt count = VG_(get_StackTrace)(thread, frames, MOST_FRAMES, NULL, NULL, point->address - VG_(get_IP)(thread));
    for (UInt i = 1; i < count; i++) {
        if (!is_library(module_of(frames[i]))) {
            if (i == 1 && frames[1] == *(Addr *)VG_(get_SP)(thread) - 1)
                point->attribution = FL_ATTRIBUTION_RETURN_ADDRESS;
            return frames[i];
        }
    }
    return point->address;
}

static UInt site_of_caller(struct fl_point *point) {
    if (point->attribution == FL_ATTRIBUTION_RETURN_ADDRESS) {
        Addr caller = *(Addr *)VG_(get_SP)(VG_(get_running_tid)()) - 1;
        if (caller == point->last_caller)
            return point->site;
        point->attribution = FL_ATTRIBUTION_UNWIND; /* unwind() sets it back if the caller is outside again */
    }
    Addr caller = unwind(point);
    point->last_caller = caller;
    point->site = site_of(module_of(caller), caller);
    return point->site;
}

UInt fl_site_slowly(struct fl_point *point) {
    init_tables();
    if (point->attribution == FL_ATTRIBUTION_UNKNOWN) {
        UInt module = module_of(point->address);
        point->attribution = is_library(module) ? FL_ATTRIBUTION_UNWIND : FL_ATTRIBUTION_OWN;
        if (point->attribution == FL_ATTRIBUTION_OWN)
            point->site = site_of(module, point->address);
    }
    return point->attribution == FL_ATTRIBUTION_OWN ? point->site : site_of_caller(point);
}

UInt fl_own_site(struct fl_point *point) {
    if (point->site == FL_NO_SITE) {
        init_tables();
        point->attribution = FL_ATTRIBUTION_OWN;
        point->site = site_of(module_of(point->address), point->address);
    }
    return point->site;
}

void fl_sites_define_again(void) {
    init_tables();
    for (Word i = 0; i < VG_(sizeXA)(modules); i++)
        emit_module(i + 1, VG_(indexXA)(modules, i));
    for (Word i = 0; i < VG_(sizeXA)(sites); i++)
        emit_site(*(struct site **)VG_(indexXA)(sites, i));
}
