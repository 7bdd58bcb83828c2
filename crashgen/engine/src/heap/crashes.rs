// SPDX-License-Identifier: Apache-2.0
//! Crashes before a later generation: where power failed, and what that may have left.

use crate::heap::case::{HeapCase, SettledOperations};
use crate::heap::state::StateRef;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, Line, LineId, Model, View};
use crashgen::trace::Trace;
use oracle::TwinSet;
use rustc_hash::FxHashMap;
use std::cell::RefCell;

/// The crash that a later generation begins with.
pub struct CrashBefore<'a> {
    /// The workload, or what the recovery before did.
    pub trace: &'a Trace,
    /// The heap there, without its image: the next generation has that.
    pub case: &'a HeapCase,
    /// What the position showed.
    pub view: &'a View,
    /// Events before the crash.
    pub position: u32,
    /// The workload's heap without a crash; none: there are none.
    pub twins: Option<&'a TwinSet>,
    /// What the crash may have left of each line of the view: its remaining choices, the newest last. [`Choice::base`] counts them.
    pub remaining: Vec<Vec<Choice>>,
    /// What the recovery from it showed of the operations that were pending.
    pub settled: &'a SettledOperations,
    /// The crash before that one.
    pub before: Option<&'a CrashBefore<'a>>,
    /// Whether a state that it may have left breaks a rule by itself, as far as that was asked
    /// ([`crate::explore::later::first_crash`]).
    pub broken: RefCell<FxHashMap<Vec<Choice>, bool>>,
}

/// A state of the generation after a crash.
pub struct LaterState<'a> {
    /// The persistency model at its position.
    pub model: &'a Model,
    /// What the position shows.
    pub view: &'a View,
    /// One choice for each line.
    pub choices: Vec<Choice>,
}

impl<'a> LaterState<'a> {
    /// The same state.
    pub fn of(state: &StateRef<'a>) -> Self {
        Self { model: &state.case.model, view: state.view, choices: state.choices.to_vec() }
    }
}

impl CrashBefore<'_> {
    /// What this crash left in the runs that lead to that state: one choice for each line of its view. Where the later generation has
    /// overwritten a line all choices come to the same, and the newest stands for them.
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

    /// The heap that recovery finds where the crash left these choices, in a folder with that prefix. is_content: for each site of the
    /// recovery, whether it stores application content.
    pub fn begin(&self, chosen: &[Choice], prefix: &str, is_content: Vec<bool>) -> HeapCase {
        let mut model = self.case.model.after_crash(bases_of(self.view, chosen));
        model.set_content_sites(is_content);
        HeapCase::after_crash(model, CrashImage::of(prefix, &self.case.model, self.view, chosen), &self.case.history)
    }
}

/// What a state leaves of each line, for a model that begins there.
pub fn bases_of(view: &View, state: &[Choice]) -> impl Fn(LineId, &Line) -> Vec<Choice> {
    let by_line: FxHashMap<LineId, Choice> = view.lines.iter().map(|line| line.id).zip(state.iter().copied()).collect();
    move |id, line| vec![by_line.get(&id).copied().unwrap_or(line.newest())]
}
