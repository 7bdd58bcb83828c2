/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.cpp - what the conformance suite does not reach of the Pin tool's parts: names as XED gives them, the writer where its
 * descriptor is taken away and where a record is larger than its buffer. Writes the trace argv[1], which check.py reads.
 */
#include "../calls.h"
#include "../classify.h"
#include "../outputs.h"
#include "../writer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static unsigned tried, failed;

#define EXPECT(claim)                                                                                                              \
    do {                                                                                                                           \
        tried++;                                                                                                                   \
        if (!(claim)) {                                                                                                            \
            failed++;                                                                                                              \
            std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);                                                        \
        }                                                                                                                          \
    } while (0)

static Class of(const char *name, bool has_lock, bool is_repeated, bool writes_memory, bool is_masked = false) {
    return classify(Form{name, has_lock, is_repeated, writes_memory, is_masked});
}

/* The names of XED, and what they mean. */
static void test_names() {
    EXPECT(of("MOV", false, false, true) == Class::PLAIN);
    EXPECT(of("MOV", false, false, false) == Class::NOTHING);
    EXPECT(of("MOVNTI", false, false, true) == Class::NON_TEMPORAL);
    EXPECT(of("MOVNTDQA", false, false, false) == Class::NOTHING); /* a load */
    EXPECT(of("VMOVNTPS", false, false, true) == Class::NON_TEMPORAL);
    EXPECT(of("MASKMOVDQU", false, false, true) == Class::MASKED_NON_TEMPORAL);
    EXPECT(of("VMASKMOVPS", false, false, true) == Class::MASKED);
    EXPECT(of("VMASKMOVPS", false, false, false) == Class::NOTHING); /* a load */
    EXPECT(of("VMOVDQU32", false, false, true, true) == Class::MASKED);
    EXPECT(of("VMOVDQU32", false, false, true, false) == Class::PLAIN);
    EXPECT(of("REP_MOVSB", false, false, true) == Class::REPEATED);
    EXPECT(of("MOVSB", false, true, true) == Class::REPEATED);
    EXPECT(of("MOVSB", false, false, true) == Class::PLAIN);
    EXPECT(of("REPE_CMPSB", false, false, false) == Class::NOTHING);
    EXPECT(of("MOVSD_XMM", false, false, true) == Class::PLAIN);
    EXPECT(of("ADD_LOCK", false, false, true) == Class::LOCKED);
    EXPECT(of("add", true, false, true) == Class::LOCKED);
    EXPECT(of("XCHG", false, false, true) == Class::LOCKED);
    EXPECT(of("XCHG", false, false, false) == Class::NOTHING); /* between registers */
    EXPECT(of("CMPXCHG", false, false, true) == Class::COMPARE);
    EXPECT(of("CMPXCHG16B_LOCK", false, false, true) == Class::LOCKED_COMPARE);
    EXPECT(of("CLWB", false, false, false) == Class::CLWB);
    EXPECT(of("CLFLUSHOPT", false, false, true) == Class::CLFLUSHOPT);
    EXPECT(of("SFENCE", false, false, false) == Class::SFENCE);
    EXPECT(of("LFENCE", false, false, false) == Class::NOTHING);
    EXPECT(of("XSAVEC64", false, false, true) == Class::STATE);
    EXPECT(of("VPSCATTERDD", false, false, true, true) == Class::SCATTERED);
    EXPECT(of("XBEGIN", false, false, false) == Class::REFUSED);
    EXPECT(why_refused("CLZERO").find("clzero") == 0);
    EXPECT(xsave_bytes() >= 512);
}

static void test_runs_of_bytes() {
    const uint8_t mask[8] = {0x80, 0x7f, 0xff, 0x80, 0, 0, 0, 0x80};
    std::vector<Range> runs = selected_ranges(100, selected_by_vector(mask, 8, 1));
    EXPECT(runs.size() == 3 && runs[0].start == 100 && runs[0].end == 101 && runs[1].start == 102 && runs[1].end == 104);
    runs = selected_ranges(0, selected_by_bits(0x5, 16, 4));
    EXPECT(runs.size() == 2 && runs[1].start == 8 && runs[1].end == 12);
    EXPECT(selected_ranges(0, selected_by_bits(0, 64, 1)).empty());
}

/* A call is known by one way of writing to each of its arguments. */
static void test_outputs() {
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        EXPECT(OUTPUTS[i].argument < 6);
        for (size_t j = 0; j < i; j++)
            EXPECT(OUTPUTS[i].number != OUTPUTS[j].number || OUTPUTS[i].argument != OUTPUTS[j].argument);
    }
}

static fl_record store(uint32_t file, uint64_t offset, uint32_t bytes) {
    fl_record record = fl_record();
    record.kind = FL_STORE;
    record.detail = FL_STORE_PLAIN;
    record.thread = 1;
    record.file = file;
    record.offset = offset;
    record.size = bytes;
    return record;
}

/* The traced program closes all descriptors and opens a file of its own. */
static void test_writer(const char *trace, const char *other) {
    Writer writer;
    EXPECT(writer.open(trace, 7) == "");
    fl_record first = fl_record();
    first.kind = FL_PROCESS;
    first.detail = FL_PROCESS_START;
    writer.emit(first);
    fl_record file = fl_record();
    file.kind = FL_FILE;
    file.file = 1;
    writer.emit_text(file, "heap");
    EXPECT(writer.flush());
    int taken = -1;
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        if (close(descriptor) == 0)
            taken = descriptor;
    EXPECT(taken >= 0 && writer.is_ours(taken));
    int low = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT(dup2(low, taken) == taken);
    std::vector<uint8_t> large(1 << 20, 0x5a); /* more than the buffer has room for */
    writer.emit_with(store(1, 64, uint32_t(large.size())), &large[0], large.size());
    fl_record small = store(1, 0, 8);
    small.value = 0x1122334455667788;
    writer.emit(small);
    fl_record last = fl_record();
    last.kind = FL_PROCESS_END;
    writer.emit(last);
    EXPECT(writer.flush() && writer.error().empty());
    struct stat status;
    EXPECT(stat(other, &status) == 0 && status.st_size == 0);
    Writer nowhere;
    EXPECT(nowhere.open("/nonexistent/trace", 0).find("cannot open the trace /nonexistent/trace") == 0);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    test_names();
    test_runs_of_bytes();
    test_outputs();
    test_writer(arguments[1], arguments[2]);
    std::printf("%u tried, %u failed\n", tried, failed);
    return failed == 0 ? 0 : 1;
}
