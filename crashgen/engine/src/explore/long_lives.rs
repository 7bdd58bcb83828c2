// SPDX-License-Identifier: Apache-2.0
//! Long lives: some crash states, drawn with the seed, are recovered, opened many times more, and used for long (FL020).
//!
//! The probe script opens a heap a few times, and fills and empties it once. What breaks at the eighth open, or at the fortieth allocation
//! after one, is not seen by that. The deep probe does both ([`crashgen::replay::Probe::Deep`]). It takes hundreds of times as long as a
//! recovery, so a few states get it, once nothing else was found: their crash positions are spread over the trace, and the last position is
//! one of them.

use crate::base::error::EngineError;
use crate::base::output::Output;
use crate::explore::parts::{Part, Task};
use crate::explore::workers::Whole;
use crashgen::strategy::Sample;
use crashgen::trace::{EventKind, OperationKind, Trace};

/// Explores the long lives that are asked for, and adds what they show.
///
/// # Errors
/// Those of [`Whole::explore`].
pub fn explore(task: &Task, whole: &mut Whole, output: &mut Output) -> Result<(), EngineError> {
    let config = task.config.for_long_lives();
    let positions = positions(task.trace, config.long_lives, config.seed);
    let parts =
        (0..).zip(&positions).map(|(number, position)| Part { number, first: *position, last: *position, loss: None });
    let recoveries_before = whole.recoveries();
    let (patience, shares) = (None, None);
    let round = Task { config: &config, unchanged: &[], patience, shares, recoveries_before, ..task.clone() };
    let mut lives = whole.aside(&Sample);
    if let Some(why) = lives.explore(&round, &parts.collect::<Vec<_>>(), output)? {
        lives.tally.add_unknown(&why);
    }
    whole.add_long_lives(lives, positions.len());
    Ok(())
}

/// Crash positions in order, one in each of so many stretches of the trace behind its first creation, and the last position of all.
pub fn positions(trace: &Trace, count: u32, seed: u64) -> Vec<u32> {
    let is_created =
        |kind: &EventKind| matches!(kind, EventKind::OperationReturn { kind: OperationKind::Create, status: 0, .. });
    let Some(created) = trace.events.iter().position(|event| is_created(&event.kind)) else { return Vec::new() };
    let (first, last) = (created as u64 + 1, trace.events.len() as u64);
    let stretches = u64::from(count.saturating_sub(1)).min(last - first);
    let begin = |number: u64| first + (last - first) * number / stretches;
    let drawn = (0..stretches).map(|number| {
        let length = begin(number + 1) - begin(number);
        begin(number) + mixed(seed, number) % length
    });
    let end = (count > 0).then_some(last);
    drawn.chain(end).map(|position| position as u32).collect()
}

/// A number that looks random (splitmix64).
pub fn mixed(seed: u64, number: u64) -> u64 {
    let mut x = (seed ^ number << 32).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing::trace;
    use crashgen::trace::FenceKind;

    fn created(fences: usize) -> Trace {
        let returned = EventKind::OperationReturn { kind: OperationKind::Create, index: 0, status: 0 };
        let fence = || EventKind::Fence { kind: FenceKind::Sfence };
        trace([returned].into_iter().chain((0..fences).map(|_| fence())).collect())
    }

    #[test]
    fn positions_are_spread_over_what_follows_the_creation_and_the_last_one_is_there() {
        let trace = created(1000);
        let last = trace.events.len() as u32;
        let chosen = positions(&trace, 5, 1);
        assert_eq!((chosen.len(), chosen[4]), (5, last));
        for (number, position) in (0..).zip(&chosen[..4]) {
            let stretch = last - 1000 + 250 * number..last - 1000 + 250 * (number + 1);
            assert!(stretch.contains(position), "{position} is not in {stretch:?}");
        }
        assert_eq!(chosen, positions(&trace, 5, 1));
        assert_ne!(chosen, positions(&trace, 5, 2));
    }

    #[test]
    fn a_short_trace_has_as_many_as_it_has_positions() {
        let trace = created(2);
        let last = trace.events.len() as u32;
        assert_eq!(positions(&trace, 100, 1), [last - 2, last - 1, last]);
        assert_eq!(positions(&trace, 1, 1), [last]);
        assert!(positions(&trace, 0, 1).is_empty());
    }

    #[test]
    fn a_heap_that_was_never_created_lives_no_long_life() {
        assert!(positions(&trace(vec![EventKind::Fence { kind: FenceKind::Sfence }]), 5, 1).is_empty());
    }
}
