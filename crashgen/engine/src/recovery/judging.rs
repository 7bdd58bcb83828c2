// SPDX-License-Identifier: Apache-2.0
//! The oracle's judgement of a crashed heap, from the heap report of its recovery and the bytes of its image.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::CrashedHeap;
use crate::recovery::content::HeapContent;
use crate::recovery::recoverer::{Other, Recoverer};
use crashgen::replay::Probe;
use oracle::{Judgement, RuleId, TwinSet, Verdict, Violation, judge};

/// What heaps are judged by.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// What is asked for.
    pub config: &'a Config,
    /// Of the heap without a crash; none: there are none, or the full probe is not run.
    pub twins: Option<&'a TwinSet>,
}

impl Judge<'_> {
    /// Judges the heap, recovered by this recoverer. That recovery repaired bad content only the full probe of this very image can say.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn judge(&self, recoverer: &mut Recoverer, probe: Probe, heap: CrashedHeap) -> Result<Judgement, EngineError> {
        let CrashedHeap { image, history } = heap;
        let mut judgement = self.judge_probe(recoverer, probe, CrashedHeap { image, history })?;
        if probe == Probe::Deep && !judgement.violations.is_empty() {
            let soon = self.judge_probe(recoverer, Probe::Full, CrashedHeap { image, history })?;
            name_what_does_not_last(&mut judgement.violations, &soon);
        }
        Ok(judgement)
    }

    fn judge_probe(
        &self,
        recoverer: &mut Recoverer,
        probe: Probe,
        heap: CrashedHeap,
    ) -> Result<Judgement, EngineError> {
        let CrashedHeap { image, history } = heap;
        let mut probed = recoverer.probe(image, probe)?;
        loop {
            let content = HeapContent::read_by(|file, offset, into| image.read(file, offset, into));
            let (contract, shape) = (&self.config.contract, self.config.shape());
            let judgement = judge(contract, &shape, history, &probed.report, &content, self.twins);
            let is_content = judgement.violations.iter().any(|violation| violation.broken() == RuleId::ContentChanged);
            if probed.is_own || !is_content {
                return Ok(judgement);
            }
            probed = recoverer.probe_fully(image)?;
        }
    }

    /// As [`Judge::judge`], and what only the address breaks is called so.
    ///
    /// # Errors
    /// When a server does not start, ended or sent no report.
    pub fn judge_addresses(
        &self,
        recoverer: &mut Recoverer,
        probe: Probe,
        heap: CrashedHeap,
    ) -> Result<Judgement, EngineError> {
        let CrashedHeap { image, history } = heap;
        let mut judgement = self.judge(recoverer, probe, CrashedHeap { image, history })?;
        self.blame_the_address(recoverer, probe, CrashedHeap { image, history }, &mut judgement.violations)?;
        Ok(judgement)
    }

    /// What a heap breaks that is recovered with itself or the code at another address, and the same heap with one of them where the workload
    /// had it does not, breaks FL015: the violation says what. It is asked of a finding, not of each state: it takes an isolated recovery, and
    /// two traced ones where the image has a word that may be an address of code.
    ///
    /// # Errors
    /// When a server does not start, ended or sent no report.
    pub fn blame_the_address(
        &self,
        recoverer: &mut Recoverer,
        probe: Probe,
        heap: CrashedHeap,
        violations: &mut [Violation],
    ) -> Result<(), EngineError> {
        let CrashedHeap { image, history } = heap;
        for (in_place, control) in [(Other::HeapInPlace, None), (Other::CodeInPlace, Some(Other::CodeMoved))] {
            let is_known = violations.iter().all(|violation| violation.rule == RuleId::NotRelocatable);
            let is_of_code = in_place == Other::CodeInPlace;
            if is_known || (is_of_code && !image.words().any(|word| self.config.may_be_of_code(word))) {
                continue;
            }
            let mut judged = |other| -> Result<Option<Judgement>, EngineError> {
                let Some(other) = recoverer.other(other, self.config)? else { return Ok(None) };
                let judgement = self.judge(other, probe, CrashedHeap { image, history })?;
                Ok(Some(judgement).filter(|judgement| judgement.verdict() != Verdict::Unknown))
            };
            let Some(there) = judged(in_place)? else { continue };
            if there.violations.iter().any(|violation| ENDS.contains(&violation.broken())) {
                continue;
            }
            let control = match control.map(judged).transpose()? {
                Some(None) => continue,
                Some(found) => found,
                None => None,
            };
            name_what_is_not_there(violations, in_place, &there, control.as_ref());
        }
        Ok(())
    }
}

/// Why it may be no other judgement.
pub fn doubts(judgement: &Judgement) -> Vec<String> {
    let as_without = judgement.as_without_crash.iter();
    let as_without = as_without.map(|failure| format!("{failure}, as the heap without a crash does (FL017)"));
    judgement.unknown.iter().cloned().chain(as_without).collect()
}

/// What keeps a recovery from showing anything else.
const ENDS: [RuleId; 2] = [RuleId::RecoveryCrashed, RuleId::RecoveryHung];

/// What breaks, and not where it was. control: breaks it, too, where the place is all that differs.
fn name_what_is_not_there(
    violations: &mut [Violation],
    in_place: Other,
    there: &Judgement,
    control: Option<&Judgement>,
) {
    let how = match in_place {
        Other::HeapInPlace => "mapped at another address",
        Other::CodeInPlace | Other::CodeMoved => "with its code at another address",
    };
    let breaks = |judgement: &Judgement, violation: &Violation| {
        judgement.violations.iter().any(|one| one.broken() == violation.broken())
    };
    let is_of_place = |violation: &&mut Violation| {
        !breaks(there, violation) && control.is_none_or(|control| breaks(control, violation))
    };
    for violation in violations.iter_mut().filter(is_of_place) {
        violation.message = format!("{how}, {}: {}", violation.rule, violation.message);
        violation.rule = RuleId::NotRelocatable;
    }
}

/// What breaks in a long life and in none of the usual ones breaks FL020: the violation says what.
fn name_what_does_not_last(violations: &mut [Violation], soon: &Judgement) {
    let is_soon = |violation: &Violation| soon.violations.iter().any(|one| one.broken() == violation.broken());
    for violation in violations.iter_mut().filter(|violation| !is_soon(violation)) {
        violation.message = format!("in a long life, {}: {}", violation.rule, violation.message);
        violation.rule = RuleId::NotLasting;
    }
}
