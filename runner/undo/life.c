/* SPDX-License-Identifier: Apache-2.0
 *
 * One life of a target in this process: it begins where a process of its own would, and leaves nothing behind but its stores.
 */
#include "undo/undo.h"

void inprocess_end_life(void) {
    arena_end_life();
    kept_end_life();
    vfs_forget_mappings();
}

void inprocess_live(void (*body)(void *context), void *context) {
    arena_begin_life();
    fill_stack(0);
    body(context);
    inprocess_end_life();
}
