// SPDX-License-Identifier: Apache-2.0
//! What a workload has done to a heap when power fails, and so what recovery may and must bring back.
//!
//! The criterion is durable linearizability (Izraelevitz, Mendes, Scott, DISC 2016): operations that returned survive, pending
//! ones (begun, not returned) happened whole or not at all, and one that returned out-of-memory has no effect. For each slot that
//! gives a short list of [`Candidate`]s, one of which the recovered heap must show; so it does for each field of an object that
//! slots and fields reach, where objects hold references to objects.
//!
//! With `durable = "on-close"` only what was there when a close last returned must survive. Operations since may be there or
//! not, in any selection, so a slot that none of them touched is judged as usual, while a touched slot may show anything it held
//! since: its content is not judged, because a lost free may bring back an object whose place was meanwhile used again.
//!
//! The operations of a transaction happen together, when its commit does: it changes all their holders. Of an open or aborted one
//! nothing is expected. A write that no transaction is around may have happened in part while it is pending, so that its bytes are
//! not judged then.
//!
//! One `History` is one heap: a workload of several cases has one for each.

mod begin;
mod candidates;
mod generation;
mod graph;
mod object;
mod operation;
mod state_id;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::contract::{Durable, Fill, Leaks};
use crate::report::Status;
use state_id::Mix;

pub use candidates::{Candidate, Candidates, ExpectedObject};
pub use generation::{Generation, Pending, Phase};
pub use graph::{FIELDS, Holder, ObjectId};
pub use object::ObjectState;
pub(crate) use object::Previous;
pub use operation::{Operation, OperationIndex, OperationKind};

/// A marker that does not fit the markers before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} of thread {thread}: {what}")]
pub struct HistoryError {
    /// The operation of the marker.
    pub index: OperationIndex,
    /// Its thread.
    pub thread: u32,
    /// What does not fit.
    pub what: String,
}

/// Names a history without a crash, of threads whose operations overlapped: the operations with an effect that have returned, in
/// the order of their returns, then pending ones in any order. An operation that returned before another began comes before it
/// in the order of returns too, so that is a linearisation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Linearised {
    /// The create of the heap.
    pub create: OperationIndex,
    /// How many operations with an effect have returned, create included.
    pub returned: u32,
    /// Pending operations that have happened, ascending.
    pub happened: Vec<OperationIndex>,
}

/// What one heap's workload has done so far. Built from markers, in the order of the trace.
#[derive(Clone, Debug)]
pub struct History {
    durable: Durable,
    /// The contract's `clean_close`: what a close leaves is expected, too.
    clean_close: bool,
    /// Whether markers say what the workload did; else nothing is expected of what they would say.
    are_operations_known: bool,
    /// Files of the heap folder that the workload mapped at some time, by their paths there.
    mapped_files: Arc<BTreeSet<Arc<str>>>,
    /// Each starts from what the crash before it left.
    generations: Vec<Generation>,
    state_id: u64,
}

impl History {
    /// A heap whose create has not begun.
    pub fn new(durable: Durable) -> History {
        let mut history = History {
            durable,
            clean_close: false,
            are_operations_known: true,
            mapped_files: Arc::default(),
            generations: vec![Generation::new()],
            state_id: 0,
        };
        history.state_id = history.hash_state();
        history
    }

    /// The same under a contract with this `clean_close`.
    #[must_use]
    pub fn with_clean_close(self, clean_close: bool) -> History {
        History { clean_close, ..self }
    }

    /// The same of a heap of which nobody says what was done to it: it was created, and since then it may hold anything.
    #[must_use]
    pub fn without_operations(self) -> History {
        History { are_operations_known: false, ..self }
    }

    /// Whether it is known what the workload did.
    pub fn are_operations_known(&self) -> bool {
        self.are_operations_known
    }

    /// The same of a heap in whose folder these files are mapped, before or after a crash.
    #[must_use]
    pub fn with_mapped_files(self, mapped_files: BTreeSet<Arc<str>>) -> History {
        History { mapped_files: Arc::new(mapped_files), ..self }
    }

    /// Whether the workload maps this file of the heap folder at some time.
    pub fn maps(&self, file: &str) -> bool {
        self.mapped_files.contains(file)
    }

    /// A number that changes exactly when what is expected of a crash now changes; a pending close or open counts, for it may
    /// leak. Equal histories have equal numbers.
    pub fn state_id(&self) -> u64 {
        self.state_id
    }

    /// As [`Self::state_id`], of what is expected of the heap from now on. Histories whose earlier generations differ only in what no
    /// rule asks for any more have the same number; how much the contract permits to leak is asked for.
    pub fn expected_id(&self, leaks: Leaks) -> u64 {
        let mut mix = Mix(self.durable as u64);
        mix.add(self.generations.len() as u64);
        if leaks == Leaks::Pending {
            mix.add(self.pending_operations());
        }
        self.current().hash(self.durable, &mut mix);
        mix.0
    }

    /// The generations, oldest first; at least one.
    pub fn generations(&self) -> &[Generation] {
        &self.generations
    }

    /// The generation that a crash now would end.
    pub fn current(&self) -> &Generation {
        self.generations.last().expect("a history has at least one generation")
    }

    fn current_mut(&mut self) -> &mut Generation {
        self.generations.last_mut().expect("a history has at least one generation")
    }

    /// An operation begins.
    ///
    /// # Errors
    /// When it cannot begin here, which no runner's trace has: the trace is bad.
    pub fn begin(&mut self, operation: Operation) -> Result<(), HistoryError> {
        self.current_mut().begin(operation)?;
        self.state_id = self.hash_state();
        Ok(())
    }

    /// The operation that the thread began returns.
    ///
    /// # Errors
    /// When the thread has not begun it: the trace is bad.
    pub fn returned(&mut self, thread: u32, index: OperationIndex, status: Status) -> Result<(), HistoryError> {
        let durable = self.durable;
        self.current_mut().returned(durable, thread, index, status)?;
        if !self.clean_close {
            self.current_mut().closed_by = None;
        }
        self.state_id = self.hash_state();
        Ok(())
    }

    /// Power fails, and a new generation begins with what this crash left: all that returned, and any selection of the pending
    /// operations, each whole. The recovery is the first operation of the new generation.
    pub fn power_fails(&mut self) {
        let mut next = self.current().clone();
        next.transaction = None;
        next.pending.retain(|pending| pending.in_transaction.is_none());
        next.carried = next.pending.len();
        next.last_begun = None;
        self.generations.push(next);
        self.state_id = self.hash_state();
    }

    /// The recovery of this generation has shown which of the operations that were pending at the crash have happened. From now on
    /// these have happened and the others never will, except for `unclear` ones, which look the same either way.
    pub fn recovered(&mut self, happened: &[OperationIndex], unclear: &[OperationIndex], fill: Fill) {
        let durable = self.durable;
        self.current_mut().recovered(durable, happened, unclear, fill);
        self.state_id = self.hash_state();
    }

    /// Whether open must succeed after a crash now.
    pub fn must_open(&self) -> bool {
        let now = self.current();
        now.phase == Phase::Created && (self.durable == Durable::OnReturn || now.was_closed)
    }

    /// The close that has left the heap closed: it has returned, and nothing has begun since. Only where `clean_close` is promised.
    pub fn closed_by(&self) -> Option<OperationIndex> {
        self.current().closed_by
    }

    /// Whether a crash now may leave the heap as a close left it, once these pending operations have happened: nothing has taken effect
    /// since a close, or since create; or a close is pending. With `durable = "on-close"` what has taken effect may be lost.
    pub fn may_be_as_closed(&self, happened: &[OperationIndex]) -> bool {
        let now = self.current();
        let is_unchanged = now.phase != Phase::Created || (now.is_as_closed && happened.is_empty());
        is_unchanged || now.is_closing() || self.durable == Durable::OnClose
    }

    /// Slots that hold, held or may come to hold an object, in order.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        let now = self.current();
        let pending = now.pending.iter().flat_map(|pending| &pending.changes).map(|change| change.holder);
        let held = now.holders.range(Holder::Slot(0)..=Holder::Slot(u32::MAX)).map(|(holder, _)| *holder);
        let all: BTreeSet<u32> = held.chain(pending).filter_map(Holder::slot).collect();
        all.into_iter()
    }

    /// Whether objects may hold references to objects: some operation says so.
    pub fn is_graph(&self) -> bool {
        self.current().is_graph
    }

    /// The object that was in the holder before a returned operation took it away.
    pub(crate) fn previous(&self, holder: Holder) -> Option<&Previous> {
        self.current().holders.get(&holder)?.previous.as_ref()
    }

    /// Whether an operation of this kind is pending on the holder.
    pub(crate) fn is_pending_on(&self, holder: Holder, kinds: &[OperationKind]) -> bool {
        let mut pending = self.current().pending.iter();
        let is_changed = |pending: &Pending| pending.changes.iter().any(|change| change.holder == holder);
        pending.any(|pending| is_changed(pending) && kinds.contains(&pending.operation.kind))
    }

    /// Heap blocks that the contract's `leaks = "pending"` allows to leak: one for each operation that was pending at a
    /// crash, creation, recovery and close included, summed over generations and threads. With `durable = "on-close"` an
    /// operation since the last close counts as pending, and those of a transaction count until it has ended.
    pub fn pending_operations(&self) -> u64 {
        let pending = |generation: &Generation| {
            let of_transaction = generation.transaction.as_ref().map_or(0, |transaction| transaction.operations);
            (generation.pending.len() - generation.carried) as u64 + of_transaction
        };
        self.generations.iter().map(pending).sum::<u64>() + self.current().unsettled_operations
    }

    /// Whether an operation that is pending, or one of the transaction that is open, changes what the holder holds or its object.
    pub(crate) fn is_touched(&self, holder: Holder) -> bool {
        let now = self.current();
        let pending = now.pending.iter().flat_map(|pending| pending.changes.iter().chain(&pending.in_transaction));
        let in_transaction = now.transaction.as_ref().is_some_and(|open| open.changes.contains_key(&holder));
        in_transaction || pending.into_iter().any(|change| change.holder == holder)
    }

    /// Index of the begin of the transaction that has neither been committed nor aborted.
    pub(crate) fn open_transaction(&self) -> Option<OperationIndex> {
        self.current().transaction.as_ref().map(|transaction| transaction.begun_by)
    }

    /// Whether the operation is pending in a transaction, and so has no effect of its own.
    pub(crate) fn is_in_transaction(&self, index: OperationIndex) -> bool {
        let is_it = |pending: &Pending| pending.operation.index == index && pending.in_transaction.is_some();
        self.current().pending.iter().any(is_it)
    }

    /// The commits that are pending.
    pub(crate) fn pending_commits(&self) -> impl Iterator<Item = OperationIndex> {
        let operations = self.current().pending.iter().map(|pending| &pending.operation);
        operations.filter(|operation| operation.kind == OperationKind::Commit).map(|operation| operation.index)
    }

    /// Objects that were dropped and not freed, and that nothing reaches, once these pending operations have happened.
    pub fn garbage_objects(&self, happened: &[OperationIndex]) -> u64 {
        self.current().garbage(happened)
    }

    /// How many objects that nothing reaches a clean close may have left there, once these pending operations have happened. Recovery
    /// collects garbage after a crash, but a heap that is as a close left it needs no recovery. Opening it collects nothing (Makalu
    /// §11.2: a restart reads metadata only); from the first operation that takes effect on, a crash needs recovery.
    pub fn garbage_left_by_close(&self, happened: &[OperationIndex]) -> u64 {
        let now = self.current();
        if (now.is_as_closed || now.is_closing()) && happened.is_empty() { self.garbage_objects(&[]) } else { 0 }
    }

    /// Whether some slot's state is open beyond the pending operations, so that no prefix of the workload describes the heap.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.current().unsettled_operations > 0
    }

    /// The last operation of the prefix of the workload that has the same effects as the returned operations and these pending
    /// ones; `None` if there is no such prefix.
    pub fn linearised_prefix(&self, happened: &[OperationIndex]) -> Option<OperationIndex> {
        let now = self.current();
        let last_happened = happened.iter().copied().max();
        if !now.is_concurrent {
            return last_happened.max(now.last_effective);
        }
        let has = |index: &OperationIndex| {
            *index < now.returned_below || now.returned_ahead.contains(index) || happened.contains(index)
        };
        let last_returned = now.returned_ahead.last().copied().or(now.returned_below.checked_sub(1));
        let last = last_happened.max(last_returned)?;
        (now.returned_below..=last).all(|index| has(&index)).then_some(last)
    }

    /// The history without a crash that has the same effects as the returned operations and these pending ones.
    pub fn linearised(&self, happened: &[OperationIndex]) -> Linearised {
        let now = self.current();
        let mut happened = happened.to_vec();
        happened.sort_unstable();
        Linearised { create: now.first_index, returned: now.effects, happened }
    }

    fn hash_state(&self) -> u64 {
        let mut mix = Mix(self.durable as u64);
        mix.add(self.generations.len() as u64);
        for generation in &self.generations {
            generation.hash(self.durable, &mut mix);
        }
        mix.0
    }
}
