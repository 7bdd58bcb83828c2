// SPDX-License-Identifier: Apache-2.0
//! What slots alone show, where the adapter has no walk: FL006 and FL007.

use super::{Extent, Judge, Subject};
use crate::fact::{ExtentError, Fact, HolderKind};
use crate::history::Holder;
use crate::report::{Life, Place, SlotEntry};
use crate::rule::RuleId;

impl<'a> Judge<'a> {
    /// FL006 without walk: objects in slots must not overlap, as far as their sizes are known.
    pub(super) fn judge_slot_overlap(&mut self, life: &'a Life, entries: &[SlotEntry]) {
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
}

fn slot_place(life: &Life, (file, offset, ..): (u32, u64, u64, u32)) -> String {
    format!("{} at {offset:#x}", life.file_name(file).unwrap_or("?"))
}

fn slot_subject(life: &Life, (file, offset, _, slot): (u32, u64, u64, u32)) -> Subject {
    let file = life.file_name(file).unwrap_or("?").to_owned();
    let block = Some(Extent { place: Place { file, offset }, bytes: 0 });
    Subject { slot: Some(slot), block, ..Subject::default() }
}
