// SPDX-License-Identifier: Apache-2.0
//! Edits of recoveries: a recovery trace as it would be if the source had them, and the places at which recoveries flush and fence. An edit of
//! the workload's trace names sites. The sites of recoveries are not known beforehand, so their edits name places of the source.

use crate::base::config::Config;
use crashgen::edit::{Edit, Place, PlaceKind};
use crashgen::symbols::Symbols;
use crashgen::trace::{Event, SiteId, Trace};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// A recovery trace as the edits of recoveries make it.
pub struct Edited {
    /// The trace.
    pub trace: Trace,
    /// Why it may be another one in truth.
    pub gap: Option<&'static str>,
    /// For each event before the edits, whether they leave it out.
    pub left_out: Vec<bool>,
}

/// The recovery trace as it would be if the source had the edits of recoveries.
pub fn edited(config: &Config, symbols: &mut Symbols, mut recovery: Trace) -> Edited {
    let (mut lost, mut edits) = (BTreeSet::new(), Vec::new());
    for edit in &config.later_edits {
        match edit {
            Edit::Without(places) => lost.extend(places),
            _ => edits.push(edit.map(|places| sites_of(symbols, &recovery, places))),
        }
    }
    let (left_out, gap) = left_out(symbols, &lost, &recovery);
    let mut is_left_out = left_out.iter();
    recovery.events.retain(|_| !is_left_out.next().expect("one an event"));
    Edited { trace: recovery.edited(&edits), gap, left_out }
}

/// Decided by what each event does, since one site may flush and fence.
fn left_out(symbols: &mut Symbols, places: &BTreeSet<&Place>, recovery: &Trace) -> (Vec<bool>, Option<&'static str>) {
    let mut gap = None;
    let mut is_left_out = |event: &Event| {
        let Some(kind) = PlaceKind::of_order(&event.kind).filter(|_| !places.is_empty()) else { return false };
        if event.site == SiteId(0) || symbols.is_bare_helper(recovery, event.site) {
            gap = Some("recovery flushes or fences at a place that is not known");
        }
        places.contains(&Place { kind, site: symbols.find(recovery, event.site) })
    };
    (recovery.events.iter().map(&mut is_left_out).collect(), gap)
}

fn sites_of(symbols: &mut Symbols, recovery: &Trace, places: &BTreeSet<Place>) -> BTreeSet<SiteId> {
    let mut is_there = |event: &&Event| {
        let kind = PlaceKind::of(&event.kind);
        kind.is_some_and(|kind| places.contains(&Place { kind, site: symbols.find(recovery, event.site) }))
    };
    recovery.events.iter().filter(&mut is_there).map(|event| event.site).collect()
}

/// Where recoveries, and what follows them, flush and fence.
#[derive(Default)]
pub struct RecoveryPlaces {
    noted: BTreeSet<Place>,
    seen: FxHashSet<(PlaceKind, SiteId)>,
}

impl RecoveryPlaces {
    /// Notes those of a recovery trace. What the runner does as the application has no module there, and is none of them.
    pub fn note(&mut self, symbols: &mut Symbols, recovery: &Trace) {
        for event in &recovery.events {
            let Some(kind) = PlaceKind::of_order(&event.kind) else { continue };
            let is_known = recovery.sites[event.site.0 as usize].module.is_some();
            if is_known && self.seen.insert((kind, event.site)) {
                self.noted.insert(Place { kind, site: symbols.find(recovery, event.site) });
            }
        }
    }

    /// Adds those that another part of the exploration noted.
    pub fn join(&mut self, mut other: Self) {
        self.noted.append(&mut other.noted);
    }

    /// All that were noted.
    pub fn all(&self) -> &BTreeSet<Place> {
        &self.noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing::CONFIG;
    use crashgen::symbols::Symbol;
    use crashgen::trace::{EventKind, FenceKind, FileId, FlushKind, Module, Site, ThreadId};

    /// A line that flushes and fences, in each of two modules, of whose sources nothing is known.
    fn recovery() -> Trace {
        let flush = EventKind::Flush { kind: FlushKind::Clwb, file: FileId(0), offset: 0 };
        let fence = EventKind::Fence { kind: FenceKind::Sfence };
        let locked = EventKind::Fence { kind: FenceKind::Locked };
        let events = [(1, flush.clone()), (1, fence.clone()), (2, flush), (2, fence), (1, locked)];
        let thread = ThreadId { process: 1, thread: 1 };
        let module = |name: &str| Module { path: name.into(), build_id: String::new() };
        let site = |module| Site { module, offset: 64, caller: None };
        Trace {
            events: events.map(|(site, kind)| Event { thread, site: SiteId(site), kind }).into(),
            sites: vec![site(None), site(Some(0)), site(Some(1))],
            modules: vec![module("one.so"), module("two.so")],
            ..Trace::default()
        }
    }

    fn of(trace: &Trace) -> Vec<(u32, Option<PlaceKind>)> {
        trace.events.iter().map(|event| (event.site.0, PlaceKind::of(&event.kind))).collect()
    }

    #[test]
    fn a_place_that_is_left_out_of_recoveries_is_a_flush_or_a_fence_of_its_line() {
        let mut config = Config::parse("test", CONFIG).expect("a configuration");
        let (flush, fence) = (PlaceKind::Flush, PlaceKind::Fence);
        let site = Symbol { file: "one.so".to_owned(), ..Symbol::default() };
        let mut symbols = config.symbols();
        for (kind, left) in [(flush, fence), (fence, flush)] {
            config.edits = vec![Edit::Without([SiteId(2)].into())]; // of the trace
            config.later_edits = vec![Edit::Without([Place { kind, site: site.clone() }].into())];
            let Edited { trace, gap, .. } = edited(&config, &mut symbols, recovery());
            assert_eq!(gap, None);
            assert_eq!(of(&trace), [(1, Some(left)), (2, Some(flush)), (2, Some(fence)), (1, None)]);
        }
    }

    #[test]
    fn places_of_recoveries_are_noted_and_the_runner_has_none() {
        let mut places = RecoveryPlaces::default();
        let mut recovery = recovery();
        recovery.sites[1].module = None;
        places.note(&mut Symbols::default(), &recovery);
        let noted: Vec<_> = places.all().iter().map(|place| (place.kind, place.site.file.as_str())).collect();
        assert_eq!(noted, [(PlaceKind::Flush, "two.so"), (PlaceKind::Fence, "two.so")]);
    }
}
