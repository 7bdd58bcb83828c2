// SPDX-License-Identifier: Apache-2.0
//! `complete`: every crash state of every crash position, because the loads of recovery decide which states differ (lazily, after
//! Jaaru, ASPLOS 2021).
//!
//! # Why it is complete
//!
//! Recovery (with the probe script) is a deterministic function of what it loads. Two states that give it the same bytes at every
//! load end in the same heap report, so one run answers for both, and a line that nobody loads is never enumerated. Each line
//! that can hold more than one content carries the **set** of its remaining choices (a set, not an interval: torn stores and repeated
//! values make gaps). A load groups that set by the bytes it would see; each group is a branch, and the search goes on below it
//! with the choices of that group alone. LoadedLines are independent (R2), so what is left at the end, one set a line, is a product
//! of states that all have this outcome; over all ends these products are the states of the crash position, each once.
//!
//! A target need not be stopped at a load. The search runs *one* state of the undecided sets to its end and reads in which order it
//! loaded what; the groups that this state is not in are branches for later runs ([`search`]).
//!
//! # What is remembered
//!
//! Which unit is loaded next depends on nothing but the values of the loads before. So runs form a trie ([`trie`]): a node is a
//! load, an edge the value seen there, a leaf an outcome. It knows no crash position: a position traverses it with the sets that
//! it allows, and what it finds there costs no recovery. A floor that rises makes sets smaller and so only takes leaves away; a
//! store that no node of the trie loads adds none.
//!
//! A trie spans one [`window`]: some consecutive crash positions between which no file changes. Units that hold one value in all
//! of the window's states need no node; the others are *varying*, and every load of a varying unit is a node, also where it has one
//! value now. In a window the answers of the file system are the same for all states, so they need no node either.
//!
//! | module | concept |
//! |---|---|
//! | [`window`] | where a trie's life begins and ends, and which units vary in between |
//! | [`choices`] | the contents a line can have, and sets of them |
//! | [`trie`] | the trie |
//! | [`search`] | the traversal of one crash position |
//! | `loaded_lines` | the lines that the trie loads |
//! | [`skips`] | which nodes a traversal may skip |
//! | `scanned` | what the runs of a window read of objects |
//! | [`dependencies`] | which units of an origin an exploration depends on |

pub mod choices;
pub mod dependencies;
mod loaded_lines;
mod scanned;
pub mod search;
mod skips;
#[cfg(test)]
mod tests;
pub mod trie;
pub mod window;

pub use choices::{ChoiceSet, LineChoices, Tables};
pub use dependencies::Dependencies;
pub use search::{Bounds, CrashPosition, LeafStates, Repeats, Search, Traversal};
pub use trie::{Leaf, LeafId};
pub use window::Window;

pub use crate::trace::UnitKey;

use crate::image::CrashImage;

/// What running recovery and probe script on a crash image showed.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The heap report, numbered by whoever keeps it: equal reports have equal numbers.
    pub outcome: u32,
    /// Varying units in the order in which the target first depended on what the crash left in them.
    pub loads: Vec<UnitKey>,
    /// Varying units that only the report's contents depend on.
    pub contents: Vec<UnitKey>,
    /// Why `loads` may not be all of them; such a run answers for no other state.
    pub doubt: Option<Doubt>,
}

/// Why a run says nothing of other states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Something is not as it should be: the verdict cannot be pass.
    Unknown(String),
    /// A limit of what can be followed: the crash position is not complete.
    Bound(&'static str),
}

impl Doubt {
    /// In words.
    pub fn text(self) -> String {
        match self {
            Self::Unknown(text) => text,
            Self::Bound(text) => text.to_owned(),
        }
    }
}

/// What runs recoveries.
pub trait Recoveries {
    /// Why no more can be run.
    type Stop;

    /// From now on these units vary.
    ///
    /// # Errors
    /// When the search has to end.
    fn watch(&mut self, varying: &[UnitKey]) -> Result<(), Self::Stop>;

    /// Runs recovery and probe script on the image.
    ///
    /// # Errors
    /// When the search has to end: a budget is used up, or nothing runs recoveries any more.
    fn run(&mut self, image: &mut CrashImage) -> Result<Run, Self::Stop>;

    /// Runs another state of a known leaf, to see whether it ends in the same way. It may be slower and more exact than [`Recoveries::run`].
    ///
    /// # Errors
    /// As [`Recoveries::run`].
    fn run_again(&mut self, image: &mut CrashImage) -> Result<Run, Self::Stop> {
        self.run(image)
    }

    /// Memory that the outcomes take, in bytes, about.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Whether a state with this outcome may be run a second time: one that hangs takes its whole limit again.
    fn is_worth_repeating(&self, _outcome: u32) -> bool {
        true
    }

    /// Whether two outcomes are the same but for contents, which belong to one state.
    fn is_same(&self, one: u32, other: u32) -> bool {
        one == other
    }
}
