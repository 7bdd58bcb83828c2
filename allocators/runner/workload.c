/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a workload file. Everything about the steps is fixed by the file alone, so that every session of a workload, each a
 * process of its own, agrees on cases and operation indices.
 */
#include "runner.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 5
/* Object ids are operation index + 1 and have 24 bits; the drain's is the last one. */
#define MAX_OPERATIONS (PROBE_OBJECT - 1)

struct parser {
    struct workload *workload;
    size_t capacity;
    uint32_t line;
    uint32_t next_index;
    bool has_version, has_slots, has_case;
    uint32_t segment; /* part between two joins, counted over the file */
    struct slot_use *uses; /* by slot */
};

/* A slot as the file alone tells it: as if every allocate succeeded. */
struct slot_use {
    bool is_live;
    uint32_t segment, thread; /* that used it last; segment 0: none */
};

static const char *const LAYOUTS[] = {[FL_SLOTS_ROOT] = "root", [FL_SLOTS_NAMES] = "names", [FL_SLOTS_CHAIN] = "chain"};

const char *layout_name(enum fl_slot_layout layout) { return LAYOUTS[layout]; }

bool find_layout(const char *word, enum fl_slot_layout *layout) {
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++)
        if (strcmp(word, LAYOUTS[i]) == 0) {
            *layout = (enum fl_slot_layout)i;
            return true;
        }
    return false;
}

#define BAD_LINE(parser, ...) fail_at(parser, __VA_ARGS__)

static _Noreturn void fail_at(const struct parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
static _Noreturn void fail_at(const struct parser *parser, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fail(EXIT_BAD_INPUT, "%s:%u: %s", parser->workload->path, parser->line, text);
}

static uint64_t read_number(const struct parser *parser, const char *word, const char *what, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != '\0' || errno != 0 || value < least || value > most)
        BAD_LINE(parser, "%s is `%.40s`, expected a whole number from %llu to %llu", what, word, (unsigned long long)least,
                 (unsigned long long)most);
    return value;
}

static void add_step(struct parser *parser, enum step_kind kind, uint32_t thread, uint32_t slot, uint64_t bytes) {
    struct workload *workload = parser->workload;
    if (kind < STEP_ALLOCATE)
        parser->segment++; /* case, create, open and close are the main thread's, alone */
    if (workload->step_count == parser->capacity) {
        parser->capacity = parser->capacity == 0 ? 256 : parser->capacity * 2;
        workload->steps = allocate_or_fail(workload->steps, parser->capacity * sizeof *workload->steps);
    }
    if (parser->next_index >= MAX_OPERATIONS)
        BAD_LINE(parser, "more than %u operations; split the workload", MAX_OPERATIONS);
    workload->steps[workload->step_count++] = (struct step){
        .kind = kind,
        .thread = thread,
        .segment = parser->segment,
        .index = kind == STEP_CASE ? workload->case_count - 1 : parser->next_index,
        .slot = slot,
        .case_number = workload->case_count - 1,
        .session = workload->session_count - 1,
        .bytes = bytes,
    };
    if (kind != STEP_CASE)
        parser->next_index++;
    if (kind < STEP_ALLOCATE)
        parser->segment++;
}

static void forget_uses(struct parser *parser) { memset(parser->uses, 0, parser->workload->slots * sizeof *parser->uses); }

static void read_head(struct parser *parser, char *const *words, int count) {
    if (!parser->has_version) {
        if (strcmp(words[0], "workload") != 0 || count != 2 || strcmp(words[1], "1") != 0)
            BAD_LINE(parser, "expected `workload 1` as the first line");
        parser->has_version = true;
        return;
    }
    if (strcmp(words[0], "slots") != 0 || (count != 2 && count != 3))
        BAD_LINE(parser, "expected `slots COUNT [names | chain]` after `workload 1`");
    parser->workload->slots = (uint32_t)read_number(parser, words[1], "slot count", 1, MAX_SLOTS);
    if (count == 3 && !find_layout(words[2], &parser->workload->layout))
        BAD_LINE(parser, "slot layout is `%.40s`, expected root, names or chain", words[2]);
    parser->uses = allocate_or_fail(NULL, parser->workload->slots * sizeof *parser->uses);
    forget_uses(parser);
    parser->has_slots = true;
}

static void expect_words(const struct parser *parser, int count, int expected, const char *form) {
    if (count != expected)
        BAD_LINE(parser, "expected `%s`", form);
}

static void read_case(struct parser *parser, int count) {
    expect_words(parser, count, 1, "case");
    if (parser->has_case)
        add_step(parser, STEP_CLOSE, 0, 0, 0);
    parser->has_case = true;
    parser->workload->case_count++;
    forget_uses(parser);
    add_step(parser, STEP_CASE, 0, 0, 0);
    add_step(parser, STEP_CREATE, 0, 0, 0);
}

static void read_reopen(struct parser *parser, int count) {
    expect_words(parser, count, 1, "reopen");
    add_step(parser, STEP_CLOSE, 0, 0, 0);
    parser->workload->session_count++;
    add_step(parser, STEP_OPEN, 0, 0, 0);
}

/* What two threads do to one slot has no order unless a join lies between. */
static void take_slot(struct parser *parser, const char *word, uint32_t slot, uint32_t thread) {
    struct slot_use *use = &parser->uses[slot];
    if (use->segment == parser->segment && use->thread != thread) {
        char other[32] = "the main thread";
        if (use->thread != 0)
            snprintf(other, sizeof other, "thread %u", use->thread);
        BAD_LINE(parser, "%s: slot %u was used by %s since the last join; put a `join` between them", word, slot, other);
    }
    use->segment = parser->segment;
    use->thread = thread;
}

static void read_operation(struct parser *parser, uint32_t thread, char *const *words, int count) {
    bool is_allocate = strcmp(words[0], "allocate") == 0, is_reallocate = strcmp(words[0], "reallocate") == 0;
    if (!is_allocate && !is_reallocate && strcmp(words[0], "free") != 0)
        BAD_LINE(parser, "`%.40s` is no operation%s, expected %sallocate, free or reallocate", words[0],
                 thread != 0 ? " of a thread" : "", thread != 0 ? "" : "case, reopen, join, thread, ");
    bool has_bytes = is_allocate || is_reallocate;
    expect_words(parser, count, has_bytes ? 3 : 2,
                 is_allocate     ? "allocate SLOT BYTES"
                 : is_reallocate ? "reallocate SLOT BYTES"
                                 : "free SLOT");
    uint32_t slot = (uint32_t)read_number(parser, words[1], "slot", 0, parser->workload->slots - 1);
    uint64_t bytes = has_bytes ? read_number(parser, words[2], "size in bytes", 1, 1ull << 46) : 0;
    struct slot_use *use = &parser->uses[slot];
    take_slot(parser, words[0], slot, thread);
    if (is_allocate && use->is_live)
        BAD_LINE(parser, "allocate: slot %u is in use; free it first", slot);
    if (!is_allocate && !use->is_live)
        BAD_LINE(parser, "%s: slot %u is empty; allocate it first", words[0], slot);
    use->is_live = has_bytes;
    add_step(parser, is_allocate ? STEP_ALLOCATE : is_reallocate ? STEP_REALLOCATE : STEP_FREE, thread, slot, bytes);
}

static void read_threaded(struct parser *parser, char *const *words, int count) {
    if (count < 3)
        BAD_LINE(parser, "expected `thread N` and an operation, as in `thread 1 free 0`");
    uint32_t thread = (uint32_t)read_number(parser, words[1], "thread", 1, MAX_WORKERS);
    if (thread > parser->workload->worker_count)
        parser->workload->worker_count = thread;
    read_operation(parser, thread, words + 2, count - 2);
}

/* Words of the line without its comment; one more than MAX_WORDS when there are too many. */
static int split(char *line, char **words) {
    line[strcspn(line, "#")] = '\0';
    int count = 0;
    for (char *rest = line, *word; count <= MAX_WORDS && (word = strtok_r(rest, " \t\r\n", &rest)) != NULL;)
        words[count++] = word;
    return count;
}

static void read_line(struct parser *parser, char *line) {
    char *words[MAX_WORDS + 1];
    int count = split(line, words);
    if (count == 0)
        return;
    if (!parser->has_slots)
        read_head(parser, words, count);
    else if (strcmp(words[0], "case") == 0)
        read_case(parser, count);
    else if (!parser->has_case)
        BAD_LINE(parser, "`%.40s` before the first `case`; every workload starts with one", words[0]);
    else if (strcmp(words[0], "reopen") == 0)
        read_reopen(parser, count);
    else if (strcmp(words[0], "join") == 0) {
        expect_words(parser, count, 1, "join");
        parser->segment++;
    } else if (strcmp(words[0], "thread") == 0)
        read_threaded(parser, words, count);
    else
        read_operation(parser, 0, words, count);
}

struct workload *workload_read(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail(EXIT_BAD_INPUT, "%s: workload: %s", path, strerror(errno));
    struct workload *workload = allocate_or_fail(NULL, sizeof *workload);
    *workload = (struct workload){.path = path, .session_count = 1};
    struct parser parser = {.workload = workload, .segment = 1};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    errno = 0;
    while ((length = getline(&line, &capacity, file)) >= 0) {
        parser.line++;
        if (memchr(line, '\0', (size_t)length) != NULL)
            BAD_LINE(&parser, "a NUL byte; a workload is a text file");
        read_line(&parser, line);
    }
    if (ferror(file))
        fail(EXIT_BAD_INPUT, "%s: workload: %s", path, strerror(errno));
    fclose(file);
    free(line);
    parser.line++;
    if (!parser.has_case)
        BAD_LINE(&parser, "the file ends here, expected %s",
                 !parser.has_version ? "`workload 1`"
                 : !parser.has_slots ? "`slots COUNT`"
                                     : "`case`");
    add_step(&parser, STEP_CLOSE, 0, 0, 0);
    free(parser.uses);
    return workload;
}
