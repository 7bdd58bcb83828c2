/* SPDX-License-Identifier: Apache-2.0 */
/* A child that becomes another program: its records end there, and the trace says that the rest is not followed. */
#include "program.h"

#include <sys/wait.h>

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        heap[64] = 1;
        execl("/no/such/program", "program", (char *)NULL); /* fails: the child goes on */
        heap[65] = 2;
        execl("/bin/true", "true", (char *)NULL);
        _exit(99);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 0);
    heap[0] = 3;
    return 0;
}
