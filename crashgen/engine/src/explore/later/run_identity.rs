// SPDX-License-Identifier: Apache-2.0
//! What a recovery did, as hashes: two runs that did the same, where the same is expected of the heap, are explored once.

use crate::explore::unchanged::Unchanged;
use crashgen::model::Model;
use crashgen::replay::RecoveryTrace;
use oracle::HeapReport;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// A recovery and its follow-up.
#[derive(Clone)]
pub struct RecoveryRun {
    /// What it showed.
    pub report: Rc<HeapReport>,
    /// What it did.
    pub trace: Rc<RecoveryTrace>,
    /// Of report and events: the same in every window.
    pub hash: u128,
    /// Of what recovery did.
    pub recovery: u128,
    /// Of what was done after it.
    pub follow_up: u128,
}

/// What is expected of the heap, as hashes.
#[derive(Clone, Copy)]
pub struct Expected {
    /// After the crash.
    pub whole: u64,
    /// Once recovery has returned.
    pub rest: u64,
    /// Of objects that link each other.
    pub is_graph: bool,
}

/// What was done and is expected, as hashes.
#[derive(Clone, Copy)]
pub struct RunIdentity {
    /// By recovery and follow-up.
    pub whole: u128,
    recovery: u128,
    /// By the follow-up, and what is expected from recovery's return on.
    follow_up: u128,
}

impl RunIdentity {
    /// names: what the file system answers where recovery begins. is_compared: crash positions that are unchanged are passed by.
    pub fn of(run: &RecoveryRun, names: u128, expected: Expected, is_compared: bool) -> Self {
        let hash = |words: [u128; 5]| xxh3_128(&words.map(u128::to_le_bytes).concat());
        let (is_graph, is_compared) = (expected.is_graph.into(), is_compared.into());
        Self {
            whole: hash([run.hash, names, expected.whole.into(), is_graph, is_compared]),
            recovery: run.recovery,
            follow_up: hash([run.follow_up, 0, expected.rest.into(), is_graph, is_compared]),
        }
    }

    /// From recovery's return on. What recovery left undecided is a matter of what it did.
    pub fn rest(&self, model: &Model, names: u128, unchanged: Option<&Unchanged>) -> u128 {
        let is_settled = model.is_settled() && unchanged.is_none_or(|unchanged| unchanged.is_same_at_return);
        let undecided = if is_settled { 0 } else { self.recovery };
        xxh3_128(&[self.follow_up, names, undecided].map(u128::to_le_bytes).concat())
    }
}
