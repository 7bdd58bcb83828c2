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

/// A pending operation and what its holder holds once it has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The operation.
    pub operation: Operation,
    pub(super) holder: Option<Holder>,
    pub(super) after: Option<Arc<ObjectState>>,
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
        let pending = self.pending.remove(self.carried + position);
        self.note_returned(index);
        match (status, pending.operation.kind) {
            (Status::Ok, OperationKind::Create) => self.created(),
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

    /// The operation has happened: what nothing refers to any more is garbage, and fields of objects that are gone hold nothing.
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
}
