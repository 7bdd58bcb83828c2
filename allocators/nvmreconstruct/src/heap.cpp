/* SPDX-License-Identifier: Apache-2.0
 *
 * heap.cpp - files, executions' begin and end, and what the program calls.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <memory>

#include "stage.h"
#include "state.h"

namespace nv {

static thread_local char text[256] = "";

const char *message() { return text; }

Status fail(Status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- files ---- */

Status make_file(const std::string &path, uint64_t bytes) {
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = fd < 0 ? errno : fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && error != 0)
        unlink(path.c_str());
    if (error == 0)
        return Status::OK;
    return fail(error == ENOSPC ? Status::OUT_OF_MEMORY : Status::ERROR, "%s: %s", path.c_str(), strerror(error));
}

void sync_folder(const std::string &folder) {
    int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

Status map_file(const std::string &path, uintptr_t address, Mapping *mapping) {
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC), is_emulated;
    struct stat info{};
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size == 0) {
        int error = fd < 0 ? errno : 0;
        if (fd >= 0)
            close(fd);
        return fail(fd < 0 && error != ENOENT ? Status::ERROR : Status::NOT_A_HEAP, "%s: %s", path.c_str(),
                    error != 0 ? strerror(error) : "it is empty");
    }
    auto bytes = static_cast<uint64_t>(info.st_size);
    void *base = fl_map(address, bytes, fd, 0, 0, &is_emulated);
    if (base == MAP_FAILED && address != 0)
        base = fl_map(0, bytes, fd, 0, 0, &is_emulated);
    int error = errno;
    close(fd);
    if (base == MAP_FAILED)
        return fail(Status::ERROR, "%s: it cannot be mapped: %s", path.c_str(), strerror(error));
    *mapping = {static_cast<char *>(base), bytes};
    return Status::OK;
}

void Mapping::unmap() {
    if (base != nullptr)
        munmap(base, bytes);
    *this = {};
}

/* ---- create, open, close ---- */

static bool is_heap(const std::string &meta_path) {
    uint64_t magic = 0;
    int fd = open(meta_path.c_str(), O_RDONLY | O_CLOEXEC);
    bool is_read = fd >= 0 && pread(fd, &magic, sizeof magic, offsetof(Meta, magic)) == sizeof magic;
    if (fd >= 0)
        close(fd);
    return is_read && magic == META_MAGIC;
}

static Status expect_layout(const Mapping &file) {
    const auto *meta = reinterpret_cast<const Meta *>(file.base);
    if (file.bytes < sizeof(Meta) || meta->magic != META_MAGIC)
        return fail(Status::NOT_A_HEAP, "meta: the creation of the heap was not completed");
    if (meta->page_bytes != PAGE_BYTES || meta->execution_bytes != EXECUTION_BYTES || meta->execution_slots != EXECUTION_SLOTS)
        return fail(Status::INVALID, "the heap was made by a library with other parameters (NVR_PAGE_BYTES, NVR_EXECUTION_...)");
    if (file.bytes != meta_bytes(meta->page_count))
        return fail(Status::CORRUPT, "meta: it has %llu bytes and should have %llu", static_cast<unsigned long long>(file.bytes),
                    static_cast<unsigned long long>(meta_bytes(meta->page_count)));
    return Status::OK;
}

/* What the rest relies on to come to an end and stay inside. */
static Status expect_sane(const Heap::State &heap) {
    const Meta &meta = *heap.meta;
    uint64_t pages = heap.page_count(), roots = heap.root_pages();
    auto damaged = [](const char *what, uint64_t number) {
        return fail(Status::CORRUPT, "meta: %s %llu is damaged", what, static_cast<unsigned long long>(number));
    };
    if (roots >= pages)
        return damaged("the number of roots", meta.root_count);
    if (meta.undo.page_and_1 > pages)
        return damaged("the undo copy of page", meta.undo.page_and_1 - 1);
    if (meta.change.count > std::size(meta.change.stores))
        return damaged("the number of pending stores", meta.change.count);
    for (uint64_t number = 0; number < meta.change.count; number++) {
        uint64_t destination = meta.change.stores[number].destination;
#ifdef MUTANT_LOG_ABSOLUTE
        destination -= reinterpret_cast<uint64_t>(heap.base());
#endif
        bool is_inside = destination < heap.heap_file.bytes && destination % sizeof(uint64_t) <= 1;
        if (!is_inside || ((destination & 1) != 0 && heap.execution_of(static_cast<uint32_t>(destination / PAGE_BYTES)) == nullptr))
            return damaged("pending store", number);
    }
    for (uint64_t page = 0; page < pages; page++) {
        PageWord word = meta.words[page];
        bool is_right = (word.kind() == PageKind::ROOTS) == (page < roots);
        if (word.kind() == PageKind::RUN)
            is_right = is_right && word.run_pages() > 0 && word.run_pages() <= pages - page;
        if (!is_right || (word.has_slots() && word.slot_class() >= CLASSES))
            return damaged("the word of page", page);
    }
    return Status::OK;
}

Status Heap::State::load(const Options &options) {
    Status status = map_file(path("meta"), options.address, &meta_file);
    if (status == Status::OK)
        status = expect_layout(meta_file);
    if (status != Status::OK)
        return status;
    meta = reinterpret_cast<Meta *>(meta_file.base);
    heap_file_name = heap_name(meta->generation);
    status = map_file(path(heap_file_name.c_str()), after(options.address, meta_file), &heap_file);
    if (status != Status::OK)
        return status == Status::NOT_A_HEAP ? Status::CORRUPT : status;
    if (heap_file.bytes != page_count() * PAGE_BYTES)
        return fail(Status::CORRUPT, "%s: it has another size than meta says", heap_name(meta->generation).c_str());
    executions.assign(EXECUTION_SLOTS, {});
    for (uint64_t slot = 0; slot < EXECUTION_SLOTS; slot++)
        if (record(slot)->number != 0 && !executions[slot].read(record(slot)))
            return fail(Status::CORRUPT, "the record of execution %llu is damaged",
                        static_cast<unsigned long long>(record(slot)->number));
    if (status = expect_sane(*this); status != Status::OK)
        return status;
    undo();
    redo();
    return Status::OK;
}

void Heap::State::unload() {
    remove_traps();
    behind.unmap();
    heap_file.unmap();
    meta_file.unmap();
    meta = nullptr;
}

/* What a compaction left that was cut short (section 4.3). */
static void unlink_others(const Heap::State &heap, uint64_t generation) {
    bool is_changed = unlink(heap.path("meta.new").c_str()) == 0;
    is_changed |= unlink(heap.path(heap.heap_name(generation + 1).c_str()).c_str()) == 0;
    is_changed |= generation > 0 && unlink(heap.path(heap.heap_name(generation - 1).c_str()).c_str()) == 0;
    if (!is_changed)
        return;
    FL_STAGE("compaction: files of one that was cut short were removed");
    sync_folder(heap.folder);
}

/* meta and the heap's file are loaded, and of no execution. */
Status Heap::start(State *state, const Options &options, Heap **heap) {
    Status status = state->begin_execution();
    if (status != Status::OK)
        return status;
    state->learn_pages();
    bool has_room =
        std::any_of(state->executions.begin(), state->executions.end(), [](const PastExecution &past) { return past.number == 0; });
    state->mode = has_room ? options.mode : Mode::EAGER; /* else the next execution would have no place for its record */
    if (state->mode == Mode::TRAPPING)
        status = state->set_traps();
    for (uint32_t page = 0; state->mode == Mode::EAGER && page < state->page_count() && status == Status::OK;
         page += state->span(page))
        if (!state->is_of_now(page) && state->is_live(page))
            status = state->reconstruct(page);
    if (status == Status::OK)
        *heap = new Heap(state);
    return status;
}

Status Heap::create(const Options &options, Heap **heap) {
    auto state = std::make_unique<State>();
    state->folder = options.folder;
    if (is_heap(state->path("meta")))
        return fail(Status::EXISTS, "%s: there is a heap already", options.folder);
    for (const char *name : {"meta", "heap.0"})
        unlink(state->path(name).c_str());
    uint64_t root_pages = up_to(options.root_count * sizeof(uint64_t), PAGE_BYTES) / PAGE_BYTES;
    uint64_t pages = root_pages + std::max<uint64_t>(up_to(options.heap_bytes, PAGE_BYTES) / PAGE_BYTES, 1);
    Status status = state->program.gather();
    if (status == Status::OK)
        status = make_file(state->path("meta"), meta_bytes(pages));
    if (status == Status::OK)
        status = make_file(state->path("heap.0"), pages * PAGE_BYTES);
#ifndef MUTANT_NAME_NOT_SYNCED
    sync_folder(state->folder);
#endif
    if (status == Status::OK)
        status = map_file(state->path("meta"), options.address, &state->meta_file);
    state->heap_file_name = state->heap_name(0);
    if (status == Status::OK)
        status = map_file(state->path("heap.0"), after(options.address, state->meta_file), &state->heap_file);
    if (status == Status::OK) {
        Meta *meta = state->meta = reinterpret_cast<Meta *>(state->meta_file.base);
        meta->begin(pages, options.root_count, 0);
        for (uint64_t page = 0; page < root_pages; page++)
            meta->words[page] = PageWord::of(PageKind::ROOTS, 1);
        state->executions.assign(EXECUTION_SLOTS, {});
        status = start(state.get(), options, heap);
#ifndef MUTANT_META_NOT_FLUSHED
        fl_persist(meta, executions_offset(pages));
#endif
        if (status == Status::OK) {
            fl_store8(&meta->magic, META_MAGIC);
            fl_persist(&meta->magic, sizeof meta->magic);
        }
    }
    if (status == Status::OK)
        state.release();
    else
        state->unload();
    return status;
}

Status Heap::open(const Options &options, Heap **heap) {
    auto state = std::make_unique<State>();
    state->folder = options.folder;
    Status status = state->program.gather();
    if (status == Status::OK)
        status = state->load(options);
    if (status == Status::OK)
        unlink_others(*state, state->meta->generation);
    bool is_changed = status == Status::OK && state->needs_compaction();
    if (is_changed || (status == Status::OK && options.compacts)) {
        status = compact(*state, after(after(options.address, state->meta_file), state->heap_file));
        state->unload();
        if (status == Status::OK)
            status = state->load(options);
    }
    if (status == Status::OK && options.mode == Mode::TRAPPING)
        status = map_file(state->path(state->heap_name(state->meta->generation).c_str()),
                          after(after(options.address, state->meta_file), state->heap_file), &state->behind);
    if (status == Status::OK)
        status = start(state.get(), options, heap);
    if (status == Status::OK)
        state.release();
    else
        state->unload();
    return status;
}

void Heap::close() {
    state->unload();
    delete state;
    delete this;
}

/* ---- objects ---- */

Status Heap::reserve(uint32_t type, uint64_t type_bytes, uint64_t tail_bytes, void **place) {
    std::lock_guard guard(state->lock);
    uint32_t page = 0, slot = 0;
    if (state->program.type(type) == nullptr)
        return fail(Status::NO_TYPES, "the type is in no table: link what nv_types.py makes of all objects (g++ -g)");
    if (type_bytes > MAX_TYPE_BYTES)
        return fail(Status::INVALID, "no type may be larger than a page");
    if (tail_bytes > MAX_OBJECT_BYTES - type_bytes)
        return fail(Status::OUT_OF_MEMORY, "no object can be so large");
    uint64_t bytes = type_bytes + tail_bytes, whole = bytes + sizeof(Header);
    Status status = whole <= PAGE_BYTES ? state->find_slot(whole, &page, &slot) : state->find_run(whole, &page);
    if (status != Status::OK)
        return status;
    uint64_t offset = page * PAGE_BYTES + slot * uint64_t{state->slot_bytes(page)} + sizeof(Header);
    state->reserved[offset] = Header::of(type, bytes);
    *place = state->base() + offset;
    return Status::OK;
}

/* In one line the stores come in order: count last. */
void Heap::State::commit(const Change::Store *stores, uint64_t count) {
    Change &change = meta->change;
    for (uint64_t number = 0; number < count; number++) {
#ifdef MUTANT_LOG_ABSOLUTE
        fl_store8(&change.stores[number].destination, stores[number].destination + reinterpret_cast<uint64_t>(base()));
#else
        fl_store8(&change.stores[number].destination, stores[number].destination);
#endif
        fl_store8(&change.stores[number].value, stores[number].value);
    }
    fl_store8(&change.count, count);
#ifndef MUTANT_CHANGE_NOT_FLUSHED
    fl_persist(&change, sizeof change);
#endif
    apply(stores, count);
}

Status Heap::publish(void **destination, void *object, uint64_t type_bytes) {
#ifndef MUTANT_OBJECT_NOT_FLUSHED
    fl_persist(object, type_bytes);
#else
    (void)type_bytes;
#endif
    std::lock_guard guard(state->lock);
    uint64_t to = offset_of(destination), fresh = offset_of(object);
    state->ensure(static_cast<uint32_t>(to / PAGE_BYTES));
    uint64_t old = *destination == nullptr ? 0 : offset_of(*destination);
    Change::Store stores[3] = {{to | 1, fresh}, {fresh - sizeof(Header), state->reserved[fresh].word}, {old - sizeof(Header), 0}};
    state->reserved.erase(fresh);
    state->commit(stores, old == 0 ? 2 : 3);
    if (old != 0)
        state->give_back(old);
    return Status::OK;
}

Status Heap::unpublish(void **destination) {
    std::lock_guard guard(state->lock);
    uint64_t to = offset_of(destination);
    state->ensure(static_cast<uint32_t>(to / PAGE_BYTES));
    if (*destination == nullptr)
        return fail(Status::INVALID, "the pointer is null");
    uint64_t old = offset_of(*destination);
    if (!state->is_in_heap(*destination))
        return fail(Status::INVALID, "no object of this heap");
    Change::Store stores[2] = {{to | 1, 0}, {old - sizeof(Header), 0}};
    state->commit(stores, 2);
    state->give_back(old);
    return Status::OK;
}

void Heap::store_pointer(void **field, void *value) {
    if (state->is_in_heap(field))
        state->ensure(static_cast<uint32_t>(offset_of(field) / PAGE_BYTES));
    fl_store8(field, reinterpret_cast<uint64_t>(value));
    fl_persist(field, sizeof *field);
}

void **Heap::root_place(uint32_t number) {
    void **place = reinterpret_cast<void **>(state->base()) + number;
    touch(place);
    return place;
}

/* ---- reconstruction ---- */

void Heap::touch(const void *place) {
    if (state->mode != Mode::TRAPPING && state->is_in_heap(place))
        state->ensure(static_cast<uint32_t>(offset_of(place) / PAGE_BYTES));
}

bool Heap::step() {
    std::lock_guard guard(state->lock);
    for (; state->next_stale < state->page_count(); state->next_stale++) {
        auto page = static_cast<uint32_t>(state->next_stale);
        bool is_first = page < state->root_pages() || !state->pages[page].is_used.empty();
        if (!is_first || state->is_of_now(page) || !state->is_live(page))
            continue;
        state->ensure(page);
        return true;
    }
    return false;
}

void Heap::settle() {
    while (step()) {
    }
}

/* ---- looking ---- */

uint32_t Heap::root_count() const { return static_cast<uint32_t>(state->meta->root_count); }
uint64_t Heap::offset_of(const void *place) const {
    return static_cast<uint64_t>(static_cast<const char *>(place) - state->base());
}
void *Heap::at(uint64_t offset) const { return state->base() + offset; }
uint64_t Heap::execution() const { return state->execution_number; }

const Type *Heap::type_at(const void *object) {
    touch(object);
    Header found{state->word_at(offset_of(object) - sizeof(Header))};
    const KnownType *known = found.is_live() ? state->program.type(found.type()) : nullptr;
    return known == nullptr ? nullptr : known->type;
}

const char *Heap::file_name(uint32_t file) const { return file == META_FILE ? "meta" : state->heap_file_name.c_str(); }

Status Heap::walk(const std::function<void(const Part &)> &visit) {
    std::lock_guard guard(state->lock);
    visit({META_FILE, PartState::METADATA, 0, state->meta_file.bytes});
    visit({HEAP_FILE, PartState::METADATA, 0, state->root_pages() * PAGE_BYTES});
    for (auto page = static_cast<uint32_t>(state->root_pages()); page < state->page_count();) {
        uint64_t start = page * PAGE_BYTES, pages = 1;
        const Page &known = state->pages[page];
        PageWord word = state->meta->words[page];
        if (known.used == 0) {
            visit({HEAP_FILE, PartState::FREE, start, PAGE_BYTES});
            page++;
            continue;
        }
        if (word.kind() == PageKind::RUN)
            pages = word.run_pages();
        uint64_t slot_bytes = sizeof(Header) + state->room(page), offset = start;
        for (uint32_t slot = 0; slot < state->slot_count(page); slot++, offset += slot_bytes) {
            bool is_live = state->header(page, slot).is_live();
            PartState part = is_live ? PartState::ALLOCATED : known.is_used[slot] ? PartState::RESERVED : PartState::FREE;
            visit({HEAP_FILE, PartState::METADATA, offset, sizeof(Header)});
            visit({HEAP_FILE, part, offset + sizeof(Header), slot_bytes - sizeof(Header)});
        }
        if (offset < start + pages * PAGE_BYTES)
            visit({HEAP_FILE, PartState::UNUSABLE, offset, start + pages * PAGE_BYTES - offset});
        page += static_cast<uint32_t>(pages);
    }
    return Status::OK;
}

Status Heap::check() {
    std::lock_guard guard(state->lock);
    const State &heap = *state;
    if (heap.meta->change.count != 0 || heap.meta->undo.page_and_1 != 0)
        return fail(Status::CORRUPT, "a change or a reconstruction is pending");
    Status status = expect_sane(heap);
    for (uint32_t page = 0; page < heap.root_pages(); page++)
        if (heap.is_live(page) && heap.execution_of(page) == nullptr)
            status = fail(Status::CORRUPT, "page %u is of an execution of which there is no record", page);
    heap.visit_objects([&](uint32_t page, uint32_t slot, Header found) {
        if (status != Status::OK)
            return;
        if (heap.execution_of(page) == nullptr)
            status = fail(Status::CORRUPT, "page %u is of an execution of which there is no record", page);
        else if (heap.program.type(found.type()) == nullptr)
            status = fail(Status::CORRUPT, "page %u, slot %u: type %08x is in no table", page, slot, found.type());
        else if (found.bytes() > heap.room(page))
            status = fail(Status::CORRUPT, "page %u, slot %u: %llu bytes are too many", page, slot,
                          static_cast<unsigned long long>(found.bytes()));
    });
    return status;
}

} // namespace nv
