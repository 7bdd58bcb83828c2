// SPDX-License-Identifier: Apache-2.0
//! What a crash did not do. A step of the probe that dies, hangs, calls exit or answers an error in a twin is the allocator's failure
//! without a crash: a finding of its own, FL017. The same failure of a recovery is no finding of its crash state. It is no pass either.
//!
//! Equal are only the same step, and the same signal or status. A twin has no lives 0 to 2, and they go through nothing but what its life
//! 3 does, which allocates and frees, too. A lazy open is settled in its life 4.

use super::words::{message_about, recovery_phrase, signal_name, stage_of, twin_phrase};
use super::{Judge, Subject};
use crate::contract::OutOfMemory;
use crate::fact::{Fact, Step};
use crate::history::OperationIndex;
use crate::report::{EMPTIED, EXECUTED, HeapReport, Life, Outcome, SectionKind, Status};
use crate::rule::RuleId;

/// How abort ends a process.
const SIGABRT: u32 = 6;

/// What the heap fails with though power does not (FL017).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutCrash {
    /// The step that fails, and how.
    pub fact: Fact,
    /// The last operation before it; none where threads left that open.
    pub operation: Option<OperationIndex>,
    /// One line for people: nothing is told apart by it.
    pub message: String,
    /// After how many histories it fails so.
    pub seen: u64,
}

/// A step of a twin that did not do what it is for.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// As a twin shows it.
    pub fact: Fact,
    /// With the allocator's own words of it.
    pub words: String,
    /// Memory is out, and that ends the process.
    is_filling: bool,
}

impl Failure {
    /// Whether the contract permits it.
    pub(super) fn is_permitted(&self, out_of_memory: OutOfMemory) -> bool {
        self.is_filling && out_of_memory == OutOfMemory::Ends
    }
}

/// What a twin fails with.
pub(super) fn failures_of(report: &HeapReport) -> Vec<Failure> {
    let numbered = report.lives.iter().enumerate();
    let refusals = numbered.flat_map(|(number, life)| refusals_of(number as u16, life));
    refusals.chain(end_in_twin(report)).collect()
}

/// Of a life that executes several planned operations nothing is known where it takes longer than one of them may.
fn end_in_twin(report: &HeapReport) -> Option<Failure> {
    if report.outcome == Outcome::Hung && report.last_life == EXECUTED {
        return None;
    }
    let fact = with_step(end_of(report)?, Step::of_twin);
    let is_ended = matches!(report.outcome, Outcome::Exited | Outcome::Signal(SIGABRT));
    Some(Failure { fact, words: failure_words(fact, twin_phrase), is_filling: is_ended && has_filled(report) })
}

/// What ended the probe before its end.
pub(super) fn end_of(report: &HeapReport) -> Option<Fact> {
    let step = Step::new(report.last_life, report.last_stage.unwrap_or(SectionKind::Open));
    match report.outcome {
        Outcome::Signal(signal) => Some(Fact::Died(step, signal)),
        Outcome::Exited => Some(Fact::Exited(step)),
        Outcome::Hung => Some(Fact::Hung(step)),
        Outcome::Done | Outcome::Overloaded | Outcome::Broken => None,
    }
}

/// Whether the probe ended in the life that fills the heap where memory ends the process: what it got until then is in its drain.
pub(super) fn has_filled(report: &HeapReport) -> bool {
    let is_there = report.last_life == EMPTIED && report.last_stage == Some(SectionKind::Drain);
    let has_drain = report.life(EMPTIED.into()).is_some_and(|life| life.drain.is_some());
    is_there && has_drain && matches!(report.outcome, Outcome::Signal(_) | Outcome::Exited)
}

/// Only what a recovery may not answer in these steps either ([`super::lives`]).
fn refusals_of(number: u16, life: &Life) -> Vec<Failure> {
    let maximal = life.maximal.filter(|maximal| maximal.bytes > 0);
    let once = [
        (SectionKind::Open, life.open),
        (SectionKind::Slots, life.slots.as_ref().map(|slots| slots.status)),
        (SectionKind::Settle, life.settled),
        (SectionKind::Objects, life.objects.as_ref().map(|objects| objects.status)),
        (SectionKind::Walk, life.walk.as_ref().map(|walk| walk.status)),
        (SectionKind::Check, life.check),
        (SectionKind::Drain, life.drain.as_ref().map(|drain| drain.status)),
        (SectionKind::FreeAll, life.free_all),
        (SectionKind::Maximal, maximal.map(|maximal| maximal.status)),
        (SectionKind::Close, life.close),
    ];
    let once = once.into_iter().filter_map(|(section, status)| Some((Step::new(number, section), status?)));
    let contents = life.contents.iter().map(|of| (Step::contents_after(number, of.after), of.status));
    let all = once.chain(contents).filter(|(step, status)| !may_answer(*step, *status));
    let failure = |(step, status): (Step, Status)| {
        let fact = Fact::Answered(step.of_twin(), status.into());
        let words = format!("{}{}", failure_words(fact, twin_phrase), message_about(life, step.section));
        Failure { fact, words, is_filling: false }
    };
    all.map(failure).collect()
}

fn may_answer(step: Step, status: Status) -> bool {
    match status {
        Status::Ok => true,
        // The history could not be executed once more.
        Status::OutOfMemory if step.life() == EXECUTED && step.section == SectionKind::Close => true,
        // All probe slots are used, or there are more objects than a report has.
        Status::OutOfMemory => matches!(step.section, SectionKind::Drain | SectionKind::Objects),
        Status::UnsupportedCall => matches!(step.section, SectionKind::Walk | SectionKind::Check),
        _ => false,
    }
}

/// The same fact of another step. What says more than that a step failed stays as it is.
pub(super) fn with_step(fact: Fact, step: impl Fn(Step) -> Step) -> Fact {
    match fact {
        Fact::Died(of, signal) => Fact::Died(step(of), signal),
        Fact::Exited(of) => Fact::Exited(step(of)),
        Fact::Hung(of) => Fact::Hung(step(of)),
        Fact::Answered(of, code) => Fact::Answered(step(of), code),
        other => other,
    }
}

/// The fact as a twin shows it; none: it says more than that a step failed.
fn in_twin(fact: Fact) -> Option<Fact> {
    let is_failure = matches!(fact, Fact::Died(..) | Fact::Exited(_) | Fact::Hung(_) | Fact::Answered(..));
    is_failure.then(|| with_step(fact, Step::in_twin))
}

/// Without the allocator's own words: `the drain after recovery died of signal 6 (SIGABRT)`.
pub(super) fn failure_words(fact: Fact, life_phrase: impl Fn(u16) -> &'static str) -> String {
    let of = |step: Step| stage_of(step.life(), life_phrase(step.life()), Some(step.section));
    match fact {
        Fact::Died(step, signal) => format!("{} died of signal {signal}{}", of(step), signal_name(signal)),
        Fact::Exited(step) => format!("{} called exit", of(step)),
        Fact::Hung(step) => format!("{} did not end within its limit", of(step)),
        Fact::Answered(step, code) => format!("{} answered {}", of(step), code.status()),
        other => other.to_string(),
    }
}

impl Judge<'_> {
    /// Memory has ended the life that fills the heap. That is no failure where a twin ends so, too; then it is compared by how much it
    /// got. False: it is one.
    pub(super) fn judge_filling(&mut self) -> bool {
        let Some(fact) = self.filled else { return true };
        let Some(twins) = self.twins else { return false };
        if !twins.failures_at(self.history).contains(&fact) {
            return false;
        }
        self.filled = None;
        let why = "what follows when memory is out: the process ends (out_of_memory = \"ends\")";
        self.not_judged(RuleId::NotUsable, why);
        true
    }

    /// What ended the life is no lack of memory, or nothing tells.
    pub(super) fn end_filling(&mut self) {
        match (self.filled.take(), self.twins) {
            (None, _) => {}
            (Some(fact), Some(_)) => self.violate(fact, Subject::default(), failure_words(fact, recovery_phrase)),
            (Some(fact), None) => {
                self.unknown(format!("{}, and there are no twins", failure_words(fact, recovery_phrase)))
            }
        }
    }

    /// Takes back what the twin shows, too, which is FL017, and says so.
    pub(super) fn compare_without_crash(&mut self) {
        let Some(twins) = self.twins else { return };
        let is_failure = |fact| in_twin(fact).is_some();
        if !self.out.violations.iter().any(|violation| is_failure(violation.fact)) {
            return;
        }
        let failures = twins.failures_at(self.history);
        let is_shown = |fact| in_twin(fact).is_some_and(|fact| failures.contains(&fact));
        let (shown, broken) =
            std::mem::take(&mut self.out.violations).into_iter().partition(|violation| is_shown(violation.fact));
        self.out.violations = broken;
        for violation in shown {
            self.not_judged(violation.rule, "the heap without a crash fails in the same step (FL017)");
            self.out.as_without_crash.push(failure_words(violation.fact, recovery_phrase));
        }
    }
}
