// SPDX-License-Identifier: Apache-2.0
//! Bytes to [`HeapReport`]. Every length is checked before it is used; no input panics.

use super::{
    BareWord, Block, BlockState, ContentEntry, Contents, Drain, HeapReport, KEPT_OUT, LIFE_COUNT, Life, Location,
    MAGIC, Maximal, Message, NOT_MOVED, ObjectEntry, Objects, Outcome, Retained, SectionKind, SlotEntry, Slots, Stage,
    Status, Unwalked, VERSION, Walk,
};
use crate::history::FIELDS;

const HEADER_BYTES: usize = 32;
const SECTION_BYTES: usize = 24;
const FIELD_BYTES: usize = 16;
const OBJECT_BYTES: usize = 16 + FIELDS as usize * FIELD_BYTES;

/// What is wrong with the bytes of a heap report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ReportError {
    #[error("heap report ends at byte {end}, inside {what}")]
    Truncated { what: &'static str, end: usize },
    #[error("not a heap report: it starts with {0:#010x}, expected {MAGIC:#010x}")]
    Magic(u32),
    #[error("heap report of version {0}, expected {VERSION}: build the runner and the engine from the same sources")]
    Version(u32),
    #[error("heap report says it has {said} bytes but {got} came")]
    TotalBytes { said: u32, got: usize },
    #[error("heap report says it has {said} sections but {got} came")]
    SectionCount { said: u32, got: u32 },
    #[error("heap report has the undefined outcome {0}")]
    Outcome(u32),
    #[error("heap report ended in the undefined stage {0}")]
    Stage(u32),
    #[error("heap report has a section of the unknown kind {0}")]
    SectionKind(u16),
    #[error("heap report has a section of life {0}, expected 0 to {last}", last = LIFE_COUNT - 1)]
    Life(u32),
    #[error("{kind:?} section of life {life}: {count} entries do not fit {bytes} bytes of payload")]
    Payload { kind: SectionKind, life: u16, count: u32, bytes: u32 },
    #[error("{kind:?} section comes twice in life {life}")]
    Twice { kind: SectionKind, life: u16 },
    #[error("{kind:?} section of life {life}: {what}")]
    Entry { kind: SectionKind, life: u16, what: String },
}

/// A cursor that cannot leave the bytes.
struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], ReportError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(ReportError::Truncated { what, end: self.total })?;
        self.rest = rest;
        Ok(head)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

struct Section<'a> {
    kind: SectionKind,
    life: u16,
    status: Status,
    count: u32,
    value: u64,
    payload: &'a [u8],
}

pub(super) fn parse(bytes: &[u8]) -> Result<HeapReport, ReportError> {
    let mut reader = Reader { rest: bytes, total: bytes.len() };
    let header = reader.take(HEADER_BYTES, "the header")?;
    let mut report = read_header(header, bytes.len())?;
    let mut section_count = 0;
    while !reader.rest.is_empty() {
        let section = read_section(&mut reader)?;
        add_section(&mut report, &section)?;
        section_count += 1;
    }
    let said = u32_at(header, 12);
    if said != section_count {
        return Err(ReportError::SectionCount { said, got: section_count });
    }
    for (number, life) in report.lives.iter().enumerate() {
        check_file_numbers(life, number as u16, report.outcome)?;
    }
    Ok(report)
}

fn read_header(header: &[u8], got: usize) -> Result<HeapReport, ReportError> {
    if u32_at(header, 0) != MAGIC {
        return Err(ReportError::Magic(u32_at(header, 0)));
    }
    if u32_at(header, 4) != VERSION {
        return Err(ReportError::Version(u32_at(header, 4)));
    }
    let said = u32_at(header, 8);
    if usize::try_from(said) != Ok(got) {
        return Err(ReportError::TotalBytes { said, got });
    }
    let outcome = match u32_at(header, 16) {
        0 => Outcome::Done,
        1 => Outcome::Signal(u32_at(header, 20)),
        2 => Outcome::Hung,
        3 => Outcome::Exited,
        4 => Outcome::Overloaded,
        5 => Outcome::Broken,
        other => return Err(ReportError::Outcome(other)),
    };
    let last_life = u32_at(header, 24);
    if last_life as usize >= LIFE_COUNT {
        return Err(ReportError::Life(last_life));
    }
    let last_stage = match u32_at(header, 28) {
        0 => None,
        number => Some(SectionKind::from_number(number).ok_or(ReportError::Stage(number))?),
    };
    let lives = vec![Life::default(); last_life as usize + 1];
    Ok(HeapReport { outcome, last_life: last_life as u16, last_stage, lives })
}

fn read_section<'a>(reader: &mut Reader<'a>) -> Result<Section<'a>, ReportError> {
    let header = reader.take(SECTION_BYTES, "a section header")?;
    let number = u16_at(header, 0);
    let kind = SectionKind::from_number(u32::from(number)).ok_or(ReportError::SectionKind(number))?;
    let payload_bytes = u32_at(header, 12) as usize;
    let payload = reader.take(payload_bytes, "a payload")?;
    reader.take(payload_bytes.wrapping_neg() % 8, "a payload's padding")?;
    Ok(Section {
        kind,
        life: u16_at(header, 2),
        status: Status::from(u32_at(header, 4)),
        count: u32_at(header, 8),
        value: u64_at(header, 16),
        payload,
    })
}

fn add_section(report: &mut HeapReport, section: &Section<'_>) -> Result<(), ReportError> {
    let life = report.lives.get_mut(usize::from(section.life)).ok_or(ReportError::Life(u32::from(section.life)))?;
    let status = section.status;
    match section.kind {
        SectionKind::Open => {
            life.has_recovered = section.has_recovered()?;
            life.is_not_moved = section.value & NOT_MOVED != 0;
            life.is_kept_out = section.value & KEPT_OUT != 0;
            section.set(&mut life.open, status)
        }
        SectionKind::Files => section.add_files(&mut life.files),
        SectionKind::Slots => {
            let entries = section.slots()?;
            section.set(&mut life.slots, Slots { status, count: section.value, entries })
        }
        SectionKind::Walk => {
            let blocks = section.blocks()?;
            section.set(&mut life.walk, Walk { status, file_bytes: section.value, blocks })
        }
        SectionKind::Objects => {
            let objects = section.objects()?;
            section.set(&mut life.objects, objects)
        }
        SectionKind::Retained => {
            let blocks = section.blocks()?;
            section.set(&mut life.retained, Retained { status, unreached: section.value, blocks })
        }
        SectionKind::Unwalked => {
            life.unwalked = section.unwalked()?;
            Ok(())
        }
        SectionKind::Settle => section.set(&mut life.settled, status),
        SectionKind::Check => section.set(&mut life.check, status),
        SectionKind::Contents => section.add_contents(life),
        SectionKind::Drain => {
            let blocks = section.blocks()?;
            section.set(&mut life.drain, Drain { status, capacity_bytes: section.value, blocks })
        }
        SectionKind::FreeAll => {
            life.stays_kept_out = section.value & KEPT_OUT != 0;
            section.set(&mut life.free_all, status)
        }
        SectionKind::Maximal => section.set(&mut life.maximal, Maximal { status, bytes: section.value }),
        SectionKind::Close => section.set(&mut life.close, status),
        SectionKind::Recreate => section.set(&mut life.recreate, status),
        SectionKind::Message => {
            let about = u32::try_from(section.value).ok().and_then(SectionKind::from_number);
            let text = String::from_utf8_lossy(section.payload).trim_end_matches('\0').to_owned();
            life.messages.push(Message { about, text });
            Ok(())
        }
    }
}

impl Section<'_> {
    fn set<T>(&self, target: &mut Option<T>, value: T) -> Result<(), ReportError> {
        match target.replace(value) {
            Some(_) => Err(ReportError::Twice { kind: self.kind, life: self.life }),
            None => Ok(()),
        }
    }

    fn has_recovered(&self) -> Result<Option<bool>, ReportError> {
        let flags = NOT_MOVED | KEPT_OUT;
        if self.value & flags != 0 && self.status != Status::Ok {
            return Err(self.bad_entry("open failed, and says how the heap is mapped".to_owned()));
        }
        match (self.value & !flags, self.status) {
            (0, _) => Ok(None),
            (1, Status::Ok) => Ok(Some(false)),
            (2, Status::Ok) => Ok(Some(true)),
            (1 | 2, _) => Err(self.bad_entry("open failed, and says whether it recovered".to_owned())),
            (other, _) => Err(self.bad_entry(format!(
                "open has the value {other}, expected 0 to 2, with {NOT_MOVED} and {KEPT_OUT} added or not"
            ))),
        }
    }

    fn bad_entry(&self, what: String) -> ReportError {
        ReportError::Entry { kind: self.kind, life: self.life, what }
    }

    /// The payload cut into `count` entries, which must fill it exactly.
    fn entries(&self, entry_bytes: usize) -> Result<std::slice::ChunksExact<'_, u8>, ReportError> {
        if (self.count as usize).checked_mul(entry_bytes) != Some(self.payload.len()) {
            return Err(self.bad_payload());
        }
        Ok(self.payload.chunks_exact(entry_bytes))
    }

    fn bad_payload(&self) -> ReportError {
        ReportError::Payload { kind: self.kind, life: self.life, count: self.count, bytes: self.payload.len() as u32 }
    }

    /// Names, each with its NUL. A later FILES section of a life may add files (the heap grew), never change one.
    fn add_files(&self, files: &mut Vec<String>) -> Result<(), ReportError> {
        let mut names = Vec::new();
        if let Some((last, terminated)) = self.payload.split_last() {
            if *last != 0 {
                return Err(self.bad_entry("the last name does not end in NUL".to_owned()));
            }
            for name in terminated.split(|byte| *byte == 0) {
                let name = std::str::from_utf8(name).map_err(|_| {
                    self.bad_entry(format!("file name {:?} is not UTF-8", String::from_utf8_lossy(name)))
                })?;
                names.push(name.to_owned());
            }
        }
        if names.len() != self.count as usize {
            return Err(self.bad_payload());
        }
        if !names.starts_with(files) {
            return Err(ReportError::Twice { kind: self.kind, life: self.life });
        }
        *files = names;
        Ok(())
    }

    fn slots(&self) -> Result<Vec<SlotEntry>, ReportError> {
        let mut entries: Vec<SlotEntry> = Vec::new();
        for bytes in self.entries(16)? {
            let entry = SlotEntry { slot: u32_at(bytes, 0), file: u32_at(bytes, 4), offset: u64_at(bytes, 8) };
            if u64::from(entry.slot) >= self.value {
                return Err(self.bad_entry(format!("slot {} of a heap with {} slots", entry.slot, self.value)));
            }
            if let Some(last) = entries.last().filter(|last| last.slot >= entry.slot) {
                return Err(self.bad_entry(format!("slot {} comes after slot {}", entry.slot, last.slot)));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn objects(&self) -> Result<Objects, ReportError> {
        let location = |bytes: &[u8]| Location { file: u32_at(bytes, 0), offset: u64_at(bytes, 8) };
        let field = |bytes: &[u8]| (u32_at(bytes, 4) != 0).then(|| location(bytes));
        let entry = |bytes: &[u8]| ObjectEntry {
            at: location(bytes),
            fields: std::array::from_fn(|number| field(&bytes[16 + number * FIELD_BYTES..])),
        };
        Objects::new(self.status, self.entries(OBJECT_BYTES)?.map(entry).collect())
            .map_err(|twice| self.bad_entry(format!("the object at {:#x} comes twice", twice.offset)))
    }

    fn blocks(&self) -> Result<Vec<Block>, ReportError> {
        self.entries(24)?
            .map(|bytes| {
                let number = u32_at(bytes, 4);
                let state = BlockState::ALL.into_iter().find(|state| *state as u32 == number);
                let state = state.ok_or_else(|| self.bad_entry(format!("undefined block state {number}")))?;
                Ok(Block { file: u32_at(bytes, 0), state, offset: u64_at(bytes, 8), bytes: u64_at(bytes, 16) })
            })
            .collect()
    }

    fn unwalked(&self) -> Result<Vec<Unwalked>, ReportError> {
        let entry = |bytes: &[u8]| Unwalked {
            file: u32_at(bytes, 0),
            is_mapped: u32_at(bytes, 4) != 0,
            bytes: u64_at(bytes, 8),
        };
        Ok(self.entries(16)?.map(entry).collect())
    }

    fn add_contents(&self, life: &mut Life) -> Result<(), ReportError> {
        let after = match life {
            Life { maximal: Some(_), .. } => Stage::Maximal,
            Life { free_all: Some(_), .. } => Stage::FreeAll,
            Life { drain: Some(_), .. } => Stage::Drain,
            _ => Stage::Recovery,
        };
        if life.contents.iter().any(|contents| contents.after == after) {
            return Err(ReportError::Twice { kind: self.kind, life: self.life });
        }
        let mut entries: Vec<ContentEntry> = Vec::new();
        let mut words: Vec<BareWord> = Vec::new();
        for bytes in self.entries(24)? {
            let (slot, object) = (u32_at(bytes, 0), u32_at(bytes, 4));
            let (from, to) = (u64_at(bytes, 8), u64_at(bytes, 16));
            if object == 0 {
                if from % 8 != 0 || words.last().is_some_and(|last| (last.slot, last.at) >= (slot, from)) {
                    return Err(self.bad_entry(format!("slot {slot}: the word at {from} is out of order")));
                }
                words.push(BareWord { slot, at: from, bytes: to.to_le_bytes() });
                continue;
            }
            let entry = ContentEntry { slot, object, from, to };
            let follows = |last: &ContentEntry| (last.slot, last.to) <= (slot, entry.from) || last.slot < slot;
            if entry.from >= entry.to || !entries.last().is_none_or(follows) {
                return Err(self.bad_entry(format!("slot {slot}: bytes {}..{} are out of order", entry.from, entry.to)));
            }
            entries.push(entry);
        }
        life.contents.push(Contents { after, status: self.status, entries, words });
        Ok(())
    }
}

/// A life that was cut short may lack the FILES section; one that came to its end may not.
fn check_file_numbers(life: &Life, number: u16, outcome: Outcome) -> Result<(), ReportError> {
    if life.files.is_empty() && outcome != Outcome::Done {
        return Ok(());
    }
    let slots = life.slots.iter().flat_map(|slots| &slots.entries).map(|entry| (SectionKind::Slots, entry.file));
    let walk = life.walk.iter().flat_map(|walk| &walk.blocks).map(|block| (SectionKind::Walk, block.file));
    let drain = life.drain.iter().flat_map(|drain| &drain.blocks).map(|block| (SectionKind::Drain, block.file));
    let retained = life.retained.iter().flat_map(|retained| &retained.blocks);
    let retained = retained.map(|block| (SectionKind::Retained, block.file));
    let unwalked = life.unwalked.iter().map(|unwalked| (SectionKind::Unwalked, unwalked.file));
    let objects = life.objects.iter().flat_map(|objects| &objects.entries);
    let locations = objects.flat_map(|object| object.fields.into_iter().flatten().chain([object.at]));
    let objects = locations.map(|location| (SectionKind::Objects, location.file));
    match slots
        .chain(walk)
        .chain(drain)
        .chain(retained)
        .chain(unwalked)
        .chain(objects)
        .find(|(_, file)| *file as usize >= life.files.len())
    {
        Some((kind, file)) => {
            let what = format!("file number {file} of a life with {} files", life.files.len());
            Err(ReportError::Entry { kind, life: number, what })
        }
        None => Ok(()),
    }
}
