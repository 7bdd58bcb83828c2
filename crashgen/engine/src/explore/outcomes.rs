// SPDX-License-Identifier: Apache-2.0
//! Outcomes: what recoveries of a trace can show, together with what is expected of the heap then.
//!
//! Two explorations of one workload are compared by them. Suppose that an exploration without a flush is complete, and has no outcome that
//! the one with the flush lacks. Then nothing that recovery does shows that the flush is gone: at no crash between two markers does it find
//! a heap that a crash between them cannot leave with the flush. Contents of objects are left out: they are judged line by line, and a
//! difference that matters is a finding.
//!
//! The file is a list of little-endian pairs of 8 bytes, sorted: hash of the expectation, hash of the heap report.

use crate::base::config::OutcomesFile;
use crate::base::error::EngineError;
use crate::findings::finding::OperationText;
use crate::findings::recovery_edits::RecoveryPlaces;
use crate::heap::state::{StateRef, changed_lines, sites_that_matter};
use crashgen::edit::Place;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::Trace;
use oracle::HeapReport;
use rustc_hash::FxHasher;
use serde::Serialize;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::path::Path;
use std::sync::Arc;

const HASH_BYTES: usize = 8;

/// Hashes of what is expected and of what is shown.
type Pair = (u64, u64);

/// The outcomes of an exploration that another one is compared with.
pub type KnownOutcomes = Arc<BTreeSet<Pair>>;

/// Distinct outcomes.
#[derive(Default)]
pub struct OutcomeSet {
    pairs: BTreeSet<Pair>,
    /// The outcomes that it is compared with.
    known: Option<KnownOutcomes>,
    /// The first that is not known, by crash position.
    pub first_new: Option<Box<NewOutcome>>,
    /// Where recoveries, and what follows them, flush and fence.
    pub later_places: RecoveryPlaces,
}

/// Hash of a heap report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReportHash(u64);

impl ReportHash {
    /// Of a report without contents.
    pub fn of(report: &HeapReport) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(format!("{report:?}").as_bytes());
        Self(hasher.finish())
    }
}

/// A crash state, with as few lines lost as possible, of which recovery shows what no recovery showed before.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)] // as of a finding
pub struct NewOutcome {
    pub position: u32,
    pub operation: Option<OperationText>,
    pub sites: Vec<Symbol>,
    pub read: Option<Symbol>,
    pub line_count: usize,
    pub is_later: bool,
    /// How its heap report is not as that of the state of the same crash in which everything persisted; contents apart.
    pub differences: Vec<String>,
}

impl NewOutcome {
    /// Of that state; `read`: where recovery first reads what it lacks.
    pub fn of(symbols: &mut Symbols, trace: &Trace, state: &StateRef, read: Option<Symbol>) -> Self {
        Self {
            position: state.position,
            operation: state.case.current.map(OperationText::of),
            sites: sites_that_matter(state).into_iter().map(|site| symbols.find(trace, site)).collect(),
            read,
            line_count: changed_lines(state).count(),
            ..Self::default()
        }
    }
}

/// How many outcomes there were, as it is printed.
#[derive(Serialize)]
pub struct OutcomeCounts<'a> {
    count: usize,
    /// How many of them the other exploration lacks.
    new: usize,
    first_new: Option<&'a NewOutcome>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    later_places: &'a BTreeSet<Place>,
}

impl OutcomeSet {
    /// None yet. known: of the exploration that it is compared with.
    pub fn new(known: Option<KnownOutcomes>) -> Self {
        Self { known, ..Self::default() }
    }

    /// `expected` is the history's state. Whether it is the first that is not known.
    pub fn add(&mut self, expected: u64, shown: ReportHash) -> bool {
        let pair = (expected, shown.0);
        let is_known = self.known.as_ref().is_none_or(|known| known.contains(&pair));
        self.pairs.insert(pair) && !is_known && self.first_new.is_none()
    }

    /// Adds those of the next part.
    pub fn join(&mut self, mut part: Self) {
        self.pairs.append(&mut part.pairs);
        self.first_new = self.first_new.take().or(part.first_new);
        self.later_places.join(part.later_places);
    }

    /// Writes them, if that is asked for, or counts those that are not known.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn settle(&self, file: &OutcomesFile, known: Option<&KnownOutcomes>) -> Result<OutcomeCounts<'_>, EngineError> {
        if let OutcomesFile::Write(path) = file {
            let bytes: Vec<u8> =
                self.pairs.iter().flat_map(|(one, other)| [one.to_le_bytes(), other.to_le_bytes()]).flatten().collect();
            std::fs::write(path, bytes).map_err(|error| failed(path, "written", &error))?;
        }
        let new = known.map_or(0, |known| self.pairs.difference(known).count());
        let first_new = self.first_new.as_deref();
        Ok(OutcomeCounts { count: self.pairs.len(), new, first_new, later_places: self.later_places.all() })
    }
}

/// Those to compare with, if that is asked for.
///
/// # Errors
/// When their file cannot be read.
pub fn known(file: Option<&OutcomesFile>) -> Result<Option<KnownOutcomes>, EngineError> {
    let Some(OutcomesFile::Compare(path)) = file else { return Ok(None) };
    let bytes = std::fs::read(path).map_err(|error| failed(path, "read", &error))?;
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let pairs = bytes.chunks_exact(2 * HASH_BYTES);
    let known = pairs.map(|pair| (number(&pair[..HASH_BYTES]), number(&pair[HASH_BYTES..]))).collect();
    Ok(Some(Arc::new(known)))
}

fn failed(path: &Path, what: &str, error: &std::io::Error) -> EngineError {
    EngineError::Infrastructure(format!("{}: outcomes cannot be {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[Pair], known: Option<&KnownOutcomes>) -> OutcomeSet {
        let mut set = OutcomeSet::new(known.cloned());
        for (expected, shown) in pairs {
            if set.add(*expected, ReportHash(*shown)) {
                let position = *shown as u32;
                set.first_new = Some(Box::new(NewOutcome { position, ..NewOutcome::default() }));
            }
        }
        set
    }

    #[test]
    fn what_the_other_exploration_lacks_is_counted_and_its_first_is_kept() {
        let folder = std::env::temp_dir().join(format!("faultline-outcomes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("outcomes");
        let write = OutcomesFile::Write(path.clone());
        assert!(known(Some(&write)).expect("not read").is_none());
        let written = set(&[(1, 1), (1, 2)], None);
        let settled = written.settle(&write, None).expect("written");
        assert_eq!((settled.count, settled.new, settled.first_new.is_none()), (2, 0, true));
        let compare = OutcomesFile::Compare(path.clone());
        let known_pairs = known(Some(&compare)).expect("read").expect("some");
        // The same heap where something else is expected is another outcome.
        let mut compared = set(&[(1, 2), (2, 2)], Some(&known_pairs));
        compared.join(set(&[(1, 1), (2, 2), (1, 3)], Some(&known_pairs)));
        let settled = compared.settle(&compare, Some(&known_pairs)).expect("nothing to write");
        assert_eq!((settled.count, settled.new), (4, 2));
        assert_eq!(settled.first_new.map(|first| first.position), Some(2), "of the first part");
        let only_later = [(1, 2), (1, 3), (1, 4)];
        assert_eq!(set(&only_later, Some(&known_pairs)).first_new.map(|first| first.position), Some(3));
        std::fs::remove_file(path).expect("there");
        let missing = known(Some(&OutcomesFile::Compare(folder.join("none"))));
        assert!(matches!(missing, Err(EngineError::Infrastructure(text)) if text.contains("outcomes cannot be read")));
    }
}
