// SPDX-License-Identifier: Apache-2.0
//! The rules by their permanent ids.
//!
//! A rule is one entry of the table in this file: its id, its title and what it means. The engine prints the table
//! (`faultline-engine lists`), and what else lists rules is made from that or checked against it. What exactly breaks a rule is a
//! [`Fact`](crate::fact::Fact).

use std::fmt;
use std::str::FromStr;

macro_rules! rules {
    ($($rule:ident = $number:literal, $title:literal, $meaning:literal;)*) => {
        /// A rule of the oracle. Ids are permanent: a rule may be retired, its number is never given to another one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum RuleId { $(#[doc = $meaning] $rule = $number,)* }

        impl RuleId {
            /// Every rule, in order of id.
            pub const ALL: [RuleId; [$($number),*].len()] = [$(RuleId::$rule,)*];

            /// What a broken rule is called in reports.
            pub fn title(self) -> &'static str {
                match self { $(RuleId::$rule => $title,)* }
            }

            /// When the rule is broken, for people who do not know it yet.
            pub fn meaning(self) -> &'static str {
                match self { $(RuleId::$rule => $meaning,)* }
            }
        }
    };
}

// Id, title, and when it is broken.
rules! {
    RecoveryCrashed = 1, "recovery crashed",
        "recovery, or a later stage of the probe, dies of a signal or calls exit";
    RecoveryHung = 2, "recovery hung",
        "recovery, or a later stage of the probe, does not end";
    RecoveryFailed = 3, "recovery returned an error on a reachable image",
        "recovery refuses an image that a power failure can leave";
    OperationLost = 4, "a returned operation is lost",
        "the effect of an operation that had returned is gone";
    FreedObjectBack = 5, "a freed object is back",
        "a slot or a field holds an object where the operations left none";
    Overlap = 6, "two live heap blocks overlap",
        "two live heap blocks overlap, or two objects are one";
    BadExtent = 7, "a heap block is out of bounds, misaligned or too small",
        "a heap block ends outside its file, is not aligned as promised, or holds less than was asked for";
    DanglingSlot = 8, "a slot points to no live heap block",
        "a slot or a field points to a place where no live heap block is";
    ContentChanged = 9, "object content changed",
        "a byte of an object is not what the operations left there";
    Leak = 10, "leak beyond the contract",
        "live heap blocks that nothing refers to are more than the contract permits";
    Inconsistent = 11, "the allocator's own check fails or the accounting does not add up",
        "the allocator's own check or its walk answers an error, or the heap blocks do not add up to the heap, or to more than its limit";
    NotUsable = 12, "not usable after recovery",
        "the recovered heap cannot be used, or less can be allocated from it than from one that did the same without a crash";
    NotIdempotent = 13, "recovery is not idempotent",
        "a second recovery finds another heap than the first one";
    LaterGeneration = 14, "a crash in a later generation breaks it",
        "another crash breaks what was in order after the crash before it";
    NotRelocatable = 15, "recovery with heap or code at another address breaks",
        "a heap that is in order where it was made breaks another rule where it, or the code, lies elsewhere";
    CorruptionMissed = 16, "injected corruption not detected as promised",
        "damage that the contract promises to detect goes unnoticed, or kills or hangs the recovery; only faultline damage injects it";
    FailsWithoutCrash = 17, "the target fails without a power failure",
        "the target dies, hangs or refuses in an operation of the workload, or when its heap is opened again and used, and power did not fail at all";
    RecoverySkipped = 18, "a crash image was opened as if it had been closed",
        "what is broken was not recovered: open took a heap that was not closed as a close had left it";
    TransactionInPart = 19, "a transaction took effect in part",
        "power failed in a commit, and of the transaction's changes some are there and some are not";
    NotLasting = 20, "a recovered heap does not last",
        "what holds right after recovery breaks after many opens, or after many allocations and frees";
}

impl RuleId {
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
#[error("`{0}` is not a rule of the oracle: expected FL001 to {last}", last = RuleId::ALL[RuleId::ALL.len() - 1])]
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

    /// Takes a rule out.
    pub fn remove(&mut self, rule: RuleId) {
        self.0 &= !rule.bit();
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
        assert!(RuleId::ALL.is_sorted(), "the table is in order of id");
        for rule in RuleId::ALL {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
    }

    #[test]
    fn titles_and_meanings_are_one_line_each_and_no_two_are_alike() {
        let texts = RuleId::ALL.iter().flat_map(|rule| [rule.title(), rule.meaning()]);
        let distinct: std::collections::BTreeSet<&str> = texts.clone().collect();
        assert_eq!(distinct.len(), 2 * RuleId::ALL.len());
        for text in texts {
            assert!(!text.is_empty() && !text.contains('\n') && !text.contains('|'), "{text:?} fits no table");
        }
    }

    #[test]
    fn other_texts_are_no_rules() {
        let next = format!("FL{:03}", RuleId::ALL[RuleId::ALL.len() - 1] as u8 + 1);
        for text in ["", "FL000", "FL4", "fl004", "FL101", "FL0004", &next] {
            let error = text.parse::<RuleId>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
            assert!(error.to_string().contains("expected FL001 to FL0"), "{error}");
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
