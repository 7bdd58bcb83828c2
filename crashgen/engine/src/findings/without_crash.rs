// SPDX-License-Identifier: Apache-2.0
//! FL017 of the heap without a crash: what a twin fails with. No crash state shows it, so it has no token: whoever makes the twins again
//! sees it again.

use crate::base::config::Config;
use crate::findings::evidence::deaths::{End, end_of_twin};
use crate::findings::finding::{Finding, OperationText};
use crate::findings::identity::id;
use crashgen::trace::{EventKind, Trace};
use oracle::history::OperationIndex;
use oracle::{Fact, RuleId, WithoutCrash};
use std::collections::BTreeSet;

/// As they are printed.
pub fn findings(config: &Config, trace: &Trace, failures: &[WithoutCrash]) -> Vec<Finding> {
    failures.iter().map(|failure| finding(config, trace, failure)).collect()
}

fn finding(config: &Config, trace: &Trace, failure: &WithoutCrash) -> Finding {
    let end = end(config, failure);
    let rule = RuleId::FailsWithoutCrash;
    let fact = format!("without-crash {}", failure.fact);
    Finding {
        id: id(rule, &fact),
        rule: rule.to_string(),
        title: rule.title(),
        meaning: rule.meaning(),
        fact,
        message: format!("{}{}", failure.message, end.printed_tail()),
        token: String::new(),
        position: 0,
        operation: failure.operation.and_then(|index| operation_of(trace, index)),
        sites: Vec::new(),
        callers: Vec::new(),
        read: None,
        died: end.died,
        stored: None,
        seen: failure.seen,
        strategy: "",
        model_note: None,
        lost: None,
        there: None,
        lines: Vec::new(),
        line_count: 0,
        events: Vec::new(),
        repairs: Vec::new(),
        is_later: false,
        earlier: Vec::new(),
        lost_sites: BTreeSet::new(),
    }
}

/// Where threads left open which operation came last, no twin is named to be asked.
fn end(config: &Config, failure: &WithoutCrash) -> End {
    let is_hung = matches!(failure.fact, Fact::Hung(_));
    match (failure.fact, failure.operation) {
        (Fact::Died(..) | Fact::Exited(_) | Fact::Hung(_), Some(operation)) => end_of_twin(config, operation, is_hung),
        _ => End::default(),
    }
}

fn operation_of(trace: &Trace, wanted: OperationIndex) -> Option<OperationText> {
    trace.events.iter().find_map(|event| match event.kind {
        EventKind::OperationBegin { kind, index, slot, bytes, .. } if index == wanted => {
            Some(OperationText { index, generation: 0, kind: kind.name(), slot, bytes, pending: false })
        }
        _ => None,
    })
}
