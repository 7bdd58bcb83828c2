// SPDX-License-Identifier: Apache-2.0
//! Exploration in parts: some consecutive crash positions each, explored by as many workers as there are jobs.
//!
//! Where parts begin and end depends on the trace and the strategy, never on the number of jobs. A part begins with nothing remembered, so
//! what it finds does not depend on who explores it, or on what else that worker did. Parts are added up in their order. Those behind one
//! that stopped (a budget, the expected rule of a mutant) do not count, whether they were explored by then or not. So the result is the same
//! for one job and for many; only times, memory, and the number of in-process recoveries that were compared differ.
//!
//! A part of `complete` ends where a window of its search ends, so that no recovery is run twice. Other strategies remember images over the
//! whole trace, and a budget of recoveries is one for the whole trace: these have one part. What is remembered of later generations outlives
//! a window, and is learned again in each part.

use crate::base::config::Config;
use crate::explore::means::Patience;
use crate::explore::outcomes::KnownOutcomes;
use crate::explore::shares::Shares;
use crate::heap::case::HeapCase;
use crashgen::model::losses::Loss;
use crashgen::strategy::Strategy;
use crashgen::trace::{EventKind, Trace};
use oracle::TwinSet;
use std::borrow::Cow;
use std::time::Instant;

/// Crash positions that a part has at least, except the last part: a second of work or less, against which the start of a server is little.
const PART_POSITIONS: u32 = 4096;
/// The same where later generations are explored: most crash positions are those of recoveries then, and so many take seconds.
const NESTED_PART_POSITIONS: u32 = 1024;

/// Crash positions (events before the crash) from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: usize,
    /// The first one.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// What power failure loses of file operations there: the number of the set among the task's ([`Task::losses`]). None: nothing.
    pub loss: Option<usize>,
}

/// What is explored, for all workers.
#[derive(Clone)]
pub struct Task<'a> {
    /// What is asked for.
    pub config: &'a Config,
    /// The whole trace.
    pub trace: &'a Trace,
    /// For each of its crash positions, whether it needs no exploring ([`crate::explore::unchanged`]); empty: all need it.
    pub unchanged: &'a [bool],
    /// The heap without a crash, with which the full probe is compared.
    pub twins: Option<&'a TwinSet>,
    /// Sets of file operations that parts lose.
    pub losses: &'a [Loss],
    /// The outcomes with which those of this exploration are compared.
    pub known: Option<KnownOutcomes>,
    /// When the exploration began.
    pub started: Instant,
    /// When it has to end.
    pub deadline: Option<Instant>,
    /// [`crate::explore::means::Means::patience`].
    pub patience: Option<Patience<'a>>,
    /// Recoveries of its budget that were run before.
    pub recoveries_before: u64,
    /// Who shares the budget; none: whatever comes first may use all of it.
    pub shares: Option<&'a Shares>,
}

impl Task<'_> {
    /// What a part is explored with.
    pub fn config_of(&self, part: &Part) -> Cow<'_, Config> {
        match part.loss {
            Some(number) => Cow::Owned(self.config.with_loss(&self.losses[number])),
            None => Cow::Borrowed(self.config),
        }
    }
}

/// Where a worker is in the trace.
pub struct Cursor {
    /// The heap after the events before `next`.
    pub case: HeapCase,
    /// The number of the event to step over next.
    pub next: usize,
}

impl Cursor {
    /// Before the first event.
    pub fn new(config: &Config, trace: &Trace) -> Self {
        Self { case: HeapCase::new(config, trace, ""), next: trace.first_event() }
    }
}

/// Whether a window of the search ends with this crash position: an operation returns next, or a case begins.
pub fn is_end_of_window(trace: &Trace, position: u32) -> bool {
    let next = &trace.events[position as usize].kind;
    matches!(next, EventKind::Case { .. } | EventKind::OperationReturn { .. })
}

/// The parts of the trace for a strategy.
pub fn parts_of(config: &Config, trace: &Trace, strategy: &dyn Strategy, first: u32) -> Vec<Part> {
    let end = config.last_position.unwrap_or(u32::MAX).min(trace.events.len() as u32);
    let is_one = !strategy.follows_loads() || config.limits.recoveries.is_some();
    let least = if config.nested > 0 { NESTED_PART_POSITIONS } else { PART_POSITIONS };
    let mut parts = Vec::new();
    let mut begin = first;
    for position in first..end {
        let is_long = position + 1 - begin >= least && end - position >= least;
        if !is_one && is_long && is_end_of_window(trace, position) {
            parts.push(Part { number: parts.len(), first: begin, last: position, loss: None });
            begin = position + 1;
        }
    }
    if begin <= end {
        parts.push(Part { number: parts.len(), first: begin, last: end, loss: None });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing::{CONFIG, trace};
    use crashgen::strategy::{Complete, Mixed};
    use crashgen::trace::{FenceKind, OperationKind};

    fn operations(count: u32, events_each: u32) -> Trace {
        let mut kinds = Vec::new();
        for index in 1..=count {
            kinds.push(EventKind::OperationBegin { kind: OperationKind::Open, index, slot: 0, bytes: 0, object: 0 });
            kinds.extend((2..events_each).map(|_| EventKind::Fence { kind: FenceKind::Sfence }));
            kinds.push(EventKind::OperationReturn { kind: OperationKind::Open, index, status: 0 });
        }
        trace(kinds)
    }

    #[test]
    fn parts_follow_each_other_and_end_with_windows() {
        let config = Config::parse("test", CONFIG).expect("a configuration");
        let trace = operations(200, 100);
        let parts = parts_of(&config, &trace, &Complete, 1);
        assert_eq!(parts.len(), 4);
        assert_eq!((parts[0].first, parts[3].last), (1, trace.events.len() as u32));
        for (one, next) in parts.iter().zip(&parts[1..]) {
            assert_eq!((one.number + 1, one.last + 1), (next.number, next.first));
            assert!(matches!(trace.events[one.last as usize].kind, EventKind::OperationReturn { .. }));
            assert!(one.last + 1 - one.first >= PART_POSITIONS);
        }
    }

    #[test]
    fn with_second_crashes_they_are_smaller() {
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        config.nested = 1;
        let trace = operations(200, 100);
        let parts = parts_of(&config, &trace, &Complete, 1);
        assert_eq!(parts.len(), 18);
        assert!(parts.iter().all(|part| part.last + 1 - part.first >= NESTED_PART_POSITIONS));
        assert!(parts.windows(2).all(|two| two[0].last + 1 == two[1].first));
        config.nested = 0;
        assert!(parts_of(&config, &trace, &Complete, 1).len() < parts.len());
    }

    #[test]
    fn they_end_where_they_are_asked_to() {
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        config.last_position = Some(9000);
        let parts = parts_of(&config, &operations(200, 100), &Complete, 7);
        assert_eq!((parts.len(), parts[0].first, parts[parts.len() - 1].last), (2, 7, 9000));
    }

    #[test]
    fn each_worker_may_remember_as_much_as_one_alone() {
        let of_search = |jobs: u32, nested: u32| {
            let mut config = Config::parse("test", CONFIG).expect("a configuration");
            (config.jobs, config.nested, config.limits.memory_mib) = (jobs, nested, Some(28));
            config.bounds().bytes
        };
        assert_eq!(of_search(1, 0), 28 << 20);
        assert_eq!(of_search(4, 0), of_search(1, 0));
        // All searches of a worker together: one of the workload, three of each later crash.
        assert_eq!([of_search(1, 1) * 4, of_search(1, 2) * 7], [28 << 20; 2]);
    }

    #[test]
    fn what_remembers_images_is_one_part() {
        let config = Config::parse("test", CONFIG).expect("a configuration");
        let trace = operations(200, 100);
        let last = trace.events.len() as u32;
        assert_eq!(parts_of(&config, &trace, &Mixed, 7), [Part { number: 0, first: 7, last, loss: None }]);
    }
}
