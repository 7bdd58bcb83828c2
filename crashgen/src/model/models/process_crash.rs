// SPDX-License-Identifier: Apache-2.0
//! `process-crash`: kill -9. The machine goes on, and with it everything that was stored.

use crate::model::{Floors, LineStore, PersistencyModel};
use crate::trace::StoreKind;

/// Every store survives.
pub struct ProcessCrash;

impl PersistencyModel for ProcessCrash {
    fn name(&self) -> &'static str {
        "process-crash"
    }

    fn survives(&self) -> &'static str {
        "every store: kill -9"
    }

    fn loses_file_operations(&self) -> bool {
        false
    }

    fn stored(&self, _kind: StoreKind, store: LineStore, floors: &mut Floors) {
        floors.guarantee(store.line);
        floors.guarantee_units(store.line, store.event);
    }

    fn written_by_kernel(&self, store: LineStore, floors: &mut Floors) {
        floors.guarantee_units(store.line, store.event);
    }
}
