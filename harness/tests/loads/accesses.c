/* SPDX-License-Identifier: Apache-2.0
 *
 * A target that makes one kind of access to its heap, for tests of the hooks. The heap is one file of 16 OS pages; FL_ACCESS in
 * the environment says which access check() makes, and the first allocation of a follow-up (protocol.h). `at` is byte 4096 of the heap, which holds bytes 1, 2, 3, ... in the tests.
 */
#include "adapter.h"
#include "persist.h"
#include "protocol.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEAP_BYTES 65536u

static uint8_t *heap;
static uint8_t *at;
static int fd;
static volatile uint64_t sink;
static uint8_t volatile_memory[512];

struct bits {
    uint64_t low : 20, middle : 30, high : 14;
};
struct narrow_bits {
    uint32_t low : 3, high : 29;
};
struct wide {
    uint64_t words[7];
};
struct pair {
    uint64_t first, second;
};
typedef uint64_t vector __attribute__((vector_size(16)));
typedef uint64_t unaligned __attribute__((aligned(1), may_alias));

/* ---- loads ---- */
static void load1(void) { sink = at[3]; }
static void load8(void) { sink = *(uint64_t *)at; }
static void load_often(void) {
    for (int i = 0; i < 20000; i++)
        load8();
}
/* What the guard had opened is closed again by each mapping. */
static void load_between_mappings(void) {
    for (int i = 0; i < 100; i++) {
        load8();
        munmap(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), 4096);
    }
}
static void load16(void) {
    vector value = *(vector *)(at + 16);
    sink = value[0] + value[1];
}
static void load_across_units(void) { sink = *(unaligned *)(at + 4); }
static void load_across_lines(void) { sink = *(unaligned *)(at + 60); }
static void load_one_bit(void) { sink = (*(volatile uint64_t *)at & 0x80) != 0; }
static void load_bit_field(void) { sink = ((struct bits *)at)->middle; }
static void assign_structure(void) { *(struct wide *)volatile_memory = *(struct wide *)(at + 8); }
static void assign_structure_to_itself(void) {
    struct wide *volatile twin = (struct wide *)at;
    *(struct wide *)at = *twin;
}
static void assign_pair(void) { *(struct pair *)volatile_memory = *(struct pair *)(at + 8); }
static void copy_constant(void) { memcpy(volatile_memory, at, 24); }
static void copy_variable(void) { memcpy(volatile_memory, at + 5, (size_t)atoi("13")); }
static void copy_nothing(void) { memcpy(volatile_memory, at, (size_t)atoi("0")); }
static void move_overlapping(void) { memmove(at + 8, at, 40); }
static void compare_until_difference(void) {
    memcpy(volatile_memory, "\1\2\3\4\5\6\7\10\11\0", 10);
    sink = (uint64_t)memcmp(at, volatile_memory, 64);
}
static void compare_strings(void) { sink = (uint64_t)strcmp((char *)at, "\1\2\3\4\5\6\7\10\11\12x"); }
static void string_length(void) { sink = strlen((char *)at + 240); }
static void string_copy(void) { strcpy((char *)volatile_memory, (char *)at + 240); }
static void find_byte(void) { sink = (uint64_t)memchr(at, 20, 200); }
static int order(const void *left, const void *right) { return *(const uint8_t *)left - *(const uint8_t *)right; }
static void sort(void) { qsort(at, 32, 1, order); }
static void atomic_load(void) { sink = __atomic_load_n((uint64_t *)at, __ATOMIC_ACQUIRE); }
static void atomic_load4(void) { sink = __atomic_load_n((uint32_t *)(at + 4), __ATOMIC_RELAXED); }
static void atomic_exchange(void) { sink = __atomic_exchange_n((uint64_t *)at, 1, __ATOMIC_SEQ_CST); }
static void atomic_add(void) { sink = __atomic_fetch_add((uint64_t *)at, 1, __ATOMIC_SEQ_CST); }
static void atomic_or1(void) { sink = __atomic_fetch_or(at + 9, 1, __ATOMIC_SEQ_CST); }
static void failed_exchange(void) {
    uint64_t expected = 0;
    sink = __atomic_compare_exchange_n((uint64_t *)at, &expected, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static void old_builtin(void) { sink = __sync_val_compare_and_swap((uint32_t *)at, 0, 1); }
static void kernel_reads(void) {
    int out = open("/dev/null", O_WRONLY);
    sink = (uint64_t)write(out, at, 20);
    struct iovec parts[] = {{at + 64, 8}, {at + 128, 9}};
    sink = (uint64_t)writev(out, parts, 2);
    close(out);
}
static void file_read_64(void) { sink = (uint64_t)pread64(fd, volatile_memory, 20, 4100); }
static void file_read(void) { sink = (uint64_t)pread(fd, volatile_memory, 20, 4100); }
static void file_read_here(void) {
    lseek(fd, 4096 + 64, SEEK_SET);
    sink = (uint64_t)read(fd, volatile_memory, 8);
}
static void stream(void) {
    FILE *file = fdopen(dup(fd), "r");
    sink = (uint64_t)fgetc(file);
    fclose(file);
}
static void private_mapping(void) {
    uint8_t *twin = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    __atomic_store_n((uint64_t *)(twin + 4096), 1, __ATOMIC_SEQ_CST);
    sink = *(uint64_t *)at;
}
static void second_mapping(void) {
    uint8_t *twin = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    __atomic_store_n((uint64_t *)(twin + 4096), 1, __ATOMIC_SEQ_CST);
    sink = *(uint64_t *)at + *(uint64_t *)(twin + 4104);
}
static void mapped_again(void) {
    munmap(heap, HEAP_BYTES);
    heap = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    sink = *(uint64_t *)(heap + 8);
}
static void stored_and_mapped_again(void) {
    *(volatile uint64_t *)at = 7;
    mapped_again();
}
static void private_copy(void) { /* a change of names moves the mappings to a copy */
    char link[64], path[4096];
    struct stat info;
    *(volatile uint64_t *)at = 7;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 8);
    strcpy(path + length, ".new");
    close(open(path, O_CREAT | O_RDWR, 0600));
    sink = *(uint64_t *)(at + 8) + (uint64_t)stat(path, &info);
}

/* Of each name, in order, the unit of its first letter; of folders what is in them, too. */
static void load_names(const char *folder, DIR *listing) {
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        sink = *(uint64_t *)(at + 8 * (entry->d_name[0] - 'a'));
        char path[4096 + 256];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        DIR *below = entry->d_type == DT_DIR ? opendir(path) : NULL;
        if (below != NULL) {
            load_names(path, below);
            closedir(below);
        }
    }
}
static DIR *open_folder(char folder[4096]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    folder[readlink(link, folder, 4095)] = '\0';
    *strrchr(folder, '/') = '\0';
    return opendir(folder);
}
static void list_folder(void) {
    char folder[4096];
    DIR *listing = open_folder(folder);
    load_names(folder, listing);
    closedir(listing);
}
static void load_name(const char *name) {
    if (name[0] != '.')
        sink = *(uint64_t *)(at + 8 * (name[0] - 'a'));
}
static int is_shown(const struct dirent64 *entry) { return entry->d_name[0] != '.'; }
static void scan_folder(void) {
    char folder[4096];
    closedir(open_folder(folder));
    struct dirent64 **list;
    int count = scandir64(folder, &list, is_shown, alphasort64);
    for (int i = count; i-- > 0; free(list[i])) /* last one first */
        load_name(list[i]->d_name);
    if (count >= 0)
        free(list);
}
static void glob_folder(void) {
    char folder[4096];
    glob64_t found;
    closedir(open_folder(folder));
    strcat(folder, "/*");
    if (glob64(folder, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            load_name(strrchr(found.gl_pathv[i], '/') + 1);
    globfree64(&found);
}
static char walked[4096];
static int visit(const char *path, const struct stat64 *info, int kind, struct FTW *place) {
    size_t length = strlen(walked);
    bool is_there = stat64(path, (struct stat64 *)volatile_memory) == 0 && info->st_ino != 0 && (kind == FTW_D || kind == FTW_F);
    if (strncmp(path, walked, length) != 0 || !is_there)
        load_name("z");
    else if (place->level > 0)
        load_name(path + place->base);
    return 0;
}
static void walk_folder(void) {
    closedir(open_folder(walked));
    sink = (uint64_t)nftw64(walked, visit, 4, FTW_PHYS);
}
static void walk_by_fts(void) {
    closedir(open_folder(walked));
    char *names[] = {walked, NULL};
    sink = (uint64_t)(uintptr_t)fts_open(names, FTS_PHYSICAL, NULL);
}
static void list_after_change(void) {
    char folder[4096], path[4096 + 8];
    DIR *listing = open_folder(folder);
    long start = telldir(listing);
    snprintf(path, sizeof path, "%s/new", folder);
    close(open(path, O_CREAT | O_RDWR, 0600));
    load_names(folder, listing); /* as it was begun */
    seekdir(listing, start);
    load_names(folder, listing);
    sink = *(uint64_t *)(at + 8 * 25);
    rewinddir(listing);
    load_names(folder, listing);
    closedir(listing);
}
static void descriptor_of_listing(void) {
    char folder[4096];
    struct stat info;
    DIR *listing = open_folder(folder);
    sink = *(uint64_t *)(at + 8 * (uint64_t)fstatat(dirfd(listing), "heap", &info, 0));
    closedir(listing);
}

/* ---- stores ---- */
static void store1(void) { at[3] = 1; }
static void store8(void) { *(uint64_t *)at = 1; }
static void store_bit_field(void) { ((struct bits *)at)->middle = 3; }
static void store_in_order(void) {
    *(volatile uint64_t *)at = 1;
    *(volatile uint32_t *)(at + 64) = 2;
    *(volatile uint64_t *)at = 3;
}
static void store_then_lock(void) {
    static uint64_t elsewhere;
    *(volatile uint64_t *)at = 1;
    __atomic_fetch_add(&elsewhere, 1, __ATOMIC_SEQ_CST);
}
static void store_released(void) { __atomic_store_n((uint64_t *)at, 1, __ATOMIC_RELEASE); }
static void resize(void) {
    sink = (uint64_t)ftruncate(fd, 2 * HEAP_BYTES);
    sink = (uint64_t)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 64);
    sink = (uint64_t)fsync(fd);
}
static void write_file(void) { sink = (uint64_t)pwrite(fd, volatile_memory, 8, 4096); }
static void write_synced(void) {
    struct iovec part = {volatile_memory, 8};
    sink = (uint64_t)pwritev2(fd, &part, 1, 4096, RWF_DSYNC);
}
static void store_narrow_bit_field(void) { ((struct narrow_bits *)(at + 4))->low = 3; }
static void store_then_load(void) {
    __atomic_store_n((uint64_t *)at, 1, __ATOMIC_SEQ_CST);
    sink = *(uint64_t *)at;
}
static void store4_then_load(void) {
    __atomic_store_n((uint32_t *)at, 1, __ATOMIC_SEQ_CST);
    sink = *(uint64_t *)at;
}
static void set_then_load(void) {
    memset(at + 4, 0, 24);
    for (int i = 0; i < 4; i++)
        sink = ((volatile uint64_t *)at)[i];
}
static void copied_over(void) {
    memcpy(at, volatile_memory, 16);
    sink = *(uint64_t *)at + *(uint64_t *)(at + 8);
}

/* ---- instructions of its own ---- */
static void stream_store(void) { __builtin_ia32_movnti64((long long *)at, 1); }
static void own_flushes(void) {
    __asm__ volatile("clwb %0\n\tclflushopt %1\n\tclflush %2\n\tsfence\n\tmfence" : : "m"(at[0]), "m"(at[64]), "m"(at[128]));
}
static void own_store(void) {
    __asm__ volatile("movq $1, %0\n\tmovq $2, %0\n\tmovl $3, %1" : : "m"(*(uint64_t *)at), "m"(*(uint32_t *)(at + 64)) : "memory");
}
static void own_exchange(void) {
    uint64_t value = 1;
    __asm__ volatile("xchgq %0, %1" : "+r"(value), "+m"(*(uint64_t *)at));
}
static void own_compare_exchange(void) {
    uint64_t expected = *(uint64_t *)at, other = 0;
    __asm__ volatile("lock; cmpxchgq %2, %1" : "+a"(expected), "+m"(*(uint64_t *)at) : "r"(1ul) : "cc");
    __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(other), "+m"(*(uint64_t *)at) : "r"(2ul) : "cc");
}
static void own_wide_compare_exchange(void) {
    uint64_t low = ((uint64_t *)at)[2], high = ((uint64_t *)at)[3];
    __asm__ volatile("lock cmpxchg16b %2" : "+a"(low), "+d"(high), "+m"(*(vector *)(at + 16)) : "b"(1ul), "c"(2ul) : "cc");
}
static void own_copy(void) {
    const void *from = volatile_memory;
    void *to = at + 5;
    size_t bytes = 70;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
static void own_copy_from_pm(void) {
    const void *from = at + 5;
    void *to = volatile_memory;
    size_t bytes = 13;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
static void own_fill(void) {
    void *to = at;
    size_t words = 3;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(words) : "a"(7ul) : "memory");
}
static void own_search(void) {
    const void *in = at;
    size_t bytes = 200;
    __asm__ volatile("repne scasb" : "+D"(in), "+c"(bytes) : "a"(20) : "cc", "memory");
}
__attribute__((target("avx2"))) static void own_wide_store(void) {
    __asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0\n\tvmovdqu %%ymm0, %0" : "=m"(*(char(*)[32])(at + 40)) : : "xmm0");
}
static void lock_elsewhere(void) {
    static uint64_t elsewhere;
    __asm__ volatile("movq $1, %0\n\tlock incq %1" : "=m"(*(uint64_t *)at), "+m"(elsewhere) : : "cc", "memory");
}
__attribute__((target("cx16"))) static void wide_atomic(void) {
    typedef unsigned __int128 wide;
    sink = __sync_bool_compare_and_swap((wide *)(at + 16), *(wide *)(at + 16), 1);
}

/* ---- no hook: the guard's ---- */
static void assembly(void) {
    uint64_t value;
    __asm__ volatile("mov (%1), %0" : "=r"(value) : "r"(at) : "memory");
    sink = value;
}
static void take(struct wide wide) { sink = wide.words[3]; }
static void (*volatile taking)(struct wide wide) = take;
static void by_value(void) { taking(*(struct wide *)at); }
/* More of what gcc has no hooks for: it looks at assignments, and not at calls. */
static void take_pair(struct pair pair) { sink = pair.second; }
static void (*volatile taking_pair)(struct pair pair) = take_pair;
static void pair_by_value(void) { taking_pair(*(struct pair *)at); }
static struct pair make_pair(void) { return (struct pair){5, 6}; }
static struct pair (*volatile making_pair)(void) = make_pair;
static void store_result(void) { *(struct pair *)at = making_pair(); }
static struct wide make_wide(void) {
    struct wide wide;
    for (unsigned i = 0; i < 7; i++)
        wide.words[i] = i;
    return wide;
}
static struct wide (*volatile making_wide)(void) = make_wide;
static void store_large_result(void) { *(struct wide *)at = making_wide(); }
__attribute__((no_sanitize("thread"))) static void load_without_hook(void) { sink = *(volatile uint64_t *)at; }
__attribute__((no_sanitize("thread"))) static void store_without_hook(void) { *(volatile uint64_t *)at = 1; }
static void print(void) { sink = (uint64_t)snprintf((char *)volatile_memory, 300, "%s", (char *)at + 240); }
static void print_into(char *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, 300, format, arguments);
    va_end(arguments);
}
static void print_list(void) { print_into((char *)volatile_memory, "%d%d%s", 1, 2, (char *)at + 240); }
static void print_many(void) { snprintf((char *)volatile_memory, 300, "%d%d%d%d%d%s", 1, 2, 3, 4, 5, (char *)at + 240); }
static void print_other(void) {
    load8();
    print_into((char *)volatile_memory, "%d%s%f", 1, "nothing", 1.0);
    snprintf((char *)volatile_memory, 300, "%d%d%d%d%s%d", 1, 2, 3, 4, "nothing", 6);
    print_into((char *)volatile_memory, "%p is at %#-*.*llx, 100%%", (void *)at, 20, 10, 16ull); /* an address is no access */
}
static void lock_mutex(void) {
    sink = (uint64_t)pthread_mutex_lock((pthread_mutex_t *)(heap + 1024)); /* of zeros */
    sink = (uint64_t)pthread_mutex_unlock((pthread_mutex_t *)(heap + 1024));
}
static void lock_other_mutex(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    load8();
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}
static void random_bytes(void) { sink = (uint64_t)getrandom(at + 512, 0, 0); }
static uint64_t make_system_call(long number, uint64_t first, const void *second, uint64_t third, uint64_t fourth) {
    register uint64_t in_r10 __asm__("r10") = fourth;
    uint64_t answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(in_r10)
                     : "rcx", "r11", "memory");
    return answer;
}
static void system_call(void) { sink = make_system_call(17, (uint64_t)fd, volatile_memory, 8, 4096); }
static void harmless_system_call(void) {
    load8();
    sink = make_system_call(39, 0, NULL, 0, 0);
    sink = make_system_call(228, 0, volatile_memory, 0, 0);
}
/* Of two lanes, by indexes 0 and 1. */
static void gather(void) {
    static const uint64_t INDEXES[] = {0, 1};
    if (__builtin_cpu_supports("avx2"))
        __asm__ volatile("vpcmpeqd %%xmm2, %%xmm2, %%xmm2\n\tvmovdqu (%0), %%xmm1\n\tvpgatherqq %%xmm2, (%1,%%xmm1,8), %%xmm0"
                         :
                         : "r"(INDEXES), "r"(at)
                         : "xmm0", "xmm1", "xmm2", "memory");
}
static void save_state(void) { __asm__ volatile("xsave (%0)" : : "r"(heap + 2048), "a"(1), "d"(0) : "memory"); }
static void save_state_elsewhere(void) {
    load8();
    static uint8_t state[4096] __attribute__((aligned(64)));
    __asm__ volatile("xsave (%0)" : : "r"(state), "a"(1), "d"(0) : "memory");
}
static void call_library(void) {
    char *line = NULL;
    size_t bytes = 0;
    FILE *empty = tmpfile();
    sink = (uint64_t)getdelim(&line, &bytes, ';', empty);
    fclose(empty);
    free(line);
}
static void flush(void) { fl_persist(at, 128); }
#if defined(FL_HOOKED)
/* As the assembler announces a clwb (runner/hooks.h). */
static bool is_flush_executed(const void *address) {
    uint64_t is_executed = 2;
    __asm__ volatile("call *fl_hook_instruction@GOTPCREL(%%rip)" : "+c"(is_executed) : "D"(address), "S"(13 | 3 << 24) : "memory");
    return is_executed != 0;
}
/* The compiler's hook, and then an instruction that announces the same store: as where the assembler does not find out that it is one. */
static void store_announced_twice(void) {
    void *to = at;
    __asm__ volatile("movq %%rsp, %%r12\n\tleaq -256(%%rsp), %%rsp\n\tandq $-16, %%rsp\n\tcall *__tsan_write8@GOTPCREL(%%rip)\n\t"
                     "movq %%r12, %%rsp\n\tmovq $1, (%1)\n\tmovq $2, (%1)"
                     : "+D"(to)
                     : "b"(at)
                     : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3",
                       "xmm4", "xmm5", "xmm6", "xmm7");
}
static void ask_flush(void) {
    sink = *(uint64_t *)at;
    if (!is_flush_executed(at) && is_flush_executed(volatile_memory))
        abort();
}
#endif
static void flush_nothing(void) {
    sink = *(uint64_t *)at;
    fl_persist((const void *)(at - heap), 8);
}
static void flush_cut(void) {
    sink = *(uint64_t *)at;
    if (ftruncate(fd, 4096) == 0)
        fl_persist(heap + HEAP_BYTES - 64, 8);
}
static void *nothing(void *context) { return context; }
static void start_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
}
static void store_past_the_end(void) { /* up to 16 OS pages further, where the tester's memory may lie */
    for (size_t i = 0; i < HEAP_BYTES; i += 512)
        *(volatile uint8_t *)(heap + HEAP_BYTES + i) = 7;
}
static void load_past_the_end(void) { sink = *(volatile uint64_t *)(heap + HEAP_BYTES); }
static void load_before_the_start(void) { sink = *(volatile uint64_t *)(heap - 8); }
static void load_past_a_wish(void) {
    uint8_t *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = mmap(memory, 8192, PROT_READ, MAP_SHARED, fd, 0); /* a wish that is not granted */
    sink = *(volatile uint64_t *)(memory + 8192);
}
static void map_a_neighbour(void) { /* in the place of a guard page; then it is nobody's guard */
    uint8_t *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    uint8_t *neighbour = mmap(memory + 8192, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (neighbour != memory + 8192)
        abort();
    munmap(memory, 8192);
    neighbour[5]++;
    sink = *(uint64_t *)(at + 8 * neighbour[5]);
}
static int count_mappings(void) {
    char text[4096];
    int count = 0, maps = open("/proc/self/maps", O_RDONLY);
    for (ssize_t got; (got = read(maps, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            count += text[i] == '\n';
    close(maps);
    return count;
}
static void map_for_long(void) {
    int before = count_mappings();
    for (int i = 0; i < 100; i++)
        munmap(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), 4096);
    if (count_mappings() > before + 20)
        abort();
}
static void crash(void) {
    sink = *(uint64_t *)at;
    sink = *(volatile uint64_t *)(at - heap);
}

/* ---- what one life leaves to the next: lives 0, 1 and 3 recover the crash's bytes, 2 and 4 what 1 and 3 left ---- */
static bool is_first;

static void on_open(void) {
    uint64_t opened = __atomic_add_fetch((uint64_t *)at, 1, __ATOMIC_SEQ_CST);
    is_first = (opened & 0xff) == 2;
    if (is_first)
        __atomic_store_n((uint64_t *)(at + 8), 1, __ATOMIC_SEQ_CST);
    else
        sink = *(uint64_t *)(at + 8); /* life 1 and life 3 stored it */
}

static void lives(void) {
    if (is_first)
        __atomic_store_n((uint64_t *)(at + 16), 1, __ATOMIC_SEQ_CST);
    else
        sink = *(uint64_t *)(at + 16); /* life 1 makes no check: only lives 0 and 3 stored it */
}

/* ---- what the later stages of life 3 find, which open left, or check: drain asks for memory when both are over ---- */
static void leave_rest(void) {
    volatile uint64_t *units = (volatile uint64_t *)at;
    if (units[65] != 0) /* life 1 or 3 was here */
        return;
    units[65] = 1;
    __atomic_store_n((uint64_t *)(at + 8), 0, __ATOMIC_SEQ_CST);
    units[64] = units[0];
}

static void rest(void) {}
static void rest_of_check(void) { leave_rest(); }
/* Check leaves what the crash left, but life 1 makes no check, and life 2 reads it. */
static void open_before_check(void) {
    volatile uint64_t *units = (volatile uint64_t *)at;
    if (units[65] != 0) /* life 1 or 3 was here */
        sink = units[2];
    units[65] = 1;
}
static void rest_decided_by_check(void) { __atomic_store_n((uint64_t *)(at + 16), 7, __ATOMIC_SEQ_CST); }

static bool is_refused(void) {
    volatile uint64_t *units = (volatile uint64_t *)at;
    if (units[64] != 0)
        (void)units[5];
    (void)units[1];
    return units[2] == 7;
}

/* ---- the runner has a function of this name too ---- */
int fail(int status, const char *text);
int fail(int status, const char *text) { return status + (text == NULL); }
static void own_function(void) { sink = at[fail(8, "")]; }

/* ---- what a process of its own makes harmless ---- */

static uint64_t runs; /* that this process has seen */
static _Thread_local uint64_t thread_runs;
static uint64_t *allocated; /* when the library was loaded */

__attribute__((constructor)) static void allocate_one(void) { allocated = calloc(1, sizeof *allocated); }

/* Another word for each run that finds what the last one left. */
static void keep_global(void) { sink = *(uint64_t *)(at + 8 * runs++); }
static void keep_thread_local(void) { sink = *(uint64_t *)(at + 8 * thread_runs++); }
static void keep_much(void) { /* more than the engine clears by itself */
    static void *(*volatile get)(size_t, size_t) = calloc;
    uint8_t *much = get(1, 8u << 20);
    if (much[7u << 20] != 0)
        load8();
    memset(much, 1, 8u << 20);
}
static void keep_allocated(void) { sink = *(uint64_t *)(at + 8 * (*allocated)++); }
static void keep_garbage(void) {
    static void *(*volatile get)(size_t) = malloc;
    static const uint64_t left = 0x6c65667400000001;
    uint64_t *memory = get(64); /* an isolated run may find in it what its server freed */
    sink = *(uint64_t *)(at + 8 * (memory[3] == left));
    memory[3] = left;
}
static void keep_mapping(void) {
    uint64_t *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sink = *(uint64_t *)(at + 8 * memory[1]++);
}
static void keep_key(void) {
    static pthread_key_t key;
    pthread_key_create(&key, NULL);
    sink = *(uint64_t *)(at + 8 * key);
    pthread_setspecific(key, at);
}
static void keep_descriptor(void) { sink = *(uint64_t *)(at + 8 * (uint64_t)(open("/dev/null", O_RDONLY) - fd)); }
static void use_unmapped(void) {
    uint64_t *other = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096);
    sink = *other;
    munmap(other, 4096);
    sink = *(volatile uint64_t *)other;
}
static void store_unmapped(void) { /* a whole word, of which nothing is loaded */
    uint64_t *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 4096);
    sink = *other;
    munmap(other, 4096);
    __atomic_store_n(other, 1, __ATOMIC_RELEASE);
}
static void use_unmapped_memory(void) {
    uint64_t *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sink = *(volatile uint64_t *)other;
    munmap(other, 4096);
    sink = *(volatile uint64_t *)other;
}
static void fail_in_a_worker(void) { /* whose memory lies elsewhere */
    if ((uintptr_t)malloc(16) >> 44 == 7)
        abort();
}
static void fail_the_second_time(void) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (name[0] == '@')
        abort();
    prctl(PR_SET_NAME, "@");
}
static void free_twice(void) {
    void *memory = malloc(100);
    free(memory);
    free(memory);
}
static void grow(void) {
    if (posix_fallocate(fd, 0, 2 * HEAP_BYTES) == 0) {
        uint64_t *more = mmap(NULL, 2 * HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        sink = more[HEAP_BYTES / 8];
        more[HEAP_BYTES / 8] = 7;
        more[512] = 7;
    }
}

/* ---- what changes files: each shows by the units that it loads what it met, and what it sees of what it did ---- */

static char folder_path[4096];
static const char *in_folder(const char *name) {
    static char paths[2][8192];
    static unsigned next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", folder_path, name);
    return path;
}

static void stream_of_what_was_stored(void) {
    *(volatile uint64_t *)(at + 8) = 5;
    FILE *file = fopen(in_folder("heap"), "r");
    fseek(file, 4096 + 8, SEEK_SET);
    uint64_t word = 0;
    if (fread(&word, sizeof word, 1, file) != 1 || word != 5)
        abort();
    fclose(file);
}
static void stream_left_open(void) { sink = fopen(in_folder("heap"), "r") == NULL; }
static void open_folder_to_write(void) {
    if (open(folder_path, O_RDWR) >= 0 || errno != EISDIR)
        abort();
}
static void show(unsigned place, uint64_t seen) { sink = *(uint64_t *)(at + 512 + 512 * place + 8 * (seen % 64)); }
static uint64_t bytes_of(const char *name) {
    struct stat info;
    return stat(in_folder(name), &info) == 0 ? (uint64_t)info.st_size % 64 + (uint64_t)info.st_size / 4096 : 63;
}
static uint64_t first_of(const char *name) {
    uint8_t byte = 62;
    int file = open(in_folder(name), O_RDONLY);
    if (file < 0 || pread(file, &byte, 1, 0) < 0)
        return 63;
    close(file);
    return byte;
}
static void put(const char *name, int flags, uint8_t byte, off_t offset) {
    int file = open(in_folder(name), O_RDWR | flags, 0600);
    show(0, (uint64_t)(file >= 0 && pwrite(file, &byte, 1, offset) == 1));
    if (file >= 0)
        close(file);
}
static void list_all(void) {
    char folder[4096];
    DIR *listing = open_folder(folder);
    load_names(folder, listing);
    closedir(listing);
}
static void make_file(void) {
    show(1, bytes_of("new"));
    int made = open(in_folder("new"), O_CREAT | O_EXCL | O_RDWR, 0600);
    if (made < 0 || posix_fallocate(made, 0, 8192) != 0)
        return;
    uint8_t *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    close(made);
    show(2, memory[4096]);
    memory[4096] = 7;
    put("new", 0, 5, 1);
    show(3, memory[1]);
    show(4, memory[4096]);
    munmap(memory, 8192);
    show(5, (uint64_t)truncate(in_folder("new"), 5 * 4096));
    show(6, bytes_of("new"));
    list_all();
}
static void remove_file(void) {
    show(7, first_of("b"));
    int old = open(in_folder("b"), O_RDWR);
    show(8, (uint64_t)(old >= 0 && unlink(in_folder("b")) == 0));
    show(9, first_of("b"));
    show(10, (uint64_t)(unlink(in_folder("b")) != 0));
    list_all();
    put("b", O_CREAT, 9, 0);
    show(11, first_of("b"));
    show(12, old >= 0 && pread(old, volatile_memory, 1, 0) == 1 ? volatile_memory[0] : 63);
    unlink(in_folder("b"));
    put("b", O_CREAT | O_EXCL, 10, 4096);
    show(13, bytes_of("b"));
}
static void rename_files(void) {
    show(14, (uint64_t)(rename(in_folder("b"), in_folder("c")) == 0));
    show(15, first_of("c"));
    show(16, first_of("b"));
    put("made", O_CREAT, 11, 0);
    show(17, (uint64_t)(rename(in_folder("made"), in_folder("d")) == 0));
    show(18, first_of("d"));
    rename(in_folder("c"), in_folder("other"));
    rename(in_folder("other"), in_folder("b"));
    show(19, first_of("b"));
    show(20, (uint64_t)(renameat2(AT_FDCWD, in_folder("b"), AT_FDCWD, in_folder("d"), RENAME_NOREPLACE) != 0));
    show(21, (uint64_t)(rename(in_folder("c"), in_folder("d")) != 0));
    list_all();
}
static void cut_files(void) {
    show(22, at[32768 + 200]);
    show(23, (uint64_t)ftruncate(fd, 4096 + 32768 + 100));
    show(24, bytes_of("heap"));
    show(25, (uint64_t)ftruncate(fd, HEAP_BYTES + 4096));
    show(26, bytes_of("heap"));
    show(27, at[32768 + 200]++);
    show(28, (uint64_t)truncate(in_folder("b"), 1));
    show(29, bytes_of("b"));
    int emptied = open(in_folder("c"), O_RDWR | O_TRUNC);
    show(30, bytes_of("c"));
    if (emptied >= 0)
        close(emptied);
    put("c", O_CREAT | O_TRUNC, 12, 3);
    show(31, bytes_of("c"));
    show(44, (uint64_t)ftruncate(fd, 32768));
    put("heap", 0, 1, 12 * 4096 + 1); /* in a hole of the image */
    put("heap", 0, 1, HEAP_BYTES);
    show(45, at[11 * 4096 + 1]++);
}
static void punch_file(void) {
    show(32, at[4104]);
    show(33, (uint64_t)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192 + 8, 8192));
    show(34, at[4104]++);
    show(35, (uint64_t)fallocate(fd, FALLOC_FL_KEEP_SIZE, 8192, 4 * HEAP_BYTES));
    show(36, bytes_of("heap"));
}
static void write_files(void) {
    struct iovec parts[] = {{"\7", 1}, {"\10\11", 2}};
    show(37, at[5000]);
    show(38, (uint64_t)pwrite(fd, "\6", 1, 4096 + 5000));
    show(39, at[5000]);
    lseek(fd, 4096 + 5100, SEEK_SET);
    show(40, at[5102]);
    show(41, (uint64_t)writev(fd, parts, 2));
    show(42, at[5102]);
    put("b", 0, 13, 5000);
    show(43, bytes_of("b"));
}
static void change_all(void) {
    make_file();
    remove_file();
    rename_files();
    cut_files();
    punch_file();
    write_files();
    list_all();
}
static uint64_t state; /* of the next number; xorshift */
static uint64_t below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}
static void map_and_store(const char *name, off_t offset) {
    struct stat info;
    int file = open(in_folder(name), O_RDWR);
    if (file < 0)
        return;
    uint8_t *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (fstat(file, &info) == 0 && offset < info.st_size)
        show(47, memory[offset]++);
    close(file);
    if (below(2) == 0)
        munmap(memory, 65536);
}
static void punch(const char *name, off_t offset, off_t bytes) {
    int file = open(in_folder(name), O_RDWR);
    if (file < 0)
        return;
    show(48, (uint64_t)(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) == 0));
    close(file);
}
/* FL_SEED and the heap's first byte choose forty. */
static void change_by_chance(void) {
    static const char *const NAMES[] = {"b", "c", "d", "e", "f", "heap"};
    static const int FLAGS[] = {0, O_CREAT, O_CREAT | O_EXCL, O_CREAT | O_TRUNC, O_TRUNC};
    state = (strtoull(getenv("FL_SEED"), NULL, 10) * 256 + heap[0]) * 2654435761u + 1;
    for (int i = 0; i < 40; i++) {
        const char *name = NAMES[below(5)], *other = NAMES[below(5)], *any = NAMES[below(6)];
        uint64_t choice = below(8), bytes = 1 + below(20000);
        off_t offset = (off_t)below(20000);
        switch (choice) {
        case 0: put(any, FLAGS[below(name == any ? 5 : 2)], (uint8_t)bytes, offset); break;
        case 1: put(name, FLAGS[below(5)], (uint8_t)bytes, offset); break;
        case 2: show(48, (uint64_t)(unlink(in_folder(name)) == 0)); break;
        case 3: show(49, (uint64_t)(rename(in_folder(name), in_folder(other)) == 0)); break;
        case 4: show(50, (uint64_t)(truncate(in_folder(name), (off_t)bytes) == 0)); break;
        case 5: punch(any, offset, (off_t)bytes); break;
        case 6: map_and_store(any, offset); break;
        case 7: list_all(); break;
        }
        show(51 + below(2), bytes_of(name) + 7 * first_of(other));
    }
}
static void change_all_and_crash(void) {
    change_all();
    abort();
}
static void change_all_and_leave(void) {
    change_all();
    setenv("FL_LEFT", "1", 1);
}
static void make_folder(void) { show(1, (uint64_t)(mkdir(in_folder("folder"), 0700) == 0 && rmdir(in_folder("folder")) == 0)); }
static void make_link(void) { show(1, (uint64_t)(link(in_folder("heap"), in_folder("other")) == 0)); }

static void leave_environment(void) {
    sink = *(uint64_t *)(at + (getenv("FL_LEFT") != NULL ? 8 : 0));
    setenv("FL_LEFT", "1", 1);
}
static void leave_library(void) { sink = *(uint64_t *)(at + 8 * (lrand48() & 255)); }
static void leave_file(void) { sink = *(uint64_t *)(at + 8 * (uint64_t)(pwrite(fd, "x", 1, 0) == 1 && heap[0] != 'x')); }
static uint64_t locks(int descriptor, int operation) { return (uint64_t)(flock(descriptor, operation) == 0); }
static void lock_file(void) {
    bool is_shared = locks(fd, LOCK_SH | LOCK_NB), is_own = locks(fd, LOCK_EX | LOCK_NB);
    sink = *(uint64_t *)(at + 8 * (4 * is_shared + 2 * is_own + locks(fd, LOCK_UN)));
    flock(fd, LOCK_EX);
}
static void lock_twice(void) {
    flock(fd, LOCK_EX | LOCK_NB);
    int other = open(in_folder("heap"), O_RDWR);
    sink = *(uint64_t *)(at + 8 * locks(other, LOCK_EX | LOCK_NB));
    close(other);
}
static void lock_other(void) {
    int other = open(in_folder("other"), O_CREAT | O_RDWR, 0600);
    sink = *(uint64_t *)(at + 8 * locks(other, LOCK_EX | LOCK_NB));
    close(other);
}
static void exit_now(void) { exit(0); }
static void abort_now(void) { abort(); }
static void divide(void) {
    volatile int zero = at[0] - 1;
    sink = (uint64_t)(7 / zero);
}
static void trap(void) {
    sink = at[0];
    __builtin_trap();
}
static void load_cut(void) {
    if (ftruncate(fd, 4096) != 0)
        return;
    sink = *(volatile uint64_t *)(heap + HEAP_BYTES - 64);
}
static void follow_content(void) {
    *(volatile uint64_t *)at = 0xF1ED000001000001ull;
    sink = **(uint64_t *volatile *)at;
}
static void load_nowhere(void) { sink = *(volatile uint64_t *)0x123456789000; }
static void crash_if_asked(void) {
    if (heap[0] == 1)
        sink = *(volatile uint64_t *)(at - heap);
}
static void load_for_ever(void) {
    for (;;)
        sink = at[0];
}
static void loop_for_ever(void) {
    for (volatile int i = 0;; i++)
        continue;
}
static void overflow_stack(void) {
    volatile uint8_t frame[4096];
    frame[0] = at[1];
    if (frame[0] != 0)
        overflow_stack();
    sink = frame[0];
}
static void store_assembly(void) { __asm__ volatile("movq $9, (%0)" : : "r"(at) : "memory"); }
/* Code that no assembler made: a target that compiles, say. */
static void (*store_by_made_code)(uint8_t *memory);
static uint64_t (*load_by_made_code)(const uint8_t *memory);
__attribute__((constructor)) static void make_code(void) {
    static const uint8_t STORE[] = {0x48, 0xc7, 0x07, 9, 0, 0, 0, 0xc3}; /* movq $9, (%rdi); ret */
    static const uint8_t LOAD[] = {0x48, 0x8b, 0x07, 0xc3}; /* movq (%rdi), %rax; ret */
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, STORE, sizeof STORE);
    memcpy(&store_by_made_code, &code, sizeof code);
    code = (char *)code + sizeof STORE;
    memcpy(code, LOAD, sizeof LOAD);
    memcpy(&load_by_made_code, &code, sizeof code);
}
static void store_made(void) { store_by_made_code(at); }
static void load_made(void) { sink = load_by_made_code(at); }
/* Only once the heap's first byte says so. */
static void store_made_later(void) {
    if (heap[0] != 0)
        store_made();
}
/* The next two only while the heap's first byte says so. */
static void map_often(void) {
    for (int i = 0; i < 65 && heap[0] != 0; i++)
        mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    load8();
}
static void overwrite_list(void) {
    char line[512];
    unsigned long start, end;
    load8();
    FILE *maps = fopen("/proc/self/maps", "r");
    while (heap[0] != 0 && fgets(line, sizeof line, maps) != NULL) /* the list has room for 2^20 loads of 24 bytes */
        if (sscanf(line, "%lx-%lx rw-s", &start, &end) == 2 && strstr(line, "rw-s") && (end - start) >> 20 == 24)
            memset((uint8_t *)start + 32, 0xff, 24);
    fclose(maps);
}
static void overwrite_hot(void) {
    char line[512];
    unsigned long start, end;
    load8();
    FILE *maps = fopen("/proc/self/maps", "r");
    while (heap[0] != 0 && fgets(line, sizeof line, maps) != NULL) /* of 2^29 units a bit each, and files and parts */
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && strstr(line, "r--s") && (end - start) >> 20 == 66)
            memset((uint8_t *)start, 0, 16);
    fclose(maps);
}
static void update_all(void) {
    for (unsigned i = 0; i < 8; i++)
        __atomic_fetch_add((uint64_t *)at + 8 * i, 1, __ATOMIC_SEQ_CST);
    uint64_t expected = *(uint64_t *)(at + 1024);
    __atomic_compare_exchange_n((uint64_t *)(at + 1024), &expected, 5, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __atomic_exchange_n((uint64_t *)(at + 1032), 5, __ATOMIC_SEQ_CST);
    memset(at + 2000, 1, 100);
    at[3000] = 9;
    sort();
    sink = (uint64_t)pread(fd, at + 3500, 64, 0);
}

#define ACCESS(name) {#name, name}
static const struct {
    const char *name;
    void (*make)(void);
} ACCESSES[] = {
    ACCESS(load1),
    ACCESS(load8),
    ACCESS(load_often),
    ACCESS(load_between_mappings),
    ACCESS(load16),
    ACCESS(load_across_units),
    ACCESS(load_across_lines),
    ACCESS(load_one_bit),
    ACCESS(load_bit_field),
    ACCESS(assign_structure),
    ACCESS(assign_structure_to_itself),
    ACCESS(assign_pair),
    ACCESS(copy_constant),
    ACCESS(copy_variable),
    ACCESS(copy_nothing),
    ACCESS(move_overlapping),
    ACCESS(compare_until_difference),
    ACCESS(compare_strings),
    ACCESS(string_length),
    ACCESS(string_copy),
    ACCESS(find_byte),
    ACCESS(sort),
    ACCESS(atomic_load),
    ACCESS(atomic_load4),
    ACCESS(atomic_exchange),
    ACCESS(atomic_add),
    ACCESS(atomic_or1),
    ACCESS(failed_exchange),
    ACCESS(old_builtin),
    ACCESS(kernel_reads),
    ACCESS(file_read),
    ACCESS(file_read_64),
    ACCESS(file_read_here),
    ACCESS(stream),
    ACCESS(stream_of_what_was_stored),
    ACCESS(stream_left_open),
    ACCESS(open_folder_to_write),
    ACCESS(private_mapping),
    ACCESS(second_mapping),
    ACCESS(mapped_again),
    ACCESS(stored_and_mapped_again),
    ACCESS(private_copy),
    ACCESS(list_folder),
    ACCESS(scan_folder),
    ACCESS(glob_folder),
    ACCESS(walk_folder),
    ACCESS(walk_by_fts),
    ACCESS(list_after_change),
    ACCESS(descriptor_of_listing),
    ACCESS(store1),
    ACCESS(store8),
    ACCESS(store_bit_field),
    ACCESS(store_in_order),
    ACCESS(store_then_lock),
    ACCESS(store_released),
    ACCESS(resize),
    ACCESS(write_file),
    ACCESS(write_synced),
    ACCESS(store_narrow_bit_field),
    ACCESS(store_then_load),
    ACCESS(store4_then_load),
    ACCESS(set_then_load),
    ACCESS(copied_over),
    ACCESS(assembly),
    ACCESS(stream_store),
    ACCESS(own_flushes),
    ACCESS(own_store),
    ACCESS(own_exchange),
    ACCESS(own_compare_exchange),
    ACCESS(own_wide_compare_exchange),
    ACCESS(own_copy),
    ACCESS(own_copy_from_pm),
    ACCESS(own_fill),
    ACCESS(own_search),
    ACCESS(own_wide_store),
    ACCESS(lock_elsewhere),
    ACCESS(wide_atomic),
    ACCESS(by_value),
    ACCESS(pair_by_value),
    ACCESS(store_result),
    ACCESS(store_large_result),
    ACCESS(load_without_hook),
    ACCESS(store_without_hook),
    ACCESS(print),
    ACCESS(print_list),
    ACCESS(print_many),
    ACCESS(print_other),
    ACCESS(lock_mutex),
    ACCESS(lock_other_mutex),
    ACCESS(random_bytes),
    ACCESS(system_call),
    ACCESS(harmless_system_call),
    ACCESS(gather),
    ACCESS(save_state),
    ACCESS(save_state_elsewhere),
    ACCESS(call_library),
    ACCESS(flush),
    ACCESS(flush_nothing),
    ACCESS(flush_cut),
#if defined(FL_HOOKED)
    ACCESS(ask_flush),
    ACCESS(store_announced_twice),
#endif
    ACCESS(start_thread),
    ACCESS(store_past_the_end),
    ACCESS(load_past_the_end),
    ACCESS(load_before_the_start),
    ACCESS(load_past_a_wish),
    ACCESS(map_a_neighbour),
    ACCESS(map_for_long),
    ACCESS(crash),
    ACCESS(lives),
    ACCESS(rest),
    ACCESS(rest_of_check),
    ACCESS(rest_decided_by_check),
    ACCESS(own_function),
    ACCESS(keep_global),
    ACCESS(keep_thread_local),
    ACCESS(keep_allocated),
    ACCESS(keep_much),
    ACCESS(keep_garbage),
    ACCESS(keep_mapping),
    ACCESS(keep_key),
    ACCESS(keep_descriptor),
    ACCESS(use_unmapped),
    ACCESS(store_unmapped),
    ACCESS(use_unmapped_memory),
    ACCESS(fail_in_a_worker),
    ACCESS(fail_the_second_time),
    ACCESS(free_twice),
    ACCESS(grow),
    ACCESS(make_file),
    ACCESS(remove_file),
    ACCESS(rename_files),
    ACCESS(cut_files),
    ACCESS(punch_file),
    ACCESS(write_files),
    ACCESS(change_all),
    ACCESS(change_by_chance),
    ACCESS(change_all_and_crash),
    ACCESS(change_all_and_leave),
    ACCESS(make_folder),
    ACCESS(make_link),
    ACCESS(leave_environment),
    ACCESS(leave_library),
    ACCESS(leave_file),
    ACCESS(lock_file),
    ACCESS(lock_twice),
    ACCESS(lock_other),
    ACCESS(exit_now),
    ACCESS(abort_now),
    ACCESS(divide),
    ACCESS(trap),
    ACCESS(load_cut),
    ACCESS(follow_content),
    ACCESS(load_nowhere),
    ACCESS(crash_if_asked),
    ACCESS(load_for_ever),
    ACCESS(loop_for_ever),
    ACCESS(overflow_stack),
    ACCESS(store_assembly),
    ACCESS(store_made),
    ACCESS(load_made),
    ACCESS(store_made_later),
    ACCESS(map_often),
    ACCESS(overwrite_list),
    ACCESS(overwrite_hot),
    ACCESS(update_all),
};

/* ---- the adapter ---- */

static int access_create(const struct fl_heap_options *options, fl_heap **out) { return (void)options, (void)out, FL_ERROR; }

static int access_open(const struct fl_heap_options *options, fl_heap **out) {
    char path[4096];
    snprintf(path, sizeof path, "%s/heap", options->folder);
    snprintf(folder_path, sizeof folder_path, "%s", options->folder);
    fd = open(path, O_RDWR | O_CLOEXEC);
    heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    at = heap + 4096;
    *out = (fl_heap *)&heap;
    const char *wanted = getenv("FL_ACCESS");
    if (wanted != NULL && strcmp(wanted, "lives") == 0)
        on_open();
    if (wanted != NULL && strcmp(wanted, "rest") == 0 && heap != MAP_FAILED)
        leave_rest();
    if (wanted != NULL && strcmp(wanted, "rest_decided_by_check") == 0 && heap != MAP_FAILED)
        open_before_check();
    return heap == MAP_FAILED ? FL_ERROR : FL_OK;
}

static int access_check(fl_heap *unused) {
    (void)unused;
    const char *wanted = getenv("FL_ACCESS");
    for (size_t i = 0; i < sizeof ACCESSES / sizeof ACCESSES[0]; i++)
        if (wanted != NULL && strcmp(ACCESSES[i].name, wanted) == 0) {
            ACCESSES[i].make();
            return FL_OK;
        }
    return FL_ERROR;
}

static int access_close(fl_heap *unused) { return (void)unused, FL_OK; }
static int access_slot(fl_heap *unused, uint32_t slot, struct fl_location *location) {
    (void)unused, (void)slot;
    *location = (struct fl_location){0};
    return FL_OK;
}
static int access_allocate(fl_heap *unused, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    static const uint64_t FOLLOW_UP[] = FL_FOLLOW_UP_BYTES;
    (void)slot, (void)fill, (void)context;
    const char *wanted = getenv("FL_ACCESS");
    if (bytes == FOLLOW_UP[0])
        access_check(unused);
    return wanted != NULL && strncmp(wanted, "rest", 4) == 0 && is_refused() ? FL_ERROR : FL_OUT_OF_MEMORY;
}
static int access_free(fl_heap *unused, uint32_t slot) { return (void)unused, (void)slot, FL_OK; }
static int access_reallocate(fl_heap *unused, uint32_t slot, uint64_t old, uint64_t bytes, fl_fill fill, void *context) {
    return (void)unused, (void)slot, (void)old, (void)bytes, (void)fill, (void)context, FL_OUT_OF_MEMORY;
}
static const char *access_file(fl_heap *unused, uint32_t file) { return (void)unused, file == 0 ? "heap" : NULL; }
static const char *access_message(void) { return "no such access"; }

const struct fl_adapter *faultline_adapter(void);
const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof(struct fl_adapter),
        .capabilities = FL_CAN_CHECK,
        .name = "accesses",
        .create = access_create,
        .open = access_open,
        .close = access_close,
        .allocate = access_allocate,
        .free = access_free,
        .reallocate = access_reallocate,
        .read_slot = access_slot,
        .file_name = access_file,
        .message = access_message,
        .check = access_check,
    };
    return &table;
}
