// SPDX-License-Identifier: Apache-2.0
//! Twins: the same history without a crash, closed and reopened, for every operation boundary (FL012). `runner twins` makes them.

use crate::certificate::Tally;
use crate::config::Config;
use crate::error::EngineError;
use oracle::HeapReport;
use oracle::TwinSet;
use std::process::Stdio;

/// The twins of the whole workload; none, with the reason noted as unknown, when the allocator does not survive them.
///
/// # Errors
/// When the runner cannot be started.
pub fn make(config: &Config, tally: &mut Tally) -> Result<Option<TwinSet>, EngineError> {
    let options = config.server("twins")?;
    let mut command = options.command("twins");
    command.arg("--workload").arg(&config.workload_file).stdin(Stdio::null());
    let result = command.output().map_err(|error| {
        EngineError::Infrastructure(format!("{}: cannot be started: {error}", options.runner.display()))
    })?;
    if !result.status.success() {
        let said = String::from_utf8_lossy(&result.stderr);
        let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned();
        tally.add_unknown(&format!("the workload without a crash failed: {why}"));
        return Ok(None);
    }
    let twins =
        parse(&result.stdout).map_err(|why| EngineError::Infrastructure(format!("the runner's twins: {why}")))?;
    for (operation, why) in twins.failures() {
        tally.add_unknown(&format!("the heap closed and reopened without a crash after operation {operation}: {why}"));
    }
    Ok(Some(twins))
}

fn parse(mut rest: &[u8]) -> Result<TwinSet, String> {
    let mut twins = TwinSet::default();
    while !rest.is_empty() {
        let index = take_u32(&mut rest)?;
        let length = take_u32(&mut rest)? as usize;
        let (report, tail) = rest.split_at_checked(length).ok_or("truncated")?;
        twins.insert(index, &HeapReport::parse(report).map_err(|error| error.to_string())?);
        rest = tail;
    }
    Ok(twins)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, String> {
    let (bytes, tail) = rest.split_first_chunk::<4>().ok_or("truncated")?;
    *rest = tail;
    Ok(u32::from_le_bytes(*bytes))
}
