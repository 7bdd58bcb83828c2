// SPDX-License-Identifier: Apache-2.0
//! The model steps through the trace: what each event does to files and lines, whatever the persistency model.

use super::files::{FileState, Files};
use super::floors::Floors;
use super::line::{Choice, Line, Unit, Written};
use super::line_ids::LineId;
use super::lines::Lines;
use super::losses::{Backed, LostBlocks};
use super::persistency::{LineStore, PersistencyModel};
use super::view::{OpenLine, View};
use crate::trace::{
    Event, EventKind, FileEffect, FileId, FlushKind, LINE_BYTES, LineKey, OS_PAGE_BYTES, StoreKind, StoredBytes,
    ThreadId, UNIT_BYTES,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Of a line.
const LINE_UNITS: usize = (LINE_BYTES / UNIT_BYTES) as usize;

/// Which states came to be with the last event.
#[derive(Clone)]
enum Born {
    /// Those that contain some of a store, which touched these lines.
    Lines(Vec<LineId>),
    /// All: the files changed, or the store is guaranteed at once.
    Everything,
    /// None: the states are a subset of those of the position before.
    Nothing,
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

/// The heap after the events stepped over so far: its files, and the choices of each line under a persistency model.
#[derive(Clone)]
pub struct Model {
    persistency: &'static dyn PersistencyModel,
    /// By site: whether its stores are application content (the runner's fill).
    is_content_site: Vec<bool>,
    floors: Floors,
    files: Files,
    /// File operations that the power failure loses: numbers of the events at which they returned, in order; of a page that got its
    /// blocks, of its first store.
    lost: Arc<[u32]>,
    /// What only those have put into files.
    lost_blocks: LostBlocks,
    /// Kept where something is lost.
    backed: Backed,
    file_operations: Vec<PendingFileOperation>,
    born: Born,
    has_unknown_file: bool,
    has_overlapped_operation: bool,
}

impl Model {
    /// Nothing stored, no files. `is_content_site[site]` tells application stores from the allocator's.
    pub fn new(persistency: &'static dyn PersistencyModel, is_content_site: Vec<bool>) -> Self {
        Self {
            persistency,
            is_content_site,
            floors: Floors::new(),
            files: Files::default(),
            lost: Arc::default(),
            lost_blocks: LostBlocks::default(),
            backed: Backed::default(),
            file_operations: Vec::new(),
            born: Born::Nothing,
            has_unknown_file: false,
            has_overlapped_operation: false,
        }
    }

    /// The same, where the power failure loses these file operations: numbers of the events at which they return, in order.
    pub fn losing(self, operations: Arc<[u32]>) -> Self {
        Self { lost: operations, ..self }
    }

    /// Whether the power failure loses the file operation that returned with this event.
    pub fn loses(&self, number: u32) -> bool {
        self.lost.binary_search(&number).is_ok()
    }

    /// The model of the next generation: power failed here, and of each line that was not decided one of the choices in `left` is
    /// what recovery finds, the newest last. Lines have the same numbers in both.
    pub fn after_crash(&self, left: impl Fn(LineId, &Line) -> Vec<Choice>) -> Self {
        let mut next = Self {
            persistency: self.persistency,
            is_content_site: Vec::new(),
            floors: self.floors.after_crash(),
            files: self.files.clone(),
            lost: Arc::default(),
            lost_blocks: LostBlocks::default(),
            backed: Backed::default(),
            file_operations: Vec::new(),
            born: Born::Nothing,
            has_unknown_file: self.has_unknown_file,
            has_overlapped_operation: false,
        };
        for OpenLine { id, .. } in self.floors.open().iter() {
            let line = self.line(*id);
            let bases = left(*id, line).into_iter().map(|choice| line.base_of(choice)).collect();
            next.floors.lines.replace(*id, Line::left_by_crash(line.key, bases));
            next.floors.mark_changed(*id, None);
        }
        next.floors.refresh(&next.files);
        next
    }

    /// All lines that were stored to or flushed.
    pub fn line_ids(&self) -> impl Iterator<Item = LineId> + use<> {
        self.floors.lines.ids()
    }

    /// The line, to be compared with what models that come from this one, or went before, have.
    pub fn shared_line(&self, line: LineId) -> &Rc<Line> {
        self.floors.lines.get(line)
    }

    /// Whether [`Model::is_settled`] holds of the model after a crash here.
    pub fn crash_settles(&self) -> bool {
        self.floors.lines.iter().all(|line| line.is_settled() || line.choice_count() > 1)
    }

    /// Gives these lines numbers, so that all models that come from this one know them by the same.
    pub fn know(&mut self, keys: impl Iterator<Item = LineKey>) {
        keys.for_each(|key| {
            self.floors.lines.make_id(key);
        });
    }

    /// Of the events to come: by site, whether its stores are application content (the runner's fill).
    pub fn set_content_sites(&mut self, is_content_site: Vec<bool>) {
        self.is_content_site = is_content_site;
    }

    /// The lines as they are now.
    pub fn lines(&self) -> Lines {
        self.floors.lines.clone()
    }

    /// From here on [`Model::overwritten`] is about what the lines hold now. A new generation begins with an origin.
    pub fn set_origin(&mut self) {
        self.floors.lines.set_origin();
    }

    /// Units of the line that were overwritten since the origin, in all choices, a bit for each: they hold the same whatever they held
    /// there.
    pub fn overwritten(&self, line: LineId) -> u8 {
        self.line(line).overwritten_since(self.floors.lines.origin())
    }

    /// No store is undecided, and no flush waits for its fence: what is open was left open by a crash.
    pub fn is_settled(&self) -> bool {
        let is_whole = self.file_operations.is_empty();
        is_whole && self.floors.is_settled() && self.floors.lines.iter().all(|line| line.is_settled())
    }

    /// Steps over event number `number` (its place in the trace).
    pub fn step(&mut self, number: u32, event: &Event) {
        if let Born::Lines(lines) = std::mem::replace(&mut self.born, Born::Nothing) {
            self.floors.forget_new(&lines);
        }
        for pending in self.file_operations.iter_mut().filter(|pending| pending.thread != event.thread) {
            pending.is_overlapped = true;
        }
        match &event.kind {
            EventKind::Store { kind, file, offset, bytes } => self.store(number, event, *kind, *file, *offset, bytes),
            EventKind::Flush { kind, file, offset } => self.flush(event.thread, *kind, *file, *offset),
            EventKind::Fence { kind } => self.persistency.fence(*kind, event.thread, &mut self.floors),
            EventKind::FileBegin { effect } => {
                let (thread, effect) = (event.thread, effect.clone());
                self.file_operations.push(PendingFileOperation { thread, effect, begin: number, is_overlapped: false });
            }
            EventKind::FileEnd { effect, is_done } => self.file_end(number, event, effect, *is_done),
            EventKind::OperationReturn { kind, .. } => self.persistency.operation_return(*kind, &mut self.floors),
            EventKind::Case { .. } | EventKind::OperationBegin { .. } => {}
        }
        self.floors.refresh(&self.files);
    }

    /// Takes what event number `number` put into PM, which was stepped over last, as persisted, with what the lines held before.
    pub fn persist_at_once(&mut self, number: u32, event: &Event) {
        let Some((file, offset, bytes)) = event.kind.put() else { return };
        let Some(last) = (offset + bytes.len() as u64).checked_sub(1) else { return };
        for id in self.lines_between(file, offset / LINE_BYTES, last / LINE_BYTES) {
            let line = self.floors.lines.get_mut(id);
            line.persist_before(number + 1);
            line.decide_floating(number);
            self.floors.mark_changed(id, None);
        }
        self.born = Born::Everything;
        self.floors.refresh(&self.files);
    }

    fn store(
        &mut self,
        number: u32,
        Event { thread, site, .. }: &Event,
        kind: StoreKind,
        file: FileId,
        offset: u64,
        bytes: &StoredBytes,
    ) {
        let (persistency, thread) = (self.persistency, *thread);
        persistency.before_store(kind, thread, &mut self.floors);
        if !self.lost.is_empty() {
            self.note_pages(number, file, offset, bytes.len() as u64);
        }
        if self.lost.is_empty() && !self.files.states.contains_key(&file) && !self.files.states.is_empty() {
            self.has_unknown_file = true;
        }
        let is_content = self.is_content_site.get(site.0 as usize).copied().unwrap_or(false);
        let written = Written { event: number, site: *site, is_content, can_tear: persistency.can_tear() };
        let is_floating = persistency.is_floating(kind);
        let mut touched = Vec::new();
        let mut is_guaranteed = false;
        for_each_line(offset, bytes, &mut |line_number, units| {
            if self.loses_line(file, line_number) {
                return;
            }
            let id = self.floors.lines.make_id(LineKey { file, number: line_number });
            let line = self.floors.lines.get_mut(id);
            match is_floating {
                true => line.push_floating(written, false, units),
                false => line.push_ordered(written, units),
            }
            persistency.stored(kind, LineStore { thread, line: id, event: number }, &mut self.floors);
            is_guaranteed |= self.floors.lines.get(id).is_guaranteed(number);
            touched.push(id);
        });
        for id in &touched {
            self.floors.mark_changed(*id, Some(number));
        }
        self.born = if is_guaranteed { Born::Everything } else { Born::Lines(touched) };
    }

    fn flush(&mut self, thread: ThreadId, kind: FlushKind, file: FileId, offset: u64) {
        let id = self.floors.lines.make_id(LineKey { file, number: offset / LINE_BYTES });
        self.persistency.flush(kind, thread, id, &mut self.floors);
    }

    fn file_end(&mut self, number: u32, event: &Event, effect: &FileEffect, is_done: bool) {
        let mut begin = number;
        let is_this = |pending: &PendingFileOperation| pending.thread == event.thread && *pending.effect == *effect;
        if let Some(at) = self.file_operations.iter().position(is_this) {
            let pending = self.file_operations.remove(at);
            begin = pending.begin;
            self.has_overlapped_operation |= pending.is_overlapped && is_done;
        }
        if !is_done {
            return;
        }
        if self.loses(number) {
            return self.lose(number, event, effect);
        }
        if !self.lost.is_empty() {
            self.backed.apply(effect);
        }
        let is_reachable = effect.file().is_none_or(|file| self.files.is_reachable(file));
        let before = effect.file().map_or(0, |file| self.files.bytes(file));
        let taken_away = self.files.apply(effect);
        match effect {
            FileEffect::Create { file, .. } => self.clear_range(*file, 0, u64::MAX),
            // What was stored beyond the old or the new end is not in the file.
            FileEffect::Truncate { file, bytes } => self.clear_range(*file, before.min(*bytes), u64::MAX),
            FileEffect::Extend { file, .. } => self.clear_growth(*file, before),
            FileEffect::Punch { file, offset, bytes } => {
                self.clear_range(*file, *offset, offset.saturating_add(*bytes))
            }
            FileEffect::Unlink { .. }
            | FileEffect::Rename { .. }
            | FileEffect::MakeFolder { .. }
            | FileEffect::RemoveFolder { .. } => {
                taken_away.into_iter().for_each(|file| self.clear_range(file, 0, u64::MAX));
            }
            FileEffect::SyncFolder { .. } => return,
            FileEffect::SyncAll => return self.sync_all(begin),
            FileEffect::Sync { file, offset, bytes } => return self.sync(*file, *offset, *bytes, begin),
            FileEffect::Write { file, offset, bytes } => {
                self.clear_growth(*file, before);
                self.kernel_write(number, event, *file, *offset, bytes);
            }
        }
        if is_reachable || matches!(effect, FileEffect::Create { .. }) {
            self.born = Born::Everything;
        }
    }

    /// The operation returns, and the power failure to come loses it. What a write put into what the file has stays.
    fn lose(&mut self, number: u32, event: &Event, effect: &FileEffect) {
        self.lost_blocks.add(effect, &self.files);
        if let FileEffect::Write { file, offset, bytes } = effect {
            self.kernel_write(number, event, *file, *offset, bytes);
            self.born = Born::Everything;
        }
    }

    /// The power failure to come loses the blocks that pages get by a store, or they are there from now on.
    fn note_pages(&mut self, number: u32, file: FileId, offset: u64, bytes: u64) {
        let pages = self.backed.store(file, offset, bytes);
        if self.loses(number) && !pages.is_empty() {
            self.clear_range(file, pages.start * OS_PAGE_BYTES, pages.end * OS_PAGE_BYTES);
            self.lost_blocks.add_pages(file, pages);
        }
    }

    /// Whether what is put into the line is lost with a file operation: it made the file, or this part of it.
    pub fn loses_line(&self, file: FileId, line_number: u64) -> bool {
        let offset = line_number * LINE_BYTES;
        let is_in_file = || self.files.has(file) && offset < self.files.bytes(file);
        !self.lost.is_empty() && (self.lost_blocks.touch(file, offset, LINE_BYTES) || !is_in_file())
    }

    /// If the file has grown since it had so many bytes.
    fn clear_growth(&mut self, file: FileId, before: u64) {
        if self.files.bytes(file) > before {
            self.clear_range(file, before, u64::MAX);
        }
    }

    /// New content of bytes `[from, to)` is zero, and nothing stored there before can come back.
    fn clear_range(&mut self, file: FileId, from: u64, to: u64) {
        if to <= from {
            return;
        }
        for id in self.lines_between(file, from / LINE_BYTES, (to - 1) / LINE_BYTES) {
            if self.line(id).is_empty() {
                continue;
            }
            let line = self.floors.lines.get_mut(id);
            let start = line.key.number * LINE_BYTES;
            line.clear(from.saturating_sub(start).min(LINE_BYTES), to.saturating_sub(start).min(LINE_BYTES));
            self.floors.mark_changed(id, None);
        }
    }

    fn sync(&mut self, file: FileId, offset: u64, bytes: u64, begin: u32) {
        if bytes == 0 {
            return;
        }
        let last = offset.saturating_add(bytes).saturating_sub(1) / LINE_BYTES;
        self.persist_lines(self.lines_between(file, offset / LINE_BYTES, last), begin);
    }

    fn sync_all(&mut self, begin: u32) {
        self.persist_lines(self.line_ids().collect(), begin);
    }

    fn persist_lines(&mut self, lines: Vec<LineId>, begin: u32) {
        for id in lines {
            self.floors.lines.get_mut(id).persist_before(begin);
            self.floors.mark_changed(id, None);
        }
    }

    /// Both included.
    fn lines_between(&self, file: FileId, first: u64, last: u64) -> Vec<LineId> {
        self.floors.lines.range(file, first, last).map(|(_, id)| id).collect()
    }

    fn kernel_write(&mut self, number: u32, event: &Event, file: FileId, offset: u64, bytes: &[u8]) {
        let persistency = self.persistency;
        let (site, thread) = (event.site, event.thread);
        let written = Written { event: number, site, is_content: false, can_tear: persistency.can_tear() };
        for_each_line(offset, bytes, &mut |line_number, units| {
            if self.loses_line(file, line_number) {
                return;
            }
            let id = self.floors.lines.make_id(LineKey { file, number: line_number });
            self.floors.lines.get_mut(id).push_floating(written, true, units);
            persistency.written_by_kernel(LineStore { thread, line: id, event: number }, &mut self.floors);
            self.floors.mark_changed(id, None);
        });
    }

    /// The line with this number.
    pub fn line(&self, id: LineId) -> &Line {
        self.floors.lines.get(id)
    }

    /// Whether this is the number of the line with this key.
    pub fn has(&self, id: LineId, key: LineKey) -> bool {
        self.floors.lines.has(id, key)
    }

    /// The line with this key, if it was ever stored to or flushed.
    pub fn find(&self, key: LineKey) -> Option<LineId> {
        self.floors.lines.id_of(key)
    }

    /// Numbers of the file's lines that were ever stored to or flushed, in order.
    pub fn line_numbers(&self, file: FileId) -> impl Iterator<Item = u64> {
        self.floors.lines.range(file, 0, u64::MAX).map(|(number, _)| number)
    }

    /// Files of the heap, unlinked ones included.
    pub fn files(&self) -> &BTreeMap<FileId, FileState> {
        &self.files.states
    }

    /// Folders of the heap.
    pub fn folders(&self) -> &BTreeSet<Arc<str>> {
        &self.files.folders
    }

    /// Lines whose content or choices changed since the last call; may name a line twice.
    pub fn take_changed(&mut self) -> Vec<LineId> {
        self.floors.take_changed()
    }

    /// Bounds of the model that this trace ran into.
    pub fn bounds_hit(&self) -> BTreeSet<&'static str> {
        let bounds = [
            (
                self.has_overlapped_operation,
                "a file operation was pending while other threads ran: its effect is explored at its end only",
            ),
            (
                self.floors.has_bounded_line(),
                "a line has more than 48 floating units: the oldest are taken as persisted",
            ),
        ];
        bounds.into_iter().filter_map(|(is_hit, text)| is_hit.then_some(text)).collect()
    }

    /// There were stores into a file that the trace did not see created: its content is not known (R10).
    pub fn has_unknown_file(&self) -> bool {
        self.has_unknown_file
    }

    /// The choices at the crash position after the last event.
    pub fn view(&self) -> View {
        View {
            lines: self.floors.open().clone(),
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
        let (mut units, mut count) = ([Unit::new(0, &[]); LINE_UNITS], 0);
        while at < line_end {
            let unit_end = line_end.min((at / UNIT_BYTES + 1) * UNIT_BYTES);
            let part = &bytes[(at - offset) as usize..(unit_end - offset) as usize];
            units[count] = Unit::new((at % LINE_BYTES) as u8, part);
            (at, count) = (unit_end, count + 1);
        }
        visit(line_number, &units[..count]);
    }
}
