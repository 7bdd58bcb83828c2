// SPDX-License-Identifier: Apache-2.0
//! Writes heap reports in the binary format, for tests of whatever reads them.

use super::{
    Block, BlockState, ContentEntry, HeapReport, KEPT_OUT, Life, Location, MAGIC, NOT_MOVED, ObjectEntry, Outcome,
    SectionKind, SlotEntry, Status, VERSION,
};

/// Builds a heap report, section by section. Starts in life 0.
///
/// ```
/// use oracle::report::{HeapReport, Status, build::{ReportBuilder, allocated, free}};
///
/// let report: HeapReport = ReportBuilder::new()
///     .files(&["heap"])
///     .open(Status::Ok)
///     .slots(4, &[(0, 0, 64)])
///     .walk(4096, &[allocated(64, 64), free(128, 3968)])
///     .report();
/// assert_eq!(report.lives[0].slots.as_ref().unwrap().entries[0].offset, 64);
/// ```
#[derive(Clone, Debug)]
pub struct ReportBuilder {
    sections: Vec<u8>,
    section_count: u32,
    life: u16,
    stage: u32,
    outcome: Outcome,
}

impl Default for ReportBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ReportBuilder {
    /// An empty report, with the outcome done.
    pub fn new() -> Self {
        ReportBuilder { sections: Vec::new(), section_count: 0, life: 0, stage: 0, outcome: Outcome::Done }
    }

    /// The sections that follow belong to this life.
    #[must_use]
    pub fn life(mut self, life: u16) -> Self {
        self.life = life;
        self.stage = 0;
        self
    }

    /// The probe ended like this, in the stage of the last section.
    #[must_use]
    pub fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// The probe ended like this, in this stage of the current life.
    #[must_use]
    pub fn ended_in(mut self, stage: SectionKind, outcome: Outcome) -> Self {
        self.stage = stage as u32;
        self.outcome(outcome)
    }

    /// Status of open.
    #[must_use]
    pub fn open(self, status: Status) -> Self {
        self.section(SectionKind::Open, status, 0, 0, &[])
    }

    /// Open succeeded, and says whether it had to recover.
    #[must_use]
    pub fn opened(self, has_recovered: bool) -> Self {
        self.section(SectionKind::Open, Status::Ok, 0, 1 + u64::from(has_recovered), &[])
    }

    /// All that open says, as the life has it: nothing if there was none.
    #[must_use]
    pub fn open_as(self, life: &Life) -> Self {
        let Some(status) = life.open else { return self };
        let told = life.has_recovered.map_or(0, |has_recovered| 1 + u64::from(has_recovered));
        let flag = |is_set: bool, flag: u64| u64::from(is_set) * flag;
        let told = told | flag(life.is_not_moved, NOT_MOVED) | flag(life.is_kept_out, KEPT_OUT);
        self.section(SectionKind::Open, status, 0, told, &[])
    }

    /// Names of the life's files.
    #[must_use]
    pub fn files(self, names: &[&str]) -> Self {
        let payload: Vec<u8> = names.iter().flat_map(|name| name.bytes().chain([0])).collect();
        self.section(SectionKind::Files, Status::Ok, names.len(), 0, &payload)
    }

    /// Slots that are not null: (slot, file, offset).
    #[must_use]
    pub fn slots(self, slot_count: u64, entries: &[(u32, u32, u64)]) -> Self {
        self.slots_with(Status::Ok, slot_count, entries)
    }

    /// Slots that are not null, and what read_slot answered.
    #[must_use]
    pub fn slots_with(self, status: Status, slot_count: u64, entries: &[(u32, u32, u64)]) -> Self {
        let entries = entries.iter().map(|&(slot, file, offset)| SlotEntry { slot, file, offset });
        let payload: Vec<u8> =
            entries.clone().flat_map(|entry| bytes_of(&[entry.slot, entry.file], &[entry.offset])).collect();
        self.section(SectionKind::Slots, status, entries.len(), slot_count, &payload)
    }

    /// The objects that the workload's slots reach, and what read_field answered.
    #[must_use]
    pub fn objects(self, status: Status, entries: &[ObjectEntry]) -> Self {
        let location = |at: &Location, is_set| bytes_of(&[at.file, is_set], &[at.offset]);
        let field = |held: &Option<Location>| held.as_ref().map_or_else(|| vec![0; 16], |at| location(at, 1));
        let entry = |entry: &ObjectEntry| {
            let mut bytes = location(&entry.at, 0);
            bytes.extend(entry.fields.iter().flat_map(field));
            bytes
        };
        let payload: Vec<u8> = entries.iter().flat_map(entry).collect();
        self.section(SectionKind::Objects, status, entries.len(), 0, &payload)
    }

    /// Heap blocks that a conservative collector may keep, of so many that slots and fields do not reach.
    #[must_use]
    pub fn retained(self, unreached: u64, blocks: &[Block]) -> Self {
        self.retained_with(Status::Ok, unreached, blocks)
    }

    /// The same, and what word_target answered.
    #[must_use]
    pub fn retained_with(self, status: Status, unreached: u64, blocks: &[Block]) -> Self {
        self.section(SectionKind::Retained, status, blocks.len(), unreached, &payload_of(blocks))
    }

    /// Files in the heap folder that the walk names no heap block of: (file, whether it is mapped, bytes).
    #[must_use]
    pub fn unwalked(self, files: &[(u32, bool, u64)]) -> Self {
        let entry = |&(file, is_mapped, bytes): &(u32, bool, u64)| bytes_of(&[file, u32::from(is_mapped)], &[bytes]);
        let payload: Vec<u8> = files.iter().flat_map(entry).collect();
        self.section(SectionKind::Unwalked, Status::Ok, files.len(), 0, &payload)
    }

    /// Heap blocks; `file_bytes` is the sum of the file sizes.
    #[must_use]
    pub fn walk(self, file_bytes: u64, blocks: &[Block]) -> Self {
        self.walk_with(Status::Ok, file_bytes, blocks)
    }

    /// Heap blocks, and what walk answered.
    #[must_use]
    pub fn walk_with(self, status: Status, file_bytes: u64, blocks: &[Block]) -> Self {
        self.section(SectionKind::Walk, status, blocks.len(), file_bytes, &payload_of(blocks))
    }

    /// Status of check.
    #[must_use]
    pub fn check(self, status: Status) -> Self {
        self.section(SectionKind::Check, status, 0, 0, &[])
    }

    /// The end of a lazy open.
    #[must_use]
    pub fn settled(self, status: Status) -> Self {
        self.section(SectionKind::Settle, status, 0, 0, &[])
    }

    /// Contents: (slot, object id, from, to), or (slot, 0, offset of a word, the word).
    #[must_use]
    pub fn contents(self, entries: &[(u32, u32, u64, u64)]) -> Self {
        self.contents_with(Status::Ok, entries)
    }

    /// Contents, and what read_slot answered.
    #[must_use]
    pub fn contents_with(self, status: Status, entries: &[(u32, u32, u64, u64)]) -> Self {
        let entries = entries.iter().map(|&(slot, object, from, to)| ContentEntry { slot, object, from, to });
        let payload: Vec<u8> =
            entries.clone().flat_map(|entry| bytes_of(&[entry.slot, entry.object], &[entry.from, entry.to])).collect();
        self.section(SectionKind::Contents, status, entries.len(), 0, &payload)
    }

    /// The drain's allocations; the capacity is the sum of their sizes.
    #[must_use]
    pub fn drain(self, status: Status, blocks: &[Block]) -> Self {
        let capacity = blocks.iter().fold(0u64, |sum, block| sum.saturating_add(block.bytes));
        self.section(SectionKind::Drain, status, blocks.len(), capacity, &payload_of(blocks))
    }

    /// Status of the frees.
    #[must_use]
    pub fn free_all(self, status: Status) -> Self {
        self.section(SectionKind::FreeAll, status, 0, 0, &[])
    }

    /// All that the frees say, as the life has it: nothing if there were none.
    #[must_use]
    pub fn free_all_as(self, life: &Life) -> Self {
        let Some(status) = life.free_all else { return self };
        self.section(SectionKind::FreeAll, status, 0, u64::from(life.stays_kept_out) * KEPT_OUT, &[])
    }

    /// The maximal allocation.
    #[must_use]
    pub fn maximal(self, bytes: u64, status: Status) -> Self {
        self.section(SectionKind::Maximal, status, 0, bytes, &[])
    }

    /// Status of close.
    #[must_use]
    pub fn close(self, status: Status) -> Self {
        self.section(SectionKind::Close, status, 0, 0, &[])
    }

    /// Status of create after open answered not-a-heap.
    #[must_use]
    pub fn recreate(self, status: Status) -> Self {
        self.section(SectionKind::Recreate, status, 0, 0, &[])
    }

    /// A text of the adapter or the runner about the last section.
    #[must_use]
    pub fn message(mut self, text: &str) -> Self {
        let stage = self.stage;
        self = self.section(SectionKind::Message, Status::Ok, 1, stage.into(), text.as_bytes());
        self.stage = stage;
        self
    }

    /// A section, whatever is in it.
    #[must_use]
    pub fn section(mut self, kind: SectionKind, status: Status, count: usize, value: u64, payload: &[u8]) -> Self {
        self.sections.extend((kind as u16).to_le_bytes());
        self.sections.extend(self.life.to_le_bytes());
        self.sections.extend(bytes_of(&[status.into(), count as u32, payload.len() as u32], &[value]));
        self.sections.extend(payload);
        self.sections.resize(self.sections.len().next_multiple_of(8), 0);
        self.section_count += 1;
        // The runner writes the names when the life has ended: they are no stage of it.
        if kind != SectionKind::Files {
            self.stage = kind as u32;
        }
        self
    }

    /// The report's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let (outcome, signal) = match self.outcome {
            Outcome::Done => (0, 0),
            Outcome::Signal(signal) => (1, signal),
            Outcome::Hung => (2, 0),
            Outcome::Exited => (3, 0),
            Outcome::Overloaded => (4, 0),
            Outcome::Broken => (5, 0),
        };
        let total = 32 + self.sections.len() as u32;
        let header = [MAGIC, VERSION, total, self.section_count, outcome, signal, u32::from(self.life), self.stage];
        let mut bytes = bytes_of(&header, &[]);
        bytes.extend(&self.sections);
        bytes
    }

    /// The report, through its binary form.
    ///
    /// # Panics
    /// If what was built is not a valid report.
    #[must_use]
    pub fn report(&self) -> HeapReport {
        HeapReport::parse(&self.bytes()).expect("a valid report was built")
    }
}

fn bytes_of(words: &[u32], longs: &[u64]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(longs.iter().flat_map(|long| long.to_le_bytes())).collect()
}

fn payload_of(blocks: &[Block]) -> Vec<u8> {
    blocks.iter().flat_map(|block| bytes_of(&[block.file, block.state as u32], &[block.offset, block.bytes])).collect()
}

/// A block of file 0.
#[must_use]
pub fn block(state: BlockState, offset: u64, bytes: u64) -> Block {
    Block { file: 0, state, offset, bytes }
}

/// An allocated block of file 0.
#[must_use]
pub fn allocated(offset: u64, bytes: u64) -> Block {
    block(BlockState::Allocated, offset, bytes)
}

/// A free block of file 0.
#[must_use]
pub fn free(offset: u64, bytes: u64) -> Block {
    block(BlockState::Free, offset, bytes)
}

/// A metadata block of file 0.
#[must_use]
pub fn metadata(offset: u64, bytes: u64) -> Block {
    block(BlockState::Metadata, offset, bytes)
}
