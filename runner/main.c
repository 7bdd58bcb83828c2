/* SPDX-License-Identifier: Apache-2.0
 *
 * runner - drives an allocator through its adapter: executes workloads under a tracer, and probes heap images.
 */
#include "serve/serve.h"
#include "signals/signals.h"
#include "workload/workload.h"
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

/* ---- subcommands and their options -------------------------------------------------------------------------------------- */

enum {
    FOR_WORKLOAD = 1,
    FOR_CHECK = 2,
    FOR_SERVE = 4,
    FOR_PROBE = 8,
    FOR_TWINS = 16,
    FOR_REHEARSE = 32,
    FOR_LIVES = FOR_SERVE | FOR_PROBE | FOR_TWINS | FOR_REHEARSE,
    FOR_HEAPS = FOR_WORKLOAD | FOR_LIVES,
    FOR_ALL = FOR_HEAPS | FOR_CHECK
};

static int run_check_adapter(const struct options *options) {
    adapter_describe(adapter_load(options->adapter));
    return 0;
}

static const struct command {
    const char *name;
    unsigned bit;
    int (*run)(const struct options *options);
    const char *summary;
} COMMANDS[] = {
    {"workload", FOR_WORKLOAD, run_workload, "execute one session of a workload, with operation markers"},
    {"rehearse", FOR_REHEARSE, run_rehearse, "execute a workload, and say in which operation the target fails"},
    {"serve", FOR_SERVE, run_serve, "probe heap images that come on standard input (protocol.h)"},
    {"probe", FOR_PROBE, run_probe_command, "probe the heap in a folder once; the folder is not changed"},
    {"twins", FOR_TWINS, run_twins, "execute a workload and probe a closed copy of the heap after each operation"},
    {"check-adapter", FOR_CHECK, run_check_adapter, "load an adapter and print its name and capabilities"},
};

static const struct option_of {
    struct argp_option option;
    unsigned commands;
    bool is_required;
} OPTIONS[] = {
    {{"adapter", 'a', "FILE", 0, "adapter, a shared object", 0}, FOR_ALL, true},
    {{"opened-by", 'o', "FILE", 0, "another adapter, which opens the closed copies", 0}, FOR_TWINS, false},
    {{"workload", 'w', "FILE", 0, "workload file", 0}, FOR_WORKLOAD | FOR_TWINS | FOR_REHEARSE, true},
    {{"plan", 'p', "FILE", 0, "which histories of a workload with threads are wanted (plan.c)", 0}, FOR_TWINS, false},
    {{"death-of", 'D', "OPERATION", 0, "say where the twin of that operation dies, and no more", 0}, FOR_TWINS, false},
    {{"session", 'k', "N", 0, "session of the workload, from 0", 0}, FOR_WORKLOAD, true},
    {{"markers", 'm', "FILE", 0, "say there, too, which operation begins and which returned (markers.c)", 0}, FOR_WORKLOAD, false},
    {{"tally", 'T', NULL, 0, "print what its operations came to, as JSON", 0}, FOR_WORKLOAD, false},
    {{"folder", 'd', "DIR", 0, "folder for heaps (probe: the heap's)", 0}, FOR_HEAPS, true},
    {{"heap-bytes", 'b', "BYTES", 0, "size to create", 0}, FOR_HEAPS, true},
    {{"limit-bytes", 'l', "BYTES", 0, "most that a heap may grow to", 0}, FOR_HEAPS, true},
    {{"slots", 's', "COUNT", 0, "the workload's slots; heaps have 1024 more", 0}, FOR_HEAPS, true},
    {{"slot-layout", 'y', "LAYOUT", 0, "of the workload's slots: root (default), names, chain or graph", 0}, FOR_HEAPS, false},
    {{"lazy", 'z', NULL, 0, "reopens and recoveries open lazily, as the workload says", 0}, FOR_HEAPS, false},
    {{"address-hint", 'h', "ADDRESS", 0, "where to map; 0: anywhere", 0}, FOR_HEAPS, true},
    {{"cpu-limit-ms", 'c', "MS", 0, "CPU time of one life (default 1000)", 0}, FOR_LIVES, false},
    {{"wall-limit-ms", 't', "MS", 0, "wall time of one life (default 10000)", 0}, FOR_LIVES, false},
    {{"ends-at-ms", 'E', "MS", 0, "when the time that was asked for is over, on the monotonic clock; 0 (default): never", 0},
     FOR_SERVE,
     false},
    {{"no-check", 'n', NULL, 0, "leave out the stage `check`: what benchmarks measure", 0}, FOR_SERVE | FOR_PROBE, false},
    {{"relocate", 'r', "BYTES", 0, "each life maps the heap at another address than the one before it, a multiple of BYTES away",
      0},
     FOR_SERVE,
     false},
    {{"code-in-place", 'i', NULL, 0, "load the adapter where `workload` does, not elsewhere", 0}, FOR_SERVE, false},
    {{"ends-when-full", 'e', NULL, 0, "the target ends the process when memory is out: one life alone fills the heap", 0},
     FOR_SERVE | FOR_PROBE | FOR_TWINS,
     false},
    {{"full", 'f', NULL, 0, "all lives, not only the first part", 0}, FOR_PROBE, false},
    {{"text", 'x', NULL, 0, "print the report for people", 0}, FOR_PROBE, false},
    {{"verbose", 'v', NULL, 0, "let the target's output through to standard error", 0}, FOR_LIVES, false},
};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct parsing {
    struct options *options;
    const struct command *command;
    bool is_given[COUNT_OF(OPTIONS)];
};

static uint64_t number(const struct argp_option *option, const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        fail(EXIT_BAD_INPUT, "--%s %s: expected a whole number", option->name, text);
    return value;
}

static enum fl_slot_layout layout(const struct argp_option *option, const char *text) {
    enum fl_slot_layout found;
    if (!find_layout(text, &found))
        fail(EXIT_BAD_INPUT, "--%s %s: expected root, names, chain or graph", option->name, text);
    return found;
}

static void set_option(struct options *options, const struct argp_option *option, char *argument) {
    switch (option->key) {
    case 'a': options->adapter = argument; break;
    case 'o': options->opened_by = argument; break;
    case 'w': options->workload = argument; break;
    case 'p': options->plan = argument; break;
    case 'm': options->markers = argument; break;
    case 'd': options->folder = argument; break;
    case 'f': options->is_full = true; break;
    case 'n': options->is_unchecked = true; break;
    case 'D': options->death_of = number(option, argument) + 1; break;
    case 'e': options->ends_when_full = true; break;
    case 'r': options->relocated_by = number(option, argument); break;
    case 'i': options->is_code_in_place = true; break;
    case 'z': options->is_lazy = true; break;
    case 'T': options->is_tallied = true; break;
    case 'x': options->is_text = true; break;
    case 'v': options->is_verbose = true; break;
    case 'k': options->session = number(option, argument); break;
    case 'b': options->heap_bytes = number(option, argument); break;
    case 'l': options->limit_bytes = number(option, argument); break;
    case 's': options->slots = number(option, argument); break;
    case 'y': options->slot_layout = layout(option, argument); break;
    case 'h': options->address_hint = number(option, argument); break;
    case 'c': options->cpu_limit_ms = number(option, argument); break;
    case 't': options->wall_limit_ms = number(option, argument); break;
    case 'E': options->ends_at_ms = number(option, argument); break;
    }
}

static void check_required(const struct parsing *parsing) {
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++)
        if (OPTIONS[i].is_required && (OPTIONS[i].commands & parsing->command->bit) != 0 && !parsing->is_given[i])
            fail(EXIT_BAD_INPUT, "%s needs --%s %s (%s)", parsing->command->name, OPTIONS[i].option.name, OPTIONS[i].option.arg,
                 OPTIONS[i].option.doc);
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
    struct parsing *parsing = state->input;
    if (key == ARGP_KEY_ARG)
        fail(EXIT_BAD_INPUT, "%s: unexpected argument `%s`", parsing->command->name, argument);
    if (key == ARGP_KEY_END)
        check_required(parsing);
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++)
        if (OPTIONS[i].option.key == key) {
            parsing->is_given[i] = true;
            set_option(parsing->options, &OPTIONS[i].option, argument);
            return 0;
        }
    return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

/* ---- values that make sense ------------------------------------------------------------------------------------------------ */

static void check_numbers(const struct options *options) {
    if (options->heap_bytes < OS_PAGE_BYTES || options->heap_bytes % OS_PAGE_BYTES != 0 || options->heap_bytes > 1ull << 46)
        fail(EXIT_BAD_INPUT, "--heap-bytes %llu: expected a multiple of %u, at most 2^46", (unsigned long long)options->heap_bytes,
             OS_PAGE_BYTES);
    if (options->limit_bytes < options->heap_bytes || options->limit_bytes > 1ull << 46)
        fail(EXIT_BAD_INPUT, "--limit-bytes %llu: expected at least --heap-bytes (%llu), at most 2^46",
             (unsigned long long)options->limit_bytes, (unsigned long long)options->heap_bytes);
    if (options->slots < 1 || options->slots > MAX_SLOTS)
        fail(EXIT_BAD_INPUT, "--slots %llu: expected 1 to %u", (unsigned long long)options->slots, MAX_SLOTS);
    if (options->address_hint % OS_PAGE_BYTES != 0 || options->address_hint >= 1ull << 47)
        fail(EXIT_BAD_INPUT, "--address-hint 0x%llx: expected a multiple of %u below 2^47",
             (unsigned long long)options->address_hint, OS_PAGE_BYTES);
}

static void check_limits(const struct options *options) {
    const uint64_t most = 24ull * 3600 * 1000;
    if (options->cpu_limit_ms < 1 || options->cpu_limit_ms > most)
        fail(EXIT_BAD_INPUT, "--cpu-limit-ms %llu: expected 1 to one day", (unsigned long long)options->cpu_limit_ms);
    if (options->wall_limit_ms < 1 || options->wall_limit_ms > most)
        fail(EXIT_BAD_INPUT, "--wall-limit-ms %llu: expected 1 to one day", (unsigned long long)options->wall_limit_ms);
}

static void check_folder(struct options *options, bool is_written) {
    static char real[PATH_MAX];
    if (realpath(options->folder, real) == NULL)
        fail(EXIT_BAD_INPUT, "%s: folder: %s; make it first", options->folder, strerror(errno));
    int fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail(EXIT_BAD_INPUT, "%s: folder: %s", options->folder, strerror(errno));
    close(fd);
    if (is_written && access(real, W_OK | X_OK) != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: the folder cannot be written: %s", options->folder, strerror(errno));
    options->folder = real;
}

/* ---- main -------------------------------------------------------------------------------------------------------------- */

static _Noreturn void explain(int code) {
    FILE *to = code == 0 ? stdout : stderr;
    fprintf(to, "usage: runner COMMAND [OPTION...]\n");
    for (size_t i = 0; i < COUNT_OF(COMMANDS); i++)
        fprintf(to, "  %-14s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fprintf(to, "`runner COMMAND --help` lists its options.\n");
    exit(code);
}

static const struct command *find_command(int count, char **arguments) {
    if (count < 2)
        explain(EXIT_BAD_INPUT);
    if (strcmp(arguments[1], "--help") == 0)
        explain(0);
    for (size_t i = 0; i < COUNT_OF(COMMANDS); i++)
        if (strcmp(arguments[1], COMMANDS[i].name) == 0)
            return &COMMANDS[i];
    fail(EXIT_BAD_INPUT, "no command `%s`; `runner --help` lists them", arguments[1]);
}

/* Recoveries are compared by what they load (protocol.h): no address may differ from one server to the next. Where that is not
 * allowed, as in some containers, only targets that look at their own addresses are worse off. */
static void fix_addresses(char **arguments) {
    static char self[PATH_MAX];
    int old = personality(0xffffffff);
    if (old < 0 || (old & ADDR_NO_RANDOMIZE) != 0 || personality((unsigned long)old | ADDR_NO_RANDOMIZE) < 0)
        return;
    if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
        execv(self, arguments);
}

int main(int count, char **arguments) {
    const struct command *command = find_command(count, arguments);
    if ((command->bit & (FOR_SERVE | FOR_REHEARSE)) != 0 &&
        !RUNNING_ON_VALGRIND) /* which fixes them, and would lose sight of a new program */
        fix_addresses(arguments);
    struct options options = {.command = command->name, .cpu_limit_ms = 1000, .wall_limit_ms = 10000};
    struct argp_option accepted[COUNT_OF(OPTIONS) + 1] = {{0}};
    for (size_t i = 0, used = 0; i < COUNT_OF(OPTIONS); i++)
        if ((OPTIONS[i].commands & command->bit) != 0)
            accepted[used++] = OPTIONS[i].option;
    struct argp argp = {accepted, parse_option, NULL, command->summary, NULL, NULL, NULL};
    struct parsing parsing = {.options = &options, .command = command};
    char name[64];
    snprintf(name, sizeof name, "runner %s", command->name);
    arguments[1] = name;
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, count - 1, arguments + 1, 0, NULL, &parsing);
    if ((command->bit & FOR_HEAPS) != 0) {
        check_numbers(&options);
        check_folder(&options, command->bit != FOR_PROBE);
    }
    if ((command->bit & FOR_LIVES) != 0)
        check_limits(&options);
    flushes_prepare();
    int code = command->run(&options);
    if (fflush(stdout) != 0)
        fail(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
    return code;
}
