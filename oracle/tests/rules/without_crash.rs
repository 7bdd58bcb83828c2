// SPDX-License-Identifier: Apache-2.0
//! What a twin fails with is a finding of its own (FL017). What a recovery fails with and its twin, too, is no finding of its crash state,
//! and no pass.

use crate::common::*;
use oracle::contract::OutOfMemory;
use oracle::judge::Verdict;
use oracle::report::build::allocated;
use oracle::report::{EXECUTED, LIFE_COUNT, Outcome, SectionKind};
use oracle::{Contract, OperationKind, RuleId, Status, TwinSet};

fn twin(operation: u32, probe: &Probe) -> TwinSet {
    let mut twins = TwinSet::new();
    twins.insert(operation, &probe.report());
    twins
}

/// Of FL017.
fn facts(twins: &TwinSet) -> Vec<String> {
    twins.without_crash(OutOfMemory::Answers).iter().map(|failure| failure.fact.to_string()).collect()
}

#[test]
fn what_a_twin_fails_with_is_a_finding() {
    let (_, heap) = two_objects();
    let mut twins = twin(1, &heap.probe());
    assert_eq!(twins.without_crash(OutOfMemory::Answers), []);
    for operation in [2, 3] {
        twins.insert(operation, &heap.probe().ended(3, SectionKind::Drain, Outcome::Signal(6)).report());
    }
    let [failure] = &twins.without_crash(OutOfMemory::Answers)[..] else { panic!("one, and not {:?}", facts(&twins)) };
    assert_eq!(
        (failure.fact.to_string().as_str(), failure.operation, failure.seen),
        ("died use/drain signal-6", Some(2), 2)
    );
    let said = "after operation 2, the drain after the open of the closed heap (life 3) died of signal 6 (SIGABRT), and power did not fail";
    assert_eq!(failure.message, said);
    assert_eq!(twins.unfit(OutOfMemory::Answers).count(), 0, "it is told already");
    for (outcome, fact) in [(Outcome::Exited, "exited reopened/open"), (Outcome::Hung, "hung reopened/open")] {
        assert_eq!(facts(&twin(2, &heap.probe().ended(4, SectionKind::Open, outcome))), [fact]);
    }
}

#[test]
fn the_machine_s_failures_are_no_finding_of_a_twin() {
    let (_, heap) = two_objects();
    for outcome in [Outcome::Overloaded, Outcome::Broken] {
        let twins = twin(2, &heap.probe().ended(3, SectionKind::Drain, outcome));
        assert_eq!(facts(&twins), [""; 0]);
        assert_eq!(twins.unfit(OutOfMemory::Answers).count(), 1);
    }
    // It may have had many operations to execute.
    let executed = |outcome| twin(2, &heap.probe().ended(1, SectionKind::Open, outcome));
    assert_eq!(facts(&executed(Outcome::Hung)), [""; 0]);
    assert_eq!(executed(Outcome::Hung).unfit(OutOfMemory::Answers).count(), 1);
    assert_eq!(facts(&executed(Outcome::Signal(6))), ["died executed/open signal-6"]);
}

/// The workload's close answers that.
fn closed_with(heap: &Heap, status: Status) -> TwinSet {
    let executed = heap.probe().builder().life(EXECUTED).close(status);
    let mut twins = TwinSet::new();
    twins.insert(2, &executed.life(LIFE_COUNT as u16 - 1).report());
    twins
}

/// A step of the life that executed the workload is no step of a recovery.
#[test]
fn a_refused_close_of_the_workload_is_a_finding_and_excuses_no_recovery() {
    let (script, heap) = two_objects();
    let twins = closed_with(&heap, Status::Error);
    assert_eq!(facts(&twins), ["answered executed/close status-5"]);
    let ended = heap.probe().ended(3, SectionKind::Drain, Outcome::Signal(6));
    assert_breaks(&judged_with_twins(&script, &ended, &heap.memory(), &twins), &[RuleId::RecoveryCrashed]);
}

#[test]
fn an_answer_that_a_recovery_may_give_is_no_finding_of_a_twin() {
    let (_, heap) = two_objects();
    type Bend = fn(&mut Probe, Status);
    let bent: [(Bend, Status); 3] = [
        (|probe, status| probe.drain_status = status, Status::OutOfMemory),
        (|probe, status| probe.check[3] = Some(status), Status::UnsupportedCall),
        (|probe, status| probe.walk_status = status, Status::UnsupportedCall),
    ];
    for (bend, status) in bent {
        let answering = |status| {
            let mut probe = heap.probe();
            bend(&mut probe, status);
            facts(&twin(2, &probe))
        };
        assert_eq!(answering(status), [""; 0]);
        assert!(!answering(Status::Error).is_empty());
    }
    assert_eq!(facts(&closed_with(&heap, Status::OutOfMemory)), [""; 0], "the history could not be executed again");
}

#[test]
fn a_recovery_that_ends_as_its_twin_does_is_unknown() {
    let (script, heap) = two_objects();
    let judged = |recovery: Outcome, twin_ends: Outcome| {
        let probe = heap.probe().ended(3, SectionKind::Drain, recovery);
        let twins = twin(2, &heap.probe().ended(3, SectionKind::Drain, twin_ends));
        judged_with_twins(&script, &probe, &heap.memory(), &twins)
    };
    let ends = [(Outcome::Signal(6), "died of signal 6 (SIGABRT)"), (Outcome::Exited, "called exit")];
    for (outcome, how) in ends.into_iter().chain([(Outcome::Hung, "did not end within its limit")]) {
        let judgement = judged(outcome, outcome);
        assert_eq!(judgement.verdict(), Verdict::Unknown, "{judgement:#?}");
        assert_eq!(judgement.as_without_crash, [format!("the drain after recovery of a fresh copy (life 3) {how}")]);
    }
    assert_breaks(&judged(Outcome::Signal(11), Outcome::Signal(6)), &[RuleId::RecoveryCrashed]);
    assert_breaks(&judged(Outcome::Hung, Outcome::Exited), &[RuleId::RecoveryHung]);
    assert_breaks(&judged(Outcome::Exited, Outcome::Done), &[RuleId::RecoveryCrashed]);
}

/// Lives 0 to 2 are compared with the twin's first open.
#[test]
fn a_first_recovery_is_compared_with_the_first_open_without_a_crash() {
    let (script, heap) = two_objects();
    let ended = |life| heap.probe().ended(life, SectionKind::Open, Outcome::Signal(6));
    for (life, twin_life, expected) in
        [(0, 3, None), (2, 3, None), (0, 4, Some(RuleId::RecoveryCrashed)), (4, 3, Some(RuleId::RecoveryCrashed))]
    {
        let judgement = judged_with_twins(&script, &ended(life), &heap.memory(), &twin(2, &ended(twin_life)));
        assert_eq!(rules(&judgement), expected.into_iter().collect::<Vec<_>>(), "{life} {twin_life}");
    }
}

#[test]
fn a_twin_of_another_history_excuses_nothing() {
    let (script, heap) = two_objects();
    let ended = heap.probe().ended(3, SectionKind::Drain, Outcome::Signal(6));
    let judged = |script: &Script, failing: u32, right: u32| {
        let mut twins = twin(failing, &ended);
        twins.insert(right, &heap.probe().report());
        judged_with_twins(script, &ended, &heap.memory(), &twins)
    };
    assert_breaks(&judged(&script, 1, 2), &[RuleId::RecoveryCrashed]);
    assert_breaks(&judged(&script, 3, 2), &[RuleId::RecoveryCrashed]);
    assert_eq!(judged(&script, 2, 1).verdict(), Verdict::Unknown);
    // Whether it has happened cannot be asked of who is dead.
    let script = script.begin(OperationKind::Allocate, 5, 64);
    assert_eq!(judged(&script, 3, 2).verdict(), Verdict::Unknown);
    assert_breaks(&judged(&script, 1, 2), &[RuleId::RecoveryCrashed]);
}

#[test]
fn an_answer_that_the_twin_gives_too_is_unknown() {
    let (script, heap) = two_objects();
    let bent: [fn(&mut Probe, Status); 6] = [
        |probe, status| probe.maximal = Some((4096, status)),
        |probe, status| probe.drain_status = status,
        |probe, status| probe.free_all = Some(status),
        |probe, status| probe.close[3] = Some(status),
        |probe, status| probe.open[4] = Some(status),
        |probe, status| probe.check[3] = Some(status),
    ];
    for bend in bent {
        let answering = |status| {
            let mut probe = heap.probe();
            bend(&mut probe, status);
            probe
        };
        let judged = |twin_status| {
            let twins = twin(2, &answering(twin_status));
            judged_with_twins(&script, &answering(Status::Error), &heap.memory(), &twins)
        };
        let judgement = judged(Status::Error);
        assert_eq!(judgement.verdict(), Verdict::Unknown, "{judgement:#?}");
        assert!(judgement.as_without_crash[0].ends_with(" answered error"), "{judgement:#?}");
        assert_eq!(judged(Status::Corrupt).verdict(), Verdict::Fail);
    }
}

/// What the life said before it died is of a step that it came through.
#[test]
fn who_dies_says_nothing() {
    let (script, heap) = two_objects();
    let ended = heap.probe().ended(3, SectionKind::Drain, Outcome::Exited);
    let report = reworded(&ended.report());
    let judgement = oracle::judge(&contract(), &shape(), &script.history, &report, &heap.memory(), None);
    assert_eq!(judgement.violations[0].message, "the drain after recovery of a fresh copy (life 3) called exit");
}

/// The emptied heap is filled with so many pieces, until that ends the process.
fn filled(heap: &Heap, pieces: u64, outcome: Outcome) -> Probe {
    let mut probe = heap.probe().ended(5, SectionKind::Drain, outcome);
    probe.emptied = Some((0..pieces).map(|piece| allocated(1024 + 64 * piece, 64)).collect());
    probe
}

#[test]
fn memory_that_ends_the_process_is_compared_by_how_much_there_was() {
    let (script, heap) = two_objects();
    let abort = Outcome::Signal(6);
    let twins = twin(2, &filled(&heap, 10, abort));
    let judged = |probe: &Probe, out_of_memory: OutOfMemory, twins: Option<&TwinSet>| {
        let contract = Contract { out_of_memory, ..contract() };
        crate::common::judge(&contract, &shape(), &script.history, &probe.report(), &heap.memory(), twins)
    };
    let ends = |probe: &Probe, twins: &TwinSet| judged(probe, OutOfMemory::Ends, Some(twins));
    assert_eq!(twins.unfit(OutOfMemory::Ends).count(), 0);
    assert_eq!(twins.without_crash(OutOfMemory::Ends), []);
    assert_eq!(facts(&twins), ["died emptied/drain signal-6"]);
    let judgement = ends(&filled(&heap, 10, abort), &twins);
    assert_eq!(judgement.verdict(), Verdict::Pass, "{judgement:#?}");
    let named = "what follows when memory is out: the process ends (out_of_memory = \"ends\")";
    assert!(judgement.not_judged.iter().any(|(rule, why)| *rule == RuleId::NotUsable && why == named));
    assert_breaks(&ends(&filled(&heap, 9, abort), &twins), &[RuleId::NotUsable]);
    assert_breaks(&ends(&filled(&heap, 10, Outcome::Signal(11)), &twins), &[RuleId::RecoveryCrashed]);
    assert_breaks(&ends(&filled(&heap, 10, Outcome::Hung), &twins), &[RuleId::RecoveryHung]);
    assert_breaks(&ends(&filled(&heap, 10, abort), &twin(2, &heap.probe())), &[RuleId::RecoveryCrashed]);
    let segv = twin(2, &filled(&heap, 10, Outcome::Signal(11)));
    let found = segv.without_crash(OutOfMemory::Ends);
    assert_eq!(found.len(), 1, "memory that is out ends the process by abort or exit: {found:?}");
    let mut of_another = twin(1, &filled(&heap, 10, abort));
    of_another.insert(2, &heap.probe().report());
    assert_breaks(&ends(&filled(&heap, 10, abort), &of_another), &[RuleId::RecoveryCrashed]);
    let other = heap.probe().ended(5, SectionKind::Open, abort);
    assert_breaks(&ends(&other, &twins), &[RuleId::RecoveryCrashed]);
    assert_eq!(judged(&filled(&heap, 10, abort), OutOfMemory::Ends, None).verdict(), Verdict::Unknown);
    assert_eq!(judged(&filled(&heap, 10, abort), OutOfMemory::Answers, Some(&twins)).verdict(), Verdict::Unknown);
}
