// SPDX-License-Identifier: Apache-2.0
//! `bench-replay`: recoveries a second of the isolated engine, of the same target in one process, and of the in-process engine where
//! there are hooks, on the last image of a trace.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::base::output::print;
use crate::heap::case::HeapCase;
use crate::heap::stepping::go_to;
use crashgen::model::{Choice, View};
use crashgen::replay::{Engines, Manner, Probe, ReplayServer, ServerOptions};
use crashgen::trace::{EventKind, OperationKind, Trace};
use oracle::HeapReport;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time each figure is measured for.
const MEASURE: Duration = Duration::from_secs(3);
/// The two engines take turns, so that a busy machine slows both.
const TURNS: u32 = 3;
/// Ticks of the clock in /proc: Linux counts hundredths there, whatever its own ticks are.
const TICKS_A_SECOND: f64 = 100.0;

/// Runs open, slots and walk, then the full probe, as often as the time allows, on the heap as the last operation before close left
/// it.
///
/// # Errors
/// When the replay server fails.
pub fn bench(config: &Config, trace: &Trace) -> Result<(), EngineError> {
    let is_close = |kind: &EventKind| matches!(kind, EventKind::OperationBegin { kind: OperationKind::Close, .. });
    let position = trace.events.iter().rposition(|event| is_close(&event.kind)).unwrap_or(trace.events.len());
    let (mut case, view) = go_to(config, trace, position as u32)?;
    let image = case.crash(&view, &view.prefix_state()).image;
    let options = config.server("images")?;
    let mut server = ReplayServer::start(&ServerOptions { is_unchecked: true, ..options.clone() })?;
    server.follow(image)?;
    let report = HeapReport::parse(&server.run(Probe::First)?)
        .map_err(|error| EngineError::Infrastructure(error.to_string()))?;
    let live = report.life(0).and_then(|life| life.slots.as_ref()).map_or(0, |slots| slots.entries.len());
    let walk_per_s = rate(MEASURE, || server.run(Probe::First).map(drop).map_err(EngineError::from))?;
    drop(server);
    let mut server = ReplayServer::start(&ServerOptions { is_unchecked: true, is_batched: true, ..options.clone() })?;
    server.follow(image)?;
    let batched_per_s = rate(MEASURE, || server.run_in_batch(Probe::First).map(drop).map_err(EngineError::from))?;
    drop(server);
    let mut server = ReplayServer::start(&options)?;
    server.follow(image)?;
    let full_per_s = rate(MEASURE, || server.run(Probe::Full).map(drop).map_err(EngineError::from))?;
    drop(server);
    let engines = if config.sees_loads() { compare_engines(config, trace, position as u32)? } else { Value::Null };
    print(&json!({
        "walk_per_s": walk_per_s, "batched_per_s": batched_per_s, "full_per_s": full_per_s, "heap_bytes": config.shape().heap_bytes, "live_objects": live,
        "engines": engines,
    }));
    Ok(())
}

/// One engine, and how it goes from one of two states to the other.
struct Measured {
    case: HeapCase,
    view: View,
    options: ServerOptions,
    runs: usize,
}

/// What is measured: name of the figures, probe, and whether it leaves out the stage `check`.
const MEASURED: [(&str, Probe, bool); 3] =
    [("walk", Probe::First, true), ("first", Probe::First, false), ("full", Probe::Full, false)];

/// What one turn of an engine gave.
struct Turn {
    per_s: f64,
    /// Processor time of a recovery, of this process and the server's, microseconds.
    cpu_us: f64,
    engines: Engines,
}

impl Measured {
    fn new(config: &Config, trace: &Trace, position: u32, is_in_process: bool) -> Result<Self, EngineError> {
        let (case, view) = go_to(config, trace, position)?;
        let options = ServerOptions { is_in_process, ..config.recording_server()? };
        Ok(Self { case, view, options, runs: 0 })
    }

    /// With a server of its own, since a process that goes on running does not say what time it took.
    fn turn(&mut self, probe: Probe, is_unchecked: bool) -> Result<Turn, EngineError> {
        let cpu_before = cpu_seconds();
        self.options.is_unchecked = is_unchecked;
        let mut server = ReplayServer::start(&self.options)?;
        let before = self.runs;
        let per_s = rate(MEASURE / TURNS, || self.run(&mut server, probe))?;
        let engines = server.engines()?;
        drop(server);
        let cpu_us = (cpu_seconds() - cpu_before) * 1e6 / (self.runs - before) as f64;
        Ok(Turn { per_s, cpu_us, engines })
    }

    /// As in exploration: another state, its lines sent, a recorded run.
    fn run(&mut self, server: &mut ReplayServer, probe: Probe) -> Result<(), EngineError> {
        let is_prefix = self.runs % 2 == 0;
        let state: Vec<Choice> = if is_prefix { self.view.prefix_state() } else { self.view.floor_state() };
        self.runs += 1;
        server.follow(self.case.crash(&self.view, &state).image)?;
        server.run_recorded(probe, Manner::Afresh)?;
        Ok(())
    }
}

/// Both engines, with hooks, on the same two states in turn: the one with everything persisted and the floor.
fn compare_engines(config: &Config, trace: &Trace, position: u32) -> Result<Value, EngineError> {
    let mut isolated = Measured::new(config, trace, position, false)?;
    let mut in_process = Measured::new(config, trace, position, true)?;
    let mut figures = serde_json::Map::new();
    for (name, probe, is_unchecked) in MEASURED {
        let (mut per_s, mut cpu_us, mut runs) = ([0.0; 2], [0.0; 2], [0, 0, 0]);
        for _ in 0..TURNS {
            for (at, engine) in [&mut isolated, &mut in_process].into_iter().enumerate() {
                let turn = engine.turn(probe, is_unchecked)?;
                per_s[at] += turn.per_s / f64::from(TURNS);
                cpu_us[at] += turn.cpu_us / f64::from(TURNS);
                let isolated_instead: u64 = turn.engines.isolated.values().sum();
                for (sum, more) in
                    runs.iter_mut().zip([turn.engines.in_process, turn.engines.compared, isolated_instead])
                {
                    *sum += more;
                }
            }
        }
        figures.insert(
            name.to_owned(),
            json!({
                "isolated_per_s": per_s[0], "in_process_per_s": per_s[1],
                "isolated_cpu_us": cpu_us[0], "in_process_cpu_us": cpu_us[1],
                "in_process": runs[0], "compared": runs[1], "isolated_instead": runs[2],
            }),
        );
    }
    Ok(Value::Object(figures))
}

/// Processor time of this process and of the children that it has waited for.
fn cpu_seconds() -> f64 {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = line.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / TICKS_A_SECOND
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
