// SPDX-License-Identifier: Apache-2.0
//! Exploration: from crash position to crash position, from state to state, each judged at every position that can leave it.
//!
//! Between two markers what is expected of the heap does not change, so a state needs judging once in that stretch: at the
//! position where it is born, or at the stretch's first position. An image that was probed before is answered from memory; it is
//! judged again all the same when the history has moved on.

use crate::base::budget::Stop;
use crate::base::config::{Config, StrategyName};
use crate::base::error::EngineError;
use crate::explore::certificate::{Stopped, Tally};
use crate::explore::complete::{Complete, repeats_before};
use crate::explore::later::Generations;
use crate::explore::later::first_crash::FirstCrashes;
use crate::explore::outcomes::OutcomeSet;
use crate::explore::parts::{Cursor, Part};
use crate::findings::evidence::Evidence;
use crate::findings::finding::{Finding, Findings, FoundState, Origin};
use crate::findings::onset::{After, Course, Lasting, Onset, are_same};
use crate::heap::case::{Case, CrashedHeap};
use crate::heap::crashes::{Before, Later};
use crate::heap::state::StateRef;
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crashgen::complete::Repeats;
use crashgen::cpu_affinity;
use crashgen::image::ImageHash;
use crashgen::model::{Choice, View};
use crashgen::replay::Probe;
use crashgen::strategy::{Covered, Exhaustive, Floor, Pairwise, Prefix, Sample, Scope, Strategy};
use crashgen::trace::{Event, EventKind, Trace};
use oracle::{Judgement, TwinSet, Violation};
use planted::Fault;
use rustc_hash::FxHashSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// `--strategy exhaustive` enumerates a position of at most this many states (an hour of recoveries); beyond it says so.
const EXHAUSTIVE_LIMIT: u128 = 1 << 24;

/// Why a failure is not told.
const UNSTEADY: &str = "the same image has other heap reports when it is recovered again";

/// A crash position, as its case has stepped to it.
pub(crate) struct Here<'v> {
    /// Events before the crash.
    pub position: u32,
    /// What it shows.
    pub view: &'v View,
    /// States that were judged before are to be judged again.
    pub is_expectation_new: bool,
}

/// Who is to blame for what a state shows: everything persisted, where that shows it, too.
pub(crate) struct Blamed {
    /// The state.
    pub state: Vec<Choice>,
    /// Where it lost nothing: since when.
    pub onset: Option<Onset>,
    /// What that state shows.
    pub violation: Violation,
}

/// Whom an exploration says what it finds.
pub trait Listener {
    /// How far it is.
    fn progress(&mut self, position: u32, recoveries: u64);
    /// A new finding.
    fn finding(&mut self, finding: &Finding);
}

/// What goes on while states are run.
pub struct Explorer<'a> {
    pub(crate) config: &'a Config,
    pub(crate) trace: &'a Trace,
    pub(crate) strategy: StrategyName,
    pub(crate) listener: &'a mut dyn Listener,
    pub(crate) recoverer: &'a mut Recoverer,
    /// How much of the probe script is run.
    pub(crate) probe: Probe,
    pub(crate) twins: Option<&'a TwinSet>,
    pub(crate) tally: &'a mut Tally,
    pub(crate) findings: &'a mut Findings,
    pub(crate) lasting: &'a mut Lasting,
    pub(crate) first_crashes: &'a mut FirstCrashes,
    /// What recoveries showed, if somebody asks.
    pub(crate) outcomes: Option<&'a mut OutcomeSet>,
    /// Crash positions that are passed by ([`crate::explore::unchanged`]), by number; empty: none.
    pub(crate) unchanged: &'a [bool],
    /// The crash that the trace begins with: it is what a recovery did. None: it is the workload's.
    pub(crate) before: Option<&'a Before<'a>>,
    /// (image, expected heap) that were judged in this case.
    pub(crate) judged: FxHashSet<(ImageHash, u64)>,
    pub(crate) started: Instant,
    pub(crate) deadline: Option<Instant>,
    /// Strategies that ran at the position.
    pub(crate) ran: Vec<&'static str>,
    /// How much of the last position was judged against what is expected now.
    pub(crate) covered: Covered,
    /// Why the exploration ends early with an error.
    pub(crate) error: Option<EngineError>,
    /// Why `complete` is not possible.
    pub(crate) unfit: Option<String>,
    /// A budget was used up.
    pub(crate) stopped: Option<Stopped>,
    /// Nobody waits for the rest.
    pub(crate) is_over: &'a AtomicBool,
    pub(crate) repeats: ProgramRepeats,
}

/// Which leaves were run a second time, by what was run: for all generations.
#[derive(Clone)]
pub(crate) struct ProgramRepeats {
    /// The probe.
    pub probe: Rc<Repeats>,
    /// Recovery with follow-up.
    pub told: Rc<Repeats>,
}

impl ProgramRepeats {
    /// Of a part of the trace.
    pub(crate) fn of_part(number: usize) -> Self {
        let begun = || Rc::new(Repeats::after(repeats_before(number)));
        Self { probe: begun(), told: begun() }
    }
}

impl Explorer<'_> {
    /// Break: what follows is not to be explored.
    pub(crate) fn run(&mut self, part: &Part, cursor: &mut Cursor) -> Result<ControlFlow<()>, EngineError> {
        let trace = self.trace;
        let is_first = part.number == 0;
        let mut complete = Complete::new(self.config, &self.repeats.probe);
        let mut generations = Generations::new(self.config, &self.repeats.told);
        let mut flow = ControlFlow::Continue(());
        let mut was_passed_by = false;
        let is_case = |number: &usize| matches!(trace.events[*number].kind, EventKind::Case { .. });
        cursor.next = (cursor.next..part.first as usize).rev().find(is_case).unwrap_or(cursor.next);
        if planted::is(Fault::HeapOfAnotherPart) && !is_first {
            cursor.next = part.first as usize - 1;
        }
        while cursor.next < part.last as usize && flow.is_continue() {
            if self.is_over.load(Ordering::Relaxed) {
                flow = ControlFlow::Break(());
                break;
            }
            let number = cursor.next;
            let event = &trace.events[number];
            if let EventKind::Case { folder, .. } = &event.kind {
                self.end_case(&cursor.case);
                cursor.case = Case::new(self.config, trace, folder);
                complete.start_case();
                generations = Generations::new(self.config, &self.repeats.told);
                self.judged.clear();
            }
            let (view, is_expectation_new) = cursor.case.step(number as u32, event)?;
            cursor.next += 1;
            let position = number as u32 + 1;
            let is_counted = is_first || position >= part.first;
            self.tally.stores += u64::from(is_counted && matches!(event.kind, EventKind::Store { .. }));
            if position < part.first || self.is_skipped(position) {
                continue;
            }
            let is_expectation_new = is_expectation_new || position == part.first || was_passed_by;
            let here = Here { position, view: &view, is_expectation_new };
            let case = &mut cursor.case;
            was_passed_by = self.is_unchanged(position);
            flow = match was_passed_by {
                true => self.pass_by(&mut complete, event),
                false => self.position(case, &mut complete, &here),
            };
            if flow.is_continue() {
                flow = self.later(&mut generations, case, &mut complete, &here);
            }
            if self.stopped.is_none() {
                // What goes on where a budget ended counts the position.
                let born_log10 = if case.position_in_case == 1 { Some(0.0) } else { view.born_log10() };
                self.tally.add_position(born_log10, &self.ran);
            }
        }
        self.end_case(&cursor.case);
        self.error.take().map_or(Ok(flow), Err)
    }

    fn end_case(&mut self, case: &Case) {
        if case.model.has_unknown_file() {
            self.tally.add_unknown(
                "there were stores into a file that was there before the trace onset: its content is not known",
            );
        }
        self.tally.bounds_hit.extend(case.model.bounds_hit().iter().map(|bound| (*bound).to_owned()));
    }

    /// What a crash may leave at this position of the explored trace was explored elsewhere.
    pub(crate) fn is_unchanged(&self, position: u32) -> bool {
        self.unchanged.get(position as usize).copied().unwrap_or(false)
    }

    pub(crate) fn pass_by(&mut self, complete: &mut Complete, event: &Event) -> ControlFlow<()> {
        complete.note(event);
        self.ran.clear();
        self.tally.unchanged += 1;
        ControlFlow::Continue(())
    }

    /// By a fault that is planted.
    fn is_skipped(&self, position: u32) -> bool {
        let is_last = position as usize == self.trace.events.len();
        let is_fence = matches!(self.trace.events[position as usize - 1].kind, EventKind::Fence { .. });
        (planted::is(Fault::SkipLastPosition) && is_last) || (planted::is(Fault::JudgeAtFences) && !is_fence)
    }

    fn position(&mut self, case: &mut Case, complete: &mut Complete, here: &Here) -> ControlFlow<()> {
        self.ran.clear();
        cpu_affinity::refresh();
        self.listener.progress(here.position, self.recoverer.recoveries);
        let is_expectation_new = here.is_expectation_new && !planted::is(Fault::JudgeBornOnly);
        let here = &Here { is_expectation_new, ..*here };
        match self.strategy {
            StrategyName::Complete => self.complete_position(complete, case, here),
            _ => self.chosen_states(case, here),
        }
    }

    fn chosen_states(&mut self, case: &mut Case, here: &Here) -> ControlFlow<()> {
        let strategies = self.strategies(here.view);
        let covered = Covered::by(&strategies, here.view);
        let is_new = here.is_expectation_new || here.view.are_all_new;
        let scope = if is_new { Scope::All } else { self.covered.next_scope(covered) };
        let is_unchanged = scope == Scope::Born && !here.view.has_new_store;
        for strategy in &strategies {
            self.ran.push(strategy.name());
            if !is_unchanged || !strategy.is_cumulative() {
                self.states(&**strategy, case, here, scope)?;
            }
        }
        if let Some(pairwise) = self.pairwise() {
            self.tally.add_coverage(pairwise.strength, pairwise.coverage(here.view, scope));
        }
        self.covered = covered;
        ControlFlow::Continue(())
    }

    /// Where `complete` could not see every state: what is guaranteed, everything, and some at random, as `mixed` does there. What it
    /// saw lies close to everything persisted.
    pub(crate) fn some_states(&mut self, case: &mut Case, here: &Here) -> ControlFlow<()> {
        let sample = Sample { count: self.config.limits.samples, seed: self.config.seed };
        let strategies: [&dyn Strategy; 3] = [&Prefix, &Floor, &sample];
        strategies.into_iter().try_for_each(|strategy| self.states(strategy, case, here, Scope::All))
    }

    fn pairwise(&self) -> Option<Pairwise> {
        let of = |strength| Some(Pairwise { strength, seed: self.config.seed });
        match self.strategy {
            StrategyName::Pairwise => of(2),
            StrategyName::Pairwise3 => of(3),
            _ => None,
        }
    }

    /// Which strategies run at a position.
    fn strategies(&mut self, view: &View) -> Vec<Box<dyn Strategy>> {
        let limits = &self.config.limits;
        let is_at_most = |limit: u128| view.state_count().is_some_and(|count| count <= limit);
        let sample = || Box::new(Sample { count: limits.samples, seed: self.config.seed });
        match self.strategy {
            StrategyName::Prefix => vec![Box::new(Prefix)],
            StrategyName::Floor => vec![Box::new(Floor)],
            StrategyName::Sample => vec![sample()],
            StrategyName::Pairwise | StrategyName::Pairwise3 => {
                self.pairwise().map(|pairwise| Box::new(pairwise) as Box<dyn Strategy>).into_iter().collect()
            }
            StrategyName::Complete => unreachable!("is no choice of states: it has its own way through a position"),
            StrategyName::Exhaustive if is_at_most(EXHAUSTIVE_LIMIT) => vec![Box::new(Exhaustive)],
            StrategyName::Exhaustive => {
                self.tally
                    .bounds_hit
                    .insert(format!("a position has more than {EXHAUSTIVE_LIMIT} states: only prefix and floor there"));
                vec![Box::new(Prefix), Box::new(Floor)]
            }
            StrategyName::Mixed if is_at_most(u128::from(limits.exhaustive_states)) => {
                vec![Box::new(Prefix), Box::new(Floor), Box::new(Exhaustive)]
            }
            StrategyName::Mixed => vec![Box::new(Prefix), Box::new(Floor), sample()],
        }
    }

    fn states(&mut self, strategy: &dyn Strategy, case: &mut Case, here: &Here, scope: Scope) -> ControlFlow<()> {
        let seed_position = case.position_in_case;
        strategy.states(seed_position, here.view, scope, &mut |state| {
            let budget = self.budget().check(self.recoverer.recoveries);
            let run = |()| self.state(strategy.name(), case, here, state).map_err(Stop::Error);
            budget.and_then(run).unwrap_or_else(|stop| self.stop(here.position, stop))
        })
    }

    fn state(
        &mut self,
        strategy: &'static str,
        case: &mut Case,
        here: &Here,
        state: &[Choice],
    ) -> Result<ControlFlow<()>, EngineError> {
        let heap = case.crash(here.view, state);
        let expected = if planted::is(Fault::JudgeImageOnce) { 0 } else { heap.history.state_id() };
        if !self.judged.insert((heap.image.hash(), expected)) {
            return Ok(ControlFlow::Continue(()));
        }
        let judgement = self.judge(heap)?;
        self.tally.add(&judgement);
        for violation in &judgement.violations {
            let Blamed { state, onset, violation } = &self.blame(case, here, state, violation)?;
            let seen = StateRef { case, view: here.view, choices: state, position: here.position };
            if let Some(key) = self.findings.recognise(self.trace, &seen, onset.as_ref(), violation) {
                if !self.recoverer.confirm(case.crash(here.view, state).image)? {
                    self.tally.add_unknown(&format!("{}: {UNSTEADY}: {}", violation.rule, violation.message));
                    continue;
                }
                self.add_finding(case, here, (state, onset.clone()), violation, strategy, key)?;
            }
            if let Some(why) = self.findings.stop_at(self.config, violation.rule) {
                self.tally.bounds_hit.insert(why);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Who is to blame for what a state shows.
    pub(crate) fn blame(
        &mut self,
        case: &mut Case,
        here: &Here,
        state: &[Choice],
        violation: &Violation,
    ) -> Result<Blamed, EngineError> {
        let newest = here.view.prefix_after(state);
        let onset = self.since(case, here, state, violation)?;
        if onset.is_some() && state != newest {
            let violations = self.judge(case.crash(here.view, &newest))?.violations;
            if let Some(violation) = self.like(case, here, (&newest, true), violations, violation)? {
                let onset = self.since(case, here, &newest, &violation)?;
                return Ok(Blamed { state: newest, onset, violation });
            }
        }
        let onset = onset.filter(|_| state == newest);
        Ok(Blamed { state: state.to_vec(), onset, violation: violation.clone() })
    }

    /// Since when everything persisted shows it, after what earlier crashes left in that state.
    fn since(
        &mut self,
        case: &Case,
        here: &Here,
        state: &[Choice],
        violation: &Violation,
    ) -> Result<Option<Onset>, EngineError> {
        let of = Course { config: self.config, trace: self.trace, twins: self.twins, after: None };
        let Some(before) = self.before else { return self.lasting.since(of, here.position, violation) };
        let left = before.chosen(&Later { model: &case.model, view: here.view, state: state.to_vec() });
        let sites = &self.findings.told_sites;
        let begin = || before.begin(&left, case.prefix(), sites.are_content(self.trace));
        let after = After { left: &left, begin: &begin, settled: before.settled };
        self.lasting.since(Course { after: Some(after), ..of }, here.position, violation)
    }

    /// Of what the state breaks, the same as that; else the first that breaks the same rule. Unless the state, or the one that it was made
    /// of, is whole, only what everything persisted does not show.
    pub(crate) fn like(
        &mut self,
        case: &Case,
        here: &Here,
        (state, is_whole): (&[Choice], bool),
        violations: Vec<Violation>,
        sought: &Violation,
    ) -> Result<Option<Violation>, EngineError> {
        let is_any = planted::is(Fault::ReduceToAnyRule);
        let is_whole = is_whole || planted::is(Fault::ReduceToLasting);
        let mut alike = Vec::new();
        for violation in violations.into_iter().filter(|violation| violation.broken() == sought.broken() || is_any) {
            if is_whole || self.since(case, here, state, &violation)?.is_none() {
                alike.push(violation);
            }
        }
        let same = alike.iter().position(|violation| are_same(violation, sought)).unwrap_or(0);
        Ok(alike.into_iter().nth(same))
    }

    /// Of a state that was judged; `key` is [`Findings::recognise`]'s. What the engines do not both show is unknown, and no finding.
    pub(crate) fn add_finding(
        &mut self,
        case: &mut Case,
        here: &Here,
        (from, onset): (&[Choice], Option<Onset>),
        violation: &Violation,
        strategy: &'static str,
        key: String,
    ) -> Result<(), EngineError> {
        let is_whole = from == here.view.prefix_after(from);
        let (state, same) = self.reduce(case, here.view, from, |explorer, case, tried| {
            let violations = explorer.judge(case.crash(here.view, tried))?.violations;
            explorer.like(case, here, (tried, is_whole), violations, violation)
        })?;
        let image = case.crash(here.view, &state).image;
        if let Some(why) = self.recoverer.compare(image, self.probe)? {
            self.tally.add_unknown(&format!("{}: {why}: {}", violation.rule, violation.message));
            return Ok(());
        }
        if !self.recoverer.confirm(image)? {
            self.tally.add_unknown(&format!("{}: {UNSTEADY}: {}", violation.rule, violation.message));
            return Ok(());
        }
        let violation = same.unwrap_or_else(|| violation.clone());
        let onset = match onset {
            Some(_) if state != from => self.since(case, here, &state, &violation)?, // another choice of an earlier crash
            onset => onset,
        };
        let evidence = Evidence::of(self.config, case, (here.view, &state), std::slice::from_ref(&violation));
        let at = StateRef { case, view: here.view, choices: &state, position: here.position };
        let reduced = FoundState { at, strategy, evidence, onset };
        if let Some(finding) =
            self.findings.add(self.config, self.trace, Origin::Explored(self.before), &reduced, &violation, key)
        {
            self.listener.finding(finding);
        }
        Ok(())
    }

    /// The state with as many lines as possible as everything persisted leaves them, while the image still shows what is asked for:
    /// halves of the lines first, then quarters, down to single ones. What is left are the lines that matter, so that one bug is
    /// one finding however many other lines were lost with it. With it what was shown last; none: nothing could be left out.
    pub(crate) fn reduce<T>(
        &mut self,
        case: &mut Case,
        view: &View,
        state: &[Choice],
        mut shown: impl FnMut(&mut Self, &mut Case, &[Choice]) -> Result<Option<T>, EngineError>,
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

    pub(crate) fn judge(&mut self, heap: CrashedHeap) -> Result<Judgement, EngineError> {
        Judge { config: self.config, twins: self.twins }.judge(self.recoverer, self.probe, heap)
    }
}
