// SPDX-License-Identifier: Apache-2.0
//! A recovery trace: what a recovery and its follow-up did, event by event, as the runner reports it. It is explored as the workload's
//! trace is.

use crashgen::LINE_BYTES;
use crashgen::model::{LineKey, Model};
use crashgen::replay::{CONTENT_SITE, RecoveryTrace};
use crashgen::trace::{Event, EventKind, FileEffect, Module, Site, SiteId, Trace};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Numbers for the sites of recovery traces, by module and the offset in its file. They hold in the whole exploration.
#[derive(Default)]
pub struct RecoverySites {
    /// How many sites and modules the workload's trace has. Those of recovery traces come after them, in every generation.
    workload: Option<(usize, usize)>,
    modules: Vec<Arc<Path>>,
    numbers: FxHashMap<(usize, u64), u32>,
}

impl RecoverySites {
    fn number(&mut self, (module, offset): (Arc<Path>, u64)) -> u32 {
        let known = self.modules.iter().position(|known| *known == module);
        let module = known.unwrap_or_else(|| {
            self.modules.push(module);
            self.modules.len() - 1
        });
        let next = self.numbers.len() as u32;
        *self.numbers.entry((module, offset)).or_insert(next)
    }

    /// How many of the sites are the workload's; none: there was no recovery trace yet.
    pub fn of_workload(&self) -> Option<u32> {
        self.workload.map(|(sites, _)| sites as u32)
    }

    /// For each site of a recovery trace, whether it stores application content.
    pub fn are_content(&self, recovery: &Trace) -> Vec<bool> {
        let content = self.workload.map(|(sites, _)| sites);
        (0..recovery.sites.len()).map(|site| Some(site) == content).collect()
    }
}

/// What the runner reported, as a trace after the one in which power failed. Its sites have the same numbers in all recovery traces.
pub fn trace_of_recovery(sites: &mut RecoverySites, before: &Trace, recovery: &RecoveryTrace) -> Trace {
    let (workload_sites, modules) = *sites.workload.get_or_insert((before.sites.len(), before.modules.len()));
    let first = workload_sites as u32;
    let number = |sites: &mut RecoverySites, site| first + 1 + sites.number(recovery.place(site));
    let numbers: Vec<u32> = recovery.sites.iter().map(|site| site.map_or(0, |site| number(sites, site))).collect();
    let mut known: Vec<(u32, (usize, u64))> = sites.numbers.iter().map(|(place, number)| (*number, *place)).collect();
    known.sort_unstable();
    let content = Site { module: None, offset: 0, caller: None };
    let of_target = known.into_iter().map(|(_, (module, offset))| Site {
        module: Some((modules + module) as u32),
        offset,
        caller: None,
    });
    let number = |site: SiteId| if site == CONTENT_SITE { first } else { numbers[site.0 as usize] };
    let events = recovery.events.iter().map(|event| Event { site: SiteId(number(event.site)), ..event.clone() });
    let later_modules = sites.modules.iter().map(|path| Module { path: path.to_path_buf(), build_id: String::new() });
    Trace {
        events: events.collect(),
        flushes_elsewhere: Vec::new(),
        sites: before.sites[..workload_sites].iter().cloned().chain([content]).chain(of_target).collect(),
        modules: before.modules[..modules].iter().cloned().chain(later_modules).collect(),
        files: before.files.iter().chain(&recovery.made).cloned().collect(),
        mapped: before.mapped.clone(),
        unsynced: before.unsynced.clone(),
        unsupported: Vec::new(),
        hash: before.hash.clone(),
        tracer: before.tracer.clone(),
        processes: 1,
    }
}

/// Lines that the events store to, flush, or take away.
pub fn touched(model: &Model, events: &[Event]) -> BTreeSet<LineKey> {
    let mut touched: BTreeSet<LineKey> = events.iter().filter_map(line_of).flatten().collect();
    for event in events {
        let EventKind::FileEnd { effect, .. } = &event.kind else { continue };
        let is_kept = matches!(
            **effect,
            FileEffect::Create { .. } | FileEffect::Extend { .. } | FileEffect::Sync { .. } | FileEffect::Write { .. }
        );
        let names: &[&std::sync::Arc<str>] = match &**effect {
            FileEffect::Unlink { path } => &[path],
            FileEffect::Rename { from, to } => &[from, to],
            _ => &[],
        };
        let is_meant = |path: &std::sync::Arc<str>| names.contains(&path);
        let files = model.files().iter();
        let by_name = files.filter(|(_, state)| state.path.as_ref().is_some_and(is_meant)).map(|(file, _)| *file);
        for file in by_name.chain(effect.file().filter(|_| !is_kept)) {
            touched.extend(model.line_numbers(file).map(|number| LineKey { file, number }));
        }
    }
    touched
}

/// The lines that the event stores to or flushes; none for other events.
pub fn line_of(event: &Event) -> Option<impl Iterator<Item = LineKey> + use<>> {
    let (file, offset, bytes) = match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => (*file, *offset, bytes.len() as u64),
        EventKind::Flush { file, offset, .. } => (*file, *offset, 1),
        EventKind::FileEnd { effect, .. } => match &**effect {
            FileEffect::Write { file, offset, bytes } => (*file, *offset, bytes.len() as u64),
            _ => return None,
        },
        _ => return None,
    };
    let numbers = offset / LINE_BYTES..(offset + bytes).div_ceil(LINE_BYTES);
    Some(numbers.map(move |number| LineKey { file, number }))
}
