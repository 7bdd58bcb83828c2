// SPDX-License-Identifier: Apache-2.0
//! What a persistency model decides. [`super::models`] has those that there are, one file each.

use super::floors::Floors;
use super::line_ids::LineId;
use crate::trace::{FenceKind, FlushKind, OperationKind, StoreKind, ThreadId};

/// Which stores are guaranteed, and from when on.
///
/// All models have in common: a line holds a prefix of its ordered stores and any of its floating units (R1, R8); lines are independent
/// (R2); file operations are whole, those that are not lost ([`super::losses`]) are durable, and a sync of a file guarantees what the
/// file's lines held when it began (R9). A model raises floors and decides floating units through [`Floors`], at the events below. What is
/// not raised may be lost. A model has no state of its own: what it waits for is a promise in [`Floors`].
///
/// A method that a model leaves out does nothing, or says what is usual.
pub trait PersistencyModel: Sync {
    /// As `--model` spells it.
    fn name(&self) -> &'static str;

    /// What survives, in a few words for lists of models.
    fn survives(&self) -> &'static str;

    /// What the model assumes although no machine does it; an exploration under it never passes.
    fn assumption(&self) -> Option<Assumption> {
        None
    }

    /// Whether the failure may lose file operations that were not synced, where the file system promises no more than POSIX does.
    fn loses_file_operations(&self) -> bool {
        true
    }

    /// Whether power failure may leave some units of a store and not the others (R3).
    fn can_tear(&self) -> bool {
        true
    }

    /// Whether units of such a store persist each on its own, in no order with other stores (R8).
    fn is_floating(&self, kind: StoreKind) -> bool {
        kind == StoreKind::NonTemporal
    }

    /// The thread is about to store.
    fn before_store(&self, _kind: StoreKind, _thread: ThreadId, _floors: &mut Floors) {}

    /// The line has been stored to.
    fn stored(&self, _kind: StoreKind, _store: LineStore, _floors: &mut Floors) {}

    /// The kernel has written to the line: floating units, which a sync of the file guarantees.
    fn written_by_kernel(&self, _store: LineStore, _floors: &mut Floors) {}

    /// The thread flushes the line.
    fn flush(&self, _kind: FlushKind, _thread: ThreadId, _line: LineId, _floors: &mut Floors) {}

    /// The thread fences: [`FenceKind::Locked`] where it is a locked instruction that stores nothing into PM.
    fn fence(&self, _kind: FenceKind, _thread: ThreadId, _floors: &mut Floors) {}

    /// An operation of the workload returns.
    fn operation_return(&self, _kind: OperationKind, _floors: &mut Floors) {}
}

/// A store as one line sees it.
#[derive(Clone, Copy, Debug)]
pub struct LineStore {
    /// Who stored.
    pub thread: ThreadId,
    /// The line.
    pub line: LineId,
    /// The number of the store's event.
    pub event: u32,
}

/// What a model assumes although it is not so, in the certificate's words.
#[derive(Clone, Copy, Debug)]
pub struct Assumption {
    /// What is assumed.
    pub text: &'static str,
    /// Which states are left out for that.
    pub left_out: &'static str,
}
