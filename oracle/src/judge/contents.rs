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
        let is_told = |part: Part| {
            part.has_words
                || (part.range.start.max(wrong)..part.range.end).all(|at| self.byte(part.segment, at).is_some())
        };
        parts_of(object).filter(|part| part.range.end > wrong).all(is_told).then_some(true)
    }

    /// The first promised byte that is wrong. A byte of which nothing is told is not: it is left to [`crate::ContentSource`].
    pub(super) fn wrong_byte(self, object: &ExpectedObject<'_>) -> Option<u64> {
        parts_of(object).find_map(|Part { segment, range, has_words }| {
            if has_words {
                return self.uncovered(segment, range);
            }
            range.into_iter().find(|at| self.byte(segment, *at) == Some(false))
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

/// Promised bytes of known content. `has_words`: whole words, which the search for the pattern finds where they are right.
struct Part {
    segment: Segment,
    range: Range<u64>,
    has_words: bool,
}

/// In order: of each segment the bytes in front of its first whole word, its whole words, and those behind. Where nothing tells an
/// object's end, the search gives up at two words in a row that are none: what lies behind them is told byte by byte, or not at all.
fn parts_of<'a>(object: &ExpectedObject<'a>) -> impl Iterator<Item = Part> + use<'a> {
    let (segments, promised) = (object.segments, object.checked_bytes);
    let mut has_given_up = false;
    let parts = move |(number, segment): (usize, &Segment)| {
        let start = if number == 0 { 0 } else { segments[number - 1].end };
        let end = segment.end.min(promised).max(start);
        let first = start.checked_next_multiple_of(8).unwrap_or(end).min(end);
        let last = (end - end % 8).max(first);
        has_given_up |= start % 8 != 0 && first == last && start / 8 != end / 8;
        let (segment, may_have_words) = (*segment, !has_given_up);
        [(start..first, false), (first..last, may_have_words), (last..end, false)].map(|(range, has_words)| Part {
            segment,
            range,
            has_words,
        })
    };
    let is_known = |part: &Part| part.segment.object != UNKNOWN && !part.range.is_empty();
    segments.iter().enumerate().flat_map(parts).filter(is_known)
}
