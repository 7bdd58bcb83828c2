/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/server.h"

struct server server;

void server_clean_up(void) {
    tree_remove(server.base);
    tree_remove(server.copy);
    tree_remove(server.aside);
}
