// SPDX-License-Identifier: Apache-2.0
//! `floor`: at each crash position only what is guaranteed. The worst image in which nothing was evicted.

use super::{Scope, Strategy, Visit};
use crate::model::View;
use std::ops::ControlFlow;

/// Nothing beyond the floor persisted.
pub struct Floor;

impl Strategy for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn states(&self, _position: u32, view: &View, _scope: Scope, visit: &mut Visit) -> ControlFlow<()> {
        visit(&view.floor_state())
    }
}
