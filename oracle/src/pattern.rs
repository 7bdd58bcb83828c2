// SPDX-License-Identifier: Apache-2.0
//! The pattern that fill writes into objects; the same function as `fl_pattern_word` of runner/protocol.h.
//!
//! ```text
//! bits 63..48  0xF1ED: a non-canonical address, no pointer to a conservative collector
//! bits 47..24  object id, 24 bits
//! bits 23..0   a mix of object id and word index
//! ```
//! Byte `b` of an object is byte `b % 8` of word `b / 8`, little-endian. The size is no part of it: what reallocate keeps stays
//! valid, and an object's expected content is a list of [`Segment`]s.

use std::ops::Range;

/// A run of an object's bytes that carries the pattern of one object id. A run starts where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Offset in the object of the first byte after the run.
    pub end: u64,
    /// Object id; [`UNKNOWN`]: nobody promised what is there.
    pub object: u32,
}

/// The object id of a run that may hold anything: power failed while it was overwritten.
pub const UNKNOWN: u32 = 0;

/// The parts of the first `bytes` bytes whose content is known, in order. What lies past the last segment is.
pub fn known_ranges(segments: &[Segment], bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = std::iter::once(0).chain(segments.iter().map(|segment| segment.end));
    let ends = segments.iter().map(|segment| (segment.end, segment.object != UNKNOWN)).chain([(u64::MAX, true)]);
    let ranges = starts.zip(ends).filter(|(_, (_, is_known))| *is_known);
    let mut ranges =
        ranges.map(move |(start, (end, _))| start..end.min(bytes)).filter(|range| !range.is_empty()).peekable();
    std::iter::from_fn(move || {
        let mut range = ranges.next()?;
        while let Some(next) = ranges.next_if(|next| next.start == range.end) {
            range.end = next.end;
        }
        Some(range)
    })
}

/// Object ids are told apart by this many low bits: more do not fit the pattern.
pub const OBJECT_MASK: u32 = 0xff_ffff;

/// Word `index` of the object.
pub fn pattern_word(object: u32, index: u64) -> u64 {
    let mut mix = (u64::from(object) << 40) ^ index;
    mix = (mix ^ (mix >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix = (mix ^ (mix >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    0xF1ED << 48 | u64::from(object & OBJECT_MASK) << 24 | mix >> 40
}

/// Byte `offset` of the object.
pub fn pattern_byte(object: u32, offset: u64) -> u8 {
    pattern_word(object, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

/// The bytes `range` of an object with this content; what lies past the last segment is zero.
pub fn expected_bytes(segments: &[Segment], range: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(range.end.saturating_sub(range.start) as usize);
    let mut at = range.start;
    for segment in segments.iter().filter(|segment| segment.end > range.start) {
        append_pattern(&mut bytes, segment.object, at..segment.end.min(range.end));
        at = at.max(segment.end.min(range.end));
    }
    bytes.resize(range.end.saturating_sub(range.start) as usize, 0);
    bytes
}

fn append_pattern(bytes: &mut Vec<u8>, object: u32, range: Range<u64>) {
    let mut at = range.start;
    while at < range.end {
        let word_start = at - at % 8;
        let word = pattern_word(object, at / 8).to_le_bytes();
        let end = range.end.min(word_start.saturating_add(8));
        bytes.extend_from_slice(&word[(at - word_start) as usize..(end - word_start) as usize]);
        at = end;
    }
}
