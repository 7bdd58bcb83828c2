// SPDX-License-Identifier: Apache-2.0
//! Exploration in parts: some consecutive crash positions each, explored by as many workers as there are jobs.
//!
//! Where the parts begin and end is a matter of the trace and the strategy, never of the number of jobs. A part begins with nothing
//! remembered, so what it finds does not depend on who explores it, or on what else that worker did. Parts are added up in their
//! order, and those behind one that stopped (a budget, the expected rule of a mutant) do not count, whether they were explored by
//! then or not. So the result is the same for one job and for many; only times, memory, and how many in-process recoveries were
//! compared are not.
//!
//! A part of `complete` ends where a window of its search ends, so that no recovery is run twice for it. Other strategies remember
//! images over the whole trace, and a budget of recoveries is one of the whole: those are one part. Of later generations what recoveries
//! taught is kept over windows, and learned again in each part.
//!
//! Workers share what nobody changes: configuration, trace, twins. Each has a replay server and a model of its own; it takes the
//! next part and steps through the events before it, or begins with the case that the part lies in. What comes before all parts is to judge
//! the trace rules: the worker that is first does it, while the others explore if there are any, and nothing is told before that is over.

use crate::cases::Case;
use crate::certificate::{Certificate, Numbers, Run, Stopped, Tally, peak_memory_bytes};
use crate::config::{Config, StrategyName};
use crate::error::EngineError;
use crate::explore::explore_part;
use crate::finding::Finding;
use crate::lasting::Lasting;
use crate::outcomes::{Known, OutcomeSet};
use crate::output::Output;
use crate::probes::Probes;
use crate::trace_rules::{self, TraceRules};
use crashgen::trace::{EventKind, Trace};
use oracle::TwinSet;
use oracle::contract::Durable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Crash positions that a part has at least, but for the last one: a second of work or less, and the start of a server is little.
const PART_POSITIONS: u32 = 4096;
/// The same of an exploration of later generations, where most crash positions are those of the recoveries from one: seconds.
const NESTED_PART_POSITIONS: u32 = 1024;
/// Time between two certificates of what is explored so far, so that an exploration that is killed can go on.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(5);
/// Of a worker's thread: the search of a window is recursive nowhere, the parsers of debug information are.
const STACK_BYTES: usize = 16 << 20;

/// Crash positions (events before the crash) from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: usize,
    /// The first one.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

/// What is explored, for all workers.
pub struct Task<'a> {
    /// What is asked for.
    pub config: &'a Config,
    /// The whole of it.
    pub trace: &'a Trace,
    /// Its crash positions that need no exploring, by number ([`crate::unchanged`]); empty: none.
    pub unchanged: &'a [bool],
    /// What the full probe is compared with.
    pub twins: Option<&'a TwinSet>,
    /// Outcomes that what recoveries show is compared with.
    pub known: Option<Known>,
    /// When the exploration began.
    pub started: Instant,
    /// When it has to end.
    pub deadline: Option<Instant>,
}

impl Task<'_> {
    fn rules(&self) -> TraceRules {
        let is_durable_on_return = self.config.contract.durable == Durable::OnReturn;
        trace_rules::judge(self.trace, &mut self.config.symbols(), is_durable_on_return)
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
    /// Where a budget ended it.
    pub stopped: Option<Stopped>,
    /// Why `complete` is not possible.
    pub unfit: Option<String>,
    /// What comes after it is not asked for.
    pub is_last: bool,
}

/// From a worker.
pub enum Message {
    /// What the trace rules say.
    Rules(Box<TraceRules>),
    /// So many more crash positions and recoveries.
    Progress(u32, u64),
    /// A part has a finding.
    Finding(usize, Box<Finding>),
    /// A part is over.
    Over(usize, Result<Box<Explored>, EngineError>),
}

/// Where a worker is.
pub struct Cursor {
    /// The heap after the events before `next`.
    pub case: Case,
    /// Number of the event to step over.
    pub next: usize,
}

/// What is there to do, for workers to take.
struct Work<'a> {
    task: &'a Task<'a>,
    strategy: StrategyName,
    parts: &'a [Part],
    /// So many parts were taken.
    dealt: AtomicUsize,
    /// The trace rules are judged, or somebody took that on.
    are_rules_taken: AtomicBool,
    /// Nobody waits for what is left.
    is_over: AtomicBool,
}

/// The sum of parts.
pub struct Whole {
    /// Of all that count.
    pub tally: Tally,
    /// Each once.
    pub findings: Vec<Finding>,
    /// Of all that count.
    pub outcomes: OutcomeSet,
    numbers: Numbers,
    /// Why it ended early.
    pub stopped: Option<Stopped>,
    strategy: StrategyName,
    /// What the trace rules say was told.
    are_rules_told: bool,
}

/// The parts of the trace for a strategy.
pub fn parts_of(config: &Config, trace: &Trace, strategy: StrategyName, first: u32) -> Vec<Part> {
    let end = config.last_position.unwrap_or(u32::MAX).min(trace.events.len() as u32);
    let is_one = strategy != StrategyName::Complete || config.limits.recoveries.is_some();
    let least = if config.nested > 0 { NESTED_PART_POSITIONS } else { PART_POSITIONS };
    let mut parts = Vec::new();
    let mut begin = first;
    let is_end_of_window = |position: u32| {
        let next = &trace.events[position as usize].kind;
        matches!(next, EventKind::Case { .. } | EventKind::OperationReturn { .. })
    };
    for position in first..end {
        let is_long = position + 1 - begin >= least && end - position >= least;
        if !is_one && is_long && is_end_of_window(position) {
            parts.push(Part { number: parts.len(), first: begin, last: position });
            begin = position + 1;
        }
    }
    if begin <= end {
        parts.push(Part { number: parts.len(), first: begin, last: end });
    }
    parts
}

impl Whole {
    /// Nothing yet.
    pub fn new(tally: Tally, strategy: StrategyName) -> Self {
        Self {
            tally,
            findings: Vec::new(),
            outcomes: OutcomeSet::default(),
            numbers: Numbers::default(),
            stopped: None,
            strategy,
            are_rules_told: false,
        }
    }

    /// What another exploration of the same trace told is known: its findings, and what the trace rules say.
    pub fn go_on_from(&mut self, before: Self) {
        self.findings = before.findings;
        self.are_rules_told = before.are_rules_told;
        self.tally.never_flushed = before.tally.never_flushed;
    }

    /// The certificate of what was added so far.
    pub fn certificate(&self, task: &Task, stopped: Option<Stopped>) -> Certificate {
        let numbers = Numbers {
            peak_memory_bytes: peak_memory_bytes(),
            time_s: task.started.elapsed().as_secs_f64(),
            ..self.numbers.clone()
        };
        let covers = format!(
            "workload {}, one interleaving, memory order as traced by {}, built with {}{}",
            task.config.identity.workload,
            task.trace.tracer,
            task.config.identity.flush,
            crashes_text(task.config, self.strategy)
        );
        let run = Run { strategy: self.strategy.name(), stopped, last_position: task.trace.events.len() };
        self.tally.certificate(run, numbers, covers)
    }

    /// Adds the next part.
    fn add(&mut self, part: Explored) {
        self.tally.add_part(part.tally);
        self.numbers.add(part.numbers);
        self.outcomes.join(part.outcomes);
        for finding in part.findings {
            match self.findings.iter_mut().find(|known| known.id == finding.id) {
                Some(known) => known.seen += finding.seen,
                None => self.findings.push(finding),
            }
        }
        self.stopped = part.stopped;
    }

    /// Judges the trace rules, where nothing is explored that it could be done beside.
    pub fn judge_rules(&mut self, task: &Task, output: &mut Output) {
        self.tell_rules(&task.rules(), output);
    }

    fn tell_rules(&mut self, rules: &TraceRules, output: &mut Output) {
        output.trace_rules(rules);
        self.tally.never_flushed = rules.never_flushed();
        self.are_rules_told = true;
    }

    /// Judges the trace rules if nobody did, explores the parts and adds them. Some: `complete` is not possible, why; what was explored by
    /// then is nothing worth, but for findings.
    ///
    /// # Errors
    /// Those of the first part that has one.
    pub fn explore(&mut self, task: &Task, parts: &[Part], output: &mut Output) -> Result<Option<String>, EngineError> {
        let (sender, messages) = channel();
        let work = &Work {
            task,
            strategy: self.strategy,
            parts,
            dealt: AtomicUsize::new(0),
            are_rules_taken: AtomicBool::new(self.are_rules_told),
            is_over: AtomicBool::new(false),
        };
        let jobs = (task.config.jobs as usize).clamp(1, parts.len().max(1));
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
        let mut over: BTreeMap<usize, Result<Box<Explored>, EngineError>> = BTreeMap::new();
        let mut early: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
        let mut told: Vec<String> = self.findings.iter().map(|finding| finding.id.clone()).collect();
        let (mut next, mut positions, mut recoveries, mut certified) = (0, 0, 0, task.started);
        while next < parts.len() || !self.are_rules_told {
            match messages.recv() {
                Ok(Message::Rules(rules)) => self.tell_rules(&rules, output),
                Ok(Message::Progress(more_positions, more_recoveries)) => {
                    (positions, recoveries) = (positions + more_positions, recoveries + more_recoveries);
                    if self.are_rules_told {
                        output.progress(parts[0].first + positions, task.trace.events.len(), recoveries, told.len());
                    }
                }
                Ok(Message::Finding(part, finding)) => early.entry(part).or_default().push(*finding),
                Ok(Message::Over(part, explored)) => drop(over.insert(part, explored)),
                Err(_) => return Err(EngineError::Infrastructure("a worker ended without a word".to_owned())),
            }
            while self.are_rules_told {
                for finding in early.remove(&next).into_iter().flatten() {
                    if !told.contains(&finding.id) {
                        output.finding(&finding);
                        told.push(finding.id);
                    }
                }
                let Some(explored) = over.remove(&next) else { break };
                let mut explored = explored?;
                let (unfit, is_last) = (explored.unfit.take(), explored.is_last);
                self.add(*explored);
                if unfit.is_some() || is_last {
                    return Ok(unfit);
                }
                next += 1;
            }
            if next > 0 && next < parts.len() && certified.elapsed() >= CERTIFICATE_INTERVAL {
                let so_far = Stopped { position: parts[next].first, why: "interrupted".to_owned() };
                output.certificate(&self.certificate(task, Some(so_far)));
                certified = Instant::now();
            }
        }
        Ok(None)
    }
}

impl Work<'_> {
    /// A worker's life: the trace rules if nobody has them yet, then part after part, until there are none.
    fn live(&self, sender: &Sender<Message>) {
        let Self { task, strategy, .. } = *self;
        if !self.are_rules_taken.swap(true, Ordering::Relaxed) {
            // Where nobody listens any more, there is a part whose message says so.
            let _ = sender.send(Message::Rules(Box::new(task.rules())));
        }
        let mut cursor = Cursor { case: Case::new(task.config, task.trace, ""), next: task.trace.first_event() };
        let (mut probes, mut lasting): (Option<Probes>, Lasting) = (None, Lasting::default());
        while let Some(part) = self.parts.get(self.dealt.fetch_add(1, Ordering::Relaxed)) {
            let explored = start(task, strategy, &mut probes)
                .map(|probes| (probes, &mut lasting))
                .and_then(|servers| explore_part(task, strategy, part, &mut cursor, servers, &self.is_over, sender));
            let is_end = explored.as_ref().map_or(true, |explored| explored.is_last || explored.unfit.is_some());
            if sender.send(Message::Over(part.number, explored.map(Box::new))).is_err() || is_end {
                return;
            }
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Crashes after the first, for the certificate of what this strategy ran.
fn crashes_text(config: &Config, strategy: StrategyName) -> String {
    let times = match config.nested {
        _ if strategy != StrategyName::Complete => return String::new(),
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
    strategy: StrategyName,
    probes: &'p mut Option<Probes>,
) -> Result<&'p mut Probes, EngineError> {
    if let Some(known) = probes {
        known.forget();
    } else {
        let is_full = task.config.is_full();
        *probes = Some(Probes::start(&task.config.exploring_server(strategy)?, is_full)?);
    }
    Ok(probes.as_mut().expect("just started"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::tests::{CONFIG, trace};
    use crashgen::trace::{FenceKind, OperationKind};

    fn operations(count: u32, events_each: u32) -> Trace {
        let mut kinds = Vec::new();
        for index in 1..=count {
            kinds.push(EventKind::OperationBegin { kind: OperationKind::Open, index, slot: 0, bytes: 0, object: 0 });
            kinds.extend((2..events_each).map(|_| EventKind::Fence { kind: FenceKind::Sfence }));
            kinds.push(EventKind::OperationReturn { kind: OperationKind::Open, index, status: 0 });
        }
        trace(kinds)
    }

    #[test]
    fn parts_follow_each_other_and_end_with_windows() {
        let config = Config::parse("test", CONFIG).expect("a configuration");
        let trace = operations(200, 100);
        let parts = parts_of(&config, &trace, StrategyName::Complete, 1);
        assert_eq!(parts.len(), 4);
        assert_eq!((parts[0].first, parts[3].last), (1, trace.events.len() as u32));
        for (one, next) in parts.iter().zip(&parts[1..]) {
            assert_eq!((one.number + 1, one.last + 1), (next.number, next.first));
            assert!(matches!(trace.events[one.last as usize].kind, EventKind::OperationReturn { .. }));
            assert!(one.last + 1 - one.first >= PART_POSITIONS);
        }
    }

    #[test]
    fn with_second_crashes_they_are_smaller() {
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        config.nested = 1;
        let trace = operations(200, 100);
        let parts = parts_of(&config, &trace, StrategyName::Complete, 1);
        assert_eq!(parts.len(), 18);
        assert!(parts.iter().all(|part| part.last + 1 - part.first >= NESTED_PART_POSITIONS));
        assert!(parts.windows(2).all(|two| two[0].last + 1 == two[1].first));
        config.nested = 0;
        assert!(parts_of(&config, &trace, StrategyName::Complete, 1).len() < parts.len());
    }

    #[test]
    fn they_end_where_they_are_asked_to() {
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        config.last_position = Some(9000);
        let parts = parts_of(&config, &operations(200, 100), StrategyName::Complete, 7);
        assert_eq!((parts.len(), parts[0].first, parts[parts.len() - 1].last), (2, 7, 9000));
    }

    #[test]
    fn each_worker_may_remember_as_much_as_one_alone() {
        let of_search = |jobs: u32, nested: u32| {
            let mut config = Config::parse("test", CONFIG).expect("a configuration");
            (config.jobs, config.nested, config.limits.memory_mib) = (jobs, nested, Some(28));
            config.bounds().bytes
        };
        assert_eq!(of_search(1, 0), 28 << 20);
        assert_eq!(of_search(4, 0), of_search(1, 0));
        // All searches of a worker together: one of the workload, three of each later crash.
        assert_eq!([of_search(1, 1) * 4, of_search(1, 2) * 7], [28 << 20; 2]);
    }

    #[test]
    fn what_remembers_images_is_one_part() {
        let config = Config::parse("test", CONFIG).expect("a configuration");
        let trace = operations(200, 100);
        let last = trace.events.len() as u32;
        assert_eq!(parts_of(&config, &trace, StrategyName::Mixed, 7), [Part { number: 0, first: 7, last }]);
    }
}
