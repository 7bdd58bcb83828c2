// SPDX-License-Identifier: Apache-2.0
//! The trace reader, and the model that steps over whatever the reader accepts.

use crate::{Worth, check_refusal, plant};
use crashgen::image::CrashImage;
use crashgen::model::{Model, PersistencyModel, View, models};
use crashgen::strategy::{Asked, Exhaustive, Scope, Strategy};
use crashgen::trace::write::mended;
use crashgen::trace::{EventKind, FileEffect, Trace};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

/// Events that a model steps over: positions are alike long before.
const EVENT_LIMIT: usize = 256;
/// States of a position that are visited.
const VISIT_LIMIT: u128 = 64;

/// The bytes go to the reader as they are, and again with checksums, counts and footer made right, so that a damage of the
/// records is seen by more than the hash. Claims: a trace read twice is the same; every model steps over it; the states born at
/// a position are visited once each, and as many as are counted.
pub fn trace(bytes: &[u8]) -> Worth {
    for bytes in [bytes, &mended(bytes)] {
        match Trace::parse(Path::new("t.trace"), bytes) {
            Ok(trace) => check(&trace, bytes),
            Err(error) => check_refusal(&error.to_string()),
        }
    }
    Worth::Keep
}

fn check(trace: &Trace, bytes: &[u8]) {
    let again = Trace::parse(Path::new("t.trace"), bytes).expect("it was accepted before");
    assert_eq!((&trace.events, &trace.sites, &trace.modules), (&again.events, &again.sites, &again.modules));
    assert_eq!((&trace.files, &trace.unsupported, &trace.hash), (&again.files, &again.unsupported, &again.hash));
    models::ALL.iter().for_each(|persistency| step_over(trace, *persistency));
    let is_rename_done = |kind: &EventKind| match kind {
        EventKind::FileEnd { effect, is_done } => *is_done && matches!(**effect, FileEffect::Rename { .. }),
        _ => false,
    };
    let is_store = |kind: &EventKind| matches!(kind, EventKind::Store { .. });
    plant::here(|| {
        let mut events = trace.events.iter().map(|event| &event.kind);
        events.any(is_rename_done) && events.any(is_store)
    });
}

fn step_over(trace: &Trace, persistency: &'static dyn PersistencyModel) {
    let mut model = Model::new(persistency, Vec::new());
    let mut image = CrashImage::new("");
    for (number, event) in trace.events.iter().enumerate().take(EVENT_LIMIT) {
        model.step(number as u32, event);
        let view = model.view();
        image.follow(&mut model, view.are_all_new);
        image.go_to(&model, &view, &view.prefix_state());
        let newest = image.hash();
        image.go_to(&model, &view, &view.floor_state());
        image.go_to(&model, &view, &view.prefix_state());
        assert_eq!(newest, image.hash(), "an image depends on the way to it");
        let _ = (view.states_log10(), view.born_log10());
        visit(&view);
    }
}

fn visit(view: &View) {
    let (Some(states), Some(born)) = (view.state_count(), view.born_count()) else { return };
    assert!(born <= states, "{born} of {states} states are born");
    if states > VISIT_LIMIT {
        return;
    }
    for (scope, expected) in [(Scope::All, states), (Scope::Born, born)] {
        let mut visits = 0;
        let mut different = BTreeSet::new();
        let _ = Exhaustive.states(&Asked { scope, ..Asked::all(view) }, &mut |state| {
            visits += 1;
            different.insert(state.to_vec());
            ControlFlow::Continue(())
        });
        assert_eq!((visits, different.len() as u128), (expected, expected), "visited, different, counted");
    }
}

/// Bytes of a record and of a chunk's head.
const CELL: usize = 32;
/// Of the header.
const FIRST_CELL: usize = 2;

/// Changes whole records, which single bytes cannot: takes one away, doubles one, puts one elsewhere, or gives the field of one
/// to another. Returns the new length. `chance` decides.
pub fn mutated_cells(data: &mut [u8], size: usize, chance: u32) -> usize {
    let cells = size / CELL;
    if cells < FIRST_CELL + 2 {
        return size;
    }
    let mut chance = u64::from(chance) | 1 << 32;
    let mut below = |bound: usize| {
        chance = chance.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        (chance >> 8) as usize % bound
    };
    let (action, from, to) = (below(4), FIRST_CELL + below(cells - FIRST_CELL), FIRST_CELL + below(cells - FIRST_CELL));
    match action {
        0 => {
            data.copy_within((from + 1) * CELL..size, from * CELL);
            size - CELL
        }
        1 if size + CELL <= data.len() => {
            let cell = data[from * CELL..][..CELL].to_vec();
            data.copy_within(to * CELL..size, (to + 1) * CELL);
            data[to * CELL..][..CELL].copy_from_slice(&cell);
            size + CELL
        }
        2 => {
            let cell = data[from * CELL..][..CELL].to_vec();
            data.copy_within(to * CELL..(to + 1) * CELL, from * CELL);
            data[to * CELL..][..CELL].copy_from_slice(&cell);
            size
        }
        _ => {
            let (field, width) = [(0, 1), (1, 1), (2, 2), (4, 4), (8, 4), (12, 4), (16, 8), (24, 8)][below(8)];
            data.copy_within(from * CELL + field..from * CELL + field + width, to * CELL + field);
            size
        }
    }
}
