// SPDX-License-Identifier: Apache-2.0
//! Which file operations a power failure loses, on a file system that promises no more than POSIX does (R9, `posix`).
//!
//! A file operation that has returned is in memory. It is durable once something says so, and until then a power failure may lose it:
//!
//! - F1. **Names.** create, unlink, rename, mkdir and rmdir change one folder, a rename between two folders both at once. The changes of
//!   one folder are durable in the order in which they were made: a failure loses the last few of them. fsync of the folder makes durable what
//!   was done to it before the call; fsync of a file does not make its name durable.
//! - F2. **Sizes.** truncate, fallocate, a punched hole, and a write beyond the end change one file, again in order. fsync, fdatasync and
//!   msync of the file make durable what was done to its size before the call.
//! - F3. Folders and files are independent of each other: nothing orders the changes of one with those of another.
//! - F4. sync and syncfs make everything durable.
//! - F5. **Blocks.** truncate, fallocate and a punched hole leave pages without blocks of content: they hold zeros. The first store to such a page
//!   gets it its blocks. Where the file is mapped with MAP_SYNC the page fault of the store commits them: it makes the file's size durable
//!   as fsync does, before the store. Without MAP_SYNC that a page has its blocks is one more change of the file (F2): until the file is
//!   synced a failure may lose it, and with it whatever was stored there, flushed or not. What is stored or written where only a lost operation
//!   put blocks is lost with it, too.
//! - F6. A rename is whole: the new name leads to the old file or to the new one, and never to none.
//!
//! Data is another matter: lines follow the persistency model, what write() left follows R8.
//!
//! Sources: POSIX.1-2017, fsync, fdatasync, rename (F1, F2, F6: what is promised); fsync(2) of Linux ("does not necessarily ensure that the
//! entry in the directory containing the file has also reached disk", F1) and sync(2) (F4); mmap(2), MAP_SYNC, and Documentation/filesystems/dax.rst
//! (F5); Pillai et al., All File Systems Are Not Created Equal, OSDI 2014: persistence properties, of which every file system there keeps the
//! order of changes of one folder (F1) and few the order of sizes and names (F3). ext4 and xfs promise more in their journals' order. The rules
//! take the weaker reading.
//!
//! # What is not modelled
//!
//! What is done below a folder whose making or renaming is lost is lost, too. A page that becomes writable by mprotect counts as it was mapped.
//! The pages of a file get their blocks in the order of their first stores, and a failure loses the last few of them (F2), though nobody
//! promises that order. Pages of files that were there before the trace began have their blocks.

use super::files::Files;
use crate::trace::{Event, EventKind, FileEffect, FileId, OS_PAGE_BYTES, ThreadId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Sets of lost operations of one heap at most.
pub const SET_LIMIT: usize = 512;

/// File operations that a power failure may lose together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Numbers of the events at which they returned, in order; of a page that got its blocks, of its first store.
    pub operations: Arc<[u32]>,
    /// The first crash position (events before the crash) that may lose them, and no other one.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

/// Everything that power failures may lose of file operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Sets of one operation or more, by their first crash position.
    pub sets: Vec<Loss>,
    /// The event from which on operations are taken as durable, because there were too many sets; none: there is none.
    pub bounded_at: Option<u32>,
}

impl Losses {
    /// The set of which a failure at that crash position loses exactly these operations.
    pub fn find(&self, operations: &[u32], position: u32) -> Option<&Loss> {
        self.sets.iter().find(|loss| {
            let by_then = loss.operations.iter().filter(|number| **number < position);
            (loss.first..=loss.last).contains(&position) && by_then.eq(operations)
        })
    }
}

/// Nothing, wherever power fails.
impl Default for Loss {
    fn default() -> Self {
        Self { operations: Arc::default(), first: 0, last: u32::MAX }
    }
}

/// What orders file operations with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    /// The names in a folder (F1).
    Names(Arc<str>),
    /// The size of a file (F2).
    Size(FileId),
}

/// Parts of files whose blocks only a lost operation put there (F5).
#[derive(Clone, Default)]
pub(super) struct LostBlocks {
    ranges: Vec<(FileId, u64, u64)>,
}

impl LostBlocks {
    /// Takes note of a lost operation; `files`: as they are without it.
    pub fn add(&mut self, effect: &FileEffect, files: &Files) {
        let range = match effect {
            FileEffect::Truncate { file, bytes } => (*file, files.bytes(*file).min(*bytes), u64::MAX),
            FileEffect::Extend { file, .. } | FileEffect::Write { file, .. } => (*file, files.bytes(*file), u64::MAX),
            FileEffect::Punch { file, offset, bytes } => (*file, *offset, offset.saturating_add(*bytes)),
            _ => return,
        };
        self.ranges.push(range);
    }

    /// Takes note of pages whose blocks are lost.
    pub fn add_pages(&mut self, file: FileId, pages: Range<u64>) {
        self.ranges.push((file, pages.start * OS_PAGE_BYTES, pages.end * OS_PAGE_BYTES));
    }

    /// Whether some page of `[offset, offset + bytes)` of the file is one of them.
    pub fn touch(&self, file: FileId, offset: u64, bytes: u64) -> bool {
        let pages = pages_of(offset, bytes);
        let meets = |from: u64, to: u64| {
            let to = if to == u64::MAX { to } else { to / OS_PAGE_BYTES };
            pages.start.max(from.div_ceil(OS_PAGE_BYTES)) < pages.end.min(to)
        };
        self.ranges.iter().any(|(of, from, to)| *of == file && meets(*from, *to))
    }
}

/// The pages of files that have their blocks, durable or not.
#[derive(Clone, Default)]
pub(super) struct Backed {
    pages: BTreeSet<(FileId, u64)>,
    /// Written by system calls since the file was synced last: what is written there R8 loses, and a sync keeps the blocks.
    written: BTreeSet<(FileId, u64)>,
}

impl Backed {
    /// The pages of a store that get their blocks by it; empty: it goes where they are.
    pub fn store(&mut self, file: FileId, offset: u64, bytes: u64) -> Range<u64> {
        let mut new = pages_of(offset, bytes);
        let (first, last) = (new.start, new.end.saturating_sub(1));
        if !self.pages.insert((file, first)) {
            new.start += 1;
        }
        if last > first && !self.pages.insert((file, last)) {
            new.end -= 1;
        }
        new
    }

    /// What an operation that has returned does to them.
    pub fn apply(&mut self, effect: &FileEffect) {
        match effect {
            FileEffect::Create { file, .. } => self.take(*file, 0..u64::MAX),
            FileEffect::Truncate { file, bytes } => self.take(*file, bytes.div_ceil(OS_PAGE_BYTES)..u64::MAX),
            FileEffect::Punch { file, offset, bytes } => {
                let end = offset.saturating_add(*bytes) / OS_PAGE_BYTES;
                self.take(*file, offset.div_ceil(OS_PAGE_BYTES)..end);
            }
            FileEffect::Write { file, offset, bytes } => {
                self.written.extend(pages_of(*offset, bytes.len() as u64).map(|page| (*file, page)));
            }
            FileEffect::Sync { file, .. } => {
                let synced = |(of, _): &(FileId, u64)| of == file;
                self.pages.extend(self.written.iter().copied().filter(synced));
                self.written.retain(|page| !synced(page));
            }
            FileEffect::SyncAll => self.pages.append(&mut self.written),
            _ => {}
        }
    }

    fn take(&mut self, file: FileId, pages: Range<u64>) {
        let is_taken = |(of, page): &(FileId, u64)| *of == file && pages.contains(page);
        self.pages.retain(|page| !is_taken(page));
        self.written.retain(|page| !is_taken(page));
    }
}

fn pages_of(offset: u64, bytes: u64) -> Range<u64> {
    offset / OS_PAGE_BYTES..(offset + bytes).div_ceil(OS_PAGE_BYTES)
}

/// An operation that returned and is lost, or pages that got their blocks.
#[derive(Clone)]
struct LostOperation {
    number: u32,
    /// None: of pages.
    effect: Option<Arc<FileEffect>>,
    orders: Vec<Order>,
}

/// What may be there instead of everything.
#[derive(Clone, Default)]
struct Alternative {
    lost: Vec<LostOperation>,
    files: Files,
    blocks: LostBlocks,
    first: u32,
}

impl Alternative {
    /// Something that is lost has to be there first.
    fn must_lose(&self, orders: &[Order]) -> bool {
        self.lost.iter().any(|lost| lost.orders.iter().any(|order| orders.contains(order)))
    }

    /// It is done below a folder that is lost. No sync keeps it while that is so.
    fn is_below_lost(&self, effect: &FileEffect) -> bool {
        self.lost.iter().any(|lost| match lost.effect.as_deref() {
            Some(FileEffect::MakeFolder { path } | FileEffect::Rename { to: path, .. }) => {
                effect.names().into_iter().any(|other| is_below(other, path))
            }
            _ => false,
        })
    }

    /// It is a write that changes no size.
    fn is_within(&self, effect: &FileEffect) -> bool {
        let FileEffect::Write { file, offset, bytes } = effect else { return false };
        offset + bytes.len() as u64 <= self.files.bytes(*file)
    }

    /// A power failure shows whether the operation is there.
    fn shows(&self, effect: &FileEffect) -> bool {
        if let FileEffect::Punch { file, .. } = effect {
            return self.files.has(*file);
        }
        if effect.file().is_some_and(|file| !self.files.has(file)) && !matches!(effect, FileEffect::Create { .. }) {
            return false;
        }
        let mut with = self.files.clone();
        with.apply(effect);
        with != self.files
    }

    fn lose(&mut self, number: u32, effect: &Arc<FileEffect>, orders: Vec<Order>) {
        self.blocks.add(effect, &self.files);
        self.lost.push(LostOperation { number, effect: Some(effect.clone()), orders });
    }

    fn lose_pages(&mut self, number: u32, file: FileId, pages: Range<u64>) {
        self.blocks.add_pages(file, pages);
        self.lost.push(LostOperation { number, effect: None, orders: vec![Order::Size(file)] });
    }

    /// Whether the sync, which began with event `begin`, makes something durable that is lost here.
    fn is_ended_by(&self, sync: &FileEffect, begin: u32) -> bool {
        let is_meant = |order: &Order| match (sync, order) {
            (FileEffect::SyncAll, _) => true,
            (FileEffect::Sync { file, .. }, Order::Size(of)) => file == of,
            (FileEffect::SyncFolder { path }, Order::Names(of)) => path == of,
            _ => false,
        };
        self.lost.iter().any(|lost| lost.number < begin && lost.orders.iter().any(is_meant))
    }

    fn ended_at(self, last: u32) -> Option<Loss> {
        let operations = self.lost.iter().map(|lost| lost.number).collect();
        (!self.lost.is_empty() && self.first <= last).then_some(Loss { operations, first: self.first, last })
    }
}

/// Steps through a trace with all alternatives to everything.
#[derive(Default)]
struct Walk {
    /// The first one loses nothing.
    alternatives: Vec<Alternative>,
    /// Syncs under way: who makes them, and the events at which they began.
    begun: Vec<(ThreadId, u32)>,
    backed: Backed,
    /// Sets of this heap.
    known: usize,
    losses: Losses,
}

impl Walk {
    fn start_case(&mut self, number: u32) {
        self.end(number, |_| true);
        self.alternatives = vec![Alternative::default()];
        self.begun.clear();
        self.backed = Backed::default();
        self.known = 0;
    }

    /// Alternatives that lose something, and of which this holds, are not possible behind this crash position.
    fn end(&mut self, last: u32, is_over: impl Fn(&Alternative) -> bool) {
        let is_over = |alternative: &Alternative| !alternative.lost.is_empty() && is_over(alternative);
        if !self.alternatives.iter().any(is_over) {
            return; // as at nearly every store
        }
        let (over, on) = std::mem::take(&mut self.alternatives).into_iter().partition(is_over);
        self.alternatives = on;
        self.losses.sets.extend(Vec::into_iter(over).filter_map(|alternative| alternative.ended_at(last)));
    }

    fn operation(&mut self, number: u32, effect: &Arc<FileEffect>) {
        let mut more = Vec::new();
        for alternative in &mut self.alternatives {
            let orders = orders(effect);
            if alternative.is_within(effect) {
                continue;
            }
            if alternative.is_below_lost(effect) {
                alternative.lose(number, effect, vec![]);
                continue;
            }
            if alternative.must_lose(&orders) {
                alternative.lose(number, effect, orders);
                continue;
            }
            if alternative.shows(effect) && has_room(&mut self.known, &mut self.losses, number) {
                let mut without = alternative.clone();
                without.lose(number, effect, orders);
                without.first = number + 1;
                more.push(without);
            }
            alternative.files.apply(effect);
        }
        self.alternatives.extend(more);
        self.backed.apply(effect);
    }

    /// A store to a file that is mapped without MAP_SYNC.
    fn store_unsynced(&mut self, number: u32, file: FileId, offset: u64, bytes: u64) {
        let pages = self.backed.store(file, offset, bytes);
        if pages.is_empty() {
            return;
        }
        let mut more = Vec::new();
        for alternative in &mut self.alternatives {
            let (from, new) = (pages.start * OS_PAGE_BYTES, (pages.end - pages.start) * OS_PAGE_BYTES);
            if !alternative.files.has(file) || alternative.blocks.touch(file, from, new) {
                continue; // lost with what is lost
            }
            if alternative.must_lose(&[Order::Size(file)]) {
                alternative.lose_pages(number, file, pages.clone());
            } else if has_room(&mut self.known, &mut self.losses, number) {
                let mut without = alternative.clone();
                without.lose_pages(number, file, pages.clone());
                without.first = number + 1;
                more.push(without);
            }
        }
        self.alternatives.extend(more);
    }

    fn sync(&mut self, number: u32, thread: ThreadId, effect: &FileEffect, is_done: bool) {
        let at = self.begun.iter().position(|(begun, _)| *begun == thread);
        let begin = at.map_or(number, |at| self.begun.remove(at).1);
        if is_done {
            self.end(number, |alternative| alternative.is_ended_by(effect, begin));
            self.backed.apply(effect);
        }
    }
}

/// For one more set, found at event `number`; where there is none, that is said.
fn has_room(known: &mut usize, losses: &mut Losses, number: u32) -> bool {
    if *known == SET_LIMIT {
        losses.bounded_at = losses.bounded_at.or(Some(number));
        return false;
    }
    *known += 1;
    true
}

/// What power failures may lose of the file operations of a trace. `unsynced`: files that were mapped without MAP_SYNC
/// ([`crate::trace::Trace::unsynced`]).
pub fn losses(events: &[Event], unsynced: &BTreeSet<FileId>) -> Losses {
    let mut walk = Walk::default();
    walk.start_case(0);
    for (number, event) in (0..).zip(events) {
        match &event.kind {
            EventKind::Case { .. } => walk.start_case(number),
            EventKind::FileBegin { effect } if effect.is_sync() => walk.begun.push((event.thread, number)),
            EventKind::FileEnd { effect, is_done } if effect.is_sync() => {
                walk.sync(number, event.thread, effect, *is_done);
            }
            EventKind::FileEnd { effect, is_done: true } => walk.operation(number, effect),
            EventKind::Store { file, offset, bytes, .. } if unsynced.contains(file) => {
                walk.store_unsynced(number, *file, *offset, bytes.len() as u64);
            }
            EventKind::Store { file, offset, bytes, .. } => {
                walk.end(number, |alternative| alternative.blocks.touch(*file, *offset, bytes.len() as u64));
            }
            _ => {}
        }
    }
    walk.end(events.len() as u32, |_| true);
    walk.losses.sets.sort_by(|one, other| (one.first, &one.operations).cmp(&(other.first, &other.operations)));
    walk.losses
}

fn orders(effect: &FileEffect) -> Vec<Order> {
    match effect {
        FileEffect::Truncate { file, .. }
        | FileEffect::Extend { file, .. }
        | FileEffect::Punch { file, .. }
        | FileEffect::Write { file, .. } => vec![Order::Size(*file)],
        _ => effect.folders().into_iter().map(Order::Names).collect(),
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{SiteId, StoreKind, folder_of};
    use std::collections::BTreeMap;

    /// Names and sizes, and folders: what a power failure shows of files.
    type Shown = (BTreeMap<String, u64>, BTreeSet<String>);

    fn event(kind: EventKind) -> Event {
        Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind }
    }

    fn done(effect: FileEffect) -> [Event; 2] {
        let effect = Arc::new(effect);
        [EventKind::FileBegin { effect: effect.clone() }, EventKind::FileEnd { effect, is_done: true }].map(event)
    }

    fn shown(files: &Files) -> Shown {
        let is_there = |path: &str| folder_of(path) == "." || files.folders.contains(folder_of(path));
        let named = files.states.values().filter_map(|state| Some((state.path.as_ref()?.to_string(), state.bytes)));
        let folders = files.folders.iter().map(ToString::to_string);
        (named.filter(|(path, _)| is_there(path)).collect(), folders.collect())
    }

    /// What the operations before the position leave without these.
    fn left(events: &[Event], position: u32, lost: &[u32]) -> Shown {
        let mut files = Files::default();
        for (number, event) in (0..position).zip(events) {
            if let EventKind::FileEnd { effect, .. } = &event.kind
                && !lost.contains(&number)
            {
                files.apply(effect);
            }
        }
        shown(&files)
    }

    fn random(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    /// Some file operations, each of which can be done where it comes.
    fn operations(seed: u64) -> Vec<Event> {
        const NAMES: [&str; 4] = ["a", "b", "d/a", "d/b"];
        let mut state = seed;
        let mut files = Files::default();
        let (mut events, mut next) = (Vec::new(), 0);
        while events.len() < 20 {
            let name = NAMES[random(&mut state, 4) as usize];
            let other = NAMES[random(&mut state, 4) as usize];
            let is_made = |name: &str| folder_of(name) == "." || files.folders.contains(folder_of(name));
            let file =
                files.states.iter().find(|(_, state)| state.path.as_deref() == Some(name)).map(|(file, _)| *file);
            let effect = match (random(&mut state, 9), file) {
                (0, _) if !files.folders.contains("d") => FileEffect::MakeFolder { path: "d".into() },
                (1 | 2, None) if is_made(name) => {
                    next += 1;
                    FileEffect::Create { file: FileId(next), path: name.into() }
                }
                (3, Some(file)) => FileEffect::Truncate { file, bytes: 4096 * random(&mut state, 3) },
                (4, Some(file)) => FileEffect::Extend { file, bytes: 4096 * random(&mut state, 4) },
                (5, Some(_)) => FileEffect::Unlink { path: name.into() },
                (6, Some(_)) if is_made(other) && other != name => {
                    FileEffect::Rename { from: name.into(), to: other.into() }
                }
                (7, Some(file)) if random(&mut state, 2) == 0 => FileEffect::Sync { file, offset: 0, bytes: u64::MAX },
                (8, _) if random(&mut state, 2) == 0 => {
                    FileEffect::SyncFolder { path: if random(&mut state, 2) == 0 { "." } else { "d" }.into() }
                }
                _ => continue,
            };
            files.apply(&effect);
            events.extend(done(effect));
        }
        events
    }

    /// Whether a power failure at the position may lose exactly these of the operations, by F1 to F4 as they are written.
    fn may_lose(events: &[Event], position: u32, lost: &[u32]) -> bool {
        let effect = |number: u32| match &events[number as usize].kind {
            EventKind::FileEnd { effect, .. } => effect.clone(),
            _ => unreachable!("ends alone are asked for"),
        };
        let is_orphan = |number: u32| {
            lost.iter().any(|folder| {
                let makes_d = matches!(&*effect(*folder), FileEffect::MakeFolder { .. });
                makes_d && *folder < number && effect(number).names().into_iter().any(|path| path.starts_with("d/"))
            })
        };
        let ends = (0..position).filter(|number| matches!(events[*number as usize].kind, EventKind::FileEnd { .. }));
        let mut ends: Vec<u32> = ends.collect();
        ends.retain(|number| !effect(*number).is_sync() || !lost.contains(number));
        for number in ends {
            let of = effect(number);
            let before = |sync: &&u32| **sync < number;
            if of.is_sync() {
                let is_kept = |other: &u32| match &*of {
                    FileEffect::SyncFolder { path } => !is_orphan(*other) && effect(*other).folders().contains(path),
                    FileEffect::Sync { file, .. } => orders(&effect(*other)) == [Order::Size(*file)],
                    _ => false,
                };
                if lost.iter().filter(before).any(is_kept) {
                    return false;
                }
                continue;
            }
            let follows = |other: &u32| orders(&effect(*other)).iter().any(|order| orders(&of).contains(order));
            let must =
                lost.iter().filter(before).any(|other| follows(other) && !is_orphan(*other)) || is_orphan(number);
            if must && !lost.contains(&number) {
                return false;
            }
        }
        true
    }

    #[test]
    fn what_may_be_lost_is_what_the_rules_say() {
        for seed in 0..60 {
            let events = operations(seed);
            let found = losses(&events, &BTreeSet::new());
            assert_eq!(found.bounded_at, None);
            for position in (2..=events.len() as u32).step_by(2) {
                let ends: Vec<u32> = (1..position).step_by(2).collect();
                let ends: Vec<u32> = ends
                    .into_iter()
                    .filter(|number| {
                        matches!(&events[*number as usize].kind, EventKind::FileEnd { effect, .. } if !effect.is_sync())
                    })
                    .collect();
                let subsets = 0u32..1 << ends.len();
                let lost = subsets.map(|bits| {
                    let is_in = |at: &usize| bits >> at & 1 == 1;
                    (0..ends.len()).filter(is_in).map(|at| ends[at]).collect::<Vec<u32>>()
                });
                let expected: BTreeSet<Shown> = lost
                    .filter(|lost| may_lose(&events, position, lost))
                    .map(|lost| left(&events, position, &lost))
                    .collect();
                let here = found.sets.iter().filter(|loss| (loss.first..=loss.last).contains(&position));
                let mut seen: BTreeSet<Shown> = here.map(|loss| left(&events, position, &loss.operations)).collect();
                seen.insert(left(&events, position, &[]));
                assert_eq!(seen, expected, "seed {seed}, position {position}, {:?}", &events[..position as usize]);
            }
        }
    }

    #[test]
    fn a_store_commits_the_blocks_that_it_needs_where_the_file_is_mapped_with_map_sync() {
        let file = FileId(1);
        let store = |offset| event(EventKind::Store { kind: StoreKind::Plain, file, offset, bytes: vec![1; 8].into() });
        let mut events: Vec<Event> = Vec::new();
        events.extend(done(FileEffect::Create { file, path: "f".into() }));
        events.extend(done(FileEffect::SyncFolder { path: ".".into() }));
        events.extend(done(FileEffect::Extend { file, bytes: 100 }));
        events.push(store(64));
        events.extend(done(FileEffect::Extend { file, bytes: 8192 }));
        events.extend([store(200), store(4096), store(4104)]);
        let ranges = |unsynced: &BTreeSet<FileId>| -> Vec<(u32, u32)> {
            losses(&events, unsynced).sets.iter().map(|loss| (loss.first, loss.last)).collect()
        };
        // The name until its folder is synced, the first size until the store into its page, the second one until the store behind that.
        assert_eq!(ranges(&BTreeSet::new()), [(2, 3), (6, 6), (9, 10)]);
        // Without it: nothing but a sync of the file ends what may be lost, and each page is one more.
        assert_eq!(ranges(&BTreeSet::from([file])), [(2, 3), (6, 12), (7, 12), (9, 12), (11, 12)]);
    }

    #[test]
    fn without_map_sync_a_page_has_its_blocks_when_the_file_is_synced_after_its_first_store() {
        let file = FileId(1);
        let store = |offset, bytes: usize| {
            event(EventKind::Store { kind: StoreKind::Plain, file, offset, bytes: vec![1; bytes].into() })
        };
        let sync = || done(FileEffect::Sync { file, offset: 0, bytes: u64::MAX });
        let mut events: Vec<Event> = Vec::new();
        events.extend(done(FileEffect::Create { file, path: "f".into() }));
        events.extend(done(FileEffect::Extend { file, bytes: 5 * OS_PAGE_BYTES }));
        events.extend(done(FileEffect::SyncAll)); // 4, 5
        events.extend([store(8, 8), store(OS_PAGE_BYTES - 4, 8)]); // 6, 7: the second page, too
        events.extend(sync()); // 8, 9
        events.extend([store(16, 8), store(OS_PAGE_BYTES, 8)]); // 10, 11: both pages are there
        events.extend(done(FileEffect::Write { file, offset: 2 * OS_PAGE_BYTES, bytes: vec![1; 8].into() }));
        events.push(store(2 * OS_PAGE_BYTES, 8)); // 14: written, and not synced
        events.extend(sync()); // 15, 16
        events.extend(done(FileEffect::Punch { file, offset: 0, bytes: OS_PAGE_BYTES })); // 17, 18
        events.extend(sync()); // 19, 20
        events.push(store(8, 8)); // 21
        let found = losses(&events, &BTreeSet::from([file]));
        let sets: Vec<(&[u32], u32, u32)> =
            found.sets.iter().map(|loss| (&*loss.operations, loss.first, loss.last)).filter(|set| set.1 > 5).collect();
        assert_eq!(
            sets,
            [(&[6, 7][..], 7, 9), (&[7][..], 8, 9), (&[14][..], 15, 16), (&[18][..], 19, 20), (&[21][..], 22, 22),]
        );
    }

    #[test]
    fn a_sync_that_failed_keeps_nothing_and_the_next_one_what_was_done_before_it() {
        let file = FileId(1);
        let sync = Arc::new(FileEffect::SyncFolder { path: ".".into() });
        let mut events: Vec<Event> = done(FileEffect::Create { file, path: "f".into() }).into();
        events.push(event(EventKind::FileBegin { effect: sync.clone() }));
        events.push(event(EventKind::FileEnd { effect: sync, is_done: false }));
        events.extend(done(FileEffect::Create { file: FileId(2), path: "g".into() }));
        events.extend(done(FileEffect::SyncFolder { path: ".".into() }));
        let ranges: Vec<(u32, u32)> =
            losses(&events, &BTreeSet::new()).sets.iter().map(|loss| (loss.first, loss.last)).collect();
        assert_eq!(ranges, [(2, 7), (6, 7)]);
    }

    #[test]
    fn too_many_sets_are_said() {
        let mut events = Vec::new();
        for number in 0..10 {
            let file = FileId(number);
            events.extend(done(FileEffect::Create { file, path: format!("{number}").into() }));
            events.extend(done(FileEffect::Extend { file, bytes: 4096 }));
        }
        let found = losses(&events, &BTreeSet::new());
        assert!(found.sets.len() <= SET_LIMIT && found.sets.len() > SET_LIMIT / 2);
        assert!(found.bounded_at.is_some_and(|event| event < events.len() as u32));
    }

    #[test]
    fn a_set_is_found_by_what_it_has_lost_by_then() {
        let events: Vec<Event> =
            (1..4).flat_map(|n| done(FileEffect::Create { file: FileId(n), path: format!("{n}").into() })).collect();
        let found = losses(&events, &BTreeSet::new());
        assert_eq!(found.find(&[1, 3], 4).map(|loss| &*loss.operations), Some(&[1, 3, 5][..]));
        assert_eq!(found.find(&[1], 4), None, "the second name is in order with the first");
        assert_eq!(found.find(&[3], 3), None, "it has not returned");
    }
}
