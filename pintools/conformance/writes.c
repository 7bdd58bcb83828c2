/* SPDX-License-Identifier: Apache-2.0 */
/* write and its like: where and what, whole. */
#include "program.h"

#include <sys/syscall.h>
#include <sys/uio.h>

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    struct iovec pieces[2] = {{"one", 3}, {"seven..", 7}};
    MUST(write(descriptor, "hello", 5) == 5);
    MUST(write(descriptor, "!", 1) == 1);
    MUST(pwrite(descriptor, "0123456789abcdef0123456789abcdef!", 33, 4000) == 33);
    MUST(lseek(descriptor, 100, SEEK_SET) == 100);
    MUST(writev(descriptor, pieces, 2) == 10);
    MUST(pwritev(descriptor, pieces, 2, 8000) == 10);
    int appending = open("heap", O_WRONLY | O_APPEND);
    MUST(appending >= 0 && write(appending, "end", 3) == 3);
    MUST(write(appending, "", 0) == 0);
    MUST(syscall(SYS_write, appending, 8, 4) < 0); /* EFAULT: nothing */
    int reading = open("heap", O_RDONLY);
    MUST(reading >= 0 && write(reading, "x", 1) < 0); /* EBADF */
    int synchronous = open("heap", O_WRONLY | O_DSYNC); /* and a sync of what was written */
    MUST(synchronous >= 0 && pwrite(synchronous, "durable", 7, 200) == 7);
    MUST(pwritev2(descriptor, pieces, 2, 300, RWF_DSYNC) == 10);
    return 0;
}
