// SPDX-License-Identifier: Apache-2.0
//! The trie of what runs loaded. It knows values only, no choices and no crash positions.

use super::UnitKey;
use std::rc::Rc;

/// Number of a leaf of the trie, from 0 for each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafId(pub u32);

/// What all states have in common that give the same bytes to the loads above.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Number of the heap report.
    pub outcome: u32,
    /// What the report's contents depend on, by the numbers of [`super::scanned`]: in other states the contents may be others.
    pub(super) contents: Rc<[u32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(u32);

#[cfg(test)]
impl NodeId {
    pub fn of(number: u32) -> Self {
        Self(number)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Nobody was here yet.
    Unknown,
    /// The next load, and where the run goes on.
    Load(Load, Edges),
    /// The run's end.
    Leaf(LeafId),
    /// The run's end, of which nothing is known: why.
    Doubt(&'static str),
}

/// A load of the trie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub unit: UnitKey,
    /// The number that the search gave its line.
    pub line: u32,
}

/// Where a load leads, by the value seen. Most loads ever see one.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    first: Option<(u64, NodeId)>,
    others: Vec<(u64, NodeId)>,
}

impl Edges {
    fn find(&self, value: u64) -> Option<NodeId> {
        match self.first {
            Some((seen, next)) if seen == value => Some(next),
            _ => self.others.iter().find(|(seen, _)| *seen == value).map(|(_, next)| *next),
        }
    }

    fn add(&mut self, value: u64, next: NodeId) {
        match self.first {
            None => self.first = Some((value, next)),
            Some(_) => self.others.push((value, next)),
        }
    }
}

/// The trie.
pub(super) struct Memory {
    nodes: Vec<Node>,
    /// By node.
    parents: Vec<NodeId>,
    leaves: Vec<Leaf>,
    edges: usize,
    contents: usize,
}

impl Memory {
    pub const ROOT: NodeId = NodeId(0);

    pub fn new() -> Self {
        Self { nodes: vec![Node::Unknown], parents: vec![Self::ROOT], leaves: Vec::new(), edges: 0, contents: 0 }
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn leaf(&self, id: LeafId) -> &Leaf {
        &self.leaves[id.0 as usize]
    }

    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// What it takes, about; vectors may have as much room again.
    pub fn bytes(&self) -> usize {
        self.nodes.len() * (size_of::<Node>() + size_of::<NodeId>())
            + self.edges * size_of::<(u64, NodeId)>()
            + self.leaves.len() * size_of::<Leaf>()
            + self.contents * size_of::<u32>()
    }

    /// Makes an unknown node a load.
    pub fn add_load(&mut self, at: NodeId, load: Load) {
        self.nodes[at.0 as usize] = Node::Load(load, Edges::default());
    }

    pub fn add_leaf(&mut self, at: NodeId, leaf: Leaf) {
        self.nodes[at.0 as usize] = Node::Leaf(LeafId(self.leaves.len() as u32));
        self.contents += leaf.contents.len();
        self.leaves.push(leaf);
    }

    pub fn add_doubt(&mut self, at: NodeId, why: &'static str) {
        self.nodes[at.0 as usize] = Node::Doubt(why);
    }

    /// Where a load that saw this value leads; an unknown node if no run saw it yet.
    pub fn child(&mut self, at: NodeId, value: u64) -> NodeId {
        let next = NodeId(self.nodes.len() as u32);
        let Node::Load(_, edges) = &mut self.nodes[at.0 as usize] else { unreachable!("only loads have edges") };
        if let Some(known) = edges.find(value) {
            return known;
        }
        edges.add(value, next);
        self.edges += 1;
        self.nodes.push(Node::Unknown);
        self.parents.push(at);
        next
    }

    /// The loads from the root to a node.
    pub fn path(&self, to: NodeId) -> Vec<UnitKey> {
        let mut path = Vec::new();
        let mut at = to;
        while at != Self::ROOT {
            at = self.parents[at.0 as usize];
            let Node::Load(load, _) = self.node(at) else { unreachable!("only loads have edges") };
            path.push(load.unit);
        }
        path.reverse();
        path
    }
}
