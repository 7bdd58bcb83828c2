// SPDX-License-Identifier: Apache-2.0
//! What the contents of a heap report show of an object.

use crate::history::ExpectedObject;
use crate::pattern::{OBJECT_MASK, Segment};
use crate::report::ContentEntry;

/// The word that the byte lies in belongs to one segment and to the promised part, so that contents can tell about it.
pub(super) fn is_whole_word(object: &ExpectedObject<'_>, at: u64) -> bool {
    let word = at - at % 8;
    let Some(end) = word.checked_add(8).filter(|end| *end <= object.checked_bytes) else { return false };
    !object.segments.iter().any(|segment| word < segment.end && segment.end < end)
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
    let mut at = start.checked_next_multiple_of(8)?;
    let end = end - end % 8;
    for entry in entries.iter().take_while(|entry| entry.slot == key) {
        let is_right = entry.object & OBJECT_MASK == segment.object & OBJECT_MASK;
        if is_right && entry.from <= at && at < entry.to {
            at = entry.to;
        }
    }
    (at < end).then_some(at)
}
