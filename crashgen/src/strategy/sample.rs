// SPDX-License-Identifier: Apache-2.0
//! `sample`: states drawn uniformly, seeded. For positions with too many of them.

use super::{Scope, Strategy, Visit};
use crate::model::{Choice, View};
use planted::Fault;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use std::ops::ControlFlow;

/// Draws that missed the newest store before one is taken as it is: a store across many lines is hit at once, a store to one
/// line of many choices is hit with chance 1/2 at worst.
const DRAWS_FOR_BORN: u32 = 64;

/// `count` states of each position, with replacement.
pub struct Sample {
    /// States a position.
    pub count: u32,
    /// With the position, seeds the draws: the same seed gives the same states.
    pub seed: u64,
}

impl Strategy for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn states(&self, position: u32, view: &View, scope: Scope, visit: &mut Visit) -> ControlFlow<()> {
        let mut random = Pcg64Mcg::new(u128::from(self.seed) << 64 | u128::from(position) << 1 | 1);
        if planted::is(Fault::SampleUnseeded) {
            random = Pcg64Mcg::new(1);
        }
        for _ in 0..self.count {
            let mut state = draw(view, &mut random);
            for _ in 0..DRAWS_FOR_BORN {
                if scope == Scope::All || view.is_born(&state) {
                    break;
                }
                state = draw(view, &mut random);
            }
            visit(&state)?;
        }
        ControlFlow::Continue(())
    }
}

fn draw(view: &View, random: &mut Pcg64Mcg) -> Vec<Choice> {
    view.lines.iter().map(|line| line.choice(below(line.choice_count(), random))).collect()
}

/// Uniform in 0..bound, by rejection.
pub(super) fn below(bound: u128, random: &mut Pcg64Mcg) -> u128 {
    let mask = u128::MAX >> bound.leading_zeros();
    loop {
        let number = (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())) & mask;
        if number < bound {
            return number;
        }
    }
}
