// SPDX-License-Identifier: Apache-2.0
//! Which told runs need no exploration, because one that did the same was explored over at least the same states.
//!
//! Crashes in a told run are a matter of what it did, of what is expected of the heap, and of what the crash before it left where the
//! recoveries after it *look*. Most of what differs between two crashes is nothing that they look at: a log entry that is not valid
//! yet, an object that no slot names. So two told runs that did the same are compared by the units that were looked at when the
//! first one was explored ([`Looked`]): loads of the trie, units that reports' contents depend on, contents that were asked for.
//! Where each line of the second leaves no other bytes there than the first one did, a walk of any of its crash positions
//! meets nothing but nodes and leaves of the trie that the walks of the first one met, with the same expectation: it is known.
//!
//! What tries do not watch is the same for all images while one set of units is hot. So what is remembered here ends with that set. It does
//! not end with a trie: what was judged then stays judged.

use crashgen::complete::{ChoiceSet, LineChoices, Looked};
use crashgen::model::{Line, LineContent, LineKey, Lines};
use planted::Fault;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The states that a run began with.
pub struct Begin {
    /// What was looked at, with what the lines were then; none: never stored to.
    lines: Vec<(LineKey, u8, Option<Rc<Line>>)>,
}

/// What a line may hold when a run begins.
pub enum Holding<'a> {
    /// Nobody stored to it.
    Nothing,
    /// What is below its stores.
    Line(&'a Rc<Line>),
    /// What a crash leaves of it.
    Left(&'a LineChoices, &'a ChoiceSet),
}

/// The lines that a run begins with.
pub trait BeginsWith {
    /// What this one may hold.
    fn holding(&self, key: LineKey) -> Holding<'_>;
}

impl BeginsWith for Lines {
    fn holding(&self, key: LineKey) -> Holding<'_> {
        self.find(key).map_or(Holding::Nothing, Holding::Line)
    }
}

/// What explored runs began with, by what they did and what was expected.
#[derive(Default)]
pub struct Begins {
    known: FxHashMap<u128, Vec<Begin>>,
    bytes: usize,
}

impl Begins {
    /// A run that did the same and was explored over all states of these lines.
    pub fn find(&self, did: u128, lines: &impl BeginsWith) -> Option<&Begin> {
        let mut begins = self.known.get(&did)?.iter();
        begins.find(|begin| planted::is(Fault::AnyBegin) || begin.holds(lines))
    }

    /// Such a run was explored over these.
    pub fn add(&mut self, did: u128, lines: &Lines, looked: &Looked) {
        let at = |(line, units): (LineKey, u8)| (line, units, lines.find(line).cloned());
        let begin = Begin { lines: looked.lines().map(at).collect() };
        self.bytes += begin.lines.len() * size_of::<(LineKey, u8, Option<Rc<Line>>)>();
        self.known.entry(did).or_default().push(begin);
    }

    /// What it takes, about; the lines are shared with models.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Begin {
    /// What was looked at.
    pub fn looked(&self) -> Looked {
        let mut looked = Looked::default();
        looked.join(self.lines.iter().map(|(line, units, _)| (*line, *units)));
        looked
    }

    /// Whether each of the lines may only be what it might have been here.
    fn holds(&self, lines: &impl BeginsWith) -> bool {
        self.lines.iter().all(|(key, units, known)| {
            let now = lines.holding(*key);
            match (known, &now) {
                (None, Holding::Nothing) => return true,
                (Some(known), Holding::Line(line)) if Rc::ptr_eq(known, line) => return true,
                _ => {}
            }
            let known = contents(known.as_ref().map_or(Holding::Nothing, Holding::Line), *units);
            contents(now, *units).iter().all(|content| known.binary_search(content).is_ok())
        })
    }
}

/// What the line may hold in these units, zeros elsewhere; sorted.
fn contents(line: Holding, units: u8) -> Vec<LineContent> {
    let looked_at = |content: &LineContent| {
        let mut part = [0; size_of::<LineContent>()];
        for unit in (0..8).filter(|unit| units >> unit & 1 == 1) {
            part[unit * 8..][..8].copy_from_slice(&content[unit * 8..][..8]);
        }
        part
    };
    let mut found: Vec<LineContent> = match line {
        Holding::Line(line) => line.bases().map(looked_at).collect(),
        Holding::Left(choices, set) => set.iter().map(|member| looked_at(choices.content(*member))).collect(),
        Holding::Nothing => vec![[0; size_of::<LineContent>()]],
    };
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::model::{Choice, LineId, Model, ModelKind};
    use crashgen::trace::{Event, EventKind, FileId, SiteId, StoreKind, ThreadId};

    const FILE: FileId = FileId(0);
    const RUN: u128 = 1;

    /// What is left of a line whose units hold one of these pairs.
    fn left(pairs: &[(u8, u8)]) -> Lines {
        let mut model = Model::new(ModelKind::Px86, Vec::new());
        for (number, (first, second)) in pairs.iter().enumerate() {
            let bytes = [[*first; 8], [*second; 8]].concat().into();
            let kind = EventKind::Store { kind: StoreKind::Plain, file: FILE, offset: 0, bytes };
            let thread = ThreadId { process: 1, thread: 1 };
            model.step(number as u32, &Event { thread, site: SiteId(0), kind });
        }
        // Of each store of two units: one, the other, both.
        let whole = (1..=pairs.len() as u32).map(|count| Choice { ordered: 3 * count, ..Choice::default() });
        model.after_crash(|_: LineId, _: &Line| whole.clone().collect()).lines()
    }

    #[test]
    fn a_run_is_known_where_each_line_holds_what_it_might_have_held() {
        let mut begins = Begins::default();
        let mut looked = Looked::default();
        looked.at(LineKey { file: FILE, number: 0 }, 1, None, &Model::new(ModelKind::Px86, Vec::new()));
        begins.add(RUN, &left(&[(1, 1), (2, 2)]), &looked);
        let is_known = |run: u128, pairs: &[(u8, u8)]| begins.find(run, &left(pairs)).is_some();
        assert!(is_known(RUN, &[(1, 1), (2, 2)]));
        assert!(is_known(RUN, &[(2, 9)]), "nobody looked at the second unit");
        assert!(!is_known(RUN, &[(1, 1), (3, 2)]));
        assert!(!is_known(RUN + 1, &[(1, 1)]), "another run");
    }

    #[test]
    fn units_of_a_line_count_together() {
        let mut begins = Begins::default();
        let mut looked = Looked::default();
        looked.join([(LineKey { file: FILE, number: 0 }, 3)].into_iter());
        begins.add(RUN, &left(&[(1, 1), (2, 2)]), &looked);
        assert!(begins.find(RUN, &left(&[(1, 1)])).is_some());
        assert!(begins.find(RUN, &left(&[(1, 2)])).is_none(), "each value was there, but not the pair");
    }
}
