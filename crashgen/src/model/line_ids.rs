// SPDX-License-Identifier: Apache-2.0
//! Numbers of lines, by file and place.

use crate::trace::{FileId, LineKey};
use std::collections::BTreeMap;

/// Number of a line in the model ([`super::Model::line`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineId(pub u32);

/// Lines whose numbers are kept together: neighbours are asked for one after the other.
const PAGE_LINES: u64 = 64;

/// The lines that were ever stored to or flushed.
#[derive(Clone, Default)]
pub(super) struct LineIds {
    pages: BTreeMap<(FileId, u64), [Option<LineId>; PAGE_LINES as usize]>,
}

impl LineIds {
    pub fn find(&self, key: LineKey) -> Option<LineId> {
        self.pages.get(&(key.file, key.number / PAGE_LINES))?[(key.number % PAGE_LINES) as usize]
    }

    pub fn insert(&mut self, key: LineKey, id: LineId) {
        let page = self.pages.entry((key.file, key.number / PAGE_LINES)).or_insert([None; PAGE_LINES as usize]);
        page[(key.number % PAGE_LINES) as usize] = Some(id);
    }

    /// The file's lines from `first` to `last`, both included, in order: their numbers in the file and here.
    pub fn range(&self, file: FileId, first: u64, last: u64) -> impl Iterator<Item = (u64, LineId)> {
        let pages = self.pages.range((file, first / PAGE_LINES)..=(file, last / PAGE_LINES));
        let lines = pages.flat_map(|((_, page), ids)| (page * PAGE_LINES..).zip(ids));
        lines
            .filter_map(|(number, id)| Some((number, (*id)?)))
            .filter(move |(number, _)| (first..=last).contains(number))
    }
}
