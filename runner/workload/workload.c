/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a workload file. Everything about the steps is fixed by the file alone, so that every session of a workload, each a
 * process of its own, agrees on cases and operation indices.
 */
#include "workload/workload.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 5 /* `thread N reallocate SLOT BYTES` */
#define MAX_GROWTHS 65536u
#define WORD_BYTES 8u /* what is written begins and ends with a whole word, so that contents can tell of it */
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
    struct slot_use *uses_at_begin; /* of the transaction that is open; null: none is */
    struct links *links;   /* of the graph layout, else null */
};

/* A slot as the file alone tells it: as if every allocate succeeded. */
struct slot_use {
    bool is_live;
    uint64_t bytes; /* of its object */
    uint32_t segment, thread; /* that used it last; segment 0: none */
};

static const char *const LAYOUTS[] = {
    [FL_SLOTS_ROOT] = "root", [FL_SLOTS_NAMES] = "names", [FL_SLOTS_CHAIN] = "chain", [FL_SLOTS_GRAPH] = "graph"};

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

/* What a step does; the rest of it is where it stands. */
static void add_step(struct parser *parser, struct step step) {
    struct workload *workload = parser->workload;
    if (!has_slot(step.kind))
        parser->segment++; /* case, create, open and close are the main thread's, alone */
    if (workload->step_count == parser->capacity) {
        parser->capacity = parser->capacity == 0 ? 256 : parser->capacity * 2;
        workload->steps = allocate_or_fail(workload->steps, parser->capacity * sizeof *workload->steps);
    }
    if (parser->next_index >= MAX_OPERATIONS)
        BAD_LINE(parser, "more than %u operations; split the workload", MAX_OPERATIONS);
    step.segment = parser->segment;
    step.index = step.kind == FL_OP_CASE ? workload->case_count - 1 : parser->next_index;
    step.case_number = workload->case_count - 1;
    step.session = workload->session_count - 1;
    workload->steps[workload->step_count++] = step;
    if (step.kind != FL_OP_CASE)
        parser->next_index++;
    if (!has_slot(step.kind))
        parser->segment++;
}

static void add_plain(struct parser *parser, enum fl_operation kind) { add_step(parser, (struct step){.kind = kind}); }

static void forget_uses(struct parser *parser) {
    memset(parser->uses, 0, parser->workload->slots * sizeof *parser->uses);
    if (parser->links != NULL)
        links_forget(parser->links);
}

static void read_head(struct parser *parser, char *const *words, int count) {
    if (!parser->has_version) {
        if (strcmp(words[0], "workload") != 0 || count != 2 || strcmp(words[1], "1") != 0)
            BAD_LINE(parser, "expected `workload 1` as the first line");
        parser->has_version = true;
        return;
    }
    if (strcmp(words[0], "slots") != 0 || (count != 2 && count != 3))
        BAD_LINE(parser, "expected `slots COUNT [names | chain | graph]` after `workload 1`");
    parser->workload->slots = (uint32_t)read_number(parser, words[1], "slot count", 1, MAX_SLOTS);
    if (count == 3 && !find_layout(words[2], &parser->workload->layout))
        BAD_LINE(parser, "slot layout is `%.40s`, expected root, names, chain or graph", words[2]);
    if (parser->workload->layout == FL_SLOTS_GRAPH)
        parser->links = links_new(parser->workload->slots);
    parser->uses = allocate_or_fail(NULL, parser->workload->slots * sizeof *parser->uses);
    forget_uses(parser);
    parser->has_slots = true;
}

static void expect_words(const struct parser *parser, int count, int expected, const char *form) {
    if (count != expected)
        BAD_LINE(parser, "expected `%s`", form);
}

/* Of the workload's reopens, and of recoveries. */
static void read_opens(struct parser *parser, char *const *words, int count) {
    if (count != 2 || strcmp(words[1], "lazily") != 0)
        BAD_LINE(parser, "expected `opens lazily`");
    if (parser->has_case)
        BAD_LINE(parser, "`opens lazily` after the first `case`; it stands below `slots COUNT`");
    parser->workload->is_lazy = true;
}

static void read_growths(struct parser *parser, char *const *words, int count) {
    if (count != 2)
        BAD_LINE(parser, "expected `growths COUNT`");
    if (parser->has_case)
        BAD_LINE(parser, "`growths` after the first `case`; it stands below `slots COUNT`");
    parser->workload->growths = read_number(parser, words[1], "growths", 0, MAX_GROWTHS);
}

static void expect_no_transaction(const struct parser *parser, const char *what) {
    if (parser->uses_at_begin != NULL)
        BAD_LINE(parser, "%s in a transaction; commit or abort it first", what);
}

static void read_case(struct parser *parser, int count) {
    expect_words(parser, count, 1, "case");
    expect_no_transaction(parser, "case");
    if (parser->has_case)
        add_plain(parser, FL_OP_CLOSE);
    parser->has_case = true;
    parser->workload->case_count++;
    forget_uses(parser);
    add_plain(parser, FL_OP_CASE);
    add_plain(parser, FL_OP_CREATE);
}

static void read_reopen(struct parser *parser, int count) {
    expect_words(parser, count, 1, "reopen");
    expect_no_transaction(parser, "reopen");
    add_plain(parser, FL_OP_CLOSE);
    parser->workload->session_count++;
    add_plain(parser, FL_OP_OPEN);
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

/* Operations on slots that the main thread or workers run. */
static bool is_listed(const struct operation *operation, bool is_of_threads) {
    return is_line(operation) && (operation->is_of_threads || !is_of_threads);
}

/* Their words, as in a sentence: `allocate, free or reallocate`. */
static void list_operations(bool is_of_threads, char *text, size_t room) {
    size_t left = 0;
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        left += is_listed(&OPERATIONS[i], is_of_threads);
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        if (is_listed(&OPERATIONS[i], is_of_threads)) {
            int length = snprintf(text, room, "%s%s", OPERATIONS[i].word, left == 1 ? "" : left == 2 ? " or " : ", ");
            text += length, room -= (size_t)length, left--;
        }
}

static void expect_operands(const struct parser *parser, const struct operation *operation, int count) {
    char usage[64];
    int expected = 1, length = snprintf(usage, sizeof usage, "%s", operation->word);
    for (size_t i = 0; i < MOST_OPERANDS && operation->operands[i] != OPERAND_NONE; i++, expected++)
        length += snprintf(usage + length, sizeof usage - (size_t)length, " %s", operand_name(operation->operands[i]));
    expect_words(parser, count, expected, usage);
}

static const struct operation *read_kind(const struct parser *parser, uint32_t thread, char *const *words, int count) {
    char others[128];
    const struct operation *operation = find_operation(words[0]);
    list_operations(thread != 0, others, sizeof others);
    if (thread != 0 && (operation == NULL || !operation->is_of_threads))
        BAD_LINE(parser, "`%.40s` is no operation of a thread, expected %s", words[0], others);
    if (operation == NULL)
        BAD_LINE(parser, "`%.40s` is no operation, expected case, reopen, join, thread, %s", words[0], others);
    if (operation->is_of_graph && parser->links == NULL)
        BAD_LINE(parser, "%s: the slots hold objects without fields; it needs `slots COUNT graph`", operation->word);
    expect_operands(parser, operation, count);
    return operation;
}

static uint32_t read_slot(const struct parser *parser, const char *word) {
    return (uint32_t)read_number(parser, word, "slot", 0, parser->workload->slots - 1);
}

static uint32_t read_field(const struct parser *parser, const char *word) {
    return (uint32_t)read_number(parser, word, "field", 0, FL_GRAPH_FIELDS - 1);
}

static uint64_t read_words(const struct parser *parser, const char *word, const char *what, uint64_t least, uint64_t most) {
    uint64_t value = read_number(parser, word, what, least, most);
    if (value % WORD_BYTES != 0)
        BAD_LINE(parser, "%s is %s, expected a multiple of %u", what, word, WORD_BYTES);
    return value;
}

static void read_operand(const struct parser *parser, enum operand operand, const char *word, struct step *step) {
    switch (operand) {
    case OPERAND_NONE: break;
    case OPERAND_SLOT: step->slot = read_slot(parser, word); break;
    case OPERAND_BYTES: step->bytes = read_number(parser, word, "size in bytes", 1, 1ull << 46); break;
    case OPERAND_FIELD: step->field = read_field(parser, word); break;
    case OPERAND_TARGET:
    case OPERAND_FROM: step->other = read_slot(parser, word); break;
    case OPERAND_START: step->start = (uint32_t)read_words(parser, word, "first byte", 0, UINT32_MAX); break;
    case OPERAND_LENGTH: step->bytes = read_words(parser, word, "length in bytes", WORD_BYTES, UINT32_MAX); break;
    }
}

static bool has_other_slot(const struct operation *operation) {
    bool found = false;
    for (size_t i = 0; i < MOST_OPERANDS; i++)
        found |= operation->operands[i] == OPERAND_TARGET || operation->operands[i] == OPERAND_FROM;
    return found;
}

static void check_slots(const struct parser *parser, const struct operation *operation, const struct step *step) {
    const char *word = operation->word;
    bool is_live = parser->uses[step->slot].is_live;
    if (operation->fills_slot && is_live)
        BAD_LINE(parser, "%s: slot %u is in use; free%s it first", word, step->slot, parser->links != NULL ? " or drop" : "");
    if (!operation->fills_slot && !is_live)
        BAD_LINE(parser, "%s: slot %u is empty; allocate it first", word, step->slot);
    const struct slot_use *use = &parser->uses[step->slot];
    if (step->kind == FL_OP_WRITE && step->start + step->bytes > use->bytes)
        BAD_LINE(parser, "write: it ends at byte %llu, the object in slot %u at byte %llu",
                 (unsigned long long)(step->start + step->bytes), step->slot, (unsigned long long)use->bytes);
    if (has_other_slot(operation) && !parser->uses[step->other].is_live)
        BAD_LINE(parser, "%s: slot %u is empty; allocate it first", word, step->other);
}

/* In the graph layout: the fields and what holds the objects. load: how large its object is. */
static void follow_links(struct parser *parser, struct step *step) {
    struct links *links = parser->links;
    const char *word = operation_of(step->kind)->word;
    char holder[LINKS_TEXT_BYTES];
    if ((step->kind == FL_OP_FREE || step->kind == FL_OP_REALLOCATE) && links_find_holder(links, step->slot, holder))
        BAD_LINE(parser, "%s: the object in slot %u %s", word, step->slot, holder);
    if (step->kind == FL_OP_LOAD && !links_is_set(links, step->other, step->field))
        BAD_LINE(parser, "%s: field %u of the object in slot %u is null; link it first", word, step->field, step->other);
    switch (step->kind) {
    case FL_OP_ALLOCATE: links_allocate(links, step->slot, step->bytes); break;
    case FL_OP_REALLOCATE: links_reallocate(links, step->slot, step->bytes); break;
    case FL_OP_FREE: links_free_object(links, step->slot); break;
    case FL_OP_LINK: links_link(links, step->slot, step->field, step->other); break;
    case FL_OP_UNLINK: links_unlink(links, step->slot, step->field); break;
    case FL_OP_DROP: links_drop(links, step->slot); break;
    case FL_OP_LOAD:
        links_load(links, step->slot, step->other, step->field);
        step->bytes = links_bytes(links, step->slot);
        break;
    default: break;
    }
}

/* Operations of several threads that overlap have no transaction in common. */
static void check_transaction(const struct parser *parser, const struct operation *operation) {
    bool is_open = parser->uses_at_begin != NULL;
    bool is_of_them = operation->bounds_transaction || operation->kind == FL_OP_WRITE;
    if (is_of_them && parser->links != NULL)
        BAD_LINE(parser, "%s: there are no transactions and writes with `slots COUNT graph`", operation->word);
    if (operation->kind == FL_OP_BEGIN && is_open)
        BAD_LINE(parser, "begin: a transaction is open; commit or abort it first");
    if (operation->bounds_transaction && operation->kind != FL_OP_BEGIN && !is_open)
        BAD_LINE(parser, "%s: no transaction is open; begin one first", operation->word);
    if (parser->workload->has_transactions && parser->workload->worker_count > 0)
        BAD_LINE(parser, "%s: a workload has transactions and writes, or `thread`, not both", operation->word);
}

/* What an aborted transaction did to the slots it did not do. */
static void read_bound(struct parser *parser, const struct operation *operation) {
    size_t bytes = parser->workload->slots * sizeof *parser->uses;
    if (operation->kind == FL_OP_BEGIN) {
        parser->uses_at_begin = allocate_or_fail(NULL, bytes);
        memcpy(parser->uses_at_begin, parser->uses, bytes);
    } else {
        if (operation->kind == FL_OP_ABORT)
            memcpy(parser->uses, parser->uses_at_begin, bytes);
        free(parser->uses_at_begin);
        parser->uses_at_begin = NULL;
    }
    add_plain(parser, operation->kind);
}

static void read_operation(struct parser *parser, uint32_t thread, char *const *words, int count) {
    const struct operation *operation = read_kind(parser, thread, words, count);
    struct step step = {.kind = operation->kind, .thread = thread};
    parser->workload->has_transactions |= operation->bounds_transaction || operation->kind == FL_OP_WRITE;
    check_transaction(parser, operation);
    if (operation->bounds_transaction) {
        read_bound(parser, operation);
        return;
    }
    for (int i = 1; i < count; i++)
        read_operand(parser, operation->operands[i - 1], words[i], &step);
    take_slot(parser, words[0], step.slot, thread);
    check_slots(parser, operation, &step);
    if (parser->links != NULL)
        follow_links(parser, &step);
    parser->uses[step.slot].is_live = !operation->empties_slot;
    if (operation->makes_object)
        parser->uses[step.slot].bytes = step.bytes;
    add_step(parser, step);
}

static void read_threaded(struct parser *parser, char *const *words, int count) {
    if (count < 3)
        BAD_LINE(parser, "expected `thread N` and an operation, as in `thread 1 free 0`");
    if (parser->links != NULL)
        BAD_LINE(parser, "`thread`: with `slots COUNT graph` every operation is the main thread's; leave `thread N` out");
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
    else if (strcmp(words[0], "opens") == 0)
        read_opens(parser, words, count);
    else if (strcmp(words[0], "growths") == 0)
        read_growths(parser, words, count);
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
    *workload = (struct workload){.path = path, .session_count = 1, .growths = ENDLESS_SPACE};
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
    expect_no_transaction(&parser, "the file ends");
    add_plain(&parser, FL_OP_CLOSE);
    free(parser.uses);
    links_free(parser.links);
    return workload;
}
