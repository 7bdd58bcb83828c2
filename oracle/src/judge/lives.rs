// SPDX-License-Identifier: Apache-2.0
//! What comes after the first recovery: FL003 and FL009 in later lives, FL012's stages and FL013.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::LiveBlocks;
use super::contents::Shown;
use super::references::FirstPart;
use super::{Extent, Judge, ShownObject, Subject, recovery_phrase, stage_phrase};
use crate::contract::Leaks;
use crate::fact::{Change, Fact, Part, Step};
use crate::report::{
    AbstractHeap, Block, BlockState, Contents, EMPTIED, EMPTIED_REOPENED, Life, Location, Place, REOPENED,
    SECOND_RECOVERY, SectionKind, SlotEntry, Stage, Status, USE, WITHOUT_LOSS,
};
use crate::rule::{RuleId, RuleSet};

impl<'a> Judge<'a> {
    pub(super) fn judge_later_lives(&mut self, first_part: &FirstPart) {
        if self.report.lives.len() < 2 {
            if !self.is_cut_short(0) {
                self.not_judged(RuleId::NotUsable, "the probe's first part only");
                self.not_judged(RuleId::NotIdempotent, "the probe's first part only");
            }
            return;
        }
        let in_first_part = self.out.violations.len();
        for number in 1..self.report.lives.len() {
            if !self.judge_life(number as u16, first_part) {
                break;
            }
        }
        self.drop_repetitions(in_first_part);
    }

    /// What walk and check showed in life 0 already is no news in a later life.
    fn drop_repetitions(&mut self, in_first_part: usize) {
        let mut known = RuleSet::default();
        for violation in &self.out.violations[..in_first_part] {
            if matches!(violation.rule, RuleId::Overlap | RuleId::BadExtent | RuleId::Inconsistent) {
                known.insert(violation.rule);
            }
        }
        let later = self.out.violations.split_off(in_first_part);
        self.out.violations.extend(later.into_iter().filter(|violation| !known.contains(violation.rule)));
    }

    /// Judges one later life; false if the lives after it say nothing.
    fn judge_life(&mut self, number: u16, first_part: &FirstPart) -> bool {
        let report = self.report;
        let life = &report.lives[usize::from(number)];
        if !self.judge_reopen(life, number) {
            return false;
        }
        match number {
            EMPTIED => self.judge_emptied(life, first_part),
            EMPTIED_REOPENED => {}
            _ => self.judge_as_before(life, number, first_part),
        }
        true
    }

    /// A life that shows the objects: they must be those of the crash image still.
    fn judge_as_before(&mut self, life: &'a Life, number: u16, first_part: &FirstPart) {
        if number >= SECOND_RECOVERY {
            let live = self.judge_walk(life, number);
            self.judge_idempotence(number);
            match number {
                USE => self.judge_usability(life, live, first_part),
                REOPENED => self.judge_long_use(life, live),
                _ => {}
            }
        }
        if number == WITHOUT_LOSS && !self.judge_lazy_use(life) {
            return;
        }
        self.judge_reading(life, number);
        for contents in life.contents.iter().filter(|contents| contents.status == Status::Ok) {
            self.judge_contents(life, number, contents);
        }
        if number >= SECOND_RECOVERY {
            self.judge_unpromised_contents(life, number);
            self.judge_close(life, number);
        }
    }

    fn judge_reopen(&mut self, life: &Life, number: u16) -> bool {
        let recovery = recovery_phrase(number);
        match life.open {
            Some(Status::Ok) => return self.judge_settled(life, number),
            Some(status) => {
                self.violate_answer(life, Step::new(number, SectionKind::Open), status, recovery);
            }
            None if self.is_cut_short(usize::from(number)) => {}
            None => self.unknown(format!("the heap report does not say what {recovery} answered")),
        }
        false
    }

    /// FL003 and FL012: what a lazy open left must come to its end. False: it did not.
    pub(super) fn judge_settled(&mut self, life: &Life, number: u16) -> bool {
        let Some(status) = life.settled.filter(|status| *status != Status::Ok) else { return true };
        let what = stage_phrase(number, Some(SectionKind::Settle));
        self.violate_answer(life, Step::new(number, SectionKind::Settle), status, &what);
        false
    }

    /// What failed in the use of a heap that was opened lazily and is not settled.
    fn failed_lazy_use(&self) -> Option<(SectionKind, Status)> {
        let life = self.report.life(WITHOUT_LOSS.into())?;
        let drain = life.drain.as_ref().map(|drain| (SectionKind::Drain, drain.status));
        drain.or(life.free_all.map(|status| (SectionKind::FreeAll, status)))
    }

    /// FL012 in that use. False: it failed, and contents may be anything.
    fn judge_lazy_use(&mut self, life: &Life) -> bool {
        let Some((section, status)) = self.failed_lazy_use() else { return true };
        let what = stage_phrase(WITHOUT_LOSS, Some(section));
        self.violate_answer(life, Step::new(WITHOUT_LOSS, section), status, &what);
        false
    }

    /// FL003 and FL012: reading slots and fields must not fail after any stage.
    fn judge_reading(&mut self, life: &Life, number: u16) {
        let (slots, objects) = (Step::new(number, SectionKind::Slots), Step::new(number, SectionKind::Objects));
        let slots = life.slots.iter().map(|of| (slots, Stage::Recovery, of.status));
        let objects = life.objects.iter().map(|of| (objects, Stage::Recovery, of.status));
        // That there are too many of them life 0 has said.
        let objects = objects.filter(|(_, _, status)| *status != Status::OutOfMemory);
        let contents = life.contents.iter().map(|of| (Step::contents_after(number, of.after), of.after, of.status));
        let mut all = slots.chain(objects).chain(contents);
        let Some((step, stage, status)) = all.find(|(_, _, status)| *status != Status::Ok) else {
            return;
        };
        let what = if step.section == SectionKind::Objects { "fields" } else { "slots" };
        self.violate_answer(life, step, status, &format!("reading the {what} after {}", after_phrase(number, stage)));
    }

    /// FL009 after a stage: each object that was right in the crash image must be right still.
    pub(super) fn judge_contents(&mut self, life: &'a Life, number: u16, contents: &Contents) {
        self.out.judged.insert(RuleId::ContentChanged);
        for at in 0..self.shown.len() {
            let shown = self.shown[at];
            let Some(key) = self.key_in(life, shown).filter(|_| !self.unsound.contains(&shown.key)) else { continue };
            let history = self.history;
            let candidates = history.candidates(shown.holder, self.contract.fill);
            let objects = || candidates.objects().filter(|object| object.id == shown.id);
            let errors = objects().map(|object| Shown::of(contents, key).wrong_byte(&object));
            // No error for one of the states is enough; the state that is right for longest says best what is wrong.
            let error = errors.reduce(|best, error| best.zip(error).map(|(best, error)| best.max(error)));
            if let (Some(Some(at)), Some(object)) = (error, objects().next()) {
                self.unsound.insert(shown.key);
                let after = after_phrase(number, contents.after);
                let (holder, operation) = (shown.holder, object.written_by);
                let text = format!("{holder}: byte {at} of what operation {operation} left is wrong after {after}");
                let place = place_of(&self.report.lives[0], shown.at);
                let subject = Subject {
                    slot: holder.slot(),
                    operation: Some(operation),
                    block: Some(Extent { place, bytes: object.bytes }),
                    ..Subject::default()
                };
                let step = Step::contents_after(number, contents.after);
                self.violate(Fact::ContentWrong(holder.into(), step), subject, text);
            }
        }
    }

    /// Where this life has the object's content; `None`: it does not show the object.
    fn key_in(&self, life: &Life, shown: ShownObject) -> Option<u32> {
        let first = &self.report.lives[0];
        match (&first.objects, &life.objects, &life.slots) {
            // Life 1 says nothing but contents.
            (_, None, None) => Some(shown.key),
            (Some(_), Some(objects), _) if first.files == life.files => objects.position(shown.at),
            (Some(_), Some(objects), _) => {
                let name = first.file_name(shown.at.file)?;
                let file = life.files.iter().position(|other| other == name)? as u32;
                objects.position(Location { file, ..shown.at })
            }
            (Some(_), None, _) => None,
            (None, _, Some(slots)) => {
                let found = slots.entries.binary_search_by_key(&shown.key, |entry| entry.slot);
                found.is_ok().then_some(shown.key)
            }
            (None, Some(_), None) => None,
        }
    }

    /// FL013. The second recovery, and another recovery of the same image, must show what life 0 showed. The open after a clean close
    /// must show what survived the life before it.
    fn judge_idempotence(&mut self, number: u16) {
        let earlier = if number == REOPENED { USE } else { 0 };
        let report = self.report;
        if number == SECOND_RECOVERY && self.failed_lazy_use().is_some() {
            return; // it recovers what that left
        }
        if earlier == 0 && is_same_heap(&report.lives[0], &report.lives[usize::from(number)]) {
            return self.out.judged.insert(RuleId::NotIdempotent);
        }
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
        if let Some((slot, change, text)) = slot_difference(&before, &after) {
            return self.violate_idempotence(number, (Part::Slot, change), Some(slot), text);
        }
        if let Some((change, text)) = field_difference(&before, &after) {
            return self.violate_idempotence(number, (Part::Field, change), None, text);
        }
        let (before, after) = self.comparable(&report.lives[usize::from(number)], &before, &after);
        if let Some((change, text)) = live_difference(&before, &after) {
            self.violate_idempotence(number, (Part::LiveBlock, change), None, text);
        }
    }

    fn violate_idempotence(&mut self, number: u16, what: (Part, Change), slot: Option<u32>, text: String) {
        let (part, change) = what;
        let text = format!("after {}: {text}", recovery_phrase(number));
        let fact = Fact::HeapDiffers(number.into(), part, change);
        self.violate(fact, Subject { slot, ..Subject::default() }, text);
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
            self.violate(Fact::ProbeObjectsBack, Subject { slot, ..Subject::default() }, text);
        }
        after.slots.retain(|slot, place| !is_probes(slot, place));
        let is_kept = |place: &Place| before.live.as_ref().is_some_and(|live| live.contains_key(place));
        let is_left = |block: &Place, bytes: u64| probe.values().any(|place| lies_in(place, block, bytes));
        if let Some(live) = &mut after.live {
            live.retain(|block, bytes| is_kept(block) || (was_freed && !is_left(block, *bytes)));
        }
        (before, after)
    }

    /// The live heap blocks as far as they must stay the same. A garbage collection may find more garbage the next time, because
    /// stale words were overwritten. So a block that slots do not reach may go, and one may appear only where a stale word
    /// retains it.
    fn comparable(&self, life: &Life, before: &AbstractHeap, after: &AbstractHeap) -> (LivePlaces, LivePlaces) {
        let (Some(live_before), Some(live_after)) = (&before.live, &after.live) else { return (None, None) };
        if self.contract.leaks != Leaks::Collected {
            return (Some(live_before.clone()), Some(live_after.clone()));
        }
        let retained = life.retained.iter().flat_map(|retained| &retained.blocks);
        let retained: BTreeSet<Place> = retained.map(|block| place_of(life, block.location())).collect();
        let may_be_there = |place: &Place| retained.contains(place) || live_before.contains_key(place);
        let (reached_before, reached_after) = (reached(before, live_before), reached(after, live_after));
        let must_stay = live_before.iter().filter(|(place, _)| reached_before.contains(place)).map(clone_pair);
        let is_there = |place: &&Place| reached_after.contains(place) || !may_be_there(place);
        let are_there = live_after.iter().filter(|(place, _)| is_there(place)).map(clone_pair);
        (Some(must_stay.collect()), Some(are_there.collect()))
    }

    /// FL013 on contents that nobody promised, such as those of a pending allocation: they may be anything, but recovering once
    /// more must not change them.
    fn judge_unpromised_contents(&mut self, life: &Life, number: u16) {
        let report = self.report;
        let first = report.lives[1].contents_after(Stage::Recovery);
        let (Some(first), Some(now)) = (first, life.contents_after(Stage::Recovery)) else { return };
        for at in 0..self.shown.len() {
            let shown = self.shown[at];
            let Some(key) = self.key_in(life, shown).filter(|_| !self.unsound.contains(&shown.key)) else { continue };
            let Some(bytes) = self.smallest_size(shown.holder) else { continue };
            if !clipped(first, shown.key, bytes).eq(clipped(now, key, bytes)) {
                self.unsound.insert(shown.key);
                let holder = shown.holder;
                let text = format!(
                    "after {}: the content of {holder} is another one than after the first recovery",
                    recovery_phrase(number)
                );
                let fact = Fact::ContentDiffers(number.into(), holder.into());
                self.violate(fact, Subject { slot: holder.slot(), ..Subject::default() }, text);
                return;
            }
        }
    }

    /// FL012, FL006 and FL007 once all objects were freed: the frees, and what the heap holds then.
    fn judge_emptied(&mut self, life: &Life, first_part: &FirstPart) {
        self.judge_close(life, EMPTIED);
        if let Some(status) = life.free_all.filter(|status| *status != Status::Ok) {
            let step = Step::new(EMPTIED, SectionKind::FreeAll);
            return self.violate_answer(life, step, status, "freeing all objects after recovery");
        }
        if self.judge_filling() && self.judge_drain(life, EMPTIED, first_part) {
            let walked = self.report.lives[0].walk.as_ref().map_or(0, |walk| walk.file_bytes);
            self.judge_drain_extents(life, &[], self.shape.limit_bytes.max(walked));
        }
    }

    /// FL012 on the drain's status and capacity; false if there is none.
    fn judge_drain(&mut self, life: &Life, number: u16, first_part: &FirstPart) -> bool {
        let Some(drain) = &life.drain else {
            if !self.is_cut_short(number.into()) {
                self.not_judged(RuleId::NotUsable, "the heap report has no drain");
            }
            return false;
        };
        match drain.status {
            Status::Ok | Status::OutOfMemory => self.judge_capacity(drain, number, first_part),
            status => {
                let what = format!("an allocation after {}", drained_after(number));
                self.violate_answer(life, Step::new(number, SectionKind::Drain), status, &what);
            }
        }
        true
    }

    /// FL012 in the life of use: drain, free all, maximal allocation.
    fn judge_usability(&mut self, life: &'a Life, live: Option<LiveBlocks<'a>>, first_part: &FirstPart) {
        if !self.judge_drain(life, USE, first_part) {
            return;
        }
        if let Some(status) = life.free_all.filter(|status| *status != Status::Ok) {
            let step = Step::new(USE, SectionKind::FreeAll);
            self.violate_answer(life, step, status, "freeing what was allocated after recovery");
        }
        if let Some(maximal) = life.maximal.filter(|maximal| maximal.status != Status::Ok && maximal.bytes > 0) {
            let what = format!("allocating {} bytes again, after all was freed,", maximal.bytes);
            self.violate_answer(life, Step::new(USE, SectionKind::Maximal), maximal.status, &what);
        }
        let walked = life.walk.as_ref().map_or(0, |walk| walk.file_bytes);
        let taken = self.taken_extents(life, live);
        self.judge_drain_extents(life, &taken, self.shape.limit_bytes.max(walked));
    }

    /// FL012, FL006 and FL007 of a long use, which the deep probe alone has.
    fn judge_long_use(&mut self, life: &'a Life, live: Option<LiveBlocks<'a>>) {
        let Some(drain) = &life.drain else { return };
        let before = self.out.violations.len();
        let walked = life.walk.as_ref().map_or(0, |walk| walk.file_bytes);
        let taken = self.taken_extents(life, live);
        self.judge_drain_extents(life, &taken, self.shape.limit_bytes.max(walked));
        // Two objects in one place have no content that is right.
        if drain.status != Status::Ok && self.out.violations.len() == before {
            let what = stage_phrase(REOPENED, Some(SectionKind::Drain));
            self.violate_answer(life, Step::new(REOPENED, SectionKind::Drain), drain.status, &what);
        }
    }

    /// What no allocation after recovery may touch.
    fn taken_extents(&mut self, life: &Life, live: Option<LiveBlocks<'a>>) -> Vec<Block> {
        let entries = life.slots.iter().flat_map(|slots| &slots.entries);
        match live {
            // A garbage collector may give away, later, what no slot reaches.
            Some(mut live) if self.contract.leaks == Leaks::Collected => {
                let objects = life.objects.iter().flat_map(|objects| &objects.entries);
                entries.map(SlotEntry::location).chain(objects.map(|object| object.at)).for_each(|at| live.reach(at));
                live.referenced().collect()
            }
            Some(live) => live.blocks().to_vec(),
            None => entries.filter_map(|entry| self.object_extent(entry)).collect(),
        }
    }

    fn object_extent(&self, entry: &SlotEntry) -> Option<Block> {
        let bytes = self.smallest_size(entry.slot).filter(|_| !self.unsound.contains(&entry.slot))?;
        Some(Block { file: entry.file, state: BlockState::Allocated, offset: entry.offset, bytes })
    }

    fn judge_close(&mut self, life: &Life, number: u16) {
        match life.close {
            None | Some(Status::Ok) => {}
            Some(status) => {
                let what = format!("close after {}", recovery_phrase(number));
                self.violate_answer(life, Step::new(number, SectionKind::Close), status, &what);
            }
        }
    }
}

/// What the drain of this life came after.
pub(super) fn drained_after(number: u16) -> &'static str {
    if number == EMPTIED { "recovery and the freeing of all objects" } else { "recovery" }
}

fn after_phrase(number: u16, stage: Stage) -> String {
    let recovery = recovery_phrase(number);
    match stage {
        Stage::Recovery => recovery.to_owned(),
        stage => format!("{stage} that followed {recovery}"),
    }
}

fn place_of(life: &Life, at: Location) -> Place {
    Place { file: life.file_name(at.file).unwrap_or("?").to_owned(), offset: at.offset }
}

/// Whether everything that idempotence is about is equal, the numbers of the files included.
fn is_same_heap(first: &Life, other: &Life) -> bool {
    let is_read = other.slots.as_ref().is_some_and(|slots| slots.status == Status::Ok);
    is_read
        && first.files == other.files
        && first.slots == other.slots
        && first.objects == other.objects
        && first.walk == other.walk
}

/// Live heap blocks and their sizes; `None`: not known.
type LivePlaces = Option<BTreeMap<Place, u64>>;

/// The live heap blocks that the heap's slots and objects lie in.
fn reached<'h>(heap: &AbstractHeap, live: &'h BTreeMap<Place, u64>) -> BTreeSet<&'h Place> {
    let block_of = |place: &Place| {
        let (block, bytes) = live.range(..=place).next_back()?;
        lies_in(place, block, *bytes).then_some(block)
    };
    heap.slots.values().chain(heap.objects.keys()).filter_map(block_of).collect()
}

fn lies_in(place: &Place, block: &Place, bytes: u64) -> bool {
    let distance = place.offset.checked_sub(block.offset);
    place.file == block.file && distance.is_some_and(|distance| distance == 0 || distance < bytes)
}

fn clone_pair<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

/// What the contents show of the object's first `bytes` bytes.
fn clipped(contents: &Contents, key: u32, bytes: u64) -> impl Iterator<Item = (u32, u64, u64)> {
    let first = contents.entries.partition_point(|entry| entry.slot < key);
    let of_object = contents.entries[first..].iter().take_while(move |entry| entry.slot == key && entry.from < bytes);
    of_object.map(move |entry| (entry.object, entry.from, entry.to.min(bytes)))
}

fn slot_difference(before: &AbstractHeap, after: &AbstractHeap) -> Option<(u32, Change, String)> {
    let slots: BTreeSet<&u32> = before.slots.keys().chain(after.slots.keys()).collect();
    let changed = slots.into_iter().find(|slot| before.slots.get(slot) != after.slots.get(slot))?;
    let (was, is) = (before.slots.get(changed), after.slots.get(changed));
    Some((*changed, Change::from_to(was, is), format!("slot {changed} was {} and is {}", words(was), words(is))))
}

/// The slots are the same: an object that only one of the heaps reaches is reached by a field that differs.
fn field_difference(before: &AbstractHeap, after: &AbstractHeap) -> Option<(Change, String)> {
    let mut shared =
        before.objects.iter().filter_map(|(place, fields)| Some((place, fields, after.objects.get(place)?)));
    let (place, was, is) = shared.find(|(_, was, is)| was != is)?;
    let field = was.iter().zip(is).position(|(was, is)| was != is)?;
    let (was, is) = (was[field].as_ref(), is[field].as_ref());
    let (place, from, to) = (words(Some(place)), words(was), words(is));
    Some((Change::from_to(was, is), format!("field {field} of the object in {place} was {from} and is {to}")))
}

fn words(place: Option<&Place>) -> String {
    place.map_or_else(|| "null".to_owned(), |place| format!("{} at {:#x}", place.file, place.offset))
}

fn live_difference(before: &LivePlaces, after: &LivePlaces) -> Option<(Change, String)> {
    let (before, after) = (before.as_ref()?, after.as_ref()?);
    let places: BTreeSet<&Place> = before.keys().chain(after.keys()).collect();
    let changed = places.into_iter().find(|place| before.get(place) != after.get(place))?;
    let words = |bytes: Option<&u64>| {
        bytes.map_or_else(|| "no live heap block".to_owned(), |bytes| format!("{bytes} live bytes"))
    };
    let (was, is) = (before.get(changed), after.get(changed));
    let text = format!("{} at {:#x} was {} and is {}", changed.file, changed.offset, words(was), words(is));
    Some((Change::from_to(was, is), text))
}
