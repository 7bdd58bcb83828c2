// SPDX-License-Identifier: Apache-2.0
//! `import` and `export`: the store log of pmemcheck, read and written. What it lacks is printed as JSON.

use crate::base::error::{EngineError, bad_input};
use crashgen::pmemcheck;
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::Trace;
use serde_json::json;
use std::path::Path;

/// Writes the trace of a log.
///
/// # Errors
/// When the log or the base cannot be read, or the trace not be written.
pub fn import(log: &Path, out: &Path, base: Option<&Path>) -> Result<(), EngineError> {
    let imported = pmemcheck::import(log, base)?;
    let trace = Trace::parse(out, &imported.trace)?;
    write(out, &imported.trace)?;
    let facts = json!({
        "hash": trace.hash,
        "events": trace.events.len(),
        "files": trace.files.iter().map(|path| path.to_string()).collect::<Vec<_>>(),
        "has_operations": !trace.has_unknown_operations(),
        "is_whole": imported.is_whole,
        "notes": imported.notes,
    });
    println!("{facts}");
    Ok(())
}

/// Writes the log of a trace.
///
/// # Errors
/// When the log cannot be written.
pub fn export(trace: &Trace, out: &Path, folder: &str, module_root: &Path) -> Result<(), EngineError> {
    let mut symbols = Symbols::under(trace, module_root);
    let exported = pmemcheck::export(trace, folder, &mut |site| {
        let place = symbols.find(trace, site);
        let offset = trace.sites[site.0 as usize].offset;
        if place == Symbol::default() { Vec::new() } else { vec![format!("{offset:#x}: {}", place.text())] }
    });
    write(out, exported.log.as_bytes())?;
    let files: Vec<_> = exported.files.iter().map(|(path, bytes)| json!({"path": path, "bytes": bytes})).collect();
    println!("{}", json!({"events": trace.events.len(), "files": files, "notes": exported.notes}));
    Ok(())
}

fn write(out: &Path, bytes: &[u8]) -> Result<(), EngineError> {
    std::fs::write(out, bytes).map_err(|error| bad_input(format!("{}: cannot be written: {error}", out.display())))
}
