/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_signals.c - exact registers for a target that resumes from its own SIGSEGV or SIGBUS.
 *
 * Valgrind keeps registers in temporaries within a block of code, and writes them to the guest's state at its end. A handler that mends
 * what made the access fail and returns would go on with old ones. So from the first handler of these signals on, all code is translated
 * such that registers are exact at each access to memory.
 */
#include "fl.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_options.h"
#include "pub_tool_vkiscnums.h"

/* In libcoregrind, not in its public headers. */
extern VexRegisterUpdates VG_(clo_px_file_backed);
extern void VG_(discard_translations)(Addr start, ULong bytes, const HChar *who);

#define FIRST_CODE 4096ull /* no code lies in the first page of memory */

static Bool are_exact;

void fl_signals_make_exact(void) {
    if (are_exact)
        return;
    are_exact = True;
    VG_(clo_vex_control).iropt_register_updates_default = VexRegUpdAllregsAtMemAccess;
    VG_(clo_px_file_backed) = VexRegUpdAllregsAtMemAccess;
    VG_(discard_translations)(FIRST_CODE, ~0ull - FIRST_CODE, "fl_signals_make_exact");
}

Bool fl_signals_are_exact(void) { return are_exact; }

/* The runner's own handlers end the process. */
static Bool is_runner_code(Addr address) {
    const NSegment *handler = VG_(am_find_nsegment)(address), *runner = VG_(am_find_nsegment)(fl_recording_runner_code());
    return handler != NULL && runner != NULL && handler->kind == SkFileC && runner->kind == SkFileC &&
           handler->dev == runner->dev && handler->ino == runner->ino;
}

void fl_signals_before_call(UInt number, const UWord *arguments) {
    const struct vki_sigaction_base *action = (const struct vki_sigaction_base *)arguments[1];
    if (number != __NR_rt_sigaction || (arguments[0] != VKI_SIGSEGV && arguments[0] != VKI_SIGBUS) || action == NULL ||
        !VG_(am_is_valid_for_client)(arguments[1], sizeof(Addr), VKI_PROT_READ))
        return;
    Addr handler = (Addr)action->ksa_handler;
    if (handler == (Addr)VKI_SIG_DFL || handler == (Addr)VKI_SIG_IGN || is_runner_code(handler))
        return;
    fl_signals_make_exact();
    fl_recording_became_exact();
}
