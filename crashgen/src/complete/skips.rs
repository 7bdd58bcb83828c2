// SPDX-License-Identifier: Apache-2.0
//! Which nodes of the trie a traversal may skip. A line with one choice holds the same until something is stored to it, so a load of it
//! leads the same way each time. Recovery loads thousands of units, and a few of them are undecided: skipping the others saves most of a
//! traversal.
//!
//! All of this belongs to one model, stepped through without a gap. A fence changes nothing here: it takes choices away, and these lines have
//! one.

use super::UnitKey;
use super::choices::unit_of;
use super::loaded_lines::LoadedLines;
use super::trie::{Load, NodeId};
use crate::model::LineContent;
use crate::trace::{Event, EventKind};

/// The decided lines of the trie, and the nodes that may be skipped for that.
#[derive(Default)]
pub(super) struct Skips {
    /// A bit for each node that may be skipped, by its number.
    nodes: Vec<u64>,
    /// By the number of the line.
    lines: Vec<Decided>,
    /// Nodes that may be skipped.
    node_count: usize,
    /// Crash position that was last stepped to.
    position: u32,
}

/// What is known of one line.
#[derive(Default)]
struct Decided {
    content: Option<LineContent>,
    /// The nodes that load it and may be skipped.
    nodes: Vec<NodeId>,
    /// A bit for each unit that was noted as a dependency. It stays when the line is decided anew: a unit that was overwritten stays so.
    noted: u8,
}

impl Skips {
    /// Another trie begins.
    pub fn start_again(&mut self) {
        *self = Self { position: self.position, ..Self::default() };
    }

    /// Nothing is decided any more.
    pub fn clear(&mut self) {
        self.nodes.fill(0);
        for line in &mut self.lines {
            line.nodes.clear();
            (line.content, line.noted) = (None, 0);
        }
        self.node_count = 0;
    }

    /// Steps to the crash position after the event.
    pub fn step(&mut self, position: u32, event: &Event, lines: &LoadedLines) {
        let is_next = position == self.position + 1;
        self.position = position;
        match &event.kind {
            _ if !is_next => self.clear(),
            EventKind::Store { .. } => {
                let keys = UnitKey::of_store(event).map(|unit| unit.line_and_unit().0);
                keys.filter_map(|key| lines.number_of(key)).for_each(|line| self.forget(line));
            }
            EventKind::FileEnd { .. } | EventKind::Case { .. } => self.clear(),
            _ => {}
        }
    }

    fn forget(&mut self, line: u32) {
        let Some(line) = self.lines.get_mut(line as usize) else { return };
        line.content = None;
        self.node_count -= line.nodes.len();
        for NodeId(node) in line.nodes.drain(..) {
            self.nodes[node as usize / 64] &= !(1 << (node % 64));
        }
    }

    /// What the load sees, if that is known.
    pub fn value(&self, load: Load) -> Option<u64> {
        Some(unit_of(self.lines.get(load.line as usize)?.content.as_ref()?, load.unit))
    }

    /// All of the load's line is decided.
    pub fn decide(&mut self, load: Load, content: LineContent) {
        let line = load.line as usize;
        if self.lines.len() <= line {
            self.lines.resize_with(line + 1, Decided::default);
        }
        self.lines[line].content = Some(content);
    }

    /// The traversal depends on a decided load; whether that is new.
    pub fn note_dependency(&mut self, load: Load) -> bool {
        let noted = &mut self.lines[load.line as usize].noted;
        let is_new = *noted >> load.unit & 1 == 0;
        *noted |= 1 << load.unit;
        is_new
    }

    /// The first node from this one on that may not be skipped.
    pub fn end(&self, begin: NodeId) -> NodeId {
        let NodeId(mut node) = begin;
        loop {
            let bits = self.nodes.get(node as usize / 64).copied().unwrap_or(0) >> (node % 64);
            node += bits.trailing_ones();
            if bits.trailing_ones() == 0 || node % 64 != 0 {
                return NodeId(node);
            }
        }
    }

    /// The node may be skipped: its load is decided, and leads to the node with the next number.
    pub fn add(&mut self, NodeId(node): NodeId, load: Load) {
        let word = node as usize / 64;
        if self.nodes.len() <= word {
            self.nodes.resize(word + 1, 0);
        }
        self.nodes[word] |= 1 << (node % 64);
        self.lines[load.line as usize].nodes.push(NodeId(node));
        self.node_count += 1;
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<u64>()
            + self.lines.len() * size_of::<Decided>()
            + self.node_count * size_of::<NodeId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{FenceKind, FileEffect, FileId, SiteId, StoreKind, ThreadId};

    fn event(kind: EventKind) -> Event {
        Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind }
    }

    fn store(line: u64) -> Event {
        let bytes = vec![1; 8].into();
        event(EventKind::Store { kind: StoreKind::Plain, file: FileId(0), offset: line * 64 + 8, bytes })
    }

    /// Nodes 60 to 139 load unit 0 of lines 0 to 3 in turns, and lead to the next one at crash position 1.
    fn skips() -> (Skips, LoadedLines) {
        let (mut skips, mut lines) = (Skips::default(), LoadedLines::default());
        let units: Vec<UnitKey> = (0..4).map(|line| UnitKey { file: FileId(0), number: line * 8 }).collect();
        let loads = lines.distinct(&units);
        skips.step(1, &store(9), &lines);
        loads.iter().for_each(|load| skips.decide(*load, [7; 64]));
        (60..140).for_each(|node| skips.add(NodeId(node), loads[node as usize % 4]));
        (skips, lines)
    }

    /// Where node 60 leads after the event that leads to the crash position.
    fn end_after(event: &Event, position: u32) -> u32 {
        let (mut skips, lines) = skips();
        skips.step(position, event, &lines);
        skips.end(NodeId(60)).0
    }

    #[test]
    fn they_lead_to_the_first_that_does_not() {
        let (skips, _) = skips();
        let ends = [59, 60, 63, 64, 65, 127, 128, 139, 140, 1000].map(|node| skips.end(NodeId(node)).0);
        assert_eq!(ends, [59, 140, 140, 140, 140, 140, 140, 140, 140, 1000]);
    }

    #[test]
    fn a_store_to_its_line_ends_what_a_node_leads_to() {
        assert_eq!([0, 1, 2, 3, 4].map(|line| end_after(&store(line), 2)), [60, 61, 62, 63, 140]);
        let (mut skips, lines) = skips();
        let bytes = skips.bytes();
        skips.step(2, &store(2), &lines);
        assert_eq!([61, 63, 65, 67].map(|node| skips.end(NodeId(node)).0), [62, 66, 66, 70]);
        assert!(skips.bytes() < bytes);
    }

    #[test]
    fn they_hold_over_fences_and_end_with_files_that_change() {
        assert_eq!(end_after(&event(EventKind::Fence { kind: FenceKind::Sfence }), 2), 140);
        let punch = FileEffect::Punch { file: FileId(0), offset: 0, bytes: 64 };
        assert_eq!(end_after(&event(EventKind::FileEnd { effect: punch.into(), is_done: true }), 2), 60);
        assert_eq!(end_after(&event(EventKind::Case { folder: "next".into(), number: 1 }), 2), 60);
    }

    #[test]
    fn they_end_where_positions_were_left_out_or_begin_again() {
        assert_eq!([end_after(&store(4), 3), end_after(&store(4), 1)], [60, 60]);
    }

    #[test]
    fn what_a_line_holds_is_known_until_something_is_stored_to_it() {
        let (mut skips, lines) = skips();
        let of_line = |line| Load { line, unit: 3 };
        skips.step(2, &store(1), &lines);
        let seven = Some(u64::from_le_bytes([7; 8]));
        assert_eq!([0, 1, 2, 4].map(|line| skips.value(of_line(line))), [seven, None, seven, None]);
        skips.decide(of_line(1), [8; 64]);
        assert_eq!(skips.value(of_line(1)), Some(u64::from_le_bytes([8; 8])));
        skips.step(9, &store(4), &lines);
        assert_eq!([0, 1].map(|line| skips.value(of_line(line))), [None, None]);
    }

    #[test]
    fn a_dependency_is_new_once_until_positions_begin_again() {
        let (mut skips, lines) = skips();
        let notes = |skips: &mut Skips| [0, 0, 5].map(|unit| skips.note_dependency(Load { line: 2, unit }));
        assert_eq!(notes(&mut skips), [true, false, true]);
        skips.step(2, &store(2), &lines);
        assert_eq!(notes(&mut skips), [false; 3]);
        skips.clear();
        assert_eq!(notes(&mut skips), [true, false, true]);
    }

    #[test]
    fn they_can_be_added_again() {
        let (mut skips, lines) = skips();
        let of_line = Load { line: 0, unit: 0 };
        skips.step(2, &store(0), &lines);
        (60..140).step_by(4).for_each(|node| skips.add(NodeId(node), of_line));
        assert_eq!(skips.end(NodeId(60)).0, 140);
        skips.step(3, &store(0), &lines);
        assert_eq!(skips.end(NodeId(60)).0, 60);
    }
}
