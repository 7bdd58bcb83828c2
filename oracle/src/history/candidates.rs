// SPDX-License-Identifier: Apache-2.0
//! The states that a slot or a field may be found in after a crash.

use super::History;
use super::generation::{Change, Pending};
use super::graph::{Holder, ObjectId};
use super::object::{ObjectState, Unsettled};
use super::operation::OperationIndex;
use crate::contract::Fill;
use crate::pattern::Segment;

/// One state that a holder may be found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// What it holds; `None`: null.
    pub object: Option<ExpectedObject<'a>>,
    /// The operation that is pending on the holder, or the commit of those that are, and whether it has happened in this state.
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
    /// The operation that made it so large.
    pub operation: OperationIndex,
    /// The operation that wrote to it last.
    pub written_by: OperationIndex,
    /// The operation that made the holder hold it.
    pub placed_by: OperationIndex,
    /// Its size before, if that operation was a reallocation.
    pub previous_bytes: Option<u64>,
}

impl History {
    /// The states that the slot or field may be found in after a crash now.
    pub fn candidates(&self, holder: impl Into<Holder>, fill: Fill) -> Candidates<'_> {
        let (holder, now) = (holder.into(), self.current());
        let state = now.holders.get(&holder);
        let change_on_it = |pending: &'_ Pending| pending.changes.iter().position(|change| change.holder == holder);
        let pending = now.pending.iter().find_map(|pending| Some((pending, &pending.changes[change_on_it(pending)?])));
        if let Some(unsettled) = state.and_then(|state| state.unsettled) {
            return unsettled_candidates(unsettled, pending.map(|(_, change)| change));
        }
        let object = state.and_then(|state| state.object.as_deref());
        let placed_by = state.map_or(0, |state| state.placed_by);
        if let Some(meanwhile) = pending.and_then(|(_, change)| change.meanwhile.as_deref()) {
            let object = Some(expect(meanwhile, placed_by, meanwhile.promised_bytes));
            return Candidates { first: Candidate { object, pending: None }, second: None };
        }
        let index = pending.map(|(pending, _)| pending.operation.index);
        let second = pending.map(|(pending, change)| Candidate {
            object: change
                .after
                .as_deref()
                .map(|after| expect(after, change.by.index, pending.promised_bytes(after, object, fill))),
            pending: index.map(|index| (index, true)),
        });
        let first = Candidate {
            object: object.map(|object| expect(object, placed_by, object.promised_bytes)),
            pending: index.map(|index| (index, false)),
        };
        Candidates { first, second }
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
        written_by: object.written_by,
        placed_by,
        previous_bytes: object.previous_bytes,
    }
}

fn unsettled_candidates(unsettled: Unsettled, pending: Option<&Change>) -> Candidates<'static> {
    let unsettled = match pending {
        Some(change) => unsettled.with(change.after.as_deref(), change.by.index),
        None => unsettled,
    };
    let null = Candidate { object: None, pending: None };
    let object = ExpectedObject {
        id: None,
        bytes: unsettled.smallest_bytes,
        segments: &[],
        checked_bytes: 0,
        operation: unsettled.operation,
        written_by: unsettled.operation,
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
