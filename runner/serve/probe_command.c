/* SPDX-License-Identifier: Apache-2.0
 *
 * `runner probe`: one probe of the heap in a folder, which is not changed.
 */
#include "serve/serve.h"
#include "files/files.h"
#include "probe/probe.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_report(const struct fl_report_header *report) {
    if (fwrite(report, 1, report->total_bytes, stdout) != report->total_bytes)
        fail(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
}

/* Private copies need a folder of their own: that of the heap may be read-only. */
static void make_copy_folder(char path[PATH_MAX]) {
    const char *folders[] = {getenv("TMPDIR"), "/dev/shm", "/tmp"};
    for (int i = 0; i < 3; i++) {
        if (folders[i] == NULL || snprintf(path, PATH_MAX, "%s/faultline-probe-XXXXXX", folders[i]) >= PATH_MAX)
            continue;
        if (mkdtemp(path) != NULL)
            return;
    }
    fail(EXIT_INFRASTRUCTURE, "no folder for a private copy of the heap; set TMPDIR to one that can be written");
}

int run_probe_command(const struct options *options) {
    const struct fl_adapter *adapter = adapter_load(options->adapter);
    lazy_check(options, adapter);
    char scratch[PATH_MAX], copy[PATH_MAX + 8];
    struct tree tree;
    int error = tree_list(options->folder, &tree);
    if (error != 0)
        fail(EXIT_BAD_INPUT, "%s: cannot be listed: %s", options->folder, strerror(error));
    make_copy_folder(scratch);
    snprintf(copy, sizeof copy, "%s/copy", scratch);
    struct probed_heap probed = {
        .probe = {.adapter = adapter,
                  .options = heap_options(options),
                  .slots = (uint32_t)options->slots,
                  .is_unchecked = options->is_unchecked,
                  .is_lazy = options->is_lazy,
                  .ends_when_full = options->ends_when_full},
        .base = options->folder,
        .copy = copy,
        .tree = &tree,
    };
    int kept_output = move_away(1);
    report_map();
    hide_streams(options->is_verbose);
    child_prepare(&(struct limits){options->cpu_limit_ms, options->wall_limit_ms, scratch, options->limit_bytes, 0});
    run_probe(&probed, options->is_full ? FL_PROBE_FULL : FL_PROBE_FIRST);
    tree_remove(scratch);
    dup2(kept_output, 1);
    if (options->is_text)
        report_print(report_bytes());
    else
        write_report(report_bytes());
    return 0;
}
