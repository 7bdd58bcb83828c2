/* SPDX-License-Identifier: Apache-2.0 */
/* Every file operation, done and failed, by path and by descriptor. Nothing outside the PM folder is recorded. */
#include "program.h"

#include <linux/falloc.h>

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    MUST(truncate("heap", 16384) == 0);
    MUST(fallocate(descriptor, 0, 16384, 4096) == 0);
    MUST(posix_fallocate(descriptor, 0, 8192) == 0);
    MUST(fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 16384, 8192) == 0);
    MUST(fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
    MUST(fsync(descriptor) == 0);
    MUST(fdatasync(descriptor) == 0);
    int again = open("./heap", O_RDWR | O_CREAT, 0600); /* exists: nothing */
    MUST(again >= 0 && close(again) == 0);
    again = open("heap", O_RDWR | O_TRUNC);
    MUST(again >= 0 && close(again) == 0);
    MUST(open("heap", O_RDWR | O_CREAT | O_EXCL, 0600) < 0);
    MUST(mkdir("folder", 0700) == 0);
    MUST(mkdir("folder", 0700) < 0); /* EEXIST */
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    MUST(folder >= 0 && mkdirat(folder, "inner", 0700) == 0);
    int other = openat(folder, "../folder//inner/other", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    MUST(other >= 0 && ftruncate(other, 100) == 0 && close(other) == 0);
    MUST(rename("folder/inner/other", "folder/renamed") == 0);
    MUST(renameat2(folder, "renamed", AT_FDCWD, "heap", RENAME_NOREPLACE) < 0); /* EEXIST */
    MUST(renameat(folder, "renamed", AT_FDCWD, "heap") == 0);                   /* over it */
    MUST(rmdir("folder") < 0); /* ENOTEMPTY */
    MUST(unlinkat(folder, "inner", AT_REMOVEDIR) == 0);
    MUST(fsync(folder) == 0);
    MUST(rmdir("folder/") == 0);
    int here = open(".", O_RDONLY | O_DIRECTORY);
    MUST(here >= 0 && fsync(here) == 0 && syncfs(here) == 0);
    int elsewhere = open("..", O_RDONLY | O_DIRECTORY);
    MUST(elsewhere >= 0 && fsync(elsewhere) == 0 && syncfs(elsewhere) == 0); /* says nothing of the PM folder */
    sync();
    MUST(unlink("heap") == 0);
    MUST(unlink("heap") < 0); /* not there: nothing */
    FILE *outside = fopen("../files.outside", "w");
    MUST(outside != NULL && fputs("text", outside) > 0 && fclose(outside) == 0 && unlink("../files.outside") == 0);
    return 0;
}
