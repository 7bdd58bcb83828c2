// SPDX-License-Identifier: Apache-2.0
//! How an operation begins, and which markers do not fit the markers before them.

use std::sync::Arc;

use super::HistoryError;
use super::generation::{Change, Generation, Pending, Phase};
use super::graph::{FIELDS, Holder};
use super::object::ObjectState;
use super::operation::{Operation, OperationKind};
use crate::pattern::UNKNOWN;

impl Generation {
    pub(super) fn begin(&mut self, operation: Operation) -> Result<(), HistoryError> {
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
        let change = self.holder_of(&operation).map(|holder| self.change(&operation, holder));
        let pending = match (&self.transaction, operation.kind) {
            (Some(transaction), OperationKind::Commit) => {
                let changes = transaction.changes.values().cloned().collect();
                Pending { operation, changes, in_transaction: None }
            }
            (Some(_), kind) if kind.has_slot() => Pending { operation, changes: Vec::new(), in_transaction: change },
            _ => Pending { operation, changes: change.into_iter().collect(), in_transaction: None },
        };
        self.pending.push(pending);
        Ok(())
    }

    fn change(&self, operation: &Operation, holder: Holder) -> Change {
        let after = self.after(operation);
        let held = self.object_now(operation.slot).filter(|_| operation.kind == OperationKind::Write);
        let meanwhile = held.map(|held| Arc::new(held.written(operation, UNKNOWN)));
        Change { holder, after, meanwhile, by: *operation }
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
                self.object_now(operation.slot)
                    .map_or_else(|| ObjectState::allocated(operation), |old| old.reallocated(operation)),
            )),
            OperationKind::Link => object(Holder::Slot(operation.other_slot)).cloned(),
            OperationKind::Load => {
                let from = self.held(Holder::Slot(operation.other_slot))?;
                object(Holder::Field { object: from, field: operation.field }).cloned()
            }
            OperationKind::Write => {
                Some(Arc::new(self.object_now(operation.slot)?.written(operation, operation.object)))
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
        let is_open = self.transaction.is_some();
        match kind {
            OperationKind::Begin if is_open => return Err("begin in a transaction".to_owned()),
            OperationKind::Commit | OperationKind::Abort if !is_open => {
                return Err(format!("{} without a transaction", kind.name()));
            }
            OperationKind::Begin | OperationKind::Commit | OperationKind::Abort => return Ok(()),
            _ if is_open && (!kind.has_slot() || kind.has_field() || kind == OperationKind::Drop) => {
                return Err(format!("{} in a transaction", kind.name()));
            }
            _ if !kind.has_slot() => return Ok(()),
            _ => {}
        }
        if kind.has_content() && operation.object == 0 {
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
        match (operation.kind, self.object_now(slot).is_some()) {
            (OperationKind::Allocate | OperationKind::Load, true) => {
                return Err(format!("{name} begins on slot {slot}, which holds an object"));
            }
            (OperationKind::Allocate | OperationKind::Load, false) => {}
            (_, false) => return Err(format!("{name} begins on slot {slot}, which is empty")),
            (OperationKind::Write, true) if !self.is_within(operation) => {
                return Err(format!("{name} begins on slot {slot}, past the end of its object"));
            }
            (OperationKind::Free | OperationKind::Reallocate, true) => {
                if let Some(other) = self.other_holder(slot) {
                    return Err(format!("{name} begins on slot {slot}, whose object {other} holds too"));
                }
            }
            _ => {}
        }
        self.check_other_slot(operation)
    }

    fn is_within(&self, operation: &Operation) -> bool {
        let end = operation.from.checked_add(operation.bytes);
        end.zip(self.object_now(operation.slot)).is_some_and(|(end, object)| end <= object.bytes)
    }

    fn check_other_slot(&self, operation: &Operation) -> Result<(), String> {
        let (name, other) = (operation.kind.name(), operation.other_slot);
        if !operation.kind.has_other_slot() {
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
}
