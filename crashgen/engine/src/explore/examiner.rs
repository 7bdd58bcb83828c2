// SPDX-License-Identifier: Apache-2.0
//! From what a state breaks to a finding: the violation is blamed on the state or on everything persisted, recognised, shown again,
//! reduced to the lines that matter, and reported.
//!
//! A finding counts once a concrete state breaks its rule in a run of its own. What one engine shows and another one does not, or the
//! build with hooks and not the one that people use, is unknown.

use crate::base::error::EngineError;
use crate::explore::certificate::Tally;
use crate::explore::course::{ExploredPosition, Generation};
use crate::explore::means::{Means, Results};
use crate::findings::evidence::Evidence;
use crate::findings::finding::{FoundState, Origin, stop_at};
use crate::findings::onset::{FollowedGeneration, Onset, RecoveryStart, are_same};
use crate::heap::case::{CrashedHeap, HeapCase};
use crate::heap::crashes::LaterState;
use crate::heap::state::StateRef;
use crate::heap::stepping::as_it_is;
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crashgen::model::{Choice, View};
use oracle::{Judgement, Violation};
use std::ops::ControlFlow;
use std::slice;

/// Why a failure is no finding.
const UNSTEADY: &str = "the same image has other heap reports when it is recovered again";

/// Judges states of a generation, and makes findings of what they break.
pub struct Examiner<'e, 'a> {
    /// What it works with.
    pub means: &'e mut Means<'a>,
    /// Where findings go.
    pub results: &'e mut Results<'a>,
    /// Whose states they are.
    pub generation: Generation<'e>,
    /// What is counted of the generation.
    pub tally: Tally,
}

/// What is to blame for a violation: a state, or everything persisted where that shows it, too.
pub struct Blamed {
    /// The state.
    pub state: Vec<Choice>,
    /// Where it lost nothing: since when.
    pub onset: Option<Onset>,
    /// What that state shows.
    pub violation: Violation,
}

impl Examiner<'_, '_> {
    /// What heaps of this generation are judged by.
    pub fn judge_of(&self) -> Judge<'_> {
        Judge { config: self.means.config, twins: self.generation.twins }
    }

    /// Recovers a heap and judges it.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn judge(&mut self, heap: CrashedHeap) -> Result<Judgement, EngineError> {
        let judge = Judge { config: self.means.config, twins: self.generation.twins };
        judge.judge(self.means.recoverer, self.means.probe, heap)
    }

    /// Makes findings of what a state was judged to break. Break: with one of them the exploration ends.
    ///
    /// # Errors
    /// When the server ended or sent no report.
    pub fn report(
        &mut self,
        case: &mut HeapCase,
        at: &ExploredPosition,
        (strategy, choices): (&'static str, &[Choice]),
        judgement: &Judgement,
    ) -> Result<ControlFlow<()>, EngineError> {
        for violation in &judgement.violations {
            let examined = self.examine(case, at, (strategy, choices), violation);
            examined.map_err(|error| self.out_of_time(error, violation))?;
            if self.is_last() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Makes a finding of what the state breaks.
    fn examine(
        &mut self,
        case: &mut HeapCase,
        at: &ExploredPosition,
        (strategy, choices): (&'static str, &[Choice]),
        violation: &Violation,
    ) -> Result<(), EngineError> {
        let blamed = self.blame(case, at, choices, violation)?;
        let Some(key) = self.recognise(case, at, &blamed) else { return Ok(()) };
        if self.means.recoverer.confirm(case.crash(at.view, &blamed.state).image)? {
            return self.add_finding(case, at, strategy, &blamed, key);
        }
        self.add_unknown(&blamed.violation, UNSTEADY);
        Ok(())
    }

    /// Where the time ends while a violation is examined, it is unknown, and exploring ends.
    fn out_of_time(&mut self, error: EngineError, violation: &Violation) -> EngineError {
        if matches!(error, EngineError::OutOfTime(_)) {
            self.add_unknown(violation, "the time was over before it was examined");
        }
        error
    }

    /// Makes a finding of a violation that one of these states shows in a run of its own, and with the adapter that people use, but for
    /// states whose crash before this one breaks something already; what only one of these runs shows is unknown. False if none does.
    ///
    /// # Errors
    /// When a server does not start, ended or sent no report.
    pub fn show(
        &mut self,
        case: &mut HeapCase,
        at: &ExploredPosition,
        states: (&'static str, &[Vec<Choice>]),
        violation: &Violation,
    ) -> Result<bool, EngineError> {
        self.show_one(case, at, states, violation).map_err(|error| self.out_of_time(error, violation))
    }

    fn show_one(
        &mut self,
        case: &mut HeapCase,
        at: &ExploredPosition,
        (strategy, states): (&'static str, &[Vec<Choice>]),
        violation: &Violation,
    ) -> Result<bool, EngineError> {
        let mut is_shown = false;
        for state in states {
            if self.is_broken_before(case, at, state)? {
                is_shown = true;
                continue;
            }
            let blamed = self.blame(case, at, state, violation)?;
            let Some(key) = self.recognise(case, at, &blamed) else { return Ok(true) };
            let state = blamed.state.as_slice();
            let violations = self.judge(case.crash(at.view, state))?.violations;
            let of_state = (state, state == at.view.prefix_after(state));
            let Some(same) = self.like(case, at, of_state, violations, &blamed.violation)? else {
                self.means.budget.check_negative()?;
                continue;
            };
            is_shown = true;
            let plain = self.with_plain_adapter(case.crash(at.view, state))?;
            if self.like(case, at, of_state, plain, &same)?.is_none() {
                self.means.budget.check_negative()?;
                let why = "the build with hooks shows it, the one that people use does not";
                self.add_unknown(&blamed.violation, why);
                continue;
            }
            self.add_finding(case, at, strategy, &Blamed { violation: same, ..blamed }, key)?;
            return Ok(true);
        }
        Ok(is_shown)
    }

    /// Whether the exploration ends with what was found last.
    pub fn is_last(&mut self) -> bool {
        let why = stop_at(self.results.findings.all(), self.means.config);
        let is_last = why.is_some();
        self.tally.bounds_hit.extend(why);
        is_last
    }

    /// The verdict cannot be pass because of this violation, which is no finding: why.
    pub fn add_unknown(&mut self, violation: &Violation, why: &str) {
        self.tally.add_unknown(&format!("{}: {why}: {}", violation.rule, violation.message));
    }

    /// The state with as many lines as possible as everything persisted leaves them, while the image still shows what is asked for:
    /// halves of the lines first, then quarters, down to single ones. The lines that are left matter, so that one bug is
    /// one finding however many other lines were lost with it. With it what was shown last; none: nothing could be left out.
    ///
    /// # Errors
    /// Those of `shown`.
    pub fn reduce<T>(
        &mut self,
        case: &mut HeapCase,
        view: &View,
        state: &[Choice],
        mut shown: impl FnMut(&mut Self, &mut HeapCase, &[Choice]) -> Result<Option<T>, EngineError>,
    ) -> Result<(Vec<Choice>, Option<T>), EngineError> {
        let mut reduced = state.to_vec();
        let mut last = None;
        let newest = view.prefix_state();
        let mut piece = state.len().div_ceil(2);
        while piece > 0 {
            for start in (0..state.len()).step_by(piece) {
                let lines = start..state.len().min(start + piece);
                if reduced[lines.clone()] == newest[lines.clone()] {
                    continue;
                }
                self.means.budget.check_examining()?;
                let mut tried = reduced.clone();
                tried[lines.clone()].copy_from_slice(&newest[lines]);
                if let Some(same) = shown(self, case, &tried)? {
                    (reduced, last) = (tried, Some(same));
                }
            }
            piece /= 2;
        }
        Ok((reduced, last))
    }

    /// What is to blame for what a state shows.
    fn blame(
        &mut self,
        case: &mut HeapCase,
        at: &ExploredPosition,
        state: &[Choice],
        violation: &Violation,
    ) -> Result<Blamed, EngineError> {
        let newest = at.view.prefix_after(state);
        let onset = self.onset(case, at, state, violation)?;
        if onset.is_some() && state != newest {
            let violations = self.judge(case.crash(at.view, &newest))?.violations;
            if let Some(violation) = self.like(case, at, (&newest, true), violations, violation)? {
                let onset = self.onset(case, at, &newest, &violation)?;
                return Ok(Blamed { state: newest, onset, violation });
            }
        }
        let onset = onset.filter(|_| state == newest);
        Ok(Blamed { state: state.to_vec(), onset, violation: violation.clone() })
    }

    /// Since when everything persisted shows it, after what earlier crashes left in that state.
    fn onset(
        &mut self,
        case: &HeapCase,
        at: &ExploredPosition,
        state: &[Choice],
        violation: &Violation,
    ) -> Result<Option<Onset>, EngineError> {
        let Generation { trace, twins, before, .. } = self.generation;
        let of = FollowedGeneration { config: self.means.config, trace, twins, after: None, budget: self.means.budget };
        let Some(before) = before else { return self.means.onsets.onset(of, at.position, violation) };
        let left = before.left_by(&LaterState { model: &case.model, view: at.view, choices: state.to_vec() });
        let sites = &self.results.findings.recovery_sites;
        let begin = || before.begin(&left, case.prefix(), sites.are_content(trace));
        let after = RecoveryStart { left: &left, begin: &begin, settled: before.settled };
        self.means.onsets.onset(FollowedGeneration { after: Some(after), ..of }, at.position, violation)
    }

    /// The key of the finding, if it is a new one; its like is counted.
    fn recognise(&mut self, case: &HeapCase, at: &ExploredPosition, blamed: &Blamed) -> Option<String> {
        let Blamed { state, onset, violation } = blamed;
        let state = StateRef { case, view: at.view, choices: state, position: at.position };
        self.results.findings.recognise(self.generation.trace, &state, onset.as_ref(), violation)
    }

    /// Of what the state breaks, the same as the target; else the first that breaks the same rule. Unless the state, or the one that it
    /// was made of, is whole, only what everything persisted does not show.
    fn like(
        &mut self,
        case: &HeapCase,
        at: &ExploredPosition,
        (state, is_whole): (&[Choice], bool),
        violations: Vec<Violation>,
        target: &Violation,
    ) -> Result<Option<Violation>, EngineError> {
        let mut alike = Vec::new();
        for violation in violations.into_iter().filter(|violation| violation.broken() == target.broken()) {
            if is_whole || self.onset(case, at, state, &violation)?.is_none() {
                alike.push(violation);
            }
        }
        let same = alike.iter().position(|violation| are_same(violation, target)).unwrap_or(0);
        Ok(alike.into_iter().nth(same))
    }

    /// What the heap breaks with the adapter that people use.
    fn with_plain_adapter(&mut self, heap: CrashedHeap) -> Result<Vec<Violation>, EngineError> {
        let probe = self.means.probe;
        let mut plain = Recoverer::start(&self.means.config.server("plain")?, probe)?;
        Ok(self.judge_of().judge(&mut plain, probe, heap)?.violations)
    }

    /// Whether the crash before that state breaks a rule by itself.
    fn is_broken_before(
        &mut self,
        case: &HeapCase,
        at: &ExploredPosition,
        state: &[Choice],
    ) -> Result<bool, EngineError> {
        let Some(before) = self.generation.before else { return Ok(false) };
        let later = LaterState { model: &case.model, view: at.view, choices: state.to_vec() };
        let Means { config, probe, first_crashes, .. } = &mut *self.means;
        first_crashes.is_broken(config, before, &later, (case.prefix(), *probe))
    }

    /// Of a state that was judged; `key` is that of [`Examiner::recognise`].
    ///
    /// # Errors
    /// [`EngineError::Distrust`] where the engines do not all show it. When a server ended or sent no report.
    fn add_finding(
        &mut self,
        case: &mut HeapCase,
        at: &ExploredPosition,
        strategy: &'static str,
        blamed: &Blamed,
        key: String,
    ) -> Result<(), EngineError> {
        let Blamed { state: from, onset, violation } = blamed;
        let is_whole = *from == at.view.prefix_after(from);
        let (state, same) = self.reduce(case, at.view, from, |examiner, case, tried| {
            let violations = examiner.judge(case.crash(at.view, tried))?.violations;
            examiner.like(case, at, (tried, is_whole), violations, violation)
        })?;
        let image = case.crash(at.view, &state).image;
        if let Some(why) = self.means.recoverer.compare(image, self.means.probe)? {
            return Err(EngineError::Distrust(why));
        }
        if !self.means.recoverer.confirm(image)? {
            self.add_unknown(violation, UNSTEADY);
            return Ok(());
        }
        let mut violation = same.unwrap_or_else(|| violation.clone());
        let judge = Judge { config: self.means.config, twins: self.generation.twins };
        let Means { recoverer, probe, .. } = &mut *self.means;
        judge.blame_the_address(recoverer, *probe, case.crash(at.view, &state), slice::from_mut(&mut violation))?;
        let onset = match onset {
            Some(_) if state != *from => self.onset(case, at, &state, &violation)?, // another choice of an earlier crash
            onset => onset.clone(),
        };
        let config = self.means.config;
        let evidence = Evidence::of(config, case, (at.view, &state), slice::from_ref(&violation));
        let state = StateRef { case, view: at.view, choices: &state, position: at.position };
        let Generation { trace, before, .. } = self.generation;
        let plain = match before {
            None if !config.as_repaired.is_empty() => Some(as_it_is(config, trace, &state)?),
            _ => None,
        };
        let plain = plain.as_ref().map(|(case, view, choices)| StateRef { case, view, choices, ..state });
        let found = FoundState { at: plain.unwrap_or(state), strategy, evidence, onset };
        let new = self.results.findings.add(config, trace, Origin::Explored(before), &found, &violation, key);
        if let Some(finding) = new {
            self.results.listener.finding(finding);
        }
        Ok(())
    }
}
