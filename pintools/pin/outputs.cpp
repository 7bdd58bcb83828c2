/* SPDX-License-Identifier: Apache-2.0
 *
 * outputs.cpp - see outputs.h. Sizes are those of the kernel's structures on x86-64.
 */
#include "outputs.h"

#include <sys/syscall.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_statx
#define SYS_statx 332
#endif
#ifndef SYS_rseq
#define SYS_rseq 334
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif

namespace {

const unsigned STAT = 144, STATFS = 120, RUSAGE = 144, TIMESPEC = 16, UTSNAME = 390;

} // namespace

const Output OUTPUTS[] = {
    {SYS_read, 1, Extent::RESULT, 0},
    {SYS_pread64, 1, Extent::RESULT, 0},
    {SYS_readv, 1, Extent::PIECES, 2},
    {SYS_preadv, 1, Extent::PIECES, 2},
    {SYS_preadv2, 1, Extent::PIECES, 2},
    {SYS_process_vm_readv, 1, Extent::PIECES, 2},
    {SYS_recvfrom, 1, Extent::RESULT, 0},
    {SYS_getrandom, 0, Extent::RESULT, 0},
    {SYS_getcwd, 0, Extent::RESULT, 0},
    {SYS_readlink, 1, Extent::RESULT, 0},
    {SYS_readlinkat, 2, Extent::RESULT, 0},
    {SYS_getdents64, 1, Extent::RESULT, 0},
    {SYS_getxattr, 2, Extent::RESULT, 0},
    {SYS_lgetxattr, 2, Extent::RESULT, 0},
    {SYS_fgetxattr, 2, Extent::RESULT, 0},
    {SYS_sched_getaffinity, 2, Extent::RESULT, 0},
    {SYS_pipe, 0, Extent::FIXED, 8},
    {SYS_pipe2, 0, Extent::FIXED, 8},
    {SYS_socketpair, 3, Extent::FIXED, 8},
    {SYS_stat, 1, Extent::FIXED, STAT},
    {SYS_fstat, 1, Extent::FIXED, STAT},
    {SYS_lstat, 1, Extent::FIXED, STAT},
    {SYS_newfstatat, 2, Extent::FIXED, STAT},
    {SYS_statx, 4, Extent::FIXED, 256},
    {SYS_statfs, 1, Extent::FIXED, STATFS},
    {SYS_fstatfs, 1, Extent::FIXED, STATFS},
    {SYS_uname, 0, Extent::FIXED, UTSNAME},
    {SYS_sysinfo, 0, Extent::FIXED, 112},
    {SYS_times, 0, Extent::FIXED, 32},
    {SYS_time, 0, Extent::FIXED, 8},
    {SYS_gettimeofday, 0, Extent::FIXED, 16},
    {SYS_gettimeofday, 1, Extent::FIXED, 8},
    {SYS_clock_gettime, 1, Extent::FIXED, TIMESPEC},
    {SYS_clock_getres, 1, Extent::FIXED, TIMESPEC},
    {SYS_getrusage, 1, Extent::FIXED, RUSAGE},
    {SYS_getrlimit, 1, Extent::FIXED, 16},
    {SYS_prlimit64, 3, Extent::FIXED, 16},
    {SYS_wait4, 1, Extent::FIXED, 4},
    {SYS_wait4, 3, Extent::FIXED, RUSAGE},
    {SYS_waitid, 2, Extent::FIXED, 128},
    {SYS_poll, 0, Extent::ARRAY, 1},
    {SYS_ppoll, 0, Extent::ARRAY, 1},
    {SYS_epoll_wait, 1, Extent::MULTIPLE, 12},
    {SYS_epoll_pwait, 1, Extent::MULTIPLE, 12},
    {SYS_rt_sigaction, 2, Extent::FIXED, 32},
    {SYS_rt_sigprocmask, 2, Extent::FIXED, 8},
    {SYS_rt_sigpending, 0, Extent::FIXED, 8},
    {SYS_sigaltstack, 1, Extent::FIXED, 24},
    {SYS_getitimer, 1, Extent::FIXED, 32},
    {SYS_setitimer, 2, Extent::FIXED, 32},
    {SYS_timer_create, 2, Extent::FIXED, 4},
    {SYS_timer_gettime, 1, Extent::FIXED, 32},
    {SYS_arch_prctl, 1, Extent::NOTHING, 0}, /* ARCH_GET_FS is for nobody's data */

    {SYS_write, 1, Extent::NOTHING, 0},
    {SYS_pwrite64, 1, Extent::NOTHING, 0},
    {SYS_writev, 1, Extent::NOTHING, 0},
    {SYS_pwritev, 1, Extent::NOTHING, 0},
    {SYS_pwritev2, 1, Extent::NOTHING, 0},
    {SYS_process_vm_writev, 1, Extent::NOTHING, 0}, /* looked at where it is made */
    {SYS_sendto, 1, Extent::NOTHING, 0},
    {SYS_sendmsg, 1, Extent::NOTHING, 0},
    {SYS_bind, 1, Extent::NOTHING, 0},
    {SYS_connect, 1, Extent::NOTHING, 0},
    {SYS_setsockopt, 3, Extent::NOTHING, 0},
    {SYS_open, 0, Extent::NOTHING, 0},
    {SYS_openat, 1, Extent::NOTHING, 0},
    {SYS_openat2, 1, Extent::NOTHING, 0},
    {SYS_creat, 0, Extent::NOTHING, 0},
    {SYS_access, 0, Extent::NOTHING, 0},
    {SYS_faccessat, 1, Extent::NOTHING, 0},
    {SYS_faccessat2, 1, Extent::NOTHING, 0},
    {SYS_truncate, 0, Extent::NOTHING, 0},
    {SYS_rename, 0, Extent::NOTHING, 0},
    {SYS_renameat, 1, Extent::NOTHING, 0},
    {SYS_renameat2, 1, Extent::NOTHING, 0},
    {SYS_unlink, 0, Extent::NOTHING, 0},
    {SYS_unlinkat, 1, Extent::NOTHING, 0},
    {SYS_rmdir, 0, Extent::NOTHING, 0},
    {SYS_mkdir, 0, Extent::NOTHING, 0},
    {SYS_mkdirat, 1, Extent::NOTHING, 0},
    {SYS_link, 0, Extent::NOTHING, 0},
    {SYS_linkat, 1, Extent::NOTHING, 0},
    {SYS_symlink, 0, Extent::NOTHING, 0},
    {SYS_symlinkat, 0, Extent::NOTHING, 0},
    {SYS_chdir, 0, Extent::NOTHING, 0},
    {SYS_chmod, 0, Extent::NOTHING, 0},
    {SYS_fchmodat, 1, Extent::NOTHING, 0},
    {SYS_chown, 0, Extent::NOTHING, 0},
    {SYS_utimensat, 1, Extent::NOTHING, 0},
    {SYS_execve, 0, Extent::NOTHING, 0},
    {SYS_execveat, 1, Extent::NOTHING, 0},
    {SYS_mmap, 0, Extent::NOTHING, 0},
    {SYS_munmap, 0, Extent::NOTHING, 0},
    {SYS_mremap, 0, Extent::NOTHING, 0},
    {SYS_mprotect, 0, Extent::NOTHING, 0},
    {SYS_pkey_mprotect, 0, Extent::NOTHING, 0},
    {SYS_madvise, 0, Extent::NOTHING, 0},
    {SYS_msync, 0, Extent::NOTHING, 0},
    {SYS_mlock, 0, Extent::NOTHING, 0},
    {SYS_mlock2, 0, Extent::NOTHING, 0},
    {SYS_munlock, 0, Extent::NOTHING, 0},
    {SYS_brk, 0, Extent::NOTHING, 0},
    {SYS_futex, 0, Extent::NOTHING, 0}, /* FUTEX_WAKE_OP is refused where its word is persistent memory */
    {SYS_nanosleep, 0, Extent::NOTHING, 0},
    {SYS_clock_nanosleep, 2, Extent::NOTHING, 0},
    {SYS_exit, 0, Extent::NOTHING, 0},
    {SYS_exit_group, 0, Extent::NOTHING, 0},
    {SYS_lseek, 1, Extent::NOTHING, 0},
    {SYS_ftruncate, 1, Extent::NOTHING, 0},
    {SYS_fallocate, 2, Extent::NOTHING, 0},
    /* What writes nothing, whatever it is given. */
    {SYS_getpid, 0, Extent::NOTHING, 0},
    {SYS_gettid, 0, Extent::NOTHING, 0},
    {SYS_getppid, 0, Extent::NOTHING, 0},
    {SYS_getuid, 0, Extent::NOTHING, 0},
    {SYS_geteuid, 0, Extent::NOTHING, 0},
    {SYS_getgid, 0, Extent::NOTHING, 0},
    {SYS_getegid, 0, Extent::NOTHING, 0},
    {SYS_getpgid, 0, Extent::NOTHING, 0},
    {SYS_getsid, 0, Extent::NOTHING, 0},
    {SYS_getpgrp, 0, Extent::NOTHING, 0},
    {SYS_setsid, 0, Extent::NOTHING, 0},
    {SYS_setpgid, 0, Extent::NOTHING, 0},
    {SYS_close, 0, Extent::NOTHING, 0},
    {SYS_dup, 0, Extent::NOTHING, 0},
    {SYS_dup2, 0, Extent::NOTHING, 0},
    {SYS_dup3, 0, Extent::NOTHING, 0},
    {SYS_sched_yield, 0, Extent::NOTHING, 0},
    {SYS_kill, 0, Extent::NOTHING, 0},
    {SYS_tgkill, 0, Extent::NOTHING, 0},
    {SYS_tkill, 0, Extent::NOTHING, 0},
    {SYS_umask, 0, Extent::NOTHING, 0},
    {SYS_alarm, 0, Extent::NOTHING, 0},
    {SYS_pause, 0, Extent::NOTHING, 0},
    {SYS_fork, 0, Extent::NOTHING, 0},
    {SYS_vfork, 0, Extent::NOTHING, 0},
    {SYS_fsync, 0, Extent::NOTHING, 0},
    {SYS_fdatasync, 0, Extent::NOTHING, 0},
    {SYS_sync, 0, Extent::NOTHING, 0},
    {SYS_syncfs, 0, Extent::NOTHING, 0},
    {SYS_fchmod, 0, Extent::NOTHING, 0},
    {SYS_fchown, 0, Extent::NOTHING, 0},
    {SYS_fchdir, 0, Extent::NOTHING, 0},
    {SYS_flock, 0, Extent::NOTHING, 0},
    {SYS_socket, 0, Extent::NOTHING, 0},
    {SYS_listen, 0, Extent::NOTHING, 0},
    {SYS_shutdown, 0, Extent::NOTHING, 0},
    {SYS_eventfd, 0, Extent::NOTHING, 0},
    {SYS_eventfd2, 0, Extent::NOTHING, 0},
    {SYS_epoll_create, 0, Extent::NOTHING, 0},
    {SYS_epoll_create1, 0, Extent::NOTHING, 0},
    {SYS_timerfd_create, 0, Extent::NOTHING, 0},
    {SYS_inotify_init1, 0, Extent::NOTHING, 0},
    {SYS_sched_setaffinity, 0, Extent::NOTHING, 0},
    {SYS_sched_getscheduler, 0, Extent::NOTHING, 0},
    {SYS_sched_getparam, 0, Extent::NOTHING, 0},
    {SYS_sched_setscheduler, 0, Extent::NOTHING, 0},
    {SYS_set_tid_address, 0, Extent::NOTHING, 0},
    {SYS_set_robust_list, 0, Extent::NOTHING, 0},
    {SYS_rt_sigreturn, 0, Extent::NOTHING, 0},
    {SYS_restart_syscall, 0, Extent::NOTHING, 0},
    {SYS_personality, 0, Extent::NOTHING, 0},
    {SYS_membarrier, 0, Extent::NOTHING, 0},
    {SYS_mlockall, 0, Extent::NOTHING, 0},
    {SYS_munlockall, 0, Extent::NOTHING, 0},
    {SYS_setpriority, 0, Extent::NOTHING, 0},
    {SYS_getpriority, 0, Extent::NOTHING, 0},
    {SYS_epoll_ctl, 0, Extent::NOTHING, 0},
    {SYS_timer_settime, 0, Extent::NOTHING, 0},
    {SYS_timer_delete, 0, Extent::NOTHING, 0},
    {SYS_rt_sigsuspend, 0, Extent::NOTHING, 0},
    {SYS_splice, 0, Extent::NOTHING, 0},
    {SYS_copy_file_range, 0, Extent::NOTHING, 0},
    {SYS_sendfile, 0, Extent::NOTHING, 0},
    {SYS_fadvise64, 0, Extent::NOTHING, 0},
    {SYS_readahead, 0, Extent::NOTHING, 0},
    {SYS_sync_file_range, 0, Extent::NOTHING, 0},
    {SYS_memfd_create, 0, Extent::NOTHING, 0},
    {SYS_clone, 2, Extent::FIXED, 4}, /* thread ids */
    {SYS_clone3, 0, Extent::NOTHING, 0},
    {SYS_rseq, 0, Extent::NOTHING, 0}, /* the C library's own area */
    {SYS_fcntl, 1, Extent::NOTHING, 0}, /* F_GETLK into persistent memory is nobody's */
    {SYS_prctl, 1, Extent::NOTHING, 0}, /* PR_SET_NAME and numbers */
};

const size_t OUTPUT_COUNT = sizeof OUTPUTS / sizeof *OUTPUTS;
