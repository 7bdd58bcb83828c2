// SPDX-License-Identifier: Apache-2.0
//! What recoveries did: told by the runner, as runs for the search and as traces to be explored.

use crate::complete::{Stop, doubt_of};
use crate::config::Config;
use crate::error::EngineError;
use crate::explore::Explorer;
use crate::unchanged::Unchanged;
use crashgen::LINE_BYTES;
use crashgen::complete::{Doubt, Recoveries, Run, UnitKey};
use crashgen::image::CrashImage;
use crashgen::model::{LineKey, Model};
use crashgen::replay::{CONTENT_SITE, Told};
use crashgen::trace::{Event, EventKind, FileEffect, Module, Site, SiteId, Trace};
use oracle::HeapReport;
use planted::Fault;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Told runs of the current window.
#[derive(Default)]
pub struct ToldRuns {
    pub runs: Vec<ToldRun>,
    numbers: FxHashMap<(Vec<u8>, Vec<u8>), u32>,
    hot: Rc<[UnitKey]>,
    /// What they take, about.
    bytes: usize,
}

#[derive(Clone)]
pub struct ToldRun {
    pub report: Rc<HeapReport>,
    pub told: Rc<Told>,
    /// Of all that was told: the same in every window.
    pub hash: u128,
    /// Of what recovery did.
    recovery: u128,
    /// Of what was done after it.
    follow_up: u128,
}

/// Where the events of told runs come from, by their offset in the adapter's file: numbers that hold in the whole exploration.
#[derive(Default)]
pub struct Sites {
    /// Sites and modules of the workload's trace: those of told runs come after them, in every generation.
    workload: Option<(usize, usize)>,
    numbers: FxHashMap<u64, u32>,
}

impl Sites {
    /// How many of the sites are the workload's; none: there was no told run.
    pub fn of_workload(&self) -> Option<u32> {
        self.workload.map(|(sites, _)| sites as u32)
    }

    /// By site of a told trace: whether what it stores is application content.
    pub fn are_content(&self, told: &Trace) -> Vec<bool> {
        let content = self.workload.map(|(sites, _)| sites);
        (0..told.sites.len()).map(|site| Some(site) == content).collect()
    }
}

/// What was done and is expected, as hashes.
#[derive(Clone, Copy)]
pub struct Did {
    /// By recovery and follow-up.
    pub whole: u128,
    recovery: u128,
    /// By the follow-up, and what is expected from recovery's return on.
    follow_up: u128,
}

impl Did {
    /// is_compared: crash positions that are unchanged are passed by.
    pub fn of(run: &ToldRun, names: u128, (whole, rest): (u64, u64), is_graph: bool, is_compared: bool) -> Self {
        let hash = |words: [u128; 5]| xxh3_128(&words.map(u128::to_le_bytes).concat());
        let (is_graph, is_compared) = (is_graph.into(), is_compared.into());
        Self {
            whole: hash([run.hash, names, whole.into(), is_graph, is_compared]),
            recovery: run.recovery,
            follow_up: hash([run.follow_up, 0, rest.into(), is_graph, is_compared]),
        }
    }

    /// From recovery's return on. What recovery left undecided is a matter of what it did.
    pub fn rest(&self, model: &Model, names: u128, unchanged: Option<&Unchanged>) -> u128 {
        let is_settled = model.is_settled() && unchanged.is_none_or(|unchanged| unchanged.is_same_at_return);
        let undecided = if is_settled { 0 } else { self.recovery };
        xxh3_128(&[self.follow_up, names, undecided].map(u128::to_le_bytes).concat())
    }
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
        self.explorer.budget().check(self.explorer.probes.recoveries)?;
        let follow_up = self.explorer.config.follow_up && !planted::is(Fault::NoFollowUp);
        let generation = (self.explorer.generation(), follow_up);
        let probes = &mut *self.explorer.probes;
        let (bytes, loads, events) = probes.tell(image, generation, &self.told.hot).map_err(Stop::Error)?;
        let next = self.told.runs.len() as u32;
        let key = (bytes, events);
        let outcome = match self.told.numbers.get(&key) {
            Some(known) => *known,
            None => {
                let report = HeapReport::parse(&key.0)
                    .map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")));
                let first_new = self.explorer.trace.files.len() as u32;
                let told = probes.parse_told(&key.1, first_new, image.prefix()).map_err(Stop::Error)?;
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

    fn kept_bytes(&self) -> usize {
        self.told.bytes
    }
}

/// The told run as a trace: its sites come after those of the workload, and have the same numbers in all told runs.
pub fn told_trace(config: &Config, sites: &mut Sites, before: &Trace, told: &Told) -> Trace {
    let (workload_sites, modules) = *sites.workload.get_or_insert((before.sites.len(), before.modules.len()));
    let (first, module) = (workload_sites as u32, modules as u32);
    let sites = &mut sites.numbers;
    let mut number = |offset: u64| {
        let next = sites.len() as u32;
        first + 1 + *sites.entry(offset).or_insert(next)
    };
    let numbers: Vec<u32> = told.sites.iter().map(|offset| offset.map_or(0, &mut number)).collect();
    let mut known: Vec<(u32, u64)> = sites.iter().map(|(offset, number)| (*number, *offset)).collect();
    known.sort_unstable();
    let content = Site { module: None, offset: 0, caller: None };
    let adapter = known.into_iter().map(|(_, offset)| Site { module: Some(module), offset, caller: None });
    let number = |site: SiteId| if site == CONTENT_SITE { first } else { numbers[site.0 as usize] };
    let events = told.events.iter().map(|event| Event { site: SiteId(number(event.site)), ..event.clone() });
    let module = Module { path: config.hooked_adapter().to_owned(), build_id: String::new() };
    Trace {
        events: events.collect(),
        sites: before.sites[..workload_sites].iter().cloned().chain([content]).chain(adapter).collect(),
        modules: before.modules[..modules].iter().cloned().chain([module]).collect(),
        files: before.files.iter().chain(&told.made).cloned().collect(),
        unsupported: Vec::new(),
        hash: before.hash.clone(),
        tracer: before.tracer.clone(),
        processes: 1,
    }
}

/// Lines that the events store to, flush, or take away.
pub fn touched(model: &Model, events: &[Event]) -> BTreeSet<LineKey> {
    let mut touched: BTreeSet<LineKey> = events.iter().filter_map(line_of).flatten().collect();
    for event in events {
        let EventKind::FileEnd { effect, .. } = &event.kind else { continue };
        let is_kept =
            matches!(**effect, FileEffect::Create { .. } | FileEffect::Extend { .. } | FileEffect::Sync { .. });
        let names: &[&std::sync::Arc<str>] = match &**effect {
            FileEffect::Unlink { path } => &[path],
            FileEffect::Rename { from, to } => &[from, to],
            _ => &[],
        };
        let is_meant = |path: &std::sync::Arc<str>| names.contains(&path);
        let files = model.files().iter();
        let by_name = files.filter(|(_, state)| state.path.as_ref().is_some_and(is_meant)).map(|(file, _)| *file);
        for file in by_name.chain(effect.file().filter(|_| !is_kept)) {
            touched.extend(model.line_numbers(file).map(|number| LineKey { file, number }));
        }
    }
    touched
}

pub fn line_of(event: &Event) -> Option<impl Iterator<Item = LineKey> + use<>> {
    let (file, offset, bytes) = match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => (*file, *offset, bytes.len() as u64),
        EventKind::Flush { file, offset, .. } => (*file, *offset, 1),
        _ => return None,
    };
    let numbers = offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES);
    Some(numbers.map(move |number| LineKey { file, number }))
}
