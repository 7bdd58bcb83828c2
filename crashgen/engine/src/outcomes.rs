// SPDX-License-Identifier: Apache-2.0
//! Outcomes: what recoveries of a trace can show, together with what is expected of the heap then.
//!
//! Two explorations of one workload are compared by them. Where an exploration without a flush is complete and has no outcome
//! that the one with it lacks, nothing that recovery does can tell that the flush is gone: at no crash between two markers does it
//! show a heap that a crash between them cannot show with the flush. Contents are left out: they are judged line by line, and a
//! difference that matters is a finding.
//!
//! The file is a list of little-endian pairs of 8 bytes, sorted: hash of the expectation, hash of the heap report.

use crate::config::OutcomesFile;
use crate::error::EngineError;
use oracle::HeapReport;
use rustc_hash::FxHasher;
use serde::Serialize;
use std::collections::BTreeSet;
use std::hash::Hasher;

const HASH_BYTES: usize = 8;

/// Distinct outcomes.
#[derive(Default)]
pub struct OutcomeSet(BTreeSet<(u64, u64)>);

/// Hash of what a recovery shows.
#[derive(Clone, Copy)]
pub struct Shown(u64);

impl Shown {
    /// The report is one without contents.
    pub fn of(report: &HeapReport) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(format!("{report:?}").as_bytes());
        Self(hasher.finish())
    }
}

/// How many there were.
#[derive(Serialize)]
pub struct Settled {
    count: usize,
    /// Of them, those that the other exploration lacks.
    new: usize,
}

impl OutcomeSet {
    /// `expected` is the history's state.
    pub fn add(&mut self, expected: u64, shown: Shown) {
        self.0.insert((expected, shown.0));
    }

    /// Adds those of the next part.
    pub fn join(&mut self, mut part: Self) {
        self.0.append(&mut part.0);
    }

    /// Writes them, or compares them.
    ///
    /// # Errors
    /// When the file cannot be written or read.
    pub fn settle(&self, file: &OutcomesFile) -> Result<Settled, EngineError> {
        let count = self.0.len();
        match file {
            OutcomesFile::Write(path) => {
                let bytes: Vec<u8> =
                    self.0.iter().flat_map(|(one, other)| [one.to_le_bytes(), other.to_le_bytes()]).flatten().collect();
                std::fs::write(path, bytes).map_err(|error| failed(path, "written", &error))?;
                Ok(Settled { count, new: 0 })
            }
            OutcomesFile::Compare(path) => {
                let bytes = std::fs::read(path).map_err(|error| failed(path, "read", &error))?;
                let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                let pairs = bytes.chunks_exact(2 * HASH_BYTES);
                let known: BTreeSet<(u64, u64)> =
                    pairs.map(|pair| (number(&pair[..HASH_BYTES]), number(&pair[HASH_BYTES..]))).collect();
                Ok(Settled { count, new: self.0.difference(&known).count() })
            }
        }
    }
}

fn failed(path: &std::path::Path, what: &str, error: &std::io::Error) -> EngineError {
    EngineError::Infrastructure(format!("{}: outcomes cannot be {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_exploration_lacks_is_counted() {
        let folder = std::env::temp_dir().join(format!("faultline-outcomes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let set = |pairs: &[(u64, u64)]| OutcomeSet(pairs.iter().copied().collect());
        let file = folder.join("outcomes");
        let written = set(&[(1, 1), (1, 2)]).settle(&OutcomesFile::Write(file.clone())).expect("written");
        assert_eq!((written.count, written.new), (2, 0));
        // The same heap where something else is expected is another outcome.
        let compared = set(&[(1, 2), (2, 2), (1, 3)]).settle(&OutcomesFile::Compare(file.clone())).expect("read");
        assert_eq!((compared.count, compared.new), (3, 2));
        std::fs::remove_file(file).expect("there");
        let missing = set(&[]).settle(&OutcomesFile::Compare(folder.join("none")));
        assert!(matches!(missing, Err(EngineError::Infrastructure(text)) if text.contains("outcomes cannot be read")));
    }
}
