// SPDX-License-Identifier: Apache-2.0
//! Unchanged crash positions: those where an edited trace may leave just what the trace as it is may leave.
//!
//! A trial of `mutate` is compared with an exploration of the trace as it is, which was complete and found nothing. Where both may leave the
//! same states, that exploration has said all there is to say. The trial does not explore such a position again: most fences that are taken
//! out matter only until the next one.
//!
//! Without a flush or a fence less is guaranteed, never more, and the stores are the same. So each line has at least the choices that it has
//! in the trace as it is. Where both traces have equally many choices in all, every line has the same ones.
//!
//! A recovery is such a trace, too. Where power failed at an unchanged position, and the edits take a flush out of recovery, the positions of
//! the recovery are compared in the same way ([`Unchanged`]).

use crate::base::config::{Config, OutcomesFile};
use crashgen::edit::is_left_out;
use crashgen::model::{Model, OpenLine};
use crashgen::trace::{Event, EventKind, OperationKind, Trace};

/// For each crash position of the edited trace (events before the crash), whether it is unchanged. Empty: there is nothing to compare with.
pub fn positions(config: &Config, whole: &Trace) -> Vec<bool> {
    if !matches!(config.outcomes, Some(OutcomesFile::Compare(_))) || !config.only_leaves_out() {
        return Vec::new();
    }
    let start = || Model::new(config.model, Vec::new());
    let mut both = Both { whole: start(), edited: start() };
    let mut unchanged = vec![true];
    for (number, event) in whole.events.iter().enumerate() {
        if matches!(event.kind, EventKind::Case { .. }) {
            both = Both { whole: start(), edited: start() };
        }
        if both.step(number as u32, event, is_left_out(event, &config.edits)) {
            unchanged.push(both.is_same());
        }
    }
    unchanged
}

/// How a recovery without some flushes and fences compares with the same recovery with them. That follows from the events alone: no flush
/// decides what the crash before left of a line.
pub struct Unchanged {
    /// For each crash position of the edited run, whether it is unchanged.
    pub positions: Vec<bool>,
    /// Where recovery returns, both may leave the same, no store is undecided, and nothing waits for a fence. Then what follows decides alone
    /// which of the later positions are unchanged.
    pub is_same_at_return: bool,
}

impl Unchanged {
    /// `start`: makes the model after the crash. `left_out`: for each event, whether the edited run lacks it.
    pub fn of(start: impl Fn() -> Model, events: &[Event], left_out: &[bool]) -> Self {
        let mut both = Both { whole: start(), edited: start() };
        let (mut positions, mut is_same_at_return) = (vec![true], false);
        for (number, (event, is_left_out)) in events.iter().zip(left_out).enumerate() {
            if both.step(number as u32, event, *is_left_out) {
                positions.push(both.is_same());
            }
            if matches!(event.kind, EventKind::OperationReturn { kind: OperationKind::Open, .. }) {
                is_same_at_return = both.is_same() && both.whole.is_settled() && both.edited.is_settled();
            }
        }
        Self { positions, is_same_at_return }
    }

    /// Whether every crash position is unchanged.
    pub fn is_whole(&self) -> bool {
        !self.positions.contains(&false)
    }
}

/// The trace as it is, and as it is edited.
struct Both {
    whole: Model,
    edited: Model,
}

impl Both {
    /// Steps over an event. Whether the edited trace has it, too.
    fn step(&mut self, number: u32, event: &Event, is_left_out: bool) -> bool {
        self.whole.step(number, event);
        if !is_left_out {
            self.edited.step(number, event);
        }
        !is_left_out
    }

    /// Whether both may leave the same. Not where a bound was hit: it decides units that the model would not.
    fn is_same(&self) -> bool {
        self.edited.bounds_hit().is_empty() && choices(&self.whole) == choices(&self.edited)
    }
}

/// The choices of all lines, but for the first one of each.
fn choices(model: &Model) -> u128 {
    model.view().lines.iter().map(OpenLine::choice_count).map(|count| count - 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing::{CONFIG, trace};
    use crashgen::edit::Edit;
    use crashgen::model::Line;
    use crashgen::trace::{FenceKind, FileId, FlushKind, SiteId, StoreKind};

    const FILE: FileId = FileId(0);

    fn store(offset: u64) -> EventKind {
        EventKind::Store { kind: StoreKind::Plain, file: FILE, offset, bytes: vec![1; 8].into() }
    }

    fn flush(offset: u64) -> EventKind {
        EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset }
    }

    fn fence() -> EventKind {
        EventKind::Fence { kind: FenceKind::Sfence }
    }

    /// Of the crash positions after these events, those that the loss of the event with this number changes.
    fn changed(kinds: Vec<EventKind>, lost: usize) -> Vec<usize> {
        let count = kinds.len();
        let mut whole = trace(kinds);
        let first = whole.events.len() - count;
        whole.events[first + lost].site = SiteId(1);
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        config.edits = vec![Edit::Without([SiteId(1)].into())];
        assert!(positions(&config, &whole).is_empty(), "nothing to compare with");
        config.outcomes = Some(OutcomesFile::Compare("outcomes".into()));
        let unchanged = positions(&config, &whole);
        assert_eq!(unchanged.len(), whole.edited(&config.edits).events.len() + 1);
        unchanged.iter().enumerate().filter(|(_, is_same)| !**is_same).map(|(at, _)| at - first).collect()
    }

    /// After a crash that left the first line undecided: positions of this run without the event with this number that it changes, and
    /// whether all is the same from recovery's return on.
    fn changed_in_recovery(events: Vec<EventKind>, lost: usize) -> (Vec<usize>, bool) {
        let config = Config::parse("test", CONFIG).expect("a configuration");
        let crashed = trace(vec![store(0)]);
        let mut model = Model::new(config.model, Vec::new());
        crashed.events.iter().enumerate().for_each(|(number, event)| model.step(number as u32, event));
        let events: Vec<Event> = events.into_iter().map(|kind| Event { kind, ..crashed.events[0].clone() }).collect();
        let left_out: Vec<bool> = (0..events.len()).map(|number| number == lost).collect();
        let all = |_, line: &Line| line.contents(16).expect("few").into_iter().map(|(choice, _)| choice).collect();
        let start = || model.after_crash(all);
        assert_eq!(start().view().lines.len(), 1, "it is undecided");
        let unchanged = Unchanged::of(start, &events, &left_out);
        let positions = unchanged.positions.iter().enumerate();
        (positions.filter(|(_, is_same)| !**is_same).map(|(at, _)| at).collect(), unchanged.is_same_at_return)
    }

    fn returned() -> EventKind {
        EventKind::OperationReturn { kind: OperationKind::Open, index: 0, status: 0 }
    }

    #[test]
    fn a_flush_does_not_decide_what_the_crash_before_left() {
        let events = vec![flush(0), fence(), returned(), store(64), flush(64), fence()];
        assert_eq!(changed_in_recovery(events, 0), (vec![], true));
        let events = vec![store(0), flush(0), fence(), returned(), store(64), flush(0), fence()];
        assert_eq!(changed_in_recovery(events, 1), (vec![2, 3, 4, 5], false), "of what recovery stored it does");
    }

    #[test]
    fn what_waits_for_a_fence_when_recovery_returns_is_not_over() {
        let events = || vec![store(64), flush(64), returned(), fence(), store(0)];
        assert_eq!(changed_in_recovery(events(), 1), (vec![3, 4], false));
        assert_eq!(changed_in_recovery(events(), 3), (vec![4], false));
        let events = vec![store(64), flush(64), fence(), fence(), returned(), store(0)];
        assert_eq!(changed_in_recovery(events, 3), (vec![], true));
    }

    #[test]
    fn without_a_fence_they_are_others_until_the_next_one() {
        let kinds = vec![store(0), flush(0), fence(), store(64), store(72), flush(64), fence(), store(0)];
        assert_eq!(changed(kinds, 2), [3, 4, 5]);
    }

    #[test]
    fn without_a_flush_they_are_others_until_the_line_is_flushed() {
        let kinds = vec![store(0), flush(0), fence(), store(64), flush(0), fence(), store(0)];
        assert_eq!(changed(kinds, 1), [2, 3, 4]);
    }

    #[test]
    fn a_fence_that_decides_nothing_changes_none() {
        assert!(changed(vec![store(0), fence(), store(64)], 1).is_empty());
    }
}
