// SPDX-License-Identifier: Apache-2.0
//! `exhaustive`: the whole product of the lines' choices. For small traces; the yardstick of every cleverer strategy.

use super::{Asked, Floor, Instead, Prefix, Reach, Scope, Strategy, Visit};
use std::ops::ControlFlow;

/// A position of at most this many states is enumerated (an hour of recoveries); the certificate names one of more.
const LIMIT: u128 = 1 << 24;

/// Every state in scope, counting like an odometer: the last line turns fastest, each from its floor up.
pub struct Exhaustive;

impl Strategy for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn runs(&self) -> &'static str {
        "every combination, where there are at most 16 million"
    }

    fn reach(&self) -> Reach {
        Reach::All
    }

    fn instead(&self, asked: &Asked) -> Option<Instead> {
        let is_small = asked.view.state_count().is_some_and(|count| count <= LIMIT);
        let bound = || Some(format!("a position has more than {LIMIT} states: only prefix and floor there"));
        (!is_small).then(|| Instead { strategies: vec![&Prefix, &Floor], bound: bound() })
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        let view = asked.view;
        let mut numbers = vec![0u128; view.lines.len()];
        let mut state = view.floor_state();
        loop {
            if asked.scope == Scope::All || view.is_born(&state) {
                visit(&state)?;
            }
            let Some(turning) = (0..numbers.len()).rev().find(|at| numbers[*at] + 1 < view.lines[*at].choice_count())
            else {
                return ControlFlow::Continue(());
            };
            numbers[turning] += 1;
            numbers[turning + 1..].fill(0);
            for at in turning..numbers.len() {
                state[at] = view.lines[at].choice(numbers[at]);
            }
        }
    }
}
