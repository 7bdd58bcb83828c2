// SPDX-License-Identifier: Apache-2.0
//! The oracle's questions about object contents, answered from the files of a crashed heap.

use oracle::pattern::{expected_bytes, known_ranges};
use oracle::{ContentSource, Segment};
use std::cell::RefCell;
use std::ops::Range;

/// Bytes compared at a time.
const PIECE_BYTES: u64 = 4096;

/// The files of one crashed heap. `R` reads a range of one from an offset on; false: it does not lie in the file.
pub struct HeapContent<R> {
    read: R,
    found: RefCell<Vec<u8>>,
}

impl<R: Fn(&str, u64, &mut [u8]) -> bool> HeapContent<R> {
    /// Read so.
    pub fn read_by(read: R) -> Self {
        Self { read, found: RefCell::new(Vec::new()) }
    }
}

impl<R: Fn(&str, u64, &mut [u8]) -> bool> ContentSource for HeapContent<R> {
    fn differs(&self, file: &str, offset: u64, expected: &[Segment], bytes: u64) -> Option<u64> {
        known_ranges(expected, bytes).find_map(|range| self.first_wrong(file, offset, expected, range))
    }
}

impl<R: Fn(&str, u64, &mut [u8]) -> bool> HeapContent<R> {
    /// In a range of the object's bytes that is known.
    fn first_wrong(&self, file: &str, offset: u64, expected: &[Segment], range: Range<u64>) -> Option<u64> {
        let mut found = self.found.borrow_mut();
        let mut at = range.start;
        while at < range.end {
            let piece = PIECE_BYTES.min(range.end - at);
            found.resize(piece as usize, 0);
            let place = offset.checked_add(at);
            if !place.is_some_and(|place| (self.read)(file, place, &mut found)) {
                return Some(at);
            }
            let expected = expected_bytes(expected, at..at + piece);
            if let Some(first) = found.iter().zip(&expected).position(|(found, expected)| found != expected) {
                return Some(at + first as u64);
            }
            at += piece;
        }
        None
    }
}

/// For reports of which no content is asked: every object is as it should be.
pub struct Unasked;

impl ContentSource for Unasked {
    fn differs(&self, _file: &str, _offset: u64, _expected: &[Segment], _bytes: u64) -> Option<u64> {
        None
    }
}
