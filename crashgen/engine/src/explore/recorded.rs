// SPDX-License-Identifier: Apache-2.0
//! Recorded runs of the probe, for the search of `complete`: each is asked for what it loads, and its heap report is kept for the window.

use crate::base::budget::{Budget, Stop};
use crate::base::error::EngineError;
use crate::explore::means::REFEREE_ONE_IN;
use crate::explore::outcomes::ReportHash;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::reports::{doubt_of, parse, without_contents};
use crashgen::complete::{Doubt, Recoveries, Repeats, Run};
use crashgen::image::CrashImage;
use crashgen::replay::{Manner, Probe};
use crashgen::trace::UnitKey;
use oracle::{HeapReport, Outcome};
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// What a parsed heap report takes, with and without contents, of its bytes.
const REPORT_COPIES: usize = 3;

/// Heap reports of the current window.
pub struct WindowReports {
    reports: Vec<KeptReport>,
    /// By a hash of the bytes, which is taken for them as those of images are.
    numbers: FxHashMap<u128, u32>,
    /// What the reports take, about.
    bytes: usize,
    /// The units that may vary in the window.
    varying: Rc<[UnitKey]>,
    /// Leaves run twice, in all searches.
    repeats: Rc<Repeats>,
}

impl WindowReports {
    /// Of a window in which these units may vary.
    pub fn new(varying: Rc<[UnitKey]>, repeats: Rc<Repeats>) -> Self {
        Self { reports: Vec::new(), numbers: FxHashMap::default(), bytes: 0, varying, repeats }
    }

    /// Nothing is kept any more.
    pub fn clear(&mut self) {
        *self = Self::new(Rc::from([]), self.repeats.clone());
    }

    /// The report with this number.
    pub fn report(&self, number: u32) -> &KeptReport {
        &self.reports[number as usize]
    }

    /// What they take, bytes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn number_of(&mut self, bytes: &[u8]) -> Result<u32, EngineError> {
        let (next, hash) = (self.reports.len() as u32, xxh3_128(bytes));
        if let Some(known) = self.numbers.get(&hash) {
            return Ok(*known);
        }
        self.reports.push(KeptReport::new(parse(bytes)?));
        self.bytes += bytes.len() * REPORT_COPIES;
        self.numbers.insert(hash, next);
        Ok(next)
    }
}

/// A heap report, with what is asked of it at every crash position that may leave it.
pub struct KeptReport {
    /// As it came.
    pub own: Rc<HeapReport>,
    without_contents: OnceCell<Rc<HeapReport>>,
    hash: OnceCell<ReportHash>,
}

impl KeptReport {
    fn new(own: HeapReport) -> Self {
        Self { own: Rc::new(own), without_contents: OnceCell::new(), hash: OnceCell::new() }
    }

    /// What all states of a leaf have in common.
    pub fn without_contents(&self) -> &Rc<HeapReport> {
        self.without_contents.get_or_init(|| Rc::new(without_contents(&self.own)))
    }

    /// Of the report without contents.
    pub fn hash(&self) -> ReportHash {
        *self.hash.get_or_init(|| ReportHash::of(self.without_contents()))
    }
}

/// Runs recoveries for the search.
pub struct RecordedRecoveries<'r> {
    /// Who runs them.
    pub recoverer: &'r mut Recoverer,
    /// How much of the probe script is run.
    pub probe: Probe,
    /// What bounds them.
    pub budget: Budget,
    /// Where their heap reports are kept.
    pub reports: &'r mut WindowReports,
}

impl RecordedRecoveries<'_> {
    fn record(&mut self, image: &mut CrashImage, manner: Manner, is_refereed: bool) -> Result<Run, Stop> {
        self.budget.check(self.recoverer.recoveries)?;
        let varying = &self.reports.varying;
        let recorded = match is_refereed {
            true => self.recoverer.record_refereed(image, self.probe, varying, manner),
            false => self.recoverer.record(image, self.probe, varying, manner),
        };
        let (bytes, loads) = recorded.map_err(Stop::Error)?;
        if loads.is_unfit {
            return Err(Stop::Unfit(loads.doubt.map(Doubt::text).unwrap_or_default()));
        }
        let outcome = self.reports.number_of(bytes).map_err(Stop::Error)?;
        if self.reports.report(outcome).own.outcome == Outcome::Broken {
            self.budget.check(self.recoverer.recoveries)?; // it may have been cut because the time was over
        }
        let doubt = loads.doubt.or_else(|| doubt_of(self.reports.report(outcome).own.outcome));
        Ok(Run { outcome, loads: loads.by_target, contents: loads.by_contents, doubt })
    }
}

impl Recoveries for RecordedRecoveries<'_> {
    type Stop = Stop;

    fn watch(&mut self, varying: &[UnitKey]) -> Result<(), Stop> {
        *self.reports = WindowReports::new(varying.into(), self.reports.repeats.clone());
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        self.record(image, Manner::Fast, false)
    }

    fn run_again(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        let repeated = self.reports.repeats.leaves() + 1;
        self.record(image, Manner::Afresh, repeated % REFEREE_ONE_IN == 0 || repeated.is_power_of_two())
    }

    fn memory_bytes(&self) -> usize {
        self.reports.bytes
    }

    fn is_worth_repeating(&self, outcome: u32) -> bool {
        self.reports.report(outcome).own.outcome != Outcome::Hung
    }

    fn is_same(&self, one: u32, other: u32) -> bool {
        let without_contents = |outcome| self.reports.report(outcome).without_contents();
        one == other || without_contents(one) == without_contents(other)
    }
}
