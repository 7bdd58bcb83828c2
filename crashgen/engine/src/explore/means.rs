// SPDX-License-Identifier: Apache-2.0
//! What a part of a trace is explored with, and where its results go: the same for all of its crash positions, in every generation.

use crate::base::budget::{Budget, Stop};
use crate::base::config::Config;
use crate::explore::certificate::Tally;
use crate::explore::later::first_crash::FirstCrashes;
use crate::explore::outcomes::OutcomeSet;
use crate::explore::shares::Shares;
use crate::findings::finding::{Finding, Findings};
use crate::findings::onset::OnsetFinder;
use crate::recovery::recoverer::Recoverer;
use crashgen::complete::Repeats;
use crashgen::replay::Probe;
use crashgen::strategy::Strategy;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long an exploration goes on behind a finding that may be repaired.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// Behind these findings to the end.
    pub passed: &'a BTreeSet<String>,
    /// Behind the first other one for so many recoveries.
    pub recoveries: u64,
}

/// What a part is explored with.
pub struct Means<'a> {
    /// What is asked for.
    pub config: &'a Config,
    /// Which states are run.
    pub strategy: &'static dyn Strategy,
    /// What bounds the recoveries.
    pub budget: Budget,
    /// Who shares it.
    pub shares: Option<&'a Shares>,
    /// The last crash position of the operation that has the share under way.
    pub sharing_to: u32,
    /// Nobody waits for the rest.
    pub is_over: &'a AtomicBool,
    /// When the exploration ends behind a finding that may be repaired; none: it goes on.
    pub patience: Option<Patience<'a>>,
    /// Recovers the images of the part.
    pub recoverer: &'a mut Recoverer,
    /// How much of the probe script is run.
    pub probe: Probe,
    /// Since when everything persisted shows what is wrong.
    pub onsets: &'a mut OnsetFinder,
    /// What first crashes break by themselves.
    pub first_crashes: FirstCrashes,
    /// Which leaves were run a second time.
    pub repeats: ProgramRepeats,
}

impl Means<'_> {
    /// Whether one more recovery may be run.
    ///
    /// # Errors
    /// [`Stop::Budget`] or [`Stop::Share`] when it may not.
    pub fn check_budget(&self) -> Result<(), Stop> {
        self.budget.check(self.recoverer.recoveries)
    }

    /// A crash position of the workload is explored next: with it, an operation may begin that has a share of its own.
    pub fn enter(&mut self, position: u32) {
        if let Some(shares) = self.shares.filter(|_| position > self.sharing_to) {
            self.budget.share = shares.share(position, self.recoverer.recoveries, &self.budget);
            self.sharing_to = shares.end_of(position);
        }
    }

    /// Nobody waits for what is left.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Which leaves were run a second time, by what was run: for all generations of a part.
#[derive(Clone)]
pub struct ProgramRepeats {
    /// Of the probe.
    pub probe: Rc<Repeats>,
    /// Of recovery with its follow-up, as it is traced.
    pub traced: Rc<Repeats>,
}

/// No leaf after these is run twice, or shown to the referee, because it is one of the first.
const LOOKED_AT: u64 = 1 << 20;
/// Of the leaves that are run twice, the referee sees one in so many, and of the first ones more: a traced run costs as much as a hundred
/// others, and of a target with loads past the hooks the sooner it is known the better.
pub const REFEREE_ONE_IN: u64 = 64;
/// Has no factor in common with [`REFEREE_ONE_IN`].
const PART_STRIDE: u64 = 37;

impl ProgramRepeats {
    /// Of a part of the trace, from 0: after the first one as if leaves had been run twice before, another number for each part, so that
    /// the shares that are looked at closely are those of one long search.
    pub fn of_part(number: usize) -> Self {
        let before = if number == 0 { 0 } else { LOOKED_AT + number as u64 * PART_STRIDE % REFEREE_ONE_IN };
        let begun = || Rc::new(Repeats::after(before));
        Self { probe: begun(), traced: begun() }
    }
}

/// Where the results of a part go, but for what is counted.
pub struct Results<'a> {
    /// Hears of progress and of new findings.
    pub listener: &'a mut dyn Listener,
    /// What is wrong.
    pub findings: Findings,
    /// What recoveries showed, if somebody asks.
    pub outcomes: Option<OutcomeSet>,
}

impl Results<'_> {
    /// Findings that may be repaired by a flush or a fence, but for those that were passed.
    pub fn repairable<'r>(&'r self, patience: &'r Patience) -> impl Iterator<Item = &'r Finding> {
        let findings = self.findings.all().iter();
        findings.filter(|finding| finding.lost.is_some() && !finding.is_later && !patience.passed.contains(&finding.id))
    }
}

/// Whom an exploration says what it finds.
pub trait Listener {
    /// How far it is.
    fn progress(&mut self, position: u32, recoveries: u64);
    /// A new finding.
    fn finding(&mut self, finding: &Finding);
    /// Everything before this crash position was explored; what was counted of that.
    fn so_far(&mut self, position: u32, tally: &Tally, recoverer: &mut Recoverer);
}
