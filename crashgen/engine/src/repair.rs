// SPDX-License-Identifier: Apache-2.0
//! Repairs: flushes and fences that may forbid a crash state. Which of them does is told by exploring the trace as if its source had
//! them ([`crashgen::trace::Edit`]).
//!
//! A state is forbidden when a store that it lacks is guaranteed by then: it was flushed, and fenced after that (R5). Proposed are,
//! for the oldest store that is lost and then for all of them, the changes that need the fewest new instructions first.

use crate::finding::StateRef;
use crashgen::LINE_BYTES;
use crashgen::model::LineKey;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::{Edit, EventKind, SiteId, StoreKind, Trace};
use serde::Serialize;
use std::collections::BTreeSet;

/// A change of the source that may help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// In words: sfence after the flush at FUNCTION (FILE:LINE).
    pub text: String,
    /// What the trace is explored with.
    pub edits: Vec<Edit>,
}

/// A store that the state lacks.
#[derive(Clone, Copy)]
struct Lost {
    event: u32,
    site: SiteId,
    line: LineKey,
}

/// In the order in which they should be tried; none where the state lacks no store.
pub fn candidates(trace: &Trace, symbols: &mut Symbols, state: &StateRef) -> Vec<Repair> {
    let (mut lost, newest) = stores(state);
    // Of the kernel's writes (R9) and of stores at unknown places nothing is known that would help.
    lost.retain(|one| {
        one.site != SiteId(0) && matches!(trace.events[one.event as usize].kind, EventKind::Store { .. })
    });
    let Some(oldest) = lost.first() else { return Vec::new() };
    let mut maker = Maker { trace, symbols, position: state.position, newest, repairs: Vec::new() };
    let place = maker.symbols.find(trace, oldest.site);
    let of_place: Vec<Lost> = lost.iter().copied().filter(|one| maker.symbols.find(trace, one.site) == place).collect();
    maker.propose(&of_place);
    if of_place.len() < lost.len() {
        maker.propose(&lost);
    }
    maker.repairs
}

/// What the state lacks, oldest first, and the site of the newest store that it holds.
fn stores(state: &StateRef) -> (Vec<Lost>, Option<SiteId>) {
    let mut lost = Vec::new();
    let mut newest: Option<(u32, SiteId)> = None;
    for (open, choice) in state.view.lines.iter().zip(state.state) {
        let line = state.case.model.line(open.id);
        for (event, site, is_there) in line.open_stores(*choice) {
            match is_there {
                true if newest.is_none_or(|(latest, _)| event > latest) => newest = Some((event, site)),
                true => {}
                false => lost.push(Lost { event, site, line: line.key }),
            }
        }
    }
    lost.sort_by_key(|one| one.event);
    lost.dedup_by_key(|one| (one.event, one.line));
    (lost, newest.map(|(_, site)| site))
}

struct Maker<'a> {
    trace: &'a Trace,
    symbols: &'a mut Symbols,
    position: u32,
    newest: Option<SiteId>,
    repairs: Vec<Repair>,
}

impl Maker<'_> {
    fn propose(&mut self, lost: &[Lost]) {
        let stores = self.all_of(lost.iter().map(|one| one.site));
        let at_stores = format!("the store at {}", self.words(&stores));
        let flushes: Option<BTreeSet<SiteId>> = lost.iter().map(|one| self.flush_of(one)).collect();
        let is_fenced = lost.iter().all(|one| self.is_fence_after(one));
        let before = self.newest.filter(|site| *site != SiteId(0)).map(|site| self.all_of([site].into_iter()));
        if lost.iter().all(|one| self.is_non_temporal(one)) {
            self.add(format!("sfence after {at_stores}"), vec![Edit::FenceAfter(stores.clone())]);
        }
        if let Some(flushes) = &flushes {
            let flushes = self.all_of(flushes.iter().copied());
            let words = self.words(&flushes);
            self.add(format!("sfence after the flush at {words}"), vec![Edit::FenceAfter(flushes)]);
        }
        if is_fenced {
            self.add(format!("clwb after {at_stores}"), vec![Edit::FlushAfter(stores.clone())]);
        }
        self.add(
            format!("clwb and sfence after {at_stores}"),
            vec![Edit::FlushAfter(stores.clone()), Edit::FenceAfter(stores.clone())],
        );
        if let Some(before) = before {
            let words = self.words(&before);
            if flushes.is_some() {
                self.add(format!("sfence before the store at {words}"), vec![Edit::FenceBefore(before.clone())]);
            }
            self.add(
                format!("clwb after {at_stores}, sfence before the store at {words}"),
                vec![Edit::FlushAfter(stores), Edit::FenceBefore(before)],
            );
        }
    }

    fn add(&mut self, text: String, edits: Vec<Edit>) {
        if !self.repairs.iter().any(|known| known.edits == edits) {
            self.repairs.push(Repair { text, edits });
        }
    }

    /// All instructions of the places in the source that these sites lie in.
    fn all_of(&mut self, sites: impl Iterator<Item = SiteId>) -> BTreeSet<SiteId> {
        let chosen: BTreeSet<SiteId> = sites.collect();
        let places: BTreeSet<Symbol> = chosen.iter().map(|site| self.symbols.find(self.trace, *site)).collect();
        let all = (0..self.trace.sites.len()).map(|site| SiteId(site as u32));
        let is_same = |symbol: &Symbol| symbol.line > 0 && places.contains(symbol);
        let same: Vec<SiteId> = all.filter(|site| is_same(&self.symbols.find(self.trace, *site))).collect();
        chosen.into_iter().chain(same).collect()
    }

    /// The distinct places of these sites.
    fn words(&mut self, sites: &BTreeSet<SiteId>) -> String {
        let mut texts: Vec<String> = sites.iter().map(|site| self.symbols.find(self.trace, *site).text()).collect();
        texts.sort();
        texts.dedup();
        texts.join(" and ")
    }

    fn later<'a>(&'a self, lost: &Lost) -> impl Iterator<Item = &'a crashgen::trace::Event> {
        self.trace.events[lost.event as usize + 1..self.position as usize].iter()
    }

    /// The site of the first flush of its line between the store and the crash.
    fn flush_of(&self, lost: &Lost) -> Option<SiteId> {
        let is_its = |kind: &EventKind| {
            matches!(kind, EventKind::Flush { file, offset, .. }
                if *file == lost.line.file && offset / LINE_BYTES == lost.line.number)
        };
        self.later(lost).find(|event| is_its(&event.kind)).map(|event| event.site)
    }

    /// Whether the store's thread fences between the store and the crash, be it by a locked RMW (R6).
    fn is_fence_after(&self, lost: &Lost) -> bool {
        let thread = self.trace.events[lost.event as usize].thread;
        let is_fence =
            |kind: &EventKind| matches!(kind, EventKind::Fence { .. } | EventKind::Store { kind: StoreKind::Rmw, .. });
        self.later(lost).any(|event| event.thread == thread && is_fence(&event.kind))
    }

    fn is_non_temporal(&self, lost: &Lost) -> bool {
        let kind = &self.trace.events[lost.event as usize].kind;
        matches!(kind, EventKind::Store { kind: StoreKind::NonTemporal, .. })
    }
}
