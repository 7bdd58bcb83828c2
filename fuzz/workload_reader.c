/* SPDX-License-Identifier: Apache-2.0
 *
 * The runner's workload reader by itself: it reads bytes instead of a file and ends with a text instead of the process. The
 * fuzzer links it, and a test loads it as a library to compare it with the harness's reader.
 */
#include "workload/workload.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALLOCATIONS 64

/* What the reader allocated: freed when it is done, however it ended. */
static void *allocations[MAX_ALLOCATIONS];
static size_t allocation_count;
static jmp_buf refused;
static char refusal[1024];
static FILE *input;

int error_fd = 2;

_Noreturn void fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal, sizeof refusal, format, arguments);
    va_end(arguments);
    if (code != EXIT_BAD_INPUT || strchr(refusal, '\n') != NULL)
        abort();
    longjmp(refused, 1);
}

void *allocate_or_fail(void *old, size_t bytes) {
    void *new = realloc(old, bytes);
    if (new == NULL)
        abort();
    for (size_t i = 0; i < allocation_count; i++) {
        if (allocations[i] == old && old != NULL) {
            allocations[i] = new;
            return new;
        }
    }
    if (allocation_count == MAX_ALLOCATIONS)
        abort();
    allocations[allocation_count++] = new;
    return new;
}

/* The reader's own calls, led to the bytes. */
static FILE *open_input(const char *path, const char *mode) {
    (void)path, (void)mode;
    return input;
}

static char *line;
static size_t line_capacity;
static ssize_t get_line(char **kept, size_t *capacity, FILE *file) {
    ssize_t length = getline(&line, &line_capacity, file);
    *kept = line, *capacity = line_capacity;
    return length;
}

static void forget(void *pointer) {
    if (pointer == NULL || pointer == line)
        return;
    for (size_t i = 0; i < allocation_count; i++)
        if (allocations[i] == pointer)
            allocations[i] = NULL;
    free(pointer);
}

#define fopen open_input
#define fclose(file) ((void)(file))
#define getline get_line
#define free forget
#include "workload/links.c"
#include "workload/operations.c"
#include "workload/workload.c"
#undef fopen
#undef fclose
#undef getline
#undef free

static struct workload *read_bytes(const uint8_t *data, size_t size) {
    input = size > 0 ? fmemopen((void *)data, size, "r") : fopen("/dev/null", "r");
    if (input == NULL)
        abort();
    return setjmp(refused) == 0 ? workload_read("input") : NULL;
}

static void release(void) {
    fclose(input);
    for (size_t i = 0; i < allocation_count; i++)
        free(allocations[i]);
    allocation_count = 0;
}

/* A line for each step, or `refused: ` and why. Returns the bytes that the whole text needs. */
size_t fuzz_workload_text(const uint8_t *data, size_t size, char *text, size_t room) {
    FILE *out = fmemopen(text, room, "w");
    const struct workload *workload = read_bytes(data, size);
    if (workload == NULL) {
        fprintf(out, "refused: %s", refusal);
    } else {
        fprintf(out, "slots %u %s, %u workers\n", workload->slots, layout_name(workload->layout), workload->worker_count);
        for (size_t i = 0; i < workload->step_count; i++) {
            const struct step *step = &workload->steps[i];
            fprintf(out, "%s %u %u %u %u %llu thread %u segment %u field %u other %u\n", operation_of(step->kind)->word,
                    step->index, step->slot, step->case_number, step->session, (unsigned long long)step->bytes, step->thread,
                    step->segment, step->field, step->other);
        }
    }
    fflush(out);
    size_t written = (size_t)ftell(out);
    fclose(out);
    release();
    return written;
}

/* The planted panic (src/plant.rs). */
static void plant(bool is_there) {
    const char *planted = getenv("FUZZ_PLANT");
    if (planted != NULL && is_there && strcmp(planted, "panic") == 0) {
        fputs("the planted panic\n", stderr);
        abort();
    }
}

/* Claims: every step is in its case, session and slots, and indices grow by one. */
void fuzz_workload(const uint8_t *data, size_t size) {
    const struct workload *workload = read_bytes(data, size);
    uint32_t index = 0;
    for (size_t i = 0; workload != NULL && i < workload->step_count; i++) {
        const struct step *step = &workload->steps[i];
        if (step->slot >= workload->slots || step->other >= workload->slots || step->field >= FL_GRAPH_FIELDS ||
            step->case_number >= workload->case_count || step->session >= workload->session_count ||
            step->thread > workload->worker_count || (step->kind != FL_OP_CASE && step->index != index++))
            abort();
    }
    plant(workload != NULL && workload->session_count > 2);
    release();
}

/* Coverage as gcc gives it: one call a basic block, to this function and not to libFuzzer's of the same name, which refuses it.
 * libFuzzer looks at the counters of this section. */
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[1 << 12];
__attribute__((used, no_sanitize_coverage, no_sanitize("undefined"))) static void __sanitizer_cov_trace_pc(void) {
    uintptr_t at = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&fuzz_workload;
    counters[(at ^ at >> 12) % sizeof counters]++;
}

#ifdef FUZZ_MAIN
/* For a build with sanitizers: reads each file. */
int main(int count, char **paths) {
    static uint8_t bytes[1 << 20];
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(paths[i], "r");
        if (file == NULL)
            return EXIT_INFRASTRUCTURE;
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        fuzz_workload(bytes, size);
    }
    free(line);
    return 0;
}
#endif
