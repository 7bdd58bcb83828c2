/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's markers, in order with the stores. */
#include "program.h"

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, FL_OP_CASE, 3, 0, 0, 0);
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, FL_OP_ALLOCATE, 1, 2, 64, 0x100000002);
    heap[0] = 1;
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_RETURN, FL_OP_ALLOCATE, 1, 1, 0, 0);
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, FL_OP_REALLOCATE, 2, 65535, 0x200000000, 3);
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_RETURN, FL_OP_REALLOCATE, 2, 0, 0, 0);
    return 0;
}
