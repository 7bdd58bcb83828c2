// SPDX-License-Identifier: Apache-2.0
//! What comes after the first recovery: FL003 and FL009 in later lives, FL012's stages and FL013.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::LiveBlocks;
use super::slots::{Linearisation, uncovered};
use super::{Extent, Judge, Subject, message_about, recovery_phrase};
use crate::contract::Leaks;
use crate::report::{
    AbstractHeap, Block, BlockState, Contents, Life, Place, REOPENED, SECOND_RECOVERY, SectionKind, SlotEntry, Stage,
    Status, USE,
};
use crate::rule::{RuleId, RuleSet};

impl<'a> Judge<'a> {
    pub(super) fn judge_later_lives(&mut self, linearisation: &Linearisation) {
        if self.report.lives.len() < 2 {
            if !self.is_cut_short(0) {
                self.not_judged(RuleId::NotUsable, "the probe's first part only");
                self.not_judged(RuleId::NotIdempotent, "the probe's first part only");
            }
            return;
        }
        let first_part = self.out.violations.len();
        for number in 1..self.report.lives.len() {
            if !self.judge_life(number as u16, linearisation) {
                break;
            }
        }
        self.drop_repetitions(first_part);
    }

    /// What walk and check showed in life 0 already is no news in a later life.
    fn drop_repetitions(&mut self, first_part: usize) {
        let mut known = RuleSet::default();
        for violation in &self.out.violations[..first_part] {
            if matches!(violation.rule, RuleId::Overlap | RuleId::BadExtent | RuleId::Inconsistent) {
                known.insert(violation.rule);
            }
        }
        let later = self.out.violations.split_off(first_part);
        self.out.violations.extend(later.into_iter().filter(|violation| !known.contains(violation.rule)));
    }

    /// Judges one later life; false if the lives after it say nothing.
    fn judge_life(&mut self, number: u16, linearisation: &Linearisation) -> bool {
        let report = self.report;
        let life = &report.lives[usize::from(number)];
        if !self.judge_reopen(life, number) {
            return false;
        }
        if number >= SECOND_RECOVERY {
            let live = self.judge_walk(life, number);
            self.judge_idempotence(number);
            if number == USE {
                self.judge_usability(life, live, linearisation);
            }
        }
        self.judge_reading(life, number);
        for contents in life.contents.iter().filter(|contents| contents.status == Status::Ok) {
            self.judge_contents(life, number, contents);
        }
        if number >= SECOND_RECOVERY {
            self.judge_unpromised_contents(life, number);
            self.judge_close(life, number);
        }
        true
    }

    fn judge_reopen(&mut self, life: &Life, number: u16) -> bool {
        let recovery = recovery_phrase(number);
        match life.open {
            Some(Status::Ok) => return true,
            Some(status) => {
                let rule = if number == REOPENED { RuleId::NotUsable } else { RuleId::RecoveryFailed };
                let text = format!("{recovery} answered {status}{}", message_about(life, SectionKind::Open));
                self.violate(rule, Subject::default(), text);
            }
            None if self.is_cut_short(usize::from(number)) => {}
            None => self.unknown(format!("the heap report does not say what {recovery} answered")),
        }
        false
    }

    /// FL003 and FL012: reading a slot must not fail after any stage.
    fn judge_reading(&mut self, life: &Life, number: u16) {
        let slots = life.slots.iter().map(|slots| (SectionKind::Slots, Stage::Recovery, slots.status));
        let contents = life.contents.iter().map(|contents| (SectionKind::Contents, contents.after, contents.status));
        let Some((kind, stage, status)) = slots.chain(contents).find(|(_, _, status)| *status != Status::Ok) else {
            return;
        };
        let is_recovery = stage == Stage::Recovery && number < REOPENED;
        let rule = if is_recovery { RuleId::RecoveryFailed } else { RuleId::NotUsable };
        let after = after_phrase(number, stage);
        let text = format!("reading the slots after {after} answered {status}{}", message_about(life, kind));
        self.violate(rule, Subject::default(), text);
    }

    /// FL009 after a stage: each object that was right in the crash image must be right still.
    fn judge_contents(&mut self, life: &'a Life, number: u16, contents: &Contents) {
        let report = self.report;
        let Some(slots) = life.slots.as_ref().or(report.lives[0].slots.as_ref()) else { return };
        self.out.judged.insert(RuleId::ContentChanged);
        for entry in &slots.entries {
            if self.unsound_slots.contains(&entry.slot) {
                continue;
            }
            let history = self.history;
            let candidates = history.candidates(entry.slot, self.contract.fill);
            let objects = || candidates.objects();
            let errors = objects().map(|object| uncovered(&contents.entries, entry.slot, &object));
            // No error for one of the states is enough; the state that is right for longest says best what is wrong.
            let error = errors.reduce(|best, error| best.zip(error).map(|(best, error)| best.max(error)));
            if let (Some(Some(at)), Some(object)) = (error, objects().next()) {
                self.unsound_slots.insert(entry.slot);
                let after = after_phrase(number, contents.after);
                let operation = object.operation;
                let text =
                    format!("slot {}: byte {at} of what operation {operation} left is wrong after {after}", entry.slot);
                let subject = Subject {
                    slot: Some(entry.slot),
                    operation: Some(operation),
                    block: Some(place_of(life, entry, object.bytes)),
                };
                self.violate(RuleId::ContentChanged, subject, text);
            }
        }
    }

    /// FL013: the second recovery, and another first one of the same image, against life 0; the open after a clean close against
    /// the survivors of the life before it.
    fn judge_idempotence(&mut self, number: u16) {
        let earlier = if number == REOPENED { USE } else { 0 };
        let report = self.report;
        let (Some(before), Some(after)) =
            (report.abstract_heap(usize::from(earlier)), report.abstract_heap(number.into()))
        else {
            let has_slots = report.lives[usize::from(number)].slots.is_some();
            if !has_slots && !self.is_cut_short(number.into()) {
                self.not_judged(RuleId::NotIdempotent, "the heap report lacks the slots of a later life");
            }
            return;
        };
        self.out.judged.insert(RuleId::NotIdempotent);
        let (before, after) = match number {
            REOPENED => self.survivors(before, after),
            _ => (before, after),
        };
        if let Some((slot, text)) = slot_difference(&before, &after) {
            return self.violate_idempotence(number, slot, text);
        }
        if let Some(text) = live_difference(&self.comparable(&before), &self.comparable(&after)) {
            self.violate_idempotence(number, None, text);
        }
    }

    #[cfg_attr(feature = "planted", track_caller)]
    fn violate_idempotence(&mut self, number: u16, slot: Option<u32>, text: String) {
        let text = format!("after {}: {text}", recovery_phrase(number));
        self.violate(RuleId::NotIdempotent, Subject { slot, ..Subject::default() }, text);
    }

    /// Leaves out what the probe itself allocated and may have left: the maximal allocation, and all if the frees failed.
    fn survivors(&mut self, before: AbstractHeap, mut after: AbstractHeap) -> (AbstractHeap, AbstractHeap) {
        let report = self.report;
        let first = self.shape.slots;
        let life = &report.lives[usize::from(USE)];
        let is_probes = |slot: &u32, place: &Place| *slot >= first && before.slots.get(slot) != Some(place);
        let probe: BTreeMap<u32, Place> =
            after.slots.iter().filter(|(slot, place)| is_probes(slot, place)).map(clone_pair).collect();
        let was_freed = life.free_all == Some(Status::Ok);
        let permitted = usize::from(life.maximal.is_some_and(|maximal| maximal.status == Status::Ok));
        if was_freed && probe.len() > permitted {
            let slot = probe.keys().next().copied();
            let text = format!(
                "{} objects that the probe freed are back after {}",
                probe.len() - permitted,
                recovery_phrase(REOPENED)
            );
            self.violate(RuleId::FreedObjectBack, Subject { slot, ..Subject::default() }, text);
        }
        after.slots.retain(|slot, place| !is_probes(slot, place));
        let is_kept = |place: &Place| before.live.as_ref().is_some_and(|live| live.contains_key(place));
        let is_left = |block: &Place, bytes: u64| probe.values().any(|place| lies_in(place, block, bytes));
        if let Some(live) = &mut after.live {
            live.retain(|block, bytes| is_kept(block) || (was_freed && !is_left(block, *bytes)));
        }
        (before, after)
    }

    /// The heap as far as it must stay the same. A garbage collection may find more garbage the next time, when stale words
    /// were overwritten: then only what slots refer to must stay.
    fn comparable(&self, heap: &AbstractHeap) -> Option<BTreeMap<Place, u64>> {
        let live = heap.live.clone()?;
        if self.contract.leaks != Leaks::Collected {
            return Some(live);
        }
        let roots: BTreeSet<&Place> = heap.slots.values().collect();
        Some(live.into_iter().filter(|(place, _)| roots.contains(place)).collect())
    }

    /// FL013 on contents that nobody promised, such as those of a pending allocation: they may be anything, but recovering once
    /// more must not change them.
    fn judge_unpromised_contents(&mut self, life: &Life, number: u16) {
        let report = self.report;
        let first = report.lives[1].contents_after(Stage::Recovery);
        let (Some(first), Some(now)) = (first, life.contents_after(Stage::Recovery)) else { return };
        let slots = life.slots.iter().flat_map(|slots| &slots.entries);
        for entry in slots.filter(|entry| entry.slot < self.shape.slots) {
            let Some(bytes) = self.smallest_size(entry.slot) else { continue };
            let is_same = clipped(first, entry.slot, bytes).eq(clipped(now, entry.slot, bytes));
            if !is_same && !self.unsound_slots.contains(&entry.slot) {
                self.unsound_slots.insert(entry.slot);
                let text = format!("the content of slot {} is another one than after the first recovery", entry.slot);
                self.violate_idempotence(number, Some(entry.slot), text);
                return;
            }
        }
    }

    /// FL012 in the life of use: drain, free all, maximal allocation.
    fn judge_usability(&mut self, life: &'a Life, live: Option<LiveBlocks<'a>>, linearisation: &Linearisation) {
        let Some(drain) = &life.drain else {
            if !self.is_cut_short(USE.into()) {
                self.not_judged(RuleId::NotUsable, "the heap report has no drain");
            }
            return;
        };
        let message = |kind| message_about(life, kind);
        match drain.status {
            Status::Ok | Status::OutOfMemory => self.judge_capacity(drain, linearisation),
            status => self.violate_usability(format!(
                "an allocation after recovery answered {status}{}",
                message(SectionKind::Drain)
            )),
        }
        if let Some(status) = life.free_all.filter(|status| *status != Status::Ok) {
            self.violate_usability(format!(
                "freeing what was allocated after recovery answered {status}{}",
                message(SectionKind::FreeAll)
            ));
        }
        if let Some(maximal) = life.maximal.filter(|maximal| maximal.status != Status::Ok && maximal.bytes > 0) {
            self.violate_usability(format!(
                "allocating {} bytes again, after all was freed, answered {}{}",
                maximal.bytes,
                maximal.status,
                message(SectionKind::Maximal)
            ));
        }
        let walked = life.walk.as_ref().map_or(0, |walk| walk.file_bytes);
        let taken = self.taken_extents(life, live);
        self.judge_drain_extents(life, &taken, self.shape.limit_bytes.max(walked));
    }

    /// What no allocation after recovery may touch.
    fn taken_extents(&mut self, life: &Life, live: Option<LiveBlocks<'a>>) -> Vec<Block> {
        let entries = life.slots.iter().flat_map(|slots| &slots.entries);
        match live {
            // A garbage collector may give away, later, what no slot refers to.
            Some(mut live) if self.contract.leaks == Leaks::Collected => {
                for entry in entries {
                    live.refer(entry.file, entry.offset, entry.slot);
                }
                let garbage: Vec<Block> = live.unreferenced().collect();
                live.blocks().iter().filter(|block| !garbage.contains(block)).copied().collect()
            }
            Some(live) => live.blocks().to_vec(),
            None => entries.filter_map(|entry| self.object_extent(entry)).collect(),
        }
    }

    fn object_extent(&self, entry: &SlotEntry) -> Option<Block> {
        let bytes = self.smallest_size(entry.slot).filter(|_| !self.unsound_slots.contains(&entry.slot))?;
        Some(Block { file: entry.file, state: BlockState::Allocated, offset: entry.offset, bytes })
    }

    #[cfg_attr(feature = "planted", track_caller)]
    pub(super) fn violate_usability(&mut self, text: String) {
        self.violate(RuleId::NotUsable, Subject::default(), text);
    }

    fn judge_close(&mut self, life: &Life, number: u16) {
        match life.close {
            None | Some(Status::Ok) => {}
            Some(status) => {
                let recovery = recovery_phrase(number);
                self.violate_usability(format!(
                    "close after {recovery} answered {status}{}",
                    message_about(life, SectionKind::Close)
                ));
            }
        }
    }
}

fn after_phrase(number: u16, stage: Stage) -> String {
    let recovery = recovery_phrase(number);
    match stage {
        Stage::Recovery => recovery.to_owned(),
        stage => format!("{stage} that followed {recovery}"),
    }
}

fn place_of(life: &Life, entry: &SlotEntry, bytes: u64) -> Extent {
    let file = life.file_name(entry.file).unwrap_or("?").to_owned();
    Extent { place: Place { file, offset: entry.offset }, bytes }
}

fn lies_in(place: &Place, block: &Place, bytes: u64) -> bool {
    let distance = place.offset.checked_sub(block.offset);
    place.file == block.file && distance.is_some_and(|distance| distance == 0 || distance < bytes)
}

fn clone_pair((slot, place): (&u32, &Place)) -> (u32, Place) {
    (*slot, place.clone())
}

/// What the contents show of the slot's first `bytes` bytes.
fn clipped(contents: &Contents, slot: u32, bytes: u64) -> impl Iterator<Item = (u32, u64, u64)> {
    let of_slot = contents.entries.iter().filter(move |entry| entry.slot == slot && entry.from < bytes);
    of_slot.map(move |entry| (entry.object, entry.from, entry.to.min(bytes)))
}

fn slot_difference(before: &AbstractHeap, after: &AbstractHeap) -> Option<(Option<u32>, String)> {
    let slots: BTreeSet<&u32> = before.slots.keys().chain(after.slots.keys()).collect();
    let changed = slots.into_iter().find(|slot| before.slots.get(slot) != after.slots.get(slot))?;
    let words = |place: Option<&Place>| {
        place.map_or_else(|| "null".to_owned(), |place| format!("{} at {:#x}", place.file, place.offset))
    };
    let (was, is) = (words(before.slots.get(changed)), words(after.slots.get(changed)));
    Some((Some(*changed), format!("slot {changed} was {was} and is {is}")))
}

fn live_difference(before: &Option<BTreeMap<Place, u64>>, after: &Option<BTreeMap<Place, u64>>) -> Option<String> {
    let (before, after) = (before.as_ref()?, after.as_ref()?);
    let places: BTreeSet<&Place> = before.keys().chain(after.keys()).collect();
    let changed = places.into_iter().find(|place| before.get(place) != after.get(place))?;
    let words = |bytes: Option<&u64>| {
        bytes.map_or_else(|| "no live heap block".to_owned(), |bytes| format!("{bytes} live bytes"))
    };
    let (was, is) = (words(before.get(changed)), words(after.get(changed)));
    Some(format!("{} at {:#x} was {was} and is {is}", changed.file, changed.offset))
}
