// SPDX-License-Identifier: Apache-2.0
//! The trie of what runs loaded. It knows values only, no choices and no crash positions.

use rustc_hash::FxHashMap;
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
pub(super) struct NodeId(pub u32);

#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// No run came here yet.
    Unknown,
    /// The next load, and the node where the run goes on with the value that the first run saw. Most loads see one value ever.
    Load { load: Load, first: u64, next: NodeId },
    /// The run's end.
    Leaf(LeafId),
    /// The run's end, of which nothing is known, and why.
    Doubt(&'static str),
}

/// A load of the trie: one of the eight units of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// The number that the search gave the line.
    pub line: u32,
    pub unit: u8,
}

/// The trie. What a run adds are nodes with numbers that follow each other.
pub(super) struct Trie {
    nodes: Vec<Node>,
    /// By node.
    parents: Vec<NodeId>,
    /// Where loads lead with values that the first run did not see.
    others: FxHashMap<(NodeId, u64), NodeId>,
    leaves: Vec<Leaf>,
    contents: usize,
}

impl Trie {
    pub const ROOT: NodeId = NodeId(0);

    pub fn new() -> Self {
        Self {
            nodes: vec![Node::Unknown],
            parents: vec![Self::ROOT],
            others: FxHashMap::default(),
            leaves: Vec::new(),
            contents: 0,
        }
    }

    pub fn node(&self, id: NodeId) -> Node {
        self.nodes[id.0 as usize]
    }

    pub fn leaf(&self, id: LeafId) -> &Leaf {
        &self.leaves[id.0 as usize]
    }

    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// Memory that it takes, about; vectors may have as much room again.
    pub fn bytes(&self) -> usize {
        self.nodes.len() * (size_of::<Node>() + size_of::<NodeId>())
            + self.others.len() * size_of::<((NodeId, u64), NodeId)>()
            + self.leaves.len() * size_of::<Leaf>()
            + self.contents * size_of::<u32>()
    }

    /// Makes an unknown node a load that saw this value; returns the unknown node where that leads.
    pub fn add_load(&mut self, at: NodeId, load: Load, first: u64) -> NodeId {
        let next = self.add_node(at);
        self.nodes[at.0 as usize] = Node::Load { load, first, next };
        next
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
        let Node::Load { first, next, .. } = self.node(at) else { unreachable!("only loads have values") };
        if value == first {
            return next;
        }
        if let Some(known) = self.others.get(&(at, value)) {
            return *known;
        }
        let next = self.add_node(at);
        self.others.insert((at, value), next);
        next
    }

    fn add_node(&mut self, parent: NodeId) -> NodeId {
        self.nodes.push(Node::Unknown);
        self.parents.push(parent);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// The loads from the root to a node.
    pub fn path(&self, to: NodeId) -> Vec<Load> {
        let mut path = Vec::new();
        let mut at = to;
        while at != Self::ROOT {
            at = self.parents[at.0 as usize];
            let Node::Load { load, .. } = self.node(at) else { unreachable!("only loads have values") };
            path.push(load);
        }
        path.reverse();
        path
    }
}
