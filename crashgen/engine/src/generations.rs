// SPDX-License-Identifier: Apache-2.0
//! Crashes after the crash: in a recovery, and, where that is asked for, in the follow-up after it (DESIGN section 6).
//!
//! A recovery is itself a trace: what it stores, flushes and fences in PM, told by the runner (`generation.h`), with open and the
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
//! Runs that did the same are told apart only by what was looked at: see [`crate::begins`].
//!
//! States that one crash breaks already are no matter of a second one: where recovery does not write what an object holds, the
//! choices with which that is wrong are left out. What only the later stages of the probe show of it: [`crate::first_crash`].
//!
//! Of later generations all of the probe is judged, as FL014: that a second recovery finds the same heap (FL013), that it can be used
//! (FL012), but for its capacity, since there are no twins of them.

use crate::begins::{Begin, Begins, BeginsWith, Holding};
use crate::cases::{Case, Settled, is_open_return};
use crate::certificate::Tally;
use crate::complete::{Budget, Complete, Stop, doubt_of};
use crate::config::{Config, OutcomesFile, StrategyName};
use crate::content::Unasked;
use crate::error::{EngineError, bad_input};
use crate::explore::{Explorer, Here};
use crate::finding::{EarlierCrash, Edited, StateRef};
use crate::probes::Probes;
use crate::set_content::{Contents, Narrowing, SetContent};
use crate::unchanged::Unchanged;
use crashgen::LINE_BYTES;
use crashgen::complete::{
    Bounds, ChoiceSet, Doubt, Held, LineChoices, Looked, Position, Recoveries, Repeats, Run, Search, UnitKey, Window,
};
use crashgen::image::CrashImage;
use crashgen::model::{Choice, Line, LineId, LineKey, Lines, Model, OpenLine, View};
use crashgen::replay::{CONTENT_SITE, Told};
use crashgen::strategy::Covered;
use crashgen::trace::{Event, EventKind, FileEffect, Module, Site, SiteId, Trace};
use oracle::contract::Contract;
use oracle::{HeapReport, History, Judgement, Outcome, Status, TwinSet, judge};
use planted::Fault;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Units stored to ahead of the current window that are hot for later recoveries: some operations on objects of a few KiB. More make
/// paths longer and save less and less.
const AHEAD_UNITS: usize = 4096;
/// Crash positions that tries of later recoveries are used for at least before they begin again, so that those with more to remember
/// than there is room for are gaps in the exploration and not most of its time.
const RENEWED_AFTER: u64 = 64;

/// The crash before a later generation: where power failed, and what it may have left.
pub struct Before<'a> {
    /// What the position showed.
    pub view: &'a View,
    /// Events before the crash.
    pub position: u32,
    /// The case as it was.
    pub model: &'a Model,
    /// What the workload, or the recovery before, did until here.
    pub history: &'a History,
    /// Of the heap without a crash; none: there are none of this generation.
    pub twins: Option<&'a TwinSet>,
    /// The operation around the crash.
    pub current: Option<crate::cases::CurrentOperation>,
    /// Remaining choices of the lines, in the order of the view, each the newest last: what [`Choice::base`] counts.
    pub left: Vec<Vec<Choice>>,
    /// What the recovery from it showed of what was pending.
    pub settled: &'a Settled,
    /// The crash before that one.
    pub before: Option<&'a Before<'a>>,
}

/// A state of the generation after a crash.
pub struct Later<'a> {
    /// Persistency model at its position.
    pub model: &'a Model,
    /// What that shows.
    pub view: &'a View,
    /// One choice a line.
    pub state: Vec<Choice>,
}

impl<'a> Later<'a> {
    /// The same state.
    pub fn of(state: &StateRef<'a>) -> Self {
        Self { model: &state.case.model, view: state.view, state: state.state.to_vec() }
    }
}

impl Before<'_> {
    /// What this crash left, where that state came of it: one choice a line of its view. Where the later generation has overwritten a
    /// line, all choices come to the same, and it is the newest.
    pub fn chosen(&self, later: &Later) -> Vec<Choice> {
        let lines = self.view.lines.iter().zip(&self.left);
        lines
            .map(|(line, left)| {
                let is_open = later.model.line(line.id).base_count() > 1;
                let place = later.view.lines.iter().position(|other| other.id == line.id).filter(|_| is_open);
                place.map_or(left[left.len() - 1], |at| left[later.state[at].base as usize])
            })
            .collect()
    }

    /// What the recovery found where the crash left these choices, in a folder with that prefix. is_content: by site of what it did.
    pub fn begin(&self, chosen: &[Choice], prefix: &str, is_content: Vec<bool>) -> Case {
        let mut model = self.model.after_crash(left_by(self.view, chosen));
        model.set_content_sites(is_content);
        Case::after_crash(model, CrashImage::of(prefix, self.model, self.view, chosen), self.history)
    }
}

/// Of each line what that state of the view leaves, for a model that begins there.
fn left_by(view: &View, state: &[Choice]) -> impl Fn(LineId, &Line) -> Vec<Choice> {
    let by_line: FxHashMap<LineId, Choice> = view.lines.iter().map(|line| line.id).zip(state.iter().copied()).collect();
    move |id, line| vec![by_line.get(&id).copied().unwrap_or(line.newest())]
}

/// Told runs of the current window.
#[derive(Default)]
struct ToldRuns {
    runs: Vec<ToldRun>,
    numbers: FxHashMap<(Vec<u8>, Vec<u8>), u32>,
    hot: Rc<[UnitKey]>,
    /// What they take, about.
    bytes: usize,
}

#[derive(Clone)]
struct ToldRun {
    report: Rc<HeapReport>,
    told: Rc<Told>,
    /// Of all that was told: the same in every window.
    hash: u128,
    /// Of what recovery did.
    recovery: u128,
    /// Of what was done after it.
    follow_up: u128,
}

/// Where the events of told runs come from, by their offset in the adapter's file: numbers that hold in the whole exploration.
#[derive(Default)]
pub struct Sites {
    /// Sites and modules of the workload's trace: those of told runs come after them, in every generation.
    workload: Option<(usize, usize)>,
    numbers: FxHashMap<u64, u32>,
}

impl Sites {
    /// How many of the sites are the workload's; none: there was no told run.
    pub fn of_workload(&self) -> Option<u32> {
        self.workload.map(|(sites, _)| sites as u32)
    }

    /// By site of a told trace: whether what it stores is application content.
    pub fn are_content(&self, told: &Trace) -> Vec<bool> {
        let content = self.workload.map(|(sites, _)| sites);
        (0..told.sites.len()).map(|site| Some(site) == content).collect()
    }
}

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

struct LaterRecoveries {
    /// Whatever may vary between the images: stored to in the trace meanwhile, or touched by some told run.
    hot: BTreeSet<UnitKey>,
    /// One trie for each state of the file system: its answers are no nodes.
    tries: FxHashMap<u128, Complete>,
    /// Crash positions that they were used for.
    used: u64,
    /// Of the told runs that were explored over the same hot units.
    begins: Begins,
    /// What tries that are forgotten by now loaded.
    loaded_before: FxHashSet<UnitKey>,
}

impl LaterRecoveries {
    fn new(hot: BTreeSet<UnitKey>) -> Self {
        Self {
            hot,
            tries: FxHashMap::default(),
            used: 0,
            begins: Begins::default(),
            loaded_before: FxHashSet::default(),
        }
    }

    /// Whether to begin tries again, before there is no room for what is needed next.
    fn is_nearly_full(&self, bounds: Bounds) -> bool {
        let bytes: usize = self.tries.values().map(Complete::kept_bytes).sum();
        let leaves = self.tries.values().map(Complete::leaf_count).max().unwrap_or(0);
        self.used >= RENEWED_AFTER && (bytes >= bounds.bytes / 2 || leaves >= bounds.leaves / 2)
    }

    fn forget_tries(&mut self) {
        self.loaded_before.extend(self.tries.values().flat_map(|complete| complete.search().loaded()));
        self.tries.clear();
        self.used = 0;
    }

    /// Other units vary, too: what is remembered of loads is void.
    fn start_again(&mut self) {
        self.forget_tries();
        self.begins.clear();
    }

    fn loaded(&self) -> impl Iterator<Item = UnitKey> {
        let of_tries = self.tries.values().flat_map(|complete| complete.search().loaded());
        of_tries.chain(&self.loaded_before).copied()
    }

    fn is_touched(&self, event: &Event) -> bool {
        self.tries.values().any(|complete| complete.search().is_touched(event))
            || UnitKey::of_store(event).any(|unit| self.loaded_before.contains(&unit))
    }

    /// A told run was explored over what these lines may hold, which was looked at after recovery's return as `looked` says.
    fn add_run(&mut self, (did, begin): (u128, &Lines), returned: Returned, looked: Looked, most_bytes: usize) {
        if self.begins.bytes() >= most_bytes {
            self.begins.clear();
        }
        if returned.known.is_none() {
            self.begins.add(returned.did, &returned.lines, &looked);
        }
        let mut whole = returned.looked;
        let of_begin = |(line, units)| (line, units & !returned.lines.overwritten(line));
        whole.join(returned.known.unwrap_or(looked).lines().map(of_begin));
        self.begins.add(did, begin, &whole);
    }

    /// The trie for these answers of the file system; made when there is none.
    fn trie(
        &mut self,
        names: u128,
        config: &Config,
        repeats: &Rc<Repeats>,
        probes: &mut Probes,
        budget: Budget,
    ) -> Result<&mut Complete, Stop> {
        match self.tries.entry(names) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let mut complete = Complete::new(config, repeats);
                let window = Window { hot: self.hot.iter().copied().collect(), last_position: u32::MAX };
                let probe = probes.whole();
                complete.enter(window, probes, probe, budget)?;
                Ok(place.insert(complete))
            }
        }
    }
}

/// Where recovery returned in a told run.
struct Returned {
    /// What decides, with these lines, what crashes from here on find.
    did: u128,
    lines: Lines,
    /// What was looked at until here.
    looked: Looked,
    /// What was looked at from here on, when that was explored before.
    known: Option<Looked>,
}

/// The passes of one told run through the tries, one for each state of the file system and one more from recovery's return on.
struct Passes {
    /// Of the trie that is in use.
    names: Option<u128>,
    /// While none is.
    contents: Contents,
    /// In the passes that are over.
    looked: Looked,
}

impl Passes {
    fn end(&mut self, later: &mut LaterRecoveries) {
        let Some(complete) = self.names.take().and_then(|names| later.tries.get_mut(&names)) else { return };
        let (contents, looked) = complete.end_pass();
        self.contents = contents;
        self.looked.join(looked.lines());
    }

    fn go_on(&mut self, later: &mut LaterRecoveries, names: u128) {
        self.end(later);
        self.names = Some(names);
        later.tries.get_mut(&names).expect("it is made before").begin_pass(std::mem::take(&mut self.contents));
    }

    fn recovery_returned(
        &mut self,
        later: &mut LaterRecoveries,
        (did, unchanged): (Did, Option<&Unchanged>),
        case: &Case,
    ) -> Returned {
        self.end(later);
        let (did, lines) = (did.rest(&case.model, case.image.names_hash(), unchanged), case.model.lines());
        let known = later.begins.find(did, &lines).map(Begin::looked);
        Returned { did, lines, looked: std::mem::take(&mut self.looked), known }
    }
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

/// What was done and is expected, as hashes.
#[derive(Clone, Copy)]
struct Did {
    /// By recovery and follow-up.
    whole: u128,
    recovery: u128,
    /// By the follow-up, and what is expected from recovery's return on.
    follow_up: u128,
}

impl Did {
    /// is_compared: crash positions that are unchanged are passed by.
    fn of(run: &ToldRun, names: u128, (whole, rest): (u64, u64), is_graph: bool, is_compared: bool) -> Self {
        let hash = |words: [u128; 5]| xxh3_128(&words.map(u128::to_le_bytes).concat());
        let (is_graph, is_compared) = (is_graph.into(), is_compared.into());
        Self {
            whole: hash([run.hash, names, whole.into(), is_graph, is_compared]),
            recovery: run.recovery,
            follow_up: hash([run.follow_up, 0, rest.into(), is_graph, is_compared]),
        }
    }

    /// From recovery's return on. What recovery left undecided is a matter of what it did.
    fn rest(&self, model: &Model, names: u128, unchanged: Option<&Unchanged>) -> u128 {
        let is_settled = model.is_settled() && unchanged.is_none_or(|unchanged| unchanged.is_same_at_return);
        let undecided = if is_settled { 0 } else { self.recovery };
        xxh3_128(&[self.follow_up, names, undecided].map(u128::to_le_bytes).concat())
    }
}

/// Runs told recoveries for the search.
struct Teller<'e, 'a> {
    explorer: &'e mut Explorer<'a>,
    told: &'e mut ToldRuns,
}

impl Recoveries for Teller<'_, '_> {
    type Stop = Stop;

    fn watch(&mut self, hot: &[UnitKey]) -> Result<(), Stop> {
        *self.told = ToldRuns { hot: hot.into(), ..ToldRuns::default() };
        Ok(())
    }

    fn run(&mut self, image: &mut CrashImage) -> Result<Run, Stop> {
        self.explorer.budget().check(self.explorer.probes.recoveries)?;
        let follow_up = self.explorer.config.follow_up && !planted::is(Fault::NoFollowUp);
        let generation = (self.explorer.generation(), follow_up);
        let probes = &mut *self.explorer.probes;
        let (bytes, loads, events) = probes.tell(image, generation, &self.told.hot).map_err(Stop::Error)?;
        let next = self.told.runs.len() as u32;
        let key = (bytes, events);
        let outcome = match self.told.numbers.get(&key) {
            Some(known) => *known,
            None => {
                let report = HeapReport::parse(&key.0)
                    .map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")));
                let first_new = self.explorer.trace.files.len() as u32;
                let told = probes.parse_told(&key.1, first_new, image.prefix()).map_err(Stop::Error)?;
                let hash = xxh3_128(&[(key.0.len() as u64).to_le_bytes().as_slice(), &key.0, &key.1].concat());
                let report = Rc::new(report.map_err(Stop::Error)?);
                let (recovery, follow_up) = key.1.split_at(told.recovery_bytes);
                let (recovery, follow_up) = (xxh3_128(recovery), xxh3_128(follow_up));
                let answers = key.0.len() + key.1.len();
                self.told.bytes += answers + key.0.len() + told.events.len() * size_of::<Event>();
                self.told.runs.push(ToldRun { report, told: Rc::new(told), hash, recovery, follow_up });
                self.told.numbers.insert(key, next);
                next
            }
        };
        if loads.is_unfit {
            return Err(Stop::Unfit(loads.doubt.map(Doubt::text).unwrap_or_default()));
        }
        let doubt = loads.doubt.or_else(|| doubt_of(self.told.runs[outcome as usize].report.outcome));
        Ok(Run { outcome, loads: loads.by_target, contents: Vec::new(), doubt })
    }

    fn kept_bytes(&self) -> usize {
        self.told.bytes
    }
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
            let hot = &self.search.window().expect("it has stepped").hot;
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
        hot.extend(&self.search.window().expect("it has stepped").hot);
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
            let at = Position { model: &case.model, view: here.view };
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
        let mut walk = generations.search.walk();
        loop {
            let at = Position { model: &case.model, view: here.view };
            let mut teller = Teller { explorer: self, told: &mut generations.told };
            let Some(held) = generations.search.next(&mut walk, &at, &mut case.image, &mut teller)? else { break };
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
        held: &Held,
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
            let names = case.image.names_hash();
            Did::of(&run, names, (whole, rest), case.history.is_graph(), edited.is_some())
        });
        if let (Some(did), Some(later)) = (did, &generations.later)
            && later.begins.find(did.whole, &AfterCrash { model: &case.model, left: &left }).is_some()
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
            view: here.view,
            position: here.position,
            model: &case.model,
            history: &case.history,
            twins: self.twins,
            current: case.current,
            left: left.choices(here.view),
            settled: &settled,
            before: self.before,
        };
        let told_trace = ToldTrace { trace: &trace, unchanged, is_rest_explored, did };
        let flow = self.explore_generation(later, complete.contents().clone(), &mut next, &before, &told_trace);
        let lines: Vec<LineId> = touched.iter().filter_map(|key| case.model.find(*key)).collect();
        case.image = next.image;
        let lines = lines.into_iter().chain(here.view.lines.iter().map(|line| line.id));
        case.image.return_to(&mut case.model, lines, true);
        flow
    }

    /// The told run as a trace, as the edits make it.
    fn edited_trace(&mut self, told: &Told) -> Edited {
        let trace = told_trace(self.config, &mut self.findings.told_sites, self.trace, told);
        if matches!(self.config.outcomes, Some(OutcomesFile::Write(_))) {
            self.findings.note_places(&trace);
        }
        self.findings.edited(self.config, trace)
    }

    /// The states of the leaf whose objects hold what they should after recovery; none: no state is like that. The others are broken
    /// by the crash alone.
    fn with_right_contents(
        &self,
        (generations, complete): (&mut Generations, &mut Complete),
        case: &Case,
        view: &View,
        held: &Held,
        run: &ToldRun,
    ) -> Option<Held> {
        let at = Position { model: &case.model, view };
        let tables = &mut generations.search.tables;
        let content = SetContent::new(&at, &case.image, &held.sets, tables, complete.contents_mut());
        let (contract, shape, history) = (&self.config.contract, self.config.shape(), &case.history);
        if judge(contract, &shape, history, &run.report, &content, None).violations.is_empty() {
            return Some(held.clone());
        }
        let recovery = run.told.events.iter().take_while(|event| !is_open_return(event));
        let stores = recovery.filter(|event| matches!(event.kind, EventKind::Store { .. }));
        let stored: BTreeSet<LineKey> = stores.filter_map(line_of).flatten().collect();
        let narrowing = Narrowing::new(&at, &case.image, &mut generations.search.tables, &stored, held.sets.clone());
        judge(contract, &shape, history, &run.report, &narrowing, None);
        Some(Held { sets: narrowing.into_sets()?, ..held.clone() })
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
            output: &mut *self.output,
            probes: &mut *self.probes,
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
        let mut passes = Passes { names: None, contents, looked: Looked::default() };
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
            let names = case.image.names_hash();
            if later.is_nearly_full(config.bounds()) {
                passes.end(later);
                later.forget_tries();
            }
            later.used += 1;
            later.trie(names, config, repeats, explorer.probes, budget)?;
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

/// The told run as a trace: its sites come after those of the workload, and have the same numbers in all told runs.
fn told_trace(config: &Config, sites: &mut Sites, before: &Trace, told: &Told) -> Trace {
    let (workload_sites, modules) = *sites.workload.get_or_insert((before.sites.len(), before.modules.len()));
    let (first, module) = (workload_sites as u32, modules as u32);
    let sites = &mut sites.numbers;
    let mut number = |offset: u64| {
        let next = sites.len() as u32;
        first + 1 + *sites.entry(offset).or_insert(next)
    };
    let numbers: Vec<u32> = told.sites.iter().map(|offset| offset.map_or(0, &mut number)).collect();
    let mut known: Vec<(u32, u64)> = sites.iter().map(|(offset, number)| (*number, *offset)).collect();
    known.sort_unstable();
    let content = Site { module: None, offset: 0, caller: None };
    let adapter = known.into_iter().map(|(_, offset)| Site { module: Some(module), offset, caller: None });
    let number = |site: SiteId| if site == CONTENT_SITE { first } else { numbers[site.0 as usize] };
    let events = told.events.iter().map(|event| Event { site: SiteId(number(event.site)), ..event.clone() });
    let module = Module { path: config.hooked_adapter().to_owned(), build_id: String::new() };
    Trace {
        events: events.collect(),
        sites: before.sites[..workload_sites].iter().cloned().chain([content]).chain(adapter).collect(),
        modules: before.modules[..modules].iter().cloned().chain([module]).collect(),
        files: before.files.iter().chain(&told.made).cloned().collect(),
        unsupported: Vec::new(),
        hash: before.hash.clone(),
        tracer: before.tracer.clone(),
        processes: 1,
    }
}

/// One later generation, for the replay of a token.
pub struct Generation {
    /// As it begins.
    pub case: Case,
    /// What recovery and follow-up did.
    pub trace: Trace,
    /// The crashes that it came of, where a token names them.
    pub earlier: Vec<EarlierCrash>,
    /// Before it is stepped.
    pub begun: Begun,
}

/// Where a generation begins.
pub struct Begun {
    /// What recovery finds.
    pub case: Case,
    /// What it shows of what was pending.
    pub settled: Settled,
}

impl Generation {
    /// Of the generation that begins with a crash in this state; it is number `number`, from 1. `probes` has the hooked adapter.
    ///
    /// # Errors
    /// When recovery refuses the image, or what it does cannot be followed.
    pub fn after(
        config: &Config,
        (probes, sites): (&mut Probes, &mut Sites),
        before: &Trace,
        (case, view, state): (&mut Case, &View, &[Choice]),
        number: u32,
    ) -> Result<Self, EngineError> {
        case.image.go_to(&case.model, view, state);
        let (bytes, _, answer) = probes.tell(&mut case.image, (number, config.follow_up), &Rc::from([]))?;
        let told = probes.parse_told(&answer, before.files.len() as u32, case.image.prefix())?;
        let report = HeapReport::parse(&bytes)
            .map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")))?;
        let is_open = report.life(0).and_then(|life| life.open) == Some(Status::Ok);
        if let Some(gap) = told.gap.or((!is_open).then_some("recovery refuses the image")) {
            return Err(bad_input(format!("the token's second crash is not there: {gap}; was the allocator changed?")));
        }
        let judgement = judge(&config.contract, &config.shape(), &case.history, &report, &Unasked, None);
        case.model.know(touched(&case.model, &told.events).into_iter());
        let trace = told_trace(config, sites, before, &told);
        let mut model = case.model.after_crash(left_by(view, state));
        model.set_content_sites(sites.are_content(&trace));
        let case = case.next_generation(model);
        let begun = Begun { case: case.clone(), settled: Settled::of(&judgement) };
        Ok(Self { case, trace, earlier: Vec::new(), begun })
    }

    /// Steps over the recovery's event with this number; returns what the crash position after it shows.
    ///
    /// # Errors
    /// When the events contradict each other.
    pub fn step(&mut self, config: &Config, number: u32) -> Result<View, EngineError> {
        let event = &self.trace.events[number as usize];
        Ok(self.case.step_recovery(number, event, &self.begun.settled, config.contract.fill)?.0)
    }
}

/// Bytes of files change otherwise than by stores, or the answers of the file system do.
fn is_file_change(event: &Event) -> bool {
    matches!(&event.kind, EventKind::FileEnd { effect, is_done: true } if !matches!(**effect, FileEffect::Sync { .. }))
}

/// What a crash leaves of each line that is not decided.
struct Left {
    lines: FxHashMap<LineId, (Rc<LineChoices>, ChoiceSet)>,
}

impl Left {
    /// In this leaf.
    fn of(search: &mut Search, case: &Case, view: &View, held: &Held) -> Self {
        let mut lines = FxHashMap::with_capacity_and_hasher(view.lines.len(), FxBuildHasher);
        for open in view.lines.iter() {
            let table = search.tables.of(&case.model, open.id);
            let set = held.sets.get(&open.id).unwrap_or(&table.all).clone();
            lines.insert(open.id, (table, set));
        }
        Self { lines }
    }

    /// Of the lines of the view, each the newest last.
    fn choices(&self, view: &View) -> Vec<Vec<Choice>> {
        view.lines.iter().map(|line| Self::choices_of(&self.lines[&line.id])).collect()
    }

    /// Of each line, for a model that begins there.
    fn bases(&self) -> impl Fn(LineId, &Line) -> Vec<Choice> {
        |id, line| self.lines.get(&id).map_or_else(|| vec![line.newest()], Self::choices_of)
    }

    fn choices_of((table, set): &(Rc<LineChoices>, ChoiceSet)) -> Vec<Choice> {
        set.iter().rev().map(|member| table.choice(*member)).collect()
    }

    fn newest(&self, view: &View) -> Vec<Choice> {
        let newest = |line: &OpenLine| {
            let (table, set) = &self.lines[&line.id];
            table.choice(set[0])
        };
        view.lines.iter().map(newest).collect()
    }
}

/// The lines that recovery finds after a crash.
struct AfterCrash<'a> {
    model: &'a Model,
    left: &'a Left,
}

impl BeginsWith for AfterCrash<'_> {
    fn holding(&self, key: LineKey) -> Holding<'_> {
        let Some(id) = self.model.find(key) else { return Holding::Nothing };
        match self.left.lines.get(&id) {
            Some((table, set)) => Holding::Left(table, set),
            None => Holding::Line(self.model.shared_line(id)),
        }
    }
}

/// Of the image that a told run found, each line with its remaining choices, and of all that was told.
fn hash_of_begin(case: &mut Case, view: &View, left: &Left, told: u128) -> u128 {
    case.image.go_to(&case.model, view, &left.newest(view));
    let mut bytes = Vec::with_capacity(2 * size_of::<u128>() + view.lines.len() * 28);
    bytes.extend(told.to_le_bytes());
    bytes.extend(case.image.hash().0.to_le_bytes());
    for open in view.lines.iter() {
        let (table, set) = &left.lines[&open.id];
        if set.len() > 1 {
            let key = case.model.line(open.id).key;
            bytes.extend(key.file.0.to_le_bytes());
            bytes.extend(key.number.to_le_bytes());
            bytes.extend(table.hash(set).to_le_bytes());
        }
    }
    xxh3_128(&bytes)
}

/// What is expected of the heap after a crash here, and after the recovery from it that showed this.
fn expected_ids(contract: &Contract, history: &History, shown: &Judgement) -> (u64, u64) {
    let mut history = history.clone();
    history.power_fails();
    let whole = history.expected_id(contract.leaks);
    history.recovered(&shown.happened, &shown.unclear, contract.fill);
    (whole, !history.expected_id(contract.leaks))
}

/// Lines that the events store to, flush, or take away.
fn touched(model: &Model, events: &[Event]) -> BTreeSet<LineKey> {
    let mut touched: BTreeSet<LineKey> = events.iter().filter_map(line_of).flatten().collect();
    for event in events {
        let EventKind::FileEnd { effect, .. } = &event.kind else { continue };
        let is_kept =
            matches!(**effect, FileEffect::Create { .. } | FileEffect::Extend { .. } | FileEffect::Sync { .. });
        let names: &[&std::sync::Arc<str>] = match &**effect {
            FileEffect::Unlink { path } => &[path],
            FileEffect::Rename { from, to } => &[from, to],
            _ => &[],
        };
        let is_meant = |path: &std::sync::Arc<str>| names.contains(&path);
        let files = model.files().iter();
        let by_name = files.filter(|(_, state)| state.path.as_ref().is_some_and(is_meant)).map(|(file, _)| *file);
        for file in by_name.chain(effect.file().filter(|_| !is_kept)) {
            touched.extend(model.line_numbers(file).map(|number| LineKey { file, number }));
        }
    }
    touched
}

fn line_of(event: &Event) -> Option<impl Iterator<Item = LineKey> + use<>> {
    let (file, offset, bytes) = match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => (*file, *offset, bytes.len() as u64),
        EventKind::Flush { file, offset, .. } => (*file, *offset, 1),
        _ => return None,
    };
    let numbers = offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES);
    Some(numbers.map(move |number| LineKey { file, number }))
}
