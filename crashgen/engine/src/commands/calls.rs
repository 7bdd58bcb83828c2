// SPDX-License-Identifier: Apache-2.0
//! `calls`: where calls that no trace holds are in the source. The front asks it about a target that died without a crash.

use crate::base::error::{EngineError, bad_input};
use crate::base::output;
use crashgen::symbols::Symbols;
use serde_json::json;
use std::path::PathBuf;

/// Prints one JSON object: `at`, the innermost call that is no helper's, and `callers`. `calls`: each as OFFSET:MODULE, the innermost one
/// first.
///
/// # Errors
/// When a call is not of that form.
pub fn print(calls: &[String], helpers: Vec<PathBuf>) -> Result<(), EngineError> {
    let calls = calls.iter().map(|call| parse(call)).collect::<Result<Vec<_>, _>>()?;
    let modules = calls.iter().map(|(module, _)| module.clone()).collect();
    let (at, callers) = Symbols::new(modules, helpers).of_calls(&calls);
    output::print(&json!({ "at": at, "callers": callers }));
    Ok(())
}

fn parse(call: &str) -> Result<(PathBuf, u64), EngineError> {
    let parts = call.split_once(':').and_then(|(offset, module)| Some((PathBuf::from(module), offset.parse().ok()?)));
    parts.ok_or_else(|| bad_input(format!("`{call}` is no call: expected OFFSET:MODULE")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_an_offset_in_a_module() {
        assert_eq!(parse("64:/built/a:b.so").unwrap(), (PathBuf::from("/built/a:b.so"), 64));
        for call in ["64", "0x40:one.so", ":one.so"] {
            assert!(parse(call).is_err(), "{call}");
        }
    }
}
