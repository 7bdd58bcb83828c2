// SPDX-License-Identifier: Apache-2.0
//! `complete` in the engine: the search of [`crashgen::complete`] over recoveries of the replay server, its leaves judged.
//!
//! The recovery program is the whole probe that the configuration asks for, so the loads of later lives branch like those of the
//! first, in one trie. A leaf is judged for all of its states at once: they have the same heap report, and contents are asked for line by line
//! ([`LeafContent`]). It is judged where it is found, and again when something else is expected of the heap, or when a store has changed a
//! content by which it was judged. What the runner read of contents belongs to the state that was run. It counts for the other states only
//! while they hold the same there.
//!
//! A broken rule is a finding only once a concrete state of the leaf breaks it in a run of its own.
//!
//! A target whose loads cannot be followed (built without hooks, loads past them, a thread in recovery) is given up: see
//! [`Stop::Unfit`].

use crate::base::budget::{Budget, Stop};
use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::explore::chosen::ChosenStates;
use crate::explore::course::ExploredPosition;
use crate::explore::examiner::Examiner;
use crate::explore::means::Means;
use crate::explore::outcomes::{NewOutcome, ReportHash};
use crate::explore::recorded::{KeptReport, RecordedRecoveries, WindowReports};
use crate::findings::evidence::Evidence;
use crate::findings::onset::are_same;
use crate::heap::case::{CrashedHeap, HeapCase};
use crate::heap::state::StateRef;
use crate::recovery::content::HeapContent;
use crate::recovery::leaf_content::{ContentMemory, LeafContent};
use crate::recovery::recoverer::Recoverer;
use crate::recovery::reports::{SeenReport, without_contents};
use crashgen::complete::{CrashPosition, Dependencies, LeafId, LeafStates, Repeats, Search, Window};
use crashgen::model::{Choice, LineId, View};
use crashgen::strategy::{self, Strategy};
use crashgen::trace::{Event, Trace};
use oracle::{HeapReport, Judgement, Violation, judge};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Of so many contents that may differ in a leaf, each is tried alone and all at once, before no state is said to show it.
const WITNESS_LIMIT: usize = 32;

/// The exploration of one case after the other.
pub struct Complete {
    search: Search,
    reports: WindowReports,
    contents: ContentMemory,
    /// (leaf, expected heap, epoch of contents) that were judged in this window.
    judged: FxHashSet<(LeafId, u64, u64)>,
    /// Epoch of contents when all leaves were last judged.
    epoch: u64,
    windows: u64,
}

/// What a walk of a crash position found.
pub struct Walked {
    /// An exploration would have walked it.
    pub is_due: bool,
    /// It saw all of the position.
    pub is_whole: bool,
    /// The distinct heap reports, whatever they say.
    pub reports: Vec<SeenReport>,
}

/// A leaf, judged for all of its states.
struct JudgedLeaf {
    /// The report as it was judged.
    report: Rc<HeapReport>,
    judgement: Judgement,
    /// Choices that make a content differ from what is expected.
    differing: BTreeSet<(LineId, Choice)>,
}

impl Complete {
    /// Of the first case.
    pub fn new(config: &Config, repeats: &Rc<Repeats>) -> Self {
        Self {
            search: Search::new(config.bounds(), repeats.clone()),
            reports: WindowReports::new(Rc::from([]), repeats.clone()),
            contents: ContentMemory::default(),
            judged: FxHashSet::default(),
            epoch: 0,
            windows: 0,
        }
    }

    /// Another case begins.
    pub fn start_case(&mut self) {
        self.search.start_case();
        self.reports.clear();
        self.contents = ContentMemory::default();
        self.judged.clear();
        (self.epoch, self.windows) = (0, 0);
    }

    /// All states of a crash position. Break: the exploration ends.
    ///
    /// # Errors
    /// Why no more recoveries are run.
    pub fn explore(
        &mut self,
        examiner: &mut Examiner,
        chosen: &mut ChosenStates,
        case: &mut HeapCase,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let explored = self.explore_all(examiner, case, at);
        self.take_doubts().iter().for_each(|doubt| examiner.tally.add_unknown(doubt));
        let flow = explored?;
        let Some(why) = self.search.gap else {
            examiner.tally.add_ran(&strategy::Complete);
            return Ok(flow);
        };
        examiner.tally.add_incomplete(at.position, why);
        if flow.is_break() { Ok(flow) } else { chosen.some(examiner, case, at) }
    }

    /// What a walk of the crash position finds, for comparison with all of its states.
    ///
    /// # Errors
    /// When the replay server fails.
    pub fn all_reports(
        &mut self,
        trace: &Trace,
        recoverer: &mut Recoverer,
        case: &mut HeapCase,
        position: u32,
        view: &View,
    ) -> Result<Walked, Stop> {
        let (at, image) = case.position(view);
        let (probe, budget) = (recoverer.whole(), Budget::NONE);
        let mut recoveries = RecordedRecoveries { recoverer, probe, budget, reports: &mut self.reports };
        let is_due = self.search.step(position, &at, &trace.events, &mut recoveries)?;
        let mut walk = self.search.traversal();
        let mut outcomes = BTreeSet::new();
        while let Some(held) = self.search.next(&mut walk, &at, image, &mut recoveries)? {
            outcomes.insert((self.search.leaf(held.leaf).outcome, self.search.has_own_contents(&at, &held)));
        }
        let report = |outcome: u32| self.reports.report(outcome).own.clone();
        let reports =
            outcomes.into_iter().map(|(outcome, is_own)| SeenReport::of_leaf(report(outcome), is_own)).collect();
        Ok(Walked { is_due, is_whole: self.search.gap.is_none(), reports })
    }

    fn report(&self, leaf: LeafId) -> &KeptReport {
        self.reports.report(self.search.leaf(leaf).outcome)
    }

    /// What was found so far.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// What is remembered in the window, bytes, about.
    pub fn kept_bytes(&self) -> usize {
        self.search.memory_bytes() + self.reports.bytes()
    }

    /// Leaves that are remembered in the window.
    pub fn leaf_count(&self) -> usize {
        self.search.leaf_count()
    }

    /// Begins a window that the caller chose.
    ///
    /// # Errors
    /// When there is nobody to run recoveries.
    pub fn enter(&mut self, window: Window, means: &mut Means) -> Result<(), Stop> {
        self.search.enter(window, &mut recoveries(&mut self.reports, means))
    }

    /// Takes note of an event whose crash position is not explored.
    pub fn note(&mut self, event: &Event) {
        self.contents.note(event);
    }

    /// What is remembered of contents.
    pub fn contents(&self) -> &ContentMemory {
        &self.contents
    }

    /// The same, for others to ask.
    pub fn contents_mut(&mut self) -> &mut ContentMemory {
        &mut self.contents
    }

    /// Begins to pass positions again, with what was remembered of contents until there.
    pub fn begin_pass(&mut self, contents: ContentMemory) {
        self.judged.clear();
        self.search.restart_positions();
        self.windows = self.search.windows();
        self.epoch = contents.epoch;
        self.contents = contents;
        self.contents.begin_pass();
    }

    /// What is remembered of contents by now, and what the exploration depended on since the pass began.
    pub fn end_pass(&mut self) -> (ContentMemory, Dependencies) {
        let mut contents = std::mem::take(&mut self.contents);
        let mut dependencies = self.search.take_dependencies();
        dependencies.join(contents.take_dependencies().lines());
        (contents, dependencies)
    }

    /// What makes the exploration worthless; empty after it was asked.
    pub fn take_doubts(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.search.doubts)
    }

    fn explore_all(
        &mut self,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        at: &ExploredPosition,
    ) -> Result<ControlFlow<()>, Stop> {
        let events: &[Event] = &examiner.generation.trace.events;
        self.note(&events[at.position as usize - 1]);
        let is_walk_due = {
            let (place, _) = case.position(at.view);
            let mut recoveries = recoveries(&mut self.reports, examiner.means);
            self.search.step(at.position, &place, events, &mut recoveries)?
        };
        if self.windows != self.search.windows() {
            self.windows = self.search.windows();
            self.judged.clear();
            self.contents.start_window();
        }
        if !is_walk_due && !at.is_expectation_new && self.epoch == self.contents.epoch {
            return Ok(ControlFlow::Continue(()));
        }
        self.epoch = self.contents.epoch;
        let mut walk = self.search.traversal();
        loop {
            let (place, image) = case.position(at.view);
            let mut recoveries = recoveries(&mut self.reports, examiner.means);
            let Some(held) = self.search.next(&mut walk, &place, image, &mut recoveries)? else {
                return Ok(ControlFlow::Continue(()));
            };
            examiner.means.recoverer.memoised += u64::from(!held.is_new);
            if self.examine_leaf(examiner, case, at, &held)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Judges a leaf, and makes findings of what its states break.
    fn examine_leaf(
        &mut self,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        at: &ExploredPosition,
        held: &LeafStates,
    ) -> Result<ControlFlow<()>, Stop> {
        if !self.judged.insert((held.leaf, case.history.state_id(), self.contents.epoch)) {
            return Ok(ControlFlow::Continue(()));
        }
        examiner.means.budget.check(0)?;
        let JudgedLeaf { report, judgement, differing } = self.judge_leaf(examiner, case, at.view, held);
        examiner.tally.add(&judgement);
        let states = self.witnesses(examiner, case, at.view, held, &differing);
        self.note_outcome(examiner, case, at, (held, &states[0])).map_err(Stop::Error)?;
        let claims = match differing.is_empty() {
            true => judgement.violations.into_iter().map(|violation| (violation, states.clone())).collect(),
            false => claims(examiner, case, at.view, &report, &states, judgement.violations),
        };
        for (violation, states) in claims {
            let shown = examiner.show(case, at, (strategy::Complete.name(), &states), &violation);
            if !shown.map_err(Stop::Error)? {
                examiner.add_unknown(&violation, "no state was found that shows what holds for a set of them");
            } else if examiner.is_last() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn judge_leaf(&mut self, examiner: &Examiner, case: &mut HeapCase, view: &View, held: &LeafStates) -> JudgedLeaf {
        let at = CrashPosition { model: &case.model, view };
        let has_own_contents = self.search.has_own_contents(&at, held);
        let kept = self.report(held.leaf);
        let report = if has_own_contents { &kept.own } else { kept.without_contents() }.clone();
        let (tables, contents) = (&mut self.search.tables, &mut self.contents);
        let content = LeafContent::new(&at, case.files(), &held.sets, tables, contents);
        let config = examiner.means.config;
        let (shape, twins) = (config.shape(), examiner.generation.twins);
        let judgement = judge(&config.contract, &shape, &case.history, &report, &content, twins);
        JudgedLeaf { report, judgement, differing: content.into_differing().into_iter().flatten().collect() }
    }

    /// States of the leaf that may show what was found: the newest and the oldest one, and those with contents that differ.
    fn witnesses(
        &mut self,
        examiner: &Examiner,
        case: &HeapCase,
        view: &View,
        held: &LeafStates,
        differing: &BTreeSet<(LineId, Choice)>,
    ) -> Vec<Vec<Choice>> {
        let at = CrashPosition { model: &case.model, view };
        let newest = self.search.newest_state(&at, &held.sets);
        let with = |some: &[(LineId, Choice)]| {
            let mut state = newest.clone();
            for (line, choice) in some {
                if let Some(place) = view.lines.iter().position(|open| open.id == *line) {
                    state[place] = *choice;
                }
            }
            state
        };
        let mut states = vec![newest.clone()];
        if !differing.is_empty() {
            let each: Vec<(LineId, Choice)> = differing.iter().copied().take(WITNESS_LIMIT).collect();
            states.push(self.search.oldest_state(&at, &held.sets));
            states.extend(each.iter().map(|one| with(&[*one])));
            states.push(with(&each));
            states.dedup();
        }
        if examiner.generation.before.is_some() {
            // What one first crash breaks by itself another one of the leaf may not.
            let oldest = self.search.oldest_state(&at, &held.sets);
            states.extend(Some(oldest).filter(|oldest| !states.contains(oldest)));
        }
        states
    }

    /// Notes what the leaf shows, if somebody asks for outcomes. The state is one of the leaf.
    fn note_outcome(
        &self,
        examiner: &mut Examiner,
        case: &mut HeapCase,
        at: &ExploredPosition,
        (held, state): (&LeafStates, &[Choice]),
    ) -> Result<(), EngineError> {
        let Some(outcomes) = &mut examiner.results.outcomes else { return Ok(()) };
        // What earlier generations differ in, and no rule asks for any more, is explored once and not for each of them.
        let expected = match examiner.generation.before {
            None => case.history.state_id(),
            Some(_) => case.history.expected_id(examiner.means.config.contract.leaks),
        };
        let kept = self.report(held.leaf);
        if !outcomes.add(expected, kept.hash()) {
            return Ok(());
        }
        let new = new_outcome(examiner, case, at, state, kept)?;
        if let Some(outcomes) = &mut examiner.results.outcomes {
            outcomes.first_new = Some(Box::new(new));
        }
        Ok(())
    }
}

fn recoveries<'r>(reports: &'r mut WindowReports, means: &'r mut Means) -> RecordedRecoveries<'r> {
    RecordedRecoveries { recoverer: means.recoverer, probe: means.probe, budget: means.budget, reports }
}

/// A state of which recovery shows a report that no recovery showed before, reduced to the lines that matter.
fn new_outcome(
    examiner: &mut Examiner,
    case: &mut HeapCase,
    at: &ExploredPosition,
    state: &[Choice],
    kept: &KeptReport,
) -> Result<NewOutcome, EngineError> {
    let (state, _) = examiner.reduce(case, at.view, state, |examiner, case, tried| {
        let Means { recoverer, probe, .. } = &mut *examiner.means;
        let report = recoverer.probe(case.crash(at.view, tried).image, *probe)?.report;
        Ok((ReportHash::of(&without_contents(&report)) == kept.hash()).then_some(()))
    })?;
    let Means { config, recoverer, probe, .. } = &mut *examiner.means;
    let newest = case.crash(at.view, &at.view.prefix_state());
    let differences = kept.own.differences(&recoverer.probe(newest.image, *probe)?.report);
    let evidence = Evidence::of(config, case, (at.view, &state), &[]);
    let seen = StateRef { case, view: at.view, choices: &state, position: at.position };
    let symbols = &mut examiner.results.findings.symbols;
    let new = NewOutcome::of(symbols, examiner.generation.trace, &seen, evidence.read);
    Ok(NewOutcome { is_later: examiner.generation.before.is_some(), differences, ..new })
}

/// What these states break. Where contents differ, which rule is broken is another question for each state: that some state breaks one
/// is known of the set. What none of the states shows stays as it was said of the set.
fn claims(
    examiner: &Examiner,
    case: &mut HeapCase,
    view: &View,
    report: &HeapReport,
    states: &[Vec<Choice>],
    of_set: Vec<Violation>,
) -> Vec<(Violation, Vec<Vec<Choice>>)> {
    let config = examiner.means.config;
    let mut claims: Vec<(Violation, Vec<Vec<Choice>>)> = Vec::new();
    for state in states {
        let CrashedHeap { image, history } = case.crash(view, state);
        let content = HeapContent::read_by(|file, offset, into| image.read(file, offset, into));
        let judgement = judge(&config.contract, &config.shape(), history, report, &content, examiner.generation.twins);
        for violation in judgement.violations {
            if !claims.iter().any(|(known, _)| are_same(known, &violation)) {
                claims.push((violation, vec![state.clone()]));
            }
        }
    }
    if claims.is_empty() {
        claims.extend(of_set.into_iter().map(|violation| (violation, states.to_vec())));
    }
    claims
}
