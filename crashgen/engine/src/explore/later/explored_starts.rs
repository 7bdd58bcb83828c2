// SPDX-License-Identifier: Apache-2.0
//! Which told runs need no exploration, because one that did the same was explored over at least the same states.
//!
//! Crashes in a told run are a matter of what it did, of what is expected of the heap, and of what the crash before it left where the
//! recoveries after it *look*. Most of what differs between two crashes is nothing that they look at: a log entry that is not valid
//! yet, an object that no slot names. So two told runs that did the same are compared by the units that were looked at when the
//! first one was explored ([`Dependencies`]): loads of the trie, units that reports' contents depend on, contents that were asked for.
//! Where each line of the second leaves no other bytes there than the first one did, a walk of any of its crash positions
//! meets nothing but nodes and leaves of the trie that the walks of the first one met, with the same expectation: it is known.
//!
//! What tries do not watch is the same for all images while one set of units is hot. So what is remembered here ends with that set. It does
//! not end with a trie: what was judged then stays judged.

use crashgen::complete::{ChoiceSet, Dependencies, LineChoices};
use crashgen::model::{Line, LineContent, LineKey, Lines};
use planted::Fault;
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// Number of a set of contents.
type SetId = u32;
/// Number of some units of a line.
type PlaceId = u32;

const RC_COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// What a line may hold when a run begins.
pub enum LineAtStart<'a> {
    /// Nobody stored to it.
    Nothing,
    /// What is below its stores.
    Line(&'a Rc<Line>),
    /// What a crash leaves of it.
    Remaining(&'a LineChoices, &'a ChoiceSet),
}

/// The lines that a run begins with.
pub trait StartLines {
    /// What this one may hold.
    fn holding(&self, key: LineKey) -> LineAtStart<'_>;
}

impl StartLines for Lines {
    fn holding(&self, key: LineKey) -> LineAtStart<'_> {
        self.find(key).map_or(LineAtStart::Nothing, LineAtStart::Line)
    }
}

/// What explored runs began with, by what they did and what was expected.
#[derive(Default)]
pub struct ExploredStarts {
    known: FxHashMap<u128, Vec<StartsOfRun>>,
    sets: Sets,
    /// Of what is known.
    bytes: usize,
}

/// The states that some runs began with, which did the same and of which the same units were looked at.
#[derive(Default)]
struct StartsOfRun {
    looked: Vec<PlaceId>,
    /// Of each run, what each of these might hold.
    runs: FxHashSet<Box<[SetId]>>,
}

/// What lines might hold when some run began, numbered.
#[derive(Default)]
struct Sets {
    contents: FxHashMap<LineContent, u32>,
    /// Each a sorted list of numbers of contents.
    numbers: FxHashMap<Rc<[u32]>, SetId>,
    by_number: Vec<Rc<[u32]>>,
    /// Lines, and units of them that were looked at.
    places: FxHashMap<(LineKey, u8), PlaceId>,
    by_place: Vec<UnitsOfLine>,
    /// How often a run was looked for or added: what was asked since is known.
    searches: u64,
    bytes: usize,
}

/// Some units of a line, and what they might hold when that was last asked: thousands of lines are the same in most runs.
struct UnitsOfLine {
    line: LineKey,
    units: u8,
    now: Option<Rc<KnownContents>>,
    /// The search in which it was asked.
    search: u64,
    /// Of the line, if it is one that is the same in other runs.
    version: Option<u64>,
    /// How many sets there were.
    set_count: usize,
}

/// What a line may hold now; the set's number, if some run began with just that.
struct KnownContents {
    contents: Vec<u32>,
    set: Option<SetId>,
}

impl ExploredStarts {
    /// Whether a run that did the same was explored over all states of these lines.
    pub fn is_known(&mut self, did: u128, lines: &impl StartLines) -> bool {
        self.find(did, lines).is_some()
    }

    /// What was looked at when such a run was explored, if one was.
    pub fn looked(&mut self, did: u128, lines: &impl StartLines) -> Option<Dependencies> {
        let places = self.find(did, lines)?.looked.clone();
        let mut looked = Dependencies::default();
        looked.join(
            places.iter().map(|place| &self.sets.by_place[*place as usize]).map(|place| (place.line, place.units)),
        );
        Some(looked)
    }

    fn find(&mut self, did: u128, lines: &impl StartLines) -> Option<&StartsOfRun> {
        self.sets.searches += 1;
        let sets = &mut self.sets;
        let mut begins = self.known.get(&did)?.iter();
        begins.find(|begin| planted::is(Fault::AnyBegin) || begin.has(lines, sets))
    }

    /// Such a run was explored over these.
    pub fn add(&mut self, did: u128, lines: &Lines, looked: &Dependencies) {
        let mut looked: Vec<PlaceId> = looked.lines().map(|looked| self.sets.place(looked)).collect();
        looked.sort_unstable();
        self.sets.searches += 1;
        let run: Box<[SetId]> = looked.iter().map(|place| self.sets.number(*place, lines)).collect();
        let begins = self.known.entry(did).or_default();
        let place = begins.iter().position(|begin| begin.looked == looked).unwrap_or_else(|| {
            self.bytes +=
                looked.len() * size_of::<PlaceId>() + size_of::<(u128, Vec<StartsOfRun>)>() + size_of::<StartsOfRun>();
            begins.push(StartsOfRun { looked, ..StartsOfRun::default() });
            begins.len() - 1
        });
        let bytes = size_of_val(&*run) + size_of::<Box<[SetId]>>();
        if begins[place].runs.insert(run) {
            self.bytes += bytes;
        }
    }

    /// What it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.sets.bytes
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Sets {
    fn place(&mut self, (line, units): (LineKey, u8)) -> PlaceId {
        *self.places.entry((line, units)).or_insert_with(|| {
            self.bytes += size_of::<((LineKey, u8), PlaceId)>()
                + size_of::<UnitsOfLine>()
                + size_of::<KnownContents>()
                + RC_COUNTS_BYTES;
            self.by_place.push(UnitsOfLine { line, units, now: None, search: 0, version: None, set_count: 0 });
            self.by_place.len() as PlaceId - 1
        })
    }

    /// None: something that no run began with.
    fn now(&mut self, place: PlaceId, lines: &impl StartLines) -> Option<Rc<KnownContents>> {
        let place = &mut self.by_place[place as usize];
        if place.search == self.searches {
            return place.now.clone();
        }
        place.search = self.searches;
        let holding = lines.holding(place.line);
        let version = match holding {
            LineAtStart::Line(line) => Some(line.version()),
            LineAtStart::Nothing | LineAtStart::Remaining(..) => None,
        };
        let is_a_set = place.now.as_ref().is_some_and(|now| now.set.is_some());
        if version.is_some() && place.version == version && (is_a_set || place.set_count == self.by_number.len()) {
            return place.now.clone();
        }
        let number = |content: &LineContent| self.contents.get(content).copied();
        let contents: Option<Vec<u32>> = contents(holding, place.units).iter().map(number).collect();
        let now = contents.map(sorted).map(|contents| {
            let set = self.numbers.get(&*contents).copied();
            Rc::new(KnownContents { contents, set })
        });
        let bytes =
            |now: &Option<Rc<KnownContents>>| now.as_ref().map_or(0, |now| now.contents.len() * size_of::<u32>());
        self.bytes = self.bytes + bytes(&now) - bytes(&place.now);
        (place.now, place.version, place.set_count) = (now.clone(), version, self.by_number.len());
        now
    }

    /// A new one, if no run began with that.
    fn number(&mut self, place: PlaceId, lines: &Lines) -> SetId {
        if let Some(known) = self.now(place, lines).and_then(|now| now.set) {
            return known;
        }
        let UnitsOfLine { line, units, .. } = self.by_place[place as usize];
        let known = self.contents.len();
        let number = |content| {
            let next = self.contents.len() as u32;
            *self.contents.entry(content).or_insert(next)
        };
        let numbers = sorted(contents(lines.holding(line), units).into_iter().map(number).collect());
        self.bytes += (self.contents.len() - known) * size_of::<(LineContent, u32)>();
        let (set, next): (Rc<[u32]>, SetId) = (numbers.into(), self.by_number.len() as SetId);
        self.bytes += size_of_val(&*set) + RC_COUNTS_BYTES + size_of::<(Rc<[u32]>, SetId)>() + size_of::<Rc<[u32]>>();
        self.by_number.push(set.clone());
        self.numbers.insert(set, next);
        next
    }
}

impl StartsOfRun {
    /// Whether each of the lines may only be what it might have been when one of the runs began.
    fn has(&self, lines: &impl StartLines, sets: &mut Sets) -> bool {
        let now = self.looked.iter().map(|place| sets.now(*place, lines)).collect::<Option<Vec<Rc<KnownContents>>>>();
        let Some(now) = now else { return false };
        let same: Option<Box<[SetId]>> = now.iter().map(|now| now.set).collect();
        if same.is_some_and(|same| self.runs.contains(&same)) {
            return true;
        }
        let is_part = |(now, known): (&Rc<KnownContents>, &SetId)| {
            let all = &sets.by_number[*known as usize];
            now.set == Some(*known) || now.contents.iter().all(|content| all.binary_search(content).is_ok())
        };
        self.runs.iter().any(|run| now.iter().zip(run.iter()).all(is_part))
    }
}

/// What the line may hold in these units, zeros elsewhere; some of it twice, where choices differ elsewhere only.
fn contents(line: LineAtStart, units: u8) -> Vec<LineContent> {
    let looked_at = |content: &LineContent| {
        let mut part = [0; size_of::<LineContent>()];
        for unit in (0..8).filter(|unit| units >> unit & 1 == 1) {
            part[unit * 8..][..8].copy_from_slice(&content[unit * 8..][..8]);
        }
        part
    };
    match line {
        LineAtStart::Line(line) => line.bases().map(looked_at).collect(),
        LineAtStart::Remaining(choices, set) => set.iter().map(|member| looked_at(choices.content(*member))).collect(),
        LineAtStart::Nothing => vec![[0; size_of::<LineContent>()]],
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
    use crashgen::model::{Choice, LineId, Model, Px86};
    use crashgen::trace::{Event, EventKind, FileId, SiteId, StoreKind, ThreadId};

    const FILE: FileId = FileId(0);
    const RUN: u128 = 1;

    /// What is left of a line whose units hold one of these pairs.
    fn left(pairs: &[(u8, u8)]) -> Lines {
        let mut model = Model::new(&Px86, Vec::new());
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
        let mut begins = ExploredStarts::default();
        let mut looked = Dependencies::default();
        looked.add(LineKey { file: FILE, number: 0 }, 1, None, &Model::new(&Px86, Vec::new()));
        begins.add(RUN, &left(&[(1, 1), (2, 2)]), &looked);
        let mut is_known = |run: u128, pairs: &[(u8, u8)]| begins.is_known(run, &left(pairs));
        assert!(is_known(RUN, &[(1, 1), (2, 2)]));
        assert!(is_known(RUN, &[(2, 9)]), "nobody looked at the second unit");
        assert!(!is_known(RUN, &[(1, 1), (3, 2)]));
        assert!(!is_known(RUN + 1, &[(1, 1)]), "another run");
    }

    #[test]
    fn units_of_a_line_count_together() {
        let mut begins = ExploredStarts::default();
        let mut looked = Dependencies::default();
        looked.join([(LineKey { file: FILE, number: 0 }, 3)].into_iter());
        begins.add(RUN, &left(&[(1, 1), (2, 2)]), &looked);
        assert!(begins.is_known(RUN, &left(&[(1, 1)])));
        assert!(!begins.is_known(RUN, &left(&[(1, 2)])), "each value was there, but not the pair");
    }

    #[test]
    fn a_line_is_asked_again_when_it_is_another_one_or_more_is_known() {
        let (mut begins, mut looked) = (ExploredStarts::default(), Dependencies::default());
        looked.join([(LineKey { file: FILE, number: 0 }, 1)].into_iter());
        let [one, other, third] = [1, 2, 3].map(|value| left(&[(value, value)]));
        begins.add(RUN, &one, &looked);
        assert!(!begins.is_known(RUN, &other));
        assert!(begins.is_known(RUN, &one));
        assert!(!begins.is_known(RUN, &other));
        begins.add(RUN + 1, &other, &looked);
        assert!(begins.is_known(RUN + 1, &other) && !begins.is_known(RUN, &other));
        begins.add(RUN, &other, &looked);
        assert!([&one, &other].iter().all(|lines| begins.is_known(RUN, *lines)));
        assert!(!begins.is_known(RUN, &third));
    }
}
