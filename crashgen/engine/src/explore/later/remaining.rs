// SPDX-License-Identifier: Apache-2.0
//! Remaining choices: what a crash in the states of a leaf may leave of the lines that are not decided.

use crate::explore::later::explored_starts::{LineAtStart, StartLines};
use crate::heap::case::HeapCase;
use crashgen::complete::{ChoiceSet, LeafStates, LineChoices, Search};
use crashgen::model::{Choice, Line, LineId, LineKey, Model, OpenLine, View};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// What a crash leaves of each line that is not decided.
pub struct Remaining {
    lines: FxHashMap<LineId, (Rc<LineChoices>, ChoiceSet)>,
}

impl Remaining {
    /// In the states of this leaf.
    pub fn of(search: &mut Search, case: &HeapCase, view: &View, held: &LeafStates) -> Self {
        let mut lines = FxHashMap::with_capacity_and_hasher(view.lines.len(), FxBuildHasher);
        for open in view.lines.iter() {
            let table = search.tables.of(&case.model, open.id);
            let set = held.sets.get(&open.id).unwrap_or(&table.all).clone();
            lines.insert(open.id, (table, set));
        }
        Self { lines }
    }

    /// For each line of the view, the newest last.
    pub fn choices(&self, view: &View) -> Vec<Vec<Choice>> {
        view.lines.iter().map(|line| Self::choices_of(&self.lines[&line.id])).collect()
    }

    /// For each line, for a model that begins there.
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

/// The lines that the recovery after a crash finds.
pub struct AfterCrash<'a> {
    pub model: &'a Model,
    pub remaining: &'a Remaining,
}

impl StartLines for AfterCrash<'_> {
    fn line_at_start(&self, key: LineKey) -> LineAtStart<'_> {
        let Some(id) = self.model.find(key) else { return LineAtStart::Nothing };
        match self.remaining.lines.get(&id) {
            Some((table, set)) => LineAtStart::Remaining(table, set),
            None => LineAtStart::Line(self.model.shared_line(id)),
        }
    }
}

/// Hash of what a recovery may find, each line with its remaining choices, and of what it did. run: the hash of that.
pub fn hash_of_start(case: &mut HeapCase, view: &View, remaining: &Remaining, run: u128) -> u128 {
    let newest = case.crash(view, &remaining.newest(view)).image.hash();
    let mut bytes = Vec::with_capacity(2 * size_of::<u128>() + view.lines.len() * 28);
    bytes.extend(run.to_le_bytes());
    bytes.extend(newest.0.to_le_bytes());
    for open in view.lines.iter() {
        let (table, set) = &remaining.lines[&open.id];
        if set.len() > 1 {
            let key = case.model.line(open.id).key;
            bytes.extend(key.file.0.to_le_bytes());
            bytes.extend(key.number.to_le_bytes());
            bytes.extend(table.hash(set).to_le_bytes());
        }
    }
    xxh3_128(&bytes)
}
