// SPDX-License-Identifier: Apache-2.0
//! The heap report: what the runner tells of a recovered heap. Format: runner/protocol.h, little-endian.
//!
//! ```text
//! report  := header (32 bytes)  section*
//! section := section header (24 bytes)  payload, zero padded to 8 bytes
//! ```
//! A probe runs the heap through up to seven *lives*, each a process of its own: life 0 is the recovery of the crash image; life 1
//! recovers it again and loses power with every store persisted; life 2 recovers that; life 3 recovers a fresh copy of the crash
//! image and goes through the stages drain, free what it got, maximal allocation and close, so that these use what the first recovery
//! built; life 4 opens what life 3 closed; life 5 recovers another fresh copy, frees all objects, drains what it then has and
//! closes; life 6 opens that. **File numbers belong to a life**: each life has its own FILES section, and the same
//! number may mean another file in another life. Compare files by name.

mod abstract_heap;
pub mod build;
mod difference;
mod parse;

use std::fmt;

use crate::history::FIELDS;

pub use abstract_heap::{AbstractHeap, Place};
pub use parse::ReportError;

/// First bytes of a report, "FLHR".
pub const MAGIC: u32 = 0x5248_4c46;
/// Version of the format that this crate reads and writes.
pub const VERSION: u32 = 11;
/// Added to what open says (`FL_OPEN_NOT_MOVED`).
const NOT_MOVED: u64 = 4;
/// The same (`FL_OPEN_KEPT_OUT`).
const KEPT_OUT: u64 = 8;
/// Lives of a full probe.
pub const LIFE_COUNT: usize = 7;
/// Of a twin, copies of the process that executed the workload: one emptied the open heap and drained it, another closed it.
pub const EXECUTED: u16 = 1;
/// Of a crash image: the life that recovers it again and loses power with every store persisted.
pub const WITHOUT_LOSS: u16 = 1;
/// The life that recovers what the one before it recovered and left.
pub const SECOND_RECOVERY: u16 = 2;
/// The life that recovers a fresh copy of the crash image and uses the heap.
pub const USE: u16 = 3;
/// The life that opens what was used and closed.
pub const REOPENED: u16 = 4;
/// The life that recovers another fresh copy of the crash image, frees all objects and drains what it then has.
pub const EMPTIED: u16 = 5;
/// The life that opens what was emptied, drained and closed.
pub const EMPTIED_REOPENED: u16 = 6;

/// A parsed heap report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapReport {
    /// How the probe ended.
    pub outcome: Outcome,
    /// Last life that began.
    pub last_life: u16,
    /// The section that the last life was at; `None`: before its first.
    pub last_stage: Option<SectionKind>,
    /// The lives that began, by number.
    pub lives: Vec<Life>,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All stages were gone through, or one answered an error.
    Done,
    /// The target died of this signal.
    Signal(u32),
    /// CPU limit, or asleep at the wall limit.
    Hung,
    /// The target called exit.
    Exited,
    /// Wall limit while runnable and below the CPU limit: the machine was overloaded, nothing is known.
    Overloaded,
    /// The runner itself failed, nothing is known.
    Broken,
}

/// What an adapter call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Ok,
    /// The operation had no effect.
    OutOfMemory,
    /// The folder holds no completely created heap.
    NotAHeap,
    /// Damage was detected.
    Corrupt,
    /// The adapter cannot do this.
    UnsupportedCall,
    /// Anything else.
    Error,
    /// A number that adapter.h does not define.
    Undefined(u32),
}

impl From<u32> for Status {
    fn from(number: u32) -> Status {
        match number {
            0 => Status::Ok,
            1 => Status::OutOfMemory,
            2 => Status::NotAHeap,
            3 => Status::Corrupt,
            4 => Status::UnsupportedCall,
            5 => Status::Error,
            other => Status::Undefined(other),
        }
    }
}

impl From<Status> for u32 {
    fn from(status: Status) -> u32 {
        match status {
            Status::Ok => 0,
            Status::OutOfMemory => 1,
            Status::NotAHeap => 2,
            Status::Corrupt => 3,
            Status::UnsupportedCall => 4,
            Status::Error => 5,
            Status::Undefined(number) => number,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Ok => f.write_str("ok"),
            Status::OutOfMemory => f.write_str("out-of-memory"),
            Status::NotAHeap => f.write_str("not-a-heap"),
            Status::Corrupt => f.write_str("corrupt"),
            Status::UnsupportedCall => f.write_str("unsupported-call"),
            Status::Error => f.write_str("error"),
            Status::Undefined(number) => write!(f, "undefined status {number}"),
        }
    }
}

/// The kinds of sections, by their numbers in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)] // they are described at the fields of Life, which they fill
pub enum SectionKind {
    Open = 1,
    Files,
    Slots,
    Walk,
    Check,
    Contents,
    Drain,
    FreeAll,
    Maximal,
    Close,
    Recreate,
    Message,
    Objects,
    Retained,
    Unwalked,
    Settle,
}

impl SectionKind {
    /// Every kind, in order of number.
    pub const ALL: [SectionKind; 16] = [
        SectionKind::Open,
        SectionKind::Files,
        SectionKind::Slots,
        SectionKind::Walk,
        SectionKind::Check,
        SectionKind::Contents,
        SectionKind::Drain,
        SectionKind::FreeAll,
        SectionKind::Maximal,
        SectionKind::Close,
        SectionKind::Recreate,
        SectionKind::Message,
        SectionKind::Objects,
        SectionKind::Retained,
        SectionKind::Unwalked,
        SectionKind::Settle,
    ];

    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<SectionKind> {
        SectionKind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// One life of the heap: what one process saw of it. A section that the life did not come to is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Names of the files, relative to the heap folder; the position is the file number **in this life**.
    pub files: Vec<String>,
    /// What open (recovery) answered.
    pub open: Option<Status>,
    /// Whether it had to recover, if the adapter tells; else it took the heap as a close had left it.
    pub has_recovered: Option<bool>,
    /// The heap was to be mapped at another address than it was made at, and nothing of it is mapped there.
    pub is_not_moved: bool,
    /// A stray store was to be made as soon as the heap was open, and nothing that was mapped let it be stored.
    pub is_kept_out: bool,
    /// Nor, in a use of the heap, when the objects of the drain had been freed.
    pub stays_kept_out: bool,
    /// All slots that are not null.
    pub slots: Option<Slots>,
    /// What the end of a lazy open answered, or the first use before it that failed.
    pub settled: Option<Status>,
    /// The objects that the workload's slots reach, where objects hold references to objects.
    pub objects: Option<Objects>,
    /// The heap blocks, as the allocator's own metadata has them.
    pub walk: Option<Walk>,
    /// What a collector may have kept; `None` too where slots and fields reach every live heap block.
    pub retained: Option<Retained>,
    /// Files in the heap folder that no heap block of the walk lies in.
    pub unwalked: Vec<Unwalked>,
    /// What the allocator's own check answered.
    pub check: Option<Status>,
    /// The objects' contents, once for each stage after which they were looked at.
    pub contents: Vec<Contents>,
    /// The allocations down to out-of-memory: beside the objects, and in life 5 and a twin's life 1 when they were freed.
    pub drain: Option<Drain>,
    /// The first failure of the frees, or ok: of what the drain got, in life 5 and a twin's life 1 of all objects.
    pub free_all: Option<Status>,
    /// The maximal allocation.
    pub maximal: Option<Maximal>,
    /// What close answered.
    pub close: Option<Status>,
    /// What create answered on the folder that open called not a heap.
    pub recreate: Option<Status>,
    /// Texts of the adapter or of the runner.
    pub messages: Vec<Message>,
}

impl Life {
    /// Name of a file of this life.
    pub fn file_name(&self, file: u32) -> Option<&str> {
        self.files.get(file as usize).map(String::as_str)
    }

    /// The contents as they were after the stage, if all slots could be read.
    pub fn contents_after(&self, stage: Stage) -> Option<&Contents> {
        self.contents.iter().find(|contents| contents.after == stage && contents.status == Status::Ok)
    }
}

/// A stage of a life after which contents are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// open, slots, walk, check.
    Recovery,
    /// Allocations down to out-of-memory.
    Drain,
    /// The drain's allocations were freed.
    FreeAll,
    /// The maximal allocation.
    Maximal,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Recovery => "recovery",
            Stage::Drain => "the drain",
            Stage::FreeAll => "the freeing of all",
            Stage::Maximal => "the maximal allocation",
        })
    }
}

/// A text of the adapter or of the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The section it explains.
    pub about: Option<SectionKind>,
    /// What it says.
    pub text: String,
}

/// All slots that are not null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// What read_slot answered, the first failure or ok.
    pub status: Status,
    /// How many slots the heap has.
    pub count: u64,
    /// In order of slot, each once.
    pub entries: Vec<SlotEntry>,
}

/// A slot that is not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// Number of the slot.
    pub slot: u32,
    /// Number of the file in this life.
    pub file: u32,
    /// Where in the file the object starts.
    pub offset: u64,
}

impl SlotEntry {
    /// Where the object is.
    pub fn location(&self) -> Location {
        Location { file: self.file, offset: self.offset }
    }
}

/// Where in the heap an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Number of the file in this life.
    pub file: u32,
    /// Where in the file the object starts, as the application sees it.
    pub offset: u64,
}

/// The objects that the workload's slots reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// What read_field answered, the first failure or ok; out-of-memory: there are more objects than a report lists.
    pub status: Status,
    /// Each once, breadth first.
    pub entries: Vec<ObjectEntry>,
    /// Positions of the entries, in order of location.
    sorted: Vec<u32>,
}

impl Objects {
    /// `None`: the location of an entry comes twice, which is returned.
    fn new(status: Status, entries: Vec<ObjectEntry>) -> Result<Objects, Location> {
        let mut sorted: Vec<u32> = (0..entries.len() as u32).collect();
        sorted.sort_unstable_by_key(|position| entries[*position as usize].at);
        let at = |position: u32| entries[position as usize].at;
        match sorted.windows(2).find(|pair| at(pair[0]) == at(pair[1])) {
            Some(twice) => Err(at(twice[0])),
            None => Ok(Objects { status, entries, sorted }),
        }
    }

    /// Position of the object at this location.
    pub fn position(&self, location: Location) -> Option<u32> {
        let at = |position: &u32| self.entries[*position as usize].at;
        self.sorted.binary_search_by_key(&location, at).ok().map(|found| self.sorted[found])
    }
}

/// An object that the workload's slots reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Where it is.
    pub at: Location,
    /// What its fields hold; `None`: null. A field may name any place, with an object or without.
    pub fields: [Option<Location>; FIELDS as usize],
}

/// Live heap blocks that slots and fields do not reach, and that a conservative collector cannot tell from reached ones: some
/// word of a reached heap block, or of a retained one, may be a pointer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// What word_target answered, the first failure or ok.
    pub status: Status,
    /// How many live heap blocks slots and fields do not reach.
    pub unreached: u64,
    /// Those of them that are retained, in the order of the walk.
    pub blocks: Vec<Block>,
}

/// State of a heap block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum BlockState {
    /// Live: handed out and published.
    Allocated = 1,
    /// Handed out, not yet published; volatile.
    Reserved,
    /// Ready to be handed out.
    Free,
    /// The allocator's own, and the slots.
    Metadata,
    /// Padding and tails that no allocation can ever use.
    Unusable,
}

impl BlockState {
    /// Every state, in order of number.
    pub const ALL: [BlockState; 5] =
        [BlockState::Allocated, BlockState::Reserved, BlockState::Free, BlockState::Metadata, BlockState::Unusable];
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockState::Allocated => "allocated",
            BlockState::Reserved => "reserved",
            BlockState::Free => "free",
            BlockState::Metadata => "metadata",
            BlockState::Unusable => "unusable",
        })
    }
}

/// A heap block, or an allocation of the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of the file in this life.
    pub file: u32,
    /// Its state.
    pub state: BlockState,
    /// Where in the file the part that an application may use (or the metadata) starts.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
}

impl Block {
    /// Offset of the first byte after the block; more than any file has where the report's numbers overflow.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Where it starts.
    pub fn location(&self) -> Location {
        Location { file: self.file, offset: self.offset }
    }
}

/// The heap blocks, as the allocator's own metadata has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// What walk answered.
    pub status: Status,
    /// Sum of the sizes of the heap's files.
    pub file_bytes: u64,
    /// In the order reported.
    pub blocks: Vec<Block>,
}

/// A file in the heap folder that no heap block of the walk lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwalked {
    /// Number in [`Life::files`].
    pub file: u32,
    /// The life had it mapped at its walk.
    pub is_mapped: bool,
    /// Its size.
    pub bytes: u64,
}

/// Which parts of the objects in slots carry the pattern of which object id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The stage before.
    pub after: Stage,
    /// What read_slot answered, the first failure or ok; the entries are those up to there.
    pub status: Status,
    /// In order of slot and `from`.
    pub entries: Vec<ContentEntry>,
    /// Words that are no whole word of a pattern, in order of slot and `at`: beside the entries, and where an object has none.
    pub words: Vec<BareWord>,
}

/// A word of the object that is no whole word of a pattern. Two entries may share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareWord {
    /// As in [`ContentEntry`].
    pub slot: u32,
    /// Offset of its first byte, a multiple of 8.
    pub at: u64,
    /// What it holds; zero beyond the heap block's end.
    pub bytes: [u8; 8],
}

/// Bytes `from..to` of the object carry the pattern of this object id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentEntry {
    /// Number of the slot that holds it; where objects hold references to objects its position in [`Objects`].
    pub slot: u32,
    /// Object id, its low 24 bits.
    pub object: u32,
    /// First byte.
    pub from: u64,
    /// First byte after.
    pub to: u64,
}

/// The allocations down to out-of-memory, largest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Ok; out-of-memory where all probe slots were used up first; else what an allocation failed with.
    pub status: Status,
    /// Bytes got in all.
    pub capacity_bytes: u64,
    /// In the order made.
    pub blocks: Vec<Block>,
}

impl Drain {
    /// Whether the drain stopped because all probe slots were used, so that the capacity is only a lower bound.
    pub fn is_bounded(&self) -> bool {
        self.status == Status::OutOfMemory
    }

    /// Bytes of the largest allocation; 0: there was none.
    pub fn largest_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes).max().unwrap_or(0)
    }
}

/// The maximal allocation: the largest size that the drain got, asked for again after all was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maximal {
    /// What allocate answered.
    pub status: Status,
    /// Bytes asked for.
    pub bytes: u64,
}

impl HeapReport {
    /// Reads a report. Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// [`ReportError`] says what in the bytes is not a report.
    pub fn parse(bytes: &[u8]) -> Result<HeapReport, ReportError> {
        parse::parse(bytes)
    }

    /// A life, if it began.
    pub fn life(&self, number: usize) -> Option<&Life> {
        self.lives.get(number)
    }
}
