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
//! - F5. **Blocks.** What is stored or written where only a lost operation put blocks is lost with it. Where the file is mapped with MAP_SYNC
//!   the page fault of the store commits the blocks: it makes the file's size durable as fsync does, before the store.
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

use super::files::Files;
use crate::trace::{Event, EventKind, FileEffect, FileId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Sets of lost operations of one heap at most.
pub const SET_LIMIT: usize = 512;
/// A page fault commits so much.
const OS_PAGE_BYTES: u64 = 4096;

/// File operations that a power failure may lose together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Numbers of the events at which they returned, in order.
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
        let size = |file: &FileId| files.states.get(file).map_or(0, |state| state.bytes);
        let range = match effect {
            FileEffect::Truncate { file, bytes } => (*file, size(file).min(*bytes), u64::MAX),
            FileEffect::Extend { file, .. } | FileEffect::Write { file, .. } => (*file, size(file), u64::MAX),
            FileEffect::Punch { file, offset, bytes } => (*file, *offset, offset.saturating_add(*bytes)),
            _ => return,
        };
        self.ranges.push(range);
    }

    /// Whether some page of `[offset, offset + bytes)` of the file is one of them.
    pub fn touch(&self, file: FileId, offset: u64, bytes: u64) -> bool {
        let pages = offset / OS_PAGE_BYTES..(offset + bytes).div_ceil(OS_PAGE_BYTES);
        let meets = |from: u64, to: u64| {
            let to = if to == u64::MAX { to } else { to / OS_PAGE_BYTES };
            pages.start.max(from.div_ceil(OS_PAGE_BYTES)) < pages.end.min(to)
        };
        self.ranges.iter().any(|(of, from, to)| *of == file && meets(*from, *to))
    }
}

/// An operation that returned and is lost.
#[derive(Clone)]
struct LostOperation {
    number: u32,
    effect: Arc<FileEffect>,
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
    fn must_lose(&self, effect: &FileEffect, orders: &[Order]) -> bool {
        let is_in_order = |lost: &LostOperation| lost.orders.iter().any(|order| orders.contains(order));
        !self.is_within(effect) && (self.lost.iter().any(is_in_order) || self.is_below_lost(effect))
    }

    /// It is done below a folder that is lost. No sync keeps it while that is so.
    fn is_below_lost(&self, effect: &FileEffect) -> bool {
        self.lost.iter().any(|lost| match &*lost.effect {
            FileEffect::MakeFolder { path } | FileEffect::Rename { to: path, .. } => {
                paths(effect).iter().any(|other| is_below(other, path))
            }
            _ => false,
        })
    }

    /// It is a write that changes no size.
    fn is_within(&self, effect: &FileEffect) -> bool {
        let FileEffect::Write { file, offset, bytes } = effect else { return false };
        self.files.states.get(file).is_some_and(|state| offset + bytes.len() as u64 <= state.bytes)
    }

    /// A power failure shows whether the operation is there.
    fn shows(&self, effect: &FileEffect) -> bool {
        if let FileEffect::Punch { file, .. } = effect {
            return self.has(*file);
        }
        if effect.file().is_some_and(|file| !self.has(file)) && !matches!(effect, FileEffect::Create { .. }) {
            return false;
        }
        let mut with = self.files.clone();
        with.apply(effect);
        with != self.files
    }

    fn has(&self, file: FileId) -> bool {
        self.files.states.get(&file).is_some_and(|state| state.path.is_some())
    }

    fn lose(&mut self, number: u32, effect: &Arc<FileEffect>, orders: Vec<Order>) {
        self.blocks.add(effect, &self.files);
        self.lost.push(LostOperation { number, effect: effect.clone(), orders });
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
    begun: Vec<(Arc<FileEffect>, u32)>,
    /// Sets of this heap.
    known: usize,
    losses: Losses,
}

impl Walk {
    fn start_case(&mut self, number: u32) {
        self.end(number, |_| true);
        self.alternatives = vec![Alternative::default()];
        self.begun.clear();
        self.known = 0;
    }

    /// Alternatives that lose something, and of which this holds, are not possible behind this crash position.
    fn end(&mut self, last: u32, is_over: impl Fn(&Alternative) -> bool) {
        let (over, on) = std::mem::take(&mut self.alternatives)
            .into_iter()
            .partition(|alternative| !alternative.lost.is_empty() && is_over(alternative));
        self.alternatives = on;
        self.losses.sets.extend(Vec::into_iter(over).filter_map(|alternative| alternative.ended_at(last)));
    }

    fn operation(&mut self, number: u32, effect: &Arc<FileEffect>) {
        let mut more = Vec::new();
        for alternative in &mut self.alternatives {
            let orders = orders(effect);
            if alternative.must_lose(effect, &orders) {
                let orders = if alternative.is_below_lost(effect) { vec![] } else { orders };
                alternative.lose(number, effect, orders);
                continue;
            }
            if alternative.shows(effect) {
                if self.known < SET_LIMIT {
                    self.known += 1;
                    let mut without = alternative.clone();
                    without.lose(number, effect, orders);
                    without.first = number + 1;
                    more.push(without);
                } else {
                    self.losses.bounded_at = self.losses.bounded_at.or(Some(number));
                }
            }
            alternative.files.apply(effect);
        }
        self.alternatives.extend(more);
    }

    fn sync(&mut self, number: u32, effect: &FileEffect) {
        let at = self.begun.iter().position(|(begun, _)| **begun == *effect);
        let begin = at.map_or(number, |at| self.begun.remove(at).1);
        self.end(number, |alternative| alternative.is_ended_by(effect, begin));
    }
}

/// What power failures may lose of the file operations of a trace. `unsynced`: files that were mapped without MAP_SYNC
/// ([`crate::trace::Trace::unsynced`]).
pub fn losses(events: &[Event], unsynced: &BTreeSet<FileId>) -> Losses {
    let mut walk = Walk::default();
    walk.start_case(0);
    for (number, event) in (0..).zip(events) {
        match &event.kind {
            EventKind::Case { .. } => walk.start_case(number),
            EventKind::FileBegin { effect } if effect.is_sync() => walk.begun.push((effect.clone(), number)),
            EventKind::FileEnd { effect, is_done: true } if effect.is_sync() => walk.sync(number, effect),
            EventKind::FileEnd { effect, is_done: true } => walk.operation(number, effect),
            EventKind::Store { file, offset, bytes, .. } if !unsynced.contains(file) => {
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
        _ => folders_of(effect).into_iter().map(Order::Names).collect(),
    }
}

/// The folders whose names the operation changes: `.` where paths begin.
pub fn folders_of(effect: &FileEffect) -> Vec<Arc<str>> {
    let mut folders: Vec<Arc<str>> = paths(effect).into_iter().map(|path| folder_of(path).into()).collect();
    folders.dedup();
    folders
}

/// The names that the operation gives or takes away.
fn paths(effect: &FileEffect) -> Vec<&str> {
    match effect {
        FileEffect::Create { path, .. }
        | FileEffect::Unlink { path }
        | FileEffect::MakeFolder { path }
        | FileEffect::RemoveFolder { path } => vec![path],
        FileEffect::Rename { from, to } => vec![from, to],
        _ => vec![],
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(folder, _)| folder)
}
