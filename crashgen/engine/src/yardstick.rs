// SPDX-License-Identifier: Apache-2.0
//! `yardstick`: `complete` against `exhaustive`, recovery by recovery: at each crash position with few enough states, the heap reports
//! of all states, run one by one with the adapter that people use, are those of the leaves, run with the hooked one.
//!
//! Where the search hit a limit, its heap reports are only some of those of all states.
//!
//! A case is a workload. All cases create their heap the same way, so that creation is compared in the first one alone.

use crate::cases::Case;
use crate::complete::{Complete, Stop, Walked};
use crate::config::{Config, StrategyName};
use crate::error::{EngineError, bad_input};
use crate::output::print;
use crate::probes::Probes;
use crashgen::image::ImageHash;
use crashgen::model::View;
use crashgen::replay::Probe;
use crashgen::strategy::{Exhaustive, Scope, Strategy};
use crashgen::trace::{EventKind, OperationKind, Trace};
use oracle::HeapReport;
use rustc_hash::FxHashSet;
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Positions that differ and are named.
const NAMED_LIMIT: usize = 16;
/// A workload of more states than this is a large one.
const LARGE_WORKLOAD: usize = 1000;

/// What was compared.
#[derive(Default)]
struct Compared {
    workloads: u64,
    /// With more than [`LARGE_WORKLOAD`] distinct images that were compared.
    large: u64,
    positions: u64,
    compared: u64,
    /// Of these, the search did not see all of so many: a limit was hit.
    incomplete: u64,
    /// Summed over the positions that were compared.
    states: u128,
    largest: u128,
    differing: Vec<u32>,
    doubts: BTreeSet<String>,
    /// Distinct images of the current workload.
    images: FxHashSet<ImageHash>,
    distinct_images: u64,
}

impl Compared {
    fn end_workload(&mut self) {
        self.large += u64::from(self.images.len() > LARGE_WORKLOAD);
        self.distinct_images += self.images.len() as u64;
        self.images.clear();
    }
}

/// Prints one JSON object: what was compared, and where the two differ.
///
/// # Errors
/// When the trace contradicts itself or a replay server fails.
pub fn measure(config: &Config, trace: &Trace, state_limit: u128) -> Result<bool, EngineError> {
    let mut plain = Probes::start(&config.server("plain")?, false)?;
    let mut hooked = Probes::start(&config.exploring_server(StrategyName::Complete)?, false)?;
    let (mut case, mut lazy) = (Case::new(config, trace, ""), Case::new(config, trace, ""));
    let mut complete = Complete::new(config);
    let mut found = Compared::default();
    let mut is_created = false;
    // What the last walk that was due found: what positions without one are answered by.
    let mut walked: Vec<Rc<HeapReport>> = Vec::new();
    for (number, event) in trace.events.iter().enumerate().skip(trace.first_event()) {
        if let EventKind::Case { folder, .. } = &event.kind {
            (case, lazy) = (Case::new(config, trace, folder), Case::new(config, trace, folder));
            complete.start_case();
            plain.start_case()?;
            hooked.start_case()?;
            found.end_workload();
            found.workloads += 1;
            is_created = false;
        }
        let view = case.step(number as u32, event)?.0;
        lazy.step(number as u32, event)?;
        is_created |= matches!(event.kind, EventKind::OperationReturn { kind: OperationKind::Create, .. });
        if !is_created && found.workloads > 1 {
            continue;
        }
        found.positions += 1;
        let position = number as u32 + 1;
        let Walked { is_due, is_whole, reports: leaves } =
            complete.all_reports(trace, &mut hooked, &mut lazy, position, &view).map_err(|stop| match stop {
                Stop::Error(error) => error,
                Stop::Unfit(why) => bad_input(format!("strategy complete is not possible: {why}")),
                Stop::Budget(limit) => EngineError::Infrastructure(limit),
            })?;
        found.doubts.extend(complete.take_doubts());
        let is_in = |some: &[Rc<HeapReport>], all: &[Rc<HeapReport>]| some.iter().all(|report| all.contains(report));
        let mut is_same = is_due || !is_whole || is_in(&leaves, &walked);
        if is_due {
            walked.clone_from(&leaves);
        }
        if let Some(count) = view.state_count().filter(|count| *count <= state_limit) {
            found.compared += 1;
            found.states += count;
            found.largest = found.largest.max(count);
            let all = exhaustive(&mut plain, &mut case, &view, &mut found.images)?;
            found.incomplete += u64::from(!is_whole);
            is_same &= is_in(&leaves, &all) && (is_in(&all, &leaves) || !is_whole);
        }
        if !is_same {
            found.differing.push(position);
        }
    }
    found.end_workload();
    print(&json!({
        "workloads": found.workloads, "large": found.large, "positions": found.positions, "compared": found.compared, "incomplete": found.incomplete,
        "states": found.states.to_string(), "largest": found.largest.to_string(), "images": found.distinct_images,
        "exhaustive_recoveries": plain.recoveries, "complete_recoveries": hooked.recoveries,
        "differing": found.differing.len(), "named": found.differing.iter().take(NAMED_LIMIT).collect::<Vec<_>>(),
        "doubts": found.doubts,
    }));
    Ok(found.differing.is_empty() && found.doubts.is_empty())
}

/// The distinct heap reports of all states of a position; their images are added to `images`.
fn exhaustive(
    probes: &mut Probes,
    case: &mut Case,
    view: &View,
    images: &mut FxHashSet<ImageHash>,
) -> Result<Vec<Rc<HeapReport>>, EngineError> {
    let mut reports: Vec<Rc<HeapReport>> = Vec::new();
    let mut error = None;
    let _ = Exhaustive.states(0, view, Scope::All, &mut |state| {
        case.image.go_to(&case.model, view, state);
        images.insert(case.image.hash());
        match probes.probe(&mut case.image, Probe::First) {
            Ok(probed) if reports.iter().any(|known| Rc::ptr_eq(known, &probed.report)) => {}
            Ok(probed) => reports.push(probed.report),
            Err(failed) => error = Some(failed),
        }
        if error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    error.map_or(Ok(reports), Err)
}
