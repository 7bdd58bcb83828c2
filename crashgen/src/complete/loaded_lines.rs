// SPDX-License-Identifier: Apache-2.0
//! The lines that the runs of a window loaded, numbered: a node of the trie has four bytes for one.

use super::UnitKey;
use super::trie::Load;
use crate::model::{LineId, LineKey, Model};
use crate::trace::{LINE_BYTES, UNIT_BYTES};
use rustc_hash::FxHashMap;

/// All lines that were loaded.
#[derive(Default)]
pub(super) struct LoadedLines {
    numbers: FxHashMap<LineKey, u32>,
    /// By number.
    lines: Vec<LoadedLine>,
}

struct LoadedLine {
    key: LineKey,
    /// Its number in the model when it was last asked for. Nearly all models that a search sees have the same.
    found: Option<LineId>,
    /// A bit for each unit that is a load of the trie.
    loaded: u8,
    /// A bit for each unit that [`LoadedLines::distinct`] came to.
    seen: u8,
}

impl LoadedLines {
    /// Memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.lines.len() * (size_of::<LoadedLine>() + size_of::<(LineKey, u32)>())
    }

    /// The number of a line that some run loaded.
    pub fn number_of(&self, key: LineKey) -> Option<u32> {
        self.numbers.get(&key).copied()
    }

    /// The units as loads, in the order of the run, each once.
    pub fn distinct(&mut self, units: &[UnitKey]) -> Vec<Load> {
        let mut loads = Vec::with_capacity(units.len());
        let mut last: Option<(LineKey, u32)> = None;
        for unit in units {
            let (key, unit) = unit.line_and_unit();
            let line = last.filter(|(last, _)| *last == key).map_or_else(|| self.number(key), |(_, line)| line);
            last = Some((key, line));
            let loaded = &mut self.lines[line as usize];
            if loaded.seen >> unit & 1 == 0 {
                loaded.seen |= 1 << unit;
                loads.push(Load { line, unit });
            }
        }
        loads.iter().for_each(|load| self.lines[load.line as usize].seen = 0);
        loads
    }

    fn number(&mut self, key: LineKey) -> u32 {
        let next = self.lines.len() as u32;
        *self.numbers.entry(key).or_insert_with(|| {
            self.lines.push(LoadedLine { key, found: None, loaded: 0, seen: 0 });
            next
        })
    }

    /// The load is one of the trie's.
    pub fn add(&mut self, load: Load) {
        self.lines[load.line as usize].loaded |= 1 << load.unit;
    }

    /// Whether the unit is a load of the trie.
    pub fn is_loaded(&self, unit: UnitKey) -> bool {
        let (key, unit) = unit.line_and_unit();
        self.number_of(key).is_some_and(|line| self.lines[line as usize].loaded >> unit & 1 == 1)
    }

    /// The units that are loads of the trie.
    pub fn loaded(&self) -> impl Iterator<Item = UnitKey> {
        let units = |line: &LoadedLine| {
            let loaded = line.loaded;
            UnitKey::of_line(line.key).filter(move |unit| loaded >> unit.line_and_unit().1 & 1 == 1)
        };
        self.lines.iter().flat_map(units)
    }

    /// The line of a load.
    pub fn key(&self, load: Load) -> LineKey {
        self.lines[load.line as usize].key
    }

    /// What a load loads.
    pub fn unit(&self, load: Load) -> UnitKey {
        let LineKey { file, number } = self.key(load);
        UnitKey { file, number: number * (LINE_BYTES / UNIT_BYTES) + u64::from(load.unit) }
    }

    /// [`Model::find`] of a load's line; the last answer is tried first.
    pub fn find(&mut self, model: &Model, load: Load) -> Option<LineId> {
        let LoadedLine { key, found, .. } = &mut self.lines[load.line as usize];
        if found.is_none_or(|id| !model.has(id, *key)) {
            *found = model.find(*key);
        }
        *found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::FileId;

    fn units(numbers: &[u64]) -> Vec<UnitKey> {
        numbers.iter().map(|number| UnitKey { file: FileId(0), number: *number }).collect()
    }

    #[test]
    fn loads_are_the_units_of_a_run_in_their_order_each_once() {
        let mut lines = LoadedLines::default();
        for run in [[8, 9, 0, 8, 15, 9, 0, 16, 0], [16, 0, 16, 8, 8, 0, 9, 0, 16]] {
            let mut expected: Vec<u64> = Vec::new();
            run.iter().for_each(|number| expected.extend((!expected.contains(number)).then_some(number)));
            let loads = lines.distinct(&units(&run));
            assert_eq!(loads.iter().map(|load| lines.unit(*load).number).collect::<Vec<_>>(), expected);
        }
        assert!(lines.loaded().next().is_none(), "they are loads of the trie when they are added to it");
    }

    #[test]
    fn what_is_loaded_is_what_was_added() {
        let mut lines = LoadedLines::default();
        let loads = lines.distinct(&units(&[3, 8, 23, 4, 5]));
        loads[..3].iter().for_each(|load| lines.add(*load));
        assert_eq!(lines.loaded().collect::<Vec<_>>(), units(&[3, 8, 23]));
        assert_eq!((0..32).filter(|unit| lines.is_loaded(units(&[*unit])[0])).collect::<Vec<_>>(), [3, 8, 23]);
        assert!(!lines.is_loaded(UnitKey { file: FileId(1), number: 3 }));
    }
}
