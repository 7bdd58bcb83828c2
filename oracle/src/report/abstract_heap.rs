// SPDX-License-Identifier: Apache-2.0
//! The heap without its bytes: what two recoveries must agree about.

use std::collections::BTreeMap;

use super::{Block, BlockState, HeapReport, Location, ObjectEntry, Status};
use crate::history::FIELDS;

/// A place in the heap, with the file by name so that it can be compared between lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// File, relative to the heap folder.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
}

/// What idempotence is about: the heap without its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbstractHeap {
    /// Slots that are not null, and what they point to.
    pub slots: BTreeMap<u32, Place>,
    /// The objects that the workload's slots reach, and what their fields hold.
    pub objects: BTreeMap<Place, [Option<Place>; FIELDS as usize]>,
    /// Live (allocated) heap blocks and their sizes; `None` without walk.
    pub live: Option<BTreeMap<Place, u64>>,
}

impl HeapReport {
    /// Slots and live blocks of a life; `None` if the life did not come to the point where its slots are known.
    pub fn abstract_heap(&self, life: usize) -> Option<AbstractHeap> {
        let life = self.life(life)?;
        let place = |file, offset| Place { file: life.file_name(file).unwrap_or("?").to_owned(), offset };
        let field = |held: Option<Location>| held.map(|at| place(at.file, at.offset));
        let object = |entry: &ObjectEntry| (place(entry.at.file, entry.at.offset), entry.fields.map(field));
        let slots = life.slots.as_ref().filter(|slots| slots.status == Status::Ok)?;
        let walk = life.walk.as_ref().filter(|walk| walk.status == Status::Ok);
        let is_live = |block: &&Block| block.state == BlockState::Allocated;
        Some(AbstractHeap {
            slots: slots.entries.iter().map(|entry| (entry.slot, place(entry.file, entry.offset))).collect(),
            objects: life.objects.iter().flat_map(|objects| &objects.entries).map(object).collect(),
            live: walk.map(|walk| {
                walk.blocks.iter().filter(is_live).map(|block| (place(block.file, block.offset), block.bytes)).collect()
            }),
        })
    }
}
