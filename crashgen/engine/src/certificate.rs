// SPDX-License-Identifier: Apache-2.0
//! The certificate: what was covered, and why it is not all.

use crate::complete;
use oracle::{Judgement, RuleId, RuleSet};
use planted::Fault;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Distinct reasons that are kept; more are counted only.
const REASON_LIMIT: usize = 16;

/// Collects what a certificate says.
#[derive(Default)]
pub struct Tally {
    /// Crash positions passed.
    pub positions: u64,
    /// Positions at which each strategy ran.
    pub by_strategy: BTreeMap<&'static str, u64>,
    /// Decimal logarithm of the number of reachable states, each counted where it was born.
    pub states_log10: Option<f64>,
    /// Verdicts of the oracle.
    pub judgements: u64,
    /// Judgements that could say nothing.
    pub unknowns: u64,
    unknown_reasons: BTreeSet<String>,
    judged: RuleSet,
    /// How many judgements could not judge a rule, by reason.
    not_judged: BTreeMap<(RuleId, String), u64>,
    /// Bounds and limits that were hit.
    pub bounds_hit: BTreeSet<String>,
    /// Crash positions of which `complete` did not see every state: how many and the first, by reason.
    incomplete: BTreeMap<&'static str, (u64, u32)>,
    /// Stores into PM stepped over.
    pub stores: u64,
}

impl Tally {
    /// Adds the states born at a position.
    pub fn add_states(&mut self, born_log10: Option<f64>) {
        let Some(born) = born_log10 else { return };
        self.states_log10 = Some(match self.states_log10 {
            None => born,
            Some(sum) => {
                let (high, low) = if sum > born { (sum, born) } else { (born, sum) };
                high + (1.0 + 10f64.powf(low - high)).log10()
            }
        });
    }

    /// Takes note of what a judgement could and could not judge.
    pub fn add(&mut self, judgement: &Judgement) {
        self.judgements += 1;
        self.judged.extend(judgement.judged);
        for (rule, why) in &judgement.not_judged {
            *self.not_judged.entry((*rule, why.to_string())).or_default() += 1;
        }
        if !judgement.unknown.is_empty() {
            self.unknowns += 1;
        }
        for reason in &judgement.unknown {
            self.add_unknown(reason);
        }
    }

    /// A crash position of which not every state was explored.
    pub fn add_incomplete(&mut self, position: u32, why: &'static str) {
        self.incomplete.entry(why).or_insert((0, position)).0 += 1;
    }

    /// A reason why the verdict cannot be pass.
    pub fn add_unknown(&mut self, reason: &str) {
        if self.unknown_reasons.len() < REASON_LIMIT {
            self.unknown_reasons.insert(reason.to_owned());
        }
    }

    /// Whether a heap was judged, and not only that its recovery neither crashes nor hangs.
    pub fn has_judged_a_heap(&self) -> bool {
        self.judged.contains(RuleId::RecoveryFailed)
    }

    /// Whether something could not be known.
    pub fn has_unknown(&self) -> bool {
        !self.unknown_reasons.is_empty()
    }

    /// `1.2e+09`.
    pub fn states_text(&self) -> String {
        let Some(log10) = self.states_log10 else { return "0".into() };
        if log10 < 6.0 {
            return format!("{:.0}", 10f64.powf(log10));
        }
        let mut exponent = log10.floor();
        let mut mantissa = format!("{:.1}", 10f64.powf(log10 - exponent));
        if mantissa == "10.0" {
            (mantissa, exponent) = ("1.0".into(), exponent + 1.0);
        }
        format!("{mantissa}e+{exponent:02.0}")
    }

    fn rules_not_judged(&self) -> Vec<NotJudged> {
        let text = |why: &str, count: u64| match count == self.judgements {
            true => why.to_owned(),
            false => format!("{why} (at {count} of {} judgements)", self.judgements),
        };
        let reasons = self.not_judged.iter();
        reasons.map(|((rule, why), count)| NotJudged { rule: rule.to_string(), why: text(why, *count) }).collect()
    }

    /// Bounds and limits that were hit, in words.
    fn bounds(&self) -> Vec<String> {
        let positions = self.positions;
        let incomplete = self.incomplete.iter().map(|(why, (count, first))| {
            format!("{count} of {positions} crash positions are not explored completely, the first is {first}: {why}")
        });
        self.bounds_hit.iter().cloned().chain(incomplete).collect()
    }

    /// Why the exploration is not complete; empty if it is.
    fn gaps(&self) -> Vec<String> {
        let mut gaps = self.bounds();
        if planted::is(Fault::ForgetBounds) {
            gaps.clear();
        }
        let sampled = self.by_strategy.get("sample").copied().unwrap_or(0);
        if sampled > 0 {
            gaps.push(format!("sampled at {sampled} of {} crash positions", self.positions));
        } else if !self.by_strategy.contains_key("exhaustive") && !self.by_strategy.contains_key(complete::NAME) {
            gaps.push("one or two states a crash position".into());
        }
        if self.has_unknown() {
            gaps.push("some states are unknown".into());
        }
        if !self.has_judged_a_heap() {
            gaps.push("no operation markers: no heap was judged".into());
        }
        if self.stores == 0 {
            gaps.push("no store into PM was seen".into());
        }
        gaps
    }

    /// The certificate as it is printed.
    pub fn certificate(&self, numbers: Numbers, covers: String) -> Certificate {
        let gaps = self.gaps();
        Certificate {
            complete: gaps.is_empty(),
            why: gaps.join("; "),
            crash_positions: self.positions,
            states: self.states_text(),
            states_log10: self.states_log10,
            recoveries: numbers.recoveries,
            memoised: numbers.memoised,
            distinct_images: numbers.distinct_images,
            full_probes: numbers.full_probes,
            stages: numbers.stages.into_iter().map(|(name, entered)| RecoveryStage { name, entered }).collect(),
            judgements: self.judgements,
            unknowns: self.unknowns,
            unknown_reasons: self.unknown_reasons.iter().cloned().collect(),
            rules_judged: self.judged.iter().map(|rule| rule.to_string()).collect(),
            rules_not_judged: self.rules_not_judged(),
            positions_by_strategy: self.by_strategy.clone(),
            bounds_hit: self.bounds(),
            time_s: numbers.time_s,
            covers,
        }
    }
}

/// Counts of the replay engine.
#[allow(missing_docs)]
pub struct Numbers {
    pub recoveries: u64,
    pub memoised: u64,
    pub distinct_images: u64,
    pub full_probes: u64,
    pub stages: BTreeMap<String, u64>,
    pub time_s: f64,
}

/// A stage of recovery that the target names (`stage.h`), and how many of the recoveries run entered it.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct RecoveryStage {
    pub name: String,
    pub entered: u64,
}

/// A rule that was not judged, or not everywhere.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct NotJudged {
    pub rule: String,
    pub why: String,
}

/// What is printed.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Certificate {
    pub complete: bool,
    pub why: String,
    pub crash_positions: u64,
    pub states: String,
    pub states_log10: Option<f64>,
    pub recoveries: u64,
    pub memoised: u64,
    pub distinct_images: u64,
    pub full_probes: u64,
    pub stages: Vec<RecoveryStage>,
    pub judgements: u64,
    pub unknowns: u64,
    pub unknown_reasons: Vec<String>,
    pub rules_judged: Vec<String>,
    pub rules_not_judged: Vec<NotJudged>,
    pub positions_by_strategy: BTreeMap<&'static str, u64>,
    pub bounds_hit: Vec<String>,
    pub time_s: f64,
    pub covers: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_added_in_the_logarithm() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.add_states(Some(9.0));
        }
        tally.add_states(None);
        assert_eq!(tally.states_text(), "3.0e+09");
    }

    #[test]
    fn nothing_stored_is_not_complete() {
        let mut tally = Tally { positions: 1, ..Tally::default() };
        tally.by_strategy.insert("exhaustive", 1);
        assert_eq!(tally.gaps(), ["no operation markers: no heap was judged", "no store into PM was seen"]);
        tally.stores = 1;
        tally.judged.insert(RuleId::RecoveryFailed);
        assert!(tally.gaps().is_empty());
        tally.by_strategy.insert("sample", 1);
        assert_eq!(tally.gaps().len(), 1);
    }
}
