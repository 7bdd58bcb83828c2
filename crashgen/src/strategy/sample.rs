// SPDX-License-Identifier: Apache-2.0
//! `sample`: states drawn uniformly, seeded, with replacement. For positions with too many of them.

use super::{Asked, Reach, Scope, Strategy, Visit};
use crate::model::{Choice, View};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use std::ops::ControlFlow;

/// Draws that missed the newest store before one is taken as it is: a store across many lines is hit at once, a store to one
/// line of many choices is hit with chance 1/2 at worst.
const DRAWS_FOR_BORN: u32 = 64;

/// As many states of each position as are asked for. Seed and position seed the draws.
pub struct Sample;

impl Strategy for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn runs(&self) -> &'static str {
        "some, drawn at random"
    }

    fn reach(&self) -> Reach {
        Reach::Drawn
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        let mut random = random(asked);
        for _ in 0..asked.options.samples {
            let mut state = draw(asked.view, &mut random);
            for _ in 0..DRAWS_FOR_BORN {
                if asked.scope == Scope::All || asked.view.is_born(&state) {
                    break;
                }
                state = draw(asked.view, &mut random);
            }
            visit(&state)?;
        }
        ControlFlow::Continue(())
    }
}

/// Seeded with what is asked for.
pub(super) fn random(asked: &Asked) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(asked.options.seed) << 64 | u128::from(asked.position) << 1 | 1)
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
