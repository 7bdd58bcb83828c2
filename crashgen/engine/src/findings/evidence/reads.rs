// SPDX-License-Identifier: Apache-2.0
//! The load in recovery that sees what a crash state lacks.
//!
//! Recovery is a function of what it loads. So its run on the state and its run on everything persisted are the same up to the first load of a
//! unit in which the two images differ.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::HeapCase;
use crate::recovery::recoverer::Recoverer;
use crashgen::complete::UnitKey;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, Model, View};
use crashgen::replay::{Manner, Probe};
use crashgen::symbols::Symbol;
use crashgen::{LINE_BYTES, UNIT_BYTES};
use std::rc::Rc;

/// Where recovery, or the probe after it, first reads what the state lacks. None: nothing is lacking, the loads of the target cannot all
/// be seen, the first one is at a place that says nothing (in the C library, in a header of C++'s), or only the runner's scan of contents
/// reads it.
pub fn first(config: &Config, case: &mut HeapCase, view: &View, state: &[Choice]) -> Option<Symbol> {
    let differing: Rc<[UnitKey]> = differing_units(&case.model, view, state).into();
    if differing.is_empty() || !config.sees_loads() {
        return None;
    }
    read_of(config, case.crash(view, state).image, &differing).unwrap_or_default()
}

fn read_of(config: &Config, image: &mut CrashImage, differing: &Rc<[UnitKey]>) -> Result<Option<Symbol>, EngineError> {
    // Nobody records the loads of a long life: those of the full probe begin it.
    let probe = if config.is_full() { Probe::Full } else { Probe::First };
    let mut recoverer = Recoverer::start(&config.seeing_server("reads")?, probe)?;
    let (_, loads) = recoverer.record(image, probe, differing, Manner::Afresh)?;
    let first = loads.sites.first().copied().flatten().filter(|_| loads.doubt.is_none());
    let place = first.map(|site| recoverer.place(site)).transpose()?;
    let mut places = config.symbols().of_places(place.map(Some).as_slice());
    Ok(places.pop().filter(|place| !place.is_of_system()))
}

/// Units that differ between the state and everything persisted.
fn differing_units(model: &Model, view: &View, state: &[Choice]) -> Vec<UnitKey> {
    let mut units = Vec::new();
    for (open, choice) in view.lines.iter().zip(state) {
        let line = model.line(open.id);
        let (there, whole) = (line.content(*choice).0, line.content(open.newest()).0);
        let first = line.key.number * LINE_BYTES / UNIT_BYTES;
        let pairs = there.chunks(UNIT_BYTES as usize).zip(whole.chunks(UNIT_BYTES as usize));
        let differing = (first..).zip(pairs).filter(|(_, (there, whole))| there != whole);
        units.extend(differing.map(|(number, _)| UnitKey { file: line.key.file, number }));
    }
    units
}
