/* SPDX-License-Identifier: Apache-2.0
 *
 * loads.h - ways for recovery to load a and b, and what lies between them: load_NAME(heap, found).
 */
#ifndef FOREIGN_LOADS_H
#define FOREIGN_LOADS_H

#include "flushes.h"
#include "heap.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#ifdef WITH_ZLIB
#include <dlfcn.h>
#include <zlib.h>
#endif

/* Lines 1 and 2 of the head. */
struct both {
    uint64_t a, spare_a[7], b, spare_b[7];
};
_Static_assert(offsetof(struct both, b) == offsetof(struct head, b) - offsetof(struct head, a), "the layout of heap.h");

/* ---- instructions ---- */

WAY void load_plain(struct fl_heap *heap, struct both *found) {
    found->a = *(volatile uint64_t *)&heap->head->a;
    found->b = *(volatile uint64_t *)&heap->head->b;
}

/* An instruction that Valgrind does not decode (stores.h). */
WAY void load_hint(struct fl_heap *heap, struct both *found) {
    __asm__ volatile(".byte 0x0f, 0x18, 0x20" : : "a"(heap->head));
    load_plain(heap, found);
}

/* By another program, which reads the file. */
WAY void load_program(struct fl_heap *heap, struct both *found) {
    char command[5000];
    snprintf(command, sizeof command, "dd if='%s' bs=1 skip=%d count=%d status=none", heap->path, (int)offsetof(struct head, a),
             (int)sizeof *found);
    FILE *output = popen(command, "r");
    must(output != NULL && fread(found, sizeof *found, 1, output) == 1 && pclose(output) == 0);
}

WAY void load_forked_program(struct fl_heap *heap, struct both *found) {
    char skip[24], count[24], input[4300];
    int pipes[2], how;
    snprintf(skip, sizeof skip, "skip=%d", (int)offsetof(struct head, a));
    snprintf(count, sizeof count, "count=%d", (int)sizeof *found);
    snprintf(input, sizeof input, "if=%s", heap->path);
    must(pipe(pipes) == 0);
    pid_t child = vfork();
    if (child == 0) {
        dup2(pipes[1], 1);
        execlp("dd", "dd", input, "iflag=skip_bytes,count_bytes", skip, count, "status=none", (char *)NULL);
        _exit(1);
    }
    close(pipes[1]);
    must(child > 0 && read(pipes[0], found, sizeof *found) == sizeof *found);
    close(pipes[0]);
    must(waitpid(child, &how, 0) == child && how == 0);
}

WAY void load_avx512(struct fl_heap *heap, struct both *found) {
    __asm__ volatile("vmovq %1, %%xmm16\n\tvmovq %%xmm16, %0" : "=r"(found->a) : "m"(heap->head->a));
    found->b = *(volatile uint64_t *)&heap->head->b;
}

WAY void load_assembly(struct fl_heap *heap, struct both *found) {
    __asm__ volatile("movq %1, %0" : "=r"(found->a) : "m"(heap->head->a));
    __asm__ volatile("movq %1, %0" : "=r"(found->b) : "m"(heap->head->b));
}

WAY void load_movsb(struct fl_heap *heap, struct both *found) {
    void *to = found;
    const void *from = &heap->head->a;
    size_t bytes = sizeof *found;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

WAY void load_movsq(struct fl_heap *heap, struct both *found) {
    void *to = found;
    const void *from = &heap->head->a;
    size_t words = sizeof *found / 8;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

/* Whether they are equal is all that it learns: then b is not ahead. */
WAY void load_cmpsb(struct fl_heap *heap, struct both *found) {
    const void *a = &heap->head->a, *b = &heap->head->b;
    size_t bytes = sizeof heap->head->a;
    uint8_t is_equal;
    __asm__ volatile("cmpb %%al, %%al\n\trepe cmpsb\n\tsete %0" : "=q"(is_equal), "+D"(a), "+S"(b), "+c"(bytes) : : "cc", "memory");
    if (is_equal)
        found->a = found->b = 1;
    else
        load_plain(heap, found);
}

WAY void load_gather(struct fl_heap *heap, struct both *found) {
    static const long long INDEXES[4] = {0, 8, 0, 8};
    uint64_t four[4];
    __asm__ volatile("vpcmpeqd %%ymm2, %%ymm2, %%ymm2\n\tvmovdqu (%1), %%ymm1\n\tvpgatherqq %%ymm2, (%2,%%ymm1,8), %%ymm0\n\t"
                     "vmovdqu %%ymm0, (%0)\n\tvzeroupper"
                     :
                     : "r"(four), "r"(INDEXES), "r"(&heap->head->a)
                     : "xmm0", "xmm1", "xmm2", "memory");
    found->a = four[0], found->b = four[1];
}

__attribute__((target("avx2"))) WAY void load_gather_intrinsic(struct fl_heap *heap, struct both *found) {
    const long long *from = (const long long *)&heap->head->a;
    __m128i both = _mm_i64gather_epi64(from, _mm_set_epi64x(8, 0), 8);
    found->a = (uint64_t)_mm_extract_epi64(both, 0), found->b = (uint64_t)_mm_extract_epi64(both, 1);
}

WAY void load_avx(struct fl_heap *heap, struct both *found) {
    __asm__ volatile("vmovdqu %1, %%ymm0\n\tvmovdqu %%ymm0, %0\n\tvzeroupper"
                     : "=m"(*(char(*)[32]) & found->a)
                     : "m"(*(char(*)[32]) & heap->head->a)
                     : "xmm0");
    __asm__ volatile("vmovdqu %1, %%ymm0\n\tvmovdqu %%ymm0, %0\n\tvzeroupper"
                     : "=m"(*(char(*)[32]) & found->b)
                     : "m"(*(char(*)[32]) & heap->head->b)
                     : "xmm0");
}

/* A comparison that fails is a load. */
WAY void load_cmpxchg16b(struct fl_heap *heap, struct both *found) {
    uint64_t *words[] = {&heap->head->a, &heap->head->b};
    uint64_t values[2];
    for (int i = 0; i < 2; i++) {
        uint64_t low = ~0ul, high = ~0ul;
        __asm__ volatile("lock cmpxchg16b %2"
                         : "+a"(low), "+d"(high), "+m"(*(unsigned __int128 *)(void *)words[i])
                         : "b"(0ul), "c"(0ul)
                         : "cc", "memory");
        values[i] = low;
    }
    found->a = values[0], found->b = values[1];
}

WAY void load_xadd(struct fl_heap *heap, struct both *found) {
    found->a = __atomic_fetch_add(&heap->head->a, 0, __ATOMIC_SEQ_CST);
    found->b = __atomic_fetch_add(&heap->head->b, 0, __ATOMIC_SEQ_CST);
}

WAY void load_alias(struct fl_heap *heap, struct both *found) {
    found->a = *(volatile uint64_t *)&heap->alias->a;
    found->b = *(volatile uint64_t *)&heap->alias->b;
}

/* ---- libraries ---- */

WAY void load_memcpy(struct fl_heap *heap, struct both *found) {
    volatile size_t bytes = sizeof *found;
    memcpy(found, &heap->head->a, bytes);
}

WAY void load_memcpy_pointer(struct fl_heap *heap, struct both *found) {
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    copy(found, &heap->head->a, sizeof *found);
}

/* As load_cmpsb. */
WAY void load_memcmp(struct fl_heap *heap, struct both *found) {
    volatile size_t bytes = sizeof heap->head->a;
    if (memcmp(&heap->head->a, &heap->head->b, bytes) == 0)
        found->a = found->b = 1;
    else
        load_plain(heap, found);
}

WAY void load_printf(struct fl_heap *heap, struct both *found) {
    char a[9] = {0}, b[9] = {0};
    snprintf(a, sizeof a, "%.8s", (const char *)&heap->head->a);
    snprintf(b, sizeof b, "%.8s", (const char *)&heap->head->b);
    memcpy(&found->a, a, 8);
    memcpy(&found->b, b, 8);
}

/* The C library loads both by a callback's pointers; the callback does not look. */
static int is_before(const void *left, const void *right) { return memcmp(left, right, 8); }
WAY void load_bsearch(struct fl_heap *heap, struct both *found) {
    if (bsearch(&heap->head->b, &heap->head->a, 1, 8, is_before) != NULL)
        found->a = found->b = 1;
    else
        load_plain(heap, found);
}

#ifdef WITH_ZLIB
/* As load_cmpsb. */
WAY void load_zlib(struct fl_heap *heap, struct both *found) {
    if (crc32(0, (const Bytef *)&heap->head->a, 8) == crc32(0, (const Bytef *)&heap->head->b, 8))
        found->a = found->b = 1;
    else
        load_plain(heap, found);
}

#ifdef WITH_LOOK_UP
/* The same function, that was looked up when the library was loaded. */
static uLong (*crc32_by_name)(uLong before, const Bytef *bytes, uInt count);

__attribute__((constructor)) static void look_up(void) {
    void *library = dlopen("libz.so.1", RTLD_NOW);
    must(library != NULL);
    *(void **)&crc32_by_name = dlsym(library, "crc32");
}

WAY void load_by_name(struct fl_heap *heap, struct both *found) {
    if (crc32_by_name(0, (const Bytef *)&heap->head->a, 8) == crc32_by_name(0, (const Bytef *)&heap->head->b, 8))
        found->a = found->b = 1;
    else
        load_plain(heap, found);
}
#endif
#endif

/* ---- system calls that read the file ---- */

WAY void load_pread(struct fl_heap *heap, struct both *found) {
    must(pread(heap->fd, found, sizeof *found, offsetof(struct head, a)) == sizeof *found);
}

WAY void load_preadv(struct fl_heap *heap, struct both *found) {
    struct iovec lines[] = {{&found->a, LINE_BYTES}, {&found->b, LINE_BYTES}};
    must(preadv(heap->fd, lines, 2, offsetof(struct head, a)) == sizeof *found);
}

WAY void load_read(struct fl_heap *heap, struct both *found) {
    must(lseek(heap->fd, offsetof(struct head, a), SEEK_SET) >= 0 && read(heap->fd, found, sizeof *found) == sizeof *found);
}

WAY void load_second_descriptor(struct fl_heap *heap, struct both *found) {
    int fd = open(heap->path, O_RDONLY);
    must(fd >= 0 && pread(fd, found, sizeof *found, offsetof(struct head, a)) == sizeof *found);
    close(fd);
}

WAY void load_stream(struct fl_heap *heap, struct both *found) {
    FILE *file = fopen(heap->path, "rb");
    must(file != NULL && fseek(file, offsetof(struct head, a), SEEK_SET) == 0 && fread(found, sizeof *found, 1, file) == 1);
    fclose(file);
}

WAY void load_by_instruction(struct fl_heap *heap, struct both *found) {
    register off_t offset __asm__("r10") = offsetof(struct head, a);
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"((long)SYS_pread64), "D"((long)heap->fd), "S"(found), "d"(sizeof *found), "r"(offset)
                     : "rcx", "r11", "memory");
    must(answer == sizeof *found);
}

/* ---- system calls that read mapped memory ---- */

WAY void load_pipe(struct fl_heap *heap, struct both *found) {
    int ends[2];
    must(pipe(ends) == 0 && write(ends[1], &heap->head->a, sizeof *found) == sizeof *found);
    must(read(ends[0], found, sizeof *found) == sizeof *found);
    close(ends[0]);
    close(ends[1]);
}

WAY void load_vm_readv(struct fl_heap *heap, struct both *found) {
    struct iovec from = {&heap->head->a, sizeof *found}, to = {found, sizeof *found};
    must(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof *found);
}

WAY void load_vm_writev(struct fl_heap *heap, struct both *found) {
    struct iovec from = {&heap->head->a, sizeof *found}, to = {found, sizeof *found};
    must(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof *found);
}

/* The kernel copies from file to pipe. */
WAY void load_sendfile(struct fl_heap *heap, struct both *found) {
    int ends[2];
    off_t offset = offsetof(struct head, a);
    must(pipe(ends) == 0 && sendfile(ends[1], heap->fd, &offset, sizeof *found) == sizeof *found);
    must(read(ends[0], found, sizeof *found) == sizeof *found);
    close(ends[0]);
    close(ends[1]);
}

/* ---- other threads of control ---- */

static struct fl_heap *looked_at;
static struct both *to_fill;

static void look(int number) {
    (void)number;
    load_plain(looked_at, to_fill);
}

WAY void load_signal(struct fl_heap *heap, struct both *found) {
    looked_at = heap, to_fill = found;
    must(signal(SIGUSR1, look) != SIG_ERR && raise(SIGUSR1) == 0);
}

WAY void *look_in_thread(void *nothing) {
    look(0);
    return nothing;
}

WAY void load_thread(struct fl_heap *heap, struct both *found) {
    looked_at = heap, to_fill = found;
    in_thread(look_in_thread, NULL);
}

WAY void load_child(struct fl_heap *heap, struct both *found) {
    int ends[2], how;
    must(pipe(ends) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        struct both seen = {0};
        load_plain(heap, &seen);
        _exit(write(ends[1], &seen, sizeof seen) != sizeof seen);
    }
    must(read(ends[0], found, sizeof *found) == sizeof *found && waitpid(child, &how, 0) == child && how == 0);
    close(ends[0]);
    close(ends[1]);
}

/* ---- processes that the C library's fork did not start, and other programs in the place of this one ---- */

static int look_and_tell(void *end) {
    struct both seen = {0};
    load_plain(looked_at, &seen);
    _exit(write(*(const int *)end, &seen, sizeof seen) != sizeof seen);
}

/* start: as fork does, or with look_and_tell and &ends[1] as what the process does. */
#define BY_PROCESS(name, start)                                                                                                    \
    WAY void load_##name(struct fl_heap *heap, struct both *found) {                                                               \
        int ends[2], how;                                                                                                          \
        looked_at = heap;                                                                                                          \
        must(pipe(ends) == 0);                                                                                                     \
        pid_t child = (pid_t)(start);                                                                                              \
        if (child == 0)                                                                                                            \
            look_and_tell(&ends[1]);                                                                                               \
        must(child > 0 && read(ends[0], found, sizeof *found) == sizeof *found);                                                   \
        must(waitpid(child, &how, 0) == child && how == 0);                                                                        \
        close(ends[0]);                                                                                                            \
        close(ends[1]);                                                                                                            \
    }

static char clone_stack[1u << 16] __attribute__((aligned(16)));
#define CLONE_STACK (clone_stack + sizeof clone_stack)
static struct clone_args clone_arguments = {.exit_signal = SIGCHLD};

static long clone_by_instruction(void) {
    register long no_child __asm__("r10") = 0, no_thread_locals __asm__("r8") = 0;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"((long)SYS_clone), "D"((long)SIGCHLD), "S"(0l), "d"(0l), "r"(no_child), "r"(no_thread_locals)
                     : "rcx", "r11", "memory");
    return answer;
}

BY_PROCESS(bare_fork, _Fork())
BY_PROCESS(clone, clone(look_and_tell, CLONE_STACK, SIGCHLD, &ends[1]))
BY_PROCESS(clone_shared, clone(look_and_tell, CLONE_STACK, CLONE_VM | SIGCHLD, &ends[1]))
BY_PROCESS(clone_number, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
BY_PROCESS(clone3_number, syscall(SYS_clone3, &clone_arguments, sizeof clone_arguments))
BY_PROCESS(clone_instruction, clone_by_instruction())

/* The life ends there, as if it had called exit. */
WAY void load_then_exec(struct fl_heap *heap, struct both *found) {
    load_plain(heap, found);
    if (found->b > found->a)
        execl("/bin/true", "true", (char *)NULL);
}

WAY void load_then_exec_number(struct fl_heap *heap, struct both *found) {
    char *const arguments[] = {"true", NULL};
    load_plain(heap, found);
    if (found->b > found->a)
        syscall(SYS_execve, "/bin/true", arguments, NULL);
}

WAY void load_exec(struct fl_heap *heap, struct both *found) {
    load_plain(heap, found);
    execl("/bin/true", "true", (char *)NULL);
}

/* The first touch of the head's OS page is a fault; the handler gives the page back, and the load is repeated. */
static void give_back(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    if (mprotect(os_page_of(info->si_addr), OS_PAGE_BYTES, PROT_READ | PROT_WRITE) != 0)
        _exit(1);
}

WAY void load_faulting(struct fl_heap *heap, struct both *found) {
    struct sigaction action = {.sa_sigaction = give_back, .sa_flags = SA_SIGINFO}, before;
    must(sigaction(SIGSEGV, &action, &before) == 0 && mprotect(heap->head, OS_PAGE_BYTES, PROT_NONE) == 0);
    load_plain(heap, found);
    must(sigaction(SIGSEGV, &before, NULL) == 0);
}

/* The same, but the handler does not come back. */
static sigjmp_buf out_of_fault;
static void jump_out(int number) {
    (void)number;
    siglongjmp(out_of_fault, 1);
}

WAY void load_jumping(struct fl_heap *heap, struct both *found) {
    struct sigaction action = {.sa_handler = jump_out}, before;
    must(sigaction(SIGSEGV, &action, &before) == 0 && mprotect(heap->head, OS_PAGE_BYTES, PROT_NONE) == 0);
    if (sigsetjmp(out_of_fault, 1) == 0) {
        load_plain(heap, found);
    } else {
        must(mprotect(heap->head, OS_PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
        load_plain(heap, found);
    }
    must(sigaction(SIGSEGV, &before, NULL) == 0);
}

#endif
