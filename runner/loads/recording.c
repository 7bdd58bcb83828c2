/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tracer under which the server runs is to record, and where (runner/recording.h). Without one nothing here has an effect.
 */
#include "base/traced.h"
#include "loads/internal.h"
#include "recording.h"
#include <sys/mman.h>
#include <valgrind/valgrind.h>

#define MOST_FILES 65536u
#define MOST_TRANSLATED (1u << 18) /* blocks of code: those of a large library */

/* The linker's; null: a runner without hooks. */
extern const char __start_fl_hooks[] __attribute__((weak)), __stop_fl_hooks[] __attribute__((weak));

static struct fl_recording recording = {.version = FL_RECORDING_VERSION};

static bool tell_tracer(void) {
    return VALGRIND_DO_CLIENT_REQUEST_EXPR(0, FL_REQUEST_RECORDING, &recording, 0, 0, 0, 0) == FL_RECORDING_VERSION;
}

void recording_map(const char *adapter) {
    uint64_t *translated = map_or_fail((3 + MOST_TRANSLATED) * sizeof *translated, MAP_SHARED, -1, "the list of translations");
    recording.translated_count = translated;
    recording.is_exact = translated + 1;
    recording.has_lost_process = translated + 2;
    recording.translated = translated + 3;
    recording.translated_capacity = MOST_TRANSLATED;
    recording.modules = modules_map(adapter);
    recording.hooks_start = (uintptr_t)__start_fl_hooks;
    recording.hooks_end = (uintptr_t)__stop_fl_hooks;
    recording.runner_code = (uintptr_t)recording_map;
    recording.undecided = crash_units.undecided;
    recording.loads = &load_list->header;
    recording.load_capacity = MOST_LOADS;
    recording.text = load_list->text;
    recording.text_bytes = sizeof load_list->text;
    events_describe(&recording);
    is_traced = tell_tracer();
}

void recording_begin_life(void) {
    if (recording.has_lost_process != NULL)
        *recording.has_lost_process = 0;
}

void recording_starts_process(bool is_starting) { recording.is_starting = is_starting; }

bool recording_lost_process(void) { return recording.has_lost_process != NULL && *recording.has_lost_process != 0; }

static bool find_units(uint32_t number, uint64_t *first_bit, uint64_t *unit_count) {
    const struct hot_file *file = units_file(number);
    if (file == NULL)
        return false;
    *first_bit = file->first_bit;
    *unit_count = file->units;
    return true;
}

/* The files of the image as the tracer may meet them behind descriptors, the life's copy of them, too. */
static void describe_files(void) {
    static struct fl_known_file files[MOST_FILES];
    const struct tree *tree = vfs_tree();
    recording.file_count = 0;
    for (size_t i = 0; tree != NULL && i < tree->count && recording.file_count + 2 <= MOST_FILES; i++) {
        const uint64_t inodes[] = {tree->entries[i].inode, tree->entries[i].copy_inode};
        for (size_t of = 0; of < COUNT_OF(inodes); of++) {
            struct fl_known_file *file = &files[recording.file_count];
            *file = (struct fl_known_file){.device = tree->device, .inode = inodes[of], .file = tree->entries[i].number};
            if (inodes[of] != 0 && find_units(file->file, &file->first_bit, &file->unit_count))
                recording.file_count++;
        }
    }
    recording.files = files;
}

/* False: there is no room for it. */
static bool add_span(const struct vfs_view *view) {
    struct fl_span span = {.start = view->start, .end = view->end, .offset = view->offset, .is_shared = view->is_shared};
    bool has_units = recording.has_loads && find_units(view->file, &span.first_bit, &span.unit_count);
    span.file = events_file_number(view->file, view->inode);
    if (!has_units && !recording.has_events)
        return true;
    if (recording.span_count == FL_MOST_SPANS)
        return false;
    recording.spans[recording.span_count++] = span;
    return true;
}

bool recording_follow(uint32_t life, bool has_loads) {
    struct vfs_view view;
    bool has_room = true;
    recording.life = life;
    recording.has_loads = has_loads;
    recording.has_events = events_are_recorded();
    recording.span_count = 0;
    for (size_t i = 0; (has_loads || recording.has_events) && vfs_view(i, &view); i++)
        has_room &= add_span(&view);
    describe_files();
    tell_tracer();
    return has_room;
}
