// SPDX-License-Identifier: Apache-2.0
//! `yardstick`: compares `complete` with `exhaustive`, recovery by recovery. At each crash position with few enough states the heap reports of
//! all states, run one by one with the adapter that people use, must be those of the leaves, run with the hooked one.
//!
//! Where the search hit a limit, its heap reports are only some of those of all states.
//!
//! With the whole probe script, each distinct image is run through all of its lives. The contents in a heap report are those of the state that
//! was run. They are compared where every state of the leaf has them, and left out elsewhere, as when the leaf is judged.
//!
//! A case is a workload. All cases create their heap the same way, so that creation is compared in the first one alone.

use crate::base::budget::Stop;
use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::base::output::print;
use crate::explore::complete::{Complete, Walked};
use crate::heap::case::HeapCase;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::reports::SeenReport;
use crashgen::image::{CrashImage, ImageHash};
use crashgen::model::View;
use crashgen::replay::Probe;
use crashgen::strategy::{Asked, Exhaustive, Strategy};
use crashgen::trace::{EventKind, OperationKind, Trace};
use oracle::HeapReport;
use rustc_hash::{FxHashMap, FxHashSet};
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
    /// Positions that were compared and that the search did not see whole, because a limit was hit.
    incomplete: u64,
    /// States of the positions that were compared.
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
pub fn measure(config: &Config, trace: &Trace, state_limit: u128, probe: Probe) -> Result<bool, EngineError> {
    let mut plain = Plain {
        recoverer: Recoverer::start(&config.server("plain")?, probe)?,
        probe,
        known: FxHashMap::default(),
        reports: Vec::new(),
    };
    let mut hooked = Recoverer::start(&config.recording_server()?, probe)?;
    let mut case = HeapCase::new(config, trace, "");
    let mut complete = Complete::new(config, &Rc::default());
    let mut found = Compared::default();
    let mut is_created = false;
    // What the last walk that was due found: what positions without one are answered by.
    let mut walked: Vec<SeenReport> = Vec::new();
    for (number, event) in trace.events.iter().enumerate().skip(trace.first_event()) {
        if let EventKind::Case { folder, .. } = &event.kind {
            case = HeapCase::new(config, trace, folder);
            complete.start_case();
            found.end_workload();
            found.workloads += 1;
            is_created = false;
        }
        let view = case.step(number as u32, event)?.0;
        is_created |= matches!(event.kind, EventKind::OperationReturn { kind: OperationKind::Create, .. });
        if !is_created && found.workloads > 1 {
            continue;
        }
        found.positions += 1;
        let position = number as u32 + 1;
        let Walked { is_due, is_whole, reports: leaves } =
            complete.all_reports(trace, &mut hooked, &mut case, position, &view).map_err(|stop| match stop {
                Stop::Error(error) => error,
                Stop::Unfit(why) => bad_input(format!("strategy complete is not possible: {why}")),
                Stop::Budget(limit) | Stop::Share(limit) => EngineError::Infrastructure(limit),
            })?;
        found.doubts.extend(complete.take_doubts());
        let is_answered = |leaf: &SeenReport| walked.iter().any(|walked| walked.bare == leaf.bare);
        let mut is_same = is_due || !is_whole || leaves.iter().all(is_answered);
        if is_due {
            walked.clone_from(&leaves);
        }
        if let Some(count) = view.state_count().filter(|count| *count <= state_limit) {
            found.compared += 1;
            found.states += count;
            found.largest = found.largest.max(count);
            let all = plain.all_states(&mut case, &view, &mut found.images)?;
            found.incomplete += u64::from(!is_whole);
            let is_true = leaves.iter().all(|leaf| all.iter().any(|state| leaf.holds(state)));
            let is_all = all.iter().all(|state| leaves.iter().any(|leaf| leaf.holds(state)));
            is_same &= is_true && (is_all || !is_whole);
        }
        if !is_same {
            found.differing.push(position);
        }
    }
    found.end_workload();
    print(&json!({
        "workloads": found.workloads, "large": found.large, "positions": found.positions, "compared": found.compared, "incomplete": found.incomplete,
        "states": found.states.to_string(), "largest": found.largest.to_string(), "images": found.distinct_images,
        "exhaustive_recoveries": plain.recoveries(), "complete_recoveries": hooked.recoveries,
        "differing": found.differing.len(), "named": found.differing.iter().take(NAMED_LIMIT).collect::<Vec<_>>(),
        "doubts": found.doubts,
    }));
    Ok(found.differing.is_empty() && found.doubts.is_empty())
}

/// Runs each image once, with the adapter that people use.
struct Plain {
    recoverer: Recoverer,
    probe: Probe,
    /// What an image showed: number in `reports`.
    known: FxHashMap<ImageHash, usize>,
    reports: Vec<Rc<SeenReport>>,
}

impl Plain {
    fn recoveries(&self) -> u64 {
        self.known.len() as u64
    }

    /// The distinct heap reports of all states of a position; their images are added to `images`.
    fn all_states(
        &mut self,
        case: &mut HeapCase,
        view: &View,
        images: &mut FxHashSet<ImageHash>,
    ) -> Result<Vec<Rc<SeenReport>>, EngineError> {
        let mut numbers = BTreeSet::new();
        let mut error = None;
        let _ = Exhaustive.states(&Asked::all(view), &mut |state| {
            let image = case.crash(view, state).image;
            images.insert(image.hash());
            match self.number_of(image) {
                Ok(number) => {
                    numbers.insert(number);
                }
                Err(failed) => error = Some(failed),
            }
            if error.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        error.map_or_else(|| Ok(numbers.into_iter().map(|number| self.reports[number].clone()).collect()), Err)
    }

    fn number_of(&mut self, image: &mut CrashImage) -> Result<usize, EngineError> {
        let hash = image.hash();
        if let Some(number) = self.known.get(&hash) {
            return Ok(*number);
        }
        let report = match self.probe {
            Probe::First => self.recoverer.probe(image, Probe::First)?.report,
            Probe::Full | Probe::Deep => self.recoverer.probe_fully(image)?.report,
        };
        let number = self.reports.iter().position(|known| *known.own == *report).unwrap_or(self.reports.len());
        if number == self.reports.len() {
            self.reports.push(Rc::new(SeenReport::of_image(HeapReport::clone(&report))));
        }
        self.known.insert(hash, number);
        Ok(number)
    }
}
