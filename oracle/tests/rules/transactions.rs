// SPDX-License-Identifier: Apache-2.0
//! Transactions: all of their changes or none (FL019), none before the commit (FL005, FL009) and all after it (FL004, FL009). Writes.

use crate::common::*;
use oracle::OperationKind::{Abort, Allocate, Begin, Commit, Free, Reallocate};
use oracle::contract::{Fill, Leaks};
use oracle::history::HistoryError;
use oracle::judge::Verdict;
use oracle::{Contract, Operation, OperationKind, RuleId, Segment, Status, TwinSet};

/// Two objects (slots 1 and 3); an open transaction has allocated slot 5 and freed slot 3.
fn open_transaction() -> (Script, Heap, Heap) {
    let (script, before) = two_objects();
    let script = script.bound(Begin).allocated(5, 300).freed(3);
    let mut after = before.clone();
    after.objects.remove(&3);
    after.put(5, 1024, 300, 5);
    (script, before, after)
}

fn written(heap: &mut Heap, slot: u32, segments: &[(u64, u32)]) {
    let segments = segments.iter().map(|&(end, object)| Segment { end, object }).collect();
    heap.objects.get_mut(&slot).expect("the test put it there").segments = segments;
}

#[test]
fn nothing_of_an_open_transaction_is_there() {
    let (script, before, after) = open_transaction();
    for script in [script.clone(), script.clone().begin(Allocate, 6, 64), script.begin(Abort, 0, 0)] {
        assert_passes(&judged(&contract(), &script, &before.probe(), &before.memory()));
        let judgement = judged(&contract(), &script, &after.probe(), &after.memory());
        assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::FreedObjectBack]);
        assert_eq!(judgement.violations[0].slot, Some(3), "lost without a commit");
    }
}

#[test]
fn a_pending_commit_has_happened_or_not() {
    let (script, before, after) = open_transaction();
    let script = script.begin(Commit, 0, 0);
    let judgement = judged(&contract(), &script, &before.probe(), &before.memory());
    assert_passes(&judgement);
    assert!(judgement.happened.is_empty() && judgement.judged.contains(RuleId::TransactionInPart));
    let judgement = judged(&contract(), &script, &after.probe(), &after.memory());
    assert_passes(&judgement);
    assert_eq!(judgement.happened, [6]);
}

#[test]
fn of_a_pending_commit_no_change_is_there_without_the_others() {
    let (script, before, after) = open_transaction();
    let script = script.begin(Commit, 0, 0);
    let mut freed = before.clone();
    freed.objects.remove(&3);
    let mut allocated = after.clone();
    allocated.put(3, 512, 200, 3);
    for heap in [freed, allocated] {
        let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
        assert_breaks(&judgement, &[RuleId::TransactionInPart]);
        assert_eq!(judgement.violations[0].operation, Some(6), "the commit");
        assert_eq!(facts(&judgement), ["transaction-in-part"]);
    }
}

#[test]
fn a_returned_commit_is_there_whole() {
    let (script, before, after) = open_transaction();
    let script = script.bound(Commit);
    assert_passes(&judged(&contract(), &script, &after.probe(), &after.memory()));
    let judgement = judged(&contract(), &script, &before.probe(), &before.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::FreedObjectBack]);
    let operations: Vec<_> = judgement.violations.iter().map(|violation| violation.operation).collect();
    assert_eq!(operations, [Some(4), Some(5)], "the allocation and the free, not the commit");
}

#[test]
fn an_aborted_transaction_has_never_been() {
    let (script, before, after) = open_transaction();
    let script = script.bound(Abort);
    assert_passes(&judged(&contract(), &script, &before.probe(), &before.memory()));
    let judgement = judged(&contract(), &script, &after.probe(), &after.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::FreedObjectBack]);
    // What comes after it finds the slots as they were.
    let script = script.freed(3).allocated(5, 300);
    let mut heap = before;
    heap.objects.remove(&3);
    heap.put(5, 1024, 300, 9);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
}

#[test]
fn a_commit_without_room_has_no_effect() {
    let (script, before, after) = open_transaction();
    let script = script.begin(Commit, 0, 0).returned(Status::OutOfMemory);
    assert_passes(&judged(&contract(), &script, &before.probe(), &before.memory()));
    assert!(!judged(&contract(), &script, &after.probe(), &after.memory()).violations.is_empty());
    script.allocated(5, 64).freed(3);
}

#[test]
fn an_operation_without_room_is_no_part_of_its_transaction() {
    let (script, before, mut after) = open_transaction();
    let script = script.begin(Allocate, 6, 4096).returned(Status::OutOfMemory).bound(Commit);
    assert_passes(&judged(&contract(), &script, &after.probe(), &after.memory()));
    after.put(6, 2048, 4096, 7);
    assert_breaks(&judged(&contract(), &script, &after.probe(), &after.memory()), &[RuleId::FreedObjectBack]);
    assert!(!judged(&contract(), &script, &before.probe(), &before.memory()).violations.is_empty());
}

#[test]
fn operations_of_a_transaction_see_those_before_them() {
    let (script, mut heap) = two_objects();
    let script = script.bound(Begin).allocated(5, 64).written(5, 8, 16).done(Reallocate, 5, 128);
    let script = script.freed(3).allocated(3, 64).freed(3).begin(Commit, 0, 0);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    heap.objects.remove(&3);
    heap.put(5, 1024, 128, 5);
    written(&mut heap, 5, &[(8, 5), (24, 6), (64, 5), (128, 7)]);
    let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_passes(&judgement);
    assert_eq!(judgement.happened, [10]);
}

#[test]
fn an_object_that_a_transaction_made_and_freed_leaves_no_trace() {
    let (script, heap) = two_objects();
    let script = script.bound(Begin).allocated(5, 64).freed(5).begin(Commit, 0, 0);
    let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_passes(&judgement);
    assert_eq!((&judgement.happened[..], &judgement.unclear[..]), (&[][..], &[6][..]), "nobody can tell");
}

#[test]
fn contents_are_as_after_the_transaction_or_as_before() {
    let (script, mut heap) = two_objects();
    let (old, script) = (heap.clone(), script.bound(Begin).written(1, 0, 16).written(3, 64, 64));
    written(&mut heap, 1, &[(16, 5), (100, 2)]);
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
    let pending = script.clone().begin(Commit, 0, 0);
    assert_breaks(&judged(&contract(), &pending, &heap.probe(), &heap.memory()), &[RuleId::TransactionInPart]);
    let aborted = script.clone().bound(Abort);
    assert_breaks(&judged(&contract(), &aborted, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
    assert_passes(&judged(&contract(), &aborted, &old.probe(), &old.memory()));
    written(&mut heap, 3, &[(64, 3), (128, 6), (200, 3)]);
    assert_passes(&judged(&contract(), &pending, &heap.probe(), &heap.memory()));
    assert_passes(&judged(&contract(), &script.clone().bound(Commit), &heap.probe(), &heap.memory()));
    let judgement = judged(&contract(), &script.bound(Commit), &old.probe(), &old.memory());
    assert_breaks(&judgement, &[RuleId::ContentChanged]);
    assert_eq!(judgement.violations[0].operation, Some(4), "the write, not the allocation");
}

#[test]
fn fills_of_a_transaction_are_whole_when_it_is_there_even_where_single_ones_need_not_be() {
    let contract = Contract { fill: Fill::After, ..contract() };
    let (script, mut heap) = two_objects();
    heap.put(5, 1024, 64, 77);
    let alone = script.clone().begin(Allocate, 5, 64);
    assert_passes(&judged(&contract, &alone, &heap.probe(), &heap.memory()));
    let script = script.bound(Begin).allocated(5, 64).begin(Commit, 0, 0);
    assert_breaks(&judged(&contract, &script, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
}

#[test]
fn blocks_of_an_open_transaction_may_leak_where_those_of_pending_operations_may() {
    let contract = Contract { leaks: Leaks::Pending, ..contract() };
    let (script, mut heap) = two_objects();
    let script = script.bound(Begin).allocated(5, 64).allocated(6, 64);
    heap.leaked = vec![(1024, 64), (1152, 64)];
    assert_passes(&judged(&contract, &script, &heap.probe(), &heap.memory()));
    heap.leaked.push((1280, 64));
    assert_breaks(&judged(&contract, &script, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
    assert_breaks(
        &judged(&contract, &script.bound(Commit), &heap.probe(), &heap.memory()),
        &[RuleId::OperationLost, RuleId::Leak],
    );
}

/// A transaction may grow the heap and be undone: that is no loss.
#[test]
fn an_undone_transaction_holds_what_a_heap_with_or_without_it_holds() {
    let (script, before, mut after) = open_transaction();
    after.leaked = vec![(4096, 512)]; // what growing took
    let mut twins = TwinSet::new();
    twins.insert(2, &before.probe().report());
    twins.insert(6, &after.probe().report());
    let mut grown = before.clone();
    grown.leaked = after.leaked.clone();
    let mut probe = before.probe();
    probe.emptied = grown.probe().emptied;
    for script in [script.clone(), script.clone().begin(Commit, 0, 0)] {
        assert_passes(&judged_with_twins(&script, &probe, &before.memory(), &twins));
    }
    let script = script.bound(Abort);
    assert_passes(&judged_with_twins(&script, &probe, &before.memory(), &{
        let mut twins = TwinSet::new();
        twins.insert(6, &{
            let mut twin = before.probe();
            twin.emptied = grown.probe().emptied;
            twin.report()
        });
        twins
    }));
    let (script, _) = two_objects();
    assert_breaks(&judged_with_twins(&script, &probe, &before.memory(), &twins), &[RuleId::NotUsable]);
}

#[test]
fn a_pending_write_alone_may_leave_its_bytes_in_any_state() {
    let (script, mut heap) = two_objects();
    let script = script.begin_write(3, 64, 64);
    for segments in [
        &[(200, 3)][..],
        &[(64, 3), (128, 4), (200, 3)],
        &[(64, 3), (96, 4), (200, 3)],
        &[(64, 3), (128, 77), (200, 3)],
    ] {
        written(&mut heap, 3, segments);
        assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    }
    // Beside them nothing changes.
    written(&mut heap, 3, &[(56, 3), (128, 4), (200, 3)]);
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
    let script = script.returned(Status::Ok);
    written(&mut heap, 3, &[(64, 3), (128, 4), (200, 3)]);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    written(&mut heap, 3, &[(64, 3), (96, 4), (200, 3)]);
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
}

#[test]
fn what_a_write_left_in_part_stays_unknown_until_it_is_written_again() {
    let (script, mut heap) = two_objects();
    let mut script = script.begin_write(3, 64, 64);
    script.history.power_fails();
    let mut script = script.begin(OperationKind::Open, 0, 0).returned(Status::Ok);
    script.history.recovered(&[], &[], Fill::Before);
    written(&mut heap, 3, &[(64, 3), (96, 4), (200, 3)]);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    let script = script.written(3, 0, 128);
    assert!(!judged(&contract(), &script, &heap.probe(), &heap.memory()).violations.is_empty());
    written(&mut heap, 3, &[(128, 6), (200, 3)]);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
}

#[test]
fn power_that_fails_twice_ends_the_transaction_with_the_first_crash() {
    let (script, before, after) = open_transaction();
    for (happened, heap) in [(&[][..], &before), (&[6][..], &after)] {
        let mut script = script.clone().begin(Commit, 0, 0);
        script.history.power_fails();
        let mut script = script.begin(OperationKind::Open, 0, 0).returned(Status::Ok);
        script.history.recovered(happened, &[], Fill::Before);
        assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
        script.bound(Begin).bound(Commit);
    }
    let mut script = script;
    script.history.power_fails();
    let script = script.begin(OperationKind::Open, 0, 0).returned(Status::Ok).freed(3);
    let mut heap = before;
    heap.objects.remove(&3);
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
}

#[test]
fn operations_that_fit_no_transaction_are_refused() {
    let refused = |script: &Script, kind, slot, bytes| -> HistoryError {
        let index = script.next;
        let operation = Operation { thread: 0, kind, index, slot, bytes, object: 9, from: 96, field: 0, other_slot: 0 };
        script.history.clone().begin(operation).expect_err("it does not fit")
    };
    let (script, _) = two_objects();
    assert_eq!(refused(&script, Commit, 0, 0).what, "commit without a transaction");
    assert_eq!(refused(&script, Abort, 0, 0).what, "abort without a transaction");
    assert_eq!(refused(&script, OperationKind::Write, 1, 8).what, "write begins on slot 1, past the end of its object");
    let script = script.bound(Begin);
    assert_eq!(refused(&script, Begin, 0, 0).what, "begin in a transaction");
    assert_eq!(refused(&script, OperationKind::Close, 0, 0).what, "close in a transaction");
    assert_eq!(refused(&script, OperationKind::Drop, 1, 0).what, "drop in a transaction");
    let script = script.freed(1);
    assert_eq!(refused(&script, Free, 1, 0).what, "free begins on slot 1, which is empty");
}

/// What is expected changes with each operation, and with nothing else.
#[test]
fn the_state_tells_transactions_apart() {
    let (script, _) = two_objects();
    let begun = script.clone().bound(Begin);
    let one = begun.clone().allocated(5, 64);
    let two = one.clone().allocated(6, 64);
    let ids = [&script, &begun, &one, &two].map(|script| script.history.state_id());
    let distinct: std::collections::BTreeSet<u64> = ids.into_iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

/// After a reallocation at an odd size two patterns share a word. What of it could be either's the first has.
#[test]
fn recovery_puts_an_object_right_whose_patterns_share_a_word() {
    for kept in 33..48 {
        let script = Script::created().allocated(1, kept).done(OperationKind::Reallocate, 1, 200);
        let script = script.bound(Begin).written(1, 64, 40).bound(Commit);
        let mut heap = Heap::default();
        heap.put(1, 64, 200, 2);
        written(&mut heap, 1, &[(kept, 2), (200, 3)]);
        let in_the_image = heap.memory();
        written(&mut heap, 1, &[(kept, 2), (64, 3), (104, 5), (200, 3)]);
        let mut probe = heap.probe();
        let contents = scanned(1, &heap.memory().bytes[64..264], &[2, 3, 5]);
        probe.contents.values_mut().for_each(|entries| entries.clone_from(&contents));
        assert_passes(&judged(&contract(), &script, &probe, &in_the_image));
        // Recovery that does not write it leaves it wrong.
        written(&mut heap, 1, &[(kept, 2), (200, 3)]);
        let judgement = judged(&contract(), &script, &heap.probe(), &in_the_image);
        assert_breaks(&judgement, &[RuleId::ContentChanged]);
    }
}

/// Recovery went on with one change, which the crash image has nothing of, and forgot the other.
#[test]
fn contents_after_recovery_tell_that_a_change_has_happened() {
    let (script, mut heap) = two_objects();
    let script = script.bound(Begin).written(1, 0, 16).allocated(5, 64).begin(Commit, 0, 0);
    let in_the_image = heap.memory();
    written(&mut heap, 1, &[(16, 5), (100, 2)]);
    let judgement = judged(&contract(), &script, &heap.probe(), &in_the_image);
    assert_breaks(&judgement, &[RuleId::TransactionInPart]);
    heap.put(5, 1024, 64, 6);
    let mut in_the_image = in_the_image;
    in_the_image.write(1024, &[Segment { end: 64, object: 6 }]);
    let judgement = judged(&contract(), &script, &heap.probe(), &in_the_image);
    assert_passes(&judgement);
    assert_eq!((&judgement.happened[..], &judgement.unclear[..]), (&[6][..], &[][..]));
}

/// Recovery may have taken back what a free did to an object of two bytes. The bare word shows it; a report without it does not.
#[test]
fn what_recovery_made_of_bytes_without_a_word_is_not_known() {
    let script = Script::created().allocated(1, 2).allocated(3, 64);
    let mut heap = Heap::default();
    heap.put(1, 64, 2, 2);
    heap.put(3, 128, 64, 3);
    let mut probe = heap.probe();
    probe.contents.values_mut().for_each(|entries| entries.retain(|entry| entry.0 != 1));
    let mut cleared = heap.memory();
    cleared.bytes[64..66].fill(0);
    for open in [script.clone().begin(Free, 1, 0), script.clone().bound(Begin).freed(1)] {
        let judgement = judged(&contract(), &open, &probe, &cleared);
        assert_eq!((judgement.verdict(), judgement.unknown.len()), (Verdict::Unknown, 1), "{judgement:?}");
        assert_passes(&judged(&contract(), &open, &probe, &heap.memory()));
        for (recovered, is_back) in [(&heap.memory(), true), (&cleared, false)] {
            let mut probe = probe.clone();
            let word = scanned(1, &recovered.bytes[64..72], &[2]);
            probe.contents.values_mut().for_each(|entries| entries.splice(0..0, word.clone()).for_each(drop));
            let judgement = judged(&contract(), &open, &probe, &cleared);
            assert!(judgement.unknown.is_empty(), "{judgement:?}");
            match is_back {
                true => assert_passes(&judgement),
                false => assert!(judgement.violations.iter().any(|found| found.rule == RuleId::ContentChanged)),
            }
        }
    }
    let other = script.begin(Free, 3, 0);
    assert_breaks(&judged(&contract(), &other, &probe, &cleared), &[RuleId::ContentChanged]);
}

/// A reallocation that grows fits before and after it. The twins have it at two places.
#[test]
fn the_place_tells_whether_a_reallocation_of_a_pending_commit_has_happened() {
    let (script, before) = two_objects();
    let script = script.bound(Begin).done(Reallocate, 1, 200).freed(3).begin(Commit, 0, 0);
    let mut moved = before.clone();
    moved.objects.remove(&1);
    moved.put(1, 1024, 200, 2);
    written(&mut moved, 1, &[(100, 2), (200, 5)]);
    let mut after = moved.clone();
    after.objects.remove(&3);
    let mut twins = TwinSet::new();
    twins.insert(2, &before.probe().report());
    twins.insert(6, &after.probe().report());
    assert_passes(&judged_with_twins(&script, &before.probe(), &before.memory(), &twins));
    assert_passes(&judged_with_twins(&script, &after.probe(), &after.memory(), &twins));
    let judgement = judged_with_twins(&script, &moved.probe(), &moved.memory(), &twins);
    assert!(judgement.violations.iter().any(|violation| violation.rule == RuleId::TransactionInPart), "{judgement:?}");
    // Without twins nothing tells, and that is said.
    let judgement = judged(&contract(), &script, &moved.probe(), &moved.memory());
    assert!(judgement.not_judged.iter().any(|(rule, _)| *rule == RuleId::TransactionInPart), "{judgement:?}");
}
