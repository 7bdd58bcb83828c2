// SPDX-License-Identifier: Apache-2.0
//! File operations that power failure loses, on a file system that promises no more than POSIX does ([`crashgen::model::losses`]).
//!
//! First the trace is explored as if every file operation were durable when it returns. Then, for each set of operations that may be lost
//! together, the crash positions that may lose it: there the heap is the one of a run in which these operations had no effect, and lines
//! have their choices as ever. So what recovery asks of names, sizes and contents is answered as that failure leaves it.
//!
//! What a recovery does to files is taken as durable when it returns: the certificate covers what the workload does to them.

use crate::base::error::EngineError;
use crate::base::output::Output;
use crate::explore::certificate::FileLosses;
use crate::explore::parts::{Part, Task};
use crate::explore::workers::Whole;
use crashgen::model::losses::{Loss, Losses, SET_LIMIT, losses};
use crashgen::strategy::Strategy;

/// Explores what the file system may lose, and adds what it shows. Returns why the strategy is not possible, if it is not.
///
/// # Errors
/// Those of [`Whole::explore`].
pub fn explore(
    task: &Task,
    strategy: &'static dyn Strategy,
    whole: &mut Whole,
    output: &mut Output,
) -> Result<Option<String>, EngineError> {
    if !task.config.loses_file_operations() {
        return Ok(None);
    }
    let Losses { sets, bounded_at } = losses(&task.trace.events, &task.trace.unsynced);
    let first = task.trace.first_event() as u32;
    let end = task.config.last_position.unwrap_or(u32::MAX);
    let sets: Vec<Loss> = sets.into_iter().filter(|loss| loss.first > first && loss.first <= end).collect();
    let mut seen = FileLosses { sets: sets.len(), ..FileLosses::default() };
    seen.why =
        bounded_at.map(|event| format!("from event {event} on operations are taken as durable: {SET_LIMIT} sets"));
    if !whole.tally.behind.is_empty() {
        seen.why = Some("what breaks without them is to be repaired first".to_owned());
    }
    if whole.is_over() || !whole.tally.behind.is_empty() {
        whole.tally.file_losses = Some(seen); // why it is over is said elsewhere
        return Ok(None);
    }
    let (patience, shares, recoveries_before) = (None, None, whole.recoveries());
    let round = Task { losses: &sets, unchanged: &[], patience, shares, recoveries_before, ..task.clone() };
    let part = |(number, loss): (usize, &Loss)| Part {
        number,
        first: loss.first,
        last: loss.last.min(end),
        loss: Some(number),
    };
    let parts: Vec<Part> = sets.iter().enumerate().map(part).collect();
    let mut aside = whole.aside_with_findings(strategy);
    let unfit = aside.explore(&round, &parts, output)?;
    if unfit.is_some() {
        return Ok(unfit);
    }
    seen.explored = aside.parts_explored;
    if seen.explored < sets.len() {
        seen.why = Some(aside.stopped.take().unwrap_or_else(|| "stopped at a finding".to_owned()));
    }
    whole.add_file_losses(aside, seen);
    Ok(None)
}
