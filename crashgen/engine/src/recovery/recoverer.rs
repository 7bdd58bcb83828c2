// SPDX-License-Identifier: Apache-2.0
//! The recoverer: one replay server, the image that it has, and what it answered. Each distinct image is asked once.
//!
//! Several recoverers may be asked of the same images, in any order: each knows which image its server has ([`ReplayServer::follow`]).

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::recovery::referee::Referee;
use crate::recovery::reports::{doubt_of, parse, without_contents};
use crashgen::complete::{Doubt, UnitKey};
use crashgen::image::{CrashImage, ImageHash};
use crashgen::replay::{CodeSite, Death, Engines, Loads, Manner, Probe, RecoveryTrace, ReplayServer, ServerOptions};
use oracle::{HeapReport, Outcome};
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// What a probe showed of an image.
#[derive(Clone)]
pub struct Probed {
    /// The first part (open, slots, walk, check), or the full probe.
    pub report: Rc<HeapReport>,
    /// The later lives, if there are any, ran on this very image, and not on another one with the same metadata.
    pub is_own: bool,
}

/// What the stages after the first part showed, once for all images with the same first part and the same allocator metadata.
struct Stages {
    /// The image they ran on.
    image: ImageHash,
    /// As it came.
    own: Rc<HeapReport>,
    /// Without the contents of that image; made when another image asks.
    of_others: OnceCell<Rc<HeapReport>>,
}

/// Who recovers an image, too, to tell what an address breaks. In a recovery the heap is at another address than in the workload, where the
/// contract says that it may be mapped anywhere, and the target's code always is: loaders choose where it goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// One that has the heap where the workload had it.
    HeapInPlace,
    /// One that has the code there, under the tracer.
    CodeInPlace,
    /// The same, with the code elsewhere: what it does not show the tracer changed, and not the place.
    CodeMoved,
}

/// A replay server with a memory.
pub struct Recoverer {
    server: ReplayServer,
    whole: Probe,
    /// By image: the number of its first part's report.
    first: FxHashMap<ImageHash, u32>,
    /// Distinct reports of first parts.
    reports: Vec<Rc<HeapReport>>,
    /// Their numbers, by their bytes.
    numbers: FxHashMap<Vec<u8>, u32>,
    stages: FxHashMap<(u32, ImageHash), Stages>,
    /// What the deep probe showed, by image.
    deep: FxHashMap<ImageHash, Rc<HeapReport>>,
    /// First parts that were run, or whole probes that were recorded.
    pub recoveries: u64,
    /// Full probes that were run.
    pub full_probes: u64,
    /// Questions answered from memory.
    pub memoised: u64,
    /// Whom in-process runs are shown; none: nobody.
    referee: Option<Referee>,
    /// Runs that it was shown.
    refereed: u64,
    /// Started when they are first asked.
    others: BTreeMap<Other, Box<Recoverer>>,
}

impl Recoverer {
    /// Starts the server. whole: what its whole probe is.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(options: &ServerOptions, whole: Probe) -> Result<Self, EngineError> {
        Ok(Self {
            server: ReplayServer::start(options)?,
            whole,
            first: FxHashMap::default(),
            reports: Vec::new(),
            numbers: FxHashMap::default(),
            stages: FxHashMap::default(),
            deep: FxHashMap::default(),
            recoveries: 0,
            full_probes: 0,
            memoised: 0,
            referee: None,
            refereed: 0,
            others: BTreeMap::new(),
        })
    }

    /// The other one. None: this one is as that, or nobody can be.
    ///
    /// # Errors
    /// When its server does not start.
    pub fn other(&mut self, other: Other, config: &Config) -> Result<Option<&mut Self>, EngineError> {
        if !self.others.contains_key(&other) {
            let options = match other {
                Other::HeapInPlace => config.heap_in_place_server()?,
                Other::CodeInPlace => config.code_server(true)?,
                Other::CodeMoved => config.code_server(false)?,
            };
            let Some(options) = options else { return Ok(None) };
            self.others.insert(other, Box::new(Self::start(&options, self.whole)?));
        }
        Ok(self.others.get_mut(&other).map(|recoverer| &mut **recoverer))
    }

    /// The same, with a referee.
    pub fn with_referee(self, options: Option<ServerOptions>) -> Self {
        Self { referee: options.map(Referee::new), ..self }
    }

    /// Forgets what it remembers and has counted, as if it had been started now.
    pub fn forget(&mut self) {
        self.first.clear();
        self.reports.clear();
        self.numbers.clear();
        self.stages.clear();
        self.deep.clear();
        (self.recoveries, self.full_probes, self.memoised) = (0, 0, 0);
    }

    /// Distinct images seen.
    pub fn distinct_images(&self) -> u64 {
        self.first.len() as u64
    }

    /// How often recovery entered each of its named stages.
    ///
    /// # Errors
    /// When the server ended.
    pub fn recovery_stages(&mut self) -> Result<BTreeMap<String, u64>, EngineError> {
        Ok(self.server.stages()?)
    }

    /// Which engine did the runs that were to be in-process.
    ///
    /// # Errors
    /// When the server ended, also because in-process runs cannot be believed.
    pub fn engines(&mut self) -> Result<Engines, EngineError> {
        Ok(Engines { refereed: self.refereed, ..self.server.engines()? })
    }

    /// What recovery makes of this image.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn probe(&mut self, image: &mut CrashImage, probe: Probe) -> Result<Probed, EngineError> {
        let hash = image.hash();
        let number = match self.first.get(&hash) {
            Some(number) => {
                self.memoised += 1;
                *number
            }
            None => self.run_first(image, hash)?,
        };
        let first = self.reports[number as usize].clone();
        if probe == Probe::First || !is_worth_stages(&first) {
            return Ok(Probed { report: first, is_own: true });
        }
        if probe == Probe::Deep {
            return Ok(Probed { report: self.run_deep(image, hash)?, is_own: true });
        }
        let key = (number, image.metadata_hash());
        if !self.stages.contains_key(&key) {
            let own = Rc::new(self.run(image, Probe::Full)?);
            self.full_probes += 1;
            self.stages.insert(key, Stages { image: hash, own, of_others: OnceCell::new() });
        }
        let stages = &self.stages[&key];
        let is_own = stages.image == hash;
        let report = match is_own {
            true => &stages.own,
            false => stages.of_others.get_or_init(|| Rc::new(without_contents(&stages.own))),
        };
        Ok(Probed { report: report.clone(), is_own })
    }

    /// The full probe of this very image, whatever is known of other images with the same metadata.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn probe_fully(&mut self, image: &mut CrashImage) -> Result<Probed, EngineError> {
        self.full_probes += 1;
        Ok(Probed { report: Rc::new(self.run(image, Probe::Full)?), is_own: true })
    }

    /// Runs the first part of the probe once more in a process of its own, if it may have run in one process with those of other images.
    /// False: each run has another report, or comes to no end that says anything.
    ///
    /// # Errors
    /// When all runs in a process of their own have one other report: then runs in one process cannot be believed. When the server ended or
    /// sent no report.
    pub fn confirm(&mut self, image: &mut CrashImage) -> Result<bool, EngineError> {
        let Some(known) = self.first.get(&image.hash()).copied().filter(|_| self.server.is_batched()) else {
            return Ok(true);
        };
        self.server.follow(image)?;
        let bytes = self.server.run(Probe::First)?;
        if self.numbers.get(&bytes) == Some(&known) {
            return Ok(true);
        }
        if doubt_of(parse(&bytes)?.outcome).is_some() || self.server.run(Probe::First)? != bytes {
            return Ok(false);
        }
        Err(EngineError::Infrastructure(
            "a recovery in one process with others has another heap report than in a process of its own".to_owned(),
        ))
    }

    /// Where a signal ends the probe of this image; none: no signal does, or the place is not known.
    ///
    /// # Errors
    /// When the server ended or sent no answer.
    pub fn death(&mut self, image: &mut CrashImage, probe: Probe) -> Result<Option<Death>, EngineError> {
        self.server.follow(image)?;
        Ok(self.server.run_to_death(probe)?)
    }

    /// Runs the probe on the image and records what it loads of the units that may vary. Searches with other such units may take turns.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn record(
        &mut self,
        image: &mut CrashImage,
        probe: Probe,
        varying: &Rc<[UnitKey]>,
        manner: Manner,
    ) -> Result<(&[u8], Loads), EngineError> {
        self.count_recorded(image, probe, varying)?;
        Ok(self.server.run_recorded(probe, manner)?)
    }

    /// As [`Recoverer::record`], and the referee runs the image, too, if there is one and the run was in-process. What the referee doubts
    /// makes the target unfit for in-process runs ([`Loads::is_unfit`]).
    ///
    /// # Errors
    /// When a server ended or sent no report.
    pub fn record_refereed(
        &mut self,
        image: &mut CrashImage,
        probe: Probe,
        varying: &Rc<[UnitKey]>,
        manner: Manner,
    ) -> Result<(&[u8], Loads), EngineError> {
        self.count_recorded(image, probe, varying)?;
        let is_in_process = self.server.is_in_process();
        let (report, mut loads) = self.server.run_recorded(probe, manner)?;
        let Some(referee) = self.referee.as_mut().filter(|_| is_in_process) else {
            return Ok((report, loads));
        };
        if loads.doubt.is_some() || parse(report)?.outcome == Outcome::Hung {
            return Ok((report, loads)); // nobody believes the first, and under a tracer the second takes a minute
        }
        self.refereed += 1;
        if let Some(why) = referee.doubt(image, probe, varying, (report, &loads))? {
            loads.doubt = Some(Doubt::Unknown(why));
            loads.is_unfit = true;
        }
        Ok((report, loads))
    }

    /// Runs the probe on this image in all engines, if runs are done in-process. Returns why what it shows cannot be believed; none: all
    /// have equal heap reports and loads.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn compare(&mut self, image: &mut CrashImage, probe: Probe) -> Result<Option<String>, EngineError> {
        if !self.server.is_in_process() {
            return Ok(None);
        }
        let (_, loads) = self.record_refereed(image, probe, &Rc::from([]), Manner::Compared)?;
        Ok(loads.doubt.filter(|_| loads.is_unfit).map(Doubt::text))
    }

    /// Runs recovery on the image, with its follow-up if that is asked for. Records it as [`Recoverer::record`] does, and traces it. Returns the
    /// heap report, the loads, and the events for [`Recoverer::parse_recovery_trace`].
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn trace(
        &mut self,
        image: &mut CrashImage,
        (generation, has_follow_up): (u32, bool),
        varying: &Rc<[UnitKey]>,
    ) -> Result<(Vec<u8>, Loads, Vec<u8>), EngineError> {
        self.watch(image, varying)?;
        self.recoveries += 1;
        Ok(self.server.run_traced(generation, has_follow_up)?)
    }

    /// The events of the last traced run. `first_new`: identity of the first file that it makes; `prefix`: of the case's folder.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn parse_recovery_trace(
        &mut self,
        answer: &[u8],
        first_new: u32,
        prefix: &str,
    ) -> Result<RecoveryTrace, EngineError> {
        Ok(self.server.parse_recovery_trace(answer, first_new, prefix)?)
    }

    /// Module and offset of a place in the target's code.
    ///
    /// # Errors
    /// When the server ended.
    pub fn place(&mut self, site: CodeSite) -> Result<(Arc<Path>, u64), EngineError> {
        Ok((self.server.module(site.module)?, site.offset.into()))
    }

    /// The whole of the probe that it was started for.
    pub fn whole(&self) -> Probe {
        self.whole
    }

    fn count_recorded(
        &mut self,
        image: &mut CrashImage,
        probe: Probe,
        varying: &Rc<[UnitKey]>,
    ) -> Result<(), EngineError> {
        self.recoveries += 1;
        self.full_probes += u64::from(probe == Probe::Full);
        self.watch(image, varying)
    }

    fn watch(&mut self, image: &mut CrashImage, varying: &Rc<[UnitKey]>) -> Result<(), EngineError> {
        self.server.follow(image)?;
        Ok(self.server.watch(varying)?)
    }

    fn run_first(&mut self, image: &mut CrashImage, hash: ImageHash) -> Result<u32, EngineError> {
        self.server.follow(image)?;
        let bytes = self.server.run_in_batch(Probe::First)?;
        self.recoveries += 1;
        let next = self.reports.len() as u32;
        let number = match self.numbers.get(&bytes) {
            Some(known) => *known,
            None => {
                self.reports.push(Rc::new(parse(&bytes)?));
                self.numbers.insert(bytes, next);
                next
            }
        };
        self.first.insert(hash, number);
        Ok(number)
    }

    fn run_deep(&mut self, image: &mut CrashImage, hash: ImageHash) -> Result<Rc<HeapReport>, EngineError> {
        if let Some(known) = self.deep.get(&hash) {
            return Ok(known.clone());
        }
        let report = Rc::new(self.run(image, Probe::Deep)?);
        self.deep.insert(hash, report.clone());
        Ok(report)
    }

    fn run(&mut self, image: &mut CrashImage, probe: Probe) -> Result<HeapReport, EngineError> {
        self.server.follow(image)?;
        parse(&self.server.run(probe)?)
    }
}

/// A recovery that did not come to its end has no later stages.
fn is_worth_stages(first: &HeapReport) -> bool {
    first.outcome == oracle::Outcome::Done
}
