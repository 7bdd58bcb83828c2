// SPDX-License-Identifier: Apache-2.0
//! `replay`: one crash state, from its token.

use crate::base::budget::Budget;
use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::base::output::{Output, Verdict};
use crate::findings::evidence::Evidence;
use crate::findings::finding::{EarlierCrash, Findings, FoundState, Origin, seen_counts};
use crate::findings::onset::{FollowedGeneration, Onset, OnsetFinder, RecoveryStart};
use crate::heap::case::HeapCase;
use crate::heap::recovery_trace::RecoverySites;
use crate::heap::state::StateRef;
use crate::heap::stepping::go_to;
use crate::heap::token_form::state_of;
use crate::recovery::judging::{Judge, doubts};
use crate::recovery::recoverer::Recoverer;
use crate::recovery::replayed::{PassedCrash, ReplayedGeneration};
use crate::recovery::twins::{self, MadeTwins};
use crashgen::model::{Choice, View};
use crashgen::replay::Probe;
use crashgen::strategy::{Asked, Replay, Strategy};
use crashgen::token::{LaterCrash, Witness};
use crashgen::trace::Trace;
use oracle::{Judgement, Violation};
use std::ops::ControlFlow;

/// Makes the state, runs the full probe on it and prints what the oracle says.
///
/// # Errors
/// When the token does not belong to this trace, or the replay server fails.
pub fn replay(config: &Config, trace: &Trace, witness: &Witness, output: &mut Output) -> Result<Verdict, EngineError> {
    check_belongs(config, trace, witness)?;
    let replayer = Replayer { config, witness, findings: Findings::new(config), output };
    match witness.later.last() {
        None => replayer.workload(trace),
        Some(crash) => replayer.recovery(trace, crash),
    }
}

/// Runs the state of one token.
struct Replayer<'a> {
    config: &'a Config,
    witness: &'a Witness,
    findings: Findings,
    output: &'a mut Output,
}

/// Where power fails last.
struct LastCrash<'a> {
    generation: FollowedGeneration<'a>,
    case: HeapCase,
    view: View,
    position: u32,
    /// The crashes before it.
    earlier: Vec<EarlierCrash>,
}

impl Replayer<'_> {
    /// A state of the workload.
    fn workload(mut self, trace: &Trace) -> Result<Verdict, EngineError> {
        let (config, witness) = (self.config, self.witness);
        let (case, view) = go_to(config, trace, witness.position)?;
        let replay = Replay { choices: state_of(&case, &view, witness.from_newest, &witness.lines)? };
        let made = twins::make(config, trace, None)?;
        let generation =
            FollowedGeneration { config, trace, twins: made.twins.as_ref(), after: None, budget: Budget::NONE };
        let crash = LastCrash { generation, case, view, position: witness.position, earlier: Vec::new() };
        let verdict = self.run(&replay, crash)?;
        Ok(self.end(verdict, &made, trace))
    }

    /// A state of a later generation: recovery is traced again, and power fails in it where the token says.
    fn recovery(mut self, trace: &Trace, crash: &LaterCrash) -> Result<Verdict, EngineError> {
        let (config, witness) = (self.config, self.witness);
        let mut hooked = Recoverer::start(&config.recording_server()?, Probe::First)?;
        let sites = &mut self.findings.recovery_sites;
        let mut last = last_generation(config, trace, witness, (&mut hooked, sites))?;
        let view = step_to(config, &mut last, crash, witness.later.len())?;
        let replay = Replay { choices: state_of(&last.case, &view, crash.from_newest, &crash.lines)? };
        let ReplayedGeneration { case, trace: recovery, earlier, start } = last;
        let after = RecoveryStart { left: &[], begin: &|| start.case.clone(), settled: &start.settled };
        let made = twins::make(config, trace, None)?;
        let (twins, after) = (made.twins.as_ref(), Some(after));
        let generation = FollowedGeneration { config, trace: &recovery, twins, after, budget: Budget::NONE };
        let earlier = self.findings.earlier_crashes(&earlier);
        let verdict = self.run(&replay, LastCrash { generation, case, view, position: crash.position, earlier })?;
        Ok(self.end(verdict, &made, trace))
    }

    /// Runs the states that the strategy chooses: the token's.
    fn run(&mut self, strategy: &dyn Strategy, crash: LastCrash) -> Result<Verdict, EngineError> {
        let mut recoverer = Recoverer::start(&self.config.server("images")?, self.config.probe())?;
        let LastCrash { view, mut case, .. } = crash;
        let crash = (crash.generation, crash.position, crash.earlier.as_slice());
        let mut verdict = Ok(Verdict::Unknown);
        let _ = strategy.states(&Asked::all(&view), &mut |choices| {
            verdict = self.state(&mut recoverer, (&mut case, &view, choices), strategy.name(), crash);
            if verdict.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        verdict
    }

    /// Prints what the oracle says of one state.
    fn state(
        &mut self,
        recoverer: &mut Recoverer,
        (case, view, choices): (&mut HeapCase, &View, &[Choice]),
        strategy: &'static str,
        (generation, position, earlier): (FollowedGeneration, u32, &[EarlierCrash]),
    ) -> Result<Verdict, EngineError> {
        let FollowedGeneration { config, trace, twins, .. } = generation;
        let judgement =
            Judge { config, twins }.judge_addresses(recoverer, config.probe(), case.crash(view, choices))?;
        self.output.unknown(&doubts(&judgement));
        let evidence = Evidence::of_judged(config, case, (view, choices), &judgement);
        for (violation, onset) in onsets(generation, position, &judgement)? {
            let at = StateRef { case, view, choices, position };
            let found = FoundState { at, strategy, evidence: evidence.clone(), onset };
            let token = Witness { rule: violation.rule.to_string(), ..self.witness.clone() }.encode();
            let origin =
                if earlier.is_empty() { Origin::Token(token) } else { Origin::LaterToken(token, earlier.to_vec()) };
            if let Some(finding) = self.findings.add(config, trace, origin, &found, violation, String::new()) {
                self.output.say("finding", finding);
            }
        }
        Ok(match judgement.verdict() {
            oracle::Verdict::Pass => Verdict::Pass,
            oracle::Verdict::Fail => Verdict::Fail,
            oracle::Verdict::Unknown => Verdict::Unknown,
        })
    }

    /// A state is in order as far as its twins could tell.
    fn end(self, verdict: Verdict, made: &MadeTwins, trace: &Trace) -> Verdict {
        let unknown = made.doubts();
        self.output.unknown(&unknown);
        let is_unknown = verdict == Verdict::Pass && !unknown.is_empty();
        let verdict = if is_unknown { Verdict::Unknown } else { verdict };
        self.output.done(verdict, &seen_counts(self.findings.all()), &trace.hash);
        verdict
    }
}

/// Of all that is wrong there, since when everything persisted shows it, too; what the state is to blame for comes first.
fn onsets<'a>(
    of: FollowedGeneration,
    position: u32,
    judgement: &'a Judgement,
) -> Result<Vec<(&'a Violation, Option<Onset>)>, EngineError> {
    let mut onsets = OnsetFinder::default();
    let since = |violation| Ok((violation, onsets.onset(of, position, violation)?));
    let mut all = judgement.violations.iter().map(since).collect::<Result<Vec<_>, EngineError>>()?;
    all.sort_by_key(|(_, onset)| onset.is_some());
    Ok(all)
}

/// The generation in which the token's last crash is, as it begins. `hooked` has the adapter with hooks.
///
/// # Errors
/// When a crash before it is not there, or what recovery does cannot be followed.
pub fn last_generation(
    config: &Config,
    trace: &Trace,
    witness: &Witness,
    (hooked, sites): (&mut Recoverer, &mut RecoverySites),
) -> Result<ReplayedGeneration, EngineError> {
    let (mut case, mut view) = go_to(config, trace, witness.position)?;
    let mut state = state_of(&case, &view, witness.from_newest, &witness.lines)?;
    let mut before = trace.clone();
    let (mut position, mut earlier) = (witness.position, Vec::new());
    for (number, crash) in (1..).zip(&witness.later) {
        let here = (&mut case, &view, state.as_slice());
        let mut next = ReplayedGeneration::after(config, (hooked, sites), &before, here, number)?;
        let trace = std::mem::take(&mut before);
        earlier.push(PassedCrash { trace, case, view, left: state, position });
        if number as usize == witness.later.len() {
            next.earlier = earlier;
            return Ok(next);
        }
        view = step_to(config, &mut next, crash, number as usize)?;
        state = state_of(&next.case, &view, crash.from_newest, &crash.lines)?;
        (case, before, position) = (next.case, next.trace, crash.position);
    }
    Err(bad_input("the token has no second crash"))
}

/// Steps from the generation's begin to a crash in it, which is the token's crash `number` after the first.
///
/// # Errors
/// When the recovery has no such crash position.
pub fn step_to(
    config: &Config,
    next: &mut ReplayedGeneration,
    crash: &LaterCrash,
    number: usize,
) -> Result<View, EngineError> {
    let (position, events) = (crash.position, next.trace.events.len());
    let mut view = None;
    for event in 0..position.min(events as u32) {
        view = Some(next.step(config, event)?);
    }
    view.filter(|_| position as usize <= events).ok_or_else(|| {
        bad_input(format!(
            "the token's crash {number} is at event {position} of a recovery that has {events}; was the allocator changed?"
        ))
    })
}

/// # Errors
/// When the token was made from another trace, or of another allocator, mutant or model.
pub fn check_belongs(config: &Config, trace: &Trace, witness: &Witness) -> Result<(), EngineError> {
    if witness.trace_hash != trace.hash {
        return Err(bad_input(format!(
            "the token was made from trace {}, this one is {}; trace the same build and workload",
            witness.trace_hash, trace.hash
        )));
    }
    let identity = &config.identity;
    for (what, token, here) in [
        ("allocator", &witness.allocator, &identity.allocator),
        ("mutant", &witness.mutant, &identity.mutant.clone().unwrap_or_default()),
        ("model", &witness.model, &config.model.name().to_owned()),
    ] {
        if token != here {
            return Err(bad_input(format!("the token's {what} is {token:?}, the configuration's is {here:?}")));
        }
    }
    Ok(())
}
