/* SPDX-License-Identifier: Apache-2.0
 *
 * nvmalloc_dropin.h - malloc, free, calloc, realloc and malloc_usable_size of the sources that include it are nvmalloc's. For a
 * program that is not to be changed: gcc -include nvmalloc_dropin.h. Call nvmalloc_start first.
 */
#ifndef NVMALLOC_DROPIN_H
#define NVMALLOC_DROPIN_H

#include <malloc.h> /* before the names change their meaning */
#include <stdlib.h>

#include "nvmalloc.h"

#define malloc nvmalloc
#define free nvfree
#define calloc nvcalloc
#define realloc nvrealloc
#define malloc_usable_size nvmalloc_usable_size

#endif
