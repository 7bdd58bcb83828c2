// SPDX-License-Identifier: Apache-2.0
//! Versions of an image, and which lines changed between them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Changes that are remembered for each line. A copy that is further behind is made anew.
pub const CHANGES_A_LINE: usize = 4;
/// Changes that are remembered at least.
pub const LEAST_CHANGES: usize = 1024;

/// One of the contents that an image has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageVersion {
    /// Which image.
    image: u64,
    /// Number of changes by then.
    pub(super) change: u64,
}

/// Which lines changed last, in order.
pub(super) struct Changes {
    /// The image's number: no other image of this process has it.
    image: u64,
    /// Changes before those in `lines`.
    forgotten: u64,
    /// The index in the image of each line that changed. Where it has changed again since, only the last one counts.
    lines: Vec<u32>,
}

impl Changes {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { image: NEXT.fetch_add(1, Ordering::Relaxed), forgotten: 0, lines: Vec::new() }
    }

    fn count(&self) -> u64 {
        self.forgotten + self.lines.len() as u64
    }

    /// Adds one, of an image with so many lines; returns its number.
    pub fn add(&mut self, line: usize, line_count: usize) -> u64 {
        if self.lines.len() >= LEAST_CHANGES + CHANGES_A_LINE * line_count {
            let half = self.lines.len() / 2;
            self.lines.drain(..half);
            self.forgotten += half as u64;
        }
        self.lines.push(line as u32);
        self.count()
    }

    /// Changes that are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.lines.len()
    }

    /// The version of the image after the last change.
    pub fn version(&self) -> ImageVersion {
        ImageVersion { image: self.image, change: self.count() }
    }

    /// Whether that is a version of this image, and not of another one.
    pub fn has(&self, version: ImageVersion) -> bool {
        version.image == self.image
    }

    /// The changes after that version: the number of each, and the line's index. None: some are forgotten.
    pub fn after(&self, version: ImageVersion) -> Option<impl Iterator<Item = (u64, usize)>> {
        let known = version.change.checked_sub(self.forgotten)?;
        let later = self.lines[known as usize..].iter().map(|line| *line as usize);
        Some((version.change + 1..).zip(later))
    }
}
