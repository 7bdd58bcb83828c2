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
use planted::Fault;
use std::ops::ControlFlow;

/// Which states of a position are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that are reachable: what was expected of the heap changed, or the position before was not covered.
    All,
    /// Those born with the last event: the others were run at the position before, and nothing else changed.
    Born,
}

/// How much of what cumulative strategies are to run at a position they do run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Covered {
    /// None is cumulative.
    Nothing,
    /// A bound leaves some of it out.
    Partly,
    /// All of it.
    Whole,
}

impl Covered {
    /// Of a position where these run.
    pub fn by(strategies: &[Box<dyn Strategy>], view: &View) -> Self {
        let cumulative: Vec<_> = strategies.iter().filter(|strategy| strategy.is_cumulative()).collect();
        match cumulative.iter().all(|strategy| strategy.is_whole(view)) {
            _ if cumulative.is_empty() => Self::Nothing,
            true => Self::Whole,
            false => Self::Partly,
        }
    }

    /// What is asked for at the next position, of which so much can be covered. What a bound left out here is run where it can be, though
    /// no store is new.
    pub fn next_scope(self, next: Self) -> Scope {
        let is_more = self < next && !planted::is(Fault::LeftOutIsCovered);
        if self == Self::Nothing || is_more { Scope::All } else { Scope::Born }
    }
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
    /// Of a cumulative one: whether no bound of its own leaves out any of what it is to run at the position.
    fn is_whole(&self, _view: &View) -> bool {
        true
    }
    /// Visits states of the position in a fixed order.
    fn states(&self, position: u32, view: &View, scope: Scope, visit: &mut Visit) -> ControlFlow<()>;
}
