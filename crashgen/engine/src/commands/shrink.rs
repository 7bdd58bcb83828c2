// SPDX-License-Identifier: Apache-2.0
//! `shrink`: of the crash states of one trace that show the finding of a token, the one that is easiest to read. That is the one with the
//! fewest lines that are not as everything persisted leaves them; of those, with the fewest that are not at their floor; of those, at the
//! earliest crash position.
//!
//! The search tries all states with one line lost, at all crash positions of the token's heap, then with two,
//! up to as many as the token has. A state counts when its recovery breaks the token's rule and its finding
//! would have the same id: in the first part of the probe script, if the token's state breaks it there already.
//! Equal images from which the same is expected are recovered once, and most positions add few others.
//!
//! If the token has later crashes, each crash is shrunk in this way while the others stay, the last one first, until none gets smaller. After
//! another crash recovery may do more or less. So a later crash keeps its place in the source, and how often recovery has come there
//! ([`PlaceInRecovery`]). What a crash breaks by itself is no finding of a later one: the heap must be in order after each crash but the last.

use crate::base::budget::{Budget, Stop};
use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::base::output::{Output, Verdict};
use crate::commands::replay::{check_belongs, last_generation, step_to};
use crate::findings::evidence::Evidence;
use crate::findings::finding::{Findings, FoundState, Origin, seen_counts};
use crate::findings::identity;
use crate::findings::onset::{FollowedGeneration, Onset, OnsetFinder, RecoveryStart};
use crate::heap::case::{CrashedHeap, HeapCase};
use crate::heap::state::StateRef;
use crate::heap::stepping::go_to;
use crate::heap::token_form::{shortest_form, state_of};
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::replayed::{GenerationStart, ReplayedGeneration};
use crate::recovery::twins;
use crashgen::image::ImageHash;
use crashgen::model::{Choice, View};
use crashgen::replay::Probe;
use crashgen::token::{LaterCrash, LineChoice, Witness};
use crashgen::trace::{Event, EventKind, SiteId, Trace};
use oracle::{RuleId, TwinSet, Violation};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::ops::{Add, ControlFlow};
use std::rc::Rc;

/// Choices of a line that are tried: lines of wide or non-temporal stores have up to 2^64.
const CHOICES: u128 = 4096;

/// How small a crash state is, or all states of a witness together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Size {
    /// Lines that are not as everything persisted leaves them.
    lines: usize,
    /// Lines that are not at their floor.
    floor_lines: usize,
    /// Events before the crash.
    position: u32,
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            lines: self.lines + other.lines,
            floor_lines: self.floor_lines + other.floor_lines,
            position: self.position + other.position,
        }
    }
}

/// What is printed at the end.
#[derive(Serialize)]
pub struct Shrunk {
    /// All crash states of the token together.
    before: Size,
    /// All crash states of the finding that was printed.
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
    let is_later = !witness.later.is_empty();
    let budget = Budget::of(config, config.ends);
    let made = twins::make(config, trace, budget.deadline)?;
    let mut shrinker = Shrinker {
        config,
        trace,
        rule,
        findings: Findings::new(config),
        hooked: match is_later {
            true => Some(Recoverer::start(&config.recording_server()?, Probe::First)?),
            false => None,
        },
        recoverer: Recoverer::start(&config.server("images")?, config.probe())?,
        twins: made.twins.as_ref(),
        onsets: OnsetFinder::default(),
        budget,
        target: TargetFinding::default(),
        probe: Probe::First,
        known: FxHashMap::default(),
        judged: FxHashMap::default(),
        bounds_hit: BTreeSet::new(),
    };
    let token = shrinker.open(witness)?;
    let before = token.size();
    let best = shrinker.search(token)?;
    let shrunk = Shrunk {
        before,
        after: best.size(),
        recoveries: shrinker.recoveries(),
        bounds_hit: std::mem::take(&mut shrinker.bounds_hit),
    };
    shrinker.print(&best.witness, output)?;
    output.say("shrunk", &shrunk);
    output.done(Verdict::Fail, &seen_counts(shrinker.findings.all()), &trace.hash);
    Ok(Verdict::Fail)
}

struct Shrinker<'a> {
    config: &'a Config,
    trace: &'a Trace,
    rule: RuleId,
    findings: Findings,
    /// Traces what recoveries do, for later generations.
    hooked: Option<Recoverer>,
    recoverer: Recoverer,
    twins: Option<&'a TwinSet>,
    onsets: OnsetFinder,
    budget: Budget,
    target: TargetFinding,
    /// How much of the probe script shows the finding.
    probe: Probe,
    /// By image of an earlier crash and what is expected then: whether the later crashes show the finding after it.
    known: FxHashMap<(ImageHash, u64), bool>,
    /// By image of the last crash and what is expected then: what breaks the rule.
    judged: FxHashMap<(ImageHash, u64), Rc<[Violation]>>,
    bounds_hit: BTreeSet<String>,
}

/// The finding that is to be shown.
#[derive(Default)]
struct TargetFinding {
    id: String,
    /// What [`identity::place`] says of it.
    place: String,
    /// Its onset, where the token's state lost nothing.
    onset: Option<Onset>,
}

/// What a state is to blame for.
struct Blame {
    id: String,
    place: String,
    onset: Option<Onset>,
    violation: Violation,
}

/// A witness that shows the finding.
#[derive(Clone)]
struct ShownWitness {
    witness: Witness,
    /// How small each of its crash states is.
    sizes: Vec<Size>,
    /// Where each of its later crashes is.
    places: Vec<PlaceInRecovery>,
}

impl ShownWitness {
    fn size(&self) -> Size {
        self.sizes.iter().copied().fold(Size::default(), Size::add)
    }
}

/// Where power fails in a recovery: behind which of the events of one kind at one place in the source.
#[derive(Clone, Copy)]
struct PlaceInRecovery {
    site: SiteId,
    kind: Discriminant<EventKind>,
    before: usize,
}

impl PlaceInRecovery {
    fn is_like(&self, event: &Event) -> bool {
        (event.site, discriminant(&event.kind)) == (self.site, self.kind)
    }

    fn of(events: &[Event], position: u32) -> Option<Self> {
        let (last, earlier) = events.get(..position as usize)?.split_last()?;
        let place = Self { site: last.site, kind: discriminant(&last.kind), before: 0 };
        Some(Self { before: earlier.iter().filter(|event| place.is_like(event)).count(), ..place })
    }

    fn find(&self, events: &[Event]) -> Option<u32> {
        let mut like = events.iter().enumerate().filter(|(_, event)| self.is_like(event));
        like.nth(self.before).map(|(at, _)| at as u32 + 1)
    }
}

/// The generation in which a crash is, stepped from crash position to crash position.
struct PositionSteps<'a> {
    generation: SteppedGeneration<'a>,
    next: u32,
    end: u32,
}

/// What happened in a generation, and what it begins with.
#[derive(Clone, Copy)]
struct GenerationRef<'a> {
    trace: &'a Trace,
    /// None: it is the workload.
    start: Option<&'a GenerationStart>,
}

enum SteppedGeneration<'a> {
    Workload(&'a Trace, Box<HeapCase>),
    Recovery(Box<ReplayedGeneration>),
}

impl SteppedGeneration<'_> {
    fn parts(&mut self) -> (GenerationRef<'_>, &mut HeapCase) {
        match self {
            Self::Workload(trace, case) => (GenerationRef { trace, start: None }, case),
            Self::Recovery(generation) => {
                let ReplayedGeneration { trace, case, start, .. } = &mut **generation;
                (GenerationRef { trace, start: Some(start) }, case)
            }
        }
    }

    fn step(&mut self, config: &Config, number: u32) -> Result<View, EngineError> {
        match self {
            Self::Workload(trace, case) => Ok(case.step(number, &trace.events[number as usize])?.0),
            Self::Recovery(generation) => generation.step(config, number),
        }
    }
}

impl PositionSteps<'_> {
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
    /// The witness of the token, which must show its rule.
    fn open(&mut self, witness: &Witness) -> Result<ShownWitness, EngineError> {
        let rule = self.rule;
        let mut shown = self.follow(witness, None)?;
        if shown.is_none() {
            self.probe = self.config.probe();
            self.judged.clear();
            shown = self.follow(witness, None)?;
        }
        shown.ok_or_else(|| {
            bad_input(format!("the token's state does not break {rule} here; was the allocator changed?"))
        })
    }

    fn search(&mut self, mut best: ShownWitness) -> Result<ShownWitness, EngineError> {
        let crashes = best.sizes.len();
        let mut due: Vec<usize> = (0..crashes).collect();
        while let Some(crash) = due.pop() {
            let (flow, smaller) = self.with_smaller(crash, &best)?;
            if let Some(smaller) = smaller {
                best = smaller;
                due = (0..crashes).filter(|other| *other != crash).collect();
            }
            if flow.is_break() {
                break;
            }
        }
        Ok(best)
    }

    /// The smallest witness with another state of that crash, if one is smaller. Break: a budget is used up.
    fn with_smaller(
        &mut self,
        crash: usize,
        than: &ShownWitness,
    ) -> Result<(ControlFlow<()>, Option<ShownWitness>), EngineError> {
        self.known.clear();
        self.judged.clear();
        let before = than.sizes[crash];
        for lines in 0..=before.lines {
            let bound =
                if lines == before.lines { before } else { Size { lines, floor_lines: usize::MAX, position: 0 } };
            let (flow, best) = self.states_with(lines, bound, crash, than)?;
            if best.is_some() || flow.is_break() {
                return Ok((flow, best));
            }
        }
        Ok((ControlFlow::Continue(()), None))
    }

    /// The smallest state of the crash below the bound with so many lines lost.
    fn states_with(
        &mut self,
        lines: usize,
        bound: Size,
        crash: usize,
        than: &ShownWitness,
    ) -> Result<(ControlFlow<()>, Option<ShownWitness>), EngineError> {
        let mut steps = self.positions(&than.witness, crash)?;
        let (mut bound, mut best) = (bound, None);
        while let Some((position, view)) = steps.step(self.config)? {
            let mut states = States::new(&view, lines);
            let least = Size { lines, floor_lines: view.lines.len().saturating_sub(lines), position };
            while least < bound && states.advance() {
                if self.is_over() {
                    return Ok((ControlFlow::Break(()), best));
                }
                let size = Size { floor_lines: states.floor_lines(), ..least };
                if size >= bound {
                    continue;
                }
                let state = states.state.as_slice();
                let shown = match crash + 1 == than.sizes.len() {
                    true => self.with_last(&mut steps, &view, state, size, than)?,
                    false => self.with_earlier(&mut steps, &view, state, (crash, position), than)?,
                };
                if let Some(shown) = shown.filter(|shown| shown.size() < best.as_ref().unwrap_or(than).size()) {
                    (bound, best) = (size, Some(shown));
                }
            }
            if states.is_cut {
                self.bounds_hit.insert(format!("of a line with more than {CHOICES} choices, {CHOICES} were tried"));
            }
        }
        Ok((ControlFlow::Continue(()), best))
    }

    fn recoveries(&self) -> u64 {
        self.recoverer.recoveries + self.hooked.as_ref().map_or(0, |hooked| hooked.recoveries)
    }

    fn is_over(&mut self) -> bool {
        let Err(Stop::Budget(why)) = self.budget.check(self.recoveries()) else { return false };
        self.bounds_hit.insert(format!("not all smaller crash states were tried: {why}"));
        true
    }

    /// The witness with this state of its last crash, if that breaks the token's rule, by a finding of the same id.
    fn with_last(
        &mut self,
        steps: &mut PositionSteps,
        view: &View,
        state: &[Choice],
        size: Size,
        than: &ShownWitness,
    ) -> Result<Option<ShownWitness>, EngineError> {
        let (generation, case) = steps.generation.parts();
        let may_be = self.may_be_target(generation, &StateRef { case, view, choices: state, position: size.position });
        if !may_be || !self.shows(generation, case, (view, state, size.position))? {
            return Ok(None);
        }
        let mut shown = than.clone();
        *shown.sizes.last_mut().expect("there is a crash") = size;
        if let Some(place) = shown.places.last_mut() {
            *place =
                PlaceInRecovery::of(&generation.trace.events, size.position).expect("the position was just stepped to");
        }
        let crash = shown.sizes.len() - 1;
        shown.witness = with_state(&than.witness, crash, (case, view, state, size.position));
        Ok(Some(shown))
    }

    /// The witness with this state of an earlier crash, if the later ones still show the finding.
    fn with_earlier(
        &mut self,
        steps: &mut PositionSteps,
        view: &View,
        state: &[Choice],
        (crash, position): (usize, u32),
        than: &ShownWitness,
    ) -> Result<Option<ShownWitness>, EngineError> {
        let (_, case) = steps.generation.parts();
        let heap = case.crash(view, state);
        let key = (heap.image.hash(), heap.history.state_id());
        if self.known.get(&key) == Some(&false) {
            return Ok(None);
        }
        let witness = with_state(&than.witness, crash, (case, view, state, position));
        let shown = match self.follow(&witness, Some(&than.places)) {
            Err(EngineError::BadInput(_)) => None, // a later crash is not there any more
            shown => shown?,
        };
        self.known.insert(key, shown.is_some());
        Ok(shown)
    }

    /// Makes all crashes of a witness, one after the other; none: it does not show the finding, or a crash before the last one breaks
    /// something by itself. `places`: where its later crashes are to be; none: where it says, and it is the token.
    fn follow(
        &mut self,
        witness: &Witness,
        places: Option<&[PlaceInRecovery]>,
    ) -> Result<Option<ShownWitness>, EngineError> {
        self.onsets.leave(); // what follows may be of another generation
        let mut shown = ShownWitness { witness: witness.clone(), sizes: Vec::new(), places: Vec::new() };
        let (mut case, mut view) = go_to(self.config, self.trace, witness.position)?;
        let mut state = state_of(&case, &view, witness.from_newest, &witness.lines)?;
        let mut position = witness.position;
        let mut recovery: Option<(Trace, GenerationStart)> = None;
        for (at, crash) in shown.witness.later.iter_mut().enumerate() {
            shown.sizes.push(size_of(&view, &state, position));
            if places.is_some() && !self.is_in_order(case.crash(&view, &state))? {
                return Ok(None);
            }
            let hooked = self.hooked.as_mut().expect("it is there where there are later crashes");
            let tracer = (hooked, &mut self.findings.recovery_sites);
            let before = recovery.as_ref().map_or(self.trace, |(trace, _)| trace);
            let number = at as u32 + 1;
            let mut next = ReplayedGeneration::after(self.config, tracer, before, (&mut case, &view, &state), number)?;
            if let Some(places) = places {
                let Some(place) = places[at].find(&next.trace.events) else { return Ok(None) };
                crash.position = place;
            }
            view = step_to(self.config, &mut next, crash, at + 1)?;
            state = state_of(&next.case, &view, crash.from_newest, &crash.lines)?;
            position = crash.position;
            shown.places.extend(PlaceInRecovery::of(&next.trace.events, position));
            case = next.case;
            recovery = Some((next.trace, next.start));
        }
        shown.sizes.push(size_of(&view, &state, position));
        let generation = match &recovery {
            Some((trace, start)) => GenerationRef { trace, start: Some(start) },
            None => GenerationRef { trace: self.trace, start: None },
        };
        let shows = match places {
            None => self.set_target(generation, &mut case, (&view, &state, position))?,
            Some(_) => {
                let at = StateRef { case: &case, view: &view, choices: &state, position };
                self.may_be_target(generation, &at) && self.shows(generation, &mut case, (&view, &state, position))?
            }
        };
        Ok(shows.then_some(shown))
    }

    /// Whether an earlier crash breaks nothing by itself.
    fn is_in_order(&mut self, heap: CrashedHeap) -> Result<bool, EngineError> {
        let judge = Judge { config: self.config, twins: self.twins };
        Ok(judge.judge(&mut self.recoverer, Probe::Full, heap)?.violations.is_empty())
    }

    /// Takes what the token's state shows for the target; false: it shows nothing.
    fn set_target(
        &mut self,
        generation: GenerationRef,
        case: &mut HeapCase,
        at: (&View, &[Choice], u32),
    ) -> Result<bool, EngineError> {
        let blames = self.blames(generation, case, at)?;
        let newest = blames.into_iter().rev().max_by_key(|blame| blame.onset.as_ref().map(|onset| onset.position));
        let Some(Blame { id, place, onset, .. }) = newest else { return Ok(false) };
        self.target = TargetFinding { id, place, onset };
        Ok(true)
    }

    /// Whether the state may show the finding; asked before anything is recovered. Where nothing is lost, only positions from the onset on may.
    fn may_be_target(&mut self, generation: GenerationRef, at: &StateRef) -> bool {
        let lasts = self.target.onset.as_ref().filter(|_| at.choices == at.view.prefix_state());
        // After another crash the onset may lie elsewhere.
        let may_be_later = |onset: &Onset| at.position >= onset.position || generation.start.is_some();
        lasts.is_some_and(may_be_later)
            || identity::place(&mut self.findings.symbols, generation.trace, at, None, self.rule) == self.target.place
    }

    /// Whether the state shows the finding.
    fn shows(
        &mut self,
        generation: GenerationRef,
        case: &mut HeapCase,
        at: (&View, &[Choice], u32),
    ) -> Result<bool, EngineError> {
        Ok(self.blames(generation, case, at)?.iter().any(|blame| blame.id == self.target.id))
    }

    /// What the state is to blame for, as far as it breaks the token's rule.
    fn blames(
        &mut self,
        generation: GenerationRef,
        case: &mut HeapCase,
        (view, state, position): (&View, &[Choice], u32),
    ) -> Result<Vec<Blame>, EngineError> {
        let mut all = Vec::new();
        let begin = || generation.start.expect("it is asked for where there is one").case.clone();
        let after = generation.start.map(|start| RecoveryStart { left: &[], begin: &begin, settled: &start.settled });
        let followed = FollowedGeneration {
            config: self.config,
            trace: generation.trace,
            twins: self.twins,
            after,
            budget: Budget::NONE,
        };
        for violation in self.violations(case, view, state)?.iter() {
            let onset = self.onsets.onset(followed, position, violation)?;
            if onset.is_some() && state != view.prefix_state() {
                continue;
            }
            let at = StateRef { case, view, choices: state, position };
            let symbols = &mut self.findings.symbols;
            let key = identity::key(symbols, generation.trace, &at, onset.as_ref(), violation);
            let place = identity::place(symbols, generation.trace, &at, onset.as_ref(), self.rule);
            all.push(Blame { id: identity::id(violation.rule, &key), place, onset, violation: violation.clone() });
        }
        Ok(all)
    }

    fn violations(
        &mut self,
        case: &mut HeapCase,
        view: &View,
        state: &[Choice],
    ) -> Result<Rc<[Violation]>, EngineError> {
        let heap = case.crash(view, state);
        let key = (heap.image.hash(), heap.history.state_id());
        if let Some(known) = self.judged.get(&key) {
            return Ok(known.clone());
        }
        let judge = Judge { config: self.config, twins: self.twins };
        let judgement = match self.rule {
            RuleId::NotRelocatable => judge.judge_addresses(&mut self.recoverer, self.probe, heap)?,
            _ => judge.judge(&mut self.recoverer, self.probe, heap)?,
        };
        let of_rule = judgement.violations.into_iter().filter(|violation| violation.rule == self.rule);
        let violations: Rc<[Violation]> = of_rule.collect();
        self.judged.insert(key, violations.clone());
        Ok(violations)
    }

    /// Steps over all crash positions of the witness's heap, or of the recovery in which a later crash is.
    fn positions(&mut self, witness: &Witness, crash: usize) -> Result<PositionSteps<'a>, EngineError> {
        self.onsets.leave();
        if let Some(hooked) = self.hooked.as_mut().filter(|_| crash > 0) {
            let witness = Witness { later: witness.later[..crash].to_vec(), ..witness.clone() };
            let tracer = (hooked, &mut self.findings.recovery_sites);
            let generation = last_generation(self.config, self.trace, &witness, tracer)?;
            let end = generation.trace.events.len() as u32;
            return Ok(PositionSteps { generation: SteppedGeneration::Recovery(Box::new(generation)), next: 0, end });
        }
        let (events, first) = (&self.trace.events, self.trace.first_event());
        let is_case = |number: &usize| matches!(events[*number].kind, EventKind::Case { .. });
        let position = witness.position as usize;
        let begin = (first..position).rev().find(is_case).unwrap_or(first);
        let end = (position..events.len()).find(is_case).unwrap_or(events.len());
        let end = end.min(self.config.loss.last as usize); // behind it what is lost cannot be lost any more
        let folder = match &events[begin].kind {
            EventKind::Case { folder, .. } => folder,
            _ => "",
        };
        let case = Box::new(HeapCase::new(self.config, self.trace, folder));
        Ok(PositionSteps {
            generation: SteppedGeneration::Workload(self.trace, case),
            next: begin as u32,
            end: end as u32,
        })
    }

    /// Prints the finding as the witness's last crash shows it.
    fn print(&mut self, witness: &Witness, output: &mut Output) -> Result<(), EngineError> {
        self.probe = self.config.probe();
        let last = witness.later.last();
        let (position, from_newest, lines) = last
            .map_or((witness.position, witness.from_newest, &witness.lines), |crash| {
                (crash.position, crash.from_newest, &crash.lines)
            });
        let mut steps = self.positions(witness, witness.later.len())?;
        let view = loop {
            match steps.step(self.config)? {
                Some((reached, view)) if reached == position => break view,
                Some(_) => {}
                None => return Err(unstable()),
            }
        };
        let earlier = match &steps.generation {
            SteppedGeneration::Workload(..) => None,
            SteppedGeneration::Recovery(generation) => Some(self.findings.earlier_crashes(&generation.earlier)),
        };
        let (generation, case) = steps.generation.parts();
        let state = state_of(case, &view, from_newest, lines)?;
        self.judged.clear(); // the full probe may say more
        let blames = self.blames(generation, case, (&view, &state, position))?;
        let blame = blames.into_iter().find(|blame| blame.id == self.target.id);
        let Blame { onset, violation, .. } = blame.ok_or_else(unstable)?;
        let evidence = Evidence::of(self.config, case, (&view, &state), std::slice::from_ref(&violation));
        let at = StateRef { case, view: &view, choices: &state, position };
        let state = FoundState { at, strategy: "shrink", evidence, onset };
        let origin = match earlier {
            None => Origin::Explored(None),
            Some(earlier) => Origin::LaterToken(witness.encode(), earlier),
        };
        if let Some(finding) =
            self.findings.add(self.config, generation.trace, origin, &state, &violation, String::new())
        {
            output.say("finding", finding);
        }
        Ok(())
    }
}

fn unstable() -> EngineError {
    EngineError::Infrastructure("a state broke a rule once and does not again; is the target random?".into())
}

/// The witness with another state of that crash.
fn with_state(
    witness: &Witness,
    crash: usize,
    (case, view, state, position): (&HeapCase, &View, &[Choice], u32),
) -> Witness {
    let (from_newest, lines): (bool, Vec<LineChoice>) = shortest_form(&case.model, view, state);
    let mut changed = witness.clone();
    match crash.checked_sub(1) {
        Some(later) => changed.later[later] = LaterCrash { position, from_newest, lines },
        None => {
            let current = case.current;
            changed.operation = current.map_or(0, |current| current.operation.index + 1);
            changed.event_in_operation = current.map_or(0, |current| position - current.began_at);
            (changed.position, changed.from_newest, changed.lines) = (position, from_newest, lines);
        }
    }
    changed
}

fn size_of(view: &View, state: &[Choice], position: u32) -> Size {
    let differing = |other: &[Choice]| state.iter().zip(other).filter(|(one, other)| one != other).count();
    Size { lines: differing(&view.prefix_state()), floor_lines: differing(&view.floor_state()), position }
}

/// All states of a crash position in which so many lines are not as everything persisted leaves them: an odometer over the lines
/// that are lost, in ascending order, and over their choices, from the floor up.
struct States<'a> {
    view: &'a View,
    /// Places in the view of the lines that are lost; none: the one state in which no line is.
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
    use crashgen::model::{Model, Px86};
    use crashgen::strategy::{Asked, Exhaustive, Strategy};
    use crashgen::trace::{Event, FileId, SiteId, StoreKind, ThreadId};

    /// Lines with plain stores, torn ones, floating units; one that is decided by now.
    fn view() -> View {
        let mut model = Model::new(&Px86, Vec::new());
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
        let _ = Exhaustive.states(&Asked::all(&view), &mut |state| {
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
