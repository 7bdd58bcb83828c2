// SPDX-License-Identifier: Apache-2.0
//! `bench-replay`: recoveries a second of the isolated engine, and of the in-process engine where there are hooks, on the last image
//! of a trace.

use crate::cases::Case;
use crate::config::{Config, StrategyName};
use crate::error::EngineError;
use crate::output::print;
use crate::replay_token::go_to;
use crashgen::model::{Choice, View};
use crashgen::replay::{Probe, ReplayServer, ServerOptions};
use crashgen::trace::{EventKind, OperationKind, Trace};
use oracle::HeapReport;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time each figure is measured for.
const MEASURE: Duration = Duration::from_secs(3);
/// The two engines take turns, so that a busy machine slows both.
const TURNS: u32 = 3;

/// Runs the first part, then the full probe, as often as the time allows, on the heap as the last operation before close left it.
///
/// # Errors
/// When the replay server fails.
pub fn bench(config: &Config, trace: &Trace) -> Result<(), EngineError> {
    let is_close = |kind: &EventKind| matches!(kind, EventKind::OperationBegin { kind: OperationKind::Close, .. });
    let position = trace.events.iter().rposition(|event| is_close(&event.kind)).unwrap_or(trace.events.len());
    let (mut case, view) = go_to(config, trace, position as u32)?;
    case.image.go_to(&case.model, &view, &view.prefix_state());
    let mut server = ReplayServer::start(&config.server("images")?)?;
    server.follow(&mut case.image)?;
    let report = HeapReport::parse(&server.run(Probe::First)?)
        .map_err(|error| EngineError::Infrastructure(error.to_string()))?;
    let live = report.life(0).and_then(|life| life.slots.as_ref()).map_or(0, |slots| slots.entries.len());
    let first_per_s = rate(MEASURE, || server.run(Probe::First).map(drop).map_err(EngineError::from))?;
    let full_per_s = rate(MEASURE, || server.run(Probe::Full).map(drop).map_err(EngineError::from))?;
    drop(server);
    let engines = if config.has_hooks() { compare_engines(config, trace, position as u32)? } else { Value::Null };
    print(&json!({
        "first_per_s": first_per_s, "full_per_s": full_per_s, "heap_bytes": config.shape().heap_bytes, "live_objects": live,
        "engines": engines,
    }));
    Ok(())
}

/// One engine, and how it goes from one of two states to the other.
struct Measured {
    case: Case,
    view: View,
    server: ReplayServer,
    runs: usize,
}

impl Measured {
    fn start(config: &Config, trace: &Trace, position: u32, is_in_process: bool) -> Result<Self, EngineError> {
        let (case, view) = go_to(config, trace, position)?;
        let options = ServerOptions { is_in_process, ..config.exploring_server(StrategyName::Complete)? };
        Ok(Self { case, view, server: ReplayServer::start(&options)?, runs: 0 })
    }

    /// As in exploration: another state, its lines sent, a recorded run.
    fn run(&mut self, probe: Probe) -> Result<(), EngineError> {
        let is_prefix = self.runs % 2 == 0;
        let state: Vec<Choice> = if is_prefix { self.view.prefix_state() } else { self.view.floor_state() };
        self.runs += 1;
        self.case.image.go_to(&self.case.model, &self.view, &state);
        self.server.follow(&mut self.case.image)?;
        self.server.run_recorded(probe, false)?;
        Ok(())
    }
}

/// Both engines, with hooks, on the same two states in turn: the one with everything persisted and the floor.
fn compare_engines(config: &Config, trace: &Trace, position: u32) -> Result<Value, EngineError> {
    let mut isolated = Measured::start(config, trace, position, false)?;
    let mut in_process = Measured::start(config, trace, position, true)?;
    let mut rates = [0.0; 4];
    for _ in 0..TURNS {
        for (at, probe) in [Probe::First, Probe::Full].into_iter().enumerate() {
            rates[2 * at] += rate(MEASURE / TURNS, || isolated.run(probe))? / f64::from(TURNS);
            rates[2 * at + 1] += rate(MEASURE / TURNS, || in_process.run(probe))? / f64::from(TURNS);
        }
    }
    Ok(json!({
        "first_isolated_per_s": rates[0], "first_in_process_per_s": rates[1],
        "full_isolated_per_s": rates[2], "full_in_process_per_s": rates[3],
        "runs": in_process.server.engines()?,
    }))
}

fn rate(time: Duration, mut run: impl FnMut() -> Result<(), EngineError>) -> Result<f64, EngineError> {
    let start = Instant::now();
    let mut runs = 0u32;
    while start.elapsed() < time {
        run()?;
        runs += 1;
    }
    Ok(f64::from(runs) / start.elapsed().as_secs_f64())
}
