// SPDX-License-Identifier: Apache-2.0
//! `mixed`: the two ends of each position, and between them everything where a position has few states, or some at random. For targets
//! whose loads cannot be seen.

use super::{Asked, Exhaustive, Floor, Instead, Prefix, Reach, Sample, Strategy, Visit};
use std::ops::ControlFlow;

/// prefix, floor, and exhaustive or sample.
pub struct Mixed;

impl Strategy for Mixed {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn runs(&self) -> &'static str {
        "prefix, floor, and exhaustive where a position has few states, sample elsewhere"
    }

    fn reach(&self) -> Reach {
        Reach::Drawn
    }

    fn instead(&self, asked: &Asked) -> Option<Instead> {
        let limit = u128::from(asked.options.exhaustive_states);
        let is_small = asked.view.state_count().is_some_and(|count| count <= limit);
        let between: &dyn Strategy = if is_small { &Exhaustive } else { &Sample };
        Some(Instead { strategies: vec![&Prefix, &Floor, between], bound: None })
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        let parts = self.instead(asked).map(|instead| instead.strategies).unwrap_or_default();
        parts.into_iter().try_for_each(|part| part.states(asked, visit))
    }
}
