// SPDX-License-Identifier: Apache-2.0
//! Trace rules FL1xx: what the trace alone tells of flushes and fences, and what each operation pays for persistency.
//!
//! Each store, seen line by line, breaks at most one of the first three rules; each flush and each fence at most one of the
//! others. What a flush outside PM was meant for the trace does not tell. They are **warnings**: a store that is never flushed may be one that recovery does not need (Makalu leaves lines to be
//! rebuilt), and only exploration can tell. They are judged under the Px86 model, within one case. A rule is one entry of the table
//! in this file: its id, its title, what it warns of, and what it costs to break it.
//!
//! A locked instruction is never FL112: it is there for a lock's sake. Flushes of PM and fences outside operations are the runner's.

use crate::model::{Choice, LineId, LineKey, Model, Px86};
use crate::trace::{
    EventKind, FenceKind, FileId, FlushElsewhere, LINE_BYTES, OperationKind, SiteId, StoreKind, ThreadId, Trace,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::fmt;

/// What a broken trace rule costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// A power failure may lose the store.
    Loss,
    /// Time, and nothing is lost.
    Cost,
}

impl Concern {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Concern::Loss => "loss",
            Concern::Cost => "cost",
        }
    }
}

macro_rules! rules {
    ($($(#[doc = $what:literal])+ $rule:ident = $number:literal, $concern:ident, $title:literal, $meaning:literal;)*) => {
        /// A trace rule; ids are permanent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum TraceRule { $($(#[doc = $what])+ $rule = $number,)* }

        impl TraceRule {
            /// Every rule, in order of id.
            pub const ALL: [TraceRule; [$($number),*].len()] = [$(TraceRule::$rule,)*];

            /// What it is called in reports.
            pub fn title(self) -> &'static str {
                match self { $(TraceRule::$rule => $title,)* }
            }

            /// What it warns of, for people who do not know it yet.
            pub fn meaning(self) -> &'static str {
                match self { $(TraceRule::$rule => $meaning,)* }
            }

            /// What it costs to break it.
            pub fn concern(self) -> Concern {
                match self { $(TraceRule::$rule => Concern::$concern,)* }
            }
        }
    };
}

// What exactly it is; id, what it costs to break it, title, and what it warns of in few words.
rules! {
    /// A store that was not persisted when the case ended, and no flush of its line came after it; of a write, no sync.
    NeverFlushed = 101, Loss, "never flushed, or never synced", "a store that is never flushed, or a write that is never synced";
    /// A store that was not persisted when the case ended: its line was flushed, and no fence of the flushing thread came after that.
    NotFenced = 102, Loss, "flushed and not fenced", "a store that is flushed, and no fence follows";
    /// A store that was persisted only after the operation that made it had returned.
    ReturnedBefore = 103, Loss, "operation returned before its store was persisted",
        "a store that is persisted only after its operation has returned";
    /// A flush of an address that no mapping of a file of the heap holds: of a variable on the stack instead of what it points to.
    FlushElsewhere = 104, Loss, "flush of an address that is no PM", "a flush of an address that is no PM: it persists nothing";
    /// A flush of a line all of whose stores were flushed already and wait for the fence.
    RedundantFlush = 111, Cost, "redundant flush: nothing stored since the last one",
        "a flush of a line that waits for the fence already";
    /// An sfence or mfence of a thread that flushed nothing and made no non-temporal store since its last fence.
    RedundantFence = 112, Cost, "redundant fence: nothing to order", "a fence that orders nothing";
    /// A flush of a line with nothing to persist.
    CleanFlush = 113, Cost, "flush of a clean line", "a flush of a line that has nothing to persist";
}

impl fmt::Display for TraceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FL{}", *self as u16)
    }
}

/// One rule at one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The rule.
    pub rule: TraceRule,
    /// Of the store, the flush or the fence.
    pub site: SiteId,
    /// How often; of stores: lines that they touched.
    pub count: u64,
    /// Number of the first such event.
    pub event: u32,
    /// The operation that the first one was made in: index and kind.
    pub operation: Option<(u32, OperationKind)>,
}

/// What the operations of one kind paid, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Operations that returned.
    pub operations: u64,
    /// Stores into PM.
    pub stores: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// sfence and mfence.
    pub fences: u64,
    /// Distinct lines flushed in an operation.
    pub lines: u64,
    /// Flushes of FL111 and FL113, fences of FL112.
    pub redundant: u64,
}

/// What the trace rules say of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// By rule, then by the first event.
    pub warnings: Vec<Warning>,
    /// By kind of operation.
    pub costs: BTreeMap<&'static str, Cost>,
}

/// Judges a whole trace. `is_durable_on_return`: operations promise to be persisted when they return, else FL103 is not judged.
pub fn judge(trace: &Trace, is_durable_on_return: bool) -> Judgement {
    let mut judge = Judge::new(is_durable_on_return);
    let first = trace.first_event();
    let mut elsewhere =
        trace.flushes_elsewhere.iter().skip_while(|flush| flush.events_before as usize <= first).peekable();
    for (number, event) in trace.events.iter().enumerate().skip(first) {
        while let Some(flush) = elsewhere.next_if(|flush| flush.events_before as usize <= number) {
            judge.flush_elsewhere(flush);
        }
        if matches!(event.kind, EventKind::Case { .. }) {
            judge.end_case();
        }
        judge.step(number as u32, event.thread, event.site, &event.kind);
        judge.model.step(number as u32, event);
        judge.settle(event.thread, &event.kind);
    }
    elsewhere.for_each(|flush| judge.flush_elsewhere(flush));
    judge.end_case();
    judge.judgement()
}

/// A store, as one line sees it, that is not persisted yet.
#[derive(Clone, Copy)]
struct Unpersisted {
    event: u32,
    site: SiteId,
    operation: Option<(u32, OperationKind)>,
    is_flushed: bool,
    /// Its operation has returned.
    is_late: bool,
}

/// An operation that a thread is in, and what it paid so far.
struct RunningOperation {
    index: u32,
    kind: OperationKind,
    cost: Cost,
    flushed: FxHashSet<LineKey>,
    stored: FxHashSet<LineId>,
}

impl RunningOperation {
    fn new(index: u32, kind: OperationKind) -> Self {
        Self { index, kind, cost: Cost::default(), flushed: FxHashSet::default(), stored: FxHashSet::default() }
    }
}

/// Operations that have returned in a transaction that has not ended, and the lines that they stored to.
#[derive(Default)]
struct Unended {
    operations: FxHashSet<u32>,
    stored: FxHashSet<LineId>,
}

struct Judge {
    is_durable_on_return: bool,
    model: Model,
    open: BTreeMap<LineId, Vec<Unpersisted>>,
    running: FxHashMap<ThreadId, RunningOperation>,
    /// What the operations of the open transaction stored to: they promise to be persisted when that ends.
    transaction: Option<Unended>,
    /// Threads with a flush or a non-temporal store since their last fence.
    unfenced: FxHashSet<ThreadId>,
    warnings: BTreeMap<(TraceRule, SiteId), Warning>,
    costs: BTreeMap<&'static str, Cost>,
}

impl Judge {
    fn new(is_durable_on_return: bool) -> Self {
        Self {
            is_durable_on_return,
            model: Model::new(&Px86, Vec::new()),
            open: BTreeMap::new(),
            running: FxHashMap::default(),
            transaction: None,
            unfenced: FxHashSet::default(),
            warnings: BTreeMap::new(),
            costs: BTreeMap::new(),
        }
    }

    fn judgement(self) -> Judgement {
        let mut warnings: Vec<Warning> = self.warnings.into_values().collect();
        warnings.sort_by_key(|warning| (warning.rule, warning.event, warning.site));
        Judgement { warnings, costs: self.costs }
    }

    fn warn(&mut self, rule: TraceRule, site: SiteId, event: u32, operation: Option<(u32, OperationKind)>) {
        let first = Warning { rule, site, count: 0, event, operation };
        let warning = self.warnings.entry((rule, site)).or_insert(first);
        warning.count += 1;
        if event < warning.event {
            (warning.event, warning.operation) = (event, operation);
        }
    }

    /// Before the model steps over the event.
    fn step(&mut self, number: u32, thread: ThreadId, site: SiteId, kind: &EventKind) {
        match kind {
            EventKind::Store { kind, bytes, .. } => self.store(thread, *kind, bytes.len()),
            EventKind::Flush { file, offset, .. } => self.flush(number, thread, site, *file, *offset),
            EventKind::Fence { kind } => self.fence(number, thread, site, *kind),
            EventKind::OperationBegin { kind, index, .. } => {
                self.running.insert(thread, RunningOperation::new(*index, *kind));
            }
            EventKind::OperationReturn { index, .. } => self.returned(thread, *index),
            EventKind::Case { .. } | EventKind::FileBegin { .. } | EventKind::FileEnd { .. } => {}
        }
    }

    fn store(&mut self, thread: ThreadId, kind: StoreKind, bytes: usize) {
        match kind {
            StoreKind::NonTemporal => {
                self.unfenced.insert(thread);
            }
            StoreKind::Rmw => {
                self.unfenced.remove(&thread);
            }
            StoreKind::Plain => {}
        }
        if let Some(running) = self.running.get_mut(&thread) {
            running.cost.stores += 1;
            running.cost.bytes += bytes as u64;
        }
    }

    fn flush(&mut self, number: u32, thread: ThreadId, site: SiteId, file: FileId, offset: u64) {
        self.unfenced.insert(thread);
        let key = LineKey { file, number: offset / LINE_BYTES };
        let mut rule = Some(TraceRule::CleanFlush);
        if let Some(stores) = self.model.find(key).and_then(|line| self.open.get_mut(&line)) {
            let is_new = stores.iter().any(|store| !store.is_flushed);
            rule = if is_new { None } else { Some(TraceRule::RedundantFlush) };
            stores.iter_mut().for_each(|store| store.is_flushed = true);
        }
        let Some(running) = self.running.get_mut(&thread) else { return };
        running.cost.flushes += 1;
        running.flushed.insert(key);
        if let Some(rule) = rule {
            running.cost.redundant += 1;
            let operation = (running.index, running.kind);
            self.warn(rule, site, number, Some(operation));
        }
    }

    /// What comes before the first event of the first heap is left out by the caller.
    fn flush_elsewhere(&mut self, flush: &FlushElsewhere) {
        let operation = self.running.get(&flush.thread).map(|running| (running.index, running.kind));
        let event = flush.events_before - 1;
        let warning =
            Warning { rule: TraceRule::FlushElsewhere, site: flush.site, count: flush.count, event, operation };
        self.warnings.insert((warning.rule, warning.site), warning);
    }

    fn fence(&mut self, number: u32, thread: ThreadId, site: SiteId, kind: FenceKind) {
        let is_needed = self.unfenced.remove(&thread);
        let Some(running) = self.running.get_mut(&thread).filter(|_| kind != FenceKind::Locked) else { return };
        running.cost.fences += 1;
        if !is_needed {
            running.cost.redundant += 1;
            let operation = (running.index, running.kind);
            self.warn(TraceRule::RedundantFence, site, number, Some(operation));
        }
    }

    fn returned(&mut self, thread: ThreadId, index: u32) {
        let Some(running) = self.running.remove(&thread) else { return };
        let mut ended = match running.kind {
            OperationKind::Commit | OperationKind::Abort => self.transaction.take().unwrap_or_default(),
            _ => Unended::default(),
        };
        match &mut self.transaction {
            Some(transaction) => {
                transaction.operations.insert(index);
                transaction.stored.extend(&running.stored);
            }
            None => {
                ended.operations.insert(index);
                ended.stored.extend(&running.stored);
            }
        }
        if running.kind == OperationKind::Begin {
            self.transaction = Some(Unended::default());
        }
        for line in ended.stored.iter().filter(|_| self.is_durable_on_return) {
            for store in self.open.get_mut(line).into_iter().flatten() {
                store.is_late |= store.operation.is_some_and(|(made_in, _)| ended.operations.contains(&made_in));
            }
        }
        let sum = self.costs.entry(running.kind.name()).or_default();
        sum.operations += 1;
        sum.stores += running.cost.stores;
        sum.bytes += running.cost.bytes;
        sum.flushes += running.cost.flushes;
        sum.fences += running.cost.fences;
        sum.lines += running.flushed.len() as u64;
        sum.redundant += running.cost.redundant;
    }

    /// After the model stepped over the event: new stores come into `open`; those that are persisted now, or gone with their file, leave it.
    fn settle(&mut self, thread: ThreadId, kind: &EventKind) {
        let is_flushed = matches!(kind, EventKind::Store { kind: StoreKind::NonTemporal, .. });
        let is_removed = matches!(kind, EventKind::FileEnd { effect, .. } if !effect.is_sync());
        for id in self.model.take_changed() {
            let mut undecided = self.model.line(id).open_stores(Choice::default());
            undecided.dedup_by_key(|(event, ..)| *event);
            let known = self.open.remove(&id).unwrap_or_default();
            for store in &known {
                let is_gone = undecided.binary_search_by_key(&store.event, |(event, ..)| *event).is_err();
                if is_gone && store.is_late && !is_removed {
                    self.warn(TraceRule::ReturnedBefore, store.site, store.event, store.operation);
                }
            }
            let mut open = Vec::with_capacity(undecided.len());
            for (event, site, _) in undecided {
                open.push(match known.binary_search_by_key(&event, |store| store.event) {
                    Ok(at) => known[at],
                    Err(_) => {
                        let operation = self.running.get_mut(&thread).map(|running| {
                            running.stored.insert(id);
                            (running.index, running.kind)
                        });
                        Unpersisted { event, site, operation, is_flushed, is_late: false }
                    }
                });
            }
            if !open.is_empty() {
                self.open.insert(id, open);
            }
        }
    }

    fn end_case(&mut self) {
        for (id, stores) in std::mem::take(&mut self.open) {
            let file = self.model.line(id).key.file;
            if self.model.files().get(&file).is_some_and(|state| state.path.is_none()) {
                continue;
            }
            for store in stores {
                let rule = if store.is_flushed { TraceRule::NotFenced } else { TraceRule::NeverFlushed };
                self.warn(rule, store.site, store.event, store.operation);
            }
        }
        self.model = Model::new(&Px86, Vec::new());
        self.running.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::FileEffect;
    use crate::trace::{Event, FlushKind, Site};
    use std::sync::Arc;

    const FILE: FileId = FileId(0);

    /// Events of thread 1 or 2; the site of each is its place in the list.
    fn judged(kinds: Vec<(u16, EventKind)>) -> Judgement {
        judge(&trace(kinds), true)
    }

    fn trace(kinds: Vec<(u16, EventKind)>) -> Trace {
        let created = Arc::new(FileEffect::Create { file: FILE, path: "heap".into() });
        let mut all = vec![
            (1, EventKind::Case { number: 0, folder: "case-0".into() }),
            (1, EventKind::FileBegin { effect: created.clone() }),
            (1, EventKind::FileEnd { effect: created, is_done: true }),
        ];
        all.extend(kinds);
        let events = all.into_iter().enumerate().map(|(number, (thread, kind))| Event {
            thread: ThreadId { process: 1, thread },
            site: SiteId(number as u32),
            kind,
        });
        let events: Vec<Event> = events.collect();
        let sites = vec![Site { module: None, offset: 0, caller: None }; events.len()];
        Trace { events, sites, files: vec!["heap".into()], ..Trace::default() }
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

    fn begin(index: u32) -> EventKind {
        EventKind::OperationBegin { kind: OperationKind::Free, index, slot: 0, bytes: 0, object: 0 }
    }

    fn returned(index: u32) -> EventKind {
        EventKind::OperationReturn { kind: OperationKind::Free, index, status: 0 }
    }

    /// (rule, place of the event in the list, count)
    fn short(outcome: &Judgement) -> Vec<(TraceRule, u32, u64)> {
        outcome.warnings.iter().map(|warning| (warning.rule, warning.event - 3, warning.count)).collect()
    }

    #[test]
    fn what_is_flushed_and_fenced_before_the_return_breaks_no_rule() {
        let outcome = judged(
            [begin(0), store(0), store(8), clwb(0), fence(), returned(0)].into_iter().map(|kind| (1, kind)).collect(),
        );
        assert_eq!(short(&outcome), []);
        let cost = Cost { operations: 1, stores: 2, bytes: 16, flushes: 1, fences: 1, lines: 1, redundant: 0 };
        assert_eq!(outcome.costs, BTreeMap::from([("free", cost)]));
    }

    /// Of one operation of thread 1, with what comes after its return.
    fn one(inside: &[EventKind], after: &[EventKind]) -> Vec<(TraceRule, u32, u64)> {
        let whole = [&[begin(0)], inside, &[returned(0)], after].concat();
        short(&judged(whole.into_iter().map(|kind| (1, kind)).collect()))
    }

    #[test]
    fn each_rule_says_its_own() {
        use TraceRule::*;
        assert_eq!(one(&[store(0), fence()], &[]), [(NeverFlushed, 1, 1), (RedundantFence, 2, 1)]);
        assert_eq!(one(&[store(0), clwb(0)], &[]), [(NotFenced, 1, 1)]);
        assert_eq!(one(&[store(0), clwb(0)], &[fence()]), [(ReturnedBefore, 1, 1)]);
        assert_eq!(one(&[store(0), clwb(0), clwb(8), fence()], &[]), [(RedundantFlush, 3, 1)]);
        assert_eq!(one(&[clwb(64), fence()], &[]), [(CleanFlush, 1, 1)]);
        assert_eq!(one(&[store(0), clwb(0), fence(), clwb(0), fence()], &[]), [(CleanFlush, 4, 1)]);
    }

    #[test]
    fn operations_of_a_transaction_are_persisted_when_it_ends() {
        use TraceRule::{NotFenced, ReturnedBefore};
        let of = |kind, index| EventKind::OperationBegin { kind, index, slot: 0, bytes: 0, object: 0 };
        let back = |kind, index| EventKind::OperationReturn { kind, index, status: 0 };
        let (begin_tx, commit) = (OperationKind::Begin, OperationKind::Commit);
        let judge = |end: &[EventKind]| {
            let start = [of(begin_tx, 7), back(begin_tx, 7), begin(8), store(0), clwb(0), returned(8), of(commit, 9)];
            short(&judged(start.into_iter().chain(end.iter().cloned()).map(|kind| (1, kind)).collect()))
        };
        assert_eq!(judge(&[fence(), back(commit, 9)]), []);
        assert_eq!(judge(&[back(commit, 9), fence()]), [(ReturnedBefore, 3, 1)]);
        assert_eq!(judge(&[back(commit, 9)]), [(NotFenced, 3, 1)]);
    }

    #[test]
    fn their_nearest_neighbours_say_nothing() {
        // A store after the flush is not covered by it (R7), so the second flush is needed.
        assert_eq!(one(&[store(0), clwb(0), store(8), clwb(0), fence()], &[]), []);
        assert_eq!(one(&[EventKind::Fence { kind: FenceKind::Locked }], &[]), []);
        let clflush = EventKind::Flush { kind: FlushKind::Clflush, file: FILE, offset: 0 };
        assert_eq!(one(&[store(0), clflush, store(64), clwb(64), fence()], &[]), []);
    }

    #[test]
    fn the_fence_of_another_thread_does_not_help() {
        let kinds = vec![(1, begin(0)), (1, store(0)), (1, clwb(0)), (2, fence()), (1, returned(0)), (1, fence())];
        assert_eq!(short(&judged(kinds)), [(TraceRule::ReturnedBefore, 1, 1)]);
    }

    #[test]
    fn a_non_temporal_store_needs_a_fence_and_no_flush() {
        let stored =
            EventKind::Store { kind: StoreKind::NonTemporal, file: FILE, offset: 0, bytes: vec![1; 16].into() };
        let open = judged(vec![(1, begin(0)), (1, stored.clone()), (1, returned(0))]);
        assert_eq!(short(&open), [(TraceRule::NotFenced, 1, 1)]);
        assert_eq!(short(&judged(vec![(1, begin(0)), (1, stored), (1, fence()), (1, returned(0))])), []);
    }

    #[test]
    fn what_goes_with_its_file_is_no_warning() {
        let unlinked = Arc::new(FileEffect::Unlink { path: "heap".into() });
        let kinds = vec![
            (1, begin(0)),
            (1, store(0)),
            (1, returned(0)),
            (1, EventKind::FileBegin { effect: unlinked.clone() }),
            (1, EventKind::FileEnd { effect: unlinked, is_done: true }),
        ];
        assert_eq!(short(&judged(kinds)), []);
    }

    #[test]
    fn an_allocator_that_is_durable_on_close_may_return_early() {
        let kinds = vec![(1, begin(0)), (1, store(0)), (1, clwb(0)), (1, returned(0)), (1, fence())];
        assert_eq!(short(&judge(&trace(kinds), false)), []);
    }

    #[test]
    fn a_flush_outside_pm_breaks_a_rule_at_its_site_in_the_operation_that_made_it() {
        let elsewhere = |thread, events_before, count, site| FlushElsewhere {
            site: SiteId(site),
            thread: ThreadId { process: 1, thread },
            events_before,
            count,
        };
        let mut trace = trace(vec![(1, begin(0)), (1, store(0)), (1, clwb(0)), (1, fence()), (1, returned(0))]);
        trace.flushes_elsewhere = vec![elsewhere(1, 0, 9, 70), elsewhere(1, 5, 3, 71), elsewhere(2, 8, 1, 72)];
        let warning = |site, count, event, operation| Warning {
            rule: TraceRule::FlushElsewhere,
            site: SiteId(site),
            count,
            event,
            operation,
        };
        let inside = Some((0, OperationKind::Free));
        // What the runner flushes before the first heap is its own business.
        assert_eq!(judge(&trace, true).warnings, [warning(71, 3, 4, inside), warning(72, 1, 7, None)]);
    }

    #[test]
    fn sites_are_counted_once_each_with_their_first_event() {
        let mut trace = trace(vec![(1, begin(0)), (1, store(64)), (1, store(0)), (1, store(0)), (1, returned(0))]);
        trace.events.iter_mut().for_each(|event| event.site = SiteId(7));
        let warnings = judge(&trace, true).warnings;
        assert_eq!(warnings.len(), 1);
        assert_eq!((warnings[0].count, warnings[0].event), (3, 4));
        assert_eq!(warnings[0].operation, Some((0, OperationKind::Free)));
    }
}
