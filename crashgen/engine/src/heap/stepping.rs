// SPDX-License-Identifier: Apache-2.0
//! Stepping through the workload's trace to one crash position.

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::heap::case::HeapCase;
use crashgen::model::View;
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
