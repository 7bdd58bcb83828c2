// SPDX-License-Identifier: Apache-2.0
//! What the runner's scans of objects read in the runs of a window, line by line. Objects have thousands of lines, and most runs read the
//! same of most of them, so each different line is stored once.

use super::{ChoiceSet, Tables, UnitKey};
use crate::model::{LineId, LineKey, Model};
use crate::trace::UNIT_BYTES;
use rustc_hash::FxHashMap;

const LINE_UNITS: usize = (crate::trace::LINE_BYTES / UNIT_BYTES) as usize;

/// What was read of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScannedLine {
    /// Which one.
    pub key: LineKey,
    /// A bit for each unit that was read.
    pub units: u8,
    /// What they held; 0 for the others.
    values: [u64; LINE_UNITS],
}

/// All scanned lines, numbered.
#[derive(Default)]
pub(super) struct Scanned {
    numbers: FxHashMap<ScannedLine, u32>,
    /// By number.
    lines: Vec<(ScannedLine, Compared)>,
}

/// The result of the line's last comparison with a model.
#[derive(Clone, Copy, Default)]
struct Compared {
    line: Option<LineId>,
    /// The line's version then, and whether each of its choices held what was read.
    found: Option<(u64, bool)>,
}

impl ScannedLine {
    fn holds(&self, value: impl Fn(u8) -> u64) -> bool {
        (0..LINE_UNITS as u8).all(|unit| self.units & 1 << unit == 0 || value(unit) == self.values[usize::from(unit)])
    }
}

impl Scanned {
    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.lines.len() * (2 * size_of::<ScannedLine>() + size_of::<Compared>() + size_of::<u32>())
    }

    /// The numbers of the lines of these units, with their values, in order.
    pub fn add(&mut self, units: impl Iterator<Item = (UnitKey, u64)>) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut last: Option<ScannedLine> = None;
        for (unit, value) in units {
            let (key, place) = unit.line_and_unit();
            if let Some(other) = last.take_if(|line| line.key != key) {
                numbers.push(self.number(other));
            }
            let line = last.get_or_insert(ScannedLine { key, units: 0, values: [0; LINE_UNITS] });
            line.units |= 1 << place;
            line.values[usize::from(place)] = value;
        }
        numbers.extend(last.map(|line| self.number(line)));
        numbers
    }

    fn number(&mut self, line: ScannedLine) -> u32 {
        *self.numbers.entry(line).or_insert_with(|| {
            self.lines.push((line, Compared::default()));
            self.lines.len() as u32 - 1
        })
    }

    /// A scanned line, and its number in the model; the last answer is tried first.
    pub fn find(&mut self, number: u32, model: &Model) -> (ScannedLine, Option<LineId>) {
        let (line, known) = &mut self.lines[number as usize];
        if known.line.is_none_or(|id| !model.has(id, line.key)) {
            *known = Compared { line: model.find(line.key), found: None };
        }
        (*line, known.line)
    }

    /// Whether each choice of the set holds what was read; none: all choices. The line is the one that [`Scanned::find`] found.
    pub fn is_held(&mut self, number: u32, model: &Model, tables: &mut Tables, set: Option<&ChoiceSet>) -> bool {
        let (scanned, known) = &mut self.lines[number as usize];
        let Some(id) = known.line else { return scanned.holds(|_| 0) };
        let version = model.line(id).version();
        match (set, known.found) {
            (None, Some((compared, is_held))) if compared == version => return is_held,
            _ => {}
        }
        let choices = tables.of(model, id);
        let is_held = |member: &u32| scanned.holds(|unit| choices.unit(*member, unit));
        let is_held = set.unwrap_or(&choices.all).iter().all(is_held);
        if set.is_none() {
            known.found = Some((version, is_held));
        }
        is_held
    }
}
