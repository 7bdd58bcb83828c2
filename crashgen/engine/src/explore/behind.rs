// SPDX-License-Identifier: Apache-2.0
//! What is behind a finding: the exploration goes on as if the finding were repaired.
//!
//! A store that is never guaranteed leaves more states with every operation. An exploration that does not end soon after a state that lost
//! a store has shown a finding ends at the return of an operation. It goes on from the finding's crash position, with a repair taken for
//! made ([`AsRepaired`]). What was explored before that position need not be explored again: a flush or a fence more forbids
//! states and allows no other. For the same reason each finding behind a repair is one of the source as it is, and its token names a state
//! of that.
//!
//! Going on is the proof. A repair with which the finding comes back is none: the next one is tried, from the same position. So is one with
//! which it takes too many recoveries to tell. Where none is left, what the finding's state lost is taken as persisted at once: states that
//! differ in that alone are not told apart. Where even then the finding comes back, it is passed by.

use crate::base::budget::Budget;
use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::base::output::Output;
use crate::explore::certificate::{Behind, HowBehind, Tally};
use crate::explore::means::Patience;
use crate::explore::parts::{Task, parts_of};
use crate::explore::shares::Shares;
use crate::explore::workers::{Met, Whole};
use crate::findings::finding::Finding;
use crashgen::edit::AsRepaired;
use crashgen::strategy::Strategy;
use crashgen::trace::{EventKind, Trace};
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

/// Recoveries that an exploration may take behind a finding, or with an unproved repair: for each operation, several times what a right
/// allocator takes.
const PER_OPERATION: u64 = 20;
/// For each so many events, one more: what is created may have few operations and many events.
const EVENTS: u64 = 16;
/// And so many more.
const LEAST: u64 = 1000;

/// A finding that the exploration went behind.
struct Level {
    finding: Finding,
    /// From this crash position on.
    position: u32,
    /// What was counted before it.
    tally: Tally,
    repaired: Repaired,
    /// Not tried yet.
    left: VecDeque<Repaired>,
}

/// What is taken for made.
#[derive(Clone)]
struct Repaired {
    what: AsRepaired,
    how: HowBehind,
    /// In words.
    text: String,
}

impl Level {
    fn new(met: &Met, finding: &Finding, tally: &Tally) -> Option<Self> {
        let made = finding.repairs.iter().filter(|repair| repair.edits.iter().all(AsRepaired::takes));
        let mut left: VecDeque<Repaired> = made
            .map(|repair| Repaired {
                what: AsRepaired { edits: repair.edits.clone(), at_once: BTreeSet::new() },
                how: HowBehind::Repaired,
                text: repair.text.clone(),
            })
            .collect();
        if !finding.lost_sites.is_empty() {
            left.push_back(Repaired {
                what: AsRepaired { edits: Vec::new(), at_once: finding.lost_sites.clone() },
                how: HowBehind::NotToldApart,
                text: "no flush or fence that was tried mends it: what its state lost is taken as persisted at once"
                    .into(),
            });
        }
        let repaired = left.pop_front()?;
        Some(Self { finding: finding.clone(), position: met.position, tally: tally.clone(), repaired, left })
    }
}

/// The findings that the exploration is behind, the outermost first.
#[derive(Default)]
struct Way {
    levels: Vec<Level>,
    /// Findings that nothing keeps from coming back, by id.
    passed: BTreeSet<String>,
}

/// Explores the trace from a crash position to its end, and behind what it finds on the way. Returns why the strategy is not possible, if
/// it is not.
///
/// # Errors
/// Those of [`Whole::explore`].
pub fn explore(
    task: &Task,
    strategy: &'static dyn Strategy,
    whole: &mut Whole,
    mut from: u32,
    output: &mut Output,
) -> Result<Option<String>, EngineError> {
    let is_asked = task.config.looks_behind && strategy.follows_loads();
    let many = many_recoveries(task.trace);
    let mut way = Way::default();
    loop {
        let before = whole.recoveries();
        let trial = way.trial_limit(many);
        let config = way.config(task.config, before, trial);
        let passed = way.passed.clone();
        // Where a repair is taken for made already, a finding shows at once that it is none, or that there is more to repair.
        let recoveries = if way.levels.is_empty() { config.patience.unwrap_or(many) } else { 0 };
        let patience = is_asked.then_some(Patience { passed: &passed, recoveries });
        let is_shared = config.shares_budget && way.levels.is_empty();
        let budget = Budget::of(&config, task.deadline);
        let shares = is_shared.then(|| Shares::of_operations(task.trace, from, &budget, config.jobs));
        let round = Task { config: &config, patience, shares: shares.as_ref(), ..task.clone() };
        let unfit = whole.explore(&round, &parts_of(&config, task.trace, strategy, from), output)?;
        if unfit.is_some() {
            return Ok(unfit);
        }
        let is_time_over = task.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let is_trial_over = trial.is_some_and(|limit| whole.recoveries() - before >= limit)
            && config.limits.recoveries == trial
            && !is_time_over;
        from = match whole.met.take() {
            Some(met) => way.meet(&met, &mut whole.tally),
            None if whole.stopped.is_some() && is_trial_over => way.try_next(way.levels.len() - 1, &mut whole.tally),
            None if way.levels.is_empty() => return whole.explore_left(task, output),
            None => return Ok(None),
        };
        whole.stopped = None;
        whole.tally.behind = way.levels.iter().map(behind).collect();
    }
}

/// More than the exploration of a right allocator takes, by far.
fn many_recoveries(trace: &Trace) -> u64 {
    let is_operation = |kind: &EventKind| matches!(kind, EventKind::OperationBegin { .. });
    let operations = trace.events.iter().filter(|event| is_operation(&event.kind)).count() as u64;
    LEAST + PER_OPERATION * operations + trace.events.len() as u64 / EVENTS
}

fn behind(level: &Level) -> Behind {
    let Repaired { how, text, .. } = &level.repaired;
    Behind { finding: level.finding.id.clone(), how: *how, repair: text.clone(), position: level.position }
}

impl Way {
    /// What the trace is explored with.
    fn config(&self, asked: &Config, recoveries: u64, trial: Option<u64>) -> Config {
        let mut sum = AsRepaired::default();
        for Repaired { what, .. } in self.levels.iter().map(|level| &level.repaired) {
            sum.edits.extend(what.edits.iter().cloned());
            sum.at_once.extend(&what.at_once);
        }
        let mut config = asked.with_repaired(sum);
        let left = asked.limits.recoveries.map(|limit| limit.saturating_sub(recoveries));
        config.limits.recoveries = [left, trial].into_iter().flatten().min();
        config
    }

    /// Recoveries after which the repair that is under trial is given up; none: nothing else is left to try.
    fn trial_limit(&self, many: u64) -> Option<u64> {
        self.levels.last().filter(|level| !level.left.is_empty()).map(|_| many)
    }

    /// The exploration ended at findings. Returns where it goes on.
    fn meet(&mut self, met: &Met, tally: &mut Tally) -> u32 {
        let is_met = |level: &Level| met.findings.iter().any(|finding| finding.id == level.finding.id);
        if let Some(outermost) = self.levels.iter().position(is_met) {
            return self.try_next(outermost, tally);
        }
        let finding = &met.findings[0];
        match Level::new(met, finding, tally) {
            Some(level) => self.levels.push(level),
            None => drop(self.passed.insert(finding.id.clone())),
        }
        met.position
    }

    /// The repair of this level does not help, and what was explored with it does not count. Returns where the exploration goes on.
    fn try_next(&mut self, number: usize, tally: &mut Tally) -> u32 {
        self.levels.truncate(number + 1);
        let level = self.levels.last_mut().expect("the level");
        *tally = level.tally.clone();
        let position = level.position;
        match level.left.pop_front() {
            Some(next) => level.repaired = next,
            None => {
                self.passed.insert(level.finding.id.clone());
                self.levels.pop();
            }
        }
        position
    }
}
