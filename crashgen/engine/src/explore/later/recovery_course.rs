// SPDX-License-Identifier: Apache-2.0
//! What one recovery did, stepped through its crash positions.

use crate::base::budget::Stop;
use crate::explore::complete::Complete;
use crate::explore::course::{Course, Step};
use crate::explore::examiner::Examiner;
use crate::explore::later::recoveries::{LaterRecoveries, Passes, Returned};
use crate::explore::later::run_identity::RunIdentity;
use crate::explore::unchanged::Unchanged;
use crate::heap::case::{HeapCase, SettledOperations, is_open_return};
use crate::recovery::leaf_content::ContentMemory;
use crashgen::model::Lines;
use crashgen::trace::Trace;
use std::rc::Rc;

/// A recovery with its follow-up, as it is explored.
pub struct RecoveryToExplore<'a> {
    /// What it did, as the edits make it.
    pub trace: &'a Trace,
    /// What it showed of the operations that were pending when power failed.
    pub settled: &'a SettledOperations,
    /// What of it is as in the run without the edits, where that was explored.
    pub unchanged: Option<Rc<Unchanged>>,
    /// Positions after recovery returned were explored.
    pub is_rest_explored: bool,
    /// What decides, with what the crash before it left, what crashes in it find; none: other things do, too.
    pub identity: Option<RunIdentity>,
}

/// A recovery as it is stepped.
pub struct RecoveryCourse<'c, 'a> {
    recovery: &'c RecoveryToExplore<'a>,
    case: &'c mut HeapCase,
    memory: &'c mut LaterRecoveries,
    passes: Passes,
    /// The lines that it begins with.
    start: Lines,
    /// Where it returned.
    returned: Option<Returned>,
    /// Events that were stepped over.
    stepped: usize,
}

impl<'c, 'a> RecoveryCourse<'c, 'a> {
    /// Before its first event, with what was remembered of contents where power failed.
    pub fn new(
        recovery: &'c RecoveryToExplore<'a>,
        case: &'c mut HeapCase,
        memory: &'c mut LaterRecoveries,
        contents: ContentMemory,
    ) -> Self {
        let (passes, start) = (Passes::new(contents), case.model.lines());
        Self { recovery, case, memory, passes, start, returned: None, stepped: 0 }
    }

    /// It is over; is_whole: all of it was explored, or is known from another run.
    pub fn end(mut self, is_whole: bool, most_bytes: usize) {
        self.passes.end(self.memory);
        if let (Some(identity), Some(returned), true) = (self.recovery.identity, self.returned, is_whole) {
            self.memory.add_run((identity.whole, &self.start), returned, self.passes.dependencies, most_bytes);
        }
    }

    /// Recovery returns here. Whether the positions from here on need exploring.
    fn returns(&mut self) -> bool {
        if self.recovery.is_rest_explored {
            return false;
        }
        let Some(identity) = self.recovery.identity else { return true };
        let unchanged = self.recovery.unchanged.as_deref();
        let returned = self.passes.recovery_returned(self.memory, (identity, unchanged), self.case);
        let is_known = returned.known.is_some();
        self.returned = Some(returned);
        if !is_known {
            self.case.model.set_origin();
        }
        !is_known
    }
}

impl Course for RecoveryCourse<'_, '_> {
    fn next(&mut self, examiner: &mut Examiner) -> Result<Option<Step>, Stop> {
        let number = self.stepped;
        let Some(event) = self.recovery.trace.events.get(number) else { return Ok(None) };
        let config = examiner.means.config;
        let stepped = self.case.step_recovery(number as u32, event, self.recovery.settled, config.contract.fill);
        let (view, is_expectation_new) = stepped.map_err(Stop::Error)?;
        self.stepped += 1;
        if is_open_return(event) && !self.returns() {
            return Ok(None);
        }
        if self.memory.is_nearly_full(config.bounds()) {
            self.passes.end(self.memory);
            self.memory.forget_tries();
        }
        let is_pass_new = self.passes.go_on(self.memory, self.case.names_hash(), examiner.means)?;
        let is_expectation_new = is_expectation_new || is_pass_new;
        Ok(Some(Step { position: number as u32 + 1, view, is_expectation_new, is_new_case: false }))
    }

    fn here(&mut self) -> (&mut HeapCase, &mut Complete) {
        (self.case, self.passes.trie(self.memory))
    }
}
