// SPDX-License-Identifier: Apache-2.0
//! What became of a damage, by what recovery of the damaged heap shows.

use oracle::report::{Life, SectionKind};
use oracle::{Fact, HeapReport, Judgement, RuleId, Status, Violation};
use serde::Serialize;
use std::collections::BTreeSet;

/// What became of the damage.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The heap is as it would be without it.
    Harmless,
    /// A stray store was not made: what it would store to is protected, or not mapped.
    KeptOut,
    /// Open answered an error, or settling a lazy open, or the allocator's own check: at once, or in a later life. Or another call did, and
    /// what is there is right.
    Detected,
    /// Something of the heap is gone, and what is there is right and can be used.
    GivenUp,
    /// The heap is wrong, and nothing says so.
    Silent,
    /// Recovery, or what follows it, dies or ends the process.
    Dies,
    /// It hangs.
    Hangs,
    /// Nothing is known.
    Unknown,
}

impl Outcome {
    /// What the damaged heap fails with and the heap without a crash, too, says nothing of the damage: with memory that ends the process
    /// (`out_of_memory = "ends"`) each probe ends so.
    pub fn of(report: &HeapReport, judgement: &Judgement, whole: &Whole) -> Self {
        let is_broken = |rule| judgement.violations.iter().any(|violation| violation.broken() == rule);
        let is_known = judgement.unknown.is_empty() && judgement.as_without_crash.is_empty();
        let is_wrong = |violation: &&Violation| violation.fact != Fact::CloseLost; // a recovery more
        let wrong: Vec<_> = judgement.violations.iter().filter(is_wrong).collect();
        match &wrong[..] {
            _ if report.lives.iter().any(says_so) => Self::Detected,
            [] if is_known && keeps_out(report) => Self::KeptOut,
            [] if is_known => Self::Harmless,
            [] => Self::Unknown,
            _ if is_broken(RuleId::RecoveryCrashed) => Self::Dies,
            _ if is_broken(RuleId::RecoveryHung) => Self::Hangs,
            wrong if !wrong.iter().all(|violation| is_answer(violation) || whole.is_given_up(violation)) => {
                Self::Silent
            }
            _ if !is_known => Self::Unknown,
            wrong if wrong.iter().any(is_answer) => Self::Detected,
            _ => Self::GivenUp,
        }
    }
}

/// A stray store was made in no life, neither as soon as one had opened the crash image nor when that had freed objects.
fn keeps_out(report: &HeapReport) -> bool {
    const OPEN_CRASH_IMAGE: [usize; 4] = [0, 1, 3, 5];
    let keeps_out = |life: &Life| life.is_kept_out && (life.free_all.is_none() || life.stays_kept_out);
    let mut lives = OPEN_CRASH_IMAGE.iter().filter_map(|life| report.life(*life));
    report.life(0).is_some_and(keeps_out) && lives.all(|life| life.open != Some(Status::Ok) || keeps_out(life))
}

/// Open answered an error, or settling a lazy open, or the allocator's own check.
fn says_so(life: &Life) -> bool {
    let is_error = |status: Status| status != Status::Ok;
    [life.open, life.settled].into_iter().flatten().any(is_error)
        || life.check.is_some_and(|status| is_error(status) && status != Status::UnsupportedCall)
}

/// A later use of the heap answered an error.
fn is_answer(violation: &&Violation) -> bool {
    matches!(violation.fact, Fact::Answered(..))
}

/// What is known of a heap before it is damaged.
pub struct Whole {
    /// The full probe.
    report: HeapReport,
    /// Where objects begin.
    places: BTreeSet<(String, u64)>,
    /// Of a heap block, bytes.
    largest: u64,
}

impl Whole {
    pub fn of(report: HeapReport) -> Self {
        let life = report.life(0);
        let slots = life.iter().filter_map(|life| life.slots.as_ref()).flat_map(|slots| &slots.entries);
        let reached = life.iter().filter_map(|life| life.objects.as_ref()).flat_map(|objects| &objects.entries);
        let places = slots.map(|entry| (entry.file, entry.offset));
        let places = places.chain(reached.map(|entry| (entry.at.file, entry.at.offset)));
        let named = |(file, offset)| Some((life?.file_name(file)?.to_owned(), offset));
        let places = places.filter_map(named).collect();
        let blocks = life.and_then(|life| life.walk.as_ref()).map_or(&[][..], |walk| &walk.blocks);
        let largest = blocks.iter().map(|block| block.bytes).max().unwrap_or(0);
        Self { places, largest, report }
    }

    /// An object is gone, or room is. What refers to a lost object refers to nothing, or to where it lay: a reference that was damaged itself
    /// leads elsewhere.
    fn is_given_up(&self, violation: &Violation) -> bool {
        let is_object = |block: &oracle::Extent| self.places.contains(&(block.place.file.clone(), block.place.offset));
        match violation.fact {
            Fact::Null(_) | Fact::Leaked => true,
            Fact::BlockLost(_) | Fact::Dangling(_) => violation.block.as_ref().is_some_and(is_object),
            Fact::CapacityLost(_) | Fact::OpenCapacityLost(_) | Fact::CapacitySplit => true,
            _ => false,
        }
    }

    /// Whether what is damaged is given up, and the rest works: each open succeeds, memory is allocated and freed, and nothing is wrong but
    /// that objects and room are lost, which the allocator's check may say. Of a damage of a word or less that is one object at most, and
    /// the room of the largest heap block.
    pub fn is_isolated_in(&self, is_of_one_word: bool, report: &HeapReport, judgement: &Judgement) -> bool {
        let is_ok = |status: Option<Status>| status.is_none_or(|status| status == Status::Ok);
        let works = |life: &Life| life.open == Some(Status::Ok) && is_ok(life.settled) && is_ok(life.free_all);
        let bound = if is_of_one_word { self.largest } else { u64::MAX };
        let has_room = |(life, whole): (&Life, &Life)| match (&life.drain, &whole.drain) {
            (Some(drain), Some(whole)) => {
                let (left, had) = (drain.capacity_bytes, whole.capacity_bytes);
                matches!(drain.status, Status::Ok | Status::OutOfMemory)
                    && (left > 0 || had == 0)
                    && left.saturating_add(bound) >= had
            }
            _ => true,
        };
        let is_isolated = |violation: &Violation| match violation.fact {
            Fact::CloseLost => true,
            Fact::Answered(step, _) => step.section() == SectionKind::Check,
            _ => self.is_given_up(violation),
        };
        let lost: BTreeSet<_> = judgement.violations.iter().filter_map(lost_object).collect();
        judgement.unknown.is_empty()
            && report.lives.iter().all(works)
            && report.lives.iter().zip(&self.report.lives).all(has_room)
            && judgement.violations.iter().all(is_isolated)
            && (lost.len() <= 1 || !is_of_one_word)
    }
}

/// The object that what holds it has lost: by its slot, or, of a field, by the operation that put it there.
fn lost_object(violation: &Violation) -> Option<(Option<u32>, Option<u32>)> {
    matches!(violation.fact, Fact::Null(_) | Fact::BlockLost(_) | Fact::Dangling(_)).then_some(match violation.slot {
        Some(slot) => (Some(slot), None),
        None => (None, violation.operation),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_store_is_kept_out_where_no_life_makes_it() {
        let kept = |free_all| Life {
            open: Some(Status::Ok),
            is_kept_out: true,
            free_all,
            stays_kept_out: free_all.is_some(),
            ..Life::default()
        };
        let (opened, used) = (kept(None), kept(Some(Status::Ok)));
        let later = Life { open: Some(Status::Ok), ..Life::default() };
        let whole = [&opened, &opened, &later, &used, &later, &used, &later].map(Life::clone);
        let outcome = |lives: &[Life]| {
            let mut report = HeapReport::parse(&oracle::report::build::ReportBuilder::new().bytes()).expect("a report");
            report.lives = lives.to_vec();
            Outcome::of(&report, &Judgement::default(), &Whole::of(report.clone()))
        };
        assert!(outcome(&whole) == Outcome::KeptOut);
        assert!(outcome(&whole[..1]) == Outcome::KeptOut);
        for (life, made) in [
            (0, later.clone()),
            (1, later.clone()),
            (3, Life { is_kept_out: false, ..used.clone() }),
            (3, Life { stays_kept_out: false, ..used.clone() }),
            (5, Life { stays_kept_out: false, ..used.clone() }),
        ] {
            let mut lives = whole.clone();
            lives[life] = made;
            assert!(outcome(&lives) == Outcome::Harmless, "life {life}");
        }
    }
}
