// SPDX-License-Identifier: Apache-2.0
//! What a persistency model works on: the floor of each line, and promises that raise it when something happens.

use super::files::Files;
use super::line::Line;
use super::line_ids::LineId;
use super::lines::Lines;
use super::view::OpenLine;
use crate::trace::ThreadId;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::rc::Rc;

/// What a promise waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The next store, flush or fence, of any thread.
    AnyInstruction,
    /// The next fence of this thread.
    FenceOf(ThreadId),
}

/// Of a line that was flushed: so many of its ordered stores are guaranteed when the promise is kept.
#[derive(Clone, Copy, Debug)]
struct Flushed {
    line: LineId,
    ordered: u64,
}

/// What one thread's fence guarantees.
#[derive(Clone, Debug, Default)]
struct Unfenced {
    flushed: Vec<Flushed>,
    /// Lines and events whose floating units wait.
    units: Vec<(LineId, u32)>,
}

/// The lines, what is guaranteed of each, and what waits to be.
#[derive(Clone)]
pub struct Floors {
    pub(super) lines: Lines,
    /// Lines with more than one choice, by number, as a view shows them.
    open: Rc<Vec<OpenLine>>,
    /// Lines whose content changed since [`Floors::take_changed`].
    changed: Vec<LineId>,
    /// Lines that changed in this step, each with the store that has just touched it, if one has: `open` and `changed` do not have them yet.
    stale: Vec<(LineId, Option<u32>)>,
    /// What waits for the next instruction.
    flushed: Vec<Flushed>,
    unfenced: FxHashMap<ThreadId, Unfenced>,
    /// Some line had more floating units than are enumerated.
    has_bounded_line: bool,
}

/// What persistency models do.
impl Floors {
    /// Every ordered store that the line holds is guaranteed.
    pub fn guarantee(&mut self, line: LineId) {
        let ordered = self.lines.get(line).ordered_count();
        self.raise_floor(Flushed { line, ordered });
    }

    /// The floating units that this event put into the line are guaranteed.
    pub fn guarantee_units(&mut self, line: LineId, event: u32) {
        self.lines.get_mut(line).decide_floating(event);
        self.stale.push((line, None));
    }

    /// Whatever was stored so far is guaranteed, except what the kernel wrote.
    pub fn guarantee_everything(&mut self) {
        for OpenLine { id, .. } in self.open.clone().iter() {
            self.guarantee(*id);
        }
        self.keep(Until::AnyInstruction);
        self.waiting_threads().into_iter().for_each(|thread| self.keep(Until::FenceOf(thread)));
    }

    /// The ordered stores that the line holds now will be guaranteed.
    pub fn promise(&mut self, line: LineId, until: Until) {
        let flushed = Flushed { line, ordered: self.lines.get(line).ordered_count() };
        match until {
            Until::AnyInstruction => self.flushed.push(flushed),
            Until::FenceOf(thread) => self.unfenced.entry(thread).or_default().flushed.push(flushed),
        }
    }

    /// The floating units that this event put into the line will be guaranteed by a fence of the thread.
    pub fn promise_units(&mut self, line: LineId, event: u32, thread: ThreadId) {
        self.unfenced.entry(thread).or_default().units.push((line, event));
    }

    /// What waits for this is guaranteed.
    pub fn keep(&mut self, until: Until) {
        match until {
            Until::AnyInstruction => {
                for flushed in std::mem::take(&mut self.flushed) {
                    self.raise_floor(flushed);
                }
            }
            Until::FenceOf(thread) => {
                let Some(Unfenced { mut flushed, mut units }) = self.unfenced.remove(&thread) else { return };
                // The last lines first: each leaves the list of those with choices, which moves up what is behind it.
                flushed.sort_by_key(|flushed| Reverse(flushed.line));
                flushed.into_iter().for_each(|flushed| self.raise_floor(flushed));
                units.sort_by_key(|(line, _)| Reverse(*line));
                units.into_iter().for_each(|(line, event)| self.guarantee_units(line, event));
            }
        }
    }

    /// Threads whose next fence some promise waits for.
    fn waiting_threads(&self) -> Vec<ThreadId> {
        self.unfenced.keys().copied().collect()
    }

    fn raise_floor(&mut self, flushed: Flushed) {
        self.lines.get_mut(flushed.line).raise_floor(flushed.ordered);
        self.stale.push((flushed.line, None));
    }
}

/// What the model does that steps through the trace.
impl Floors {
    pub(super) fn new() -> Self {
        Self {
            lines: Lines::new(),
            open: Rc::default(),
            changed: Vec::new(),
            stale: Vec::new(),
            flushed: Vec::new(),
            unfenced: FxHashMap::default(),
            has_bounded_line: false,
        }
    }

    /// The same lines, with another origin, for what happens after a crash: no promise outlives it.
    pub(super) fn after_crash(&self) -> Self {
        let mut next = Self { lines: self.lines.clone(), open: self.open.clone(), ..Self::new() };
        next.lines.set_origin();
        next
    }

    pub(super) fn open(&self) -> &Rc<Vec<OpenLine>> {
        &self.open
    }

    pub(super) fn take_changed(&mut self) -> Vec<LineId> {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn has_bounded_line(&self) -> bool {
        self.has_bounded_line
    }

    /// No promise waits.
    pub(super) fn is_settled(&self) -> bool {
        self.flushed.is_empty() && self.unfenced.is_empty()
    }

    /// The line changed. `newest`: the store that has just touched it, if one has.
    pub(super) fn mark_changed(&mut self, line: LineId, newest: Option<u32>) {
        self.stale.push((line, newest));
    }

    /// Brings `open` and `changed` up to date, at the end of a step.
    pub(super) fn refresh(&mut self, files: &Files) {
        let stale = std::mem::take(&mut self.stale);
        for (at, (line, newest)) in stale.iter().enumerate() {
            if stale.get(at + 1).is_none_or(|(next, _)| next != line) {
                self.refresh_line(*line, *newest, files);
            }
        }
        self.stale = stale;
        self.stale.clear();
    }

    fn refresh_line(&mut self, id: LineId, newest: Option<u32>, files: &Files) {
        let origin = self.lines.origin();
        let line = self.lines.get_mut(id);
        line.fold(origin);
        self.has_bounded_line |= line.is_bounded();
        let line: &Line = line;
        let is_open = line.choice_count() > 1 && files.is_reachable(line.key.file);
        match (is_open, self.open.binary_search_by_key(&id, |open| open.id)) {
            (true, Ok(at)) => Rc::make_mut(&mut self.open)[at] = OpenLine::of(id, line, newest),
            (true, Err(at)) => Rc::make_mut(&mut self.open).insert(at, OpenLine::of(id, line, newest)),
            (false, Ok(at)) => drop(Rc::make_mut(&mut self.open).remove(at)),
            (false, Err(_)) => {}
        }
        self.changed.push(id);
    }

    /// Nothing of these lines is new any more.
    pub(super) fn forget_new(&mut self, lines: &[LineId]) {
        for id in lines {
            if let Ok(at) = self.open.binary_search_by_key(id, |open| open.id) {
                Rc::make_mut(&mut self.open)[at].forget_new();
            }
        }
    }
}
