// SPDX-License-Identifier: Apache-2.0
//! The workers that explore a trace part by part, and the sum of what the parts showed ([`crate::explore::parts`]).
//!
//! Workers share what nobody changes: configuration, trace, twins. Each has a replay server and a model of its own. It takes the next part
//! and steps through the events before it, or begins with the case that the part lies in. The first worker judges the trace rules before its
//! first part, while the others explore. What the trace rules say is printed before anything else.

use crate::base::budget::{Budget, Stop};
use crate::base::config::{Config, EngineKind};
use crate::base::error::EngineError;
use crate::base::output::{Output, Pace};
use crate::explore::certificate::{Certificate, FileLosses, Numbers, Run, Stopped, Tally, peak_memory_bytes};
use crate::explore::course::Generation;
use crate::explore::examiner::Examiner;
use crate::explore::explorer::Explorer;
use crate::explore::later::first_crash::FirstCrashes;
use crate::explore::means::{Listener, Means, ProgramRepeats, Results};
use crate::explore::outcomes::OutcomeSet;
use crate::explore::parts::{Cursor, Part, Task};
use crate::explore::shares::{self, Range, Shares};
use crate::explore::trace_rules::{self, TraceRules};
use crate::explore::workload::Workload;
use crate::findings::finding::{Finding, Findings};
use crate::findings::onset::OnsetFinder;
use crate::recovery::recoverer::Recoverer;
use crashgen::replay::Engines;
use crashgen::strategy::Strategy;
use crashgen::trace::Trace;
use oracle::contract::Durable;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two certificates of what is explored so far, so that an exploration that is killed can go on.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(5);
/// Time from the begin of a part to the first one.
const FIRST_CERTIFICATE: Duration = Duration::from_secs(1);
/// Stack of a worker's thread. The search of a window is recursive nowhere; the parsers of debug information are.
const STACK_BYTES: usize = 16 << 20;

impl Task<'_> {
    fn rules(&self) -> TraceRules {
        let is_durable_on_return = self.config.contract.durable == Durable::OnReturn;
        trace_rules::judge(self.trace, &mut self.config.symbols(), is_durable_on_return)
    }

    /// Workers. A budget of recoveries is used by one after the other, so that what is explored with it does not depend on who is faster.
    fn jobs(&self) -> usize {
        if self.config.limits.recoveries.is_some() { 1 } else { self.config.jobs as usize }
    }

    /// What bounds a part before which so many recoveries were run.
    fn budget(&self, recoveries: u64) -> Budget {
        Budget { before: self.recoveries_before + recoveries, ..Budget::of(self.config, self.deadline) }
    }

    /// Leaves the operation that this crash position of the part is in. Returns what comes behind it.
    fn leave(&self, part: &Part, position: u32, why: String, tally: &mut Tally) -> Option<Part> {
        let end = self.shares.map_or(part.last, |shares| shares.end_of(position)).min(part.last);
        tally.left.push((position, end));
        tally.left_why = Some(why);
        (end < part.last).then_some(Part { first: end + 1, ..*part })
    }
}

/// What a part showed.
pub struct Explored {
    /// What was seen.
    pub tally: Tally,
    /// What is wrong, in order.
    pub findings: Vec<Finding>,
    /// What recoveries showed, if somebody asks.
    pub outcomes: OutcomeSet,
    /// What it took.
    pub numbers: Numbers,
    /// The crash position where a budget ended it, and which budget.
    pub stopped: Option<(u32, String)>,
    /// What of the part comes behind an operation that had used up its share.
    pub rest: Option<Part>,
    /// Why the strategy is not possible.
    pub unfit: Option<String>,
    /// What may be repaired.
    pub met: Option<Met>,
    /// What comes after it is not asked for.
    pub is_last: bool,
}

/// Where an exploration ended to go on as if something were repaired.
#[derive(Clone)]
pub struct Met {
    /// The crash position of the first of them. What was counted from there on does not count: it is explored again.
    pub position: u32,
    /// What may be repaired, at least one.
    pub findings: Vec<Finding>,
}

/// What a part showed so far.
pub struct SoFar {
    /// The crash position that is explored next.
    position: u32,
    tally: Tally,
    numbers: Numbers,
}

/// What a worker says.
pub enum Message {
    /// What the trace rules say.
    Rules(Box<TraceRules>),
    /// So many more crash positions and recoveries.
    Progress(u32, u64),
    /// A part has a finding.
    Finding(usize, Box<Finding>),
    /// What a part showed before this crash position.
    SoFar(usize, Box<SoFar>),
    /// A part is over.
    Over(usize, Result<Box<Explored>, EngineError>),
}

/// The work that workers take from.
struct Work<'a> {
    task: &'a Task<'a>,
    strategy: &'static dyn Strategy,
    parts: &'a [Part],
    /// How many parts were taken.
    taken: AtomicUsize,
    /// Recoveries that were run.
    recoveries: AtomicU64,
    /// A worker has taken on the trace rules.
    are_rules_taken: AtomicBool,
    /// Nobody waits for what is left.
    is_over: AtomicBool,
}

/// The sum of parts.
pub struct Whole {
    /// Of all parts that count.
    pub tally: Tally,
    /// Each once.
    pub findings: Vec<Finding>,
    /// Of all parts that count.
    pub outcomes: OutcomeSet,
    numbers: Numbers,
    /// The budget that ended it early.
    pub stopped: Option<String>,
    /// It ended to go on as if something were repaired.
    pub met: Option<Met>,
    /// What it has not come to is not asked for.
    is_last: bool,
    /// Parts that were explored to their end.
    pub parts_explored: usize,
    strategy: &'static dyn Strategy,
    /// What the trace rules say was printed.
    are_rules_printed: bool,
    /// It is a part of another exploration, which says how far it is.
    is_aside: bool,
}

impl Whole {
    /// Nothing yet.
    pub fn new(tally: Tally, strategy: &'static dyn Strategy) -> Self {
        Self {
            tally,
            findings: Vec::new(),
            outcomes: OutcomeSet::default(),
            numbers: Numbers::default(),
            stopped: None,
            met: None,
            is_last: false,
            parts_explored: 0,
            strategy,
            are_rules_printed: false,
            is_aside: false,
        }
    }

    /// Nothing yet, of what is explored beside the exploration of the trace. It knows the findings of that, and judges no trace rules.
    pub fn aside(&self, strategy: &'static dyn Strategy) -> Self {
        let (is_aside, are_rules_printed) = (true, true);
        Self { is_aside, are_rules_printed, ..Self::new(Tally::default(), strategy) }
    }

    /// The same of the same trace, with what it shows so far.
    pub fn aside_with_findings(&self, strategy: &'static dyn Strategy) -> Self {
        Self { findings: self.findings.clone(), ..self.aside(strategy) }
    }

    /// A budget ended it, or more is not asked for.
    pub fn is_over(&self) -> bool {
        self.stopped.is_some() || self.is_last
    }

    /// Takes over what lost file operations showed.
    pub fn add_file_losses(&mut self, losses: Self, seen: FileLosses) {
        self.tally.add_file_losses(losses.tally, seen);
        self.numbers.add(losses.numbers);
        self.outcomes.join(losses.outcomes);
        (self.findings, self.is_last) = (losses.findings, losses.is_last);
    }

    /// Takes over what long lives showed.
    pub fn add_long_lives(&mut self, lives: Self, asked: usize) {
        self.tally.add_long_lives(lives.tally, lives.stopped.as_deref(), asked);
        self.findings.extend(lives.findings);
    }

    /// Where the exploration begins: at the first crash position, or where an earlier one left the trace. What that left before is
    /// explored last.
    pub fn resume(&mut self, config: &Config, trace: &Trace, first: u32) -> u32 {
        let end = trace.events.len() as u32;
        let mut left = shares::joined(config.left.iter().map(|(first, last)| (*first, (*last).min(end))).collect());
        let from = match left.last() {
            None => first,
            Some((from, last)) if *last == end => *from,
            Some(_) => end + 1,
        };
        left.retain(|(_, last)| *last < from);
        self.tally.left = left;
        self.tally.left_why = Some("an earlier exploration left them".to_owned());
        from
    }

    /// Explores what operations have left, round by round, until the budget is used up or nothing is left.
    ///
    /// # Errors
    /// Those of [`Whole::explore`].
    pub fn explore_left(&mut self, task: &Task, output: &mut Output) -> Result<Option<String>, EngineError> {
        while self.stopped.is_none() && !self.is_last && !self.tally.left.is_empty() {
            let ranges = shares::joined(std::mem::take(&mut self.tally.left));
            let parts = (0..).zip(&ranges).map(|(number, (first, last))| Part {
                number,
                first: *first,
                last: *last,
                loss: None,
            });
            let shares = Shares::of_ranges(&ranges, task.config.jobs);
            let round = Task { recoveries_before: self.recoveries(), shares: Some(&shares), ..task.clone() };
            let unfit = self.explore(&round, &parts.collect::<Vec<_>>(), output)?;
            if unfit.is_some() {
                return Ok(unfit);
            }
        }
        Ok(None)
    }

    /// Takes over what another exploration of the same trace printed: its findings, and what the trace rules say.
    pub fn go_on_from(&mut self, before: Self) {
        self.findings = before.findings;
        self.are_rules_printed = before.are_rules_printed;
        self.tally.never_flushed = before.tally.never_flushed;
    }

    /// The certificate of what was added.
    pub fn certificate(&self, task: &Task) -> Certificate {
        let why = self.stopped.as_deref().or(self.tally.left_why.as_deref()).unwrap_or_default();
        let stopped = Stopped::at_last(task.trace, self.tally.left.clone(), why);
        self.certificate_of(task, stopped, &self.tally, self.numbers.clone())
    }

    /// The certificate of what was added, while these ranges are not explored yet.
    pub fn certificate_before(&self, task: &Task, ranges: impl IntoIterator<Item = Range>) -> Certificate {
        let mut tally = self.tally.clone();
        tally.left.extend(ranges);
        let stopped = Stopped::so_far(task.trace, tally.left.clone(), INTERRUPTED);
        self.certificate_of(task, stopped, &tally, self.numbers.clone())
    }

    /// The same with what the next part showed so far.
    fn certificate_so_far(&self, task: &Task, parts: &[Part], so_far: SoFar) -> Certificate {
        let (mut tally, mut numbers) = (self.tally.clone(), self.numbers.clone());
        tally.add_part(so_far.tally);
        tally.left.extend(left_of(parts, so_far.position));
        numbers.add(so_far.numbers);
        let stopped = Stopped::so_far(task.trace, tally.left.clone(), INTERRUPTED);
        self.certificate_of(task, stopped, &tally, numbers)
    }

    fn certificate_of(&self, task: &Task, stopped: Option<Stopped>, tally: &Tally, numbers: Numbers) -> Certificate {
        let numbers =
            Numbers { peak_memory_bytes: peak_memory_bytes(), time_s: task.started.elapsed().as_secs_f64(), ..numbers };
        let covers = format!(
            "workload {}{}, one interleaving, memory order as traced by {}, built with {}{}",
            task.config.identity.workload,
            task.config.start_text(),
            task.trace.tracer,
            task.config.identity.flush,
            crashes_text(task.config, self.strategy)
        ) + &tally.file_losses.as_ref().map(FileLosses::covered).unwrap_or_default();
        let engine = if self.strategy.follows_loads() { task.config.engine() } else { EngineKind::Isolated };
        let run = Run { strategy: self.strategy.name(), engine, stopped };
        let mut certificate = tally.certificate(run, numbers, covers);
        certificate.add_judged(self.findings.iter().map(|finding| finding.rule.clone()));
        certificate
    }

    /// Recoveries that were run so far.
    pub fn recoveries(&self) -> u64 {
        self.numbers.recoveries
    }

    /// Adds what comes next of the parts.
    fn add(&mut self, parts: &[Part], part: Explored) {
        self.tally.add_part(part.tally);
        self.numbers.add(part.numbers);
        self.outcomes.join(part.outcomes);
        for finding in part.findings {
            match self.findings.iter_mut().find(|known| known.id == finding.id) {
                Some(known) => known.seen += finding.seen,
                None => self.findings.push(finding),
            }
        }
        if let Some((position, why)) = part.stopped {
            self.tally.left.extend(left_of(parts, position));
            self.stopped = Some(why);
        }
        (self.met, self.is_last) = (part.met, part.is_last);
    }

    fn print_rules(&mut self, rules: &TraceRules, output: &mut Output) {
        output.say("trace_rules", rules);
        self.tally.never_flushed = rules.never_flushed();
        self.are_rules_printed = true;
    }

    /// Judges the trace rules if nobody did, explores the parts and adds them. Returns why the strategy is not possible, if it is not: only
    /// findings of what was explored by then count.
    ///
    /// # Errors
    /// Those of the first part that has one.
    pub fn explore(&mut self, task: &Task, parts: &[Part], output: &mut Output) -> Result<Option<String>, EngineError> {
        let (sender, messages) = channel();
        let work = &Work {
            task,
            strategy: self.strategy,
            parts,
            taken: AtomicUsize::new(0),
            recoveries: AtomicU64::new(0),
            are_rules_taken: AtomicBool::new(self.are_rules_printed),
            is_over: AtomicBool::new(false),
        };
        let jobs = task.jobs().clamp(1, parts.len().max(1));
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let sender = sender.clone();
                std::thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || work.live(&sender))
                    .map_err(|error| EngineError::Infrastructure(format!("a worker cannot be started: {error}")))?;
            }
            drop(sender);
            let added = self.add_all(task, parts, &messages, output);
            work.is_over.store(true, Ordering::Relaxed);
            added
        })
    }

    fn add_all(
        &mut self,
        task: &Task,
        parts: &[Part],
        messages: &Receiver<Message>,
        output: &mut Output,
    ) -> Result<Option<String>, EngineError> {
        let mut over: BTreeMap<usize, VecDeque<Result<Box<Explored>, EngineError>>> = BTreeMap::new();
        let mut early: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
        let mut printed: Vec<String> = self.findings.iter().map(|finding| finding.id.clone()).collect();
        let (mut next, mut positions, mut recoveries, mut certified) = (0, 0, 0, task.started);
        let mut from = parts.first().map_or(0, |part| part.first);
        while next < parts.len() || !self.are_rules_printed {
            match messages.recv() {
                Ok(Message::Rules(rules)) => self.print_rules(&rules, output),
                Ok(Message::Progress(more_positions, more_recoveries)) => {
                    (positions, recoveries) = (positions + more_positions, recoveries + more_recoveries);
                    if self.are_rules_printed && !self.is_aside {
                        output.progress(parts[0].first + positions, task.trace.events.len(), recoveries, printed.len());
                    }
                }
                Ok(Message::Finding(part, finding)) => early.entry(part).or_default().push(*finding),
                Ok(Message::SoFar(part, so_far)) if part == next && self.are_rules_printed && !self.is_aside => {
                    output.say("certificate", &self.certificate_so_far(task, parts, *so_far));
                    certified = Instant::now();
                }
                Ok(Message::SoFar(..)) => {}
                Ok(Message::Over(part, explored)) => over.entry(part).or_default().push_back(explored),
                Err(_) => return Err(EngineError::Infrastructure("a worker ended without a word".to_owned())),
            }
            while self.are_rules_printed {
                for finding in early.remove(&next).into_iter().flatten() {
                    if !printed.contains(&finding.id) {
                        output.say("finding", &finding);
                        printed.push(finding.id);
                    }
                }
                let Some(explored) = over.get_mut(&next).and_then(VecDeque::pop_front) else { break };
                let mut explored = explored?;
                let (unfit, rest) = (explored.unfit.take(), explored.rest);
                self.add(parts, *explored);
                if unfit.is_some() || self.is_last {
                    return Ok(unfit);
                }
                next += usize::from(rest.is_none());
                self.parts_explored += usize::from(rest.is_none() && self.stopped.is_none());
                from = rest.as_ref().or(parts.get(next)).map_or(from, |part| part.first);
            }
            let is_between = next > 0 && next < parts.len() && !self.is_aside;
            if is_between && certified.elapsed() >= CERTIFICATE_INTERVAL {
                output.say("certificate", &self.certificate_before(task, left_of(parts, from)));
                certified = Instant::now();
            }
        }
        Ok(None)
    }
}

impl Work<'_> {
    /// A worker's life: the trace rules if nobody has taken them on, then part after part.
    fn live(&self, sender: &Sender<Message>) {
        let Self { task, strategy, .. } = *self;
        if !self.are_rules_taken.swap(true, Ordering::Relaxed) {
            // If nobody listens any more, the message of the next part fails, too.
            let _ = sender.send(Message::Rules(Box::new(task.rules())));
        }
        let mut cursor = Cursor::new(task.config, task.trace);
        let (mut recoverer, mut onsets): (Option<Recoverer>, OnsetFinder) = (None, OnsetFinder::default());
        let mut rest = None;
        while let Some(part) = rest.take().or_else(|| self.next()) {
            let explored = start(task, strategy, &mut recoverer)
                .map(|recoverer| (recoverer, &mut onsets))
                .and_then(|servers| self.explore_part(&part, &mut cursor, servers, sender));
            rest = explored.as_ref().ok().and_then(|explored| explored.rest);
            let is_end = explored.as_ref().map_or(true, |explored| explored.is_last || explored.unfit.is_some());
            if sender.send(Message::Over(part.number, explored.map(Box::new))).is_err() || is_end {
                return;
            }
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn next(&self) -> Option<Part> {
        self.parts.get(self.taken.fetch_add(1, Ordering::Relaxed)).copied()
    }

    /// Explores a part, from nothing remembered.
    fn explore_part(
        &self,
        part: &Part,
        cursor: &mut Cursor,
        (recoverer, onsets): (&mut Recoverer, &mut OnsetFinder),
        sender: &Sender<Message>,
    ) -> Result<Explored, EngineError> {
        let Self { task, strategy, is_over, .. } = self;
        let config = &*task.config_of(part);
        if part.loss.is_some() {
            *cursor = Cursor::new(config, task.trace); // what came before is stepped over without them
            onsets.leave(); // they follow another heap
        }
        let stages_before = recoverer.recovery_stages()?;
        let engines_before = recoverer.engines()?;
        let mut means = Means {
            config,
            strategy: *strategy,
            budget: task.budget(self.recoveries.load(Ordering::Relaxed)),
            shares: task.shares,
            sharing_to: 0,
            is_over,
            patience: task.patience,
            probe: recoverer.whole(),
            recoverer,
            onsets,
            first_crashes: FirstCrashes::default(),
            repeats: ProgramRepeats::of_part(part.number),
        };
        let mut results = Results {
            listener: &mut PartListener::new(sender, part),
            findings: Findings::new(config),
            outcomes: task.config.outcomes.as_ref().map(|_| OutcomeSet::new(task.known.clone())),
        };
        let mut workload = Workload::new(&means, task.trace, part, cursor);
        let generation = Generation { trace: task.trace, twins: task.twins, unchanged: task.unchanged, before: None };
        let examiner = Examiner { means: &mut means, results: &mut results, generation, tally: Tally::default() };
        let mut explorer = Explorer::new(examiner);
        let walked = explorer.walk(&mut workload);
        let (position, met, mut tally) = (explorer.position(), explorer.met(), explorer.examiner.tally);
        workload.end_case(&mut tally);
        let mut rest = None;
        let (mut is_last, stopped, mut unfit) = match walked {
            Ok(flow) => (flow.is_break(), None, None),
            Err(Stop::Share(why)) => {
                rest = task.leave(part, position, why, &mut tally);
                (false, None, None)
            }
            Err(Stop::Budget(why) | Stop::Error(EngineError::OutOfTime(why))) => (true, Some((position, why)), None),
            Err(Stop::Unfit(why) | Stop::Error(EngineError::Distrust(why))) => (true, None, Some(why)),
            Err(Stop::Error(error)) => return Err(error),
        };
        let numbers = match numbers_of(means.recoverer, stages_before, &engines_before) {
            Ok(numbers) => numbers,
            Err(EngineError::Distrust(why)) => {
                unfit = unfit.or(Some(why));
                Numbers::default()
            }
            Err(_) if unfit.is_some() => Numbers::default(),
            Err(error) => return Err(error),
        };
        self.recoveries.fetch_add(numbers.recoveries, Ordering::Relaxed);
        let met = met.filter(|_| unfit.is_none() && stopped.is_none()).map(|(position, before)| {
            (is_last, tally) = (true, before);
            Met {
                position,
                findings: task.patience.iter().flat_map(|patience| results.repairable(patience)).cloned().collect(),
            }
        });
        let outcomes = results.outcomes.unwrap_or_default();
        Ok(Explored {
            tally,
            findings: results.findings.into_all(),
            outcomes,
            numbers,
            stopped,
            rest,
            unfit,
            met,
            is_last,
        })
    }
}

/// Where an exploration stands that has not ended.
const INTERRUPTED: &str = "interrupted";

/// What is left of the parts, in order, where an exploration ends at a crash position.
fn left_of(parts: &[Part], position: u32) -> impl Iterator<Item = Range> {
    let left = parts.iter().filter(move |part| part.last >= position);
    left.map(move |part| (part.first.max(position), part.last))
}

/// What the certificate says of crashes after the first.
fn crashes_text(config: &Config, strategy: &'static dyn Strategy) -> String {
    let times = match config.nested {
        _ if !strategy.follows_loads() => return String::new(),
        0 => return String::new(),
        1 => "again".to_owned(),
        more => format!("{more} times more"),
    };
    let place =
        if config.follow_up { "recoveries and in what follows them" } else { "recoveries, not in what follows them" };
    format!("; power fails {times} in {place}")
}

/// The worker's server, with nothing remembered.
fn start<'p>(
    task: &Task,
    strategy: &'static dyn Strategy,
    recoverer: &'p mut Option<Recoverer>,
) -> Result<&'p mut Recoverer, EngineError> {
    if let Some(known) = recoverer {
        known.forget();
    } else {
        let started = Recoverer::start(&task.config.exploring_server(strategy)?, task.config.probe())?;
        let referee = if strategy.follows_loads() { task.config.referee_server()? } else { None };
        *recoverer = Some(started.with_referee(referee));
    }
    Ok(recoverer.as_mut().expect("just started"))
}

/// Says what a worker finds to whoever adds the parts.
struct PartListener<'a> {
    sender: &'a Sender<Message>,
    part: usize,
    pace: Pace,
    /// Positions and recoveries that it said so far.
    said: (u32, u64),
    /// When to say next what the part showed.
    certified_at: Instant,
}

impl<'a> PartListener<'a> {
    fn new(sender: &'a Sender<Message>, part: &Part) -> Self {
        let certified_at = Instant::now() + FIRST_CERTIFICATE;
        Self { sender, part: part.number, pace: Pace::default(), said: (part.first - 1, 0), certified_at }
    }
}

impl Listener for PartListener<'_> {
    fn progress(&mut self, position: u32, recoveries: u64) {
        if self.pace.is_due() {
            let before = std::mem::replace(&mut self.said, (position, recoveries));
            let _ = self.sender.send(Message::Progress(position - before.0, recoveries - before.1));
        }
    }

    fn finding(&mut self, finding: &Finding) {
        let _ = self.sender.send(Message::Finding(self.part, Box::new(finding.clone())));
    }

    fn so_far(&mut self, position: u32, tally: &Tally, recoverer: &mut Recoverer) {
        if Instant::now() < self.certified_at {
            return;
        }
        self.certified_at = Instant::now() + CERTIFICATE_INTERVAL;
        let numbers = counted_here(recoverer);
        let so_far = SoFar { position, tally: tally.clone(), numbers };
        let _ = self.sender.send(Message::SoFar(self.part, Box::new(so_far)));
    }
}

/// What the recoverer did since then.
///
/// # Errors
/// [`EngineError::Distrust`] when in-process runs saw another image than the one they were to see. When the server ended.
fn numbers_of(
    recoverer: &mut Recoverer,
    stages_before: BTreeMap<String, u64>,
    engines_before: &Engines,
) -> Result<Numbers, EngineError> {
    Ok(Numbers {
        stages: since(stages_before, recoverer.recovery_stages()?),
        engines: engines_since(engines_before, recoverer.engines()?),
        ..counted_here(recoverer)
    })
}

/// What is known of it without asking its server: a certificate in the middle of a part leaves the server alone.
fn counted_here(recoverer: &Recoverer) -> Numbers {
    Numbers {
        recoveries: recoverer.recoveries,
        memoised: recoverer.memoised,
        distinct_images: recoverer.distinct_images(),
        full_probes: recoverer.full_probes,
        ..Numbers::default()
    }
}

/// What was counted since then.
fn since(before: BTreeMap<String, u64>, mut now: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    now.iter_mut().for_each(|(name, count)| *count -= before.get(name).copied().unwrap_or(0));
    now
}

fn engines_since(before: &Engines, now: Engines) -> Engines {
    let mut isolated = since(before.isolated.clone(), now.isolated);
    isolated.retain(|_, runs| *runs > 0);
    Engines {
        in_process: now.in_process - before.in_process,
        compared: now.compared - before.compared,
        refereed: now.refereed - before.refereed,
        remembered: now.remembered - before.remembered,
        isolated,
    }
}
