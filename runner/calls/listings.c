/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: calls that list folders. Those of the heap are listed here, in order of names. A file system's own order comes
 * from how the image was made; it is no part of a crash image, and a copy has another one. A listing shows what was there when
 * it was begun or rewound.
 */
#undef _FORTIFY_SOURCE
#include "calls/calls.h"
#include "loads/loads.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In place of a descriptor, which is where the C library's own has it. */
#define OURS 0x8000000080000000ull

struct listing {
    uint64_t ours;
    const struct tree *tree; /* what it shows */
    struct tree own;         /* that, if files changed */
    size_t next;             /* 0: `.`, 1: `..`, then entries of the tree */
    int fd;                  /* -1: nobody asked for it */
    struct dirent entry;     /* the last one */
    size_t length;           /* of the path; 0: the heap folder itself */
    char path[];             /* in the heap folder */
};

static struct listing *listing_of(DIR *directory) {
    struct listing *listing = (struct listing *)directory;
    return listing != NULL && listing->ours == OURS ? listing : NULL;
}

/* ---- what is in a folder -------------------------------------------------------------------------------------------------- */

static const struct tree_entry *find_folder(const struct tree *tree, const char *path) {
    for (size_t i = 0; i < tree->count; i++)
        if (S_ISDIR(tree->entries[i].mode) && strcmp(tree->entries[i].path, path) == 0)
            return &tree->entries[i];
    return NULL;
}

/* Its name in the folder; null: it lies elsewhere. */
static const char *name_in(const struct listing *listing, const struct tree_entry *entry) {
    const char *name = entry->path + listing->length;
    if (listing->length > 0 && (strncmp(entry->path, listing->path, listing->length) != 0 || *name++ != '/'))
        return NULL;
    return strchr(name, '/') == NULL ? name : NULL;
}

static struct dirent *answer(struct listing *listing, uint64_t inode, unsigned char type, const char *name) {
    listing->entry =
        (struct dirent){.d_ino = inode, .d_off = (off_t)listing->next, .d_reclen = sizeof listing->entry, .d_type = type};
    strncpy(listing->entry.d_name, name, sizeof listing->entry.d_name - 1);
    return &listing->entry;
}

static struct dirent *next_of(struct listing *listing) {
    const struct tree *tree = listing->tree;
    while (listing->next < tree->count + 2) {
        size_t at = listing->next++;
        if (at < 2)
            return answer(listing, tree->folder_inode, DT_DIR, at == 0 ? "." : "..");
        const struct tree_entry *entry = &tree->entries[at - 2];
        const char *name = name_in(listing, entry);
        if (name != NULL)
            return answer(listing, entry->inode, S_ISDIR(entry->mode) ? DT_DIR : DT_REG, name);
    }
    return NULL;
}

/* ---- what is in it now ---------------------------------------------------------------------------------------------------- */

/* False: that cannot be told. */
static bool look(struct listing *listing) {
    tree_free(&listing->own);
    bool is_image = vfs_shows_image() && !names_are_changed();
    listing->tree = is_image ? vfs_tree() : &listing->own;
    return is_image || vfs_list(&listing->own) == 0;
}

/* ---- opening and closing -------------------------------------------------------------------------------------------------- */

static void discard(struct listing *listing) {
    tree_free(&listing->own);
    free(listing);
}

/* Null: the C library is to try it. */
static struct listing *open_listing(const struct vfs_path *located) {
    char shown[PATH_MAX];
    if (!located->is_heap || vfs_is_listing())
        return NULL;
    vfs_target_path(located, shown);
    const char *path = shown + strlen(vfs_folder());
    path += *path == '/';
    size_t length = strlen(path);
    struct listing *listing = malloc(sizeof *listing + length + 1);
    if (listing == NULL)
        return NULL;
    *listing = (struct listing){.ours = OURS, .fd = -1, .length = length};
    memcpy(listing->path, path, length + 1);
    if (look(listing) && (*path == '\0' || find_folder(listing->tree, path) != NULL))
        return listing;
    discard(listing);
    return NULL;
}

INTERPOSED DIR *opendir(const char *name) {
    struct vfs_path path;
    vfs_locate(AT_FDCWD, name, &path);
    struct listing *listing = open_listing(&path);
    return listing != NULL ? (DIR *)listing : REAL(opendir)(path.path);
}

/* Shows the order of the file system: in a copy it tells nothing. */
INTERPOSED DIR *fdopendir(int fd) {
    if (loads_is_recording())
        vfs_before_change(fd);
    return REAL(fdopendir)(fd);
}

INTERPOSED int closedir(DIR *directory) {
    struct listing *listing = listing_of(directory);
    if (listing == NULL)
        return REAL(closedir)(directory);
    if (listing->fd >= 0)
        syscall(SYS_close, listing->fd);
    discard(listing);
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

INTERPOSED struct dirent *readdir(DIR *directory) {
    struct listing *listing = listing_of(directory);
    return listing == NULL ? REAL(readdir)(directory) : next_of(listing);
}

INTERPOSED struct dirent64 *readdir64(DIR *directory) { return (struct dirent64 *)readdir(directory); }

static int read_into(DIR *directory, void *entry, void **result) {
    int saved = errno;
    errno = 0;
    *result = readdir(directory);
    int error = errno;
    errno = saved;
    if (*result != NULL)
        *result = memcpy(entry, *result, sizeof(struct dirent));
    return *result == NULL ? error : 0;
}

INTERPOSED int readdir_r(DIR *directory, struct dirent *entry, struct dirent **result) {
    return read_into(directory, entry, (void **)result);
}

INTERPOSED int readdir64_r(DIR *directory, struct dirent64 *entry, struct dirent64 **result) {
    return read_into(directory, entry, (void **)result);
}

INTERPOSED void rewinddir(DIR *directory) {
    struct listing *listing = listing_of(directory);
    if (listing == NULL)
        REAL(rewinddir)(directory);
    else
        listing->next = look(listing) ? 0 : listing->tree->count + 2;
}

INTERPOSED long telldir(DIR *directory) {
    struct listing *listing = listing_of(directory);
    return listing == NULL ? REAL(telldir)(directory) : (long)listing->next;
}

INTERPOSED void seekdir(DIR *directory, long place) {
    struct listing *listing = listing_of(directory);
    if (listing == NULL)
        REAL(seekdir)(directory, place);
    else
        listing->next = (size_t)place;
}

INTERPOSED int dirfd(DIR *directory) {
    struct listing *listing = listing_of(directory);
    if (listing == NULL)
        return REAL(dirfd)(directory);
    inprocess_leave("asks for the descriptor of a listing");
    struct vfs_path path;
    char shown[2 * PATH_MAX];
    snprintf(shown, sizeof shown, "%s/%s", vfs_folder(), listing->path);
    vfs_locate(AT_FDCWD, shown, &path);
    if (listing->fd < 0)
        listing->fd = (int)syscall(SYS_openat, AT_FDCWD, path.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return listing->fd;
}

/* ---- a whole folder at once ----------------------------------------------------------------------------------------------- */

typedef int chooses(const struct dirent *entry);
typedef int compares(const struct dirent **one, const struct dirent **other);

static int discard_entries(struct dirent **entries, size_t count) {
    while (count > 0)
        free(entries[--count]);
    free(entries);
    return -1;
}

/* Copies of the entries that are chosen, in the order of the listing, as scandir gives them; closes the listing. */
static int scan(DIR *directory, struct dirent ***list, chooses *filter, compares *compare) {
    struct dirent **entries = NULL;
    size_t count = 0;
    if (directory == NULL)
        return -1;
    int saved = errno;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL; errno = 0) {
        if (filter != NULL && !filter(entry))
            continue;
        struct dirent **more = realloc(entries, (count + 1) * sizeof(struct dirent *));
        struct dirent *copy = more != NULL ? malloc(sizeof *copy) : NULL;
        entries = more != NULL ? more : entries;
        if (copy == NULL) {
            errno = ENOMEM;
            break;
        }
        entries[count++] = memcpy(copy, entry, entry->d_reclen);
    }
    int error = errno;
    closedir(directory);
    errno = error != 0 ? error : saved;
    if (error != 0)
        return discard_entries(entries, count);
    if (compare != NULL && count > 1)
        qsort(entries, count, sizeof(struct dirent *), (int (*)(const void *, const void *))compare);
    *list = entries != NULL ? entries : malloc(sizeof(struct dirent *)); /* to be freed, though it is empty */
    return (int)count;
}

INTERPOSED int scandir(const char *name, struct dirent ***list, chooses *filter, compares *compare) {
    return scan(opendir(name), list, filter, compare);
}

INTERPOSED int scandirat(int folder, const char *name, struct dirent ***list, chooses *filter, compares *compare) {
    struct vfs_path path;
    vfs_locate(folder, name, &path);
    if (path.is_heap) {
        char shown[PATH_MAX];
        vfs_target_path(&path, shown);
        return scandir(shown, list, filter, compare);
    }
    return REAL(scandirat)(path.folder, path.path, list, filter, compare);
}

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "the same on x86-64");

INTERPOSED int scandir64(const char *name, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
                         int (*compare)(const struct dirent64 **, const struct dirent64 **)) {
    return scandir(name, (struct dirent ***)list, (chooses *)filter, (compares *)compare);
}

INTERPOSED int scandirat64(int folder, const char *name, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
                           int (*compare)(const struct dirent64 **, const struct dirent64 **)) {
    return scandirat(folder, name, (struct dirent ***)list, (chooses *)filter, (compares *)compare);
}
