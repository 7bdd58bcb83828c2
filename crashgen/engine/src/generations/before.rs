// SPDX-License-Identifier: Apache-2.0
//! The crash before a later generation, and what it may have left.

use crate::begins::{BeginsWith, Holding};
use crate::cases::{Case, Settled};
use crate::finding::StateRef;
use crashgen::complete::{ChoiceSet, Held, LineChoices, Search};
use crashgen::image::CrashImage;
use crashgen::model::{Choice, Line, LineId, LineKey, Model, OpenLine, View};
use crashgen::trace::Trace;
use oracle::TwinSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::RefCell;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// The crash before a later generation: where power failed, and what it may have left.
pub struct Before<'a> {
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
    pub left: Vec<Vec<Choice>>,
    /// What the recovery from it showed of what was pending.
    pub settled: &'a Settled,
    /// The crash before that one.
    pub before: Option<&'a Before<'a>>,
    /// Of the states that it may have left: whether one breaks a rule by itself, as far as that was asked ([`crate::first_crash`]).
    pub broken: RefCell<FxHashMap<Vec<Choice>, bool>>,
}

/// A state of the generation after a crash.
pub struct Later<'a> {
    /// Persistency model at its position.
    pub model: &'a Model,
    /// What that shows.
    pub view: &'a View,
    /// One choice a line.
    pub state: Vec<Choice>,
}

impl<'a> Later<'a> {
    /// The same state.
    pub fn of(state: &StateRef<'a>) -> Self {
        Self { model: &state.case.model, view: state.view, state: state.state.to_vec() }
    }
}

impl Before<'_> {
    /// What this crash left, where that state came of it: one choice a line of its view. Where the later generation has overwritten a
    /// line, all choices come to the same, and it is the newest.
    pub fn chosen(&self, later: &Later) -> Vec<Choice> {
        let lines = self.view.lines.iter().zip(&self.left);
        lines
            .map(|(line, left)| {
                let is_open = later.model.line(line.id).base_count() > 1;
                let place = later.view.lines.iter().position(|other| other.id == line.id).filter(|_| is_open);
                place.map_or(left[left.len() - 1], |at| left[later.state[at].base as usize])
            })
            .collect()
    }

    /// What the recovery found where the crash left these choices, in a folder with that prefix. is_content: by site of what it did.
    pub fn begin(&self, chosen: &[Choice], prefix: &str, is_content: Vec<bool>) -> Case {
        let mut model = self.case.model.after_crash(left_by(self.view, chosen));
        model.set_content_sites(is_content);
        Case::after_crash(model, CrashImage::of(prefix, &self.case.model, self.view, chosen), &self.case.history)
    }
}

/// Of each line what that state of the view leaves, for a model that begins there.
pub fn left_by(view: &View, state: &[Choice]) -> impl Fn(LineId, &Line) -> Vec<Choice> {
    let by_line: FxHashMap<LineId, Choice> = view.lines.iter().map(|line| line.id).zip(state.iter().copied()).collect();
    move |id, line| vec![by_line.get(&id).copied().unwrap_or(line.newest())]
}

/// What a crash leaves of each line that is not decided.
pub struct Left {
    lines: FxHashMap<LineId, (Rc<LineChoices>, ChoiceSet)>,
}

impl Left {
    /// In this leaf.
    pub fn of(search: &mut Search, case: &Case, view: &View, held: &Held) -> Self {
        let mut lines = FxHashMap::with_capacity_and_hasher(view.lines.len(), FxBuildHasher);
        for open in view.lines.iter() {
            let table = search.tables.of(&case.model, open.id);
            let set = held.sets.get(&open.id).unwrap_or(&table.all).clone();
            lines.insert(open.id, (table, set));
        }
        Self { lines }
    }

    /// Of the lines of the view, each the newest last.
    pub fn choices(&self, view: &View) -> Vec<Vec<Choice>> {
        view.lines.iter().map(|line| Self::choices_of(&self.lines[&line.id])).collect()
    }

    /// Of each line, for a model that begins there.
    pub fn bases(&self) -> impl Fn(LineId, &Line) -> Vec<Choice> {
        |id, line| self.lines.get(&id).map_or_else(|| vec![line.newest()], Self::choices_of)
    }

    fn choices_of((table, set): &(Rc<LineChoices>, ChoiceSet)) -> Vec<Choice> {
        set.iter().rev().map(|member| table.choice(*member)).collect()
    }

    fn newest(&self, view: &View) -> Vec<Choice> {
        let newest = |line: &OpenLine| {
            let (table, set) = &self.lines[&line.id];
            table.choice(set[0])
        };
        view.lines.iter().map(newest).collect()
    }
}

/// The lines that recovery finds after a crash.
pub struct AfterCrash<'a> {
    pub model: &'a Model,
    pub left: &'a Left,
}

impl BeginsWith for AfterCrash<'_> {
    fn holding(&self, key: LineKey) -> Holding<'_> {
        let Some(id) = self.model.find(key) else { return Holding::Nothing };
        match self.left.lines.get(&id) {
            Some((table, set)) => Holding::Left(table, set),
            None => Holding::Line(self.model.shared_line(id)),
        }
    }
}

/// Of the image that a told run found, each line with its remaining choices, and of all that was told.
pub fn hash_of_begin(case: &mut Case, view: &View, left: &Left, told: u128) -> u128 {
    case.image.go_to(&case.model, view, &left.newest(view));
    let mut bytes = Vec::with_capacity(2 * size_of::<u128>() + view.lines.len() * 28);
    bytes.extend(told.to_le_bytes());
    bytes.extend(case.image.hash().0.to_le_bytes());
    for open in view.lines.iter() {
        let (table, set) = &left.lines[&open.id];
        if set.len() > 1 {
            let key = case.model.line(open.id).key;
            bytes.extend(key.file.0.to_le_bytes());
            bytes.extend(key.number.to_le_bytes());
            bytes.extend(table.hash(set).to_le_bytes());
        }
    }
    xxh3_128(&bytes)
}
