// SPDX-License-Identifier: Apache-2.0
//! `strict`: stores persist in program order as they are made, as strict persistency has it (Pelley et al., ISCA 2014). At each crash
//! position it leaves what `process-crash` does, for another reason.

use super::ProcessCrash;
use crate::model::{Floors, LineStore, PersistencyModel};
use crate::trace::StoreKind;

/// Program order.
pub struct Strict;

impl PersistencyModel for Strict {
    fn name(&self) -> &'static str {
        "strict"
    }

    fn survives(&self) -> &'static str {
        "stores in program order"
    }

    fn loses_file_operations(&self) -> bool {
        false
    }

    fn stored(&self, kind: StoreKind, store: LineStore, floors: &mut Floors) {
        ProcessCrash.stored(kind, store, floors);
    }

    fn written_by_kernel(&self, store: LineStore, floors: &mut Floors) {
        ProcessCrash.written_by_kernel(store, floors);
    }
}
