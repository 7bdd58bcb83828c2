/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes the steps of a litmus test on a mounted file system, and says later what is left of them (ci/dax_litmus.py).
 *
 *   steps run FOLDER MARKERS   steps on standard input, one a line, in the words of litmus files (crashgen/src/litmus.rs), with the byte offset
 *                              of a variable in the place of its name. In front of them `variables FILE synced` or `variables FILE plain`
 *                              says which file they lie in and how it is mapped. `pause MS` waits. Before and after each other step a
 *                              line is out on MARKERS: `begin N`, `return N`.
 *   steps look FOLDER          questions on standard input: `variable NAME FILE OFFSET`, `name NAME`. Answers NAME=VALUE, a line each: 0 where
 *                              the file does not have the variable; a name's size, 0 of a folder, or `none`.
 *
 * Exit code 2 and one line on standard error: a step failed, or is none that this program knows.
 */
#include <errno.h>
#include <fcntl.h>
#include <immintrin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define MOST_WORDS 4

static char variables[256]; /* the file that they lie in */
static bool is_synced;
static char *page; /* of it, once it is mapped: all variables lie there */

static _Noreturn void end(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", errno != 0 ? strerror(errno) : "not known");
    exit(2);
}

static int file_of(const char *path, int flags) {
    int file = open(path, flags | O_CLOEXEC, 0666);
    if (file < 0)
        end("open %s", path);
    return file;
}

/* Mapped when it is first stored to: then it has its size. */
static char *variable(const char *offset) {
    if (page == NULL) {
        int file = file_of(variables, O_RDWR), flags = is_synced ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED;
        page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, flags, file, 0);
        if (page == MAP_FAILED)
            end("mmap %s%s", variables, is_synced ? " with MAP_SYNC" : "");
        close(file);
    }
    return page + strtoul(offset, NULL, 10);
}

/* ---- what the steps do; `more` is null where they have one word only ---- */

static bool sync_all(const char *what, const char *more) {
    (void)what, (void)more;
    sync();
    return true;
}

static bool sync_file(const char *path, const char *more) {
    bool is_folder = strcmp(path, "dir") == 0;
    int file = file_of(!is_folder ? path : more == NULL ? "." : more, O_RDONLY);
    bool is_done = fsync(file) == 0;
    close(file);
    return is_done;
}

static bool create(const char *path, const char *more) {
    (void)more;
    return close(file_of(path, O_RDWR | O_CREAT | O_EXCL)) == 0;
}

static bool remove_file(const char *path, const char *more) {
    (void)more;
    return unlink(path) == 0;
}

static bool make_folder(const char *path, const char *more) {
    (void)more;
    return mkdir(path, 0777) == 0;
}

static bool remove_folder(const char *path, const char *more) {
    (void)more;
    return rmdir(path) == 0;
}

static bool rename_file(const char *from, const char *to) { return rename(from, to) == 0; }

static bool cut(const char *path, const char *bytes) { return truncate(path, strtol(bytes, NULL, 10)) == 0; }

static bool extend(const char *path, const char *bytes) {
    int file = file_of(path, O_RDWR);
    bool is_done = fallocate(file, 0, 0, strtol(bytes, NULL, 10)) == 0;
    close(file);
    return is_done;
}

static bool write_variable(const char *offset, const char *text) {
    uint64_t value = strtoull(text, NULL, 10);
    int file = file_of(variables, O_RDWR);
    bool is_done = pwrite(file, &value, sizeof value, strtol(offset, NULL, 10)) == sizeof value;
    close(file);
    return is_done;
}

static bool store(const char *offset, const char *value) {
    *(volatile uint64_t *)variable(offset) = strtoull(value, NULL, 10);
    return true;
}

/* By `clflush`, which each processor has: it is at least what clflushopt and clwb are, and here all stores are executed anyway. */
static bool flush(const char *offset, const char *more) {
    (void)more;
    _mm_clflush(variable(offset));
    return true;
}

static bool fence(const char *what, const char *more) {
    (void)what, (void)more;
    _mm_mfence();
    return true;
}

static const struct verb {
    const char *word;
    int least, most; /* words behind it */
    bool (*run)(const char *what, const char *more);
} VERBS[] = {
    {"sync", 0, 0, sync_all},      {"sfence", 0, 0, fence},       {"mfence", 0, 0, fence},         {"create", 1, 1, create},
    {"unlink", 1, 1, remove_file}, {"mkdir", 1, 1, make_folder},  {"rmdir", 1, 1, remove_folder},  {"fsync", 1, 2, sync_file},
    {"clflush", 1, 1, flush},      {"clflushopt", 1, 1, flush},   {"clwb", 1, 1, flush},           {"truncate", 2, 2, cut},
    {"extend", 2, 2, extend},      {"rename", 2, 2, rename_file}, {"write", 2, 2, write_variable},
};

/* The words of a step; `=` is none. */
static int words_of(char *line, char *words[MOST_WORDS]) {
    int count = 0;
    for (char *word = strtok(line, " \n"); word != NULL && count < MOST_WORDS; word = strtok(NULL, " \n"))
        if (strcmp(word, "=") != 0)
            words[count++] = word;
    return count;
}

static bool is_number(const char *word) { return word[0] >= '0' && word[0] <= '9'; }

static bool execute(char *words[MOST_WORDS], int count) {
    const char *what = count > 1 ? words[1] : NULL, *more = count > 2 ? words[2] : NULL;
    errno = 0;
    if (count == 2 && is_number(words[0]))
        return store(words[0], what);
    for (size_t i = 0; i < sizeof VERBS / sizeof VERBS[0]; i++) {
        const struct verb *verb = &VERBS[i];
        if (strcmp(verb->word, words[0]) == 0 && verb->least < count && count <= verb->most + 1)
            return verb->run(what, more);
    }
    return false;
}

static void say(int markers, const char *what, unsigned number) {
    char line[32];
    int bytes = snprintf(line, sizeof line, "%s %u\n", what, number);
    if (write(markers, line, (size_t)bytes) != bytes || (isatty(markers) && tcdrain(markers) != 0))
        end("markers");
}

static void run(const char *path) {
    int markers = file_of(path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY);
    char line[256], *words[MOST_WORDS];
    unsigned number = 0;
    while (fgets(line, sizeof line, stdin) != NULL) {
        int count = words_of(line, words);
        if (count == 3 && strcmp(words[0], "variables") == 0) {
            snprintf(variables, sizeof variables, "%s", words[1]);
            is_synced = strcmp(words[2], "synced") == 0;
        } else if (count == 2 && strcmp(words[0], "pause") == 0) {
            long ms = strtol(words[1], NULL, 10);
            nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
        } else if (count > 0) {
            say(markers, "begin", number);
            if (!execute(words, count))
                end("step %u, %s", number, words[0]);
            say(markers, "return", number++);
        }
    }
}

static uint64_t value_of(const char *path, long offset) {
    uint64_t value = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || pread(file, &value, sizeof value, offset) != sizeof value)
        value = 0;
    if (file >= 0)
        close(file);
    return value;
}

static void look(void) {
    char line[256], *words[MOST_WORDS];
    while (fgets(line, sizeof line, stdin) != NULL) {
        int count = words_of(line, words);
        struct stat status;
        if (count == 4)
            printf("%s=%llu\n", words[1], (unsigned long long)value_of(words[2], strtol(words[3], NULL, 10)));
        else if (count == 2 && stat(words[1], &status) != 0)
            printf("%s=none\n", words[1]);
        else if (count == 2)
            printf("%s=%llu\n", words[1], S_ISDIR(status.st_mode) ? 0ull : (unsigned long long)status.st_size);
    }
}

int main(int count, char **arguments) {
    bool is_run = count == 4 && strcmp(arguments[1], "run") == 0;
    if (!is_run && (count != 3 || strcmp(arguments[1], "look") != 0)) {
        fprintf(stderr, "usage: steps run FOLDER MARKERS | steps look FOLDER\n");
        return 2;
    }
    if (chdir(arguments[2]) != 0)
        end("%s", arguments[2]);
    is_run ? run(arguments[3]) : look();
    return 0;
}
