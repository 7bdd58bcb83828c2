// SPDX-License-Identifier: Apache-2.0
//! What the runner's server counts: which engine did its runs, and which stages recovery entered (`runner/protocol.h`, `stage.h`).

use std::collections::BTreeMap;

/// Which engine did the runs that were to be in-process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Engines {
    /// Done in-process.
    pub in_process: u64,
    /// Of them: done in the isolated engine too, and the answers compared.
    pub compared: u64,
    /// Of those in-process: the later stages were those of another run, that had come to the same state.
    pub remembered: u64,
    /// Done in the isolated engine instead, by what the target does that an in-process run cannot take back.
    pub isolated: BTreeMap<String, u64>,
}

/// Bytes of the counts that precede the reasons.
const ENGINES_BYTES: usize = 32;

impl Engines {
    /// None: it ends in the middle.
    pub(super) fn parse(answer: &[u8]) -> Option<Self> {
        let (counts, reasons) = answer.split_at_checked(ENGINES_BYTES)?;
        let count = |at: usize| u64::from_le_bytes(counts[at..at + 8].try_into().expect("eight bytes"));
        let isolated = parse_counts(reasons)?;
        Some(Self { in_process: count(0), compared: count(8), remembered: count(24), isolated })
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
