// SPDX-License-Identifier: Apache-2.0
//! `shrink`: of the crash states of one trace that show the finding of a token, the one that is easiest to read: fewest lines that
//! are not as everything persisted leaves them; of those, fewest that are not at their floor; of those, the earliest crash position.
//!
//! The search tries all states with one line lost, at all crash positions of the token's heap, then with two, up to as many as the
//! token has. A state counts when its recovery breaks the token's rule and its finding would have the same id. Equal images of which
//! the same is expected are recovered once: most positions add few.
//!
//! Of a token with later crashes the last one is shrunk, the ones before it stay.

use crate::cases::Case;
use crate::certificate::Tally;
use crate::complete::{Budget, Stop};
use crate::config::{Config, StrategyName};
use crate::error::{EngineError, bad_input};
use crate::explore::{deadline, judge_image};
use crate::finding::{Findings, Origin, StateRef, shortest_form};
use crate::generations::Generation;
use crate::output::{Output, Verdict};
use crate::probes::Probes;
use crate::reads;
use crate::replay_token::{check_belongs, last_generation, state_of};
use crate::twins;
use crashgen::image::ImageHash;
use crashgen::model::{Choice, View};
use crashgen::replay::Probe;
use crashgen::token::{LaterCrash, Witness};
use crashgen::trace::{EventKind, Trace};
use oracle::{RuleId, TwinSet, Violation};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

/// Choices of a line that are tried: lines of wide or non-temporal stores have up to 2^64.
const CHOICES: u128 = 4096;

/// How small the state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Size {
    /// Lines that are not as everything persisted leaves them.
    lines: usize,
    /// Lines that are not at their floor.
    floor_lines: usize,
    /// Events before the crash.
    position: u32,
}

/// What was found.
#[derive(Serialize)]
pub struct Shrunk {
    /// Of the token.
    before: Size,
    /// Of the finding that was printed.
    after: Size,
    recoveries: u64,
    /// Why a smaller state may have been missed.
    bounds_hit: BTreeSet<String>,
}

/// Prints the finding with its smallest state, and how small that is.
///
/// # Errors
/// When the token does not belong to this trace or does not show its rule there, or the replay server fails.
pub fn shrink(config: &Config, trace: &Trace, witness: &Witness, output: &mut Output) -> Result<Verdict, EngineError> {
    check_belongs(config, trace, witness)?;
    let rule = witness.rule.parse().map_err(|error| bad_input(format!("the token's rule: {error}")))?;
    let mut tally = Tally::default();
    let has_twins = witness.later.is_empty();
    let mut shrinker = Shrinker {
        config,
        trace,
        witness,
        rule,
        findings: Findings::new(config),
        hooked: if has_twins {
            None
        } else {
            Some(Probes::start(&config.exploring_server(StrategyName::Complete)?, false)?)
        },
        probes: Probes::start(&config.server("images")?, true)?,
        twins: if has_twins { twins::make(config, trace, &mut tally)? } else { None },
        budget: Budget::of(config, deadline(config, Instant::now())),
        wanted: String::new(),
        known: FxHashMap::default(),
        bounds_hit: BTreeSet::new(),
    };
    let before = shrinker.size_of_token()?;
    let after = shrinker.search(before)?;
    let shrunk = Shrunk {
        before,
        after: after.as_ref().map_or(before, |best| best.size),
        recoveries: shrinker.probes.recoveries,
        bounds_hit: std::mem::take(&mut shrinker.bounds_hit),
    };
    shrinker.print(after, output)?;
    output.shrunk(&shrunk);
    output.done(Verdict::Fail, shrinker.findings.all(), &trace.hash);
    Ok(Verdict::Fail)
}

struct Shrinker<'a> {
    config: &'a Config,
    trace: &'a Trace,
    witness: &'a Witness,
    rule: RuleId,
    findings: Findings,
    /// Tells what recoveries do, for later generations.
    hooked: Option<Probes>,
    probes: Probes,
    twins: Option<TwinSet>,
    budget: Budget,
    /// Id of the finding.
    wanted: String,
    /// Of images, and what is expected then: whether they break the rule.
    known: FxHashMap<(ImageHash, u64), bool>,
    bounds_hit: BTreeSet<String>,
}

/// A state that shows the finding.
struct Best {
    size: Size,
    state: Vec<Choice>,
}

/// The generation in which power fails last, stepped from crash position to crash position.
struct Walk<'a> {
    generation: LastGeneration<'a>,
    next: u32,
    end: u32,
}

enum LastGeneration<'a> {
    Workload(&'a Trace, Box<Case>),
    Recovery(Box<Generation>),
}

impl LastGeneration<'_> {
    fn trace_and_case(&mut self) -> (&Trace, &mut Case) {
        match self {
            Self::Workload(trace, case) => (trace, case),
            Self::Recovery(generation) => (&generation.trace, &mut generation.case),
        }
    }

    fn step(&mut self, config: &Config, number: u32) -> Result<View, EngineError> {
        match self {
            Self::Workload(trace, case) => Ok(case.step(number, &trace.events[number as usize])?.0),
            Self::Recovery(generation) => generation.step(config, number),
        }
    }
}

impl Walk<'_> {
    /// The next crash position, with what it shows.
    fn step(&mut self, config: &Config) -> Result<Option<(u32, View)>, EngineError> {
        if self.next >= self.end {
            return Ok(None);
        }
        let view = self.generation.step(config, self.next)?;
        self.next += 1;
        Ok(Some((self.next, view)))
    }
}

impl<'a> Shrinker<'a> {
    /// How small the token's own state is; it must show the token's rule.
    fn size_of_token(&mut self) -> Result<Size, EngineError> {
        let position = self.position();
        let (mut walk, view) = self.walk_to(position)?;
        let last = self.witness.later.last();
        let (from_newest, lines) =
            last.map_or((self.witness.from_newest, &self.witness.lines), |crash| (crash.from_newest, &crash.lines));
        let (_, case) = walk.generation.trace_and_case();
        let state = state_of(case, &view, from_newest, lines)?;
        self.wanted = self.id_of(&mut walk, &view, &state, position);
        if self.violation(&mut walk, &view, &state)?.is_none() {
            let rule = self.rule;
            return Err(bad_input(format!("the token's state does not break {rule} here; was the allocator changed?")));
        }
        Ok(size_of(&view, &state, position))
    }

    /// Of the token's last crash.
    fn position(&self) -> u32 {
        self.witness.later.last().map_or(self.witness.position, |crash| crash.position)
    }

    /// A state that is smaller than `before`, and the smallest.
    fn search(&mut self, before: Size) -> Result<Option<Best>, EngineError> {
        for lines in 0..=before.lines {
            let bound =
                if lines == before.lines { before } else { Size { lines, floor_lines: usize::MAX, position: 0 } };
            let (flow, best) = self.states_with(lines, bound)?;
            if best.is_some() || flow.is_break() {
                return Ok(best);
            }
        }
        Ok(None)
    }

    /// The smallest state below the bound with so many lines lost. Break: a budget is used up.
    fn states_with(&mut self, lines: usize, bound: Size) -> Result<(ControlFlow<()>, Option<Best>), EngineError> {
        let mut walk = self.walk()?;
        let mut best: Option<Best> = None;
        while let Some((position, view)) = walk.step(self.config)? {
            let mut states = States::new(&view, lines);
            let least = Size { lines, floor_lines: view.lines.len().saturating_sub(lines), position };
            while least < best.as_ref().map_or(bound, |best| best.size) && states.advance() {
                if self.is_over() {
                    return Ok((ControlFlow::Break(()), best));
                }
                let size = Size { floor_lines: states.floor_lines(), ..least };
                if size >= best.as_ref().map_or(bound, |best| best.size) {
                    continue;
                }
                let state = states.state.as_slice();
                if self.shows(&mut walk, &view, state, position)? {
                    best = Some(Best { size, state: state.to_vec() });
                }
            }
            if states.is_cut {
                self.bounds_hit.insert(format!("of a line with more than {CHOICES} choices, {CHOICES} were tried"));
            }
        }
        Ok((ControlFlow::Continue(()), best))
    }

    fn is_over(&mut self) -> bool {
        let Err(Stop::Budget(why)) = self.budget.check(self.probes.recoveries) else { return false };
        self.bounds_hit.insert(format!("not all smaller crash states were tried: {why}"));
        true
    }

    /// Whether the state breaks the token's rule, by a finding of the same id.
    fn shows(&mut self, walk: &mut Walk, view: &View, state: &[Choice], position: u32) -> Result<bool, EngineError> {
        let (_, case) = walk.generation.trace_and_case();
        case.image.go_to(&case.model, view, state);
        let key = (case.image.hash(), case.history.state_id());
        if self.id_of(walk, view, state, position) != self.wanted {
            return Ok(false);
        }
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let shows = self.violation(walk, view, state)?.is_some();
        self.known.insert(key, shows);
        Ok(shows)
    }

    fn id_of(&mut self, walk: &mut Walk, view: &View, state: &[Choice], position: u32) -> String {
        let (trace, case) = walk.generation.trace_and_case();
        let state = StateRef { case, view, state, position, strategy: "shrink", read: None };
        self.findings.id_of(trace, &state, self.rule)
    }

    fn violation(&mut self, walk: &mut Walk, view: &View, state: &[Choice]) -> Result<Option<Violation>, EngineError> {
        let (_, case) = walk.generation.trace_and_case();
        case.image.go_to(&case.model, view, state);
        if self.hooked.is_some() {
            case.image.start_again();
        }
        let judgement = judge_image(self.config, self.twins.as_ref(), (&mut self.probes, Probe::Full), case)?;
        Ok(judgement.violations.into_iter().find(|violation| violation.rule == self.rule))
    }

    /// Over all crash positions of the token's heap, or of what its recovery did.
    fn walk(&mut self) -> Result<Walk<'a>, EngineError> {
        self.probes.start_case()?; // the image that the servers follow is another one now
        if let Some(hooked) = &mut self.hooked {
            hooked.start_case()?;
            let generation =
                last_generation(self.config, self.trace, self.witness, (hooked, &mut self.findings.told_sites))?;
            let end = generation.trace.events.len() as u32;
            return Ok(Walk { generation: LastGeneration::Recovery(Box::new(generation)), next: 0, end });
        }
        let (events, first) = (&self.trace.events, self.trace.first_event());
        let is_case = |number: &usize| matches!(events[*number].kind, EventKind::Case { .. });
        let position = self.witness.position as usize;
        if position <= first || position > events.len() {
            return Err(bad_input(format!("the token's crash position {position} is not in the trace")));
        }
        let begin = (first..position).rev().find(is_case).unwrap_or(first);
        let end = (position..events.len()).find(is_case).unwrap_or(events.len());
        let folder = match &events[begin].kind {
            EventKind::Case { folder, .. } => folder,
            _ => "",
        };
        let case = Box::new(Case::new(self.config, self.trace, folder));
        Ok(Walk { generation: LastGeneration::Workload(self.trace, case), next: begin as u32, end: end as u32 })
    }

    /// At this crash position.
    fn walk_to(&mut self, position: u32) -> Result<(Walk<'a>, View), EngineError> {
        let mut walk = self.walk()?;
        while let Some((reached, view)) = walk.step(self.config)? {
            if reached == position {
                return Ok((walk, view));
            }
        }
        Err(bad_input(format!("the token's crash position {position} is not there; was the allocator changed?")))
    }

    /// The finding as this state shows it; none: as the token's does.
    fn print(&mut self, best: Option<Best>, output: &mut Output) -> Result<(), EngineError> {
        let position = best.as_ref().map_or(self.position(), |best| best.size.position);
        let (mut walk, view) = self.walk_to(position)?;
        let state = match best {
            Some(best) => best.state,
            None => {
                let last = self.witness.later.last();
                let (from_newest, lines) = last
                    .map_or((self.witness.from_newest, &self.witness.lines), |crash| (crash.from_newest, &crash.lines));
                state_of(walk.generation.trace_and_case().1, &view, from_newest, lines)?
            }
        };
        let violation = self.violation(&mut walk, &view, &state)?;
        let violation = violation.ok_or_else(|| {
            EngineError::Infrastructure("a state broke a rule once and does not again; is the target random?".into())
        })?;
        let (trace, case) = walk.generation.trace_and_case();
        let read = reads::first(self.config, case, &view, &state);
        let state = StateRef { case, view: &view, state: &state, position, strategy: "shrink", read };
        let origin = match self.witness.later.is_empty() {
            true => Origin::Explored(None),
            false => Origin::LaterToken(self.later_token(&state)),
        };
        if let Some(finding) = self.findings.add(self.config, trace, origin, &state, &violation, String::new()) {
            output.finding(finding);
        }
        Ok(())
    }

    fn later_token(&self, state: &StateRef) -> String {
        let (from_newest, lines) = shortest_form(state);
        let mut witness = self.witness.clone();
        witness.later.pop();
        witness.later.push(LaterCrash { position: state.position, from_newest, lines });
        witness.encode()
    }
}

fn size_of(view: &View, state: &[Choice], position: u32) -> Size {
    let differing = |other: &[Choice]| state.iter().zip(other).filter(|(one, other)| one != other).count();
    Size { lines: differing(&view.prefix_state()), floor_lines: differing(&view.floor_state()), position }
}

/// All states of a crash position in which so many lines are not as everything persisted leaves them: an odometer over the lines
/// that are lost, in ascending order, and over their choices, from the floor up.
struct States<'a> {
    view: &'a View,
    /// Places in the view of the lines that are lost; empty and begun: the one state without any.
    lost: Vec<usize>,
    numbers: Vec<u128>,
    state: Vec<Choice>,
    is_begun: bool,
    /// Some line has more choices than are tried.
    is_cut: bool,
}

impl<'a> States<'a> {
    fn new(view: &'a View, lines: usize) -> Self {
        let is_cut = lines > 0 && view.lines.iter().any(|line| line.choice_count() - 1 > CHOICES);
        let state = view.prefix_state();
        Self { view, lost: (0..lines).collect(), numbers: vec![0; lines], state, is_begun: false, is_cut }
    }

    /// Whether there is another one; `state` is it.
    fn advance(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let is_there = match is_first {
            true => self.lost.len() <= self.view.lines.len(),
            false => self.turn_choice() || self.turn_lines(),
        };
        if is_there {
            for (at, number) in self.lost.iter().zip(&self.numbers) {
                self.state[*at] = self.view.lines[*at].choice(*number);
            }
        }
        is_there
    }

    /// Lines that hold more than their floor: every open line does where it is not lost.
    fn floor_lines(&self) -> usize {
        self.view.lines.len() - self.numbers.iter().filter(|number| **number == 0).count()
    }

    /// The next choice of the same lines.
    fn turn_choice(&mut self) -> bool {
        let most = |at: usize| (self.view.lines[at].choice_count() - 1).min(CHOICES);
        let Some(turning) = (0..self.lost.len()).rev().find(|at| self.numbers[*at] + 1 < most(self.lost[*at])) else {
            return false;
        };
        self.numbers[turning] += 1;
        self.numbers[turning + 1..].fill(0);
        true
    }

    /// The floors of the next lines.
    fn turn_lines(&mut self) -> bool {
        let (count, all) = (self.lost.len(), self.view.lines.len());
        let Some(turning) = (0..count).rev().find(|at| self.lost[*at] < all - count + *at) else { return false };
        self.lost.iter().for_each(|at| self.state[*at] = self.view.lines[*at].newest());
        let first = self.lost[turning] + 1;
        (turning..count).for_each(|at| self.lost[at] = first + at - turning);
        self.numbers.fill(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::model::{Model, ModelKind};
    use crashgen::strategy::{Exhaustive, Scope, Strategy};
    use crashgen::trace::{Event, FileId, SiteId, StoreKind, ThreadId};

    /// Lines with plain stores, torn ones, floating units; one that is decided by now.
    fn view() -> View {
        let mut model = Model::new(ModelKind::Px86, Vec::new());
        let plain = StoreKind::Plain;
        let stores =
            [(plain, 0, 8), (plain, 0, 8), (plain, 64, 24), (StoreKind::NonTemporal, 128, 16), (plain, 192, 8)];
        for (number, (kind, offset, bytes)) in stores.into_iter().enumerate() {
            let kind = EventKind::Store { kind, file: FileId(0), offset, bytes: vec![1; bytes].into() };
            model.step(number as u32, &Event { thread: ThreadId { process: 1, thread: 1 }, site: SiteId(0), kind });
        }
        model.view()
    }

    fn all(view: &View, lines: usize) -> Vec<Vec<Choice>> {
        let mut states = States::new(view, lines);
        let mut all = Vec::new();
        while states.advance() {
            assert_eq!(states.floor_lines(), size_of(view, &states.state, 0).floor_lines);
            all.push(states.state.clone());
        }
        all
    }

    #[test]
    fn states_by_lost_lines_are_all_states_each_once() {
        let view = view();
        let mut exhaustive = Vec::new();
        let _ = Exhaustive.states(0, &view, Scope::All, &mut |state| {
            exhaustive.push(state.to_vec());
            ControlFlow::Continue(())
        });
        let mut found = Vec::new();
        for lines in 0..=view.lines.len() + 1 {
            let states = all(&view, lines);
            assert!(states.iter().all(|state| size_of(&view, state, 0).lines == lines));
            found.extend(states);
        }
        found.sort();
        exhaustive.sort();
        assert_eq!(found, exhaustive);
    }

    #[test]
    fn a_position_without_choices_has_one_state() {
        let view = View { lines: Default::default(), are_all_new: true, has_new_store: false };
        assert_eq!(all(&view, 0), [Vec::new()]);
        assert!(all(&view, 1).is_empty());
    }

    #[test]
    fn lines_come_before_what_is_not_guaranteed_and_that_before_the_position() {
        let size = |lines, floor_lines, position| Size { lines, floor_lines, position };
        assert!(size(1, 9, 9) < size(2, 0, 0));
        assert!(size(1, 3, 9) < size(1, 4, 0));
        assert!(size(1, 3, 4) < size(1, 3, 5));
    }
}
