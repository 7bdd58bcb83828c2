// SPDX-License-Identifier: Apache-2.0
//! One crash state of a heap: where it is, which choice each line has, and which stores it lacks.

use crate::heap::case::HeapCase;
use crashgen::LINE_BYTES;
use crashgen::model::{Choice, LineKey, View};
use crashgen::trace::{Event, EventKind, SiteId};

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

/// The earliest store of the state's generation that the state lacks.
pub fn lost_store(state: &StateRef) -> Option<Lost> {
    let stores = changed_lines(state).flat_map(|(at, choice)| {
        let line = state.case.model.line(state.view.lines[at].id);
        let lost = line.open_stores(choice).into_iter().filter(|(_, _, is_there)| !is_there);
        lost.map(|(event, site, _)| Lost { event, site, line: line.key })
    });
    stores.min_by_key(|lost| lost.event)
}

/// The lines that are not as everything persisted would leave them, by their place in the view.
pub fn changed_lines<'a>(state: &'a StateRef) -> impl Iterator<Item = (usize, Choice)> + 'a {
    let choices = state.choices.iter().copied().enumerate();
    choices.filter(|(at, choice)| *choice != state.view.lines[*at].newest())
}

/// The sites of the stores that matter: the earliest that is lost and the newest that is there; where nothing is lost, the last store.
pub fn sites_that_matter(state: &StateRef) -> Vec<SiteId> {
    let Some(lost) = lost_store(state) else { return vec![state.case.last_store] };
    let mut newest: Option<(u32, SiteId)> = None;
    for (line, choice) in state.view.lines.iter().zip(state.choices) {
        for (event, site, is_there) in state.case.model.line(line.id).open_stores(*choice) {
            if is_there && newest.is_none_or(|(latest, _)| event > latest) {
                newest = Some((event, site));
            }
        }
    }
    [Some(lost.site), newest.map(|(_, site)| site)].into_iter().flatten().collect()
}

/// Whether the state needs a reordering within one line that only the weak reading of R8 allows.
pub fn is_conservative(state: &StateRef) -> bool {
    state.view.lines.iter().zip(state.choices).any(|(line, choice)| {
        let stores = state.case.model.line(line.id).open_stores(*choice);
        let first_lost = stores.iter().position(|(_, _, is_there)| !is_there);
        line.floating_units > 0 && first_lost.is_some_and(|at| stores[at..].iter().any(|(_, _, is_there)| *is_there))
    })
}

/// Whether the event flushes that line.
pub fn is_flush_of(event: &Event, line: LineKey) -> bool {
    matches!(event.kind, EventKind::Flush { file, offset, .. }
        if file == line.file && offset / LINE_BYTES == line.number)
}
