/* SPDX-License-Identifier: Apache-2.0
 *
 * numbers.h - numbers of system calls on x86-64 (the kernel's syscall_64.tbl): those that the C library of a Pin kit is too old for.
 */
#ifndef FAULTLINE_PIN_NUMBERS_H
#define FAULTLINE_PIN_NUMBERS_H

#include <sys/syscall.h>

#ifndef SYS_renameat2
#define SYS_renameat2 316
#endif
#ifndef SYS_getrandom
#define SYS_getrandom 318
#endif
#ifndef SYS_memfd_create
#define SYS_memfd_create 319
#endif
#ifndef SYS_execveat
#define SYS_execveat 322
#endif
#ifndef SYS_membarrier
#define SYS_membarrier 324
#endif
#ifndef SYS_mlock2
#define SYS_mlock2 325
#endif
#ifndef SYS_copy_file_range
#define SYS_copy_file_range 326
#endif
#ifndef SYS_preadv2
#define SYS_preadv2 327
#endif
#ifndef SYS_pwritev2
#define SYS_pwritev2 328
#endif
#ifndef SYS_pkey_mprotect
#define SYS_pkey_mprotect 329
#endif
#ifndef SYS_statx
#define SYS_statx 332
#endif
#ifndef SYS_rseq
#define SYS_rseq 334
#endif
#ifndef SYS_io_uring_enter
#define SYS_io_uring_enter 426
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

#endif
