// SPDX-License-Identifier: Apache-2.0
//! What the trace rules say, with sites in words: the event `trace_rules` of an exploration, and the subcommand `rules`.

use crate::findings::identity::id;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::Trace;
use crashgen::trace_rules::{self, Cost};
use serde::Serialize;
use std::collections::BTreeMap;

/// Warnings and costs of a trace.
#[derive(Serialize)]
pub struct TraceRules {
    warnings: Vec<Warning>,
    costs: Vec<OperationCost>,
}

/// One rule at one place in the source.
#[derive(Serialize)]
struct Warning {
    /// Made of the rule and the place, which is the function and the ordinal in it: lines that move keep it.
    id: String,
    rule: String,
    title: &'static str,
    meaning: &'static str,
    concern: &'static str,
    site: Symbol,
    count: u64,
    /// Crash position after the first such event.
    position: u32,
    operation: Option<Operation>,
}

#[derive(Serialize)]
struct Operation {
    index: u32,
    name: &'static str,
}

/// What all operations of a kind paid, together.
#[derive(Serialize)]
struct OperationCost {
    operation: &'static str,
    operations: u64,
    stores: u64,
    bytes: u64,
    flushes: u64,
    fences: u64,
    lines: u64,
    redundant: u64,
}

impl TraceRules {
    /// Places that store and never flush.
    pub fn never_flushed(&self) -> usize {
        let rule = trace_rules::TraceRule::NeverFlushed.to_string();
        self.warnings.iter().filter(|warning| warning.rule == rule).count()
    }
}

/// Judges the trace rules. `is_durable_on_return` is the contract's.
pub fn judge(trace: &Trace, symbols: &mut Symbols, is_durable_on_return: bool) -> TraceRules {
    let outcome = trace_rules::judge(trace, is_durable_on_return);
    let mut warnings: Vec<Warning> = Vec::new();
    let mut known: BTreeMap<(trace_rules::TraceRule, Symbol), usize> = BTreeMap::new();
    for warning in &outcome.warnings {
        // Several instructions of one line of source are one place.
        let site = symbols.find(trace, warning.site);
        let at = *known.entry((warning.rule, site.clone())).or_insert(warnings.len());
        if at < warnings.len() {
            warnings[at].count += warning.count;
            continue;
        }
        let place = place_name(&symbols.lasting_name(trace, warning.site), &site);
        warnings.push(Warning {
            id: id(warning.rule, &format!("{} {place}", warning.rule)),
            rule: warning.rule.to_string(),
            title: warning.rule.title(),
            meaning: warning.rule.meaning(),
            concern: warning.rule.concern().name(),
            site,
            count: warning.count,
            position: warning.event + 1,
            operation: warning.operation.map(|(index, kind)| Operation { index, name: kind.name() }),
        });
    }
    TraceRules { warnings, costs: outcome.costs.iter().map(|(operation, cost)| cost_of(operation, cost)).collect() }
}

/// One line of source may call several helpers.
fn place_name(name: &str, site: &Symbol) -> String {
    match site.helper.split(" (").next() {
        None | Some("") => name.to_owned(),
        Some(helper) => format!("{name} by {helper}"),
    }
}

fn cost_of(operation: &'static str, cost: &Cost) -> OperationCost {
    let Cost { operations, stores, bytes, flushes, fences, lines, redundant } = *cost;
    OperationCost { operation, operations, stores, bytes, flushes, fences, lines, redundant }
}
