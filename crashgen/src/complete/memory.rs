// SPDX-License-Identifier: Apache-2.0
//! The trie of what runs loaded. It knows values only, no choices and no crash positions.

use super::UnitKey;

/// Number of a leaf of the trie, from 0 for each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeafId(pub u32);

/// What all states have in common that give the same bytes to the loads above.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Number of the heap report.
    pub outcome: u32,
    /// Units that the report's contents depend on, with the values they had: in other states the contents may be others.
    pub contents: Vec<(UnitKey, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Nobody was here yet.
    Unknown,
    /// The next load; by the value seen, where the run goes on.
    Load(UnitKey, Vec<(u64, NodeId)>),
    /// The run's end.
    Leaf(LeafId),
    /// The run's end, of which nothing is known: why.
    Doubt(&'static str),
}

/// The trie.
pub(super) struct Memory {
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
    edges: usize,
    contents: usize,
}

impl Memory {
    pub const ROOT: NodeId = NodeId(0);

    pub fn new() -> Self {
        Self { nodes: vec![Node::Unknown], leaves: Vec::new(), edges: 0, contents: 0 }
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
        self.nodes.len() * size_of::<Node>()
            + self.edges * size_of::<(u64, NodeId)>()
            + self.leaves.len() * size_of::<Leaf>()
            + self.contents * size_of::<(UnitKey, u64)>()
    }

    /// Makes an unknown node a load.
    pub fn add_load(&mut self, at: NodeId, unit: UnitKey) {
        self.nodes[at.0 as usize] = Node::Load(unit, Vec::new());
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
        if let Some((_, known)) = edges.iter().find(|(seen, _)| *seen == value) {
            return *known;
        }
        edges.push((value, next));
        self.edges += 1;
        self.nodes.push(Node::Unknown);
        next
    }
}
