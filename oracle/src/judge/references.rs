// SPDX-License-Identifier: Apache-2.0
//! References against the history: FL004, FL005, FL008, FL009, FL010 and the parts of FL006 and FL007 that references show. Slots
//! and fields of objects are judged alike; see [`super::walk`] for the order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::walk::{Identity, Look, Reference, Walk};
use super::{Extent, Judge, Leaked, Subject};
use crate::contract::{Leaks, Publish};
use crate::fact::{ExtentError, Fact, HolderKind, Step};
use crate::history::{Candidate, Candidates, ExpectedObject, Holder, ObjectId, OperationIndex, OperationKind, Phase};
use crate::pattern::{OBJECT_MASK, Segment};
use crate::report::{Block, ContentEntry, Life, Location, Place, SectionKind, SlotEntry, Stage, Status};
use crate::rule::RuleId;
use planted::Fault;

/// Which of the pending operations the recovered heap shows, and what else later stages need of the first part.
#[derive(Default)]
pub(super) struct Linearisation {
    /// Pending operations that have happened.
    pub happened: Vec<OperationIndex>,
    /// Pending operations whose holder may be in the state before as well as after.
    pub unclear: Vec<OperationIndex>,
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
    file: &'a str,
    /// Bytes from the object's start to the end of its heap block; `None`: not known.
    capacity: Option<u64>,
    /// The heap block, or the place where it should be.
    extent: Extent,
}

/// Why an object is not as a candidate has it, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectError {
    TooSmall,
    /// First wrong byte.
    Content(u64),
}

impl Found<'_> {
    fn place(&self) -> String {
        format!("{} at {:#x}", self.file, self.at.offset)
    }

    fn holds(&self, object: &ExpectedObject<'_>) -> bool {
        self.capacity.is_none_or(|capacity| capacity >= object.bytes)
    }
}

impl<'a> Judge<'a> {
    /// Life 0: slots, fields, walk, check. `None` if the slots are not known.
    pub(super) fn judge_first_part(&mut self, life: &'a Life) -> Option<Linearisation> {
        self.out.judged.insert(RuleId::RecoveryFailed);
        let entries = self.judge_slot_list(life)?;
        if !self.judge_object_list(life) {
            return None;
        }
        let live = self.judge_walk(life, 0);
        let mut walk = Walk::new(life, live);
        if self.history.current().phase() == Phase::Creating {
            walk.linearisation.happened.push(self.history.current().create_index());
        }
        self.judge_references(entries, &mut walk);
        self.count_lost(&mut walk);
        let is_cut = life.objects.as_ref().is_some_and(|objects| objects.status == Status::OutOfMemory);
        if walk.live.is_some() && is_cut && self.contract.leaks != Leaks::Collected {
            self.not_judged(RuleId::Leak, "the report does not list all objects");
        } else if walk.live.is_some() {
            self.judge_leaks(&mut walk);
        } else if !self.is_cut_short(0) {
            self.judge_slot_overlap(life, entries);
            self.not_judged(RuleId::DanglingSlot, "there is no walk of the recovered heap");
            self.not_judged(RuleId::Leak, "there is no walk of the recovered heap");
        }
        Some(walk.linearisation)
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

    fn judge_references(&mut self, entries: &[SlotEntry], walk: &mut Walk<'a>) {
        for rule in [RuleId::OperationLost, RuleId::FreedObjectBack, RuleId::ContentChanged, RuleId::BadExtent] {
            self.out.judged.insert(rule);
        }
        if walk.live.is_some() {
            self.out.judged.insert(RuleId::DanglingSlot);
        }
        let mut expected = self.history.slots().peekable();
        if planted::is(Fault::CountSlots) && entries.len() == self.history.slots().count() {
            return;
        }
        for entry in entries {
            while let Some(slot) = expected.next_if(|slot| *slot < entry.slot) {
                walk.add(Holder::Slot(slot), None);
            }
            expected.next_if_eq(&entry.slot);
            walk.add(Holder::Slot(entry.slot), Some(entry.location()));
        }
        expected.for_each(|slot| walk.add(Holder::Slot(slot), None));
        while let Some(reference) = walk.next() {
            self.judge_reference(reference, walk);
        }
    }

    fn judge_reference(&mut self, reference: Reference, walk: &mut Walk<'a>) {
        let history = self.history;
        let candidates = history.candidates(reference.holder, self.contract.fill);
        if walk.is_graph() && candidates.are_pending() && reference.look == Look::First {
            return walk.wait(Reference { look: Look::Pending, ..reference });
        }
        let Some(at) = reference.at else { return self.judge_null(reference.holder, &candidates, walk) };
        let found = self.find(walk, reference.holder, at);
        if walk.live.is_some() {
            self.judge_target(&found, &candidates, walk);
        }
        if !self.judge_set(&found, &candidates, reference.look, walk) {
            walk.wait(Reference { look: Look::Last, ..reference });
        }
    }

    fn find(&self, walk: &Walk<'a>, holder: Holder, at: Location) -> Found<'a> {
        let file = walk.life.file_name(at.file).unwrap_or("?");
        let block = walk.live.as_ref().and_then(|live| live.containing(at.file, at.offset));
        let (offset, bytes) = block.map_or((at.offset, 0), |block| (block.offset, block.bytes));
        Found {
            holder,
            at,
            key: walk.key(holder, at),
            file,
            capacity: block.map(|block| block.end() - at.offset),
            extent: Extent { place: Place { file: file.to_owned(), offset }, bytes },
        }
    }

    fn subject(&self, found: &Found<'_>, operation: Option<OperationIndex>) -> Subject {
        Subject { slot: found.holder.slot(), operation, block: Some(found.extent.clone()), ..Subject::default() }
    }

    fn judge_null(&mut self, holder: Holder, candidates: &Candidates<'_>, walk: &mut Walk<'a>) {
        let null = candidates.iter().filter(|candidate| candidate.object.is_none());
        note_happened(null, &mut walk.linearisation);
        if candidates.may_be_null() {
            return;
        }
        for object in candidates.objects().take(1) {
            walk.lose(object.id);
            let operation = object.placed_by;
            let text =
                format!("{holder} is null, but operation {operation} put an object of {} bytes there", object.bytes);
            let subject = Subject { slot: holder.slot(), operation: Some(operation), ..Subject::default() };
            self.violate(Fact::Null(holder.into()), subject, text);
        }
    }

    /// FL008, and FL006 where two slots share a heap block.
    fn judge_target(&mut self, found: &Found<'_>, candidates: &Candidates<'_>, walk: &mut Walk<'a>) {
        let holder = found.holder;
        let object = candidates.objects().next();
        if found.capacity.is_some() {
            if !walk.is_graph() && self.may_be_handed_out(holder) {
                // Another thread may have been handed the heap block already, and have filled it.
                self.unsound.extend(found.key);
            }
            if walk.is_graph() {
                walk.reach(found.at);
            } else {
                self.judge_sharing(found, object.map(|object| object.placed_by), walk);
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
            walk.lose(object.id);
            let operation = object.placed_by;
            let text = format!("{holder}: the object that operation {operation} put there has no live heap block");
            self.violate(Fact::BlockLost(holder.into()), self.subject(found, Some(operation)), text);
        }
    }

    /// FL006: each object has a heap block of its own.
    fn judge_sharing(&mut self, found: &Found<'_>, operation: Option<OperationIndex>, walk: &mut Walk<'a>) {
        let other = walk.live.as_mut().and_then(|live| live.refer(found.at, found.holder));
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
    fn is_being_freed(&self, holder: Holder) -> bool {
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

    /// A holder that is not null: FL004, FL005, FL006, FL007, FL009. False: to be looked at again when more is known.
    fn judge_set(&mut self, found: &Found<'a>, candidates: &Candidates<'_>, look: Look, walk: &mut Walk<'a>) -> bool {
        let objects: Vec<Candidate<'_>> = candidates.iter().filter(|candidate| candidate.object.is_some()).collect();
        if objects.is_empty() {
            if !walk.is_graph() {
                self.unsound.extend(found.key);
            }
            self.judge_unexpected(found);
            return true;
        }
        let Some(key) = found.key.filter(|key| !self.unsound.contains(key)) else {
            self.judge_unseen(found, walk);
            note_happened(objects.into_iter(), &mut walk.linearisation);
            return true;
        };
        let is_last = !walk.is_graph() || look == Look::Last;
        match walk.identity(key, objects.clone()) {
            Identity::Known(known) => note_happened(known.into_iter(), &mut walk.linearisation),
            Identity::Open(open) => return self.judge_object(found, &open, is_last, walk),
            Identity::Another(_) | Identity::Elsewhere if planted::is(Fault::IdentityUnchecked) => {}
            Identity::Another(_) | Identity::Elsewhere if !is_last => return false,
            Identity::Another(other) => self.judge_anothers_place(found, &objects, other, walk),
            Identity::Elsewhere => self.judge_wrong_place(found, &objects, walk),
        }
        true
    }

    /// The object is nowhere else: is it here? False: perhaps.
    fn judge_object(
        &mut self,
        found: &Found<'a>,
        objects: &[Candidate<'_>],
        is_last: bool,
        walk: &mut Walk<'a>,
    ) -> bool {
        let errors: Vec<_> = objects.iter().map(|candidate| (candidate, self.object_error(found, candidate))).collect();
        let right = errors.iter().filter(|(_, error)| error.is_none()).map(|(candidate, _)| **candidate);
        // Without walk nobody can tell whether the heap block is free already, and may be handed out and filled again.
        let may_be_anothers = found.capacity.is_none() && self.is_being_freed(found.holder);
        let is_right = right.clone().next().is_some();
        if !is_right && !is_last && !may_be_anothers {
            return false;
        }
        self.judge_place(found);
        // The state that is right for longest says best what is wrong.
        let nearest = errors.iter().max_by_key(|(_, error)| error.map_or((true, None), |error| (false, Some(error))));
        let nearest = nearest.and_then(|(candidate, error)| candidate.object.map(|object| (object, *error)));
        match is_right {
            true => note_happened(right, &mut walk.linearisation),
            false => note_happened(objects.iter().copied(), &mut walk.linearisation),
        }
        if walk.is_graph() {
            self.judge_sharing(found, nearest.map(|(object, _)| object.placed_by), walk);
        }
        self.learn(walk, found, nearest.and_then(|(object, _)| object.id));
        if may_be_anothers || !is_right {
            self.unsound.extend(found.key);
        }
        match nearest.filter(|_| !may_be_anothers) {
            Some((object, Some(ObjectError::TooSmall))) => self.judge_too_small(found, &object),
            Some((object, Some(ObjectError::Content(at)))) => self.judge_wrong_content(found, &object, at),
            _ => {}
        }
        true
    }

    /// A live heap block that the report lists no object of, though a slot reaches it.
    fn judge_unseen(&mut self, found: &Found<'_>, walk: &Walk<'a>) {
        let is_listed = found.key.is_some() || found.capacity.is_none();
        if !is_listed && walk.life.objects.as_ref().is_some_and(|objects| objects.status == Status::Ok) {
            self.unknown(format!(
                "{} points to {}, which the heap report lists no object of",
                found.holder,
                found.place()
            ));
        }
        if found.key.is_some() {
            self.judge_place(found);
        }
    }

    /// The holder points to the place of another object than the one it must hold.
    fn judge_anothers_place(
        &mut self,
        found: &Found<'_>,
        objects: &[Candidate<'_>],
        other: ObjectId,
        walk: &mut Walk<'a>,
    ) {
        note_happened(objects.iter().copied(), &mut walk.linearisation);
        let Some(object) = objects.iter().find_map(|candidate| candidate.object) else { return };
        walk.lose(object.id);
        let (holder, operation) = (found.holder, object.placed_by);
        let held_before = self.history.previous(holder).map(|previous| previous.object.id);
        if held_before == Some(other) {
            let text =
                format!("{holder} still points to what it held before operation {operation}, in {}", found.place());
            return self.violate(Fact::PlaceOfOlder(holder.into()), self.subject(found, Some(operation)), text);
        }
        let text = format!(
            "{holder} points to {}, where object {other} is: two objects that operations left are one",
            found.place()
        );
        self.violate(Fact::ObjectsAreOne(holder.into()), self.subject(found, Some(operation)), text);
    }

    /// The object that the holder must hold is at another place than the one it points to, where no other object is expected.
    fn judge_wrong_place(&mut self, found: &Found<'_>, objects: &[Candidate<'_>], walk: &mut Walk<'a>) {
        note_happened(objects.iter().copied(), &mut walk.linearisation);
        let is_right = |candidate: &&Candidate<'_>| self.object_error(found, candidate).is_none();
        let Some(object) = objects.iter().find(is_right).or(objects.first()).and_then(|candidate| candidate.object)
        else {
            return;
        };
        let (holder, operation) = (found.holder, object.placed_by);
        let subject = self.subject(found, Some(operation));
        if objects.iter().any(|candidate| self.object_error(found, candidate).is_none()) {
            let text =
                format!("{holder} points to a second object like the one that it must hold, in {}", found.place());
            return self.violate(Fact::ObjectTwice(holder.into()), subject, text);
        }
        let text =
            format!("{holder} points to {}, but operation {operation} made it hold an object elsewhere", found.place());
        self.violate(Fact::ObjectElsewhere(holder.into()), subject, text);
    }

    fn object_error(&self, found: &Found<'_>, candidate: &Candidate<'_>) -> Option<ObjectError> {
        let object = candidate.object?;
        if !found.holds(&object) {
            return Some(ObjectError::TooSmall);
        }
        self.content_error(found, &object).map(ObjectError::Content)
    }

    fn judge_unexpected(&mut self, found: &Found<'_>) {
        let holder = found.holder;
        let (fact, operation, why) = match self.history.previous(holder) {
            Some(previous) => {
                let (operation, kind) = (previous.operation, previous.kind.name());
                let why = format!("operation {operation} ({kind}) made it so");
                (Fact::SetAgain(holder.into()), Some(operation), why)
            }
            None => (Fact::NeverSet(holder.into()), None, "no operation put an object there".to_owned()),
        };
        let text = format!("{holder} points to {}, but must be null: {why}", found.place());
        self.violate(fact, self.subject(found, operation), text);
    }

    fn judge_place(&mut self, found: &Found<'_>) {
        let alignment = self.shape.alignment.max(1);
        if found.at.offset % alignment != 0 {
            let text = format!("{}: the object in {} is not aligned to {alignment} bytes", found.holder, found.place());
            let fact = Fact::ObjectExtent(found.holder.into(), ExtentError::Misaligned);
            self.violate(fact, self.subject(found, None), text);
        }
    }

    fn judge_too_small(&mut self, found: &Found<'_>, object: &ExpectedObject<'_>) {
        let (holder, operation) = (found.holder, object.operation);
        let capacity = found.capacity.unwrap_or(0);
        let asked = format!(
            "operation {operation} asked for {} bytes, but the heap block in {} holds {capacity}",
            object.bytes,
            found.place()
        );
        let subject = self.subject(found, Some(operation));
        if object.previous_bytes.is_some_and(|bytes| bytes <= capacity) {
            let text = format!("{holder}: a returned reallocate is lost: {asked}, enough for the size before");
            return self.violate(Fact::ReallocationLost(holder.into()), subject, text);
        }
        let fact = Fact::ObjectExtent(holder.into(), ExtentError::TooSmall);
        self.violate(fact, subject, format!("{holder}: {asked}"));
    }

    /// FL009, or FL004 where the holder holds what it did before, and FL005 where that was freed.
    fn judge_wrong_content(&mut self, found: &Found<'_>, object: &ExpectedObject<'_>, at: u64) {
        let (holder, operation) = (found.holder, object.operation);
        if let Some(previous) = self.history.previous(holder) {
            let (older, by) = (&previous.object, previous.operation);
            let differs = self.content.differs(found.file, found.at.offset, &older.segments, older.bytes);
            if older.bytes > at && differs.is_none() {
                if previous.kind == OperationKind::Free {
                    let text = format!("{holder} holds the object that operation {by} freed, in {}", found.place());
                    self.violate(Fact::FreedForNew(holder.into()), self.subject(found, Some(by)), text);
                }
                let placed_by = object.placed_by;
                let text =
                    format!("{holder}: the object that operation {placed_by} put there is lost: an older one is there");
                let subject = self.subject(found, Some(placed_by));
                return self.violate(Fact::ContentOfOlder(holder.into()), subject, text);
            }
        }
        let text = format!(
            "{holder}: byte {at} of the {} bytes that operation {operation} left in {} is wrong after recovery",
            object.bytes,
            found.place()
        );
        let fact = Fact::ContentWrong(holder.into(), Step::new(0, SectionKind::Contents));
        self.violate(fact, self.subject(found, Some(operation)), text);
    }

    /// The first wrong byte of the object in the crash image, unless recovery has put it right: what life 1 saw counts more.
    fn content_error(&self, found: &Found<'_>, object: &ExpectedObject<'_>) -> Option<u64> {
        if object.checked_bytes == 0 || planted::is(Fault::SizesOnly) {
            return None;
        }
        let at = self.content.differs(found.file, found.at.offset, object.segments, object.checked_bytes)?;
        let recovered = self.report.life(1).and_then(|life| life.contents_after(Stage::Recovery));
        let is_repaired = recovered.zip(found.key).is_some_and(|(contents, key)| {
            is_whole_word(object, at) && uncovered(&contents.entries, key, object).is_none()
        });
        (!is_repaired).then_some(at)
    }

    /// FL006 without walk: objects in slots must not overlap, as far as their sizes are known.
    fn judge_slot_overlap(&mut self, life: &'a Life, entries: &[SlotEntry]) {
        self.out.judged.insert(RuleId::Overlap);
        let mut extents: Vec<(u32, u64, u64, u32)> = Vec::new();
        for entry in entries.iter().filter(|entry| !self.is_being_freed(Holder::Slot(entry.slot))) {
            let bytes = self.smallest_size(entry.slot).unwrap_or(1);
            extents.push((entry.file, entry.offset, entry.offset.saturating_add(bytes), entry.slot));
        }
        extents.sort_unstable();
        for extent in &extents {
            self.judge_slot_bounds(life, *extent);
        }
        let mut last: Option<(u32, u64, u64, u32)> = None;
        for extent in extents {
            if let Some(other) = last.filter(|other| other.0 == extent.0 && extent.1 < other.2) {
                let (slot, other) = (extent.3, other.3);
                let place = slot_place(life, extent);
                let text = format!("the objects of slots {other} and {slot} overlap in {place}");
                self.violate(Fact::ObjectsOverlap, slot_subject(life, extent), text);
            }
            last = Some(last.filter(|other| other.0 == extent.0 && other.2 > extent.2).unwrap_or(extent));
        }
    }

    fn judge_slot_bounds(&mut self, life: &'a Life, extent: (u32, u64, u64, u32)) {
        let (limit, slot) = (self.shape.limit_bytes, extent.3);
        if extent.2 > limit {
            let place = slot_place(life, extent);
            let text = format!("slot {slot}: the object in {place} ends past the heap's limit of {limit} bytes");
            let fact = Fact::ObjectExtent(HolderKind::Slot, ExtentError::PastEnd);
            self.violate(fact, slot_subject(life, extent), text);
        }
    }

    /// Size of the smallest object that the holder may hold.
    pub(super) fn smallest_size(&self, holder: impl Into<Holder>) -> Option<u64> {
        let candidates = self.history.candidates(holder, self.contract.fill);
        candidates.objects().map(|object| object.bytes).min()
    }

    /// FL010: live heap blocks that no slot reaches, through fields or without.
    fn judge_leaks(&mut self, walk: &mut Walk<'a>) {
        self.out.judged.insert(RuleId::Leak);
        let Some(live) = &walk.live else { return };
        let unreached: Vec<Block> = live.unreferenced().collect();
        walk.linearisation.leaked_bytes = Some(unreached.iter().map(|block| block.bytes).fold(0, u64::saturating_add));
        walk.linearisation.leaked_blocks = unreached.len() as u64;
        let leaked = self.not_retained(walk.life, unreached);
        let permitted = self.permitted_leaks(&walk.linearisation);
        let count = leaked.len() as u64;
        let Some(first) = leaked.first() else { return };
        let of_pending = self.leaks_of_pending();
        let blocks = leaked.iter().map(|block| live.extent(block)).collect();
        self.out.leaks = Some(Arc::new(Leaked { blocks, of_pending }));
        if count <= permitted.saturating_add(walk.linearisation.lost_objects) {
            return;
        }
        let (block, plural) = (live.extent(first), if count == 1 { "" } else { "s" });
        let text = format!(
            "{count} live heap block{plural} that no slot refers to, {permitted} permitted; \
             the first has {} bytes in {} at {:#x}",
            block.bytes, block.place.file, block.place.offset
        );
        let operation = self.history.current().pending().first().map(|pending| pending.operation.index);
        self.violate(Fact::Leaked, Subject { operation, block: Some(block), ..Subject::default() }, text);
    }

    /// A conservative collector keeps what a stale word reaches: the runner says what that is.
    fn not_retained(&mut self, life: &Life, mut unreached: Vec<Block>) -> Vec<Block> {
        if self.contract.leaks != Leaks::Collected || unreached.is_empty() {
            return unreached;
        }
        match &life.retained {
            Some(_) if planted::is(Fault::RetainAll) => unreached.clear(),
            Some(retained) if retained.status == Status::Ok => {
                let kept: BTreeSet<_> = retained.blocks.iter().map(Block::location).collect();
                unreached.retain(|block| !kept.contains(&block.location()));
            }
            _ if self.is_cut_short(0) => unreached.clear(),
            _ => {
                self.unknown("the heap report does not say what stale words keep from being collected".to_owned());
                unreached.clear();
            }
        }
        unreached
    }

    fn leaks_of_pending(&self) -> u64 {
        if self.contract.leaks == Leaks::Pending { self.history.pending_operations() } else { 0 }
    }

    /// How many heap blocks the contract lets a crash now leak, besides those that stale words retain.
    pub(super) fn permitted_leaks(&self, shown: &Linearisation) -> u64 {
        // Without a collector what the workload drops stays for good.
        let happened: Vec<OperationIndex> = shown.happened.iter().chain(&shown.unclear).copied().collect();
        let dropped = self.history.garbage_objects(&happened);
        match self.contract.leaks {
            Leaks::None | Leaks::Pending => self.leaks_of_pending() + dropped,
            Leaks::Collected if planted::is(Fault::GarbageOfACrashPasses) => dropped,
            Leaks::Collected => self.history.garbage_left_by_close(&shown.happened),
        }
    }
}

fn slot_place(life: &Life, (file, offset, ..): (u32, u64, u64, u32)) -> String {
    format!("{} at {offset:#x}", life.file_name(file).unwrap_or("?"))
}

fn slot_subject(life: &Life, (file, offset, _, slot): (u32, u64, u64, u32)) -> Subject {
    let file = life.file_name(file).unwrap_or("?").to_owned();
    let block = Some(Extent { place: Place { file, offset }, bytes: 0 });
    Subject { slot: Some(slot), block, ..Subject::default() }
}

/// Notes which of the pending operations has happened, given the candidates that fit what was found.
fn note_happened<'c>(fitting: impl Iterator<Item = Candidate<'c>>, linearisation: &mut Linearisation) {
    let states: Vec<(OperationIndex, bool)> = fitting.filter_map(|candidate| candidate.pending).collect();
    match states[..] {
        [] | [(_, false)] => {}
        [(index, true)] => linearisation.happened.push(index),
        [(index, _), ..] => linearisation.unclear.push(index),
    }
}

/// The word that the byte lies in belongs to one segment and to the promised part, so that contents can tell about it.
fn is_whole_word(object: &ExpectedObject<'_>, at: u64) -> bool {
    let word = at - at % 8;
    let Some(end) = word.checked_add(8).filter(|end| *end <= object.checked_bytes) else { return false };
    !object.segments.iter().any(|segment| word < segment.end && segment.end < end)
}

/// The first promised byte of the object that the contents do not show.
///
/// Contents are found by looking for the pattern, which takes whole words: a word that two segments share, or that is not promised
/// to its end, is left to [`super::ContentSource`].
pub(super) fn uncovered(entries: &[ContentEntry], key: u32, object: &ExpectedObject<'_>) -> Option<u64> {
    let first = entries.partition_point(|entry| entry.slot < key);
    let mut start: u64 = 0;
    for segment in object.segments {
        let end = segment.end.min(object.checked_bytes);
        if start % 8 != 0 && start.checked_next_multiple_of(8) == Some(end - end % 8) {
            // No whole word of this segment, and two shared ones in a row: where nothing tells an object's end, the search
            // for the pattern gives up here.
            return None;
        }
        if let Some(at) = uncovered_segment(&entries[first..], key, *segment, start, end) {
            return Some(at);
        }
        start = segment.end;
    }
    None
}

fn uncovered_segment(entries: &[ContentEntry], key: u32, segment: Segment, start: u64, end: u64) -> Option<u64> {
    let mut at = start.checked_next_multiple_of(8)?;
    let end = end - end % 8;
    for entry in entries.iter().take_while(|entry| entry.slot == key) {
        let is_right = entry.object & OBJECT_MASK == segment.object & OBJECT_MASK;
        if is_right && entry.from <= at && at < entry.to {
            at = entry.to;
        }
    }
    (at < end).then_some(at)
}
