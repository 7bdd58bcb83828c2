// SPDX-License-Identifier: Apache-2.0
//! Which units of an origin an exploration depends on.
//!
//! The origin is a crash position from which an exploration goes on ([`crate::model::Model::set_origin`]). A unit that was overwritten since
//! then, in all of its choices, no longer shows what the origin held, so nothing that loads it depends on the origin. What loads any other
//! unit does. A unit that was noted stays noted when it is overwritten later.

use crate::model::{LineId, LineKey, Model};
use rustc_hash::FxHashMap;

/// Units of the heap.
#[derive(Clone, Debug, Default)]
pub struct Dependencies {
    /// A bit for each unit of a line.
    lines: FxHashMap<LineKey, u8>,
}

impl Dependencies {
    /// These units of a line, a bit for each, are loaded as they are now; `line`: its number, if the model has it.
    pub fn add(&mut self, key: LineKey, units: u8, line: Option<LineId>, model: &Model) {
        let units = units & !line.map_or(0, |line| model.overwritten(line));
        self.join(std::iter::once((key, units)));
    }

    /// All of these units, too: lines with a bit for each unit.
    pub fn join(&mut self, others: impl Iterator<Item = (LineKey, u8)>) {
        others.filter(|(_, units)| *units != 0).for_each(|(line, units)| *self.lines.entry(line).or_default() |= units);
    }

    /// Each line with a bit for each of its units.
    pub fn lines(&self) -> impl Iterator<Item = (LineKey, u8)> {
        self.lines.iter().map(|(line, units)| (*line, *units))
    }
}
