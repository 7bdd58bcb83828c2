// SPDX-License-Identifier: Apache-2.0
//! Random crashes that are legal by construction: a contract, a history, and a heap that a crash there may leave.

use super::*;
use oracle::contract::Accounting;
use oracle::history::Phase;

/// xorshift64*: the same numbers everywhere. The seed must not be 0.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    pub fn is_one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        if choices.is_empty() { None } else { Some(choices[self.below(choices.len() as u64) as usize]) }
    }
}

/// First fit, at the lowest gap that is large enough.
pub fn place(heap: &Heap, bytes: u64) -> Option<u64> {
    let capacity = bytes.next_multiple_of(ALIGNMENT);
    heap.gaps().into_iter().find(|gap| gap.1 >= capacity).map(|gap| gap.0)
}

/// What the operation makes of the heap; `None`: out of memory.
pub fn applied(heap: &Heap, kind: OperationKind, slot: u32, bytes: u64, object: u32) -> Option<Heap> {
    let mut next = heap.clone();
    match kind {
        OperationKind::Allocate => next.put(slot, place(heap, bytes)?, bytes, object),
        OperationKind::Free => drop(next.objects.remove(&slot)),
        _ => {
            let old = heap.objects[&slot].segments.clone();
            let kept = old.last()?.end.min(bytes);
            next.put(slot, place(heap, bytes)?, bytes, object);
            let mut segments: Vec<Segment> = Vec::new();
            for segment in old {
                if segments.last().map_or(0, |last| last.end) < kept {
                    segments.push(Segment { end: segment.end.min(kept), ..segment });
                }
            }
            if bytes > kept {
                segments.push(Segment { end: bytes, object });
            }
            next.objects.get_mut(&slot)?.segments = segments;
        }
    }
    Some(next)
}

/// An operation that the heap allows: kind, slot, bytes. One in four is small.
pub fn choose(heap: &Heap, random: &mut Random) -> (OperationKind, u32, u64) {
    let slot = random.below(u64::from(SLOTS)) as u32;
    let bytes = 1 + if random.is_one_in(4) { random.below(64) } else { random.below(1500) };
    match (heap.objects.contains_key(&slot), random.below(2)) {
        (false, _) => (OperationKind::Allocate, slot, bytes),
        (true, 0) => (OperationKind::Free, slot, 0),
        _ => (OperationKind::Reallocate, slot, bytes),
    }
}

/// A crash and what recovery made of it, legal under the contract.
#[derive(Clone)]
pub struct Crash {
    pub contract: Contract,
    pub script: Script,
    pub heap: Heap,
    pub twins: TwinSet,
    /// The operation whose effect may be there or not, and whether the heap shows it.
    pub open: Option<(OperationKind, u32, bool)>,
    /// A slot that names what a pending free has freed already, and which heap block that was.
    pub dangling: Option<(u32, (u64, u64))>,
    pub has_walk: bool,
    /// walk leaves out a free heap block, where the contract promises no accounting.
    has_hole: bool,
}

impl Crash {
    pub fn random(seed: u64) -> Crash {
        let mut random = Random(seed);
        let contract = random_contract(&mut random);
        let script = Script::new(contract.durable).begin(OperationKind::Create, 0, 0);
        let mut crash = Crash {
            has_walk: !random.is_one_in(3),
            has_hole: contract.accounting == Accounting::None && random.is_one_in(2),
            contract,
            script,
            heap: Heap::default(),
            twins: TwinSet::new(),
            open: None,
            dangling: None,
        };
        crash.keep_twin();
        if random.is_one_in(12) {
            return crash;
        }
        crash.script = crash.script.returned(Status::Ok);
        for _ in 0..random.below(12) {
            let (kind, slot, bytes) = choose(&crash.heap, &mut random);
            crash.settle(kind, slot, bytes);
        }
        if crash.contract.durable == Durable::OnClose || random.is_one_in(4) {
            crash.script = crash.script.done(OperationKind::Close, 0, 0).done(OperationKind::Open, 0, 0);
        }
        crash.end(&mut random);
        crash
    }

    /// The twin of the heap as it is, by the last operation.
    fn keep_twin(&mut self) {
        self.twins.insert(self.script.next - 1, &self.heap.probe().report());
    }

    fn settle(&mut self, kind: OperationKind, slot: u32, bytes: u64) {
        let Some(after) = applied(&self.heap, kind, slot, bytes, self.script.next + 1) else { return };
        self.script = self.script.clone().done(kind, slot, bytes);
        self.heap = after;
        self.keep_twin();
    }

    /// What is going on when power fails: nothing, recovery, or an operation on a slot, which the heap shows or not. With
    /// durability on close the operation may have returned as well.
    fn end(&mut self, random: &mut Random) {
        match random.below(8) {
            0 => return,
            1 => return self.script.begin_on(0, OperationKind::Open, 0, 0),
            _ => {}
        }
        let (kind, slot, bytes) = match random.pick(&self.settled()) {
            Some(slot) if random.is_one_in(4) => (OperationKind::Free, slot, 0),
            _ => choose(&self.heap, random),
        };
        let before = self.heap.clone();
        let Some(after) = applied(&before, kind, slot, bytes, self.script.next + 1) else { return };
        self.script.begin_on(0, kind, slot, bytes);
        self.heap = after;
        self.keep_twin();
        let is_shown = random.is_one_in(2);
        self.open = Some((kind, slot, is_shown));
        if self.contract.durable == Durable::OnClose && random.is_one_in(2) {
            self.script = self.script.clone().returned(Status::Ok);
        } else if is_shown && self.contract.fill == Fill::After && random.is_one_in(2) {
            self.forget_new_content(kind, slot);
        } else if is_shown
            && kind == OperationKind::Free
            && self.contract.publish == Publish::Separate
            && self.contract.leaks != Leaks::Collected
        {
            let object = &before.objects[&slot];
            self.dangling = Some((slot, (object.offset, object.capacity)));
        }
        if !is_shown {
            self.heap = before;
        }
    }

    /// Published and not filled yet.
    fn forget_new_content(&mut self, kind: OperationKind, slot: u32) {
        let newest = self.script.next;
        if let Some(object) = self.heap.objects.get_mut(&slot).filter(|_| kind != OperationKind::Free) {
            object.segments.retain(|segment| segment.object != newest);
        }
    }

    pub fn probe(&self) -> Probe {
        self.probe_of(&self.heap)
    }

    /// What the adapter shows of another heap.
    pub fn probe_of(&self, heap: &Heap) -> Probe {
        let mut probe = heap.probe();
        if let Some((slot, (offset, _))) = self.dangling {
            probe = with_slot(probe, slot, offset);
        }
        if self.has_hole {
            probe = probe.each_walk(|blocks| {
                if let Some(at) = blocks.iter().position(|block| block.state == BlockState::Free) {
                    blocks.remove(at);
                }
            });
        }
        if self.has_walk { probe } else { probe.without_walk() }
    }

    /// For messages.
    pub fn words(&self) -> String {
        let pending = self.script.history.current().pending();
        format!("{:?}, open {:?}, pending {pending:?}, walk {}", self.contract, self.open, self.has_walk)
    }

    pub fn judged(&self, probe: &Probe, memory: &Memory) -> Judgement {
        oracle::judge(&self.contract, &shape(), &self.script.history, &probe.report(), memory, Some(&self.twins))
    }

    /// Slots whose object is promised, whole.
    pub fn settled(&self) -> Vec<u32> {
        let open = self.open.map(|(_, slot, _)| slot);
        self.heap.objects.keys().copied().filter(|slot| Some(*slot) != open).collect()
    }

    /// Slots that must be null.
    pub fn empty(&self) -> Vec<u32> {
        let open = self.open.map(|(_, slot, _)| slot);
        (0..SLOTS).filter(|slot| Some(*slot) != open && !self.heap.objects.contains_key(slot)).collect()
    }

    /// A place for another heap block, not where the dangling slot points.
    pub fn place(&self, bytes: u64) -> Option<u64> {
        let mut heap = self.heap.clone();
        heap.leaked.extend(self.dangling.map(|(_, block)| block));
        place(&heap, bytes)
    }

    pub fn is_creating(&self) -> bool {
        self.script.history.current().phase() == Phase::Creating
    }

    /// How many heap blocks may be leaked, in the contract's words.
    pub fn permitted_leaks(&self) -> u64 {
        match self.contract.leaks {
            Leaks::None => 0,
            Leaks::Pending => self.script.history.pending_operations(),
            Leaks::Collected => self.script.history.garbage_left_by_close(&[]),
        }
    }

    /// Nobody knows what it should be where operations since the last close may have happened or not, or where a permitted leak
    /// cannot be seen.
    fn is_capacity_judged(&self) -> bool {
        let has_pending = !self.script.history.current().pending().is_empty();
        let is_unsettled = self.contract.durable == Durable::OnClose && self.open.is_some() && !has_pending;
        let is_seen = self.has_walk || (self.permitted_leaks() == 0 && self.contract.leaks != Leaks::Collected);
        !is_unsettled && is_seen
    }

    /// Whether so many bytes less than the twin's are too few once all objects were freed, whichever pending operations have happened.
    pub fn is_emptied_capacity_lost(&self, bytes: u64) -> bool {
        self.is_capacity_judged() && bytes > self.contract.slack_bytes
    }

    /// Whether so many bytes less than the twin's capacity are too few. `None`: whether a pending reallocation has happened cannot be
    /// seen, and one of its two twins may hold less than the other.
    pub fn is_capacity_lost(&self, bytes: u64) -> Option<bool> {
        if !self.is_capacity_judged() {
            return Some(false);
        }
        let pending = self.script.history.current().pending();
        let is_resized = pending.iter().any(|pending| pending.operation.kind == OperationKind::Reallocate);
        // The slot says that the free has not happened, and so does the twin: it still holds the heap block.
        let already_free = self.dangling.map_or(0, |(_, (_, bytes))| bytes);
        let is_seen = self.has_walk || !is_resized || self.contract.fill == Fill::Before;
        is_seen.then_some(bytes > self.contract.slack_bytes + already_free)
    }
}

fn random_contract(random: &mut Random) -> Contract {
    let is = |random: &mut Random| random.is_one_in(2);
    Contract {
        publish: if is(random) { Publish::Atomic } else { Publish::Separate },
        fill: if is(random) { Fill::Before } else { Fill::After },
        leaks: random.pick(&[Leaks::None, Leaks::Pending, Leaks::Collected]).expect("three"),
        durable: if is(random) { Durable::OnReturn } else { Durable::OnClose },
        accounting: if is(random) { Accounting::Full } else { Accounting::None },
        slack_bytes: if is(random) { 0 } else { 64 },
        after_failed_create: if is(random) { AfterFailedCreate::Error } else { AfterFailedCreate::ReCreatable },
        ..contract()
    }
}

/// The same with this slot set, in every life.
pub fn with_slot(probe: Probe, slot: u32, offset: u64) -> Probe {
    probe.each_slots(|slots| {
        slots.push((slot, 0, offset));
        slots.sort_unstable();
    })
}
