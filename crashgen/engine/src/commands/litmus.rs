// SPDX-License-Identifier: Apache-2.0
//! `litmus FILE...`: each test's reachable states against those it allows.

use crate::base::error::{EngineError, bad_input};
use crashgen::litmus::{Litmus, LitmusError, State};
use crashgen::model::models;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How states are printed, in the place of the comparison: sorted, one a line.
#[derive(Clone, Copy)]
pub enum Print {
    /// All of a test.
    States,
    /// By the steps that have ended, how many of them first: `2 x=0 f=none`.
    StatesByStep,
}

/// Exit 0 if all are equal, 1 if one is not.
///
/// # Errors
/// Bad input: the file, its line and what was expected.
pub fn run(files: &[PathBuf], print: Option<Print>, model: &str) -> Result<u8, EngineError> {
    let model = models::find(model).map_err(|error| bad_input(error.to_string()))?;
    let tests: Vec<(&PathBuf, Litmus)> =
        files.iter().map(|file| read(file).map(|test| (file, test))).collect::<Result<_, _>>()?;
    let mut differing = 0;
    for (file, test) in tests {
        let by_step = test.states_by_step(model).map_err(|error| located(file, &error))?;
        if let Some(Print::StatesByStep) = print {
            for (ended, states) in by_step.iter().enumerate() {
                states.iter().for_each(|state| println!("{ended} {}", test.show(state)));
            }
            continue;
        }
        let states: BTreeSet<State> = by_step.into_iter().flatten().collect();
        if let Some(Print::States) = print {
            states.iter().for_each(|state| println!("{}", test.show(state)));
            continue;
        }
        let allowed = test
            .allowed
            .as_ref()
            .ok_or_else(|| bad_input(format!("{}: no `allowed:`; --print shows the states", file.display())))?;
        if states != *allowed {
            differing += 1;
            println!("{}: {}: {}", file.display(), test.name, difference(&test, &states, allowed));
        }
    }
    Ok(u8::from(differing > 0))
}

fn read(file: &Path) -> Result<Litmus, EngineError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| bad_input(format!("{}: cannot be read: {error}", file.display())))?;
    Litmus::parse(&text).map_err(|error| located(file, &error))
}

fn located(file: &Path, error: &LitmusError) -> EngineError {
    match error.line {
        0 => bad_input(format!("{}: {}", file.display(), error.message)),
        line => bad_input(format!("{}:{line}: {}", file.display(), error.message)),
    }
}

fn difference(test: &Litmus, states: &BTreeSet<State>, allowed: &BTreeSet<State>) -> String {
    let show = |states: Vec<&State>| states.into_iter().map(|state| test.show(state)).collect::<Vec<_>>().join(" ; ");
    let more = show(states.difference(allowed).collect());
    let fewer = show(allowed.difference(states).collect());
    match (more.is_empty(), fewer.is_empty()) {
        (false, true) => format!("reachable but not allowed: {more}"),
        (true, _) => format!("allowed but not reachable: {fewer}"),
        (false, false) => format!("reachable but not allowed: {more}; allowed but not reachable: {fewer}"),
    }
}
