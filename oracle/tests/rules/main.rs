// SPDX-License-Identifier: Apache-2.0
//! For each rule what trips it and what does not. The heaps are small and legal but for what the test bends.

#[path = "../common/mod.rs"]
mod common;
mod contents;
mod facts;
mod heap_blocks;
mod history;
mod idempotence;
mod refusals;
mod transactions;
mod usability;
mod without_crash;

use common::*;
use oracle::judge::Verdict;
use oracle::{Contract, HeapReport, HeapShape, RuleId, TwinSet, judge};

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
fn a_heap_that_is_recovered_elsewhere_is_judged_there_if_it_is_mapped_there() {
    let (script, heap) = two_objects();
    let relocated = HeapShape { is_relocated: true, ..shape() };
    let mut report = heap.probe().report();
    let judged = |report: &HeapReport| {
        let judgement = judge(&contract(), &relocated, &script.history, report, &heap.memory(), None);
        let named = judgement.not_judged.iter().find(|(rule, _)| *rule == RuleId::NotRelocatable);
        (judgement.judged.contains(RuleId::NotRelocatable), named.map(|(_, why)| why.to_string()))
    };
    assert_eq!(judged(&report), (true, None));
    report.lives[0].is_not_moved = true;
    let why = "promised and not judged: the adapter does not map at address_hint";
    assert_eq!(judged(&report), (false, Some(why.to_owned())));
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
    let (relocatable, detects) = (
        "FL015: promised and not judged: relocatable, without FL_CAN_RELOCATE",
        "FL016: promised and not judged: detects",
    );
    assert_eq!(named(false, &[]), [""; 0]);
    assert_eq!(named(true, &[]), [relocatable]);
    assert_eq!(named(false, &["header-damage"]), [format!("{detects} header-damage")]);
    assert_eq!(named(true, &["bit-flip", "tear"]), [relocatable.to_owned(), format!("{detects} bit-flip, tear")]);
}
