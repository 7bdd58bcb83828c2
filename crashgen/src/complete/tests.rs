// SPDX-License-Identifier: Apache-2.0
//! `complete` against `exhaustive`: random traces, random recovery programs, the same set of (crash position, outcome).

use super::scanned::Scanned;
use super::*;
use crate::model::{Choice, Model, Px86, View, models};
use crate::strategy::{Asked, Exhaustive, Strategy};
use crate::trace::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushKind, LINE_BYTES, LineKey, OperationKind, SiteId, StoreKind,
    ThreadId, UNIT_BYTES,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const TRACES: u64 = 2000;
const EVENTS: usize = 26;
const LINES: u64 = 4;
/// A position with more is left out, and with it the rest of its trace.
const STATE_LIMIT: u128 = 256;
const PATHS: [&str; 2] = ["heap", "log"];
const BOUNDS: Bounds = Bounds { leaves: 1 << 20, bytes: usize::MAX, seed: 7 };

struct Random(Pcg64Mcg);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::new(u128::from(seed) << 1 | 1))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }
}

fn event(kind: EventKind) -> Event {
    Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind }
}

fn done(effect: FileEffect) -> Event {
    event(EventKind::FileEnd { effect: effect.into(), is_done: true })
}

fn store(kind: StoreKind, file: u32, offset: u64, bytes: &[u8]) -> Event {
    event(EventKind::Store { kind, file: FileId(file), offset, bytes: bytes.into() })
}

fn created(file: u32) -> Vec<Event> {
    let (path, file) = (PATHS[file as usize % 2].into(), FileId(file));
    let truncate = FileEffect::Truncate { file, bytes: LINES * LINE_BYTES };
    [FileEffect::Create { file, path }, truncate].map(done).into()
}

/// Few lines, few values: what was there before is often there again.
fn random_event(random: &mut Random, next_file: &mut u32) -> Vec<Event> {
    let file = random.below(u64::from((*next_file).min(2))) as u32;
    let line = random.below(LINES);
    let kinds = [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush];
    let value = random.below(3) as u8;
    let unit = line * LINE_BYTES + random.below(4) * UNIT_BYTES;
    match random.below(40) {
        0..14 => vec![store(StoreKind::Plain, file, unit, &[value; 8])],
        14..16 => vec![store(StoreKind::Plain, file, unit + random.below(8), &[value; 4])],
        16..18 => vec![store(StoreKind::Plain, file, unit, &[value; 24])],
        18..20 => vec![store(StoreKind::NonTemporal, file, unit, &[value; 8])],
        20 => vec![store(StoreKind::Rmw, file, unit, &[value; 8])],
        21..29 => {
            let kind = kinds[random.below(3) as usize];
            vec![event(EventKind::Flush { kind, file: FileId(file), offset: unit })]
        }
        29..33 => vec![event(EventKind::Fence { kind: FenceKind::Sfence })],
        33 => vec![event(EventKind::OperationReturn { kind: OperationKind::Free, index: 0, status: 0 })],
        34 => {
            let sync = FileEffect::Sync { file: FileId(file), offset: 0, bytes: u64::MAX };
            vec![event(EventKind::FileBegin { effect: sync.clone().into() }), done(sync)]
        }
        35 => vec![done(FileEffect::Punch { file: FileId(file), offset: unit, bytes: 20 })],
        36 => vec![done(FileEffect::Write { file: FileId(file), offset: unit, bytes: [value; 8].as_slice().into() })],
        37 => {
            let bytes = (1 + random.below(LINES)) * LINE_BYTES;
            vec![done(FileEffect::Truncate { file: FileId(file), bytes })]
        }
        38 => vec![done(FileEffect::Rename { from: PATHS[0].into(), to: PATHS[1].into() })],
        _ => {
            let unlink = done(FileEffect::Unlink { path: PATHS[*next_file as usize % 2].into() });
            let events = [vec![unlink], created(*next_file)].concat();
            *next_file += 1;
            events
        }
    }
}

fn random_trace(seed: u64) -> Vec<Event> {
    let mut random = Random::new(seed);
    let mut next_file = 1;
    let mut events = created(0);
    while events.len() < EVENTS {
        events.extend(random_event(&mut random, &mut next_file));
    }
    events
}

/// A recovery program: what it does next is a function of its number and of everything it has read.
struct Simulated {
    program: u64,
    varying: FxHashSet<UnitKey>,
    runs: u64,
}

impl Simulated {
    fn new(program: u64) -> Self {
        Self { program, varying: FxHashSet::default(), runs: 0 }
    }

    /// Loads units, branches on them, stores to units, asks for sizes; its outcome tells a lot, or little.
    fn recover(&self, image: &CrashImage) -> Run {
        let mut stored: FxHashMap<UnitKey, u64> = FxHashMap::default();
        let mut run = Run::default();
        let mut seen = 0;
        for step in 0..3 + self.program % 8 {
            let next = xxh3_64_with_seed(&[step.to_le_bytes(), u64::to_le_bytes(seen)].concat(), self.program);
            let path = PATHS[usize::from(next >> 40 & 7 == 0)];
            let file = image.files().iter().find(|(_, file)| &*file.path == path);
            let number = (next % (LINES * LINE_BYTES / UNIT_BYTES)) & !4;
            let key = file.map(|(file, _)| UnitKey { file: *file, number });
            let value = match (next >> 32 & 15, key) {
                (0, _) | (_, None) => file.map_or(1, |(_, file)| file.bytes),
                (1..4, Some(key)) => {
                    stored.insert(key, seen & 3);
                    continue;
                }
                (_, Some(key)) => stored.get(&key).copied().unwrap_or_else(|| {
                    run.loads.extend(self.varying.contains(&key).then_some(key));
                    let mut bytes = [0; 8];
                    image.read(path, number * UNIT_BYTES, &mut bytes);
                    u64::from_le_bytes(bytes)
                }),
            };
            seen = xxh3_64_with_seed(&value.to_le_bytes(), seen) & 0xffff;
        }
        run.outcome = if self.program % 3 == 0 { seen as u32 % 5 } else { seen as u32 };
        run
    }
}

impl Recoveries for Simulated {
    type Stop = ();

    fn watch(&mut self, varying: &[UnitKey]) -> Result<(), ()> {
        self.varying = varying.iter().copied().collect();
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, ()> {
        self.runs += 1;
        Ok(self.recover(image))
    }
}

/// A trace, stepped position by position, with an image of its own for each way to explore it.
struct Stepper {
    events: Vec<Event>,
    model: Model,
    image: CrashImage,
    position: u32,
}

impl Stepper {
    fn new(events: Vec<Event>) -> Self {
        Self { events, model: Model::new(&Px86, Vec::new()), image: CrashImage::new(""), position: 0 }
    }

    fn step(&mut self) -> Option<View> {
        let event = self.events.get(self.position as usize)?;
        self.model.step(self.position, event);
        self.position += 1;
        let view = self.model.view();
        self.image.follow(&mut self.model, view.are_all_new);
        Some(view)
    }

    fn exhaustive(&mut self, view: &View, target: &Simulated) -> BTreeSet<u32> {
        let mut outcomes = BTreeSet::new();
        let _ = Exhaustive.states(&Asked::all(view), &mut |state| {
            self.image.go_to(&self.model, view, state);
            outcomes.insert(target.recover(&self.image).outcome);
            ControlFlow::Continue(())
        });
        outcomes
    }

    fn complete(&mut self, view: &View, search: &mut Search, target: &mut Simulated) -> Vec<(LeafStates, u32)> {
        let at = CrashPosition { model: &self.model, view };
        let mut traversal = search.traversal();
        let mut held = Vec::new();
        while let Some(next) = search.next(&mut traversal, &at, &mut self.image, target).expect("always runs") {
            let outcome = search.leaf(next.leaf).outcome;
            held.push((next, outcome));
        }
        held
    }
}

/// One trace explored completely, twice: with a traversal of each position, and only where the search asks for one.
struct Compared {
    runs: u64,
    states: u128,
}

fn compare(seed: u64) -> Compared {
    let mut stepper = Stepper::new(random_trace(seed));
    let mut eager = Simulated::new(seed);
    let mut lazy = Simulated::new(seed);
    let mut searches = [Search::new(BOUNDS, Rc::default()), Search::new(BOUNDS, Rc::default())];
    let mut known = BTreeSet::new();
    let mut states = 0;
    while let Some(view) = stepper.step() {
        let Some(count) = view.state_count().filter(|count| *count <= STATE_LIMIT) else { break };
        states += count;
        let expected = stepper.exhaustive(&view, &eager);
        let position = stepper.position;
        let what = format!("trace {seed}, position {position}");
        let at = CrashPosition { model: &stepper.model, view: &view };
        searches[0].step(position, &at, &stepper.events, &mut eager).expect("always runs");
        let is_due = searches[1].step(position, &at, &stepper.events, &mut lazy).expect("always runs");
        let found = stepper.complete(&view, &mut searches[0], &mut eager);
        assert_eq!(found.iter().map(|(_, outcome)| *outcome).collect::<BTreeSet<_>>(), expected, "{what}");
        assert_eq!(searches[0].gap, None, "{what}");
        check_products(&mut searches[0], &stepper, &view, &found, count);
        if is_due {
            known = stepper.complete(&view, &mut searches[1], &mut lazy).into_iter().map(|(_, is)| is).collect();
        }
        assert!(known.is_superset(&expected), "{what}: no traversal, but an outcome that the last one did not find");
    }
    for search in &searches {
        assert!(search.doubts.is_empty(), "trace {seed}: {:?}", search.doubts);
    }
    assert!(lazy.runs <= eager.runs, "trace {seed}");
    Compared { runs: eager.runs, states }
}

/// The leaves' products are all states of the position, each once (states of equal bytes counted once).
fn check_products(search: &mut Search, stepper: &Stepper, view: &View, found: &[(LeafStates, u32)], count: u128) {
    let mut distinct = 1;
    let mut sizes = FxHashMap::default();
    for open in view.lines.iter() {
        let size = search.tables.of(&stepper.model, open.id).all.len() as u128;
        distinct *= size;
        sizes.insert(open.id, size);
    }
    let product = |held: &LeafStates| {
        let narrowed: u128 = held.sets.values().map(|set| set.len() as u128).product();
        let narrowed_of: u128 = held.sets.keys().map(|line| sizes[line]).product();
        distinct / narrowed_of * narrowed
    };
    assert_eq!(found.iter().map(|(held, _)| product(held)).sum::<u128>(), distinct);
    assert!(distinct <= count);
}

/// Later generations remember what recoveries loaded over many windows, as long as what is stored meanwhile varies in one of them.
#[test]
fn every_store_varies_in_some_window_under_every_model() {
    let large = |file| store(StoreKind::Plain, file, 0, &[1; 5 * 8192]);
    let small = |offset| store(StoreKind::Plain, 0, offset, &[1; 8]);
    let events = [created(0), vec![large(0), small(1 << 20), large(1), small(2 << 20), small(3 << 20)]].concat();
    for persistency in models::ALL {
        let mut model = Model::new(*persistency, Vec::new());
        let (mut windows, mut last_position): (Vec<Window>, u32) = (Vec::new(), 0);
        for (number, event) in events.iter().enumerate() {
            model.step(number as u32, event);
            let position = number as u32 + 1;
            if position > last_position {
                windows.push(Window::starting_at(position, &model, &model.view(), &events));
                last_position = windows[windows.len() - 1].last_position;
            }
        }
        assert!(windows.len() > 3, "they end at a limit");
        let varying: FxHashSet<UnitKey> = windows.iter().flat_map(|window| window.varying.iter().copied()).collect();
        let stored = |offset: u64| UnitKey { file: FileId(0), number: offset / UNIT_BYTES };
        assert!(
            [0, 1 << 20, 2 << 20, 3 << 20].iter().all(|offset| varying.contains(&stored(*offset))),
            "{persistency:?}"
        );
    }
}

#[test]
fn complete_finds_what_exhaustive_finds() {
    let (mut runs, mut states) = (0, 0);
    for seed in 0..TRACES {
        let compared = compare(seed);
        runs += compared.runs;
        states += compared.states;
    }
    assert!(states > 20 * u128::from(runs), "{states} states, {runs} runs: little was to be gained");
}

fn opened(events: &[Event]) -> (Stepper, View) {
    let mut stepper = Stepper::new([created(0), events.to_vec()].concat());
    let mut view = None;
    while let Some(next) = stepper.step() {
        view = Some(next);
    }
    (stepper, view.expect("events"))
}

fn choices_after(events: &[Event]) -> (usize, usize) {
    let (stepper, view) = opened(events);
    let choices = Tables::default().of(&stepper.model, view.lines[0].id);
    (view.lines[0].choice_count() as usize, choices.all.len())
}

#[test]
fn choices_of_the_same_bytes_are_one() {
    let toggles: Vec<Event> = (0..9).map(|number| store(StoreKind::Plain, 0, 0, &[number % 2; 8])).collect();
    assert_eq!(choices_after(&toggles), (10, 2));
}

#[test]
fn a_set_of_torn_choices_is_no_interval() {
    let (stepper, view) = opened(&[store(StoreKind::Plain, 0, 0, &[1; 16]), store(StoreKind::Plain, 0, 0, &[2; 8])]);
    let choices = Tables::default().of(&stepper.model, view.lines[0].id);
    let groups = choices.groups(&choices.all, 1);
    let numbers = |set: &ChoiceSet| set.iter().map(|member| choices.choice(*member).ordered).collect::<Vec<_>>();
    assert_eq!(groups.iter().map(|(_, set)| numbers(set)).collect::<Vec<_>>(), [vec![4, 3, 2], vec![1, 0]]);
    let first = choices.groups(&choices.all, 0);
    assert_eq!(first.iter().map(|(_, set)| numbers(set)).collect::<Vec<_>>(), [vec![4], vec![3, 1], vec![2, 0]]);
}

#[test]
fn contents_are_those_of_the_choices() {
    for seed in 0..300 {
        let mut stepper = Stepper::new(random_trace(seed));
        while let Some(view) = stepper.step() {
            for open in view.lines.iter().filter(|open| open.choice_count() < 4096) {
                let line = stepper.model.line(open.id);
                let contents = line.contents(4096).expect("not many");
                let expected: Vec<_> = (0..open.choice_count()).map(|number| open.choice(number)).collect();
                assert_eq!(contents.iter().map(|(choice, _)| *choice).collect::<Vec<Choice>>(), expected);
                assert!(contents.iter().all(|(choice, content)| line.content(*choice).0 == *content));
            }
        }
    }
}

/// What a run read of a line is held by all its choices, or by some, as a look at each of them says, whatever was asked before.
#[test]
fn scanned_lines_are_held_as_a_look_at_each_choice_says() {
    let (mut held, mut lost) = (0, 0);
    for seed in 0..100 {
        let (mut stepper, mut random) = (Stepper::new(random_trace(seed)), Random::new(seed));
        let (mut scanned, mut tables) = (Scanned::default(), Tables::default());
        let mut read: Vec<Vec<(UnitKey, u64)>> = Vec::new();
        while stepper.step().is_some() {
            let model = &stepper.model;
            let mut choices_of = |key| model.find(key).map(|line| tables.of(model, line));
            let value = |choices: &Option<Rc<LineChoices>>, member, unit: UnitKey| {
                choices.as_ref().map_or(0, |choices| choices.unit(member, unit.line_and_unit().1))
            };
            let key = LineKey { file: FileId(random.below(2) as u32), number: random.below(LINES) };
            let units = UnitKey::of_line(key).filter(|_| random.below(3) == 0);
            let now = choices_of(key);
            read.push(units.map(|unit| (unit, value(&now, 0, unit))).collect());
            read.retain(|units| !units.is_empty());
            let numbers = scanned.add(read.iter().flatten().copied().filter(|_| random.below(8) > 0));
            assert!(numbers.len() <= read.len());
            for units in &read {
                let [number] = scanned.add(units.iter().copied())[..] else { panic!("units of one line") };
                let key = units[0].0.line_and_unit().0;
                let choices = choices_of(key);
                let (line, found) = scanned.find(number, model);
                assert_eq!((line.key, found), (key, model.find(key)));
                assert_eq!(line.units.count_ones() as usize, units.len());
                let all = choices.as_ref().map_or_else(|| Rc::from([0]), |choices| choices.all.clone());
                for set in [None, Some(Rc::from(&all[..1])), Some(all.clone())] {
                    let is_held =
                        |member: &u32| units.iter().all(|(unit, read)| value(&choices, *member, *unit) == *read);
                    let expected = set.as_ref().unwrap_or(&all).iter().all(is_held);
                    let mut own = Tables::default();
                    assert_eq!(scanned.is_held(number, model, &mut own, set.as_ref()), expected, "seed {seed}");
                    *(if expected { &mut held } else { &mut lost }) += 1;
                }
            }
        }
    }
    assert!(held > 1000 && lost > 1000, "{held} {lost}");
}

/// A line with more choices than are told apart makes the position incomplete.
#[test]
fn too_many_choices_are_said() {
    let rewrites: Vec<Event> = (0..3).map(|value| store(StoreKind::NonTemporal, 0, 0, &[value; 64])).collect();
    let (mut stepper, view) = opened(&rewrites);
    let mut search = Search::new(BOUNDS, Rc::default());
    let mut target = Simulated::new(1);
    for program in 1.. {
        target = Simulated::new(program);
        search = Search::new(BOUNDS, Rc::default());
        let at = CrashPosition { model: &stepper.model, view: &view };
        search.step(stepper.position, &at, &stepper.events, &mut target).expect("always runs");
        if target.recover(&stepper.image).loads.first().is_some_and(|first| first.number < 8) {
            break;
        }
    }
    stepper.complete(&view, &mut search, &mut target);
    assert_eq!(search.gap, Some("a line with more than 65,536 choices"));
}

/// How many leaves a window of many states keeps at most, over some programs, and why not all.
fn bounded(bounds: Bounds) -> (usize, BTreeSet<&'static str>) {
    let stores: Vec<Event> =
        (0..20).map(|value| store(StoreKind::Plain, 0, value % 4 * 8, &[value as u8; 8])).collect();
    let explored = |program| {
        let (mut stepper, view) = opened(&stores);
        let (mut search, mut target) = (Search::new(bounds, Rc::default()), Simulated::new(program));
        let at = CrashPosition { model: &stepper.model, view: &view };
        search.step(stepper.position, &at, &stepper.events, &mut target).expect("always runs");
        let found = stepper.complete(&view, &mut search, &mut target);
        (found.len(), search.gap)
    };
    let all: Vec<_> = (0..20).map(explored).collect();
    (all.iter().map(|(leaves, _)| *leaves).max().unwrap_or(0), all.iter().filter_map(|(_, gap)| *gap).collect())
}

#[test]
fn too_many_leaves_are_said() {
    let (leaves, gaps) = bounded(Bounds { leaves: 2, ..BOUNDS });
    assert_eq!((leaves, gaps), (2, BTreeSet::from(["more leaves in a window than the limit"])));
}

#[test]
fn too_much_to_remember_is_said() {
    let (all, none) = bounded(BOUNDS);
    let (leaves, gaps) = bounded(Bounds { bytes: 500, ..BOUNDS });
    assert!(none.is_empty() && (1..all).contains(&leaves), "{leaves} of {all}");
    assert_eq!(gaps, BTreeSet::from(["more to remember in a window than the limit of memory"]));
}

/// Loads the last unit of each of the four lines.
struct FourLoads;

impl Recoveries for FourLoads {
    type Stop = ();

    fn watch(&mut self, _: &[UnitKey]) -> Result<(), ()> {
        Ok(())
    }

    fn run(&mut self, _: &mut CrashImage) -> Result<Run, ()> {
        let loads = (0..LINES).map(|line| UnitKey { file: FileId(0), number: line * 8 + 7 }).collect();
        Ok(Run { loads, ..Run::default() })
    }
}

/// Operations that leave 2^8 contents of one of the lines undecided until they end, the unit that is loaded last of all.
fn of_many_choices(operations: u64) -> Vec<Event> {
    let mut events = created(0);
    for number in 0..operations {
        let line = number % LINES * LINE_BYTES;
        let units = (0..8).map(|unit| store(StoreKind::NonTemporal, 0, line + unit * 8, &[number as u8 + 1; 8]));
        events.extend(units.chain([event(EventKind::Fence { kind: FenceKind::Sfence })]));
        events.push(event(EventKind::OperationReturn { kind: OperationKind::Free, index: 0, status: 0 }));
    }
    events
}

/// Why not all of some position was seen, and the most that was kept.
fn kept(operations: u64, bytes: usize) -> (Option<&'static str>, usize) {
    let mut stepper = Stepper::new(of_many_choices(operations));
    let mut search = Search::new(Bounds { bytes, ..BOUNDS }, Rc::default());
    let (mut gap, mut most) = (None, 0);
    while let Some(view) = stepper.step() {
        let at = CrashPosition { model: &stepper.model, view: &view };
        search.step(stepper.position, &at, &stepper.events, &mut FourLoads).expect("always runs");
        let mut traversal = search.traversal();
        while search.next(&mut traversal, &at, &mut stepper.image, &mut FourLoads).expect("always runs").is_some() {}
        gap = gap.or(search.gap);
        most = most.max(search.memory_bytes());
    }
    (gap, most)
}

#[test]
fn the_choices_of_lines_are_remembered_too() {
    let (gap, most) = kept(1, usize::MAX);
    assert_eq!(gap, None);
    assert!(most > (1 << 8) * LINE_BYTES as usize, "{most}");
    assert_eq!(kept(1, most / 2).0, Some("more to remember in a window than the limit of memory"));
}

#[test]
fn the_choices_of_lines_are_forgotten_with_their_window() {
    let (one, ten) = (kept(1, usize::MAX).1, kept(10, usize::MAX).1);
    assert!(ten < 2 * one, "{ten} bytes in ten windows, {one} in one");
}

/// A target that does something else in each run, or one whose loads are not all seen.
struct Untrue {
    inner: Simulated,
    is_blind: bool,
}

impl Recoveries for Untrue {
    type Stop = ();

    fn watch(&mut self, varying: &[UnitKey]) -> Result<(), ()> {
        self.inner.watch(varying)
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, ()> {
        if !self.is_blind {
            self.inner.program += 1;
        }
        let mut run = self.inner.run(image)?;
        if self.is_blind {
            run.loads.retain(|key| key.number % 2 == 0);
        }
        Ok(run)
    }
}

/// How many of the traces raise a doubt, and a text of one.
fn doubts(is_blind: bool) -> (usize, String) {
    let mut doubts = Vec::new();
    for seed in 0..100 {
        let mut stepper = Stepper::new(random_trace(seed));
        let mut search = Search::new(BOUNDS, Rc::default());
        let mut target = Untrue { inner: Simulated::new(seed | 1), is_blind };
        while let Some(view) = stepper.step() {
            let at = CrashPosition { model: &stepper.model, view: &view };
            search.step(stepper.position, &at, &stepper.events, &mut target).expect("always runs");
            let mut traversal = search.traversal();
            while search.next(&mut traversal, &at, &mut stepper.image, &mut target).expect("always runs").is_some() {}
        }
        doubts.extend(search.doubts.into_iter().next());
    }
    (doubts.len(), doubts.into_iter().next().unwrap_or_default())
}

#[test]
fn a_target_that_is_not_deterministic_is_noticed() {
    let (count, text) = doubts(false);
    assert!(count > 50, "{count} of 100");
    assert!(text.starts_with("recovery is not deterministic: after ") && text.contains(" at 0x"), "{text}");
}

#[test]
fn loads_that_are_not_seen_are_noticed() {
    let (count, _) = doubts(true);
    assert!(count > 5, "{count} of 100");
}
