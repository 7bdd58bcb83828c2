/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap report under construction. It lies in memory that the server shares with the process of each life, so that what a
 * life wrote survives its death; the header always says which life and stage was last begun, and counts whole sections only.
 *
 * The target runs in the process that writes here. A wild store of it may hit this memory: report_is_sound() looks at
 * everything that the server relies on.
 */
#include "probe/probe.h"
#include "files/files.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPORT_BYTES (32u << 20)
#define NAMES_BYTES (60u << 10)
/* Kept free for what the server adds after each life: names and a message. */
#define RESERVE_BYTES (512u << 10)
_Static_assert((FL_LAST_LIFE + 1) * (NAMES_BYTES + 4096u) <= RESERVE_BYTES, "room for what the server adds to each life");

struct shared {
    struct life_result result;
    uint32_t name_count;
    uint32_t name_bytes;
    uint32_t open_section;     /* offset of the section that is being written; 0: none */
    uint32_t open_bytes;       /* of its payload */
    uint32_t is_open_kept;     /* it is a drain that is read though the life ended in it */
    char names[NAMES_BYTES];
};

static struct {
    struct shared *shared;
    uint8_t *bytes; /* the report, at the start of the file */
    int file;
    bool is_in_life; /* this process writes a life's sections: the reserve is not for it */
} area;

static struct fl_report_header *header(void) { return (struct fl_report_header *)area.bytes; }

void report_map(void) {
    size_t shared_bytes = (sizeof(struct shared) + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES * OS_PAGE_BYTES;
    int made = (int)syscall(SYS_memfd_create, "heap-report", MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    if (made >= 0 && ftruncate(made, (off_t)(REPORT_BYTES + shared_bytes)) == 0)
        memory = mmap(NULL, REPORT_BYTES + shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, made, 0);
    if (memory == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for heap reports (%u bytes)", REPORT_BYTES);
    area.file = move_away(made);
    close(made);
    area.bytes = memory;
    area.shared = (struct shared *)(area.bytes + REPORT_BYTES);
}

void report_path(char path[64]) { snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), area.file); }

void report_begin(void) {
    *header() = (struct fl_report_header){
        .magic = FL_REPORT_MAGIC,
        .version = FL_REPORT_VERSION,
        .total_bytes = sizeof(struct fl_report_header),
    };
    area.shared->open_section = 0;
}

void report_life(uint32_t life) {
    header()->life = life;
    header()->stage = 0;
    area.shared->result = (struct life_result){0};
    area.shared->name_count = area.shared->name_bytes = 0;
    area.shared->open_section = 0;
}

void report_stage(enum fl_section_kind stage) { header()->stage = stage; }

struct life_result *report_result(void) { return &area.shared->result; }
const struct fl_report_header *report_bytes(void) { return header(); }
enum fl_outcome report_outcome(void) { return header()->outcome; }

static void expect_room(uint64_t end) {
    if (end > (area.is_in_life ? REPORT_BYTES - RESERVE_BYTES : REPORT_BYTES))
        report_broken("the heap report is full: 32 MiB");
}

void report_enter_life(void) { area.is_in_life = true; }

/* ---- sections --------------------------------------------------------------------------------------------------------- */

static struct fl_section *open_section(void) { return (struct fl_section *)(area.bytes + area.shared->open_section); }

void report_section(enum fl_section_kind kind) {
    uint32_t at = header()->total_bytes;
    expect_room(at + sizeof(struct fl_section));
    area.shared->open_section = at;
    area.shared->open_bytes = 0;
    area.shared->is_open_kept = 0;
    *open_section() = (struct fl_section){.kind = (uint16_t)kind, .life = (uint16_t)header()->life};
}

void report_drain_until_end(void) {
    report_section(FL_SECTION_DRAIN);
    area.shared->is_open_kept = 1;
}

void *report_append(uint32_t bytes) {
    uint64_t at = area.shared->open_section + sizeof(struct fl_section) + area.shared->open_bytes;
    expect_room(at + bytes);
    area.shared->open_bytes += bytes;
    return area.bytes + at;
}

void report_end(int status, uint32_t count, uint64_t value) {
    struct fl_section *section = open_section();
    uint32_t bytes = area.shared->open_bytes, padded = (bytes + 7) / 8 * 8;
    memset((uint8_t *)(section + 1) + bytes, 0, padded - bytes);
    section->status = (uint32_t)status;
    section->count = count;
    section->payload_bytes = bytes;
    section->value = value;
    header()->total_bytes += (uint32_t)sizeof *section + padded;
    header()->section_count++;
    area.shared->open_section = 0;
}

void report_empty(enum fl_section_kind kind, int status, uint64_t value) {
    report_section(kind);
    report_end(status, 0, value);
}

/* Without the heap folder's path: a report is a function of the image, not of where it lies. */
void report_message(enum fl_section_kind about, const char *text) {
    const char *folder = vfs_folder();
    size_t folder_bytes = strlen(folder);
    report_section(FL_SECTION_MESSAGE);
    for (const char *end = text + strnlen(text, 1000); text < end;) {
        const char *path = folder_bytes == 0 ? NULL : strstr(text, folder);
        size_t plain = (size_t)((path != NULL && path < end ? path : end) - text);
        memcpy(report_append(plain), text, plain);
        text += plain;
        if (text < end)
            text += folder_bytes + (text[folder_bytes] == '/');
    }
    report_end(FL_OK, 1, about);
}

/* ---- files ------------------------------------------------------------------------------------------------------------ */

uint32_t report_file(const char *name) {
    struct shared *shared = area.shared;
    uint32_t number = 0;
    for (uint32_t at = 0; at < shared->name_bytes; at += (uint32_t)strlen(shared->names + at) + 1, number++)
        if (strcmp(shared->names + at, name) == 0)
            return number;
    size_t bytes = strlen(name) + 1;
    if (shared->name_bytes + bytes > NAMES_BYTES)
        report_broken("the heap has too many files for the heap report: 60 KiB of names");
    memcpy(shared->names + shared->name_bytes, name, bytes);
    shared->name_bytes += (uint32_t)bytes;
    return shared->name_count++;
}

static bool names_are_sound(void) {
    const struct shared *shared = area.shared;
    uint32_t terminated = 0;
    if (shared->name_bytes > NAMES_BYTES)
        return false;
    for (uint32_t at = 0; at < shared->name_bytes; at++)
        terminated += shared->names[at] == '\0';
    return terminated == shared->name_count && (shared->name_bytes == 0 || shared->names[shared->name_bytes - 1] == '\0');
}

/* ---- the tail of a run (probe/tail_cache.c) ---------------------------------------------------------------------------------------- */

void report_visit_names(void (*visit)(const void *bytes, size_t count)) {
    const struct shared *shared = area.shared;
    visit((uint32_t[2]){shared->name_count, shared->name_bytes}, 2 * sizeof(uint32_t));
    visit(shared->names, shared->name_bytes);
}

void report_mark(struct report_position *place) {
    *place = (struct report_position){header()->total_bytes, header()->section_count};
}

const void *report_tail(const struct report_position *from, struct report_tail *tail) {
    *tail = (struct report_tail){*header(), header()->total_bytes - from->bytes, header()->section_count - from->sections};
    return area.bytes + from->bytes;
}

void report_add_tail(const struct report_tail *tail, const void *bytes) {
    struct report_position place;
    report_mark(&place);
    expect_room((uint64_t)place.bytes + tail->bytes);
    memcpy(area.bytes + place.bytes, bytes, tail->bytes);
    *header() = tail->end;
    header()->total_bytes = place.bytes + tail->bytes;
    header()->section_count = place.sections + tail->sections;
}

/* ---- the end of a life ------------------------------------------------------------------------------------------------ */

/* The reserve has room for it. */
static void append_last_words(const char *text) {
    struct fl_report_header *head = header();
    uint32_t bytes = (uint32_t)strnlen(text, 1000), padded = (bytes + 7) / 8 * 8;
    struct fl_section *section = (struct fl_section *)(area.bytes + head->total_bytes);
    *section = (struct fl_section){
        .kind = FL_SECTION_MESSAGE, .life = (uint16_t)head->life, .count = 1, .payload_bytes = bytes, .value = head->stage};
    memset(section + 1, 0, padded);
    memcpy(section + 1, text, bytes);
    head->total_bytes += (uint32_t)sizeof *section + padded;
    head->section_count++;
}

void report_broken(const char *message) {
    report_break(message);
    syscall(SYS_exit_group, EXIT_INFRASTRUCTURE);
    __builtin_unreachable();
}

bool report_is_sound(void) {
    const struct fl_report_header *head = header();
    if (head->magic != FL_REPORT_MAGIC || head->version != FL_REPORT_VERSION ||
        head->total_bytes > REPORT_BYTES - (NAMES_BYTES + 4096u) || head->life > FL_LAST_LIFE || head->stage > FL_SECTION_SETTLE ||
        head->outcome > FL_OUTCOME_BROKEN || !names_are_sound())
        return false;
    uint64_t at = sizeof *head;
    uint32_t count = 0;
    while (at + sizeof(struct fl_section) <= head->total_bytes) {
        const struct fl_section *section = (const struct fl_section *)(area.bytes + at);
        if (section->life > head->life)
            return false;
        at += sizeof *section + ((uint64_t)section->payload_bytes + 7) / 8 * 8;
        count++;
    }
    return at == head->total_bytes && count == head->section_count;
}

/* The names that the life's sections refer to. Written here, so that a life that died has them too. */
static void append_names(void) {
    if (area.shared->name_count == 0)
        return;
    report_section(FL_SECTION_FILES);
    memcpy(report_append(area.shared->name_bytes), area.shared->names, area.shared->name_bytes);
    report_end(FL_OK, area.shared->name_count, 0);
}

static void keep_drain(void) {
    const struct shared *shared = area.shared;
    if (shared->is_open_kept != 1 || shared->open_section == 0 || shared->open_section != header()->total_bytes ||
        shared->open_bytes > REPORT_BYTES - RESERVE_BYTES - shared->open_section)
        return;
    const struct fl_block_entry *entries = (const struct fl_block_entry *)(open_section() + 1);
    uint32_t count = shared->open_bytes / (uint32_t)sizeof *entries;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += entries[i].bytes;
    area.shared->open_bytes = count * (uint32_t)sizeof *entries;
    report_end(FL_OK, count, bytes);
}

void report_finish_life(enum fl_outcome outcome, uint32_t signal) {
    struct fl_report_header *head = header();
    if (!report_is_sound()) {
        uint32_t life = head->life <= FL_LAST_LIFE ? head->life : 0;
        report_begin();
        report_life(life);
        append_last_words("the target overwrote the runner's memory, where the heap report was");
        outcome = FL_OUTCOME_BROKEN;
    } else {
        keep_drain();
        append_names();
        if (head->outcome == FL_OUTCOME_BROKEN)
            outcome = FL_OUTCOME_BROKEN; /* the life said so itself */
    }
    head->outcome = outcome;
    head->signal = outcome == FL_OUTCOME_SIGNAL ? signal : 0;
}

void report_break(const char *message) {
    append_last_words(message);
    header()->outcome = FL_OUTCOME_BROKEN;
}
