// SPDX-License-Identifier: Apache-2.0
//! Slots against the history: FL004, FL005, FL008, FL009 and the parts of FL006 and FL007 that slots show.

use super::blocks::LiveBlocks;
use super::{Extent, Judge, Subject, message_about};
use crate::contract::{Leaks, Publish};
use crate::history::{Candidate, Candidates, ExpectedObject, OperationIndex, OperationKind, Phase};
use crate::pattern::{OBJECT_MASK, Segment};
use crate::report::{ContentEntry, Life, Place, SectionKind, SlotEntry, Stage, Status};
use crate::rule::RuleId;
use planted::Fault;

/// Which of the pending operations the recovered heap shows, and what else later stages need of the first part.
#[derive(Default)]
pub(super) struct Linearisation {
    /// Pending operations that have happened.
    pub happened: Vec<OperationIndex>,
    /// Pending operations whose slot may be in the state before as well as after.
    pub unclear: Vec<OperationIndex>,
    /// Bytes of live heap blocks that no slot refers to; `None`: without walk nobody knows.
    pub leaked_bytes: Option<u64>,
    /// Slots that must hold an object and do not refer to it.
    pub lost_slots: u64,
}

/// A slot with its object's whereabouts.
struct Found<'a> {
    entry: SlotEntry,
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
        format!("{} at {:#x}", self.file, self.entry.offset)
    }

    fn holds(&self, object: &ExpectedObject<'_>) -> bool {
        self.capacity.is_none_or(|capacity| capacity >= object.bytes)
    }
}

impl<'a> Judge<'a> {
    /// Life 0: slots, walk, check. `None` if the slots are not known.
    pub(super) fn judge_first_part(&mut self, life: &'a Life) -> Option<Linearisation> {
        self.out.judged.insert(RuleId::RecoveryFailed);
        let slots = match &life.slots {
            Some(slots) if slots.status == Status::Ok => slots,
            Some(slots) => {
                let text = format!(
                    "reading the slots after recovery answered {}{}",
                    slots.status,
                    message_about(life, SectionKind::Slots)
                );
                self.violate(RuleId::RecoveryFailed, Subject::default(), text);
                return None;
            }
            None if self.is_cut_short(0) => return None,
            None => {
                self.unknown("the heap report has no slots".to_owned());
                return None;
            }
        };
        let mut live = self.judge_walk(life, 0);
        let mut linearisation = Linearisation::default();
        if self.history.current().phase() == Phase::Creating {
            linearisation.happened.push(self.history.current().create_index());
        }
        self.judge_slots(life, &slots.entries, live.as_mut(), &mut linearisation);
        match &live {
            Some(live) => self.judge_leaks(live, &mut linearisation),
            None if !self.is_cut_short(0) => {
                self.judge_slot_overlap(life, &slots.entries);
                self.not_judged(RuleId::DanglingSlot, "there is no walk of the recovered heap");
                self.not_judged(RuleId::Leak, "there is no walk of the recovered heap");
            }
            None => {}
        }
        Some(linearisation)
    }

    fn judge_slots(
        &mut self,
        life: &'a Life,
        entries: &[SlotEntry],
        mut live: Option<&mut LiveBlocks<'a>>,
        linearisation: &mut Linearisation,
    ) {
        for rule in [RuleId::OperationLost, RuleId::FreedObjectBack, RuleId::ContentChanged, RuleId::BadExtent] {
            self.out.judged.insert(rule);
        }
        if live.is_some() {
            self.out.judged.insert(RuleId::DanglingSlot);
        }
        let mut expected = self.history.slots().peekable();
        if planted::is(Fault::CountSlots) && entries.len() == self.history.slots().count() {
            return;
        }
        for entry in entries {
            while let Some(slot) = expected.next_if(|slot| *slot < entry.slot) {
                self.judge_null_slot(slot, linearisation);
            }
            expected.next_if_eq(&entry.slot);
            let found = self.find(life, *entry, live.as_deref());
            let history = self.history;
            let candidates = history.candidates(entry.slot, self.contract.fill);
            if let Some(live) = live.as_deref_mut() {
                self.judge_target(&found, &candidates, live, linearisation);
            }
            self.judge_set_slot(&found, &candidates, linearisation);
        }
        for slot in expected {
            self.judge_null_slot(slot, linearisation);
        }
    }

    fn find(&self, life: &'a Life, entry: SlotEntry, live: Option<&LiveBlocks<'a>>) -> Found<'a> {
        let file = life.file_name(entry.file).unwrap_or("?");
        let block = live.and_then(|live| live.containing(entry.file, entry.offset));
        let (offset, bytes) = block.map_or((entry.offset, 0), |block| (block.offset, block.bytes));
        Found {
            entry,
            file,
            capacity: block.map(|block| block.end() - entry.offset),
            extent: Extent { place: Place { file: file.to_owned(), offset }, bytes },
        }
    }

    fn subject(&self, found: &Found<'_>, operation: Option<OperationIndex>) -> Subject {
        Subject { slot: Some(found.entry.slot), operation, block: Some(found.extent.clone()) }
    }

    fn judge_null_slot(&mut self, slot: u32, linearisation: &mut Linearisation) {
        let history = self.history;
        let candidates = history.candidates(slot, self.contract.fill);
        note_happened(candidates.iter().filter(|candidate| candidate.object.is_none()), linearisation);
        if candidates.may_be_null() {
            return;
        }
        linearisation.lost_slots += 1;
        for object in candidates.objects().take(1) {
            let operation = object.operation;
            let text =
                format!("slot {slot} is null, but operation {operation} put an object of {} bytes there", object.bytes);
            let subject = Subject { slot: Some(slot), operation: Some(operation), block: None };
            self.violate(RuleId::OperationLost, subject, text);
        }
    }

    /// FL008, and FL006 where two slots share a heap block.
    fn judge_target(
        &mut self,
        found: &Found<'_>,
        candidates: &Candidates<'_>,
        live: &mut LiveBlocks<'a>,
        linearisation: &mut Linearisation,
    ) {
        let slot = found.entry.slot;
        let operation = candidates.objects().next().map(|object| object.operation);
        if found.capacity.is_some() {
            let may_be_anothers = self.may_dangle(slot);
            if may_be_anothers && self.contract.threads > 1 {
                // Another thread may have been handed the heap block already, and have filled it.
                self.unsound_slots.insert(slot);
            }
            let other = live.refer(found.entry.file, found.entry.offset, slot);
            if let Some(other) = other.filter(|other| !may_be_anothers && !self.may_dangle(*other)) {
                let text = format!("slots {other} and {slot} refer to one heap block, {}", found.place());
                self.violate(RuleId::Overlap, self.subject(found, operation), text);
            }
            return;
        }
        self.unsound_slots.insert(slot);
        if self.may_dangle(slot) {
            return;
        }
        let text = format!("slot {slot} points to {}, where no live heap block is", found.place());
        self.violate(RuleId::DanglingSlot, self.subject(found, operation), text);
        if let Some(operation) = operation.filter(|_| !candidates.may_be_null()) {
            linearisation.lost_slots += 1;
            let text = format!("slot {slot}: the object that operation {operation} put there has no live heap block");
            self.violate(RuleId::OperationLost, self.subject(found, Some(operation)), text);
        }
    }

    /// With separate publication the slot is stored in a step of its own: while the free (or the move) is pending the slot may
    /// still name what is free already.
    fn may_dangle(&self, slot: u32) -> bool {
        let mut pending = self.history.current().pending().iter().map(|pending| &pending.operation);
        self.contract.publish == Publish::Separate
            && pending.any(|operation| {
                operation.slot == slot && matches!(operation.kind, OperationKind::Free | OperationKind::Reallocate)
            })
    }

    /// A slot that is not null: FL005, FL007, FL009.
    fn judge_set_slot(&mut self, found: &Found<'a>, candidates: &Candidates<'_>, linearisation: &mut Linearisation) {
        let slot = found.entry.slot;
        let objects = || candidates.iter().filter(|candidate| candidate.object.is_some());
        if objects().next().is_none() {
            self.unsound_slots.insert(slot);
            return self.judge_unexpected(found);
        }
        self.judge_place(found);
        if self.unsound_slots.contains(&slot) {
            return note_happened(objects(), linearisation);
        }
        let errors = objects().map(|candidate| (candidate, self.object_error(found, &candidate)));
        let errors: Vec<_> = errors.collect();
        let right = errors.iter().filter(|(_, error)| error.is_none()).map(|(candidate, _)| *candidate);
        // Without walk nobody can tell whether the heap block is free already, and may be handed out and filled again.
        let may_be_anothers = found.capacity.is_none() && self.may_dangle(slot);
        if may_be_anothers {
            self.unsound_slots.insert(slot);
        }
        if right.clone().next().is_some() {
            return note_happened(right, linearisation);
        }
        note_happened(objects(), linearisation);
        if may_be_anothers {
            return;
        }
        self.unsound_slots.insert(slot);
        // The state that is right for longest says best what is wrong.
        let nearest = errors.iter().max_by_key(|(_, error)| *error);
        match nearest.and_then(|(candidate, error)| candidate.object.zip(*error)) {
            Some((object, ObjectError::TooSmall)) => self.judge_too_small(found, &object),
            Some((object, ObjectError::Content(at))) => self.judge_wrong_content(found, &object, at),
            None => {}
        }
    }

    fn object_error(&self, found: &Found<'_>, candidate: &Candidate<'_>) -> Option<ObjectError> {
        let object = candidate.object?;
        if !found.holds(&object) {
            return Some(ObjectError::TooSmall);
        }
        self.content_error(found, &object).map(ObjectError::Content)
    }

    fn judge_unexpected(&mut self, found: &Found<'_>) {
        let slot = found.entry.slot;
        let (operation, text) = match self.history.freed_object(slot) {
            Some((_, free)) => (Some(*free), format!("which operation {free} freed")),
            None => (None, "where no operation put an object".to_owned()),
        };
        let text = format!("slot {slot} points to {}, but must be null: it is a slot {text}", found.place());
        self.violate(RuleId::FreedObjectBack, self.subject(found, operation), text);
    }

    fn judge_place(&mut self, found: &Found<'_>) {
        let (slot, offset) = (found.entry.slot, found.entry.offset);
        let alignment = self.shape.alignment.max(1);
        if offset % alignment != 0 {
            let text = format!("slot {slot}: the object in {} is not aligned to {alignment} bytes", found.place());
            self.violate(RuleId::BadExtent, self.subject(found, None), text);
        }
    }

    fn judge_too_small(&mut self, found: &Found<'_>, object: &ExpectedObject<'_>) {
        let (slot, operation) = (found.entry.slot, object.operation);
        let capacity = found.capacity.unwrap_or(0);
        let asked = format!(
            "operation {operation} asked for {} bytes, but the heap block in {} holds {capacity}",
            object.bytes,
            found.place()
        );
        let subject = self.subject(found, Some(operation));
        if object.previous_bytes.is_some_and(|bytes| bytes <= capacity) {
            let text = format!("slot {slot}: a returned reallocate is lost: {asked}, enough for the size before");
            return self.violate(RuleId::OperationLost, subject, text);
        }
        self.violate(RuleId::BadExtent, subject, format!("slot {slot}: {asked}"));
    }

    /// FL009, or FL004 and FL005 where the slot holds the object that was freed before this one was allocated.
    fn judge_wrong_content(&mut self, found: &Found<'_>, object: &ExpectedObject<'_>, at: u64) {
        let (slot, operation) = (found.entry.slot, object.operation);
        if let Some((freed, free)) = self.history.freed_object(slot) {
            let differs = self.content.differs(found.file, found.entry.offset, &freed.segments, freed.bytes);
            if freed.bytes > at && differs.is_none() {
                let text = format!("slot {slot} holds the object that operation {free} freed, in {}", found.place());
                self.violate(RuleId::FreedObjectBack, self.subject(found, Some(*free)), text);
                let text = format!(
                    "slot {slot}: the object that operation {operation} put there is lost: an older one is there"
                );
                return self.violate(RuleId::OperationLost, self.subject(found, Some(operation)), text);
            }
        }
        let text = format!(
            "slot {slot}: byte {at} of the {} bytes that operation {operation} left in {} is wrong after recovery",
            object.bytes,
            found.place()
        );
        self.violate(RuleId::ContentChanged, self.subject(found, Some(operation)), text);
    }

    /// The first wrong byte of the object in the crash image, unless recovery has put it right: what life 1 saw counts more.
    fn content_error(&self, found: &Found<'_>, object: &ExpectedObject<'_>) -> Option<u64> {
        if object.checked_bytes == 0 || planted::is(Fault::SizesOnly) {
            return None;
        }
        let at = self.content.differs(found.file, found.entry.offset, object.segments, object.checked_bytes)?;
        let recovered = self.report.life(1).and_then(|life| life.contents_after(Stage::Recovery));
        let is_repaired = recovered.is_some_and(|contents| {
            is_whole_word(object, at) && uncovered(&contents.entries, found.entry.slot, object).is_none()
        });
        (!is_repaired).then_some(at)
    }

    /// FL006 without walk: objects in slots must not overlap, as far as their sizes are known.
    fn judge_slot_overlap(&mut self, life: &'a Life, entries: &[SlotEntry]) {
        self.out.judged.insert(RuleId::Overlap);
        let mut extents: Vec<(u32, u64, u64, u32)> = Vec::new();
        for entry in entries.iter().filter(|entry| !self.may_dangle(entry.slot)) {
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
                let found = self.find(life, SlotEntry { slot, file: extent.0, offset: extent.1 }, None);
                let text = format!("the objects of slots {other} and {slot} overlap in {}", found.place());
                self.violate(RuleId::Overlap, self.subject(&found, None), text);
            }
            last = Some(last.filter(|other| other.0 == extent.0 && other.2 > extent.2).unwrap_or(extent));
        }
    }

    fn judge_slot_bounds(&mut self, life: &'a Life, (file, offset, end, slot): (u32, u64, u64, u32)) {
        let limit = self.shape.limit_bytes;
        if end > limit {
            let found = self.find(life, SlotEntry { slot, file, offset }, None);
            let text =
                format!("slot {slot}: the object in {} ends past the heap's limit of {limit} bytes", found.place());
            self.violate(RuleId::BadExtent, self.subject(&found, None), text);
        }
    }

    /// Size of the smallest object that the slot may hold.
    pub(super) fn smallest_size(&self, slot: u32) -> Option<u64> {
        let candidates = self.history.candidates(slot, self.contract.fill);
        candidates.objects().map(|object| object.bytes).min()
    }

    /// FL010: live heap blocks that no slot refers to.
    fn judge_leaks(&mut self, live: &LiveBlocks<'a>, linearisation: &mut Linearisation) {
        self.out.judged.insert(RuleId::Leak);
        let leaked: Vec<_> = live.unreferenced().collect();
        linearisation.leaked_bytes = Some(leaked.iter().map(|block| block.bytes).fold(0, u64::saturating_add));
        let permitted = self.permitted_leaks();
        let count = leaked.len() as u64;
        if count <= permitted.saturating_add(linearisation.lost_slots) {
            return;
        }
        let Some(first) = leaked.first() else { return };
        let block = live.extent(first);
        let text = format!(
            "{count} live heap blocks that no slot refers to, {permitted} permitted; \
             the first has {} bytes in {} at {:#x}",
            block.bytes, block.place.file, block.place.offset
        );
        let operation = self.history.current().pending().first().map(|pending| pending.operation.index);
        self.violate(RuleId::Leak, Subject { slot: None, operation, block: Some(block) }, text);
    }

    /// How many heap blocks the contract lets a crash now leak.
    pub(super) fn permitted_leaks(&self) -> u64 {
        match self.contract.leaks {
            Leaks::None => 0,
            Leaks::Pending => self.history.pending_operations(),
            // An object that a stale word reaches may stay, and stale words name only objects that were freed or moved.
            Leaks::Collected => self.history.stale_objects(),
        }
    }
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
pub(super) fn uncovered(entries: &[ContentEntry], slot: u32, object: &ExpectedObject<'_>) -> Option<u64> {
    let first = entries.partition_point(|entry| entry.slot < slot);
    let mut start: u64 = 0;
    for segment in object.segments {
        let end = segment.end.min(object.checked_bytes);
        if start % 8 != 0 && start.checked_next_multiple_of(8) == Some(end - end % 8) {
            // No whole word of this segment, and two shared ones in a row: where nothing tells an object's end, the search
            // for the pattern gives up here.
            return None;
        }
        if let Some(at) = uncovered_segment(&entries[first..], slot, *segment, start, end) {
            return Some(at);
        }
        start = segment.end;
    }
    None
}

fn uncovered_segment(entries: &[ContentEntry], slot: u32, segment: Segment, start: u64, end: u64) -> Option<u64> {
    let mut at = start.checked_next_multiple_of(8)?;
    let end = end - end % 8;
    for entry in entries.iter().take_while(|entry| entry.slot == slot) {
        let is_right = entry.object & OBJECT_MASK == segment.object & OBJECT_MASK;
        if is_right && entry.from <= at && at < entry.to {
            at = entry.to;
        }
    }
    (at < end).then_some(at)
}
