// SPDX-License-Identifier: Apache-2.0
//! References against the history, in the first life: null ones (FL004), those that point to no live heap block (FL008), and heap
//! blocks that two of them share (FL006). Slots and fields of objects are judged alike; [`super::followed`] has the order,
//! [`super::objects`] what the objects show.

use super::followed::{FollowedReferences, Look, Reference};
use super::words::bytes_of;
use super::{Extent, Judge, Subject};
use crate::contract::{Leaks, Publish};
use crate::fact::{Fact, HolderKind, Step};
use crate::history::{Candidate, Candidates, ExpectedObject, Holder, OperationIndex, OperationKind, Phase};
use crate::report::{Life, Location, Place, SectionKind, SlotEntry, Status};
use crate::rule::RuleId;
use std::collections::BTreeSet;

/// Which of the pending operations the recovered heap shows, and what else later stages need of the first part.
#[derive(Default)]
pub(super) struct FirstPart {
    /// Pending operations that have happened.
    pub happened: Vec<OperationIndex>,
    /// Pending operations whose holders may be in the state before as well as after.
    pub unclear: Vec<OperationIndex>,
    /// What each holder shows of the operation that is pending on it: whether it has happened; `None`: either.
    shown: Vec<(OperationIndex, Holder, Option<bool>)>,
    /// Bytes of live heap blocks that no slot reaches; `None`: without walk nobody knows.
    pub leaked_bytes: Option<u64>,
    /// How many heap blocks those bytes are.
    pub leaked_blocks: u64,
    /// Objects that must be there and that nothing refers to.
    pub lost_objects: u64,
}

/// A reference with its object's whereabouts.
pub(super) struct Found<'a> {
    pub holder: Holder,
    pub at: Location,
    /// Where the report has the object's content: the slot, or the position among the objects; `None`: nowhere.
    pub key: Option<u32>,
    pub file: &'a str,
    /// Bytes from the object's start to the end of its heap block; `None`: not known.
    pub capacity: Option<u64>,
    /// The heap block, or the place where it should be.
    pub extent: Extent,
}

impl Found<'_> {
    pub fn place(&self) -> String {
        format!("{} at {:#x}", self.file, self.at.offset)
    }

    pub fn holds(&self, object: &ExpectedObject<'_>) -> bool {
        self.capacity.is_none_or(|capacity| capacity >= object.bytes)
    }
}

impl<'a> Judge<'a> {
    /// Life 0: slots, fields, walk, check. `None` if the slots are not known.
    pub(super) fn judge_first_part(&mut self, life: &'a Life) -> Option<FirstPart> {
        self.out.judged.insert(RuleId::RecoveryFailed);
        let entries = self.judge_slot_list(life)?;
        if !self.judge_settled(life, 0) {
            return None;
        }
        if !self.judge_object_list(life) {
            return None;
        }
        let live = self.judge_walk(life, 0);
        let mut references = FollowedReferences::new(life, live);
        if self.history.current().phase() == Phase::Creating {
            references.first_part.happened.push(self.history.current().create_index());
        }
        self.judge_references(entries, &mut references);
        self.count_lost(&mut references);
        let is_cut = life.objects.as_ref().is_some_and(|objects| objects.status == Status::OutOfMemory);
        if references.live.is_some() && is_cut && self.contract.leaks != Leaks::Collected {
            self.not_judged(RuleId::Leak, "the report does not list all objects");
        } else if references.live.is_some() {
            self.judge_leaks(&mut references);
        } else if !self.is_cut_short(0) {
            self.judge_slot_overlap(life, entries);
            self.not_judged(RuleId::DanglingSlot, "there is no walk of the recovered heap");
            self.not_judged(RuleId::Leak, "there is no walk of the recovered heap");
        }
        Some(references.first_part)
    }

    fn judge_slot_list(&mut self, life: &'a Life) -> Option<&'a [SlotEntry]> {
        match &life.slots {
            Some(slots) if slots.status == Status::Ok => return Some(&slots.entries),
            Some(slots) => {
                let step = Step::new(0, SectionKind::Slots);
                self.violate_answer(life, step, slots.status, "reading the slots after recovery");
            }
            None if self.is_cut_short(0) => {}
            None => self.unknown("the heap report has no slots".to_owned()),
        }
        None
    }

    /// Without a part of the objects, what lies behind it is not known. False: nothing is.
    fn judge_object_list(&mut self, life: &'a Life) -> bool {
        match &life.objects {
            None if self.history.is_graph() && !self.is_cut_short(0) => {
                self.unknown("the heap report does not say what the objects' fields hold".to_owned());
            }
            Some(objects) if objects.status == Status::OutOfMemory => {
                let text =
                    format!("the slots reach more than the {} objects that a report lists", objects.entries.len());
                self.unknown(text);
            }
            Some(objects) if objects.status != Status::Ok => {
                let step = Step::new(0, SectionKind::Objects);
                self.violate_answer(life, step, objects.status, "reading the fields after recovery");
                return false;
            }
            _ => {}
        }
        true
    }

    fn judge_references(&mut self, entries: &[SlotEntry], references: &mut FollowedReferences<'a>) {
        for rule in [RuleId::OperationLost, RuleId::FreedObjectBack, RuleId::ContentChanged, RuleId::BadExtent] {
            self.out.judged.insert(rule);
        }
        if references.live.is_some() {
            self.out.judged.insert(RuleId::DanglingSlot);
        }
        let mut expected = self.history.slots().peekable();
        for entry in entries {
            while let Some(slot) = expected.next_if(|slot| *slot < entry.slot) {
                references.add(Holder::Slot(slot), None);
            }
            expected.next_if_eq(&entry.slot);
            references.add(Holder::Slot(entry.slot), Some(entry.location()));
        }
        expected.for_each(|slot| references.add(Holder::Slot(slot), None));
        while let Some(reference) = references.next() {
            self.judge_reference(reference, references);
        }
        self.tell_by_place(references);
        references.first_part.settle();
        self.judge_transactions(&references.first_part);
    }

    /// A slot whose object was moved by a reallocation may hold what fits before and after it. Where the twins before and after the
    /// commit have it at two places, its place tells.
    fn tell_by_place(&self, references: &mut FollowedReferences<'a>) {
        let commits: Vec<OperationIndex> = self.history.pending_commits().collect();
        let is_first = self.history.generations().len() == 1;
        let Some(twins) = self.twins.filter(|_| is_first && !commits.is_empty()) else { return };
        let life = references.life;
        for (index, holder, shown) in references.first_part.shown.iter_mut().filter(|(_, _, shown)| shown.is_none()) {
            let mut entries = life.slots.iter().flat_map(|slots| &slots.entries);
            let Some(entry) = entries.find(|entry| Some(entry.slot) == holder.slot()) else { continue };
            let place = Place { file: life.file_name(entry.file).unwrap_or("?").to_owned(), offset: entry.offset };
            if commits.contains(index) {
                *shown = twins.has_moved(self.history, *index, entry.slot, &place);
            }
        }
    }

    /// FL019: of a transaction all changes are there, or none. One that cannot be told is named.
    fn judge_transactions(&mut self, first_part: &FirstPart) {
        for index in self.history.pending_commits() {
            self.out.judged.insert(RuleId::TransactionInPart);
            let (done, missing) = (first_part.first_that(index, Some(true)), first_part.first_that(index, Some(false)));
            let (Some(done), Some(missing)) = (done, missing) else {
                if let Some(either) = first_part.first_that(index, None).filter(|_| done.or(missing).is_some()) {
                    let why = format!("{either} may be as before the transaction as well as after it");
                    self.not_judged(RuleId::TransactionInPart, why);
                }
                continue;
            };
            let text = format!(
                "operation {index} (commit) took effect in part: {done} is as after the transaction, {missing} as before"
            );
            let subject = Subject { slot: missing.slot(), operation: Some(index), ..Subject::default() };
            self.violate(Fact::TransactionInPart, subject, text);
        }
    }

    fn judge_reference(&mut self, reference: Reference, references: &mut FollowedReferences<'a>) {
        let history = self.history;
        let candidates = history.candidates(reference.holder, self.contract.fill);
        if references.is_graph() && candidates.are_pending() && reference.look == Look::First {
            return references.wait(Reference { look: Look::Pending, ..reference });
        }
        let Some(at) = reference.at else { return self.judge_null(reference.holder, &candidates, references) };
        let found = self.find(references, reference.holder, at);
        if references.live.is_some() {
            self.judge_target(&found, &candidates, references);
        }
        if !self.judge_set(&found, &candidates, reference.look, references) {
            references.wait(Reference { look: Look::Last, ..reference });
        }
    }

    fn find(&self, references: &FollowedReferences<'a>, holder: Holder, at: Location) -> Found<'a> {
        let file = references.life.file_name(at.file).unwrap_or("?");
        let block = references.live.as_ref().and_then(|live| live.containing(at.file, at.offset));
        let (offset, bytes) = block.map_or((at.offset, 0), |block| (block.offset, block.bytes));
        Found {
            holder,
            at,
            key: references.key(holder, at),
            file,
            capacity: block.map(|block| block.end() - at.offset),
            extent: Extent { place: Place { file: file.to_owned(), offset }, bytes },
        }
    }

    pub(super) fn subject(&self, found: &Found<'_>, operation: Option<OperationIndex>) -> Subject {
        Subject { slot: found.holder.slot(), operation, block: Some(found.extent.clone()), ..Subject::default() }
    }

    fn judge_null(&mut self, holder: Holder, candidates: &Candidates<'_>, references: &mut FollowedReferences<'a>) {
        let null = candidates.iter().filter(|candidate| candidate.object.is_none());
        references.first_part.note(holder, null);
        if candidates.may_be_null() {
            return;
        }
        for object in candidates.objects().take(1) {
            references.lose(object.id);
            let operation = object.placed_by;
            let bytes = bytes_of(object.bytes);
            let text = format!("{holder} is null, but operation {operation} put an object of {bytes} there");
            let subject = Subject { slot: holder.slot(), operation: Some(operation), ..Subject::default() };
            self.violate(Fact::Null(holder.into()), subject, text);
        }
    }

    /// FL008, and FL006 where two slots share a heap block.
    fn judge_target(
        &mut self,
        found: &Found<'_>,
        candidates: &Candidates<'_>,
        references: &mut FollowedReferences<'a>,
    ) {
        let holder = found.holder;
        let object = candidates.objects().next();
        if found.capacity.is_some() {
            if !references.is_graph() && self.may_be_handed_out(holder) {
                // Another thread may have been handed the heap block already, and have filled it.
                self.unsound.extend(found.key);
            }
            if references.is_graph() {
                references.reach(found.at);
            } else {
                self.judge_sharing(found, object.map(|object| object.placed_by), references);
            }
            return;
        }
        self.unsound.extend(found.key);
        if self.may_dangle(holder) {
            return;
        }
        let text = format!("{holder} points to {}, where no live heap block is", found.place());
        let subject = self.subject(found, object.map(|object| object.placed_by));
        self.violate(Fact::Dangling(holder.into()), subject, text);
        if let Some(object) = object.filter(|_| !candidates.may_be_null()) {
            references.lose(object.id);
            let operation = object.placed_by;
            let text = format!("{holder}: the object that operation {operation} put there has no live heap block");
            self.violate(Fact::BlockLost(holder.into()), self.subject(found, Some(operation)), text);
        }
    }

    /// FL006: each object has a heap block of its own.
    pub(super) fn judge_sharing(
        &mut self,
        found: &Found<'_>,
        operation: Option<OperationIndex>,
        references: &mut FollowedReferences<'a>,
    ) {
        let other = references.live.as_mut().and_then(|live| live.refer(found.at, found.holder));
        if let Some(other) = other.filter(|other| !self.is_being_freed(found.holder) && !self.is_being_freed(*other)) {
            let text = format!("{other} and {} refer to one heap block, {}", found.holder, found.place());
            let mut holders = [HolderKind::from(other), found.holder.into()];
            holders.sort_unstable();
            let [one, other] = holders;
            self.violate(Fact::BlockShared(one, other), self.subject(found, operation), text);
        }
    }

    /// With separate publication the slot is stored in a step of its own: while the free (or the move) is pending the slot may
    /// still name what was given back already.
    pub(super) fn is_being_freed(&self, holder: Holder) -> bool {
        self.contract.publish == Publish::Separate
            && self.history.is_pending_on(holder, &[OperationKind::Free, OperationKind::Reallocate])
    }

    /// What it names may be free after recovery. Not with a collector: what a slot names is reached, and so it is live.
    fn may_dangle(&self, holder: Holder) -> bool {
        self.is_being_freed(holder) && self.contract.leaks != Leaks::Collected
    }

    /// What it names may have been given back, and handed out to another thread that has filled it.
    fn may_be_handed_out(&self, holder: Holder) -> bool {
        self.is_being_freed(holder) && self.history.current().is_concurrent()
    }

    /// Size of the smallest object that the holder may hold.
    pub(super) fn smallest_size(&self, holder: impl Into<Holder>) -> Option<u64> {
        let candidates = self.history.candidates(holder, self.contract.fill);
        candidates.objects().map(|object| object.bytes).min()
    }
}

impl FirstPart {
    /// Notes what the holder shows of the operation that is pending on it: the candidates that fit what was found.
    pub fn note<'c>(&mut self, holder: Holder, fitting: impl Iterator<Item = Candidate<'c>>) {
        let states: Vec<(OperationIndex, bool)> = fitting.filter_map(|candidate| candidate.pending).collect();
        match states[..] {
            [] => {}
            [(index, has_happened)] => self.shown.push((index, holder, Some(has_happened))),
            [(index, _), ..] => self.shown.push((index, holder, None)),
        }
    }

    /// Of the pending operations that holders show: which have happened, and which left no mark that would tell.
    fn settle(&mut self) {
        let indices: BTreeSet<OperationIndex> = self.shown.iter().map(|(index, _, _)| *index).collect();
        for index in indices {
            match (self.first_that(index, Some(true)), self.first_that(index, Some(false))) {
                (Some(_), _) => self.happened.push(index),
                (None, None) => self.unclear.push(index),
                (None, Some(_)) => {}
            }
        }
    }

    /// The first holder that shows this of the operation.
    fn first_that(&self, index: OperationIndex, state: Option<bool>) -> Option<Holder> {
        let mut of_it = self.shown.iter().filter(|(other, _, shown)| *other == index && *shown == state);
        of_it.next().map(|(_, holder, _)| *holder)
    }
}
