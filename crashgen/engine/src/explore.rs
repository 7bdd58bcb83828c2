// SPDX-License-Identifier: Apache-2.0
//! Exploration: from crash position to crash position, from state to state, each judged at every position that can leave it.
//!
//! Between two markers what is expected of the heap does not change, so a state needs judging once in that stretch: at the
//! position where it is born, or at the stretch's first position. An image that was probed before is answered from memory; it is
//! judged again all the same when the history has moved on.
//!
//! Where `complete` is not possible, because what the target loads is not known, the trace is explored with `mixed` from its start,
//! with the adapter that people use. What was found until then stays: each finding had a run of its own.

use crate::cases::Case;
use crate::certificate::{Certificate, Numbers, Run, Stopped, Tally, peak_memory_bytes};
use crate::complete::Complete;
use crate::config::{Config, ProbeName, StrategyName};
use crate::content::ImageContent;
use crate::error::EngineError;
use crate::finding::{Findings, Origin, StateRef};
use crate::generations::{Before, Generations};
use crate::output::{Output, Verdict};
use crate::probes::Probes;
use crate::{trace_rules, twins};
use crashgen::image::ImageHash;
use crashgen::model::{Choice, ModelKind, View};
use crashgen::replay::Probe;
use crashgen::strategy::{Exhaustive, Floor, Pairwise, Prefix, Sample, Scope, Strategy};
use crashgen::symbols::Symbols;
use crashgen::trace::{EventKind, Trace};
use oracle::contract::Durable;
use oracle::{Judgement, RuleId, TwinSet, Violation, judge};
use planted::Fault;
use rustc_hash::FxHashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Time between two certificates of what is explored so far, so that an exploration that is killed can go on.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(5);

/// `--strategy exhaustive` enumerates a position of at most this many states (an hour of recoveries); beyond it says so.
const EXHAUSTIVE_LIMIT: u128 = 1 << 24;

/// What goes on while states are run.
pub struct Explorer<'a> {
    pub(crate) config: &'a Config,
    pub(crate) trace: &'a Trace,
    pub(crate) strategy: StrategyName,
    pub(crate) output: &'a mut Output,
    pub(crate) probes: &'a mut Probes,
    /// How much of the probe script is run.
    pub(crate) probe: Probe,
    pub(crate) twins: Option<&'a TwinSet>,
    pub(crate) tally: &'a mut Tally,
    pub(crate) findings: &'a mut Findings,
    /// The crash that the trace begins with: it is what a recovery did. None: it is the workload's.
    pub(crate) before: Option<&'a Before<'a>>,
    /// (image, expected heap) that were judged in this case.
    pub(crate) judged: FxHashSet<(ImageHash, u64)>,
    pub(crate) started: Instant,
    pub(crate) deadline: Option<Instant>,
    /// Every state reachable at the last position was judged against what is expected now.
    pub(crate) is_covered: bool,
    /// Why the exploration ends early with an error.
    pub(crate) error: Option<EngineError>,
    /// Why `complete` is not possible.
    pub(crate) unfit: Option<String>,
    /// A budget was used up.
    pub(crate) stopped: Option<Stopped>,
    /// When the last certificate was printed.
    pub(crate) certified: Instant,
}

/// Explores a whole trace and prints findings, certificate and verdict.
///
/// # Errors
/// When the trace contradicts itself or the replay server fails.
pub fn explore(config: &Config, trace: &Trace, output: &mut Output) -> Result<Verdict, EngineError> {
    let is_full = config.probe == ProbeName::Full;
    let started = Instant::now();
    let is_durable_on_return = config.contract.durable == Durable::OnReturn;
    let rules = trace_rules::judge(trace, &mut Symbols::new(config.programs()), is_durable_on_return);
    output.trace_rules(&rules);
    let mut tally = Tally::of_trace(rules.never_flushed());
    let twins = if is_full { twins::make(config, trace, &mut tally)? } else { None };
    for text in &trace.unsupported {
        tally.add_unknown(&format!("the tracer could not follow: {text}"));
    }
    if config.model == ModelKind::Px86Returned {
        let text =
            "assumed, though it is not so: what is stored is persisted when an operation returns (px86-returned)";
        tally.bounds_hit.insert(text.to_owned());
        tally.add_unknown(
            "the states in which a line is lost after its operation returned were not looked at (px86-returned)",
        );
    }
    let is_blind = config.strategy == StrategyName::Complete && !config.has_hooks();
    let mut probes = Probes::start(&config.exploring_server(config.strategy)?, is_full)?;
    let mut findings = Findings::new(config);
    let fresh = tally.clone();
    let mut explorer = Explorer {
        config,
        trace,
        strategy: config.strategy,
        output,
        probe: probes.whole(),
        probes: &mut probes,
        twins: twins.as_ref(),
        tally: &mut tally,
        findings: &mut findings,
        before: None,
        judged: FxHashSet::default(),
        started,
        deadline: config.limits.time_s.and_then(|seconds| deadline(started, seconds)),
        is_covered: false,
        error: None,
        unfit: is_blind.then(|| "the adapter was built without hooks".to_owned()),
        stopped: None,
        certified: started,
    };
    if explorer.unfit.is_none() {
        explorer.run()?;
    }
    if let Some(why) = explorer.unfit.take() {
        explorer.strategy = StrategyName::Mixed;
        *explorer.probes = Probes::start(&config.exploring_server(StrategyName::Mixed)?, is_full)?;
        *explorer.tally = fresh;
        explorer.tally.fallback = Some(format!("strategy complete is not possible: {why}"));
        let so_far = explorer.certificate(Some(Stopped { position: 1, why: "interrupted".to_owned() }))?;
        explorer.output.certificate(&so_far); // what goes on from here must not go on with `complete`
        explorer.run()?;
    }
    explorer.finish()
}

/// None when it is too far away to ever come.
fn deadline(started: Instant, seconds: f64) -> Option<Instant> {
    started.checked_add(Duration::try_from_secs_f64(seconds.max(0.0)).ok()?)
}

impl Explorer<'_> {
    fn run(&mut self) -> Result<(), EngineError> {
        let trace = self.trace;
        let mut case = Case::new(self.config, trace, "");
        let mut complete = Complete::new(self.config);
        let mut generations = Generations::new(self.config);
        self.judged.clear();
        for (number, event) in trace.events.iter().enumerate().skip(trace.first_event()) {
            if let EventKind::Case { folder, .. } = &event.kind {
                self.end_case(&case);
                case = Case::new(self.config, trace, folder);
                complete.start_case();
                generations = Generations::new(self.config);
                self.judged.clear();
                self.probes.start_case()?;
            }
            let (view, is_expectation_new) = case.step(number as u32, event)?;
            self.tally.stores += u64::from(matches!(event.kind, EventKind::Store { .. }));
            let is_from_start = self.tally.fallback.is_some();
            let first = self.config.first_position.filter(|_| !is_from_start).unwrap_or(0);
            let position = number as u32 + 1;
            if position < first {
                continue;
            }
            let is_expectation_new = is_expectation_new || position == first;
            if self.position(&mut case, &mut complete, position, &view, is_expectation_new).is_break()
                || self.later(&mut generations, &mut case, &complete, position, &view, is_expectation_new).is_break()
            {
                break;
            }
            if self.certified.elapsed() >= CERTIFICATE_INTERVAL && number + 1 < trace.events.len() {
                let so_far = Stopped { position: position + 1, why: "interrupted".to_owned() };
                let certificate = self.certificate(Some(so_far))?;
                self.output.certificate(&certificate);
                self.certified = Instant::now();
            }
        }
        self.end_case(&case);
        self.error.take().map_or(Ok(()), Err)
    }

    fn end_case(&mut self, case: &Case) {
        if case.model.has_unknown_file() {
            self.tally.add_unknown(
                "there were stores into a file that was there before the trace began: its content is not known",
            );
        }
        self.tally.bounds_hit.extend(case.model.bounds_hit().iter().map(|bound| (*bound).to_owned()));
    }

    fn position(
        &mut self,
        case: &mut Case,
        complete: &mut Complete,
        position: u32,
        view: &View,
        is_expectation_new: bool,
    ) -> ControlFlow<()> {
        let is_skipped = planted::is(Fault::SkipLastPosition) && position as usize == self.trace.events.len();
        let is_fence = matches!(self.trace.events[position as usize - 1].kind, EventKind::Fence { .. });
        if is_skipped || (planted::is(Fault::JudgeAtFences) && !is_fence) {
            return ControlFlow::Continue(());
        }
        let before = (self.tally.positions, self.tally.states_log10);
        self.tally.positions += 1;
        self.tally.add_states(if case.position_in_case == 1 { Some(0.0) } else { view.born_log10() });
        self.output.progress(position, self.trace.events.len(), self.probes.recoveries, self.findings.count());
        let is_expectation_new = is_expectation_new && !planted::is(Fault::JudgeBornOnly);
        let flow = match self.strategy {
            StrategyName::Complete => self.complete_position(complete, case, position, view, is_expectation_new),
            _ => self.chosen_states(case, position, view, is_expectation_new),
        };
        if self.stopped.is_some() {
            (self.tally.positions, self.tally.states_log10) = before;
        }
        flow
    }

    fn chosen_states(
        &mut self,
        case: &mut Case,
        position: u32,
        view: &View,
        is_expectation_new: bool,
    ) -> ControlFlow<()> {
        let scope = if is_expectation_new || view.are_all_new || !self.is_covered { Scope::All } else { Scope::Born };
        let is_unchanged = scope == Scope::Born && !view.has_new_store;
        let strategies = self.strategies(view);
        for strategy in &strategies {
            *self.tally.by_strategy.entry(strategy.name()).or_default() += 1;
            if !is_unchanged || !strategy.is_cumulative() {
                self.states(&**strategy, case, position, view, scope)?;
            }
        }
        if let Some(pairwise) = self.pairwise() {
            self.tally.add_coverage(pairwise.strength, pairwise.coverage(view, scope));
        }
        self.is_covered = strategies.iter().any(|strategy| strategy.is_cumulative());
        ControlFlow::Continue(())
    }

    /// Where `complete` could not see every state: what is guaranteed, everything, and some at random, as `mixed` does there. What it
    /// saw lies close to everything persisted.
    pub(crate) fn some_states(&mut self, case: &mut Case, position: u32, view: &View) -> ControlFlow<()> {
        let sample = Sample { count: self.config.limits.samples, seed: self.config.seed };
        let strategies: [&dyn Strategy; 3] = [&Prefix, &Floor, &sample];
        strategies.into_iter().try_for_each(|strategy| self.states(strategy, case, position, view, Scope::All))
    }

    fn pairwise(&self) -> Option<Pairwise> {
        let of = |strength| Some(Pairwise { strength, seed: self.config.seed });
        match self.strategy {
            StrategyName::Pairwise => of(2),
            StrategyName::Pairwise3 => of(3),
            _ => None,
        }
    }

    /// Which strategies run at a position.
    fn strategies(&mut self, view: &View) -> Vec<Box<dyn Strategy>> {
        let limits = &self.config.limits;
        let is_at_most = |limit: u128| view.state_count().is_some_and(|count| count <= limit);
        let sample = || Box::new(Sample { count: limits.samples, seed: self.config.seed });
        match self.strategy {
            StrategyName::Prefix => vec![Box::new(Prefix)],
            StrategyName::Floor => vec![Box::new(Floor)],
            StrategyName::Sample => vec![sample()],
            StrategyName::Pairwise | StrategyName::Pairwise3 => {
                self.pairwise().map(|pairwise| Box::new(pairwise) as Box<dyn Strategy>).into_iter().collect()
            }
            StrategyName::Complete => unreachable!("is no choice of states: it has its own way through a position"),
            StrategyName::Exhaustive if is_at_most(EXHAUSTIVE_LIMIT) => vec![Box::new(Exhaustive)],
            StrategyName::Exhaustive => {
                self.tally
                    .bounds_hit
                    .insert(format!("a position has more than {EXHAUSTIVE_LIMIT} states: only prefix and floor there"));
                vec![Box::new(Prefix), Box::new(Floor)]
            }
            StrategyName::Mixed if is_at_most(u128::from(limits.exhaustive_states)) => {
                vec![Box::new(Prefix), Box::new(Floor), Box::new(Exhaustive)]
            }
            StrategyName::Mixed => vec![Box::new(Prefix), Box::new(Floor), sample()],
        }
    }

    fn states(
        &mut self,
        strategy: &dyn Strategy,
        case: &mut Case,
        position: u32,
        view: &View,
        scope: Scope,
    ) -> ControlFlow<()> {
        let seed_position = case.position_in_case;
        strategy.states(seed_position, view, scope, &mut |state| {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let limit = self.config.limits.time_s.unwrap_or_default();
                self.stopped = Some(Stopped { position, why: format!("{limit} s limit") });
                return ControlFlow::Break(());
            }
            if let Some(limit) = self.config.limits.recoveries.filter(|limit| self.probes.recoveries >= *limit) {
                self.stopped = Some(Stopped { position, why: format!("limit of {limit} recoveries") });
                return ControlFlow::Break(());
            }
            match self.state(strategy.name(), case, position, view, state) {
                Ok(flow) => flow,
                Err(error) => {
                    self.error = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    }

    fn state(
        &mut self,
        strategy: &'static str,
        case: &mut Case,
        position: u32,
        view: &View,
        state: &[Choice],
    ) -> Result<ControlFlow<()>, EngineError> {
        case.image.go_to(&case.model, view, state);
        let expected = if planted::is(Fault::JudgeImageOnce) { 0 } else { case.history.state_id() };
        if !self.judged.insert((case.image.hash(), expected)) {
            return Ok(ControlFlow::Continue(()));
        }
        let judgement = self.judge(case)?;
        self.tally.add(&judgement);
        for violation in &judgement.violations {
            let seen = StateRef { case, view, state, position, strategy };
            if let Some(key) = self.findings.recognise(self.trace, &seen, violation.rule) {
                self.add_finding(case, position, view, state, violation, strategy, key)?;
            }
            if self.config.stop_at_rule.is_some_and(|name| name.0 == violation.rule) {
                self.tally.bounds_hit.insert(format!("stopped at the expected rule {}", violation.rule));
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Of a state that was judged; `key` is [`Findings::recognise`]'s.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn add_finding(
        &mut self,
        case: &mut Case,
        position: u32,
        view: &View,
        state: &[Choice],
        violation: &Violation,
        strategy: &'static str,
        key: String,
    ) -> Result<(), EngineError> {
        let (state, violation) = self.reduce(case, view, state, violation)?;
        let reduced = StateRef { case, view, state: &state, position, strategy };
        if let Some(finding) =
            self.findings.add(self.config, self.trace, Origin::Explored(self.before), &reduced, &violation, key)
        {
            self.output.finding(finding);
        }
        Ok(())
    }

    /// The state with as many lines as possible as everything persisted leaves them, while the rule stays broken: halves of
    /// the lines first, then quarters, down to single ones. What is left are the lines that matter, so that one bug is one
    /// finding however many other lines were lost with it.
    fn reduce(
        &mut self,
        case: &mut Case,
        view: &View,
        state: &[Choice],
        violation: &Violation,
    ) -> Result<(Vec<Choice>, Violation), EngineError> {
        let mut reduced = state.to_vec();
        let mut reason = violation.clone();
        let newest = view.prefix_state();
        let mut piece = state.len().div_ceil(2);
        while piece > 0 {
            for start in (0..state.len()).step_by(piece) {
                let lines = start..state.len().min(start + piece);
                if reduced[lines.clone()] == newest[lines.clone()] {
                    continue;
                }
                let mut tried = reduced.clone();
                tried[lines.clone()].copy_from_slice(&newest[lines]);
                case.image.go_to(&case.model, view, &tried);
                let judgement = self.judge(case)?;
                let is_same = |other: &Violation| other.rule == violation.rule || planted::is(Fault::ReduceToAnyRule);
                if let Some(same) = judgement.violations.into_iter().find(is_same) {
                    (reduced, reason) = (tried, same);
                }
            }
            piece /= 2;
        }
        Ok((reduced, reason))
    }

    /// Of the state that the image shows.
    pub(crate) fn judge(&mut self, case: &mut Case) -> Result<Judgement, EngineError> {
        judge_image(self.config, self.twins, (self.probes, self.probe), case)
    }

    /// `stopped`: where, if it did not come to its end.
    fn certificate(&mut self, stopped: Option<Stopped>) -> Result<Certificate, EngineError> {
        let numbers = Numbers {
            recoveries: self.probes.recoveries,
            memoised: self.probes.memoised,
            distinct_images: self.probes.distinct_images(),
            full_probes: self.probes.full_probes,
            stages: self.probes.recovery_stages()?,
            peak_memory_bytes: peak_memory_bytes(),
            engines: self.probes.engines()?,
            time_s: self.started.elapsed().as_secs_f64(),
        };
        let covers = format!(
            "workload {}, one interleaving, memory order as traced by {}, built with {}",
            self.config.identity.workload, self.trace.tracer, self.config.identity.flush
        );
        let run = Run { strategy: self.strategy.name(), stopped, last_position: self.trace.events.len() };
        Ok(self.tally.certificate(run, numbers, covers))
    }

    fn finish(mut self) -> Result<Verdict, EngineError> {
        let is_unknown = self.tally.has_unknown() && !planted::is(Fault::UnknownPasses);
        let is_nothing = !self.tally.has_judged_a_heap() || self.tally.stores == 0;
        let verdict = match (self.findings.count(), is_unknown || is_nothing) {
            (0, false) => Verdict::Pass,
            (0, true) => Verdict::Unknown,
            _ => Verdict::Fail,
        };
        let stopped = self.stopped.take();
        let certificate = self.certificate(stopped)?;
        self.output.certificate(&certificate);
        self.output.done(verdict, self.findings.all(), &self.trace.hash);
        Ok(verdict)
    }
}

/// Of the state that the image shows, recovered by this server. That recovery repaired bad content only the full probe of this very
/// image can say.
pub(crate) fn judge_image(
    config: &Config,
    twins: Option<&TwinSet>,
    (probes, probe): (&mut Probes, Probe),
    case: &mut Case,
) -> Result<Judgement, EngineError> {
    let mut probed = probes.probe(&mut case.image, probe)?;
    loop {
        let content = ImageContent::new(&case.image);
        let judgement = judge(&config.contract, &config.shape(), &case.history, &probed.report, &content, twins);
        if probed.is_own || !judgement.violations.iter().any(|violation| violation.rule == RuleId::ContentChanged) {
            return Ok(judgement);
        }
        probed = probes.probe_fully(&mut case.image)?;
    }
}
