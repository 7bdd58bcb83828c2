// SPDX-License-Identifier: Apache-2.0
//! The states of a crash position that a strategy chooses, each recovered and judged.
//!
//! Between two markers what is expected of the heap does not change, so a state needs judging once in that stretch: at the
//! position where it is born, or at the stretch's first position. An image that was probed before is answered from memory; it is
//! judged again all the same when the history has moved on.

use crate::base::budget::Stop;
use crate::explore::course::ExploredPosition;
use crate::explore::examiner::Examiner;
use crate::explore::means::Means;
use crate::heap::case::HeapCase;
use crashgen::image::ImageHash;
use crashgen::model::Choice;
use crashgen::strategy::{Asked, Covered, Floor, Prefix, Sample, Scope, Strategy};
use rustc_hash::FxHashSet;
use std::ops::ControlFlow;

/// The states that were judged in a case.
pub struct ChosenStates {
    /// (image, expected heap) of each.
    judged: FxHashSet<(ImageHash, u64)>,
    /// How much of the last position was judged against what is expected now.
    covered: Covered,
}

impl Default for ChosenStates {
    fn default() -> Self {
        Self { judged: FxHashSet::default(), covered: Covered::Nothing }
    }
}

impl ChosenStates {
    /// Another case begins.
    pub fn start_case(&mut self) {
        *self = Self::default();
    }

    /// The states that the strategy chooses. Break: the exploration ends.
    ///
    /// # Errors
    /// Why no more recoveries are run.
    pub fn explore(
        &mut self,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let strategy = examiner.means.strategy;
        let whole = asked(examiner.means, case, at, Scope::All);
        let strategies = match strategy.instead(&whole) {
            None => vec![strategy],
            Some(instead) => {
                examiner.tally.bounds_hit.extend(instead.bound);
                instead.strategies
            }
        };
        let covered = Covered::by(&strategies, at.view);
        let is_new = at.is_expectation_new || at.view.are_all_new;
        let scope = if is_new { Scope::All } else { self.covered.next_scope(covered) };
        let is_unchanged = scope == Scope::Born && !at.view.has_new_store;
        let asked = Asked { scope, ..whole };
        for strategy in strategies {
            examiner.tally.add_ran(strategy);
            let is_due = !is_unchanged || !strategy.reach().is_cumulative();
            if is_due && self.run(strategy, examiner, case, (at, &asked))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if let Some(coverage) = strategy.coverage(&asked) {
            examiner.tally.add_coverage(coverage);
        }
        self.covered = covered;
        Ok(ControlFlow::Continue(()))
    }

    /// Where `complete` could not see every state: what is guaranteed, everything, and some at random, as `mixed` does there. What it
    /// saw lies close to everything persisted.
    ///
    /// # Errors
    /// Why no more recoveries are run.
    pub fn some(
        &mut self,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let asked = asked(examiner.means, case, at, Scope::All);
        let strategies: [&dyn Strategy; 3] = [&Prefix, &Floor, &Sample];
        for strategy in strategies {
            if self.run(strategy, examiner, case, (at, &asked))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run(
        &mut self,
        strategy: &dyn Strategy,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        (at, asked): (&ExploredPosition, &Asked),
    ) -> Result<ControlFlow<()>, Stop> {
        let mut stop = None;
        let flow = strategy.states(asked, &mut |choices| {
            let judged = self.judge(examiner, case, at, (strategy.name(), choices));
            judged.unwrap_or_else(|why| {
                stop = Some(why);
                ControlFlow::Break(())
            })
        });
        stop.map_or(Ok(flow), Err)
    }

    fn judge(
        &mut self,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        at: &ExploredPosition,
        (strategy, choices): (&'static str, &[Choice]),
    ) -> Result<ControlFlow<()>, Stop> {
        examiner.means.check_budget()?;
        let heap = case.crash(at.view, choices);
        let expected = heap.history.state_id();
        if !self.judged.insert((heap.image.hash(), expected)) {
            return Ok(ControlFlow::Continue(()));
        }
        let judgement = examiner.judge(heap).map_err(Stop::Error)?;
        examiner.tally.add(&judgement);
        examiner.report(case, at, (strategy, choices), &judgement).map_err(Stop::Error)
    }
}

/// What strategies are asked for at the position.
fn asked<'v>(means: &Means, case: &HeapCase, at: &ExploredPosition<'v>, scope: Scope) -> Asked<'v> {
    Asked { view: at.view, scope, position: case.position_in_case, options: means.config.options() }
}
