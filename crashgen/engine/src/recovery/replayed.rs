// SPDX-License-Identifier: Apache-2.0
//! A generation that a token names, made again: recovery is traced where the token's crash before it failed.

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::heap::case::{HeapCase, SettledOperations};
use crate::heap::crashes::bases_of;
use crate::heap::recovery_trace::{RecoverySites, touched, trace_of_recovery};
use crate::heap::state::StateRef;
use crate::recovery::content::Unasked;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::reports::parse;
use crashgen::model::{Choice, View};
use crashgen::trace::Trace;
use oracle::{Status, judge};
use std::rc::Rc;

/// A later generation that a token names.
pub struct ReplayedGeneration {
    /// The heap as recovery finds it, then where it was stepped to.
    pub case: HeapCase,
    /// What recovery and follow-up did.
    pub trace: Trace,
    /// The crashes before it, the first one first.
    pub earlier: Vec<PassedCrash>,
    /// What it began with.
    pub start: GenerationStart,
}

/// A crash after which power failed again.
pub struct PassedCrash {
    /// In which power failed: the workload's trace, or what the recovery before did.
    pub trace: Trace,
    /// The heap there.
    pub case: HeapCase,
    /// What the position shows.
    pub view: View,
    /// What it left.
    pub left: Vec<Choice>,
    /// Events before it.
    pub position: u32,
}

impl PassedCrash {
    /// What it left.
    pub fn state(&self) -> StateRef<'_> {
        StateRef { case: &self.case, view: &self.view, choices: &self.left, position: self.position }
    }
}

/// What a generation begins with.
pub struct GenerationStart {
    /// What recovery finds.
    pub case: HeapCase,
    /// What the recovery shows of the operations that were pending.
    pub settled: SettledOperations,
}

impl ReplayedGeneration {
    /// The generation that begins with a crash in this state. `number`: of the generation, from 1. `recoverer` has the hooked adapter.
    ///
    /// # Errors
    /// When recovery refuses the image, or what it does cannot be followed.
    pub fn after(
        config: &Config,
        (recoverer, sites): (&mut Recoverer, &mut RecoverySites),
        before: &Trace,
        (case, view, state): (&mut HeapCase, &View, &[Choice]),
        number: u32,
    ) -> Result<Self, EngineError> {
        let image = case.crash(view, state).image;
        let (report, _, answer) = recoverer.trace(image, (number, config.follow_up), &Rc::from([]))?;
        let reported = recoverer.parse_recovery_trace(&answer, before.files.len() as u32, image.prefix())?;
        let report = parse(&report)?;
        let is_open = report.life(0).and_then(|life| life.open) == Some(Status::Ok);
        if let Some(gap) = reported.gap.or((!is_open).then_some("recovery refuses the image")) {
            return Err(bad_input(format!("the token's second crash is not there: {gap}; was the allocator changed?")));
        }
        let judgement = judge(&config.contract, &config.shape(), &case.history, &report, &Unasked, None);
        case.model.know(touched(&case.model, &reported.events).into_iter());
        let trace = trace_of_recovery(sites, before, &reported);
        let mut model = case.model.after_crash(bases_of(view, state));
        model.set_content_sites(sites.are_content(&trace));
        let case = case.next_generation(model);
        let start = GenerationStart { case: case.clone(), settled: SettledOperations::of(&judgement) };
        Ok(Self { case, trace, earlier: Vec::new(), start })
    }

    /// Steps over the event with this number. Returns what the crash position after it shows.
    ///
    /// # Errors
    /// When the events contradict each other.
    pub fn step(&mut self, config: &Config, number: u32) -> Result<View, EngineError> {
        let event = &self.trace.events[number as usize];
        Ok(self.case.step_recovery(number, event, &self.start.settled, config.contract.fill)?.0)
    }
}
