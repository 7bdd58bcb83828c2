// SPDX-License-Identifier: Apache-2.0
//! What a crash did not do. A step of the probe that dies, hangs, calls exit or answers an error in the twin is the allocator's
//! failure without a crash, and the same failure of a recovery is no finding of its crash state. It is no pass either: the judgement
//! is unknown.
//!
//! Equal are only the same step, and the same signal or status. Lives 0 to 2 go through nothing but what life 3 goes through first,
//! and a twin has no lives 0 to 2: it is compared by its life 3.

use super::words::{signal_name, stage_phrase};
use super::{Judge, Subject};
use crate::fact::{Fact, Step};
use crate::report::{EMPTIED, HeapReport, Life, Outcome, SectionKind, Status};
use crate::rule::RuleId;

/// Steps of the probe that did not do what they are for.
pub(super) fn failures_of(report: &HeapReport) -> Vec<Fact> {
    let numbered = report.lives.iter().enumerate();
    numbered.flat_map(|(number, life)| refusals_of(number as u16, life)).chain(end_of(report)).collect()
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

fn refusals_of(number: u16, life: &Life) -> Vec<Fact> {
    let step = |section| Step::new(number, section);
    let once = [
        (SectionKind::Open, life.open),
        (SectionKind::Slots, life.slots.as_ref().map(|slots| slots.status)),
        (SectionKind::Objects, life.objects.as_ref().map(|objects| objects.status)),
        (SectionKind::Walk, life.walk.as_ref().map(|walk| walk.status)),
        (SectionKind::Check, life.check),
        (SectionKind::Drain, life.drain.as_ref().map(|drain| drain.status)),
        (SectionKind::FreeAll, life.free_all),
        (SectionKind::Maximal, life.maximal.map(|maximal| maximal.status)),
        (SectionKind::Close, life.close),
    ];
    let once = once.into_iter().filter_map(|(section, status)| Some((step(section), status?)));
    let contents = life.contents.iter().map(|of| (Step::contents_after(number, of.after), of.status));
    let all = once.chain(contents).filter(|(_, status)| *status != Status::Ok);
    all.map(|(step, status)| Fact::Answered(step, status.into())).collect()
}

/// The fact as a twin shows it; none: it says more than that a step failed.
fn in_twin(fact: Fact) -> Option<Fact> {
    match fact {
        Fact::Died(step, signal) => Some(Fact::Died(step.in_twin(), signal)),
        Fact::Exited(step) => Some(Fact::Exited(step.in_twin())),
        Fact::Hung(step) => Some(Fact::Hung(step.in_twin())),
        Fact::Answered(step, code) => Some(Fact::Answered(step.in_twin(), code)),
        _ => None,
    }
}

/// Without the allocator's own words: `the drain after recovery died of signal 6 (SIGABRT)`.
pub(super) fn failure_words(fact: Fact) -> String {
    let of = |step: Step| stage_phrase(step.life(), Some(step.section));
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
            (Some(fact), Some(_)) => self.violate(fact, Subject::default(), failure_words(fact)),
            (Some(fact), None) => self.unknown(format!("{}, and there are no twins", failure_words(fact))),
        }
    }

    /// Takes back what the twin shows, too, and says so.
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
            self.not_judged(violation.rule, "the heap without a crash fails in the same step");
            self.unknown(format!("{}, as without a crash", failure_words(violation.fact)));
        }
    }
}
