/* SPDX-License-Identifier: Apache-2.0 */
/* Parent and child store; the child's records carry its own number and definitions. */
#include "program.h"

#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    heap[0] = 1;
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            heap[64] = 2;
            if (i == 1 && fork() == 0) {
                heap[65] = 3;
                _exit(5);
            }
            if (i == 1)
                wait(NULL);
            _exit(4);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
        heap[1] = 4;
    }
    return 0;
}
