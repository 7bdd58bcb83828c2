// SPDX-License-Identifier: Apache-2.0
//! The event excerpt of a finding: the events around its crash position, for people. It shows what ran before power failed, which stores the
//! crash state holds, and what would have come next.
//!
//! It has the last events before the crash and the first ones after it, in memory order over all threads, within the case. The undecided
//! stores that the state lacks are there however long ago they were, because the finding is about them. So are the newest undecided store
//! that the state holds, and for the lines of these stores the first flushes and the fences that complete them. A gap between positions
//! shows where events are left out.

use crate::findings::operation_names;
use crate::heap::state::{StateRef, held, is_flush_of, is_sync_of, lost_stores, newest_store};
use crashgen::model::LineKey;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::{Event, EventKind, FileEffect, FileId, FlushKind, OperationKind, StoreKind, ThreadId, Trace};
use crashgen::{LINE_BYTES, OS_PAGE_BYTES, UNIT_BYTES};
use oracle::Status;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeSet;

/// Events shown before the crash.
const BEFORE: usize = 12;
/// Events shown after it.
const AFTER: usize = 6;
/// Stores from further back that the state lacks.
const LOST: usize = 8;
/// Flushes of the line of such a store.
const FLUSHES: usize = 2;
/// Bytes of a value that are spelled out.
const VALUE_BYTES: usize = 12;

/// One event as it is printed. What does not apply is null.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct EventText {
    /// The crash position after the event: at most the finding's if it came before the crash.
    pub position: u32,
    pub process: u32,
    pub thread: u16,
    pub kind: &'static str,
    pub file: Option<String>,
    pub offset: Option<u64>,
    pub size: Option<u64>,
    pub value: Option<String>,
    pub site: Option<Symbol>,
    /// The operation its thread is in.
    pub operation: Option<EventOperation>,
    /// Of stores before the crash: whether the crash state holds all ("yes"), none ("no") or some of their units ("torn").
    pub is_persisted: Option<&'static str>,
    /// Of torn stores: the bytes that the state holds, each run as first and end, counted from the first byte of the store.
    pub held: Vec<(u64, u64)>,
    /// Of stores that are persisted: whether every crash state at this position has them.
    pub is_guaranteed: Option<bool>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)]
pub struct EventOperation {
    /// In the workload, or in what follows the recovery of that generation.
    pub index: u32,
    /// 0: the workload.
    pub generation: u32,
    pub name: &'static str,
}

/// The events around the state's crash position.
pub fn events_around(trace: &Trace, symbols: &mut Symbols, state: &StateRef) -> Vec<EventText> {
    let crash = state.position as usize;
    let is_case = |event: &Event| matches!(event.kind, EventKind::Case { .. });
    let case = trace.events[..crash].iter().rposition(is_case).unwrap_or(trace.first_event());
    let end = trace.events[crash..].iter().take(AFTER).position(is_case).unwrap_or(AFTER);
    let end = trace.events.len().min(crash + end);
    let mut shown: BTreeSet<usize> = (case.max(crash.saturating_sub(BEFORE))..end).collect();
    for store in stores_that_matter(state) {
        shown.insert(store);
        shown.extend(orderings_of(trace, store, crash));
    }
    let mut operations: FxHashMap<ThreadId, EventOperation> = FxHashMap::default();
    let mut texts = Vec::with_capacity(shown.len());
    for (number, event) in trace.events.iter().enumerate().take(end).skip(case) {
        if let EventKind::OperationBegin { kind, index, .. } = &event.kind {
            let (generation, index) = operation_names::place(*index);
            operations.insert(event.thread, EventOperation { index, generation, name: kind.name() });
        }
        if shown.contains(&number) {
            let operation = operations.get(&event.thread).copied();
            texts.push(text(trace, symbols, state, number, event, operation));
        }
        if matches!(event.kind, EventKind::OperationReturn { .. }) {
            operations.remove(&event.thread);
        }
    }
    texts
}

/// Numbers of the oldest undecided stores and file operations that the state lacks, and of the newest store that it holds.
fn stores_that_matter(state: &StateRef) -> Vec<usize> {
    let lost: BTreeSet<u32> = lost_stores(state).map(|lost| lost.event).collect();
    let newest = newest_store(state).map(|(event, _)| event);
    let operations = state.case.lost_operations().iter().map(|(event, _)| *event);
    lost.into_iter().take(LOST).chain(operations.take(LOST)).chain(newest).map(|event| event as usize).collect()
}

/// The first flushes and syncs of the store's lines, and the fence after each flush by the thread that flushed; where nothing flushes them,
/// the fence after the store; before the crash.
fn orderings_of(trace: &Trace, store: usize, crash: usize) -> Vec<usize> {
    let Some((file, offset, bytes)) = trace.events[store].kind.put() else { return Vec::new() };
    let numbers = offset / LINE_BYTES..(offset + bytes.len() as u64).div_ceil(LINE_BYTES);
    let is_of = |is_of_line: fn(&Event, LineKey) -> bool, event: &Event| {
        numbers.clone().any(|number| is_of_line(event, LineKey { file, number }))
    };
    let fence_after = |number: usize| {
        let thread = trace.events[number].thread;
        let is_fence = |event: &Event| event.thread == thread && matches!(event.kind, EventKind::Fence { .. });
        (number + 1..crash).find(|number| is_fence(&trace.events[*number]))
    };
    let later = || store + 1..crash;
    let flushes: Vec<usize> =
        later().filter(|number| is_of(is_flush_of, &trace.events[*number])).take(FLUSHES).collect();
    let sync = later().find(|number| is_of(is_sync_of, &trace.events[*number]));
    let last = flushes.is_empty().then_some(store);
    let fences = flushes.iter().copied().chain(last).filter_map(fence_after);
    fences.chain(flushes.iter().copied()).chain(sync).collect()
}

fn text(
    trace: &Trace,
    symbols: &mut Symbols,
    state: &StateRef,
    number: usize,
    event: &Event,
    operation: Option<EventOperation>,
) -> EventText {
    let symbol = symbols.find(trace, event.site);
    let mut text = EventText {
        position: number as u32 + 1,
        process: event.thread.process,
        thread: event.thread.thread,
        kind: kind(&event.kind),
        file: None,
        offset: None,
        size: None,
        value: None,
        site: Some(symbol).filter(|symbol| *symbol != Symbol::default()),
        operation,
        is_persisted: None,
        held: Vec::new(),
        is_guaranteed: None,
    };
    match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => stored(&mut text, trace, state, *file, *offset, bytes),
        EventKind::Flush { file, offset, .. } => {
            text.file = Some(trace.files[file.0 as usize].to_string());
            text.offset = Some(offset / LINE_BYTES * LINE_BYTES);
            text.size = Some(LINE_BYTES);
        }
        EventKind::FileBegin { effect } => file_operation(&mut text, trace, effect),
        EventKind::FileEnd { effect, is_done } => match &**effect {
            FileEffect::Write { file, offset, bytes } if *is_done => {
                stored(&mut text, trace, state, *file, *offset, bytes);
            }
            effect => {
                file_operation(&mut text, trace, effect);
                if !is_done {
                    text.value = Some("failed".to_owned());
                }
                let is_lost = state.case.lost_operations().iter().any(|(event, _)| *event as usize == number);
                text.is_persisted = is_lost.then_some("no");
            }
        },
        EventKind::OperationBegin { kind, slot, bytes, object, .. } => {
            text.value = arguments(*kind, *slot, *bytes, *object);
        }
        EventKind::OperationReturn { status, .. } => text.value = Some(Status::from(*status).to_string()),
        EventKind::Case { number, .. } => text.value = Some(format!("case {number}")),
        EventKind::Fence { .. } => {}
    }
    text
}

/// The word for it.
pub fn kind(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Store { kind: StoreKind::Plain, .. } => "store",
        EventKind::Store { kind: StoreKind::NonTemporal, .. } => "non-temporal store",
        EventKind::Store { kind: StoreKind::Rmw, .. } => "locked RMW",
        EventKind::Flush { kind: FlushKind::Clflush, .. } => "clflush",
        EventKind::Flush { kind: FlushKind::Clflushopt, .. } => "clflushopt",
        EventKind::Flush { kind: FlushKind::Clwb, .. } => "clwb",
        EventKind::Fence { .. } => "fence",
        EventKind::FileBegin { effect } => file_kind(effect).0,
        EventKind::FileEnd { effect, .. } => file_kind(effect).1,
        EventKind::Case { .. } => "case",
        EventKind::OperationBegin { .. } => "operation begin",
        EventKind::OperationReturn { .. } => "operation return",
    }
}

/// At its begin and at its end.
fn file_kind(effect: &FileEffect) -> (&'static str, &'static str) {
    match effect {
        FileEffect::Create { .. } => ("create file", "file created"),
        FileEffect::Truncate { .. } => ("truncate file", "file truncated"),
        FileEffect::Extend { .. } => ("extend file", "file extended"),
        FileEffect::Punch { .. } => ("punch file", "file punched"),
        FileEffect::Unlink { .. } => ("unlink file", "file unlinked"),
        FileEffect::Rename { .. } => ("rename file", "file renamed"),
        FileEffect::MakeFolder { .. } => ("make folder", "folder made"),
        FileEffect::RemoveFolder { .. } => ("remove folder", "folder removed"),
        FileEffect::Sync { .. } if effect.is_fsync() => ("fsync", "fsync return"),
        FileEffect::Sync { .. } => ("msync", "msync return"),
        FileEffect::SyncFolder { .. } => ("fsync folder", "fsync folder return"),
        FileEffect::SyncAll => ("sync", "sync return"),
        FileEffect::Write { .. } => ("write file", "file written"),
    }
}

/// What was done to files by an event that power failure loses: a file operation, or the first store to a page.
pub fn lost_in_words(trace: &Trace, event: u32) -> String {
    match &trace.events[event as usize].kind {
        EventKind::FileEnd { effect, .. } => operation_in_words(trace, effect),
        EventKind::Store { file, offset, .. } => {
            let page = offset / OS_PAGE_BYTES * OS_PAGE_BYTES;
            format!("the new blocks of {} at {page:#x}", trace.files[file.0 as usize])
        }
        _ => String::new(),
    }
}

/// What a file operation did: the rename of heap.tmp to heap.
fn operation_in_words(trace: &Trace, effect: &FileEffect) -> String {
    let file = |file: &FileId| &trace.files[file.0 as usize];
    match effect {
        FileEffect::Create { path, .. } => format!("the creation of {path}"),
        FileEffect::Truncate { file: of, bytes } => format!("the truncation of {} to {bytes} bytes", file(of)),
        FileEffect::Extend { file: of, bytes } => format!("the growth of {} to {bytes} bytes", file(of)),
        FileEffect::Punch { file: of, offset, bytes } => {
            format!("the hole of {bytes} bytes in {} at {offset:#x}", file(of))
        }
        FileEffect::Write { file: of, offset, bytes } => {
            format!("the growth of {} by a write of {} bytes at {offset:#x}", file(of), bytes.len())
        }
        FileEffect::Unlink { path } => format!("the removal of {path}"),
        FileEffect::Rename { from, to } => format!("the rename of {from} to {to}"),
        FileEffect::MakeFolder { path } => format!("the creation of folder {path}"),
        FileEffect::RemoveFolder { path } => format!("the removal of folder {path}"),
        FileEffect::Sync { .. } | FileEffect::SyncFolder { .. } | FileEffect::SyncAll => "a sync".to_owned(),
    }
}

fn stored(text: &mut EventText, trace: &Trace, state: &StateRef, file: FileId, offset: u64, bytes: &[u8]) {
    text.file = Some(trace.files[file.0 as usize].to_string());
    text.offset = Some(offset);
    text.size = Some(bytes.len() as u64);
    text.value = Some(value(bytes));
    if text.position <= state.position && state.case.model.loses_line(file, offset / LINE_BYTES) {
        text.is_persisted = Some("no");
        return;
    }
    let is_reachable = state.case.model.files().get(&file).is_none_or(|file| file.path.is_some());
    if text.position > state.position || !is_reachable || is_cleared(trace, state, text.position, file, offset) {
        return;
    }
    let held = held(state, text.position - 1, (file, offset, bytes.len() as u64));
    text.is_persisted = Some(held.how);
    text.is_guaranteed = (held.how == "yes").then_some(held.is_decided);
    if held.how == "torn" {
        text.held = held.bytes.iter().map(|run| (run.start, run.end)).collect();
    }
}

/// Whether a file operation between the store and the crash took its first byte away.
fn is_cleared(trace: &Trace, state: &StateRef, stored_at: u32, file: FileId, offset: u64) -> bool {
    trace.events[stored_at as usize..state.position as usize].iter().any(|event| {
        let EventKind::FileEnd { effect, is_done: true } = &event.kind else { return false };
        match **effect {
            FileEffect::Truncate { file: of, bytes } => of == file && offset >= bytes,
            FileEffect::Punch { file: of, offset: from, bytes } => {
                of == file && (from..from.saturating_add(bytes)).contains(&offset)
            }
            _ => false,
        }
    })
}

fn file_operation(text: &mut EventText, trace: &Trace, effect: &FileEffect) {
    text.file = effect.file().map(|file| trace.files[file.0 as usize].to_string());
    match effect {
        FileEffect::Create { path, .. } => text.file = Some(path.to_string()),
        FileEffect::Truncate { bytes, .. } | FileEffect::Extend { bytes, .. } => text.size = Some(*bytes),
        FileEffect::Sync { .. } if effect.is_fsync() => {}
        FileEffect::Punch { offset, bytes, .. } | FileEffect::Sync { offset, bytes, .. } => {
            (text.offset, text.size) = (Some(*offset), Some(*bytes));
        }
        FileEffect::Write { offset, bytes, .. } => {
            (text.offset, text.size, text.value) = (Some(*offset), Some(bytes.len() as u64), Some(value(bytes)));
        }
        FileEffect::Unlink { path }
        | FileEffect::MakeFolder { path }
        | FileEffect::RemoveFolder { path }
        | FileEffect::SyncFolder { path } => text.file = Some(path.to_string()),
        FileEffect::SyncAll => {}
        FileEffect::Rename { from, to } => {
            text.file = Some(from.to_string());
            text.value = Some(format!("to {to}"));
        }
    }
}

/// What an operation is done to; the numbers are those of its begin marker.
pub fn arguments(kind: OperationKind, slot: u32, bytes: u64, object: u32) -> Option<String> {
    Some(match kind {
        kind if !kind.has_slot() => return None,
        OperationKind::Write => format!("slot {slot}, {bytes} bytes from byte {object} on"),
        OperationKind::Link => format!("slot {slot}, field {bytes}, to slot {object}"),
        OperationKind::Unlink => format!("slot {slot}, field {bytes}"),
        OperationKind::Load => format!("slot {slot}, from slot {object}, field {bytes}"),
        OperationKind::Free | OperationKind::Drop => format!("slot {slot}"),
        _ => {
            let plural = if bytes == 1 { "" } else { "s" };
            format!("slot {slot}, {bytes} byte{plural}, object {object}")
        }
    })
}

/// Up to a unit as the number that the processor stored, more as bytes in the order of addresses.
pub fn value(bytes: &[u8]) -> String {
    let hex = |bytes: &mut dyn Iterator<Item = &u8>| bytes.map(|byte| format!("{byte:02x}")).collect::<String>();
    if bytes.len() as u64 <= UNIT_BYTES {
        let digits = hex(&mut bytes.iter().rev());
        let digits = digits.trim_start_matches('0');
        return format!("0x{}", if digits.is_empty() { "0" } else { digits });
    }
    let rest = if bytes.len() > VALUE_BYTES { "…" } else { "" };
    format!("[{}{rest}]", hex(&mut bytes.iter().take(VALUE_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing::{case, done, of_state, trace};
    use crashgen::model::{Choice, View};
    use crashgen::trace::FenceKind;

    const FILE: FileId = FileId(0);
    const SFENCE: EventKind = EventKind::Fence { kind: FenceKind::Sfence };
    fn store(offset: u64, bytes: usize) -> EventKind {
        EventKind::Store { kind: StoreKind::Plain, file: FILE, offset, bytes: vec![1; bytes].into() }
    }

    fn excerpt(trace: &Trace, position: u32, choose: impl Fn(&View, &mut Vec<Choice>)) -> Vec<EventText> {
        of_state(trace, position, choose, |state| events_around(trace, &mut Symbols::default(), state))
    }

    #[test]
    fn a_store_is_whole_lost_or_torn_as_the_state_has_it() {
        let clwb = EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset: 64 };
        let kinds = vec![store(64, 8), clwb, SFENCE, store(0, 24), store(128, 8), store(192, 8), store(256, 8)];
        let events = excerpt(&trace(kinds), 10, |_, state| {
            state[0].ordered = 1; // one unit of three
            state[1].ordered = 0;
        });
        let stores = events.iter().filter(|event| event.kind == "store");
        let shown: Vec<_> = stores.map(|store| (store.position, store.is_persisted, store.is_guaranteed)).collect();
        let (yes, no, torn) = (Some("yes"), Some("no"), Some("torn"));
        let expected = [(5, yes, Some(true)), (8, torn, None), (9, no, None), (10, yes, Some(false)), (11, None, None)];
        assert_eq!(shown, expected);
        assert_eq!(events.iter().find(|event| event.position == 8).map(|event| &event.held[..]), Some(&[(0, 8)][..]));
        assert!(events.iter().skip(3).all(|event| event.operation.is_some_and(|operation| operation.name == "create")));
    }

    #[test]
    fn a_store_that_is_lost_is_shown_however_long_ago_it_was() {
        let mut kinds = vec![store(0, 8)];
        kinds.extend(vec![SFENCE; 50]);
        let trace = trace(kinds);
        let positions = |lost: bool| {
            let events = excerpt(&trace, 55, |_, state| state[0].ordered = u32::from(!lost));
            events.iter().map(|event| event.position).collect::<Vec<_>>()
        };
        let last: Vec<u32> = (44..=55).collect();
        assert_eq!(positions(true), [&[5, 6], &last[..]].concat(), "and the fence that it passed without a flush");
        assert_eq!(positions(false), [&[5, 6], &last[..]].concat(), "the newest undecided one too");
    }

    #[test]
    fn the_flush_of_a_lost_store_is_shown_with_its_fence_however_long_ago_they_were() {
        let clwb = |offset| EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset };
        let mut kinds = vec![store(0, 8), clwb(64), store(8, 8), clwb(8), clwb(64), store(16, 8)];
        kinds.extend(vec![store(128, 8); 50]);
        kinds.push(SFENCE);
        let before: Vec<u32> = excerpt(&trace(kinds), 60, |_, state| state[0].ordered = 1)
            .iter()
            .map(|event| event.position)
            .filter(|position| *position <= 48)
            .collect();
        assert_eq!(before, [7, 8, 10], "what is lost, and the flush before it was completed");
    }

    #[test]
    fn other_cases_are_out_of_sight() {
        let trace = trace(vec![store(0, 8), case(1), store(0, 8)]);
        let positions =
            |crash| excerpt(&trace, crash, |_, _| {}).iter().map(|event| event.position).collect::<Vec<_>>();
        assert_eq!(positions(5), [1, 2, 3, 4, 5]);
        assert_eq!(positions(6), [6, 7]);
    }

    #[test]
    fn what_a_truncate_took_away_is_neither_there_nor_lost() {
        let truncate = |bytes| done(FileEffect::Truncate { file: FILE, bytes });
        let events = excerpt(&trace(vec![store(0, 8), store(512, 8), truncate(256), store(64, 8)]), 8, |_, _| {});
        let stores = events.iter().filter(|event| event.kind == "store").map(|store| store.is_persisted);
        assert_eq!(stores.collect::<Vec<_>>(), [Some("yes"), None, Some("yes")]);
    }

    #[test]
    fn values_are_numbers_up_to_a_unit_and_bytes_beyond() {
        assert_eq!(value(&[0x40, 1, 0, 0, 0, 0, 0, 0]), "0x140");
        assert_eq!(value(&[0; 8]), "0x0");
        assert_eq!(value(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), "[010203040506070809]");
        assert_eq!(value(&[0xab; 64]), format!("[{}…]", "ab".repeat(12)));
    }
}
