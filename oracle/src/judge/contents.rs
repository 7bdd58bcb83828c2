// SPDX-License-Identifier: Apache-2.0
//! What the contents of a heap report show of an object.

use crate::history::ExpectedObject;
use crate::pattern::{OBJECT_MASK, Segment, UNKNOWN, pattern_byte};
use crate::report::ContentEntry;
use std::ops::Range;

/// Whether the contents show that recovery put the object right, of which the crash image has a wrong byte. A run that they have ends at
/// the byte where the pattern ends.
pub(super) fn is_put_right(entries: &[ContentEntry], key: u32, object: &ExpectedObject<'_>, wrong: u64) -> bool {
    let first = entries.partition_point(|entry| entry.slot < key);
    tell_of(object, wrong)
        && told(object).all(|(segment, range)| uncovered_range(&entries[first..], key, segment, range).is_none())
}

/// Whether contents tell of this byte of the object.
pub(super) fn tell_of(object: &ExpectedObject<'_>, at: u64) -> bool {
    told(object).any(|(_, range)| range.contains(&at))
}

/// The first promised byte of the object that the contents do not show.
///
/// Contents are found by looking for the pattern, which takes whole words: a word that two segments share, or that is not promised
/// to its end, is left to [`super::ContentSource`].
pub(super) fn uncovered(entries: &[ContentEntry], key: u32, object: &ExpectedObject<'_>) -> Option<u64> {
    let first = entries.partition_point(|entry| entry.slot < key);
    told(object).find_map(|(segment, range)| uncovered_segment(&entries[first..], key, segment, range.start, range.end))
}

/// What contents tell of: the known segments that have a whole word, as far as they are promised. Where nothing tells an object's end, the
/// search for the pattern gives up at two shared words in a row.
fn told<'a>(object: &ExpectedObject<'a>) -> impl Iterator<Item = (Segment, Range<u64>)> + use<'a> {
    let (segments, promised) = (object.segments, object.checked_bytes);
    let ranges = segments.iter().enumerate().map(move |(number, segment)| {
        let start = if number == 0 { 0 } else { segments[number - 1].end };
        (*segment, start..segment.end.min(promised))
    });
    let gives_up = |range: &Range<u64>| {
        range.start % 8 != 0 && range.start.checked_next_multiple_of(8) == Some(range.end - range.end % 8)
    };
    let has_word = |range: &Range<u64>| {
        range.start.checked_next_multiple_of(8).and_then(|word| word.checked_add(8)).is_some_and(|end| end <= range.end)
    };
    let is_told = move |(segment, range): &(Segment, Range<u64>)| segment.object != UNKNOWN && has_word(range);
    ranges.take_while(move |(_, range)| !gives_up(range)).filter(is_told)
}

fn uncovered_segment(entries: &[ContentEntry], key: u32, segment: Segment, start: u64, end: u64) -> Option<u64> {
    uncovered_range(entries, key, segment, start.checked_next_multiple_of(8)?..end - end % 8)
}

/// The first byte of the range that no entry of the segment's object has, nor another entry with the same byte there: in a word that
/// two runs share, the first of them has every byte that could be its own.
fn uncovered_range(entries: &[ContentEntry], key: u32, segment: Segment, range: Range<u64>) -> Option<u64> {
    let mut at = range.start;
    for entry in entries.iter().take_while(|entry| entry.slot == key && entry.from < range.end) {
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
