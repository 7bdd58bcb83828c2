// SPDX-License-Identifier: Apache-2.0
//! `lists`: what there is to choose from, and the rules, for the front, which has no lists of its own.

use crate::base::output::print;
use crashgen::model::{PersistencyModel, models};
use crashgen::strategy::{self, Strategy};
use crashgen::trace_rules::TraceRule;
use oracle::RuleId;
use serde_json::{Value, json};

/// Prints one JSON object.
pub fn print_all() {
    let model = |model: &&dyn PersistencyModel| json!({ "name": model.name(), "survives": model.survives() });
    print(&json!({
        "models": models::ALL.iter().map(model).collect::<Vec<_>>(),
        "strategies": strategy::ALL.iter().map(strategy_entry).collect::<Vec<_>>(),
        "rules": rules(),
    }));
}

fn strategy_entry(strategy: &&dyn Strategy) -> Value {
    json!({ "name": strategy.name(), "runs": strategy.runs(), "follows_loads": strategy.follows_loads() })
}

/// The rules of the oracle, then those of traces, each in order of id. `meaning` says of a rule of the heap when it is broken, of a
/// trace rule what it warns of.
fn rules() -> Vec<Value> {
    let rule = |judges: &str, id: String, title: &str, meaning: &str| json!({ "id": id, "judges": judges, "title": title, "meaning": meaning });
    let of_heaps = RuleId::ALL.iter().map(|of| rule("heap", of.to_string(), of.title(), of.meaning()));
    let of_traces = TraceRule::ALL.iter().map(|of| rule("trace", of.to_string(), of.title(), of.meaning()));
    of_heaps.chain(of_traces).collect()
}
