// SPDX-License-Identifier: Apache-2.0
//! What operations left, and what they took away: FL004 and FL005, after a second crash FL014.

use crate::common::*;
use oracle::contract::Durable;
use oracle::{Contract, OperationKind, RuleId, Status};

// FL004

#[test]
fn a_returned_allocation_whose_slot_is_null_is_lost() {
    let (script, mut heap) = two_objects();
    heap.objects.remove(&3);
    let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost]);
    assert_eq!((judgement.violations[0].slot, judgement.violations[0].operation), (Some(3), Some(2)));
}

#[test]
fn the_heap_block_of_a_lost_slot_is_no_leak_of_its_own() {
    let (script, heap) = two_objects();
    let probe = heap.probe().each_slots(|slots| slots.retain(|entry| entry.0 != 3));
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::OperationLost]);
}

#[test]
fn a_pending_allocation_may_be_there_or_not() {
    let (script, mut heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 300);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    heap.put(5, 1024, 300, 4);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
}

#[test]
fn an_allocation_that_returned_out_of_memory_has_no_effect() {
    let (script, mut heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 300).returned(Status::OutOfMemory);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    heap.put(5, 1024, 300, 4);
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::FreedObjectBack]);
}

#[test]
fn a_returned_reallocation_whose_slot_holds_the_old_size_is_lost() {
    let (script, heap) = two_objects();
    let script = script.begin(OperationKind::Reallocate, 1, 400);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    let judgement = judged(&contract(), &script.returned(Status::Ok), &heap.probe(), &heap.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost]);
    // The block fits the size before exactly.
    let (mut script, mut heap) = (Script::created().allocated(1, 128), Heap::default());
    heap.put(1, 64, 128, 2);
    script = script.done(OperationKind::Reallocate, 1, 192);
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::OperationLost]);
}

#[test]
fn other_content_is_not_taken_for_the_object_freed_before() {
    let (script, mut heap) = two_objects();
    let script = script.freed(3).allocated(3, 200);
    heap.objects.get_mut(&3).unwrap().segments[0].object = 77;
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
}

#[test]
fn a_slot_that_holds_the_object_freed_before_lost_the_allocation_since() {
    let (script, heap) = two_objects();
    let script = script.freed(3).allocated(3, 200);
    let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::FreedObjectBack]);
}

// FL005

#[test]
fn a_slot_that_a_returned_free_emptied_must_be_null() {
    let (script, heap) = two_objects();
    let script = script.begin(OperationKind::Free, 3, 0);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    let judgement = judged(&contract(), &script.returned(Status::Ok), &heap.probe(), &heap.memory());
    assert_breaks(&judgement, &[RuleId::FreedObjectBack]);
    assert_eq!(judgement.violations[0].operation, Some(3));
}

#[test]
fn a_probe_slot_that_is_set_after_recovery_must_be_null() {
    let (script, mut heap) = two_objects();
    heap.put(SLOTS + 7, 1024, 64, 1);
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::FreedObjectBack]);
}

#[test]
fn what_the_probe_freed_must_not_be_back_after_a_clean_close() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    // One is the maximal allocation, which the probe may leave there.
    probe.slots[4].push((SLOTS, 0, 4096));
    probe.walk[4] = Some(Heap { leaked: vec![(4096, 64)], ..heap.clone() }.walk());
    assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
    probe.slots[4].push((SLOTS + 1, 0, 4160));
    probe.walk[4] = Some(Heap { leaked: vec![(4096, 64), (4160, 64)], ..heap.clone() }.walk());
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::FreedObjectBack]);
}

// durable = "on-close"

#[test]
fn durable_on_close_promises_what_the_last_close_left() {
    let on_close = Contract { durable: Durable::OnClose, ..contract() };
    let script = Script::new(Durable::OnClose).done(OperationKind::Create, 0, 0);
    let (_, heap) = two_objects();
    let script = script.allocated(1, 100).allocated(3, 200);
    // Never closed: even the creation is not durable.
    assert_passes(&judged(&on_close, &script, &refused(Status::NotAHeap), &heap.memory()));
    let mut less = heap.clone();
    less.objects.remove(&3);
    assert_passes(&judged(&on_close, &script, &less.probe(), &heap.memory()));
    let script = script.begin(OperationKind::Close, 0, 0);
    assert_passes(&judged(&on_close, &script, &less.probe(), &heap.memory()));
    let script = script.returned(Status::Ok);
    assert_passes(&judged(&on_close, &script, &heap.probe(), &heap.memory()));
    assert_breaks(&judged(&on_close, &script, &less.probe(), &heap.memory()), &[RuleId::OperationLost]);
    let judgement = judged(&on_close, &script, &refused(Status::NotAHeap), &heap.memory());
    assert_breaks(&judgement, &[RuleId::RecoveryFailed]);
}

#[test]
fn durable_on_close_lets_operations_since_be_there_or_not() {
    let on_close = Contract { durable: Durable::OnClose, ..contract() };
    let script = Script::new(Durable::OnClose).done(OperationKind::Create, 0, 0);
    let script = script.allocated(1, 100).allocated(3, 200).done(OperationKind::Close, 0, 0);
    let (_, heap) = two_objects();
    let script = script.done(OperationKind::Open, 0, 0).freed(3).done(OperationKind::Reallocate, 1, 50);
    assert_passes(&judged(&on_close, &script, &heap.probe(), &heap.memory()));
    let mut less = heap.clone();
    less.objects.remove(&3);
    assert_passes(&judged(&on_close, &script, &less.probe(), &heap.memory()));
    // A slot that was never empty since may not be.
    less.objects.remove(&1);
    assert_breaks(&judged(&on_close, &script, &less.probe(), &heap.memory()), &[RuleId::OperationLost]);
}

// FL014

#[test]
fn what_only_a_second_crash_breaks_is_a_fault_of_the_later_generation() {
    let (mut script, heap) = two_objects();
    script.history.power_fails();
    let script = script.done(OperationKind::Open, 0, 0).begin(OperationKind::Open, 0, 0);
    let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_passes(&judgement);
    assert!(judgement.judged.contains(RuleId::LaterGeneration), "{judgement:?}");
    let lost = heap.probe().each_slots(|slots| slots.truncate(1));
    let judgement = judged(&contract(), &script, &lost, &heap.memory());
    assert!(judgement.violations.iter().all(|violation| violation.rule == RuleId::LaterGeneration), "{judgement:?}");
    assert!(judgement.violations[0].message.starts_with("after 2 crashes, FL004: "), "{judgement:?}");
}

#[test]
fn a_judgement_says_which_pending_operations_happened() {
    let (script, mut heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    let judge = |heap: &Heap| judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_eq!((judge(&heap).happened, judge(&heap).unclear), (vec![], vec![]));
    heap.put(5, 1024, 64, 4);
    assert_eq!((judge(&heap).happened, judge(&heap).unclear), (vec![3], vec![]));
}

// Where nobody says what was done

#[test]
fn without_operations_only_what_the_heap_shows_by_itself_is_judged() {
    let (_, mut heap) = two_objects();
    let script = Script::created();
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::FreedObjectBack]);
    let unknown = Script { history: script.history.without_operations(), ..script };
    heap.leaked.push((2048, 64));
    let judgement = judged(&contract(), &unknown, &heap.probe(), &heap.memory());
    assert_passes(&judgement);
    let why = "the trace does not say what the program did";
    let not_judged = judgement.not_judged.iter().filter(|(_, because)| because == why);
    assert_eq!(
        not_judged.map(|(rule, _)| *rule).collect::<Vec<_>>(),
        [RuleId::OperationLost, RuleId::FreedObjectBack, RuleId::ContentChanged, RuleId::Leak]
    );
    let dangling = heap.probe().each_slots(|slots| slots[0].2 = 4096);
    assert_breaks(&judged(&contract(), &unknown, &dangling, &heap.memory()), &[RuleId::DanglingSlot]);
    let separate = Contract { publish: oracle::contract::Publish::Separate, ..contract() };
    assert_passes(&judged(&separate, &unknown, &dangling, &heap.memory()));
}
