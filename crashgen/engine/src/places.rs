// SPDX-License-Identifier: Apache-2.0
//! `places`: where the source of the allocator flushes and fences. Several instructions of one line of source are one place.

use crate::config::Config;
use crate::output;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::{EventKind, OperationKind, SiteId, ThreadId, Trace, is_flush_or_fence};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// One place.
#[derive(Serialize)]
struct Place {
    kind: &'static str,
    site: Symbol,
    /// The trace's numbers of its instructions.
    sites: BTreeSet<SiteId>,
    /// Executions.
    count: u64,
    /// Of them, those inside an `open`: what recovery does is there for crashes that this trace does not have.
    in_recovery: u64,
}

/// Prints them as one JSON object, in the order in which the trace comes to them. The runner's own flushes are those of an
/// application, and not among them.
pub fn print(config: &Config, trace: &Trace) {
    let mut symbols = Symbols::new(config.programs());
    let mut places: Vec<Place> = Vec::new();
    let mut known: BTreeMap<(&'static str, Symbol), usize> = BTreeMap::new();
    let mut opening: BTreeSet<ThreadId> = BTreeSet::new();
    for event in trace.events.iter().skip(trace.first_event()) {
        match event.kind {
            EventKind::OperationBegin { kind: OperationKind::Open, .. } => drop(opening.insert(event.thread)),
            EventKind::OperationReturn { kind: OperationKind::Open, .. } => drop(opening.remove(&event.thread)),
            _ => {}
        }
        if !is_flush_or_fence(&event.kind) || trace.is_runner_site(event.site, config.runner()) {
            continue;
        }
        let kind = if matches!(event.kind, EventKind::Fence { .. }) { "fence" } else { "flush" };
        let site = symbols.find(trace, event.site);
        let at = *known.entry((kind, site.clone())).or_insert(places.len());
        if at == places.len() {
            places.push(Place { kind, site, sites: BTreeSet::new(), count: 0, in_recovery: 0 });
        }
        places[at].sites.insert(event.site);
        places[at].count += 1;
        places[at].in_recovery += u64::from(!opening.is_empty());
    }
    output::print(&json!({ "events": trace.events.len(), "places": places }));
}
