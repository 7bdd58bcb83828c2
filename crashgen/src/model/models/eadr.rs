// SPDX-License-Identifier: Apache-2.0
//! `eadr`: power failure on x86 with caches in the persistence domain. Visible stores persist; non-temporal ones pass the caches by, and are
//! lost until a fence (R8).

use crate::model::{Floors, LineStore, PersistencyModel, Until};
use crate::trace::{FenceKind, StoreKind, ThreadId};

/// Caches persist.
pub struct Eadr;

impl PersistencyModel for Eadr {
    fn name(&self) -> &'static str {
        "eadr"
    }

    fn survives(&self) -> &'static str {
        "what is visible; unfenced non-temporal stores may be lost"
    }

    fn before_store(&self, kind: StoreKind, thread: ThreadId, floors: &mut Floors) {
        if kind == StoreKind::Rmw {
            floors.keep(Until::FenceOf(thread));
        }
    }

    fn stored(&self, kind: StoreKind, store: LineStore, floors: &mut Floors) {
        match self.is_floating(kind) {
            true => floors.promise_units(store.line, store.event, store.thread),
            false => floors.guarantee(store.line),
        }
    }

    fn fence(&self, _kind: FenceKind, thread: ThreadId, floors: &mut Floors) {
        floors.keep(Until::FenceOf(thread));
    }
}
