// SPDX-License-Identifier: Apache-2.0
//! Which recoveries of a crash position are explored for crashes, and how far.
//!
//! A leaf of the search stands for states whose recoveries did the same ([`RecoveryRun`]). Most leaves need no exploring: what the crash
//! breaks by itself is the first generation's matter, and what was explored at an earlier position, or in an exploration without the
//! edits, need not be explored again. [`LeafPlanner::plan`] says which of that it is.

use crate::base::config::OutcomesFile;
use crate::explore::course::ExploredPosition;
use crate::explore::examiner::Examiner;
use crate::explore::later::memory::LaterMemory;
use crate::explore::later::remaining::{AfterCrash, Remaining, hash_of_start};
use crate::explore::later::run_identity::{Expected, RecoveryRun, RunIdentity};
use crate::explore::unchanged::Unchanged;
use crate::findings::recovery_edits::{Edited, edited};
use crate::heap::case::{HeapCase, is_open_return};
use crate::heap::recovery_trace::{line_of, trace_of_recovery};
use crate::recovery::content::Unasked;
use crate::recovery::leaf_content::{ContentMemory, LeafContent, Narrowing};
use crashgen::complete::{CrashPosition, LeafStates};
use crashgen::replay::RecoveryTrace;
use crashgen::trace::{EventKind, LineKey};
use oracle::contract::Contract;
use oracle::{HeapReport, History, Judgement, Outcome, Status, judge};
use std::collections::BTreeSet;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Why a leaf is not explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Recovery refuses the image, or breaks a rule: the first generation's matter.
    BrokenByItself,
    /// What recovery does is not known to its end: the crash position is not complete.
    Gap(&'static str),
    /// In each of its states the content of some object is wrong after recovery.
    WrongContents,
    /// The same run was explored over the same states.
    Explored,
    /// A run that did the same was explored over at least the same states, as far as anything looked at them.
    StartExplored,
    /// The edits leave the run as it was in the exploration that this one is compared with.
    NotEdited,
    /// They change it, and each of its crash positions may leave the same all the same.
    Unchanged,
}

/// A leaf whose recovery is explored.
pub struct LeafToExplore {
    /// What recovery did.
    pub run: RecoveryRun,
    /// The judgement of what it showed.
    pub judgement: Judgement,
    /// What the crash may have left.
    pub remaining: Remaining,
    /// Crash positions after recovery returned were explored.
    pub is_rest_explored: bool,
    /// What decides, with what the crash left, what crashes in the run find; none: other things do, too.
    pub identity: Option<RunIdentity>,
    /// The run as the edits of recoveries make it.
    pub edited: Edited,
    /// How it compares with the run without the edits, where that was explored.
    pub unchanged: Option<Rc<Unchanged>>,
}

/// Decides what is done with the leaves of one crash position.
pub struct LeafPlanner<'p, 'e, 'a> {
    /// Judges, and knows what is asked for.
    pub examiner: &'p mut Examiner<'e, 'a>,
    /// What was explored before.
    pub memory: &'p mut LaterMemory,
    /// What is remembered of contents at the position.
    pub contents: &'p mut ContentMemory,
    /// The heap there.
    pub case: &'p mut HeapCase,
    /// The position.
    pub at: &'p ExploredPosition<'p>,
}

impl LeafPlanner<'_, '_, '_> {
    /// What is to be explored of a leaf.
    ///
    /// # Errors
    /// Why it is not explored.
    pub fn plan(&mut self, held: &LeafStates) -> Result<LeafToExplore, Skip> {
        let run = self.memory.run_of(held);
        let judgement = self.judge(&run)?;
        let held = self.with_right_contents(held, &run).ok_or(Skip::WrongContents)?;
        let remaining = Remaining::of(&mut self.memory.search, self.case, self.at.view, &held);
        let expected = self.expected(&judgement);
        // What is passed by here adds nothing to what later recoveries load, and the next walk is due by what they load.
        let is_passed_by = self.examiner.generation.is_unchanged(self.at.position);
        let is_rest_explored = self.is_rest_explored(&run, &remaining, expected, is_passed_by)?;
        let early = is_passed_by.then(|| self.edited_trace(&run.trace));
        let is_as_it_was = |edited: &Edited| edited.gap.is_none() && !edited.left_out.contains(&true);
        if early.as_ref().is_some_and(is_as_it_was) {
            return Err(Skip::NotEdited);
        }
        let identity = self.identity(&run, expected, early.is_some());
        if self.is_start_explored(identity, &remaining) {
            return Err(Skip::StartExplored);
        }
        let unchanged = early.as_ref().map(|edited| self.unchanged(&run, &remaining, edited));
        let is_gapless = early.as_ref().is_some_and(|edited| edited.gap.is_none());
        if is_gapless && unchanged.as_deref().is_some_and(Unchanged::is_whole) {
            return Err(Skip::Unchanged);
        }
        let edited = early.unwrap_or_else(|| self.edited_trace(&run.trace));
        Ok(LeafToExplore { run, judgement, remaining, is_rest_explored, identity, edited, unchanged })
    }

    /// Recoveries that refuse the image, or are broken already, are the first generation's matter.
    fn judge(&self, run: &RecoveryRun) -> Result<Judgement, Skip> {
        let config = self.examiner.means.config;
        if !is_open(&run.report) {
            return Err(Skip::BrokenByItself);
        }
        let is_cut = run.report.outcome != Outcome::Done;
        let cut = match config.follow_up {
            true => "what follows a recovery did not come to its end",
            false => "what a recovery left was not read to its end",
        };
        if let Some(gap) = run.trace.gap.or(is_cut.then_some(cut)) {
            return Err(Skip::Gap(gap));
        }
        let judgement = judge(&config.contract, &config.shape(), &self.case.history, &run.report, &Unasked, None);
        if judgement.violations.is_empty() { Ok(judgement) } else { Err(Skip::BrokenByItself) }
    }

    /// The states of the leaf whose objects hold what they should after recovery; none: no state is like that. The others are broken
    /// by the crash alone.
    fn with_right_contents(&mut self, held: &LeafStates, run: &RecoveryRun) -> Option<LeafStates> {
        let (config, case) = (self.examiner.means.config, &*self.case);
        let at = CrashPosition { model: &case.model, view: self.at.view };
        let tables = &mut self.memory.search.tables;
        let content = LeafContent::new(&at, case.files(), &held.sets, tables, self.contents);
        let (contract, shape, history) = (&config.contract, config.shape(), &case.history);
        if judge(contract, &shape, history, &run.report, &content, None).violations.is_empty() {
            return Some(held.clone());
        }
        let recovery = run.trace.events.iter().take_while(|event| !is_open_return(event));
        let stores = recovery.filter(|event| matches!(event.kind, EventKind::Store { .. }));
        let stored: BTreeSet<LineKey> = stores.filter_map(line_of).flatten().collect();
        let tables = &mut self.memory.search.tables;
        let narrowing = Narrowing::new(&at, case.files(), tables, &stored, held.sets.clone());
        judge(contract, &shape, history, &run.report, &narrowing, None);
        Some(LeafStates { sets: narrowing.into_sets()?, ..held.clone() })
    }

    /// What is expected of the heap after a crash here, and after the recovery from it that was judged so.
    fn expected(&self, shown: &Judgement) -> Expected {
        let contract: &Contract = &self.examiner.means.config.contract;
        let mut history: History = self.case.history.clone();
        history.power_fails();
        let whole = history.expected_id(contract.leaks);
        history.recovered(&shown.happened, &shown.unclear, contract.fill);
        let is_graph = self.case.history.is_graph();
        Expected { whole, rest: !history.expected_id(contract.leaks), is_graph }
    }

    /// Whether the positions after recovery's return were explored, with the same run over the same states.
    fn is_rest_explored(
        &mut self,
        run: &RecoveryRun,
        remaining: &Remaining,
        expected: Expected,
        is_passed_by: bool,
    ) -> Result<bool, Skip> {
        let start = hash_of_start(self.case, self.at.view, remaining, run.hash);
        let how = u64::from(expected.is_graph) | u64::from(is_passed_by) << 1;
        let mut is_known = |expected: u64| {
            let words = [start as u64, (start >> 64) as u64, expected, how];
            !self.memory.explored.insert(xxh3_128(&words.map(u64::to_le_bytes).concat()))
        };
        if is_known(expected.whole) {
            return Err(Skip::Explored);
        }
        Ok(is_known(expected.rest))
    }

    /// Known where this is the last crash that is explored, and what a crash leaves is all that the model knows of the past.
    fn identity(&self, run: &RecoveryRun, expected: Expected, is_compared: bool) -> Option<RunIdentity> {
        let is_last = self.examiner.generation.crashes_before() + 1 == self.examiner.means.config.nested;
        let is_known = is_last && self.case.model.crash_settles();
        is_known.then(|| RunIdentity::of(run, self.case.names_hash(), expected, is_compared))
    }

    fn is_start_explored(&mut self, identity: Option<RunIdentity>, remaining: &Remaining) -> bool {
        let (Some(identity), Some(later)) = (identity, &mut self.memory.recoveries) else { return false };
        later.starts.is_known(identity.whole, &AfterCrash { model: &self.case.model, remaining })
    }

    fn unchanged(&mut self, run: &RecoveryRun, remaining: &Remaining, edited: &Edited) -> Rc<Unchanged> {
        let model = &self.case.model;
        let compare = || Unchanged::of(|| model.after_crash(remaining.bases()), &run.trace.events, &edited.left_out);
        self.memory.unchanged.entry(run.hash).or_insert_with(|| Rc::new(compare())).clone()
    }

    /// What recovery did, as a trace that the edits of recoveries made.
    fn edited_trace(&mut self, recovery: &RecoveryTrace) -> Edited {
        let Examiner { means, results, generation, .. } = &mut *self.examiner;
        let (config, findings) = (means.config, &mut results.findings);
        let trace = trace_of_recovery(&mut findings.recovery_sites, generation.trace, recovery);
        let is_written = matches!(config.outcomes, Some(OutcomesFile::Write(_)));
        if let Some(outcomes) = results.outcomes.as_mut().filter(|_| is_written) {
            outcomes.later_places.note(&mut findings.symbols, &trace);
        }
        edited(config, &mut findings.symbols, trace)
    }
}

/// Recovery opens the heap.
fn is_open(report: &HeapReport) -> bool {
    report.life(0).and_then(|life| life.open) == Some(Status::Ok)
}
