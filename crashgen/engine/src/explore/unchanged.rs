// SPDX-License-Identifier: Apache-2.0
//! Crash positions where an edited trace may leave what the trace as it is may leave, and nothing else.
//!
//! A trial of `mutate` is compared with an exploration of the trace as it is, which was complete and found
//! nothing. Where both reach the same states, that exploration has said all there is to say, and the trial
//! passes by: most fences that are taken out matter until the next one only.
//!
//! Less is guaranteed without a flush or a fence, never more, and the stores are the same. So each line has at
//! least the choices that it has in the trace as it is, and where both have as many choices in all, every line
//! has the same ones.
//!
//! What a recovery does is such a trace, too. Where power failed at a crash position that may leave the same, and recovery loses a
//! flush, it is passed by as far as that leaves the same again ([`Unchanged`]).

use crate::base::config::{Config, OutcomesFile};
use crashgen::edit::is_left_out;
use crashgen::model::{Model, OpenLine};
use crashgen::trace::{Event, EventKind, OperationKind, Trace};
use planted::Fault;

/// By crash position of the edited trace (events before the crash): whether it is one of those. Empty: there is nothing to compare with.
pub fn positions(config: &Config, whole: &Trace) -> Vec<bool> {
    if !matches!(config.outcomes, Some(OutcomesFile::Compare(_))) || !config.only_leaves_out() {
        return Vec::new();
    }
    let begun = || Model::new(config.model, Vec::new());
    let mut both = Both { whole: begun(), edited: begun() };
    let mut unchanged = vec![true];
    for (number, event) in whole.events.iter().enumerate() {
        if matches!(event.kind, EventKind::Case { .. }) {
            both = Both { whole: begun(), edited: begun() };
        }
        if both.step(number as u32, event, is_left_out(event, &config.edits)) {
            unchanged.push(both.is_same());
        }
    }
    unchanged
}

/// What a told run without some flushes and fences may leave, beside the same run with them. It is a matter of the events alone: what
/// the crash before left of a line is there, whichever it is, and no flush decides it.
pub struct Unchanged {
    /// By crash position of the edited run: whether it may leave the same.
    pub positions: Vec<bool>,
    /// Where recovery returns both have come to the same, no store of it is undecided, and nothing waits for a fence: what follows decides
    /// alone which of the later positions are unchanged.
    pub is_same_at_return: bool,
}

impl Unchanged {
    /// `begun`: the model after the crash. `left_out`: by the event's number, whether the edited run lacks it.
    pub fn of(begun: impl Fn() -> Model, told: &[Event], left_out: &[bool]) -> Self {
        let mut both = Both { whole: begun(), edited: begun() };
        let is_passed_by = planted::is(Fault::PassByRecoveries);
        let (mut positions, mut is_same_at_return) = (vec![true], false);
        for (number, (event, is_left_out)) in told.iter().zip(left_out).enumerate() {
            if both.step(number as u32, event, *is_left_out) {
                positions.push(both.is_same() || is_passed_by);
            }
            if matches!(event.kind, EventKind::OperationReturn { kind: OperationKind::Open, .. }) {
                is_same_at_return = both.is_same() && both.whole.is_settled() && both.edited.is_settled();
            }
        }
        Self { positions, is_same_at_return }
    }

    /// Every crash position may leave the same.
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
    /// Whether the edited one steps, too.
    fn step(&mut self, number: u32, event: &Event, is_left_out: bool) -> bool {
        self.whole.step(number, event);
        if !is_left_out {
            self.edited.step(number, event);
        }
        !is_left_out
    }

    /// A bound decides units that the model would not.
    fn is_same(&self) -> bool {
        self.edited.bounds_hit().is_empty() && choices(&self.whole) == choices(&self.edited)
    }
}

/// Of all lines, each besides its first.
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
    fn changed_in_recovery(told: Vec<EventKind>, lost: usize) -> (Vec<usize>, bool) {
        let config = Config::parse("test", CONFIG).expect("a configuration");
        let crashed = trace(vec![store(0)]);
        let mut model = Model::new(config.model, Vec::new());
        crashed.events.iter().enumerate().for_each(|(number, event)| model.step(number as u32, event));
        let told: Vec<Event> = told.into_iter().map(|kind| Event { kind, ..crashed.events[0].clone() }).collect();
        let left_out: Vec<bool> = (0..told.len()).map(|number| number == lost).collect();
        let all = |_, line: &Line| line.contents(16).expect("few").into_iter().map(|(choice, _)| choice).collect();
        let begun = || model.after_crash(all);
        assert_eq!(begun().view().lines.len(), 1, "it is undecided");
        let unchanged = Unchanged::of(begun, &told, &left_out);
        let positions = unchanged.positions.iter().enumerate();
        (positions.filter(|(_, is_same)| !**is_same).map(|(at, _)| at).collect(), unchanged.is_same_at_return)
    }

    fn returned() -> EventKind {
        EventKind::OperationReturn { kind: OperationKind::Open, index: 0, status: 0 }
    }

    #[test]
    fn a_flush_does_not_decide_what_the_crash_before_left() {
        let told = vec![flush(0), fence(), returned(), store(64), flush(64), fence()];
        assert_eq!(changed_in_recovery(told, 0), (vec![], true));
        let told = vec![store(0), flush(0), fence(), returned(), store(64), flush(0), fence()];
        assert_eq!(changed_in_recovery(told, 1), (vec![2, 3, 4, 5], false), "of what recovery stored it does");
    }

    #[test]
    fn what_waits_for_a_fence_when_recovery_returns_is_not_over() {
        let told = || vec![store(64), flush(64), returned(), fence(), store(0)];
        assert_eq!(changed_in_recovery(told(), 1), (vec![3, 4], false));
        assert_eq!(changed_in_recovery(told(), 3), (vec![4], false));
        let told = vec![store(64), flush(64), fence(), fence(), returned(), store(0)];
        assert_eq!(changed_in_recovery(told, 3), (vec![], true));
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
