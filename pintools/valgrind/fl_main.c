/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_main.c - faultline's Valgrind tool: options, life of the process, threads, forks, markers, end.
 *
 *     valgrind --tool=faultline --trace=FILE --pm-folder=DIR [--module-root=DIR] [--loads=FILE] [--process=N] [--schedule-seed=N]
 *              PROGRAM ...
 *     valgrind --tool=faultline --serve=yes [--schedule-seed=N] PROGRAM ...
 *     valgrind --tool=faultline --wear=FILE --pm-folder=DIR [--wear-memory=yes] [--wear-line=N] [--wear-cache=BYTES] [--wear-ways=N] ...
 *
 * The first appends to FILE (../trace.h) every store, flush and fence that PROGRAM makes to files below DIR, its file operations there
 * and the markers of its runner. The second records what the lives of a runner's fork server do to PM, into the server's memory (fl_recording.c).
 * The third writes to FILE (../wear.h) how often each line of those files was written. It records and does not judge.
 */
#include "fl.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_options.h"
#include "pub_tool_threadstate.h"

/* In libcoregrind, not in its public headers. */
extern Bool VG_(clo_sigill_diag);
extern Bool VG_(clo_trace_children);

#define MOST_CHILDREN (FL_FORK_RADIX - 1)
#define MOST_PROCESSES 0xffffffu /* a child's number needs 8 bits more */
#define MOST_SEED 0x7fffffffffffffffll
#define MOST_CACHE (1ll << 32)
#define MOST_WAYS 1024

UShort fl_thread = 1;
UInt fl_process = 1;

enum fl_mode fl_mode;

static const HChar *clo_trace;
static Bool clo_serve;
static UInt child_count;

/* ---- threads: numbered in order of creation, Valgrind's own ids are reused ---- */

static UShort *thread_numbers; /* by ThreadId */
static UShort thread_count;

UShort fl_number_of(ThreadId thread) { return thread_numbers[thread]; }

static void on_memory_goes(Addr address, SizeT bytes) {
    (void)address, (void)bytes;
    fl_stack_forget();
}

static void on_memory_changes(Addr address, SizeT bytes, Bool is_read, Bool is_written, Bool is_run) {
    (void)is_read, (void)is_written, (void)is_run;
    on_memory_goes(address, bytes);
}

static void on_thread_created(ThreadId parent, ThreadId child) {
    if (thread_numbers == NULL)
        thread_numbers = VG_(calloc)("fl.main.threads", VG_N_THREADS, sizeof *thread_numbers);
    thread_numbers[child] = ++thread_count;
    if (thread_count == 0)
        fl_stop(3, "more than 65535 threads; a trace has room for no more");
    fl_schedule_thread_created(parent, child);
}

static void on_thread_runs(ThreadId thread, ULong blocks) {
    (void)blocks;
    fl_thread = fl_number_of(thread);
    fl_recording_thread_runs(thread);
}

/* ---- forks ---- */

static void before_fork(ThreadId thread) {
    (void)thread;
    fl_close_joined();
    fl_trace_flush();
    fl_loads_flush();
    fl_wear_forks();
    fl_schedule_forks();
    child_count++;
}

static void after_fork_in_parent(ThreadId thread) {
    (void)thread;
    if (fl_mode != FL_SERVES && child_count > MOST_CHILDREN)
        fl_unsupported("fork number %u: child processes after the %uth are not recorded", child_count, MOST_CHILDREN);
}

static void start_threads_again(ThreadId thread) {
    VG_(memset)(thread_numbers, 0, VG_N_THREADS * sizeof *thread_numbers);
    thread_numbers[thread] = fl_thread = thread_count = 1;
    fl_schedule_forked(thread);
}

/* The ids of files, modules and sites stay, so that translated code may keep them; their definitions are the process's own. */
static void after_fork_in_child(ThreadId thread) {
    UInt parent = fl_process;
    if (fl_mode == FL_SERVES) { /* whichever child it is, it does the same */
        fl_recording_forked();
        start_threads_again(thread);
        return;
    }
    if (child_count > MOST_CHILDREN || parent > MOST_PROCESSES)
        fl_stop(3, "child %u of process %u: a trace has room for %u children a process, and four generations", child_count, parent,
                MOST_CHILDREN);
    fl_wear_forked();
    fl_process = parent * FL_FORK_RADIX + child_count;
    child_count = 0;
    fl_flushes_elsewhere_forked();
    start_threads_again(thread);
    fl_emit((struct fl_record){.kind = FL_PROCESS, .detail = FL_PROCESS_FORK, .offset = parent});
    fl_files_define_again();
    fl_sites_define_again();
    fl_mappings_define_again();
}

/* ---- markers ---- */

static Bool on_request(ThreadId thread, UWord *request, UWord *result) {
    fl_thread = fl_number_of(thread);
    if (request[0] == FL_REQUEST_BEGIN) {
        fl_close_joined();
        fl_emit((struct fl_record){.kind = FL_OPERATION_BEGIN,
                                   .detail = request[1],
                                   .thread = fl_thread,
                                   .size = request[2],
                                   .file = request[3],
                                   .offset = request[4],
                                   .value = request[5]});
    } else if (request[0] == FL_REQUEST_RETURN) {
        fl_close_joined();
        fl_emit((struct fl_record){
            .kind = FL_OPERATION_RETURN, .detail = request[1], .thread = fl_thread, .size = request[2], .value = request[3]});
    } else {
        return fl_recording_on_request(thread, request, result);
    }
    *result = 0;
    return True;
}

/* ---- the end: the core calls fini() without saying whether a signal killed the client, then one of these two ---- */

static Bool is_finished;

static void end_process(ULong value) {
    if (!is_finished)
        return;
    is_finished = False;
    fl_emit((struct fl_record){.kind = FL_PROCESS_END, .value = value});
    fl_trace_close();
}

extern void __real_vgPlain_client_exit(Int status) __attribute__((noreturn));
extern void __real_vgPlain_kill_self(Int signal);
void __wrap_vgPlain_client_exit(Int status) __attribute__((noreturn));
void __wrap_vgPlain_kill_self(Int signal);

void __wrap_vgPlain_client_exit(Int status) {
    end_process(status);
    __real_vgPlain_client_exit(status);
}

void __wrap_vgPlain_kill_self(Int signal) {
    end_process(256 + signal);
    __real_vgPlain_kill_self(signal);
}

static void fini(Int status) {
    (void)status;
    fl_close_joined();
    fl_flushes_elsewhere_end();
    fl_trace_flush();
    fl_loads_flush();
    fl_wear_close();
    is_finished = True;
}

/* ---- options and start ---- */

static Bool read_option(const HChar *argument) {
    if (VG_STR_CLO(argument, "--trace", clo_trace)) {
    } else if (VG_STR_CLO(argument, "--pm-folder", fl_clo_pm_folder)) {
    } else if (VG_STR_CLO(argument, "--loads", fl_clo_loads)) {
    } else if (VG_STR_CLO(argument, "--wear", fl_clo_wear)) {
    } else if (VG_BOOL_CLO(argument, "--wear-memory", fl_clo_wear_memory)) {
    } else if (VG_BINT_CLO(argument, "--wear-line", fl_clo_wear_line, 8, 4096)) {
    } else if (VG_BINT_CLO(argument, "--wear-cache", fl_clo_wear_cache, 64, MOST_CACHE)) {
    } else if (VG_BINT_CLO(argument, "--wear-ways", fl_clo_wear_ways, 1, MOST_WAYS)) {
    } else if (VG_BOOL_CLO(argument, "--serve", clo_serve)) {
    } else if (VG_STR_CLO(argument, "--module-root", fl_clo_module_root)) {
    } else if (VG_BINT_CLO(argument, "--process", fl_process, 1, MOST_PROCESSES)) {
    } else if (VG_BINT_CLO(argument, "--schedule-seed", fl_clo_schedule_seed, 0, MOST_SEED)) {
    } else {
        return False;
    }
    return True;
}

static void print_usage(void) {
    VG_(printf)("    --trace=FILE              append the trace to FILE\n"
                "    --pm-folder=DIR           files below DIR are persistent memory\n"
                "    --loads=FILE              append every load of PM to FILE (fl_loads.c) [no]\n"
                "    --wear=FILE               no trace: count into FILE how often each line was written (../wear.h) [no]\n"
                "    --wear-memory=yes|no      count the process's own heap, too [no]\n"
                "    --wear-line=N             bytes of a line [64]\n"
                "    --wear-cache=BYTES        of the cache that decides what is written back [2097152]\n"
                "    --wear-ways=N             of a set of the cache [16]\n"
                "    --serve=yes|no            no trace: record for a runner's fork server (../../runner/recording.h) [no]\n"
                "    --module-root=DIR         name programs and libraries below DIR relative to it\n"
                "    --process=N               number of this process in the trace [1]\n"
                "    --schedule-seed=N         how threads take turns; 0: each runs until it waits [0]\n");
}

static void print_debug_usage(void) { VG_(printf)("    (none)\n"); }

static void post_clo_init(void) {
    if ((fl_clo_wear != NULL) + (clo_trace != NULL) + clo_serve > 1)
        fl_stop(2, "--wear=FILE counts, --trace=FILE records, --serve=yes serves; give one of them");
    fl_mode = clo_serve ? FL_SERVES : fl_clo_wear != NULL ? FL_COUNTS : FL_TRACES;
    if (fl_mode == FL_TRACES && (clo_trace == NULL || clo_trace[0] == '\0'))
        fl_stop(2, "--trace=FILE is missing; name the file that the trace is appended to");
    if (fl_mode == FL_SERVES) {
        VG_(clo_sigill_diag) = False;
        fl_trace_open(NULL);
        return;
    }
    if (fl_clo_pm_folder == NULL || fl_clo_pm_folder[0] == '\0')
        fl_stop(2, "--pm-folder=DIR is missing; name the folder of the persistent files");
    if (VG_(clo_trace_children))
        fl_stop(2, "--trace-children=yes: only forked children are traced, not new programs; leave it out");
    VG_(clo_sigill_diag) = False; /* fl_on_undecoded() says it in one line */
    fl_paths_init();
    fl_trace_open(clo_trace);
    fl_loads_open();
    fl_wear_open();
    fl_emit((struct fl_record){.kind = FL_PROCESS, .detail = FL_PROCESS_START});
}

static void pre_clo_init(void) {
    VG_(details_name)("faultline");
    VG_(details_version)(NULL);
    VG_(details_description)("a recorder of persistent-memory events");
    VG_(details_copyright_author)("GPL-2.0-or-later, by the faultline authors");
    VG_(details_bug_reports_to)("the faultline project");
    VG_(details_avg_translation_sizeB)(320);

    VG_(basic_tool_funcs)(post_clo_init, fl_instrument, fini);
    VG_(needs_command_line_options)(read_option, print_usage, print_debug_usage);
    VG_(needs_client_requests)(on_request);
    VG_(needs_syscall_wrapper)(fl_pre_syscall, fl_post_syscall);
    VG_(track_pre_thread_ll_create)(on_thread_created);
    VG_(track_pre_thread_ll_exit)(fl_schedule_thread_exits);
    VG_(track_pre_deliver_signal)(fl_schedule_before_signal);
    VG_(track_start_client_code)(on_thread_runs);
    VG_(track_post_mem_write)(fl_on_kernel_write);
    VG_(track_pre_mem_read)(fl_recording_kernel_load);
    VG_(track_pre_mem_read_asciiz)(fl_recording_kernel_load_text);
    VG_(track_die_mem_munmap)(on_memory_goes);
    VG_(track_change_mem_mprotect)(on_memory_changes);
    VG_(atfork)(before_fork, after_fork_in_parent, after_fork_in_child);
}

VG_DETERMINE_INTERFACE_VERSION(pre_clo_init)
