// SPDX-License-Identifier: Apache-2.0
//! A heap case: one heap of a trace, stepped from crash position to crash position, with its model, its image and its history.

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crashgen::complete::CrashPosition;
use crashgen::edit::Repairing;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, LineId, Model, View};
use crashgen::trace::{Event, EventKind, OperationKind, SiteId, ThreadId, Trace};
use oracle::contract::Fill;
use oracle::{History, Judgement, Operation, Status};
use std::sync::Arc;

/// The operation at a crash position.
#[derive(Clone, Copy, Debug)]
pub struct CurrentOperation {
    /// What it is.
    pub operation: Operation,
    /// It has begun and not returned.
    pub is_pending: bool,
    /// The number of its begin event.
    pub began_at: u32,
}

/// What a recovery showed of the operations that were pending when power failed.
pub struct SettledOperations {
    /// Operations that have happened.
    pub happened: Vec<u32>,
    /// Operations that may or may not have happened.
    pub unclear: Vec<u32>,
}

impl SettledOperations {
    /// As the recovery was judged.
    pub fn of(judgement: &Judgement) -> Self {
        Self { happened: judgement.happened.clone(), unclear: judgement.unclear.clone() }
    }
}

/// A heap after a power failure.
pub struct CrashedHeap<'a> {
    /// What recovery finds.
    pub image: &'a mut CrashImage,
    /// What is expected of it.
    pub history: &'a History,
}

/// One heap at one crash position.
#[derive(Clone)]
pub struct HeapCase {
    /// The persistency model there.
    pub model: Model,
    /// The image, in one state after the other ([`HeapCase::crash`]).
    image: CrashImage,
    /// What the workload did so far.
    pub history: History,
    /// The crash position, counted within the case. It seeds samples, so that equal cases draw equal ones.
    pub position_in_case: u32,
    /// The pending operation that began last; while none is pending, the one that returned last.
    pub current: Option<CurrentOperation>,
    pending: Vec<CurrentOperation>,
    /// Event and site of the last store, or write by a system call.
    pub last_store: Option<(u32, SiteId)>,
    /// Events and sites of the file operations that power failure loses, as far as they have returned.
    lost_operations: Vec<(u32, SiteId)>,
    history_before: u64,
    threads: Vec<ThreadId>,
    /// What is taken for repaired.
    repairing: Option<Repairing>,
}

impl HeapCase {
    /// A heap that does not exist yet; its files lie in `folder` below the PM folder.
    pub fn new(config: &Config, trace: &Trace, folder: &str) -> Self {
        let is_content =
            (0..trace.sites.len()).map(|site| trace.is_runner_site(SiteId(site as u32), config.runner())).collect();
        let image = CrashImage::new(folder);
        let in_heap = |path: &Arc<str>| path.strip_prefix(image.prefix()).map(Arc::from);
        let mapped = trace.mapped.iter().filter_map(in_heap).collect();
        let history = History::new(config.contract.durable)
            .with_clean_close(config.contract.clean_close)
            .with_mapped_files(mapped);
        let history = if trace.has_unknown_operations() { history.without_operations() } else { history };
        let repairing = (!config.as_repaired.is_empty()).then(|| Repairing::new(config.as_repaired.clone()));
        let model = Model::new(config.model, is_content).losing(config.loss.operations.clone());
        Self { repairing, ..Self::begin(model, image, history) }
    }

    /// The heap as a power failure in this state of the position leaves it.
    pub fn crash(&mut self, view: &View, choices: &[Choice]) -> CrashedHeap<'_> {
        self.image.go_to(&self.model, view, choices);
        CrashedHeap { image: &mut self.image, history: &self.history }
    }

    /// The position, and an image in which a search shows the states that it needs.
    pub fn position<'c>(&'c mut self, view: &'c View) -> (CrashPosition<'c>, &'c mut CrashImage) {
        (CrashPosition { model: &self.model, view }, &mut self.image)
    }

    /// Some image of the position, for its files: all images of a position have the same ones.
    pub fn files(&self) -> &CrashImage {
        &self.image
    }

    /// What paths in the trace have before the path in the heap folder.
    pub fn prefix(&self) -> &str {
        self.image.prefix()
    }

    /// Hash of what a file system answers here.
    pub fn names_hash(&self) -> u128 {
        self.image.names_hash()
    }

    /// The case of the recovery that follows when power fails here, with the model that it begins with. The image moves there.
    pub fn next_generation(&mut self, model: Model) -> Self {
        Self::after_crash(model, std::mem::replace(&mut self.image, CrashImage::new("")), &self.history)
    }

    /// Takes the image back from the next generation, which may have changed these lines.
    pub fn take_back(&mut self, next: Self, lines: impl Iterator<Item = LineId>) {
        self.image = next.image;
        self.image.return_to(&mut self.model, lines, true);
    }

    /// The case of a recovery, with the model that it begins with and the image that it finds. Power failed where the history ends.
    pub fn after_crash(model: Model, image: CrashImage, history: &History) -> Self {
        let mut history = history.clone();
        history.power_fails();
        Self::begin(model, image, history)
    }

    fn begin(model: Model, image: CrashImage, history: History) -> Self {
        Self {
            model,
            image,
            history_before: history.state_id(),
            history,
            position_in_case: 0,
            current: None,
            pending: Vec::new(),
            last_store: None,
            lost_operations: Vec::new(),
            threads: Vec::new(),
            repairing: None,
        }
    }

    /// Events and sites of the file operations that power failure loses here, in order.
    pub fn lost_operations(&self) -> &[(u32, SiteId)] {
        &self.lost_operations
    }

    /// The site of the last store; the unknown one before the first.
    pub fn last_site(&self) -> SiteId {
        self.last_store.map_or(SiteId(0), |(_, site)| site)
    }

    /// The crash position before the begin of the oldest pending operation.
    pub fn pending_since(&self) -> Option<u32> {
        self.pending.iter().map(|pending| pending.began_at).min()
    }

    /// Steps over an event to the crash position after it. Returns what the position shows, and whether what is expected of
    /// the heap changed.
    ///
    /// # Errors
    /// When the markers contradict each other: the trace is bad.
    pub fn step(&mut self, number: u32, event: &Event) -> Result<(View, bool), EngineError> {
        self.step_model(number, event);
        self.mark(number, event)?;
        self.position_in_case += 1;
        let view = self.model.view();
        self.image.follow(&mut self.model, view.are_all_new);
        let is_expectation_new = self.history.state_id() != self.history_before || self.position_in_case == 1;
        self.history_before = self.history.state_id();
        Ok((view, is_expectation_new))
    }

    fn step_model(&mut self, number: u32, event: &Event) {
        let Some(repairing) = &mut self.repairing else { return self.model.step(number, event) };
        repairing.before(event).iter().for_each(|more| self.model.step(number, more));
        self.model.step(number, event);
        if repairing.is_at_once(event) {
            self.model.persist_at_once(number, event);
        }
    }

    /// As [`HeapCase::step`], over an event of a recovery, whose return settles what was pending when power failed.
    ///
    /// # Errors
    /// As [`HeapCase::step`].
    pub fn step_recovery(
        &mut self,
        number: u32,
        event: &Event,
        settled: &SettledOperations,
        fill: Fill,
    ) -> Result<(View, bool), EngineError> {
        let (view, is_expectation_new) = self.step(number, event)?;
        if !is_open_return(event) {
            return Ok((view, is_expectation_new));
        }
        self.history.recovered(&settled.happened, &settled.unclear, fill);
        self.history_before = self.history.state_id();
        Ok((view, true))
    }

    fn mark(&mut self, number: u32, event: &Event) -> Result<(), EngineError> {
        let begun = add_marker(&mut self.history, &mut self.threads, number, event)?;
        if let Some(operation) = begun {
            self.pending.push(CurrentOperation { operation, is_pending: true, began_at: number });
            self.current = self.pending.last().copied();
        }
        match &event.kind {
            EventKind::OperationReturn { index, .. } => self.note_return(*index),
            _ if self.model.loses(number) => self.lost_operations.push((number, event.site)),
            kind if kind.put().is_some() => self.last_store = Some((number, event.site)),
            _ => {}
        }
        Ok(())
    }

    fn note_return(&mut self, index: u32) {
        let Some(at) = self.pending.iter().position(|pending| pending.operation.index == index) else { return };
        let returned = CurrentOperation { is_pending: false, ..self.pending.remove(at) };
        self.current = Some(self.pending.last().copied().unwrap_or(returned));
    }
}

/// Whether recovery returns here.
pub fn is_open_return(event: &Event) -> bool {
    matches!(event.kind, EventKind::OperationReturn { kind: OperationKind::Open, .. })
}

/// Adds what a marker says to the history, and nothing for other events. Returns the operation that begins. `threads` numbers the threads
/// of all processes.
///
/// # Errors
/// When the markers contradict each other: the trace is bad.
pub fn add_marker(
    history: &mut History,
    threads: &mut Vec<ThreadId>,
    number: u32,
    event: &Event,
) -> Result<Option<Operation>, EngineError> {
    let added = match &event.kind {
        EventKind::OperationBegin { kind, index, slot, bytes, object } => {
            let thread = thread_number(threads, event.thread);
            let operation = operation(thread, *kind, *index, *slot, *bytes, *object)?;
            history.begin(operation).map(|()| Some(operation))
        }
        EventKind::OperationReturn { index, status, .. } => {
            let thread = thread_number(threads, event.thread);
            history.returned(thread, *index, Status::from(*status)).map(|()| None)
        }
        _ => Ok(None),
    };
    added.map_err(|error| bad_input(format!("the trace's markers at event {number}: {error}; take the trace again")))
}

fn thread_number(threads: &mut Vec<ThreadId>, thread: ThreadId) -> u32 {
    let known = threads.iter().position(|other| *other == thread);
    known.unwrap_or_else(|| {
        threads.push(thread);
        threads.len() - 1
    }) as u32
}

/// What the marker's numbers mean depends on the kind.
fn operation(
    thread: u32,
    kind: OperationKind,
    index: u32,
    slot: u32,
    bytes: u64,
    object: u32,
) -> Result<Operation, EngineError> {
    let plain = Operation { thread, kind, index, slot, bytes, object, from: 0, field: 0, other_slot: 0 };
    if kind == OperationKind::Write {
        return Ok(Operation { object: index + 1, from: object.into(), ..plain });
    }
    if !kind.has_field() {
        return Ok(plain);
    }
    let no_field = |_| bad_input(format!("{} of field {bytes}; take the trace again", kind.name()));
    Ok(Operation { bytes: 0, object: 0, field: u8::try_from(bytes).map_err(no_field)?, other_slot: object, ..plain })
}
