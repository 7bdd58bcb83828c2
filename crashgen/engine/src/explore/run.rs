// SPDX-License-Identifier: Apache-2.0
//! `explore`: a whole trace, from its first crash position to the verdict.
//!
//! Where `complete` is not possible, because what the target loads is not known, the trace is explored with `mixed` from its start,
//! with the adapter that people use. What was found until then stays: each finding had a run of its own.

use crate::base::budget::deadline;
use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::base::output::{Output, Verdict};
use crate::explore::certificate::{Stopped, Tally};
use crate::explore::outcomes;
use crate::explore::parts::{Task, parts_of};
use crate::explore::unchanged;
use crate::explore::workers::Whole;
use crate::findings::finding::seen_counts;
use crate::recovery::twins::{self, MadeTwins};
use crashgen::strategy::WITHOUT_LOADS;
use crashgen::trace::Trace;
use planted::Fault;
use std::time::Instant;

/// Explores a whole trace, as the edits make it, and prints findings, certificate and verdict.
///
/// # Errors
/// When the trace contradicts itself or the replay server fails.
pub fn explore(config: &Config, as_it_is: Trace, output: &mut Output) -> Result<Verdict, EngineError> {
    let unchanged = unchanged::positions(config, &as_it_is);
    let trace = &as_it_is.edited(&config.edits);
    let is_full = config.is_full();
    let started = Instant::now();
    let mut tally = Tally::default();
    let made = if is_full { twins::make(config, trace)? } else { MadeTwins::default() };
    tally.add_twins(&made);
    for text in &trace.unsupported {
        tally.add_unknown(&format!("the tracer could not follow: {text}"));
    }
    if let Some(assumption) = config.model.assumption() {
        let name = config.model.name();
        tally.bounds_hit.insert(format!("assumed, though it is not so: {} ({name})", assumption.text));
        tally.add_unknown(&format!("{} were not looked at ({name})", assumption.left_out));
    }
    if let Some(last) = config.last_position.filter(|last| (*last as usize) < trace.events.len()) {
        tally.bounds_hit.insert(format!("no crash position after {last} was looked at, as was asked for"));
    }
    let fresh = tally.clone();
    let known = outcomes::known(config.outcomes.as_ref())?;
    let deadline = deadline(config, started);
    let task = Task { config, trace, unchanged: &unchanged, twins: made.twins.as_ref(), known, started, deadline };
    let first = trace.first_event() as u32 + 1;
    let parts = parts_of(config, trace, config.strategy, config.first_position.unwrap_or(first).max(first));
    let mut whole = Whole::new(tally, config.strategy);
    let is_blind = config.strategy.follows_loads() && !config.has_hooks();
    let unfit = match is_blind {
        true => {
            whole.judge_rules(&task, output);
            Some("the adapter was built without hooks".to_owned())
        }
        false => whole.explore(&task, &parts, output)?,
    };
    if let Some(why) = unfit {
        let complete = std::mem::replace(&mut whole, Whole::new(fresh, WITHOUT_LOADS));
        whole.go_on_from(complete);
        whole.tally.fallback = Some(format!("strategy complete is not possible: {}", config.with_place(&why)));
        let so_far = Stopped { position: 1, why: "interrupted".to_owned() };
        output.say("certificate", &whole.certificate(&task, Some(so_far))); // what goes on from here must not go on with `complete`
        let parts = parts_of(config, trace, WITHOUT_LOADS, first);
        whole.explore(&task, &parts, output)?;
    }
    if let Some(file) = &config.outcomes {
        output.say("outcomes", &whole.outcomes.settle(file, task.known.as_ref())?);
    }
    Ok(finish(&task, &mut whole, output))
}

fn finish(task: &Task, whole: &mut Whole, output: &mut Output) -> Verdict {
    let is_unknown = whole.tally.has_unknown() && !planted::is(Fault::UnknownPasses);
    let is_nothing = !whole.tally.has_judged_a_heap() && whole.tally.unchanged == 0 || whole.tally.stores == 0;
    let verdict = match (whole.findings.len(), is_unknown || is_nothing) {
        (0, false) => Verdict::Pass,
        (0, true) => Verdict::Unknown,
        _ => Verdict::Fail,
    };
    let stopped = whole.stopped.take();
    output.say("certificate", &whole.certificate(task, stopped));
    output.done(verdict, &seen_counts(&whole.findings), &task.trace.hash);
    verdict
}
