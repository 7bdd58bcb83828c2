// SPDX-License-Identifier: Apache-2.0
//! The witness of a finding: the workload and the crashes that show it, as its token names them.

use crate::base::config::{Config, ProbeName};
use crate::heap::case::CurrentOperation;
use crate::heap::crashes::{CrashBefore, LaterState};
use crate::heap::state::StateRef;
use crate::heap::token_form::shortest_form;
use crashgen::model::Choice;
use crashgen::symbols::Symbol;
use crashgen::token::{LaterCrash, LineChoice, Witness};
use crashgen::trace::Trace;
use oracle::RuleId;

/// The crashes before that state, the last one first, and what each left.
pub fn crashes_before<'b>(
    before: Option<&'b CrashBefore<'b>>,
    state: &StateRef<'b>,
) -> Vec<(&'b CrashBefore<'b>, Vec<Choice>)> {
    let mut crashes = Vec::new();
    let (mut before, mut later) = (before, LaterState::of(state));
    while let Some(crash) = before {
        let left = crash.left_by(&later);
        later = LaterState { model: &crash.case.model, view: crash.view, choices: left.clone() };
        crashes.push((crash, left));
        before = crash.before;
    }
    crashes
}

/// Of a state that breaks this rule; `before`: the crashes before it, the last one first; `sites`: of the stores that matter.
pub fn witness(
    config: &Config,
    trace: &Trace,
    before: &[(&CrashBefore, Vec<Choice>)],
    state: &StateRef,
    rule: RuleId,
    sites: &[Symbol],
) -> Witness {
    let identity = &config.identity;
    let form = shortest_form(&state.case.model, state.view, state.choices);
    let mut crashes = vec![Crash { position: state.position, current: state.case.current, form }];
    crashes.extend(before.iter().map(|(crash, left)| {
        let form = shortest_form(&crash.case.model, crash.view, left);
        Crash { position: crash.position, current: crash.case.current, form }
    }));
    let first = crashes.pop().expect("at least one");
    let (from_newest, lines) = first.form;
    Witness {
        rule: rule.to_string(),
        allocator: identity.allocator.clone(),
        mutant: identity.mutant.clone().unwrap_or_default(),
        build: identity.build.clone(),
        workload: identity.workload.clone(),
        ops: identity.ops.unwrap_or(0),
        seed: identity.seed,
        flush: identity.flush.clone(),
        model: config.model.name().to_owned(),
        trace_hash: trace.hash.clone(),
        position: first.position,
        operation: first.current.map_or(0, |current| current.operation.index + 1),
        event_in_operation: first.current.map_or(0, |current| first.position - current.began_at),
        site: sites.first().map(|site| site.function.clone()).unwrap_or_default(),
        from_newest,
        is_of_long_life: config.probe == ProbeName::Deep,
        lost: config.loss.operations.iter().copied().filter(|number| *number < first.position).collect(),
        lines,
        later: crashes.into_iter().rev().map(Crash::later).collect(),
    }
}

/// One crash of a witness.
struct Crash {
    position: u32,
    current: Option<CurrentOperation>,
    form: (bool, Vec<LineChoice>),
}

impl Crash {
    fn later(self) -> LaterCrash {
        let (from_newest, lines) = self.form;
        LaterCrash { position: self.position, from_newest, lines }
    }
}
