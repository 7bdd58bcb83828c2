// SPDX-License-Identifier: Apache-2.0
//! Heap blocks among themselves and what refers to them: FL006 to FL008, FL010, FL011.

use crate::common::*;
use oracle::contract::{Accounting, Fill, Leaks, Publish};
use oracle::judge::Verdict;
use oracle::report::BlockState;
use oracle::report::build::{allocated, free, metadata};
use oracle::{Contract, HeapShape, Judgement, OperationKind, RuleId, Segment, Status};

// FL006

#[test]
fn live_heap_blocks_that_overlap_are_found() {
    let (script, heap) = two_objects();
    let contract = Contract { accounting: Accounting::None, leaks: Leaks::Collected, ..contract() };
    let with = |block| Probe {
        retained: std::array::from_fn(|_| Some(vec![block])),
        ..heap.probe().each_walk(|blocks| blocks.push(block))
    };
    let judgement = judged(&contract, &script, &with(allocated(640, 128)), &heap.memory());
    assert_eq!(rules(&judgement), [RuleId::Overlap], "{judgement:#?}");
    assert_passes(&judged(&contract, &script, &with(allocated(768, 128)), &heap.memory()));
}

#[test]
fn a_long_block_may_overlap_one_that_is_not_its_neighbour() {
    let (script, heap) = two_objects();
    let loose = Contract { accounting: Accounting::None, leaks: Leaks::Pending, ..contract() };
    let mut script = script;
    for (thread, slot) in [(0, 5), (1, 6), (2, 7)] {
        script.begin_on(thread, OperationKind::Allocate, slot, 64);
    }
    let probe = heap.probe().each_walk(|blocks| {
        blocks.extend([allocated(1024, 512), allocated(1088, 64), allocated(1472, 128)]);
    });
    let judgement = judged(&loose, &script, &Probe { drain: None, lives: 1, ..probe }, &heap.memory());
    assert_breaks(&judgement, &[RuleId::Overlap]);
    assert_eq!(judgement.violations.len(), 2);
}

#[test]
fn without_walk_a_long_object_may_overlap_one_that_is_not_its_neighbour() {
    let (mut heap, after) = (Heap::default(), Contract { fill: Fill::After, ..contract() });
    let mut script = Script::created();
    for (thread, slot, bytes, offset) in [(0, 1, 512, 1024), (1, 2, 64, 1088), (2, 3, 128, 1472), (3, 4, 64, 1600)] {
        script.begin_on(thread, OperationKind::Allocate, slot, bytes);
        heap.put(slot, offset, bytes, script.next);
    }
    let probe = Probe { lives: 1, ..Heap::default().probe() };
    let slots = heap.slots();
    let probe = probe.without_walk().each_slots(|entries| entries.clone_from(&slots));
    let judgement = judged(&after, &script, &probe, &Heap::default().memory());
    assert_breaks(&judgement, &[RuleId::Overlap]);
    let slots: Vec<_> = judgement.violations.iter().map(|violation| violation.slot).collect();
    assert_eq!(slots, [Some(2), Some(3)], "the adjacent one does not overlap");
}

#[test]
fn two_slots_may_not_share_a_heap_block() {
    let (script, heap) = two_objects();
    let mut memory = heap.memory();
    memory.write(64, &[Segment { end: 100, object: 2 }]);
    let script = script.begin(OperationKind::Allocate, 5, 64);
    let contract = Contract { fill: Fill::After, ..contract() };
    let probe = heap.probe().each_slots(|slots| slots.push((5, 0, 64)));
    assert_breaks(&judged(&contract, &script, &probe, &memory), &[RuleId::Overlap]);
}

#[test]
fn without_walk_objects_in_slots_may_not_overlap() {
    let (script, mut heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    let contract = Contract { fill: Fill::After, ..contract() };
    heap.put(5, 128, 64, 4);
    let judgement = judged(&contract, &script, &heap.probe().without_walk(), &heap.memory());
    assert!(rules(&judgement).contains(&RuleId::Overlap), "{judgement:#?}");
    heap.put(5, 192, 64, 4);
    heap.objects.get_mut(&1).unwrap().segments = vec![Segment { end: 100, object: 2 }];
    let judgement = judged(&contract, &script, &heap.probe().without_walk(), &heap.memory());
    assert_passes(&judgement);
    let missing: Vec<RuleId> = judgement.not_judged.iter().map(|(rule, _)| *rule).collect();
    for rule in [RuleId::DanglingSlot, RuleId::Leak, RuleId::Inconsistent] {
        assert!(missing.contains(&rule) && !judgement.judged.contains(rule), "{judgement:#?}");
    }
}

#[test]
fn an_allocation_after_recovery_may_not_overlap_a_live_block() {
    let (script, heap) = two_objects();
    for with_walk in [true, false] {
        let mut probe = if with_walk { heap.probe() } else { heap.probe().without_walk() };
        assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
        probe.drain.as_mut().unwrap().push(allocated(640, 64));
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::Overlap]);
    }
}

#[test]
fn two_allocations_after_recovery_may_not_overlap() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    let first = probe.drain.as_ref().unwrap()[0];
    probe.drain.as_mut().unwrap().push(allocated(first.offset, 64));
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::Overlap]);
}

#[test]
fn what_a_long_use_allocates_may_not_overlap_a_live_block_or_each_other() {
    let (script, heap) = two_objects();
    let free = heap.probe().drain.unwrap()[0].offset;
    for (blocks, is_wrong) in [
        (vec![allocated(free, 64), allocated(free + 64, 64)], false),
        (vec![allocated(free, 64), allocated(free, 64)], true),
        (vec![allocated(640, 64)], true),
    ] {
        // Two objects in one place say why their contents are wrong.
        for status in if is_wrong { vec![Status::Ok, Status::Error] } else { vec![Status::Ok] } {
            let probe = Probe { long_use: Some((status, blocks.clone())), ..heap.probe() };
            let judgement = judged(&contract(), &script, &probe, &heap.memory());
            let expected: &[RuleId] = if is_wrong { &[RuleId::Overlap] } else { &[] };
            assert_eq!(rules(&judgement), expected, "{blocks:?}: {judgement:#?}");
        }
    }
}

// FL007

#[test]
fn a_live_block_past_the_end_of_the_heap_is_out_of_bounds() {
    let (script, heap) = two_objects();
    let contract = Contract { accounting: Accounting::None, leaks: Leaks::Pending, ..contract() };
    let script = script.begin(OperationKind::Allocate, 5, 64);
    for (offset, bytes, is_wrong) in [
        (HEAP_BYTES - 64, 64, false),
        (HEAP_BYTES - 64, 128, true),
        (u64::MAX - 63, 64, true),
        (HEAP_BYTES - 96, 64, true), // misaligned
        (HEAP_BYTES - 64, 8, true),  // smaller than any heap block
    ] {
        let probe = heap.probe().each_walk(|blocks| blocks.push(allocated(offset, bytes)));
        let judgement = judged(&contract, &script, &Probe { drain: None, ..probe }, &heap.memory());
        let expected: &[RuleId] = if is_wrong { &[RuleId::BadExtent] } else { &[] };
        assert_eq!(rules(&judgement), expected, "{offset} {bytes}: {judgement:#?}");
    }
}

#[test]
fn a_heap_block_smaller_than_what_was_asked_for_is_too_small() {
    let (script, mut heap) = two_objects();
    heap.objects.get_mut(&3).unwrap().capacity = 192;
    let judgement = judged(&contract(), &script, &heap.probe(), &heap.memory());
    assert_breaks(&judgement, &[RuleId::BadExtent]);
    assert_eq!((judgement.violations[0].slot, judgement.violations[0].operation), (Some(3), Some(2)));
}

#[test]
fn a_misaligned_object_is_found() {
    let (script, mut heap) = two_objects();
    heap.objects.get_mut(&3).unwrap().capacity = 256 + 64;
    let probe = heap.probe().each_slots(|slots| slots[1].2 += 8);
    let mut memory = heap.memory();
    memory.write(520, &[Segment { end: 200, object: 3 }]);
    assert_breaks(&judged(&contract(), &script, &probe, &memory), &[RuleId::BadExtent]);
}

#[test]
fn without_walk_an_object_may_not_end_past_the_limit() {
    let (script, mut heap) = two_objects();
    let mut memory = heap.memory();
    memory.bytes.resize(2 * HEAP_BYTES as usize, 0);
    memory.write(HEAP_BYTES - 64, &[Segment { end: 200, object: 3 }]);
    heap.objects.remove(&3);
    let probe = heap.probe().without_walk().each_slots(|slots| slots.push((3, 0, HEAP_BYTES - 64)));
    let probe = Probe { drain: None, contents: Default::default(), ..probe };
    assert_breaks(&judged(&contract(), &script, &probe, &memory), &[RuleId::BadExtent]);
    let fits = probe.each_slots(|slots| slots[1].2 = HEAP_BYTES - 200);
    let mut memory = heap.memory();
    memory.write(HEAP_BYTES - 200, &[Segment { end: 200, object: 3 }]);
    let unaligned = oracle::HeapShape { alignment: 8, ..shape() };
    let report = fits.report();
    assert_passes(&crate::common::judge(&contract(), &unaligned, &script.history, &report, &memory, None));
}

#[test]
fn an_allocation_after_recovery_must_lie_in_the_heap_and_be_aligned() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.drain = Some(vec![allocated(HEAP_BYTES - 64, 64)]);
    assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
    for block in [allocated(HEAP_BYTES, 64), allocated(u64::MAX - 63, 64), allocated(HEAP_BYTES - 8, 8)] {
        let mut probe = heap.probe();
        probe.drain = Some(vec![block]);
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::BadExtent]);
    }
}

// FL008

#[test]
fn a_slot_that_points_to_a_free_block_dangles_and_its_object_is_lost() {
    let (script, heap) = two_objects();
    let mut without = heap.clone();
    without.objects.remove(&3);
    let probe = Probe { slots: heap.probe().slots, ..without.probe() };
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::DanglingSlot]);
}

#[test]
fn a_pending_allocation_that_is_published_must_have_its_block() {
    let (script, heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    let probe = heap.probe().each_slots(|slots| slots.push((5, 0, 4096)));
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::DanglingSlot]);
}

#[test]
fn a_reserved_block_is_not_live() {
    let (script, heap) = two_objects();
    let probe = heap.probe().each_walk(|blocks| {
        let block = blocks.iter_mut().find(|block| block.offset == 512).unwrap();
        block.state = BlockState::Reserved;
    });
    assert!(rules(&judged(&contract(), &script, &probe, &heap.memory())).contains(&RuleId::DanglingSlot));
}

#[test]
fn with_separate_publication_a_pending_free_may_leave_its_slot_dangling() {
    let (script, heap) = two_objects();
    let mut without = heap.clone();
    without.objects.remove(&3);
    let probe = Probe { slots: heap.probe().slots, ..without.probe() };
    let script = script.begin(OperationKind::Free, 3, 0);
    let separate = Contract { publish: Publish::Separate, leaks: Leaks::Pending, ..contract() };
    assert_passes(&judged(&separate, &script, &probe, &heap.memory()));
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert!(rules(&judgement).contains(&RuleId::DanglingSlot), "{judgement:#?}");
    let returned = script.returned(Status::Ok);
    assert!(rules(&judged(&separate, &returned, &probe, &heap.memory())).contains(&RuleId::FreedObjectBack));
}

/// Its heap block may be free, so the allocator may have stored into it, and the drain may be handed it.
#[test]
fn without_walk_a_slot_that_may_dangle_says_nothing_of_its_object() {
    let (script, heap) = two_objects();
    let mut without = heap.clone();
    without.objects.remove(&3);
    let probe = Probe { slots: heap.probe().slots, ..without.probe().without_walk() };
    let script = script.begin(OperationKind::Free, 3, 0);
    let separate = Contract { publish: Publish::Separate, leaks: Leaks::Pending, ..contract() };
    assert_passes(&judged(&separate, &script, &probe, &without.memory()));
    let judgement = judged(&contract(), &script, &probe, &without.memory());
    assert_breaks(&judgement, &[RuleId::ContentChanged]);
}

#[test]
fn only_the_slot_of_the_pending_free_may_dangle() {
    let (script, heap) = two_objects();
    let mut without = heap.clone();
    without.objects.remove(&3);
    let probe = Probe { slots: heap.probe().slots, ..without.probe() };
    let separate = Contract { publish: Publish::Separate, leaks: Leaks::Pending, ..contract() };
    let script = script.begin(OperationKind::Free, 1, 0);
    let judgement = judged(&separate, &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::DanglingSlot]);
}

#[test]
fn a_slot_left_dangling_may_name_what_another_thread_was_handed() {
    let (mut script, heap) = two_objects();
    script.begin_on(0, OperationKind::Free, 3, 0);
    script.begin_on(1, OperationKind::Allocate, 5, 200);
    script.history.returned(1, 4, Status::Ok).unwrap();
    let mut reused = heap.clone();
    reused.objects.remove(&3);
    reused.put(5, 512, 200, 5);
    let probe = reused.probe().each_slots(|slots| slots.insert(1, (3, 0, 512)));
    let separate = Contract { publish: Publish::Separate, leaks: Leaks::Pending, threads: 2, ..contract() };
    assert_passes(&judged(&separate, &script, &probe, &reused.memory()));
    let atomic = Contract { publish: Publish::Atomic, ..separate };
    let judgement = judged(&atomic, &script, &probe, &reused.memory());
    assert_breaks(&judgement, &[RuleId::Overlap, RuleId::ContentChanged]);
}

/// However many threads the contract allows: none of them ran.
#[test]
fn with_one_thread_a_pending_free_keeps_the_content_while_the_block_is_live() {
    let (script, heap) = two_objects();
    let separate = Contract { publish: Publish::Separate, leaks: Leaks::Pending, threads: 8, ..contract() };
    let script = script.begin(OperationKind::Free, 3, 0);
    assert_passes(&judged(&separate, &script, &heap.probe(), &heap.memory()));
    let mut memory = heap.memory();
    memory.bytes[512] ^= 1;
    let probe = Probe { lives: 1, ..heap.probe() };
    assert_breaks(&judged(&separate, &script, &probe, &memory), &[RuleId::ContentChanged]);
}

#[test]
fn a_slot_may_point_into_its_heap_block_but_not_to_its_end() {
    let (script, mut heap) = two_objects();
    heap.objects.get_mut(&3).unwrap().capacity = 64 + 256;
    let mut memory = heap.memory();
    memory.write(512 + 64, &[Segment { end: 200, object: 3 }]);
    let inside = heap.probe().each_slots(|slots| slots[1].2 = 512 + 64);
    assert_passes(&judged(&contract(), &script, &inside, &memory));
    let behind = heap.probe().each_slots(|slots| slots[1].2 = 512 + 320);
    assert!(rules(&judged(&contract(), &script, &behind, &memory)).contains(&RuleId::DanglingSlot));
}

// FL010

#[test]
fn a_live_block_that_no_slot_refers_to_is_a_leak() {
    let (script, mut heap) = two_objects();
    let pending = script.clone().begin(OperationKind::Allocate, 5, 64);
    heap.leaked.push((1024, 64));
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
    assert_breaks(&judged(&contract(), &pending, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
    let one_each = Contract { leaks: Leaks::Pending, ..contract() };
    assert_breaks(&judged(&one_each, &script, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
    assert_passes(&judged(&one_each, &pending, &heap.probe(), &heap.memory()));
    heap.leaked.push((2048, 64));
    assert_breaks(&judged(&one_each, &pending, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
}

#[test]
fn a_collector_may_leave_what_a_stale_word_retains_and_nothing_else() {
    let (script, mut heap) = two_objects();
    heap.objects.remove(&3);
    heap.leaked.push((512, 256));
    let collected = Contract { leaks: Leaks::Collected, ..contract() };
    let script = script.freed(3);
    assert_breaks(&judged(&collected, &script, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
    let retaining =
        |blocks: Vec<_>, heap: &Heap| Probe { retained: std::array::from_fn(|_| Some(blocks.clone())), ..heap.probe() };
    let probe = retaining(vec![allocated(512, 256)], &heap);
    assert_passes(&judged(&collected, &script, &probe, &heap.memory()));
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::Leak]);
    heap.leaked.push((1024, 64));
    let probe = retaining(vec![allocated(512, 256)], &heap);
    let judgement = judged(&collected, &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::Leak]);
    assert!(judgement.violations[0].message.starts_with("1 live heap block that no slot"), "{judgement:?}");
}

#[test]
fn without_knowing_what_stale_words_retain_a_collector_is_unknown() {
    let (script, mut heap) = two_objects();
    let collected = Contract { leaks: Leaks::Collected, ..contract() };
    let probe = |heap: &Heap| Probe { retained: Default::default(), ..heap.probe() };
    assert_passes(&judged(&collected, &script, &probe(&heap), &heap.memory()));
    heap.leaked.push((1024, 64));
    let judgement = judged(&collected, &script, &probe(&heap), &heap.memory());
    assert_eq!((judgement.verdict(), rules(&judgement)), (Verdict::Unknown, vec![]));
    assert_breaks(&judged(&contract(), &script, &probe(&heap), &heap.memory()), &[RuleId::Leak]);
}

#[test]
fn the_block_of_a_returned_free_must_be_free() {
    let (script, mut heap) = two_objects();
    heap.objects.remove(&3);
    heap.leaked.push((512, 256));
    assert_breaks(&judged(&contract(), &script.freed(3), &heap.probe(), &heap.memory()), &[RuleId::Leak]);
}

// FL011

#[test]
fn a_failing_check_is_found_in_each_life() {
    let (script, heap) = two_objects();
    for life in [0, 2, 3, 4] {
        let mut probe = heap.probe();
        probe.check[life] = Some(Status::Corrupt);
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::Inconsistent]);
    }
}

#[test]
fn a_failing_walk_is_found() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.walk_status = Status::Corrupt;
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::Inconsistent]);
}

#[test]
fn full_accounting_allows_no_gap_no_overlap_and_no_missing_tail() {
    let (script, heap) = two_objects();
    let none = Contract { accounting: Accounting::None, ..contract() };
    let bent: [fn(&mut Vec<oracle::report::Block>); 4] = [
        |blocks| blocks.retain(|block| block.offset != 192), // gap
        |blocks| blocks.push(free(64, 64)),                  // overlap with a live block
        |blocks| blocks.truncate(blocks.len() - 1),          // missing tail
        |blocks| blocks[0] = metadata(8, 56),                // missing start
    ];
    for bend in bent {
        let probe = heap.probe().each_walk(bend);
        let judgement = judged(&contract(), &script, &probe, &heap.memory());
        assert_breaks(&judgement, &[RuleId::Inconsistent]);
        assert_passes(&judged(&none, &script, &probe, &heap.memory()));
    }
}

#[test]
fn full_accounting_allows_no_more_than_the_limit_but_for_holes() {
    let (script, heap) = two_objects();
    let none = Contract { accounting: Accounting::None, ..contract() };
    let judged_with = |contract: &Contract, limit_bytes, probe: &Probe| {
        let shape = HeapShape { limit_bytes, ..shape() };
        crate::common::judge(contract, &shape, &script.history, &probe.report(), &heap.memory(), None)
    };
    let is_beyond = |judgement: Judgement| {
        judgement
            .violations
            .iter()
            .any(|found| found.rule == RuleId::Inconsistent && found.message.contains("limit_bytes"))
    };
    let bytes = shape().limit_bytes;
    assert!(!is_beyond(judged_with(&contract(), bytes, &heap.probe())));
    assert!(is_beyond(judged_with(&contract(), bytes - 1, &heap.probe())));
    assert!(!is_beyond(judged_with(&none, bytes - 1, &heap.probe())));
    let with_hole = heap.probe().each_walk(|blocks| {
        let last = blocks.last_mut().expect("a block");
        assert_eq!(last.state, BlockState::Free);
        last.state = BlockState::Unusable;
    });
    assert!(!is_beyond(judged_with(&contract(), bytes - 1, &with_hole)));
}

#[test]
fn accounting_is_by_file() {
    let (script, heap) = two_objects();
    let blocks = [metadata(0, 64), allocated(64, 128), free(192, 320), allocated(512, 256)];
    let second = oracle::report::Block { file: 1, ..free(0, 100) };
    for (bytes, expected) in [(868, vec![]), (869, vec![RuleId::Inconsistent])] {
        let report = oracle::report::build::ReportBuilder::new()
            .open(Status::Ok)
            .files(&[FILE, "more"])
            .slots(8, &heap.slots())
            .walk(bytes, &[&blocks[..], &[second]].concat())
            .check(Status::Ok)
            .report();
        let judgement = crate::common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
        assert_breaks(&judgement, &expected);
    }
}

#[test]
fn a_file_without_heap_blocks_is_the_heaps_where_it_is_mapped() {
    let (mut script, heap) = two_objects();
    script.history = script.history.with_mapped_files([FILE, "segment"].map(std::sync::Arc::from).into());
    let judged_with = |name: &str, is_mapped| {
        let (blocks, bytes) = ([metadata(0, 64), allocated(64, 128), free(192, 320), allocated(512, 256)], 768);
        let report = oracle::report::build::ReportBuilder::new()
            .open(Status::Ok)
            .files(&[FILE, name])
            .slots(8, &heap.slots())
            .walk(bytes + 5, &blocks)
            .unwalked(&[(1, is_mapped, 5)])
            .check(Status::Ok)
            .report();
        crate::common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None)
    };
    let broken = [RuleId::Inconsistent];
    assert_breaks(&judged_with("segment", false), &broken); // the workload maps it: the allocator has lost it
    assert_breaks(&judged_with("new", true), &broken); // recovery made and maps it
    let aside = judged_with("owner.pid", false);
    assert_breaks(&aside, &[]);
    let named = |(rule, why): &(RuleId, std::borrow::Cow<'_, str>)| *rule == broken[0] && why.contains("owner.pid");
    assert!(aside.not_judged.iter().any(named), "it is named: {:?}", aside.not_judged);
}
