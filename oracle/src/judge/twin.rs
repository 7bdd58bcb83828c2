// SPDX-License-Identifier: Apache-2.0
//! FL012's capacity: a recovered heap must hold as much as its twin. The twin is the heap of the same history without a crash: once
//! closed and reopened, and once emptied while it was open.
//!
//! While nothing runs concurrently the history is a prefix of the workload, and the prefix's last operation names the twin. With
//! threads the history is a linearisation: first the returned operations in the order of their returns, then those of the pending
//! ones that the recovered heap shows to have happened, in every order. Where the heap does not tell which of several histories it
//! has, there are several twins, and the one that holds least is compared with it.
//!
//! Threads that ran at once may place objects where none of these orders does, and what fits between objects depends on where they
//! are. So the drain beside the objects of a heap of threads is compared only with twins that have the objects in the same places.
//!
//! What every open loses is lost in the reopened twin, too. So the twin is also emptied as the workload left it, while it is open. An
//! open may put the free blocks into another order; what that was seen to cost is subtracted.

use std::collections::{BTreeMap, BTreeSet};

use super::lives::drained_after;
use super::references::FirstPart;
use super::without_crash::{Failure, WithoutCrash, end_of, failure_words, failures_of, has_filled, with_step};
use super::words::twin_phrase;
use super::{Judge, Subject};
use crate::contract::{Leaks, OS_PAGE_BYTES, OutOfMemory};
use crate::fact::{Fact, Step};
use crate::history::{History, Linearised, Operation, OperationIndex};
use crate::report::{Drain, EMPTIED, EXECUTED, HeapReport, Life, Outcome, Place, SectionKind, SlotEntry, Status, USE};
use crate::rule::RuleId;

/// The drain asks for no less (protocol.h). What an allocation leaves of a free block may be too little for another one, and where that
/// happens depends on the order of the blocks: each allocation may cost so much. It is measured, not proved
/// (docs/notes/findings.md).
const SMALLEST_DRAIN_BYTES: u64 = 64;
/// Pending operations that may have happened or not: each doubles the twins that fit. A workload has few threads, so there are few of
/// them.
const MOST_UNCLEAR: usize = 8;

/// The twins of a workload.
#[derive(Clone, Debug, Default)]
pub struct TwinSet {
    /// Each by the last operation of its prefix.
    twins: BTreeMap<OperationIndex, Twin>,
    /// Of a workload of threads: for each history, one for each order of its pending operations.
    linearised: BTreeMap<Linearised, Vec<Twin>>,
    /// Operations that answered something else than success when power did not fail.
    refused: BTreeSet<OperationIndex>,
}

#[derive(Clone, Debug)]
struct Twin {
    /// What it can hold, or why it cannot serve as a twin of that.
    capacities: Result<Capacities, String>,
    /// In which steps of the probe it failed.
    failures: Vec<Failure>,
}

impl Twin {
    fn of(report: &HeapReport) -> Twin {
        Twin { capacities: capacities_of(report), failures: failures_of(report) }
    }
}

/// What a heap can hold beside its objects, and when they were freed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Capacities {
    beside_objects: Capacity,
    /// Where these are, in the order in which a report has them.
    objects: Vec<Place>,
    /// Where those are that slots hold, by slot.
    slots: BTreeMap<u32, Place>,
    emptied: Capacity,
    /// Why it is not known what the heap held before it was closed.
    open_failure: Option<String>,
}

/// What a drain got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capacity {
    bytes: u64,
    /// Of its largest allocation.
    largest: u64,
    /// The probe slots were used up first.
    is_bounded: bool,
    /// At least this, and of a heap that was open.
    is_open: bool,
}

impl Capacity {
    /// What holds no more than either of two twins.
    fn or_less(self, other: Capacity) -> Capacity {
        let fewer = if other.bytes < self.bytes { other } else { self };
        Capacity { largest: self.largest.min(other.largest), ..fewer }
    }

    /// What the reopened twin holds, and no less than the open one held. Where the reopened one may hold fewer bytes, a piece of the
    /// open one may be two pieces in it.
    fn at_least(self, open: &Drain) -> Capacity {
        let tolerated = open.blocks.len() as u64 * SMALLEST_DRAIN_BYTES;
        let bytes = open.capacity_bytes.saturating_sub(tolerated);
        let is_fewer = self.bytes < open.capacity_bytes;
        let largest = if is_fewer { self.largest } else { self.largest.max(open.largest_bytes()) };
        if bytes > self.bytes {
            return Capacity { bytes, largest, is_bounded: open.is_bounded(), is_open: true };
        }
        Capacity { largest, ..self }
    }
}

impl TwinSet {
    /// No twin.
    pub fn new() -> TwinSet {
        TwinSet::default()
    }

    /// Adds the twin of the workload up to and with this operation; only its drains are kept.
    pub fn insert(&mut self, operation: OperationIndex, report: &HeapReport) {
        self.twins.insert(operation, Twin::of(report));
    }

    /// Adds a twin of a workload of threads: of this history, with its pending operations in one of their orders.
    pub fn insert_linearised(&mut self, history: Linearised, report: &HeapReport) {
        self.linearised.entry(history).or_default().push(Twin::of(report));
    }

    /// Without a crash, this operation was refused: of memory that was out, or of a disk that was full. A heap whose recovery has done it
    /// all the same has a history that no twin has.
    pub fn insert_refused(&mut self, operation: OperationIndex) {
        self.refused.insert(operation);
    }

    /// What the heap fails with though power does not, each once, but for what the contract permits.
    pub fn without_crash(&self, out_of_memory: OutOfMemory) -> Vec<WithoutCrash> {
        let mut found: Vec<WithoutCrash> = Vec::new();
        for (name, operation, twin) in self.named() {
            for failure in twin.failures.iter().filter(|failure| !failure.is_permitted(out_of_memory)) {
                match found.iter_mut().find(|known| known.fact == failure.fact) {
                    Some(known) => known.seen += 1,
                    None => {
                        let message = format!("after {name}, {}, and power did not fail", failure.words);
                        found.push(WithoutCrash { fact: failure.fact, operation, message, seen: 1 });
                    }
                }
            }
        }
        found
    }

    /// Twins that cannot serve as one, or not in full, for another reason than [`TwinSet::without_crash`] says: after which operations,
    /// and why.
    pub fn unfit(&self, out_of_memory: OutOfMemory) -> impl Iterator<Item = (String, &str)> {
        let is_told = move |twin: &Twin| twin.failures.iter().any(|failure| !failure.is_permitted(out_of_memory));
        self.named().filter(move |(_, _, twin)| !is_told(twin)).filter_map(|(name, _, twin)| match &twin.capacities {
            Ok(twin) => Some((name, twin.open_failure.as_deref()?)),
            Err(why) => Some((name, why.as_str())),
        })
    }

    /// Each with what it comes after.
    fn named(&self) -> impl Iterator<Item = (String, Option<OperationIndex>, &Twin)> {
        let prefixes =
            self.twins.iter().map(|(operation, twin)| (format!("operation {operation}"), Some(*operation), twin));
        let linearised =
            self.linearised.iter().flat_map(|(history, twins)| twins.iter().map(|twin| (name(history), None, twin)));
        prefixes.chain(linearised)
    }

    /// How many twins there are.
    pub fn len(&self) -> usize {
        self.twins.len() + self.linearised.values().map(Vec::len).sum::<usize>()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In which steps of the probe the twin of the history fails, whichever of its pending operations happened. Where it names no twin,
    /// in which any twin does: of later generations, which have none, and of operations that may be there in any selection.
    pub(super) fn failures_at(&self, history: &History) -> Vec<Fact> {
        let fitting = self.that_fit(history);
        let all = self.twins.values().chain(self.linearised.values().flatten());
        let twins: Vec<&Twin> = if fitting.is_empty() { all.collect() } else { fitting };
        twins.into_iter().flat_map(|twin| twin.failures.iter().map(|failure| failure.fact)).collect()
    }

    fn that_fit(&self, history: &History) -> Vec<&Twin> {
        let pending = history.current().pending().iter().map(|pending| &pending.operation);
        let pending: Vec<OperationIndex> = pending
            .filter(|operation| operation.kind.has_effect() && !history.is_in_transaction(operation.index))
            .map(|operation| operation.index)
            .collect();
        if history.generations().len() > 1 || history.is_unsettled() || pending.len() > MOST_UNCLEAR {
            return Vec::new();
        }
        selections(&pending).flat_map(|happened| self.find(history, &happened).unwrap_or_default()).collect()
    }

    /// The twin after the transaction that is open. One that power ended shows in no slot, and yet it may have grown the heap.
    fn after_transaction(&self, history: &History) -> Option<&Twin> {
        let begun_by = history.open_transaction()?;
        self.twins.range(begun_by + 1..).next().map(|(_, twin)| twin)
    }

    /// Whether the slot's object is where the twin after the commit has it, or where the one before the transaction has it, if they have it
    /// at two places.
    pub(super) fn has_moved(
        &self,
        history: &History,
        commit: OperationIndex,
        slot: u32,
        found: &Place,
    ) -> Option<bool> {
        let place = |happened: &[OperationIndex]| {
            let twin = self.find(history, happened).ok()?.first()?;
            twin.capacities.as_ref().ok()?.slots.get(&slot)
        };
        let (before, after) = (place(&[])?, place(&[commit])?);
        match before == after {
            false if found == before => Some(false),
            false if found == after => Some(true),
            _ => None,
        }
    }

    fn is_of_threads(&self) -> bool {
        !self.linearised.is_empty()
    }

    /// The twins of what has returned and these pending operations; at least one.
    fn find(&self, history: &History, happened: &[OperationIndex]) -> Result<&[Twin], String> {
        if self.is_of_threads() {
            let wanted = history.linearised(happened);
            let found = self.linearised.get(&wanted).filter(|twins| !twins.is_empty());
            return found.map(Vec::as_slice).ok_or_else(|| format!("there is no twin of {}", name(&wanted)));
        }
        let Some(prefix) = history.linearised_prefix(happened) else {
            return Err("the operations that have happened are no prefix of the workload".to_owned());
        };
        let found = self.twins.get(&prefix).ok_or_else(|| format!("there is no twin of operation {prefix}"))?;
        Ok(std::slice::from_ref(found))
    }
}

/// Every selection of the operations: two for each of them.
fn selections(operations: &[OperationIndex]) -> impl Iterator<Item = Vec<OperationIndex>> {
    (0..1u32 << operations.len()).map(|choice| {
        let chosen = operations.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
        chosen.map(|(_, index)| *index).collect()
    })
}

fn name(history: &Linearised) -> String {
    let Linearised { create, returned, happened } = history;
    let pending: String = happened.iter().map(|index| format!(" and operation {index}")).collect();
    format!("the first {returned} operations with an effect from operation {create} on{pending}")
}

fn capacities_of(report: &HeapReport) -> Result<Capacities, String> {
    if let Some(fact) = end_of(report).filter(|_| !has_filled(report)) {
        let words = failure_words(with_step(fact, Step::of_twin), twin_phrase);
        let own = report.lives.last().filter(|_| report.last_life == EXECUTED);
        return Err(because(words, own));
    }
    match report.outcome {
        Outcome::Overloaded => return Err("the machine was overloaded, the wall limit came first".to_owned()),
        Outcome::Broken => return Err(because("it could not be followed".to_owned(), report.lives.last())),
        Outcome::Done | Outcome::Signal(_) | Outcome::Exited | Outcome::Hung => {}
    }
    let reopened = capacity_in(report, EMPTIED)?;
    let (emptied, open_failure) = match open_drain(report) {
        Ok(Some(open)) => (reopened.at_least(open), None),
        Ok(_) => (reopened, None),
        Err(why) => (reopened, Some(format!("emptied while it was open: {why}"))),
    };
    let life = report.life(USE.into());
    let objects = life.map(places_of_objects).unwrap_or_default();
    let slots = life.map(places_of_slots).unwrap_or_default();
    Ok(Capacities { beside_objects: capacity_in(report, USE)?, objects, slots, emptied, open_failure })
}

/// Places of the objects that slots and fields reach. Two heaps with the same ones may still differ in what is free.
fn places_of_objects(life: &Life) -> Vec<Place> {
    let slots = life.slots.iter().flat_map(|slots| &slots.entries).map(|entry| (entry.file, entry.offset));
    let objects =
        life.objects.iter().flat_map(|objects| &objects.entries).map(|entry| (entry.at.file, entry.at.offset));
    let place = |(file, offset)| Place { file: life.file_name(file).unwrap_or_default().to_owned(), offset };
    slots.chain(objects).map(place).collect()
}

fn places_of_slots(life: &Life) -> BTreeMap<u32, Place> {
    let place = |entry: &SlotEntry| Place {
        file: life.file_name(entry.file).unwrap_or_default().to_owned(),
        offset: entry.offset,
    };
    let entries = life.slots.iter().flat_map(|slots| &slots.entries);
    entries.map(|entry| (entry.slot, place(entry))).collect()
}

fn capacity_in(report: &HeapReport, life: u16) -> Result<Capacity, String> {
    let drain = drain_of(report, life)?;
    let (bytes, largest) = (drain.capacity_bytes, drain.largest_bytes());
    Ok(Capacity { bytes, largest, is_bounded: drain.is_bounded(), is_open: false })
}

/// The life's drain, or why there is none. Where the life did not begin, the last one that began says why.
fn drain_of(report: &HeapReport, life: u16) -> Result<&Drain, String> {
    let life = report.life(usize::from(life));
    match life.and_then(|life| life.drain.as_ref()) {
        Some(drain) if matches!(drain.status, Status::Ok | Status::OutOfMemory) => Ok(drain),
        Some(drain) => Err(because(format!("its drain answered {}", drain.status), life)),
        None => Err(because("it has no drain".to_owned(), life.or(report.lives.last()))),
    }
}

/// What the heap held when it was emptied before it was closed; none where the workload closed it.
fn open_drain(report: &HeapReport) -> Result<Option<&Drain>, String> {
    let Some(life) = report.life(usize::from(EXECUTED)) else { return Ok(None) };
    let is_told = life.messages.iter().any(|message| message.about == Some(SectionKind::FreeAll));
    match life.free_all {
        None if !is_told => Ok(None),
        None | Some(Status::Ok) => drain_of(report, EXECUTED).map(Some),
        Some(status) => Err(because(format!("freeing all objects answered {status}"), Some(life))),
    }
}

fn because(what: String, life: Option<&Life>) -> String {
    match life.and_then(|life| life.messages.last()) {
        Some(message) => format!("{what}: {}", message.text),
        None => what,
    }
}

impl Judge<'_> {
    /// Of the drain of life 3, or of life 5, which comes after all objects were freed.
    pub(super) fn judge_capacity(&mut self, drain: &Drain, life: u16, first_part: &FirstPart) {
        let (twin, allowance) = match self.twin_capacity(life, first_part).and_then(|twin| {
            let allowance = self.allowance(first_part)?;
            Ok((twin, allowance))
        }) {
            Ok(found) => found,
            Err(reason) => return self.not_judged(RuleId::NotUsable, format!("capacity: {reason}")),
        };
        self.out.judged.insert(RuleId::NotUsable);
        let is_small = self.contract.out_of_memory == OutOfMemory::Ends;
        if is_small && life != EMPTIED {
            let reason = "capacity beside objects: memory ends the process (out_of_memory = \"ends\")";
            return self.not_judged(RuleId::NotUsable, reason);
        }
        // All pieces have one size, and of each that a leak lies in nothing can be got.
        let leaks = if is_small { first_part.leaked_blocks.saturating_mul(drain.largest_bytes()) } else { 0 };
        let allowance = allowance.saturating_add(leaks);
        let is_enough = drain.capacity_bytes.saturating_add(allowance) >= twin.bytes;
        if is_enough && twin.is_bounded {
            let reason = "capacity: the twin's drain used up all probe slots, only a lower bound is known";
            return self.not_judged(RuleId::NotUsable, reason);
        }
        if is_enough {
            if life == EMPTIED && first_part.leaked_blocks == 0 {
                self.judge_pieces(drain, &twin);
            }
            return;
        }
        if self.has_broken_history() {
            return self.not_judged(RuleId::NotUsable, "capacity: a heap that is broken already has no twin");
        }
        // A small object that may stay keeps the rest of its OS page from being used for objects of other sizes.
        let beside = first_part.leaked_blocks.saturating_mul(OS_PAGE_BYTES);
        let missing = twin.bytes - drain.capacity_bytes - allowance;
        if self.contract.leaks == Leaks::Collected && missing <= beside {
            let reason = "capacity: what garbage that may stay takes besides its bytes is not known";
            return self.not_judged(RuleId::NotUsable, reason);
        }
        if drain.is_bounded() {
            return self
                .not_judged(RuleId::NotUsable, "capacity: the drain used up all probe slots before out-of-memory");
        }
        let without = if twin.is_open { "without a crash, before its last close, at least" } else { "without a crash" };
        let lost_bytes = twin.bytes - drain.capacity_bytes;
        let text = format!(
            "after {} {} bytes can be allocated, after the same operations {without} {}: \
             {lost_bytes} bytes are lost, {allowance} permitted",
            drained_after(life),
            drain.capacity_bytes,
            twin.bytes
        );
        let subject = Subject { lost_bytes: Some(lost_bytes), ..Subject::default() };
        let fact = match twin.is_open {
            true => Fact::OpenCapacityLost(life.into()),
            false => Fact::CapacityLost(life.into()),
        };
        self.violate(fact, subject, text);
    }

    /// Whether the heap is not what its history says, by another rule: then that it holds less says nothing new.
    fn has_broken_history(&self) -> bool {
        let broken = RuleId::OperationLost..=RuleId::Inconsistent;
        self.out.violations.iter().any(|violation| broken.contains(&violation.rule))
    }

    /// An emptied heap that holds as many bytes as its twin must give them in pieces as large as the twin's. A block that may stay
    /// would lie between two pieces, so this is judged only where none may.
    fn judge_pieces(&mut self, drain: &Drain, twin: &Capacity) {
        let is_split = drain.capacity_bytes >= twin.bytes && drain.largest_bytes() < twin.largest;
        if !is_split || self.has_broken_history() {
            return;
        }
        let text = format!(
            "after {} {} bytes can be allocated at once, after the same operations without a crash {}: no fewer in all, but in \
             smaller pieces",
            drained_after(EMPTIED),
            drain.largest_bytes(),
            twin.largest
        );
        self.violate(Fact::CapacitySplit, Subject::default(), text);
    }

    /// The twin of what the recovered heap shows; of several that fit, the one that holds least.
    fn twin_capacity(&self, life: u16, first_part: &FirstPart) -> Result<Capacity, String> {
        let is_first = self.history.generations().len() == 1;
        let twins = self.twins.filter(|_| is_first).ok_or("there are no twins")?;
        if self.history.is_unsettled() {
            return Err("operations since the last close may be there or not, in any selection".to_owned());
        }
        // Also one that has left no mark: a reallocation may have kept the place and the content.
        let pending = first_part.happened.iter().chain(&first_part.unclear);
        if let Some(done) = pending.into_iter().find(|operation| twins.refused.contains(operation)) {
            return Err(format!("recovery may have done operation {done}, which was refused without a crash"));
        }
        let mut least: Option<Capacity> = None;
        let is_of_places = twins.is_of_threads() && life != EMPTIED;
        let objects = self.report.life(life.into()).filter(|_| is_of_places).map(places_of_objects).unwrap_or_default();
        let mut unclear = first_part.unclear.clone();
        if life == EMPTIED {
            unclear.extend(self.without_effect(first_part));
        }
        if unclear.len() > MOST_UNCLEAR {
            return Err(format!("{} pending operations may have happened or not", unclear.len()));
        }
        for chosen in selections(&unclear) {
            let happened: Vec<OperationIndex> = first_part.happened.iter().copied().chain(chosen).collect();
            let mut is_known = false;
            let ended = twins.after_transaction(self.history).filter(|_| life == EMPTIED);
            for twin in twins.find(self.history, &happened)?.iter().chain(ended) {
                let twin = twin.capacities.as_ref().map_err(|why| format!("a twin failed: {why}"))?;
                if is_of_places && twin.objects != objects {
                    continue;
                }
                is_known = true;
                let twin = if life == EMPTIED { twin.emptied } else { twin.beside_objects };
                least = Some(least.map_or(twin, |least| least.or_less(twin)));
            }
            if !is_known {
                return Err("threads placed the objects where no twin has them".to_owned());
            }
        }
        least.ok_or_else(|| "there is no twin".to_owned())
    }

    /// The pending operations that have not happened. An allocation that power ended shows in no slot, and yet it may have grown
    /// the heap, as an allocation does that is freed again. How a heap grew decides what it can hold, so that is no loss.
    fn without_effect(&self, first_part: &FirstPart) -> Vec<OperationIndex> {
        let pending = self.history.current().pending().iter().map(|pending| &pending.operation);
        let is_alone =
            |operation: &&Operation| operation.kind.has_slot() && !self.history.is_in_transaction(operation.index);
        let on_slots = pending.filter(is_alone).map(|operation| operation.index);
        let known = |index: &OperationIndex| first_part.happened.contains(index) || first_part.unclear.contains(index);
        on_slots.filter(|index| !known(index)).collect()
    }

    /// By how many bytes the capacity may be below the twin's: by permitted leaks, and by the slack. The slack covers what a leaked
    /// block costs besides its bytes, such as a header, so it counts once for each of them.
    fn allowance(&self, first_part: &FirstPart) -> Result<u64, &'static str> {
        let leaked = match (self.contract.leaks, first_part.leaked_bytes) {
            (Leaks::None, _) => 0,
            (_, Some(bytes)) => bytes,
            (Leaks::Pending, None) if self.permitted_leaks(first_part) == 0 => 0,
            (_, None) => return Err("without walk a permitted leak cannot be told from lost capacity"),
        };
        let slack = self.contract.slack_bytes.saturating_mul(first_part.leaked_blocks.max(1));
        Ok(slack.saturating_add(leaked))
    }
}
