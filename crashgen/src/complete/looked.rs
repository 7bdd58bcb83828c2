// SPDX-License-Identifier: Apache-2.0
//! What of the origin the walks of a pass looked at.
//!
//! The origin is a crash position from which a pass goes on ([`crate::model::Model::set_origin`]). A unit that was overwritten since, in
//! all of its choices, holds the same whatever it held there; of the others a look is noted. Nothing is noted twice where that
//! would cost: a unit that was not overwritten when it was first looked at counts, whatever comes later.

use crate::model::{LineId, LineKey, Model};
use rustc_hash::FxHashMap;

/// Units of the heap.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// A bit for each unit of a line.
    lines: FxHashMap<LineKey, u8>,
}

impl Looked {
    /// At these units of a line as they are now, a bit for each; `line`: the model's, if it has it.
    pub fn at(&mut self, key: LineKey, units: u8, line: Option<LineId>, model: &Model) {
        let units = units & !line.map_or(0, |line| model.overwritten(line));
        self.join(std::iter::once((key, units)));
    }

    /// At all of these, too, as far as the mask of a line allows.
    pub fn join(&mut self, others: impl Iterator<Item = (LineKey, u8)>) {
        others.filter(|(_, units)| *units != 0).for_each(|(line, units)| *self.lines.entry(line).or_default() |= units);
    }

    /// Each line with a bit for each unit that was looked at.
    pub fn lines(&self) -> impl Iterator<Item = (LineKey, u8)> {
        self.lines.iter().map(|(line, units)| (*line, *units))
    }
}
