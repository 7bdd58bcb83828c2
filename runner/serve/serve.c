/* SPDX-License-Identifier: Apache-2.0
 *
 * The fork server: keeps one base image, a folder of real files on a memory file system, and runs probes on it (protocol:
 * protocol.h). Commands change the image by system calls, never through a mapping, so that the server stays small.
 *
 * Nothing but those commands may change the image. Interposition sees to that for everything that goes through the C library
 * (vfs.c); for the rest the folder is watched by inotify: a probe after which anything was written, made, renamed or removed
 * in the image's folder, or a file of it had been open for writing, gets the outcome BROKEN, and the server ends, because its
 * image is no longer what it was told.
 *
 * In-process runs are those of a worker (inprocess.c), which has the input and output in turn with this process.
 */
#include "serve/serve.h"
#include "base/planted.h"
#include "files/files.h"
#include "hooks/hooks.h"
#include "inprocess/inprocess.h"
#include "loads/loads.h"
#include "signals/signals.h"
#include "undo/undo.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FILES 65536u
#define LOAD_TEXT_BYTES 72u /* a name, shortened, and an offset */
#define MOST_ANSWERS 3 /* to a run */
#define MOST_WATCH_BYTES (256u << 20)
#define WATCHED (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF)

struct served_file {
    char *name; /* null: no such file */
    int fd;
    uint64_t bytes;
};

static struct {
    const struct options *options;
    struct probed_heap probed;
    char base[PATH_MAX], copy[PATH_MAX], aside[PATH_MAX];
    struct served_file *files;
    uint32_t file_count;
    struct tree tree;
    bool is_tree_old;
    int watch;
    int input, output;
    struct ahead *ahead; /* shared with the worker */
    bool is_worker;
} server;

/* Input that was read and not yet taken. */
struct ahead {
    uint8_t bytes[1 << 16];
    size_t from, to;
};

static void clean_up(void) {
    tree_remove(server.base);
    tree_remove(server.copy);
    tree_remove(server.aside);
}

#define FAIL(code, ...) (clean_up(), fail(code, __VA_ARGS__))

/* ---- input -------------------------------------------------------------------------------------------------------------- */

static void wait_for_input(void) {
    struct pollfd polled = {.fd = server.input, .events = POLLIN};
    while (ppoll(&polled, 1, NULL, child_waiting_mask()) < 0)
        if (child_stop_requested())
            FAIL(EXIT_INFRASTRUCTURE, "stopped by a signal");
}

/* Some input; false at its end. A worker just reads: signals that ask to end are the server's business. */
static bool refill(void) {
    if (!server.is_worker)
        wait_for_input();
    ssize_t got = read(server.input, server.ahead->bytes, sizeof server.ahead->bytes);
    if (got < 0)
        FAIL(EXIT_INFRASTRUCTURE, "standard input: %s", strerror(errno));
    server.ahead->from = 0;
    server.ahead->to = (size_t)got;
    return got > 0;
}

/* false: the input ended before the first byte. */
static bool take(void *target, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        if (server.ahead->from == server.ahead->to && !refill()) {
            if (done == 0)
                return false;
            FAIL(EXIT_BAD_INPUT, "standard input ends inside a command");
        }
        size_t count = server.ahead->to - server.ahead->from < bytes - done ? server.ahead->to - server.ahead->from : bytes - done;
        memcpy((uint8_t *)target + done, server.ahead->bytes + server.ahead->from, count);
        server.ahead->from += count;
        done += count;
    }
    return true;
}

static void take_payload(void *target, size_t bytes) {
    if (bytes > 0 && !take(target, bytes))
        FAIL(EXIT_BAD_INPUT, "standard input ends inside a command");
}

/* A relative path below the heap folder, absolute in path. Returns the relative part. */
static char *take_name(const struct fl_command *command, char path[PATH_MAX]) {
    static char name[PATH_MAX];
    if (command->payload_bytes == 0 || command->payload_bytes >= sizeof name)
        FAIL(EXIT_BAD_INPUT, "command %u: a name of %llu bytes", command->kind, (unsigned long long)command->payload_bytes);
    take_payload(name, command->payload_bytes);
    name[command->payload_bytes] = '\0';
    bool climbs = strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 || strstr(name, "/../") != NULL;
    size_t length = strlen(name);
    climbs |= length >= 3 && strcmp(name + length - 3, "/..") == 0;
    if (length != command->payload_bytes || name[0] == '/' || climbs)
        FAIL(EXIT_BAD_INPUT, "command %u: `%s` is no path below the heap folder", command->kind, name);
    if (snprintf(path, PATH_MAX, "%s/%s", server.base, name) >= PATH_MAX)
        FAIL(EXIT_BAD_INPUT, "%s: the path is too long", name);
    return name;
}

/* ---- commands that change the image -------------------------------------------------------------------------------------- */

/* path: absolute, or below the heap folder. */
static _Noreturn void fail_image(const char *what, const char *path) {
    int error = errno;
    FAIL(EXIT_INFRASTRUCTURE, "%s%s%s: %s: %s%s", path[0] == '/' ? "" : server.base, path[0] == '/' ? "" : "/", path, what,
         strerror(error), error == ENOSPC ? "; free space there or choose another folder" : "");
}

static struct served_file *file_of(const struct fl_command *command) {
    if (command->change.file >= server.file_count || server.files[command->change.file].name == NULL)
        FAIL(EXIT_BAD_INPUT, "command %u: there is no file %u", command->kind, command->change.file);
    return &server.files[command->change.file];
}

static void check_size(const struct fl_command *command, uint64_t offset, uint64_t bytes) {
    if (offset + bytes < offset || offset + bytes > INT64_MAX)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu do not fit a file", command->kind, (unsigned long long)bytes,
             (unsigned long long)offset);
}

static struct served_file *new_file(const struct fl_command *command) {
    if (command->change.file >= MAX_FILES)
        FAIL(EXIT_BAD_INPUT, "command %u: file number %u, expected less than %u", command->kind, command->change.file, MAX_FILES);
    if (command->change.file >= server.file_count) {
        uint32_t count = command->change.file + 64;
        server.files = allocate_or_fail(server.files, count * sizeof *server.files);
        memset(server.files + server.file_count, 0, (count - server.file_count) * sizeof *server.files);
        server.file_count = count;
    }
    if (server.files[command->change.file].name != NULL)
        FAIL(EXIT_BAD_INPUT, "command %u: file %u is there already", command->kind, command->change.file);
    return &server.files[command->change.file];
}

static void create_file(const struct fl_command *command) {
    char path[PATH_MAX];
    check_size(command, 0, command->change.size);
    struct served_file *file = new_file(command);
    const char *name = take_name(command, path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)command->change.size) != 0)
        fail_image("cannot be made", path);
    *file = (struct served_file){strdup(name), fd, command->change.size};
    if (file->name == NULL)
        FAIL(EXIT_INFRASTRUCTURE, "no memory");
}

static void resize_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    check_size(command, 0, command->change.size);
    if (file->bytes == command->change.size)
        return;
    if (ftruncate(file->fd, (off_t)command->change.size) != 0)
        fail_image("cannot be resized", file->name);
    file->bytes = command->change.size;
}

static void punch_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    check_size(command, command->change.offset, command->change.size);
    if (command->change.size > 0 && fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)command->change.offset,
                                              (off_t)command->change.size) != 0)
        fail_image("cannot be punched", file->name);
}

static void forget_file(struct served_file *file) {
    close(file->fd);
    free(file->name);
    *file = (struct served_file){0};
}

static void remove_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", server.base, file->name);
    if (unlink(path) != 0)
        fail_image("cannot be removed", path);
    forget_file(file);
}

static void rename_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    char from[2 * PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/%s", server.base, file->name);
    const char *name = take_name(command, to);
    if (strcmp(name, file->name) == 0)
        return;
    if (rename(from, to) != 0)
        fail_image("cannot be renamed", from);
    for (uint32_t i = 0; i < server.file_count; i++) /* the one whose name it takes is gone */
        if (server.files[i].name != NULL && strcmp(server.files[i].name, name) == 0)
            forget_file(&server.files[i]);
    free(file->name);
    file->name = strdup(name);
    if (file->name == NULL)
        FAIL(EXIT_INFRASTRUCTURE, "no memory");
}

static void write_file(const struct fl_command *command) {
    struct served_file *file = file_of(command);
    check_size(command, command->change.offset, command->payload_bytes);
    if (command->change.offset + command->payload_bytes > file->bytes)
        FAIL(EXIT_BAD_INPUT, "command %u: %llu bytes at %llu of %s, which has %llu", command->kind,
             (unsigned long long)command->payload_bytes, (unsigned long long)command->change.offset, file->name,
             (unsigned long long)file->bytes);
    off_t offset = (off_t)command->change.offset;
    for (uint64_t left = command->payload_bytes; left > 0;) {
        if (server.ahead->from == server.ahead->to && !refill())
            FAIL(EXIT_BAD_INPUT, "standard input ends inside a command");
        size_t count = server.ahead->to - server.ahead->from < left ? server.ahead->to - server.ahead->from : (size_t)left;
        ssize_t put = pwrite(file->fd, server.ahead->bytes + server.ahead->from, count, offset);
        if (put <= 0)
            fail_image("cannot be written", file->name);
        reference_write(command->change.file, (uint64_t)offset, server.ahead->bytes + server.ahead->from, (size_t)put);
        server.ahead->from += (size_t)put;
        offset += put;
        left -= (uint64_t)put;
    }
}

static void watch_folder(const char *path) {
    if (inotify_add_watch(server.watch, path, WATCHED) < 0)
        fail_image("cannot be watched", path);
}

static void make_folder(const struct fl_command *command) {
    char path[PATH_MAX];
    take_name(command, path);
    if (mkdir(path, 0700) != 0)
        fail_image("cannot be made", path);
    watch_folder(path);
}

static void remove_folder(const struct fl_command *command) {
    char path[PATH_MAX];
    take_name(command, path);
    if (rmdir(path) != 0)
        fail_image("cannot be removed", path);
}

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

/* Each with its length in front; in one system call, as a rule, since an in-process run costs about as much. Null: its length only. */
static void send_all(const void *const answers[], const uint32_t bytes[], int count) {
    struct iovec parts[2 * MOST_ANSWERS], *rest = parts;
    for (int i = 0; i < count; i++) {
        parts[2 * i] = (struct iovec){(void *)&bytes[i], sizeof bytes[i]};
        parts[2 * i + 1] = (struct iovec){(void *)answers[i], answers[i] == NULL ? 0 : bytes[i]};
    }
    for (int left = 2 * count; left > 0;) {
        ssize_t put = writev(server.output, rest, left);
        if (put < 0)
            FAIL(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
        for (; left > 0 && (size_t)put >= rest->iov_len; left--, rest++)
            put -= (ssize_t)rest->iov_len;
        if (left > 0) {
            rest->iov_base = (char *)rest->iov_base + put;
            rest->iov_len -= (size_t)put;
        }
    }
}

static void send(const void *answer, uint32_t bytes) { send_all(&answer, &bytes, 1); }

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
    send(list, bytes);
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
    bool is_known = command->run.probe == FL_PROBE_FIRST || command->run.probe == FL_PROBE_FULL;
    if (!is_known && !(has_events(command) && command->run.flags == FL_RUN_LOADS))
        FAIL(EXIT_BAD_INPUT, "command %u: probe %u, expected 1 (first), 2 (full) or, with loads, 3 (generation) or 4 (recovery)",
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
    return (command->run.flags & FL_RUN_IN_PROCESS) != 0 && (in_process.has_hooks || is_plain);
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
    server.probed.probe.has_follow_up = command->run.probe == FL_PROBE_GENERATION;
    run_probe(&server.probed, (enum fl_probe)command->run.probe);
    if (child_stop_requested())
        FAIL(EXIT_INFRASTRUCTURE, "stopped by a signal");
    if (!take_events(name) || planted("reuse-dirty-image") || planted("blind-watch"))
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
    send(answer, (uint32_t)bytes + report.path_bytes);
}

static void run_and_answer(const struct fl_command *command) {
    deaths_want(wants_death(command));
    run(command);
    send_report(command);
    if (wants_death(command))
        send_death();
    deaths_want(false);
}

static int descriptor_of(uint32_t file) {
    return file < server.file_count && server.files[file].name != NULL ? server.files[file].fd : -1;
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
    inprocess_remember(is_recorded);
    stages_pause(true); /* it was counted in-process */
    run(command);
    stages_pause(false);
    const char *what = inprocess_difference(is_recorded);
    if (what != NULL && !is_recorded && !in_process.has_hooks && inprocess_is_first()) {
        inprocess_distrust("does not do the same in one process with others"); /* nothing was believed yet */
        inprocess_note_isolated();
    } else if (what != NULL && !planted("blind-comparison")) {
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
        FAIL(EXIT_INFRASTRUCTURE, "the target %s; in-process runs saw another image than the one they were to see", damage);
    inprocess_end_worker();
    if (reference_is_there())
        reference_end();
}

static void begin_in_process_runs(void) {
    if (mkdir(server.aside, 0700) != 0 && errno != EEXIST)
        fail_image("cannot be made", server.aside);
    reference_begin(server.file_count, descriptor_of);
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
    send(list, bytes);
    free(list);
}

static void send_report_path(void) {
    char path[64];
    report_path(path);
    send(path, (uint32_t)strlen(path));
}

static void obey_run(struct fl_command *command) {
    check_run(command);
    if (is_in_process(command))
        run_in_process(command);
    else
        run_and_answer(command);
}

static bool changes_files(const struct fl_command *command) {
    static const uint32_t OTHERS[] = {FL_COMMAND_WRITE,   FL_COMMAND_RUN,    FL_COMMAND_STAGES,  FL_COMMAND_WATCH,
                                      FL_COMMAND_ENGINES, FL_COMMAND_REPORT, FL_COMMAND_AFFINITY};
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++)
        if (command->kind == OTHERS[i])
            return false;
    return true;
}

static void obey(struct fl_command *command) {
    if (changes_files(command)) {
        server.is_tree_old = true;
        end_in_process_runs();
    }
    switch (command->kind) {
    case FL_COMMAND_CREATE: create_file(command); break;
    case FL_COMMAND_RESIZE: resize_file(command); break;
    case FL_COMMAND_PUNCH: punch_file(command); break;
    case FL_COMMAND_REMOVE: remove_file(command); break;
    case FL_COMMAND_RENAME: rename_file(command); break;
    case FL_COMMAND_WRITE: write_file(command); break;
    case FL_COMMAND_MKDIR: make_folder(command); break;
    case FL_COMMAND_RMDIR: remove_folder(command); break;
    case FL_COMMAND_RUN: obey_run(command); break;
    case FL_COMMAND_STAGES: send_stages(); break;
    case FL_COMMAND_WATCH: watch_units(command); break;
    case FL_COMMAND_ENGINES: send_engines(); break;
    case FL_COMMAND_REPORT: send_report_path(); break;
    case FL_COMMAND_AFFINITY: set_affinity(command); break;
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
                  .is_unchecked = options->is_unchecked},
        .base = server.base,
        .copy = server.copy,
        .tree = &server.tree,
    };
    server.probed.probe.options.folder = server.base;
    server.is_tree_old = true;
}

static void map_ahead(void) {
    server.ahead = mmap(NULL, sizeof *server.ahead, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (server.ahead == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for input");
}

int run_serve(const struct options *options) {
    arena_begin_load();
    const struct fl_adapter *adapter = adapter_load(options->adapter);
    leaving_watch(adapter_library());
    arena_end_load();
    if (strlen(options->folder) > PATH_MAX - 512)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", options->folder);
    server.options = options;
    report_map();
    loads_map();
    events_map(adapter_base(adapter));
    stages_map();
    inprocess_map(descriptor_of);
    map_ahead();
    server.input = move_away(0);
    server.output = move_away(1);
    hide_streams(options->is_verbose);
    child_prepare(&(struct limits){options->cpu_limit_ms, options->wall_limit_ms, options->folder, options->limit_bytes});
    uint64_t free = free_bytes(options->folder), needed = 2 * options->limit_bytes; /* the image and a copy of it */
    if (free < needed)
        fail(EXIT_INFRASTRUCTURE,
             "%s: %llu MiB are free, %llu MiB are needed for images; free space there or choose another folder", options->folder,
             (unsigned long long)free >> 20, (unsigned long long)needed >> 20);
    server.watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (server.watch < 0)
        fail(EXIT_INFRASTRUCTURE, "inotify: %s; raise fs.inotify.max_user_instances", strerror(errno));
    prepare_heap(options, adapter);
    watch_folder(server.base);
    struct fl_command command;
    while (take(&command, sizeof command))
        obey(&command);
    clean_up();
    return 0;
}

/* ---- one probe ------------------------------------------------------------------------------------------------------------ */

static void write_report(const struct fl_report_header *report) {
    if (fwrite(report, 1, report->total_bytes, stdout) != report->total_bytes)
        fail(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
}

/* Private copies need a folder of their own: that of the heap may be read-only. */
static void make_copy_folder(char path[PATH_MAX]) {
    const char *folders[] = {getenv("TMPDIR"), "/dev/shm", "/tmp"};
    for (int i = 0; i < 3; i++) {
        if (folders[i] == NULL || snprintf(path, PATH_MAX, "%s/faultline-probe-XXXXXX", folders[i]) >= PATH_MAX)
            continue;
        if (mkdtemp(path) != NULL)
            return;
    }
    fail(EXIT_INFRASTRUCTURE, "no folder for a private copy of the heap; set TMPDIR to one that can be written");
}

int run_probe_command(const struct options *options) {
    const struct fl_adapter *adapter = adapter_load(options->adapter);
    char scratch[PATH_MAX], copy[PATH_MAX + 8];
    struct tree tree;
    int error = tree_list(options->folder, &tree);
    if (error != 0)
        fail(EXIT_BAD_INPUT, "%s: cannot be listed: %s", options->folder, strerror(error));
    make_copy_folder(scratch);
    snprintf(copy, sizeof copy, "%s/copy", scratch);
    struct probed_heap probed = {
        .probe = {.adapter = adapter,
                  .options = heap_options(options),
                  .slots = (uint32_t)options->slots,
                  .is_unchecked = options->is_unchecked},
        .base = options->folder,
        .copy = copy,
        .tree = &tree,
    };
    int kept_output = move_away(1);
    report_map();
    hide_streams(options->is_verbose);
    child_prepare(&(struct limits){options->cpu_limit_ms, options->wall_limit_ms, scratch, options->limit_bytes});
    run_probe(&probed, options->is_full ? FL_PROBE_FULL : FL_PROBE_FIRST);
    tree_remove(scratch);
    dup2(kept_output, 1);
    if (options->is_text)
        report_print(report_bytes());
    else
        write_report(report_bytes());
    return 0;
}
