/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c - the region's file and mapping; start, restart and close (§10.1, §11).
 *
 * The whole address range up to the limit is reserved when the region is opened, and the file is mapped over its front. The
 * file grows before rgn_curr does (a failure in between leaves a surplus of zeros behind rgn_curr, which the next growth uses).
 * Growing gets the media from the file system (fallocate): a full one is found out then, not by SIGBUS.
 *
 * How a failure is known: the paper's client knows by itself that it failed. Here the region says so: its state is IN_USE from
 * just before the first change of a life (§11.1 and §11.2: a failure before that harms nothing) until close has made all
 * auxiliary metadata visible.
 */
#include "types.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stage.h"

struct mak mak = {.fd = -1,
                  .global = PTHREAD_MUTEX_INITIALIZER,
                  .claim_ended = PTHREAD_COND_INITIALIZER,
                  .threads_lock = PTHREAD_MUTEX_INITIALIZER};

void *MAK_base(void) { return mak.base; }
uint64_t MAK_file_bytes(void) { return mak.file_bytes; }
const char *MAK_folder(void) { return mak.folder; }

/* ---- file and mapping ---- */

static int find_path(const char *folder) {
    if (mak.phase != MAK_PHASE_CLOSED)
        return mak_fail(MAK_INVALID, "%s is open: a process has one region at a time; call MAK_close first", mak.path);
    if (folder == NULL || folder[0] == '\0')
        return mak_fail(MAK_INVALID, "no folder given");
    int length = snprintf(mak.path, sizeof mak.path, "%s/%s", folder, MAK_FILE_NAME);
    snprintf(mak.folder, sizeof mak.folder, "%s", folder);
    return length < (int)sizeof mak.path ? MAK_OK
                                         : mak_fail(MAK_INVALID, "the folder's path is longer than %zu bytes", sizeof mak.path);
}

/* Address space only: nothing is there yet. */
static int reserve_addresses(uintptr_t base, uint64_t limit_bytes) {
    void *wanted = (void *)base;
    void *got = mmap(wanted, limit_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != wanted) { /* a kernel that does not know NOREPLACE */
        munmap(got, limit_bytes);
        errno = EEXIST;
    } else if (got != MAP_FAILED) {
        mak.base = got;
        mak.limit_bytes = limit_bytes;
        return MAK_OK;
    }
    if (errno == EEXIST)
        return mak_fail(MAK_ADDRESS_TAKEN,
                        "%s must be mapped at %#llx to %#llx, and something else is mapped there in this process", mak.path,
                        (unsigned long long)base, (unsigned long long)(base + limit_bytes));
    return mak_fail(MAK_ERROR, "%s: cannot reserve %llu bytes of address space at %#llx: %s", mak.path,
                    (unsigned long long)limit_bytes, (unsigned long long)base, strerror(errno));
}

/* Maps the file's bytes from `from` to `to` where they belong. */
static int map_more(uint64_t from, uint64_t to) {
    int is_emulated;
    void *mapping = fl_map((uintptr_t)mak.base + from, to - from, mak.fd, from, 1, &is_emulated);
    if (mapping == MAP_FAILED)
        return mak_fail(MAK_ERROR, "%s: cannot map %llu bytes: %s", mak.path, (unsigned long long)(to - from), strerror(errno));
    mak.file_bytes = to;
    return MAK_OK;
}

/* At least this long, all mapped. Durable before anything refers to it. */
int mak_extend_file(uint64_t bytes) {
    if (bytes <= mak.file_bytes)
        return MAK_OK;
    int error = posix_fallocate(mak.fd, (off_t)mak.file_bytes, (off_t)(bytes - mak.file_bytes));
#if !defined(MUTANT_GROWTH_NOT_SYNCED)
    if (error == 0 && fsync(mak.fd) != 0)
        error = errno;
#endif
    if (error != 0)
        return mak_fail(MAK_OUT_OF_MEMORY, "%s: cannot get %llu bytes more from the file system: %s", mak.path,
                        (unsigned long long)(bytes - mak.file_bytes), strerror(error));
    return map_more(mak.file_bytes, bytes);
}

static void place_structures(void) {
    mak.media = (struct mak_base *)mak.base;
    mak.log = (struct mak_log_entry *)(mak.base + MAK_LOG_OFFSET);
    mak.roots = (uint64_t *)(mak.base + MAK_ROOTS_OFFSET);
    mak.map = (uint64_t *)(mak.base + MAK_MAP_OFFSET);
}

/* Volatile structures, after the mapping. */
static int init_volatile(void) {
    uint64_t space_bytes = mak_space_bytes(mak.limit_bytes);
    place_structures();
    mak.life++;
    mak.log_next = 0;
    mak.space_count = 0;
    mak.headers_in_space = (uint32_t)(space_bytes / sizeof(struct mak_header));
    mak.first_block = (uint32_t)((mak_first_space_offset(mak.limit_bytes) + space_bytes) / MAK_BLOCK_BYTES);
    mak.links = calloc(mak.limit_bytes / MAK_BLOCK_BYTES, sizeof *mak.links);
    if (mak.links == NULL)
        return mak_fail(MAK_ERROR, "out of volatile memory for the lists of %llu blocks",
                        (unsigned long long)mak.limit_bytes / MAK_BLOCK_BYTES);
    mak_chunks_init();
    return mak_objects_init();
}

/* Everything volatile goes; media are not touched. */
static void forget(void) {
    if (mak.links != NULL) {
        mak_chunks_destroy();
        mak_objects_destroy();
    }
    free(mak.links);
    if (mak.base != NULL)
        munmap(mak.base, mak.limit_bytes);
    if (mak.fd >= 0)
        close(mak.fd);
    mak_visible_forget();
    mak.links = NULL;
    mak.base = NULL;
    mak.fd = -1;
    mak.file_bytes = 0;
    mak.is_in_use = false;
    mak.free_callback = NULL;
    mak.phase = MAK_PHASE_CLOSED;
}

static int forgotten(int status) {
    if (status != MAK_OK)
        forget();
    return status;
}

/* ---- MAK_start, §11.1 ---- */

#define ADDRESS_END ((uint64_t)1 << 47)

static int check_options(struct MAK_options *options) {
    options->heap_bytes = options->heap_bytes == 0 ? MAK_DEFAULT_HEAP_BYTES : options->heap_bytes;
    options->limit_bytes = options->limit_bytes == 0 ? MAK_DEFAULT_LIMIT_BYTES : options->limit_bytes;
    options->address = options->address == 0 ? MAK_DEFAULT_ADDRESS : options->address;
    if (options->heap_bytes % MAK_BLOCK_BYTES != 0 || options->limit_bytes % MAK_BLOCK_BYTES != 0 ||
        options->address % MAK_BLOCK_BYTES != 0)
        return mak_fail(MAK_INVALID, "a region of %llu bytes, at most %llu, at %#llx: all must be multiples of %u",
                        (unsigned long long)options->heap_bytes, (unsigned long long)options->limit_bytes,
                        (unsigned long long)options->address, MAK_BLOCK_BYTES);
    if (options->heap_bytes > options->limit_bytes || options->limit_bytes > ((uint64_t)UINT32_MAX * MAK_BLOCK_BYTES) ||
        options->address + options->limit_bytes > ADDRESS_END)
        return mak_fail(MAK_INVALID, "a region of %llu bytes, at most %llu, at %#llx: out of range",
                        (unsigned long long)options->heap_bytes, (unsigned long long)options->limit_bytes,
                        (unsigned long long)options->address);
    return MAK_OK;
}

/* Header spaces for all blocks behind them, and at least one block: how many; 0: there is no room. */
static uint32_t initial_spaces(const struct MAK_options *options) {
    uint64_t space = mak_space_bytes(options->limit_bytes), headers = space / sizeof(struct mak_header);
    for (uint64_t spaces = 1; spaces <= MAK_HEADER_SPACES; spaces++) {
        uint64_t front = mak_first_space_offset(options->limit_bytes) + spaces * space;
        if (front >= options->heap_bytes)
            return 0;
        if ((options->heap_bytes - front) / MAK_BLOCK_BYTES <= spaces * headers)
            return (uint32_t)spaces;
    }
    return 0;
}

/* A new file with all its media, or none. */
static int create_file(const char *folder, uint64_t bytes) {
    mak.fd = open(mak.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (mak.fd < 0 && errno == EEXIST)
        return mak_fail(MAK_ERROR, "%s exists already: call MAK_restart, or remove it to start anew", mak.path);
    if (mak.fd < 0)
        return mak_fail(MAK_ERROR, "%s: cannot create the region's file: %s", mak.path, strerror(errno));
    int error = posix_fallocate(mak.fd, 0, (off_t)bytes);
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* the file's name must survive as well */
    if (folder_fd >= 0) {
        fsync(mak.fd);
#if !defined(MUTANT_NAME_NOT_SYNCED)
        fsync(folder_fd);
#endif
        close(folder_fd);
    }
    return error == 0 ? MAK_OK
                      : mak_fail(MAK_ERROR, "%s: cannot get %llu bytes from the file system: %s", mak.path,
                                 (unsigned long long)bytes, strerror(error));
}

/* The file is all zeros: log, roots, map and headers are empty already. */
static void format(const struct MAK_options *options, uint32_t spaces) {
    struct mak_base *base = mak.media;
    uint64_t start = options->address, space = mak_space_bytes(options->limit_bytes);
    uint64_t heap = mak_first_space_offset(options->limit_bytes) + spaces * space;
    fl_store8(&base->format, MAK_FORMAT);
    fl_store8(&base->rgn_base, start);
    fl_store8(&base->limit_bytes, options->limit_bytes);
    fl_store8(&base->md_log_space_start, start + MAK_LOG_OFFSET);
    fl_store8(&base->md_roots_start, start + MAK_ROOTS_OFFSET);
    fl_store8(&base->md_header_map_start, start + MAK_MAP_OFFSET);
    fl_store8(&base->header_space_bytes, space);
    fl_store8(&base->md_log_version, 1); /* the log's zeros are of no version */
    fl_store8(&base->rgn_curr, start + options->heap_bytes);
    fl_store8(&base->state, MAK_STATE_CLEAN);
    for (uint32_t i = 0; i < spaces; i++)
        fl_store8(&base->header_spaces[i], start + mak_first_space_offset(options->limit_bytes) + i * space);
    mak_store1(&base->header_space_count, (uint8_t)spaces);
    mak.space_count = spaces;
    mak.heap_blocks = (uint32_t)((options->heap_bytes - heap) / MAK_BLOCK_BYTES);
    struct mak_header *header = mak_header_take();
    fl_store8(&header->hb_block, start + heap);
    fl_store8(&header->hb_sz, options->heap_bytes - heap);
    mak_store4(&header->hb_flag, MAK_FREE);
    mak_map_install(header);
    mak_flush(header, sizeof *header);
    mak_flush(base, sizeof *base);
    mak_visible_now();
}

/* Undoes what was done of a start that failed. */
static int give_up_start(int status, bool has_file) {
    forget();
    if (has_file)
        unlink(mak.path);
    return status;
}

static void format_and_publish(const struct MAK_options *options, uint32_t spaces) {
#if defined(MUTANT_MAGIC_NOT_LAST)
    fl_store8(&mak.media->magic, MAK_MAGIC);
    mak_persist(mak.media, sizeof *mak.media);
#endif
    format(options, spaces);
#if !defined(MUTANT_MAGIC_NOT_LAST)
    fl_store8(&mak.media->magic, MAK_MAGIC);
    mak_persist(&mak.media->magic, 8); /* mutate tells no loss of this fence: the adapter sets a root before its create returns */
#endif
}

int MAK_start(const struct MAK_options *asked) {
    struct MAK_options options = *asked;
    int status = find_path(options.folder);
    if (status == MAK_OK)
        status = check_options(&options);
    if (status != MAK_OK)
        return status;
    uint32_t spaces = initial_spaces(&options);
    if (spaces == 0)
        return mak_fail(MAK_INVALID,
                        "a region of %llu bytes has no room for metadata and one heap block: with this limit it needs %llu",
                        (unsigned long long)options.heap_bytes,
                        (unsigned long long)(mak_first_space_offset(options.limit_bytes) + mak_space_bytes(options.limit_bytes) +
                                             MAK_BLOCK_BYTES));
    status = reserve_addresses(options.address, options.limit_bytes);
    if (status == MAK_OK)
        status = create_file(options.folder, options.heap_bytes);
    if (status != MAK_OK)
        return give_up_start(status, mak.fd >= 0);
    status = map_more(0, options.heap_bytes);
    if (status == MAK_OK)
        status = init_volatile();
    if (status != MAK_OK)
        return give_up_start(status, true);
    format_and_publish(&options, spaces);
    status = mak_build_lists(true);
    mak.phase = MAK_PHASE_ONLINE;
    return forgotten(status);
}

/* ---- opening ---- */

static int open_file(uint64_t *bytes) {
    struct stat info;
    mak.fd = open(mak.path, O_RDWR | O_CLOEXEC);
    if (mak.fd < 0 && errno == ENOENT)
        return mak_fail(MAK_NOT_A_REGION, "%s does not exist: call MAK_start first", mak.path);
    if (mak.fd < 0)
        return mak_fail(MAK_ERROR, "%s: cannot open the region's file for reading and writing: %s", mak.path, strerror(errno));
    if (fstat(mak.fd, &info) != 0 || !S_ISREG(info.st_mode))
        return mak_fail(MAK_ERROR, "%s is not a regular file", mak.path);
    *bytes = (uint64_t)info.st_size;
    return MAK_OK;
}

/* Before anything is mapped: is this region whole, and of this version? */
static int check_base(const struct mak_base *base, uint64_t file_bytes) {
    if (base->format != MAK_FORMAT)
        return mak_fail(MAK_CORRUPT, "%s has format %llu, expected %u", mak.path, (unsigned long long)base->format, MAK_FORMAT);
    struct MAK_options options = {NULL, base->limit_bytes, base->limit_bytes, base->rgn_base};
    uint64_t start = base->rgn_base;
    if (base->rgn_base == 0 || base->limit_bytes == 0 || check_options(&options) != MAK_OK ||
        base->md_log_space_start != start + MAK_LOG_OFFSET || base->md_roots_start != start + MAK_ROOTS_OFFSET ||
        base->md_header_map_start != start + MAK_MAP_OFFSET)
        return mak_fail(MAK_CORRUPT, "%s has damaged base metadata", mak.path);
    if (base->header_space_bytes != mak_space_bytes(base->limit_bytes))
        return mak_fail(MAK_CORRUPT, "%s has header spaces of %llu bytes, this build expects %llu", mak.path,
                        (unsigned long long)base->header_space_bytes, (unsigned long long)mak_space_bytes(base->limit_bytes));
    if (base->rgn_curr <= start + mak_first_space_offset(base->limit_bytes) || base->rgn_curr > start + base->limit_bytes ||
        base->rgn_curr % MAK_BLOCK_BYTES != 0 || file_bytes > base->limit_bytes || file_bytes % MAK_BLOCK_BYTES != 0)
        return mak_fail(MAK_CORRUPT, "%s is %llu bytes long and its heap ends at %#llx, which is not possible", mak.path,
                        (unsigned long long)file_bytes, (unsigned long long)base->rgn_curr);
    if (file_bytes < base->rgn_curr - start)
        return mak_fail(MAK_CORRUPT, "%s is %llu bytes long, but its heap needs %llu: was it truncated?", mak.path,
                        (unsigned long long)file_bytes, (unsigned long long)(base->rgn_curr - start));
    if (base->header_space_count == 0)
        return mak_fail(MAK_CORRUPT, "%s has no header space", mak.path);
    if (base->state != MAK_STATE_CLEAN && base->state != MAK_STATE_IN_USE)
        return mak_fail(MAK_CORRUPT, "%s has the unknown state %#llx", mak.path, (unsigned long long)base->state);
    return MAK_OK;
}

static int read_base(struct mak_base *base, uint64_t file_bytes) {
    if (file_bytes < sizeof *base)
        return mak_fail(MAK_NOT_A_REGION, "%s is %llu bytes long, too short for a region: its creation was not completed", mak.path,
                        (unsigned long long)file_bytes);
    /* Until the magic is there, what else the file holds is nobody's business: creation may have been cut short anywhere. */
    if (pread(mak.fd, &base->magic, sizeof base->magic, offsetof(struct mak_base, magic)) != (ssize_t)sizeof base->magic)
        return mak_fail(MAK_ERROR, "%s: cannot be read: %s", mak.path, strerror(errno));
    if (base->magic != MAK_MAGIC)
        return mak_fail(MAK_NOT_A_REGION, "%s holds no region, or its creation was not completed: the magic is %#llx, not %#llx",
                        mak.path, (unsigned long long)base->magic, MAK_MAGIC);
    const size_t core_bytes = offsetof(struct mak_base, hfl_first); /* the list of header spaces is read where it is mapped */
    if (pread(mak.fd, base, core_bytes, 0) != (ssize_t)core_bytes)
        return mak_fail(MAK_ERROR, "%s: cannot be read: %s", mak.path, strerror(errno));
    return check_base(base, file_bytes);
}

/* Up to here nothing is modified. */
static int open_region(const char *folder, bool must_be_clean) {
    struct mak_base base;
    uint64_t file_bytes = 0;
    int status = find_path(folder);
    if (status != MAK_OK)
        return status;
    status = open_file(&file_bytes);
    if (status == MAK_OK)
        status = read_base(&base, file_bytes);
    if (status == MAK_OK && must_be_clean && base.state != MAK_STATE_CLEAN)
        status = mak_fail(MAK_DIRTY, "%s was not closed: recover it with MAK_start_off and MAK_collect first", mak.path);
    if (status == MAK_OK)
        status = reserve_addresses(base.rgn_base, base.limit_bytes);
    if (status == MAK_OK)
        status = map_more(0, file_bytes);
    if (status == MAK_OK)
        status = init_volatile();
    if (status != MAK_OK)
        return forgotten(status);
    mak.is_in_use = base.state == MAK_STATE_IN_USE;
    if (file_bytes > base.rgn_curr - base.rgn_base)
        FL_STAGE("open: the file is longer than the heap");
    return MAK_OK;
}

/* §11.2: reads persistent metadata only. */
int MAK_restart(const char *folder) {
    int status = open_region(folder, true);
    if (status != MAK_OK)
        return status;
    FL_STAGE("open: closed gracefully");
    status = mak_build_lists(true);
    mak.phase = MAK_PHASE_ONLINE;
    return forgotten(status);
}

int MAK_start_off(const char *folder) {
    int status = open_region(folder, false);
    if (status != MAK_OK)
        return status;
    mak_go_in_use();
    status = mak_replay_log();
    if (status == MAK_OK)
        status = mak_rebuild();
    mak.phase = MAK_PHASE_OFFLINE;
    return forgotten(status);
}

/* ---- closing ---- */

/* Not persisted, the region is one that was not closed: the next open collects it, which costs time and no object that is reached.
 * MAK_restart promises that it need not. */
static void say_clean(void) {
#if defined(MUTANT_MARKS_NOT_FLUSHED)
    mak_visible_forget();
#elif !defined(MUTANT_CLEAN_TOO_EARLY)
    mak_visible_now();
#endif
    fl_store8(&mak.media->state, MAK_STATE_CLEAN);
#if !defined(MUTANT_CLEAN_NOT_FLUSHED)
    mak_persist(&mak.media->state, 8);
#endif
#if defined(MUTANT_CLEAN_TOO_EARLY)
    mak_visible_now();
#endif
    mak.is_in_use = false;
}

int MAK_close(void) {
    if (mak.phase == MAK_PHASE_CLOSED)
        return mak_fail(MAK_INVALID, "no region is open");
    if (mak.phase == MAK_PHASE_ONLINE)
        mak_threads_give_back();
    if (mak.is_in_use && mak.phase != MAK_PHASE_OFFLINE) /* offline without a collection: still to be recovered */
        say_clean();
    forget();
    return MAK_OK;
}

int MAK_restart_in_place(void) {
    if (mak.phase != MAK_PHASE_COLLECTED)
        return mak_fail(MAK_INVALID, "only a region that was just collected goes online in place");
    say_clean();
    for (uint32_t block = mak.first_block; block < mak_end_block(); block = mak_map_next(block)) {
        struct mak_header *header = mak_map_find(block);
        if (header != NULL && header->hb_flag == MAK_IN_USE && header->hb_sz <= MAK_MEDIUM_MAX &&
            header->hb_n_mark_bits < mak_object_count(header->hb_sz))
            mak_reclaim_list(header);
    }
    mak.phase = MAK_PHASE_ONLINE;
    return MAK_OK;
}

/* ---- roots, §5.4 ---- */

int MAK_set_root(unsigned root, void *object) {
    if (root >= MAK_ROOTS)
        return mak_fail(MAK_INVALID, "root %u: a region has roots 0 to %u", root, MAK_ROOTS - 1);
    if (mak.phase == MAK_PHASE_CLOSED)
        return mak_fail(MAK_INVALID, "no region is open");
    mak_go_in_use();
    fl_store8(&mak.roots[root], (uint64_t)(uintptr_t)object);
#if !defined(MUTANT_ROOT_NOT_FLUSHED)
    mak_persist(&mak.roots[root], 8);
#endif
    return MAK_OK;
}

void *MAK_get_root(unsigned root) {
    if (root < MAK_ROOTS && mak.phase != MAK_PHASE_CLOSED)
        return (void *)(uintptr_t)__atomic_load_n(&mak.roots[root], __ATOMIC_ACQUIRE);
    mak_fail(MAK_INVALID, "root %u: no region is open, or it has no such root", root);
    return NULL;
}
