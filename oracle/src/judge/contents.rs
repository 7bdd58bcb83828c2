// SPDX-License-Identifier: Apache-2.0
//! What the contents of a heap report show of an object.
//!
//! Contents are found by looking for the pattern, which takes whole words. Of a word that two segments share, or that an object ends in,
//! they have the bytes themselves, if the report lists the word.

use crate::history::ExpectedObject;
use crate::pattern::{OBJECT_MASK, Segment, UNKNOWN, pattern_byte};
use crate::report::{BareWord, ContentEntry, Contents};
use std::ops::Range;

/// The contents of one object.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    entries: &'a [ContentEntry],
    words: &'a [BareWord],
}

impl<'a> Shown<'a> {
    /// Of the object that the contents have under this number.
    pub(super) fn of(contents: &'a Contents, key: u32) -> Shown<'a> {
        let entries = &contents.entries[contents.entries.partition_point(|entry| entry.slot < key)..];
        let words = &contents.words[contents.words.partition_point(|word| word.slot < key)..];
        Shown {
            entries: &entries[..entries.partition_point(|entry| entry.slot == key)],
            words: &words[..words.partition_point(|word| word.slot == key)],
        }
    }

    /// Whether recovery put the object right, of which the crash image has a wrong byte, the first one: nothing is wrong, and all from that
    /// byte on is told. `None`: what is told is right, and not all is.
    pub(super) fn is_put_right(self, object: &ExpectedObject<'_>, wrong: u64) -> Option<bool> {
        if self.wrong_byte(object).is_some() {
            return Some(false);
        }
        let mut parts = known_parts(object).filter(|(_, part)| part.end > wrong);
        let is_told = parts.all(|(segment, part)| {
            has_whole_words(&part) || (part.start.max(wrong)..part.end).all(|at| self.byte(segment, at).is_some())
        });
        is_told.then_some(true)
    }

    /// The first promised byte that is wrong. A byte of which nothing is told is not: it is left to [`crate::ContentSource`].
    pub(super) fn wrong_byte(self, object: &ExpectedObject<'_>) -> Option<u64> {
        known_parts(object).find_map(|(segment, part)| {
            if has_whole_words(&part) {
                return self.uncovered(segment, part);
            }
            part.into_iter().find(|at| self.byte(segment, *at) == Some(false))
        })
    }

    /// Whether the byte is the segment's; `None`: nothing tells.
    fn byte(self, segment: Segment, at: u64) -> Option<bool> {
        let must = pattern_byte(segment.object, at);
        let word = self.words.binary_search_by_key(&(at - at % 8), |word| word.at);
        if let Ok(found) = word {
            return Some(self.words[found].bytes[(at % 8) as usize] == must);
        }
        let entry = self.entries.iter().find(|entry| (entry.from..entry.to).contains(&at))?;
        Some(pattern_byte(entry.object, at) == must)
    }

    /// The first byte of the range that no entry of the segment's object has, nor another entry with the same byte there: in a word that
    /// two runs share, the first of them has every byte that could be its own.
    fn uncovered(self, segment: Segment, range: Range<u64>) -> Option<u64> {
        let mut at = range.start;
        for entry in self.entries.iter().take_while(|entry| entry.from < range.end) {
            let is_same = entry.object & OBJECT_MASK == segment.object & OBJECT_MASK;
            let has = |at: u64| entry.from <= at && at < entry.to;
            if is_same && has(at) {
                at = entry.to;
            }
            while has(at) && at < range.end && pattern_byte(entry.object, at) == pattern_byte(segment.object, at) {
                at += 1;
            }
        }
        (at < range.end).then_some(at)
    }
}

/// The promised bytes of known content in order: of each segment the bytes in front of its first whole word, its whole words, and those
/// behind. Where nothing tells an object's end, the search for the pattern gives up at two words in a row that are none: what lies
/// behind them is left out.
fn known_parts<'a>(object: &ExpectedObject<'a>) -> impl Iterator<Item = (Segment, Range<u64>)> + use<'a> {
    let (segments, promised) = (object.segments, object.checked_bytes);
    let ranges = segments.iter().enumerate().map(move |(number, segment)| {
        let start = if number == 0 { 0 } else { segments[number - 1].end };
        (*segment, start..segment.end.min(promised))
    });
    let gives_up = |range: &Range<u64>| {
        range.start % 8 != 0 && range.start.checked_next_multiple_of(8) == Some(range.end - range.end % 8)
    };
    let parts = |(segment, range): (Segment, Range<u64>)| {
        let first = range.start.checked_next_multiple_of(8).unwrap_or(range.end).min(range.end);
        let last = (range.end - range.end % 8).max(first);
        [range.start..first, first..last, last..range.end].map(|part| (segment, part))
    };
    let is_known = |(segment, part): &(Segment, Range<u64>)| segment.object != UNKNOWN && !part.is_empty();
    ranges.take_while(move |(_, range)| !gives_up(range)).flat_map(parts).filter(is_known)
}

/// Of a part.
fn has_whole_words(part: &Range<u64>) -> bool {
    part.start % 8 == 0 && part.end % 8 == 0
}
