// SPDX-License-Identifier: Apache-2.0
//! What a workload has done to a heap when power fails, and so what recovery may and must bring back.
//!
//! The criterion is durable linearizability (Izraelevitz, Mendes, Scott, DISC 2016): operations that returned survive, pending
//! ones (begun, not returned) happened whole or not at all, and one that returned out-of-memory has no effect. For each slot that
//! gives a short list of [`Candidate`]s, one of which the recovered heap must show; so it does for each field of an object that
//! slots and fields reach, where objects hold references to objects.
//!
//! With `durable = "on-close"` only what was there when a close last returned must survive. Operations since may be there or
//! not, in any selection, so a slot that none of them touched is judged as usual, while a touched slot may show anything it held
//! since: its content is not judged, because a lost free may bring back an object whose place was meanwhile used again.
//!
//! One `History` is one heap: a workload of several cases has one for each.

mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::contract::{Durable, Fill, Leaks};
use crate::pattern::Segment;
use crate::report::Status;
use planted::Fault;

pub use graph::{FIELDS, Holder, ObjectId};

/// Number of an operation in the workload, counted from 0 over the whole workload file.
pub type OperationIndex = u32;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// Makes the heap.
    Create,
    /// Opens the heap, which recovers it.
    Open,
    /// Closes the heap.
    Close,
    /// Allocates into an empty slot.
    Allocate,
    /// Frees a slot's object.
    Free,
    /// Changes the size of a slot's object.
    Reallocate,
    /// Sets a field of a slot's object to another slot's object.
    Link,
    /// Sets a field of a slot's object to null.
    Unlink,
    /// Sets a slot to null and frees nothing.
    Drop,
    /// Sets an empty slot to what a field of another slot's object holds.
    Load,
}

impl OperationKind {
    /// The word for it in workload files and reports.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Create => "create",
            OperationKind::Open => "open",
            OperationKind::Close => "close",
            OperationKind::Allocate => "allocate",
            OperationKind::Free => "free",
            OperationKind::Reallocate => "reallocate",
            OperationKind::Link => "link",
            OperationKind::Unlink => "unlink",
            OperationKind::Drop => "drop",
            OperationKind::Load => "load",
        }
    }

    /// Whether it changes what a slot or a field holds: all but create, open and close.
    pub fn has_slot(self) -> bool {
        !matches!(self, OperationKind::Create | OperationKind::Open | OperationKind::Close)
    }

    fn has_field(self) -> bool {
        matches!(self, OperationKind::Link | OperationKind::Unlink | OperationKind::Load)
    }

    fn makes_object(self) -> bool {
        matches!(self, OperationKind::Allocate | OperationKind::Reallocate)
    }
}

/// One operation, as its begin marker tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The thread that called it.
    pub thread: u32,
    /// What it does.
    pub kind: OperationKind,
    /// Its number in the workload.
    pub index: OperationIndex,
    /// Its slot; 0 for create, open and close.
    pub slot: u32,
    /// Bytes asked for; 0 where nothing is.
    pub bytes: u64,
    /// Id of the object it makes; 0 where it makes none.
    pub object: u32,
    /// link, unlink and load: the field.
    pub field: u8,
    /// link: the slot whose object the field gets; load: the slot whose object has the field; 0 otherwise.
    pub other_slot: u32,
}

impl Operation {
    /// The slots that it reads or writes.
    fn slots(&self) -> impl Iterator<Item = u32> {
        let other = matches!(self.kind, OperationKind::Link | OperationKind::Load).then_some(self.other_slot);
        self.kind.has_slot().then_some(self.slot).into_iter().chain(other)
    }
}

/// An object as it must be found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectState {
    /// Which object it is.
    pub id: ObjectId,
    /// Its size, as last asked for.
    pub bytes: u64,
    /// Its content, complete.
    pub segments: Vec<Segment>,
    /// How many bytes of that, from the first, are promised: all, unless power failed before a `fill = "after"` was done.
    pub promised_bytes: u64,
    /// The operation that made it so.
    pub operation: OperationIndex,
    /// Its size before, if that operation was a reallocation.
    pub previous_bytes: Option<u64>,
}

impl ObjectState {
    fn allocated(operation: &Operation) -> ObjectState {
        let segments = vec![Segment { end: operation.bytes, object: operation.object }];
        ObjectState {
            id: operation.object,
            bytes: operation.bytes,
            segments,
            promised_bytes: operation.bytes,
            operation: operation.index,
            previous_bytes: None,
        }
    }

    /// The first min(old, new) bytes are kept, the rest is the new object's.
    fn reallocated(&self, operation: &Operation) -> ObjectState {
        let kept = self.bytes.min(operation.bytes);
        let mut segments: Vec<Segment> = Vec::with_capacity(self.segments.len() + 1);
        for segment in &self.segments {
            if segments.last().map_or(0, |last| last.end) < kept {
                segments.push(Segment { end: segment.end.min(kept), ..*segment });
            }
        }
        if operation.bytes > kept {
            segments.push(Segment { end: operation.bytes, object: operation.object });
        }
        ObjectState {
            id: self.id,
            bytes: operation.bytes,
            segments,
            promised_bytes: if self.promised_bytes < kept { self.promised_bytes } else { operation.bytes },
            operation: operation.index,
            previous_bytes: Some(self.bytes),
        }
    }
}

/// What a holder held in a time of which recovery may bring back any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Unsettled {
    may_be_null: bool,
    smallest_bytes: u64,
    operation: OperationIndex,
    /// An operation failed with no defined effect: a close does not settle it either.
    has_failed: bool,
}

impl Unsettled {
    fn from_state(object: Option<&ObjectState>, operation: OperationIndex) -> Unsettled {
        let start = Unsettled { may_be_null: false, smallest_bytes: u64::MAX, operation, has_failed: false };
        start.with(object, operation)
    }

    fn with(mut self, object: Option<&ObjectState>, operation: OperationIndex) -> Unsettled {
        self.operation = operation;
        match object {
            None => self.may_be_null = true,
            Some(object) => self.smallest_bytes = self.smallest_bytes.min(object.bytes),
        }
        self
    }
}

/// What a slot or a field holds. A field that was never set has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HolderState {
    object: Option<Arc<ObjectState>>,
    /// The operation that put the object there.
    placed_by: OperationIndex,
    previous: Option<Previous>,
    unsettled: Option<Unsettled>,
}

/// The object that a holder held before the last one, and what took it away: to tell a lost operation from bad content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    pub object: Arc<ObjectState>,
    pub operation: OperationIndex,
    pub kind: OperationKind,
}

/// A pending operation and what its holder holds once it has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The operation.
    pub operation: Operation,
    holder: Option<Holder>,
    after: Option<Arc<ObjectState>>,
}

/// How far the heap's creation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// create has not begun.
    Absent,
    /// create has begun and not succeeded.
    Creating,
    /// create has returned; whether that is durable is the contract's `durable`.
    Created,
}

/// One life of the heap between two crashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    phase: Phase,
    was_closed: bool,
    /// Nothing has returned with an effect since the last close.
    is_as_closed: bool,
    /// The close that returned and left the heap closed: nothing has begun since.
    closed_by: Option<OperationIndex>,
    /// Slots, and fields of objects that the slots reach.
    holders: BTreeMap<Holder, HolderState>,
    /// Objects may have several holders.
    is_graph: bool,
    /// Objects that were not freed and that no slot reaches any more.
    garbage: u64,
    pending: Vec<Pending>,
    /// How many of them, the first, were pending when power failed before this generation: whether they happened is not known yet.
    carried: usize,
    /// create's index: operations of this heap have none below it.
    first_index: OperationIndex,
    /// The last operation that returned and had an effect.
    last_effective: Option<OperationIndex>,
    /// All operations from `first_index` to below this have returned.
    returned_below: OperationIndex,
    /// Others that have returned.
    returned_ahead: BTreeSet<OperationIndex>,
    /// Operations with an effect that have returned.
    effects: u32,
    last_begun: Option<OperationIndex>,
    /// Operations overlapped or left the order of the file: prefixes of the file no longer describe the heap.
    is_concurrent: bool,
    /// Operations with an effect since the last close, or that failed with an undefined one.
    unsettled_operations: u64,
}

/// One state that a holder may be found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// What it holds; `None`: null.
    pub object: Option<ExpectedObject<'a>>,
    /// The operation pending on the holder, and whether it has happened in this state.
    pub pending: Option<(OperationIndex, bool)>,
}

/// The states that a holder may be found in: at least one, at most two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates<'a> {
    first: Candidate<'a>,
    second: Option<Candidate<'a>>,
}

impl<'a> Candidates<'a> {
    /// The states.
    pub fn iter(&self) -> impl Iterator<Item = Candidate<'a>> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// The objects among the states.
    pub fn objects(&self) -> impl Iterator<Item = ExpectedObject<'a>> {
        self.iter().filter_map(|candidate| candidate.object)
    }

    /// Whether the holder may be null.
    pub fn may_be_null(&self) -> bool {
        self.iter().any(|candidate| candidate.object.is_none())
    }

    /// Whether an operation is pending that changes what the holder holds.
    pub fn are_pending(&self) -> bool {
        self.second.is_some()
    }
}

/// An object as a candidate has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedObject<'a> {
    /// Which object it is; `None`: not known, where an operation since the last close may be there or not.
    pub id: Option<ObjectId>,
    /// Bytes that its heap block must hold.
    pub bytes: u64,
    /// Its content.
    pub segments: &'a [Segment],
    /// How many bytes of the content, from the first, are promised.
    pub checked_bytes: u64,
    /// The operation that made it so.
    pub operation: OperationIndex,
    /// The operation that made the holder hold it.
    pub placed_by: OperationIndex,
    /// Its size before, if that operation was a reallocation.
    pub previous_bytes: Option<u64>,
}

/// Names a history without a crash, of threads whose operations overlapped: the operations with an effect that have returned, in
/// the order of their returns, then pending ones in any order. An operation that returned before another began comes before it
/// in the order of returns too, so that is a linearisation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Linearised {
    /// The create of the heap.
    pub create: OperationIndex,
    /// How many operations with an effect have returned, create included.
    pub returned: u32,
    /// Pending operations that have happened, ascending.
    pub happened: Vec<OperationIndex>,
}

/// A marker that does not fit the markers before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} of thread {thread}: {what}")]
pub struct HistoryError {
    /// The operation of the marker.
    pub index: OperationIndex,
    /// Its thread.
    pub thread: u32,
    /// What does not fit.
    pub what: String,
}

/// What one heap's workload has done so far. Built from markers, in the order of the trace.
#[derive(Clone, Debug)]
pub struct History {
    durable: Durable,
    /// The contract's `clean_close`: what a close leaves is expected, too.
    clean_close: bool,
    /// Each starts from what the crash before it left.
    generations: Vec<Generation>,
    state_id: u64,
}

impl History {
    /// A heap whose create has not begun.
    pub fn new(durable: Durable) -> History {
        let mut history = History { durable, clean_close: false, generations: vec![Generation::new()], state_id: 0 };
        history.state_id = history.hash_state();
        history
    }

    /// The same under a contract with this `clean_close`.
    #[must_use]
    pub fn with_clean_close(self, clean_close: bool) -> History {
        History { clean_close, ..self }
    }

    /// A number that changes exactly when what is expected of a crash now changes; a pending close or open counts, for it may
    /// leak. Equal histories have equal numbers.
    pub fn state_id(&self) -> u64 {
        self.state_id
    }

    /// As [`Self::state_id`], of what is expected of the heap from now on: the same where earlier generations differ only in what
    /// no rule asks for any more. What the contract permits to leak is asked for.
    pub fn expected_id(&self, leaks: Leaks) -> u64 {
        let mut mix = Mix(self.durable as u64);
        mix.add(self.generations.len() as u64);
        if leaks == Leaks::Pending {
            mix.add(self.pending_operations());
        }
        self.current().hash(self.durable, &mut mix);
        mix.0
    }

    /// The generations, oldest first; at least one.
    pub fn generations(&self) -> &[Generation] {
        &self.generations
    }

    /// The generation that a crash now would end.
    pub fn current(&self) -> &Generation {
        self.generations.last().expect("a history has at least one generation")
    }

    fn current_mut(&mut self) -> &mut Generation {
        self.generations.last_mut().expect("a history has at least one generation")
    }

    /// An operation begins.
    ///
    /// # Errors
    /// When it cannot begin here, which no runner's trace has: the trace is bad.
    pub fn begin(&mut self, operation: Operation) -> Result<(), HistoryError> {
        self.current_mut().begin(operation)?;
        self.state_id = self.hash_state();
        Ok(())
    }

    /// The operation that the thread began returns.
    ///
    /// # Errors
    /// When the thread has not begun it: the trace is bad.
    pub fn returned(&mut self, thread: u32, index: OperationIndex, status: Status) -> Result<(), HistoryError> {
        let durable = self.durable;
        self.current_mut().returned(durable, thread, index, status)?;
        if !self.clean_close {
            self.current_mut().closed_by = None;
        }
        self.state_id = self.hash_state();
        Ok(())
    }

    /// Power fails, and a new generation begins with what this crash left: what returned, and of the pending operations any
    /// selection, each whole. The recovery that brings it to light is the first operation of the new generation.
    pub fn power_fails(&mut self) {
        let mut next = self.current().clone();
        next.carried = next.pending.len();
        next.last_begun = None;
        self.generations.push(next);
        self.state_id = self.hash_state();
    }

    /// The recovery of this generation has shown which of the operations pending at the crash before it have happened: from now on
    /// these have, and the others, but for `unclear` ones, never will. (A slot may look the same either way.)
    pub fn recovered(&mut self, happened: &[OperationIndex], unclear: &[OperationIndex], fill: Fill) {
        let durable = self.durable;
        self.current_mut().recovered(durable, happened, unclear, fill);
        self.state_id = self.hash_state();
    }

    /// Whether open must succeed after a crash now.
    pub fn must_open(&self) -> bool {
        let now = self.current();
        now.phase == Phase::Created && (self.durable == Durable::OnReturn || now.was_closed)
    }

    /// The close that has left the heap closed: it has returned, and nothing has begun since. Only where `clean_close` is promised.
    pub fn closed_by(&self) -> Option<OperationIndex> {
        self.current().closed_by
    }

    /// Slots that hold, held or may come to hold an object, in order.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let now = self.current();
        let pending = now.pending.iter().filter_map(|pending| pending.holder);
        let held = now.holders.range(Holder::Slot(0)..=Holder::Slot(u32::MAX)).map(|(holder, _)| *holder);
        let all: BTreeSet<u32> = held.chain(pending).filter_map(Holder::slot).collect();
        all.into_iter()
    }

    /// Whether objects may hold references to objects: some operation says so.
    pub fn is_graph(&self) -> bool {
        self.current().is_graph
    }

    /// The states that the slot or field may be found in after a crash now.
    pub fn candidates(&self, holder: impl Into<Holder>, fill: Fill) -> Candidates<'_> {
        let (holder, now) = (holder.into(), self.current());
        let state = now.holders.get(&holder);
        let pending = now.pending.iter().find(|pending| pending.holder == Some(holder));
        if let Some(unsettled) = state.and_then(|state| state.unsettled) {
            return unsettled_candidates(unsettled, pending);
        }
        let object = state.and_then(|state| state.object.as_deref());
        let index = pending.map(|pending| pending.operation.index);
        let second = pending.map(|pending| Candidate {
            object: pending
                .after
                .as_deref()
                .map(|after| expect(after, pending.operation.index, pending.promised_bytes(after, object, fill))),
            pending: index.map(|index| (index, true)),
        });
        if let Some(second) = second.filter(|_| planted::is(Fault::PendingIsReturned)) {
            return Candidates { first: second, second: None };
        }
        let placed_by = state.map_or(0, |state| state.placed_by);
        let first = Candidate {
            object: object.map(|object| expect(object, placed_by, object.promised_bytes)),
            pending: index.map(|index| (index, false)),
        };
        Candidates { first, second }
    }

    /// The object that was in the holder before a returned operation took it away.
    pub(crate) fn previous(&self, holder: Holder) -> Option<&Previous> {
        self.current().holders.get(&holder)?.previous.as_ref()
    }

    /// Whether an operation of this kind is pending on the holder.
    pub(crate) fn is_pending_on(&self, holder: Holder, kinds: &[OperationKind]) -> bool {
        let mut pending = self.current().pending.iter();
        pending.any(|pending| pending.holder == Some(holder) && kinds.contains(&pending.operation.kind))
    }

    /// Heap blocks that the contract's `leaks = "pending"` allows to leak: one for each operation that was pending at a
    /// crash, creation, recovery and close included, summed over generations and threads. With `durable = "on-close"` an
    /// operation since the last close counts as pending.
    pub fn pending_operations(&self) -> u64 {
        let pending = |generation: &Generation| (generation.pending.len() - generation.carried) as u64;
        self.generations.iter().map(pending).sum::<u64>() + self.current().unsettled_operations
    }

    /// Objects that were dropped and not freed, and that nothing reaches, once these pending operations have happened.
    pub fn garbage_objects(&self, happened: &[OperationIndex]) -> u64 {
        self.current().garbage(happened)
    }

    /// How many objects that nothing reaches a clean close may have left there, once these pending operations have happened:
    /// garbage is collected by the recovery after a crash, and a heap that is as a close leaves it needs none. Opening it changes
    /// nothing of that (Makalu §11.2: a restart reads metadata only); the first operation that takes effect does.
    pub fn garbage_left_by_close(&self, happened: &[OperationIndex]) -> u64 {
        let now = self.current();
        let is_closing = now.pending.iter().any(|pending| pending.operation.kind == OperationKind::Close);
        if (now.is_as_closed || is_closing) && happened.is_empty() { self.garbage_objects(&[]) } else { 0 }
    }

    /// Whether some slot's state is open beyond the pending operations, so that no prefix of the workload describes the heap.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.current().unsettled_operations > 0
    }

    /// The last operation of the prefix of the workload that has the same effects as the returned operations and these pending
    /// ones; `None` if there is no such prefix.
    pub fn linearised_prefix(&self, happened: &[OperationIndex]) -> Option<OperationIndex> {
        let now = self.current();
        let last_happened = happened.iter().copied().max();
        if !now.is_concurrent {
            return last_happened.max(now.last_effective);
        }
        let has = |index: &OperationIndex| {
            *index < now.returned_below || now.returned_ahead.contains(index) || happened.contains(index)
        };
        let last_returned = now.returned_ahead.last().copied().or(now.returned_below.checked_sub(1));
        let last = last_happened.max(last_returned)?;
        (now.returned_below..=last).all(|index| has(&index)).then_some(last)
    }

    /// The history without a crash that has the same effects as the returned operations and these pending ones.
    pub fn linearised(&self, happened: &[OperationIndex]) -> Linearised {
        let now = self.current();
        let mut happened = happened.to_vec();
        happened.sort_unstable();
        Linearised { create: now.first_index, returned: now.effects, happened }
    }

    fn hash_state(&self) -> u64 {
        let mut mix = Mix(self.durable as u64);
        mix.add(self.generations.len() as u64);
        for generation in &self.generations {
            generation.hash(self.durable, &mut mix);
        }
        mix.0
    }
}

/// Content is promised for the first `checked_bytes` only.
fn expect(object: &ObjectState, placed_by: OperationIndex, checked_bytes: u64) -> ExpectedObject<'_> {
    ExpectedObject {
        id: Some(object.id),
        bytes: object.bytes,
        segments: &object.segments,
        checked_bytes,
        operation: object.operation,
        placed_by,
        previous_bytes: object.previous_bytes,
    }
}

fn unsettled_candidates(unsettled: Unsettled, pending: Option<&Pending>) -> Candidates<'static> {
    let unsettled = match pending {
        Some(pending) => unsettled.with(pending.after.as_deref(), pending.operation.index),
        None => unsettled,
    };
    let null = Candidate { object: None, pending: None };
    let object = ExpectedObject {
        id: None,
        bytes: unsettled.smallest_bytes,
        segments: &[],
        checked_bytes: 0,
        operation: unsettled.operation,
        placed_by: unsettled.operation,
        previous_bytes: None,
    };
    let object = Candidate { object: Some(object), pending: None };
    match (unsettled.may_be_null, unsettled.smallest_bytes < u64::MAX) {
        (true, true) => Candidates { first: null, second: Some(object) },
        (false, true) => Candidates { first: object, second: None },
        (_, false) => Candidates { first: null, second: None },
    }
}

impl Pending {
    /// Bytes, from the first, that must be right if this operation has happened. An object filled before publication is whole;
    /// else only what a reallocation keeps is. A reference to an object that was there before changes nothing of it.
    fn promised_bytes(&self, after: &ObjectState, before: Option<&ObjectState>, fill: Fill) -> u64 {
        match fill {
            _ if !self.operation.kind.makes_object() => after.promised_bytes,
            Fill::Before => self.operation.bytes,
            Fill::After if planted::is(Fault::FilledBefore) => self.operation.bytes,
            Fill::After => before.map_or(0, |before| before.bytes.min(self.operation.bytes)),
        }
    }
}

impl Generation {
    fn new() -> Generation {
        Generation {
            phase: Phase::Absent,
            was_closed: false,
            is_as_closed: false,
            closed_by: None,
            holders: BTreeMap::new(),
            is_graph: false,
            garbage: 0,
            pending: Vec::new(),
            carried: 0,
            first_index: 0,
            last_effective: None,
            returned_below: 0,
            returned_ahead: BTreeSet::new(),
            effects: 0,
            last_begun: None,
            is_concurrent: false,
            unsettled_operations: 0,
        }
    }

    /// How far the heap's creation is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The create of this heap; 0 before it begins.
    pub fn create_index(&self) -> OperationIndex {
        self.first_index
    }

    /// Operations of several threads overlapped or left the order of the file.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.is_concurrent
    }

    /// The operations that are pending, in the order in which they began.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    fn begin(&mut self, operation: Operation) -> Result<(), HistoryError> {
        self.check_begin(&operation).map_err(|what| HistoryError {
            index: operation.index,
            thread: operation.thread,
            what,
        })?;
        if operation.kind == OperationKind::Create {
            self.phase = Phase::Creating;
            self.first_index = operation.index;
            self.returned_below = operation.index;
        }
        // A recovery overlaps nothing that the crash before it ended. What follows it overlaps what is unclear still.
        let ended = if operation.kind == OperationKind::Open { self.carried } else { 0 };
        let is_overlapping = self.pending.len() > ended;
        self.is_concurrent |= is_overlapping || self.last_begun.is_some_and(|last| last > operation.index);
        self.last_begun = Some(operation.index);
        self.closed_by = None;
        self.is_graph |= operation.kind.has_field() || operation.kind == OperationKind::Drop;
        let (holder, after) = (self.holder_of(&operation), self.after(&operation));
        self.pending.push(Pending { operation, holder, after });
        Ok(())
    }

    /// What the operation changes.
    fn holder_of(&self, operation: &Operation) -> Option<Holder> {
        match operation.kind {
            OperationKind::Link | OperationKind::Unlink => {
                let object = self.held(Holder::Slot(operation.slot))?;
                Some(Holder::Field { object, field: operation.field })
            }
            kind => kind.has_slot().then_some(Holder::Slot(operation.slot)),
        }
    }

    /// What that holds once the operation has happened.
    fn after(&self, operation: &Operation) -> Option<Arc<ObjectState>> {
        let object = |holder: Holder| self.holders.get(&holder).and_then(|state| state.object.as_ref());
        match operation.kind {
            OperationKind::Allocate => Some(Arc::new(ObjectState::allocated(operation))),
            // The object is missing only where an operation failed with an undefined effect.
            OperationKind::Reallocate => Some(Arc::new(
                object(Holder::Slot(operation.slot))
                    .map_or_else(|| ObjectState::allocated(operation), |old| old.reallocated(operation)),
            )),
            OperationKind::Link => object(Holder::Slot(operation.other_slot)).cloned(),
            OperationKind::Load => {
                let from = self.held(Holder::Slot(operation.other_slot))?;
                object(Holder::Field { object: from, field: operation.field }).cloned()
            }
            _ => None,
        }
    }

    fn check_begin(&self, operation: &Operation) -> Result<(), String> {
        let kind = operation.kind;
        let mut own = self.pending[self.carried..].iter();
        if let Some(other) = own.find(|other| other.operation.thread == operation.thread) {
            return Err(format!("begins while the thread's operation {} has not returned", other.operation.index));
        }
        match (kind, self.phase) {
            (OperationKind::Create, Phase::Absent) => return Ok(()),
            (OperationKind::Create, _) => {
                return Err("create begins on a heap that has one".to_owned());
            }
            (_, Phase::Created) => {}
            (OperationKind::Open, Phase::Creating) if self.carried > 0 => {}
            _ => return Err(format!("{} begins before create has returned", kind.name())),
        }
        if !kind.has_slot() {
            return Ok(());
        }
        if kind.makes_object() && operation.object == 0 {
            return Err(format!("{} has no object id", kind.name()));
        }
        self.check_slot(operation)
    }

    fn check_slot(&self, operation: &Operation) -> Result<(), String> {
        let name = operation.kind.name();
        for slot in operation.slots() {
            if let Some(other) = self.pending.iter().find(|other| other.operation.slots().any(|other| other == slot)) {
                let other = other.operation.index;
                return Err(format!("{name} begins on slot {slot}, on which operation {other} is pending"));
            }
        }
        if operation.field >= FIELDS {
            return Err(format!("{name} of field {}, expected one below {FIELDS}", operation.field));
        }
        let slot = operation.slot;
        let state = self.holders.get(&Holder::Slot(slot));
        if state.is_some_and(|state| state.unsettled.is_some_and(|unsettled| unsettled.has_failed)) {
            return match operation.kind.has_field() {
                true => Err(format!("{name} begins on slot {slot}, on which an operation failed")),
                false => Ok(()),
            };
        }
        match (operation.kind, self.held(Holder::Slot(slot)).is_some()) {
            (OperationKind::Allocate | OperationKind::Load, true) => {
                return Err(format!("{name} begins on slot {slot}, which holds an object"));
            }
            (OperationKind::Allocate | OperationKind::Load, false) => {}
            (_, false) => return Err(format!("{name} begins on slot {slot}, which is empty")),
            (OperationKind::Free | OperationKind::Reallocate, true) => {
                if let Some(other) = self.other_holder(slot) {
                    return Err(format!("{name} begins on slot {slot}, whose object {other} holds too"));
                }
            }
            _ => {}
        }
        self.check_other_slot(operation)
    }

    fn check_other_slot(&self, operation: &Operation) -> Result<(), String> {
        let (name, other) = (operation.kind.name(), operation.other_slot);
        if !matches!(operation.kind, OperationKind::Link | OperationKind::Load) {
            return Ok(());
        }
        let Some(object) = self.held(Holder::Slot(other)) else {
            return Err(format!("{name} begins with slot {other}, which is empty"));
        };
        let from = Holder::Field { object, field: operation.field };
        match operation.kind == OperationKind::Load && self.held(from).is_none() {
            true => Err(format!("{name} begins with {from}, which is null")),
            false => Ok(()),
        }
    }

    fn returned(
        &mut self,
        durable: Durable,
        thread: u32,
        index: OperationIndex,
        status: Status,
    ) -> Result<(), HistoryError> {
        let is_it = |pending: &Pending| pending.operation.thread == thread && pending.operation.index == index;
        let Some(position) = self.pending[self.carried..].iter().position(is_it) else {
            return Err(HistoryError { index, thread, what: "returns without having begun".to_owned() });
        };
        let pending = self.pending.remove(self.carried + position);
        self.note_returned(index);
        match (status, pending.operation.kind) {
            (Status::Ok, OperationKind::Create) => self.phase = Phase::Created,
            (Status::Ok, OperationKind::Close) => {
                self.closed(durable);
                self.closed_by = self.pending.is_empty().then_some(index);
            }
            (Status::Ok, OperationKind::Open) => {}
            (Status::Ok, _) => self.apply(durable, &pending),
            (Status::OutOfMemory, _) => return Ok(()),
            (_, kind) if kind.has_slot() => self.failed(&pending),
            _ => {}
        }
        if status == Status::Ok && !matches!(pending.operation.kind, OperationKind::Open | OperationKind::Close) {
            self.last_effective = self.last_effective.max(Some(index));
            self.effects += 1;
        }
        Ok(())
    }

    fn recovered(&mut self, durable: Durable, happened: &[OperationIndex], unclear: &[OperationIndex], fill: Fill) {
        let own = self.pending.split_off(self.carried);
        // Nobody is told whether a pending close has happened. If it has, that recovery collected nothing.
        self.is_as_closed |= self.pending.iter().any(|pending| pending.operation.kind == OperationKind::Close);
        for mut pending in std::mem::take(&mut self.pending) {
            let index = pending.operation.index;
            if unclear.contains(&index) {
                self.pending.push(pending);
            } else if happened.contains(&index) {
                if pending.operation.kind == OperationKind::Create {
                    self.phase = Phase::Created;
                }
                let before = pending.holder.and_then(|holder| self.holders.get(&holder)?.object.clone());
                let promised = |after: &ObjectState| pending.promised_bytes(after, before.as_deref(), fill);
                let after = pending.after.as_deref();
                let after =
                    after.map(|after| Arc::new(ObjectState { promised_bytes: promised(after), ..after.clone() }));
                pending.after = after;
                self.apply(durable, &pending);
                self.last_effective = self.last_effective.max(Some(index));
                self.effects += 1;
            }
        }
        self.carried = self.pending.len();
        self.pending.extend(own);
    }

    fn note_returned(&mut self, index: OperationIndex) {
        self.returned_ahead.insert(index);
        while self.returned_ahead.remove(&self.returned_below) {
            self.returned_below += 1;
        }
    }

    fn closed(&mut self, durable: Durable) {
        self.was_closed = true;
        self.is_as_closed = true;
        if durable == Durable::OnClose {
            for state in self.holders.values_mut() {
                state.unsettled = state.unsettled.filter(|unsettled| unsettled.has_failed);
            }
            let failed = self.holders.values().filter(|state| state.unsettled.is_some());
            self.unsettled_operations = failed.count() as u64;
        }
    }

    fn apply(&mut self, durable: Durable, pending: &Pending) {
        let (operation, Some(holder)) = (&pending.operation, pending.holder) else { return };
        self.is_as_closed = false;
        self.leave_garbage(pending);
        let state = self.holders.entry(holder).or_default();
        let had_failed = state.unsettled.is_some_and(|unsettled| unsettled.has_failed);
        let is_defined = operation.kind != OperationKind::Reallocate;
        let after = pending.after.as_deref();
        state.unsettled = match durable {
            Durable::OnReturn if is_defined => None,
            Durable::OnReturn => state.unsettled.map(|unsettled| unsettled.with(after, operation.index)),
            Durable::OnClose => {
                let held = state.object.as_deref();
                let unsettled = state.unsettled.unwrap_or_else(|| Unsettled::from_state(held, operation.index));
                let mut unsettled = unsettled.with(after, operation.index);
                unsettled.has_failed &= !is_defined;
                Some(unsettled)
            }
        };
        match durable {
            Durable::OnReturn if had_failed && is_defined => self.unsettled_operations -= 1,
            Durable::OnReturn => {}
            Durable::OnClose => self.unsettled_operations += 1,
        }
        let before = std::mem::replace(&mut state.object, pending.after.clone());
        state.placed_by = operation.index;
        if let Some(object) = before.filter(|before| after.is_none_or(|after| after.id != before.id)) {
            state.previous = Some(Previous { object, operation: operation.index, kind: operation.kind });
        }
    }

    /// What the operation, which has happened, leaves to nobody is garbage; fields of objects that are gone hold nothing.
    fn leave_garbage(&mut self, pending: &Pending) {
        let mut gone = self.garbage_of(pending);
        self.garbage += gone.len() as u64;
        if pending.operation.kind == OperationKind::Free && self.is_graph {
            gone.extend(pending.holder.and_then(|holder| self.held(holder)));
        }
        for field in gone.into_iter().flat_map(Holder::fields_of) {
            self.holders.remove(&field);
        }
    }

    /// An operation answered an error other than out-of-memory: nobody promised what that leaves.
    fn failed(&mut self, pending: &Pending) {
        let (index, Some(holder)) = (pending.operation.index, pending.holder) else { return };
        self.is_as_closed = false;
        let state = self.holders.entry(holder).or_default();
        let unsettled = state.unsettled.unwrap_or_else(|| Unsettled::from_state(state.object.as_deref(), index));
        if !unsettled.has_failed {
            self.unsettled_operations += 1;
        }
        state.unsettled = Some(Unsettled { has_failed: true, ..unsettled.with(pending.after.as_deref(), index) });
    }

    fn hash(&self, durable: Durable, mix: &mut Mix) {
        mix.add(self.phase as u64);
        mix.add(u64::from(self.was_closed && durable == Durable::OnClose));
        mix.add(u64::from(self.closed_by.is_some()));
        mix.add(self.last_effective.map_or(0, |index| u64::from(index) + 1));
        mix.add(self.unsettled_operations);
        mix.add(u64::from(self.effects));
        if self.is_concurrent {
            mix.add(u64::from(self.returned_below));
            mix.add_all(self.returned_ahead.iter().map(|index| u64::from(*index)));
        }
        if self.garbage > 0 {
            mix.add_all([self.garbage, u64::from(self.is_as_closed)]);
        }
        for (holder, state) in &self.holders {
            hash_holder(*holder, mix);
            hash_object(state.object.as_deref(), mix);
            if let Some(unsettled) = state.unsettled {
                let flags = u64::from(unsettled.may_be_null) << 1 | u64::from(unsettled.has_failed);
                mix.add_all([flags, unsettled.smallest_bytes, u64::from(unsettled.operation)]);
            }
        }
        for pending in &self.pending {
            let operation = &pending.operation;
            mix.add_all([operation.kind as u64, u64::from(operation.index), u64::from(operation.slot)]);
            if let Some(holder) = pending.holder {
                hash_holder(holder, mix);
            }
            hash_object(pending.after.as_deref(), mix);
        }
    }
}

fn hash_holder(holder: Holder, mix: &mut Mix) {
    match holder {
        Holder::Slot(slot) => mix.add(u64::from(slot)),
        Holder::Field { object, field } => mix.add(u64::from(object) << 32 | u64::from(field) << 1 | 1),
    }
}

fn hash_object(object: Option<&ObjectState>, mix: &mut Mix) {
    let Some(object) = object else {
        return mix.add(0);
    };
    mix.add_all([1, u64::from(object.id), object.bytes, u64::from(object.operation), object.segments.len() as u64]);
    if object.promised_bytes != object.bytes {
        mix.add(object.promised_bytes);
    }
    for segment in &object.segments {
        mix.add_all([segment.end, u64::from(segment.object)]);
    }
}

/// A running hash that is the same on every machine and with every compiler (splitmix64's mixer).
struct Mix(u64);

impl Mix {
    fn add(&mut self, value: u64) {
        let mut mixed = (self.0.rotate_left(5) ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    fn add_all(&mut self, values: impl IntoIterator<Item = u64>) {
        for value in values {
            self.add(value);
        }
    }
}
