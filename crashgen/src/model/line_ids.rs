// SPDX-License-Identifier: Apache-2.0
//! Numbers of lines, by file and number in the file.

use crate::trace::{FileId, LineKey};
use std::collections::BTreeMap;

/// Number of a line in the model ([`super::Model::line`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineId(pub u32);

/// Lines of one entry of the map: neighbours are asked for one after the other.
const GROUP_LINES: u64 = 64;

/// The lines that were ever stored to or flushed.
#[derive(Clone, Default)]
pub(super) struct LineIds {
    groups: BTreeMap<(FileId, u64), [Option<LineId>; GROUP_LINES as usize]>,
}

impl LineIds {
    pub fn find(&self, key: LineKey) -> Option<LineId> {
        self.groups.get(&(key.file, key.number / GROUP_LINES))?[(key.number % GROUP_LINES) as usize]
    }

    pub fn insert(&mut self, key: LineKey, id: LineId) {
        let group = self.groups.entry((key.file, key.number / GROUP_LINES)).or_insert([None; GROUP_LINES as usize]);
        group[(key.number % GROUP_LINES) as usize] = Some(id);
    }

    /// The file's lines from `first` to `last`, both included, in order: their numbers in the file and here.
    pub fn range(&self, file: FileId, first: u64, last: u64) -> impl Iterator<Item = (u64, LineId)> {
        let groups = self.groups.range((file, first / GROUP_LINES)..=(file, last / GROUP_LINES));
        let lines = groups.flat_map(|((_, group), ids)| (group * GROUP_LINES..).zip(ids));
        lines
            .filter_map(|(number, id)| Some((number, (*id)?)))
            .filter(move |(number, _)| (first..=last).contains(number))
    }
}
