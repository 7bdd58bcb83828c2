// SPDX-License-Identifier: Apache-2.0
//! A window: consecutive crash positions that share one trie, and the units that are hot in it.
//!
//! It ends where a file changes (create, truncate, punch, unlink, rename, a write by the kernel), so that within it the answers of the
//! file system do not depend on the crash position, and bytes change by stores alone. It ends where an operation returns, because
//! little is undecided there: wider windows save few recoveries and cost memory and longer walks.

use super::UnitKey;
use crate::model::{Model, View};
use crate::trace::{Event, EventKind, FileEffect, LINE_BYTES, UNIT_BYTES};
use planted::Fault;
use std::collections::BTreeSet;

/// Stored units after which a window ends even within an operation: each hot unit may be a node of every path of the trie.
const HOT_LIMIT: usize = 4096;

/// Some consecutive crash positions.
#[derive(Clone, Debug)]
pub struct Window {
    /// Units that may hold more than one value in the states of the window's positions, and those of the store by which its first one
    /// is reached, in order: where no position is left out, each store of a trace is in some window.
    pub hot: Vec<UnitKey>,
    /// Its last crash position (events before the crash).
    pub last_position: u32,
}

impl Window {
    /// The window that starts at this crash position, whose model and view these are. `events` is the whole trace.
    pub fn starting_at(position: u32, model: &Model, view: &View, events: &[Event]) -> Self {
        let mut hot = BTreeSet::new();
        for open in view.lines.iter() {
            let line = model.line(open.id);
            let mask = line.open_mask();
            let first = line.key.number * (LINE_BYTES / UNIT_BYTES);
            let units = (0..8).filter(|unit| mask >> unit & 1 == 1);
            hot.extend(units.map(|unit| UnitKey { file: line.key.file, number: first + unit }));
        }
        hot.extend(UnitKey::of_store(&events[position as usize - 1])); // where caches persist it is decided already
        let undecided = hot.len();
        let mut last_position = position;
        for event in &events[position as usize..] {
            if is_boundary(&event.kind) || hot.len() >= undecided + HOT_LIMIT {
                break;
            }
            hot.extend(UnitKey::of_store(event));
            last_position += 1;
        }
        Self { hot: hot.into_iter().collect(), last_position }
    }
}

/// The crash position after this event belongs to another window than the one before it.
fn is_boundary(kind: &EventKind) -> bool {
    match kind {
        EventKind::Case { .. } | EventKind::OperationReturn { .. } => true,
        // A sync only decides what is there.
        EventKind::FileEnd { effect, .. } if matches!(**effect, FileEffect::Sync { .. }) => false,
        EventKind::FileEnd { is_done, .. } => *is_done && !planted::is(Fault::ForgetFileAnswer),
        _ => false,
    }
}
