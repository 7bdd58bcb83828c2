/* SPDX-License-Identifier: Apache-2.0 */
/* msync(MS_SYNC) of a part, of two mappings at once; MS_ASYNC promises nothing and is not recorded. */
#include "program.h"

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    char *heap = map_at(HEAP, descriptor, 0, 4096);
    map_at(HEAP + 4096, descriptor, 4096, 4096);
    MUST(msync(heap, 100, MS_SYNC) == 0);
    MUST(msync(heap, 8192, MS_SYNC) == 0);
    MUST(msync(heap, 8192, MS_ASYNC) == 0);
    MUST(msync(heap + 4096, 4096, MS_SYNC | MS_INVALIDATE) == 0);
    MUST(msync(heap + 8192, 4096, MS_SYNC) < 0); /* not mapped: nothing */
    MUST(madvise(heap, 4096, MADV_REMOVE) == 0); /* punches */
    return 0;
}
