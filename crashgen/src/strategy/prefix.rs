// SPDX-License-Identifier: Apache-2.0
//! `prefix`: at each crash position the program-order prefix. A first look.

use super::{Asked, Reach, Strategy, Visit};
use std::ops::ControlFlow;

/// Everything before the position persisted.
pub struct Prefix;

impl Strategy for Prefix {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn runs(&self) -> &'static str {
        "at each crash position everything before it"
    }

    fn reach(&self) -> Reach {
        Reach::Few
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        visit(&asked.view.prefix_state())
    }
}
