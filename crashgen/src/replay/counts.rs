// SPDX-License-Identifier: Apache-2.0
//! What the runner's server counts: which engine did its runs, and which stages recovery entered (`runner/protocol.h`, `stage.h`).

use super::protocol::ENGINES_BYTES;
use std::collections::BTreeMap;

/// Which engine did the runs that were meant for the in-process engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Engines {
    /// Runs that were done in-process.
    pub in_process: u64,
    /// Those of them that the isolated engine did, too, to compare the answers.
    pub compared: u64,
    /// Those of them that the traced engine did, too: its answers had to be the same, and it may see no load that the hooks did not.
    pub refereed: u64,
    /// Those in-process whose later stages were known from another run, which had come to the same state.
    pub remembered: u64,
    /// Runs that the isolated engine did instead, by what the target does that an in-process run cannot take back.
    pub isolated: BTreeMap<String, u64>,
}

impl Engines {
    /// None: it ends in the middle.
    pub(super) fn parse(answer: &[u8]) -> Option<Self> {
        let (counts, reasons) = answer.split_at_checked(ENGINES_BYTES)?;
        let count = |at: usize| u64::from_le_bytes(counts[at..at + 8].try_into().expect("eight bytes"));
        let isolated = parse_counts(reasons)?;
        Some(Self { in_process: count(0), compared: count(8), refereed: 0, remembered: count(24), isolated })
    }
}

/// Counts with their names, each a number and a text that ends with a zero. None: the last one ends in the middle.
pub(super) fn parse_counts(answer: &[u8]) -> Option<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    let mut rest = answer;
    while let Some((count, after)) = rest.split_first_chunk() {
        let end = after.iter().position(|byte| *byte == 0)?;
        counts.insert(String::from_utf8_lossy(&after[..end]).into_owned(), u64::from_le_bytes(*count));
        rest = &after[end + 1..];
    }
    Some(counts)
}
