// SPDX-License-Identifier: Apache-2.0
//! Repairs: flushes, fences, syncs, or another order of two stores, that may forbid a crash state. Whether one does is found out by
//! exploring the trace as if its source had it ([`crashgen::edit::Edit`]).
//!
//! A state is forbidden when a store that it lacks is guaranteed by then: it was flushed, and fenced after that (R5). So changes are proposed
//! for the oldest store that is lost, and then for all lost stores, those with the fewest new instructions first. What a system call wrote
//! is guaranteed by a sync of its file (R9), a name by one of its folder. Then it is proposed to
//! persist all that the thread had not flushed before it made the newest store that is there. No flush and no fence forbids a state in which
//! a store is there that the source makes before the lost one, or before one that it had not come to yet. Then it is proposed to make that
//! store after the other.
//!
//! Where power failed more than once, the changes are those of the recovery before the last crash. Its source may run in the workload, too,
//! and is changed there as well. For each earlier crash that lost something, changes of what came before it are proposed, too: what a first
//! crash lost may not matter until a recovery is cut short.

use crate::findings::event_excerpt::lost_in_words;
use crate::heap::state::{Lost, StateRef, is_flush_of, lost_stores, newest_store};
use crashgen::edit::{Edit, Place, PlaceKind};
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::{Event, EventKind, FileEffect, SiteId, StoreKind, Trace};
use serde::Serialize;
use std::collections::BTreeSet;

/// A change of the source that may help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// In words: sfence after the flush at FUNCTION (FILE:LINE).
    pub text: String,
    /// What the workload's trace is explored with.
    pub edits: Vec<Edit>,
    /// What recoveries are explored with, and what follows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later_edits: Vec<Edit<Place>>,
}

/// Places behind which it is tried to move the newest store, the nearest first.
const MOST_PLACES_BEHIND: usize = 4;

/// Repairs in the order in which they should be tried. workload_sites: given where recoveries are changed, too; so many sites of the trace,
/// the first ones, are the workload's, and all of them if it is the workload's trace.
pub fn candidates(trace: &Trace, workload_sites: Option<u32>, symbols: &mut Symbols, state: &StateRef) -> Vec<Repair> {
    let mut maker = Maker::new(trace, workload_sites, symbols, state);
    let has_lost_operation = maker.propose_of_operations(state.case.lost_operations());
    if !maker.propose_of_losses() && !has_lost_operation {
        maker.propose_order(last_store(trace, state), None);
    }
    maker.repairs
}

/// As [`candidates`], but only for stores that are lost and whose place is known.
pub fn of_losses(trace: &Trace, workload_sites: Option<u32>, symbols: &mut Symbols, state: &StateRef) -> Vec<Repair> {
    let mut maker = Maker::new(trace, workload_sites, symbols, state);
    maker.propose_of_losses();
    maker.repairs
}

/// The places whose stores the state lacks, as all of their instructions.
pub fn lost_places(trace: &Trace, symbols: &mut Symbols, state: &StateRef) -> BTreeSet<SiteId> {
    let mut maker = Maker::new(trace, None, symbols, state);
    let sites: Vec<SiteId> = maker.lost.iter().map(|lost| lost.site).collect();
    maker.all_of(sites.into_iter())
}

/// Leaves out repairs that change the same as an earlier one: recovery may run the workload's lines.
pub fn each_once(repairs: impl Iterator<Item = Repair>) -> Vec<Repair> {
    let mut once: Vec<Repair> = Vec::new();
    for repair in repairs {
        add(&mut once, repair);
    }
    once
}

fn add(repairs: &mut Vec<Repair>, repair: Repair) {
    let is_same = |known: &Repair| (&known.edits, &known.later_edits) == (&repair.edits, &repair.later_edits);
    if !repairs.iter().any(is_same) {
        repairs.push(repair);
    }
}

/// The event of the last store before the crash; none where a system call wrote it, or its place is not known.
fn last_store(trace: &Trace, state: &StateRef) -> Option<u32> {
    let (event, site) = state.case.last_store?;
    let is_plain = matches!(trace.events[event as usize].kind, EventKind::Store { kind: StoreKind::Plain, .. });
    (is_plain && is_known(trace, site)).then_some(event)
}

/// Whether the site may have a place in the source. What the application stores after a recovery has none.
fn is_known(trace: &Trace, site: SiteId) -> bool {
    trace.sites.get(site.0 as usize).is_some_and(|site| site.module.is_some())
}

struct Maker<'a> {
    trace: &'a Trace,
    workload_sites: Option<u32>,
    symbols: &'a mut Symbols,
    position: u32,
    /// What the state lacks, oldest first.
    lost: Vec<Lost>,
    /// The newest undecided store that it holds, by its event.
    newest: Option<(u32, SiteId)>,
    repairs: Vec<Repair>,
}

impl<'t> Maker<'t> {
    fn new(trace: &'t Trace, workload_sites: Option<u32>, symbols: &'t mut Symbols, state: &StateRef) -> Self {
        // Of stores at unknown places nothing is known that would help.
        let mut lost: Vec<Lost> = lost_stores(state).filter(|one| is_known(trace, one.site)).collect();
        lost.sort_by_key(|one| one.event);
        lost.dedup_by_key(|one| (one.event, one.line));
        let newest = newest_store(state).filter(|(_, site)| is_known(trace, *site));
        Self { trace, workload_sites, symbols, position: state.position, lost, newest, repairs: Vec::new() }
    }

    /// A sync after the first place of these file operations, and stores to new pages, and after all of them. False: there are none.
    fn propose_of_operations(&mut self, lost: &[(u32, SiteId)]) -> bool {
        let Some((first, site)) = lost.first() else { return false };
        let here = self.all_of([*site].into_iter());
        let all = self.all_of(lost.iter().map(|(_, site)| *site));
        let what = match &self.trace.events[*first as usize].kind {
            EventKind::FileEnd { effect, .. } if effect.folders().is_empty() => "fsync of the file after",
            EventKind::FileEnd { .. } => "fsync of the folder after",
            _ => "MAP_SYNC, or msync after the first store to",
        };
        let text = format!("{what} {} at {}", lost_in_words(self.trace, *first), self.words(&here));
        self.add(text, vec![Edit::SyncAfter(here.clone())]);
        if all != here {
            let text = format!("fsync of files and folders after what is done to files at {}", self.words(&all));
            self.add(text, vec![Edit::SyncAfter(all)]);
        }
        true
    }

    /// False: nothing is lost.
    fn propose_of_losses(&mut self) -> bool {
        let lost = std::mem::take(&mut self.lost);
        let Some(oldest) = lost.first() else { return false };
        let place = self.symbols.find(self.trace, oldest.site);
        let is_there = |one: &&Lost| self.symbols.find(self.trace, one.site) == place;
        let of_place: Vec<Lost> = lost.iter().filter(is_there).copied().collect();
        self.propose(&of_place);
        if of_place.len() < lost.len() {
            self.propose(&lost);
        }
        self.propose_all_before();
        if let Some((there, _)) = self.newest.filter(|(event, _)| *event < oldest.event) {
            self.propose_order(Some(there), Some(oldest.site));
        }
        true
    }

    fn propose(&mut self, lost: &[Lost]) {
        let (writes, stores): (Vec<Lost>, Vec<Lost>) = lost.iter().partition(|one| one.is_write(self.trace));
        if !writes.is_empty() {
            let mut after = self.all_of(writes.iter().map(|one| one.site));
            let mut text = format!("fdatasync after the write at {}", self.words(&after));
            if !stores.is_empty() {
                let more = self.all_of(stores.iter().map(|one| one.site));
                text += &format!(", msync after the store at {}", self.words(&more));
                after.extend(more);
            }
            return self.add(text, vec![Edit::SyncAfter(after)]);
        }
        let stores = self.all_of(lost.iter().map(|one| one.site));
        let at_stores = format!("the store at {}", self.words(&stores));
        let flushes: Option<BTreeSet<SiteId>> = lost.iter().map(|one| self.flush_of(one)).collect();
        let is_fenced = lost.iter().all(|one| self.is_fence_after(one));
        let before = self.newest.map(|(_, site)| self.all_of([site].into_iter()));
        if self.syncs() {
            self.add(format!("msync after {at_stores}"), vec![Edit::SyncAfter(stores.clone())]);
        }
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
                vec![Edit::FlushAfter(stores), Edit::FenceBefore(before.clone())],
            );
            if flushes.is_some() {
                // Its fence may have been meant for both.
                self.add(
                    format!("clwb and sfence after the store at {words}"),
                    vec![Edit::FlushAfter(before.clone()), Edit::FenceAfter(before)],
                );
            }
        }
    }

    /// A flush that is missing may have covered stores of many places, which the other repairs would leave lost.
    fn propose_all_before(&mut self) {
        let Some((_, newest)) = self.newest else { return };
        let before = self.all_of([newest].into_iter());
        let words = self.words(&before);
        self.add(
            format!("before the store at {words}: clwb of all that its thread stored and did not flush, then sfence"),
            vec![Edit::PersistBefore(before)],
        );
    }

    /// The store of this event, made after one that is lost; or after each of the next ones of its operation, which are not made yet.
    fn propose_order(&mut self, there: Option<u32>, lost: Option<SiteId>) {
        let Some(there) = there else { return };
        let event = &self.trace.events[there as usize];
        let stores = self.all_of([event.site].into_iter());
        let behind: Vec<SiteId> = lost.map_or_else(|| self.next_stores(there), |site| vec![site]);
        for site in behind {
            let behind = self.all_of([site].into_iter());
            if behind.is_disjoint(&stores) {
                let text = format!(
                    "the store at {} made after the store at {} is flushed and fenced",
                    self.words(&stores),
                    self.words(&behind)
                );
                self.add(text, vec![Edit::MoveBehind(stores.clone(), behind)]);
            }
        }
    }

    /// Sites of the stores that the thread of this one makes next in the operation, one for each place in the source.
    fn next_stores(&mut self, store: u32) -> Vec<SiteId> {
        let thread = self.trace.events[store as usize].thread;
        let later = self.trace.events[store as usize + 1..].iter().filter(|event| event.thread == thread);
        let of_operation = later.take_while(|event| !matches!(event.kind, EventKind::OperationReturn { .. }));
        let trace = self.trace;
        let is_store = |event: &&Event| is_known(trace, event.site) && matches!(event.kind, EventKind::Store { .. });
        let mut places: Vec<Symbol> = Vec::new();
        let mut sites = Vec::new();
        for event in of_operation.filter(is_store) {
            let place = self.symbols.find(self.trace, event.site);
            if !places.contains(&place) && places.len() < MOST_PLACES_BEHIND {
                places.push(place);
                sites.push(event.site);
            }
        }
        sites
    }

    fn add(&mut self, text: String, edits: Vec<Edit>) {
        let later_edits = match self.workload_sites {
            Some(_) => edits.iter().map(|edit| edit.map(|sites| self.places(sites))).collect(),
            None => Vec::new(),
        };
        let first_later = SiteId(self.workload_sites.unwrap_or(u32::MAX));
        let of_workload = |sites: &BTreeSet<SiteId>| sites.range(..first_later).copied().collect();
        let edits = edits.iter().map(|edit| edit.map(of_workload)).collect();
        add(&mut self.repairs, Repair { text, edits, later_edits });
    }

    /// What the trace does at these sites.
    fn places(&mut self, sites: &BTreeSet<SiteId>) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        for event in self.trace.events.iter().filter(|event| sites.contains(&event.site)) {
            if let Some(kind) = PlaceKind::of(&event.kind) {
                places.insert(Place { kind, site: self.symbols.find(self.trace, event.site) });
            }
        }
        places
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
        self.later(lost).find(|event| is_flush_of(event, lost.line)).map(|event| event.site)
    }

    /// Whether the store's thread fences between the store and the crash, be it by a locked RMW (R6).
    fn is_fence_after(&self, lost: &Lost) -> bool {
        let thread = self.trace.events[lost.event as usize].thread;
        let is_fence =
            |kind: &EventKind| matches!(kind, EventKind::Fence { .. } | EventKind::Store { kind: StoreKind::Rmw, .. });
        self.later(lost).any(|event| event.thread == thread && is_fence(&event.kind))
    }

    /// Whether the program persists what it stored by msync.
    fn syncs(&self) -> bool {
        let is_msync = |effect: &FileEffect| matches!(effect, FileEffect::Sync { .. }) && !effect.is_fsync();
        self.trace.events.iter().any(|event| {
            matches!(&event.kind, EventKind::FileBegin { effect } | EventKind::FileEnd { effect, .. } if is_msync(effect))
        })
    }

    fn is_non_temporal(&self, lost: &Lost) -> bool {
        let kind = &self.trace.events[lost.event as usize].kind;
        matches!(kind, EventKind::Store { kind: StoreKind::NonTemporal, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::testing::{of_state, trace};
    use crashgen::LINE_BYTES;
    use crashgen::trace::{FenceKind, FileId, FlushKind, Module, OperationKind, Site};

    /// Numbers of the first event that a test gives, and of its site: each event has one of its own, each in a module of its own.
    const FIRST: u32 = 4;

    fn store(line: u64) -> EventKind {
        EventKind::Store {
            kind: StoreKind::Plain,
            file: FileId(0),
            offset: line * LINE_BYTES,
            bytes: vec![1; 8].into(),
        }
    }

    fn clwb(line: u64) -> EventKind {
        EventKind::Flush { kind: FlushKind::Clwb, file: FileId(0), offset: line * LINE_BYTES }
    }

    fn sfence() -> EventKind {
        EventKind::Fence { kind: FenceKind::Sfence }
    }

    /// Of the events `kinds` whose sites are 1, 2, ...; power fails after `crash` of them, and lines 0, 1, ... hold or lack all that is
    /// undecided in them.
    fn proposed(kinds: Vec<EventKind>, crash: u32, is_there: &[bool]) -> Vec<Vec<Edit>> {
        repairs(kinds, None, crash, is_there).into_iter().map(|repair| repair.edits).collect()
    }

    /// The same, of what a recovery does where there are sites of the workload.
    fn repairs(kinds: Vec<EventKind>, workload_sites: Option<u32>, crash: u32, is_there: &[bool]) -> Vec<Repair> {
        let mut trace = trace(kinds);
        trace.sites = vec![Site { module: None, offset: 0, caller: None }];
        for (number, event) in trace.events.iter_mut().enumerate().skip(FIRST as usize) {
            event.site = SiteId(number as u32 - FIRST + 1);
            trace.sites.push(Site { module: Some(event.site.0 - 1), offset: 64, caller: None });
            let path = format!("{}.so", event.site.0).into();
            trace.modules.push(Module { path, build_id: String::new() });
        }
        let choose = |view: &crashgen::model::View, state: &mut Vec<crashgen::model::Choice>| {
            for ((line, choice), is_there) in view.lines.iter().zip(state.iter_mut()).zip(is_there) {
                *choice = if *is_there { line.newest() } else { crashgen::model::Choice::default() };
            }
        };
        let mut symbols = Symbols::default();
        of_state(&trace, FIRST + crash, choose, |state| candidates(&trace, workload_sites, &mut symbols, state))
    }

    fn sites(sites: &[u32]) -> BTreeSet<SiteId> {
        sites.iter().copied().map(SiteId).collect()
    }

    #[test]
    fn where_only_the_flush_is_missing_it_is_tried_first() {
        let found = proposed(vec![store(0), sfence(), store(1)], 3, &[false, true]);
        let flush = Edit::FlushAfter(sites(&[1]));
        let both = vec![flush.clone(), Edit::FenceAfter(sites(&[1]))];
        let order = vec![flush.clone(), Edit::FenceBefore(sites(&[3]))];
        assert_eq!(found, [vec![flush], both, order, vec![Edit::PersistBefore(sites(&[3]))]]);
    }

    #[test]
    fn where_only_the_fence_is_missing_it_is_tried_first() {
        let found = proposed(vec![store(0), clwb(0), store(1)], 3, &[false, true]);
        assert_eq!(found[0], [Edit::FenceAfter(sites(&[2]))]);
        assert!(found.contains(&vec![Edit::FenceBefore(sites(&[3]))]));
        assert!(found.contains(&vec![Edit::FlushAfter(sites(&[3])), Edit::FenceAfter(sites(&[3]))]), "one for both");
        assert!(!found.contains(&vec![Edit::FlushAfter(sites(&[1]))]), "there is no fence that would complete it");
    }

    #[test]
    fn a_store_that_came_too_early_is_moved_behind_the_one_that_is_lost() {
        let found = proposed(vec![store(0), store(1), clwb(0), clwb(1), sfence()], 2, &[true, false]);
        assert_eq!(found.last(), Some(&vec![Edit::MoveBehind(sites(&[1]), sites(&[2]))]));
        let in_order = proposed(vec![store(0), store(1), clwb(0), clwb(1), sfence()], 2, &[false, true]);
        assert!(!in_order.iter().flatten().any(|edit| matches!(edit, Edit::MoveBehind(..))));
    }

    #[test]
    fn a_last_store_that_came_too_early_is_moved_behind_the_next_ones_of_its_operation() {
        let back = EventKind::OperationReturn { kind: OperationKind::Create, index: 0, status: 0 };
        let kinds = vec![store(0), clwb(0), sfence(), store(1), clwb(1), store(2), back, store(3)];
        let behind = |site| vec![Edit::MoveBehind(sites(&[1]), sites(&[site]))];
        assert_eq!(proposed(kinds, 3, &[]), [behind(4), behind(6)]);
    }

    #[test]
    fn what_a_recovery_lacks_is_tried_in_recoveries_and_where_the_workload_runs_it() {
        let place =
            |kind, module: u32| Place { kind, site: Symbol { file: format!("{module}.so"), ..Symbol::default() } };
        let kinds = vec![store(0), sfence(), store(1)];
        // Sites 0 and 1 are the workload's: its own line runs in the recovery.
        let both = &repairs(kinds.clone(), Some(2), 3, &[false, true])[0];
        let of_store = [place(PlaceKind::Store, 1)].into();
        assert_eq!(both.edits, [Edit::FlushAfter(sites(&[1]))]);
        assert_eq!(both.later_edits, [Edit::FlushAfter(of_store)]);
        let later = &repairs(kinds, Some(1), 3, &[false, true])[0];
        assert_eq!(later.edits, [Edit::FlushAfter(sites(&[]))]);
        assert_eq!(later.later_edits, both.later_edits);
    }

    #[test]
    fn what_the_application_stored_is_no_line_of_the_allocator() {
        let mut trace = trace(vec![store(0), store(1)]);
        trace.sites = vec![Site { module: None, offset: 0, caller: None }; 3];
        for (number, event) in trace.events.iter_mut().enumerate().skip(FIRST as usize) {
            event.site = SiteId(number as u32 - FIRST + 1);
        }
        let lose = |view: &crashgen::model::View, state: &mut Vec<crashgen::model::Choice>| {
            state[0] = crashgen::model::Choice::default();
            state[1] = view.lines[1].newest();
        };
        let mut symbols = Symbols::default();
        let found = of_state(&trace, FIRST + 2, lose, |state| candidates(&trace, Some(3), &mut symbols, state));
        assert_eq!(found, []);
    }
}
