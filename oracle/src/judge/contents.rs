// SPDX-License-Identifier: Apache-2.0
//! What the contents of a heap report show of an object.

use crate::history::ExpectedObject;
use crate::pattern::{OBJECT_MASK, Segment};
use crate::report::ContentEntry;
use std::ops::Range;

/// Whether the contents show each promised byte of the object. A run that they have ends at the byte where the pattern ends, and so
/// they tell of every byte of a segment that has a whole word; of one without, nothing.
pub(super) fn is_shown(entries: &[ContentEntry], key: u32, object: &ExpectedObject<'_>) -> bool {
    let first = entries.partition_point(|entry| entry.slot < key);
    let mut start = 0;
    for segment in object.segments {
        let end = segment.end.min(object.checked_bytes);
        if uncovered_range(&entries[first..], key, *segment, start..end).is_some() {
            return false;
        }
        start = segment.end;
    }
    true
}

/// The first promised byte of the object that the contents do not show.
///
/// Contents are found by looking for the pattern, which takes whole words: a word that two segments share, or that is not promised
/// to its end, is left to [`super::ContentSource`].
pub(super) fn uncovered(entries: &[ContentEntry], key: u32, object: &ExpectedObject<'_>) -> Option<u64> {
    let first = entries.partition_point(|entry| entry.slot < key);
    let mut start: u64 = 0;
    for segment in object.segments {
        let end = segment.end.min(object.checked_bytes);
        if start % 8 != 0 && start.checked_next_multiple_of(8) == Some(end - end % 8) {
            // No whole word of this segment, and two shared ones in a row: where nothing tells an object's end, the search
            // for the pattern gives up here.
            return None;
        }
        if let Some(at) = uncovered_segment(&entries[first..], key, *segment, start, end) {
            return Some(at);
        }
        start = segment.end;
    }
    None
}

fn uncovered_segment(entries: &[ContentEntry], key: u32, segment: Segment, start: u64, end: u64) -> Option<u64> {
    uncovered_range(entries, key, segment, start.checked_next_multiple_of(8)?..end - end % 8)
}

/// The first byte of the range that no entry of the segment's object has.
fn uncovered_range(entries: &[ContentEntry], key: u32, segment: Segment, range: Range<u64>) -> Option<u64> {
    let mut at = range.start;
    for entry in entries.iter().take_while(|entry| entry.slot == key) {
        let is_right = entry.object & OBJECT_MASK == segment.object & OBJECT_MASK;
        if is_right && entry.from <= at && at < entry.to {
            at = entry.to;
        }
    }
    (at < range.end).then_some(at)
}
