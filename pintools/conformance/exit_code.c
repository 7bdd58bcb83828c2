/* SPDX-License-Identifier: Apache-2.0 */
/* The process's end carries its exit code. */
#include "program.h"

int main(int argc, char **argv) {
    create_and_map_heap(argc, argv);
    return 7;
}
