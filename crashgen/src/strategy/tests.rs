// SPDX-License-Identifier: Apache-2.0
//! Strategies against the counts of the view.

use super::*;
use crate::model::{Choice, Model, Px86, View};
use crate::trace::{Event, EventKind, FenceKind, FileId, FlushKind, SiteId, StoreKind, ThreadId};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A position with torn, ordered and floating choices; the newest event is a 24-byte store.
fn view() -> View {
    let mut model = Model::new(&Px86, Vec::new());
    let plain = StoreKind::Plain;
    let stores = [(plain, 0, 8), (plain, 0, 8), (plain, 64, 32), (StoreKind::NonTemporal, 128, 16), (plain, 64, 24)];
    for (number, (kind, offset, bytes)) in stores.into_iter().enumerate() {
        let kind = EventKind::Store { kind, file: FileId(0), offset, bytes: vec![1; bytes].into() };
        model.step(number as u32, &Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind });
    }
    model.view()
}

/// With this seed, and so many samples.
fn asked(view: &View, scope: Scope, seed: u64, samples: u32) -> Asked<'_> {
    Asked { view, scope, position: 7, options: Options { seed, samples, exhaustive_states: 4096 } }
}

fn run_seeded(strategy: &dyn Strategy, asked: &Asked) -> Vec<Vec<Choice>> {
    let mut states = Vec::new();
    let _ = strategy.states(asked, &mut |state| {
        states.push(state.to_vec());
        ControlFlow::Continue(())
    });
    states
}

fn run(strategy: &dyn Strategy, view: &View, scope: Scope) -> Vec<Vec<Choice>> {
    run_seeded(strategy, &asked(view, scope, 1, 50))
}

#[test]
fn exhaustive_visits_each_state_once() {
    let view = view();
    let states = run(&Exhaustive, &view, Scope::All);
    assert_eq!(states.len() as u128, view.state_count().expect("small"));
    assert_eq!(states.len(), 3 * (1 + 15 + 7) * 4);
    assert_eq!(states.iter().collect::<BTreeSet<_>>().len(), states.len());
}

#[test]
fn exhaustive_in_born_scope_visits_what_the_count_says() {
    let view = view();
    let states = run(&Exhaustive, &view, Scope::Born);
    let expected = 10f64.powf(view.born_log10().expect("a store is newest"));
    assert!((states.len() as f64 - expected).abs() < 1e-6, "{} and {expected}", states.len());
    assert!(states.iter().all(|state| view.is_born(state)));
}

#[test]
fn prefix_is_the_last_and_floor_the_first_state() {
    let view = view();
    let all = run(&Exhaustive, &view, Scope::All);
    assert_eq!(run(&Prefix, &view, Scope::Born), [all.last().expect("some").clone()]);
    assert_eq!(run(&Floor, &view, Scope::Born), [all[0].clone()]);
}

#[test]
fn samples_are_seeded_reachable_and_spread() {
    let view = view();
    let sample = |seed| run_seeded(&Sample, &asked(&view, Scope::All, seed, 400));
    let all: BTreeSet<Vec<Choice>> = run(&Exhaustive, &view, Scope::All).into_iter().collect();
    assert_eq!(sample(1), sample(1));
    assert_ne!(sample(1), sample(2));
    assert!(sample(1).iter().all(|state| all.contains(state)));
    assert!(sample(1).iter().collect::<BTreeSet<_>>().len() > 150, "400 draws of 276 states hit most of them");
}

#[test]
fn samples_in_born_scope_hold_the_newest_store() {
    let view = view();
    assert!(run_seeded(&Sample, &asked(&view, Scope::Born, 3, 50)).iter().all(|state| view.is_born(state)));
}

// pairwise

/// Random stores to so many lines, some wide, some non-temporal, few of them flushed.
fn random_view(seed: u64, lines: u64, events: u32) -> View {
    let mut random = Pcg64Mcg::new(u128::from(seed) << 1 | 1);
    let mut below = |bound: u64| random.next_u64() % bound;
    let mut model = Model::new(&Px86, Vec::new());
    for number in 0..events {
        let offset = 64 * below(lines) + 8 * below(4);
        let kind = match below(8) {
            0 => EventKind::Flush { kind: FlushKind::Clwb, file: FileId(0), offset },
            1 => EventKind::Fence { kind: FenceKind::Sfence },
            2 => EventKind::Store {
                kind: StoreKind::NonTemporal,
                file: FileId(0),
                offset,
                bytes: vec![number as u8; 8].into(),
            },
            wide => EventKind::Store {
                kind: StoreKind::Plain,
                file: FileId(0),
                offset,
                bytes: vec![number as u8; if wide == 3 { 16 } else { 8 }].into(),
            },
        };
        model.step(number, &Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind });
    }
    model.view()
}

/// A bug that needs some lines to have one choice each.
type Needs = Vec<(usize, Choice)>;

/// All that need so many lines; with one of the newest store's choices among them if only those are asked for.
fn bugs(view: &View, needs: usize, scope: Scope) -> Vec<Needs> {
    let mut found: Vec<Needs> = vec![Vec::new()];
    for (place, line) in view.lines.iter().enumerate() {
        for bug in found.clone().into_iter().filter(|bug| bug.len() < needs) {
            for number in 0..line.choice_count() {
                found.push([bug.clone(), vec![(place, line.choice(number))]].concat());
            }
        }
    }
    let is_new = |bug: &Needs| bug.iter().any(|(place, choice)| view.lines[*place].is_new(*choice));
    found.retain(|bug| bug.len() == needs && (scope == Scope::All || view.are_all_new || is_new(bug)));
    found
}

fn is_found(states: &[Vec<Choice>], bug: &Needs) -> bool {
    states.iter().any(|state| bug.iter().all(|(place, choice)| state[*place] == *choice))
}

#[test]
fn pairwise_finds_every_bug_of_as_many_lines_as_its_strength() {
    let mut runs = 0;
    for seed in 0..60 {
        let view = random_view(seed, 5, 14);
        let is_within = view.lines.iter().all(|line| line.choice_count() <= pairwise::CHOICES);
        for (strength, scope) in [(2, Scope::All), (2, Scope::Born), (3, Scope::All), (3, Scope::Born)] {
            if view.lines.len() < strength || !is_within {
                continue;
            }
            let (pairwise, asked) = (Pairwise { strength }, asked(&view, scope, seed, 0));
            let states = run_seeded(&pairwise, &asked);
            let all = bugs(&view, strength, scope);
            assert!(all.iter().all(|bug| is_found(&states, bug)), "seed {seed}, strength {strength}, {scope:?}");
            let coverage = pairwise.coverage(&asked).expect("it is about combinations");
            assert_eq!((coverage.tuples, coverage.covered), (all.len() as f64, all.len() as f64), "seed {seed}");
            assert!(coverage.is_whole);
            assert!(states.len() <= all.len(), "no state without a combination that was missing");
            runs += 1;
        }
    }
    assert!(runs > 100, "{runs} runs");
}

#[test]
fn pairwise_is_seeded_and_reachable() {
    let view = random_view(3, 5, 16);
    let reachable: BTreeSet<Vec<Choice>> = run(&Exhaustive, &view, Scope::All).into_iter().collect();
    let states = |seed| run_seeded(&Pairwise { strength: 2 }, &asked(&view, Scope::All, seed, 0));
    assert_eq!(states(1), states(1));
    assert_ne!(states(1), states(2));
    assert!(states(1).iter().all(|state| reachable.contains(state)));
    assert!(states(1).len() < reachable.len(), "{} of {}", states(1).len(), reachable.len());
}

/// What makes it worth its name: as many states drawn at random leave bugs out that it cannot.
#[test]
fn pairwise_finds_more_than_as_many_samples() {
    for strength in [2, 3] {
        let (mut sample_misses, mut all) = (0, 0);
        for seed in 0..12 {
            let mut view = random_view(seed, 7, 24);
            std::rc::Rc::make_mut(&mut view.lines).retain(|line| line.choice_count() <= pairwise::CHOICES);
            let states = run_seeded(&Pairwise { strength }, &asked(&view, Scope::All, seed, 0));
            let samples = run_seeded(&Sample, &asked(&view, Scope::All, seed, states.len() as u32));
            for bug in bugs(&view, strength, Scope::All) {
                assert!(is_found(&states, &bug), "seed {seed}, strength {strength}");
                all += 1;
                sample_misses += u32::from(!is_found(&samples, &bug));
            }
        }
        println!("of {all} bugs of {strength} lines as many samples miss {sample_misses}");
        assert!(sample_misses * 10 > all, "{sample_misses} of {all}");
    }
}

#[test]
fn pairwise_claims_no_more_than_it_covers() {
    let mut model = Model::new(&Px86, Vec::new());
    for (number, (offset, bytes)) in [(0, 40), (64, 8)].into_iter().enumerate() {
        let kind = EventKind::Store { kind: StoreKind::Plain, file: FileId(0), offset, bytes: vec![1; bytes].into() };
        model.step(number as u32, &Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind });
    }
    let (view, pairwise) = (model.view(), Pairwise { strength: 2 });
    let coverage = pairwise.coverage(&Asked::all(&view)).expect("it is about combinations");
    assert_eq!((coverage.tuples, coverage.covered, coverage.is_whole), (32.0 * 2.0, 16.0 * 2.0, false));
    let states = run(&pairwise, &view, Scope::All);
    assert_eq!(bugs(&view, 2, Scope::All).iter().filter(|bug| is_found(&states, bug)).count(), 32);
    // More lines than are combined: the newest are, and the others are drawn.
    let view = random_view(1, 900, 4000);
    let coverage = Pairwise { strength: 3 }.coverage(&Asked::all(&view)).expect("it is about combinations");
    assert!(
        0.0 < coverage.covered && coverage.covered <= pairwise::TUPLES as f64 && coverage.covered < coverage.tuples
    );
}

/// Of seventeen choices of a line one is not drawn; a fence leaves sixteen, the one among them, and no store is new there.
#[test]
fn what_a_bound_left_out_of_pairwise_is_run_where_it_can_be() {
    let mut model = Model::new(&Px86, Vec::new());
    let store = |offset, bytes: usize| {
        let bytes = vec![bytes as u8; bytes].into();
        EventKind::Store { kind: StoreKind::Plain, file: FileId(0), offset, bytes }
    };
    let flush = EventKind::Flush { kind: FlushKind::Clwb, file: FileId(0), offset: 0 };
    let fence = EventKind::Fence { kind: FenceKind::Sfence };
    let strategies: [&dyn Strategy; 1] = [&Pairwise { strength: 2 }];
    let mut before = Covered::Nothing;
    let mut scopes = Vec::new();
    for (number, kind) in [store(64, 8), store(0, 8), flush, store(0, 32), fence].into_iter().enumerate() {
        model.step(number as u32, &Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind });
        let here = Covered::by(&strategies, &model.view());
        scopes.push((here, before.next_scope(here)));
        before = here;
    }
    let (whole, partly) = (Covered::Whole, Covered::Partly);
    let (all, born) = (Scope::All, Scope::Born);
    assert_eq!(scopes, [(whole, all), (whole, born), (whole, born), (partly, born), (whole, all)]);
    let view = model.view();
    assert_eq!(view.lines.iter().map(|line| line.choice_count()).max(), Some(pairwise::CHOICES));
    let states = run(strategies[0], &view, Scope::All);
    assert!(bugs(&view, 2, Scope::All).iter().all(|bug| is_found(&states, bug)));
}

// the table

#[test]
fn each_strategy_has_a_name_of_its_own_and_is_found_by_it() {
    for strategy in ALL {
        assert_eq!(find(strategy.name()).map(|found| found.name()), Ok(strategy.name()));
        assert!(!strategy.runs().is_empty());
    }
    let names: BTreeSet<&str> = ALL.iter().map(|strategy| strategy.name()).collect();
    assert_eq!(names.len(), ALL.len());
    let refused = find("replay").expect_err("a token chooses it, no name").to_string();
    assert!(names.iter().all(|name| refused.contains(name)), "{refused}");
}

/// The example of CONTRIBUTING.md.
struct Ends;

impl Strategy for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn runs(&self) -> &'static str {
        "what is guaranteed, and everything"
    }

    fn reach(&self) -> Reach {
        Reach::Few
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        visit(&asked.view.floor_state())?;
        visit(&asked.view.prefix_state())
    }
}

/// What certificates say of a strategy rests on this, and what its states may be.
#[test]
fn every_strategy_runs_reachable_states_and_as_many_as_it_says() {
    for seed in 0..20 {
        let view = random_view(seed, 4, 10);
        let all: BTreeSet<Vec<Choice>> = run(&Exhaustive, &view, Scope::All).into_iter().collect();
        let replay: &dyn Strategy = &Replay { choices: view.floor_state() };
        for strategy in ALL.iter().copied().chain([replay, &Ends]) {
            let states: BTreeSet<Vec<Choice>> = run(strategy, &view, Scope::All).into_iter().collect();
            let name = strategy.name();
            assert!(!states.is_empty() && states.is_subset(&all), "{name}, seed {seed}");
            match strategy.reach() {
                Reach::Few => assert!(states.len() <= 2, "{name}"),
                Reach::All => assert_eq!(states, all, "{name}"),
                Reach::Drawn => {}
                Reach::Combinations => {
                    let coverage = strategy.coverage(&Asked::all(&view)).expect("it is about combinations");
                    assert_eq!(coverage.is_whole, strategy.is_whole(&view), "{name}");
                }
            }
            assert_eq!(states, run(strategy, &view, Scope::All).into_iter().collect(), "{name} is repeatable");
        }
    }
}

#[test]
fn mixed_runs_everything_where_there_are_few_states_and_draws_elsewhere() {
    let view = view();
    let count = view.state_count().expect("small") as u64;
    let names = |limit: u64| {
        let asked = Asked { options: Options { exhaustive_states: limit, ..Options::default() }, ..Asked::all(&view) };
        Mixed
            .instead(&asked)
            .expect("it is made of others")
            .strategies
            .iter()
            .map(|part| part.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(count), ["prefix", "floor", "exhaustive"]);
    assert_eq!(names(count - 1), ["prefix", "floor", "sample"]);
}
