// SPDX-License-Identifier: Apache-2.0
//! Crashes after the crash: in a recovery, and, where that is asked for, in the follow-up after it (docs/concepts.md).
//!
//! A recovery is itself a trace: what it stores, flushes and fences in PM, told by the runner (`runner/protocol.h`), with open and the
//! operations of the follow-up as its operations. So a later generation is explored as the first one is, by the same code. It begins
//! where power failed: of each line that the crash left undecided, it may find any of the choices that its own loads did not rule
//! out, and the stores of the recovery come on top ([`crashgen::model::Model::after_crash`]).
//!
//! Which recoveries there are at a crash position is a search of its own ([`crashgen::complete`]): its program is recovery with
//! follow-up, and the outcome of a leaf is what was told. What the later recoveries load is remembered in one trie for all leaves, of
//! many windows, since the trie knows values only.
//!
//! # What is explored once
//!
//! Crashes in a told run come to the same wherever recovery did the same, event by event, on lines with the same remaining choices, and the
//! same is expected of the heap. So each such run is explored once a case ([`Generations::explored`]). Once recovery
//! has returned, what was pending at the crash has happened or never will: from there on less need be the same.
//!
//! The trie of later recoveries ends with a file operation of the trace, because other bytes change then, or when a unit turns out
//! to vary that was not hot in it. To make that rare its hot units are those of the next operations too ([`AHEAD_UNITS`]), and of all told
//! runs so far. It begins again when there is no room for much more ([`LaterRecoveries::is_nearly_full`]), and what it loaded stays known.
//!
//! Runs that did the same are told apart only by what was looked at: see [`explored_starts`].
//!
//! States that one crash breaks already are no matter of a second one: where recovery does not write what an object holds, the
//! choices with which that is wrong are left out. What only the later stages of the probe show of it: [`first_crash`].
//!
//! Of later generations all of the probe is judged, as FL014: that a second recovery finds the same heap (FL013), that it can be used
//! (FL012), but for its capacity, since there are no twins of them.

pub mod explored_starts;
pub mod first_crash;
mod left;
mod recoveries;
mod run_identity;
mod told;

use crate::base::budget::Stop;
use crate::base::config::{Config, OutcomesFile, StrategyName};
use crate::explore::certificate::Tally;
use crate::explore::complete::Complete;
use crate::explore::explorer::{Explorer, Here};
use crate::explore::later::left::{AfterCrash, Left, hash_of_begin};
use crate::explore::later::recoveries::{LaterRecoveries, Passes};
use crate::explore::later::run_identity::{Did, ToldRun};
use crate::explore::later::told::{Teller, ToldRuns};
use crate::explore::unchanged::Unchanged;
use crate::findings::recovery_edits::{Edited, edited};
use crate::heap::case::{Case, Settled, is_open_return};
use crate::heap::crashes::Before;
use crate::heap::recovery_trace::{line_of, told_trace, touched};
use crate::recovery::content::Unasked;
use crate::recovery::set_content::{Contents, Narrowing, SetContent};
use crashgen::complete::{CrashPosition, Dependencies, LeafStates, Repeats, Search, UnitKey};
use crashgen::model::{LineId, LineKey, View};
use crashgen::replay::RecoveryTrace;
use crashgen::strategy::Covered;
use crashgen::trace::{Event, EventKind, FileEffect, Trace};
use oracle::contract::Contract;
use oracle::{History, Judgement, Outcome, Status, judge};
use planted::Fault;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Units stored to ahead of the current window that are hot for later recoveries: some operations on objects of a few KiB. More make
/// paths longer and save less and less.
const AHEAD_UNITS: usize = 4096;

/// The exploration of later generations of one case.
pub struct Generations {
    search: Search,
    told: ToldRuns,
    /// Recoveries of crashes in what was told; for all leaves.
    later: Option<Box<LaterRecoveries>>,
    /// What recoveries that are forgotten by now loaded: a store to it makes a walk due, as one to what the others loaded does.
    loaded: FxHashSet<UnitKey>,
    windows: u64,
    /// Lines that some told run stored to, flushed or took away: hot for later recoveries.
    touched: BTreeSet<LineKey>,
    /// Hashes of what decides what later recoveries find, of the told runs that were explored, as far as they are; and of what decides
    /// it once recovery has returned.
    explored: FxHashSet<u128>,
    /// Of told runs of the window, by the hash of each.
    unchanged: FxHashMap<u128, Rc<Unchanged>>,
}

/// A told run as it is explored.
struct ToldTrace<'a> {
    trace: &'a Trace,
    /// What of it is as in the run without the edits, where that was explored.
    unchanged: Option<Rc<Unchanged>>,
    /// Positions after recovery returned were explored.
    is_rest_explored: bool,
    /// What decides, with what the crash before it left, what crashes in it find; none: other things do, too.
    did: Option<Did>,
}

impl Generations {
    /// Of a case that begins.
    pub fn new(config: &Config, repeats: &Rc<Repeats>) -> Self {
        Self {
            search: Search::new(config.bounds(), repeats.clone()),
            told: ToldRuns::default(),
            later: None,
            loaded: FxHashSet::default(),
            windows: 0,
            touched: BTreeSet::new(),
            explored: FxHashSet::default(),
            unchanged: FxHashMap::default(),
        }
    }

    /// A window has begun, perhaps with units that later recoveries were not watched for.
    fn enter_window(&mut self) {
        if self.windows != self.search.windows() {
            self.windows = self.search.windows();
            self.unchanged.clear();
            let hot = &self.search.window().expect("it has stepped").varying;
            if self.later.as_ref().is_some_and(|later| !hot.iter().all(|unit| later.hot.contains(unit))) {
                self.forget_later();
            }
        }
    }

    /// Later recoveries begin with nothing remembered but what was loaded.
    fn forget_later(&mut self) {
        if let Some(later) = self.later.take() {
            self.loaded.extend(later.loaded());
        }
    }

    /// What may vary between the images that later recoveries see, from this crash position on.
    fn hot_from(&self, position: u32, trace: &Trace) -> BTreeSet<UnitKey> {
        let mut hot: BTreeSet<UnitKey> = self.touched.iter().copied().flat_map(UnitKey::of_line).collect();
        hot.extend(&self.search.window().expect("it has stepped").varying);
        let most = hot.len() + AHEAD_UNITS;
        for event in &trace.events[position as usize..] {
            if is_file_change(event) || hot.len() >= most {
                break;
            }
            hot.extend(UnitKey::of_store(event));
        }
        hot
    }

    /// Whether the event changes what a recovery of a later generation loads.
    fn is_touched(&self, event: &Event) -> bool {
        self.later.as_ref().is_some_and(|later| later.is_touched(event))
            || UnitKey::of_store(event).any(|unit| self.loaded.contains(&unit))
    }
}

impl Explorer<'_> {
    /// The generation that a crash in the explored trace ends, from 0.
    fn crashes_before(&self) -> u32 {
        let mut before = self.before;
        let mut count = 0;
        while let Some(crash) = before {
            (before, count) = (crash.before, count + 1);
        }
        count
    }

    /// Number of the generation that begins with a crash in the explored trace.
    fn generation(&self) -> u32 {
        self.crashes_before() + 1
    }

    /// Explores crashes in the recoveries from this crash position, and in what follows them.
    pub fn later(
        &mut self,
        generations: &mut Generations,
        case: &mut Case,
        complete: &mut Complete,
        here: &Here,
    ) -> ControlFlow<()> {
        let is_wanted = self.strategy == StrategyName::Complete && self.crashes_before() < self.config.nested;
        if !is_wanted {
            return ControlFlow::Continue(());
        }
        match self.explore_later(generations, case, complete, here) {
            Ok(flow) => flow,
            Err(stop) => self.stop(here.position, stop),
        }
    }

    fn explore_later(
        &mut self,
        generations: &mut Generations,
        case: &mut Case,
        complete: &mut Complete,
        here: &Here,
    ) -> Result<ControlFlow<()>, Stop> {
        let trace = self.trace;
        let event = &trace.events[here.position as usize - 1];
        let is_due = {
            let at = CrashPosition { model: &case.model, view: here.view };
            let mut teller = Teller { explorer: self, told: &mut generations.told };
            generations.search.step(here.position, &at, &trace.events, &mut teller)?
        };
        if is_file_change(event) {
            generations.forget_later();
        }
        generations.enter_window();
        if !is_due && !here.is_expectation_new && !generations.is_touched(event) {
            return Ok(ControlFlow::Continue(()));
        }
        let mut walk = generations.search.traversal();
        loop {
            let (at, image) = case.position(here.view);
            let mut teller = Teller { explorer: self, told: &mut generations.told };
            let Some(held) = generations.search.next(&mut walk, &at, image, &mut teller)? else { break };
            if self.explore_leaf(generations, case, complete, here, &held)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for doubt in std::mem::take(&mut generations.search.doubts) {
            self.tally.add_unknown(&doubt);
        }
        if let Some(why) = generations.search.gap {
            self.tally.add_incomplete(here.position, why);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What the later recoveries of this leaf's states find. Recoveries that are broken already, or refuse, are the first generation's
    /// matter.
    fn explore_leaf(
        &mut self,
        generations: &mut Generations,
        case: &mut Case,
        complete: &mut Complete,
        here: &Here,
        held: &LeafStates,
    ) -> Result<ControlFlow<()>, Stop> {
        let outcome = generations.search.leaf(held.leaf).outcome;
        let run = generations.told.runs[outcome as usize].clone();
        let ToldRun { report, told, .. } = &run;
        if report.life(0).and_then(|life| life.open) != Some(Status::Ok) {
            return Ok(ControlFlow::Continue(()));
        }
        let is_cut = report.outcome != Outcome::Done;
        let cut = match self.config.follow_up {
            true => "what follows a recovery did not come to its end",
            false => "what a recovery left was not read to its end",
        };
        if let Some(gap) = told.gap.or(is_cut.then_some(cut)) {
            self.tally.add_incomplete(here.position, gap);
            return Ok(ControlFlow::Continue(()));
        }
        let judgement = judge(&self.config.contract, &self.config.shape(), &case.history, report, &Unasked, None);
        if !judgement.violations.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(held) = self.with_right_contents((generations, complete), case, here.view, held, &run) else {
            return Ok(ControlFlow::Continue(()));
        };
        let left = Left::of(&mut generations.search, case, here.view, &held);
        let begins = hash_of_begin(case, here.view, &left, run.hash);
        let (whole, rest) = expected_ids(&self.config.contract, &case.history, &judgement);
        // What is passed by here tells nothing of what later recoveries load, by which the next walk is found to be due.
        let is_passed_by = self.is_unchanged(here.position);
        let how = u64::from(case.history.is_graph())
            | u64::from(is_passed_by && !planted::is(Fault::PassedByIsExplored)) << 1;
        let mut is_known = |expected: u64| {
            let words = [begins as u64, (begins >> 64) as u64, expected, how];
            !generations.explored.insert(xxh3_128(&words.map(u64::to_le_bytes).concat()))
        };
        if is_known(whole) {
            return Ok(ControlFlow::Continue(()));
        }
        let is_rest_explored = is_known(rest);
        let edited = is_passed_by.then(|| self.edited_trace(told));
        let is_as_it_was = |edited: &Edited| edited.gap.is_none() && !edited.left_out.contains(&true);
        if edited.as_ref().is_some_and(is_as_it_was) {
            return Ok(ControlFlow::Continue(())); // all of it is as in the trace that this one is compared with
        }
        let is_last = self.crashes_before() + 1 == self.config.nested;
        let did = (is_last && case.model.crash_settles()).then(|| {
            let names = case.names_hash();
            Did::of(&run, names, (whole, rest), case.history.is_graph(), edited.is_some())
        });
        if let (Some(did), Some(later)) = (did, &mut generations.later)
            && later.begins.is_known(did.whole, &AfterCrash { model: &case.model, left: &left })
        {
            return Ok(ControlFlow::Continue(()));
        }
        let unchanged = edited.as_ref().map(|edited| {
            let find = || Unchanged::of(|| case.model.after_crash(left.bases()), &told.events, &edited.left_out);
            generations.unchanged.entry(run.hash).or_insert_with(|| Rc::new(find())).clone()
        });
        if edited.as_ref().is_some_and(|edited| edited.gap.is_none())
            && unchanged.as_deref().is_some_and(Unchanged::is_whole)
        {
            return Ok(ControlFlow::Continue(()));
        }
        let touched = touched(&case.model, &told.events);
        case.model.know(touched.iter().copied());
        let new = touched.iter().copied().filter(|line| generations.touched.insert(*line)).collect::<Vec<_>>();
        if generations.later.is_none() {
            let hot = generations.hot_from(here.position, self.trace);
            generations.later = Some(Box::new(LaterRecoveries::new(hot)));
        }
        let later = generations.later.as_mut().expect("made where there was none");
        let known = later.hot.len();
        later.hot.extend(new.into_iter().flat_map(UnitKey::of_line));
        if later.hot.len() > known {
            generations.loaded.extend(later.loaded());
            later.start_again();
        }
        let mut model = case.model.after_crash(left.bases());
        let Edited { trace, gap, .. } = edited.unwrap_or_else(|| self.edited_trace(told));
        if let Some(gap) = gap {
            self.tally.add_incomplete(here.position, gap);
        }
        model.set_content_sites(self.findings.told_sites.are_content(&trace));
        let mut next = case.next_generation(model);
        let settled = Settled::of(&judgement);
        let before = Before {
            trace: self.trace,
            case,
            view: here.view,
            position: here.position,
            twins: self.twins,
            left: left.choices(here.view),
            settled: &settled,
            before: self.before,
            broken: RefCell::default(),
        };
        let told_trace = ToldTrace { trace: &trace, unchanged, is_rest_explored, did };
        let flow = self.explore_generation(later, complete.contents().clone(), &mut next, &before, &told_trace);
        let lines: Vec<LineId> = touched.iter().filter_map(|key| case.model.find(*key)).collect();
        case.take_back(next, lines.into_iter().chain(here.view.lines.iter().map(|line| line.id)));
        flow
    }

    /// The told run as a trace, as the edits make it.
    fn edited_trace(&mut self, told: &RecoveryTrace) -> Edited {
        let trace = told_trace(self.config, &mut self.findings.told_sites, self.trace, told);
        let symbols = &mut self.findings.symbols;
        let is_written = matches!(self.config.outcomes, Some(OutcomesFile::Write(_)));
        if let Some(outcomes) = self.outcomes.as_mut().filter(|_| is_written) {
            outcomes.later_places.note(symbols, &trace);
        }
        edited(self.config, symbols, trace)
    }

    /// The states of the leaf whose objects hold what they should after recovery; none: no state is like that. The others are broken
    /// by the crash alone.
    fn with_right_contents(
        &self,
        (generations, complete): (&mut Generations, &mut Complete),
        case: &Case,
        view: &View,
        held: &LeafStates,
        run: &ToldRun,
    ) -> Option<LeafStates> {
        let at = CrashPosition { model: &case.model, view };
        let tables = &mut generations.search.tables;
        let content = SetContent::new(&at, case.files(), &held.sets, tables, complete.contents_mut());
        let (contract, shape, history) = (&self.config.contract, self.config.shape(), &case.history);
        if judge(contract, &shape, history, &run.report, &content, None).violations.is_empty() {
            return Some(held.clone());
        }
        let recovery = run.told.events.iter().take_while(|event| !is_open_return(event));
        let stores = recovery.filter(|event| matches!(event.kind, EventKind::Store { .. }));
        let stored: BTreeSet<LineKey> = stores.filter_map(line_of).flatten().collect();
        let narrowing = Narrowing::new(&at, case.files(), &mut generations.search.tables, &stored, held.sets.clone());
        judge(contract, &shape, history, &run.report, &narrowing, None);
        Some(LeafStates { sets: narrowing.into_sets()?, ..held.clone() })
    }

    fn explore_generation(
        &mut self,
        later: &mut LaterRecoveries,
        contents: Contents,
        case: &mut Case,
        before: &Before,
        told: &ToldTrace,
    ) -> Result<ControlFlow<()>, Stop> {
        let fill = self.config.contract.fill;
        let mut tally = Tally::default();
        let followed = self.lasting.leave();
        let mut explorer = Explorer {
            config: self.config,
            trace: told.trace,
            listener: &mut *self.listener,
            recoverer: &mut *self.recoverer,
            probe: self.probe,
            twins: None,
            tally: &mut tally,
            findings: &mut *self.findings,
            lasting: &mut *self.lasting,
            first_crashes: &mut *self.first_crashes,
            outcomes: self.outcomes.as_deref_mut(),
            unchanged: told.unchanged.as_ref().map_or(&[], |unchanged| &unchanged.positions),
            before: Some(before),
            judged: FxHashSet::default(),
            started: self.started,
            deadline: self.deadline,
            ran: Vec::new(),
            covered: Covered::Nothing,
            error: None,
            unfit: None,
            stopped: None,
            is_over: self.is_over,
            repeats: self.repeats.clone(),
            strategy: self.strategy,
        };
        let mut generations = Generations::new(explorer.config, &explorer.repeats.told);
        let mut flow = ControlFlow::Continue(());
        let mut was_passed_by = false;
        let begin = case.model.lines();
        let mut returned = None;
        let mut passes = Passes { names: None, contents, looked: Dependencies::default() };
        for (number, event) in told.trace.events.iter().enumerate() {
            let stepped = case.step_recovery(number as u32, event, before.settled, fill);
            let (view, mut is_expectation_new) = stepped.map_err(Stop::Error)?;
            if is_open_return(event) {
                if told.is_rest_explored {
                    break;
                }
                if let Some(did) = told.did {
                    let here = returned.insert(passes.recovery_returned(later, (did, told.unchanged.as_deref()), case));
                    if here.known.is_some() {
                        break;
                    }
                    case.model.set_origin();
                }
            }
            let (config, repeats, budget) = (explorer.config, &explorer.repeats.probe, explorer.budget());
            let names = case.names_hash();
            if later.is_nearly_full(config.bounds()) {
                passes.end(later);
                later.forget_tries();
            }
            later.used += 1;
            later.trie(names, config, repeats, explorer.recoverer, budget)?;
            if passes.names != Some(names) {
                passes.go_on(later, names);
                is_expectation_new = true;
            }
            let complete = later.tries.get_mut(&names).expect("was just there");
            let position = number as u32 + 1;
            explorer.tally.positions += 1;
            explorer.ran.clear();
            is_expectation_new |= was_passed_by;
            was_passed_by = explorer.is_unchanged(position);
            let here = Here { position, view: &view, is_expectation_new };
            flow = match was_passed_by {
                true => explorer.pass_by(complete, event),
                false => explorer.complete_position(complete, case, &here),
            };
            if flow.is_continue() {
                flow = explorer.later(&mut generations, case, complete, &here);
            }
            if flow.is_break() {
                break;
            }
        }
        let (error, unfit, stopped) = (explorer.error.take(), explorer.unfit.take(), explorer.stopped.take());
        self.lasting.go_back(followed);
        passes.end(later);
        if let (Some(did), Some(returned), true) = (told.did, returned, flow.is_continue() && tally.is_whole()) {
            later.add_run((did.whole, &begin), returned, passes.looked, self.config.bounds().bytes);
        }
        self.tally.add_later(tally);
        match (error, unfit, stopped) {
            (Some(error), ..) => Err(Stop::Error(error)),
            (_, Some(why), _) => Err(Stop::Unfit(why)),
            (_, _, Some(stopped)) => Err(Stop::Budget(stopped.why)),
            _ => Ok(flow),
        }
    }
}

/// Bytes of files change otherwise than by stores, or the answers of the file system do.
fn is_file_change(event: &Event) -> bool {
    matches!(&event.kind, EventKind::FileEnd { effect, is_done: true } if !matches!(**effect, FileEffect::Sync { .. }))
}

/// What is expected of the heap after a crash here, and after the recovery from it that showed this.
fn expected_ids(contract: &Contract, history: &History, shown: &Judgement) -> (u64, u64) {
    let mut history = history.clone();
    history.power_fails();
    let whole = history.expected_id(contract.leaks);
    history.recovered(&shown.happened, &shown.unclear, contract.fill);
    (whole, !history.expected_id(contract.leaks))
}
