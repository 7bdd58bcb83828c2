// SPDX-License-Identifier: Apache-2.0
//! One life of the heap between two crashes, and what its operations make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::HistoryError;
use super::graph::Holder;
use super::object::{HolderState, ObjectState, Previous, Unsettled};
use super::operation::{Operation, OperationIndex, OperationKind};
use crate::contract::{Durable, Fill};
use crate::report::Status;

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

/// What an operation does to one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) holder: Holder,
    /// What the holder holds once it has happened.
    pub(super) after: Option<Arc<ObjectState>>,
    /// What it holds while the operation is pending, which may then have happened in part: of writes outside transactions.
    pub(super) meanwhile: Option<Arc<ObjectState>>,
    /// In a transaction the last operation on the holder.
    pub(super) by: Operation,
}

/// A pending operation and what it changes once it has happened: nothing yet while its transaction is open, all of that when the
/// transaction is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The operation.
    pub operation: Operation,
    pub(super) changes: Vec<Change>,
    /// It is one of a transaction, which these changes are for.
    pub(super) in_transaction: Option<Change>,
}

/// A transaction that has begun and is neither committed nor aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    /// Index of its begin.
    pub(super) begun_by: OperationIndex,
    /// What its operations that returned make of the holders, when it is committed.
    pub(super) changes: BTreeMap<Holder, Change>,
    /// How many operations have returned.
    pub(super) operations: u64,
}

impl Pending {
    /// Bytes, from the first, that must be right if this operation has happened. An object that is filled before publication is
    /// whole; of one that is filled after it, only what a reallocation keeps must be right. An operation that makes no object
    /// changes no content.
    pub(super) fn promised_bytes(&self, after: &ObjectState, before: Option<&ObjectState>, fill: Fill) -> u64 {
        match fill {
            _ if !self.operation.kind.makes_object() => after.promised_bytes,
            Fill::Before => self.operation.bytes,
            Fill::After => before.map_or(0, |before| before.bytes.min(self.operation.bytes)),
        }
    }
}

/// One life of the heap between two crashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    pub(super) phase: Phase,
    pub(super) was_closed: bool,
    /// Nothing has returned with an effect since the last close, or since create.
    pub(super) is_as_closed: bool,
    /// The close that returned and left the heap closed: nothing has begun since.
    pub(super) closed_by: Option<OperationIndex>,
    /// Slots, and fields of objects that the slots reach.
    pub(super) holders: BTreeMap<Holder, HolderState>,
    /// Objects may have several holders.
    pub(super) is_graph: bool,
    /// Objects that were not freed and that no slot reaches any more.
    pub(super) garbage: u64,
    pub(super) pending: Vec<Pending>,
    pub(super) transaction: Option<Transaction>,
    /// How many of them, the first, were pending when power failed before this generation: whether they happened is not known yet.
    pub(super) carried: usize,
    /// create's index: operations of this heap have none below it.
    pub(super) first_index: OperationIndex,
    /// The last operation that returned and had an effect.
    pub(super) last_effective: Option<OperationIndex>,
    /// All operations from `first_index` to below this have returned.
    pub(super) returned_below: OperationIndex,
    /// Others that have returned.
    pub(super) returned_ahead: BTreeSet<OperationIndex>,
    /// Operations with an effect that have returned.
    pub(super) effects: u32,
    pub(super) last_begun: Option<OperationIndex>,
    /// Operations overlapped or left the order of the file: prefixes of the file no longer describe the heap.
    pub(super) is_concurrent: bool,
    /// Operations with an effect since the last close, or that failed with an undefined one.
    pub(super) unsettled_operations: u64,
}

impl Generation {
    pub(super) fn new() -> Generation {
        Generation {
            phase: Phase::Absent,
            was_closed: false,
            is_as_closed: false,
            closed_by: None,
            holders: BTreeMap::new(),
            is_graph: false,
            garbage: 0,
            pending: Vec::new(),
            transaction: None,
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

    /// Whether an operation of this index or a later one has begun, in any thread.
    pub fn has_begun_from(&self, index: OperationIndex) -> bool {
        let is_pending = self.pending.iter().any(|pending| pending.operation.index >= index);
        is_pending || self.returned_below > index || self.returned_ahead.last().is_some_and(|last| *last >= index)
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

    pub(super) fn is_closing(&self) -> bool {
        self.pending.iter().any(|pending| pending.operation.kind == OperationKind::Close)
    }

    pub(super) fn returned(
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
        let mut pending = self.pending.remove(self.carried + position);
        self.note_returned(index);
        if let Some(change) = pending.in_transaction.take() {
            self.note_change(change, status);
            return Ok(());
        }
        if matches!(pending.operation.kind, OperationKind::Commit | OperationKind::Abort) {
            let operations = self.transaction.take().map_or(0, |transaction| transaction.operations);
            if (durable, status) == (Durable::OnClose, Status::Ok) && pending.operation.kind == OperationKind::Commit {
                // Each counts, not each holder, of which one is counted when its change is applied.
                self.unsettled_operations += operations.saturating_sub(pending.changes.len() as u64);
            }
        }
        match (status, pending.operation.kind) {
            (Status::Ok, OperationKind::Create) => self.created(),
            (Status::Ok, OperationKind::Close) => {
                self.closed(durable);
                self.closed_by = self.pending.is_empty().then_some(index);
            }
            (Status::Ok, OperationKind::Open) => {}
            (Status::Ok, OperationKind::Begin) => {
                let changes = BTreeMap::new();
                self.transaction = Some(Transaction { begun_by: index, changes, operations: 0 });
            }
            (Status::Ok, _) => self.apply(durable, &pending),
            (Status::OutOfMemory, OperationKind::Commit) => {}
            (Status::OutOfMemory, _) => return Ok(()),
            _ => pending.changes.iter().for_each(|change| self.failed(change)),
        }
        // A transaction that was undone changes nothing that a slot shows, but it may have grown the heap.
        let is_undone = match pending.operation.kind {
            OperationKind::Commit => status == Status::OutOfMemory,
            kind => kind == OperationKind::Abort && status == Status::Ok,
        };
        if is_undone || (status == Status::Ok && pending.operation.kind.has_effect()) {
            self.last_effective = self.last_effective.max(Some(index));
            self.effects += 1;
        }
        Ok(())
    }

    pub(super) fn recovered(
        &mut self,
        durable: Durable,
        happened: &[OperationIndex],
        unclear: &[OperationIndex],
        fill: Fill,
    ) {
        let own = self.pending.split_off(self.carried);
        // Nobody is told whether a pending close has happened. If it has, that recovery collected nothing.
        self.is_as_closed |= self.is_closing();
        for mut pending in std::mem::take(&mut self.pending) {
            let index = pending.operation.index;
            if unclear.contains(&index) {
                self.pending.push(pending);
            } else if happened.contains(&index) {
                if pending.operation.kind == OperationKind::Create {
                    self.created();
                }
                let promised: Vec<_> =
                    pending.changes.iter().map(|change| self.as_promised(&pending, change, fill)).collect();
                pending.changes.iter_mut().zip(promised).for_each(|(change, after)| change.after = after);
                self.apply(durable, &pending);
                self.last_effective = self.last_effective.max(Some(index));
                self.effects += 1;
            } else {
                pending.changes.into_iter().for_each(|change| self.leave_in_part(change));
            }
        }
        self.carried = self.pending.len();
        self.pending.extend(own);
    }

    /// What the change leaves, as far as it is promised where power failed while the operation was pending.
    fn as_promised(&self, pending: &Pending, change: &Change, fill: Fill) -> Option<Arc<ObjectState>> {
        let before = self.holders.get(&change.holder).and_then(|state| state.object.as_deref());
        let after = change.after.as_deref()?;
        Some(Arc::new(ObjectState { promised_bytes: pending.promised_bytes(after, before, fill), ..after.clone() }))
    }

    /// A write that power ended: nobody promised what is there, now or after another crash.
    fn leave_in_part(&mut self, change: Change) {
        if let (Some(meanwhile), Some(state)) = (change.meanwhile, self.holders.get_mut(&change.holder)) {
            state.object = Some(meanwhile);
        }
    }

    /// An operation of the transaction returned.
    fn note_change(&mut self, change: Change, status: Status) {
        if let Some(transaction) = self.transaction.as_mut().filter(|_| status == Status::Ok) {
            transaction.changes.insert(change.holder, Change { meanwhile: None, ..change });
            transaction.operations += 1;
        }
    }

    /// What the slot holds for the operation that comes next: in a transaction as those before it left it.
    pub(super) fn object_now(&self, slot: u32) -> Option<&Arc<ObjectState>> {
        let holder = Holder::Slot(slot);
        match self.transaction.as_ref().and_then(|transaction| transaction.changes.get(&holder)) {
            Some(change) => change.after.as_ref(),
            None => self.holders.get(&holder)?.object.as_ref(),
        }
    }

    fn note_returned(&mut self, index: OperationIndex) {
        self.returned_ahead.insert(index);
        while self.returned_ahead.remove(&self.returned_below) {
            self.returned_below += 1;
        }
    }

    fn created(&mut self) {
        self.phase = Phase::Created;
        self.is_as_closed = true;
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
        pending.changes.iter().for_each(|change| self.apply_change(durable, change));
    }

    fn apply_change(&mut self, durable: Durable, change: &Change) {
        let operation = &change.by;
        self.is_as_closed = false;
        self.leave_garbage(change);
        let state = self.holders.entry(change.holder).or_default();
        let had_failed = state.unsettled.is_some_and(|unsettled| unsettled.has_failed);
        let is_defined = !matches!(operation.kind, OperationKind::Reallocate | OperationKind::Write);
        let after = change.after.as_deref();
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
        let before = std::mem::replace(&mut state.object, change.after.clone());
        if operation.kind != OperationKind::Write {
            state.placed_by = operation.index;
        }
        if let Some(object) = before.filter(|before| after.is_none_or(|after| after.id != before.id)) {
            state.previous = Some(Previous { object, operation: operation.index, kind: operation.kind });
        }
    }

    /// The change has happened: what nothing refers to any more is garbage, and fields of objects that are gone hold nothing.
    fn leave_garbage(&mut self, change: &Change) {
        let mut gone = self.garbage_of(change);
        self.garbage += gone.len() as u64;
        if change.by.kind == OperationKind::Free && self.is_graph {
            gone.extend(self.held(change.holder));
        }
        for field in gone.into_iter().flat_map(Holder::fields_of) {
            self.holders.remove(&field);
        }
    }

    /// An operation answered an error other than out-of-memory: nobody promised what that leaves.
    fn failed(&mut self, change: &Change) {
        let index = change.by.index;
        self.is_as_closed = false;
        let state = self.holders.entry(change.holder).or_default();
        let unsettled = state.unsettled.unwrap_or_else(|| Unsettled::from_state(state.object.as_deref(), index));
        if !unsettled.has_failed {
            self.unsettled_operations += 1;
        }
        state.unsettled = Some(Unsettled { has_failed: true, ..unsettled.with(change.after.as_deref(), index) });
    }
}
