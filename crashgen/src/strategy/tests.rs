// SPDX-License-Identifier: Apache-2.0
//! Strategies against the counts of the view.

use super::*;
use crate::model::{Model, ModelKind};
use crate::trace::{Event, EventKind, FileId, SiteId, StoreKind, ThreadId};
use std::collections::BTreeSet;

/// A position with torn, ordered and floating choices; the newest event is a 24-byte store.
fn view() -> View {
    let mut model = Model::new(ModelKind::Px86, Vec::new());
    let plain = StoreKind::Plain;
    let stores = [(plain, 0, 8), (plain, 0, 8), (plain, 64, 32), (StoreKind::NonTemporal, 128, 16), (plain, 64, 24)];
    for (number, (kind, offset, bytes)) in stores.into_iter().enumerate() {
        let kind = EventKind::Store { kind, file: FileId(0), offset, bytes: vec![1; bytes].into() };
        model.step(number as u32, &Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind });
    }
    model.view()
}

fn run(strategy: &dyn Strategy, view: &View, scope: Scope) -> Vec<Vec<Choice>> {
    let mut states = Vec::new();
    let _ = strategy.states(7, view, scope, &mut |state| {
        states.push(state.to_vec());
        ControlFlow::Continue(())
    });
    states
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
    let sample = |seed| run(&Sample { count: 400, seed }, &view, Scope::All);
    let all: BTreeSet<Vec<Choice>> = run(&Exhaustive, &view, Scope::All).into_iter().collect();
    assert_eq!(sample(1), sample(1));
    assert_ne!(sample(1), sample(2));
    assert!(sample(1).iter().all(|state| all.contains(state)));
    assert!(sample(1).iter().collect::<BTreeSet<_>>().len() > 150, "400 draws of 276 states hit most of them");
}

#[test]
fn samples_in_born_scope_hold_the_newest_store() {
    let view = view();
    assert!(run(&Sample { count: 50, seed: 3 }, &view, Scope::Born).iter().all(|state| view.is_born(state)));
}
