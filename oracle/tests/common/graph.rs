// SPDX-License-Identifier: Apache-2.0
//! A model of a heap whose objects hold references to objects, and random crashes of it that are legal by construction.

use super::random::Random;
use super::*;
use oracle::history::{Holder, ObjectId};
use oracle::report::{Location, ObjectEntry};

/// An object of the graph. The position of an object in a report is its place in breadth-first order.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub offset: u64,
    pub capacity: u64,
    pub segments: Vec<Segment>,
    pub fields: [Option<ObjectId>; 2],
}

impl Node {
    pub fn bytes(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.end)
    }
}

/// Objects by id, and which of them the slots hold. What nothing reaches is garbage that was not collected yet.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub objects: BTreeMap<ObjectId, Node>,
    pub slots: BTreeMap<u32, ObjectId>,
    /// Live heap blocks besides.
    pub leaked: Vec<(u64, u64)>,
}

/// An operation, as a workload file has it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub kind: OperationKind,
    pub slot: u32,
    pub bytes: u64,
    pub field: u8,
    pub other: u32,
}

impl Graph {
    pub fn held(&self, holder: Holder) -> Option<ObjectId> {
        match holder {
            Holder::Slot(slot) => self.slots.get(&slot).copied(),
            Holder::Field { object, field } => self.objects.get(&object)?.fields[usize::from(field)],
        }
    }

    pub fn set(&mut self, holder: Holder, object: Option<ObjectId>) {
        match (holder, object) {
            (Holder::Slot(slot), Some(object)) => {
                self.slots.insert(slot, object);
            }
            (Holder::Slot(slot), None) => {
                self.slots.remove(&slot);
            }
            (Holder::Field { object: of, field }, object) => {
                self.objects.get_mut(&of).expect("a field of an object").fields[usize::from(field)] = object;
            }
        }
    }

    /// What the slots reach, breadth first.
    pub fn reached(&self) -> Vec<ObjectId> {
        let mut reached: Vec<ObjectId> = Vec::new();
        let mut next: Vec<ObjectId> = self.slots.values().copied().collect();
        while !next.is_empty() {
            let mut after = Vec::new();
            for object in next {
                if !reached.contains(&object) {
                    reached.push(object);
                    after.extend(self.objects[&object].fields.into_iter().flatten());
                }
            }
            next = after;
        }
        reached
    }

    /// Every slot of the workload and every field of what they reach.
    pub fn holders(&self) -> Vec<Holder> {
        let fields = self.reached().into_iter().flat_map(Holder::fields_of);
        (0..SLOTS).map(Holder::Slot).chain(fields).collect()
    }

    pub fn holders_of(&self, object: ObjectId) -> Vec<Holder> {
        self.holders().into_iter().filter(|holder| self.held(*holder) == Some(object)).collect()
    }

    pub fn garbage(&self) -> usize {
        self.objects.len() - self.reached().len()
    }

    /// After a garbage collection.
    pub fn collected(&self) -> Graph {
        let (mut graph, reached) = (self.clone(), self.reached());
        graph.objects.retain(|object, _| reached.contains(object));
        graph
    }

    /// All live heap blocks, of reached objects by position, as the model without references has them.
    pub fn heap(&self) -> Heap {
        let reached = self.reached();
        let mut heap = Heap { leaked: self.leaked.clone(), ..Heap::default() };
        for (position, object) in reached.iter().enumerate() {
            let Node { offset, capacity, segments, .. } = self.objects[object].clone();
            heap.objects.insert(position as u32, Object { offset, capacity, segments });
        }
        let garbage = self.objects.iter().filter(|(object, _)| !reached.contains(object));
        heap.leaked.extend(garbage.map(|(_, node)| (node.offset, node.capacity)));
        heap
    }

    pub fn place(&self, bytes: u64) -> Option<u64> {
        random::place(&self.heap(), bytes)
    }

    pub fn entries(&self) -> Vec<ObjectEntry> {
        let at = |object: ObjectId| Location { file: 0, offset: self.objects[&object].offset };
        let entry = |object| ObjectEntry { at: at(object), fields: self.objects[&object].fields.map(|to| to.map(at)) };
        self.reached().into_iter().map(entry).collect()
    }

    pub fn slot_entries(&self) -> Vec<(u32, u32, u64)> {
        self.slots.iter().map(|(slot, object)| (*slot, 0, self.objects[object].offset)).collect()
    }

    pub fn probe(&self) -> Probe {
        let probe = self.heap().probe();
        Probe {
            slots: std::array::from_fn(|_| self.slot_entries()),
            objects: std::array::from_fn(|_| Some(self.entries())),
            ..probe
        }
    }

    pub fn memory(&self) -> Memory {
        self.heap().memory()
    }

    /// `None`: it cannot begin here, or there is no room.
    pub fn applied(&self, step: Step, object: ObjectId) -> Option<Graph> {
        let Step { kind, slot, bytes, field, other } = step;
        let held = self.slots.get(&slot).copied();
        let mut next = self.clone();
        match kind {
            OperationKind::Allocate if held.is_none() => {
                let segments = vec![Segment { end: bytes, object }];
                let capacity = bytes.next_multiple_of(ALIGNMENT);
                let node = Node { offset: self.place(bytes)?, capacity, segments, fields: [None; 2] };
                next.objects.insert(object, node);
                next.slots.insert(slot, object);
            }
            OperationKind::Load if held.is_none() => {
                let from = Holder::Field { object: *self.slots.get(&other)?, field };
                next.set(Holder::Slot(slot), Some(self.held(from)?));
            }
            OperationKind::Link => next.set(Holder::Field { object: held?, field }, Some(*self.slots.get(&other)?)),
            OperationKind::Unlink => next.set(Holder::Field { object: held?, field }, None),
            OperationKind::Drop => {
                next.slots.remove(&held.map(|_| slot)?);
            }
            OperationKind::Free if self.holders_of(held?).len() == 1 => {
                next.objects.remove(&held?);
                next.slots.remove(&slot);
            }
            OperationKind::Reallocate if self.holders_of(held?).len() == 1 => {
                let single = Heap { objects: [(0, self.object(held?))].into(), ..self.heap() };
                let moved = random::applied(&Heap { leaked: self.heap().taken(), ..single }, kind, 0, bytes, object)?;
                let Object { offset, capacity, segments } = moved.objects[&0].clone();
                let fields = self.objects[&held?].fields;
                next.objects.insert(held?, Node { offset, capacity, segments, fields });
            }
            _ => return None,
        }
        Some(next)
    }

    fn object(&self, object: ObjectId) -> Object {
        let Node { offset, capacity, segments, .. } = self.objects[&object].clone();
        Object { offset, capacity, segments }
    }
}

/// A step that the graph allows.
pub fn choose(graph: &Graph, random: &mut Random) -> Step {
    use OperationKind::*;
    loop {
        let kind = random.pick(&[Allocate, Allocate, Link, Link, Link, Unlink, Drop, Load, Free, Reallocate]);
        let kind = kind.expect("ten");
        let slot = random.below(6) as u32;
        let (other, field) = (random.below(6) as u32, random.below(2) as u8);
        let limit = if random.is_one_in(4) { 16 } else { 300 };
        let bytes = match kind {
            Allocate | Reallocate => 1 + random.below(limit),
            _ => 0,
        };
        let step = Step { kind, slot, bytes, field, other };
        if kind == Load && slot == other {
            continue;
        }
        if graph.applied(step, ObjectId::MAX).is_some() {
            return step;
        }
        if graph.place(300).is_none() {
            return Step { kind: Unlink, slot: graph.slots.keys().next().copied().unwrap_or(0), ..step };
        }
    }
}

impl Script {
    pub fn begin_step(self, step: Step) -> Script {
        let Step { kind, slot, bytes, field, other } = step;
        match kind {
            OperationKind::Link | OperationKind::Load => self.begin_reference(kind, slot, field, other),
            OperationKind::Unlink => self.begin_reference(kind, slot, field, 0),
            OperationKind::Drop => self.begin_reference(kind, slot, 0, 0),
            _ => self.begin(kind, slot, bytes),
        }
    }

    pub fn linked(self, slot: u32, field: u8, target: u32) -> Script {
        self.begin_reference(OperationKind::Link, slot, field, target).returned(Status::Ok)
    }

    pub fn unlinked(self, slot: u32, field: u8) -> Script {
        self.begin_reference(OperationKind::Unlink, slot, field, 0).returned(Status::Ok)
    }

    pub fn dropped(self, slot: u32) -> Script {
        self.begin_reference(OperationKind::Drop, slot, 0, 0).returned(Status::Ok)
    }

    pub fn loaded(self, slot: u32, from: u32, field: u8) -> Script {
        self.begin_reference(OperationKind::Load, slot, field, from).returned(Status::Ok)
    }
}

/// What goes on when power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Nothing,
    /// The step is pending; whether the heap shows it.
    Pending(bool),
    Closing,
    Closed,
    Opening,
    Opened,
    /// The same after a clean close and open.
    Reopened(bool),
}

/// A crash and what recovery made of it, legal under the contract.
#[derive(Clone, Debug)]
pub struct GraphCrash {
    pub contract: Contract,
    pub script: Script,
    /// What had returned, and the same with what is pending; garbage included.
    pub outcomes: Vec<Graph>,
    /// What recovery left.
    pub graph: Graph,
    pub end: End,
    pub pending: Option<Holder>,
    /// What holders held before they came to hold something else.
    pub previous: BTreeMap<Holder, ObjectId>,
    pub twins: TwinSet,
}

impl GraphCrash {
    pub fn random(seed: u64) -> GraphCrash {
        let mut random = Random(seed);
        let leaks = random.pick(&[Leaks::None, Leaks::Pending, Leaks::Collected, Leaks::Collected]).expect("four");
        let publish = random.pick(&[Publish::Atomic, Publish::Separate]).expect("two");
        let mut crash = GraphCrash {
            contract: Contract { leaks, publish, ..contract() },
            script: Script::created(),
            outcomes: vec![Graph::default()],
            graph: Graph::default(),
            end: End::Nothing,
            pending: None,
            previous: BTreeMap::new(),
            twins: TwinSet::new(),
        };
        crash.keep_twin();
        for _ in 0..6 + random.below(24) {
            let step = choose(&crash.graph, &mut random);
            crash.begin(step);
            crash.script = crash.script.clone().returned(Status::Ok);
            crash.outcomes = vec![crash.graph.clone()];
            crash.pending = None;
        }
        crash.finish(&mut random);
        // Without a collector garbage stays; with one it may where no crash recovery was needed.
        if leaks == Leaks::Collected && (!crash.is_as_closed() || random.is_one_in(2)) {
            crash.graph = crash.graph.collected();
        }
        crash
    }

    fn finish(&mut self, random: &mut Random) {
        self.end = match random.below(12) {
            0 => End::Nothing,
            1 => End::Closing,
            2 => End::Closed,
            3 => End::Opening,
            4 => End::Opened,
            number @ 5..=7 => End::Reopened(number % 2 == 0),
            number => End::Pending(number % 2 == 0),
        };
        let close = |script: Script| script.begin(OperationKind::Close, 0, 0);
        match self.end {
            End::Nothing => {}
            End::Closing => self.script = close(self.script.clone()),
            End::Closed => self.script = close(self.script.clone()).returned(Status::Ok),
            End::Opening => {
                let closed = close(self.script.clone()).returned(Status::Ok);
                self.script = closed.begin(OperationKind::Open, 0, 0);
            }
            End::Opened => {
                let closed = close(self.script.clone()).returned(Status::Ok);
                self.script = closed.done(OperationKind::Open, 0, 0);
            }
            End::Pending(is_shown) | End::Reopened(is_shown) => {
                if matches!(self.end, End::Reopened(_)) {
                    let closed = close(self.script.clone()).returned(Status::Ok);
                    self.script = closed.done(OperationKind::Open, 0, 0);
                }
                let (before, step) = (self.graph.clone(), choose(&self.graph, random));
                self.begin(step);
                self.outcomes = vec![before.clone(), self.graph.clone()];
                if !is_shown {
                    self.graph = before;
                }
            }
        }
    }

    fn begin(&mut self, step: Step) {
        let object = self.script.next + 1;
        let Some(after) = self.graph.applied(step, object) else { return };
        let holder = match step.kind {
            OperationKind::Link | OperationKind::Unlink => {
                Holder::Field { object: self.graph.slots[&step.slot], field: step.field }
            }
            _ => Holder::Slot(step.slot),
        };
        if let Some(held) = self.graph.held(holder).filter(|held| after.held(holder) != Some(*held)) {
            self.previous.insert(holder, held);
        }
        self.script = self.script.clone().begin_step(step);
        self.graph = after;
        self.pending = Some(holder);
        self.keep_twin();
    }

    /// The twin of the graph as it is: garbage is collected before it is measured, where there is a collector.
    fn keep_twin(&mut self) {
        let graph = match self.contract.leaks {
            Leaks::Collected => self.graph.collected(),
            _ => self.graph.clone(),
        };
        self.twins.insert(self.script.next - 1, &graph.probe().report());
    }

    pub fn judged(&self, probe: &Probe, memory: &Memory) -> Judgement {
        oracle::judge(&self.contract, &shape(), &self.script.history, &probe.report(), memory, Some(&self.twins))
    }

    /// Whether the heap is as a clean close left it.
    pub fn is_as_closed(&self) -> bool {
        match self.end {
            End::Nothing | End::Pending(_) => false,
            End::Closing | End::Closed | End::Opening | End::Opened => true,
            End::Reopened(_) => {
                let (before, now) = (self.outcomes[0].collected(), self.graph.collected());
                before.slots == now.slots && before.objects == now.objects
            }
        }
    }

    /// Holders on which nothing is pending.
    pub fn certain(&self) -> Vec<Holder> {
        self.graph.holders().into_iter().filter(|holder| Some(*holder) != self.pending).collect()
    }

    /// Those among them that are set.
    pub fn set(&self) -> Vec<Holder> {
        self.certain().into_iter().filter(|holder| self.graph.held(*holder).is_some()).collect()
    }

    /// Those that are null.
    pub fn null(&self) -> Vec<Holder> {
        self.certain().into_iter().filter(|holder| self.graph.held(*holder).is_none()).collect()
    }

    pub fn words(&self) -> String {
        let pending = self.script.history.current().pending();
        format!("{:?}, {:?}, pending {pending:?}\n{:#?}", self.contract, self.end, self.graph)
    }
}
