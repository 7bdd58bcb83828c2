/* SPDX-License-Identifier: Apache-2.0
 *
 * The fork server's input and answers. Server and worker have them in turn, and share what was read ahead.
 */
#include "serve/server.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_ANSWERS 3 /* to a command */

/* Input that was read and not yet taken. */
static struct ahead {
    uint8_t bytes[1 << 16];
    size_t from, to;
} *ahead;

void streams_map(void) { ahead = map_or_fail(sizeof *ahead, MAP_SHARED, -1, "input"); }

/* ---- input -------------------------------------------------------------------------------------------------------------- */

static void wait_for_input(void) {
    struct pollfd polled = {.fd = server.input, .events = POLLIN};
    while (ppoll(&polled, 1, NULL, child_waiting_mask()) < 0)
        if (child_stop_requested())
            FAIL(EXIT_INFRASTRUCTURE, "stopped by a signal");
}

/* Some input; false at its end. A worker just reads: signals that ask to end are the server's business. */
static bool refill(void) {
    if (!server.is_worker)
        wait_for_input();
    ssize_t got = read(server.input, ahead->bytes, sizeof ahead->bytes);
    if (got < 0)
        FAIL(EXIT_INFRASTRUCTURE, "standard input: %s", strerror(errno));
    ahead->from = 0;
    ahead->to = (size_t)got;
    return got > 0;
}

bool take(void *target, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        if (ahead->from == ahead->to && !refill()) {
            if (done == 0)
                return false;
            FAIL(EXIT_BAD_INPUT, "standard input ends inside a command");
        }
        size_t count = ahead->to - ahead->from < bytes - done ? ahead->to - ahead->from : bytes - done;
        memcpy((uint8_t *)target + done, ahead->bytes + ahead->from, count);
        ahead->from += count;
        done += count;
    }
    return true;
}

void take_payload(void *target, size_t bytes) {
    if (bytes > 0 && !take(target, bytes))
        FAIL(EXIT_BAD_INPUT, "standard input ends inside a command");
}

const uint8_t *take_piece(uint64_t left, size_t *bytes) {
    if (ahead->from == ahead->to && !refill())
        FAIL(EXIT_BAD_INPUT, "standard input ends inside a command");
    const uint8_t *piece = ahead->bytes + ahead->from;
    *bytes = ahead->to - ahead->from < left ? ahead->to - ahead->from : (size_t)left;
    ahead->from += *bytes;
    return piece;
}

/* ---- answers --------------------------------------------------------------------------------------------------------------- */

/* In one system call, as a rule, since an in-process run costs about as much. */
void send_all(const void *const answers[], const uint32_t bytes[], int count) {
    struct iovec parts[2 * MOST_ANSWERS], *rest = parts;
    for (int i = 0; i < count; i++) {
        parts[2 * i] = (struct iovec){(void *)&bytes[i], sizeof bytes[i]};
        parts[2 * i + 1] = (struct iovec){(void *)answers[i], answers[i] == NULL ? 0 : bytes[i]};
    }
    for (int left = 2 * count; left > 0;) {
        ssize_t put = writev(server.output, rest, left);
        if (put < 0)
            FAIL(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
        for (; left > 0 && (size_t)put >= rest->iov_len; left--, rest++)
            put -= (ssize_t)rest->iov_len;
        if (left > 0) {
            rest->iov_base = (char *)rest->iov_base + put;
            rest->iov_len -= (size_t)put;
        }
    }
}

void send_answer(const void *answer, uint32_t bytes) { send_all(&answer, &bytes, 1); }
