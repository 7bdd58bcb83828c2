// SPDX-License-Identifier: Apache-2.0
//! `complete`: every state, explored by what recovery loads. Two states that give recovery the same bytes at every load end in the same
//! way, so that one recovery answers for both: [`crate::complete`] has the search.

use super::{Asked, Exhaustive, Reach, Strategy, Visit};
use std::ops::ControlFlow;

/// All states; not one by one.
pub struct Complete;

impl Strategy for Complete {
    fn name(&self) -> &'static str {
        "complete"
    }

    fn runs(&self) -> &'static str {
        "all, by what recovery loads, or mixed where its loads cannot be seen"
    }

    fn reach(&self) -> Reach {
        Reach::All
    }

    /// The states that it answers for.
    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        Exhaustive.states(asked, visit)
    }

    fn follows_loads(&self) -> bool {
        true
    }
}
