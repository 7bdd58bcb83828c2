// SPDX-License-Identifier: Apache-2.0
//! Crashes after the crash: in a recovery, and, where that is asked for, in the follow-up after it (docs/concepts.md).
//!
//! A recovery is itself a trace: what it stores, flushes and fences in PM, reported by the runner (`runner/protocol.h`), with open and the
//! operations of the follow-up as its operations. So a later generation is explored as the first one is, by the same code. It begins
//! where power failed: of each line that the crash left undecided, it may find any of the choices that its own loads did not rule
//! out, and the stores of the recovery come on top ([`crashgen::model::Model::after_crash`]). Which recoveries there are, and what the
//! recoveries after them load: [`memory`].
//!
//! # What is explored once
//!
//! Crashes in a recovery come to the same wherever recovery did the same, event by event, on lines with the same remaining choices, and the
//! same is expected of the heap. So each such run is explored once a case ([`leaf`]). Once recovery has returned, what was pending at
//! the crash has happened or never will: from there on less need be the same. Runs that did the same are told apart only by what was
//! looked at: see [`explored_starts`].
//!
//! States that one crash breaks already are no matter of a second one: where recovery does not write what an object holds, the
//! choices with which that is wrong are left out. What only the later stages of the probe show of it: [`first_crash`].
//!
//! Of later generations all of the probe is judged, as FL014: that a second recovery finds the same heap (FL013), that it can be used
//! (FL012), but for its capacity, since no twin is theirs: with those of the workload only their failures are compared.

mod explored_starts;
pub mod first_crash;
mod leaf;
mod memory;
mod recoveries;
mod recovery_course;
mod recovery_runs;
mod remaining;
mod run_identity;

use crate::base::budget::Stop;
use crate::explore::certificate::Tally;
use crate::explore::complete::Complete;
use crate::explore::course::{ExploredPosition, Generation};
use crate::explore::examiner::Examiner;
use crate::explore::explorer::Explorer;
use crate::explore::later::leaf::{LeafPlanner, LeafToExplore, Skip};
use crate::explore::later::memory::LaterMemory;
use crate::explore::later::recovery_course::{RecoveryCourse, RecoveryToExplore};
use crate::explore::later::recovery_runs::TracedRecoveries;
use crate::explore::means::Means;
use crate::heap::case::{HeapCase, SettledOperations};
use crate::heap::crashes::CrashBefore;
use crate::heap::recovery_trace::touched;
use crashgen::complete::LeafStates;
use crashgen::model::LineId;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// The exploration of crashes in the recoveries of one case.
pub struct LaterCrashes {
    memory: LaterMemory,
}

impl LaterCrashes {
    /// Of a case that begins.
    pub fn new(means: &Means) -> Self {
        Self { memory: LaterMemory::new(means) }
    }

    /// Explores crashes in the recoveries from this crash position, and in what follows them, if that is asked for. Break: the
    /// exploration ends.
    ///
    /// # Errors
    /// Why no more recoveries are run.
    pub fn explore(
        &mut self,
        examiner: &mut Examiner,
        (case, complete): (&mut HeapCase, &mut Complete),
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let is_asked = examiner.means.strategy.follows_loads()
            && examiner.generation.crashes_before() < examiner.means.config.nested;
        if !is_asked || !self.step(examiner, case, at)? {
            return Ok(ControlFlow::Continue(()));
        }
        let mut walk = self.memory.search.traversal();
        loop {
            let (place, image) = case.position(at.view);
            let Examiner { means, generation, .. } = &mut *examiner;
            let mut recoveries = TracedRecoveries { means, generation: *generation, runs: &mut self.memory.runs };
            let Some(held) = self.memory.search.next(&mut walk, &place, image, &mut recoveries)? else { break };
            if self.explore_leaf(examiner, (case, complete), at, &held)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for doubt in std::mem::take(&mut self.memory.search.doubts) {
            examiner.tally.add_unknown(&doubt);
        }
        if let Some(why) = self.memory.search.gap {
            examiner.tally.add_incomplete(at.position, why);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Steps to the position. Whether there may be recoveries, or something that they are judged by, that were not there before.
    fn step(&mut self, examiner: &mut Examiner, case: &mut HeapCase, at: &ExploredPosition) -> Result<bool, Stop> {
        let events = &examiner.generation.trace.events;
        let event = &events[at.position as usize - 1];
        let (place, _) = case.position(at.view);
        let Examiner { means, generation, .. } = &mut *examiner;
        let mut recoveries = TracedRecoveries { means, generation: *generation, runs: &mut self.memory.runs };
        let is_due = self.memory.search.step(at.position, &place, events, &mut recoveries)?;
        self.memory.step(event);
        Ok(is_due || at.is_expectation_new || self.memory.is_touched(event))
    }

    /// What the later recoveries of this leaf's states find.
    fn explore_leaf(
        &mut self,
        examiner: &mut Examiner,
        (case, complete): (&mut HeapCase, &mut Complete),
        at: &ExploredPosition,
        held: &LeafStates,
    ) -> Result<ControlFlow<()>, Stop> {
        let contents = complete.contents_mut();
        let planned = LeafPlanner { examiner, memory: &mut self.memory, contents, case, at }.plan(held);
        let leaf = match planned {
            Ok(leaf) => leaf,
            Err(skip) => {
                if let Skip::Gap(why) = skip {
                    examiner.tally.add_incomplete(at.position, why);
                }
                return Ok(ControlFlow::Continue(()));
            }
        };
        let LeafToExplore { run, judgement, remaining, edited, .. } = &leaf;
        let touched = touched(&case.model, &run.trace.events);
        case.model.know(touched.iter().copied());
        if let Some(gap) = edited.gap {
            examiner.tally.add_incomplete(at.position, gap);
        }
        let mut model = case.model.after_crash(remaining.bases());
        model.set_content_sites(examiner.results.findings.recovery_sites.are_content(&edited.trace));
        let mut next = case.next_generation(model);
        let settled = SettledOperations::of(judgement);
        let Generation { trace, twins, before, .. } = examiner.generation;
        let crash = CrashBefore {
            trace,
            case,
            view: at.view,
            position: at.position,
            twins,
            remaining: remaining.choices(at.view),
            settled: &settled,
            before,
            broken: RefCell::default(),
        };
        let recovery = RecoveryToExplore {
            trace: &edited.trace,
            settled: &settled,
            unchanged: leaf.unchanged.clone(),
            is_rest_explored: leaf.is_rest_explored,
            identity: leaf.identity,
        };
        let memory = self.memory.recoveries(&touched, at.position, trace);
        let course = RecoveryCourse::new(&recovery, &mut next, memory, complete.contents().clone());
        let flow = explore_recovery(examiner, &crash, &recovery, course);
        let lines: Vec<LineId> = touched.iter().filter_map(|key| case.model.find(*key)).collect();
        case.take_back(next, lines.into_iter().chain(at.view.lines.iter().map(|line| line.id)));
        flow
    }
}

/// Explores the crash positions of what one recovery did.
fn explore_recovery(
    examiner: &mut Examiner,
    crash: &CrashBefore,
    recovery: &RecoveryToExplore,
    mut course: RecoveryCourse,
) -> Result<ControlFlow<()>, Stop> {
    let unchanged = recovery.unchanged.as_ref().map_or(&[][..], |unchanged| &unchanged.positions);
    let generation = Generation { trace: recovery.trace, twins: crash.twins, unchanged, before: Some(crash) };
    let followed = examiner.means.onsets.leave();
    let (means, results) = (&mut *examiner.means, &mut *examiner.results);
    let mut explorer = Explorer::new(Examiner { means, results, generation, tally: Tally::default() });
    let walked = explorer.walk(&mut course);
    let tally = explorer.examiner.tally;
    examiner.means.onsets.go_back(followed);
    let is_whole = matches!(walked, Ok(ControlFlow::Continue(()))) && tally.is_whole();
    course.end(is_whole, examiner.means.config.bounds().bytes);
    examiner.tally.add_later(tally);
    walked
}
