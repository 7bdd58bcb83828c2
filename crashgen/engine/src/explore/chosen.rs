// SPDX-License-Identifier: Apache-2.0
//! The states of a crash position that a strategy chooses, each recovered and judged.
//!
//! Between two markers what is expected of the heap does not change, so a state needs judging once in that stretch: at the
//! position where it is born, or at the stretch's first position. An image that was probed before is answered from memory; it is
//! judged again all the same when the history has moved on.

use crate::base::budget::Stop;
use crate::base::config::StrategyName;
use crate::explore::course::ExploredPosition;
use crate::explore::examiner::Examiner;
use crate::explore::means::Means;
use crate::heap::case::Case;
use crashgen::image::ImageHash;
use crashgen::model::{Choice, View};
use crashgen::strategy::{Covered, Exhaustive, Floor, Pairwise, Prefix, Sample, Scope, Strategy};
use planted::Fault;
use rustc_hash::FxHashSet;
use std::ops::ControlFlow;

/// `--strategy exhaustive` enumerates a position of at most this many states (an hour of recoveries); beyond it says so.
const EXHAUSTIVE_LIMIT: u128 = 1 << 24;

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
        case: &mut Case,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let strategies = strategies(examiner, at.view);
        let covered = Covered::by(&strategies, at.view);
        let is_new = at.is_expectation_new || at.view.are_all_new;
        let scope = if is_new { Scope::All } else { self.covered.next_scope(covered) };
        let is_unchanged = scope == Scope::Born && !at.view.has_new_store;
        for strategy in &strategies {
            examiner.tally.add_ran(strategy.name());
            if (!is_unchanged || !strategy.is_cumulative())
                && self.run(&**strategy, examiner, case, at, scope)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        if let Some(pairwise) = pairwise(examiner.means) {
            examiner.tally.add_coverage(pairwise.strength, pairwise.coverage(at.view, scope));
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
        case: &mut Case,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let config = examiner.means.config;
        let sample = Sample { count: config.limits.samples, seed: config.seed };
        let strategies: [&dyn Strategy; 3] = [&Prefix, &Floor, &sample];
        for strategy in strategies {
            if self.run(strategy, examiner, case, at, Scope::All)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run(
        &mut self,
        strategy: &dyn Strategy,
        examiner: &mut Examiner,
        case: &mut Case,
        at: &ExploredPosition,
        scope: Scope,
    ) -> Result<ControlFlow<()>, Stop> {
        let seed_position = case.position_in_case;
        let mut stop = None;
        let flow = strategy.states(seed_position, at.view, scope, &mut |choices| {
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
        case: &mut Case,
        at: &ExploredPosition,
        (strategy, choices): (&'static str, &[Choice]),
    ) -> Result<ControlFlow<()>, Stop> {
        examiner.means.check_budget()?;
        let heap = case.crash(at.view, choices);
        let expected = if planted::is(Fault::JudgeImageOnce) { 0 } else { heap.history.state_id() };
        if !self.judged.insert((heap.image.hash(), expected)) {
            return Ok(ControlFlow::Continue(()));
        }
        let judgement = examiner.judge(heap).map_err(Stop::Error)?;
        examiner.tally.add(&judgement);
        examiner.report(case, at, (strategy, choices), &judgement).map_err(Stop::Error)
    }
}

fn pairwise(means: &Means) -> Option<Pairwise> {
    let of = |strength| Some(Pairwise { strength, seed: means.config.seed });
    match means.strategy {
        StrategyName::Pairwise => of(2),
        StrategyName::Pairwise3 => of(3),
        _ => None,
    }
}

/// Which strategies run at a position.
fn strategies(examiner: &mut Examiner, view: &View) -> Vec<Box<dyn Strategy>> {
    let config = examiner.means.config;
    let limits = &config.limits;
    let is_at_most = |limit: u128| view.state_count().is_some_and(|count| count <= limit);
    let sample = || Box::new(Sample { count: limits.samples, seed: config.seed });
    match examiner.means.strategy {
        StrategyName::Prefix => vec![Box::new(Prefix)],
        StrategyName::Floor => vec![Box::new(Floor)],
        StrategyName::Sample => vec![sample()],
        StrategyName::Pairwise | StrategyName::Pairwise3 => {
            pairwise(examiner.means).map(|pairwise| Box::new(pairwise) as Box<dyn Strategy>).into_iter().collect()
        }
        StrategyName::Complete => unreachable!("is no choice of states: it has its own way through a position"),
        StrategyName::Exhaustive if is_at_most(EXHAUSTIVE_LIMIT) => vec![Box::new(Exhaustive)],
        StrategyName::Exhaustive => {
            let bound = format!("a position has more than {EXHAUSTIVE_LIMIT} states: only prefix and floor there");
            examiner.tally.bounds_hit.insert(bound);
            vec![Box::new(Prefix), Box::new(Floor)]
        }
        StrategyName::Mixed if is_at_most(u128::from(limits.exhaustive_states)) => {
            vec![Box::new(Prefix), Box::new(Floor), Box::new(Exhaustive)]
        }
        StrategyName::Mixed => vec![Box::new(Prefix), Box::new(Floor), sample()],
    }
}
