// SPDX-License-Identifier: Apache-2.0
//! The workload's trace, stepped through the crash positions of one part.

use crate::base::budget::Stop;
use crate::explore::certificate::Tally;
use crate::explore::complete::Complete;
use crate::explore::course::{Course, Step};
use crate::explore::examiner::Examiner;
use crate::explore::means::Means;
use crate::explore::parts::{Cursor, Part};
use crate::heap::case::HeapCase;
use crashgen::trace::{EventKind, Trace};

/// A part of the workload.
pub struct Workload<'a> {
    trace: &'a Trace,
    part: &'a Part,
    cursor: &'a mut Cursor,
    complete: Complete,
    /// Since the last step: a case began, crash positions were left out.
    is_new_case: bool,
    has_left_out: bool,
}

impl<'a> Workload<'a> {
    /// Before the first position of the part. The cursor goes on from where its worker left it, or from the case that the part lies in.
    pub fn new(means: &Means, trace: &'a Trace, part: &'a Part, cursor: &'a mut Cursor) -> Self {
        let is_case = |number: &usize| matches!(trace.events[*number].kind, EventKind::Case { .. });
        cursor.next = (cursor.next..part.first as usize).rev().find(is_case).unwrap_or(cursor.next);
        let complete = Complete::new(means.config, &means.repeats.probe);
        Self { trace, part, cursor, complete, is_new_case: false, has_left_out: true }
    }

    /// Takes note of what the model could not decide in the case that ends.
    pub fn end_case(&self, tally: &mut Tally) {
        let model = &self.cursor.case.model;
        if model.has_unknown_file() {
            tally.add_unknown(
                "there were stores into a file that was there before the trace began: its content is not known",
            );
        }
        tally.bounds_hit.extend(model.bounds_hit().iter().map(|bound| (*bound).to_owned()));
    }
}

impl Course for Workload<'_> {
    fn next(&mut self, examiner: &mut Examiner) -> Result<Option<Step>, Stop> {
        while self.cursor.next < self.part.last as usize {
            let number = self.cursor.next;
            let event = &self.trace.events[number];
            if let EventKind::Case { folder, .. } = &event.kind {
                self.end_case(&mut examiner.tally);
                self.cursor.case = HeapCase::new(examiner.means.config, self.trace, folder);
                self.complete.start_case();
                self.is_new_case = true;
            }
            let (view, is_expectation_new) = self.cursor.case.step(number as u32, event).map_err(Stop::Error)?;
            self.cursor.next += 1;
            let position = number as u32 + 1;
            let is_counted = self.part.number == 0 || position >= self.part.first;
            examiner.tally.stores += u64::from(is_counted && matches!(event.kind, EventKind::Store { .. }));
            let is_left_out = examiner.means.config.is_before_start(self.cursor.case.history.current());
            if position < self.part.first || is_left_out {
                self.has_left_out = true;
                continue;
            }
            examiner.means.enter(position);
            let is_expectation_new = is_expectation_new || std::mem::take(&mut self.has_left_out);
            let is_new_case = std::mem::take(&mut self.is_new_case);
            return Ok(Some(Step { position, view, is_expectation_new, is_new_case }));
        }
        Ok(None)
    }

    fn here(&mut self) -> (&mut HeapCase, &mut Complete) {
        (&mut self.cursor.case, &mut self.complete)
    }
}
