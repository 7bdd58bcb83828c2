// SPDX-License-Identifier: Apache-2.0
//! `px86`: power failure on x86 with volatile caches. The rules are at the top of [`crate::model`].

use crate::model::{Floors, LineId, LineStore, PersistencyModel, Until};
use crate::trace::{FenceKind, FlushKind, StoreKind, ThreadId};

/// Power failure on x86 with volatile caches.
pub struct Px86;

impl PersistencyModel for Px86 {
    fn name(&self) -> &'static str {
        "px86"
    }

    fn survives(&self) -> &'static str {
        "what was flushed and fenced, and any of the rest that x86 can have written back"
    }

    /// R4, R6.
    fn before_store(&self, kind: StoreKind, thread: ThreadId, floors: &mut Floors) {
        floors.keep(Until::AnyInstruction);
        if kind == StoreKind::Rmw {
            floors.keep(Until::FenceOf(thread));
        }
    }

    /// R8.
    fn stored(&self, kind: StoreKind, store: LineStore, floors: &mut Floors) {
        if self.is_floating(kind) {
            floors.promise_units(store.line, store.event, store.thread);
        }
    }

    /// R4, R5, R7.
    fn flush(&self, kind: FlushKind, thread: ThreadId, line: LineId, floors: &mut Floors) {
        floors.keep(Until::AnyInstruction);
        let until = match kind {
            FlushKind::Clflush => Until::AnyInstruction,
            FlushKind::Clflushopt | FlushKind::Clwb => Until::FenceOf(thread),
        };
        floors.promise(line, until);
    }

    /// R4, R5, R6, R8.
    fn fence(&self, _kind: FenceKind, thread: ThreadId, floors: &mut Floors) {
        floors.keep(Until::AnyInstruction);
        floors.keep(Until::FenceOf(thread));
    }
}
