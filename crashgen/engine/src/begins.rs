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
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// Number of a set of contents.
type SetId = u32;

const RC_COUNTS_BYTES: usize = 2 * size_of::<usize>();

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
    contents: FxHashMap<LineContent, u32>,
    /// Each a sorted list of numbers of contents.
    sets: FxHashMap<Rc<[u32]>, SetId>,
    by_number: Vec<Rc<[u32]>>,
    bytes: usize,
}

/// The states that some runs began with, which did the same and of which the same units were looked at.
#[derive(Default)]
pub struct Begin {
    looked: Vec<(LineKey, u8)>,
    /// Of each run, what each of these might hold.
    runs: FxHashSet<Box<[SetId]>>,
}

/// What a line may hold now; the set's number, if some run began with just that.
struct Now {
    contents: Vec<u32>,
    set: Option<SetId>,
}

impl Begins {
    /// A run that did the same and was explored over all states of these lines.
    pub fn find(&self, did: u128, lines: &impl BeginsWith) -> Option<&Begin> {
        let mut now = FxHashMap::default();
        let mut begins = self.known.get(&did)?.iter();
        begins.find(|begin| planted::is(Fault::AnyBegin) || self.is_among(begin, lines, &mut now))
    }

    /// Whether each of the lines may only be what it might have been when one of the runs began.
    fn is_among(
        &self,
        begin: &Begin,
        lines: &impl BeginsWith,
        now: &mut FxHashMap<(LineKey, u8), Option<Rc<Now>>>,
    ) -> bool {
        let at = |looked: &(LineKey, u8)| {
            now.entry(*looked).or_insert_with(|| self.now(lines.holding(looked.0), looked.1).map(Rc::new)).clone()
        };
        let Some(now) = begin.looked.iter().map(at).collect::<Option<Vec<Rc<Now>>>>() else { return false };
        let same: Option<Box<[SetId]>> = now.iter().map(|now| now.set).collect();
        if same.is_some_and(|same| begin.runs.contains(&same)) {
            return true;
        }
        let is_part = |(now, known): (&Rc<Now>, &SetId)| {
            let all = &self.by_number[*known as usize];
            now.set == Some(*known) || now.contents.iter().all(|content| all.binary_search(content).is_ok())
        };
        begin.runs.iter().any(|run| now.iter().zip(run.iter()).all(is_part))
    }

    /// None: something that no run began with.
    fn now(&self, line: Holding, units: u8) -> Option<Now> {
        let number = |content: &LineContent| self.contents.get(content).copied();
        let contents = sorted(contents(line, units).iter().map(number).collect::<Option<_>>()?);
        let set = self.sets.get(&*contents).copied();
        Some(Now { contents, set })
    }

    /// Such a run was explored over these.
    pub fn add(&mut self, did: u128, lines: &Lines, looked: &Looked) {
        let mut looked: Vec<(LineKey, u8)> = looked.lines().collect();
        looked.sort_unstable();
        let run: Box<[SetId]> = looked.iter().map(|(line, units)| self.number(lines.holding(*line), *units)).collect();
        let begins = self.known.entry(did).or_default();
        let place = begins.iter().position(|begin| begin.looked == looked).unwrap_or_else(|| {
            self.bytes +=
                looked.len() * size_of::<(LineKey, u8)>() + size_of::<(u128, Vec<Begin>)>() + size_of::<Begin>();
            begins.push(Begin { looked, ..Begin::default() });
            begins.len() - 1
        });
        let bytes = size_of_val(&*run) + size_of::<Box<[SetId]>>();
        if begins[place].runs.insert(run) {
            self.bytes += bytes;
        }
    }

    fn number(&mut self, line: Holding, units: u8) -> SetId {
        let known = self.contents.len();
        let number = |content| {
            let next = self.contents.len() as u32;
            *self.contents.entry(content).or_insert(next)
        };
        let numbers = sorted(contents(line, units).into_iter().map(number).collect());
        self.bytes += (self.contents.len() - known) * size_of::<(LineContent, u32)>();
        if let Some(known) = self.sets.get(&*numbers) {
            return *known;
        }
        let (set, next): (Rc<[u32]>, SetId) = (numbers.into(), self.by_number.len() as SetId);
        self.bytes += size_of_val(&*set) + RC_COUNTS_BYTES + size_of::<(Rc<[u32]>, SetId)>() + size_of::<Rc<[u32]>>();
        self.by_number.push(set.clone());
        self.sets.insert(set, next);
        next
    }

    /// What it takes, about.
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
        looked.join(self.looked.iter().copied());
        looked
    }
}

/// What the line may hold in these units, zeros elsewhere; some of it twice, where choices differ elsewhere only.
fn contents(line: Holding, units: u8) -> Vec<LineContent> {
    let looked_at = |content: &LineContent| {
        let mut part = [0; size_of::<LineContent>()];
        for unit in (0..8).filter(|unit| units >> unit & 1 == 1) {
            part[unit * 8..][..8].copy_from_slice(&content[unit * 8..][..8]);
        }
        part
    };
    match line {
        Holding::Line(line) => line.bases().map(looked_at).collect(),
        Holding::Left(choices, set) => set.iter().map(|member| looked_at(choices.content(*member))).collect(),
        Holding::Nothing => vec![[0; size_of::<LineContent>()]],
    }
}

/// Each once, as sets are kept.
fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
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
