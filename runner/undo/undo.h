/* SPDX-License-Identifier: Apache-2.0
 *
 * undo/undo.h - what an in-process life did, to be taken back: contents and sizes of files, names, the target's memory, mappings
 *               and descriptors.
 */
#ifndef FAULTLINE_UNDO_H
#define FAULTLINE_UNDO_H

#include "base/in_process.h"
#include "files/files.h"
#include "protocol.h"

/* ---- undo.c */
void undo_map(void); /* once, in the server */
/* In the worker, for each file of the image. */
void undo_add_file(uint32_t number, int fd, uint64_t bytes);
/* All bytes of the file in the worker's memory; null: it has none. */
uint8_t *undo_memory(uint32_t number, uint64_t *bytes);
/* One byte a line of the file: whether it is noted; null: nothing of the file is. */
const uint8_t *undo_notes(uint32_t number);
/* Before bytes of the file are stored to. */
void undo_note(uint32_t number, uint64_t offset, uint64_t bytes);
/* Before the file, now of that size, gets another one. */
void undo_note_resize(uint32_t number, uint64_t bytes_now, uint64_t bytes);
bool undo_has_resized(void);
/* Before the kernel writes to the file, now of that size. */
void undo_note_write(uint32_t number, uint64_t bytes_now, uint64_t offset, uint64_t bytes);
/* Before that part of the file becomes zero. */
void undo_note_zeroing(uint32_t number, uint64_t offset, uint64_t bytes);
/* What the unit holds now; 0 behind the file's end. In the worker. */
uint64_t undo_unit(uint32_t number, uint64_t unit);
/* Each unit that does not hold what the image does, with what it holds. */
void undo_each_change(void (*visit)(uint32_t number, uint64_t unit, uint64_t value));
uint64_t undo_image_bytes(uint32_t number); /* of the file, before it got another size */
void undo_apply(void); /* names, too */
/* In the server, after the worker died. descriptor: of a file of the image. */
void undo_apply_for_the_dead(int (*descriptor)(uint32_t file));

/* ---- names.c */
void names_map(const char *base, const char *aside); /* once, in the server: the heap folder, and where removed files are put */
/* In the worker. */
bool names_are_changed(void);
void names_will_make(const struct vfs_path *path);
/* The calls, and their answers. */
int names_unlink(const struct vfs_path *path, int flags);
int names_rename(const struct vfs_path *from, const struct vfs_path *to, unsigned flags);
void names_take_back(void); /* also in the server, after the worker died */

/* ---- arena.c */
/* Around the loading of a target. */
void arena_begin_load(void);
void arena_end_load(void);
void arena_take_snapshot(void); /* in the worker, before its first life */
void arena_begin_life(void);
void arena_end_life(void); /* all is as it was when the snapshot was taken */
/* All of it, as far as the run may have changed it. False: it is too much. */
bool arena_visit_state(void (*visit)(const void *bytes, size_t count));
void arena_pause(bool is_paused); /* in a life: what the runner allocates for itself now is to stay */

/* ---- touched.c */
void touched_open(void); /* in the worker */
/* Each OS page of private anonymous memory that is not zero, with its number in it. False: they are more than `most` bytes. */
bool touched_visit(const void *start, size_t bytes, size_t most, void (*visit)(const void *bytes, size_t count));
/* Some OS page of a private mapping of a file is not the file's any more, or it cannot be known. */
bool touched_is_stored_to(const void *start, size_t bytes);

/* ---- kept_mappings.c */
void *kept_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int kept_munmap(void *address, size_t bytes);
/* is_change: of the heap folder, or of the file. */
int kept_open(const struct vfs_path *path, int flags, mode_t mode, bool is_change);
int kept_close(int fd);
int kept_flock(int fd, int operation);
int kept_flags(int fd); /* of open, as the target asked; -1: it did not open that */
/* Before the kernel reads behind the descriptor. */
void kept_will_read(int fd);
/* For files of the image. The calls' answers. */
int kept_truncate(int fd, off_t bytes);
int kept_fallocate(int fd, int mode, off_t offset, off_t bytes);
/* Before the kernel writes behind the descriptor; offset null: where it is. */
void kept_will_write(int fd, const off_t *offset, uint64_t count);
/* Lowest and highest address of mapped files; false: there are none. */
bool kept_range(uintptr_t *lowest, uintptr_t *highest);
/* No file is mapped there as far as the target knows, but one is. */
bool kept_is_unmapped(uintptr_t address);
void kept_end_life(void);
/* What the target has open and mapped, and the contents of what is no file. False: it is too much. */
bool kept_visit_state(void (*visit)(const void *bytes, size_t count));

/* ---- life.c */
/* Runs body here, as child_run does in a process of its own. The image keeps what it stored, until undo_apply. */
void inprocess_live(void (*body)(void *context), void *context);
/* The life is over: the target's memory, mappings and descriptors are as they were before it. */
void inprocess_end_life(void);

#endif
