/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_trace.c - the buffer of cells and the file it goes to.
 *
 * One buffer, written with one write(2) as one chunk when it is full, before a fork and at the end. It is reused, because
 * the first touch of fresh memory costs more than recording. A record whose payload is larger than the buffer makes the
 * buffer grow: a chunk never splits a record from its payload. Without a path, where the tool counts or serves, a full buffer is forgotten; what is not
 * followed stops the process there, for counts have no record that says so.
 */
#include "fl.h"

/* In libcoregrind, not in its public headers. safe_fd moves a descriptor out of the client's reach. */
extern Int VG_(safe_fd)(Int);
extern const HChar *VG_(strerror)(UWord);

struct fl_record *fl_next_cell;
struct fl_record *fl_buffer_end;

static struct fl_trace_chunk first_buffer[FL_BUFFER_CELLS + 1];
static struct fl_trace_chunk *buffer; /* the chunk's header, then its cells */
static Int trace_descriptor = -1;
static const HChar *trace_path;

static void use_buffer(struct fl_trace_chunk *new_buffer, ULong cells) {
    buffer = new_buffer;
    fl_next_cell = (struct fl_record *)(buffer + 1);
    fl_buffer_end = fl_next_cell + cells;
}

static void write_all(const void *bytes, ULong count) {
    const UChar *from = bytes;
    while (count > 0) {
        Int piece = count > (1u << 30) ? (Int)(1u << 30) : (Int)count;
        Int written = VG_(write)(trace_descriptor, from, piece);
        if (written == -VKI_EINTR)
            continue;
        if (written <= 0)
            fl_stop(3, "cannot write the trace %s: %s; make room and trace again", trace_path,
                    written < 0 ? VG_(strerror)(-written) : "nothing was written");
        from += written;
        count -= written;
    }
}

void fl_trace_open(const HChar *path) {
    trace_path = path;
    use_buffer(first_buffer, FL_BUFFER_CELLS);
    if (path == NULL)
        return;
    SysRes opened = VG_(open)(path, VKI_O_WRONLY | VKI_O_CREAT | VKI_O_APPEND, 0644);
    if (sr_isError(opened))
        fl_stop(2, "cannot open --trace=%s: %s; name a file in a folder that can be written", path, VG_(strerror)(sr_Err(opened)));
    trace_descriptor = VG_(safe_fd)(sr_Res(opened));

    struct vg_stat status;
    if (VG_(fstat)(trace_descriptor, &status) == 0 && status.size == 0) {
        struct fl_trace_header header = {.magic = FL_TRACE_MAGIC,
                                         .version = FL_TRACE_VERSION,
                                         .record_bytes = FL_RECORD_BYTES,
                                         .schedule_seed = fl_clo_schedule_seed,
                                         .tracer = "valgrind"};
        write_all(&header, sizeof header);
    }
}

void fl_trace_flush(void) {
    struct fl_record *cells = (struct fl_record *)(buffer + 1);
    ULong count = fl_next_cell - cells;
    if (count == 0)
        return;
    *buffer = (struct fl_trace_chunk){
        .magic = FL_CHUNK_MAGIC, .process = fl_process, .record_count = count, .checksum = fl_checksum(cells, count)};
    fl_next_cell = cells;
    if (trace_path != NULL)
        write_all(buffer, (count + 1) * FL_RECORD_BYTES);
}

void fl_trace_close(void) {
    fl_trace_flush();
    if (trace_path != NULL)
        VG_(close)(trace_descriptor);
    trace_descriptor = -1;
}

struct fl_record *fl_reserve_slowly(ULong cells) {
    fl_trace_flush();
    if (cells > (ULong)(fl_buffer_end - fl_next_cell)) {
        struct fl_trace_chunk *larger = VG_(malloc)("fl.trace.buffer", (cells + 1) * FL_RECORD_BYTES);
        if (buffer != first_buffer)
            VG_(free)(buffer);
        use_buffer(larger, cells);
    }
    struct fl_record *first = fl_next_cell;
    fl_next_cell += cells;
    return first;
}

void fl_emit_text(struct fl_record record, const HChar *text, UInt bytes) {
    ULong cells = FL_PAYLOAD_CELLS(bytes);
    struct fl_record *first = fl_reserve(1 + cells);
    record.size = bytes;
    *first = record;
    if (cells > 0) {
        VG_(memset)(first + cells, 0, FL_RECORD_BYTES);
        VG_(memcpy)(first + 1, text, bytes);
    }
}

void fl_unsupported(const HChar *format, ...) {
    HChar text[FL_PATH_BYTES + 256];
    va_list arguments;
    va_start(arguments, format);
    UInt bytes = VG_(vsnprintf)(text, sizeof text, format, arguments);
    va_end(arguments);
    if (bytes >= sizeof text)
        bytes = sizeof text - 1;
    fl_close_joined();
    if (fl_mode == FL_COUNTS)
        fl_stop(3, "wear cannot be counted: %s", text);
    if (fl_mode == FL_SERVES)
        fl_recording_unseen(text);
    fl_emit_text((struct fl_record){.kind = FL_UNSUPPORTED, .thread = fl_thread}, text, bytes);
}

void fl_stop(Int status, const HChar *format, ...) {
    HChar text[FL_PATH_BYTES + 256];
    va_list arguments;
    va_start(arguments, format);
    VG_(vsnprintf)(text, sizeof text, format, arguments);
    va_end(arguments);
    VG_(printf)("faultline: %s\n", text);
    VG_(exit)(status);
}
