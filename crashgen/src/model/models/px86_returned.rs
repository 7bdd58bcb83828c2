// SPDX-License-Identifier: Apache-2.0
//! `px86-returned`: as `px86`, but whatever was stored counts as persisted when an operation returns. Not true of any machine: for targets
//! that never flush a line that recovery reads, whose undecided stores would pile up from operation to operation.

use super::Px86;
use crate::model::{Assumption, Floors, LineId, LineStore, PersistencyModel};
use crate::trace::{FenceKind, FlushKind, OperationKind, StoreKind, ThreadId};

/// [`Px86`], with a return that guarantees everything.
pub struct Px86Returned;

impl PersistencyModel for Px86Returned {
    fn name(&self) -> &'static str {
        "px86-returned"
    }

    fn survives(&self) -> &'static str {
        "as px86, and all that was stored once the operation has returned"
    }

    fn assumption(&self) -> Option<Assumption> {
        Some(Assumption {
            text: "what is stored is persisted when an operation returns",
            left_out: "the states in which a line is lost after its operation returned",
        })
    }

    fn before_store(&self, kind: StoreKind, thread: ThreadId, floors: &mut Floors) {
        Px86.before_store(kind, thread, floors);
    }

    fn stored(&self, kind: StoreKind, store: LineStore, floors: &mut Floors) {
        Px86.stored(kind, store, floors);
    }

    fn flush(&self, kind: FlushKind, thread: ThreadId, line: LineId, floors: &mut Floors) {
        Px86.flush(kind, thread, line, floors);
    }

    fn fence(&self, kind: FenceKind, thread: ThreadId, floors: &mut Floors) {
        Px86.fence(kind, thread, floors);
    }

    fn operation_return(&self, _kind: OperationKind, floors: &mut Floors) {
        floors.guarantee_everything();
    }
}
