/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that leave code with hooks. What a target calls in libraries that were not built here accesses memory without announcing it.
 * Each such call goes through a slot of the target's global offset table. When a target with hooks is loaded, the slots get gates of
 * ours: a gate asks whether the call may reach PM, and jumps on. One that may is *unseen* (loads_unseen).
 *
 *     runner               its own functions and those that it interposes announce what they do: no gate, but for `syscall`
 *     libraries with hooks announce what they do, too: no gate for calls of them, and gates for those that they make
 *     system libraries     the C library, its math, the runtimes of C and C++: they know of PM only what they are given. A call may
 *                          reach PM when one of its pointers does (FUNCTIONS); pointers in arguments of printf and its like, too
 *     other libraries      nobody knows what they hold: each call may reach PM
 *
 * A function that the target looks up by its name (dlsym) has no slot. What a target that does so calls is not seen at all.
 */
#include "hooks/hooks.h"
#include "loads/loads.h"
#include "undo/undo.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_GATES 1024u
#define GATE_BYTES 10u
#define ARGUMENTS 6u /* in registers */
#define HOOKS_BEGIN "__tsan_init" /* the first hook that a library with hooks calls */

enum leave_kind {
    LEAVE_ALWAYS,     /* may reach PM whatever it is given */
    LEAVE_POINTERS,   /* by the arguments whose letter is p */
    LEAVE_FORMAT,     /* the same, and by those that the format asks for */
    LEAVE_FORMAT_LIST /* the same, of a va_list that follows the format */
};

struct leaver {
    const char *name, *pointers;
    void *function;
    enum leave_kind kind;
    unsigned format; /* its position */
};

/* As the gates have it on the stack. */
struct leave_call {
    uint64_t r10, r9, r8, rcx, rdx, rsi, rdi, rax;
    union {
        uint64_t number; /* of the gate; later: */
        void *function;
    };
    const void *caller;
    uint64_t stack[];
};

__attribute__((used, visibility("hidden"))) struct leaver leavers[MOST_GATES];
static uint32_t leaver_count;

/* ---- the system's functions ---------------------------------------------------------------------------------------------------- */

/* Names, and which arguments are pointers to what is accessed. Functions that are not here: all of them. */
static const struct {
    const char *pointers, *names;
} FUNCTIONS[] = {
    {"",
     " __errno_location abort exit _exit _Exit quick_exit getpid getppid gettid getuid geteuid getgid getegid sysconf getpagesize"
     " sched_yield pthread_self pthread_equal pthread_exit pthread_detach pthread_cancel pthread_testcancel pthread_getspecific"
     " sched_getcpu sleep usleep clock raise kill lseek lseek64 isatty umask sync syncfs posix_fadvise posix_fadvise64"
     " posix_madvise mincore bsearch __stack_chk_fail __cxa_finalize __gmon_start__ __tls_get_addr getauxval get_nprocs"
     " toupper tolower isalnum isalpha iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit __ctype_b_loc"
     " __ctype_tolower_loc __ctype_toupper_loc abs labs llabs div ldiv ffs ffsl ffsll strerror strsignal putchar getchar drand48"
     " lrand48 mrand48 __assert_fail __assert_perror_fail srand48 arc4random arc4random_uniform malloc_usable_size malloc_trim "
     "mallopt fileno"
     " dl_iterate_phdr __cxa_thread_atexit"
     " __cxa_throw __cxa_rethrow __cxa_begin_catch __cxa_end_catch __cxa_allocate_exception __cxa_free_exception"
     " __cxa_get_exception_ptr __cxa_guard_acquire __cxa_guard_release __cxa_guard_abort __cxa_pure_virtual __cxa_bad_cast"
     " __cxa_throw_bad_array_new_length __gxx_personality_v0 _Znwm _Znam _ZdlPv _ZdlPvm _ZdaPv _ZdaPvm _ZnwmSt11align_val_t"
     " _ZnamSt11align_val_t _ZdlPvSt11align_val_t _ZdlPvmSt11align_val_t _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZSt9terminatev"
     " _ZSt17__throw_bad_allocv _ZSt28__throw_bad_array_new_lengthv _ZSt25__throw_bad_function_callv _ZSt16__throw_bad_castv "},
    {"p",
     " pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock pthread_mutex_destroy pthread_mutex_consistent"
     " pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlock_unlock"
     " pthread_rwlock_destroy pthread_spin_init pthread_spin_lock pthread_spin_trylock pthread_spin_unlock pthread_spin_destroy"
     " pthread_cond_signal pthread_cond_broadcast pthread_cond_destroy pthread_barrier_wait pthread_barrier_destroy pthread_once"
     " pthread_mutexattr_init pthread_mutexattr_destroy pthread_mutexattr_settype pthread_mutexattr_setpshared pthread_attr_init"
     " pthread_attr_destroy pthread_attr_setstacksize pthread_attr_setdetachstate sem_init sem_wait sem_trywait sem_post "
     "sem_destroy"
     " getrandom getentropy time atoi atol atoll atof perror puts getenv secure_getenv mktime setjmp _setjmp __sigsetjmp longjmp"
     " siglongjmp _longjmp fflush fclose ftell rewind feof ferror clearerr sigemptyset sigfillset sigaddset sigdelset sigismember"
     " basename dirname strtok_r times uname qsort_r mkdtemp getcwd _ZSt20__throw_length_errorPKc _ZSt19__throw_logic_errorPKc"
     " _ZSt20__throw_out_of_rangePKc _ZSt21__throw_runtime_errorPKc _ZSt20__throw_system_errori "},
    {"pp",
     " pthread_mutex_init pthread_mutex_timedlock pthread_rwlock_init pthread_cond_init pthread_cond_wait pthread_barrier_init"
     " pthread_setname_np sem_timedwait sem_getvalue gettimeofday nanosleep strtol strtoul strtoll strtoull strtod strtof strstr"
     " strcasestr strspn strcspn strpbrk strcasecmp strncasecmp strncat memccpy fputs strcoll localtime_r gmtime_r readlink fgets"
     " __isoc23_strtol __isoc23_strtoul __isoc23_strtoll __isoc23_strtoull "},
    {"ppp", " pthread_cond_timedwait "},
    {"-p",
     " clock_gettime clock_getres clock_settime pthread_join pthread_tryjoin_np getrusage getrlimit fputc putc getitimer strerror_r"
     " pthread_sigmask "},
    {"--pp", " clock_nanosleep "},
    {"p-p", " memmem "},
    {"p--p", " fwrite fread "},
    {"-p-p", " wait4 "},
    /* containers of the C++ library */
    {"p", " _ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base _ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base"
          " _ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base _ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base"
          " _ZNSt8__detail15_List_node_base9_M_unhookEv _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm"
          " _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm _ZSt11_Hash_bytesPKvmm "},
    {"pp", " _ZNSt8__detail15_List_node_base7_M_hookEPS0_ _ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_ "},
    {"ppp", " _ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_ "},
    {"-ppp", " _ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_ "},
    {"-p-", " waitpid pthread_setaffinity_np sched_setaffinity sched_getaffinity "},
};
/* What they read or write is not where their pointers lead. */
static const char INDIRECT[] =
    " strsep getline getdelim getsubopt sendmsg recvmsg sendmmsg recvmmsg vmsplice tee process_vm_readv"
    " process_vm_writev aio_read aio_write lio_listio io_submit wprintf fwprintf swprintf vwprintf vfwprintf"
    " vswprintf wordexp dlopen dlsym dlvsym dlmopen"
    " execl execlp execle execv execve execvp execvpe fexecve execveat clone daemon forkpty ";
/* Of the math library: those that store through pointers. */
static const char MATHS[] =
    " frexp frexpf frexpl modf modff modfl remquo remquof remquol sincos sincosf sincosl lgamma_r lgammaf_r ";
static const char LOOK_UPS[] = " dlsym dlvsym ";
static const struct {
    const char *name, *pointers;
    unsigned format;
    bool is_list;
} FORMATS[] = {
    {"printf", "p", 0, false},
    {"fprintf", "pp", 1, false},
    {"dprintf", "-p", 1, false},
    {"sprintf", "pp", 1, false},
    {"snprintf", "p-p", 2, false},
    {"asprintf", "pp", 1, false},
    {"syslog", "-p", 1, false},
    {"__printf_chk", "-p", 1, false},
    {"__fprintf_chk", "p-p", 2, false},
    {"__sprintf_chk", "p--p", 3, false},
    {"__snprintf_chk", "p---p", 4, false},
    {"sscanf", "pp", 1, false},
    {"__isoc99_sscanf", "pp", 1, false},
    {"fscanf", "pp", 1, false},
    {"vprintf", "p", 0, true},
    {"vfprintf", "pp", 1, true},
    {"vdprintf", "-p", 1, true},
    {"vsprintf", "pp", 1, true},
    {"vsnprintf", "p-p", 2, true},
    {"vasprintf", "pp", 1, true},
    {"vsscanf", "pp", 1, true},
    {"__vfprintf_chk", "p-p", 2, true},
    {"__vsnprintf_chk", "p---p", 4, true},
};

static bool is_in(const char *list, const char *name) {
    char word[256];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word) != NULL;
}

static bool has_start(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* How many registers the arguments of a C++ function may take, the object and the place of a result among them. */
static unsigned registers_of(void *library, const char *name) {
    char *(*demangle)(const char *name, char *out, size_t *bytes, int *status);
    *(void **)&demangle = dlsym(library, "__cxa_demangle");
    char *text = demangle == NULL ? NULL : demangle(name, NULL, NULL, NULL), *end = text == NULL ? NULL : strrchr(text, ')');
    if (end == NULL)
        return ARGUMENTS;
    unsigned depth = 0, commas = 0;
    char *at = end;
    for (; at > text; at--) {
        depth += *at == ')' || *at == '>';
        depth -= *at == '(' || *at == '<';
        commas += *at == ',' && depth == 1;
        if (depth == 0)
            break;
    }
    unsigned count = at + 1 == end ? 0 : commas + 1;
    free(text);
    count += has_start(name, "_ZN") ? 2 : 1;
    return count < ARGUMENTS ? count : ARGUMENTS;
}

/* False: it needs no gate. */
static bool know_system_function(void *target, const char *library, struct leaver *leaver) {
    leaver->kind = LEAVE_POINTERS;
    leaver->pointers = "pppppp";
    if (has_start(leaver->name, "_Z"))
        leaver->pointers += ARGUMENTS - registers_of(target, leaver->name);
    if (has_start(library, "libgcc_s.so"))
        return false;
    if (has_start(library, "libm.so")) /* of its functions' arguments most are in vector registers */
        leaver->pointers = is_in(MATHS, leaver->name) ? "pp" : "";
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
        if (is_in(FUNCTIONS[i].names, leaver->name))
            leaver->pointers = FUNCTIONS[i].pointers;
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++)
        if (strcmp(FORMATS[i].name, leaver->name) == 0) {
            leaver->pointers = FORMATS[i].pointers;
            leaver->format = FORMATS[i].format;
            leaver->kind = FORMATS[i].is_list ? LEAVE_FORMAT_LIST : LEAVE_FORMAT;
        }
    if (is_in(INDIRECT, leaver->name))
        leaver->kind = LEAVE_ALWAYS;
    return leaver->kind != LEAVE_POINTERS || leaver->pointers[0] != '\0';
}

static bool is_of_the_system(const char *library) {
    static const char *const NAMES[] = {"libc.so",  "libm.so",     "libpthread.so", "libdl.so",  "librt.so",
                                        "ld-linux", "libgcc_s.so", "libstdc++.so",  "linux-vdso"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (has_start(library, NAMES[i]))
            return true;
    return false;
}

/* ---- gates ------------------------------------------------------------------------------------------------------------------------ */

void leave_gates(void); /* the first of them */
/* clang-format off */
__asm__(
    ".text\n"
    "leave_gates:\n"
    ".set leave_number, 0\n"
    ".rept 1024\n"
    "\t.byte 0x68\n\t.long leave_number\n" /* pushq */
    "\t.byte 0xe9\n\t.long leave_common - . - 4\n" /* jmp */
    ".set leave_number, leave_number + 1\n"
    ".endr\n"
    "leave_common:\n"
    "\tpushq %rax\n\tpushq %rdi\n\tpushq %rsi\n\tpushq %rdx\n\tpushq %rcx\n\tpushq %r8\n\tpushq %r9\n\tpushq %r10\n"
    "\tmovq %rsp, %rdi\n"
    "\tcall leave_is_over\n"
    "\ttestb %al, %al\n"
    "\tjnz 1f\n"
    "\tpushq %rbp\n"
    "\tmovq %rsp, %rbp\n"
    "\tsubq $512, %rsp\n"
    "\tandq $-64, %rsp\n"
    "\tfxsave64 (%rsp)\n" /* arguments in vector registers; those of vector functions are no concern of a C library's callers */
    "\tleaq 8(%rbp), %rdi\n"
    "\tcall leave_look\n"
    "\tfxrstor64 (%rsp)\n"
    "\tmovq %rbp, %rsp\n"
    "\tpopq %rbp\n"
    "1:\tpopq %r10\n\tpopq %r9\n\tpopq %r8\n\tpopq %rcx\n\tpopq %rdx\n\tpopq %rsi\n\tpopq %rdi\n\tpopq %rax\n"
    "\tpopq %r11\n"
    "\tjmp *%r11\n");
/* clang-format on */

static void open_slot(void **slot, void *value, const struct link_map *map, const ElfW(Phdr) * relro) {
    uintptr_t page = (uintptr_t)slot & ~(uintptr_t)(OS_PAGE_BYTES - 1);
    uintptr_t first = map->l_addr + (relro == NULL ? 0 : relro->p_vaddr), end = first + (relro == NULL ? 0 : relro->p_memsz);
    bool is_closed = first <= (uintptr_t)slot && (uintptr_t)slot < end;
    if (is_closed)
        syscall(SYS_mprotect, page, OS_PAGE_BYTES, PROT_READ | PROT_WRITE);
    *slot = value;
    if (is_closed)
        syscall(SYS_mprotect, page, OS_PAGE_BYTES, PROT_READ);
}

static void *gate_of(void *target, const char *name, const char *library, void *function) {
    for (uint32_t i = 0; i < leaver_count; i++)
        if (leavers[i].function == function && strcmp(leavers[i].name, name) == 0)
            return (char *)(uintptr_t)leave_gates + i * GATE_BYTES;
    struct leaver leaver = {.name = name, .function = function, .kind = LEAVE_ALWAYS};
    if (is_of_the_system(library) && !know_system_function(target, library, &leaver))
        return NULL;
    if (leaver_count == MOST_GATES)
        fail(EXIT_BAD_INPUT, "the adapter calls more than %u functions of libraries; build some of them with it", MOST_GATES);
    leavers[leaver_count] = leaver;
    return (char *)(uintptr_t)leave_gates + leaver_count++ * GATE_BYTES;
}

/* ---- the slots of a library -------------------------------------------------------------------------------------------------------- */

struct dynamic {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * calls, *others;
    size_t call_count, other_count;
};

static struct dynamic dynamic_of(const struct link_map *map) {
    struct dynamic found = {0};
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        uintptr_t address = entry->d_un.d_ptr < map->l_addr ? map->l_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_SYMTAB: found.symbols = (const ElfW(Sym) *)address; break;
        case DT_STRTAB: found.names = (const char *)address; break;
        case DT_JMPREL: found.calls = (const ElfW(Rela) *)address; break;
        case DT_PLTRELSZ: found.call_count = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
        case DT_RELA: found.others = (const ElfW(Rela) *)address; break;
        case DT_RELASZ: found.other_count = entry->d_un.d_val / sizeof(ElfW(Rela)); break;
        default: break;
        }
    }
    return found;
}

static bool is_function(const ElfW(Sym) * symbol) {
    unsigned type = symbol == NULL ? STT_NOTYPE : ELF64_ST_TYPE(symbol->st_info);
    return type == STT_FUNC || type == STT_GNU_IFUNC;
}

static bool names_hooks(const struct dynamic *dynamic, const ElfW(Rela) * entries, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const ElfW(Sym) *symbol = &dynamic->symbols[ELF64_R_SYM(entries[i].r_info)];
        if (symbol->st_shndx == SHN_UNDEF && strcmp(dynamic->names + symbol->st_name, HOOKS_BEGIN) == 0)
            return true;
    }
    return false;
}

/* Whether it was built with hooks, as a shared library may be that the allocator's own build makes. */
static bool is_hooked(const struct link_map *map) {
    struct dynamic dynamic = dynamic_of(map);
    return names_hooks(&dynamic, dynamic.calls, dynamic.call_count) || names_hooks(&dynamic, dynamic.others, dynamic.other_count);
}

static bool is_in_hooked(const void *function) {
    Dl_info module = {0};
    struct link_map *map = NULL;
    return dladdr1(function, &module, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL && is_hooked(map);
}

/* That the target imports it is enough: it may have called it when it was loaded. */
static void note_look_up(const char *name) {
    if (is_in(LOOK_UPS, name))
        in_process.blind = "it looks up functions by their names (dlsym), and a call of such a one is not seen";
}

static void watch_slots(void *target, const ElfW(Rela) * entries, size_t count, const struct dynamic *dynamic,
                        const struct link_map *map, const ElfW(Phdr) * relro) {
    Dl_info own = {0};
    dladdr((void *)(uintptr_t)leave_gates, &own);
    for (size_t i = 0; i < count; i++) {
        unsigned type = ELF64_R_TYPE(entries[i].r_info);
        const ElfW(Sym) *symbol = &dynamic->symbols[ELF64_R_SYM(entries[i].r_info)], *definition = NULL;
        bool is_slot = type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || (type == R_X86_64_64 && entries[i].r_addend == 0);
        if (!is_slot || symbol->st_shndx != SHN_UNDEF || ELF64_R_SYM(entries[i].r_info) == 0)
            continue;
        void **slot = (void **)(map->l_addr + entries[i].r_offset);
        Dl_info module = {0};
        const char *name = dynamic->names + symbol->st_name;
        if (*slot == NULL || dladdr1(*slot, &module, (void **)&definition, RTLD_DL_SYMENT) == 0 ||
            (uintptr_t)module.dli_fbase == map->l_addr)
            continue;
        bool is_by_number = *slot == (void *)(uintptr_t)syscall; /* of ours the only one that does not announce what it does */
        if (module.dli_fbase == own.dli_fbase && !is_by_number)
            continue;
        if ((!is_function(symbol) && !is_function(definition)) || is_in_hooked(*slot))
            continue;
        note_look_up(name);
        const char *slash = strrchr(module.dli_fname, '/');
        const char *library = is_by_number ? "libc.so" : slash == NULL ? module.dli_fname : slash + 1;
        void *gate = gate_of(target, name, library, *slot);
        if (gate != NULL)
            open_slot(slot, gate, map, relro);
    }
}

struct search {
    const struct link_map *map;
    const ElfW(Phdr) * relro;
};

static int find_relro(struct dl_phdr_info *info, size_t bytes, void *context) {
    struct search *search = context;
    (void)bytes;
    if (info->dlpi_addr != search->map->l_addr)
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
            search->relro = &info->dlpi_phdr[i];
    return 1;
}

static void watch(void *target, const struct link_map *map) {
    struct search search = {.map = map};
    dl_iterate_phdr(find_relro, &search);
    struct dynamic dynamic = dynamic_of(map);
    watch_slots(target, dynamic.calls, dynamic.call_count, &dynamic, map, search.relro);
    watch_slots(target, dynamic.others, dynamic.other_count, &dynamic, map, search.relro);
}

void leaving_watch(void *library) {
    struct link_map *map = NULL;
    if (!in_process.has_hooks || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return;
    for (const struct link_map *one = map; one != NULL; one = one->l_next) /* what the adapter needs was loaded after it */
        if (one == map || is_hooked(one))
            watch(library, one);
}

/* ---- a call that leaves ----------------------------------------------------------------------------------------------------------- */

static bool is_pm(uint64_t word) { return word - fl_hook_near.start < fl_hook_near.bytes; }

static const char *format_of(const struct leave_call *call, const struct leaver *leaver) {
    const uint64_t arguments[] = {call->rdi, call->rsi, call->rdx, call->rcx, call->r8, call->r9};
    return (const char *)arguments[leaver->format];
}

/* Whether the format follows a pointer: %s and %n do, %p prints an address and does not. */
static bool follows_pointers(const char *format) {
    while ((format = strchr(format, '%')) != NULL) {
        format += 1 + strspn(format + 1, "-+ #0'I123456789$*.hlqjztL");
        if (*format == '\0' || strchr("pcdiouxXaAeEfFgGm%", *format) == NULL)
            return true;
        format++;
    }
    return false;
}

/* Words that the format may ask for, at most; none if it follows none of them. */
static unsigned words_of(const char *format) {
    unsigned count = 0;
    if (!follows_pointers(format))
        return 0;
    for (; *format != '\0'; format++)
        count += *format == '%' || *format == '*';
    return count;
}

static bool is_given_pm_by_list(const struct leave_call *call, const struct leaver *leaver) {
    const uint64_t arguments[] = {call->rdi, call->rsi, call->rdx, call->rcx, call->r8, call->r9};
    const struct { /* va_list: System V ABI for AMD64, 3.5.7 */
        uint32_t in_registers, in_vectors;
        const uint64_t *on_stack;
        const char *registers;
    } *list = (const void *)arguments[leaver->format + 1];
    unsigned words = words_of(format_of(call, leaver)), at = 0;
    for (uint32_t offset = list->in_registers; offset < ARGUMENTS * 8 && at < words; offset += 8, at++) {
        uint64_t word;
        memcpy(&word, list->registers + offset, sizeof word);
        if (is_pm(word))
            return true;
    }
    for (unsigned i = 0; at < words; i++, at++) /* some may be in vectors: then these are a few too many */
        if (is_pm(list->on_stack[i]))
            return true;
    return false;
}

static bool is_given_pm(const struct leave_call *call, const struct leaver *leaver) {
    const uint64_t arguments[] = {call->rdi, call->rsi, call->rdx, call->rcx, call->r8, call->r9};
    size_t known = strlen(leaver->pointers);
    for (unsigned i = 0; i < ARGUMENTS && i < known; i++)
        if (leaver->pointers[i] == 'p' && is_pm(arguments[i]))
            return true;
    if (leaver->kind == LEAVE_FORMAT_LIST)
        return is_given_pm_by_list(call, leaver);
    if (leaver->kind != LEAVE_FORMAT)
        return false;
    unsigned words = words_of(format_of(call, leaver)), in_registers = ARGUMENTS - leaver->format - 1;
    for (unsigned i = 0; i < words; i++)
        if (is_pm(i < in_registers ? arguments[leaver->format + 1 + i] : call->stack[i - in_registers]))
            return true;
    return false;
}

void leave_look(struct leave_call *call);
__attribute__((used)) void leave_look(struct leave_call *call) {
    const struct leaver *leaver = NULL;
    for (uint32_t i = 0; i < leaver_count && leaver == NULL; i++)
        if (leavers[i].function == call->function)
            leaver = &leavers[i];
    char text[160];
    if (leaver->kind == LEAVE_ALWAYS)
        snprintf(text, sizeof text, "a call of %.100s, which is not built with hooks", leaver->name);
    else if (is_given_pm(call, leaver))
        snprintf(text, sizeof text, "a call of %.100s with a pointer to PM", leaver->name);
    else
        return;
    loads_unseen(call->caller, text);
}

#pragma GCC target("general-regs-only")

bool leave_is_over(struct leave_call *call);
/* It cannot reach PM: none is mapped that anybody asks about, or its registers lead to none. */
__attribute__((used)) bool leave_is_over(struct leave_call *call) {
    const struct leaver *leaver = &leavers[call->number];
    call->function = leaver->function;
    if (fl_hook_near.bytes == 0)
        return true;
    if (leaver->kind != LEAVE_POINTERS)
        return false;
    const uint64_t arguments[] = {call->rdi, call->rsi, call->rdx, call->rcx, call->r8, call->r9};
    for (unsigned i = 0; i < ARGUMENTS && leaver->pointers[i] != '\0'; i++)
        if (leaver->pointers[i] == 'p' && arguments[i] - fl_hook_near.start < fl_hook_near.bytes)
            return false;
    return true;
}
