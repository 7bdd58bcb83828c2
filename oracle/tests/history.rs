// SPDX-License-Identifier: Apache-2.0
//! What a history expects after a crash, and when its number changes.

mod common;

use common::Script;
use common::graph::Step;
use oracle::contract::{Durable, Fill, Leaks};
use oracle::history::{Candidates, Holder, Phase};
use oracle::{History, Operation, OperationKind, Segment, Status};

fn sizes(candidates: Candidates<'_>) -> Vec<Option<u64>> {
    candidates.iter().map(|candidate| candidate.object.map(|object| object.bytes)).collect()
}

fn segments(script: &Script, slot: u32) -> Vec<Segment> {
    script.history.candidates(slot, Fill::Before).objects().last().unwrap().segments.to_vec()
}

#[test]
fn each_operation_is_there_or_not_while_pending_and_there_once_returned() {
    let script = Script::created();
    let expects = |script: &Script| sizes(script.history.candidates(2, Fill::Before));
    assert_eq!(expects(&script), [None]);
    let script = script.begin(OperationKind::Allocate, 2, 100);
    assert_eq!(expects(&script), [None, Some(100)]);
    let script = script.returned(Status::Ok);
    assert_eq!(expects(&script), [Some(100)]);
    let script = script.begin(OperationKind::Reallocate, 2, 50);
    assert_eq!(expects(&script), [Some(100), Some(50)]);
    let script = script.returned(Status::Ok).begin(OperationKind::Free, 2, 0);
    assert_eq!(expects(&script), [Some(50), None]);
    assert_eq!(expects(&script.returned(Status::Ok)), [None]);
}

#[test]
fn reallocations_keep_the_smaller_part_and_fill_the_rest() {
    let segment = |end, object| Segment { end, object };
    let script = Script::created().allocated(2, 100);
    let script = script.done(OperationKind::Reallocate, 2, 150);
    assert_eq!(segments(&script, 2), [segment(100, 2), segment(150, 3)]);
    let script = script.done(OperationKind::Reallocate, 2, 120);
    assert_eq!(segments(&script, 2), [segment(100, 2), segment(120, 3)]);
    let script = script.done(OperationKind::Reallocate, 2, 100);
    assert_eq!(segments(&script, 2), [segment(100, 2)]);
    let script = script.done(OperationKind::Reallocate, 2, 30).done(OperationKind::Reallocate, 2, 31);
    assert_eq!(segments(&script, 2), [segment(30, 2), segment(31, 7)]);
}

#[test]
fn filled_after_publication_only_what_is_kept_is_promised_while_pending() {
    let checked = |script: &Script| {
        let candidates = script.history.candidates(2, Fill::After);
        candidates.objects().map(|object| object.checked_bytes).collect::<Vec<_>>()
    };
    let script = Script::created().begin(OperationKind::Allocate, 2, 100);
    assert_eq!(checked(&script), [0]);
    let script = script.returned(Status::Ok).begin(OperationKind::Reallocate, 2, 150);
    assert_eq!(checked(&script), [100, 100]);
    assert_eq!(checked(&script.returned(Status::Ok)), [150]);
}

#[test]
fn the_number_changes_exactly_when_the_expectation_does() {
    let mut seen = Vec::new();
    let mut script = Script::created();
    seen.push(script.history.state_id());
    let step = |script: Script, seen: &mut Vec<u64>, is_new: bool| {
        let is_known = seen.contains(&script.history.state_id());
        assert_eq!(is_known, !is_new, "after {seen:?}");
        seen.push(script.history.state_id());
        script
    };
    script = step(script.begin(OperationKind::Allocate, 0, 64), &mut seen, true);
    script = step(script.returned(Status::OutOfMemory), &mut seen, false);
    assert_eq!(seen[0], seen[2], "out-of-memory has no effect");
    script = step(script.begin(OperationKind::Allocate, 0, 64), &mut seen, true);
    script = step(script.returned(Status::Ok), &mut seen, true);
    // A pending close or open may leak a heap block, where the contract permits it.
    script = step(script.begin(OperationKind::Close, 0, 0), &mut seen, true);
    // From its return on open may take the heap as the close left it.
    script = step(script.returned(Status::Ok), &mut seen, true);
    script = step(script.begin(OperationKind::Open, 0, 0), &mut seen, true);
    script = step(script.returned(Status::Ok), &mut seen, false);
    script = step(script.begin(OperationKind::Free, 0, 0), &mut seen, true);
    step(script.returned(Status::Ok), &mut seen, true);
}

#[test]
fn a_close_that_is_promised_is_expected_until_something_begins() {
    let mut script = Script::created().allocated(0, 10);
    script.history = script.history.with_clean_close(true);
    let (open, closed) = (script.clone(), script.done(OperationKind::Close, 0, 0));
    assert_eq!((open.history.closed_by(), closed.history.closed_by()), (None, Some(2)));
    assert_ne!(open.history.state_id(), closed.history.state_id());
    let reopened = closed.begin(OperationKind::Open, 0, 0);
    assert_eq!(reopened.history.closed_by(), None);
    let reopened = reopened.returned(Status::Ok);
    assert_eq!(reopened.history.closed_by(), None);
    assert_ne!(reopened.history.state_id(), open.history.state_id(), "nothing has happened since");
    let failed = open.begin(OperationKind::Close, 0, 0).returned(Status::Error);
    assert_eq!(failed.history.closed_by(), None);
}

#[test]
fn equal_histories_have_equal_numbers() {
    let make = || Script::created().allocated(1, 10).allocated(2, 20).freed(1).history.state_id();
    assert_eq!(make(), make());
}

#[test]
fn a_close_settles_only_what_is_durable_on_close() {
    let script = Script::new(Durable::OnClose).done(OperationKind::Create, 0, 0).allocated(1, 10);
    assert!(!script.history.must_open());
    let before = script.history.state_id();
    let script = script.done(OperationKind::Close, 0, 0);
    assert_ne!(script.history.state_id(), before);
    assert!(script.history.must_open());
}

#[test]
fn the_phases_of_creation() {
    let script = Script::new(Durable::OnReturn);
    assert_eq!(script.history.current().phase(), Phase::Absent);
    let script = script.begin(OperationKind::Create, 0, 0);
    assert_eq!((script.history.current().phase(), script.history.must_open()), (Phase::Creating, false));
    let failed = script.clone().returned(Status::Error);
    assert_eq!(failed.history.current().phase(), Phase::Creating);
    let script = script.returned(Status::Ok);
    assert_eq!((script.history.current().phase(), script.history.must_open()), (Phase::Created, true));
}

#[test]
fn an_operation_that_failed_leaves_its_slot_open() {
    let script = Script::created().allocated(1, 10).begin(OperationKind::Free, 1, 0).returned(Status::Error);
    assert_eq!(sizes(script.history.candidates(1, Fill::Before)), [None, Some(10)]);
    assert_eq!(script.history.pending_operations(), 1);
    let script = script.allocated(1, 20);
    assert_eq!(sizes(script.history.candidates(1, Fill::Before)), [Some(20)]);
    assert_eq!(script.history.pending_operations(), 0);
}

#[test]
fn the_prefix_of_one_thread_ends_at_its_last_effect() {
    let script = Script::created().allocated(1, 10).begin(OperationKind::Allocate, 2, 10);
    assert_eq!(script.history.linearised_prefix(&[]), Some(1));
    assert_eq!(script.history.linearised_prefix(&[2]), Some(2));
    let script = script.returned(Status::OutOfMemory).done(OperationKind::Close, 0, 0);
    assert_eq!(script.history.linearised_prefix(&[]), Some(1));
}

#[test]
fn several_threads_have_a_prefix_only_without_gaps() {
    let mut script = Script::created();
    script.begin_on(0, OperationKind::Allocate, 1, 10);
    script.begin_on(1, OperationKind::Allocate, 2, 10);
    assert_eq!(script.history.pending_operations(), 2);
    assert_eq!(script.history.linearised_prefix(&[]), Some(0));
    assert_eq!(script.history.linearised_prefix(&[1]), Some(1));
    assert_eq!(script.history.linearised_prefix(&[2]), None);
    assert_eq!(script.history.linearised_prefix(&[1, 2]), Some(2));
    script.history.returned(1, 2, Status::Ok).unwrap();
    assert_eq!(script.history.linearised_prefix(&[]), None);
    assert_eq!(script.history.linearised_prefix(&[1]), Some(2));
}

#[test]
fn a_returned_operation_survives_though_it_overlapped_a_pending_one() {
    let mut script = Script::created().allocated(3, 30);
    script.begin_on(0, OperationKind::Allocate, 1, 10);
    script.begin_on(1, OperationKind::Free, 3, 0);
    script.history.returned(1, 3, Status::Ok).unwrap();
    script.begin_on(1, OperationKind::Allocate, 2, 20);
    let expects = |slot| sizes(script.history.candidates(slot, Fill::Before));
    assert_eq!(expects(1), [None, Some(10)]);
    assert_eq!(expects(2), [None, Some(20)]);
    assert_eq!(expects(3), [None]);
    assert_eq!(script.history.pending_operations(), 2);
}

#[test]
fn a_linearisation_counts_returns_and_names_what_was_pending() {
    let mut script = Script::created().allocated(3, 30);
    script.begin_on(0, OperationKind::Allocate, 1, 10);
    script.begin_on(1, OperationKind::Allocate, 2, 10);
    let before = script.history.linearised(&[3, 2]);
    assert_eq!((before.create, before.returned, before.happened), (0, 2, vec![2, 3]));
    let state = script.history.state_id();
    script.history.returned(1, 3, Status::Ok).unwrap();
    assert_ne!(script.history.state_id(), state);
    assert_eq!(script.history.linearised(&[2]).returned, 3);
    script.history.returned(0, 2, Status::OutOfMemory).unwrap();
    assert_eq!(script.history.linearised(&[]).returned, 3, "an operation that ran out of memory has no effect");
}

#[test]
fn another_process_is_no_other_thread() {
    let mut script = Script::created().allocated(1, 10).done(OperationKind::Close, 0, 0);
    script.begin_on(7, OperationKind::Open, 0, 0);
    script.history.returned(7, 3, Status::Ok).unwrap();
    script.next = 9; // what stands before was skipped: it had run out of memory
    script.begin_on(7, OperationKind::Allocate, 2, 10);
    assert_eq!(script.history.linearised_prefix(&[]), Some(1));
    assert_eq!(script.history.linearised_prefix(&[9]), Some(9));
}

#[test]
fn markers_that_do_not_fit_are_refused_with_a_reason() {
    let created = || Script::created().allocated(1, 10).history;
    let operation = |thread, kind, slot| Operation {
        thread,
        kind,
        index: 9,
        slot,
        bytes: 8,
        object: 10,
        from: 0,
        field: 0,
        other_slot: 0,
    };
    let refused = |mut history: History, operation: Operation| history.begin(operation).unwrap_err().to_string();
    let absent = History::new(Durable::OnReturn);
    assert!(refused(absent, operation(0, OperationKind::Allocate, 2)).contains("before create has returned"));
    assert!(refused(created(), operation(0, OperationKind::Create, 0)).contains("a heap that has one"));
    assert!(refused(created(), operation(0, OperationKind::Allocate, 1)).contains("slot 1, which holds an object"));
    assert!(refused(created(), operation(0, OperationKind::Free, 2)).contains("slot 2, which is empty"));
    let nameless = Operation { object: 0, ..operation(0, OperationKind::Allocate, 2) };
    assert!(refused(created(), nameless).contains("no object id"));
    let mut busy = created();
    busy.begin(Operation { index: 8, ..operation(0, OperationKind::Free, 1) }).unwrap();
    assert!(refused(busy.clone(), operation(0, OperationKind::Allocate, 2)).contains("operation 8 has not returned"));
    assert!(refused(busy.clone(), operation(1, OperationKind::Reallocate, 1)).contains("operation 8 is pending"));
    let error = busy.returned(1, 8, Status::Ok).unwrap_err().to_string();
    assert_eq!(error, "operation 8 of thread 1: returns without having begun");
}

// Objects that hold references to objects

fn ids(script: &Script, holder: Holder) -> Vec<Option<u32>> {
    let candidates = script.history.candidates(holder, Fill::Before);
    candidates.iter().map(|candidate| candidate.object.and_then(|object| object.id)).collect()
}

fn reference(kind: OperationKind, slot: u32, field: u8, other: u32) -> Step {
    Step { kind, slot, bytes: 0, field, other }
}

#[test]
fn a_field_is_in_either_state_while_an_operation_on_it_is_pending() {
    let field = Holder::Field { object: 2, field: 1 };
    let script = Script::created().allocated(0, 10).allocated(1, 20).allocated(2, 30);
    assert_eq!(ids(&script, field), [None]);
    let script = script.begin_step(reference(OperationKind::Link, 0, 1, 1));
    assert_eq!(ids(&script, field), [None, Some(3)]);
    let script = script.returned(Status::Ok).begin_step(reference(OperationKind::Link, 0, 1, 2));
    assert_eq!(ids(&script, field), [Some(3), Some(4)]);
    let script = script.returned(Status::Ok).begin_step(reference(OperationKind::Unlink, 0, 1, 0));
    assert_eq!(ids(&script, field), [Some(4), None]);
    assert_eq!(ids(&script.returned(Status::Ok), field), [None]);
}

#[test]
fn a_reference_promises_the_whole_object_whenever_fill_comes() {
    let script = Script::created().allocated(0, 10).allocated(1, 20).linked(0, 0, 1).dropped(1);
    let script = script.begin_step(reference(OperationKind::Load, 5, 0, 0));
    let candidates = script.history.candidates(5, Fill::After);
    let object = candidates.objects().next().unwrap();
    assert_eq!((object.id, object.bytes, object.checked_bytes), (Some(3), 20, 20));
    assert_eq!((object.operation, object.placed_by), (2, 5));
}

#[test]
fn an_object_keeps_its_fields_and_its_id_when_it_is_reallocated() {
    let script = Script::created().allocated(0, 10).allocated(1, 20).linked(0, 0, 1);
    let script = script.done(OperationKind::Reallocate, 0, 50);
    assert_eq!(ids(&script, Holder::Slot(0)), [Some(2)]);
    assert_eq!(ids(&script, Holder::Field { object: 2, field: 0 }), [Some(3)]);
}

#[test]
fn garbage_is_what_no_slot_reaches_and_nobody_freed() {
    let garbage = |script: &Script, happened: &[u32]| script.history.garbage_objects(happened);
    let script = Script::created().allocated(0, 10).allocated(1, 10).allocated(2, 10);
    // A cycle of objects 3 and 4 that object 2 holds.
    let script = script.linked(0, 0, 1).linked(1, 0, 2).linked(2, 1, 1).dropped(1).dropped(2);
    assert_eq!(garbage(&script, &[]), 0);
    let pending = script.begin_step(reference(OperationKind::Unlink, 0, 0, 0));
    assert_eq!((garbage(&pending, &[]), garbage(&pending, &[9])), (0, 2));
    let script = pending.returned(Status::Ok);
    assert_eq!((garbage(&script, &[]), script.history.garbage_left_by_close(&[])), (2, 0));
    assert_eq!(ids(&script, Holder::Field { object: 3, field: 0 }), [None], "of garbage nothing is expected");
    let closing = script.begin(OperationKind::Close, 0, 0);
    assert_eq!(closing.history.garbage_left_by_close(&[]), 2);
    let opened = closing.returned(Status::Ok).done(OperationKind::Open, 0, 0);
    assert_eq!(opened.history.garbage_left_by_close(&[]), 2);
    let pending = opened.begin(OperationKind::Free, 0, 0);
    assert_eq!(pending.history.garbage_left_by_close(&[]), 2);
    assert_eq!(pending.history.garbage_left_by_close(&[12]), 0, "it is not as the close left it");
    assert_eq!(pending.returned(Status::Ok).history.garbage_left_by_close(&[]), 0);
}

#[test]
fn what_a_pending_close_leaves_may_be_there_after_recovery_too() {
    let script = Script::created().allocated(0, 10).linked(0, 0, 0).dropped(0);
    let left = |script: &Script| script.history.garbage_left_by_close(&[]);
    let recovered = |script: Script| {
        let mut script = script;
        script.history.power_fails();
        script.history.recovered(&[], &[], Fill::Before);
        script
    };
    assert_eq!(left(&recovered(script.clone())), 0, "it was open: recovery collects");
    let closing = recovered(script.begin(OperationKind::Close, 0, 0));
    assert_eq!(left(&closing), 1);
    assert_eq!(left(&recovered(closing.clone())), 1, "nothing has happened since");
    assert_eq!(left(&closing.allocated(1, 10)), 0);
}

#[test]
fn the_number_changes_with_references_and_with_what_a_close_leaves() {
    let script = Script::created().allocated(0, 10).allocated(1, 10);
    let mut seen = vec![script.history.state_id()];
    let mut is_new = |script: &Script| {
        let id = script.history.state_id();
        let is_new = !seen.contains(&id);
        seen.push(id);
        is_new
    };
    let pending = script.begin_step(reference(OperationKind::Link, 0, 0, 1));
    assert!(is_new(&pending));
    let script = pending.returned(Status::Ok);
    assert!(is_new(&script));
    let script = script.dropped(0);
    assert!(is_new(&script));
    let closed = script.done(OperationKind::Close, 0, 0);
    assert!(is_new(&closed), "garbage of object 2 may stay");
    let opened = closed.done(OperationKind::Open, 0, 0);
    assert!(!is_new(&opened), "opening changes nothing");
    assert!(is_new(&opened.freed(1)));
}

#[test]
fn markers_of_references_that_do_not_fit_are_refused_with_a_reason() {
    let script = Script::created().allocated(0, 10).allocated(1, 10).linked(0, 0, 1);
    let refused = |script: &Script, kind, slot, field, other_slot| {
        let operation = Operation { thread: 0, kind, index: 9, slot, bytes: 0, object: 0, from: 0, field, other_slot };
        script.history.clone().begin(operation).expect_err("it does not fit").to_string()
    };
    use OperationKind::{Drop, Free, Link, Load, Reallocate, Unlink};
    assert!(refused(&script, Link, 5, 0, 1).contains("slot 5, which is empty"));
    assert!(refused(&script, Link, 0, 0, 5).contains("with slot 5, which is empty"));
    assert!(refused(&script, Link, 0, 2, 1).contains("field 2, expected one below 2"));
    assert!(refused(&script, Unlink, 5, 0, 0).contains("slot 5, which is empty"));
    assert!(refused(&script, Drop, 5, 0, 0).contains("slot 5, which is empty"));
    assert!(refused(&script, Load, 1, 0, 0).contains("slot 1, which holds an object"));
    assert!(refused(&script, Load, 5, 1, 0).contains("with field 1 of object 2, which is null"));
    let held = "slot 1, whose object field 0 of object 2 holds too";
    assert!(refused(&script, Free, 1, 0, 0).contains(held));
    let mut busy = script.clone();
    busy.begin_on(1, OperationKind::Free, 0, 0);
    assert!(refused(&busy, Link, 1, 0, 0).contains("slot 0, on which operation 4 is pending"));
    let nameless = Operation {
        thread: 0,
        kind: Reallocate,
        index: 9,
        slot: 1,
        bytes: 8,
        object: 10,
        from: 0,
        field: 0,
        other_slot: 0,
    };
    assert!(script.history.clone().begin(nameless).unwrap_err().to_string().contains(held));
}

#[test]
fn what_is_durable_on_close_only_may_be_in_any_state_since() {
    let script = Script::new(Durable::OnClose).done(OperationKind::Create, 0, 0);
    let script = script.allocated(0, 10).allocated(1, 20).linked(0, 0, 1).done(OperationKind::Close, 0, 0);
    let field = Holder::Field { object: 2, field: 0 };
    assert_eq!(ids(&script, field), [Some(3)]);
    let script = script.done(OperationKind::Open, 0, 0).unlinked(0, 0);
    assert_eq!(sizes(script.history.candidates(field, Fill::Before)), [None, Some(20)]);
    assert_eq!(sizes(script.done(OperationKind::Close, 0, 0).history.candidates(field, Fill::Before)), [None]);
}

fn crashed(mut script: Script) -> Script {
    script.history.power_fails();
    script
}

#[test]
fn what_was_pending_at_a_crash_may_have_happened_until_a_recovery_shows_it() {
    let script = crashed(Script::created().allocated(1, 10).begin(OperationKind::Allocate, 2, 20));
    let script = script.begin(OperationKind::Open, 0, 0);
    assert_eq!(sizes(script.history.candidates(2, Fill::Before)), [None, Some(20)]);
    assert_eq!(script.history.pending_operations(), 2, "the allocation, and the recovery");
    let script = script.returned(Status::Ok);
    let settled = |happened: &[u32], unclear: &[u32]| {
        let mut script = script.clone();
        script.history.recovered(happened, unclear, Fill::Before);
        sizes(script.history.candidates(2, Fill::Before))
    };
    assert_eq!(settled(&[2], &[]), [Some(20)], "seen once: it stays");
    assert_eq!(settled(&[], &[]), [None], "not there: it cannot come back");
    assert_eq!(settled(&[], &[2]), [None, Some(20)]);
    let mut script = script;
    script.history.recovered(&[2], &[], Fill::Before);
    assert_eq!(script.history.pending_operations(), 1, "what leaked at the first crash stays leaked");
    assert_eq!(sizes(script.freed(2).history.candidates(2, Fill::Before)), [None]);
}

#[test]
fn a_recovery_overlaps_nothing_that_a_crash_ended() {
    let expected = |script: Script| {
        let mut script = crashed(script);
        let (thread, index, kind) = (0, 100, OperationKind::Open);
        let open = Operation { thread, kind, index, slot: 0, bytes: 0, object: 0, from: 0, field: 0, other_slot: 0 };
        script.history.begin(open).expect("markers in order");
        script.history.returned(thread, index, Status::Ok).expect("it has begun");
        script.history.recovered(&[], &[], Fill::Before);
        script.history.expected_id(Leaks::None)
    };
    let script = Script::created().allocated(1, 10);
    let pending = script.clone().begin(OperationKind::Free, 1, 0);
    assert_eq!(expected(script), expected(pending), "the free has not happened, as if it had not begun");
}

#[test]
fn what_follows_a_recovery_overlaps_what_it_left_unclear() {
    let recovered = |unclear: &[u32]| {
        let script = crashed(Script::created().allocated(1, 10).begin(OperationKind::Allocate, 2, 20));
        let mut script = script.done(OperationKind::Open, 0, 0);
        script.history.recovered(&[], unclear, Fill::Before);
        script.allocated(3, 30).history
    };
    assert_eq!(recovered(&[]).linearised_prefix(&[]), Some(4), "all that returned");
    assert_eq!(recovered(&[2]).linearised_prefix(&[]), None);
}

#[test]
fn contents_that_a_crash_left_unfilled_are_promised_to_nobody() {
    let script = crashed(Script::created().allocated(1, 10).begin(OperationKind::Reallocate, 1, 30));
    let mut script = script.done(OperationKind::Open, 0, 0);
    script.history.recovered(&[2], &[], Fill::After);
    let checked = |script: &Script| {
        let candidates = script.history.candidates(1, Fill::After);
        candidates.objects().map(|object| (object.bytes, object.checked_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(checked(&script), [(30, 10)]);
    assert_eq!(checked(&script.clone().done(OperationKind::Reallocate, 1, 8)), [(8, 8)]);
    assert_eq!(checked(&script.done(OperationKind::Reallocate, 1, 20)), [(20, 10)]);
}

#[test]
fn a_heap_whose_create_was_pending_is_created_once_a_recovery_opened_it() {
    let script = crashed(Script::new(Durable::OnReturn).begin(OperationKind::Create, 0, 0));
    let mut script = script.done(OperationKind::Open, 0, 0);
    assert!(!script.history.must_open());
    script.history.recovered(&[0], &[], Fill::Before);
    assert!(script.history.must_open());
}

#[test]
fn each_generation_has_its_own_number() {
    let script = Script::created().allocated(1, 10);
    let next = crashed(script.clone());
    assert_ne!(script.history.state_id(), next.history.state_id());
}

/// Threads may begin operation 4 before operation 3: it has begun then, whatever begins after it.
#[test]
fn an_operation_that_another_thread_began_first_stays_begun() {
    let mut script = Script::created().allocated(1, 64).allocated(2, 64);
    assert!(script.history.current().has_begun_from(2));
    assert!(!script.history.current().has_begun_from(3));
    script.next = 4;
    script.begin_on(1, OperationKind::Free, 1, 0);
    assert!(script.history.current().has_begun_from(4), "pending");
    script.history.returned(1, 4, Status::Ok).unwrap();
    script.next = 3;
    script.begin_on(2, OperationKind::Free, 2, 0);
    assert!(script.history.current().has_begun_from(4), "returned, and an earlier one is pending");
    script.history.returned(2, 3, Status::Ok).unwrap();
    assert!(script.history.current().has_begun_from(4));
    assert!(!script.history.current().has_begun_from(5));
}
