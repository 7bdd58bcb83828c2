// SPDX-License-Identifier: Apache-2.0
//! A window: consecutive crash positions that share one trie, and the units that vary in it.
//!
//! It ends where a file changes (create, truncate, punch, unlink, rename, a write by the kernel), so that within it the answers of the
//! file system do not depend on the crash position, and bytes change by stores alone. It ends where an operation returns, because
//! little is undecided there: wider windows save few recoveries and cost memory and longer traversals.

use super::UnitKey;
use crate::model::{Model, View};
use crate::trace::{Event, EventKind, LINE_BYTES, UNIT_BYTES};
use std::collections::BTreeSet;

/// Stored units after which a window ends even within an operation: each varying unit may be a node of every path of the trie.
const VARYING_LIMIT: usize = 4096;

/// Some consecutive crash positions.
#[derive(Clone, Debug)]
pub struct Window {
    /// In order: units that may hold more than one value in the states of the window's positions, and the units of the store before its
    /// first position. So each store of a trace is in some window, where no position is left out.
    pub varying: Vec<UnitKey>,
    /// Its last crash position (events before the crash).
    pub last_position: u32,
}

impl Window {
    /// The window that starts at this crash position, whose model and view these are. `events` is the whole trace.
    pub fn starting_at(position: u32, model: &Model, view: &View, events: &[Event]) -> Self {
        let mut varying = BTreeSet::new();
        for open in view.lines.iter() {
            let line = model.line(open.id);
            let mask = line.open_mask();
            let first = line.key.number * (LINE_BYTES / UNIT_BYTES);
            let units = (0..8).filter(|unit| mask >> unit & 1 == 1);
            varying.extend(units.map(|unit| UnitKey { file: line.key.file, number: first + unit }));
        }
        varying.extend(UnitKey::of_store(&events[position as usize - 1])); // under eadr that store is decided at once
        let undecided = varying.len();
        let mut last_position = position;
        for event in &events[position as usize..] {
            if is_boundary(&event.kind) || varying.len() >= undecided + VARYING_LIMIT {
                break;
            }
            varying.extend(UnitKey::of_store(event));
            last_position += 1;
        }
        Self { varying: varying.into_iter().collect(), last_position }
    }
}

/// The crash position after this event belongs to another window than the one before it.
fn is_boundary(kind: &EventKind) -> bool {
    match kind {
        EventKind::Case { .. } | EventKind::OperationReturn { .. } => true,
        // A sync only decides what is there.
        EventKind::FileEnd { effect, .. } if effect.is_sync() => false,
        EventKind::FileEnd { is_done, .. } => *is_done,
        _ => false,
    }
}
