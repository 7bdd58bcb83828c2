// SPDX-License-Identifier: Apache-2.0
//! What holds of every persistency model, and two that are no entries of the table: made in this file, of what the crate shows to all.

use crashgen::complete::{Bounds, CrashPosition, Recoveries, Run, Search, UnitKey};
use crashgen::image::CrashImage;
use crashgen::litmus::Litmus;
use crashgen::model::{Choice, Floors, LineId, LineStore, Model, PersistencyModel, Px86, Until, View, models};
use crashgen::strategy::{Asked, Exhaustive, Scope, Strategy};
use crashgen::trace::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushKind, LINE_BYTES, OperationKind, SiteId, StoreKind, ThreadId,
    UNIT_BYTES,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

/// A memory whose lines are written as a whole: as Px86, but no store to one line is torn.
struct WholeLines;

impl PersistencyModel for WholeLines {
    fn name(&self) -> &'static str {
        "whole-lines"
    }

    fn survives(&self) -> &'static str {
        "as px86, with stores that are never torn"
    }

    fn can_tear(&self) -> bool {
        false
    }

    fn before_store(&self, kind: StoreKind, thread: ThreadId, floors: &mut Floors) {
        Px86.before_store(kind, thread, floors);
    }

    fn stored(&self, kind: StoreKind, store: LineStore, floors: &mut Floors) {
        Px86.stored(kind, store, floors);
    }

    fn flush(&self, kind: FlushKind, thread: ThreadId, line: LineId, floors: &mut Floors) {
        Px86.flush(kind, thread, line, floors);
    }

    fn fence(&self, kind: FenceKind, thread: ThreadId, floors: &mut Floors) {
        Px86.fence(kind, thread, floors);
    }
}

/// Every flush is Arm's `dc cvap`, and a fence its `dsb`: nothing else guarantees anything, an atomic instruction neither.
struct DcCvap;

impl PersistencyModel for DcCvap {
    fn name(&self) -> &'static str {
        "dc-cvap"
    }

    fn survives(&self) -> &'static str {
        "what was cleaned to the point of persistence before a dsb"
    }

    fn is_floating(&self, _kind: StoreKind) -> bool {
        false // stores to one line persist in order, whatever instruction makes them
    }

    fn flush(&self, _kind: FlushKind, thread: ThreadId, line: LineId, floors: &mut Floors) {
        floors.promise(line, Until::FenceOf(thread));
    }

    fn fence(&self, kind: FenceKind, thread: ThreadId, floors: &mut Floors) {
        if kind != FenceKind::Locked {
            floors.keep(Until::FenceOf(thread));
        }
    }
}

fn every_model() -> impl Iterator<Item = &'static dyn PersistencyModel> {
    models::ALL.iter().copied().chain([&WholeLines as &dyn PersistencyModel, &DcCvap])
}

/// The states that the steps of a litmus test leave.
fn states(model: &'static dyn PersistencyModel, lines: &str, steps: &str) -> BTreeSet<String> {
    let steps: String = steps.split("; ").map(|step| format!("T0: {step}\n")).collect();
    let test = Litmus::parse(&format!("name: n\nlines: {lines}\n{steps}")).expect("a litmus test");
    test.states(model).expect("small").iter().map(|state| test.show(state)).collect()
}

fn set(states: &[&str]) -> BTreeSet<String> {
    states.iter().map(|state| (*state).to_owned()).collect()
}

#[test]
fn a_model_of_whole_lines_tears_no_store() {
    for store in ["wide a b = 1 2", "nt a = 1; wide a b = 1 2"] {
        assert!(states(&Px86, "a b", store).contains("a=0 b=2"), "{store}");
        assert!(!states(&WholeLines, "a b", store).contains("a=0 b=2"), "{store}");
    }
    assert_eq!(states(&WholeLines, "a b", "wide a b = 1 2"), set(&["a=0 b=0", "a=1 b=2"]));
    let persisted = "wide a b = 1 2; clwb a; sfence; a = 3";
    assert_eq!(states(&WholeLines, "a b", persisted), set(&["a=0 b=0", "a=1 b=2", "a=3 b=2"]));
}

#[test]
fn a_model_of_arm_waits_for_its_barrier_alone() {
    let (lost, flushed) = ("x=0 y=1".to_owned(), "x = 1; clflush x; y = 1");
    assert!(!states(&Px86, "x | y", flushed).contains(&lost));
    assert!(states(&DcCvap, "x | y", flushed).contains(&lost), "a later store does not wait");
    let locked = "x = 1; clwb x; rmw y = 1";
    assert!(!states(&Px86, "x | y", locked).contains(&lost));
    assert!(states(&DcCvap, "x | y", locked).contains(&lost), "an atomic instruction is no barrier");
    assert!(!states(&DcCvap, "x | y", "x = 1; clwb x; sfence; y = 1").contains(&lost));
    let plain = "nt x = 1; x = 2";
    assert!(states(&Px86, "x", plain).contains("x=2"));
    assert_eq!(states(&DcCvap, "x", plain), set(&["x=0", "x=1", "x=2"]));
}

#[test]
fn the_example_for_contributors_is_the_one_of_this_file() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../CONTRIBUTING.md")).expect("a page");
    let lines: Vec<&str> = page.lines().skip_while(|line| *line != "    struct DcCvap;").collect();
    assert!(!lines.is_empty(), "the page has no example");
    let example = lines.iter().take_while(|line| line.is_empty() || line.starts_with("    "));
    let example: String = example.map(|line| line.strip_prefix("    ").unwrap_or("").to_owned() + "\n").collect();
    assert!(include_str!("persistency_models.rs").contains(&example), "the page has\n{example}");
}

#[test]
fn the_table_has_each_name_once_and_finds_it() {
    let names: BTreeSet<&str> = models::ALL.iter().map(|model| model.name()).collect();
    assert_eq!(names.len(), models::ALL.len());
    for name in names {
        assert_eq!(models::find(name).expect("in the table").name(), name);
        assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{name}");
    }
    assert!(models::ALL.iter().all(|model| !model.survives().is_empty()));
    let refusal = models::find("arm").expect_err("no such model").to_string();
    assert!(models::ALL.iter().all(|model| refusal.contains(model.name())) && refusal.contains("\"arm\""), "{refusal}");
}

const FILE: FileId = FileId(0);
const LINES: u64 = 3;
const TRACES: u64 = 24;
/// Positions with more states are not enumerated.
const STATE_LIMIT: u128 = 400;

/// A file, then stores, flushes, fences, kernel writes and returns of two threads; a function of the seed.
fn random_trace(seed: u64) -> Vec<Event> {
    let mut random = Pcg64Mcg::new(u128::from(seed) * 2 + 1);
    let mut below = |bound: u64| random.next_u64() % bound;
    let done = |effect: FileEffect| EventKind::FileEnd { effect: effect.into(), is_done: true };
    let create = FileEffect::Create { file: FILE, path: "heap".into() };
    let truncate = FileEffect::Truncate { file: FILE, bytes: LINES * LINE_BYTES };
    let mut kinds = vec![(1, done(create)), (1, done(truncate))];
    for number in 0..20u8 {
        let offset = below(LINES) * LINE_BYTES + below(6) * UNIT_BYTES;
        let bytes = || vec![number + 1; 8].into();
        let kind = match below(16) {
            0..6 => EventKind::Store { kind: StoreKind::Plain, file: FILE, offset, bytes: bytes() },
            6 => EventKind::Store { kind: StoreKind::Plain, file: FILE, offset, bytes: vec![number + 1; 20].into() },
            7 => EventKind::Store {
                kind: StoreKind::NonTemporal,
                file: FILE,
                offset,
                bytes: vec![number + 1; 16].into(),
            },
            8 => EventKind::Store { kind: StoreKind::Rmw, file: FILE, offset, bytes: bytes() },
            9 => EventKind::Flush { kind: FlushKind::Clflush, file: FILE, offset },
            10 | 11 => EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset },
            12 => EventKind::Fence { kind: FenceKind::Sfence },
            13 => EventKind::Fence { kind: FenceKind::Locked },
            14 => done(FileEffect::Write { file: FILE, offset, bytes: bytes() }),
            _ => EventKind::OperationReturn { kind: OperationKind::Free, index: 0, status: 0 },
        };
        kinds.push((1 + below(2) as u16, kind));
    }
    let event = |(thread, kind)| Event { thread: ThreadId { process: 1, thread }, site: SiteId(0), kind };
    kinds.into_iter().map(event).collect()
}

/// What some states of a position leave, as the lines' bytes.
fn images(model: &Model, view: &View, scope: Scope) -> BTreeSet<Vec<u8>> {
    let mut images = BTreeSet::new();
    let _ = Exhaustive.states(&Asked { scope, ..Asked::all(view) }, &mut |state| {
        let choices: BTreeMap<LineId, Choice> =
            view.lines.iter().map(|line| line.id).zip(state.iter().copied()).collect();
        let content = |id: LineId| model.line(id).content(choices.get(&id).copied().unwrap_or_default()).0;
        images.insert(
            (0..LINES)
                .flat_map(|number| {
                    let line = model.find(crashgen::model::LineKey { file: FILE, number });
                    line.map_or([0; LINE_BYTES as usize], content)
                })
                .collect(),
        );
        ControlFlow::Continue(())
    });
    images
}

/// Strategies rely on it: what they ran at one position they do not run at the next.
#[test]
fn a_state_that_is_not_new_was_there_at_the_position_before() {
    for persistency in every_model() {
        let mut count = 0;
        for seed in 0..TRACES {
            let mut model = Model::new(persistency, Vec::new());
            let mut before = BTreeSet::new();
            for (number, event) in random_trace(seed).iter().enumerate() {
                model.step(number as u32, event);
                let view = model.view();
                if view.state_count().is_none_or(|states| states > STATE_LIMIT) {
                    break;
                }
                let all = images(&model, &view, Scope::All);
                let born = if view.has_new_store { images(&model, &view, Scope::Born) } else { BTreeSet::new() };
                let unknown = all.iter().filter(|image| !born.contains(*image) && !before.contains(*image)).count();
                assert_eq!(unknown, 0, "{persistency:?}, trace {seed}, after event {number}");
                count += all.len() - born.len();
                before = all;
            }
        }
        assert!(count > 100, "{persistency:?}: {count} states were not new");
    }
}

/// Loads units one after the other, the next one by what it saw.
struct Recovery {
    varying: BTreeSet<UnitKey>,
}

impl Recovery {
    fn run_on(&self, image: &CrashImage) -> Run {
        let mut run = Run::default();
        let mut number = 0;
        for _ in 0..5 {
            let unit = UnitKey { file: FILE, number };
            run.loads.extend(self.varying.contains(&unit).then_some(unit));
            let mut bytes = [0; UNIT_BYTES as usize];
            image.read("heap", number * UNIT_BYTES, &mut bytes);
            run.outcome = run.outcome * 31 + u32::from(bytes[0]);
            number = (number * 5 + u64::from(bytes[0]) + 3) % (LINES * LINE_BYTES / UNIT_BYTES);
        }
        run
    }
}

impl Recoveries for Recovery {
    type Stop = ();

    fn watch(&mut self, varying: &[UnitKey]) -> Result<(), ()> {
        self.varying = varying.iter().copied().collect();
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, ()> {
        Ok(self.run_on(image))
    }
}

#[test]
fn complete_finds_what_exhaustive_finds_under_every_model() {
    for persistency in every_model() {
        let mut outcomes = 0;
        for seed in 0..TRACES {
            let events = random_trace(seed);
            let mut model = Model::new(persistency, Vec::new());
            let mut image = CrashImage::new("");
            let mut recovery = Recovery { varying: BTreeSet::new() };
            let mut search = Search::new(Bounds { leaves: 1 << 12, bytes: 1 << 30, seed }, Rc::default());
            for (number, event) in events.iter().enumerate() {
                model.step(number as u32, event);
                let view = model.view();
                image.follow(&mut model, view.are_all_new);
                if view.state_count().is_none_or(|states| states > STATE_LIMIT) {
                    break;
                }
                let mut expected = BTreeSet::new();
                let _ = Exhaustive.states(&Asked::all(&view), &mut |state| {
                    image.go_to(&model, &view, state);
                    expected.insert(recovery.run_on(&image).outcome);
                    ControlFlow::Continue(())
                });
                let at = CrashPosition { model: &model, view: &view };
                search.step(number as u32 + 1, &at, &events, &mut recovery).expect("always runs");
                let (mut traversal, mut found) = (search.traversal(), BTreeSet::new());
                while let Some(held) = search.next(&mut traversal, &at, &mut image, &mut recovery).expect("always runs")
                {
                    found.insert(search.leaf(held.leaf).outcome);
                }
                assert_eq!(found, expected, "{persistency:?}, trace {seed}, after event {number}");
                outcomes += found.len();
            }
            assert!(search.doubts.is_empty(), "{persistency:?}, trace {seed}: {:?}", search.doubts);
        }
        assert!(outcomes > 300, "{persistency:?}: {outcomes}");
    }
}
