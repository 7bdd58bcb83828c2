/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lazy open left, done piece by piece between operations, where the adapter has steps for it; threads of its own do it elsewhere.
 */
#include "base/target.h"

void lazy_check(const struct options *options, const struct fl_adapter *adapter) {
    if (options->is_lazy && (adapter->capabilities & FL_CAN_SETTLE) == 0)
        fail(EXIT_BAD_INPUT, "--lazy: nothing of %s's open can be done later; its adapter does not say FL_CAN_SETTLE",
             adapter->name);
}

int open_adapter(const struct fl_adapter *adapter, const struct fl_heap_options *options, bool is_lazy, fl_heap **heap) {
    struct fl_heap_options flagged = *options;
    flagged.flags = is_lazy ? FL_OPEN_LAZY : 0;
    return adapter->open(&flagged, heap);
}

int lazy_step(const struct fl_adapter *adapter, fl_heap *heap, bool *is_settled) {
    int is_done = 0;
    if (*is_settled || adapter->step == NULL)
        return FL_OK;
    int status = adapter->step(heap, &is_done);
    *is_settled = status != FL_OK || is_done != 0;
    return status;
}
