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

static bool synced(const char *path) {
    int file = file_of(path, O_RDONLY);
    bool is_done = fsync(file) == 0;
    close(file);
    return is_done;
}

static bool created(const char *path) { return close(file_of(path, O_RDWR | O_CREAT | O_EXCL)) == 0; }

static bool extended(const char *path, const char *bytes) {
    int file = file_of(path, O_RDWR);
    bool is_done = fallocate(file, 0, 0, strtol(bytes, NULL, 10)) == 0;
    close(file);
    return is_done;
}

/* By a system call. */
static bool written(const char *offset, uint64_t value) {
    int file = file_of(variables, O_RDWR);
    bool is_done = pwrite(file, &value, sizeof value, strtol(offset, NULL, 10)) == sizeof value;
    close(file);
    return is_done;
}

static bool stored(const char *offset, const char *value) {
    *(volatile uint64_t *)variable(offset) = strtoull(value, NULL, 10);
    return true;
}

/* By `clflush`, which each processor has: it is at least what clflushopt and clwb are, and here all stores are executed anyway. */
static bool flushed(const char *offset) {
    _mm_clflush(variable(offset));
    return true;
}

static bool fenced(void) {
    _mm_mfence();
    return true;
}

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
    const char *kind = words[0];
    errno = 0;
    if (count == 1)
        return strcmp(kind, "sync") == 0                                        ? (sync(), true)
               : strcmp(kind, "sfence") == 0 || strcmp(kind, "mfence") == 0 ? fenced()
                                                                               : false;
    if (count == 2 && is_number(kind))
        return stored(kind, words[1]);
    if (count == 2) {
        const char *what = words[1];
        return strcmp(kind, "create") == 0   ? created(what)
               : strcmp(kind, "unlink") == 0 ? unlink(what) == 0
               : strcmp(kind, "mkdir") == 0  ? mkdir(what, 0777) == 0
               : strcmp(kind, "rmdir") == 0  ? rmdir(what) == 0
               : strcmp(kind, "fsync") == 0  ? synced(strcmp(what, "dir") == 0 ? "." : what)
               : strcmp(kind, "clflush") == 0 || strcmp(kind, "clflushopt") == 0 || strcmp(kind, "clwb") == 0 ? flushed(what)
                                                                                                             : false;
    }
    return strcmp(kind, "truncate") == 0 ? truncate(words[1], strtol(words[2], NULL, 10)) == 0
           : strcmp(kind, "extend") == 0 ? extended(words[1], words[2])
           : strcmp(kind, "write") == 0  ? written(words[1], strtoull(words[2], NULL, 10))
           : strcmp(kind, "rename") == 0 ? rename(words[1], words[2]) == 0
           : strcmp(kind, "fsync") == 0  ? synced(words[2]) /* fsync dir D */
                                         : false;
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
