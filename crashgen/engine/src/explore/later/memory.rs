// SPDX-License-Identifier: Apache-2.0
//! What is remembered, over the crash positions of a case, of the recoveries from it and of crashes in them.
//!
//! Which recoveries there are at a crash position is a search of its own ([`crashgen::complete`]): its program is recovery with
//! follow-up, and the outcome of a leaf is what recovery did. What the later recoveries load is remembered in one trie for all leaves,
//! of many windows, since the trie knows values only.
//!
//! The trie of later recoveries ends with a file operation of the trace, because other bytes change then, or when a unit turns out
//! to vary that was not hot in it. To make that rare its hot units are those of the next operations too ([`AHEAD_UNITS`]), and of all
//! recovery traces so far. It begins again when there is no room for much more ([`LaterRecoveries::is_nearly_full`]), and what it loaded
//! stays known.

use crate::explore::later::recoveries::LaterRecoveries;
use crate::explore::later::recovery_runs::RecoveryRuns;
use crate::explore::later::run_identity::RecoveryRun;
use crate::explore::means::Means;
use crate::explore::unchanged::Unchanged;
use crashgen::complete::{LeafStates, Search};
use crashgen::trace::{Event, EventKind, LineKey, Trace, UnitKey};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Units stored to ahead of the current window that are hot for later recoveries: some operations on objects of a few KiB. More make
/// paths longer and save less and less.
const AHEAD_UNITS: usize = 4096;

/// Of one case.
pub struct LaterMemory {
    /// Which recoveries there are.
    pub search: Search,
    /// What they did.
    pub runs: RecoveryRuns,
    /// Recoveries of crashes in these runs; for all leaves.
    pub recoveries: Option<Box<LaterRecoveries>>,
    /// What recoveries that are forgotten by now loaded: a store to it makes a walk due, as one to what the others loaded does.
    loaded: FxHashSet<UnitKey>,
    windows: u64,
    /// Lines that some recovery stored to, flushed or took away: hot for later recoveries.
    touched: BTreeSet<LineKey>,
    /// Hashes of what decides what later recoveries find, of the runs that were explored, as far as they are; and of what decides it once
    /// recovery has returned.
    pub explored: FxHashSet<u128>,
    /// Of the runs of the window, by the hash of each.
    pub unchanged: FxHashMap<u128, Rc<Unchanged>>,
}

impl LaterMemory {
    /// Of a case that begins.
    pub fn new(means: &Means) -> Self {
        Self {
            search: Search::new(means.config.bounds(), means.repeats.traced.clone()),
            runs: RecoveryRuns::default(),
            recoveries: None,
            loaded: FxHashSet::default(),
            windows: 0,
            touched: BTreeSet::new(),
            explored: FxHashSet::default(),
            unchanged: FxHashMap::default(),
        }
    }

    /// What the recoveries of the leaf's states did.
    pub fn run_of(&self, held: &LeafStates) -> RecoveryRun {
        self.runs.run(self.search.leaf(held.leaf).outcome).clone()
    }

    /// The search has stepped over this event. A window may have begun, perhaps with units that later recoveries were not watched for.
    pub fn step(&mut self, event: &Event) {
        if is_file_change(event) {
            self.forget_recoveries();
        }
        if self.windows != self.search.windows() {
            self.windows = self.search.windows();
            self.unchanged.clear();
            let varying = &self.search.window().expect("it has stepped").varying;
            if self.recoveries.as_ref().is_some_and(|later| !varying.iter().all(|unit| later.varying.contains(unit))) {
                self.forget_recoveries();
            }
        }
    }

    /// Later recoveries begin with nothing remembered but what was loaded.
    fn forget_recoveries(&mut self) {
        if let Some(later) = self.recoveries.take() {
            self.loaded.extend(later.loaded());
        }
    }

    /// Whether the event changes what a recovery of a later generation loads.
    pub fn is_touched(&self, event: &Event) -> bool {
        self.recoveries.as_ref().is_some_and(|later| later.is_touched(event))
            || UnitKey::of_store(event).any(|unit| self.loaded.contains(&unit))
    }

    /// The memory of later recoveries, which may see other contents of these lines from now on; position: where power fails first.
    pub fn recoveries(&mut self, touched: &BTreeSet<LineKey>, position: u32, trace: &Trace) -> &mut LaterRecoveries {
        let new: Vec<LineKey> = touched.iter().copied().filter(|line| self.touched.insert(*line)).collect();
        if self.recoveries.is_none() {
            self.recoveries = Some(Box::new(LaterRecoveries::new(self.varying_from(position, trace))));
        }
        let later = self.recoveries.as_mut().expect("made where there was none");
        let known = later.varying.len();
        later.varying.extend(new.into_iter().flat_map(UnitKey::of_line));
        if later.varying.len() > known {
            self.loaded.extend(later.loaded());
            later.start_again();
        }
        later
    }

    /// What may vary between the images that later recoveries see, from this crash position on.
    fn varying_from(&self, position: u32, trace: &Trace) -> BTreeSet<UnitKey> {
        let mut varying: BTreeSet<UnitKey> = self.touched.iter().copied().flat_map(UnitKey::of_line).collect();
        varying.extend(&self.search.window().expect("it has stepped").varying);
        let most = varying.len() + AHEAD_UNITS;
        for event in &trace.events[position as usize..] {
            if is_file_change(event) || varying.len() >= most {
                break;
            }
            varying.extend(UnitKey::of_store(event));
        }
        varying
    }
}

/// Bytes of files change otherwise than by stores, or the answers of the file system do.
fn is_file_change(event: &Event) -> bool {
    matches!(&event.kind, EventKind::FileEnd { effect, is_done: true } if !effect.is_sync())
}
