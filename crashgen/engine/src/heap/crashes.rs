// SPDX-License-Identifier: Apache-2.0
//! The crash before a later generation, and what it may have left.

use crate::heap::case::{Case, SettledOperations};
use crate::heap::state::StateRef;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, Line, LineId, Model, View};
use crashgen::trace::Trace;
use oracle::TwinSet;
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// The crash before a later generation: where power failed, and what it may have left.
pub struct CrashBefore<'a> {
    /// The workload, or what the recovery before did.
    pub trace: &'a Trace,
    /// As it was, but for its image, which the next generation has.
    pub case: &'a Case,
    /// What the position showed.
    pub view: &'a View,
    /// Events before the crash.
    pub position: u32,
    /// Of the heap without a crash; none: there are none of this generation.
    pub twins: Option<&'a TwinSet>,
    /// Remaining choices of the lines, in the order of the view, each the newest last: what [`Choice::base`] counts.
    pub remaining: Vec<Vec<Choice>>,
    /// What the recovery from it showed of what was pending.
    pub settled: &'a SettledOperations,
    /// The crash before that one.
    pub before: Option<&'a CrashBefore<'a>>,
    /// Of the states that it may have left: whether one breaks a rule by itself, as far as that was asked ([`crate::explore::later::first_crash`]).
    pub broken: RefCell<FxHashMap<Vec<Choice>, bool>>,
}

/// A state of the generation after a crash.
pub struct LaterState<'a> {
    /// Persistency model at its position.
    pub model: &'a Model,
    /// What that shows.
    pub view: &'a View,
    /// One choice a line.
    pub choices: Vec<Choice>,
}

impl<'a> LaterState<'a> {
    /// The same state.
    pub fn of(state: &StateRef<'a>) -> Self {
        Self { model: &state.case.model, view: state.view, choices: state.choices.to_vec() }
    }
}

impl CrashBefore<'_> {
    /// What this crash left, where that state came of it: one choice a line of its view. Where the later generation has overwritten a
    /// line, all choices come to the same, and it is the newest.
    pub fn left_by(&self, later: &LaterState) -> Vec<Choice> {
        let lines = self.view.lines.iter().zip(&self.remaining);
        lines
            .map(|(line, left)| {
                let is_open = later.model.line(line.id).base_count() > 1;
                let place = later.view.lines.iter().position(|other| other.id == line.id).filter(|_| is_open);
                place.map_or(left[left.len() - 1], |at| left[later.choices[at].base as usize])
            })
            .collect()
    }

    /// What the recovery found where the crash left these choices, in a folder with that prefix. is_content: by site of what it did.
    pub fn begin(&self, chosen: &[Choice], prefix: &str, is_content: Vec<bool>) -> Case {
        let mut model = self.case.model.after_crash(bases_of(self.view, chosen));
        model.set_content_sites(is_content);
        Case::after_crash(model, CrashImage::of(prefix, &self.case.model, self.view, chosen), &self.case.history)
    }
}

/// Of each line what that state of the view leaves, for a model that begins there.
pub fn bases_of(view: &View, state: &[Choice]) -> impl Fn(LineId, &Line) -> Vec<Choice> {
    let by_line: FxHashMap<LineId, Choice> = view.lines.iter().map(|line| line.id).zip(state.iter().copied()).collect();
    move |id, line| vec![by_line.get(&id).copied().unwrap_or(line.newest())]
}
