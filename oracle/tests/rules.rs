// SPDX-License-Identifier: Apache-2.0
//! For each rule what trips it and what does not. The heaps are small and legal but for what the test bends.

mod common;

use common::*;
use oracle::contract::{Accounting, AfterFailedCreate, Durable, Fill, Leaks, Publish};
use oracle::judge::Verdict;
use oracle::report::build::{allocated, free, metadata};
use oracle::report::{Block, BlockState, EXECUTED, LIFE_COUNT, Outcome, SectionKind, Stage};
use oracle::{Contract, OperationKind, RuleId, Segment, Status, TwinSet};

#[test]
fn a_heap_that_shows_what_returned_passes() {
    let (script, heap) = two_objects();
    let mut twins = TwinSet::new();
    twins.insert(2, &heap.probe().report());
    let judgement = judged_with_twins(&script, &heap.probe(), &heap.memory(), &twins);
    assert_passes(&judgement);
    assert_eq!(judgement.verdict(), Verdict::Pass);
    let untried = [RuleId::LaterGeneration, RuleId::NotRelocatable];
    let not_judged: Vec<RuleId> = judgement.not_judged.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(not_judged, untried, "the contract promises to be relocatable, and to detect nothing");
    let tried = RuleId::ALL.into_iter().filter(|rule| contract().promises(*rule) && !untried.contains(rule));
    assert!(judgement.judged.iter().eq(tried), "{:?}", judgement.judged);
}

#[test]
fn what_a_contract_promises_and_nothing_judges_is_named() {
    let (script, heap) = two_objects();
    let named = |relocatable: bool, detects: &[&str]| -> Vec<String> {
        let detects = detects.iter().map(|kind| (*kind).to_owned()).collect();
        let contract = Contract { relocatable, detects, ..contract() };
        let judgement = judged(&contract, &script, &heap.probe(), &heap.memory());
        let not_judged = judgement.not_judged.iter().filter(|(_, why)| why.starts_with("promised"));
        not_judged.map(|(rule, why)| format!("{rule}: {why}")).collect()
    };
    let (relocatable, detects) =
        ("FL015: promised and not judged: relocatable", "FL016: promised and not judged: detects");
    assert_eq!(named(false, &[]), [""; 0]);
    assert_eq!(named(true, &[]), [relocatable]);
    assert_eq!(named(false, &["header-damage"]), [format!("{detects} header-damage")]);
    assert_eq!(named(true, &["bit-flip", "tear"]), [relocatable.to_owned(), format!("{detects} bit-flip, tear")]);
}

// FL001, FL002

#[test]
fn a_recovery_that_dies_of_a_signal_crashed() {
    let (script, heap) = two_objects();
    let probe = heap.probe().ended(0, SectionKind::Open, Outcome::Signal(11));
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::RecoveryCrashed]);
    assert_eq!(judgement.violations[0].message, "recovery died of signal 11 (SIGSEGV)");
}

#[test]
fn a_recovery_that_calls_exit_crashed() {
    let (script, heap) = two_objects();
    let probe = heap.probe().ended(0, SectionKind::Open, Outcome::Exited);
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::RecoveryCrashed]);
}

#[test]
fn a_crash_of_the_second_recovery_says_which_recovery() {
    let (script, heap) = two_objects();
    let probe = heap.probe().ended(2, SectionKind::Open, Outcome::Signal(6));
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::RecoveryCrashed]);
    assert!(judgement.violations[0].message.contains("second recovery"), "{judgement:?}");
}

#[test]
fn a_crash_before_create_began_is_a_crash() {
    let script = Script::new(Durable::OnReturn);
    let probe = Heap::default().probe().ended(0, SectionKind::Open, Outcome::Signal(11));
    assert_breaks(&judged(&contract(), &script, &probe, &Heap::default().memory()), &[RuleId::RecoveryCrashed]);
}

#[test]
fn a_recovery_that_does_not_end_hung() {
    let (script, heap) = two_objects();
    for (life, stage) in [(0, SectionKind::Open), (1, SectionKind::Open), (3, SectionKind::Drain)] {
        let probe = heap.probe().ended(life, stage, Outcome::Hung);
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::RecoveryHung]);
    }
}

#[test]
fn a_crash_of_a_later_life_does_not_hide_what_the_first_shows() {
    let (script, mut heap) = two_objects();
    heap.objects.remove(&3);
    let probe = heap.probe().ended(2, SectionKind::Drain, Outcome::Hung);
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_breaks(&judgement, &[RuleId::RecoveryHung, RuleId::OperationLost]);
}

#[test]
fn an_overloaded_machine_and_a_broken_runner_are_unknown_never_pass() {
    let (script, heap) = two_objects();
    for outcome in [Outcome::Overloaded, Outcome::Broken] {
        let probe = heap.probe().ended(2, SectionKind::Drain, outcome);
        let judgement = judged(&contract(), &script, &probe, &heap.memory());
        assert_eq!(judgement.violations, []);
        assert_eq!(judgement.verdict(), Verdict::Unknown);
    }
}

#[test]
fn what_an_overloaded_probe_showed_before_is_judged() {
    let (script, mut heap) = two_objects();
    heap.objects.remove(&3);
    let probe = heap.probe().ended(2, SectionKind::Drain, Outcome::Overloaded);
    let judgement = judged(&contract(), &script, &probe, &heap.memory());
    assert_eq!(rules(&judgement), [RuleId::OperationLost]);
    assert_eq!(judgement.verdict(), Verdict::Fail);
}

#[test]
fn a_report_that_lacks_what_every_life_has_is_unknown() {
    let (script, heap) = two_objects();
    let builder = oracle::report::build::ReportBuilder::new;
    let unknown = |report: oracle::HeapReport, reason: &str| {
        let judgement = common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
        assert_eq!(judgement.verdict(), Verdict::Unknown);
        assert!(judgement.unknown[0].contains(reason), "{judgement:#?}");
    };
    unknown(builder().report(), "does not say what open answered");
    unknown(builder().open(Status::Ok).report(), "has no slots");
    let mut probe = heap.probe();
    probe.open[2] = None;
    unknown(probe.report(), "what the second recovery (life 2) answered");
}

// FL003

fn refused(status: Status) -> Probe {
    let mut probe = Heap::default().probe();
    probe.lives = 1;
    probe.open[0] = Some(status);
    probe.message = Some("bad header");
    probe
}

#[test]
fn an_error_of_recovery_after_create_returned_is_a_failure() {
    let memory = Heap::default().memory();
    for status in [Status::NotAHeap, Status::Corrupt, Status::Error, Status::OutOfMemory, Status::Undefined(77)] {
        let judgement = judged(&contract(), &Script::created(), &refused(status), &memory);
        assert_breaks(&judgement, &[RuleId::RecoveryFailed]);
        assert!(judgement.violations[0].message.ends_with(": bad header"), "{judgement:?}");
    }
}

#[test]
fn a_creation_cut_short_may_be_refused_cleanly() {
    let creating = Script::new(Durable::OnReturn).begin(OperationKind::Create, 0, 0);
    let memory = Heap::default().memory();
    for status in [Status::NotAHeap, Status::Error] {
        assert_passes(&judged(&contract(), &creating, &refused(status), &memory));
    }
    let judgement = judged(&contract(), &creating, &refused(Status::Corrupt), &memory);
    assert_breaks(&judgement, &[RuleId::RecoveryFailed]);
}

#[test]
fn before_create_began_any_answer_is_fine() {
    let memory = Heap::default().memory();
    for status in [Status::NotAHeap, Status::Error, Status::Corrupt] {
        assert_passes(&judged(&contract(), &Script::new(Durable::OnReturn), &refused(status), &memory));
    }
}

#[test]
fn rules_that_a_judgement_does_not_reach_are_named() {
    let named = |script: &Script, why: &str| {
        let judgement = judged(&contract(), script, &refused(Status::NotAHeap), &Heap::default().memory());
        let named = judgement.not_judged.iter().filter(|(_, reason)| reason == why).map(|(rule, _)| *rule);
        named.collect::<Vec<_>>()
    };
    let needs_a_heap = |rule: &RuleId| {
        let of_outcome = [RuleId::RecoveryCrashed, RuleId::RecoveryHung];
        let untried = [RuleId::LaterGeneration, RuleId::NotRelocatable, RuleId::CorruptionMissed];
        !of_outcome.contains(rule) && !untried.contains(rule)
    };
    let from_third: Vec<RuleId> = RuleId::ALL.into_iter().filter(needs_a_heap).collect();
    assert_eq!(from_third[0], RuleId::RecoveryFailed);
    let absent = Script::new(Durable::OnReturn);
    assert_eq!(named(&absent, "there is no heap: create has not begun"), from_third);
    let creating = absent.begin(OperationKind::Create, 0, 0);
    assert_eq!(named(&creating, "there is no heap: recovery refused the image"), from_third[1..]);
}

#[test]
fn a_re_creatable_heap_must_be_created_again() {
    let creating = Script::new(Durable::OnReturn).begin(OperationKind::Create, 0, 0);
    let contract = Contract { after_failed_create: AfterFailedCreate::ReCreatable, ..contract() };
    let memory = Heap::default().memory();
    let mut probe = refused(Status::NotAHeap);
    let judgement = judged(&contract, &creating, &probe, &memory);
    assert_passes(&judgement);
    assert!(judgement.not_judged.iter().any(|(rule, _)| *rule == RuleId::RecoveryFailed), "{judgement:?}");
    probe.recreate = Some(Status::Ok);
    assert_passes(&judged(&contract, &creating, &probe, &memory));
    probe.recreate = Some(Status::Error);
    assert_breaks(&judged(&contract, &creating, &probe, &memory), &[RuleId::RecoveryFailed]);
    let judgement = judged(&contract, &creating, &refused(Status::Error), &memory);
    assert_breaks(&judgement, &[RuleId::RecoveryFailed]);
}

#[test]
fn a_heap_that_opens_while_create_is_pending_is_empty() {
    let creating = Script::new(Durable::OnReturn).begin(OperationKind::Create, 0, 0);
    assert_passes(&judged(&contract(), &creating, &Heap::default().probe(), &Heap::default().memory()));
    let mut heap = Heap::default();
    heap.put(0, 64, 64, 9);
    let judgement = judged(&contract(), &creating, &heap.probe(), &heap.memory());
    assert_breaks(&judgement, &[RuleId::FreedObjectBack]);
}

#[test]
fn a_close_that_returned_is_lost_where_open_had_to_recover() {
    let contract = Contract { clean_close: true, ..contract() };
    let mut script = two_objects().0;
    script.history = script.history.with_clean_close(true);
    let heap = two_objects().1;
    let opened = |has_recovered| Probe { has_recovered, ..heap.probe() };
    let judged = |script: &Script, probe: &Probe| judged(&contract, script, probe, &heap.memory());
    let closed = script.clone().done(OperationKind::Close, 0, 0);
    assert_breaks(&judged(&closed, &opened(Some(true))), &[RuleId::OperationLost]);
    assert_passes(&judged(&closed, &opened(Some(false))));
    // Nobody promises anything of a heap that is open, or being closed.
    let closing = script.clone().begin(OperationKind::Close, 0, 0);
    let reopening = closed.clone().begin(OperationKind::Open, 0, 0);
    for open in [&script, &closing, &reopening] {
        assert_passes(&judged(open, &opened(Some(true))));
    }
    let untold = judged(&closed, &opened(None));
    assert_passes(&untold);
    let reason = "whether the last close is lost: open does not tell";
    assert!(untold.not_judged.iter().any(|(rule, why)| *rule == RuleId::OperationLost && why == reason), "{untold:?}");
}

#[test]
fn an_error_while_reading_the_slots_is_an_error_of_recovery() {
    let (script, heap) = two_objects();
    let mut probe = heap.probe();
    probe.slots_status[0] = Status::Corrupt;
    assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[RuleId::RecoveryFailed]);
}

#[test]
fn an_error_while_reading_the_slots_later_is_an_error_of_its_stage() {
    let (script, heap) = two_objects();
    for (life, stage, rule) in [
        (1, Stage::Recovery, RuleId::RecoveryFailed),
        (2, Stage::Recovery, RuleId::RecoveryFailed),
        (3, Stage::Recovery, RuleId::RecoveryFailed),
        (3, Stage::Drain, RuleId::NotUsable),
        (3, Stage::FreeAll, RuleId::NotUsable),
        (4, Stage::Recovery, RuleId::NotUsable),
    ] {
        let mut probe = heap.probe();
        probe.contents_status.insert((life, stage), Status::Error);
        probe.contents.insert((life, stage), vec![]);
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[rule]);
    }
    for (life, rule) in [(2, RuleId::RecoveryFailed), (3, RuleId::RecoveryFailed), (4, RuleId::NotUsable)] {
        let mut probe = heap.probe();
        probe.slots_status[life] = Status::Error;
        assert_breaks(&judged(&contract(), &script, &probe, &heap.memory()), &[rule]);
    }
}

#[test]
fn an_error_of_a_later_recovery_is_an_error_of_recovery() {
    let (script, heap) = two_objects();
    for life in [1, 2, 3] {
        let mut probe = heap.probe();
        probe.lives = life as u16 + 1;
        probe.open[life] = Some(Status::Corrupt);
        let judgement = judged(&contract(), &script, &probe, &heap.memory());
        assert_breaks(&judgement, &[RuleId::RecoveryFailed]);
        assert!(judgement.violations[0].message.contains(&format!("life {life}")), "{judgement:?}");
    }
}

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
    assert_passes(&common::judge(&contract(), &unaligned, &script.history, &report, &memory, None));
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

// FL009

#[test]
fn a_changed_byte_of_a_returned_object_is_found() {
    let (script, heap) = two_objects();
    for at in [0, 99, 512 - 64 + 199] {
        let mut memory = heap.memory();
        memory.bytes[64 + at] ^= 1;
        let mut probe = heap.probe();
        probe.lives = 1;
        let judgement = judged(&contract(), &script, &probe, &memory);
        assert_breaks(&judgement, &[RuleId::ContentChanged]);
        assert_eq!(judgement.violations.len(), 1);
    }
    let mut memory = heap.memory();
    memory.bytes[64 + 100] ^= 1; // past the object
    assert_passes(&judged(&contract(), &script, &heap.probe(), &memory));
}

#[test]
fn content_that_recovery_put_right_is_right() {
    let (script, heap) = two_objects();
    let mut memory = heap.memory();
    memory.bytes[64 + 8] ^= 1;
    assert_passes(&judged(&contract(), &script, &heap.probe(), &memory));
    let mut memory = heap.memory();
    memory.bytes[64 + 95] ^= 1; // the last whole word
    assert_passes(&judged(&contract(), &script, &heap.probe(), &memory));
    let mut memory = heap.memory();
    memory.bytes[512 + 199] ^= 1; // the last word of an object that ends with it
    assert_passes(&judged(&contract(), &script, &heap.probe(), &memory));
    // The last word is not whole, so that contents cannot tell.
    let mut memory = heap.memory();
    memory.bytes[64 + 97] ^= 1;
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &memory), &[RuleId::ContentChanged]);
}

#[test]
fn a_published_pending_allocation_is_whole_if_filled_before() {
    let (script, mut heap) = two_objects();
    let script = script.begin(OperationKind::Allocate, 5, 64);
    heap.put(5, 1024, 64, 4);
    let mut memory = heap.memory();
    memory.bytes[1024..1088].fill(0);
    heap.objects.get_mut(&5).unwrap().segments.clear();
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &memory), &[RuleId::ContentChanged]);
    let after = Contract { fill: Fill::After, ..contract() };
    assert_passes(&judged(&after, &script, &heap.probe(), &memory));
    let returned = script.returned(Status::Ok);
    assert_breaks(&judged(&after, &returned, &heap.probe(), &memory), &[RuleId::ContentChanged]);
}

#[test]
fn a_pending_reallocation_keeps_content_up_to_the_smaller_size() {
    for bytes in [40, 1000] {
        let (script, mut heap) = two_objects();
        let script = script.begin(OperationKind::Reallocate, 3, bytes);
        heap.objects.get_mut(&3).unwrap().capacity = 1024;
        let mut memory = heap.memory();
        memory.bytes[512 + 200.min(bytes as usize)..].fill(0);
        heap.objects.get_mut(&3).unwrap().segments = vec![Segment { end: bytes.min(200), object: 3 }];
        assert_passes(&judged(&contract(), &script, &heap.probe(), &memory));
        memory.bytes[512 + 39] ^= 1;
        let probe = Probe { lives: 1, ..heap.probe() };
        assert_breaks(&judged(&contract(), &script, &probe, &memory), &[RuleId::ContentChanged]);
    }
}

#[test]
fn a_returned_reallocation_has_old_content_then_new() {
    let (script, mut heap) = two_objects();
    let script = script.done(OperationKind::Reallocate, 3, 300);
    let object = heap.objects.get_mut(&3).unwrap();
    object.capacity = 320;
    object.segments.push(Segment { end: 300, object: 4 });
    assert_passes(&judged(&contract(), &script, &heap.probe(), &heap.memory()));
    heap.objects.get_mut(&3).unwrap().segments[1].object = 5;
    assert_breaks(&judged(&contract(), &script, &heap.probe(), &heap.memory()), &[RuleId::ContentChanged]);
}

#[test]
fn words_that_two_segments_share_are_left_to_the_crash_image() {
    let segment = |end, object| Segment { end, object };
    for (kept, shared) in [(13, Some(14)), (16, None)] {
        let script = Script::created().allocated(1, kept).done(OperationKind::Reallocate, 1, 100);
        let mut heap = Heap::default();
        heap.put(1, 64, 100, 2);
        heap.objects.get_mut(&1).unwrap().segments = vec![segment(kept, 2), segment(100, 3)];
        let passes = |probe: &Probe, memory: &Memory| judged(&contract(), &script, probe, memory).violations.is_empty();
        for at in 0..96 {
            let mut memory = heap.memory();
            memory.bytes[64 + at] ^= 1;
            let is_shared = shared.is_some_and(|shared: usize| shared / 8 == at / 8);
            assert_eq!(passes(&heap.probe(), &memory), !is_shared, "{at} of {kept}");
        }
        for at in [16, 17, 95] {
            let mut probe = heap.probe();
            probe.contents.insert((3, Stage::Drain), vec![(1, 2, 0, kept), (1, 3, kept, at)]);
            assert!(at == kept || !passes(&probe, &heap.memory()), "{at} of {kept}");
            probe.contents.insert((3, Stage::Drain), vec![(1, 2, 0, kept), (1, 3, kept, 96)]);
            assert!(passes(&probe, &heap.memory()), "the last 4 bytes are no whole word");
        }
        let mut probe = heap.probe();
        probe.contents.insert((3, Stage::Drain), vec![(1, 2, 0, kept)]);
        assert!(!passes(&probe, &heap.memory()), "{kept}");
    }
}

#[test]
fn content_that_a_later_stage_changes_is_found_and_the_stage_named() {
    let (script, heap) = two_objects();
    for (life, stage, words) in [
        (1, Stage::Recovery, "recovery (life 1)"),
        (2, Stage::Recovery, "second recovery"),
        (3, Stage::Recovery, "recovery of a fresh copy (life 3)"),
        (3, Stage::Drain, "the drain"),
        (3, Stage::FreeAll, "the freeing of all"),
        (4, Stage::Recovery, "clean close"),
    ] {
        let mut probe = heap.probe();
        probe.contents.get_mut(&(life, stage)).unwrap()[1] = (3, 3, 0, 136);
        let judgement = judged(&contract(), &script, &probe, &heap.memory());
        assert_breaks(&judgement, &[RuleId::ContentChanged]);
        assert!(judgement.violations[0].message.contains(words), "{judgement:#?}");
        assert_eq!(judgement.violations.len(), 1);
    }
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
        let judgement = common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
        assert_breaks(&judgement, &expected);
    }
}

// FL012

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
    assert_passes(&common::judge(&slack, &shape(), &script.history, &report, &heap.memory(), Some(&twins)));
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
        common::judge(&contract, &shape(), &script.history, &probe.report(), &heap.memory(), Some(&twins))
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
    for (twins, why) in [(&twins, "freeing all objects answered corrupt"), (&dead, "it has no drain: it died")] {
        let failures: Vec<(String, &str)> = twins.failures().collect();
        assert_eq!(failures, [("operation 2".to_owned(), format!("emptied while it was open: {why}").as_str())]);
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
        common::judge(&contract, &shape(), &script.history, &probe.report(), &heap.memory(), Some(&twins))
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
        common::judge(&contract, &shape(), &script.history, &report, &heap.memory(), Some(&twins))
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
        common::judge(&collected, &shape(), &script.history, &probe.report(), &heap.memory(), Some(&twins))
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

// FL013

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
        let judgement = common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
        assert_breaks(&judgement, &expected);
    }
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

// Facts

#[test]
fn the_allocators_own_words_are_in_the_message_and_in_no_fact() {
    let judgement = |words| {
        let probe = Probe { message: Some(words), ..refused(Status::Corrupt) };
        judged(&contract(), &Script::created(), &probe, &Heap::default().memory())
    };
    let (one, other) = (judgement("the heap has damaged headers"), judgement("some headers of the heap are damaged"));
    assert_ne!(one.violations[0].message, other.violations[0].message);
    assert_eq!(facts(&one), ["answered recovery/open status-3"]);
    assert_eq!(facts(&other), facts(&one));
}

#[test]
fn what_answers_and_with_which_code_are_facts() {
    let (script, heap) = two_objects();
    let fact = |bend: &dyn Fn(&mut Probe)| {
        let mut probe = heap.probe();
        bend(&mut probe);
        facts(&judged(&contract(), &script, &probe, &heap.memory())).join(", ")
    };
    assert_eq!(fact(&|probe| probe.check[0] = Some(Status::Corrupt)), "answered recovery/check status-3");
    assert_eq!(fact(&|probe| probe.check[0] = Some(Status::Error)), "answered recovery/check status-5");
    assert_eq!(fact(&|probe| probe.check[2] = Some(Status::Error)), "answered second-recovery/check status-5");
    assert_eq!(fact(&|probe| probe.close[3] = Some(Status::Error)), "answered use/close status-5");
    assert_eq!(fact(&|probe| probe.free_all = Some(Status::Error)), "answered use/free-all status-5");
    let unreadable = |probe: &mut Probe| {
        probe.contents_status.insert((3, Stage::Drain), Status::Error);
        probe.contents.insert((3, Stage::Drain), vec![]);
    };
    assert_eq!(fact(&unreadable), "answered use/contents-after-drain status-5");
}

#[test]
fn what_is_wrong_with_an_object_is_a_fact() {
    let fact =
        |script: &Script, heap: &Heap| facts(&judged(&contract(), script, &heap.probe(), &heap.memory())).join(", ");
    let (script, heap) = two_objects();
    let mut without = heap.clone();
    without.objects.remove(&3);
    assert_eq!(fact(&script, &without), "null slot");
    assert_eq!(fact(&script.clone().freed(3), &heap), "set-again slot");
    let mut more = heap.clone();
    more.put(4, 1024, 64, 9);
    assert_eq!(fact(&script, &more), "never-set slot");
    let mut older = heap.clone();
    older.put(3, 512, 200, 3);
    assert_eq!(fact(&script.clone().freed(3).allocated(3, 200), &older), "content-of-older slot, freed-for-new slot");
    let mut other = heap.clone();
    other.put(3, 512, 200, 77);
    assert_eq!(fact(&script, &other), "content-wrong slot recovery/contents");
}
