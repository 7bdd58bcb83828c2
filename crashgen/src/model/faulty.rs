// SPDX-License-Identifier: Apache-2.0
//! Persistency models with a planted fault, each a model of its own around the one as it is.

use super::floors::{Floors, Until};
use super::line_ids::LineId;
use super::persistency::{Assumption, LineStore, PersistencyModel};
use crate::trace::{FenceKind, FlushKind, OperationKind, StoreKind, ThreadId};
use planted::Fault;

/// What can be wrong with a model.
const FAULTS: [Fault; 12] = [
    Fault::IgnoreR2,
    Fault::IgnoreR3,
    Fault::IgnoreR4,
    Fault::IgnoreR5,
    Fault::IgnoreR6,
    Fault::IgnoreR7,
    Fault::IgnoreR8,
    Fault::IgnoreR10,
    Fault::ClflushAtOnce,
    Fault::AnyFence,
    Fault::FlushCoversLater,
    Fault::FlushDecidesNonTemporal,
];

/// The model with the fault of this process, if that is one of a model.
pub fn instead_of(model: &'static dyn PersistencyModel) -> &'static dyn PersistencyModel {
    match FAULTS.into_iter().find(|fault| planted::is(*fault)) {
        Some(fault) => Box::leak(Box::new(Faulty { model, fault })),
        None => model,
    }
}

struct Faulty {
    model: &'static dyn PersistencyModel,
    fault: Fault,
}

impl Faulty {
    /// The flush is not the model's; whether it is dealt with.
    fn flush_wrongly(&self, kind: FlushKind, thread: ThreadId, line: LineId, floors: &mut Floors) -> bool {
        match self.fault {
            Fault::IgnoreR4 => kind == FlushKind::Clflush,
            Fault::IgnoreR7 => floors.writers.get(&line).is_some_and(|writer| *writer != thread),
            Fault::FlushCoversLater => {
                let is_ordered = kind == FlushKind::Clflush;
                let until = if is_ordered { Until::AnyInstruction } else { Until::FenceOf(thread) };
                floors.promise_ordered(line, u64::MAX, until);
                true
            }
            _ => false,
        }
    }
}

impl PersistencyModel for Faulty {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn survives(&self) -> &'static str {
        self.model.survives()
    }

    fn assumption(&self) -> Option<Assumption> {
        self.model.assumption()
    }

    fn can_tear(&self) -> bool {
        self.fault != Fault::IgnoreR3 && self.model.can_tear()
    }

    fn is_floating(&self, kind: StoreKind) -> bool {
        self.fault != Fault::IgnoreR8 && self.model.is_floating(kind)
    }

    fn before_store(&self, kind: StoreKind, thread: ThreadId, floors: &mut Floors) {
        let kind = if self.fault == Fault::IgnoreR6 { StoreKind::Plain } else { kind };
        self.model.before_store(kind, thread, floors);
    }

    fn stored(&self, kind: StoreKind, store: LineStore, floors: &mut Floors) {
        floors.writers.insert(store.line, store.thread);
        self.model.stored(kind, store, floors);
    }

    fn written_by_kernel(&self, store: LineStore, floors: &mut Floors) {
        self.model.written_by_kernel(store, floors);
    }

    fn flush(&self, kind: FlushKind, thread: ThreadId, line: LineId, floors: &mut Floors) {
        if self.flush_wrongly(kind, thread, line, floors) {
            return;
        }
        self.model.flush(kind, thread, line, floors);
        match self.fault {
            Fault::FlushDecidesNonTemporal => {
                for event in floors.promised_units(line) {
                    floors.guarantee_units(line, event);
                }
            }
            Fault::ClflushAtOnce => floors.keep(Until::AnyInstruction),
            Fault::IgnoreR5 => floors.keep(Until::FenceOf(thread)),
            _ => {}
        }
    }

    fn fence(&self, kind: FenceKind, thread: ThreadId, floors: &mut Floors) {
        self.model.fence(kind, thread, floors);
        match self.fault {
            Fault::IgnoreR2 => floors.guarantee_everything(),
            Fault::AnyFence => {
                floors.waiting_threads().into_iter().for_each(|other| floors.keep(Until::FenceOf(other)))
            }
            _ => {}
        }
    }

    fn operation_return(&self, kind: OperationKind, floors: &mut Floors) {
        self.model.operation_return(kind, floors);
        if self.fault == Fault::IgnoreR10 && kind == OperationKind::Open {
            floors.guarantee_everything();
        }
    }
}
