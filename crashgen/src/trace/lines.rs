// SPDX-License-Identifier: Apache-2.0
//! Lines and units: the pieces of a file that persist as a whole, or not.

use super::{Event, EventKind, FileId};

/// Bytes of a cache line: what is flushed and evicted as a whole.
pub const LINE_BYTES: u64 = 64;
/// Bytes of a page of the operating system: what it maps, and what it takes away where the medium lost a line.
pub const OS_PAGE_BYTES: u64 = 4096;
/// Bytes of a unit: what power failure leaves whole (R3).
pub const UNIT_BYTES: u64 = 8;

/// Which line: the file and the line's number in it (offset / 64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineKey {
    /// File identity.
    pub file: FileId,
    /// Offset in the file / 64.
    pub number: u64,
}

/// An aligned 8-byte piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitKey {
    /// File identity.
    pub file: FileId,
    /// Offset in the file / 8.
    pub number: u64,
}

impl UnitKey {
    /// Its line, and which of the line's eight units it is.
    pub fn line_and_unit(self) -> (LineKey, u8) {
        let a_line = LINE_BYTES / UNIT_BYTES;
        (LineKey { file: self.file, number: self.number / a_line }, (self.number % a_line) as u8)
    }

    /// All units of a line.
    pub fn of_line(line: LineKey) -> impl Iterator<Item = Self> {
        Self::of_range(line.file, line.number * LINE_BYTES, LINE_BYTES)
    }

    /// The lines of `bytes` bytes at `offset`, each with a bit for each of its units that has some of them.
    pub fn lines_of_range(file: FileId, offset: u64, bytes: u64) -> impl Iterator<Item = (LineKey, u8)> {
        let end = offset + bytes;
        (offset / LINE_BYTES..end.div_ceil(LINE_BYTES)).map(move |number| {
            let start = number * LINE_BYTES;
            let first = offset.saturating_sub(start) / UNIT_BYTES;
            let last = (end.min(start + LINE_BYTES) - 1 - start) / UNIT_BYTES;
            (LineKey { file, number }, u8::MAX << first & u8::MAX >> (7 - last))
        })
    }

    /// The units of `bytes` bytes at `offset`.
    pub fn of_range(file: FileId, offset: u64, bytes: u64) -> impl Iterator<Item = Self> {
        let numbers = offset / UNIT_BYTES..(offset + bytes).div_ceil(UNIT_BYTES);
        numbers.map(move |number| Self { file, number })
    }

    /// The units that the event stores to; none if it is no store.
    pub fn of_store(event: &Event) -> impl Iterator<Item = Self> + use<> {
        let range = match &event.kind {
            EventKind::Store { file, offset, bytes, .. } => Some((*file, *offset, bytes.len() as u64)),
            _ => None,
        };
        range.into_iter().flat_map(|(file, offset, bytes)| Self::of_range(file, offset, bytes))
    }
}
