// SPDX-License-Identifier: Apache-2.0
//! Findings: violations of the same rule at the same place in the code are one, with its first witness.

use crate::cases::{Case, CurrentOperation};
use crate::config::{Config, StopRule};
use crate::deaths::Died;
use crate::generations::{Before, Later, Passed, Sites};
use crate::lasting::{Began, said};
use crate::later_names;
use crate::outcomes::NewOutcome;
use crate::repair::{Repair, candidates, each_once, of_losses};
use crate::sights::Sights;
use crate::window::{EventText, events_around};
use crashgen::model::{Choice, LineKey, Model, OpenLine, View};
use crashgen::symbols::{Symbol, Symbols};
use crashgen::token::{LaterCrash, LineChoice, Witness};
use crashgen::trace::{Edit, Event, EventKind, Place, PlaceKind, SiteId, StoreKind, Trace};
use oracle::{RuleId, Violation};
use planted::Fault;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use std::collections::BTreeSet;

/// Lines of a witness that are spelled out.
const LINE_LIMIT: usize = 16;

/// A finding as it is printed.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Finding {
    pub id: String,
    pub rule: String,
    pub title: &'static str,
    pub message: String,
    pub token: String,
    pub position: u32,
    pub operation: Option<OperationText>,
    /// The earliest store that is lost, then the newest one that is there.
    pub sites: Vec<Symbol>,
    /// Of each of the sites: who called it, and so on.
    pub callers: Vec<Vec<Symbol>>,
    /// Where recovery first reads what the state lacks; null where that cannot be seen.
    pub read: Option<Symbol>,
    /// Where the recovery died that a signal ended; null: none did, or where is not known.
    pub died: Option<Died>,
    /// Where the recovery from the last crash stores to PM, in the order in which it comes there; null where the state lacks a store of
    /// its generation, where recovery does not return, and where what it does cannot be followed.
    pub stored: Option<Vec<Symbol>>,
    pub seen: u64,
    pub strategy: &'static str,
    pub model_note: Option<&'static str>,
    /// It lacks a store: the first of the sites. Else none of this generation; what an earlier crash lost is told with that.
    pub is_lost: bool,
    /// Lines that are not as everything persisted would leave them.
    pub lines: Vec<LineText>,
    pub line_count: usize,
    /// Around the crash position.
    pub events: Vec<EventText>,
    /// What may forbid the state, to be tried.
    pub repairs: Vec<Repair>,
    /// Power failed more than once.
    pub is_later: bool,
    /// The crashes before that, the first one first.
    pub earlier: Vec<EarlierCrash>,
}

/// A crash before the one of a finding.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct EarlierCrash {
    pub position: u32,
    pub operation: Option<OperationText>,
    /// The earliest store of its generation that it lost; null: it lost none.
    pub lost: Option<Symbol>,
    /// What may forbid what it left, where it lost something.
    #[serde(skip)]
    pub repairs: Vec<Repair>,
}

#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct OperationText {
    /// In the workload, or in what follows the recovery of that generation.
    pub index: u32,
    /// 0: the workload.
    pub generation: u32,
    pub kind: &'static str,
    pub slot: u32,
    pub bytes: u64,
    pub pending: bool,
}

impl OperationText {
    fn of(current: CurrentOperation) -> Self {
        let operation = current.operation;
        let (generation, index) = later_names::place(operation.index);
        Self {
            index,
            generation,
            kind: operation.kind.name(),
            slot: operation.slot,
            bytes: operation.bytes,
            pending: current.is_pending,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct LineText {
    pub file: String,
    pub offset: u64,
    pub choice: String,
}

/// Where a state comes from that breaks a rule.
pub enum Origin<'a> {
    /// The crash before it, if it is one of a later generation.
    Explored(Option<&'a Before<'a>>),
    /// A token, which names it.
    Token(String),
    /// A token of a later generation, and the crashes before it.
    LaterToken(String, Vec<EarlierCrash>),
}

/// One crash state of a case.
pub struct StateRef<'a> {
    /// Where.
    pub case: &'a Case,
    /// What the position shows.
    pub view: &'a View,
    /// One choice a line.
    pub state: &'a [Choice],
    /// Events before the crash.
    pub position: u32,
    /// Who chose it.
    pub strategy: &'static str,
    /// What else is told of it.
    pub sights: Sights,
    /// Of what everything persisted shows, too: since when. None: it does not.
    pub began: Option<Began>,
}

impl<'a> StateRef<'a> {
    /// By nobody, with nothing more to tell.
    pub fn of(case: &'a Case, view: &'a View, state: &'a [Choice], position: u32) -> Self {
        Self { case, view, state, position, strategy: "", sights: Sights::default(), began: None }
    }
}

/// All findings of an exploration.
#[derive(Default)]
pub struct Findings {
    list: Vec<Finding>,
    /// Of the findings' own states, and of the states that were reduced to them.
    by_key: FxHashMap<String, usize>,
    symbols: Symbols,
    /// Of the events that recoveries told.
    pub told_sites: Sites,
    /// Where these flush and fence.
    pub told_places: BTreeSet<Place>,
    told_places_seen: FxHashSet<(PlaceKind, SiteId)>,
}

/// A told run as the edits of recoveries make it.
pub struct Edited {
    /// The run.
    pub trace: Trace,
    /// What cannot be known of it.
    pub gap: Option<&'static str>,
    /// By number of the event as it was told: whether the edits leave it out.
    pub left_out: Vec<bool>,
}

impl Findings {
    /// None yet.
    pub fn new(config: &Config) -> Self {
        Self { symbols: config.symbols(), ..Self::default() }
    }

    /// Number of distinct findings.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    fn has_rule(&self, rule: RuleId) -> bool {
        let rule = rule.to_string();
        self.list.iter().any(|finding| finding.rule == rule)
    }

    /// Why an exploration ends with a violation of this rule; none: it goes on. A violation that is no finding, because not every engine
    /// shows it, ends nothing.
    pub fn stop_at(&self, config: &Config, rule: RuleId) -> Option<String> {
        match config.stop_at_rule.as_ref()? {
            StopRule::Any if self.count() > 0 => Some("stopped at the first finding".to_owned()),
            StopRule::One(expected) if *expected == rule && self.has_rule(rule) => {
                Some(format!("stopped at the expected rule {rule}"))
            }
            StopRule::Finding(id) if self.has(id) => Some(format!("stopped at the finding {id}")),
            StopRule::Any | StopRule::One(_) | StopRule::Finding(_) => None,
        }
    }

    /// Whether there is one of this id.
    pub fn has(&self, id: &str) -> bool {
        self.list.iter().any(|finding| finding.id == id)
    }

    /// All, in order of first sight.
    pub fn all(&self) -> &[Finding] {
        &self.list
    }

    /// As [`Findings::all`].
    pub fn into_all(self) -> Vec<Finding> {
        self.list
    }

    /// A state that no recovery showed before, and how.
    pub fn new_outcome(
        &mut self,
        trace: &Trace,
        state: &StateRef,
        is_later: bool,
        differences: Vec<String>,
    ) -> NewOutcome {
        NewOutcome {
            position: state.position,
            operation: state.case.current.map(OperationText::of),
            sites: sites(state).into_iter().map(|site| self.symbols.find(trace, site)).collect(),
            read: state.sights.read.clone(),
            line_count: changed_lines(state).count(),
            is_later,
            differences,
        }
    }

    /// Counts the violation if its like was seen before; else returns its key.
    pub fn recognise(&mut self, trace: &Trace, state: &StateRef, violation: &Violation) -> Option<String> {
        let key = self.key(trace, state, violation);
        match self.by_key.get(&key) {
            Some(known) => {
                self.list[*known].seen += 1;
                None
            }
            None => Some(key),
        }
    }

    /// Of the finding that the state is, if it shows that.
    pub fn id_of(&mut self, trace: &Trace, state: &StateRef, violation: &Violation) -> String {
        id(violation.rule, &self.key(trace, state, violation))
    }

    /// Adds a violation, `original` being the key of the state that was reduced to this one; returns the finding when it is a
    /// new one.
    pub fn add(
        &mut self,
        config: &Config,
        trace: &Trace,
        origin: Origin,
        state: &StateRef,
        violation: &Violation,
        original: String,
    ) -> Option<&Finding> {
        let numbers = sites(state);
        let sites: Vec<Symbol> = numbers.iter().map(|site| self.symbols.find(trace, *site)).collect();
        let callers = numbers.iter().map(|site| self.symbols.callers(trace, *site)).collect();
        let key = self.key(trace, state, violation);
        if let Some(known) = self.by_key.get(&key).copied() {
            self.list[known].seen += 1;
            self.by_key.insert(original, known);
            return None;
        }
        let is_first = matches!(origin, Origin::Explored(None) | Origin::Token(_));
        let (token, earlier) = match origin {
            Origin::Explored(before) => {
                let before = crashes_before(before, state);
                let token = witness(config, trace, &before, state, violation.rule, &sites).encode();
                (token, before.iter().rev().map(|(crash, left)| self.earlier_crash(crash, left)).collect())
            }
            Origin::Token(token) => (token, Vec::new()),
            Origin::LaterToken(token, earlier) => (token, earlier),
        };
        let own_sites = if is_first { None } else { self.told_sites.of_workload() };
        let own = candidates(trace, own_sites, &mut self.symbols, state);
        let is_lost = lost_store(state).is_some();
        let of_earlier = earlier.iter().rev().flat_map(|crash: &EarlierCrash| crash.repairs.iter().cloned());
        let repairs = match is_lost {
            true => each_once(own.into_iter().chain(of_earlier)),
            false => each_once(of_earlier.chain(own)), // its own are other orders of two stores
        };
        let finding = Finding {
            id: id(violation.rule, &key),
            rule: violation.rule.to_string(),
            title: violation.rule.title(),
            message: later_names::in_text(&violation.message),
            token,
            position: state.position,
            operation: state.case.current.map(OperationText::of),
            sites,
            callers,
            read: state.sights.read.clone(),
            died: state.sights.died.clone(),
            stored: state.sights.stored.clone(),
            seen: 1,
            strategy: state.strategy,
            model_note: is_conservative(state).then_some("model: conservative"),
            is_lost,
            lines: line_texts(trace, state),
            line_count: changed_lines(state).count(),
            events: events_around(trace, &mut self.symbols, state),
            repairs,
            is_later: !is_first,
            earlier,
        };
        self.by_key.insert(key, self.list.len());
        self.by_key.insert(original, self.list.len());
        self.list.push(finding);
        self.list.last()
    }

    fn earlier_crash(&mut self, crash: &Before, left: &[Choice]) -> EarlierCrash {
        let state = StateRef::of(crash.case, crash.view, left, crash.position);
        self.crash_before(crash.trace, crash.before.is_none(), &state)
    }

    /// Of the crashes that a replayed generation came of.
    pub fn earlier_crashes(&mut self, passed: &[Passed]) -> Vec<EarlierCrash> {
        let crashes = passed.iter().enumerate();
        crashes.map(|(number, crash)| self.crash_before(&crash.trace, number == 0, &crash.state())).collect()
    }

    /// Of a crash in that state, in the workload or in a recovery, after which power failed again.
    fn crash_before(&mut self, trace: &Trace, is_workload: bool, state: &StateRef) -> EarlierCrash {
        let lost = lost_store(state).map(|lost| self.symbols.find(trace, lost.site));
        let all_sites = Some(trace.sites.len() as u32);
        let workload_sites = if is_workload { all_sites } else { self.told_sites.of_workload() };
        let repairs = of_losses(trace, workload_sites, &mut self.symbols, state);
        EarlierCrash { position: state.position, operation: state.case.current.map(OperationText::of), lost, repairs }
    }

    /// A told run as it would be if the source had the edits of recoveries.
    pub fn edited(&mut self, config: &Config, mut told: Trace) -> Edited {
        let (mut lost, mut edits) = (BTreeSet::new(), Vec::new());
        for edit in &config.later_edits {
            match edit {
                Edit::Without(places) => lost.extend(places),
                _ => edits.push(edit.map(|places| self.sites_of(&told, places))),
            }
        }
        let (left_out, gap) = self.left_out(&lost, &told);
        let mut is_left_out = left_out.iter();
        told.events.retain(|_| !is_left_out.next().expect("one an event"));
        Edited { trace: told.edited(&edits), gap, left_out }
    }

    /// By what each event does: a site may flush and fence.
    fn left_out(&mut self, places: &BTreeSet<&Place>, told: &Trace) -> (Vec<bool>, Option<&'static str>) {
        let mut gap = None;
        let mut is_left_out = |event: &Event| {
            let Some(kind) = PlaceKind::of_order(&event.kind).filter(|_| !places.is_empty()) else { return false };
            if event.site == SiteId(0) || self.symbols.is_bare_helper(told, event.site) {
                gap = Some("recovery flushes or fences at a place that is not known");
            }
            places.contains(&Place { kind, site: self.symbols.find(told, event.site) })
        };
        (told.events.iter().map(&mut is_left_out).collect(), gap)
    }

    fn sites_of(&mut self, told: &Trace, places: &BTreeSet<Place>) -> BTreeSet<SiteId> {
        let mut is_there = |event: &&Event| {
            let kind = PlaceKind::of(&event.kind);
            kind.is_some_and(|kind| places.contains(&Place { kind, site: self.symbols.find(told, event.site) }))
        };
        told.events.iter().filter(&mut is_there).map(|event| event.site).collect()
    }

    /// Where a told run flushes and fences; what the runner does so, as the application, has no module there.
    pub fn note_places(&mut self, told: &Trace) {
        for event in &told.events {
            let Some(kind) = PlaceKind::of_order(&event.kind) else { continue };
            let is_known = told.sites[event.site.0 as usize].module.is_some();
            if is_known && self.told_places_seen.insert((kind, event.site)) {
                self.told_places.insert(Place { kind, site: self.symbols.find(told, event.site) });
            }
        }
    }

    /// What makes two violations one finding, in every campaign: the rule and the store that is lost, by its place in its
    /// function, and whether what is flushed there lacks a fence or the flush is missing. Which store was the newest that is
    /// there tells only how long the first one stayed undecided; where nothing is lost, the place of the last store when it
    /// began to be wrong is what is known ([`crate::lasting`]), and what was said of it then; the operation, where that place has
    /// no name.
    fn key(&mut self, trace: &Trace, state: &StateRef, violation: &Violation) -> String {
        let place = self.place(trace, state, violation.rule);
        let is_lost = state.began.is_none() && lost_store(state).is_some();
        let said = match &state.began {
            _ if is_lost || planted::is(Fault::FindingByRule) => None,
            Some(began) => began.said.clone(),
            None => said(violation).map(Into::into),
        };
        said.map_or(place.clone(), |said| format!("{place}: {said}"))
    }

    /// The part of it that is known of a state before it is recovered.
    pub fn place(&mut self, trace: &Trace, state: &StateRef, rule: RuleId) -> String {
        if planted::is(Fault::FindingByRule) {
            return rule.to_string();
        }
        let lost = lost_store(state).filter(|_| state.began.is_none());
        let last_store = state.began.as_ref().map_or(state.case.last_store, |began| began.site);
        let site = lost.as_ref().map_or(last_store, |lost| lost.site);
        let name = self.symbols.lasting_name(trace, site);
        match lost {
            Some(lost) if !is_flushed(trace, &lost) => format!("{rule} lost {name}, not flushed"),
            Some(_) => format!("{rule} lost {name}"),
            None if name.is_empty() => {
                let current = || state.case.current.map_or("none", |current| current.operation.kind.name());
                let kind = state.began.as_ref().map_or_else(current, |began| began.operation);
                format!("{rule} {kind}")
            }
            None => format!("{rule} {name}"),
        }
    }
}

/// The stores that matter: the earliest that is lost and the newest that is there; with nothing lost, the last store.
fn sites(state: &StateRef) -> Vec<SiteId> {
    let Some(lost) = lost_store(state) else { return vec![state.case.last_store] };
    let mut newest: Option<(u32, SiteId)> = None;
    for (line, choice) in state.view.lines.iter().zip(state.state) {
        for (event, site, is_there) in state.case.model.line(line.id).open_stores(*choice) {
            if is_there && newest.is_none_or(|(latest, _)| event > latest) {
                newest = Some((event, site));
            }
        }
    }
    [Some(lost.site), newest.map(|(_, site)| site)].into_iter().flatten().collect()
}

/// A store that a state lacks.
#[derive(Clone, Copy)]
pub struct Lost {
    /// Its number.
    pub event: u32,
    /// Where it is made.
    pub site: SiteId,
    /// Of which line it is lost.
    pub line: LineKey,
}

/// The earliest one of the state's generation.
pub fn lost_store(state: &StateRef) -> Option<Lost> {
    let stores = changed_lines(state).flat_map(|(at, choice)| {
        let line = state.case.model.line(state.view.lines[at].id);
        let lost = line.open_stores(choice).into_iter().filter(|(_, _, is_there)| !is_there);
        lost.map(|(event, site, _)| Lost { event, site, line: line.key })
    });
    stores.min_by_key(|lost| lost.event)
}

/// Whether its line is flushed before its thread fences or its operation returns, wherever power failed: a function of what that operation
/// does, if no other thread flushes the line meanwhile, and no neighbour on it is flushed instead. A locked RMW is there for a lock's sake
/// and no end. What edits put into the trace does not count, so that a finding that a repair leaves is the same one.
fn is_flushed(trace: &Trace, lost: &Lost) -> bool {
    let store = &trace.events[lost.event as usize];
    if !matches!(store.kind, EventKind::Store { kind: StoreKind::Plain | StoreKind::Rmw, .. }) {
        return true; // it needs no flush
    }
    for event in trace.events[lost.event as usize + 1..].iter().filter(|event| event.site != SiteId(0)) {
        if is_flush_of(event, lost.line) {
            return true;
        }
        let is_fence = PlaceKind::of(&event.kind) == Some(PlaceKind::Fence);
        let is_end = is_fence || matches!(event.kind, EventKind::OperationReturn { .. } | EventKind::Case { .. });
        if is_end && event.thread == store.thread {
            return false;
        }
    }
    false
}

/// Whether the event flushes that line.
pub fn is_flush_of(event: &Event, line: LineKey) -> bool {
    matches!(event.kind, EventKind::Flush { file, offset, .. }
        if file == line.file && offset / crashgen::LINE_BYTES == line.number)
}

fn id(rule: RuleId, key: &str) -> String {
    format!("{rule}-{:08x}", short_hash(key))
}

fn short_hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn changed_lines<'a>(state: &'a StateRef) -> impl Iterator<Item = (usize, Choice)> + 'a {
    let choices = state.state.iter().copied().enumerate();
    choices.filter(|(at, choice)| *choice != state.view.lines[*at].newest())
}

fn line_texts(trace: &Trace, state: &StateRef) -> Vec<LineText> {
    let text = |(at, choice): (usize, Choice)| {
        let line = state.case.model.line(state.view.lines[at].id);
        let stores = line.open_stores(choice);
        let there = stores.iter().filter(|(_, _, is_there)| *is_there).count();
        LineText {
            file: trace.files[line.key.file.0 as usize].to_string(),
            offset: line.key.number * crashgen::LINE_BYTES,
            choice: format!("{there} of {} undecided stores", stores.len()),
        }
    };
    changed_lines(state).take(LINE_LIMIT).map(text).collect()
}

/// Whether the state needs a reordering within one line that only the weak reading of R8 allows.
fn is_conservative(state: &StateRef) -> bool {
    state.view.lines.iter().zip(state.state).any(|(line, choice)| {
        let stores = state.case.model.line(line.id).open_stores(*choice);
        let first_lost = stores.iter().position(|(_, _, is_there)| !is_there);
        line.floating_units > 0 && first_lost.is_some_and(|at| stores[at..].iter().any(|(_, _, is_there)| *is_there))
    })
}

/// The crashes before that state, the last one first, and what each left.
fn crashes_before<'b>(before: Option<&'b Before<'b>>, state: &'b StateRef<'b>) -> Vec<(&'b Before<'b>, Vec<Choice>)> {
    let mut crashes = Vec::new();
    let (mut before, mut later) = (before, Later::of(state));
    while let Some(crash) = before {
        let left = crash.chosen(&later);
        later = Later { model: &crash.case.model, view: crash.view, state: left.clone() };
        crashes.push((crash, left));
        before = crash.before;
    }
    crashes
}

fn witness(
    config: &Config,
    trace: &Trace,
    before: &[(&Before, Vec<Choice>)],
    state: &StateRef,
    rule: RuleId,
    sites: &[Symbol],
) -> Witness {
    let identity = &config.identity;
    let mut crashes = vec![Crash { position: state.position, current: state.case.current, form: shortest_form(state) }];
    crashes.extend(before.iter().map(|(crash, left)| {
        let form = shortest(&crash.case.model, crash.view, left);
        Crash { position: crash.position, current: crash.case.current, form }
    }));
    let first = crashes.pop().expect("at least one");
    let (from_newest, lines) = first.form;
    Witness {
        rule: rule.to_string(),
        allocator: identity.allocator.clone(),
        mutant: identity.mutant.clone().unwrap_or_default(),
        build: identity.build.clone(),
        workload: identity.workload.clone(),
        ops: identity.ops.unwrap_or(0),
        seed: identity.seed,
        flush: identity.flush.clone(),
        model: model_name(config).to_owned(),
        trace_hash: trace.hash.clone(),
        position: first.position,
        operation: first.current.map_or(0, |current| current.operation.index + 1),
        event_in_operation: first.current.map_or(0, |current| first.position - current.began_at),
        site: sites.first().map(|site| site.function.clone()).unwrap_or_default(),
        from_newest,
        lines,
        later: crashes.into_iter().rev().map(Crash::later).collect(),
    }
}

/// One crash of a witness.
struct Crash {
    position: u32,
    current: Option<CurrentOperation>,
    form: (bool, Vec<LineChoice>),
}

impl Crash {
    fn later(self) -> LaterCrash {
        let (from_newest, lines) = self.form;
        LaterCrash { position: self.position, from_newest, lines }
    }
}

/// As `--model` spells it.
pub fn model_name(config: &Config) -> &'static str {
    use crashgen::model::ModelKind;
    match config.model {
        ModelKind::Px86 => "px86",
        ModelKind::Px86Returned => "px86-returned",
        ModelKind::Eadr => "eadr",
        ModelKind::ProcessCrash => "process-crash",
        ModelKind::Strict => "strict",
    }
}

/// The choices as a token names them: whether from everything persisted, and the lines that differ.
pub fn shortest_form(state: &StateRef) -> (bool, Vec<LineChoice>) {
    shortest(&state.case.model, state.view, state.state)
}

/// The lines that differ from everything persisted or from the floor, whichever are fewer. What an earlier crash left of a line is
/// told with that crash.
fn shortest(model: &Model, view: &View, state: &[Choice]) -> (bool, Vec<LineChoice>) {
    let differing = |from: fn(&OpenLine) -> Choice| -> Vec<LineChoice> {
        let lines = view.lines.iter().zip(state);
        let differing =
            lines.filter(|(line, choice)| Choice { base: 0, ..**choice } != Choice { base: 0, ..from(line) });
        differing
            .map(|(line, choice)| {
                let key = model.line(line.id).key;
                LineChoice { file: key.file.0, number: key.number, ordered: choice.ordered, floating: choice.floating }
            })
            .collect()
    };
    let (from_newest, from_floor) = (differing(OpenLine::newest), differing(|_| Choice::default()));
    if from_newest.len() <= from_floor.len() { (true, from_newest) } else { (false, from_floor) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::tests::CONFIG;
    use crashgen::trace::{FenceKind, FileId, FlushKind, Module, OperationKind, Site, ThreadId};

    /// A line that flushes and fences, in each of two modules, of whose sources nothing is known.
    fn told() -> Trace {
        let flush = EventKind::Flush { kind: FlushKind::Clwb, file: FileId(0), offset: 0 };
        let fence = EventKind::Fence { kind: FenceKind::Sfence };
        let locked = EventKind::Fence { kind: FenceKind::Locked };
        let events = [(1, flush.clone()), (1, fence.clone()), (2, flush), (2, fence), (1, locked)];
        let thread = ThreadId { process: 1, thread: 1 };
        let module = |name: &str| Module { path: name.into(), build_id: String::new() };
        let site = |module| Site { module, offset: 64, caller: None };
        Trace {
            events: events.map(|(site, kind)| Event { thread, site: SiteId(site), kind }).into(),
            sites: vec![site(None), site(Some(0)), site(Some(1))],
            modules: vec![module("one.so"), module("two.so")],
            ..Trace::default()
        }
    }

    fn of(trace: &Trace) -> Vec<(u32, Option<PlaceKind>)> {
        trace.events.iter().map(|event| (event.site.0, PlaceKind::of(&event.kind))).collect()
    }

    #[test]
    fn a_place_that_is_left_out_of_recoveries_is_a_flush_or_a_fence_of_its_line() {
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        let (flush, fence) = (PlaceKind::Flush, PlaceKind::Fence);
        let site = Symbol { file: "one.so".to_owned(), ..Symbol::default() };
        let mut findings = Findings::new(&config);
        for (kind, left) in [(flush, fence), (fence, flush)] {
            config.edits = vec![Edit::Without([SiteId(2)].into())]; // of the trace
            config.later_edits = vec![Edit::Without([Place { kind, site: site.clone() }].into())];
            let Edited { trace: told, gap, .. } = findings.edited(&config, told());
            assert_eq!(gap, None);
            assert_eq!(of(&told), [(1, Some(left)), (2, Some(flush)), (2, Some(fence)), (1, None)]);
        }
    }

    #[test]
    fn places_of_recoveries_are_noted_and_the_runner_has_none() {
        let mut findings = Findings::default();
        let mut told = told();
        told.sites[1].module = None;
        findings.note_places(&told);
        let noted: Vec<_> = findings.told_places.iter().map(|place| (place.kind, place.site.file.as_str())).collect();
        assert_eq!(noted, [(PlaceKind::Flush, "two.so"), (PlaceKind::Fence, "two.so")]);
    }

    /// Key of the state that lacks the first of these events, a store. They are by thread 1 or as said, and at a place of the source, but
    /// for the inserted ones.
    fn key_without_first(kinds: Vec<EventKind>, threads: &[u16], inserted: &[usize]) -> String {
        let count = kinds.len();
        let mut trace = crate::window::tests::trace(kinds);
        let first = trace.events.len() - count;
        trace.sites = vec![Site { module: None, offset: 0, caller: None }; trace.events.len() + 1];
        for (number, event) in trace.events.iter_mut().enumerate() {
            let of_test = number.checked_sub(first);
            event.site = SiteId(if of_test.is_some_and(|at| inserted.contains(&at)) { 0 } else { 1 });
            event.thread.thread = of_test.and_then(|at| threads.get(at).copied()).unwrap_or(1);
        }
        let lose = |_: &View, state: &mut Vec<Choice>| state[0] = Choice::default();
        let position = first as u32 + 1;
        crate::window::tests::of_state(&trace, position, lose, |state| {
            Findings::default().place(&trace, state, RuleId::OperationLost)
        })
    }

    #[test]
    fn a_missing_flush_and_a_missing_fence_are_two_findings() {
        let store = |line: u64| EventKind::Store {
            kind: StoreKind::Plain,
            file: FileId(0),
            offset: line * crashgen::LINE_BYTES,
            bytes: vec![1; 8].into(),
        };
        let flush = |line: u64| EventKind::Flush {
            kind: FlushKind::Clwb,
            file: FileId(0),
            offset: line * crashgen::LINE_BYTES,
        };
        let fence = || EventKind::Fence { kind: FenceKind::Sfence };
        let is_flushed = |kinds: Vec<EventKind>, threads: &[u16], inserted: &[usize]| {
            !key_without_first(kinds, threads, inserted).ends_with("not flushed")
        };
        let fenced = vec![store(0), flush(0), fence()];
        assert!(is_flushed(fenced.clone(), &[], &[]));
        assert!(is_flushed(vec![store(0), store(1), flush(1), flush(0)], &[], &[]), "whatever comes in between");
        assert!(!is_flushed(vec![store(0), flush(1), fence(), flush(0)], &[], &[]), "another line, and too late");
        assert!(is_flushed(vec![store(0), fence(), flush(0)], &[1, 2, 2], &[]), "another thread's fence is no end");
        assert!(!is_flushed(fenced, &[], &[1]), "what an edit put there");
        let back = EventKind::OperationReturn { kind: OperationKind::Create, index: 0, status: 0 };
        let next = |next: EventKind| is_flushed(vec![store(0), back.clone(), next, fence()], &[], &[]);
        assert!(!next(flush(0)) && !next(flush(1)), "whatever the next operation does");
        let non_temporal =
            EventKind::Store { kind: StoreKind::NonTemporal, file: FileId(0), offset: 0, bytes: vec![1; 8].into() };
        assert!(is_flushed(vec![non_temporal, fence()], &[], &[]));
    }
}
