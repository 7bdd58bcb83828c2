// SPDX-License-Identifier: Apache-2.0
//! `explore`: a whole trace, from its first crash position to the verdict.
//!
//! `complete` needs to know what recoveries load. The fastest engine that sees it runs them. Where it meets something that it does not
//! see, the next slower one begins anew, and where none does, `mixed` explores the trace in the isolated engine. What was found until then
//! stays: each finding had a run of its own.

use crate::base::config::{Config, EngineKind};
use crate::base::error::EngineError;
use crate::base::output::{Output, Verdict};
use crate::explore::behind;
use crate::explore::certificate::Tally;
use crate::explore::long_lives;
use crate::explore::losses;
use crate::explore::outcomes;
use crate::explore::parts::Task;
use crate::explore::unchanged;
use crate::explore::workers::Whole;
use crate::findings::finding::{seen_counts, stop_at};
use crate::findings::without_crash;
use crate::recovery::twins::{self, MadeTwins};
use crashgen::strategy::{Strategy, WITHOUT_LOADS};
use crashgen::trace::Trace;
use std::ops::ControlFlow;
use std::time::Instant;

/// Explores a whole trace, as the edits make it, and prints findings, certificate and verdict.
///
/// # Errors
/// When the trace contradicts itself or the replay server fails.
pub fn explore(config: &Config, as_it_is: Trace, output: &mut Output) -> Result<Verdict, EngineError> {
    let unchanged = unchanged::positions(config, &as_it_is);
    let trace = &as_it_is.edited(&config.edits);
    config.check_start(trace)?;
    let is_full = config.is_full();
    let started = Instant::now();
    let deadline = config.ends;
    let mut tally = Tally::default();
    let has_twins = is_full && !trace.has_unknown_operations();
    let made = if has_twins { twins::make(config, trace, deadline)? } else { MadeTwins::default() };
    tally.add_twins(&made);
    for text in &trace.unsupported {
        tally.add_unknown(&format!("the tracer could not follow: {text}"));
    }
    for file in &config.left_outside {
        tally.add_unknown(&format!(
            "an earlier run made {file}, which is no file of the heap: remove it, and run again"
        ));
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
    let twins = made.twins.as_ref();
    let task = Task {
        config,
        trace,
        unchanged: &unchanged,
        twins,
        losses: &[],
        known,
        started,
        deadline,
        patience: None,
        recoveries_before: 0,
        shares: None,
    };
    let first = trace.first_event() as u32 + 1;
    let mut whole = Whole::new(tally, config.strategy);
    let begin = whole.resume(config, trace, first);
    whole.tally.engine_why = config.why_not_in_process().filter(|_| config.strategy.follows_loads());
    if report_without_crash(&task, &mut whole, &made, output)?.is_break() {
        return finish(&task, &mut whole, output);
    }
    let rungs = rungs(config);
    for (number, rung) in rungs.iter().enumerate() {
        if number == 0 && config.strategy.follows_loads() && !rung.strategy.follows_loads() {
            whole = fallen(whole, &fresh, config.strategy, rung, "no engine sees what recovery loads");
        }
        let task = Task { config: &rung.config, ..task.clone() };
        let from = if number == 0 { begin } else { first };
        let mut unfit = behind::explore(&task, rung.strategy, &mut whole, from, output)?;
        if unfit.is_none() {
            unfit = losses::explore(&task, rung.strategy, &mut whole, output)?;
        }
        let unfit = unfit.map(|why| rung.config.with_place(&why));
        let Some(why) = unfit else {
            if is_worth_long_lives(&task, &whole) {
                long_lives::explore(&task, &mut whole, output)?;
            }
            return finish(&task, &mut whole, output);
        };
        let Some(next) = rungs.get(number + 1) else { return Err(EngineError::Distrust(why)) };
        whole = fallen(whole, &fresh, config.strategy, next, &why);
        // What goes on from here goes on with that.
        let all = (first, trace.events.len() as u32);
        output.say("certificate", &whole.certificate_before(&Task { config: &next.config, ..task }, [all]));
    }
    unreachable!("the last rung needs nothing of the target")
}

/// What the heap fails with though power does not is said before anything is explored. Break: more is not asked for.
fn report_without_crash(
    task: &Task,
    whole: &mut Whole,
    made: &MadeTwins,
    output: &mut Output,
) -> Result<ControlFlow<()>, EngineError> {
    if made.without_crash.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    whole.explore(task, &[], output)?; // what the trace rules say is printed first
    whole.findings = without_crash::findings(task.config, task.trace, &made.without_crash);
    whole.findings.iter().for_each(|finding| output.say("finding", finding));
    let why = stop_at(&whole.findings, task.config);
    let is_last = why.is_some();
    whole.tally.bounds_hit.extend(why);
    Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}

/// A way to explore: a strategy, and a configuration whose engine runs its recoveries.
struct Rung {
    config: Config,
    strategy: &'static dyn Strategy,
}

/// The fastest first. Where one does not see what it needs to see, the next one begins anew.
fn rungs(config: &Config) -> Vec<Rung> {
    if !config.strategy.follows_loads() {
        return vec![Rung { config: config.clone(), strategy: config.strategy }];
    }
    let seeing = config.seeing_engines().into_iter();
    let complete = seeing.map(|engine| Rung { config: config.with_engine(engine), strategy: config.strategy });
    complete.chain([Rung { config: config.with_engine(EngineKind::Isolated), strategy: WITHOUT_LOADS }]).collect()
}

/// What was explored in another way is worth nothing to this one, but for what was found.
fn fallen(before: Whole, fresh: &Tally, asked: &dyn Strategy, next: &Rung, why: &str) -> Whole {
    let mut whole = Whole::new(fresh.clone(), next.strategy);
    whole.tally.engine_why = Some(why.to_owned());
    if !next.strategy.follows_loads() {
        whole.tally.fallback = Some(format!("strategy {} is not possible: {why}", asked.name()));
    }
    whole.go_on_from(before);
    whole
}

/// Whether nothing was found so far, and no trial of `mutate` waits: that compares with an exploration that had no long lives.
fn is_worth_long_lives(task: &Task, whole: &Whole) -> bool {
    let Config { long_lives, outcomes, strategy, .. } = task.config;
    let is_known = !task.trace.has_unknown_operations() && task.config.is_full();
    let is_asked = *long_lives > 0 && outcomes.is_none() && strategy.follows_loads() && is_known;
    is_asked && whole.findings.is_empty() && whole.stopped.is_none()
}

fn finish(task: &Task, whole: &mut Whole, output: &mut Output) -> Result<Verdict, EngineError> {
    if let Some(file) = &task.config.outcomes {
        output.say("outcomes", &whole.outcomes.settle(file, task.known.as_ref())?);
    }
    let is_unknown = whole.tally.has_unknown();
    let is_nothing = !whole.tally.has_judged_a_heap() && whole.tally.unchanged == 0 || whole.tally.stores == 0;
    let verdict = match whole.findings.len() {
        0 if is_unknown || (is_nothing && whole.tally.left.is_empty()) => Verdict::Unknown,
        0 if whole.tally.leaves_states_out() => Verdict::Incomplete,
        0 => Verdict::Pass,
        _ => Verdict::Fail,
    };
    output.say("certificate", &whole.certificate(task));
    output.done(verdict, &seen_counts(&whole.findings), &task.trace.hash);
    Ok(verdict)
}
