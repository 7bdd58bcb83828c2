/* SPDX-License-Identifier: Apache-2.0 */
/* The cache model of pintools/wear_cache.h over commands from stdin (store, past, clwb, clflush LINE; fence; end), one write-back a
 * line on stdout: the reason's number and the line. Arguments: sets, ways. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wear_cache.h"

static void wear_written(uint64_t key, enum fl_wear_reason reason) { printf("%d %llu\n", reason, (unsigned long long)key); }

int main(int argc, char **argv) {
    if (argc != 3)
        return 9;
    struct wear_cache cache;
    uint64_t sets = strtoull(argv[1], NULL, 10), key;
    uint32_t ways = (uint32_t)strtoul(argv[2], NULL, 10);
    char command[16];
    wear_cache_init(&cache, sets, ways, calloc(sets * ways, sizeof(uint64_t)));
    while (scanf("%15s", command) == 1) {
        if (strcmp(command, "fence") == 0) {
            wear_cache_fence(&cache);
        } else if (strcmp(command, "end") == 0) {
            wear_cache_end(&cache);
        } else if (scanf("%llu", (unsigned long long *)&key) == 1) {
            if (strcmp(command, "store") == 0)
                wear_cache_store(&cache, key);
            else if (strcmp(command, "past") == 0)
                wear_cache_store_past(&cache, key);
            else
                wear_cache_flush(&cache, key, strcmp(command, "clwb") == 0);
        }
    }
    free(cache.entries);
    return 0;
}
