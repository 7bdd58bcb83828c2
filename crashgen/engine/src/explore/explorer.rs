// SPDX-License-Identifier: Apache-2.0
//! Exploration: from crash position to crash position, the states of each, and then the crashes in what recovery does from there.

use crate::base::budget::Stop;
use crate::explore::certificate::Tally;
use crate::explore::chosen::ChosenStates;
use crate::explore::complete::Complete;
use crate::explore::course::{Course, ExploredPosition, Step};
use crate::explore::examiner::Examiner;
use crate::explore::later::LaterCrashes;
use crate::explore::means::Means;
use crate::heap::case::HeapCase;
use crashgen::cpu_affinity;
use crashgen::trace::EventKind;
use std::ops::ControlFlow;

/// The exploration of one generation.
pub struct Explorer<'e, 'a> {
    /// Judges states, and makes findings of what they break.
    pub examiner: Examiner<'e, 'a>,
    /// The states that were chosen so far.
    chosen: ChosenStates,
    /// Crashes in recoveries from this generation.
    later: LaterCrashes,
    /// The crash position where it is.
    position: u32,
    /// The first one with a finding that may be repaired.
    first: Option<First>,
}

/// The first crash position with a finding that may be repaired.
struct First {
    position: u32,
    /// What was counted before it.
    tally: Tally,
    /// Recoveries that were run before it.
    recoveries: u64,
}

/// Crash positions that are explored as they are after that one: an operation has a hundred or two.
const MOST_UNREPAIRED: u32 = 256;

impl<'e, 'a> Explorer<'e, 'a> {
    /// Nothing is explored yet.
    pub fn new(examiner: Examiner<'e, 'a>) -> Self {
        let later = LaterCrashes::new(examiner.means);
        Self { examiner, chosen: ChosenStates::default(), later, position: 0, first: None }
    }

    /// Where it is, or where it was stopped.
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Explores the crash positions of a course. Break: what follows is not to be explored.
    ///
    /// # Errors
    /// Why it stopped early, at [`Explorer::position`].
    pub fn walk(&mut self, course: &mut dyn Course) -> Result<ControlFlow<()>, Stop> {
        let mut was_unchanged = false;
        while let Some(step) = course.next(&mut self.examiner)? {
            if self.examiner.means.is_over() {
                return Ok(ControlFlow::Break(()));
            }
            self.position = step.position;
            let is_expectation_new = step.is_expectation_new || was_unchanged;
            was_unchanged = self.examiner.generation.is_unchanged(step.position);
            let flow = self.step(course, &Step { is_expectation_new, ..step })?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn step(&mut self, course: &mut dyn Course, step: &Step) -> Result<ControlFlow<()>, Stop> {
        let (case, complete) = course.here();
        if step.is_new_case {
            self.later = LaterCrashes::new(self.examiner.means);
            self.chosen.start_case();
        }
        let Step { position, is_expectation_new, .. } = *step;
        let at = ExploredPosition { position, view: &step.view, is_expectation_new };
        self.examiner.tally.begin_position();
        let recoveries = self.examiner.means.recoverer.recoveries;
        let mut flow = match self.examiner.generation.is_unchanged(position) {
            true => self.pass_by(complete, position),
            false => self.explore(case, complete, &at)?,
        };
        if flow.is_continue() {
            flow = self.later.explore(&mut self.examiner, (case, complete), &at)?;
        }
        self.look_for_repairable(position, recoveries);
        let born_log10 = if case.position_in_case == 1 { Some(0.0) } else { step.view.born_log10() };
        self.examiner.tally.end_position(born_log10);
        if flow.is_continue() && self.is_met_long_enough(position) {
            return Ok(ControlFlow::Break(()));
        }
        Ok(flow)
    }

    /// Takes note of the first position with a finding that may be repaired, and of what was counted before it.
    fn look_for_repairable(&mut self, position: u32, recoveries: u64) {
        let Examiner { means, results, tally, .. } = &self.examiner;
        let is_met = means.patience.is_some_and(|patience| results.repairable(&patience).next().is_some());
        if self.first.is_none() && is_met {
            self.first = Some(First { position, tally: tally.clone(), recoveries });
        }
    }

    fn is_patience_over(&self) -> bool {
        let Means { patience, recoverer, .. } = &*self.examiner.means;
        let behind = self.first.as_ref().map(|first| recoverer.recoveries - first.recoveries);
        behind.is_some_and(|behind| patience.is_some_and(|patience| behind >= patience.recoveries))
    }

    /// What a lost store does once its operation has returned says most. So what may be repaired is not taken for repaired until then.
    fn is_met_long_enough(&self, position: u32) -> bool {
        let Some(first) = self.first.as_ref().filter(|_| self.is_patience_over()) else { return false };
        let is_return = |kind: &EventKind| matches!(kind, EventKind::OperationReturn { .. });
        let event = &self.examiner.generation.trace.events[position as usize - 1];
        is_return(&event.kind) || position - first.position >= MOST_UNREPAIRED
    }

    /// Where it ended to go on as if something were repaired, and what was counted before it; none: it did not.
    pub fn met(&mut self) -> Option<(u32, Tally)> {
        let first = if self.is_patience_over() { self.first.take() } else { None };
        first.map(|first| (first.position, first.tally))
    }

    /// What a crash may leave here was explored elsewhere.
    fn pass_by(&mut self, complete: &mut Complete, position: u32) -> ControlFlow<()> {
        complete.note(&self.examiner.generation.trace.events[position as usize - 1]);
        self.examiner.tally.unchanged += 1;
        ControlFlow::Continue(())
    }

    fn explore(
        &mut self,
        case: &mut HeapCase,
        complete: &mut Complete,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        if self.examiner.generation.before.is_none() {
            cpu_affinity::refresh();
            let recoveries = self.examiner.means.recoverer.recoveries;
            self.examiner.results.listener.progress(at.position, recoveries);
            let Examiner { means, results, tally, .. } = &mut self.examiner;
            results.listener.so_far(at.position, tally, means.recoverer);
        }
        match self.examiner.means.strategy.follows_loads() {
            true => complete.explore(&mut self.examiner, &mut self.chosen, case, at),
            false => self.chosen.explore(&mut self.examiner, case, at),
        }
    }
}
