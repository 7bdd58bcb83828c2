// SPDX-License-Identifier: Apache-2.0
//! `places`: where the source of the allocator flushes and fences. Several instructions of one line of source are one place; a helper
//! that flushes for others is as many as call it.

use crate::base::config::Config;
use crate::base::output;
use crashgen::edit::{Place, PlaceKind};
use crashgen::symbols::Symbols;
use crashgen::trace::{EventKind, OperationKind, SiteId, ThreadId, Trace};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One place.
#[derive(Serialize)]
struct Counted {
    #[serde(flatten)]
    place: Place,
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
    let places = places(trace, &mut config.symbols(), config.runner());
    output::print(&json!({ "events": trace.events.len(), "places": places }));
}

fn places(trace: &Trace, symbols: &mut Symbols, runner: &Path) -> Vec<Counted> {
    let mut places: Vec<Counted> = Vec::new();
    let mut known: BTreeMap<Place, usize> = BTreeMap::new();
    let mut opening: BTreeSet<ThreadId> = BTreeSet::new();
    for event in trace.events.iter().skip(trace.first_event()) {
        match event.kind {
            EventKind::OperationBegin { kind: OperationKind::Open, .. } => drop(opening.insert(event.thread)),
            EventKind::OperationReturn { kind: OperationKind::Open, .. } => drop(opening.remove(&event.thread)),
            _ => {}
        }
        let Some(kind) = PlaceKind::of_order(&event.kind) else { continue };
        if trace.is_runner_site(event.site, runner) {
            continue;
        }
        let place = Place { kind, site: symbols.find(trace, event.site) };
        let at = *known.entry(place.clone()).or_insert(places.len());
        if at == places.len() {
            places.push(Counted { place, sites: BTreeSet::new(), count: 0, in_recovery: 0 });
        }
        places[at].sites.insert(event.site);
        places[at].count += 1;
        places[at].in_recovery += u64::from(!opening.is_empty());
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::trace::{Event, FenceKind, FileId, FlushKind, Module, Site};

    /// Module 0 is the runner; the others are places, one each, since nothing is known of their sources.
    fn trace(events: &[(u32, EventKind)]) -> Trace {
        let thread = ThreadId { process: 1, thread: 1 };
        let module = |name: &str| Module { path: name.into(), build_id: String::new() };
        let site = |module| Site { module: Some(module), offset: 64, caller: None };
        Trace {
            events: events
                .iter()
                .map(|(site, kind)| Event { thread, site: SiteId(*site), kind: kind.clone() })
                .collect(),
            sites: vec![Site { module: None, offset: 0, caller: None }, site(0), site(1), site(2), site(2)],
            modules: vec![module("runner"), module("one.so"), module("two.so")],
            ..Trace::default()
        }
    }

    #[test]
    fn places_are_counted_by_source_and_kind_and_the_runner_has_none() {
        let flush = EventKind::Flush { kind: FlushKind::Clwb, file: FileId(0), offset: 0 };
        let fence = EventKind::Fence { kind: FenceKind::Sfence };
        let open = OperationKind::Open;
        let begin = EventKind::OperationBegin { kind: open, index: 0, slot: 0, bytes: 0, object: 0 };
        let events = [
            (0, EventKind::Case { number: 0, folder: "case-0".into() }),
            (1, flush.clone()),
            (3, flush.clone()),
            (4, flush.clone()),
            (3, fence.clone()),
            (2, EventKind::Fence { kind: FenceKind::Locked }),
            (0, begin),
            (2, fence),
            (4, flush),
            (0, EventKind::OperationReturn { kind: open, index: 0, status: 0 }),
        ];
        let found = places(&trace(&events), &mut Symbols::default(), Path::new("/built/runner"));
        let seen: Vec<_> = found
            .iter()
            .map(|one| (one.place.kind, one.place.site.file.as_str(), one.sites.len(), one.count, one.in_recovery))
            .collect();
        let (flush, fence) = (PlaceKind::Flush, PlaceKind::Fence);
        assert_eq!(seen, [(flush, "two.so", 2, 3, 1), (fence, "two.so", 1, 1, 0), (fence, "one.so", 1, 1, 1)]);
    }
}
