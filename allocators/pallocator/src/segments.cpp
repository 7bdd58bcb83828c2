/* SPDX-License-Identifier: Apache-2.0
 *
 * segments.cpp - see segments.h. Files first: nothing is listed before it is whole, nothing is unlisted after its file is gone.
 */
#include "segments.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "stage.h"

namespace pallocator {

static thread_local char text[512] = "no call has failed yet";

const char *message() { return text; }

Status fail(Status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return status;
}

void file_name(uint64_t file, char (&name)[32]) {
    if (file == ANCHOR_FILE)
        snprintf(name, sizeof name, "anchor");
    else
        snprintf(name, sizeof name, "segment-%llu", static_cast<unsigned long long>(file));
}

static const char *errno_text() { return strerror(errno); }

/* ---- maps ---- */

std::string Segments::path(uint64_t file) const {
    char name[32];
    file_name(file, name);
    return folder + "/" + name;
}

char *Segments::map(int fd, uint64_t bytes) {
    int is_emulated;
    void *base = MAP_FAILED;
    if (next_address != 0) {
        base = fl_map(next_address, bytes, fd, 0, 0, &is_emulated);
        next_address += rounded_up(bytes, OS_PAGE_BYTES);
    }
    if (base == MAP_FAILED)
        base = fl_map(0, bytes, fd, 0, 0, &is_emulated);
    return base == MAP_FAILED ? nullptr : static_cast<char *>(base);
}

void Segments::add(uint64_t file, char *base, uint64_t bytes, uint64_t entry) {
    std::unique_lock guard(maps_lock);
    id_to_info[file] = {base, bytes, 0, entry, OWNER_HUGE};
    address_to_id[reinterpret_cast<uintptr_t>(base)] = file;
    occupied_bytes += bytes;
}

void Segments::remove(uint64_t file) {
    std::unique_lock guard(maps_lock);
    auto found = id_to_info.find(file);
    if (found == id_to_info.end())
        return;
    const Info &info = found->second;
    occupied_bytes -= info.bytes - info.holes;
    address_to_id.erase(reinterpret_cast<uintptr_t>(info.base));
    munmap(info.base, info.bytes);
    id_to_info.erase(found);
}

Segments::~Segments() {
    for (auto &[file, info] : id_to_info)
        munmap(info.base, info.bytes);
}

void *Segments::address_of(const PPtrBase &pointer) const {
    std::shared_lock guard(maps_lock);
    auto found = id_to_info.find(pointer.file);
    if (found == id_to_info.end() || pointer.offset >= found->second.bytes)
        return nullptr;
    return found->second.base + pointer.offset;
}

PPtrBase Segments::persistent(const void *address) const {
    std::shared_lock guard(maps_lock);
    auto after = address_to_id.upper_bound(reinterpret_cast<uintptr_t>(address));
    if (after == address_to_id.begin())
        return {};
    auto [base, file] = *std::prev(after);
    uint64_t offset = reinterpret_cast<uintptr_t>(address) - base;
    return offset < id_to_info.at(file).bytes ? PPtrBase{file, offset} : PPtrBase{};
}

uint64_t Segments::bytes_of(uint64_t file) const {
    std::shared_lock guard(maps_lock);
    auto found = id_to_info.find(file);
    return found == id_to_info.end() ? 0 : found->second.bytes;
}

Owner Segments::owner(uint64_t file) const {
    std::shared_lock guard(maps_lock);
    auto found = id_to_info.find(file);
    return found == id_to_info.end() ? OWNER_NONE : found->second.owner;
}

void Segments::set_owner(uint64_t file, Owner owner) {
    std::unique_lock guard(maps_lock);
    auto found = id_to_info.find(file);
    if (found != id_to_info.end())
        found->second.owner = owner;
}

std::vector<uint64_t> Segments::files() const {
    std::shared_lock guard(maps_lock);
    std::vector<uint64_t> result;
    for (auto &[file, info] : id_to_info)
        result.push_back(file);
    std::sort(result.begin(), result.end());
    return result;
}

uint64_t Segments::occupied() const {
    std::shared_lock guard(maps_lock);
    return occupied_bytes;
}

uint64_t Segments::room() const {
    uint64_t used = occupied();
    return used < anchor_->limit_bytes ? anchor_->limit_bytes - used : 0;
}

void Segments::note_hole(uint64_t file, uint64_t bytes) {
    std::unique_lock guard(maps_lock);
    auto found = id_to_info.find(file);
    if (found == id_to_info.end())
        return;
    found->second.holes += bytes;
    occupied_bytes -= bytes;
}

void Segments::note_filled(uint64_t file, uint64_t bytes) {
    std::unique_lock guard(maps_lock);
    auto found = id_to_info.find(file);
    if (found == id_to_info.end())
        return;
    found->second.holes -= bytes;
    occupied_bytes += bytes;
}

void Segments::set_holes(uint64_t file, uint64_t bytes) {
    std::unique_lock guard(maps_lock);
    Info &info = id_to_info.at(file);
    occupied_bytes += info.holes - bytes;
    info.holes = bytes;
}

bool Segments::fill(uint64_t file, uint64_t offset, uint64_t bytes) {
    std::lock_guard guard(lock);
    if (bytes > room() || !files_fill(path(file).c_str(), offset, bytes))
        return false;
    note_filled(file, bytes);
    return true;
}

void Segments::punch(uint64_t file, uint64_t offset, uint64_t bytes) {
    if (bytes_of(file) == 0)
        return;
    files_punch(path(file).c_str(), offset, bytes);
    punched++;
    punched_bytes += bytes;
}

/* ---- create and open ---- */

static uint64_t new_identity() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec) + static_cast<uint64_t>(getpid());
}

static void clear_core(Core &core) {
    new (&core) Core{};
    core.small_item.state = SMALL_NONE;
}

/* Everything but the status, which is stored when all the rest is persisted. A heap without it is no heap (§4.7). */
Status Segments::create_anchor(const Options &options, unsigned cores) {
    folder = options.folder;
    next_address = options.address;
    uint64_t bytes = anchor_bytes(cores, PAL_SEGMENT_ENTRIES);
    if (bytes > options.limit_bytes)
        return fail(Status::INVALID, "a limit of %llu bytes has no room for the anchor, which has %llu",
                    static_cast<unsigned long long>(options.limit_bytes), static_cast<unsigned long long>(bytes));
    char *base;
    Status status = make_file(ANCHOR_FILE, bytes, &base);
    if (status != Status::OK)
        return status;
    anchor_ = reinterpret_cast<Anchor *>(base);
    store(anchor_->magic, ANCHOR_MAGIC);
    store(anchor_->version, VERSION);
    store(anchor_->heap, options.identity != 0 ? options.identity : new_identity());
    const uint64_t sizes[] = {SEGMENT_BYTES, PAGE_BYTES, BIG_LIMIT, LEAF_ENTRIES, PAL_SEGMENT_ENTRIES, cores, options.limit_bytes};
    for (size_t i = 0; i < std::size(sizes); i++)
        store((&anchor_->segment_bytes)[i], sizes[i]);
    for (PPtrBase &root : anchor_->roots)
        store(root, {});
    store(anchor_->free_segments, {});
    store(anchor_->leaving, {});
    store(anchor_->segment_item.pointer, {});
    store(anchor_->segment_item.list, {});
    for (unsigned i = 0; i < cores; i++)
        clear_core(core(i));
#ifndef MUTANT_READY_TOO_EARLY
    fl_persist(base, bytes);
    store_flushed(anchor_->status, STATUS_READY);
    fl_fence(); /* the heap is there when create returns; the first operation would fence, too */
#else
    store_flushed(anchor_->status, STATUS_READY);
    fl_fence();
    fl_persist(base, bytes);
#endif
    add(ANCHOR_FILE, base, bytes, 0);
    return Status::OK;
}

static Status check_anchor(const Anchor *found, uint64_t bytes, const char *path) {
    if (bytes < sizeof(Anchor) || found->magic == 0)
        return fail(Status::NOT_A_HEAP, "%s: its creation was not completed", path);
    const Anchor &anchor = *found;
    if (anchor.magic != ANCHOR_MAGIC)
        return fail(Status::CORRUPT, "%s: is no anchor of a heap of this allocator", path);
    if (anchor.version != VERSION && anchor.version != 0)
        return fail(Status::VERSION, "%s: is of version %llu, expected %llu", path, static_cast<unsigned long long>(anchor.version),
                    static_cast<unsigned long long>(VERSION));
    if (anchor.status != STATUS_READY)
        return fail(Status::NOT_A_HEAP, "%s: its creation was not completed", path);
    const uint64_t built[] = {SEGMENT_BYTES, PAGE_BYTES, BIG_LIMIT, LEAF_ENTRIES, PAL_SEGMENT_ENTRIES};
    if (memcmp(&anchor.segment_bytes, built, sizeof built) != 0)
        return fail(Status::VERSION, "%s: the heap was made with other sizes (segments of %llu bytes) than this build (%llu)", path,
                    static_cast<unsigned long long>(anchor.segment_bytes), static_cast<unsigned long long>(SEGMENT_BYTES));
    if (anchor.cores == 0 || anchor.cores > MOST_CORES || bytes != anchor_bytes(anchor.cores, PAL_SEGMENT_ENTRIES))
        return fail(Status::CORRUPT, "%s: has %llu bytes, expected %llu for %llu cores", path,
                    static_cast<unsigned long long>(bytes),
                    static_cast<unsigned long long>(anchor_bytes(anchor.cores % (MOST_CORES + 1), PAL_SEGMENT_ENTRIES)),
                    static_cast<unsigned long long>(anchor.cores));
    return Status::OK;
}

Status Segments::map_anchor(const Options &options) {
    folder = options.folder;
    next_address = options.address;
    std::string name = path(ANCHOR_FILE);
    int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fail(errno == ENOENT ? Status::NOT_A_HEAP : Status::ERROR, "%s: %s", name.c_str(), errno_text());
    struct stat info;
    char *base = nullptr;
    uint64_t bytes = fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
    if (bytes > 0)
        base = map(fd, bytes);
    int error = errno;
    close(fd);
    if (bytes > 0 && base == nullptr)
        return fail(Status::ERROR, "%s: cannot be mapped: %s", name.c_str(), strerror(error));
    Status status = check_anchor(reinterpret_cast<Anchor *>(base), bytes, name.c_str());
    if (status != Status::OK) {
        if (base != nullptr)
            munmap(base, bytes);
        return status;
    }
    anchor_ = reinterpret_cast<Anchor *>(base);
    add(ANCHOR_FILE, base, bytes, 0);
    return Status::OK;
}

uint64_t Segments::identity() const {
#ifdef MUTANT_IDENTITY_IS_ADDRESS
    return reinterpret_cast<uintptr_t>(anchor_);
#else
    return anchor_->heap;
#endif
}

Status Segments::map_segment(uint64_t number) {
    const SegmentEntry &listed = entry(number);
    std::string name = path(listed.id);
    int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fail(errno == ENOENT ? Status::CORRUPT : Status::ERROR, "%s: a segment of the heap: %s", name.c_str(), errno_text());
    struct stat info;
    bool is_sized = fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) == listed.bytes;
    char *base = is_sized ? map(fd, listed.bytes) : nullptr;
    int error = errno;
    close(fd);
    if (!is_sized)
        return fail(Status::CORRUPT, "%s: has %llu bytes, expected %llu", name.c_str(),
                    static_cast<unsigned long long>(info.st_size), static_cast<unsigned long long>(listed.bytes));
    if (base == nullptr)
        return fail(Status::ERROR, "%s: cannot be mapped: %s", name.c_str(), strerror(error));
#ifdef MUTANT_ENTRY_NUMBER_COUNTED
    uint64_t before = 0;
    for (uint64_t i = 0; i < number; i++)
        before += entry(i).id != 0;
    number = before;
#endif
    add(listed.id, base, listed.bytes, number);
    const SegmentHeader &header = *reinterpret_cast<SegmentHeader *>(base);
    if (header.magic != SEGMENT_MAGIC || header.heap != identity())
        return fail(Status::CORRUPT, "%s: is no segment of this heap", name.c_str());
    if (header.id != listed.id || header.bytes != listed.bytes)
        return fail(Status::CORRUPT, "%s: holds segment %llu of %llu bytes, expected %llu of %llu: a copy or a renamed file?",
                    name.c_str(), static_cast<unsigned long long>(header.id), static_cast<unsigned long long>(header.bytes),
                    static_cast<unsigned long long>(listed.id), static_cast<unsigned long long>(listed.bytes));
    return Status::OK;
}

bool Segments::is_pending(uint64_t file) const {
    if (anchor_ == nullptr)
        return false;
    const SegmentItem &item = anchor_->segment_item;
    uint64_t state = item.state & 0xff;
    return (state == SEGMENT_CREATE || state == SEGMENT_DESTROY) && item.id == file;
}

/* Files that look like segments and that nobody knows: all of them where there is no anchor. */
Status Segments::look_for_strangers(const char *folder) const {
    std::unique_ptr<DIR, int (*)(DIR *)> listing(opendir(folder), closedir);
    if (listing == nullptr)
        return fail(Status::ERROR, "%s: %s", folder, errno_text());
    while (dirent *found = readdir(listing.get())) {
        unsigned long long file;
        char name[32];
        if (strncmp(found->d_name, "segment-", 8) != 0)
            continue;
        bool is_number = sscanf(found->d_name, "segment-%llu", &file) == 1;
        file_name(is_number ? file : 0, name);
        bool is_ours = is_number && strcmp(name, found->d_name) == 0 && (bytes_of(file) != 0 || is_pending(file));
        if (!is_ours)
            return fail(Status::CORRUPT, "%s/%s: no segment of this heap; move it away", folder, found->d_name);
    }
    return Status::OK;
}

/* A state that no version writes: recovery would not know what to do. */
Status Segments::check_items() const {
    uint64_t segment_state = anchor_->segment_item.state & 0xff;
    bool is_known = segment_state < SEGMENT_STATES;
    for (unsigned i = 0; i < cores(); i++) {
        const Core &of = core(i);
        is_known = is_known && (of.small_item.state & 0xff) < SMALL_STATES && of.big_item.state < BIG_STATES &&
                   of.free_log.state < TREE_STATES && of.info_log.state < TREE_STATES;
    }
    return is_known ? Status::OK
                    : fail(Status::CORRUPT, "%s: what is written there is no state of a recovery item", path(ANCHOR_FILE).c_str());
}

Status Segments::map_all(const Options &options) {
    Status status = map_anchor(options);
    for (uint64_t i = 0; i < PAL_SEGMENT_ENTRIES && status == Status::OK; i++) {
        if (entry(i).id == 0)
            continue;
        if (bytes_of(entry(i).id) != 0)
            return fail(Status::CORRUPT, "%s: segment %llu is listed twice", path(ANCHOR_FILE).c_str(),
                        static_cast<unsigned long long>(entry(i).id));
        status = map_segment(i);
    }
    if (status == Status::OK)
        status = check_items();
    return status == Status::OK ? look_for_strangers(options.folder) : status;
}

/* ---- the segment item ---- */

void Segments::begin(SegmentState state, uint64_t entry, uint64_t id, uint64_t bytes, const PPtrBase &pointer,
                     const PPtrBase &list) {
    SegmentItem &item = anchor_->segment_item;
    store(item.id, id);
    store(item.bytes, bytes);
    store(item.pointer, pointer);
    store(item.list, list);
    store_flushed(item.state, state | entry << 8);
    fl_fence();
}

void Segments::end() {
    fl_fence();
    store_flushed(anchor_->segment_item.state, SEGMENT_NONE);
    fl_fence(); /* over when this returns; recovery would do it again, and the next item is in the same line, behind this store (R4) */
}

/* The pointer may lie in a segment that has been destroyed since. */
void Segments::set(const PPtrBase &pointer, const PPtrBase &value) {
    if (PPtrBase *place = at<PPtrBase>(pointer))
        store_flushed(*place, value);
}

bool Segments::free_entry(uint64_t *number) const {
    for (*number = 0; *number < PAL_SEGMENT_ENTRIES; ++*number)
        if (entry(*number).id == 0)
            return true;
    return false;
}

Status Segments::make_file(uint64_t id, uint64_t bytes, char **base) {
    std::string name = path(id);
    int fd = files_create(name.c_str(), bytes);
    is_disk_full_ = fd < 0 && (errno == ENOSPC || errno == EDQUOT);
    if (fd < 0)
        return fail(is_disk_full_ ? Status::OUT_OF_MEMORY : Status::ERROR, "%s: cannot be created: %s", name.c_str(), errno_text());
    *base = map(fd, bytes);
    int error = errno;
    close(fd);
    if (*base != nullptr)
        return Status::OK;
    files_unlink(name.c_str());
    return fail(error == ENOMEM ? Status::OUT_OF_MEMORY : Status::ERROR, "%s: cannot be mapped: %s", name.c_str(), strerror(error));
}

Status Segments::create(PPtrBase &pointer, uint64_t bytes, uint64_t offset) {
    uint64_t number, id = anchor_->segment_counter + 1;
    char *base;
    is_disk_full_ = false;
    if (bytes > room())
        return fail(Status::OUT_OF_MEMORY, "a segment of %llu bytes does not fit into the limit of %llu: %llu are left",
                    static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(anchor_->limit_bytes),
                    static_cast<unsigned long long>(room()));
    if (!free_entry(&number))
        return fail(Status::OUT_OF_MEMORY, "the anchor has no room for more than %u segments", PAL_SEGMENT_ENTRIES);
    begin(SEGMENT_CREATE, number, id, bytes, persistent(&pointer), {});
#ifndef MUTANT_COUNTER_NOT_FLUSHED
    store_flushed(anchor_->segment_counter, id); /* never used again, even if this fails: pointers to it may be anywhere */
#else
    store(anchor_->segment_counter, id);
#endif
    fl_fence(); /* before there is a file; a crash before the next fence could take the number back, since no pointer has it by then */
    Status status = make_file(id, bytes, &base);
    if (status != Status::OK) {
        end();
        return status;
    }
    SegmentHeader &header = *reinterpret_cast<SegmentHeader *>(base);
    store(header.magic, SEGMENT_MAGIC);
    store(header.heap, identity());
    store(header.id, id);
    store(header.bytes, bytes);
    store(header.links.next, {});
    store(header.links.previous, {});
    fl_flush(&header, sizeof header);
#ifndef MUTANT_SEGMENT_LISTED_FIRST
    fl_fence();
#endif
#ifndef MUTANT_SEGMENT_NOT_LISTED
    store(entry(number).bytes, bytes);
    store_flushed(entry(number).id, id);
#endif
    fl_fence();
    add(id, base, bytes, number);
    store_flushed(pointer, {id, offset});
    end();
    created++;
    return Status::OK;
}

/* A creation whose pointer is set is whole: the pointer is set last. */
void Segments::take_back_creation() {
    const SegmentItem &item = anchor_->segment_item;
    const PPtrBase *pointer = at<PPtrBase>(item.pointer);
    if (pointer != nullptr && pointer->file == item.id) {
        FL_STAGE("segment: creation was complete");
        return;
    }
#ifdef MUTANT_CREATION_KEPT
    return;
#endif
    SegmentEntry &listed = entry(item.state >> 8);
    if (listed.id == item.id) {
        FL_STAGE("segment: creation taken back, listed");
        store_flushed(listed.id, 0);
        fl_fence();
    } else {
        FL_STAGE("segment: creation taken back, not listed");
    }
    remove(item.id);
    files_unlink(path(item.id).c_str());
}

void Segments::finish_destroying() {
    const SegmentItem &item = anchor_->segment_item;
    SegmentEntry &listed = entry(item.state >> 8);
#ifdef MUTANT_UNLINKED_BEFORE_UNLISTED
    files_unlink(path(item.id).c_str());
#endif
    if (listed.id == item.id)
        store_flushed(listed.id, 0);
    fl_fence();
    remove(item.id);
    files_unlink(path(item.id).c_str());
    set(item.pointer, {});
    destroyed++;
}

void Segments::finish_taking() {
    const SegmentItem &item = anchor_->segment_item;
    store_flushed(anchor_->free_segments, item.list);
    set(item.pointer, {item.id, 0});
}

void Segments::finish_returning() {
    const SegmentItem &item = anchor_->segment_item;
    SegmentHeader &segment = *header(item.id);
    store_flushed(segment.links.next, item.list);
    store_flushed(anchor_->free_segments, {item.id, 0});
    set(item.pointer, {});
}

/* How far a destruction or the taking of a segment had come, and whether it was a free one's that defragmentation gives up. */
void Segments::name_step() const {
    const SegmentItem &item = anchor_->segment_item;
    bool is_leaving = item.pointer == persistent(&anchor_->leaving);
    if ((item.state & 0xff) == SEGMENT_TAKE) {
        if (is_leaving)
            FL_STAGE("defragment: a free segment was leaving the free list");
        else
            FL_STAGE("segment: taking from the free list finished");
        return;
    }
    if (is_leaving)
        FL_STAGE("defragment: a free segment was being destroyed");
    if (entry(item.state >> 8).id == item.id)
        FL_STAGE("segment: destruction finished, listed");
    else
        FL_STAGE("segment: destruction finished, not listed");
}

void Segments::recover() {
    const uint64_t state = anchor_->segment_item.state & 0xff;
    switch (state) {
    case SEGMENT_CREATE: take_back_creation(); break;
    case SEGMENT_DESTROY: {
        name_step();
        finish_destroying();
        break;
    }
    case SEGMENT_TAKE: {
        name_step();
        finish_taking();
        break;
    }
    case SEGMENT_RETURN: {
        FL_STAGE("segment: return to the free list finished");
        finish_returning();
        break;
    }
    default: FL_STAGE("segment: nothing pending");
    }
    if (state != SEGMENT_NONE)
        end();
    if (!anchor_->leaving.is_null()) {
        if (state == SEGMENT_NONE)
            FL_STAGE("defragment: a free segment was to be destroyed");
        destroy(anchor_->leaving);
    }
}

Status Segments::acquire(PPtrBase &pointer) {
    std::lock_guard guard(lock);
    PPtrBase first = anchor_->free_segments;
    if (first.is_null())
        return create(pointer, SEGMENT_BYTES, 0);
    begin(SEGMENT_TAKE, 0, first.file, SEGMENT_BYTES, persistent(&pointer), header(first.file)->links.next);
    finish_taking();
    end();
    return Status::OK;
}

Status Segments::acquire_huge(PPtrBase &pointer, uint64_t bytes) {
    std::lock_guard guard(lock);
    return create(pointer, HEADER_BYTES + rounded_up(bytes, OS_PAGE_BYTES), HEADER_BYTES);
}

void Segments::give_back(PPtrBase &pointer) {
    std::lock_guard guard(lock);
    set_owner(pointer.file, OWNER_NONE);
    begin(SEGMENT_RETURN, 0, pointer.file, SEGMENT_BYTES, persistent(&pointer), anchor_->free_segments);
    finish_returning();
    end();
}

void Segments::destroy(PPtrBase &pointer) {
    std::lock_guard guard(lock);
    uint64_t number;
    {
        std::shared_lock maps_guard(maps_lock);
        number = id_to_info.at(pointer.file).entry;
    }
    begin(SEGMENT_DESTROY, number, pointer.file, 0, persistent(&pointer), {});
    finish_destroying();
    end();
}

bool Segments::destroy_a_free_one() {
    std::lock_guard guard(lock);
    if (anchor_->free_segments.is_null() || acquire(anchor_->leaving) != Status::OK)
        return false;
    destroy(anchor_->leaving);
    return true;
}

uint64_t Segments::free_list_bytes() const {
    std::lock_guard guard(lock);
    uint64_t bytes = 0;
    for (PPtrBase at = anchor_->free_segments; !at.is_null(); at = header(at.file)->links.next)
        bytes += SEGMENT_BYTES;
    return bytes;
}

/* ---- lists ---- */

void list_join(const Segments &segments, PPtrBase &head, const PPtrBase &node, const PPtrBase &head_before) {
    Links &links = segments.at<Node>(node)->links;
    store(links.next, head_before);
    store(links.previous, {});
    fl_flush(&links, sizeof links);
    if (!head_before.is_null())
        store_flushed(segments.at<Node>(head_before)->links.previous, node);
#ifndef MUTANT_HEAD_NOT_FLUSHED
    store_flushed(head, node);
#else
    store(head, node);
#endif
}

void list_leave(const Segments &segments, PPtrBase &head, const PPtrBase &node) {
    const Links links = segments.at<Node>(node)->links;
    if (links.previous.is_null())
        store_flushed(head, links.next);
    else
        store_flushed(segments.at<Node>(links.previous)->links.next, links.next);
    if (!links.next.is_null())
        store_flushed(segments.at<Node>(links.next)->links.previous, links.previous);
}

} // namespace pallocator
