// SPDX-License-Identifier: Apache-2.0
//! Where recovery stores to PM on a crash state. Of a state that has every store of its generation, what breaks a rule is what was stored,
//! or when, or what recovery makes of it.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::HeapCase;
use crate::recovery::recoverer::Recoverer;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, View};
use crashgen::replay::Probe;
use crashgen::symbols::Symbol;
use crashgen::trace::{Event, EventKind, OperationKind, SiteId};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The places in the order in which it first comes to them, up to where it returns; empty: it stores nothing. None: it does not return, or
/// what it does cannot be followed.
pub fn places(config: &Config, case: &mut HeapCase, view: &View, state: &[Choice]) -> Option<Vec<Symbol>> {
    if !config.sees_loads() {
        return None;
    }
    let next_file = case.model.files().keys().next_back().map_or(0, |file| file.0 + 1);
    let found = code_of(config, case.crash(view, state).image, next_file).unwrap_or_default()?;
    let mut places: Vec<Symbol> = Vec::new();
    for place in config.symbols().of_places(&found) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Some(places)
}

/// Module and offset; none: they are not known.
type Code = Option<(Arc<Path>, u64)>;

/// Of each place; none: what recovery does cannot be followed.
fn code_of(config: &Config, image: &mut CrashImage, next_file: u32) -> Result<Option<Vec<Code>>, EngineError> {
    let mut recoverer = Recoverer::start(&config.seeing_server("stores")?, Probe::First)?;
    let (_, loads, answer) = recoverer.trace(image, (1, false), &Rc::from([]))?;
    let recovery = recoverer.parse_recovery_trace(&answer, next_file, image.prefix())?;
    let is_return = |event: &Event| matches!(event.kind, EventKind::OperationReturn { kind: OperationKind::Open, .. });
    let Some(end) = recovery.events.iter().position(is_return) else { return Ok(None) };
    if recovery.gap.is_some() || loads.doubt.is_some() {
        return Ok(None);
    }
    let mut sites: Vec<SiteId> = Vec::new();
    for event in recovery.events[..end].iter().filter(|event| event.kind.put().is_some()) {
        if !sites.contains(&event.site) {
            sites.push(event.site);
        }
    }
    let place = |site: SiteId| recovery.sites[site.0 as usize].map(|code| recovery.place(code));
    Ok(Some(sites.into_iter().map(place).collect()))
}
