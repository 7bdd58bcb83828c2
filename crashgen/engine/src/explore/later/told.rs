// SPDX-License-Identifier: Apache-2.0
//! What recoveries did, told by the runner, as runs for the search.

use crate::base::budget::Stop;
use crate::base::error::EngineError;
use crate::explore::explorer::Explorer;
use crate::explore::later::run_identity::ToldRun;
use crate::recovery::reports::doubt_of;
use crashgen::complete::{Doubt, Recoveries, Run, UnitKey};
use crashgen::image::CrashImage;
use crashgen::trace::Event;
use oracle::HeapReport;
use planted::Fault;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// RecoveryTrace runs of the current window.
#[derive(Default)]
pub struct ToldRuns {
    pub runs: Vec<ToldRun>,
    numbers: FxHashMap<(Vec<u8>, Vec<u8>), u32>,
    hot: Rc<[UnitKey]>,
    /// What they take, about.
    bytes: usize,
}

/// Runs told recoveries for the search.
pub struct Teller<'e, 'a> {
    pub explorer: &'e mut Explorer<'a>,
    pub told: &'e mut ToldRuns,
}

impl Recoveries for Teller<'_, '_> {
    type Stop = Stop;

    fn watch(&mut self, hot: &[UnitKey]) -> Result<(), Stop> {
        *self.told = ToldRuns { hot: hot.into(), ..ToldRuns::default() };
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        self.explorer.budget().check(self.explorer.recoverer.recoveries)?;
        let follow_up = self.explorer.config.follow_up && !planted::is(Fault::NoFollowUp);
        let generation = (self.explorer.generation(), follow_up);
        let recoverer = &mut *self.explorer.recoverer;
        let (bytes, loads, events) = recoverer.tell(image, generation, &self.told.hot).map_err(Stop::Error)?;
        let next = self.told.runs.len() as u32;
        let key = (bytes, events);
        let outcome = match self.told.numbers.get(&key) {
            Some(known) => *known,
            None => {
                let report = HeapReport::parse(&key.0)
                    .map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")));
                let first_new = self.explorer.trace.files.len() as u32;
                let told = recoverer.parse_told(&key.1, first_new, image.prefix()).map_err(Stop::Error)?;
                let hash = xxh3_128(&[(key.0.len() as u64).to_le_bytes().as_slice(), &key.0, &key.1].concat());
                let report = Rc::new(report.map_err(Stop::Error)?);
                let (recovery, follow_up) = key.1.split_at(told.recovery_bytes);
                let (recovery, follow_up) = (xxh3_128(recovery), xxh3_128(follow_up));
                let answers = key.0.len() + key.1.len();
                self.told.bytes += answers + key.0.len() + told.events.len() * size_of::<Event>();
                self.told.runs.push(ToldRun { report, told: Rc::new(told), hash, recovery, follow_up });
                self.told.numbers.insert(key, next);
                next
            }
        };
        if loads.is_unfit {
            return Err(Stop::Unfit(loads.doubt.map(Doubt::text).unwrap_or_default()));
        }
        let doubt = loads.doubt.or_else(|| doubt_of(self.told.runs[outcome as usize].report.outcome));
        Ok(Run { outcome, loads: loads.by_target, contents: Vec::new(), doubt })
    }

    fn memory_bytes(&self) -> usize {
        self.told.bytes
    }
}
