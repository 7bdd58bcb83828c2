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

use crate::config::{Config, OutcomesFile};
use crashgen::model::{Model, OpenLine};
use crashgen::trace::{EventKind, Trace, is_left_out};

/// By crash position of the edited trace (events before the crash): whether it is one of those. Empty: there is nothing to compare with.
pub fn positions(config: &Config, whole: &Trace) -> Vec<bool> {
    if !matches!(config.outcomes, Some(OutcomesFile::Compare(_))) || !config.only_leaves_out() {
        return Vec::new();
    }
    let begun = || Model::new(config.model, Vec::new());
    let (mut model, mut edited) = (begun(), begun());
    let mut unchanged = vec![true];
    for (number, event) in whole.events.iter().enumerate() {
        if matches!(event.kind, EventKind::Case { .. }) {
            (model, edited) = (begun(), begun());
        }
        model.step(number as u32, event);
        if is_left_out(event, &config.edits) {
            continue;
        }
        edited.step(number as u32, event);
        let is_bounded = !edited.bounds_hit().is_empty(); // the bound decides units that the model would not
        unchanged.push(!is_bounded && choices(&model) == choices(&edited));
    }
    unchanged
}

/// Of all lines, each besides its first.
fn choices(model: &Model) -> u128 {
    model.view().lines.iter().map(OpenLine::choice_count).map(|count| count - 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::tests::{CONFIG, trace};
    use crashgen::trace::{Edit, FenceKind, FileId, FlushKind, SiteId, StoreKind};

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
