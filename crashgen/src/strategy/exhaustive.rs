// SPDX-License-Identifier: Apache-2.0
//! `exhaustive`: the whole product of the lines' choices. For small traces; the yardstick of every cleverer strategy.

use super::{Scope, Strategy, Visit};
use crate::model::View;
use planted::Fault;
use std::ops::ControlFlow;

/// Every state in scope, counting like an odometer: the last line turns fastest, each from its floor up.
pub struct Exhaustive;

impl Strategy for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn is_exhaustive(&self) -> bool {
        true
    }

    fn states(&self, _position: u32, view: &View, scope: Scope, visit: &mut Visit) -> ControlFlow<()> {
        let mut numbers = vec![0u128; view.lines.len()];
        let mut state = view.floor_state();
        loop {
            if scope == Scope::All || view.is_born(&state) {
                visit(&state)?;
            }
            let Some(turning) = (0..numbers.len()).rev().find(|at| numbers[*at] + 1 < view.lines[*at].choice_count())
            else {
                return ControlFlow::Continue(());
            };
            if planted::is(Fault::SkipLastState) && numbers[..turning].iter().all(|number| *number > 0) {
                return ControlFlow::Continue(());
            }
            numbers[turning] += 1;
            numbers[turning + 1..].fill(0);
            for at in turning..numbers.len() {
                state[at] = view.lines[at].choice(numbers[at]);
            }
        }
    }
}
