// SPDX-License-Identifier: Apache-2.0
//! Random workloads on the model's heap, legal by construction: at each point a crash that shows each pending operation whole or
//! not at all must pass, and one that shows anything else must not.

mod common;

use common::random::{Random, applied, choose, place};
use common::*;
use oracle::contract::Durable;
use oracle::{OperationKind, Status, TwinSet};

struct Run {
    random: Random,
    heap: Heap,
    script: Script,
    twins: TwinSet,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut twins = TwinSet::new();
        twins.insert(0, &Heap::default().probe().report());
        let script = Script::new(Durable::OnReturn).done(OperationKind::Create, 0, 0);
        Run { random: Random(seed), heap: Heap::default(), script, twins }
    }

    #[track_caller]
    fn must_pass(&self, heap: &Heap) {
        assert_passes(&judged_with_twins(&self.script, &heap.probe(), &heap.memory(), &self.twins));
    }

    #[track_caller]
    fn must_fail(&self, heap: &Heap) {
        let judgement = judged_with_twins(&self.script, &heap.probe(), &heap.memory(), &self.twins);
        assert!(!judgement.violations.is_empty(), "{:#?}\n{heap:#?}", self.script.history.current());
    }

    /// One operation, with a crash at each point of it.
    fn step(&mut self) {
        let (kind, slot, bytes) = choose(&self.heap, &mut self.random);
        let index = self.script.next;
        self.script = self.script.clone().begin(kind, slot, bytes);
        let before = self.heap.clone();
        let Some(after) = applied(&before, kind, slot, bytes, index + 1) else {
            self.must_pass(&before);
            self.script = self.script.clone().returned(Status::OutOfMemory);
            return self.must_pass(&before);
        };
        self.twins.insert(index, &after.probe().report());
        self.must_pass(&before);
        self.must_pass(&after);
        let broken = broken(&after, slot, &mut self.random);
        broken.iter().for_each(|heap| self.must_fail(heap));
        self.script = self.script.clone().returned(Status::Ok);
        self.heap = after;
        self.must_pass(&self.heap);
        broken.iter().for_each(|heap| self.must_fail(heap));
        if kind != OperationKind::Reallocate || bytes.next_multiple_of(64) > before.objects[&slot].capacity {
            self.must_fail(&before);
        }
    }
}

/// Heaps that no crash during an operation on `slot` may leave.
fn broken(heap: &Heap, slot: u32, random: &mut Random) -> Vec<Heap> {
    let mut all = Vec::new();
    let others: Vec<u32> = heap.objects.keys().copied().filter(|other| *other != slot).collect();
    if !others.is_empty() {
        let victim = others[random.below(others.len() as u64) as usize];
        let mut lost = heap.clone();
        lost.objects.remove(&victim);
        all.push(lost);
        let mut changed = heap.clone();
        changed.objects.get_mut(&victim).unwrap().segments[0].object += 1;
        all.push(changed);
    }
    if let Some(offset) = place(heap, 64) {
        let mut leaky = heap.clone();
        leaky.leaked.push((offset, 64));
        all.push(leaky);
        if let Some(empty) = (0..SLOTS).find(|empty| *empty != slot && !heap.objects.contains_key(empty)) {
            let mut risen = heap.clone();
            risen.put(empty, offset, 64, 7);
            all.push(risen);
        }
    }
    all
}

#[test]
fn legal_heaps_pass_and_broken_ones_fail() {
    for seed in 1..=12 {
        let mut run = Run::new(seed * 0x9e37_79b9);
        for _ in 0..40 {
            run.step();
        }
    }
}

/// Threads with an operation each on a slot of its own: every selection of the pending ones may have happened.
#[test]
fn every_selection_of_pending_operations_passes() {
    for seed in 1..=20 {
        let mut run = Run::new(seed * 0x517c_c1b7);
        for _ in 0..10 {
            run.step();
        }
        let mut shown = vec![run.heap.clone()];
        for (thread, slot) in [(0, 1), (1, 3), (2, 6)] {
            let is_live = run.heap.objects.contains_key(&slot);
            let kind = if is_live { OperationKind::Free } else { OperationKind::Allocate };
            let index = run.script.next;
            run.script.begin_on(thread, kind, slot, 100);
            let happened: Vec<Heap> =
                shown.iter().filter_map(|heap| applied(heap, kind, slot, 100, index + 1)).collect();
            shown.extend(happened);
        }
        for heap in shown {
            let judgement = judged(&contract(), &run.script, &heap.probe(), &heap.memory());
            assert_passes(&judgement);
            for broken in broken(&heap, 1, &mut run.random).iter().filter(|broken| broken.leaked.len() == 1) {
                let judgement = judged(&contract(), &run.script, &broken.probe(), &broken.memory());
                assert_breaks(&judgement, &[oracle::RuleId::Leak]);
            }
        }
    }
}
