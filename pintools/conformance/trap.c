/* SPDX-License-Identifier: Apache-2.0 */
/* ud2 is the program's own wish, not something unsupported. */
#include "program.h"

int main(int argc, char **argv) {
    create_and_map_heap(argc, argv);
    __builtin_trap();
}
