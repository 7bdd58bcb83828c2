// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: every reader of bytes from outside that is written in Rust. `fuzz/README.md` says how they are run.
//!
//! A target is given bytes and panics when a claim fails. Three claims hold for every reader, whatever the bytes: it ends, it
//! does not panic, and what it refuses it refuses in one line. What it accepts must be printed back to the same thing, or read
//! to the same thing again; each target says what more it claims.

mod plant;
mod readers;
mod trace;

/// The engine's configuration is part of its binary.
#[allow(dead_code)]
#[path = "../../crashgen/engine/src/base"]
mod base {
    pub mod config;
    pub mod error;
}

pub use trace::mutated_cells;

/// Whether an input may be kept when it takes a new way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It may.
    Keep,
    /// It does not come to our reader: what lies before (UTF-8, JSON) is not fuzzed here, and would fill the corpus.
    Drop,
}

/// A reader and its claims.
pub type Target = fn(&[u8]) -> Worth;

/// By name, which is also the name of its folder in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 6] = [
    ("trace", trace::trace),
    ("token", readers::token),
    ("litmus", readers::litmus),
    ("log", readers::log),
    ("report", readers::report),
    ("config", readers::config),
];

/// The target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(other, _)| *other == name).map(|(_, target)| *target)
}

/// What a reader refuses it refuses in one line that says something.
fn check_refusal(message: &str) {
    assert!(!message.is_empty(), "a refusal without a word");
    assert!(!message.chars().any(char::is_control), "a refusal of more than one line: {message:?}");
}
