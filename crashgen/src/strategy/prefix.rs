// SPDX-License-Identifier: Apache-2.0
//! `prefix`: at each crash position the program-order prefix. A first look.

use super::{Scope, Strategy, Visit};
use crate::model::View;
use std::ops::ControlFlow;

/// Everything before the position persisted.
pub struct Prefix;

impl Strategy for Prefix {
    fn name(&self) -> &'static str {
        "prefix"
    }

    fn states(&self, _position: u32, view: &View, _scope: Scope, visit: &mut Visit) -> ControlFlow<()> {
        visit(&view.prefix_state())
    }
}
