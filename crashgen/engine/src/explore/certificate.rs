// SPDX-License-Identifier: Apache-2.0
//! The certificate: what was covered, and why it is not all.

use crate::base::config::EngineKind;
use crate::explore::parts;
use crate::explore::shares::{self, Range};
use crate::recovery::twins::MadeTwins;
use crashgen::replay::Engines;
use crashgen::strategy::{Coverage, Reach, Strategy};
use crashgen::trace::{EventKind, Trace};
use oracle::{Judgement, RuleId, RuleSet};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Distinct reasons that are kept. Of more only their number is.
const REASON_LIMIT: usize = 16;

/// Collects what a certificate says.
#[derive(Clone, Default)]
pub struct Tally {
    /// Crash positions that were explored or passed by.
    pub positions: u64,
    /// Positions at which each strategy ran.
    pub by_strategy: BTreeMap<&'static str, u64>,
    /// Positions of which some states were drawn at random.
    drawn: u64,
    /// A strategy ran that runs all states.
    has_run_all: bool,
    /// Strategies that ran at the position that is under way.
    ran: Vec<&'static dyn Strategy>,
    /// Crash positions that need no exploring ([`crate::explore::unchanged`]).
    pub unchanged: u64,
    /// Decimal logarithm of the number of reachable states. Each state counts at the position where it first exists.
    pub states_log10: Option<f64>,
    /// Judgements of the oracle.
    pub judgements: u64,
    /// Judgements that could say nothing.
    pub unknowns: u64,
    unknown_reasons: BTreeSet<String>,
    /// What recoveries fail with as the heap without a crash does, and at how many judgements.
    as_without_crash: BTreeMap<String, u64>,
    judged: RuleSet,
    /// By rule and reason: how many judgements could not judge the rule.
    not_judged: BTreeMap<(RuleId, String), u64>,
    /// Bounds and limits that were hit.
    pub bounds_hit: BTreeSet<String>,
    /// What was covered of combinations of choices.
    coverage: Option<Combinations>,
    /// Crash positions of which `complete` did not see every state, by reason.
    incomplete: BTreeMap<&'static str, Incomplete>,
    /// Crash positions that were left for want of time or recoveries.
    pub left: Vec<Range>,
    /// What was wanting.
    pub left_why: Option<String>,
    /// Places in the source that store and never flush (FL101).
    pub never_flushed: usize,
    /// Rules that judgements of later generations could not judge there, and why.
    later_not_judged: BTreeSet<(RuleId, String)>,
    /// How many crash positions of later generations are not explored completely, by reason.
    later_gaps: BTreeMap<&'static str, u64>,
    /// Stores into PM that were stepped over.
    pub stores: u64,
    /// Crash positions of later generations that were explored or passed by.
    pub later_positions: u64,
    /// Judgements of the oracle on later generations.
    pub later_judgements: u64,
    /// Why another strategy ran than was asked for.
    pub fallback: Option<String>,
    /// Why a faster engine did not run recoveries.
    pub engine_why: Option<String>,
    /// Findings that it looked behind, in the order of their crash positions.
    pub behind: Vec<Behind>,
    /// Crash states that lived long.
    long_lives: u64,
    /// What the file system may lose; none: nothing is lost.
    pub file_losses: Option<FileLosses>,
}

/// Sets of file operations that a power failure may lose together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileLosses {
    /// How many there are.
    pub sets: usize,
    /// Those that were explored to their end.
    pub explored: usize,
    /// Crash positions at which one of them is lost.
    pub crash_positions: u64,
    /// Why that is not all; none: it is.
    pub why: Option<String>,
}

impl FileLosses {
    /// What the certificate covers of them.
    pub fn covered(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("; of what the workload does to files {} sets that a POSIX file system may lose{why}", self.explored)
    }

    fn gap(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        Some(format!("lost file operations: {} of {} sets were explored: {why}", self.explored, self.sets))
    }
}

/// How the exploration went on at a finding.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Behind {
    pub finding: String,
    pub how: HowBehind,
    /// What was taken for made, in words.
    pub repair: String,
    /// From this crash position on.
    pub position: u32,
}

/// What a finding is kept from coming back by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HowBehind {
    /// A repair, with which it did not come back.
    Repaired,
    /// States that differ in what its state lost are not told apart.
    NotToldApart,
}

impl Behind {
    fn text(&self) -> String {
        let Self { finding, how, repair, position } = self;
        let how = match how {
            HowBehind::Repaired => "repaired",
            HowBehind::NotToldApart => "not told apart",
        };
        format!("behind {finding}, {how} from crash position {position} on: {repair}")
    }
}

/// What was covered of the combinations of choices of any so many lines.
#[derive(Clone, Copy, Debug)]
struct Combinations {
    strength: usize,
    positions: u64,
    /// Positions at which each combination is in some state that was run.
    whole: u64,
    /// What was covered at the other positions.
    partly: Coverage,
}

impl Combinations {
    fn text(&self) -> String {
        let Self { strength, positions, whole, partly } = self;
        let what = format!("each combination of the choices of any {strength} lines");
        if whole == positions {
            return format!("{what} at all {positions} crash positions, not of more");
        }
        let percent = (1000.0 * partly.covered / partly.tuples).floor() / 10.0;
        format!(
            "{what} at {whole} of {positions} crash positions, {percent:.1} % of them elsewhere: too many choices or lines"
        )
    }
}

impl Tally {
    /// A crash position comes next. It is not counted if a budget ends the exploration there: an exploration that goes on counts it.
    pub fn begin_position(&mut self) {
        self.ran.clear();
    }

    /// A strategy runs at the position.
    pub fn add_ran(&mut self, strategy: &'static dyn Strategy) {
        self.ran.push(strategy);
    }

    /// Adds the crash position, with the states born there.
    pub fn end_position(&mut self, born_log10: Option<f64>) {
        self.positions += 1;
        self.add_states(born_log10);
        for strategy in self.ran.drain(..) {
            *self.by_strategy.entry(strategy.name()).or_default() += 1;
            self.drawn += u64::from(strategy.reach() == Reach::Drawn);
            self.has_run_all |= strategy.reach() == Reach::All;
        }
    }

    /// Adds what was covered of combinations at a position.
    pub fn add_coverage(&mut self, here: Coverage) {
        let nothing = Combinations { strength: here.strength, positions: 0, whole: 0, partly: Coverage::default() };
        let sum = self.coverage.get_or_insert(nothing);
        sum.positions += 1;
        if here.is_whole {
            sum.whole += 1;
        } else {
            sum.partly.tuples += here.tuples;
            sum.partly.covered += here.covered;
        }
    }

    /// Adds the states born at a position.
    fn add_states(&mut self, born_log10: Option<f64>) {
        let Some(born) = born_log10 else { return };
        self.states_log10 = Some(match self.states_log10 {
            None => born,
            Some(sum) => {
                let (high, low) = if sum > born { (sum, born) } else { (born, sum) };
                high + (1.0 + 10f64.powf(low - high)).log10()
            }
        });
    }

    /// Takes note of what a judgement could and could not judge.
    pub fn add(&mut self, judgement: &Judgement) {
        self.judgements += 1;
        self.judged.extend(judgement.judged);
        judgement.violations.iter().for_each(|violation| self.judged.insert(violation.rule));
        for (rule, why) in &judgement.not_judged {
            *self.not_judged.entry((*rule, why.to_string())).or_default() += 1;
        }
        if !judgement.unknown.is_empty() {
            self.unknowns += 1;
        }
        for reason in &judgement.unknown {
            self.add_unknown(reason);
        }
        for failure in &judgement.as_without_crash {
            *self.as_without_crash.entry(failure.clone()).or_default() += 1;
        }
    }

    /// A crash position of which not every state was explored.
    pub fn add_incomplete(&mut self, position: u32, why: &'static str) {
        let fresh = Incomplete { why, positions: 0, first: position, last: position };
        let incomplete = self.incomplete.entry(why).or_insert(fresh);
        (incomplete.positions, incomplete.last) = (incomplete.positions + 1, position);
    }

    /// Whether a limit left states out at a position of which a strategy promises all.
    pub fn leaves_states_out(&self) -> bool {
        let is_file_lost = self.file_losses.as_ref().is_some_and(|losses| losses.why.is_some());
        !self.incomplete.is_empty() || !self.later_gaps.is_empty() || !self.left.is_empty() || is_file_lost
    }

    /// Whether every state of every position was explored, and nothing is unknown.
    pub fn is_whole(&self) -> bool {
        !self.leaves_states_out() && !self.has_unknown()
    }

    /// Takes over what was counted of a later generation.
    pub fn add_later(&mut self, later: Self) {
        self.later_positions += later.positions + later.later_positions;
        self.later_judgements += later.judgements + later.later_judgements;
        if later.judged.contains(RuleId::LaterGeneration) {
            self.judged.insert(RuleId::LaterGeneration);
        }
        let is_capacity = |rule: &RuleId, why: &str| *rule == RuleId::NotUsable && why.starts_with("capacity");
        let not_judged = later.not_judged.into_keys().filter(|(rule, why)| is_capacity(rule, why));
        self.later_not_judged.extend(not_judged.chain(later.later_not_judged));
        self.unknowns += later.unknowns;
        later.unknown_reasons.iter().for_each(|reason| self.add_unknown(&after_second_crash(reason)));
        self.bounds_hit.extend(later.bounds_hit);
        let as_without_crash = later.as_without_crash.into_iter();
        self.add_without_crash(as_without_crash.map(|(failure, count)| (after_second_crash(&failure), count)));
        let gaps = later.incomplete.into_values().map(|gap| (gap.why, gap.positions));
        for (why, count) in gaps.chain(later.later_gaps) {
            *self.later_gaps.entry(why).or_default() += count;
        }
    }

    /// Takes over what was counted at the crash positions that follow.
    pub fn add_part(&mut self, part: Self) {
        self.positions += part.positions;
        self.unchanged += part.unchanged;
        self.add_states(part.states_log10);
        self.judgements += part.judgements;
        self.unknowns += part.unknowns;
        self.stores += part.stores;
        self.later_positions += part.later_positions;
        self.later_judgements += part.later_judgements;
        self.bounds_hit.extend(part.bounds_hit);
        self.judged.extend(part.judged);
        self.coverage = part.coverage.or(self.coverage);
        self.left.extend(part.left);
        self.left_why = part.left_why.or(self.left_why.take());
        part.unknown_reasons.iter().for_each(|reason| self.add_unknown(reason));
        self.add_without_crash(part.as_without_crash.into_iter());
        let add = |sum: &mut BTreeMap<&'static str, u64>, counts: BTreeMap<&'static str, u64>| {
            counts.into_iter().for_each(|(name, count)| *sum.entry(name).or_default() += count);
        };
        add(&mut self.by_strategy, part.by_strategy);
        self.drawn += part.drawn;
        self.has_run_all |= part.has_run_all;
        add(&mut self.later_gaps, part.later_gaps);
        self.later_not_judged.extend(part.later_not_judged);
        for (reason, count) in part.not_judged {
            *self.not_judged.entry(reason).or_default() += count;
        }
        for (why, more) in part.incomplete {
            let sum = self.incomplete.entry(why).or_insert(Incomplete { positions: 0, ..more.clone() });
            (sum.positions, sum.last) = (sum.positions + more.positions, more.last);
        }
    }

    /// Takes over what was counted where file operations are lost.
    pub fn add_file_losses(&mut self, lost: Self, seen: FileLosses) {
        self.file_losses = Some(FileLosses { crash_positions: lost.positions, ..seen });
        self.add_part(Self {
            positions: 0,
            stores: 0,
            drawn: 0,
            by_strategy: BTreeMap::new(),
            left: Vec::new(),
            ..lost
        });
    }

    /// Takes over what long lives showed, and why there are no more of them.
    pub fn add_long_lives(&mut self, lives: Self, stopped: Option<&str>, asked: usize) {
        self.long_lives = lives.judgements;
        if lives.judgements > 0 {
            self.judged.insert(RuleId::NotLasting);
        }
        if let Some(why) = stopped {
            self.bounds_hit.insert(format!("{} of {asked} long lives: {why}", lives.judgements));
        }
        lives.unknown_reasons.iter().for_each(|reason| self.add_unknown(&in_a_long_life(reason)));
        let as_without_crash = lives.as_without_crash.into_iter();
        self.add_without_crash(as_without_crash.map(|(failure, count)| (in_a_long_life(&failure), count)));
    }

    fn add_without_crash(&mut self, failures: impl Iterator<Item = (String, u64)>) {
        failures.for_each(|(failure, count)| *self.as_without_crash.entry(failure).or_default() += count);
    }

    /// A reason why the verdict cannot be pass.
    pub fn add_unknown(&mut self, reason: &str) {
        if self.unknown_reasons.len() < REASON_LIMIT {
            self.unknown_reasons.insert(reason.to_owned());
        }
    }

    /// Takes note of what the twins cannot say, and of the rule that they break.
    pub fn add_twins(&mut self, made: &MadeTwins) {
        if !made.without_crash.is_empty() {
            self.judged.insert(RuleId::FailsWithoutCrash);
        }
        made.unknown.iter().for_each(|reason| self.add_unknown(reason));
        self.bounds_hit.extend(made.bound.clone());
    }

    /// Whether a heap was judged, and not only that its recovery neither crashes nor hangs.
    pub fn has_judged_a_heap(&self) -> bool {
        self.judged.contains(RuleId::RecoveryFailed)
    }

    /// Whether something could not be known. What comes after a step that fails without a crash is not.
    pub fn has_unknown(&self) -> bool {
        !self.unknown_reasons.is_empty() || !self.as_without_crash.is_empty()
    }

    /// `1.2e+09`.
    pub fn states_text(&self) -> String {
        let Some(log10) = self.states_log10 else { return "0".into() };
        if log10 < 6.0 {
            return format!("{:.0}", 10f64.powf(log10));
        }
        let mut exponent = log10.floor();
        let mut mantissa = format!("{:.1}", 10f64.powf(log10 - exponent));
        if mantissa == "10.0" {
            (mantissa, exponent) = ("1.0".into(), exponent + 1.0);
        }
        format!("{mantissa}e+{exponent:02.0}")
    }

    fn rules_not_judged(&self) -> Vec<NotJudged> {
        let text = |why: &str, count: u64| match count == self.judgements {
            true => why.to_owned(),
            false => format!("{why} (at {count} of {} judgements)", self.judgements),
        };
        let is_explored = |rule: RuleId| rule == RuleId::LaterGeneration && self.judged.contains(rule);
        let reasons = self.not_judged.iter().filter(|((rule, _), _)| !is_explored(*rule));
        let reasons = reasons.map(|((rule, why), count)| NotJudged { rule: rule.to_string(), why: text(why, *count) });
        let later = self.later_not_judged.iter().map(|(rule, why)| NotJudged {
            rule: RuleId::LaterGeneration.to_string(),
            why: format!("{rule} after a second crash: {why}"),
        });
        reasons.chain(later).collect()
    }

    /// Bounds and limits that were hit, in words.
    fn bounds(&self) -> Vec<String> {
        let positions = self.positions;
        let incomplete = self.incomplete.values().map(|Incomplete { why, positions: count, first, last }| {
            format!("{count} of {positions} crash positions are not explored completely, from {first} to {last}: {why}")
        });
        // What is never flushed has more states with every store: a product, if recovery reads several such lines.
        let is_capped = self.incomplete.keys().any(|why| why.contains("limit"));
        let likely = (is_capped && self.never_flushed > 0)
            .then(|| format!("places that store and never flush (FL101): {}, a likely cause", self.never_flushed));
        let later = self.later_gaps.iter().map(|(why, count)| {
            format!("{count} crash positions of later generations are not explored completely: {why}")
        });
        let judgements = self.judgements + self.later_judgements;
        let without = self.as_without_crash.iter().map(|(failure, count)| {
            format!(
                "{count} of {judgements} judgements: recovery fails as the heap without a crash does (FL017): {failure}"
            )
        });
        // Behind a finding nothing is complete but as repaired, and what is covered says that the sets are not.
        let losses = self.file_losses.as_ref().filter(|_| self.behind.is_empty()).and_then(FileLosses::gap);
        self.bounds_hit
            .iter()
            .cloned()
            .chain(losses)
            .chain(incomplete)
            .chain(likely)
            .chain(later)
            .chain(without)
            .collect()
    }

    /// Why the exploration is not complete; empty if it is. is_part: what has not been met yet, the rest may meet.
    fn gaps(&self, is_part: bool) -> Vec<String> {
        let mut gaps: Vec<String> = self.fallback.iter().cloned().chain(self.bounds()).collect();
        if let Some(coverage) = &self.coverage {
            gaps.push(coverage.text());
        } else if self.drawn > 0 {
            gaps.push(format!("sampled at {} of {} crash positions", self.drawn, self.positions));
        } else if is_part && self.by_strategy.is_empty() {
            // Nothing of it yet: no strategy to speak of.
        } else if self.by_strategy.is_empty() && self.unchanged > 0 {
            // Every position was explored elsewhere.
        } else if !self.has_run_all {
            gaps.push("one or two states a crash position".into());
        }
        if !self.unknown_reasons.is_empty() {
            gaps.push("some states are unknown".into());
        }
        if !self.has_judged_a_heap() && self.unchanged == 0 && !is_part {
            gaps.push("no operation markers: no heap was judged".into());
        }
        if self.stores == 0 && !is_part {
            gaps.push("no store into PM was seen".into());
        }
        gaps
    }

    /// The certificate as it is printed.
    pub fn certificate(&self, run: Run, numbers: Numbers, covers: String) -> Certificate {
        let Run { strategy, engine, stopped } = run;
        let gaps = self.gaps(stopped.is_some());
        let stop = stopped.as_ref().map(|stopped| stopped.text.clone());
        let behind: Vec<String> = self.behind.iter().map(Behind::text).collect();
        let is_whole_as_repaired = gaps.is_empty() && stop.is_none() && !behind.is_empty();
        let as_repaired = is_whole_as_repaired.then(|| "complete only as repaired".to_owned());
        let why: Vec<&str> = as_repaired.iter().chain(&behind).chain(&gaps).chain(&stop).map(String::as_str).collect();
        Certificate {
            complete: why.is_empty(),
            why: why.join("; "),
            is_whole_as_repaired,
            behind: self.behind.clone(),
            gaps,
            stopped,
            incomplete: self.incomplete.values().cloned().collect(),
            strategy,
            fallback: self.fallback.clone(),
            engine,
            engine_why: self.engine_why.clone(),
            crash_positions: self.positions,
            states: self.states_text(),
            states_log10: self.states_log10,
            recoveries: numbers.recoveries,
            memoised: numbers.memoised,
            distinct_images: numbers.distinct_images,
            full_probes: numbers.full_probes,
            stages: numbers.stages.into_iter().map(|(name, entered)| RecoveryStage { name, entered }).collect(),
            engines: numbers.engines,
            later_positions: self.later_positions,
            later_judgements: self.later_judgements,
            long_lives: self.long_lives,
            file_losses: self.file_losses.clone(),
            judgements: self.judgements,
            unknowns: self.unknowns,
            unknown_reasons: self.unknown_reasons.iter().cloned().collect(),
            rules_judged: self.judged.iter().map(|rule| rule.to_string()).collect(),
            rules_not_judged: self.rules_not_judged(),
            positions_by_strategy: self.by_strategy.clone(),
            bounds_hit: self.bounds().into_iter().chain(stop).collect(),
            peak_memory_bytes: numbers.peak_memory_bytes,
            time_s: numbers.time_s,
            covers,
        }
    }
}

fn in_a_long_life(what: &str) -> String {
    format!("in a long life: {what}")
}

fn after_second_crash(what: &str) -> String {
    format!("after a second crash: {what}")
}

/// Counts of the replay engine.
#[derive(Clone, Default)]
#[allow(missing_docs)]
pub struct Numbers {
    pub recoveries: u64,
    pub memoised: u64,
    pub distinct_images: u64,
    pub full_probes: u64,
    pub stages: BTreeMap<String, u64>,
    pub peak_memory_bytes: u64,
    pub engines: Engines,
    pub time_s: f64,
}

impl Numbers {
    /// Adds those of another server, or of the same one's later runs.
    pub fn add(&mut self, other: Self) {
        self.recoveries += other.recoveries;
        self.memoised += other.memoised;
        self.distinct_images += other.distinct_images;
        self.full_probes += other.full_probes;
        other.stages.into_iter().for_each(|(name, entered)| *self.stages.entry(name).or_default() += entered);
        self.engines.in_process += other.engines.in_process;
        self.engines.compared += other.engines.compared;
        self.engines.remembered += other.engines.remembered;
        for (reason, runs) in other.engines.isolated {
            *self.engines.isolated.entry(reason).or_default() += runs;
        }
    }
}

/// How an exploration went.
#[allow(missing_docs)]
pub struct Run {
    pub strategy: &'static str,
    pub engine: EngineKind,
    pub stopped: Option<Stopped>,
}

/// Where an exploration ended before its end.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Stopped {
    /// The first crash position (events before the crash) that is not explored.
    pub position: u32,
    pub why: String,
    /// All that are not explored, from the first to the last of each range.
    pub left: Vec<Range>,
    /// Of an exploration that has ended: the operations that they are in, [`MOST_OPERATIONS`] with most.
    pub operations: Vec<LeftOperation>,
    /// How many operations more.
    pub more_operations: usize,
    /// In words.
    pub text: String,
}

/// How much of an operation was left.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOperation {
    /// The number of the operation in the workload; none: no operation has begun.
    pub operation: Option<u32>,
    /// What it does.
    pub kind: Option<&'static str>,
    /// Crash positions from its begin, or from the return before it, to its return.
    pub positions: u32,
    /// Those that are not explored.
    pub left: u32,
}

/// Operations of which a certificate says how much was left.
const MOST_OPERATIONS: usize = 1000;
/// Those of which its text does.
const OPERATIONS_IN_TEXT: usize = 3;

impl Stopped {
    /// Of an exploration that goes on. None, if nothing is left.
    pub fn so_far(trace: &Trace, left: Vec<Range>, why: &str) -> Option<Self> {
        let left = shares::joined(left);
        let (position, last) = (left.first()?.0, trace.events.len() as u32);
        let text = match left[..] {
            [(_, end)] if end == last => format!("stopped at crash position {position} of {last}: {why}"),
            _ => format!("{} of {last} crash positions are left: {why}", count(&left)),
        };
        Some(Self { position, why: why.to_owned(), left, operations: Vec::new(), more_operations: 0, text })
    }

    /// Of an exploration that has ended.
    pub fn at_last(trace: &Trace, left: Vec<Range>, why: &str) -> Option<Self> {
        let stopped = Self::so_far(trace, left, why)?;
        let mut operations = left_operations(trace, &stopped.left);
        operations.sort_by_key(|of| (std::cmp::Reverse(of.left), of.operation));
        let more_operations = operations.len().saturating_sub(MOST_OPERATIONS);
        let text = format!("{} ({})", stopped.text, operations_text(&operations));
        operations.truncate(MOST_OPERATIONS);
        Some(Self { operations, more_operations, text, ..stopped })
    }
}

fn count(ranges: &[Range]) -> u32 {
    ranges.iter().map(|(first, last)| last + 1 - first).sum()
}

/// Operations of which crash positions are left.
fn left_operations(trace: &Trace, left: &[Range]) -> Vec<LeftOperation> {
    let mut operations = Vec::new();
    let (mut first, mut begun) = (1, None);
    for (number, event) in trace.events.iter().enumerate() {
        if let EventKind::OperationBegin { kind, index, .. } = &event.kind {
            begun = Some((*index, kind.name()));
        }
        let position = number as u32 + 1;
        let is_last = position as usize == trace.events.len();
        if !is_last && !parts::is_end_of_window(trace, position) {
            continue;
        }
        let here = left.iter().map(|(from, to)| (position.min(*to) + 1).saturating_sub(first.max(*from))).sum();
        if here > 0 {
            let (operation, kind) = begun.unzip();
            operations.push(LeftOperation { operation, kind, positions: position + 1 - first, left: here });
        }
        first = position + 1;
    }
    operations
}

fn operations_text(operations: &[LeftOperation]) -> String {
    let text = |of: &LeftOperation| match (of.operation, of.kind) {
        (Some(index), Some(kind)) => format!("{} of {} of operation {index} ({kind})", of.left, of.positions),
        _ => format!("{} of {} before the first operation", of.left, of.positions),
    };
    let mut texts: Vec<String> = operations.iter().take(OPERATIONS_IN_TEXT).map(text).collect();
    if let Some(more) = operations.len().checked_sub(OPERATIONS_IN_TEXT).filter(|more| *more > 0) {
        texts.push(format!("some of {more} more"));
    }
    texts.join(", ")
}

/// Crash positions of which not every state was explored.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Incomplete {
    pub why: &'static str,
    pub positions: u64,
    pub first: u32,
    pub last: u32,
}

/// The most memory that this process ever had, in bytes; 0 where the system does not say.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A stage of recovery that the target names (`stage.h`), and how many of the recoveries run entered it.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct RecoveryStage {
    pub name: String,
    pub entered: u64,
}

/// A rule that was not judged, or not everywhere.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct NotJudged {
    pub rule: String,
    pub why: String,
}

/// The certificate as it is printed.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Certificate {
    pub complete: bool,
    pub why: String,
    /// Complete for the source with the repairs of `behind`, and not for the source as it is.
    pub is_whole_as_repaired: bool,
    /// Findings that were looked behind.
    pub behind: Vec<Behind>,
    pub strategy: &'static str,
    pub fallback: Option<String>,
    pub engine: EngineKind,
    pub engine_why: Option<String>,
    pub crash_positions: u64,
    pub states: String,
    pub states_log10: Option<f64>,
    pub recoveries: u64,
    pub memoised: u64,
    pub distinct_images: u64,
    pub full_probes: u64,
    pub stages: Vec<RecoveryStage>,
    pub engines: Engines,
    pub later_positions: u64,
    pub later_judgements: u64,
    pub long_lives: u64,
    /// What the file system may lose; null: it is said to lose nothing.
    pub file_losses: Option<FileLosses>,
    pub judgements: u64,
    pub unknowns: u64,
    pub unknown_reasons: Vec<String>,
    pub rules_judged: Vec<String>,
    pub rules_not_judged: Vec<NotJudged>,
    pub positions_by_strategy: BTreeMap<&'static str, u64>,
    pub bounds_hit: Vec<String>,
    pub gaps: Vec<String>,
    pub stopped: Option<Stopped>,
    pub incomplete: Vec<Incomplete>,
    pub peak_memory_bytes: u64,
    pub time_s: f64,
    pub covers: String,
}

impl Certificate {
    /// What broke a rule has judged it, also where an exploration that is not counted found it.
    pub fn add_judged(&mut self, rules: impl IntoIterator<Item = String>) {
        let all: BTreeSet<String> = self.rules_judged.drain(..).chain(rules).collect();
        self.rules_judged = all.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::strategy::{Exhaustive, Floor, Sample};
    use oracle::{Fact, Violation};

    #[test]
    fn states_are_added_in_the_logarithm() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.add_states(Some(9.0));
        }
        tally.add_states(None);
        assert_eq!(tally.states_text(), "3.0e+09");
    }

    #[test]
    fn a_rule_that_is_broken_was_judged() {
        let violation = Violation {
            rule: RuleId::RecoverySkipped,
            fact: Fact::OpenedAsClosed,
            message: String::new(),
            slot: None,
            operation: None,
            block: None,
            leaks: None,
            lost_bytes: None,
        };
        let mut tally = Tally::default();
        tally.add(&Judgement { violations: vec![violation], ..Judgement::default() });
        assert!(tally.judged.iter().eq([RuleId::RecoverySkipped]));
    }

    #[test]
    fn the_rules_of_findings_were_judged_wherever_they_were_found() {
        let run = Run { strategy: "complete", engine: EngineKind::Isolated, stopped: None };
        let mut certificate = Tally::default().certificate(run, Numbers::default(), String::new());
        certificate.add_judged(["FL003", "FL001", "FL003"].map(str::to_owned));
        assert_eq!(certificate.rules_judged, ["FL001", "FL003"]);
    }

    #[test]
    fn nothing_stored_is_not_complete() {
        let mut tally = Tally::default();
        tally.add_ran(&Exhaustive);
        tally.end_position(None);
        assert_eq!(tally.gaps(false), ["no operation markers: no heap was judged", "no store into PM was seen"]);
        tally.stores = 1;
        tally.judged.insert(RuleId::RecoveryFailed);
        assert!(tally.gaps(false).is_empty());
        tally.add_ran(&Sample);
        tally.end_position(None);
        assert_eq!(tally.gaps(false), ["sampled at 1 of 2 crash positions"]);
    }

    #[test]
    fn what_a_part_has_not_met_yet_is_no_gap() {
        let mut tally = Tally::default();
        assert!(tally.gaps(true).is_empty());
        tally.add_unknown("a reason");
        tally.add_ran(&Floor);
        tally.end_position(None);
        assert_eq!(tally.gaps(true), ["one or two states a crash position", "some states are unknown"]);
    }
}
