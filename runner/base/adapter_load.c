/* SPDX-License-Identifier: Apache-2.0 */
#include "base/target.h"
#include "stage.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct function {
    const char *name;
    size_t offset;
    uint64_t capability; /* 0: required */
    bool may_be_null;    /* with its capability, too */
};

#define FUNCTION(name, capability) {#name, offsetof(struct fl_adapter, name), capability, false}
static const struct function FUNCTIONS[] = {
    FUNCTION(create, 0),
    FUNCTION(open, 0),
    FUNCTION(close, 0),
    FUNCTION(allocate, 0),
    FUNCTION(free, 0),
    FUNCTION(reallocate, 0),
    FUNCTION(read_slot, 0),
    FUNCTION(file_name, 0),
    FUNCTION(message, 0),
    FUNCTION(walk, FL_CAN_WALK),
    FUNCTION(check, FL_CAN_CHECK),
    FUNCTION(bounds, FL_CAN_BOUNDS),
    FUNCTION(settle, FL_CAN_SETTLE),
    FUNCTION(collect, FL_CAN_COLLECT),
    FUNCTION(thread_attach, FL_CAN_THREADS),
    FUNCTION(thread_detach, FL_CAN_THREADS),
    FUNCTION(link, FL_CAN_LINK),
    FUNCTION(unlink, FL_CAN_LINK),
    FUNCTION(drop, FL_CAN_LINK),
    FUNCTION(load, FL_CAN_LINK),
    FUNCTION(read_field, FL_CAN_LINK),
    FUNCTION(word_target, FL_CAN_COLLECT),
    FUNCTION(begin, FL_CAN_TRANSACTIONS),
    FUNCTION(commit, FL_CAN_TRANSACTIONS),
    FUNCTION(abort, FL_CAN_TRANSACTIONS),
    FUNCTION(write, FL_CAN_TRANSACTIONS),
    {"step", offsetof(struct fl_adapter, step), FL_CAN_SETTLE, true},
};
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    uint64_t bit;
    const char *name;
} CAPABILITIES[] = {
    {FL_CAN_WALK, "walk"},
    {FL_CAN_CHECK, "check"},
    {FL_CAN_BOUNDS, "bounds"},
    {FL_CAN_SETTLE, "settle"},
    {FL_CAN_COLLECT, "collect"},
    {FL_CAN_THREADS, "threads"},
    {FL_CAN_LINK, "link"},
    {FL_CAN_RELOCATE, "relocate"},
    {FL_CAN_NAMES, "names"},
    {FL_CAN_CHAIN, "chain"},
    {FL_CAN_TRANSACTIONS, "transactions"},
};

const char *status_name(int status) {
    static const char *const NAMES[] = {"ok", "out of memory", "not a heap", "corrupt", "unsupported call", "error"};
    return status >= 0 && (size_t)status < COUNT_OF(NAMES) ? NAMES[status] : "undefined status";
}

/* A promise and a missing function, or the other way round, would only show in the middle of a campaign. */
static void check_functions(const char *path, const struct fl_adapter *adapter) {
    for (size_t i = 0; i < COUNT_OF(FUNCTIONS); i++) {
        const struct function *function = &FUNCTIONS[i];
        void *pointer;
        memcpy(&pointer, (const char *)adapter + function->offset, sizeof pointer);
        bool is_promised = function->capability == 0 || (adapter->capabilities & function->capability) != 0;
        if (is_promised && pointer == NULL && !function->may_be_null)
            fail(EXIT_BAD_INPUT, "%s: adapter %s has no function %s, which is %s; set it in the table", path, adapter->name,
                 function->name, function->capability == 0 ? "required" : "promised by a capability bit");
        if (!is_promised && pointer != NULL)
            fail(EXIT_BAD_INPUT, "%s: adapter %s has a function %s but not its capability bit; set the bit or leave it null", path,
                 adapter->name, function->name);
    }
}

static void check_table(const char *path, const struct fl_adapter *adapter) {
    if (adapter == NULL)
        fail(EXIT_BAD_INPUT, "%s: " FL_ADAPTER_SYMBOL "() returned null, expected the adapter's table", path);
    if (adapter->abi_version != FL_ADAPTER_ABI)
        fail(EXIT_BAD_INPUT, "%s: adapter of ABI version %u, expected %u; build it with this repository's adapter.h", path,
             adapter->abi_version, FL_ADAPTER_ABI);
    if (adapter->struct_size < sizeof(struct fl_adapter))
        fail(EXIT_BAD_INPUT, "%s: adapter table of %u bytes, expected at least %zu; set struct_size to sizeof(struct fl_adapter)",
             path, adapter->struct_size, sizeof(struct fl_adapter));
    if (adapter->name == NULL || adapter->name[0] == '\0')
        fail(EXIT_BAD_INPUT, "%s: the adapter has no name; set it in the table", path);
    if ((adapter->capabilities & FL_CAN_LINK) != 0 && (adapter->capabilities & FL_CAN_WALK) == 0)
        fail(EXIT_BAD_INPUT, "%s: adapter %s has capability link without walk, which tells what a field points to; add walk", path,
             adapter->name);
    check_functions(path, adapter);
}

static void *library;

void *adapter_library(void) { return library; }

const struct fl_adapter *adapter_load(const char *path) {
    char real[PATH_MAX];
    if (realpath(path, real) == NULL)
        fail(EXIT_BAD_INPUT, "%s: adapter: %s; build it first", path, strerror(errno));
    library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(EXIT_BAD_INPUT, "%s: not an adapter that can be loaded: %s", path, dlerror());
    const struct fl_adapter *(*table)(void);
    *(void **)&table = dlsym(library, FL_ADAPTER_SYMBOL);
    if (table == NULL)
        fail(EXIT_BAD_INPUT, "%s: no symbol " FL_ADAPTER_SYMBOL "; an adapter exports it, see adapter.h", path);
    const struct fl_adapter *adapter = table();
    check_table(path, adapter);
    struct fl_stage *const *(*stages)(size_t *count);
    *(void **)&stages = dlsym(library, FL_STAGES_SYMBOL);
    stages_find(stages);
    return adapter;
}

const void *adapter_base(const struct fl_adapter *adapter) {
    Dl_info module = {0};
    dladdr(adapter, &module);
    return module.dli_fbase;
}

void adapter_describe(const struct fl_adapter *adapter) {
    printf("%s", adapter->name);
    for (size_t i = 0; i < COUNT_OF(CAPABILITIES); i++)
        if ((adapter->capabilities & CAPABILITIES[i].bit) != 0)
            printf(" %s", CAPABILITIES[i].name);
    printf("\n");
}
