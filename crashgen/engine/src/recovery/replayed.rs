// SPDX-License-Identifier: Apache-2.0
//! One later generation, for the replay of a token.

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::heap::case::{Case, SettledOperations};
use crate::heap::crashes::bases_of;
use crate::heap::recovery_trace::{RecoverySites, touched, trace_of_recovery};
use crate::heap::state::StateRef;
use crate::recovery::content::Unasked;
use crate::recovery::recoverer::Recoverer;
use crashgen::model::{Choice, View};
use crashgen::trace::Trace;
use oracle::{HeapReport, Status, judge};
use std::rc::Rc;

/// One later generation, for the replay of a token.
pub struct ReplayedGeneration {
    /// As it begins.
    pub case: Case,
    /// What recovery and follow-up did.
    pub trace: Trace,
    /// The crashes that it came of, where a token names them, the first one first.
    pub earlier: Vec<PassedCrash>,
    /// Before it is stepped.
    pub start: GenerationStart,
}

/// A crash after which power failed again.
pub struct PassedCrash {
    /// The workload's, or what the recovery before did.
    pub trace: Trace,
    /// There.
    pub case: Case,
    /// What it shows.
    pub view: View,
    /// What it left.
    pub left: Vec<Choice>,
    /// Events before it.
    pub position: u32,
}

impl PassedCrash {
    /// What it left, by nobody.
    pub fn state(&self) -> StateRef<'_> {
        StateRef { case: &self.case, view: &self.view, choices: &self.left, position: self.position }
    }
}

/// Where a generation begins.
pub struct GenerationStart {
    /// What recovery finds.
    pub case: Case,
    /// What it shows of what was pending.
    pub settled: SettledOperations,
}

impl ReplayedGeneration {
    /// Of the generation that begins with a crash in this state; it is number `number`, from 1. `recoverer` has the hooked adapter.
    ///
    /// # Errors
    /// When recovery refuses the image, or what it does cannot be followed.
    pub fn after(
        config: &Config,
        (recoverer, sites): (&mut Recoverer, &mut RecoverySites),
        before: &Trace,
        (case, view, state): (&mut Case, &View, &[Choice]),
        number: u32,
    ) -> Result<Self, EngineError> {
        let image = case.crash(view, state).image;
        let (bytes, _, answer) = recoverer.trace(image, (number, config.follow_up), &Rc::from([]))?;
        let told = recoverer.parse_recovery_trace(&answer, before.files.len() as u32, image.prefix())?;
        let report = HeapReport::parse(&bytes)
            .map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")))?;
        let is_open = report.life(0).and_then(|life| life.open) == Some(Status::Ok);
        if let Some(gap) = told.gap.or((!is_open).then_some("recovery refuses the image")) {
            return Err(bad_input(format!("the token's second crash is not there: {gap}; was the allocator changed?")));
        }
        let judgement = judge(&config.contract, &config.shape(), &case.history, &report, &Unasked, None);
        case.model.know(touched(&case.model, &told.events).into_iter());
        let trace = trace_of_recovery(sites, before, &told);
        let mut model = case.model.after_crash(bases_of(view, state));
        model.set_content_sites(sites.are_content(&trace));
        let case = case.next_generation(model);
        let start = GenerationStart { case: case.clone(), settled: SettledOperations::of(&judgement) };
        Ok(Self { case, trace, earlier: Vec::new(), start })
    }

    /// Steps over the recovery's event with this number; returns what the crash position after it shows.
    ///
    /// # Errors
    /// When the events contradict each other.
    pub fn step(&mut self, config: &Config, number: u32) -> Result<View, EngineError> {
        let event = &self.trace.events[number as usize];
        Ok(self.case.step_recovery(number, event, &self.start.settled, config.contract.fill)?.0)
    }
}
