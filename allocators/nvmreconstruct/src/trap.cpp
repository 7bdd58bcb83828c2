/* SPDX-License-Identifier: Apache-2.0
 *
 * trap.cpp - pages of earlier executions cannot be accessed; the first access reconstructs the page through the second mapping
 * (section 4.2, Listing 2), and goes on.
 */
#include <csignal>
#include <unistd.h>

#include "stage.h"
#include "state.h"

namespace nv {

/* Whose pages are trapped: one heap of a process, as signals know no heaps. */
static Heap::State *trapping;

static void handle(int number, siginfo_t *info, void *context) {
    Heap::State *heap = trapping;
    if (heap != nullptr && heap->is_in_heap(info->si_addr)) {
        auto page = static_cast<uint32_t>((static_cast<char *>(info->si_addr) - heap->base()) / PAGE_BYTES);
        std::lock_guard guard(heap->lock);
        if (heap->is_trapped[page]) {
            FL_STAGE("reconstruction: at the first access");
            heap->ensure(page);
            heap->open_page(page);
        }
        return;
    }
    struct sigaction before = heap != nullptr ? heap->before : (struct sigaction){};
    if ((before.sa_flags & SA_SIGINFO) != 0)
        return before.sa_sigaction(number, info, context);
    sigaction(number, &before, nullptr); /* what it is without us: the access is done again */
}

Status Heap::State::set_traps() {
    is_trapped.assign(page_count(), false);
    if (PAGE_BYTES % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) != 0)
        return fail(Status::INVALID, "pages of %llu bytes cannot be protected", static_cast<unsigned long long>(PAGE_BYTES));
    if (trapping != nullptr)
        return fail(Status::INVALID, "another heap is open with traps");
    for (uint32_t page = 0; page < page_count(); page += span(page)) {
        if (is_of_now(page) || !is_live(page))
            continue;
        if (mprotect(base() + page * PAGE_BYTES, PAGE_BYTES, PROT_NONE) != 0)
            return fail(Status::ERROR, "page %u cannot be protected", page);
        is_trapped[page] = true;
    }
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    trapping = this;
    sigaction(SIGSEGV, &action, &before);
    return Status::OK;
}

void Heap::State::open_page(uint32_t page) {
    if (page >= is_trapped.size() || !is_trapped[page])
        return;
    mprotect(base() + page * PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE);
    is_trapped[page] = false;
}

void Heap::State::remove_traps() {
    if (trapping != this)
        return;
    sigaction(SIGSEGV, &before, nullptr);
    trapping = nullptr;
}

} // namespace nv
