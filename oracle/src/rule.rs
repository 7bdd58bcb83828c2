// SPDX-License-Identifier: Apache-2.0
//! The rules by their permanent ids.

use std::fmt;
use std::str::FromStr;

/// A rule of the oracle. Ids are permanent: a rule may be retired, its number is never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RuleId {
    /// Recovery (or a later stage of the probe) crashed.
    RecoveryCrashed = 1,
    /// Recovery (or a later stage of the probe) did not end.
    RecoveryHung = 2,
    /// Recovery returned an error on a reachable image.
    RecoveryFailed = 3,
    /// A returned operation is lost.
    OperationLost = 4,
    /// A freed object is back.
    FreedObjectBack = 5,
    /// Two live heap blocks overlap.
    Overlap = 6,
    /// A heap block is out of bounds, misaligned or too small.
    BadExtent = 7,
    /// A slot points to no live heap block.
    DanglingSlot = 8,
    /// Object content changed.
    ContentChanged = 9,
    /// A leak beyond the contract.
    Leak = 10,
    /// The allocator's own check fails, or the accounting does not add up.
    Inconsistent = 11,
    /// The heap is not usable after recovery.
    NotUsable = 12,
    /// Recovery is not idempotent.
    NotIdempotent = 13,
    /// A crash in a later generation breaks the heap.
    LaterGeneration = 14,
    /// Recovery at another mapping address breaks.
    NotRelocatable = 15,
    /// Injected corruption was not detected as promised.
    CorruptionMissed = 16,
}

impl RuleId {
    /// Every rule, in order of id.
    pub const ALL: [RuleId; 16] = [
        RuleId::RecoveryCrashed,
        RuleId::RecoveryHung,
        RuleId::RecoveryFailed,
        RuleId::OperationLost,
        RuleId::FreedObjectBack,
        RuleId::Overlap,
        RuleId::BadExtent,
        RuleId::DanglingSlot,
        RuleId::ContentChanged,
        RuleId::Leak,
        RuleId::Inconsistent,
        RuleId::NotUsable,
        RuleId::NotIdempotent,
        RuleId::LaterGeneration,
        RuleId::NotRelocatable,
        RuleId::CorruptionMissed,
    ];

    /// What a broken rule means, as reports print it.
    pub fn title(self) -> &'static str {
        match self {
            RuleId::RecoveryCrashed => "recovery crashed",
            RuleId::RecoveryHung => "recovery hung",
            RuleId::RecoveryFailed => "recovery returned an error on a reachable image",
            RuleId::OperationLost => "a returned operation is lost",
            RuleId::FreedObjectBack => "a freed object is back",
            RuleId::Overlap => "two live heap blocks overlap",
            RuleId::BadExtent => "a heap block is out of bounds, misaligned or too small",
            RuleId::DanglingSlot => "a slot points to no live heap block",
            RuleId::ContentChanged => "object content changed",
            RuleId::Leak => "leak beyond the contract",
            RuleId::Inconsistent => "the allocator's own check fails or the accounting does not add up",
            RuleId::NotUsable => "not usable after recovery",
            RuleId::NotIdempotent => "recovery is not idempotent",
            RuleId::LaterGeneration => "a crash in a later generation breaks it",
            RuleId::NotRelocatable => "recovery at another mapping address breaks",
            RuleId::CorruptionMissed => "injected corruption not detected as promised",
        }
    }

    fn bit(self) -> u32 {
        1 << self as u8
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FL{:03}", *self as u8)
    }
}

/// A text that is no rule of the oracle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a rule of the oracle: expected FL001 to FL016")]
pub struct UnknownRule(String);

impl FromStr for RuleId {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        // Through Display, so that each rule has exactly one spelling; few words come that far.
        let is_it = |rule: &RuleId| text.starts_with("FL") && rule.to_string() == text;
        RuleId::ALL.into_iter().find(is_it).ok_or_else(|| UnknownRule(text.to_owned()))
    }
}

/// A set of rules.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RuleSet(u32);

impl RuleSet {
    /// Adds a rule.
    pub fn insert(&mut self, rule: RuleId) {
        self.0 |= rule.bit();
    }

    /// Adds all rules of another set.
    pub fn extend(&mut self, other: RuleSet) {
        self.0 |= other.0;
    }

    /// Whether the rule is in the set.
    pub fn contains(self, rule: RuleId) -> bool {
        self.0 & rule.bit() != 0
    }

    /// The rules in order of id.
    pub fn iter(self) -> impl Iterator<Item = RuleId> {
        RuleId::ALL.into_iter().filter(move |rule| self.contains(*rule))
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|rule| rule.to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_printed_with_three_digits_and_read_back() {
        assert_eq!(RuleId::OperationLost.to_string(), "FL004");
        assert_eq!(RuleId::CorruptionMissed.to_string(), "FL016");
        for (position, rule) in RuleId::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, position + 1, "ids are permanent and without gaps");
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
    }

    #[test]
    fn other_texts_are_no_rules() {
        for text in ["", "FL000", "FL017", "FL4", "fl004", "FL101", "FL0004"] {
            let error = text.parse::<RuleId>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = RuleSet::default();
        set.insert(RuleId::Leak);
        set.insert(RuleId::RecoveryCrashed);
        assert_eq!(set.iter().collect::<Vec<_>>(), [RuleId::RecoveryCrashed, RuleId::Leak]);
        assert!(!set.contains(RuleId::CorruptionMissed));
    }
}
