/* SPDX-License-Identifier: Apache-2.0
 *
 * The fork server: keeps one base image, a folder of real files on a memory file system (image.c), and runs probes on it. protocol.h has
 * its commands.
 *
 * Nothing but those commands may change the image. The interposed calls see to that for everything that goes through the C library
 * (files/vfs.c). For the rest inotify watches the folder. A probe after which anything was written, made, renamed or removed there, or a
 * file had been open for writing, gets the outcome BROKEN, and the server ends: its image is no longer the one that the engine meant.
 *
 * In-process runs are those of a worker (inprocess/inprocess.c). It has the input and output in turn with this process.
 */
#include "serve/serve.h"
#include "recording.h"
#include "files/files.h"
#include "hooks/hooks.h"
#include "inprocess/inprocess.h"
#include "loads/loads.h"
#include "serve/server.h"
#include "signals/signals.h"
#include "undo/undo.h"
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOAD_TEXT_BYTES 72u /* a name, shortened, and an offset */
#define MOST_ANSWERS 3      /* to a run */
#define MOST_WATCH_BYTES (256u << 20)

/* ---- runs ----------------------------------------------------------------------------------------------------------------- */

/* What happened in the folder since the last call; the name that the first event is about. */
static bool take_events(char name[NAME_MAX + 1]) {
    static char events[1 << 16] __attribute__((aligned(8)));
    bool found = false;
    ssize_t got;
    while ((got = read(server.watch, events, sizeof events)) > 0) {
        const struct inotify_event *event = (const struct inotify_event *)events;
        if (!found)
            snprintf(name, NAME_MAX + 1, "%.255s", event->len > 0 ? event->name : "the heap folder");
        found = true;
    }
    return found;
}

static bool has_events(const struct fl_command *command) {
    return command->run.probe == FL_PROBE_GENERATION || command->run.probe == FL_PROBE_RECOVERY;
}

/* The report, and what a recorded run read. */
static void send_report(const struct fl_command *command) {
    const void *answers[MOST_ANSWERS] = {(command->run.flags & FL_RUN_REPORT_APART) != 0 ? NULL : report_bytes()};
    uint32_t bytes[MOST_ANSWERS] = {report_bytes()->total_bytes};
    int count = 1;
    if ((command->run.flags & FL_RUN_LOADS) != 0) {
        answers[count] = loads_answer(&bytes[count]);
        count++;
        if (has_events(command)) {
            answers[count] = events_answer(&bytes[count]);
            count++;
        }
    }
    send_all(answers, bytes, count);
}

static void send_stages(void) {
    uint32_t bytes;
    void *list = stages_list(&bytes);
    send_answer(list, bytes);
    free(list);
}

static uint32_t number_of(const char *path) {
    for (uint32_t i = 0; i < server.file_count; i++)
        if (server.files[i].name != NULL && strcmp(server.files[i].name, path) == 0)
            return i;
    return NO_FILE;
}

static uint64_t bytes_of(uint32_t file) { return file < server.file_count ? server.files[file].bytes : 0; }

static void watch_units(const struct fl_command *command) {
    size_t count = command->payload_bytes / sizeof(struct fl_watch);
    if (command->payload_bytes % sizeof(struct fl_watch) != 0 || command->payload_bytes > MOST_WATCH_BYTES)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes, expected ranges of %zu, at most %u", command->kind,
             (unsigned long long)command->payload_bytes, sizeof(struct fl_watch), MOST_WATCH_BYTES);
    struct fl_watch *watches = allocate_or_fail(NULL, command->payload_bytes + 1);
    take_payload(watches, command->payload_bytes);
    if (!loads_watch(command->watch, watches, count, bytes_of))
        FAIL(EXIT_BAD_INPUT, "command %u: the files with hot units span more than 4 GiB", command->kind);
    free(watches);
}

/* Where server and worker run; it is only for speed that they do as they are told. */
static void set_affinity(const struct fl_command *command) {
    unsigned long processors[FL_MOST_AFFINITY_BYTES / sizeof(unsigned long)];
    if (command->payload_bytes > sizeof processors)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes, expected a set of processors, at most %zu", command->kind,
             (unsigned long long)command->payload_bytes, sizeof processors);
    take_payload(processors, command->payload_bytes);
    pid_t other = server.is_worker ? getppid() : inprocess_worker();
    (void)sched_setaffinity(0, command->payload_bytes, (const cpu_set_t *)processors);
    if (other > 1) /* 0: there is no worker; 1: the server has just ended */
        (void)sched_setaffinity(other, command->payload_bytes, (const cpu_set_t *)processors);
}

static void refresh_tree(void) {
    if (!server.is_tree_old)
        return;
    tree_free(&server.tree);
    int error = tree_list(server.base, &server.tree);
    if (error != 0)
        FAIL(EXIT_INFRASTRUCTURE, "%s: cannot be listed: %s", server.base, strerror(error));
    for (size_t i = 0; i < server.tree.count; i++)
        server.tree.entries[i].number = number_of(server.tree.entries[i].path);
    vfs_set(VFS_PASS, server.base, server.copy, &server.tree);
    vfs_has_sync(); /* asked here once, not in each life */
    server.is_tree_old = false;
}

static bool wants_death(const struct fl_command *command) { return command->run.flags == FL_RUN_DEATH; }

static void check_run(const struct fl_command *command) {
    bool is_deep = command->run.probe == FL_PROBE_DEEP && (command->run.flags == 0 || wants_death(command));
    bool is_known = command->run.probe == FL_PROBE_FIRST || command->run.probe == FL_PROBE_FULL || is_deep;
    if (!is_known && !(has_events(command) && command->run.flags == FL_RUN_LOADS))
        FAIL(EXIT_BAD_INPUT,
             "command %u: probe %u, expected 1 (first), 2 (full), without flags 5 (deep), or with loads 3 (generation) or 4 "
             "(recovery)",
             command->kind, command->run.probe);
    if (wants_death(command))
        return;
    uint32_t more = FL_RUN_IN_PROCESS | FL_RUN_REPORT_APART | FL_RUN_EVERY_ACCESS | FL_RUN_AFRESH | FL_RUN_COMPARED;
    uint32_t flags = command->run.flags & ~more;
    bool is_guarded_here = flags == (FL_RUN_LOADS | FL_RUN_GUARDED) && (command->run.flags & FL_RUN_IN_PROCESS) != 0;
    if (flags > (FL_RUN_LOADS | FL_RUN_GUARDED) || flags == FL_RUN_GUARDED || is_guarded_here)
        FAIL(EXIT_BAD_INPUT,
             "command %u: flags %u, expected 0, 1 (loads) or 3 (guarded), with 4 (in-process), 16 (report apart), 32 (afresh), "
             "128 (compared) or without, not 7; or 64 (death)",
             command->kind, command->run.flags);
}

static bool is_in_process(const struct fl_command *command) {
    bool is_plain = (command->run.flags & FL_RUN_LOADS) == 0 && command->run.probe == FL_PROBE_FIRST;
    return (command->run.flags & FL_RUN_IN_PROCESS) != 0 && (in_process.has_hooks || is_plain) && !vfs_has_poison() &&
           !vfs_has_stray();
}

/* The answer is sent, and nothing more can be. */
static _Noreturn void end_with_answer(const struct fl_command *command, const char *text) {
    report_break(text);
    send_report(command);
    FAIL(EXIT_INFRASTRUCTURE, "%s; the image can no longer be used", text);
}

/* In the isolated engine. */
static void run(const struct fl_command *command) {
    char name[NAME_MAX + 1];
    refresh_tree();
    take_events(name);
    loads_begin(command->run.flags, command->run.seed);
    events_begin(has_events(command));
    server.probed.probe.generation = command->run.generation;
    server.probed.probe.is_deep = command->run.probe == FL_PROBE_DEEP;
    server.probed.probe.has_follow_up = command->run.probe == FL_PROBE_GENERATION;
    run_probe(&server.probed, (enum fl_probe)command->run.probe);
    if (child_stop_requested())
        FAIL(EXIT_INFRASTRUCTURE, "stopped by a signal");
    if (!take_events(name))
        return;
    char text[NAME_MAX + 256];
    snprintf(text, sizeof text, "%s: the target changed the crash image itself, past the C library's file calls", name);
    end_with_answer(command, text);
}

static void send_death(void) {
    static struct death_report report;
    static uint8_t answer[sizeof report];
    deaths_describe(&report);
    size_t calls = report.death.call_count * sizeof report.calls[0], bytes = 0;
    memcpy(answer, &report.death, bytes = sizeof report.death);
    memcpy(answer + bytes, report.calls, calls);
    memcpy(answer + (bytes += calls), report.paths, report.path_bytes);
    send_answer(answer, (uint32_t)bytes + report.path_bytes);
}

static void run_and_answer(const struct fl_command *command) {
    child_begin_run();
    deaths_want(wants_death(command));
    run(command);
    send_report(command);
    if (wants_death(command))
        send_death();
    deaths_want(false);
}

/* ---- in-process runs ------------------------------------------------------------------------------------------------------- */

/* A line of the image in the worker's memory, where the file's mapping shows it to all. */
static void write_memory(const struct fl_command *command) {
    uint64_t bytes;
    uint8_t *memory = undo_memory(command->change.file, &bytes);
    if (command->change.offset + command->payload_bytes > bytes || command->change.offset > bytes)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu of file %u, which has %llu", command->kind,
             (unsigned long long)command->payload_bytes, (unsigned long long)command->change.offset, command->change.file,
             (unsigned long long)bytes);
    take_payload(memory + command->change.offset, command->payload_bytes);
    reference_write(command->change.file, command->change.offset, memory + command->change.offset, command->payload_bytes);
}

/* In the worker, until it is ended. */
static void work(struct fl_command *command) {
    server.is_worker = true;
    vfs_on_failure((void (*)(const char *))report_broken);
    for (uint32_t i = 0; i < server.file_count; i++)
        if (server.files[i].name != NULL)
            undo_add_file(i, server.files[i].fd, server.files[i].bytes);
    touched_open();
    arena_take_snapshot();
    for (;;) {
        bool is_run = command->kind == FL_COMMAND_RUN && is_in_process(command);
        if (is_run) {
            check_run(command);
            if (!inprocess_run(&server.probed, command))
                continue;
            send_report(command);
        } else if (command->kind == FL_COMMAND_WRITE)
            write_memory(command);
        else if (command->kind == FL_COMMAND_WATCH)
            watch_units(command);
        else if (command->kind == FL_COMMAND_AFFINITY)
            set_affinity(command);
        else {
            inprocess_give_back(TURN_COMMAND, command);
            continue;
        }
        if (!take(command, sizeof *command))
            inprocess_give_back(TURN_END, command);
    }
}

static void obey(struct fl_command *command);

static void describe_load(char text[LOAD_TEXT_BYTES], const struct fl_load *load) {
    const char *name = load == NULL ? NULL : load->file < server.file_count ? server.files[load->file].name : "?";
    if (load == NULL)
        snprintf(text, LOAD_TEXT_BYTES, "nothing more");
    else
        snprintf(text, LOAD_TEXT_BYTES, "%.40s at 0x%llx", name, (unsigned long long)load->unit * FL_UNIT_BYTES);
}

/* Of lists that differ, behind what is in the text. */
static void add_different_load(char *text, size_t capacity) {
    char ours[LOAD_TEXT_BYTES], theirs[LOAD_TEXT_BYTES];
    const struct fl_load *here, *isolated;
    uint32_t at = inprocess_different_load(&here, &isolated);
    if (here == NULL && isolated == NULL)
        return;
    describe_load(ours, here);
    describe_load(theirs, isolated);
    size_t length = strlen(text);
    snprintf(text + length, capacity - length, ": after %u loads %s, and %s", at, ours, theirs);
}

/* The run was done in-process, too. */
static void compare(const struct fl_command *command) {
    bool is_recorded = (command->run.flags & FL_RUN_LOADS) != 0;
    char text[2 * NAME_MAX];
    child_begin_run();
    inprocess_remember(is_recorded);
    stages_pause(true); /* it was counted in-process */
    run(command);
    stages_pause(false);
    const char *what = inprocess_difference(is_recorded);
    if (report_outcome() == FL_OUTCOME_BROKEN && child_is_out_of_time())
        what = NULL; /* there is nothing to compare with */
    if (what != NULL && !is_recorded && !in_process.has_hooks && inprocess_is_first()) {
        inprocess_distrust("does not do the same in one process with others"); /* nothing was believed yet */
        inprocess_note_isolated();
    } else if (what != NULL) {
        snprintf(text, sizeof text, "the in-process and the isolated run of one image %s", what);
        if (is_recorded)
            add_different_load(text, sizeof text);
        if (is_recorded)
            loads_unknown(FL_LOADS_DIFFERS, text);
        else
            report_break(text);
    }
    send_report(command);
}

/* Before an image is let go that in-process runs stored to: see whether it was what it should be. */
static void end_in_process_runs(void) {
    const char *damage = inprocess_damage();
    if (damage != NULL)
        FAIL(FL_EXIT_DISTRUST, "the target %s; in-process runs saw another image than the one they were to see", damage);
    inprocess_end_worker();
    if (reference_is_there())
        reference_end();
}

static void begin_in_process_runs(void) {
    if (mkdir(server.aside, 0700) != 0 && errno != EEXIST)
        image_fail("cannot be made", server.aside);
    reference_begin(server.file_count, image_descriptor);
}

static void run_in_process(struct fl_command *command) {
    refresh_tree();
    if (!reference_is_there() && inprocess_is_trusted())
        begin_in_process_runs();
    enum inprocess_turn turn = inprocess_is_trusted() ? inprocess_give_turn(command, work) : TURN_ISOLATE;
    bool is_looked_at = inprocess_is_trusted() && (turn == TURN_COMPARE || inprocess_is_first());
    const char *damage = is_looked_at ? inprocess_damage() : NULL;
    if (damage != NULL) {
        char text[256];
        snprintf(text, sizeof text, "the target %s", damage);
        end_with_answer(command, text);
    }
    if (!inprocess_is_trusted() && turn == TURN_COMPARE)
        turn = TURN_ISOLATE;
    switch (turn) {
    case TURN_COMMAND: obey(command); break;
    case TURN_END: break;
    case TURN_COMPARE: compare(command); break;
    case TURN_ISOLATE:
        inprocess_note_isolated();
        run_and_answer(command);
        break;
    }
}

static void send_engines(void) {
    end_in_process_runs();
    uint32_t bytes;
    void *list = inprocess_engines(&bytes);
    send_answer(list, bytes);
    free(list);
}

static void send_modules(void) {
    const struct fl_modules *modules = modules_known();
    char *paths = allocate_or_fail(NULL, sizeof *modules), *end = paths;
    for (uint32_t i = 0; i < modules->count; i++)
        end = stpcpy(end, modules->paths[i]) + 1;
    send_answer(paths, (uint32_t)(end - paths) - 1);
    free(paths);
}

static void send_report_path(void) {
    char path[64];
    report_path(path);
    send_answer(path, (uint32_t)strlen(path));
}

static void obey_run(struct fl_command *command) {
    check_run(command);
    if (is_in_process(command))
        run_in_process(command);
    else
        run_and_answer(command);
}

static void obey(struct fl_command *command) {
    if (image_is_rebuilt_by(command)) {
        server.is_tree_old = true;
        end_in_process_runs();
        image_rebuild(command);
        return;
    }
    switch (command->kind) {
    case FL_COMMAND_WRITE: image_write(command); break;
    case FL_COMMAND_RUN: obey_run(command); break;
    case FL_COMMAND_STAGES: send_stages(); break;
    case FL_COMMAND_WATCH: watch_units(command); break;
    case FL_COMMAND_ENGINES: send_engines(); break;
    case FL_COMMAND_REPORT: send_report_path(); break;
    case FL_COMMAND_AFFINITY: set_affinity(command); break;
    case FL_COMMAND_MODULES: send_modules(); break;
    default: FAIL(EXIT_BAD_INPUT, "unknown command %u on standard input; engine and runner must be of one version", command->kind);
    }
}

/* ---- start ---------------------------------------------------------------------------------------------------------------- */

static void prepare_heap(const struct options *options, const struct fl_adapter *adapter) {
    snprintf(server.base, sizeof server.base, "%s/heap-XXXXXX", options->folder);
    if (mkdtemp(server.base) == NULL)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot make a folder in it: %s", options->folder, strerror(errno));
    const char *name = server.base + strlen(server.base) - 6;
    snprintf(server.copy, sizeof server.copy, "%s/copy-%s", options->folder, name);
    snprintf(server.aside, sizeof server.aside, "%s/aside-%s", options->folder, name);
    names_map(server.base, server.aside);
    server.probed = (struct probed_heap){
        .probe = {.adapter = adapter,
                  .options = heap_options(options),
                  .slots = (uint32_t)options->slots,
                  .is_unchecked = options->is_unchecked,
                  .is_lazy = options->is_lazy,
                  .relocated_by = options->relocated_by,
                  .ends_when_full = options->ends_when_full},
        .base = server.base,
        .copy = server.copy,
        .tree = &server.tree,
    };
    server.probed.probe.options.folder = server.base;
    server.is_tree_old = true;
}

int run_serve(const struct options *options) {
    mallopt(M_PERTURB, UNWRITTEN ^ 0xff); /* malloc fills with the complement */
    if (!options->is_code_in_place)
        code_move();
    arena_begin_load();
    const struct fl_adapter *adapter = adapter_load(options->adapter);
    lazy_check(options, adapter);
    leaving_watch(adapter_library());
    arena_end_load();
    if (strlen(options->folder) > PATH_MAX - 512)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", options->folder);
    server.options = options;
    report_map();
    loads_map();
    events_map(adapter_base(adapter));
    recording_map(options->adapter);
    stages_map();
    inprocess_map(image_descriptor);
    streams_map();
    server.input = move_away(0);
    server.output = move_away(1);
    hide_streams(options->is_verbose);
    child_prepare(&(struct limits){options->cpu_limit_ms, options->wall_limit_ms, options->folder, options->limit_bytes,
                                   options->ends_at_ms});
    uint64_t free = free_bytes(options->folder), needed = 2 * options->limit_bytes; /* the image and a copy of it */
    if (free < needed)
        fail(EXIT_INFRASTRUCTURE,
             "%s: %llu MiB are free, %llu MiB are needed for images; free space there or choose another folder", options->folder,
             (unsigned long long)free >> 20, (unsigned long long)needed >> 20);
    server.watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (server.watch < 0)
        fail(EXIT_INFRASTRUCTURE, "inotify: %s; raise fs.inotify.max_user_instances", strerror(errno));
    prepare_heap(options, adapter);
    image_watch_folder(server.base);
    struct fl_command command;
    while (take(&command, sizeof command))
        obey(&command);
    server_clean_up();
    return 0;
}
