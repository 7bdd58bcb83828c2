// SPDX-License-Identifier: Apache-2.0
//! Objects as they must be found, and what slots and fields hold.

use std::sync::Arc;

use super::graph::ObjectId;
use super::operation::{Operation, OperationIndex, OperationKind};
use crate::pattern::Segment;

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
    /// The operation that made it so large.
    pub operation: OperationIndex,
    /// The operation that wrote to it last.
    pub written_by: OperationIndex,
    /// Its size before, if that operation was a reallocation.
    pub previous_bytes: Option<u64>,
}

impl ObjectState {
    pub(super) fn allocated(operation: &Operation) -> ObjectState {
        let segments = vec![Segment { end: operation.bytes, object: operation.object }];
        ObjectState {
            id: operation.object,
            bytes: operation.bytes,
            segments,
            promised_bytes: operation.bytes,
            operation: operation.index,
            written_by: operation.index,
            previous_bytes: None,
        }
    }

    /// The first min(old, new) bytes are kept, the rest is the new object's.
    pub(super) fn reallocated(&self, operation: &Operation) -> ObjectState {
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
            written_by: operation.index,
            previous_bytes: Some(self.bytes),
        }
    }

    /// With the bytes from `operation.from` on, `operation.bytes` of them, overwritten by the object id's pattern.
    pub(super) fn written(&self, operation: &Operation, object: u32) -> ObjectState {
        let range = operation.from..operation.from + operation.bytes;
        let mut segments: Vec<Segment> = Vec::with_capacity(self.segments.len() + 2);
        let mut start = 0;
        for segment in &self.segments {
            segments.extend([
                Segment { end: segment.end.min(range.start), ..*segment },
                Segment { end: segment.end.min(range.end), object },
                *segment,
            ]);
        }
        segments.retain(|segment| {
            let is_there = segment.end > start;
            start = start.max(segment.end);
            is_there
        });
        ObjectState { segments: merged(segments), written_by: operation.index, ..self.clone() }
    }
}

fn merged(segments: Vec<Segment>) -> Vec<Segment> {
    let mut merged: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match merged.last_mut().filter(|last| last.object == segment.object) {
            Some(last) => last.end = segment.end,
            None => merged.push(segment),
        }
    }
    merged
}

/// What a slot or a field holds. A field that was never set has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HolderState {
    pub(super) object: Option<Arc<ObjectState>>,
    /// The operation that put the object there.
    pub(super) placed_by: OperationIndex,
    pub(super) previous: Option<Previous>,
    pub(super) unsettled: Option<Unsettled>,
}

/// The object that a holder held before the last one, and what took it away: to tell a lost operation from bad content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Previous {
    pub object: Arc<ObjectState>,
    pub operation: OperationIndex,
    pub kind: OperationKind,
}

/// What a holder held since the last close (or a failure): recovery may bring back any moment of that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Unsettled {
    pub(super) may_be_null: bool,
    pub(super) smallest_bytes: u64,
    pub(super) operation: OperationIndex,
    /// An operation failed with no defined effect: a close does not settle it either.
    pub(super) has_failed: bool,
}

impl Unsettled {
    pub(super) fn from_state(object: Option<&ObjectState>, operation: OperationIndex) -> Unsettled {
        let start = Unsettled { may_be_null: false, smallest_bytes: u64::MAX, operation, has_failed: false };
        start.with(object, operation)
    }

    pub(super) fn with(mut self, object: Option<&ObjectState>, operation: OperationIndex) -> Unsettled {
        self.operation = operation;
        match object {
            None => self.may_be_null = true,
            Some(object) => self.smallest_bytes = self.smallest_bytes.min(object.bytes),
        }
        self
    }
}
