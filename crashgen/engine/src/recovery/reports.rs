// SPDX-License-Identifier: Apache-2.0
//! Heap reports of recoveries, as they are compared: with the contents of objects where these belong to the state, and without.

use crashgen::complete::Doubt;
use oracle::{HeapReport, Outcome};
use std::rc::Rc;

/// Why a run that ended so says nothing of the target.
pub fn doubt_of(outcome: Outcome) -> Option<Doubt> {
    let unknown = |reason: &str| Some(Doubt::Unknown(reason.to_owned()));
    match outcome {
        Outcome::Overloaded => unknown("the machine was overloaded: the wall limit came first"),
        Outcome::Broken => unknown("the runner failed"),
        _ => None,
    }
}

/// Objects' contents belong to one image; what the stages did to the heap belongs to all with the same metadata.
pub fn without_contents(report: &HeapReport) -> HeapReport {
    let mut report = report.clone();
    for life in &mut report.lives {
        life.contents.clear();
    }
    report
}

/// A heap report of states, of a leaf or of one image.
#[derive(Clone)]
pub struct SeenReport {
    /// As it came.
    pub own: Rc<HeapReport>,
    /// Without contents.
    pub bare: Rc<HeapReport>,
    /// The contents are those of all the states.
    has_own_contents: bool,
}

impl SeenReport {
    /// What a leaf shows.
    pub fn of_leaf(own: Rc<HeapReport>, has_own_contents: bool) -> Self {
        Self { bare: Rc::new(without_contents(&own)), own, has_own_contents }
    }

    /// What one image shows.
    pub fn of_image(own: HeapReport) -> Self {
        Self::of_leaf(Rc::new(own), true)
    }

    /// The image is one of the leaf's states, as far as heap reports tell.
    pub fn holds(&self, image: &Self) -> bool {
        if self.has_own_contents { self.own == image.own } else { self.bare == image.bare }
    }
}
