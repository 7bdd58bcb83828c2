// SPDX-License-Identifier: Apache-2.0
//! The persistency models: one file each, and one entry of [`ALL`].

mod eadr;
mod process_crash;
mod px86;
mod px86_returned;
mod strict;

pub use eadr::Eadr;
pub use process_crash::ProcessCrash;
pub use px86::Px86;
pub use px86_returned::Px86Returned;
pub use strict::Strict;

use super::persistency::PersistencyModel;
use std::fmt;

/// Every model, the default first. Commands, configurations and the front of the engine have no other list.
pub const ALL: &[&dyn PersistencyModel] = &[&Px86, &Px86Returned, &Eadr, &ProcessCrash, &Strict];

/// The model with this name.
///
/// # Errors
/// Names those that there are.
pub fn find(name: &str) -> Result<&'static dyn PersistencyModel, UnknownModel> {
    let found = ALL.iter().copied().find(|model| model.name() == name);
    found.ok_or_else(|| UnknownModel { name: name.to_owned() })
}

/// There is no such model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("model {name:?}: expected {}", names())]
pub struct UnknownModel {
    name: String,
}

/// `a, b or c`.
fn names() -> String {
    let mut names: Vec<&str> = ALL.iter().map(|model| model.name()).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

impl fmt::Debug for dyn PersistencyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// By its name.
impl<'de> serde::Deserialize<'de> for &'static dyn PersistencyModel {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        find(&String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}
