// SPDX-License-Identifier: Apache-2.0
//! Stretches of the trie that a walk need not look at again: loads of lines with one choice lead the same way at every crash position
//! until something is stored to one of them. Recovery loads hundreds of units of which a few are undecided, so that is most of
//! a walk.
//!
//! A stretch belongs to one model, stepped through without a gap. A fence needs no note: it leaves fewer choices, and a stretch
//! has none.

use super::UnitKey;
use super::memory::NodeId;
use super::search::Lines;
use crate::trace::{Event, EventKind};
use planted::Fault;
use rustc_hash::FxHashMap;

/// Shorter ones are walked as fast.
const SHORTEST: usize = 4;

/// The stretches that hold at the current crash position.
#[derive(Default)]
pub(super) struct Skips {
    /// By where they begin.
    stretches: FxHashMap<NodeId, Stretch>,
    /// Crash position that was last stepped to.
    position: u32,
}

struct Stretch {
    end: NodeId,
    /// A bit for each line, by its number.
    lines: Vec<u64>,
}

impl Stretch {
    fn loads(&self, line: u32) -> bool {
        self.lines.get(line as usize / 64).is_some_and(|word| word >> (line % 64) & 1 == 1)
    }
}

impl Skips {
    /// None holds any more.
    pub fn clear(&mut self) {
        self.stretches.clear();
    }

    /// Steps to the crash position after the event.
    pub fn step(&mut self, position: u32, event: &Event, lines: &Lines) {
        let is_next = position == self.position + 1;
        self.position = position;
        match &event.kind {
            _ if !is_next => self.clear(),
            EventKind::Store { file, offset, bytes, .. } if !planted::is(Fault::StaleSkip) => {
                let keys = UnitKey::of_range(*file, *offset, bytes.len() as u64).map(|unit| unit.place().0);
                for line in keys.filter_map(|key| lines.known(key)) {
                    self.stretches.retain(|_, stretch| !stretch.loads(line));
                }
            }
            EventKind::FileEnd { .. } | EventKind::Case { .. } => self.clear(),
            _ => {}
        }
    }

    /// Where the stretch that begins here ends.
    pub fn end(&self, begin: NodeId) -> Option<NodeId> {
        self.stretches.get(&begin).map(|stretch| stretch.end)
    }

    /// From `begin` to `end` there are loads of these lines only, each decided.
    pub fn add(&mut self, begin: NodeId, end: NodeId, lines: &[u32]) {
        let Some(last) = lines.iter().max().filter(|_| lines.len() >= SHORTEST) else { return };
        let mut stretch = Stretch { end, lines: vec![0; *last as usize / 64 + 1] };
        lines.iter().for_each(|line| stretch.lines[*line as usize / 64] |= 1 << (line % 64));
        self.stretches.insert(begin, stretch);
    }

    /// What it takes, about.
    pub fn bytes(&self, lines: &Lines) -> usize {
        self.stretches.len() * (size_of::<(NodeId, Stretch)>() + lines.count() / 8)
    }
}
