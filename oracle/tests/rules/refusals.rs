// SPDX-License-Identifier: Apache-2.0
//! Recoveries that die, do not end or refuse the image: FL001 to FL003.

use crate::common::*;
use oracle::contract::{AfterFailedCreate, Durable};
use oracle::judge::Verdict;
use oracle::report::{Outcome, SectionKind, Stage};
use oracle::{Contract, OperationKind, RuleId, Status};

// FL001, FL002

#[test]
fn what_a_lazy_open_leaves_must_come_to_its_end() {
    let (script, heap) = two_objects();
    for (life, rule, words) in [
        (0, RuleId::RecoveryFailed, "settling the heap after recovery answered corrupt"),
        (1, RuleId::RecoveryFailed, "settling the heap after recovery (life 1) answered corrupt"),
        (4, RuleId::NotUsable, "settling the heap after the open after a clean close (life 4) answered corrupt"),
    ] {
        let mut probe = heap.probe();
        probe.settled[life] = Some(Status::Ok);
        assert_passes(&judged(&contract(), &script, &probe, &heap.memory()));
        probe.settled[life] = Some(Status::Corrupt);
        let judgement = judged(&contract(), &script, &probe, &heap.memory());
        assert_breaks(&judgement, &[rule]);
        assert!(judgement.violations[0].message.starts_with(words), "{judgement:?}");
    }
}

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
        let judgement = crate::common::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
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
        !of_outcome.contains(rule) && !untried.contains(rule) && contract().promises(*rule)
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
fn a_broken_heap_that_open_took_for_a_closed_one_was_not_recovered() {
    let (script, heap) = two_objects();
    let mut broken = heap.clone();
    broken.objects.remove(&1);
    let judged = |script: &Script, heap: &Heap, has_recovered| {
        let probe = Probe { has_recovered, ..heap.probe() };
        judged(&contract(), script, &probe, &heap.memory())
    };
    let skipped = |script: &Script, heap: &Heap, has_recovered| {
        let judgement = judged(script, heap, has_recovered);
        judgement.violations.iter().any(|violation| violation.rule == RuleId::RecoverySkipped)
    };
    assert_breaks(&judged(&script, &broken, Some(false)), &[RuleId::OperationLost, RuleId::RecoverySkipped]);
    assert!(!skipped(&script, &broken, Some(true)), "it recovered");
    assert!(!skipped(&script, &broken, None), "it does not tell");
    assert!(!skipped(&script, &heap, Some(false)), "there was nothing to recover");
    // What close leaves may be there from its begin until something else takes effect.
    let closing = script.clone().begin(OperationKind::Close, 0, 0);
    let closed = script.clone().done(OperationKind::Close, 0, 0);
    let reopening = closed.clone().begin(OperationKind::Open, 0, 0);
    let reopened = closed.clone().done(OperationKind::Open, 0, 0);
    let freeing = reopened.clone().begin(OperationKind::Free, 1, 0);
    for script in [closing, closed, reopening, reopened.clone(), freeing] {
        assert!(!skipped(&script, &broken, Some(false)), "{:?}", script.history);
    }
    let freed = reopened.done(OperationKind::Free, 1, 0);
    assert!(skipped(&freed, &heap, Some(false)), "the free is lost");
}

#[test]
fn what_create_leaves_may_be_opened_as_a_closed_heap() {
    let created = Script::new(Durable::OnReturn).done(OperationKind::Create, 0, 0);
    let mut heap = Heap::default();
    heap.put(0, 64, 64, 9);
    let probe = Probe { has_recovered: Some(false), ..heap.probe() };
    assert_breaks(&judged(&contract(), &created, &probe, &heap.memory()), &[RuleId::FreedObjectBack]);
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
