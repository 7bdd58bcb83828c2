// SPDX-License-Identifier: Apache-2.0
//! Recovering twice: FL013.

use crate::common::*;
use oracle::contract::{Accounting, Fill, Leaks};
use oracle::report::Stage;
use oracle::report::build::{allocated, free, metadata};
use oracle::{Contract, OperationKind, RuleId, Segment, Status};

#[test]
fn a_second_recovery_that_changes_slots_is_not_idempotent() {
    let (script, heap) = two_objects();
    let mut moved = heap.clone();
    moved.objects.get_mut(&3).unwrap().offset = 2048;
    let mut probe = heap.probe();
    probe.slots[2] = moved.slots();
    probe.walk[2] = Some(moved.walk());
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::NotIdempotent]);
    assert_eq!(judgement.violations[0].slot, Some(3));
    assert!(judgement.violations[0].message.contains("second recovery"), "{judgement:?}");
}

#[test]
fn a_recovery_of_the_same_image_to_another_heap_is_not_idempotent() {
    let (script, heap) = two_objects();
    let mut moved = heap.clone();
    moved.objects.get_mut(&3).unwrap().offset = 2048;
    let mut probe = moved.probe();
    for life in [0, 2] {
        probe.slots[life] = heap.slots();
        probe.walk[life] = Some(heap.walk());
    }
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::NotIdempotent]);
    assert_eq!((judgement.violations.len(), judgement.violations[0].slot), (1, Some(3)));
    assert!(judgement.violations[0].message.contains("recovery of a fresh copy"), "{judgement:?}");
}

#[test]
fn a_second_recovery_that_changes_the_live_set_is_not_idempotent() {
    let (script, heap) = two_objects();
    let more = Heap { leaked: vec![(2048, 64)], ..heap.clone() };
    let mut probe = heap.probe();
    probe.walk[2] = Some(more.walk());
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::NotIdempotent]);
    let collected = Contract { leaks: Leaks::Collected, ..contract() };
    assert_breaks(&judged(&collected, &script, &probe, &heap.memory()), &[RuleId::NotIdempotent]);
    probe.retained[2] = Some(vec![allocated(2048, 64)]);
    assert_passes(&judged(&collected, &script, &probe, &heap.memory()));
    // What a stale word retained the next recovery may collect.
    let mut probe = more.probe();
    probe.retained[0] = Some(vec![allocated(2048, 64)]);
    probe.walk[2] = Some(heap.walk());
    assert_passes(&judged(&collected, &script, &probe, &heap.memory()));
    probe.walk[2].as_mut().unwrap().retain(|block| block.offset != 64);
    assert_breaks(
        &judged(&Contract { accounting: Accounting::None, ..collected }, &script, &probe, &heap.memory()),
        &[RuleId::NotIdempotent],
    );
}

#[test]
fn survivors_of_a_clean_close_must_stay() {
    let (script, heap) = two_objects();
    let mut less = heap.clone();
    less.objects.remove(&3);
    let mut probe = heap.probe();
    probe.slots[4] = less.slots();
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::NotIdempotent]);
    let mut probe = heap.probe();
    probe.walk[4] = Some(Heap { leaked: vec![(2048, 64)], ..heap.clone() }.walk());
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::NotIdempotent]);
}

#[test]
fn a_second_recovery_may_not_change_what_nobody_promised() {
    let (script, mut heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    heap.put(5, 1024, 64, 4);
    let after = Contract { fill: Fill::After, ..contract() };
    let probe = heap.probe();
    assert_passes(&judged(&after, &script, &probe, &heap.memory()));
    for life in [2, 3, 4] {
        let mut probe = probe.clone();
        probe.contents.get_mut(&(life, Stage::Recovery)).unwrap().pop();
        assert_breaks(&judged(&after, &script, &probe, &heap.memory()), &[RuleId::NotIdempotent]);
    }
}

#[test]
fn the_maximal_allocation_may_stay_and_lie_inside_its_block() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.slots[4].push((SLOTS, 0, 4096 + 64));
    probe.walk[4] = Some(Heap { leaked: vec![(4096, 128)], ..heap.clone() }.walk());
    assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
    probe.slots[4][2].2 = 4096 + 128;
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::NotIdempotent]);
}

#[test]
fn what_failed_frees_left_is_no_news_after_the_close() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.free_all = Some(Status::Error);
    probe.slots[4].extend([(SLOTS, 0, 4096), (SLOTS + 1, 0, 4160)]);
    probe.walk[4] = Some(Heap { leaked: vec![(4096, 64), (4160, 64)], ..heap.clone() }.walk());
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::NotUsable]);
}

#[test]
fn two_shared_words_in_a_row_end_what_contents_can_tell() {
    let segment = |end, object| Segment { end, object };
    let mut heap = Heap::default();
    heap.put(1, 64, 64, 2);
    let script = Script::created().allocated(1, 9);
    let script = script.done(OperationKind::Reallocate, 1, 17).done(OperationKind::Reallocate, 1, 64);
    heap.objects.get_mut(&1).unwrap().segments = vec![segment(9, 2), segment(17, 3), segment(64, 4)];
    let mut probe = heap.probe();
    probe.contents.values_mut().for_each(|entries| entries.truncate(1));
    assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
    probe.contents.values_mut().for_each(|entries| entries.clear());
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::ContentChanged]);
}

#[test]
fn files_are_compared_by_name_not_by_number() {
    let (script, heap) = two_objects();
    let blocks = [metadata(0, 64), allocated(64, 128), free(192, 320), allocated(512, 256)];
    let life = |builder: oracle::report::build::ReportBuilder, number, names: &[&str], file| {
        let slots: Vec<_> = heap.slots().iter().map(|&(slot, _, offset)| (slot, file, offset)).collect();
        let blocks = blocks.map(|block| oracle::report::Block { file, ..block });
        builder.life(number).open(Status::Ok).files(names).slots(8, &slots).walk(768, &blocks).check(Status::Ok)
    };
    let builder = life(oracle::report::build::ReportBuilder::new(), 0, &["heap", "empty"], 0);
    let builder = builder.life(1).open(Status::Ok).files(&["heap"]);
    for (names, expected) in [(["empty", "heap"], vec![]), (["heap", "empty"], vec![RuleId::NotIdempotent])] {
        let report = life(builder.clone(), 2, &names, 1).report();
        let judgement = crate::common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
        assert_breaks(&judgement, &expected);
    }
}
