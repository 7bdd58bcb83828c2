/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_loads.c - with --loads=FILE: every load of PM, whoever makes it, appended to FILE as it comes. No part of the trace: a yardstick
 * for tools that see loads by other means. A load is 16 bytes, little-endian:
 *
 *     u32 process   u16 file   u16 bytes   u64 offset
 *
 * process and file as in the trace. The top bit of bytes is set for one step of a repeated string instruction. Private mappings
 * count too. A locked instruction loads once. What system calls read is not here.
 */
#include "fl.h"

extern Int VG_(safe_fd)(Int);

#define BUFFERED 4096

const HChar *fl_clo_loads;

struct load {
    UInt process;
    UShort file, bytes;
    ULong offset;
};

static struct load buffer[BUFFERED];
static UInt buffered;
static Int descriptor = -1;

void fl_loads_open(void) {
    if (fl_clo_loads == NULL)
        return;
    SysRes opened = VG_(open)(fl_clo_loads, VKI_O_WRONLY | VKI_O_CREAT | VKI_O_APPEND, 0644);
    if (sr_isError(opened))
        fl_stop(2, "cannot open --loads=%s; name a file in a folder that can be written", fl_clo_loads);
    descriptor = VG_(safe_fd)(sr_Res(opened));
}

void fl_loads_flush(void) {
    Int bytes = buffered * sizeof *buffer;
    if (bytes > 0 && VG_(write)(descriptor, buffer, bytes) != bytes)
        fl_stop(3, "cannot write --loads=%s", fl_clo_loads);
    buffered = 0;
}

Bool fl_loads_are_wanted(void) { return fl_clo_loads != NULL || fl_mode == FL_SERVES; }

void fl_on_load(Addr address, ULong bytes, struct fl_point *point) {
    UInt from = 0;
    SizeT size = bytes & ~FL_LOAD_REPEATED;
    for (struct fl_mapping *mapping; (mapping = fl_next_mapping(address, size, &from)) != NULL;) {
        Addr start = address > mapping->start ? address : mapping->start;
        Addr end = mapping->start + mapping->bytes < address + size ? mapping->start + mapping->bytes : address + size;
        if (fl_mode == FL_SERVES) {
            fl_recording_load(mapping, mapping->offset + (start - mapping->start), end - start, point);
            continue;
        }
        if (buffered == BUFFERED)
            fl_loads_flush();
        buffer[buffered++] = (struct load){
            .process = fl_process,
            .file = mapping->file,
            .bytes = (end - start) | (bytes & FL_LOAD_REPEATED),
            .offset = mapping->offset + (start - mapping->start),
        };
    }
}
