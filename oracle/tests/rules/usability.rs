// SPDX-License-Identifier: Apache-2.0
//! The use of a recovered heap: FL012.

use crate::common::*;
use oracle::contract::{Durable, Leaks, OutOfMemory};
use oracle::report::build::allocated;
use oracle::report::{Block, EXECUTED, LIFE_COUNT, Outcome, SectionKind};
use oracle::{Contract, OperationKind, RuleId, Segment, Status, TwinSet};

fn twins_of(heap: &Heap, operation: u32) -> TwinSet {
    let mut twins = TwinSet::new();
    twins.insert(operation, &heap.probe().report());
    twins
}

#[test]
fn capacity_below_the_twins_is_found() {
    let (script, heap) = two_objects();
    let twins = twins_of(&heap, 2);
    let mut probe = heap.probe();
    let lost = probe.drain.as_mut().unwrap().pop().unwrap().bytes;
    let judgement = judged_with_twins(&script, &probe, &heap.memory(), &twins);
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    assert!(judgement.violations[0].message.contains(&format!(": {lost} bytes are lost")), "{judgement:?}");
    let slack = Contract { slack_bytes: lost, ..contract() };
    let report = probe.report();
    assert_passes(&crate::common::judge(&slack, &shape(), &script.history, &report, &heap.memory(), Some(&twins)));
}

#[test]
fn an_operation_of_a_long_use_may_not_fail() {
    let (script, heap) = two_objects();
    let probe = Probe { long_use: Some((Status::Error, vec![])), ..heap.probe() };
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    assert_eq!(judgement.violations[0].message, "the long use (life 4) answered error");
}

#[test]
fn the_twin_is_that_of_the_pending_operation_if_it_has_happened() {
    let (script, without) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 4096);
    let mut with = without.clone();
    with.put(5, 1024, 4096, 4);
    let mut twins = twins_of(&without, 2);
    twins.insert(3, &with.probe().report());
    assert_passes(&judged_with_twins(&script, &without.probe(), &without.memory(), &twins));
    assert_passes(&judged_with_twins(&script, &with.probe(), &with.memory(), &twins));
    // The slot is null, but the memory is gone.
    let mut probe = without.probe();
    probe.drain = with.probe().drain;
    assert_breaks(&judged_with_twins(&script, &probe, &without.memory(), &twins), &[RuleId::NotUsable]);
}

/// Power ends an allocation that the disk, which is full then, would have refused. Recovery has room, and completes it.
#[test]
fn what_was_refused_without_a_crash_and_recovery_has_done_has_no_twin() {
    let (script, without) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 4096);
    let mut with = without.clone();
    with.put(5, 1024, 4096, 4);
    let mut twins = twins_of(&without, 2);
    twins.insert(3, &without.probe().report());
    assert_breaks(&judged_with_twins(&script, &with.probe(), &with.memory(), &twins), &[RuleId::NotUsable]);
    twins.insert_refused(3);
    let judgement = judged_with_twins(&script, &with.probe(), &with.memory(), &twins);
    assert_passes(&judgement);
    let why = "capacity: recovery may have done operation 3, which was refused without a crash";
    assert!(judgement.not_judged.contains(&(RuleId::NotUsable, why.into())), "{judgement:#?}");
    // Where recovery has not done it, there is a twin.
    let mut probe = without.probe();
    probe.drain.as_mut().unwrap().pop();
    assert_breaks(&judged_with_twins(&script, &probe, &without.memory(), &twins), &[RuleId::NotUsable]);
}

/// The object's block has room for both sizes: nothing tells whether the reallocation has happened.
#[test]
fn what_was_refused_without_a_crash_and_recovery_may_have_done_has_no_twin() {
    let (script, heap) = two_objects();
    let script = script.begin(OperationKind::Reallocate, 1, 96);
    let mut probe = heap.probe();
    probe.drain.as_mut().unwrap().pop();
    let mut twins = twins_of(&heap, 2);
    twins.insert(3, &heap.probe().report());
    let judgement = judged_with_twins(&script, &probe, &heap.memory(), &twins);
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    assert_eq!(judgement.unclear, [3]);
    twins.insert_refused(3);
    assert_passes(&judged_with_twins(&script, &probe, &heap.memory(), &twins));
}

#[test]
fn an_emptied_heap_must_hold_as_much_as_the_emptied_twin() {
    let (script, heap) = two_objects();
    let twins = twins_of(&heap, 2);
    let mut probe = heap.probe();
    let lost = probe.emptied.as_mut().unwrap().pop().unwrap().bytes;
    let judgement = judged_with_twins(&script, &probe, &heap.memory(), &twins);
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    let message = &judgement.violations[0].message;
    assert!(message.starts_with("after recovery and the freeing of all objects "), "{message}");
    assert!(message.contains(&format!(": {lost} bytes are lost")), "{message}");
    let judgement = judged_with_twins(&script, &Probe { emptied: None, ..probe }, &heap.memory(), &twins);
    assert_passes(&judgement);
    assert!(
        judgement.not_judged.contains(&(RuleId::NotUsable, "the heap report has no drain".into())),
        "{judgement:#?}"
    );
}

/// The twin as `runner twins` tells it: with what the process that executed the workload said of copies that it emptied and closed.
fn twins_with_open(heap: &Heap, emptying: Status, drained: &[Block]) -> TwinSet {
    let builder = heap.probe().builder().life(EXECUTED).free_all(emptying);
    let builder = if emptying == Status::Ok { builder.drain(Status::Ok, drained) } else { builder };
    let mut twins = TwinSet::new();
    twins.insert(2, &builder.close(Status::Ok).life(LIFE_COUNT as u16 - 1).report());
    twins
}

/// What each open loses, the reopened twin has lost, too.
#[test]
fn an_emptied_heap_must_hold_what_it_did_before_any_close() {
    let (script, heap) = two_objects();
    let drained = heap.emptied().drain();
    let tolerated = drained.len() as u64 * 64;
    let with_more = |bytes: u64| {
        let mut drained = drained.clone();
        drained.last_mut().unwrap().bytes += bytes;
        twins_with_open(&heap, Status::Ok, &drained)
    };
    let judged = |twins: &TwinSet| judged_with_twins(&script, &heap.probe(), &heap.memory(), twins);
    assert_passes(&judged(&with_more(0)));
    assert_passes(&judged(&with_more(tolerated)));
    let judgement = judged(&with_more(tolerated + 1));
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    let message = &judgement.violations[0].message;
    assert!(message.contains("without a crash, before its last close, at least"), "{message}");
    assert!(message.contains(": 1 bytes are lost"), "{message}");
}

#[test]
fn an_emptied_heap_must_not_be_in_smaller_pieces_than_its_twin() {
    let (script, heap) = two_objects();
    let twins = twins_of(&heap, 2);
    let in_pieces = |largest: u64| {
        let mut probe = heap.probe();
        let drained = probe.emptied.as_mut().unwrap();
        let whole = drained[0];
        drained[0].bytes = largest;
        drained.push(Block { offset: whole.offset + largest, bytes: whole.bytes - largest, ..whole });
        probe
    };
    let whole = heap.emptied().drain()[0].bytes;
    let judgement = judged_with_twins(&script, &in_pieces(whole / 2), &heap.memory(), &twins);
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    assert!(judgement.violations[0].message.ends_with("but in smaller pieces"), "{judgement:?}");
    assert_passes(&judged_with_twins(&script, &heap.probe(), &heap.memory(), &twins));
    // The reopened twin is in pieces, too: each open does that.
    let mut twins = TwinSet::new();
    let builder = in_pieces(whole / 2).builder().life(EXECUTED).free_all(Status::Ok);
    twins.insert(2, &builder.drain(Status::Ok, &heap.emptied().drain()).life(LIFE_COUNT as u16 - 1).report());
    let judgement = judged_with_twins(&script, &in_pieces(whole / 2), &heap.memory(), &twins);
    assert_breaks(&judgement, &[RuleId::NotUsable]);
    // Beside objects it depends on where those are.
    let mut probe = heap.probe();
    probe.drain = Some(probe.drain.unwrap().into_iter().flat_map(|block| halves(&block)).collect());
    probe.maximal = None;
    assert!(!judged_with_twins(&script, &probe, &heap.memory(), &twins).violations.iter().any(in_smaller_pieces));
}

fn halves(block: &Block) -> [Block; 2] {
    let bytes = block.bytes / 2;
    [Block { bytes, ..*block }, Block { offset: block.offset + bytes, bytes: block.bytes - bytes, ..*block }]
}

fn in_smaller_pieces(violation: &oracle::judge::Violation) -> bool {
    violation.message.contains("smaller pieces")
}

/// A difference of bytes that an open may make may part the largest piece: it is the reopened twin's then.
#[test]
fn the_largest_piece_of_an_open_twin_counts_where_the_reopened_one_holds_as_much() {
    let (script, heap) = two_objects();
    let whole = heap.emptied().drain();
    let mut fewer = heap.probe();
    let drained = fewer.emptied.as_mut().unwrap();
    drained[0].bytes -= 64;
    let mut twins = TwinSet::new();
    let builder = fewer.builder().life(EXECUTED).free_all(Status::Ok).drain(Status::Ok, &whole);
    twins.insert(2, &builder.life(LIFE_COUNT as u16 - 1).report());
    assert_passes(&judged_with_twins(&script, &fewer, &heap.memory(), &twins));
}

#[test]
fn what_may_stay_may_part_what_is_free() {
    let (script, heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    let mut twins = twins_of(&heap, 2);
    twins.insert(3, &heap.probe().report());
    let leaking = Heap { leaked: vec![(2048, 64)], ..heap.clone() };
    let mut probe = leaking.probe();
    let whole = heap.emptied().drain();
    probe.emptied = Some(whole.iter().flat_map(halves).collect());
    let contract = Contract { leaks: Leaks::Pending, ..contract() };
    let judged = |probe: &Probe, heap: &Heap| {
        crate::common::judge(&contract, &shape(), &script.history, &probe.report(), &heap.memory(), Some(&twins))
    };
    assert!(!judged(&probe, &leaking).violations.iter().any(in_smaller_pieces));
    let probe = Probe { emptied: probe.emptied, ..heap.probe() };
    assert!(judged(&probe, &heap).violations.iter().any(in_smaller_pieces));
}

/// What the reopened twin holds is known all the same.
#[test]
fn a_twin_that_could_not_be_emptied_while_it_was_open_says_why() {
    let (script, heap) = two_objects();
    let twins = twins_with_open(&heap, Status::Corrupt, &[]);
    let died = heap.probe().builder().life(EXECUTED);
    let died = died.section(SectionKind::Message, Status::Ok, 1, SectionKind::FreeAll as u64, b"it died");
    let mut dead = TwinSet::new();
    dead.insert(2, &died.close(Status::Ok).life(LIFE_COUNT as u16 - 1).report());
    let unfit = |twins: &TwinSet| {
        let unfit = twins.unfit(OutOfMemory::Answers);
        unfit.map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>()
    };
    assert_eq!(unfit(&dead), ["operation 2: emptied while it was open: it has no drain: it died"]);
    assert_eq!(unfit(&twins), [""; 0], "that is a finding");
    let found = twins.without_crash(OutOfMemory::Answers);
    let said = "after operation 2, the freeing of all after the operation answered corrupt, and power did not fail";
    assert_eq!(found.iter().map(|failure| failure.message.as_str()).collect::<Vec<_>>(), [said]);
    for twins in [&twins, &dead] {
        assert_passes(&judged_with_twins(&script, &heap.probe(), &heap.memory(), twins));
        let mut probe = heap.probe();
        probe.emptied.as_mut().unwrap().pop();
        let judgement = judged_with_twins(&script, &probe, &heap.memory(), twins);
        assert_breaks(&judgement, &[RuleId::NotUsable]);
    }
}

/// Power failed in an allocation that had grown the heap, which shows nowhere but in what the heap can hold.
#[test]
fn an_emptied_heap_may_hold_what_it_does_after_a_pending_operation() {
    let (script, heap) = two_objects();
    let grown = Heap { leaked: vec![(2048, 64)], ..heap.clone() };
    let mut twins = twins_of(&heap, 2);
    twins.insert(3, &grown.probe().report());
    let probe = Probe { emptied: grown.probe().emptied, ..heap.probe() };
    assert_breaks(&judged_with_twins(&script, &probe, &heap.memory(), &twins), &[RuleId::NotUsable]);
    let script = script.begin(OperationKind::Allocate, 5, 64);
    assert_passes(&judged_with_twins(&script, &probe, &heap.memory(), &twins));
    // Beside the objects it must hold as much as without the operation.
    let probe = Probe { drain: grown.probe().drain, ..probe };
    assert_breaks(&judged_with_twins(&script, &probe, &heap.memory(), &twins), &[RuleId::NotUsable]);
}

#[test]
fn of_threads_the_twin_is_chosen_by_what_the_heap_shows() {
    let (mut script, neither) = two_objects();
    script.begin_on(0, OperationKind::Allocate, 5, 4096);
    script.begin_on(1, OperationKind::Allocate, 6, 64);
    let with = |slots: &[(u32, u64, u64, u32)]| {
        let mut heap = neither.clone();
        slots.iter().for_each(|(slot, offset, bytes, object)| heap.put(*slot, *offset, *bytes, *object));
        heap
    };
    let (first, second) = ((5, 1024, 4096, 4), (6, 6144, 64, 5));
    let heaps = [
        (vec![], neither.clone()),
        (vec![3], with(&[first])),
        (vec![4], with(&[second])),
        (vec![3, 4], with(&[first, second])),
    ];
    let mut twins = TwinSet::new();
    for (happened, heap) in &heaps {
        twins.insert_linearised(script.history.linearised(happened), &heap.probe().report());
    }
    for (_, heap) in &heaps {
        let judgement = judged_with_twins(&script, &heap.probe(), &heap.memory(), &twins);
        assert_passes(&judgement);
        assert!(judgement.judged.contains(RuleId::NotUsable), "{judgement:#?}");
    }
    // The small one has happened, the big one has not, and its memory is gone all the same.
    let mut probe = heaps[2].1.probe();
    probe.drain = heaps[3].1.probe().drain;
    assert_breaks(&judged_with_twins(&script, &probe, &heaps[2].1.memory(), &twins), &[RuleId::NotUsable]);
}

#[test]
fn of_two_orders_of_the_pending_operations_the_one_that_holds_less_counts() {
    let (mut script, heap) = two_objects();
    script.begin_on(0, OperationKind::Free, 1, 0);
    script.begin_on(1, OperationKind::Free, 3, 0);
    let freed = Heap::default();
    let less = Heap { leaked: vec![(2048, 64)], ..freed.clone() };
    let key = script.history.linearised(&[4, 3]);
    assert_eq!(key, script.history.linearised(&[3, 4]));
    let mut twins = TwinSet::new();
    twins.insert_linearised(key.clone(), &freed.probe().report());
    let mut probe = freed.probe();
    probe.drain = less.probe().drain;
    assert_breaks(&judged_with_twins(&script, &probe, &freed.memory(), &twins), &[RuleId::NotUsable]);
    twins.insert_linearised(key, &less.probe().report());
    assert_passes(&judged_with_twins(&script, &probe, &freed.memory(), &twins));
    // Nobody asked for the twin in which neither has happened.
    let judgement = judged_with_twins(&script, &heap.probe(), &heap.memory(), &twins);
    assert_passes(&judgement);
    assert!(!judgement.judged.contains(RuleId::NotUsable));
}

/// Between them other sizes fit then, though nothing is lost.
#[test]
fn of_threads_no_twin_counts_that_has_its_objects_elsewhere() {
    let (script, heap) = two_objects();
    let mut elsewhere = heap.clone();
    elsewhere.put(1, 4096, 64, 1); // it was at another offset
    let mut probe = heap.probe();
    probe.drain.as_mut().unwrap().pop();
    let key = script.history.linearised(&[]);
    let mut twins = TwinSet::new();
    twins.insert_linearised(key.clone(), &elsewhere.probe().report());
    let judgement = judged_with_twins(&script, &probe, &heap.memory(), &twins);
    assert_passes(&judgement);
    let said = "capacity: threads placed the objects where no twin has them";
    assert!(judgement.not_judged.iter().any(|(rule, why)| *rule == RuleId::NotUsable && why == said), "{judgement:#?}");
    twins.insert_linearised(key, &heap.probe().report());
    assert_breaks(&judged_with_twins(&script, &probe, &heap.memory(), &twins), &[RuleId::NotUsable]);
    // Without objects nothing is between them, wherever they were.
    let probe = Probe { drain: heap.probe().drain, emptied: probe.drain, ..heap.probe() };
    assert_breaks(&judged_with_twins(&script, &probe, &heap.memory(), &twins), &[RuleId::NotUsable]);
}

#[test]
fn a_leak_beyond_the_contract_is_not_reported_as_lost_capacity_too() {
    let (script, heap) = two_objects();
    let leaky = Heap { leaked: vec![(1024, 64)], ..heap.clone() };
    let mut probe = leaky.probe();
    probe.drain.as_mut().unwrap().pop();
    let judgement = judged_with_twins(&script, &probe, &heap.memory(), &twins_of(&heap, 2));
    assert_breaks(&judgement, &[RuleId::Leak]);
}

#[test]
fn a_creation_cut_short_may_leak_where_pending_operations_may() {
    let creating = Script::new(Durable::OnReturn).begin(OperationKind::Create, 0, 0);
    let heap = Heap { leaked: vec![(1024, 64)], ..Heap::default() };
    let pending = Contract { leaks: Leaks::Pending, ..contract() };
    assert_passes(&judged(&pending, &creating, &heap.probe(), &heap.memory()));
    assert_breaks(&judged(&contract(), &creating, &heap.probe(), &heap.memory()), &[RuleId::Leak]);
}

#[test]
fn the_twin_of_a_created_heap_is_the_empty_heap() {
    let creating = Script::new(Durable::OnReturn).begin(OperationKind::Create, 0, 0);
    let (heap, twins) = (Heap::default(), twins_of(&Heap::default(), 0));
    let judgement = judged_with_twins(&creating, &heap.probe(), &heap.memory(), &twins);
    assert_passes(&judgement);
    assert!(judgement.judged.contains(RuleId::NotUsable), "{judgement:#?}");
    let mut probe = heap.probe();
    probe.drain.as_mut().unwrap().pop();
    assert_breaks(&judged_with_twins(&creating, &probe, &heap.memory(), &twins), &[RuleId::NotUsable]);
}

#[test]
fn of_two_twins_that_fit_the_one_that_holds_less_counts() {
    let (script, old) = two_objects();
    // In place: the same block before and after, so that the slot does not tell whether it has happened.
    let script = script.begin(OperationKind::Reallocate, 3, 250);
    let less = Heap { leaked: vec![(2048, 64)], ..old.clone() };
    for (before, after) in [(&old, &less), (&less, &old)] {
        let mut twins = twins_of(before, 2);
        twins.insert(3, &after.probe().report());
        for (drain, expected) in [(less.drain(), vec![]), (vec![allocated(1024, 64)], vec![RuleId::NotUsable])] {
            let probe = Probe { drain: Some(drain), ..old.probe() };
            let mut memory = old.memory();
            memory.write(512, &[Segment { end: 200, object: 3 }, Segment { end: 250, object: 4 }]);
            let mut probe = probe;
            for entries in probe.contents.values_mut() {
                entries.push((3, 4, 200, 250));
            }
            assert_breaks(&judged_with_twins(&script, &probe, &memory, &twins), &expected);
        }
    }
}

#[test]
fn a_permitted_leak_may_lower_the_capacity() {
    let (script, heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    let leaky = Heap { leaked: vec![(1024, 64)], ..heap.clone() };
    let twins = twins_of(&heap, 2);
    let contract = Contract { leaks: Leaks::Pending, ..contract() };
    let judge = |probe: &Probe| {
        crate::common::judge(&contract, &shape(), &script.history, &probe.report(), &heap.memory(), Some(&twins))
    };
    assert_passes(&judge(&leaky.probe()));
    let unknown = judge(&leaky.probe().without_walk());
    assert_passes(&unknown);
    assert!(!unknown.judged.contains(RuleId::NotUsable));
}

#[test]
fn each_permitted_leak_may_cost_the_slack_besides_its_bytes() {
    let (mut script, heap) = two_objects();
    script.begin_on(0, OperationKind::Allocate, 5, 64);
    script.begin_on(1, OperationKind::Allocate, 6, 64);
    let leaky = Heap { leaked: vec![(1024, 64), (2048, 64)], ..heap.clone() };
    let twins = twins_of(&heap, 2);
    let mut probe = leaky.probe();
    let slack_bytes = probe.drain.as_ref().unwrap().last().unwrap().bytes;
    let contract = Contract { leaks: Leaks::Pending, slack_bytes, ..contract() };
    let mut lose_more = || {
        assert_eq!(probe.drain.as_mut().unwrap().pop().unwrap().bytes, slack_bytes);
        let report = probe.report();
        crate::common::judge(&contract, &shape(), &script.history, &report, &heap.memory(), Some(&twins))
    };
    assert_passes(&lose_more());
    assert_passes(&lose_more());
    assert_breaks(&lose_more(), &[RuleId::NotUsable]);
}

/// A small object keeps the rest of the OS page that holds objects of its size: up to that much nobody knows.
#[test]
fn of_a_collector_capacity_is_judged_but_for_the_os_pages_of_what_was_retained() {
    let (script, heap) = two_objects();
    let collected = Contract { leaks: Leaks::Collected, ..contract() };
    let (leaky, twins) = (Heap { leaked: vec![(1024, 64)], ..heap.clone() }, twins_of(&heap, 2));
    let judge = |probe: &Probe| {
        crate::common::judge(&collected, &shape(), &script.history, &probe.report(), &heap.memory(), Some(&twins))
    };
    let mut probe = leaky.probe();
    probe.retained = std::array::from_fn(|_| Some(vec![allocated(1024, 64)]));
    let judgement = judge(&probe);
    assert_passes(&judgement);
    assert!(!judgement.not_judged.iter().any(|(rule, _)| *rule == RuleId::NotUsable), "its own bytes are permitted");
    probe.drain.as_mut().unwrap().pop();
    let judgement = judge(&probe);
    assert_passes(&judgement);
    assert!(judgement.not_judged.iter().any(|(_, why)| why.contains("garbage that may stay")), "{judgement:#?}");
    probe.drain.as_mut().unwrap().clear();
    assert_breaks(&judge(&probe), &[RuleId::NotUsable]);
    let mut probe = heap.probe();
    probe.drain.as_mut().unwrap().pop();
    assert_breaks(&judge(&probe), &[RuleId::NotUsable]);
}

#[test]
fn without_a_twin_that_fits_capacity_is_not_judged() {
    let (script, heap) = two_objects();
    let mut broken = TwinSet::new();
    broken.insert(2, &heap.probe().ended(2, SectionKind::Drain, Outcome::Signal(6)).report());
    for twins in [TwinSet::new(), twins_of(&heap, 1), broken] {
        let judgement = judged_with_twins(&script, &heap.probe(), &heap.memory(), &twins);
        assert_passes(&judgement);
        assert!(!judgement.judged.contains(RuleId::NotUsable));
        assert!(judgement.not_judged.iter().any(|(rule, _)| *rule == RuleId::NotUsable));
    }
}

#[test]
fn a_drain_that_used_up_its_slots_is_only_a_lower_bound() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.drain.as_mut().unwrap().pop();
    probe.drain_status = Status::OutOfMemory;
    let judgement = judged_with_twins(&script, &probe, &heap.memory(), &twins_of(&heap, 2));
    assert_passes(&judgement);
    assert!(judgement.not_judged.iter().any(|(rule, _)| *rule == RuleId::NotUsable));
}

#[test]
fn a_stage_that_fails_makes_the_heap_unusable() {
    let (script, heap) = two_objects();
    let bent: [fn(&mut Probe); 6] = [
        |probe| probe.drain_status = Status::Corrupt,
        |probe| probe.free_all = Some(Status::Error),
        |probe| probe.maximal = Some((4096, Status::OutOfMemory)),
        |probe| probe.close[3] = Some(Status::Error),
        |probe| probe.close[4] = Some(Status::Error),
        |probe| probe.open[4] = Some(Status::Corrupt),
    ];
    for bend in bent {
        let mut probe = heap.probe();
        bend(&mut probe);
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::NotUsable]);
    }
}

#[test]
fn a_full_heap_needs_no_maximal_allocation() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.drain = Some(vec![]);
    probe.maximal = Some((0, Status::Error));
    assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
}
