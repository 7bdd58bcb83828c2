/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace cannot express is said, never dropped. */
#include "program.h"

#include <sys/sendfile.h>

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    MUST(link("heap", "second") == 0);
    MUST(symlink("heap", "soft") == 0);
    MUST(mknod("third", S_IFREG | 0600, 0) == 0);
    int other = open("third", O_RDWR);
    MUST(other >= 0 && copy_file_range(descriptor, NULL, other, NULL, 100, 0) == 100);
    MUST(lseek(descriptor, 0, SEEK_SET) == 0 && sendfile(other, descriptor, NULL, 100) == 100);
    MUST(rename("third", "../unsupported.outside") == 0 && unlink("../unsupported.outside") == 0);
    return 0;
}
