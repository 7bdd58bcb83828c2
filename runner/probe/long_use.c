/* SPDX-License-Identifier: Apache-2.0
 *
 * A long use of a heap: many allocations and frees, whose objects are looked at in between. The sequence is the same for all heaps: it
 * begins with a row of small objects, and goes on with objects of all sizes.
 */
#include "base/traced.h"
#include "files/files.h"
#include "loads/loads.h"
#include "probe/probe.h"
#include <stdio.h>
#include <string.h>

#define MOST_OBJECTS (sizeof((struct long_use *)NULL)->objects / sizeof(struct long_object))
#define ROW 64u            /* objects of one size, one after the other */
#define SMALLEST_BYTES 16u
#define ROW_BYTES 64u
#define LOOKED_AT_EACH 100u /* operations */
#define FIRST_OBJECT 0xf80000u /* above what recovery traces use (FL_FIRST_INDEX), below PROBE_OBJECT */

struct user {
    const struct fl_adapter *adapter;
    fl_heap *heap;
    struct long_use *use;
    uint32_t empty[MOST_OBJECTS], empty_count; /* slots */
    uint32_t ids[MOST_OBJECTS];                /* of the pattern, by object */
    uint64_t random;
};

static uint64_t next_random(struct user *user) {
    uint64_t x = user->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return user->random = x;
}

/* All magnitudes are equally frequent. */
static uint64_t some_bytes(struct user *user, uint64_t largest) {
    uint64_t most = SMALLEST_BYTES;
    uint32_t magnitudes = 0;
    for (uint64_t bytes = SMALLEST_BYTES; bytes < largest; bytes *= 2)
        magnitudes++;
    if (magnitudes > 0)
        most <<= 1 + next_random(user) % magnitudes;
    most = most < largest ? most : largest;
    return most / 2 + 1 + next_random(user) % (most - most / 2);
}

static int find_empty_slots(struct user *user, const struct probe *probe, uint32_t first) {
    int status = FL_OK;
    for (uint32_t slot = first; slot < probe->options.slot_count && user->empty_count < MOST_OBJECTS && status == FL_OK; slot++) {
        struct fl_location location = {0};
        status = user->adapter->read_slot(user->heap, slot, &location);
        if (status == FL_OK && !location.is_set)
            user->empty[user->empty_count++] = slot;
    }
    return status;
}

static int allocate_one(struct user *user, uint64_t bytes, uint32_t id) {
    struct long_use *use = user->use;
    struct fill fill = {.object = id};
    uint32_t slot = user->empty[user->empty_count - 1];
    int status = user->adapter->allocate(user->heap, slot, bytes, pattern_fill, &fill);
    if (status != FL_OK)
        return status;
    struct long_object *object = &use->objects[use->count];
    *object = (struct long_object){.slot = slot, .bytes = bytes};
    user->ids[use->count++] = id;
    user->empty_count--;
    return user->adapter->read_slot(user->heap, slot, &object->location);
}

static int free_one(struct user *user) {
    struct long_use *use = user->use;
    uint32_t number = (uint32_t)(next_random(user) % use->count), slot = use->objects[number].slot;
    int status = user->adapter->free(user->heap, slot);
    if (status != FL_OK)
        return status;
    use->count--;
    use->objects[number] = use->objects[use->count];
    user->ids[number] = user->ids[use->count];
    user->empty[user->empty_count++] = slot;
    return FL_OK;
}

struct looked {
    uint32_t id;
    uint64_t right_to; /* the pattern holds up to here */
};

static void look(void *context, uint32_t object, uint64_t from, uint64_t to) {
    struct looked *looked = context;
    if (object == looked->id && from <= looked->right_to && to > looked->right_to)
        looked->right_to = to;
}

/* False: there are no bytes of it, or another one than it was filled with. */
static bool is_right(struct user *user, uint32_t number) {
    const struct long_object *object = &user->use->objects[number];
    const char *name = user->adapter->file_name(user->heap, object->location.file);
    uint64_t available = 0;
    const uint8_t *bytes = name == NULL ? NULL : vfs_address(name, object->location.offset, &available);
    struct looked looked = {.id = user->ids[number]};
    if (bytes != NULL && available >= object->bytes) {
        traced_pause(true);
        pattern_scan(bytes, object->bytes, false, look, &looked);
        traced_pause(false);
    }
    return looked.right_to >= object->bytes;
}

static int look_at_all(struct user *user, uint32_t operations) {
    struct long_use *use = user->use;
    vfs_look_anew();
    for (uint32_t number = 0; number < use->count; number++)
        if (!is_right(user, number)) {
            snprintf(use->message, sizeof use->message, "after %u operations the content of an object of %llu bytes is wrong",
                     operations, (unsigned long long)use->objects[number].bytes);
            return FL_ERROR;
        }
    return FL_OK;
}

/* Where memory is short, something is freed instead. */
static int do_one(struct user *user, uint32_t operation, uint64_t largest) {
    bool is_row = operation < ROW, is_full = user->empty_count == 0;
    bool allocates = !is_full && (is_row || user->use->count == 0 || next_random(user) % 16 < 9);
    uint64_t bytes = is_row && ROW_BYTES <= largest ? ROW_BYTES : some_bytes(user, largest);
    int status = allocates ? allocate_one(user, bytes, FIRST_OBJECT + operation) : FL_OUT_OF_MEMORY;
    if (status != FL_OUT_OF_MEMORY)
        return status;
    return user->use->count > 0 ? free_one(user) : FL_OK;
}

void use_long(const struct probe *probe, fl_heap *heap, uint32_t first, uint64_t largest, struct long_use *use) {
    *use = (struct long_use){0};
    if (largest < SMALLEST_BYTES)
        return; /* too small a heap for any of them */
    struct user user = {.adapter = probe->adapter, .heap = heap, .use = use, .random = 0x9e3779b97f4a7c15ull};
    int status = find_empty_slots(&user, probe, first);
    for (uint32_t done = 0; done < FL_DEEP_OPERATIONS && status == FL_OK; done++) {
        status = do_one(&user, done, largest);
        if (status == FL_OK && (done + 1) % LOOKED_AT_EACH == 0)
            status = look_at_all(&user, done + 1);
    }
    use->status = status;
}
