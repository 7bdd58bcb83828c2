// SPDX-License-Identifier: Apache-2.0
//! Findings: violations of the same rule at the same place in the code are one, with its first witness.

use crate::base::config::{Config, StopRule};
use crate::findings::event_excerpt::{EventText, events_around, lost_in_words};
use crate::findings::evidence::Evidence;
use crate::findings::evidence::deaths::Died;
use crate::findings::identity::{fact, id, key};
use crate::findings::onset::Onset;
use crate::findings::operation_names;
use crate::findings::repair::{Repair, candidates, each_once, lost_places, of_losses};
use crate::findings::witness::{crashes_before, witness};
use crate::heap::case::CurrentOperation;
use crate::heap::crashes::CrashBefore;
use crate::heap::recovery_trace::RecoverySites;
use crate::heap::state::{
    StateRef, changed_lines, held, is_conservative, lost_operation, lost_store, newest_store, sites_that_matter,
};
use crate::recovery::replayed::PassedCrash;
use crashgen::model::Choice;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::{EventKind, SiteId, Trace};
use oracle::Violation;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Lines of a witness that are spelled out.
const LINE_LIMIT: usize = 16;

/// A finding as it is printed.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Finding {
    pub id: String,
    pub rule: String,
    pub title: &'static str,
    /// When the rule is broken.
    pub meaning: &'static str,
    /// What exactly is broken; with the rule and the place it makes the id.
    pub fact: String,
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
    /// Where a signal ended recovery, or where it hung; null: it did neither, or the place is not known.
    pub died: Option<Died>,
    /// Where the recovery from the last crash stores to PM, in its order. Null where the state lacks a store of its generation, where
    /// recovery does not return, and where it cannot be followed.
    pub stored: Option<Vec<Symbol>>,
    pub seen: u64,
    pub strategy: &'static str,
    pub model_note: Option<&'static str>,
    /// The store of its generation that the state lacks, or where it lacks none the file operation, at the first site; null: it lacks nothing.
    /// What an earlier crash lost is said there.
    pub lost: Option<LostText>,
    /// What the last site does, if it is not what is lost.
    pub there: Option<PutKind>,
    /// Lines that are not as everything persisted would leave them.
    pub lines: Vec<LineText>,
    pub line_count: usize,
    /// The events around the crash position.
    pub events: Vec<EventText>,
    /// Changes of the source that may forbid the state, to be tried.
    pub repairs: Vec<Repair>,
    /// Power failed more than once.
    pub is_later: bool,
    /// The crashes before that, the first one first.
    pub earlier: Vec<EarlierCrash>,
    /// The places whose stores its state lacks.
    #[serde(skip)]
    pub lost_sites: BTreeSet<SiteId>,
}

/// How something came to PM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PutKind {
    /// By an instruction of the program, or the kernel's copy into a mapping.
    Store,
    /// By a system call, behind a descriptor.
    Write,
    /// It is no content: a file operation changed names or sizes.
    File,
}

impl PutKind {
    fn of(trace: &Trace, event: u32) -> Self {
        match trace.events[event as usize].kind.is_write() {
            true => Self::Write,
            false => Self::Store,
        }
    }
}

/// A store or a file operation that a state lacks, as it is printed. offset and bytes: of all of a store.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct LostText {
    pub kind: PutKind,
    pub site: Symbol,
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
    /// The bytes that the state holds, each run as first and end, counted from the first byte of the store: it is torn. Empty: all of
    /// it is lost.
    pub held: Vec<(u64, u64)>,
    /// Of a file operation: what it is. Empty: it is none.
    pub operation: String,
}

/// A crash before the one of a finding.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct EarlierCrash {
    pub position: u32,
    pub operation: Option<OperationText>,
    /// The earliest store of its generation that it lost; null: it lost none.
    pub lost: Option<LostText>,
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
    /// As it is printed.
    pub fn of(current: CurrentOperation) -> Self {
        let operation = current.operation;
        let (generation, index) = operation_names::place(operation.index);
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
    Explored(Option<&'a CrashBefore<'a>>),
    /// A token, which names it.
    Token(String),
    /// A token of a later generation, and the crashes before it.
    LaterToken(String, Vec<EarlierCrash>),
}

/// A crash state that breaks a rule, with what else a finding says of it.
pub struct FoundState<'a> {
    /// The state.
    pub at: StateRef<'a>,
    /// The strategy that chose it.
    pub strategy: &'static str,
    /// What its recovery shows beside the rule that it breaks.
    pub evidence: Evidence,
    /// The onset of what it breaks, if everything persisted shows that, too.
    pub onset: Option<Onset>,
}

/// All findings of an exploration.
#[derive(Default)]
pub struct Findings {
    list: Vec<Finding>,
    /// By key of a finding's own state, or of a state that was reduced to it: the finding's place in the list.
    by_key: FxHashMap<String, usize>,
    /// What sites are called.
    pub symbols: Symbols,
    /// The sites of recovery traces.
    pub recovery_sites: RecoverySites,
}

impl Findings {
    /// None yet.
    pub fn new(config: &Config) -> Self {
        Self { symbols: config.symbols(), ..Self::default() }
    }

    /// All, in the order in which they were found.
    pub fn all(&self) -> &[Finding] {
        &self.list
    }

    /// As [`Findings::all`].
    pub fn into_all(self) -> Vec<Finding> {
        self.list
    }

    /// Counts the violation if its like was seen before; else returns its key.
    pub fn recognise(
        &mut self,
        trace: &Trace,
        state: &StateRef,
        onset: Option<&Onset>,
        violation: &Violation,
    ) -> Option<String> {
        let key = key(&mut self.symbols, trace, state, onset, violation);
        match self.by_key.get(&key) {
            Some(known) => {
                self.list[*known].seen += 1;
                None
            }
            None => Some(key),
        }
    }

    /// Adds a violation, `original` being the key of the state that was reduced to this one; returns the finding when it is a
    /// new one.
    pub fn add(
        &mut self,
        config: &Config,
        trace: &Trace,
        origin: Origin,
        found: &FoundState,
        violation: &Violation,
        original: String,
    ) -> Option<&Finding> {
        let FoundState { at: state, strategy, evidence, onset } = found;
        let numbers = sites_that_matter(state);
        let sites: Vec<Symbol> = numbers.iter().map(|site| self.symbols.find(trace, *site)).collect();
        let callers = numbers.iter().map(|site| self.symbols.callers(trace, *site)).collect();
        let key = key(&mut self.symbols, trace, state, onset.as_ref(), violation);
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
        let own_sites = if is_first { None } else { self.recovery_sites.of_workload() };
        let own = candidates(trace, own_sites, &mut self.symbols, state);
        let lost = self.lost(trace, state);
        let there = match lost {
            Some(LostText { kind: PutKind::Store | PutKind::Write, .. }) => newest_store(state).map(|(event, _)| event),
            _ => state.case.last_store.map(|(event, _)| event),
        };
        let of_earlier = earlier.iter().rev().flat_map(|crash: &EarlierCrash| crash.repairs.iter().cloned());
        let repairs = match lost {
            Some(_) => each_once(own.into_iter().chain(of_earlier)),
            None => each_once(of_earlier.chain(own)), // its own are other orders of two stores
        };
        let finding = Finding {
            id: id(violation.rule, &key),
            rule: violation.rule.to_string(),
            title: violation.rule.title(),
            meaning: violation.rule.meaning(),
            fact: fact(trace, state, onset.as_ref(), violation),
            message: operation_names::in_text(&evidence.message(violation)),
            token,
            position: state.position,
            operation: state.case.current.map(OperationText::of),
            sites,
            callers,
            read: evidence.read.clone(),
            died: evidence.end.died.clone(),
            stored: evidence.stored.clone(),
            seen: 1,
            strategy,
            model_note: is_conservative(state).then_some("model: conservative"),
            lost,
            there: there.map(|event| PutKind::of(trace, event)),
            lines: line_texts(trace, state),
            line_count: changed_lines(state).count(),
            events: events_around(trace, &mut self.symbols, state),
            repairs,
            is_later: !is_first,
            earlier,
            lost_sites: lost_places(trace, &mut self.symbols, state),
        };
        self.by_key.insert(key, self.list.len());
        self.by_key.insert(original, self.list.len());
        self.list.push(finding);
        self.list.last()
    }

    /// The earliest store that the state lacks; where it lacks none, the earliest file operation.
    fn lost(&mut self, trace: &Trace, state: &StateRef) -> Option<LostText> {
        let Some(lost) = lost_store(state) else { return self.lost_operation(trace, state) };
        let (file, offset, bytes) = trace.events[lost.event as usize].kind.put().expect("a store or a write");
        let bytes = bytes.len() as u64;
        Some(LostText {
            kind: PutKind::of(trace, lost.event),
            site: self.symbols.find(trace, lost.site),
            file: trace.files[file.0 as usize].to_string(),
            offset,
            bytes,
            held: held(state, lost.event, (file, offset, bytes)).bytes.iter().map(|run| (run.start, run.end)).collect(),
            operation: String::new(),
        })
    }

    fn lost_operation(&mut self, trace: &Trace, state: &StateRef) -> Option<LostText> {
        let (number, site) = lost_operation(state)?;
        let file = match &trace.events[number as usize].kind {
            EventKind::FileEnd { effect, .. } => effect.file(),
            EventKind::Store { file, .. } => Some(*file),
            _ => None,
        };
        let file = file.map(|file| trace.files[file.0 as usize].to_string());
        Some(LostText {
            kind: PutKind::File,
            site: self.symbols.find(trace, site),
            file: file.unwrap_or_default(),
            offset: 0,
            bytes: 0,
            held: Vec::new(),
            operation: lost_in_words(trace, number),
        })
    }

    fn earlier_crash(&mut self, crash: &CrashBefore, left: &[Choice]) -> EarlierCrash {
        let state = StateRef { case: crash.case, view: crash.view, choices: left, position: crash.position };
        self.crash_before(crash.trace, crash.before.is_none(), &state)
    }

    /// The crashes before a replayed generation, as they are printed.
    pub fn earlier_crashes(&mut self, passed: &[PassedCrash]) -> Vec<EarlierCrash> {
        let crashes = passed.iter().enumerate();
        crashes.map(|(number, crash)| self.crash_before(&crash.trace, number == 0, &crash.state())).collect()
    }

    /// A crash in that state, after which power failed again, as it is printed. is_workload: it was in the workload, not in a recovery.
    fn crash_before(&mut self, trace: &Trace, is_workload: bool, state: &StateRef) -> EarlierCrash {
        let lost = self.lost(trace, state);
        let all_sites = Some(trace.sites.len() as u32);
        let workload_sites = if is_workload { all_sites } else { self.recovery_sites.of_workload() };
        let repairs = of_losses(trace, workload_sites, &mut self.symbols, state);
        EarlierCrash { position: state.position, operation: state.case.current.map(OperationText::of), lost, repairs }
    }
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

/// Why an exploration with these findings ends; none: it goes on. A violation that is no finding, because not every engine shows it,
/// ends nothing.
pub fn stop_at(findings: &[Finding], config: &Config) -> Option<String> {
    let has_rule = |rule: &str| findings.iter().any(|finding| finding.rule == rule);
    match config.stop_at_rule.as_ref()? {
        StopRule::Any if findings.iter().any(|finding| !config.known_findings.contains(&finding.id)) => {
            Some("stopped at the first finding".to_owned())
        }
        StopRule::One(expected) if has_rule(&expected.to_string()) => {
            Some(format!("stopped at the expected rule {expected}"))
        }
        StopRule::Finding(id) if findings.iter().any(|finding| finding.id == *id) => {
            Some(format!("stopped at the finding {id}"))
        }
        StopRule::Any | StopRule::One(_) | StopRule::Finding(_) => None,
    }
}

/// How often each was seen, by id.
pub fn seen_counts(findings: &[Finding]) -> BTreeMap<&str, u64> {
    findings.iter().map(|finding| (finding.id.as_str(), finding.seen)).collect()
}
