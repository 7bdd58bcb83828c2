// SPDX-License-Identifier: Apache-2.0
//! Edits of a trace: the trace as it would be if the source had a flush or a fence less, or one more, or two stores the other way round.
//!
//! An edit changes which stores are guaranteed and when they are made, never which stores are made. Workload, interleaving and values
//! stay, as a build with that one line changed would give them ([`Edit::PersistBefore`] stands for lines at several places). Whether a
//! store that is moved is read in between the trace does not say; it must not be.

use crate::symbols::Symbol;
use crate::trace::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushKind, LINE_BYTES, LineKey, SiteId, StoreKind, ThreadId,
    Trace, hex,
};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One change, at places in the source. `P` is a [`SiteId`] for the trace itself. It is a [`Place`] for what recoveries do and what follows
/// them, because they have sites of their own, and code that only runs after a crash has no site in the trace.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", tag = "edit", content = "sites")]
pub enum Edit<P: Ord = SiteId> {
    /// These flushes and fences are left out. A locked RMW stays: it is there for a lock's sake.
    Without(BTreeSet<P>),
    /// After each store of these places, its thread flushes the lines that it touched (clwb).
    FlushAfter(BTreeSet<P>),
    /// After each event of these places, and what other edits put there, its thread fences (sfence).
    FenceAfter(BTreeSet<P>),
    /// After each write of these places its thread syncs the file (fdatasync), after each store the lines that it touched (msync), and after
    /// each other file operation what makes it durable (fsync of the file or of its folders).
    SyncAfter(BTreeSet<P>),
    /// Before each event of these places, its thread fences (sfence).
    FenceBefore(BTreeSet<P>),
    /// Before each event of these places, its thread flushes every line that it stored to and did not flush since (clwb), and fences
    /// (sfence).
    PersistBefore(BTreeSet<P>),
    /// Each plain store of the first places is made later: after the stores of the second places that its thread makes in the rest of the
    /// operation. These are flushed and fenced (clwb, sfence) before it, and it is flushed and fenced, too.
    MoveBehind(BTreeSet<P>, BTreeSet<P>),
}

impl<P: Ord> Edit<P> {
    /// The same change where other names stand for the places.
    pub fn map<Q: Ord>(&self, mut names: impl FnMut(&BTreeSet<P>) -> BTreeSet<Q>) -> Edit<Q> {
        match self {
            Self::Without(places) => Edit::Without(names(places)),
            Self::FlushAfter(places) => Edit::FlushAfter(names(places)),
            Self::FenceAfter(places) => Edit::FenceAfter(names(places)),
            Self::SyncAfter(places) => Edit::SyncAfter(names(places)),
            Self::FenceBefore(places) => Edit::FenceBefore(names(places)),
            Self::PersistBefore(places) => Edit::PersistBefore(names(places)),
            Self::MoveBehind(places, behind) => Edit::MoveBehind(names(places), names(behind)),
        }
    }

    /// Whether all that it does is to leave flushes and fences out.
    pub fn only_leaves_out(&self) -> bool {
        matches!(self, Self::Without(_))
    }
}

/// A line of source that stores, writes, flushes or fences.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// What it does there; one line may do all three.
    pub kind: PlaceKind,
    /// Its place in the source.
    pub site: Symbol,
}

/// What a place does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // as the kinds of events
pub enum PlaceKind {
    Store,
    /// A write by a system call.
    Write,
    Flush,
    Fence,
}

impl PlaceKind {
    /// What an event does. A locked RMW is a store or nothing.
    pub fn of(kind: &EventKind) -> Option<Self> {
        match kind {
            EventKind::Store { .. } => Some(Self::Store),
            EventKind::FileEnd { .. } if kind.is_write() => Some(Self::Write),
            EventKind::Flush { .. } => Some(Self::Flush),
            EventKind::Fence { kind: FenceKind::Sfence | FenceKind::Mfence } => Some(Self::Fence),
            _ => None,
        }
    }

    /// The same, of flushes and fences only.
    pub fn of_order(kind: &EventKind) -> Option<Self> {
        Self::of(kind).filter(|kind| matches!(kind, Self::Flush | Self::Fence))
    }
}

impl Trace {
    /// The trace with all edits made at once. Its hash depends on the edits, so a token of one trace never fits the other.
    pub fn edited(self, edits: &[Edit]) -> Self {
        if edits.is_empty() {
            return self;
        }
        let moves = Moves::of(&self.events, edits);
        let mut unflushed = edits.iter().any(|edit| matches!(edit, Edit::PersistBefore(_))).then(Unflushed::default);
        let mut events = Vec::with_capacity(self.events.len());
        for (number, event) in self.events.iter().enumerate() {
            let before = events.len();
            if let Some(unflushed) = &mut unflushed
                && is_persisted_before(event, edits)
            {
                events.extend(unflushed.flushes(event));
                events.push(fence(event));
            }
            if !moves.moved.contains(&number) {
                edit(event, edits, &mut events);
            }
            if moves.awaited.contains(&number) {
                events.extend(flushes(event));
            }
            for store in moves.behind.get(&number).into_iter().flatten() {
                let store = &self.events[*store];
                events.push(fence(store));
                events.push(store.clone());
                events.extend(flushes(store));
                events.push(fence(store));
            }
            if let Some(unflushed) = &mut unflushed {
                events[before..].iter().for_each(|event| unflushed.step(event));
            }
        }
        Self { events, hash: edited_hash(&self.hash, edits), ..self }
    }
}

/// What is taken for repaired while a trace is explored as it is. Crash positions keep their numbers, and crash states of the repaired source
/// are states of the source as it is: a flush or a fence more forbids states and allows no other.
#[derive(Clone, Debug, Default)]
pub struct AsRepaired {
    /// Flushes, fences and syncs more. No other edit keeps the events.
    pub edits: Vec<Edit>,
    /// What these places store is taken as persisted at once: states that differ in it alone are not told apart.
    pub at_once: BTreeSet<SiteId>,
}

impl AsRepaired {
    /// Nothing is repaired.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.at_once.is_empty()
    }

    /// Whether the edit only adds flushes, fences and syncs.
    pub fn takes(edit: &Edit) -> bool {
        !matches!(edit, Edit::Without(_) | Edit::MoveBehind(..))
    }
}

/// The flushes, fences and syncs that a repaired source makes between the events of the trace as it is.
#[derive(Clone)]
pub struct Repairing {
    what: Arc<AsRepaired>,
    unflushed: Unflushed,
    /// After the last event. They take effect before the next one, so the crash position in between still shows what they forbid.
    due: Vec<Event>,
}

impl Repairing {
    /// Before the first event of a case.
    pub fn new(what: Arc<AsRepaired>) -> Self {
        Self { what, unflushed: Unflushed::default(), due: Vec::new() }
    }

    /// What comes between the event before and this one.
    pub fn before(&mut self, event: &Event) -> Vec<Event> {
        let edits = &self.what.edits;
        let mut events = std::mem::take(&mut self.due);
        if is_persisted_before(event, edits) {
            events.extend(self.unflushed.flushes(event));
            events.push(fence(event));
        }
        if is_fenced_before(event, edits) {
            events.push(fence(event));
        }
        put_after(event, edits, &mut self.due);
        events.iter().chain([event]).chain(&self.due).for_each(|event| self.unflushed.step(event));
        events
    }

    /// Whether what this event stores is taken as persisted at once.
    pub fn is_at_once(&self, event: &Event) -> bool {
        self.what.at_once.contains(&event.site) && event.kind.put().is_some()
    }
}

/// Whether the edits leave this event out.
pub fn is_left_out(event: &Event, edits: &[Edit]) -> bool {
    let names = |edit: &Edit| matches!(edit, Edit::Without(sites) if sites.contains(&event.site));
    PlaceKind::of_order(&event.kind).is_some() && edits.iter().any(names)
}

fn edit(event: &Event, edits: &[Edit], events: &mut Vec<Event>) {
    if is_fenced_before(event, edits) {
        events.push(fence(event));
    }
    if !is_left_out(event, edits) {
        events.push(event.clone());
    }
    put_after(event, edits, events);
}

fn is_asked(event: &Event, edits: &[Edit], pick: fn(&Edit) -> Option<&BTreeSet<SiteId>>) -> bool {
    edits.iter().filter_map(pick).any(|sites| sites.contains(&event.site))
}

fn is_fenced_before(event: &Event, edits: &[Edit]) -> bool {
    is_asked(event, edits, |edit| if let Edit::FenceBefore(sites) = edit { Some(sites) } else { None })
}

fn is_persisted_before(event: &Event, edits: &[Edit]) -> bool {
    is_asked(event, edits, |edit| if let Edit::PersistBefore(sites) = edit { Some(sites) } else { None })
}

/// What the edits put after the event.
fn put_after(event: &Event, edits: &[Edit], events: &mut Vec<Event>) {
    let is_asked = |pick| is_asked(event, edits, pick);
    if is_asked(|edit| if let Edit::FlushAfter(sites) = edit { Some(sites) } else { None }) {
        events.extend(flushes(event));
    }
    if is_asked(|edit| if let Edit::FenceAfter(sites) = edit { Some(sites) } else { None }) {
        events.push(fence(event));
    }
    if is_asked(|edit| if let Edit::SyncAfter(sites) = edit { Some(sites) } else { None }) {
        events.extend(syncs(event));
    }
}

/// Syncs of what the event does to files, by its thread.
fn syncs(event: &Event) -> Vec<Event> {
    let whole = |file| FileEffect::Sync { file, offset: 0, bytes: u64::MAX };
    let effects = match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => {
            vec![FileEffect::Sync { file: *file, offset: *offset, bytes: bytes.len() as u64 }]
        }
        EventKind::FileEnd { effect, is_done: true } if !effect.is_sync() => {
            let folders = effect.folders().into_iter().map(|path| FileEffect::SyncFolder { path });
            if folders.len() > 0 { folders.collect() } else { effect.file().map(whole).into_iter().collect() }
        }
        _ => Vec::new(),
    };
    let by_thread = |kind| Event { thread: event.thread, site: SiteId(0), kind };
    let pair = |effect: FileEffect| {
        let effect = Arc::new(effect);
        [EventKind::FileBegin { effect: effect.clone() }, EventKind::FileEnd { effect, is_done: true }].map(by_thread)
    };
    effects.into_iter().flat_map(pair).collect()
}

/// A fence by the thread of the event.
fn fence(event: &Event) -> Event {
    Event { thread: event.thread, site: SiteId(0), kind: EventKind::Fence { kind: FenceKind::Sfence } }
}

/// Flushes of the lines that the event stores to, by its thread.
fn flushes(event: &Event) -> impl Iterator<Item = Event> {
    let thread = event.thread;
    lines_stored_to(event).map(move |line| clwb(thread, line))
}

fn clwb(thread: ThreadId, line: LineKey) -> Event {
    let kind = EventKind::Flush { kind: FlushKind::Clwb, file: line.file, offset: line.number * LINE_BYTES };
    Event { thread, site: SiteId(0), kind }
}

fn lines_stored_to(event: &Event) -> impl Iterator<Item = LineKey> {
    let (file, lines) = match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => {
            (*file, offset / LINE_BYTES..(offset + bytes.len() as u64).div_ceil(LINE_BYTES))
        }
        _ => (FileId(0), 0..0),
    };
    lines.map(move |number| LineKey { file, number })
}

/// The lines that each thread stored to and did not flush since.
#[derive(Clone, Default)]
struct Unflushed(BTreeMap<ThreadId, BTreeSet<LineKey>>);

impl Unflushed {
    fn step(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Store { .. } => self.0.entry(event.thread).or_default().extend(lines_stored_to(event)),
            EventKind::Flush { file, offset, .. } => {
                if let Some(lines) = self.0.get_mut(&event.thread) {
                    lines.remove(&LineKey { file: *file, number: offset / LINE_BYTES });
                }
            }
            // A new heap has other files.
            EventKind::Case { .. } => self.0.clear(),
            _ => {}
        }
    }

    /// Flushes of these lines, by the thread of the event.
    fn flushes(&self, event: &Event) -> impl Iterator<Item = Event> {
        let thread = event.thread;
        self.0.get(&thread).into_iter().flatten().map(move |line| clwb(thread, *line))
    }
}

/// Which stores are moved, by the numbers of their events.
#[derive(Default)]
struct Moves {
    moved: BTreeSet<usize>,
    /// Stores that must be persisted before one that is moved.
    awaited: BTreeSet<usize>,
    /// The moved stores, by the last event that each comes after.
    behind: BTreeMap<usize, Vec<usize>>,
}

impl Moves {
    fn of(events: &[Event], edits: &[Edit]) -> Self {
        let mut moves = Self::default();
        for edit in edits {
            let Edit::MoveBehind(stores, behind) = edit else { continue };
            for (number, event) in events.iter().enumerate().filter(|(_, event)| stores.contains(&event.site)) {
                if matches!(event.kind, EventKind::Store { kind: StoreKind::Plain, .. }) {
                    moves.add(number, awaited(events, number, stores, behind));
                }
            }
        }
        moves
    }

    fn add(&mut self, store: usize, awaited: Vec<usize>) {
        if let Some(last) = awaited.last()
            && self.moved.insert(store)
        {
            self.behind.entry(*last).or_default().push(store);
            self.awaited.extend(awaited);
        }
    }
}

/// The stores of `behind` that the store's thread makes after it, before the operation returns or the place is run again; none where
/// the same bytes are stored to in between.
fn awaited(events: &[Event], store: usize, stores: &BTreeSet<SiteId>, behind: &BTreeSet<SiteId>) -> Vec<usize> {
    let thread = events[store].thread;
    let mut found = Vec::new();
    for (number, event) in events.iter().enumerate().skip(store + 1) {
        let is_own = event.thread == thread;
        let is_end = matches!(event.kind, EventKind::OperationReturn { .. } | EventKind::Case { .. });
        let is_store = matches!(event.kind, EventKind::Store { .. });
        if is_own && (is_end || is_store && stores.contains(&event.site)) || overlap(&events[store], event) {
            break;
        }
        if is_own && is_store && behind.contains(&event.site) {
            found.push(number);
        }
    }
    found
}

fn overlap(one: &Event, other: &Event) -> bool {
    let range = |event: &Event| match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => Some((*file, *offset, offset + bytes.len() as u64)),
        _ => None,
    };
    let (Some(one), Some(other)) = (range(one), range(other)) else { return false };
    one.0 == other.0 && one.1 < other.2 && other.1 < one.2
}

fn edited_hash(hash: &str, edits: &[Edit]) -> String {
    hex(&Sha256::new().chain_update(hash).chain_update(format!("{edits:?}")).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Choice, Model, Px86};

    const FILE: FileId = FileId(0);

    fn trace(kinds: Vec<EventKind>) -> Trace {
        let created = Arc::new(FileEffect::Create { file: FILE, path: "heap".into() });
        let mut all = vec![
            EventKind::FileBegin { effect: created.clone() },
            EventKind::FileEnd { effect: created, is_done: true },
        ];
        all.extend(kinds);
        let events = all.into_iter().enumerate().map(|(number, kind)| Event {
            thread: ThreadId { process: 1, thread: 1 },
            site: SiteId(number as u32),
            kind,
        });
        Trace { events: events.collect(), files: vec!["heap".into()], hash: "a".into(), ..Trace::default() }
    }

    fn store(offset: u64) -> EventKind {
        EventKind::Store { kind: StoreKind::Plain, file: FILE, offset, bytes: vec![1; 8].into() }
    }

    fn clwb(offset: u64) -> EventKind {
        EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset }
    }

    fn fence() -> EventKind {
        EventKind::Fence { kind: FenceKind::Sfence }
    }

    fn kinds(trace: &Trace) -> Vec<EventKind> {
        trace.events.iter().skip(2).map(|event| event.kind.clone()).collect()
    }

    fn sites(sites: &[u32]) -> BTreeSet<SiteId> {
        sites.iter().copied().map(SiteId).collect()
    }

    #[test]
    fn a_flush_or_a_fence_goes_and_a_store_stays() {
        let whole = trace(vec![store(0), clwb(0), fence(), store(64)]);
        let edited = whole.edited(&[Edit::Without(sites(&[2, 3, 5]))]);
        assert_eq!(kinds(&edited), [store(0), fence(), store(64)]);
        let locked = trace(vec![EventKind::Fence { kind: FenceKind::Locked }]);
        assert_eq!(locked.clone().edited(&[Edit::Without(sites(&[2]))]).events, locked.events);
    }

    #[test]
    fn what_is_put_in_stands_where_it_is_said() {
        let whole = trace(vec![store(60), store(128)]);
        let persist = [Edit::FlushAfter(sites(&[2])), Edit::FenceAfter(sites(&[2]))];
        assert_eq!(kinds(&whole.clone().edited(&persist)), [store(60), clwb(0), clwb(64), fence(), store(128)]);
        assert_eq!(kinds(&whole.edited(&[Edit::FenceBefore(sites(&[3]))])), [store(60), fence(), store(128)]);
    }

    #[test]
    fn a_sync_persists_what_its_event_put_there_and_a_store_alone() {
        let write = |offset| {
            let effect = FileEffect::Write { file: FILE, offset, bytes: vec![1; 8].into() };
            EventKind::FileEnd { effect: effect.into(), is_done: true }
        };
        let states = |trace: &Trace| {
            let mut model = Model::new(&Px86, Vec::new());
            trace.events.iter().enumerate().for_each(|(number, event)| model.step(number as u32, event));
            model.view().state_count()
        };
        // Sites are counted from the file's creation: the first of these is 2.
        let whole = trace(vec![write(0), store(64), store(128)]);
        let synced = |site| states(&whole.clone().edited(&[Edit::SyncAfter(sites(&[site]))]));
        assert_eq!((states(&whole), synced(2), synced(3)), (Some(8), Some(4), Some(4)));
        assert_eq!(synced(4), Some(4), "its range, and not what was written before it");
    }

    #[test]
    fn what_a_thread_stored_and_did_not_flush_is_persisted_once_before_an_event() {
        // Sites are counted from the file's creation: the first event is 2.
        let persist = |stores: &[u32]| [Edit::PersistBefore(sites(stores))];
        let whole = trace(vec![store(60), store(128), clwb(128), store(192), store(256)]);
        let expected = [store(60), store(128), clwb(128), clwb(0), clwb(64), fence(), store(192), store(256)];
        assert_eq!(kinds(&whole.clone().edited(&persist(&[5]))), expected);
        // The second time there is what came since.
        let again =
            [store(60), store(128), clwb(128), clwb(0), clwb(64), fence(), store(192), clwb(192), fence(), store(256)];
        assert_eq!(kinds(&whole.clone().edited(&persist(&[5, 6]))), again);
        // A flush that is left out at the same time leaves its line to it; what another thread stored is that one's to flush.
        let mut without = vec![Edit::Without(sites(&[4]))];
        without.extend(persist(&[5]));
        assert_eq!(kinds(&whole.clone().edited(&without))[2..6], [clwb(0), clwb(64), clwb(128), fence()]);
        let mut threads = whole;
        threads.events[3].thread.thread = 2;
        assert_eq!(kinds(&threads.edited(&persist(&[6])))[4..7], [clwb(0), clwb(64), clwb(192)]);
    }

    #[test]
    fn a_flush_and_fence_guarantee_the_store() {
        let whole = trace(vec![store(0), store(64)]);
        let states = |trace: &Trace| {
            let mut model = Model::new(&Px86, Vec::new());
            trace.events.iter().enumerate().for_each(|(number, event)| model.step(number as u32, event));
            model.view().state_count()
        };
        let persist = [Edit::FlushAfter(sites(&[2])), Edit::FenceBefore(sites(&[3]))];
        assert_eq!((states(&whole), states(&whole.edited(&persist))), (Some(4), Some(2)));
    }

    #[test]
    fn a_moved_store_comes_after_what_it_waits_for_is_guaranteed() {
        let moved = |stores| kinds(&trace(stores).edited(&[Edit::MoveBehind(sites(&[2]), sites(&[4]))]));
        // Sites are counted from the file's creation: the stores are 2, 3, 4.
        let [one, other, awaited] = [store(0), store(64), store(128)];
        let behind = [other.clone(), awaited.clone(), clwb(128), fence(), one.clone(), clwb(0), fence()];
        assert_eq!(moved(vec![one.clone(), other.clone(), awaited.clone()]), behind);
        // Not past a return, nor past a store to the same bytes.
        let back = EventKind::OperationReturn { kind: crate::trace::OperationKind::Free, index: 0, status: 0 };
        for between in [back, store(4)] {
            let unmoved = vec![one.clone(), between, awaited.clone()];
            assert_eq!(moved(unmoved.clone()), unmoved);
        }
    }

    const LINES: u64 = 4;

    /// Stores of every kind to the lines, with every flush and fence, by two threads; a function of the seed.
    fn mixed(seed: u64) -> Vec<Event> {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let flush = |kind, line: u64| EventKind::Flush { kind, file: FILE, offset: line * LINE_BYTES };
        let kinds = (0..24).map(|number: u8| match below(10) {
            0..5 => EventKind::Store {
                kind: if below(4) == 0 { StoreKind::NonTemporal } else { StoreKind::Plain },
                file: FILE,
                offset: below(LINES) * LINE_BYTES + below(3) * 8,
                bytes: vec![number + 1; 8 << below(2)].into(),
            },
            5 => flush(FlushKind::Clwb, below(LINES)),
            6 => flush(FlushKind::Clflushopt, below(LINES)),
            7 => flush(FlushKind::Clflush, below(LINES)),
            8 => EventKind::Fence { kind: FenceKind::Sfence },
            _ => EventKind::Fence { kind: FenceKind::Locked },
        });
        let kinds: Vec<EventKind> = kinds.collect();
        let mut events = trace(kinds).events;
        for event in &mut events[2..] {
            event.thread.thread = 1 + below(2) as u16;
        }
        events
    }

    /// After each event, what each line may hold.
    fn contents_after_each(events: &[Event], without: &BTreeSet<SiteId>) -> Vec<BTreeSet<(u64, [u8; 64])>> {
        let mut model = Model::new(&Px86, Vec::new());
        let mut after_each = Vec::new();
        for (number, event) in events.iter().enumerate() {
            if !without.contains(&event.site) {
                model.step(number as u32, event);
            }
            let contents = (0..LINES).flat_map(|number| {
                let line = model.find(LineKey { file: FILE, number }).map(|id| model.line(id));
                let all = line.map(|line| line.contents(usize::MAX).expect("no limit"));
                let all = all.unwrap_or_else(|| vec![(Choice::default(), [0; LINE_BYTES as usize])]);
                all.into_iter().map(move |(_, content)| (number, content))
            });
            after_each.push(contents.collect());
        }
        after_each
    }

    /// What `faultline mutate` counts on when it takes several places out at once.
    #[test]
    fn without_more_of_them_every_state_is_still_reachable() {
        let mut larger = 0;
        for seed in 0..300 {
            let events = mixed(seed);
            let all: BTreeSet<SiteId> = events
                .iter()
                .filter(|event| PlaceKind::of_order(&event.kind).is_some())
                .map(|event| event.site)
                .collect();
            let some: BTreeSet<SiteId> = all.iter().copied().filter(|site| (site.0 as u64 + seed) % 3 == 0).collect();
            let one: BTreeSet<SiteId> = some.first().copied().into_iter().collect();
            let [none, one, some, all] =
                [BTreeSet::new(), one, some, all].map(|without| contents_after_each(&events, &without));
            for (fewer, more) in [(&none, &one), (&one, &some), (&some, &all)] {
                for (number, (fewer, more)) in fewer.iter().zip(more).enumerate() {
                    assert!(fewer.is_subset(more), "seed {seed}, after event {number} of {events:#?}");
                }
                larger += usize::from(fewer != more);
            }
        }
        assert!(larger > 300, "the events tell nothing: {larger}");
    }

    /// Steps over all events as if the repairs were made, and calls `visit` after each of them.
    fn step_repaired(events: &[Event], what: AsRepaired, mut visit: impl FnMut(&Model, usize)) -> Model {
        let (mut model, mut repairing) = (Model::new(&Px86, Vec::new()), Repairing::new(Arc::new(what)));
        for (number, event) in events.iter().enumerate() {
            repairing.before(event).iter().for_each(|more| model.step(number as u32, more));
            model.step(number as u32, event);
            if repairing.is_at_once(event) {
                model.persist_at_once(number as u32, event);
            }
            visit(&model, number);
        }
        model
    }

    fn contents_of(model: &Model) -> BTreeSet<(u64, [u8; 64])> {
        let lines = (0..LINES).filter_map(|number| model.find(LineKey { file: FILE, number }).map(|id| model.line(id)));
        let contents = |line: &crate::model::Line| line.contents(usize::MAX).expect("no limit");
        lines.flat_map(|line| contents(line).into_iter().map(|(_, content)| (line.key.number, content))).collect()
    }

    /// One edit of each kind that only adds, at places that depend on the seed.
    fn repairs(events: &[Event], seed: u64) -> Vec<Edit> {
        let of = |rest: u64| -> BTreeSet<SiteId> {
            let is_one = |event: &&Event| (u64::from(event.site.0) + seed) % 4 == rest;
            events.iter().filter(is_one).map(|event| event.site).collect()
        };
        let all = [
            vec![Edit::FlushAfter(of(0)), Edit::FenceAfter(of(0))],
            vec![Edit::FenceBefore(of(1))],
            vec![Edit::PersistBefore(of(2))],
            vec![Edit::SyncAfter(of(3))],
        ];
        all.into_iter().take(1 + seed as usize % 4).flatten().collect()
    }

    #[test]
    fn what_is_taken_for_repaired_ends_as_the_edited_trace_does() {
        for seed in 0..200 {
            let mut events = mixed(seed);
            let edits = repairs(&events, seed);
            // What comes after the last one takes effect before the next.
            let back = EventKind::OperationReturn { kind: crate::trace::OperationKind::Free, index: 0, status: 0 };
            events.push(Event { thread: events[2].thread, site: SiteId(1 << 20), kind: back });
            assert!(edits.iter().all(AsRepaired::takes));
            let what = AsRepaired { edits: edits.clone(), at_once: BTreeSet::new() };
            let repaired = step_repaired(&events, what, |_, _| {});
            let edited = Trace { events, ..Trace::default() }.edited(&edits);
            let mut model = Model::new(&Px86, Vec::new());
            edited.events.iter().enumerate().for_each(|(number, event)| model.step(number as u32, event));
            assert_eq!(contents_of(&repaired), contents_of(&model), "seed {seed}: {edits:?}");
        }
    }

    #[test]
    fn each_state_of_what_is_taken_for_repaired_is_one_of_the_trace_as_it_is() {
        let mut fewer = 0;
        for seed in 0..200 {
            let events = mixed(seed);
            let at_once = events.iter().map(|event| event.site).filter(|site| site.0 % 5 == 0).collect();
            let what = AsRepaired { edits: repairs(&events, seed), at_once };
            let mut plain = Model::new(&Px86, Vec::new());
            step_repaired(&events, what, |repaired, number| {
                plain.step(number as u32, &events[number]);
                for id in (0..LINES).filter_map(|number| plain.find(LineKey { file: FILE, number })) {
                    let (line, key) = (plain.line(id), plain.line(id).key);
                    let Some(decided) = repaired.find(key).map(|id| repaired.line(id)) else { continue };
                    for (choice, content) in decided.contents(usize::MAX).expect("no limit") {
                        assert_eq!(line.content(line.choice_as(decided, choice)).0, content, "seed {seed}, {number}");
                    }
                    fewer += usize::from(decided.choice_count() < line.choice_count());
                }
            });
        }
        assert!(fewer > 200, "the repairs decide nothing: {fewer}");
    }

    #[test]
    fn what_is_taken_as_persisted_at_once_has_no_choice() {
        let whole = trace(vec![store(0), store(64)]);
        let what = AsRepaired { edits: Vec::new(), at_once: sites(&[3]) };
        let mut choices = Vec::new();
        step_repaired(&whole.events, what, |model, _| choices.push(model.view().state_count()));
        assert_eq!(choices[2..], [Some(2), Some(2)]);
    }

    #[test]
    fn an_edited_trace_has_another_hash() {
        let whole = trace(vec![store(0)]);
        let [one, other] = [Edit::FlushAfter(sites(&[2])), Edit::FenceAfter(sites(&[2]))]
            .map(|edit| whole.clone().edited(&[edit]).hash);
        assert_eq!(whole.clone().edited(&[]).hash, whole.hash);
        assert!(one != other && one != whole.hash && other != whole.hash);
    }
}
