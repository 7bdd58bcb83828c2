// SPDX-License-Identifier: Apache-2.0
//! Stepping through the workload's trace to one crash position.

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::heap::case::HeapCase;
use crate::heap::state::StateRef;
use crashgen::edit::AsRepaired;
use crashgen::model::{Choice, View};
use crashgen::trace::{EventKind, Trace};

/// Steps to a crash position.
///
/// # Errors
/// When the trace has no such position, or contradicts itself.
pub fn go_to(config: &Config, trace: &Trace, position: u32) -> Result<(HeapCase, View), EngineError> {
    let first = trace.first_event();
    if position as usize <= first || position as usize > trace.events.len() {
        return Err(bad_input(format!("crash position {position} is not in the trace: it has {}", trace.events.len())));
    }
    let mut case = HeapCase::new(config, trace, "");
    let mut view = None;
    for (number, event) in trace.events[..position as usize].iter().enumerate().skip(first) {
        if let EventKind::Case { folder, .. } = &event.kind {
            case = HeapCase::new(config, trace, folder);
        }
        view = Some(case.step(number as u32, event)?.0);
    }
    Ok((case, view.expect("at least one event")))
}

/// A crash state of the workload that is taken for repaired, as a state of the workload as it is: less is decided there.
///
/// # Errors
/// As [`go_to`].
pub fn as_it_is(
    config: &Config,
    trace: &Trace,
    state: &StateRef,
) -> Result<(HeapCase, View, Vec<Choice>), EngineError> {
    let (case, view) = go_to(&config.with_repaired(AsRepaired::default()), trace, state.position)?;
    let choices = view.lines.iter().map(|open| {
        let line = case.model.line(open.id);
        let repaired = state.case.model.find(line.key);
        let at = repaired.and_then(|id| state.view.lines.iter().position(|open| open.id == id));
        at.map_or_else(
            || line.newest(),
            |at| line.choice_as(state.case.model.line(state.view.lines[at].id), state.choices[at]),
        )
    });
    let choices = choices.collect();
    Ok((case, view, choices))
}
