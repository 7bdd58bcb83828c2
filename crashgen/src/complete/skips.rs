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
            EventKind::Store { .. } if !planted::is(Fault::StaleSkip) => {
                let keys = UnitKey::of_store(event).map(|unit| unit.place().0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LineKey;
    use crate::trace::{FenceKind, FileEffect, FileId, SiteId, StoreKind, ThreadId};

    fn event(kind: EventKind) -> Event {
        Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind }
    }

    fn store(line: u64) -> Event {
        let bytes = vec![1; 8].into();
        event(EventKind::Store { kind: StoreKind::Plain, file: FileId(0), offset: line * 64 + 8, bytes })
    }

    /// Whether a stretch over lines 0 to 3 holds after the event that leads to the crash position; it was made at the one before.
    fn holds_after(event: &Event, position: u32) -> bool {
        let (mut skips, mut lines) = (Skips::default(), Lines::default());
        let numbers: Vec<u32> = (0..4).map(|number| lines.number(LineKey { file: FileId(0), number })).collect();
        skips.step(1, &store(9), &lines);
        skips.add(NodeId::of(5), NodeId::of(9), &numbers);
        assert_eq!(skips.end(NodeId::of(5)), Some(NodeId::of(9)));
        skips.step(position, event, &lines);
        skips.end(NodeId::of(5)).is_some()
    }

    #[test]
    fn a_stretch_ends_with_a_store_to_one_of_its_lines() {
        assert!((0..4).all(|line| !holds_after(&store(line), 2)));
        assert!(holds_after(&store(4), 2));
    }

    #[test]
    fn a_stretch_holds_over_fences_and_ends_with_files_that_change() {
        assert!(holds_after(&event(EventKind::Fence { kind: FenceKind::Sfence }), 2));
        let punch = FileEffect::Punch { file: FileId(0), offset: 0, bytes: 64 };
        assert!(!holds_after(&event(EventKind::FileEnd { effect: punch.into(), is_done: true }), 2));
        assert!(!holds_after(&event(EventKind::Case { folder: "next".into(), number: 1 }), 2));
    }

    #[test]
    fn a_stretch_ends_where_positions_were_left_out_or_begin_again() {
        assert!(!holds_after(&store(4), 3));
        assert!(!holds_after(&store(4), 1));
    }
}
