// SPDX-License-Identifier: Apache-2.0
//! The onset of a fault: the crash position from which on the heap is wrong though everything persisted.
//!
//! A state that lost nothing and breaks a rule shows a fault of logic. As long as the heap stays wrong, each later crash position shows the
//! fault again, whichever store came last there. So such a fault is one finding, and its place is that of its onset: the first position of
//! an unbroken row of positions at which everything persisted leaves the same thing wrong ([`Wrong`]). The onset is a function of the
//! trace, of what earlier crashes left, of the position, and of what is wrong there. So it is the same in every strategy, in every part,
//! and when a token is replayed. What is remembered here only saves recoveries.
//!
//! A state that lost something is not to blame for what everything persisted shows as well ([`OnsetFinder::onset`]). What it breaks besides
//! is a finding of its own, of the same rule or of another one.
//!
//! What is wrong with a slot, a heap block or an operation is the same while it is about the same slot, block or operation. What is wrong
//! with the heap as a whole (recovery answers an error, less can be allocated) is the same while the fact and the number of lost bytes are
//! the same. Where other things are wrong as well, and none of them is new, it is a consequence of those, whatever the fact.
//!
//! What a recovery did before power failed again is followed as the workload is, from what the crash before it left.

use crate::base::budget::Budget;
use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::{HeapCase, SettledOperations};
use crate::heap::stepping::go_to;
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crashgen::model::{Choice, View};
use crashgen::trace::{EventKind, SiteId, Trace};
use oracle::report::Place;
use oracle::{Extent, Fact, Judgement, Leaked, RuleId, TwinSet, Violation};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The crash position from which on something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onset {
    /// Events before the crash.
    pub position: u32,
    /// The site of the last store by then.
    pub site: SiteId,
    /// The operation by then, `none` before the first one.
    pub operation: &'static str,
    /// What was broken then.
    pub fact: Fact,
}

/// What is wrong, in terms that can be compared between crash positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wrong {
    /// What an operation left in a slot.
    Slot(RuleId, u32, Option<u32>),
    /// A heap block.
    Block(RuleId, Place),
    /// What an operation did.
    Operation(RuleId, u32),
    /// The heap as a whole, and the bytes that are lost.
    Heap(Fact, Option<u64>),
}

impl Wrong {
    /// One thing; several where the violation is about several heap blocks.
    fn of(violation: &Violation) -> Vec<Self> {
        let rule = violation.broken();
        if let Some(leaks) = &violation.leaks {
            return leaks.blocks.iter().map(Self::leak).collect();
        }
        let one = match (violation.slot, &violation.block, violation.operation) {
            (Some(slot), _, operation) => Self::Slot(rule, slot, operation),
            (None, Some(block), _) => Self::Block(rule, block.place.clone()),
            (None, None, Some(operation)) => Self::Operation(rule, operation),
            (None, None, None) => Self::Heap(violation.fact, violation.lost_bytes),
        };
        vec![one]
    }

    /// A heap block that is not referenced, permitted or not: what a pending operation may leave is a fault once it has returned.
    fn leak(block: &Extent) -> Self {
        Self::Block(RuleId::Leak, block.place.clone())
    }
}

/// Whether both say that the same thing is wrong.
pub fn are_same(one: &Violation, other: &Violation) -> bool {
    one.broken() == other.broken() && Wrong::of(one) == Wrong::of(other)
}

/// A generation that can be stepped from its start: the workload, or what a recovery did.
#[derive(Clone, Copy)]
pub struct FollowedGeneration<'a> {
    /// What is asked for.
    pub config: &'a Config,
    /// Its trace.
    pub trace: &'a Trace,
    /// The heap without a crash.
    pub twins: Option<&'a TwinSet>,
    /// The crash that it begins with; none: it is the workload.
    pub after: Option<RecoveryStart<'a>>,
    /// What bounds the recoveries.
    pub budget: Budget,
}

/// The crash before a recovery.
#[derive(Clone, Copy)]
pub struct RecoveryStart<'a> {
    /// What it left. Recoveries that did the same after the same crash differ in nothing else.
    pub left: &'a [Choice],
    /// Makes the heap that the recovery found.
    pub begin: &'a dyn Fn() -> HeapCase,
    /// What it showed of the operations that were pending.
    pub settled: &'a SettledOperations,
}

impl FollowedGeneration<'_> {
    /// Steps from the start to a crash position.
    fn go_to(&self, position: u32) -> Result<(HeapCase, View), EngineError> {
        let Some(after) = self.after else { return go_to(self.config, self.trace, position) };
        let (mut case, mut view) = ((after.begin)(), None);
        for number in 0..position {
            view = Some(self.step(&mut case, number)?);
        }
        Ok((case, view.expect("the first crash position is behind the first event")))
    }

    fn step(&self, case: &mut HeapCase, number: u32) -> Result<View, EngineError> {
        let event = &self.trace.events[number as usize];
        let stepped = match self.after {
            Some(after) => case.step_recovery(number, event, after.settled, self.config.contract.fill),
            None => case.step(number, event),
        };
        Ok(stepped?.0)
    }

    fn left(&self) -> &[Choice] {
        self.after.map_or(&[], |after| after.left)
    }
}

/// Follows what everything persisted shows, in one generation at a time.
#[derive(Default)]
pub struct OnsetFinder {
    /// Started with the first question.
    recoverer: Option<Recoverer>,
    stretch: Option<Stretch>,
}

/// A row of crash positions of one case, the last of which is judged.
pub struct Stretch {
    /// [`RecoveryStart::left`].
    left: Box<[Choice]>,
    case: HeapCase,
    view: View,
    /// The first position of the case.
    begin: u32,
    /// From this position on, each was judged up to `judged`.
    first: u32,
    judged: u32,
    /// Where the case is.
    last: u32,
    /// What is wrong at the position that was judged last, or may become a leak, with its onset. An onset at `first` may lie earlier.
    since: FxHashMap<Wrong, Onset>,
    /// Rules that are broken there.
    rules: FxHashSet<RuleId>,
    /// Heap blocks that are not referenced there.
    leaks: Option<Arc<Leaked>>,
}

impl OnsetFinder {
    /// Another generation is followed from now on. Returns where this one was left, for [`OnsetFinder::go_back`].
    pub fn leave(&mut self) -> Option<Stretch> {
        self.stretch.take()
    }

    /// The generation that was left is followed again.
    pub fn go_back(&mut self, to: Option<Stretch>) {
        self.stretch = to;
    }

    /// The onset of what is wrong at that crash position, if everything persisted shows it, too.
    ///
    /// # Errors
    /// When the time is over. When the replay server does not start, or ends.
    pub fn onset(
        &mut self,
        generation: FollowedGeneration,
        position: u32,
        violation: &Violation,
    ) -> Result<Option<Onset>, EngineError> {
        match self.shows(generation, position, violation)? {
            true => self.first_position(generation, position, violation),
            false => Ok(None),
        }
    }

    /// Whether everything persisted shows it.
    fn shows(
        &mut self,
        generation: FollowedGeneration,
        position: u32,
        violation: &Violation,
    ) -> Result<bool, EngineError> {
        let stretch = self.follow(generation, position, false)?;
        if !stretch.rules.contains(&violation.broken()) {
            return Ok(false);
        }
        let new = Wrong::of(violation).iter().filter(|wrong| !stretch.since.contains_key(wrong)).count();
        match &violation.leaks {
            Some(leaks) if new > 0 => Ok(new as u64 + self.new_leaks(generation, position)? <= leaks.of_pending),
            _ => Ok(new == 0),
        }
    }

    /// How many of the heap blocks that everything persisted leaves unreferenced may belong to operations that are pending there.
    fn new_leaks(&mut self, generation: FollowedGeneration, position: u32) -> Result<u64, EngineError> {
        let stretch = self.follow(generation, position, false)?;
        let since = if generation.after.is_some() { Some(0) } else { stretch.case.pending_since() };
        let Some(before) = since else { return Ok(0) }; // after a crash what was pending then counts, too, and what that left
        let first = before.max(stretch.begin);
        if stretch.first > first {
            self.start(generation, first)?;
        }
        let stretch = self.follow(generation, position, true)?;
        let leaks = stretch.leaks.iter().flat_map(|leaks| &leaks.blocks).map(Wrong::leak);
        Ok(leaks.filter(|leak| stretch.since[leak].position > before).count() as u64)
    }

    /// The onset, where everything persisted shows it.
    fn first_position(
        &mut self,
        generation: FollowedGeneration,
        position: u32,
        violation: &Violation,
    ) -> Result<Option<Onset>, EngineError> {
        let mut is_each = false;
        loop {
            let stretch = self.follow(generation, position, is_each)?;
            let onset = match &violation.leaks {
                Some(_) => latest_leak(&stretch.since, stretch.leaks.as_deref()),
                None => Wrong::of(violation).iter().find_map(|wrong| stretch.since.get(wrong)).cloned(),
            };
            let (first, begin) = (stretch.first, stretch.begin);
            if first == begin || onset.as_ref().is_none_or(|onset| onset.position > first) {
                return Ok(onset);
            }
            let back = 2 * (position - first) + 1;
            self.start(generation, position.saturating_sub(back).max(begin))?;
            is_each = true;
        }
    }

    /// Goes on to that position, or starts there. is_each: positions on the way are judged though nothing is wrong.
    fn follow(
        &mut self,
        generation: FollowedGeneration,
        position: u32,
        is_each: bool,
    ) -> Result<&Stretch, EngineError> {
        let is_case = |number: u32| matches!(generation.trace.events[number as usize].kind, EventKind::Case { .. });
        let is_ahead = |stretch: &Stretch| {
            *stretch.left == *generation.left() && stretch.last <= position && !(stretch.last..position).any(is_case)
        };
        if !self.stretch.as_ref().is_some_and(is_ahead) {
            self.start(generation, position)?;
        }
        loop {
            let stretch = self.stretch.as_mut().expect("it was started");
            if stretch.last >= position {
                break;
            }
            let number = stretch.last;
            stretch.view = generation.step(&mut stretch.case, number)?;
            stretch.last += 1;
            if is_each || stretch.last == position || !stretch.since.is_empty() {
                self.judge(generation)?;
            }
        }
        Ok(self.stretch.as_ref().expect("it was started"))
    }

    /// Starts a stretch at that position.
    fn start(&mut self, generation: FollowedGeneration, position: u32) -> Result<(), EngineError> {
        let (case, view) = generation.go_to(position)?;
        let stretch = Stretch {
            left: generation.left().into(),
            begin: position + 1 - case.position_in_case,
            case,
            view,
            first: position,
            judged: position,
            last: position,
            since: FxHashMap::default(),
            rules: FxHashSet::default(),
            leaks: None,
        };
        self.stretch = Some(stretch);
        self.judge(generation)
    }

    /// Judges everything persisted at the last position.
    fn judge(&mut self, generation: FollowedGeneration) -> Result<(), EngineError> {
        generation.budget.check_examining()?;
        let probe = generation.config.probe();
        let stretch = self.stretch.as_mut().expect("it was started");
        let recoverer = match &mut self.recoverer {
            Some(recoverer) => recoverer,
            none => none.insert(Recoverer::start(&generation.config.batching_server()?, probe)?),
        };
        let heap = stretch.case.crash(&stretch.view, &stretch.view.prefix_state());
        let judgement = Judge { config: generation.config, twins: generation.twins }.judge(recoverer, probe, heap)?;
        stretch.note(judgement);
        Ok(())
    }
}

impl Stretch {
    /// Takes over the judgement of the last position.
    fn note(&mut self, judgement: Judgement) {
        if self.last > self.judged + 1 {
            self.first = self.last;
        }
        self.judged = self.last;
        let operation = self.case.current.map_or("none", |current| current.operation.kind.name());
        let here = |fact| Onset { position: self.last, site: self.case.last_site(), operation, fact };
        let others = judgement.violations.iter().filter(|violation| violation.leaks.is_none());
        let others =
            others.flat_map(|violation| Wrong::of(violation).into_iter().map(|wrong| (wrong, here(violation.fact))));
        let leaks = judgement.leaks.iter().flat_map(|leaks| &leaks.blocks);
        let leaks = leaks.map(|block| (Wrong::leak(block), here(Fact::Leaked)));
        self.since = since(&self.since, others.chain(leaks).collect());
        self.rules = judgement.violations.iter().map(Violation::broken).collect();
        self.leaks = judgement.leaks;
    }
}

/// The onset of each thing that is wrong now. `before`: those of the position before. `now`: what is wrong, each with this position.
fn since(before: &FxHashMap<Wrong, Onset>, now: Vec<(Wrong, Onset)>) -> FxHashMap<Wrong, Onset> {
    let known = |wrong: &Wrong| before.get(wrong);
    let mut parts = now.iter().map(|(wrong, _)| wrong).filter(|wrong| !matches!(wrong, Wrong::Heap(..))).peekable();
    let is_nothing_new = parts.peek().is_some() && parts.all(|wrong| known(wrong).is_some());
    let consequence = |wrong: &Wrong| {
        let Wrong::Heap(fact, _) = wrong else { return None };
        let of_rule =
            |(other, _): &(&Wrong, &Onset)| matches!(other, Wrong::Heap(known, _) if known.rule() == fact.rule());
        let first = before.iter().filter(of_rule).map(|(_, onset)| onset).min_by_key(|onset| onset.position);
        first.filter(|_| is_nothing_new)
    };
    let onset = |wrong: &Wrong, here: &Onset| known(wrong).or_else(|| consequence(wrong)).unwrap_or(here).clone();
    now.iter().map(|(wrong, here)| (wrong.clone(), onset(wrong, here))).collect()
}

/// The latest onset of the leaked heap blocks, when as many of the latest are left out as may belong to pending operations. So a new leak is
/// reported, whatever has leaked already.
fn latest_leak(since: &FxHashMap<Wrong, Onset>, leaks: Option<&Leaked>) -> Option<Onset> {
    let leaks = leaks?;
    let mut onset: Vec<&Onset> = leaks.blocks.iter().filter_map(|block| since.get(&Wrong::leak(block))).collect();
    onset.sort_unstable_by_key(|onset| onset.position);
    onset.into_iter().rev().nth(usize::try_from(leaks.of_pending).unwrap_or(usize::MAX)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oracle::fact::{HolderKind, Step};
    use oracle::report::{SectionKind, Status, USE};

    fn violation(fact: Fact) -> Violation {
        Violation {
            rule: fact.rule(),
            fact,
            message: "words".to_owned(),
            slot: None,
            operation: None,
            block: None,
            leaks: None,
            lost_bytes: None,
        }
    }

    /// The life of use answered an error at this section.
    fn answered(section: SectionKind) -> Fact {
        Fact::Answered(Step::new(USE, section), Status::Error.into())
    }

    fn block(offset: u64) -> Extent {
        Extent { place: Place { file: "heap".to_owned(), offset }, bytes: 64 }
    }

    fn at(position: u32) -> Onset {
        Onset { position, site: SiteId(position), operation: "free", fact: Fact::Leaked }
    }

    fn one(violation: &Violation) -> Wrong {
        Wrong::of(violation).remove(0)
    }

    #[test]
    fn of_several_leaks_that_which_began_last_and_is_not_permitted_is_told() {
        let since =
            [(64, 10), (128, 30), (192, 20)].map(|(offset, position)| (Wrong::leak(&block(offset)), at(position)));
        let since: FxHashMap<Wrong, Onset> = since.into_iter().collect();
        let began_with = |of_pending: u64| {
            let leaks = Leaked { blocks: [64, 128, 192].map(block).to_vec(), of_pending };
            latest_leak(&since, Some(&leaks)).map(|onset| onset.position)
        };
        assert_eq!([0, 1, 2, 3].map(began_with), [Some(30), Some(20), Some(10), None]);
    }

    #[test]
    fn what_stays_wrong_is_known_by_what_it_is_about() {
        let slot = |fact: Fact, slot: u32, operation: u32, at: u64| {
            let subject = (Some(slot), Some(operation), Some(block(at)));
            one(&Violation { slot: subject.0, operation: subject.1, block: subject.2, ..violation(fact) })
        };
        let (dangles, is_null) = (Fact::Dangling(HolderKind::Slot), Fact::Null(HolderKind::Slot));
        let dangling = slot(dangles, 3, 1, 64);
        assert_eq!(dangling, slot(dangles, 3, 1, 128), "wherever it points to");
        assert_ne!(dangling, slot(dangles, 4, 1, 64));
        assert_ne!(dangling, slot(dangles, 3, 2, 64), "what another operation left there");
        assert_ne!(dangling, slot(is_null, 3, 1, 64));
        let later = |fact: Fact| Violation { rule: RuleId::LaterGeneration, slot: Some(3), ..violation(fact) };
        assert_ne!(one(&later(dangles)), one(&later(is_null)), "after another crash");
        let of_heap = |section| one(&violation(answered(section)));
        assert_ne!(of_heap(SectionKind::Drain), of_heap(SectionKind::Close));
        let lost = Fact::CapacityLost(USE.into());
        let short = |bytes: u64| one(&Violation { lost_bytes: Some(bytes), ..violation(lost) });
        assert_ne!(short(64), short(128), "more is lost");
    }

    #[test]
    fn words_of_messages_tell_nothing_apart() {
        for fact in [answered(SectionKind::Check), Fact::Null(HolderKind::Slot), Fact::CapacityLost(USE.into())] {
            let reworded = Violation { message: "some headers of the heap are damaged".to_owned(), ..violation(fact) };
            assert!(are_same(&violation(fact), &reworded), "{fact}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_heap_is_a_consequence_of_what_was_wrong_already() {
        let heap = |section| one(&violation(answered(section)));
        let slot = |number: u32| Wrong::Slot(RuleId::DanglingSlot, number, None);
        let before: FxHashMap<Wrong, Onset> =
            [(slot(1), at(5)), (heap(SectionKind::FreeAll), at(5))].into_iter().collect();
        let onset = |now: &[Wrong]| {
            let now = now.iter().map(|wrong| (wrong.clone(), at(9))).collect();
            since(&before, now)
        };
        let (fails, of_another_rule) = (heap(SectionKind::Drain), heap(SectionKind::Check));
        assert_eq!(onset(&[slot(1), fails.clone()])[&fails].position, 5);
        assert_eq!(onset(&[slot(1), slot(2), fails.clone()])[&fails].position, 9, "something else onset to be wrong");
        assert_eq!(onset(std::slice::from_ref(&fails))[&fails].position, 9, "of nothing that is known");
        assert_eq!(onset(&[slot(1), of_another_rule.clone()])[&of_another_rule].position, 9, "another rule");
    }
}
