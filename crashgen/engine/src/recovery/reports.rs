// SPDX-License-Identifier: Apache-2.0
//! Heap reports of recoveries: how they are read, and how they are compared with and without the contents of objects.

use crate::base::error::EngineError;
use crashgen::complete::Doubt;
use oracle::{HeapReport, Outcome};
use std::rc::Rc;

/// Reads what the runner sent.
///
/// # Errors
/// When it is damaged or of another version.
pub fn parse(bytes: &[u8]) -> Result<HeapReport, EngineError> {
    HeapReport::parse(bytes).map_err(|error| EngineError::Infrastructure(format!("the runner's heap report: {error}")))
}

/// Why a run with this outcome says nothing of the target; none: it says something.
pub fn doubt_of(outcome: Outcome) -> Option<Doubt> {
    let unknown = |reason: &str| Some(Doubt::Unknown(reason.to_owned()));
    match outcome {
        Outcome::Overloaded => unknown("the machine was overloaded: the wall limit came first"),
        Outcome::Broken => unknown("the recovery could not be followed"),
        _ => None,
    }
}

/// The report without the contents of objects. ContentMemory belong to one image; what the stages did to the heap is the same for all images
/// with the same metadata.
pub fn without_contents(report: &HeapReport) -> HeapReport {
    let mut report = report.clone();
    for life in &mut report.lives {
        life.contents.clear();
    }
    report
}

/// A heap report of one image, or of all states of a leaf.
#[derive(Clone)]
pub struct SeenReport {
    /// As it came.
    pub own: Rc<HeapReport>,
    /// The same without contents.
    pub bare: Rc<HeapReport>,
    /// All the states have these contents.
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

    /// Whether the image may be one of the leaf's states, as far as heap reports show.
    pub fn holds(&self, image: &Self) -> bool {
        if self.has_own_contents { self.own == image.own } else { self.bare == image.bare }
    }
}
