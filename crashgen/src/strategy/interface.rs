// SPDX-License-Identifier: Apache-2.0
//! What a strategy is, and what it is asked for.

use crate::model::{Choice, View};
use std::ops::ControlFlow;

/// The whole extension point.
///
/// A method that a strategy leaves out says what is usual: it chooses states, its own, and no bound leaves out any of them.
pub trait Strategy: Sync {
    /// As `--strategy` spells it; certificates and findings name it so.
    fn name(&self) -> &'static str;

    /// Which states it runs, in a few words for lists of strategies.
    fn runs(&self) -> &'static str;

    /// How much of a position it runs.
    fn reach(&self) -> Reach;

    /// Visits the states of the position that it runs, in a fixed order.
    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()>;

    /// The strategies that run at the position in its place; none: it runs itself.
    fn instead(&self, _asked: &Asked) -> Option<Instead> {
        None
    }

    /// Of a strategy that is cumulative ([`Reach::is_cumulative`]): whether no bound of its own leaves out any of what it is to run at the
    /// position.
    fn is_whole(&self, _view: &View) -> bool {
        true
    }

    /// What it covers of the combinations of choices that it is to cover; none: it is not about combinations.
    fn coverage(&self, _asked: &Asked) -> Option<Coverage> {
        None
    }

    /// Whether the states are explored by what recovery loads of them, not one by one ([`crate::complete`]). That needs a build with hooks;
    /// where it is not possible [`super::WITHOUT_LOADS`] runs.
    fn follows_loads(&self) -> bool {
        false
    }
}

/// What a strategy is asked for at a crash position.
#[derive(Clone, Copy)]
pub struct Asked<'v> {
    /// What the position shows.
    pub view: &'v View,
    /// Which of its states.
    pub scope: Scope,
    /// Number of the position in its case, so that equal cases draw equal samples.
    pub position: u32,
    /// What a user may set.
    pub options: Options,
}

impl<'v> Asked<'v> {
    /// All states of a position, with options that leave nothing to chance.
    pub fn all(view: &'v View) -> Self {
        Self { view, scope: Scope::All, position: 0, options: Options::default() }
    }
}

/// What a user may set; each strategy takes what it needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Seeds what is drawn: the same seed gives the same states.
    pub seed: u64,
    /// States drawn at a position.
    pub samples: u32,
    /// `mixed` enumerates a position that has at most this many states.
    pub exhaustive_states: u64,
}

/// Which states of a position are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that are reachable: what was expected of the heap changed, or the position before was not covered.
    All,
    /// Those born with the last event: the others were run at the position before, and nothing else changed.
    Born,
}

/// How much of a position a strategy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One state or two.
    Few,
    /// Some, at random.
    Drawn,
    /// Each combination of the choices of some lines.
    Combinations,
    /// Every state in scope.
    All,
}

impl Reach {
    /// Whether what ran at the positions before need not be run again: [`Scope::Born`] is enough.
    pub fn is_cumulative(self) -> bool {
        matches!(self, Self::Combinations | Self::All)
    }
}

/// What runs at a position in the place of a strategy.
pub struct Instead {
    /// One after the other.
    pub strategies: Vec<&'static dyn Strategy>,
    /// The bound for which they do, for the certificate; none: that is what the strategy is.
    pub bound: Option<String>,
}

/// Of one position: combinations of so many lines in scope, and how many of them are in a state that is run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Lines that are combined.
    pub strength: usize,
    /// That there are.
    pub tuples: f64,
    /// That are run at least.
    pub covered: f64,
    /// All are.
    pub is_whole: bool,
}

/// Called with one choice for each line of the view, in their order.
pub type Visit<'a> = dyn FnMut(&[Choice]) -> ControlFlow<()> + 'a;

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
    pub fn by(strategies: &[&dyn Strategy], view: &View) -> Self {
        let cumulative = || strategies.iter().filter(|strategy| strategy.reach().is_cumulative());
        match cumulative().all(|strategy| strategy.is_whole(view)) {
            _ if cumulative().next().is_none() => Self::Nothing,
            true => Self::Whole,
            false => Self::Partly,
        }
    }

    /// What is asked for at the next position, of which so much can be covered. What a bound left out here is run where it can be, though
    /// no store is new.
    pub fn next_scope(self, next: Self) -> Scope {
        let is_more = self < next;
        if self == Self::Nothing || is_more { Scope::All } else { Scope::Born }
    }
}
