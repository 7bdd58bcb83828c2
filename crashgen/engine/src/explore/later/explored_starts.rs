// SPDX-License-Identifier: Apache-2.0
//! Which recoveries need no exploring, because one that did the same was explored over at least the same states.
//!
//! What crashes in a recovery find follows from three things: what the recovery did, what is expected of the heap, and what the crash
//! before it left where the recoveries after it *look*. Most of what differs between two crashes lies where they do not look: a log
//! entry that is not valid yet, an object that no slot names. So two runs that did the same are compared by the units that the
//! exploration of the first one depended on ([`Dependencies`]): loads of the trie, units that the contents of reports depend on,
//! contents that were asked for. Where the second run leaves, in each line, no other bytes in these units than the first one, a walk of
//! any of its crash positions meets only nodes and leaves that the walks of the first one met, with the same expectation. It is known.
//!
//! What tries do not watch is the same for all images as long as the same units may vary. So what is remembered here ends with that set
//! of units. It does not end with a trie: what was judged stays judged.

use crashgen::complete::{ChoiceSet, Dependencies, LineChoices};
use crashgen::model::{Line, LineContent, LineKey, Lines};
use rustc_hash::{FxHashMap, FxHashSet};
use std::rc::Rc;

/// Number of a set of contents.
type SetId = u32;
/// Number of some units of a line.
type UnitsId = u32;

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
    fn line_at_start(&self, key: LineKey) -> LineAtStart<'_>;
}

impl StartLines for Lines {
    fn line_at_start(&self, key: LineKey) -> LineAtStart<'_> {
        self.find(key).map_or(LineAtStart::Nothing, LineAtStart::Line)
    }
}

/// The states over which runs were explored, by what a run did and what was expected.
#[derive(Default)]
pub struct ExploredStarts {
    known: FxHashMap<u128, Vec<StartsOfRun>>,
    sets: Sets,
    /// What `known` takes, about.
    bytes: usize,
}

/// The states over which some runs were explored that did the same and depended on the same units.
#[derive(Default)]
struct StartsOfRun {
    dependencies: Vec<UnitsId>,
    /// Of each run: what each of these units might hold.
    runs: FxHashSet<Box<[SetId]>>,
}

/// What lines might hold at the start of some run, numbered.
#[derive(Default)]
struct Sets {
    contents: FxHashMap<LineContent, u32>,
    /// Each a sorted list of numbers of contents.
    numbers: FxHashMap<Rc<[u32]>, SetId>,
    by_number: Vec<Rc<[u32]>>,
    /// By line, with a bit for each unit.
    ids: FxHashMap<(LineKey, u8), UnitsId>,
    by_id: Vec<UnitsOfLine>,
    /// Counts searches and additions: what was asked for in the current one is known.
    searches: u64,
    bytes: usize,
}

/// Some units of a line, and what they might hold when that was last asked for: thousands of lines are the same in most runs.
struct UnitsOfLine {
    line: LineKey,
    units: u8,
    latest: Option<Rc<KnownContents>>,
    /// The search in which it was asked.
    search: u64,
    /// The line's version then, if the line may be the same in other runs.
    version: Option<u64>,
    /// How many sets there were then.
    set_count: usize,
}

/// What a line may hold at the start of the run that is asked for.
struct KnownContents {
    contents: Vec<u32>,
    /// Of exactly these contents, if some run started with them.
    set: Option<SetId>,
}

impl ExploredStarts {
    /// Whether a run that did the same was explored over all states of these lines.
    pub fn is_known(&mut self, run: u128, lines: &impl StartLines) -> bool {
        self.find(run, lines).is_some()
    }

    /// What the exploration of such a run depended on, if one was explored.
    pub fn dependencies(&mut self, run: u128, lines: &impl StartLines) -> Option<Dependencies> {
        let ids = self.find(run, lines)?.dependencies.clone();
        let mut dependencies = Dependencies::default();
        dependencies
            .join(ids.iter().map(|place| &self.sets.by_id[*place as usize]).map(|place| (place.line, place.units)));
        Some(dependencies)
    }

    fn find(&mut self, run: u128, lines: &impl StartLines) -> Option<&StartsOfRun> {
        self.sets.searches += 1;
        let sets = &mut self.sets;
        let mut starts = self.known.get(&run)?.iter();
        starts.find(|start| start.has(lines, sets))
    }

    /// Such a run was explored over what these lines may hold.
    pub fn add(&mut self, run: u128, lines: &Lines, dependencies: &Dependencies) {
        let mut dependencies: Vec<UnitsId> = dependencies.lines().map(|units| self.sets.id_of(units)).collect();
        dependencies.sort_unstable();
        self.sets.searches += 1;
        let sets: Box<[SetId]> = dependencies.iter().map(|units| self.sets.number(*units, lines)).collect();
        let starts = self.known.entry(run).or_default();
        let place = starts.iter().position(|start| start.dependencies == dependencies).unwrap_or_else(|| {
            self.bytes += dependencies.len() * size_of::<UnitsId>()
                + size_of::<(u128, Vec<StartsOfRun>)>()
                + size_of::<StartsOfRun>();
            starts.push(StartsOfRun { dependencies, ..StartsOfRun::default() });
            starts.len() - 1
        });
        let bytes = size_of_val(&*sets) + size_of::<Box<[SetId]>>();
        if starts[place].runs.insert(sets) {
            self.bytes += bytes;
        }
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.sets.bytes
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Sets {
    fn id_of(&mut self, (line, units): (LineKey, u8)) -> UnitsId {
        *self.ids.entry((line, units)).or_insert_with(|| {
            self.bytes += size_of::<((LineKey, u8), UnitsId)>()
                + size_of::<UnitsOfLine>()
                + size_of::<KnownContents>()
                + RC_COUNTS_BYTES;
            self.by_id.push(UnitsOfLine { line, units, latest: None, search: 0, version: None, set_count: 0 });
            self.by_id.len() as UnitsId - 1
        })
    }

    /// What the line may hold; none: something that no run started with.
    fn latest(&mut self, place: UnitsId, lines: &impl StartLines) -> Option<Rc<KnownContents>> {
        let place = &mut self.by_id[place as usize];
        if place.search == self.searches {
            return place.latest.clone();
        }
        place.search = self.searches;
        let line_at_start = lines.line_at_start(place.line);
        let version = match line_at_start {
            LineAtStart::Line(line) => Some(line.version()),
            LineAtStart::Nothing | LineAtStart::Remaining(..) => None,
        };
        let is_a_set = place.latest.as_ref().is_some_and(|latest| latest.set.is_some());
        if version.is_some() && place.version == version && (is_a_set || place.set_count == self.by_number.len()) {
            return place.latest.clone();
        }
        let number = |content: &LineContent| self.contents.get(content).copied();
        let contents: Option<Vec<u32>> = contents(line_at_start, place.units).iter().map(number).collect();
        let latest = contents.map(sorted).map(|contents| {
            let set = self.numbers.get(&*contents).copied();
            Rc::new(KnownContents { contents, set })
        });
        let bytes = |latest: &Option<Rc<KnownContents>>| {
            latest.as_ref().map_or(0, |latest| latest.contents.len() * size_of::<u32>())
        };
        self.bytes = self.bytes + bytes(&latest) - bytes(&place.latest);
        (place.latest, place.version, place.set_count) = (latest.clone(), version, self.by_number.len());
        latest
    }

    /// The number of what the line may hold: a new one, if no run started with that.
    fn number(&mut self, place: UnitsId, lines: &Lines) -> SetId {
        if let Some(known) = self.latest(place, lines).and_then(|latest| latest.set) {
            return known;
        }
        let UnitsOfLine { line, units, .. } = self.by_id[place as usize];
        let known = self.contents.len();
        let number = |content| {
            let next = self.contents.len() as u32;
            *self.contents.entry(content).or_insert(next)
        };
        let numbers = sorted(contents(lines.line_at_start(line), units).into_iter().map(number).collect());
        self.bytes += (self.contents.len() - known) * size_of::<(LineContent, u32)>();
        let (set, next): (Rc<[u32]>, SetId) = (numbers.into(), self.by_number.len() as SetId);
        self.bytes += size_of_val(&*set) + RC_COUNTS_BYTES + size_of::<(Rc<[u32]>, SetId)>() + size_of::<Rc<[u32]>>();
        self.by_number.push(set.clone());
        self.numbers.insert(set, next);
        next
    }
}

impl StartsOfRun {
    /// Whether each line may only hold what it might have held at the start of one of the runs.
    fn has(&self, lines: &impl StartLines, sets: &mut Sets) -> bool {
        let latest = self
            .dependencies
            .iter()
            .map(|place| sets.latest(*place, lines))
            .collect::<Option<Vec<Rc<KnownContents>>>>();
        let Some(latest) = latest else { return false };
        let same: Option<Box<[SetId]>> = latest.iter().map(|latest| latest.set).collect();
        if same.is_some_and(|same| self.runs.contains(&same)) {
            return true;
        }
        let is_part = |(latest, known): (&Rc<KnownContents>, &SetId)| {
            let all = &sets.by_number[*known as usize];
            latest.set == Some(*known) || latest.contents.iter().all(|content| all.binary_search(content).is_ok())
        };
        self.runs.iter().any(|run| latest.iter().zip(run.iter()).all(is_part))
    }
}

/// What the line may hold in these units, with zeros elsewhere. A content may be there twice, where choices differ elsewhere only.
fn contents(line: LineAtStart, units: u8) -> Vec<LineContent> {
    let part_of = |content: &LineContent| {
        let mut part = [0; size_of::<LineContent>()];
        for unit in (0..8).filter(|unit| units >> unit & 1 == 1) {
            part[unit * 8..][..8].copy_from_slice(&content[unit * 8..][..8]);
        }
        part
    };
    match line {
        LineAtStart::Line(line) => line.bases().map(part_of).collect(),
        LineAtStart::Remaining(choices, set) => set.iter().map(|member| part_of(choices.content(*member))).collect(),
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
        let mut starts = ExploredStarts::default();
        let mut dependencies = Dependencies::default();
        dependencies.add(LineKey { file: FILE, number: 0 }, 1, None, &Model::new(&Px86, Vec::new()));
        starts.add(RUN, &left(&[(1, 1), (2, 2)]), &dependencies);
        let mut is_known = |run: u128, pairs: &[(u8, u8)]| starts.is_known(run, &left(pairs));
        assert!(is_known(RUN, &[(1, 1), (2, 2)]));
        assert!(is_known(RUN, &[(2, 9)]), "nobody dependencies at the second unit");
        assert!(!is_known(RUN, &[(1, 1), (3, 2)]));
        assert!(!is_known(RUN + 1, &[(1, 1)]), "another run");
    }

    #[test]
    fn units_of_a_line_count_together() {
        let mut starts = ExploredStarts::default();
        let mut dependencies = Dependencies::default();
        dependencies.join([(LineKey { file: FILE, number: 0 }, 3)].into_iter());
        starts.add(RUN, &left(&[(1, 1), (2, 2)]), &dependencies);
        assert!(starts.is_known(RUN, &left(&[(1, 1)])));
        assert!(!starts.is_known(RUN, &left(&[(1, 2)])), "each value was there, but not the pair");
    }

    #[test]
    fn a_line_is_asked_again_when_it_is_another_one_or_more_is_known() {
        let (mut starts, mut dependencies) = (ExploredStarts::default(), Dependencies::default());
        dependencies.join([(LineKey { file: FILE, number: 0 }, 1)].into_iter());
        let [one, other, third] = [1, 2, 3].map(|value| left(&[(value, value)]));
        starts.add(RUN, &one, &dependencies);
        assert!(!starts.is_known(RUN, &other));
        assert!(starts.is_known(RUN, &one));
        assert!(!starts.is_known(RUN, &other));
        starts.add(RUN + 1, &other, &dependencies);
        assert!(starts.is_known(RUN + 1, &other) && !starts.is_known(RUN, &other));
        starts.add(RUN, &other, &dependencies);
        assert!([&one, &other].iter().all(|lines| starts.is_known(RUN, *lines)));
        assert!(!starts.is_known(RUN, &third));
    }
}
