/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_room.c - addresses for a target that reserves many.
 *
 * Where a target leaves the address to the system, Valgrind looks for one below 128 GiB, beside its own memory: 64 GiB at once are not
 * to be had, where Linux gives 100 TiB. What does not fit there gets an address high above, where Valgrind would take any that the
 * target named itself.
 */
#include "fl.h"

/* Of pub_core_aspacemgr.h, which is no header for tools. */
enum map_kind { MAP_EXACTLY, MAP_AS_HINTED, MAP_ANYWHERE };
struct map_request {
    enum map_kind kind;
    Addr start;
    SizeT bytes;
};

/* Targets map heaps at addresses below, and the kernel its own parts of the process above. */
#define ROOM_START 0x500000000000ull
#define ROOM_END 0x7f0000000000ull
#define STEP (1ull << 30)

Addr __real_vgPlain_am_get_advisory(const struct map_request *request, Bool is_for_client, Bool *is_there);
Addr __wrap_vgPlain_am_get_advisory(const struct map_request *request, Bool is_for_client, Bool *is_there);

Addr __wrap_vgPlain_am_get_advisory(const struct map_request *request, Bool is_for_client, Bool *is_there) {
    Addr found = __real_vgPlain_am_get_advisory(request, is_for_client, is_there);
    if (*is_there || !is_for_client || request->kind == MAP_EXACTLY || request->bytes > ROOM_END - ROOM_START)
        return found;
    for (Addr start = ROOM_START; start <= ROOM_END - request->bytes; start += STEP) {
        /* Not exactly there: that would take the addresses from what has them. */
        struct map_request higher = {.kind = MAP_AS_HINTED, .start = start, .bytes = request->bytes};
        found = __real_vgPlain_am_get_advisory(&higher, is_for_client, is_there);
        if (*is_there && found == start)
            return found;
    }
    *is_there = False;
    return found;
}
