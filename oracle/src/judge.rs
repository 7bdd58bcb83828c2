// SPDX-License-Identifier: Apache-2.0
//! The verdict on one recovered heap.

use std::borrow::Cow;

use crate::history::OperationIndex;
use crate::pattern::Segment;
use crate::report::Place;
use crate::rule::{RuleId, RuleSet};

/// What configuration fixes about the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapShape {
    /// Every allocation's alignment, bytes; a power of two.
    pub alignment: u64,
    /// Size of the smallest heap block.
    pub smallest_bytes: u64,
    /// Size at creation.
    pub heap_bytes: u64,
    /// Most that the heap's files may ever grow to.
    pub limit_bytes: u64,
    /// Slots of the workload. The heap has more: those from this number on are the probe's.
    pub slots: u32,
}

/// Answers for the bytes of objects. Whoever owns the crash image implements it.
pub trait ContentSource {
    /// The first offset in the object that differs from the expected content, looking at its first `bytes` bytes, of which
    /// `expected` covers at least that many; `None` if all are right. The object starts at `offset` of the file `file` (relative
    /// to the heap folder). Bytes past the end of the file, or in a file that is not there, differ.
    ///
    /// A source that knows several images at once (a set of remaining choices) answers whether **any** of them differs.
    fn differs(&self, file: &str, offset: u64, expected: &[Segment], bytes: u64) -> Option<u64>;
}

/// A part of a file of the heap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Where it starts.
    pub place: Place,
    /// Its size; 0 where it is not known.
    pub bytes: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that says so.
    pub rule: RuleId,
    /// What was found and what was expected, one line.
    pub message: String,
    /// The slot concerned.
    pub slot: Option<u32>,
    /// The operation whose effect is wrong.
    pub operation: Option<OperationIndex>,
    /// The heap block (or allocation, or object) concerned.
    pub block: Option<Extent>,
}

/// What the oracle says of one heap report at one point of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Broken promises, in order of rule.
    pub violations: Vec<Violation>,
    /// Why nothing can be said; if not empty, the verdict is never pass.
    pub unknown: Vec<String>,
    /// Rules that were checked against this report.
    pub judged: RuleSet,
    /// Rules that could not be checked (or not wholly), and why.
    pub not_judged: Vec<(RuleId, Cow<'static, str>)>,
}

/// pass, fail or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that was checked holds.
    Pass,
    /// At least one promise is broken.
    Fail,
    /// Nothing broken was seen, and not everything could be seen.
    Unknown,
}

impl Judgement {
    /// The verdict: a violation is a fact whatever else is unknown.
    pub fn verdict(&self) -> Verdict {
        match (self.violations.is_empty(), self.unknown.is_empty()) {
            (false, _) => Verdict::Fail,
            (true, false) => Verdict::Unknown,
            (true, true) => Verdict::Pass,
        }
    }
}
