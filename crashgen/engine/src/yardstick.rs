// SPDX-License-Identifier: Apache-2.0
//! `yardstick`: `complete` against `exhaustive`, recovery by recovery: at each crash position with few enough states, the heap reports
//! of all states, run one by one with the adapter that people use, are those of the leaves, run with the hooked one.

use crate::cases::Case;
use crate::complete::{Complete, Stop};
use crate::config::Config;
use crate::error::EngineError;
use crate::output::print;
use crate::probes::Probes;
use crashgen::model::View;
use crashgen::strategy::{Exhaustive, Scope, Strategy};
use crashgen::trace::{EventKind, Trace};
use oracle::HeapReport;
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Positions that differ and are named.
const NAMED_LIMIT: usize = 16;

/// Prints one JSON object: what was compared, and where the two differ.
///
/// # Errors
/// When the trace contradicts itself or a replay server fails.
pub fn measure(config: &Config, trace: &Trace, state_limit: u128) -> Result<bool, EngineError> {
    let mut plain = Probes::start(&config.server("plain")?, false)?;
    let mut hooked = Probes::start(&config.exploring_server()?, false)?;
    let mut case = Case::new(config, trace, "");
    let mut lazy = Case::new(config, trace, "");
    let mut complete = Complete::new(config);
    let (mut compared, mut states, mut largest) = (0u64, 0u128, 0);
    let mut differing = Vec::new();
    let mut doubts = BTreeSet::new();
    for (number, event) in trace.events.iter().enumerate().skip(trace.first_event()) {
        if let EventKind::Case { folder, .. } = &event.kind {
            (case, lazy) = (Case::new(config, trace, folder), Case::new(config, trace, folder));
            complete = Complete::new(config);
            plain.start_case()?;
            hooked.start_case()?;
        }
        let view = case.step(number as u32, event)?.0;
        lazy.step(number as u32, event)?;
        let position = number as u32 + 1;
        let leaves = complete.all_reports(trace, &mut hooked, &mut lazy, position, &view);
        let leaves = leaves.map_err(|stop| match stop {
            Stop::Error(error) => error,
            Stop::Budget(limit) => EngineError::Infrastructure(limit),
        })?;
        doubts.extend(complete.take_doubts());
        let Some(count) = view.state_count().filter(|count| *count <= state_limit) else { continue };
        (compared, states, largest) = (compared + 1, states + count, largest.max(count));
        let all = exhaustive(&mut plain, &mut case, &view)?;
        if all.len() != leaves.len() || all.iter().any(|report| !leaves.contains(report)) {
            differing.push(position);
        }
    }
    print(&json!({
        "positions": trace.events.len() - trace.first_event(), "compared": compared, "states": states.to_string(),
        "largest": largest.to_string(), "exhaustive_recoveries": plain.recoveries, "complete_recoveries": hooked.recoveries,
        "differing": differing.len(), "named": differing.iter().take(NAMED_LIMIT).collect::<Vec<_>>(), "doubts": doubts,
    }));
    Ok(differing.is_empty() && doubts.is_empty())
}

/// The distinct heap reports of all states of a position.
fn exhaustive(probes: &mut Probes, case: &mut Case, view: &View) -> Result<Vec<Rc<HeapReport>>, EngineError> {
    let mut reports: Vec<Rc<HeapReport>> = Vec::new();
    let mut error = None;
    let _ = Exhaustive.states(0, view, Scope::All, &mut |state| {
        case.image.go_to(&case.model, view, state);
        match probes.probe(&mut case.image) {
            Ok(probed) if reports.iter().any(|known| Rc::ptr_eq(known, &probed.report)) => {}
            Ok(probed) => reports.push(probed.report),
            Err(failed) => error = Some(failed),
        }
        if error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    error.map_or(Ok(reports), Err)
}
