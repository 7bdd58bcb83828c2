// SPDX-License-Identifier: Apache-2.0
//! The lines that were ever stored to or flushed, by number and by key.

use super::line::{Line, next_version};
use super::line_ids::{LineId, LineIds};
use crate::trace::{FileId, LineKey};
use std::rc::Rc;

/// The lines of a model. A copy shows them as they were, when the model has gone on.
#[derive(Clone)]
pub struct Lines {
    /// By number; shared with the models of later generations until one changes.
    lines: Vec<Rc<Line>>,
    ids: Rc<LineIds>,
    /// When the generation began, or another origin was set: a number of its own.
    origin: u64,
}

impl Lines {
    /// None.
    pub(super) fn new() -> Self {
        Self { lines: Vec::new(), ids: Rc::default(), origin: next_version() }
    }

    /// The line with this key, if it was ever stored to or flushed.
    pub fn find(&self, key: LineKey) -> Option<&Rc<Line>> {
        self.id_of(key).map(|id| self.get(id))
    }

    /// Units of the line that were overwritten since the origin that the model had, in all choices: a bit for each.
    pub fn overwritten(&self, key: LineKey) -> u8 {
        self.find(key).map_or(0, |line| line.overwritten_since(self.origin))
    }

    pub(super) fn id_of(&self, key: LineKey) -> Option<LineId> {
        self.ids.find(key)
    }

    /// Its number, a new one if the line is new.
    pub(super) fn make_id(&mut self, key: LineKey) -> LineId {
        if let Some(known) = self.id_of(key) {
            return known;
        }
        let next = LineId(u32::try_from(self.lines.len()).expect("fewer than 2^32 lines"));
        Rc::make_mut(&mut self.ids).insert(key, next);
        self.lines.push(Rc::new(Line::new(key)));
        next
    }

    pub(super) fn get(&self, id: LineId) -> &Rc<Line> {
        &self.lines[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: LineId) -> &mut Line {
        Rc::make_mut(&mut self.lines[id.0 as usize])
    }

    pub(super) fn replace(&mut self, id: LineId, line: Line) {
        self.lines[id.0 as usize] = Rc::new(line);
    }

    pub(super) fn has(&self, id: LineId, key: LineKey) -> bool {
        self.lines.get(id.0 as usize).is_some_and(|line| line.key == key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rc<Line>> {
        self.lines.iter()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = LineId> + use<> {
        (0..self.lines.len() as u32).map(LineId)
    }

    /// The file's lines from `first` to `last`, both included, in order: their numbers in the file and here.
    pub(super) fn range(&self, file: FileId, first: u64, last: u64) -> impl Iterator<Item = (u64, LineId)> {
        self.ids.range(file, first, last)
    }

    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    pub(super) fn set_origin(&mut self) {
        self.origin = next_version();
    }
}
