// SPDX-License-Identifier: Apache-2.0
//! One crash state of a heap: where it is, which choice each line has, and which stores it lacks.

use crate::heap::case::HeapCase;
use crashgen::LINE_BYTES;
use crashgen::model::{Choice, LineKey, View};
use crashgen::trace::{Event, EventKind, FileEffect, FileId, SiteId, Trace};
use std::ops::Range;

/// One crash state of a case.
#[derive(Clone, Copy)]
pub struct StateRef<'a> {
    /// The heap at the crash position.
    pub case: &'a HeapCase,
    /// What the position shows.
    pub view: &'a View,
    /// One choice for each line of the view.
    pub choices: &'a [Choice],
    /// Events before the crash.
    pub position: u32,
}

/// A store that a state lacks.
#[derive(Clone, Copy)]
pub struct Lost {
    /// Its event number.
    pub event: u32,
    /// Where it is made.
    pub site: SiteId,
    /// The line that lost it.
    pub line: LineKey,
}

impl Lost {
    /// Whether a system call wrote it behind a descriptor.
    pub fn is_write(&self, trace: &Trace) -> bool {
        trace.events[self.event as usize].kind.is_write()
    }
}

/// The stores of the state's generation that the state lacks, line by line.
pub fn lost_stores(state: &StateRef) -> impl Iterator<Item = Lost> {
    changed_lines(state).flat_map(|(at, choice)| {
        let line = state.case.model.line(state.view.lines[at].id);
        let lost = line.open_stores(choice).into_iter().filter(|(_, _, is_there)| !is_there);
        lost.map(|(event, site, _)| Lost { event, site, line: line.key })
    })
}

/// The earliest of them.
pub fn lost_store(state: &StateRef) -> Option<Lost> {
    lost_stores(state).min_by_key(|lost| lost.event)
}

/// The lines that are not as everything persisted would leave them, by their place in the view.
pub fn changed_lines<'a>(state: &'a StateRef) -> impl Iterator<Item = (usize, Choice)> + 'a {
    let choices = state.choices.iter().copied().enumerate();
    choices.filter(|(at, choice)| *choice != state.view.lines[*at].newest())
}

/// Event and site of the newest undecided store that the state holds.
pub fn newest_store(state: &StateRef) -> Option<(u32, SiteId)> {
    let lines = state.view.lines.iter().zip(state.choices);
    let stores = lines.flat_map(|(line, choice)| state.case.model.line(line.id).open_stores(*choice));
    stores.filter(|(_, _, is_there)| *is_there).map(|(event, site, _)| (event, site)).max_by_key(|(event, _)| *event)
}

/// Event and site of the earliest file operation that the state lacks.
pub fn lost_operation(state: &StateRef) -> Option<(u32, SiteId)> {
    state.case.lost_operations().first().copied()
}

/// The sites of what matters: the earliest store that is lost and the newest that is there; where none is, the earliest file operation that
/// is lost and the last store, or that alone.
pub fn sites_that_matter(state: &StateRef) -> Vec<SiteId> {
    let Some(lost) = lost_store(state) else {
        let operation = lost_operation(state).map(|(_, site)| site);
        return operation.into_iter().chain([state.case.last_site()]).collect();
    };
    let newest = newest_store(state).map(|(_, site)| site);
    [Some(lost.site), newest].into_iter().flatten().collect()
}

/// What a state holds of what was put there by one event.
pub struct Held {
    /// All ("yes"), nothing ("no") or some of it ("torn").
    pub how: &'static str,
    /// Each state at this position holds all of it.
    pub is_decided: bool,
    /// The bytes that it holds, from the first one that was put there. None where `how` is "no".
    pub bytes: Vec<Range<u64>>,
}

/// What the state holds of what was put there at this position.
pub fn held(state: &StateRef, event: u32, (file, offset, bytes): (FileId, u64, u64)) -> Held {
    let open = open_units(state, event, (file, offset, bytes));
    let mut there = vec![];
    let mut end = 0;
    for lost in open.iter().filter(|(_, is_there)| !is_there).map(|(unit, _)| unit) {
        there.push(end..lost.start);
        end = lost.end;
    }
    there.push(end..bytes);
    there.retain(|held| !held.is_empty());
    let how = match &there[..] {
        [] => "no",
        [all] if *all == (0..bytes) => "yes",
        _ => "torn",
    };
    Held { how, is_decided: open.is_empty(), bytes: there }
}

/// Undecided units of the store, over all its lines, in order of their bytes from the first one stored: which, and whether the state
/// holds them.
fn open_units(state: &StateRef, event: u32, (file, offset, bytes): (FileId, u64, u64)) -> Vec<(Range<u64>, bool)> {
    let numbers = offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES);
    let mut open = vec![];
    for id in numbers.filter_map(|number| state.case.model.find(LineKey { file, number })) {
        if let Some(at) = state.view.lines.iter().position(|open| open.id == id) {
            let line = state.case.model.line(id);
            let from_first = |at: usize| line.key.number * LINE_BYTES + at as u64 - offset;
            let units = line.open_units(state.choices[at], event).into_iter();
            open.extend(units.map(|(unit, is_there)| (from_first(unit.start)..from_first(unit.end), is_there)));
        }
    }
    open.sort_by_key(|(unit, _)| unit.start);
    open
}

/// Whether the state needs a reordering within one line that only the weak reading of R8 allows.
pub fn is_conservative(state: &StateRef) -> bool {
    state.view.lines.iter().zip(state.choices).any(|(line, choice)| {
        let stores = state.case.model.line(line.id).open_stores(*choice);
        let first_lost = stores.iter().position(|(_, _, is_there)| !is_there);
        line.floating_units > 0 && first_lost.is_some_and(|at| stores[at..].iter().any(|(_, _, is_there)| *is_there))
    })
}

/// Whether the event is of a sync of that line: of recoveries only the end is recorded.
pub fn is_sync_of(event: &Event, line: LineKey) -> bool {
    let (EventKind::FileBegin { effect } | EventKind::FileEnd { effect, .. }) = &event.kind else { return false };
    matches!(**effect, FileEffect::Sync { file, offset, bytes } if file == line.file
        && (offset / LINE_BYTES..offset.saturating_add(bytes).div_ceil(LINE_BYTES)).contains(&line.number))
}

/// Whether the event flushes that line.
pub fn is_flush_of(event: &Event, line: LineKey) -> bool {
    matches!(event.kind, EventKind::Flush { file, offset, .. }
        if file == line.file && offset / LINE_BYTES == line.number)
}
