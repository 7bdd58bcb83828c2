// SPDX-License-Identifier: Apache-2.0
//! Strategies: which states of a crash position are run. One file each, and one entry of [`ALL`]; a strategy sees nothing but what the
//! position shows ([`Strategy`]).

mod complete;
mod exhaustive;
mod floor;
mod interface;
mod mixed;
mod pairwise;
mod prefix;
mod replay;
mod sample;
#[cfg(test)]
mod tests;

pub use complete::Complete;
pub use exhaustive::Exhaustive;
pub use floor::Floor;
pub use interface::{Asked, Coverage, Covered, Instead, Options, Reach, Scope, Strategy, Visit};
pub use mixed::Mixed;
pub use pairwise::{CHOICES, Pairwise};
pub use prefix::Prefix;
pub use replay::Replay;
pub use sample::Sample;

use std::fmt;

/// Every strategy that a user may choose, the default first. Commands, configurations and the front of the engine have no other list.
pub const ALL: &[&dyn Strategy] = &[
    &Complete,
    &Mixed,
    &Prefix,
    &Floor,
    &Exhaustive,
    &Sample,
    &Pairwise { strength: 2 },
    &Pairwise { strength: pairwise::STRENGTH },
];

/// What runs where a strategy that follows loads is not possible.
pub const WITHOUT_LOADS: &dyn Strategy = &Mixed;

/// The strategy with this name.
///
/// # Errors
/// Names those that there are.
pub fn find(name: &str) -> Result<&'static dyn Strategy, UnknownStrategy> {
    let found = ALL.iter().copied().find(|strategy| strategy.name() == name);
    found.ok_or_else(|| UnknownStrategy { name: name.to_owned() })
}

/// There is no such strategy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("strategy {name:?}: expected {}", names())]
pub struct UnknownStrategy {
    name: String,
}

/// `a, b or c`.
fn names() -> String {
    let mut names: Vec<&str> = ALL.iter().map(|strategy| strategy.name()).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

impl fmt::Debug for dyn Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By its name.
impl<'de> serde::Deserialize<'de> for &'static dyn Strategy {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        find(&String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}
