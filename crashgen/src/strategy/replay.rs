// SPDX-License-Identifier: Apache-2.0
//! `replay`: the one state that a token names. No user chooses it by name: a token does.

use super::{Asked, Reach, Strategy, Visit};
use crate::model::Choice;
use std::ops::ControlFlow;

/// A state that was recorded.
pub struct Replay {
    /// One choice for each line of the view.
    pub choices: Vec<Choice>,
}

impl Strategy for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn runs(&self) -> &'static str {
        "the state that a token names"
    }

    fn reach(&self) -> Reach {
        Reach::Few
    }

    fn states(&self, _asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        visit(&self.choices)
    }
}
