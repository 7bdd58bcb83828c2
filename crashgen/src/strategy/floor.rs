// SPDX-License-Identifier: Apache-2.0
//! `floor`: at each crash position only what is guaranteed. The worst image in which nothing was evicted.

use super::{Asked, Reach, Strategy, Visit};
use std::ops::ControlFlow;

/// Nothing beyond the floor persisted.
pub struct Floor;

impl Strategy for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn runs(&self) -> &'static str {
        "only what is guaranteed"
    }

    fn reach(&self) -> Reach {
        Reach::Few
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        visit(&asked.view.floor_state())
    }
}
