// SPDX-License-Identifier: Apache-2.0
//! The identity of a finding: what makes two violations one finding, in every campaign.
//!
//! It is the rule, a fact and a place in the source; words of messages are in no identity. Where a state lacks a store, the fact is which
//! store is lost, and whether its flush is missing or a fence. Which store was the newest that is there tells only how long the first one
//! stayed undecided. Where no store is lost but a file operation, the fact is what is broken, and the place is that of the earliest lost
//! operation. Where nothing is lost, it is the [`Fact`] that was broken when the heap began to be wrong, and the place of the last store
//! then ([`crate::findings::onset`]); the operation, where that place has no name.

use crate::findings::onset::Onset;
use crate::heap::state::{Lost, StateRef, is_flush_of, is_sync_of, lost_operation, lost_store};
use crashgen::edit::PlaceKind;
use crashgen::symbols::Symbols;
use crashgen::trace::{Event, EventKind, SiteId, StoreKind, Trace};
use oracle::{Fact, RuleId, Violation};
use std::fmt::Display;

/// What makes two violations one finding.
pub fn key(
    symbols: &mut Symbols,
    trace: &Trace,
    state: &StateRef,
    onset: Option<&Onset>,
    violation: &Violation,
) -> String {
    let place = place(symbols, trace, state, onset, violation.rule);
    match blamed_store(state, onset) {
        Some(_) => place,
        None => format!("{place}: {}", broken_fact(onset, violation)),
    }
}

/// What a finding is about, besides the rule and the place.
pub fn fact(trace: &Trace, state: &StateRef, onset: Option<&Onset>, violation: &Violation) -> String {
    match blamed_store(state, onset) {
        Some(lost) => match (lost.is_write(trace), is_persisted_later(trace, &lost)) {
            (false, true) => "store-lost".to_owned(),
            (false, false) => "store-lost not-flushed".to_owned(),
            (true, true) => "write-lost".to_owned(),
            (true, false) => "write-lost not-synced".to_owned(),
        },
        None => broken_fact(onset, violation).to_string(),
    }
}

/// The store that the state lacks, where what is broken is to be blamed on that: everything persisted does not break it.
fn blamed_store(state: &StateRef, onset: Option<&Onset>) -> Option<Lost> {
    lost_store(state).filter(|_| onset.is_none())
}

/// The file operation that the state lacks, where what is broken is not so without that: it had returned by then.
fn blamed_operation(state: &StateRef, onset: Option<&Onset>) -> Option<SiteId> {
    let (number, site) = lost_operation(state)?;
    onset.is_none_or(|onset| number < onset.position).then_some(site)
}

/// What was broken when it began to be.
fn broken_fact(onset: Option<&Onset>, violation: &Violation) -> Fact {
    onset.map_or(violation.fact, |onset| onset.fact)
}

/// The part of the key that is known of a state before it is recovered.
pub fn place(symbols: &mut Symbols, trace: &Trace, state: &StateRef, onset: Option<&Onset>, rule: RuleId) -> String {
    let lost = blamed_store(state, onset);
    let last_store = onset.map_or_else(|| state.case.last_site(), |onset| onset.site);
    let operation = blamed_operation(state, onset);
    let site = lost.as_ref().map_or(operation.unwrap_or(last_store), |lost| lost.site);
    let name = symbols.lasting_name(trace, site);
    match lost {
        None if operation.is_some() => format!("{rule} lost file operation {name}"),
        Some(lost) if !is_persisted_later(trace, &lost) => {
            format!("{rule} lost {name}, not {}", if lost.is_write(trace) { "synced" } else { "flushed" })
        }
        Some(_) => format!("{rule} lost {name}"),
        None if name.is_empty() => {
            let current = || state.case.current.map_or("none", |current| current.operation.kind.name());
            let kind = onset.map_or_else(current, |onset| onset.operation);
            format!("{rule} {kind}")
        }
        None => format!("{rule} {name}"),
    }
}

/// The id of the finding (or the warning) with this key.
pub fn id(rule: impl Display, key: &str) -> String {
    format!("{rule}-{:08x}", short_hash(key))
}

fn short_hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Whether its line is flushed before its thread fences or its operation returns, wherever power failed; of a write, whether its file is
/// synced before the operation returns. It is a function of what that operation does, if no other thread flushes the line meanwhile, and no
/// neighbour on it is flushed instead. A locked RMW is there for a lock's sake and no end. What edits put into the trace does not count, so
/// that a finding that a repair leaves is the same one.
fn is_persisted_later(trace: &Trace, lost: &Lost) -> bool {
    let store = &trace.events[lost.event as usize];
    let is_write = lost.is_write(trace);
    if !is_write && !matches!(store.kind, EventKind::Store { kind: StoreKind::Plain | StoreKind::Rmw, .. }) {
        return true; // it needs no flush
    }
    let is_marker = |event: &Event| matches!(event.kind, EventKind::OperationReturn { .. } | EventKind::Case { .. });
    let is_of_source = |event: &&Event| event.site != SiteId(0) || is_marker(event);
    for event in trace.events[lost.event as usize + 1..].iter().filter(is_of_source) {
        if is_sync_of(event, lost.line) || !is_write && is_flush_of(event, lost.line) {
            return true;
        }
        let is_fence = !is_write && PlaceKind::of(&event.kind) == Some(PlaceKind::Fence);
        if (is_fence || is_marker(event)) && event.thread == store.thread {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing;
    use crashgen::model::{Choice, View};
    use crashgen::trace::{FenceKind, FileId, FlushKind, OperationKind, Site};
    use oracle::Status;
    use oracle::fact::Step;
    use oracle::report::SectionKind;

    /// Key of the state that lacks the first of these events, a store. They are by thread 1 or as said, and at a place of the source, but
    /// for the inserted ones.
    fn key_without_first(kinds: Vec<EventKind>, threads: &[u16], inserted: &[usize]) -> String {
        let count = kinds.len();
        let mut trace = testing::trace(kinds);
        let first = trace.events.len() - count;
        trace.sites = vec![Site { module: None, offset: 0, caller: None }; trace.events.len() + 1];
        for (number, event) in trace.events.iter_mut().enumerate() {
            let of_test = number.checked_sub(first);
            event.site = SiteId(if of_test.is_some_and(|at| inserted.contains(&at)) { 0 } else { 1 });
            event.thread.thread = of_test.and_then(|at| threads.get(at).copied()).unwrap_or(1);
        }
        let lose = |_: &View, state: &mut Vec<Choice>| state[0] = Choice::default();
        let position = first as u32 + 1;
        testing::of_state(&trace, position, lose, |state| {
            place(&mut Symbols::default(), &trace, state, None, RuleId::OperationLost)
        })
    }

    /// Key of a violation at a position of an empty trace, where nothing is lost.
    fn key_of(fact: Fact, message: &str) -> String {
        let trace = testing::trace(Vec::new());
        let violation = Violation {
            rule: fact.rule(),
            fact,
            message: message.to_owned(),
            slot: None,
            operation: None,
            block: None,
            leaks: None,
            lost_bytes: None,
        };
        let position = trace.events.len() as u32;
        testing::of_state(
            &trace,
            position,
            |_, _| {},
            |state| key(&mut Symbols::default(), &trace, state, None, &violation),
        )
    }

    #[test]
    fn an_identity_is_made_of_facts_and_of_no_words() {
        let corrupt = Fact::Answered(Step::new(0, SectionKind::Check), Status::Corrupt.into());
        let error = Fact::Answered(Step::new(0, SectionKind::Check), Status::Error.into());
        let said = "the allocator's own check after recovery answered corrupt: the heap has damaged headers";
        let reworded = "check after recovery says corrupt: some headers of the heap are damaged";
        assert_eq!(key_of(corrupt, said), key_of(corrupt, reworded));
        assert_ne!(key_of(corrupt, said), key_of(error, said));
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
