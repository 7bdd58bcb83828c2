// SPDX-License-Identifier: Apache-2.0
//! What is stepped through from crash position to crash position: the workload, or what a recovery did.

use crate::base::budget::Stop;
use crate::explore::complete::Complete;
use crate::explore::examiner::Examiner;
use crate::heap::case::HeapCase;
use crate::heap::crashes::CrashBefore;
use crashgen::model::View;
use crashgen::trace::Trace;
use oracle::TwinSet;

/// A generation that is explored.
#[derive(Clone, Copy)]
pub struct Generation<'a> {
    /// The workload, or what a recovery did.
    pub trace: &'a Trace,
    /// Of the workload's heap without a crash; none: there are none, or the full probe is not run.
    pub twins: Option<&'a TwinSet>,
    /// By number of the crash position: whether what a crash may leave there was explored elsewhere
    /// ([`crate::explore::unchanged`]). Empty: nowhere.
    pub unchanged: &'a [bool],
    /// The crash that it begins with; none: it is the workload.
    pub before: Option<&'a CrashBefore<'a>>,
}

impl Generation<'_> {
    /// What a crash may leave at this position was explored elsewhere.
    pub fn is_unchanged(&self, position: u32) -> bool {
        self.unchanged.get(position as usize).copied().unwrap_or(false)
    }

    /// How many crashes came before it.
    pub fn crashes_before(&self) -> u32 {
        std::iter::successors(self.before, |crash| crash.before).count() as u32
    }
}

/// A crash position that is explored.
#[derive(Clone, Copy)]
pub struct ExploredPosition<'v> {
    /// Events before the crash.
    pub position: u32,
    /// What it shows.
    pub view: &'v View,
    /// States that were judged before are to be judged again.
    pub is_expectation_new: bool,
}

/// A step to a crash position.
pub struct Step {
    /// Events before the crash.
    pub position: u32,
    /// What the position shows.
    pub view: View,
    /// States that were judged before are to be judged again.
    pub is_expectation_new: bool,
    /// Another heap has begun since the last step.
    pub is_new_case: bool,
}

/// A generation as it is stepped.
pub trait Course {
    /// Steps to the next crash position that is to be explored; none: there is none left.
    ///
    /// # Errors
    /// When the events contradict each other, or there is nobody to run recoveries.
    fn next(&mut self, examiner: &mut Examiner) -> Result<Option<Step>, Stop>;

    /// The heap there, and what is remembered of recoveries.
    fn here(&mut self) -> (&mut HeapCase, &mut Complete);
}
