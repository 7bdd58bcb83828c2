// SPDX-License-Identifier: Apache-2.0
//! `complete` in the engine: the search of [`crashgen::complete`] over recoveries of the replay server, its leaves judged.
//!
//! The recovery program is the whole probe that the configuration asks for, so the loads of later lives branch like those of the
//! first, in one trie. A leaf is judged for all of its states at once: the heap report is the same for them, and contents are asked
//! for line by line ([`SetContent`]). It is judged where it is found, and again when something else is expected of the heap or a
//! store changed a content it was judged by. What the runner read of contents belongs to the state that was run: it counts
//! for the others only while they hold the same there.
//!
//! A broken rule is a finding only once a concrete state of the leaf breaks it in a run of its own.
//!
//! A target whose loads cannot be followed (built without hooks, loads past them, a thread in recovery) is given up: see
//! [`Stop::Unfit`].

use crate::base::budget::{Budget, Stop};
use crate::base::config::{Config, StrategyName};
use crate::base::error::EngineError;
use crate::explore::certificate::Stopped;
use crate::explore::explorer::{Blamed, Explorer, Here};
use crate::explore::outcomes::{NewOutcome, Shown};
use crate::findings::evidence::Evidence;
use crate::findings::onset::are_same;
use crate::heap::case::{Case, CrashedHeap};
use crate::heap::crashes::Later;
use crate::heap::state::StateRef;
use crate::recovery::content::ImageContent;
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::reports::{Seen, doubt_of, without_contents};
use crate::recovery::set_content::{Contents, SetContent};
use crashgen::complete::{
    CrashPosition, Dependencies, Doubt, LeafId, LeafStates, Recoveries, Repeats, Run, Search, UnitKey, Window,
};
use crashgen::image::CrashImage;
use crashgen::model::{Choice, LineId, View};
use crashgen::replay::{Manner, Probe};
use crashgen::trace::{Event, Trace};
use oracle::{HeapReport, Judgement, Outcome, Violation, judge};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Of the leaves that are run twice, one in so many is run guarded, the first few more often: a guarded run costs as much as a
/// hundred others, and of a target with loads past the hooks the sooner it is known the better.
const GUARD_ONE_IN: u64 = 64;
/// It is run only where the same loads did not hang without the guard.
const GUARDED_HUNG: &str =
    "a guarded run reached its time limit, 200 times that of others: whether the hooks see every load is not known";
/// No leaf after these is run twice, or guarded, because it is one of the first.
const LOOKED_AT: u64 = 1 << 20;
/// Has no factor in common with [`GUARD_ONE_IN`].
const PART_STRIDE: u64 = 37;

/// Of a part of the trace, from 0: after the first one as if leaves had been run twice before, another number for each part, so that
/// the shares that are looked at closely are those of one long search.
pub fn repeats_before(part: usize) -> u64 {
    if part == 0 { 0 } else { LOOKED_AT + part as u64 * PART_STRIDE % GUARD_ONE_IN }
}

/// What a parsed heap report takes, with and without contents, of its bytes.
const REPORT_COPIES: usize = 3;
/// Objects that may be wrong in a leaf, each tried alone and all at once, before none of its states is said to show it.
const WITNESS_LIMIT: usize = 32;

/// The exploration of one case after the other.
pub struct Complete {
    search: Search,
    outcomes: Outcomes,
    contents: Contents,
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
    pub reports: Vec<Seen>,
}

/// Heap reports of the current window.
#[derive(Default)]
struct Outcomes {
    reports: Vec<Kept>,
    /// By a hash of the bytes, which is taken for them as those of images are.
    numbers: FxHashMap<u128, u32>,
    /// What the reports take, about.
    bytes: usize,
    /// The window's hot units.
    hot: Rc<[UnitKey]>,
    /// Leaves run twice, in all searches.
    repeats: Rc<Repeats>,
}

/// A heap report, with what is asked of it at every crash position that may leave it.
struct Kept {
    own: Rc<HeapReport>,
    without_contents: OnceCell<Rc<HeapReport>>,
    shown: OnceCell<Shown>,
}

impl Kept {
    fn new(own: HeapReport) -> Self {
        Self { own: Rc::new(own), without_contents: OnceCell::new(), shown: OnceCell::new() }
    }

    fn without_contents(&self) -> &Rc<HeapReport> {
        self.without_contents.get_or_init(|| Rc::new(without_contents(&self.own)))
    }

    fn shown(&self) -> Shown {
        *self.shown.get_or_init(|| Shown::of(self.without_contents()))
    }
}

/// Runs recoveries for the search.
struct Runner<'a> {
    recoverer: &'a mut Recoverer,
    probe: Probe,
    outcomes: &'a mut Outcomes,
    budget: Budget,
}

impl Runner<'_> {
    fn record(&mut self, image: &mut CrashImage, manner: Manner) -> Result<Run, Stop> {
        self.budget.check(self.recoverer.recoveries)?;
        let recorded = self.recoverer.record(image, self.probe, &self.outcomes.hot, manner);
        let (bytes, loads) = recorded.map_err(Stop::Error)?;
        if loads.is_unfit {
            return Err(Stop::Unfit(loads.doubt.map(Doubt::text).unwrap_or_default()));
        }
        let outcomes = &mut *self.outcomes;
        let (next, hash) = (outcomes.reports.len() as u32, xxh3_128(bytes));
        let outcome = match outcomes.numbers.get(&hash) {
            Some(known) => *known,
            None => {
                let report = HeapReport::parse(bytes)
                    .map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")));
                outcomes.reports.push(Kept::new(report.map_err(Stop::Error)?));
                outcomes.bytes += bytes.len() * REPORT_COPIES;
                outcomes.numbers.insert(hash, next);
                next
            }
        };
        let doubt = loads.doubt.or_else(|| match outcomes.reports[outcome as usize].own.outcome {
            Outcome::Hung if matches!(manner, Manner::Guarded { .. }) => Some(Doubt::Unknown(GUARDED_HUNG.to_owned())),
            outcome => doubt_of(outcome),
        });
        Ok(Run { outcome, loads: loads.by_target, contents: loads.by_contents, doubt })
    }
}

impl Recoveries for Runner<'_> {
    type Stop = Stop;

    fn watch(&mut self, hot: &[UnitKey]) -> Result<(), Stop> {
        let repeats = self.outcomes.repeats.clone();
        *self.outcomes = Outcomes { hot: hot.into(), repeats, ..Outcomes::default() };
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        self.record(image, Manner::Fast)
    }

    fn run_again(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        let repeated = self.outcomes.repeats.leaves() + 1;
        let is_guarded = repeated % GUARD_ONE_IN == 0 || repeated.is_power_of_two();
        self.record(image, if is_guarded { Manner::Guarded { seed: repeated as u32 } } else { Manner::Afresh })
    }

    fn memory_bytes(&self) -> usize {
        self.outcomes.bytes
    }

    fn is_worth_repeating(&self, outcome: u32) -> bool {
        self.outcomes.reports[outcome as usize].own.outcome != Outcome::Hung
    }

    fn is_same(&self, one: u32, other: u32) -> bool {
        let reports = &self.outcomes.reports;
        one == other || reports[one as usize].without_contents() == reports[other as usize].without_contents()
    }
}

impl Complete {
    /// Of the first case.
    pub fn new(config: &Config, repeats: &Rc<Repeats>) -> Self {
        Self {
            search: Search::new(config.bounds(), repeats.clone()),
            outcomes: Outcomes { repeats: repeats.clone(), ..Outcomes::default() },
            contents: Contents::default(),
            judged: FxHashSet::default(),
            epoch: 0,
            windows: 0,
        }
    }

    /// Another case begins.
    pub fn start_case(&mut self) {
        self.search.start_case();
        self.outcomes = Outcomes { repeats: self.outcomes.repeats.clone(), ..Outcomes::default() };
        self.contents = Contents::default();
        self.judged.clear();
        (self.epoch, self.windows) = (0, 0);
    }

    /// What a walk of the crash position finds, for comparison with all of its states.
    ///
    /// # Errors
    /// When the replay server fails.
    pub fn all_reports(
        &mut self,
        trace: &Trace,
        recoverer: &mut Recoverer,
        case: &mut Case,
        position: u32,
        view: &View,
    ) -> Result<Walked, Stop> {
        let (at, image) = case.position(view);
        let mut runner =
            Runner { probe: recoverer.whole(), recoverer, outcomes: &mut self.outcomes, budget: Budget::NONE };
        let is_due = self.search.step(position, &at, &trace.events, &mut runner)?;
        let mut walk = self.search.traversal();
        let mut outcomes = BTreeSet::new();
        while let Some(held) = self.search.next(&mut walk, &at, image, &mut runner)? {
            outcomes.insert((self.search.leaf(held.leaf).outcome, self.search.has_own_contents(&at, &held)));
        }
        let report = |outcome: u32| self.outcomes.reports[outcome as usize].own.clone();
        let reports = outcomes.into_iter().map(|(outcome, is_own)| Seen::of_leaf(report(outcome), is_own)).collect();
        Ok(Walked { is_due, is_whole: self.search.gap.is_none(), reports })
    }

    fn kept(&self, leaf: LeafId) -> &Kept {
        &self.outcomes.reports[self.search.leaf(leaf).outcome as usize]
    }

    /// What was found so far.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// What is remembered in the window, bytes, about.
    pub fn kept_bytes(&self) -> usize {
        self.search.memory_bytes() + self.outcomes.bytes
    }

    /// Leaves that are remembered in the window.
    pub fn leaf_count(&self) -> usize {
        self.search.leaf_count()
    }

    /// Begins a window that the caller chose.
    ///
    /// # Errors
    /// When there is nobody to run recoveries.
    pub fn enter(
        &mut self,
        window: Window,
        recoverer: &mut Recoverer,
        probe: Probe,
        budget: Budget,
    ) -> Result<(), Stop> {
        let mut runner = Runner { recoverer, probe, outcomes: &mut self.outcomes, budget };
        self.search.enter(window, &mut runner)
    }

    /// Takes note of an event at whose crash position nothing may be looked at.
    pub fn note(&mut self, event: &Event) {
        self.contents.note(event);
    }

    /// What is remembered of contents.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The same, for others to ask.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// Begins to pass positions again, with what was remembered of contents until there.
    pub fn begin_pass(&mut self, contents: Contents) {
        self.judged.clear();
        self.search.restart_positions();
        self.windows = self.search.windows();
        self.epoch = contents.epoch;
        self.contents = contents;
        self.contents.begin_pass();
    }

    /// What is remembered of contents by now, and what was looked at since the pass onset.
    pub fn end_pass(&mut self) -> (Contents, Dependencies) {
        let mut contents = std::mem::take(&mut self.contents);
        let mut looked = self.search.take_dependencies();
        looked.join(contents.take_looked().lines());
        (contents, looked)
    }

    /// What makes the exploration worthless; empty after it was asked.
    pub fn take_doubts(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.search.doubts)
    }

    /// States of the leaf that may show what was found: the newest and the oldest one, and those with contents that differ.
    fn witnesses(
        &mut self,
        at: &CrashPosition,
        held: &LeafStates,
        differing: &BTreeSet<(LineId, Choice)>,
    ) -> Vec<Vec<Choice>> {
        let newest = self.search.newest_state(at, &held.sets);
        let with = |some: &[(LineId, Choice)]| {
            let mut state = newest.clone();
            for (line, choice) in some {
                if let Some(place) = at.view.lines.iter().position(|open| open.id == *line) {
                    state[place] = *choice;
                }
            }
            state
        };
        let each: Vec<(LineId, Choice)> = differing.iter().copied().take(WITNESS_LIMIT).collect();
        let mut states = vec![newest.clone()];
        if differing.is_empty() {
            return states;
        }
        states.push(self.search.oldest_state(at, &held.sets));
        states.extend(each.iter().map(|one| with(&[*one])));
        states.push(with(&each));
        states.dedup();
        states
    }
}

impl Explorer<'_> {
    /// All states of a crash position.
    pub fn complete_position(&mut self, complete: &mut Complete, case: &mut Case, here: &Here) -> ControlFlow<()> {
        let explored = self.explore_position(complete, case, here);
        complete.take_doubts().iter().for_each(|doubt| self.tally.add_unknown(doubt));
        match explored {
            Ok(flow) => match complete.search.gap {
                None => {
                    self.ran.push(StrategyName::Complete.name());
                    flow
                }
                Some(why) => {
                    self.tally.add_incomplete(here.position, why);
                    flow?;
                    self.some_states(case, here)
                }
            },
            Err(stop) => self.stop(here.position, stop),
        }
    }

    /// The exploration ends.
    pub(crate) fn stop(&mut self, position: u32, stop: Stop) -> ControlFlow<()> {
        match stop {
            Stop::Budget(why) => self.stopped = Some(Stopped { position, why }),
            Stop::Unfit(why) => self.unfit = Some(why),
            Stop::Error(error) => self.error = Some(error),
        }
        ControlFlow::Break(())
    }

    fn explore_position(
        &mut self,
        complete: &mut Complete,
        case: &mut Case,
        here: &Here,
    ) -> Result<ControlFlow<()>, Stop> {
        let events: &[Event] = &self.trace.events;
        complete.note(&events[here.position as usize - 1]);
        let budget = self.budget();
        let is_walk_due = {
            let at = CrashPosition { model: &case.model, view: here.view };
            let mut runner = self.runner(&mut complete.outcomes, budget);
            complete.search.step(here.position, &at, events, &mut runner)?
        };
        if complete.windows != complete.search.windows() {
            complete.windows = complete.search.windows();
            complete.judged.clear();
            complete.contents.start_window();
        }
        if !is_walk_due && !here.is_expectation_new && complete.epoch == complete.contents.epoch {
            return Ok(ControlFlow::Continue(()));
        }
        complete.epoch = complete.contents.epoch;
        let mut walk = complete.search.traversal();
        loop {
            let (at, image) = case.position(here.view);
            let mut runner = self.runner(&mut complete.outcomes, budget);
            let Some(held) = complete.search.next(&mut walk, &at, image, &mut runner)? else {
                return Ok(ControlFlow::Continue(()));
            };
            self.recoverer.memoised += u64::from(!held.is_new);
            if self.judge_leaf(complete, case, here, &held)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn runner<'r>(&'r mut self, outcomes: &'r mut Outcomes, budget: Budget) -> Runner<'r> {
        Runner { recoverer: self.recoverer, probe: self.probe, outcomes, budget }
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::of(self.config, self.deadline)
    }

    fn judge_leaf(
        &mut self,
        complete: &mut Complete,
        case: &mut Case,
        here: &Here,
        held: &LeafStates,
    ) -> Result<ControlFlow<()>, Stop> {
        if !complete.judged.insert((held.leaf, case.history.state_id(), complete.contents.epoch)) {
            return Ok(ControlFlow::Continue(()));
        }
        self.budget().check(0)?;
        let (report, judgement, differing) = self.judge_all_states(complete, case, here.view, held);
        self.tally.add(&judgement);
        let at = CrashPosition { model: &case.model, view: here.view };
        let mut states = complete.witnesses(&at, held, &differing);
        if self.before.is_some() {
            // What one first crash breaks by itself another one of the leaf may not.
            let oldest = complete.search.oldest_state(&at, &held.sets);
            states.extend(Some(oldest).filter(|oldest| !states.contains(oldest)));
        }
        if let Some(outcomes) = &mut self.outcomes {
            // What earlier generations differ in, and no rule asks for any more, is explored once and not for each of them.
            let expected = match self.before {
                None => case.history.state_id(),
                Some(_) => case.history.expected_id(self.config.contract.leaks),
            };
            let kept = complete.kept(held.leaf);
            if outcomes.add(expected, kept.shown()) {
                self.keep_new_outcome(case, here, &states[0], kept).map_err(Stop::Error)?;
            }
        }
        let claims = match differing.is_empty() {
            true => judgement.violations.into_iter().map(|violation| (violation, states.clone())).collect(),
            false => self.claims(case, here.view, &report, &states, judgement.violations),
        };
        for (violation, states) in claims {
            let is_shown = self.show(case, here, &states, &violation).map_err(Stop::Error)?;
            if !is_shown {
                self.tally.add_unknown(&format!(
                    "{}: no state was found that shows what holds for a set of them: {}",
                    violation.rule, violation.message
                ));
            } else if let Some(why) = self.findings.stop_at(self.config, violation.rule) {
                self.tally.bounds_hit.insert(why);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The state is one of the leaf with this report.
    fn keep_new_outcome(
        &mut self,
        case: &mut Case,
        here: &Here,
        state: &[Choice],
        kept: &Kept,
    ) -> Result<(), EngineError> {
        let shown = kept.shown();
        let (state, _) = self.reduce(case, here.view, state, |explorer, case, tried| {
            let image = case.crash(here.view, tried).image;
            let report = explorer.recoverer.probe(image, explorer.probe)?.report;
            Ok((Shown::of(&without_contents(&report)) == shown).then_some(()))
        })?;
        let newest = case.crash(here.view, &here.view.prefix_state());
        let whole = self.recoverer.probe(newest.image, self.probe)?.report;
        let differences = kept.own.differences(&whole);
        let evidence = Evidence::of(self.config, case, (here.view, &state), &[]);
        let seen = StateRef { case, view: here.view, choices: &state, position: here.position };
        let symbols = &mut self.findings.symbols;
        let new = NewOutcome {
            is_later: self.before.is_some(),
            differences,
            ..NewOutcome::of(symbols, self.trace, &seen, evidence.read)
        };
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.first_new = Some(Box::new(new));
        }
        Ok(())
    }

    /// Of every state of the leaf, with the choices that make a content differ; and the report as it was judged.
    fn judge_all_states(
        &self,
        complete: &mut Complete,
        case: &Case,
        view: &View,
        held: &LeafStates,
    ) -> (Rc<HeapReport>, Judgement, BTreeSet<(LineId, Choice)>) {
        let at = CrashPosition { model: &case.model, view };
        let has_own_contents = complete.search.has_own_contents(&at, held);
        let kept = complete.kept(held.leaf);
        let report = if has_own_contents { &kept.own } else { kept.without_contents() }.clone();
        let (tables, contents) = (&mut complete.search.tables, &mut complete.contents);
        let content = SetContent::new(&at, case.files(), &held.sets, tables, contents);
        let (contract, shape) = (&self.config.contract, self.config.shape());
        let judgement = judge(contract, &shape, &case.history, &report, &content, self.twins);
        (report, judgement, content.into_differing().into_iter().flatten().collect())
    }

    /// Where contents differ, which rule is broken is another question for each state: that some state breaks one is known of all,
    /// which one is told of these. What none of them shows stays as it was said of the set.
    fn claims(
        &self,
        case: &mut Case,
        view: &View,
        report: &HeapReport,
        states: &[Vec<Choice>],
        of_set: Vec<Violation>,
    ) -> Vec<(Violation, Vec<Vec<Choice>>)> {
        let mut claims: Vec<(Violation, Vec<Vec<Choice>>)> = Vec::new();
        for state in states {
            let CrashedHeap { image, history } = case.crash(view, state);
            let (contract, shape, content) = (&self.config.contract, self.config.shape(), ImageContent::new(image));
            let judgement = judge(contract, &shape, history, report, &content, self.twins);
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

    /// What the heap breaks with the adapter that people use.
    fn with_plain_adapter(&mut self, heap: CrashedHeap) -> Result<Vec<Violation>, EngineError> {
        let mut plain = Recoverer::start(&self.config.server("plain")?, self.probe == Probe::Full)?;
        let judge = Judge { config: self.config, twins: self.twins };
        Ok(judge.judge(&mut plain, self.probe, heap)?.violations)
    }

    /// The crash before that state breaks a rule by itself.
    fn is_told_before(&mut self, case: &Case, here: &Here, state: &[Choice]) -> Result<bool, EngineError> {
        let Some(before) = self.before else { return Ok(false) };
        let later = Later { model: &case.model, view: here.view, state: state.to_vec() };
        self.first_crashes.is_broken(self.config, before, &later, (case.prefix(), self.probe))
    }

    /// Makes a finding of a violation that one of these states shows in a run of its own, and with the adapter that people use, but for
    /// states whose crash before this one shows something already; what only one of these runs shows is unknown. False if none does.
    fn show(
        &mut self,
        case: &mut Case,
        here: &Here,
        states: &[Vec<Choice>],
        violation: &Violation,
    ) -> Result<bool, EngineError> {
        let mut is_told = false;
        for state in states {
            if self.is_told_before(case, here, state)? {
                is_told = true;
                continue;
            }
            let Blamed { state, onset, violation } = &self.blame(case, here, state, violation)?;
            let seen = StateRef { case, view: here.view, choices: state, position: here.position };
            let Some(key) = self.findings.recognise(self.trace, &seen, onset.as_ref(), violation) else {
                return Ok(true);
            };
            let violations = self.judge(case.crash(here.view, state))?.violations;
            let of_state = (state.as_slice(), *state == here.view.prefix_after(state));
            if let Some(same) = self.like(case, here, of_state, violations, violation)? {
                is_told = true;
                let plain = self.with_plain_adapter(case.crash(here.view, state))?;
                if self.like(case, here, of_state, plain, &same)?.is_none() {
                    self.tally.add_unknown(&format!(
                        "{}: the build with hooks shows it, the one that people use does not: {}",
                        violation.rule, violation.message
                    ));
                    continue;
                }
                self.add_finding(case, here, (state, onset.clone()), &same, StrategyName::Complete.name(), key)?;
                return Ok(true);
            }
        }
        Ok(is_told)
    }
}
