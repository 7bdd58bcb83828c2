// SPDX-License-Identifier: Apache-2.0
//! The bytes of one store. A trace has millions, nearly all of 8 bytes or less: those lie in the event itself, and cost no allocation.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What fits beside a length where others have a pointer.
const SHORT_BYTES: usize = 14;

/// What one store puts into memory; read as a slice.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredBytes(Storage);

/// The length alone decides which of both it is, and unused bytes are zero: so equal bytes are stored equally.
#[derive(Clone, PartialEq, Eq)]
enum Storage {
    Short { length: u8, bytes: [u8; SHORT_BYTES] },
    Long(Arc<Box<[u8]>>),
}

impl From<&[u8]> for StoredBytes {
    fn from(stored: &[u8]) -> Self {
        if stored.len() > SHORT_BYTES {
            return Self(Storage::Long(Arc::new(stored.into())));
        }
        let mut bytes = [0; SHORT_BYTES];
        bytes[..stored.len()].copy_from_slice(stored);
        Self(Storage::Short { length: stored.len() as u8, bytes })
    }
}

impl From<Vec<u8>> for StoredBytes {
    fn from(stored: Vec<u8>) -> Self {
        stored[..].into()
    }
}

impl Deref for StoredBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Short { length, bytes } => &bytes[..usize::from(*length)],
            Storage::Long(bytes) => bytes,
        }
    }
}

impl fmt::Debug for StoredBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, EventKind};

    #[test]
    fn bytes_of_every_length_come_back_and_are_compared_as_slices() {
        let all: Vec<u8> = (1..=64).collect();
        for length in 0..all.len() {
            let stored = StoredBytes::from(&all[..length]);
            assert_eq!(*stored, all[..length]);
            assert_eq!(stored, all[..length].to_vec().into());
            assert_ne!(stored, all[..length + 1].into());
            assert_eq!(format!("{stored:?}"), format!("{:?}", &all[..length]));
        }
    }

    #[test]
    fn an_event_of_a_trace_is_small() {
        assert_eq!((size_of::<StoredBytes>(), size_of::<EventKind>(), size_of::<Event>()), (16, 32, 48));
    }
}
