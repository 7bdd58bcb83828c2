/* SPDX-License-Identifier: Apache-2.0
 *
 * inprocess.h - between the parts of the in-process engine (inprocess.c).
 */
#ifndef FAULTLINE_INPROCESS_H
#define FAULTLINE_INPROCESS_H

#include "vfs.h"
#include "heap_report.h"
#include "loads.h"

static inline uint64_t whole_pages(uint64_t bytes) { return (bytes + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES * OS_PAGE_BYTES; }

/* ---- inprocess.c */
/* While a life runs in-process. */
bool inprocess_is_running(void);
/* While a life of a target without hooks does: what it stores to the image is not seen, so it stores to private mappings. */
bool inprocess_is_plain(void);
/* Does nothing but while a life runs in-process: that run ends here, and is done in the isolated engine instead. The reason goes on
 * after "the target ". */
void inprocess_leave(const char *reason);

/* Runs body here, as child_run does in a process of its own. The image keeps what it stored, until undo_apply. */
enum fl_outcome inprocess_live(void (*body)(void *context), void *context);

/* For the server. */
void inprocess_map(int (*descriptor)(uint32_t file)); /* once; descriptor: of a file of the image */
/* Whether runs may still be in-process. */
bool inprocess_is_trusted(void);
bool inprocess_is_first(void); /* one run was begun so far */
/* Why the worker gave the turn back. */
enum inprocess_turn {
    TURN_COMMAND, /* a command that is not the worker's */
    TURN_END, /* of the input */
    TURN_ISOLATE, /* that run is to be done in the isolated engine */
    TURN_COMPARE, /* it was done; and is to be done there, too */
};
/* The worker has the turn, with this command; *command: the one that it gave back, not obeyed or not answered. work: of the worker,
 * in which it obeys commands; it calls inprocess_give_back. */
enum inprocess_turn inprocess_give_turn(struct fl_command *command, void (*work)(struct fl_command *command));
/* The worker's files and image are no longer those of the server. */
void inprocess_end_worker(void);
pid_t inprocess_worker(void); /* 0: there is none */
/* In the worker; returns with the next command when it has the turn again. */
void inprocess_give_back(enum inprocess_turn why, struct fl_command *command);
/* In the worker: runs the probe, takes back what it stored. False: the run was given back and is answered. */
bool inprocess_run(const struct place *place, struct fl_command *command);
/* Of a run to be compared: remembers its report and list of loads; then in what those of the isolated run differ, null: in nothing. */
void inprocess_remember(bool is_recorded);
const char *inprocess_difference(bool is_recorded);
/* Then: where the lists of loads part, and what either has there, null at its end. */
uint32_t inprocess_different_load(const struct fl_load **here, const struct fl_load **isolated);
/* Whether the image is what it should be; its bytes are, afterwards. Not null: runs that are over may have seen another one, for a
 * reason that goes on after `the target `. Null also if it was found after the first run: no more of them are trusted. */
const char *inprocess_damage(void);
void inprocess_note_isolated(void); /* a run, for the last reason */
void inprocess_distrust(const char *reason); /* no more runs are in-process; the reason is the last one */
void *inprocess_engines(uint32_t *bytes); /* what FL_SERVE_ENGINES answers, to be freed */

/* ---- reference.c: in the server, but for reference_write */
void reference_begin(uint32_t count, int (*descriptor)(uint32_t file));
bool reference_is_there(void);
void reference_write(uint32_t number, uint64_t offset, const void *bytes, size_t count);
bool reference_differs(void); /* what does is put back */
bool reference_has_other_files(void); /* or other sizes */
void reference_end(void);

/* ---- undo.c */
void undo_map(void); /* once, in the server */
/* In the worker, for each file of the image. */
void undo_add_file(uint32_t number, int fd, uint64_t bytes);
/* All bytes of the file in the worker's memory; null: it has none. */
uint8_t *undo_memory(uint32_t number, uint64_t *bytes);
/* One byte a line of the file: whether it is noted; null: nothing of the file is. */
const uint8_t *undo_notes(uint32_t number);
/* False: there is no file with that number or a larger one. */
bool undo_file(uint32_t number, int *fd, uint64_t *bytes);
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

/* ---- arena.c */
/* Around the loading of a target. */
void arena_begin_load(void);
void arena_end_load(void);
void arena_take_snapshot(void); /* in the worker, before its first life */
void arena_begin_life(void);
void arena_end_life(void); /* all is as it was when the snapshot was taken */
/* All of it, as far as the run may have changed it. False: too much to tell. */
bool arena_tell_state(void (*tell)(const void *bytes, size_t count));
void arena_pause(bool is_paused); /* in a life: what the runner allocates for itself now is to stay */

/* ---- touched.c */
void touched_open(void); /* in the worker */
/* Each OS page of private anonymous memory that is not zero, with its number in it. False: they are more than `most` bytes. */
bool touched_tell(const void *start, size_t bytes, size_t most, void (*tell)(const void *bytes, size_t count));
/* Some OS page of a private mapping of a file is not the file's any more, or it cannot be known. */
bool touched_is_stored_to(const void *start, size_t bytes);

/* ---- kept.c */
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
/* What the target has open and mapped, and the contents of what is no file. False: too much to tell. */
bool kept_tell_state(void (*tell)(const void *bytes, size_t count));

/* ---- rests.c: in the worker */
void rests_begin_run(bool is_wanted);
/* In life 0: open has returned; and its end, where life is what the runner holds of it. */
void rests_opened(void);
void rests_end_first(const void *life, size_t bytes);
/* After life 0: the run is over. */
bool rests_is_known(void);
/* In lives 1 and 3: what life 0 did is done. */
void rests_go_on(void);
/* After a run whose stores were taken back. True: its rest was that of another one. */
bool rests_end_run(bool is_done);

/* ---- names.c */
void names_map(const char *base, const char *aside); /* once, in the server: the heap folder, and where removed files are put */
/* In the worker. */
bool names_are_changed(void);
void names_will_make(const struct vfs_path *path);
/* The calls, and their answers. */
int names_unlink(const struct vfs_path *path, int flags);
int names_rename(const struct vfs_path *from, const struct vfs_path *to, unsigned flags);
void names_take_back(void); /* also in the server, after the worker died */

#endif
