// SPDX-License-Identifier: Apache-2.0
//! The persistency model: what power failure may leave of each line.
//!
//! # Px86, as this file implements it
//!
//! The trace is one observed interleaving, taken as the memory order. A line's image is what its base holds plus a prefix of
//! its *ordered* stores (R1) plus any subset of its *floating* units (R8), applied in memory order. Of the next ordered
//! store beyond the prefix any proper subset of its aligned 8-byte units may be there too (R3). Lines are independent (R2).
//! The *floor* is how many ordered stores are guaranteed:
//!
//! - clflush raises it to what the line holds as soon as any thread's next store, flush, fence or locked RMW takes effect (R4);
//! - clflushopt and clwb raise it to what the line held at the flush (by any thread, R7) when the same thread's next fence
//!   or locked RMW takes effect (R5, R6);
//! - msync and fsync raise it to what the lines held when the call began (R9).
//!
//! A non-temporal unit is decided by its thread's next fence or locked RMW, a unit written by the kernel by a sync of its
//! file; a flush decides neither (R8, R9). Truncate, punch and unlink end the sequences of the lines they take away (R9).
//!
//! Sources: Intel SDM vol. 2 (CLFLUSH, CLFLUSHOPT, CLWB, SFENCE); Raad et al., POPL 2020 and 2022; Khyzha and Lahav, POPL 2021.
//!
//! # What is not modelled
//!
//! One interleaving only. A file operation takes effect at its end; when other threads ran between its begin and its end,
//! the states in which the effect is already there are missing and [`Model::bounds_hit`] says so. Threads of one process do not
//! run meanwhile under the Valgrind tracer, whose turn a file's system call keeps; processes that run at the same time do.

mod ids;
mod line;
mod view;

pub use ids::LineId;
pub use line::{Choice, Line, LineContent};
pub use view::{OpenLine, View};

pub use crate::trace::LineKey;

use crate::trace::{
    Event, EventKind, FileEffect, FileId, FlushKind, LINE_BYTES, OperationKind, StoreKind, ThreadId, UNIT_BYTES,
    renamed,
};
use ids::LineIds;
use line::{Unit, next_version};
use planted::Fault;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Of a line.
const UNITS: usize = (LINE_BYTES / UNIT_BYTES) as usize;

/// Which stores survive a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// Power failure on x86 with volatile caches.
    Px86,
    /// As Px86, but whatever was stored is taken as persisted when an operation returns. Not true of any machine: for targets that never
    /// flush a line that recovery reads, whose undecided stores would pile up from operation to operation.
    Px86Returned,
    /// Power failure with caches in the persistence domain: visible stores persist, unfenced non-temporal units may be lost.
    Eadr,
    /// kill -9: every store survives.
    ProcessCrash,
    /// Stores persist in program order as they are made.
    Strict,
}

impl ModelKind {
    /// Caches are volatile.
    fn is_px86(self) -> bool {
        matches!(self, Self::Px86 | Self::Px86Returned)
    }
}

/// A file of the heap as it is at the current position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Where it is; none once it is unlinked.
    pub path: Option<Arc<str>>,
    /// Size in bytes.
    pub bytes: u64,
}

/// Which states came to be with the last event.
#[derive(Clone)]
enum Born {
    /// Those that contain some of a store, which touched these lines.
    Lines(Vec<LineId>),
    /// All: the files changed, or the model leaves one state a position.
    Everything,
    /// None: the states are a subset of those of the position before.
    Nothing,
}

/// A promise that becomes a floor when it is kept.
#[derive(Clone, Copy, Debug)]
struct Flushed {
    line: LineId,
    /// Ordered stores of the line when it was flushed.
    ordered: u64,
}

/// A file operation between its begin and its end.
#[derive(Clone)]
struct PendingFileOperation {
    thread: ThreadId,
    effect: Arc<FileEffect>,
    /// Its begin's event number.
    begin: u32,
    /// Another thread did something meanwhile.
    is_overlapped: bool,
}

/// The state of the persistency model after the events stepped over so far.
#[derive(Clone)]
pub struct Model {
    kind: ModelKind,
    /// By site: whether its stores are application content (the runner's fill).
    is_content_site: Vec<bool>,
    /// Shared with the models of later generations until one changes.
    lines: Vec<Rc<Line>>,
    ids: Rc<LineIds>,
    files: BTreeMap<FileId, FileState>,
    folders: BTreeSet<Arc<str>>,
    /// Those with more than one choice, by number, as a view shows them.
    open: Rc<Vec<OpenLine>>,
    /// Lines whose content changed since [`Model::take_changed`].
    changed: Vec<LineId>,
    clflushed: Vec<Flushed>,
    flushed: FxHashMap<ThreadId, Vec<Flushed>>,
    non_temporal: FxHashMap<ThreadId, Vec<(LineId, u32)>>,
    file_operations: Vec<PendingFileOperation>,
    born: Born,
    /// When the generation began, or another origin was set: a number of its own.
    origin: u64,
    has_unknown_file: bool,
    bounds_hit: BTreeSet<&'static str>,
    /// Who stored to the line last.
    #[cfg(feature = "planted")]
    writers: FxHashMap<LineId, ThreadId>,
}

/// The lines as they are at a crash position, to be looked at when the model has gone on.
pub struct Lines {
    origin: u64,
    lines: Vec<Rc<Line>>,
    ids: Rc<LineIds>,
}

impl Lines {
    /// The line with this key, if it was ever stored to or flushed.
    pub fn find(&self, key: LineKey) -> Option<&Rc<Line>> {
        self.ids.find(key).map(|id| &self.lines[id.0 as usize])
    }

    /// Units of the line that were overwritten since the origin that the model had, in all choices: a bit for each.
    pub fn overwritten(&self, key: LineKey) -> u8 {
        self.find(key).map_or(0, |line| line.overwritten_since(self.origin))
    }
}

impl Model {
    /// Nothing stored, no files. `is_content_site[site]` tells application stores from the allocator's.
    pub fn new(kind: ModelKind, is_content_site: Vec<bool>) -> Self {
        Self {
            kind,
            is_content_site,
            lines: Vec::new(),
            ids: Rc::default(),
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            open: Rc::default(),
            changed: Vec::new(),
            clflushed: Vec::new(),
            flushed: FxHashMap::default(),
            non_temporal: FxHashMap::default(),
            file_operations: Vec::new(),
            born: Born::Nothing,
            origin: next_version(),
            has_unknown_file: false,
            bounds_hit: BTreeSet::new(),
            #[cfg(feature = "planted")]
            writers: FxHashMap::default(),
        }
    }

    /// The model of the next generation: power failed here, and of each line that was not decided one of the choices in `left` is
    /// what recovery finds, the newest last. Lines have the same numbers in both.
    pub fn after_crash(&self, left: impl Fn(LineId, &Line) -> Vec<Choice>) -> Self {
        let mut next = Self {
            lines: self.lines.clone(),
            ids: self.ids.clone(),
            files: self.files.clone(),
            folders: self.folders.clone(),
            open: self.open.clone(),
            has_unknown_file: self.has_unknown_file,
            ..Self::new(self.kind, Vec::new())
        };
        for OpenLine { id, .. } in self.open.iter() {
            let line = self.line(*id);
            let bases = left(*id, line).into_iter().map(|choice| line.base_of(choice)).collect();
            next.lines[id.0 as usize] = Rc::new(Line::left_by_crash(line.key, bases));
            next.refresh(*id, None);
        }
        next
    }

    /// All lines that were stored to or flushed.
    pub fn line_ids(&self) -> impl Iterator<Item = LineId> + use<> {
        (0..self.lines.len() as u32).map(LineId)
    }

    /// The line, to be compared with what models that come from this one, or went before, have.
    pub fn shared_line(&self, line: LineId) -> &Rc<Line> {
        &self.lines[line.0 as usize]
    }

    /// Whether [`Model::is_settled`] holds of the model after a crash here.
    pub fn crash_settles(&self) -> bool {
        self.lines.iter().all(|line| line.is_settled() || line.choice_count() > 1)
    }

    /// Gives these lines numbers, so that all models that come from this one know them by the same.
    pub fn know(&mut self, keys: impl Iterator<Item = LineKey>) {
        keys.for_each(|key| {
            self.line_id(key);
        });
    }

    /// Of the events to come: by site, whether its stores are application content (the runner's fill).
    pub fn set_content_sites(&mut self, is_content_site: Vec<bool>) {
        self.is_content_site = is_content_site;
    }

    /// The lines as they are now.
    pub fn lines(&self) -> Lines {
        Lines { origin: self.origin, lines: self.lines.clone(), ids: self.ids.clone() }
    }

    /// From here on [`Model::overwritten`] is about what the lines hold now. A new generation begins with an origin.
    pub fn set_origin(&mut self) {
        self.origin = next_version();
    }

    /// Units of the line that were overwritten since the origin, in all choices, a bit for each: they hold the same whatever they held
    /// there.
    pub fn overwritten(&self, line: LineId) -> u8 {
        self.line(line).overwritten_since(self.origin)
    }

    /// No store is undecided, and no flush waits for its fence: what is open was left open by a crash.
    pub fn is_settled(&self) -> bool {
        let is_flushed = self.clflushed.is_empty() && self.flushed.values().all(Vec::is_empty);
        let is_whole = self.non_temporal.is_empty() && self.file_operations.is_empty();
        is_flushed && is_whole && self.lines.iter().all(|line| line.is_settled())
    }

    /// Steps over event number `number` (its place in the trace).
    pub fn step(&mut self, number: u32, event: &Event) {
        if let Born::Lines(lines) = std::mem::replace(&mut self.born, Born::Nothing) {
            self.forget_born(&lines);
        }
        for pending in self.file_operations.iter_mut().filter(|pending| pending.thread != event.thread) {
            pending.is_overlapped = true;
        }
        match &event.kind {
            EventKind::Store { kind, file, offset, bytes } => self.store(number, event, *kind, *file, *offset, bytes),
            EventKind::Flush { kind, file, offset } => self.flush(event.thread, *kind, *file, *offset),
            EventKind::Fence { .. } => self.fence(event.thread),
            EventKind::FileBegin { effect } => {
                let (thread, effect) = (event.thread, effect.clone());
                self.file_operations.push(PendingFileOperation { thread, effect, begin: number, is_overlapped: false });
            }
            EventKind::FileEnd { effect, is_done } => self.file_end(number, event.thread, effect, *is_done),
            EventKind::OperationBegin { kind: OperationKind::Open, .. } if planted::is(Fault::IgnoreR10) => {
                self.persist_all();
            }
            EventKind::OperationReturn { .. } if self.kind == ModelKind::Px86Returned => self.persist_all(),
            EventKind::Case { .. } | EventKind::OperationBegin { .. } | EventKind::OperationReturn { .. } => {}
        }
    }

    /// Every store that was made, non-temporal ones too.
    fn persist_all(&mut self) {
        for OpenLine { id, .. } in self.open.clone().iter().copied() {
            let ordered = self.lines[id.0 as usize].ordered_count();
            self.raise_floor(Flushed { line: id, ordered });
        }
        if self.kind == ModelKind::Px86Returned {
            self.non_temporal.keys().copied().collect::<Vec<_>>().into_iter().for_each(|one| self.complete_thread(one));
        }
    }

    fn store(&mut self, number: u32, event: &Event, kind: StoreKind, file: FileId, offset: u64, bytes: &[u8]) {
        self.complete_clflushes();
        let kind = match kind {
            StoreKind::NonTemporal if planted::is(Fault::IgnoreR8) => StoreKind::Plain,
            kind => kind,
        };
        if kind == StoreKind::Rmw && !planted::is(Fault::IgnoreR6) {
            self.complete_thread(event.thread);
        }
        if !self.files.contains_key(&file) && !self.files.is_empty() {
            self.has_unknown_file = true;
        }
        let is_content = self.is_content_site.get(event.site.0 as usize).copied().unwrap_or(false);
        let mut touched = Vec::new();
        for_each_line(offset, bytes, &mut |line_number, units| {
            let id = self.line_id(LineKey { file, number: line_number });
            let line = Rc::make_mut(&mut self.lines[id.0 as usize]);
            match kind {
                StoreKind::NonTemporal => {
                    line.push_floating(number, event.site, is_content, false, units);
                    if self.kind == ModelKind::ProcessCrash || self.kind == ModelKind::Strict {
                        line.decide_floating(number);
                    } else {
                        self.non_temporal.entry(event.thread).or_default().push((id, number));
                    }
                }
                StoreKind::Plain | StoreKind::Rmw => {
                    line.push_ordered(number, event.site, is_content, units);
                    if !self.kind.is_px86() {
                        line.raise_floor(line.ordered_count());
                    }
                }
            }
            touched.push(id);
        });
        for (at, id) in touched.iter().enumerate() {
            let is_marked = self.kind.is_px86() && (at == 0 || !planted::is(Fault::BirthsOnOneLine));
            self.refresh(*id, is_marked.then_some(number));
            #[cfg(feature = "planted")]
            self.writers.insert(*id, event.thread);
        }
        self.born = if self.kind.is_px86() { Born::Lines(touched) } else { Born::Everything };
    }

    /// Nothing of these lines is new any more.
    fn forget_born(&mut self, lines: &[LineId]) {
        for id in lines {
            if let Ok(at) = self.open.binary_search_by_key(id, |open| open.id) {
                Rc::make_mut(&mut self.open)[at].forget_new();
            }
        }
    }

    fn flush(&mut self, thread: ThreadId, kind: FlushKind, file: FileId, offset: u64) {
        self.complete_clflushes();
        let id = self.line_id(LineKey { file, number: offset / LINE_BYTES });
        let flushed = Flushed { line: id, ordered: self.lines[id.0 as usize].ordered_count() };
        #[cfg(feature = "planted")]
        let flushed = self.flush_wrongly(thread, flushed);
        match kind {
            FlushKind::Clflush => self.clflushed.push(flushed),
            FlushKind::Clflushopt | FlushKind::Clwb => self.flushed.entry(thread).or_default().push(flushed),
        }
        if planted::is(Fault::ClflushAtOnce) {
            self.complete_clflushes();
        }
        if planted::is(Fault::IgnoreR5) {
            self.complete_thread(thread);
        }
    }

    fn fence(&mut self, thread: ThreadId) {
        self.complete_clflushes();
        self.complete_thread(thread);
        if planted::is(Fault::IgnoreR2) {
            self.persist_all();
        }
        if planted::is(Fault::AnyFence) {
            self.flushed.keys().copied().collect::<Vec<_>>().into_iter().for_each(|other| self.complete_thread(other));
        }
    }

    /// R4.
    fn complete_clflushes(&mut self) {
        if planted::is(Fault::IgnoreR4) {
            return;
        }
        for flushed in std::mem::take(&mut self.clflushed) {
            self.raise_floor(flushed);
        }
    }

    /// R5, R6, R8: what this thread flushed or stored non-temporally is persisted.
    fn complete_thread(&mut self, thread: ThreadId) {
        // The last lines first: each leaves the list of those with choices, which moves up what is behind it.
        let mut flushed = self.flushed.remove(&thread).unwrap_or_default();
        flushed.sort_by_key(|flushed| Reverse(flushed.line));
        flushed.into_iter().for_each(|flushed| self.raise_floor(flushed));
        let mut floating = self.non_temporal.remove(&thread).unwrap_or_default();
        floating.sort_by_key(|(id, _)| Reverse(*id));
        for (id, event) in floating {
            self.line_mut(id).decide_floating(event);
            self.refresh(id, None);
        }
    }

    fn raise_floor(&mut self, flushed: Flushed) {
        self.line_mut(flushed.line).raise_floor(flushed.ordered);
        self.refresh(flushed.line, None);
    }

    fn file_end(&mut self, number: u32, thread: ThreadId, effect: &FileEffect, is_done: bool) {
        let mut begin = number;
        let is_this = |pending: &PendingFileOperation| pending.thread == thread && *pending.effect == *effect;
        if let Some(at) = self.file_operations.iter().position(is_this) {
            let pending = self.file_operations.remove(at);
            begin = pending.begin;
            if pending.is_overlapped && is_done {
                self.bounds_hit.insert(
                    "a file operation was pending while other threads ran: its effect is explored at its end only",
                );
            }
        }
        if !is_done {
            return;
        }
        let is_reachable =
            effect.file().is_none_or(|file| self.files.get(&file).is_none_or(|state| state.path.is_some()));
        match effect {
            FileEffect::Create { file, path } => {
                self.files.insert(*file, FileState { path: Some(path.clone()), bytes: 0 });
                self.clear_range(*file, 0, u64::MAX);
            }
            FileEffect::Truncate { file, bytes } => self.resize(*file, *bytes),
            FileEffect::Extend { file, bytes } => self.grow(*file, *bytes),
            FileEffect::Punch { .. } if planted::is(Fault::PunchKeepsLines) => {}
            FileEffect::Punch { file, offset, bytes } => {
                self.clear_range(*file, *offset, offset.saturating_add(*bytes))
            }
            FileEffect::Unlink { .. } if planted::is(Fault::UnlinkKeepsName) => {}
            FileEffect::Unlink { path } => self.unlink(path),
            FileEffect::Rename { from, to } => self.rename(from, to),
            FileEffect::MakeFolder { path } => {
                self.folders.insert(path.clone());
            }
            FileEffect::RemoveFolder { path } => {
                self.folders.remove(path);
            }
            FileEffect::Sync { file, offset, bytes } if planted::is(Fault::SyncCoversLater) => {
                return self.sync(*file, *offset, *bytes, number);
            }
            FileEffect::Sync { file, offset, bytes } => return self.sync(*file, *offset, *bytes, begin),
            FileEffect::Write { file, offset, bytes } => self.kernel_write(number, *file, *offset, bytes),
        }
        if is_reachable || matches!(effect, FileEffect::Create { .. }) {
            self.born = Born::Everything;
        }
    }

    /// Whatever was stored beyond the old or the new end is not in the file.
    fn resize(&mut self, file: FileId, bytes: u64) {
        let state = self.file_mut(file);
        let smaller = state.bytes.min(bytes);
        state.bytes = bytes;
        if !planted::is(Fault::TruncateKeepsLines) {
            self.clear_range(file, smaller, u64::MAX);
        }
    }

    fn grow(&mut self, file: FileId, bytes: u64) {
        if bytes > self.file_mut(file).bytes {
            self.resize(file, bytes);
        }
    }

    /// A file or a folder with all that is in it.
    fn rename(&mut self, from: &Arc<str>, to: &Arc<str>) {
        if from == to {
            return;
        }
        if !planted::is(Fault::RenameKeepsOther) {
            self.unlink(to);
        }
        for path in self.files.values_mut().filter_map(|state| state.path.as_mut()) {
            if let Some(renamed) = renamed(path, from, to) {
                *path = renamed;
            }
        }
        self.folders =
            self.folders.iter().map(|path| renamed(path, from, to).unwrap_or_else(|| path.clone())).collect();
    }

    /// A file that was there before the trace began is met without a create; its content is then unknown to us and zero here.
    fn file_mut(&mut self, file: FileId) -> &mut FileState {
        self.files.entry(file).or_insert(FileState { path: None, bytes: 0 })
    }

    fn unlink(&mut self, path: &Arc<str>) {
        let Some((file, state)) = self.files.iter_mut().find(|(_, state)| state.path.as_ref() == Some(path)) else {
            return;
        };
        state.path = None;
        state.bytes = 0;
        let file = *file;
        self.clear_range(file, 0, u64::MAX);
    }

    /// New content of bytes `[from, to)` is zero, and nothing stored there before can come back.
    fn clear_range(&mut self, file: FileId, from: u64, to: u64) {
        if to <= from {
            return;
        }
        if planted::is(Fault::IgnoreR9) {
            return;
        }
        for id in self.lines_between(file, from / LINE_BYTES, (to - 1) / LINE_BYTES) {
            if self.line(id).is_empty() {
                continue;
            }
            let line = self.line_mut(id);
            let start = line.key.number * LINE_BYTES;
            line.clear(from.saturating_sub(start).min(LINE_BYTES), to.saturating_sub(start).min(LINE_BYTES));
            self.refresh(id, None);
        }
    }

    fn sync(&mut self, file: FileId, offset: u64, bytes: u64, begin: u32) {
        if bytes == 0 {
            return;
        }
        let last = offset.saturating_add(bytes).saturating_sub(1) / LINE_BYTES;
        for id in self.lines_between(file, offset / LINE_BYTES, last) {
            self.line_mut(id).persist_before(begin);
            self.refresh(id, None);
        }
    }

    /// Both included.
    fn lines_between(&self, file: FileId, first: u64, last: u64) -> Vec<LineId> {
        self.ids.range(file, first, last).map(|(_, id)| id).collect()
    }

    fn kernel_write(&mut self, number: u32, file: FileId, offset: u64, bytes: &[u8]) {
        self.grow(file, offset + bytes.len() as u64);
        let is_decided = matches!(self.kind, ModelKind::ProcessCrash | ModelKind::Strict);
        let mut touched = Vec::new();
        for_each_line(offset, bytes, &mut |line_number, units| {
            let id = self.line_id(LineKey { file, number: line_number });
            let line = self.line_mut(id);
            line.push_floating(number, crate::trace::SiteId(0), false, true, units);
            if is_decided {
                line.decide_floating(number);
            }
            touched.push(id);
        });
        for id in touched {
            self.refresh(id, None);
        }
    }

    fn line_id(&mut self, key: LineKey) -> LineId {
        let next = LineId(u32::try_from(self.lines.len()).expect("fewer than 2^32 lines"));
        if let Some(known) = self.find(key) {
            return known;
        }
        Rc::make_mut(&mut self.ids).insert(key, next);
        self.lines.push(Rc::new(Line::new(key)));
        next
    }

    fn line_mut(&mut self, id: LineId) -> &mut Line {
        Rc::make_mut(&mut self.lines[id.0 as usize])
    }

    /// Notes that a line changed, and whether it still has choices. `newest`: the store that has just touched it, if one has.
    fn refresh(&mut self, id: LineId, newest: Option<u32>) {
        let line = Rc::make_mut(&mut self.lines[id.0 as usize]);
        line.fold(self.origin);
        if line.is_bounded() {
            self.bounds_hit.insert("a line has more than 48 floating units: the oldest are taken as persisted");
        }
        let is_reachable = self.files.get(&line.key.file).is_none_or(|state| state.path.is_some());
        let is_open = line.choice_count() > 1 && is_reachable;
        match (is_open, self.open.binary_search_by_key(&id, |open| open.id)) {
            (true, Ok(at)) => Rc::make_mut(&mut self.open)[at] = OpenLine::of(id, line, newest),
            (true, Err(at)) => Rc::make_mut(&mut self.open).insert(at, OpenLine::of(id, line, newest)),
            (false, Ok(at)) => drop(Rc::make_mut(&mut self.open).remove(at)),
            (false, Err(_)) => {}
        }
        self.changed.push(id);
    }

    /// The line with this number.
    pub fn line(&self, id: LineId) -> &Line {
        &self.lines[id.0 as usize]
    }

    /// Whether this is the number of the line with this key.
    pub fn has(&self, id: LineId, key: LineKey) -> bool {
        self.lines.get(id.0 as usize).is_some_and(|line| line.key == key)
    }

    /// The line with this key, if it was ever stored to or flushed.
    pub fn find(&self, key: LineKey) -> Option<LineId> {
        self.ids.find(key)
    }

    /// Numbers of the file's lines that were ever stored to or flushed, in order.
    pub fn line_numbers(&self, file: FileId) -> impl Iterator<Item = u64> {
        self.ids.range(file, 0, u64::MAX).map(|(number, _)| number)
    }

    /// Files of the heap, unlinked ones included.
    pub fn files(&self) -> &BTreeMap<FileId, FileState> {
        &self.files
    }

    /// Folders of the heap.
    pub fn folders(&self) -> &BTreeSet<Arc<str>> {
        &self.folders
    }

    /// Lines whose content or choices changed since the last call; may name a line twice.
    pub fn take_changed(&mut self) -> Vec<LineId> {
        std::mem::take(&mut self.changed)
    }

    /// Bounds of the model that this trace ran into.
    pub fn bounds_hit(&self) -> &BTreeSet<&'static str> {
        &self.bounds_hit
    }

    /// There were stores into a file that the trace did not see created: its content is not known (R10).
    pub fn has_unknown_file(&self) -> bool {
        self.has_unknown_file
    }

    /// The choices at the crash position after the last event.
    pub fn view(&self) -> View {
        View {
            lines: self.open.clone(),
            are_all_new: matches!(self.born, Born::Everything),
            has_new_store: !matches!(self.born, Born::Nothing),
        }
    }
}

/// Splits a store at lines and units: calls `visit(line number, units)`.
fn for_each_line(offset: u64, bytes: &[u8], visit: &mut dyn FnMut(u64, &[Unit])) {
    let end = offset + bytes.len() as u64;
    let mut at = offset;
    while at < end {
        let line_number = at / LINE_BYTES;
        let line_end = end.min((line_number + 1) * LINE_BYTES);
        let (mut units, mut count) = ([Unit::new(0, &[]); UNITS], 0);
        while at < line_end {
            let unit_end = line_end.min((at / UNIT_BYTES + 1) * UNIT_BYTES);
            let part = &bytes[(at - offset) as usize..(unit_end - offset) as usize];
            units[count] = Unit::new((at % LINE_BYTES) as u8, part);
            (at, count) = (unit_end, count + 1);
        }
        visit(line_number, &units[..count]);
    }
}

/// Planted faults that are more than a condition.
impl Model {
    #[cfg(feature = "planted")]
    fn flush_wrongly(&mut self, thread: ThreadId, mut flushed: Flushed) -> Flushed {
        let is_anothers = self.writers.get(&flushed.line).is_some_and(|writer| *writer != thread);
        if planted::is(Fault::IgnoreR7) && is_anothers {
            flushed.ordered = 0;
        }
        if planted::is(Fault::FlushCoversLater) {
            flushed.ordered = u64::MAX;
        }
        if planted::is(Fault::FlushDecidesNonTemporal) {
            let all = self.non_temporal.values().flatten().copied();
            let units: Vec<_> = all.filter(|(id, _)| *id == flushed.line).collect();
            for (id, event) in units {
                self.line_mut(id).decide_floating(event);
            }
            self.refresh(flushed.line, None);
        }
        flushed
    }
}

#[cfg(test)]
mod tests;
