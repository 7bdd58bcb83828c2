/* SPDX-License-Identifier: Apache-2.0
 *
 * inventory.h - what files there are and what is in them, as text: ` NAME:BYTES:DIGEST` of each, in order of names.
 */
#ifndef FILES_INVENTORY_H
#define FILES_INVENTORY_H

#include <stddef.h>

#define INVENTORY_BYTES 960u /* of the text; a heap report keeps 1000 of a message */
#define NAME_BYTES 32u

struct names {
    char list[64][NAME_BYTES];
    size_t count;
};

/* In order, without those that begin with a dot. */
void list_names(const char *folder, struct names *names);

void inventory_begin(void);
void inventory_add(const char *folder, const char *title);
const char *inventory_text(void);

#endif
