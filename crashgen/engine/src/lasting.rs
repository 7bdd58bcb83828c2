// SPDX-License-Identifier: Apache-2.0
//! Since when the heap is wrong though everything persisted.
//!
//! A state that lost nothing and breaks a rule shows a fault of logic, and as long as what is wrong stays wrong each later crash
//! position shows it again, whichever store came last there. Such a fault is one finding, told by the place where it began: the first of
//! the crash positions without a gap at which everything persisted leaves the same thing wrong ([`Wrong`]). That is a function of the
//! trace, the position and what is wrong there, so it is the same in every strategy, part and replay of a token; what is remembered here
//! only saves recoveries.
//!
//! States that lost something are not to blame for what everything persisted shows, too ([`Lasting::shows`]), and what they break
//! besides that is a finding of its own, of the same rule or of another one.
//!
//! Of the workload only: what a recovery does is over soon.

use crate::cases::Case;
use crate::config::Config;
use crate::error::EngineError;
use crate::explore::judge_image;
use crate::finding::StateRef;
use crate::probes::Probes;
use crate::replay_token::go_to;
use crashgen::model::View;
use crashgen::replay::Probe;
use crashgen::trace::{EventKind, SiteId, Trace};
use oracle::{Extent, Judgement, RuleId, TwinSet, Violation};
use planted::Fault;
use rustc_hash::{FxHashMap, FxHashSet};

/// Where something began to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// Events before the crash.
    pub position: u32,
    /// Of the last store by then.
    pub site: SiteId,
    /// The operation by then, `none` before the first one.
    pub operation: &'static str,
}

/// What is wrong, as far as it can be told to be the same at another crash position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wrong {
    /// With a slot.
    Slot(RuleId, u32),
    /// With a heap block.
    Block(RuleId, Extent),
    /// With what an operation did.
    Operation(RuleId, u32),
    /// With the heap: the first part of the message, numbers apart.
    Heap(RuleId, String),
}

impl Wrong {
    /// Several where one violation is of several heap blocks.
    fn of(violation: &Violation) -> Vec<Self> {
        let rule = violation.rule;
        if let Some(leaks) = &violation.leaks {
            return leaks.blocks.iter().map(Self::leak).collect();
        }
        let one = match (violation.slot, &violation.block, violation.operation) {
            (Some(slot), ..) => Self::Slot(rule, slot),
            (None, Some(block), _) => Self::Block(rule, block.clone()),
            (None, None, Some(operation)) => Self::Operation(rule, operation),
            (None, None, None) => Self::Heap(rule, statement(&violation.message)),
        };
        vec![one]
    }

    /// Permitted or not: what a pending operation may leave is a fault once it has returned.
    fn leak(block: &Extent) -> Self {
        Self::Block(RuleId::Leak, block.clone())
    }
}

fn statement(message: &str) -> String {
    message.split(':').next().unwrap_or_default().chars().filter(|char| !char.is_ascii_digit()).collect()
}

/// Follows what everything persisted shows.
pub struct Lasting<'a> {
    config: &'a Config,
    trace: &'a Trace,
    twins: Option<&'a TwinSet>,
    /// Started when something is asked for the first time.
    probes: Option<Probes>,
    followed: Option<Followed>,
}

/// A stretch of crash positions of one case.
struct Followed {
    case: Case,
    view: View,
    /// From this one on each was judged up to `judged`.
    first: u32,
    is_begin_of_case: bool,
    judged: u32,
    /// Where the case is.
    last: u32,
    /// What is wrong at the one that was judged last, or may become a leak, and since when; if since the first one, then perhaps longer.
    since: FxHashMap<Wrong, Began>,
    /// Rules that are broken there.
    rules: FxHashSet<RuleId>,
}

impl<'a> Lasting<'a> {
    /// Nothing is known yet.
    pub fn new(config: &'a Config, trace: &'a Trace, twins: Option<&'a TwinSet>) -> Self {
        Self { config, trace, twins, probes: None, followed: None }
    }

    /// Whether everything persisted shows at that crash position all that is wrong here.
    ///
    /// # Errors
    /// When the replay server does not start, or ends.
    pub fn shows(&mut self, position: u32, violation: &Violation) -> Result<bool, EngineError> {
        let followed = self.follow(position, false)?;
        let is_there = |wrong: &Wrong| followed.since.contains_key(wrong);
        Ok(followed.rules.contains(&violation.rule) && Wrong::of(violation).iter().all(is_there))
    }

    /// Where it began that everything persisted shows this at that crash position; none: it does not.
    ///
    /// # Errors
    /// When the replay server does not start, or ends.
    pub fn began(&mut self, position: u32, violation: &Violation) -> Result<Option<Began>, EngineError> {
        let mut is_each = false;
        loop {
            let followed = self.follow(position, is_each)?;
            let began = began(&followed.since, violation);
            let first = followed.first;
            if followed.is_begin_of_case || began.is_none_or(|began| began.position > first) {
                return Ok(began);
            }
            let back = 2 * (position - first) + 1;
            self.start(position.saturating_sub(back))?;
            is_each = true;
        }
    }

    /// The same of a state; none where that lost something.
    ///
    /// # Errors
    /// When the replay server does not start, or ends.
    pub fn of_state(&mut self, state: &StateRef, violation: &Violation) -> Result<Option<Began>, EngineError> {
        if state.state != state.view.prefix_state() {
            return Ok(None);
        }
        self.began(state.position, violation)
    }

    /// Goes on to that position, or begins there. is_each: those on the way are judged though nothing is wrong.
    fn follow(&mut self, position: u32, is_each: bool) -> Result<&Followed, EngineError> {
        let is_ahead = |followed: &Followed| {
            followed.last <= position && first_of_case(self.trace, followed.last) == first_of_case(self.trace, position)
        };
        if !self.followed.as_ref().is_some_and(is_ahead) {
            self.start(position)?;
        }
        loop {
            let followed = self.followed.as_mut().expect("it was started");
            if followed.last >= position {
                break;
            }
            let number = followed.last;
            followed.view = followed.case.step(number, &self.trace.events[number as usize])?.0;
            followed.last += 1;
            if is_each || followed.last == position || !followed.since.is_empty() {
                self.judge()?;
            }
        }
        Ok(self.followed.as_ref().expect("it was started"))
    }

    /// Begins at that position, or with its case.
    fn start(&mut self, position: u32) -> Result<(), EngineError> {
        let begin = first_of_case(self.trace, position);
        let first = position.max(begin);
        let (case, view) = go_to(self.config, self.trace, first)?;
        if let Some(probes) = &mut self.probes {
            probes.start_case()?; // the image is made anew, and the server goes from one to the next by what changes
        }
        let followed = Followed {
            case,
            view,
            first,
            is_begin_of_case: first == begin,
            judged: first,
            last: first,
            since: FxHashMap::default(),
            rules: FxHashSet::default(),
        };
        self.followed = Some(followed);
        self.judge()
    }

    /// Of the last position.
    fn judge(&mut self) -> Result<(), EngineError> {
        let is_full = self.config.is_full();
        let followed = self.followed.as_mut().expect("it was started");
        let probes = match &mut self.probes {
            Some(probes) => probes,
            none => none.insert(Probes::start(&self.config.server("lasting")?, is_full)?),
        };
        let (case, view) = (&mut followed.case, &followed.view);
        case.image.go_to(&case.model, view, &view.prefix_state());
        let probe = if is_full { Probe::Full } else { Probe::First };
        let judgement = judge_image(self.config, self.twins, (probes, probe), case.recovered_image())?;
        followed.note(&judgement);
        Ok(())
    }
}

impl Followed {
    fn note(&mut self, judgement: &Judgement) {
        if self.last > self.judged + 1 {
            (self.first, self.is_begin_of_case) = (self.last, false);
        }
        self.judged = self.last;
        let operation = self.case.current.map_or("none", |current| current.operation.kind.name());
        let here = Began { position: self.last, site: self.case.last_store, operation };
        let others = judgement.violations.iter().filter(|violation| violation.leaks.is_none()).flat_map(Wrong::of);
        let leaks = judgement.leaks.iter().flat_map(|leaks| &leaks.blocks).map(Wrong::leak);
        let since = others.chain(leaks).map(|wrong| {
            let known = self.since.get(&wrong).filter(|_| !planted::is(Fault::BeginsAnew));
            let began = known.copied().unwrap_or(here);
            (wrong, began)
        });
        self.since = since.collect();
        self.rules = judgement.violations.iter().map(|violation| violation.rule).collect();
    }
}

/// Of several heap blocks that which began last, leaving out as many as may be there: new ones are told, whatever is wrong already.
fn began(since: &FxHashMap<Wrong, Began>, violation: &Violation) -> Option<Began> {
    let mut began: Vec<Began> = Wrong::of(violation).iter().filter_map(|wrong| since.get(wrong)).copied().collect();
    began.sort_unstable_by_key(|began| began.position);
    let permitted = violation.leaks.as_ref().map_or(0, |leaks| leaks.permitted);
    began.into_iter().rev().nth(usize::try_from(permitted).unwrap_or(usize::MAX))
}

/// The first crash position of the case that this one lies in.
fn first_of_case(trace: &Trace, position: u32) -> u32 {
    let is_case = |number: &usize| matches!(trace.events[*number].kind, EventKind::Case { .. });
    let first = trace.first_event();
    (first..position as usize).rev().find(is_case).unwrap_or(first) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use oracle::Leaked;
    use oracle::report::Place;
    use std::sync::Arc;

    fn violation(rule: RuleId, message: &str) -> Violation {
        Violation { rule, message: message.to_owned(), slot: None, operation: None, block: None, leaks: None }
    }

    fn block(offset: u64) -> Extent {
        Extent { place: Place { file: "heap".to_owned(), offset }, bytes: 64 }
    }

    #[test]
    fn of_several_leaks_that_which_began_last_and_is_not_permitted_is_told() {
        let at = |position: u32| Began { position, site: SiteId(position), operation: "free" };
        let since =
            [(64, 10), (128, 30), (192, 20)].map(|(offset, position)| (Wrong::leak(&block(offset)), at(position)));
        let since: FxHashMap<Wrong, Began> = since.into_iter().collect();
        let began_with = |permitted: u64| {
            let leaks = Leaked { blocks: [64, 128, 192].map(block).to_vec(), permitted };
            let leaked = Violation { leaks: Some(Arc::new(leaks)), ..violation(RuleId::Leak, "3 blocks") };
            began(&since, &leaked).map(|began| began.position)
        };
        assert_eq!([0, 1, 2, 3].map(began_with), [Some(30), Some(20), Some(10), None]);
    }

    #[test]
    fn what_stays_wrong_is_told_by_what_it_is_about() {
        let of_heap = |message: &str| Wrong::of(&violation(RuleId::NotUsable, message));
        assert_eq!(of_heap("the drain got 3 blocks: error 0x10"), of_heap("the drain got 4 blocks"));
        assert_ne!(of_heap("the drain got 3 blocks"), of_heap("the close answered error"));
        let of_slot = |rule: RuleId, slot: u32, at: u64| {
            Wrong::of(&Violation { slot: Some(slot), block: Some(block(at)), ..violation(rule, "") })
        };
        let dangling = of_slot(RuleId::DanglingSlot, 3, 64);
        assert_eq!(dangling, of_slot(RuleId::DanglingSlot, 3, 128), "wherever it points to");
        assert_ne!(dangling, of_slot(RuleId::DanglingSlot, 4, 64));
        assert_ne!(dangling, of_slot(RuleId::OperationLost, 3, 64));
    }
}
