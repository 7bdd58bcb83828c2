// SPDX-License-Identifier: Apache-2.0
//! How the operations of a workload share a budget.
//!
//! The first half of a budget is for whatever comes first: an exploration that ends within it is what it is without a limit. From then on
//! the operations that are left share what is left. One that has used up its share is left where it is, in the middle of a crash position if
//! need be, and the next one begins with nothing remembered. What operations have left goes round again, in equal shares, until the budget
//! is used up or nothing is left.

use crate::base::budget::{Budget, Share};
use crate::explore::parts::is_end_of_window;
use crashgen::trace::Trace;
use std::time::{Duration, Instant};

/// The least share of an operation. What begins anew learns again what recovery loads: with less, no operation would get further than that.
const LEAST_RECOVERIES: u64 = 32;
/// The same in time.
const LEAST_TIME: Duration = Duration::from_secs(2);

/// Crash positions that are not explored, from the first to the last one.
pub type Range = (u32, u32);

/// Who shares a budget.
#[derive(Clone, Debug)]
pub struct Shares {
    /// The last crash position of each.
    ends: Vec<u32>,
    /// Nobody is left before then.
    free: Share,
    /// Who explore at the same time.
    jobs: u32,
}

impl Shares {
    /// The operations from this crash position on.
    pub fn of_operations(trace: &Trace, first: u32, budget: &Budget, jobs: u32) -> Self {
        let free = Share {
            deadline: budget.deadline.map(|deadline| half_way(Instant::now(), deadline)),
            recoveries: budget.recoveries.map(|limit| budget.before + limit.saturating_sub(budget.before) / 2),
        };
        let last = trace.events.len() as u32;
        let ends = (first..last).filter(|position| is_end_of_window(trace, *position)).chain([last]).collect();
        Self { ends, free, jobs }
    }

    /// What operations have left, in order.
    pub fn of_ranges(ranges: &[Range], jobs: u32) -> Self {
        let ends = ranges.iter().map(|(_, last)| *last).collect();
        Self { ends, free: Share { deadline: None, recoveries: None }, jobs }
    }

    /// The last crash position of the operation that this one is in.
    pub fn end_of(&self, position: u32) -> u32 {
        let at = self.ends.partition_point(|end| *end < position);
        self.ends.get(at).copied().unwrap_or(position)
    }

    /// What the operation that begins at this crash position may use of the budget after `run` recoveries: all, if it is the last one.
    pub fn share(&self, position: u32, run: u64, budget: &Budget) -> Share {
        let sharing = self.ends.len() - self.ends.partition_point(|end| *end < position);
        if sharing <= 1 {
            return Share { deadline: None, recoveries: None };
        }
        let used = budget.before + run;
        let recoveries = budget.recoveries.map(|limit| {
            let share = limit.saturating_sub(used) / sharing as u64;
            (used + share.max(LEAST_RECOVERIES)).max(self.free.recoveries.unwrap_or(0))
        });
        let now = Instant::now();
        let deadline = budget.deadline.map(|deadline| {
            let share = deadline.saturating_duration_since(now) * self.jobs / sharing as u32;
            let end = now + share.max(LEAST_TIME);
            self.free.deadline.map_or(end, |free| free.max(end))
        });
        Share { deadline, recoveries }
    }
}

fn half_way(from: Instant, to: Instant) -> Instant {
    from + to.saturating_duration_since(from) / 2
}

/// The same crash positions in as few ranges as there can be, in order.
pub fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(recoveries: u64) -> Budget {
        Budget { recoveries: Some(recoveries), ..Budget::NONE }
    }

    fn shares(ends: &[u32], free: u64) -> Shares {
        Shares { ends: ends.to_vec(), free: Share { deadline: None, recoveries: Some(free) }, jobs: 1 }
    }

    #[test]
    fn the_first_half_is_for_whatever_comes_first() {
        let three = shares(&[10, 20, 30], 500);
        assert_eq!(three.share(1, 0, &budget(1000)).recoveries, Some(500));
        assert_eq!(three.share(11, 500, &budget(1000)).recoveries, Some(750));
        assert_eq!(three.share(21, 750, &budget(1000)).recoveries, None, "the last one may use all");
    }

    #[test]
    fn what_an_operation_does_not_use_is_for_those_behind_it() {
        let three = shares(&[10, 20, 30], 0);
        assert_eq!(three.share(1, 0, &budget(900)).recoveries, Some(300));
        assert_eq!(three.share(11, 10, &budget(900)).recoveries, Some(10 + 445));
    }

    #[test]
    fn a_share_is_never_nothing() {
        let share = shares(&[10, 20, 30], 0).share(1, 99, &budget(100));
        assert_eq!(share.recoveries, Some(99 + LEAST_RECOVERIES));
    }

    #[test]
    fn an_operation_ends_where_its_range_ends() {
        let ranges = Shares::of_ranges(&[(3, 9), (15, 20)], 1);
        assert_eq!([3, 9, 15, 20].map(|position| ranges.end_of(position)), [9, 9, 20, 20]);
    }

    #[test]
    fn time_is_shared_too() {
        let deadline = Instant::now() + Duration::from_secs(100);
        let budget = Budget { deadline: Some(deadline), ..Budget::NONE };
        let share = Shares::of_ranges(&[(1, 1), (2, 2), (3, 3), (4, 4)], 2).share(1, 0, &budget);
        let left = deadline.duration_since(share.deadline.expect("a share"));
        assert!(left > Duration::from_secs(49) && left < Duration::from_secs(51));
    }

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(joined(vec![(5, 6), (1, 2), (3, 4), (9, 9)]), [(1, 6), (9, 9)]);
    }
}
