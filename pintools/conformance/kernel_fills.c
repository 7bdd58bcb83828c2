/* SPDX-License-Identifier: Apache-2.0 */
/* System calls whose result the kernel writes into PM: reads of all kinds, in pieces, across mappings; others; failed ones. */
#include "program.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv), ends[2];
    char *heap = map_at(HEAP, descriptor, 0, 4096);
    map_at(HEAP + 4096, descriptor, 4096, 4096);
    int file = open("../kernel_fills.outside", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file >= 0 && unlink("../kernel_fills.outside") == 0 && write(file, "0123456789abcdef", 16) == 16);
    MUST(pread(file, heap, 8, 2) == 8);
    MUST(pread(file, heap + 64, 100, 10) == 6);
    MUST(lseek(file, 0, SEEK_SET) == 0 && read(file, heap + 4094, 4) == 4); /* a store on each mapping */
    struct iovec pieces[3] = {{heap + 128, 3}, {heap + 256, 5}, {heap + 512, 100}};
    MUST(preadv(file, pieces, 3, 1) == 15);
    MUST(lseek(file, 12, SEEK_SET) == 12 && readv(file, pieces, 3) == 4);
    MUST(pread(file, heap, 8, 16) == 0 && pread(-1, heap, 8, 0) < 0);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && send(ends[0], "hello", 5, 0) == 5);
    MUST(recv(ends[1], heap + 1024, 64, 0) == 5);
    MUST(pipe((int *)(heap + 1088)) == 0);
    MUST(readlink(".", heap + 1152, 8) < 0); /* EINVAL: nothing */
    struct iovec from = {(char[]){'a', 'b', 'c'}, 3}, to[2] = {{heap + 1200, 1}, {heap + 1264, 8}};
    MUST(process_vm_writev(getpid(), &from, 1, to, 2, 0) == 3);
    MUST(process_vm_readv(getpid(), to + 1, 1, &from, 1, 0) == 3);
    heap[0] = 'x';
    return 0;
}
