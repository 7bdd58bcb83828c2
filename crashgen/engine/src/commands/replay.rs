// SPDX-License-Identifier: Apache-2.0
//! `replay`: one crash state, from its token.

use crate::base::config::{Config, StrategyName};
use crate::base::error::{EngineError, bad_input};
use crate::base::output::{Output, Verdict};
use crate::explore::certificate::Tally;
use crate::findings::evidence::Evidence;
use crate::findings::finding::{EarlierCrash, Findings, FoundState, Origin, seen_counts};
use crate::findings::onset::{FollowedGeneration, Onset, OnsetFinder, RecoveryStart};
use crate::heap::recovery_trace::RecoverySites;
use crate::heap::state::StateRef;
use crate::heap::stepping::go_to;
use crate::heap::token_form::state_of;
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::replayed::{PassedCrash, ReplayedGeneration};
use crate::recovery::twins;
use crashgen::model::View;
use crashgen::replay::Probe;
use crashgen::token::{LaterCrash, Witness};
use crashgen::trace::Trace;
use oracle::{Judgement, Violation};

/// Makes the state, runs the full probe on it and prints what the oracle says.
///
/// # Errors
/// When the token does not belong to this trace, or the replay server fails.
pub fn replay(config: &Config, trace: &Trace, witness: &Witness, output: &mut Output) -> Result<Verdict, EngineError> {
    check_belongs(config, trace, witness)?;
    let mut tally = Tally::default();
    let mut findings = Findings::new(config);
    if let Some(crash) = witness.later.last() {
        return replay_later(config, trace, witness, crash, findings, output);
    }
    let (mut case, view) = go_to(config, trace, witness.position)?;
    let state = state_of(&case, &view, witness.from_newest, &witness.lines)?;
    let made = twins::make(config, trace)?;
    tally.add_twins(&made);
    let twins = made.twins;
    let mut recoverer = Recoverer::start(&config.server("images")?, true)?;
    let judge = Judge { config, twins: twins.as_ref() };
    let judgement = judge.judge(&mut recoverer, Probe::Full, case.crash(&view, &state))?;
    let evidence = Evidence::of_judged(config, &mut case, (&view, &state), &judgement);
    let (position, strategy) = (witness.position, "replay");
    let at = StateRef { case: &case, view: &view, choices: &state, position };
    let mut state = FoundState { at, strategy, evidence, onset: None };
    let all = since(FollowedGeneration { config, trace, twins: twins.as_ref(), after: None }, position, &judgement)?;
    Ok(say(config, trace, (&mut state, all), (witness, Vec::new()), tally, &judgement, &mut findings, output))
}

/// A state of a later generation: what recovery did is told again, and power fails in it where the token says.
fn replay_later(
    config: &Config,
    trace: &Trace,
    witness: &Witness,
    crash: &LaterCrash,
    mut findings: Findings,
    output: &mut Output,
) -> Result<Verdict, EngineError> {
    let mut hooked = Recoverer::start(&config.exploring_server(StrategyName::Complete)?, false)?;
    let mut last = last_generation(config, trace, witness, (&mut hooked, &mut findings.recovery_sites))?;
    let view = step_to(config, &mut last, crash, witness.later.len())?;
    let state = state_of(&last.case, &view, crash.from_newest, &crash.lines)?;
    let ReplayedGeneration { mut case, trace: before, earlier, start } = last;
    let mut recoverer = Recoverer::start(&config.server("images")?, true)?;
    let judge = Judge { config, twins: None };
    let judgement = judge.judge(&mut recoverer, Probe::Full, case.crash(&view, &state))?;
    let evidence = Evidence::of_judged(config, &mut case, (&view, &state), &judgement);
    let (position, strategy) = (crash.position, "replay");
    let at = StateRef { case: &case, view: &view, choices: &state, position };
    let mut state = FoundState { at, strategy, evidence, onset: None };
    let tally = Tally::default();
    let earlier = findings.earlier_crashes(&earlier);
    let after = RecoveryStart { left: &[], begin: &|| start.case.clone(), settled: &start.settled };
    let all =
        since(FollowedGeneration { config, trace: &before, twins: None, after: Some(after) }, position, &judgement)?;
    Ok(say(config, &before, (&mut state, all), (witness, earlier), tally, &judgement, &mut findings, output))
}

/// Of all that is wrong there, since when everything persisted shows it, too; what the state is to blame for comes first.
fn since<'a>(
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

/// Prints what the oracle says of the token's state, before which power failed there. violations: since when everything persisted shows
/// them, too.
#[allow(clippy::too_many_arguments)]
fn say(
    config: &Config,
    trace: &Trace,
    (state, violations): (&mut FoundState, Vec<(&Violation, Option<Onset>)>),
    (witness, earlier): (&Witness, Vec<EarlierCrash>),
    mut tally: Tally,
    judgement: &Judgement,
    findings: &mut Findings,
    output: &mut Output,
) -> Verdict {
    for (violation, onset) in violations {
        state.onset = onset;
        let token = Witness { rule: violation.rule.to_string(), ..witness.clone() }.encode();
        let origin = if earlier.is_empty() { Origin::Token(token) } else { Origin::LaterToken(token, earlier.clone()) };
        if let Some(finding) = findings.add(config, trace, origin, state, violation, String::new()) {
            output.say("finding", finding);
        }
    }
    tally.add(judgement);
    let verdict = match judgement.verdict() {
        oracle::Verdict::Pass if tally.has_unknown() => Verdict::Unknown,
        oracle::Verdict::Pass => Verdict::Pass,
        oracle::Verdict::Fail => Verdict::Fail,
        oracle::Verdict::Unknown => Verdict::Unknown,
    };
    output.done(verdict, &seen_counts(findings.all()), &trace.hash);
    verdict
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
