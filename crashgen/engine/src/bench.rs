// SPDX-License-Identifier: Apache-2.0
//! `bench-replay`: recoveries a second of the isolated engine on the last image of a trace.

use crate::config::Config;
use crate::error::EngineError;
use crate::output::print;
use crate::replay_token::go_to;
use crashgen::replay::{Probe, ReplayServer};
use crashgen::trace::{EventKind, OperationKind, Trace};
use oracle::HeapReport;
use serde_json::json;
use std::time::{Duration, Instant};

/// Time each figure is measured for.
const MEASURE: Duration = Duration::from_secs(3);

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
    let first_per_s = rate(&mut server, Probe::First)?;
    let full_per_s = rate(&mut server, Probe::Full)?;
    print(&json!({
        "first_per_s": first_per_s, "full_per_s": full_per_s, "heap_bytes": config.shape().heap_bytes, "live_objects": live,
    }));
    Ok(())
}

fn rate(server: &mut ReplayServer, probe: Probe) -> Result<f64, EngineError> {
    let start = Instant::now();
    let mut runs = 0u32;
    while start.elapsed() < MEASURE {
        server.run(probe)?;
        runs += 1;
    }
    Ok(f64::from(runs) / start.elapsed().as_secs_f64())
}
