// SPDX-License-Identifier: Apache-2.0
//! Traced runs of recovery and its follow-up, for the search: which recoveries there are at a crash position.

use crate::base::budget::Stop;
use crate::base::error::EngineError;
use crate::explore::course::Generation;
use crate::explore::later::run_identity::RecoveryRun;
use crate::explore::means::Means;
use crate::recovery::reports::{doubt_of, parse};
use crashgen::complete::{Doubt, Recoveries, Run};
use crashgen::image::CrashImage;
use crashgen::trace::{Event, UnitKey};
use rustc_hash::FxHashMap;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// The distinct runs of the current window.
#[derive(Default)]
pub struct RecoveryRuns {
    runs: Vec<RecoveryRun>,
    /// By the bytes of heap report and events.
    numbers: FxHashMap<(Vec<u8>, Vec<u8>), u32>,
    varying: Rc<[UnitKey]>,
    /// What they take, about.
    bytes: usize,
}

impl RecoveryRuns {
    /// The run with this number.
    pub fn run(&self, number: u32) -> &RecoveryRun {
        &self.runs[number as usize]
    }
}

/// Runs traced recoveries for the search.
pub struct TracedRecoveries<'r, 'a> {
    /// Who runs them.
    pub means: &'r mut Means<'a>,
    /// Where power fails.
    pub generation: Generation<'r>,
    /// Where they are kept.
    pub runs: &'r mut RecoveryRuns,
}

impl TracedRecoveries<'_, '_> {
    fn number_of(&mut self, (report, events): (Vec<u8>, Vec<u8>), image: &CrashImage) -> Result<u32, EngineError> {
        let next = self.runs.runs.len() as u32;
        let key = (report, events);
        if let Some(known) = self.runs.numbers.get(&key) {
            return Ok(*known);
        }
        let (report, events) = (&key.0, &key.1);
        let hash = xxh3_128(&[(report.len() as u64).to_le_bytes().as_slice(), report, events].concat());
        let parsed = parse(report)?;
        let first_new = self.generation.trace.files.len() as u32;
        let trace = self.means.recoverer.parse_recovery_trace(events, first_new, image.prefix())?;
        let (recovery, follow_up) = events.split_at(trace.recovery_bytes);
        let (recovery, follow_up) = (xxh3_128(recovery), xxh3_128(follow_up));
        self.runs.bytes += 2 * report.len() + events.len() + trace.events.len() * size_of::<Event>();
        let (report, trace) = (Rc::new(parsed), Rc::new(trace));
        self.runs.runs.push(RecoveryRun { report, trace, hash, recovery, follow_up });
        self.runs.numbers.insert(key, next);
        Ok(next)
    }
}

impl Recoveries for TracedRecoveries<'_, '_> {
    type Stop = Stop;

    fn watch(&mut self, varying: &[UnitKey]) -> Result<(), Stop> {
        *self.runs = RecoveryRuns { varying: varying.into(), ..RecoveryRuns::default() };
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        self.means.check_budget()?;
        let generation = (self.generation.crashes_before() + 1, self.means.config.follow_up);
        let traced = self.means.recoverer.trace(image, generation, &self.runs.varying);
        let (report, loads, events) = traced.map_err(Stop::Error)?;
        let outcome = self.number_of((report, events), image).map_err(Stop::Error)?;
        if loads.is_unfit {
            return Err(Stop::Unfit(loads.doubt.map(Doubt::text).unwrap_or_default()));
        }
        let doubt = loads.doubt.or_else(|| doubt_of(self.runs.run(outcome).report.outcome));
        Ok(Run { outcome, loads: loads.by_target, contents: Vec::new(), doubt })
    }

    fn memory_bytes(&self) -> usize {
        self.runs.bytes
    }
}
