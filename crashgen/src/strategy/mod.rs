// SPDX-License-Identifier: Apache-2.0
//! Strategies: which states of a crash position are run. One file each; a strategy sees nothing but the [`View`].

mod exhaustive;
mod floor;
mod pairwise;
mod prefix;
mod sample;
#[cfg(test)]
mod tests;

pub use exhaustive::Exhaustive;
pub use floor::Floor;
pub use pairwise::{CHOICES, Coverage, Pairwise};
pub use prefix::Prefix;
pub use sample::Sample;

use crate::model::{Choice, View};
use std::ops::ControlFlow;

/// Which states of a position are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that are reachable: what was expected of the heap changed, or the position before was not covered.
    All,
    /// Those born with the last event: the others were run at the position before, and nothing else changed.
    Born,
}

/// Called with one choice for each line of the view, in their order.
pub type Visit<'a> = dyn FnMut(&[Choice]) -> ControlFlow<()> + 'a;

/// The whole extension point.
pub trait Strategy {
    /// As on the command line.
    fn name(&self) -> &'static str;
    /// Whether it visits every state in scope.
    fn is_exhaustive(&self) -> bool {
        false
    }
    /// Whether what it ran at the positions before need not be run again: [`Scope::Born`] is enough.
    fn is_cumulative(&self) -> bool {
        self.is_exhaustive()
    }
    /// Visits states of the position in a fixed order.
    fn states(&self, position: u32, view: &View, scope: Scope, visit: &mut Visit) -> ControlFlow<()>;
}
