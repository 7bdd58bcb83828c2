/* SPDX-License-Identifier: Apache-2.0
 *
 * Hooks that do nothing, for programs that a target's own build makes of its objects with hooks: tests, generators, probes of configure
 * (harness/faultline/pipeline/build.py links them with hooks.c, entry.c and this file). No address is near PM, so hooks make the access
 * and tell nobody. In the runner this file is empty.
 */
#ifdef FL_HOOKS_OFF
#include "base/in_process.h"
#include "hooks/hooks.h"
#include "loads/loads.h"
#include "undo/undo.h"

struct in_process in_process;
struct fl_hook_near fl_hook_near;
struct loads_window loads_window;
uint32_t loads_accesses;
const void *loads_caller;
bool loads_is_guarded, events_is_by_hooks;

void loads_read(const void *address, uint64_t bytes) { (void)address, (void)bytes; }
void loads_stored(const void *address, uint64_t bytes) { (void)address, (void)bytes; }
void loads_written(const void *address, uint64_t bytes) { (void)address, (void)bytes; }
void loads_updated(const void *address, uint64_t bytes) { (void)address, (void)bytes; }
void loads_open(const void *address, uint64_t bytes) { (void)address, (void)bytes; }
unsigned guard_lend(const void *address, uint64_t bytes) { return (void)address, (void)bytes, 0; }
void guard_take_back(unsigned lent) { (void)lent; }
bool undo_has_resized(void) { return false; }
void hook_instruction(struct hook_call *call) { (void)call; }
void events_will_store(const void *address, uint64_t bytes, bool is_in_pieces, const void *caller) {
    (void)address, (void)bytes, (void)is_in_pieces, (void)caller;
}
void events_stored(const void *address, uint64_t bytes, const void *caller) { (void)address, (void)bytes, (void)caller; }
void events_exchanged(const void *address, uint64_t bytes, bool is_stored, const void *caller) {
    (void)address, (void)bytes, (void)is_stored, (void)caller;
}
void events_fenced(enum fl_event_fence kind, const void *caller) { (void)kind, (void)caller; }
#endif
