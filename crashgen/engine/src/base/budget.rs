// SPDX-License-Identifier: Apache-2.0
//! Budgets of time and recoveries, and why no more recoveries are run.

use crate::base::config::Config;
use crate::base::error::EngineError;
use std::time::{Duration, Instant};

/// A finding that was shown in time is examined (since when, which lines matter) for so long after it: hangs take a second each.
const EXAMINING_GRACE_S: u64 = 10;

/// Why no more recoveries are run.
pub enum Stop {
    /// A budget is used up: in words.
    Budget(String),
    /// An operation has used up its share of a budget: which budget, in words.
    Share(String),
    /// The loads of this target cannot be followed: why.
    Unfit(String),
    /// The replay server failed.
    Error(EngineError),
}

/// What bounds the recoveries.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Seconds, for messages.
    pub time_s: f64,
    /// When they are over.
    pub deadline: Option<Instant>,
    /// Recoveries in all.
    pub recoveries: Option<u64>,
    /// Those that were run before what it bounds.
    pub before: u64,
    /// How much of it the operation under way may use.
    pub share: Share,
}

/// Where the share of an operation ends. None: it may use all that is left.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// In time.
    pub deadline: Option<Instant>,
    /// When so many recoveries were run in all.
    pub recoveries: Option<u64>,
}

impl Budget {
    /// No bound at all.
    pub const NONE: Self = Self {
        time_s: 0.0,
        deadline: None,
        recoveries: None,
        before: 0,
        share: Share { deadline: None, recoveries: None },
    };

    /// What is asked for; `deadline` is when its time is over.
    pub fn of(config: &Config, deadline: Option<Instant>) -> Self {
        let limits = &config.limits;
        Self { time_s: limits.time_s.unwrap_or_default(), deadline, recoveries: limits.recoveries, ..Self::NONE }
    }

    /// Whether one more recovery may be run after `run` of them.
    ///
    /// # Errors
    /// [`Stop::Budget`] or [`Stop::Share`] when it may not.
    pub fn check(&self, run: u64) -> Result<(), Stop> {
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let are_run = |limit: Option<u64>| limit.is_some_and(|limit| self.before + run >= limit);
        if is_over(self.deadline) {
            return Err(Stop::Budget(self.time_text()));
        }
        if are_run(self.recoveries) {
            return Err(Stop::Budget(self.recoveries_text()));
        }
        if is_over(self.share.deadline) {
            return Err(Stop::Share(self.time_text()));
        }
        if are_run(self.share.recoveries) {
            return Err(Stop::Share(self.recoveries_text()));
        }
        Ok(())
    }

    fn recoveries_text(&self) -> String {
        format!("limit of {} recoveries", self.recoveries.unwrap_or_default())
    }

    fn time_text(&self) -> String {
        format!("{} s limit", (self.time_s * 10.0).round() / 10.0)
    }

    /// Whether what a run did not show counts: when the time is over it may have been cut.
    ///
    /// # Errors
    /// [`EngineError::OutOfTime`] when it does not.
    pub fn check_negative(&self) -> Result<(), EngineError> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(EngineError::OutOfTime(self.time_text())),
            _ => Ok(()),
        }
    }

    /// Whether a finding may be examined further.
    ///
    /// # Errors
    /// [`EngineError::OutOfTime`] when it may not.
    pub fn check_examining(&self) -> Result<(), EngineError> {
        let end = self.deadline.and_then(|deadline| deadline.checked_add(Duration::from_secs(EXAMINING_GRACE_S)));
        match end {
            Some(end) if Instant::now() >= end => Err(EngineError::OutOfTime(self.time_text())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_in_time_is_examined_a_little_longer() {
        let ended = |seconds| {
            let deadline = Instant::now().checked_sub(Duration::from_secs(seconds));
            Budget { time_s: 20.0, deadline, ..Budget::NONE }
        };
        let just = ended(1);
        assert!(just.check(0).is_err() && just.check_negative().is_err() && just.check_examining().is_ok());
        let over = ended(EXAMINING_GRACE_S + 1).check_examining().expect_err("over");
        assert!(matches!(over, EngineError::OutOfTime(why) if why == "20 s limit"));
        assert!(Budget::NONE.check_examining().is_ok() && Budget::NONE.check_negative().is_ok());
    }
}
