// SPDX-License-Identifier: Apache-2.0
//! The walk of one crash position: depth-first over what recovery can see there, from memory where it was seen before.
//!
//! The stack is explicit: a [`Frame`] for each load with more than one group on the way from the root to where the walk is. The walk
//! is deterministic, groups with newer choices first, so that the first run of a position is the one with everything persisted.
//! It can be left at any time: what was run is in memory, and another walk of the position passes it without a recovery.

use super::lines::Lines;
use super::memory::{Load, Memory, Node, NodeId};
use super::scanned::Scanned;
use super::skips::Skips;
use super::{ChoiceSet, Doubt, Leaf, LeafId, Looked, Recoveries, Run, Tables, UnitKey, Window};
use crate::image::CrashImage;
use crate::model::{Choice, LineContent, LineId, LineKey, Model, View};
use crate::trace::{Event, LINE_BYTES, UNIT_BYTES};
use planted::Fault;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64;

/// What a line holds that nobody has stored to yet.
const NEVER_STORED: LineContent = [0; LINE_BYTES as usize];
/// One new leaf in so many is run a second time, with another of its states, and so are the first ones.
const REPEAT_ONE_IN: u64 = 16;

/// What bounds a search; each is said when it is hit.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Leaves that are kept in a window.
    pub leaves: usize,
    /// Bytes that are kept in a window: the trie, the choices of lines, contents, outcomes.
    pub bytes: usize,
    /// Chooses the leaves that are run twice.
    pub seed: u64,
}

/// Shared by all searches of an exploration that run the same program: which leaves are run a second time.
#[derive(Debug, Default)]
pub struct Repeats {
    /// Leaves that were.
    leaves: Cell<u64>,
    /// Windows begun, of all searches.
    windows: Cell<u64>,
}

impl Repeats {
    /// So many leaves were run elsewhere.
    pub fn after(leaves: u64) -> Self {
        Self { leaves: Cell::new(leaves), windows: Cell::new(0) }
    }

    /// Leaves that were run with a second state.
    pub fn leaves(&self) -> u64 {
        self.leaves.get()
    }
}

/// The search through one case, window after window.
pub struct Search {
    bounds: Bounds,
    repeats: Rc<Repeats>,
    window: Option<Window>,
    windows: u64,
    /// Of the window, among those of all searches.
    window_number: u64,
    memory: Memory,
    /// What contents the window's runs read.
    scanned: Scanned,
    /// What the walks of this pass looked at, if somebody asks.
    looked: Option<Looked>,
    lines: Lines,
    skips: Skips,
    /// The lines' choices at the current position.
    pub tables: Tables,
    /// What made a run worthless: the target does not load what it did before, or not all loads are seen.
    pub doubts: BTreeSet<String>,
    /// Why the last walk did not see all of its position; none if it did.
    pub gap: Option<&'static str>,
}

/// A leaf that holds at a crash position, with the choices of each line that its loads narrowed.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which leaf.
    pub leaf: LeafId,
    /// Remaining choices by line; a line that is not here keeps all of its choices.
    pub sets: FxHashMap<LineId, ChoiceSet>,
    /// It was run at this position; otherwise it is answered from memory.
    pub is_new: bool,
}

/// How far the walk of a crash position has come.
pub struct Walk {
    next: Option<NodeId>,
    frames: Vec<Frame>,
    /// Sets of the lines that were narrowed.
    sets: FxHashMap<LineId, ChoiceSet>,
    /// Leaves from this one on are new.
    first_new_leaf: u32,
    gap: Option<&'static str>,
}

/// A load that can see more than one value.
struct Frame {
    node: NodeId,
    line: LineId,
    groups: Vec<(u64, ChoiceSet)>,
    next_group: usize,
    /// The line's set above the load; none: all choices.
    before: Option<ChoiceSet>,
}

/// What a walk looks at.
pub struct Position<'a> {
    /// The persistency model at the crash position.
    pub model: &'a Model,
    /// What the position shows.
    pub view: &'a View,
}

impl Search {
    /// Of a case that begins.
    pub fn new(bounds: Bounds, repeats: Rc<Repeats>) -> Self {
        Self {
            bounds,
            repeats,
            window: None,
            windows: 0,
            window_number: 0,
            memory: Memory::new(),
            scanned: Scanned::default(),
            looked: None,
            lines: Lines::default(),
            skips: Skips::default(),
            tables: Tables::default(),
            doubts: BTreeSet::new(),
            gap: None,
        }
    }

    /// Another case begins.
    pub fn start_case(&mut self) {
        *self = Self::new(self.bounds, self.repeats.clone());
    }

    /// Steps to a crash position (events before the crash). True if recovery may see there what it could not see at the
    /// position before, so that a walk is needed.
    ///
    /// # Errors
    /// When there is nobody to run recoveries.
    pub fn step<R: Recoveries>(
        &mut self,
        position: u32,
        at: &Position,
        events: &[Event],
        recoveries: &mut R,
    ) -> Result<bool, R::Stop> {
        let event = &events[position as usize - 1];
        self.skips.step(position, event, &self.lines);
        if self.window.as_ref().is_none_or(|window| position > window.last_position) {
            self.enter(Window::starting_at(position, at.model, at.view, events), recoveries)?;
            return Ok(true);
        }
        Ok(self.is_touched(event))
    }

    /// Begins a window, with an empty trie.
    ///
    /// # Errors
    /// When there is nobody to run recoveries.
    pub fn enter<R: Recoveries>(&mut self, window: Window, recoveries: &mut R) -> Result<(), R::Stop> {
        recoveries.watch(&window.hot)?;
        self.window = Some(window);
        self.windows += 1;
        self.window_number = self.repeats.windows.get() + 1;
        self.repeats.windows.set(self.window_number);
        self.memory = Memory::new();
        self.scanned = Scanned::default();
        self.skips.start_again();
        self.lines = Lines::default();
        self.tables.clear();
        Ok(())
    }

    /// What is kept in the window, bytes, about; the outcomes apart.
    pub fn kept_bytes(&self) -> usize {
        self.memory.bytes() + self.scanned.bytes() + self.tables.bytes() + self.lines.bytes() + self.skips.bytes()
    }

    /// Leaves that are kept in the window.
    pub fn leaf_count(&self) -> usize {
        self.memory.leaf_count()
    }

    /// Whether the event stores to what the trie loads.
    pub fn is_touched(&self, event: &Event) -> bool {
        UnitKey::of_store(event).any(|unit| self.lines.is_loaded(unit))
    }

    /// The units that the runs of this window loaded.
    pub fn loaded(&self) -> impl Iterator<Item = UnitKey> {
        self.lines.loaded()
    }

    /// The positions that follow are those of another model, or go on from another origin. It is noted what walks look at.
    pub fn begin_pass(&mut self) {
        self.skips.clear();
        self.looked = Some(Looked::default());
    }

    /// What walks looked at since the pass began.
    pub fn take_looked(&mut self) -> Looked {
        self.looked.take().unwrap_or_default()
    }

    /// These units of a line, a bit for each, decide something at the position; `line`: the model's, if it has it.
    pub fn look(&mut self, key: LineKey, units: u8, line: Option<LineId>, model: &Model) {
        if let Some(looked) = &mut self.looked {
            looked.at(key, units, line, model);
        }
    }

    /// Begins the walk of the position that was last stepped to.
    pub fn walk(&self) -> Walk {
        Walk {
            next: Some(Memory::ROOT),
            frames: Vec::new(),
            sets: FxHashMap::default(),
            first_new_leaf: self.memory.leaf_count() as u32,
            gap: None,
        }
    }

    /// The next leaf that holds at the position; none at the end.
    ///
    /// # Errors
    /// When a recovery is needed and cannot be run.
    pub fn next<R: Recoveries>(
        &mut self,
        walk: &mut Walk,
        at: &Position,
        image: &mut CrashImage,
        recoveries: &mut R,
    ) -> Result<Option<Held>, R::Stop> {
        loop {
            let Some(node) = walk.next.take() else {
                if !walk.turn(&mut self.memory) {
                    self.gap = walk.gap;
                    return Ok(None);
                }
                continue;
            };
            match self.memory.node(node) {
                Node::Unknown if self.memory.leaf_count() >= self.bounds.leaves => {
                    walk.gap = Some("more leaves in a window than the limit");
                }
                Node::Unknown if self.kept_bytes() + recoveries.kept_bytes() >= self.bounds.bytes => {
                    walk.gap = Some("more to remember in a window than the limit of memory");
                }
                Node::Unknown => {
                    self.explore(node, walk, at, image, recoveries)?;
                    walk.next = Some(node);
                }
                Node::Doubt(why) => walk.gap = Some(why),
                Node::Leaf(leaf) => {
                    let is_new = leaf.0 >= walk.first_new_leaf;
                    if is_new && self.is_chosen(leaf) && recoveries.is_worth_repeating(self.memory.leaf(leaf).outcome) {
                        self.repeat(node, leaf, walk, at, image, recoveries)?;
                    }
                    return Ok(Some(Held { leaf, sets: walk.sets.clone(), is_new }));
                }
                Node::Load { .. } => {
                    let end = self.skip_decided(node, at.model);
                    match self.memory.node(end) {
                        Node::Load { load, .. } => self.branch(end, load, walk, at),
                        _ => walk.next = Some(end),
                    }
                }
            }
        }
    }

    /// The next node on the way that is no load, or a load of a line with several choices.
    fn skip_decided(&mut self, begin: NodeId, model: &Model) -> NodeId {
        let mut node = begin;
        loop {
            node = self.skips.end(node);
            let Node::Load { load, first, next } = self.memory.node(node) else { return node };
            let Some(value) = self.decided(load, model) else { return node };
            if self.looked.is_some() && self.skips.note_look(load) {
                let line = self.lines.find(model, load);
                self.look(self.lines.key(load), 1 << load.unit, line, model);
            }
            let is_first = value == first;
            if is_first && next == NodeId(node.0 + 1) {
                self.skips.add(node, load);
            }
            node = if is_first { next } else { self.memory.child(node, value) };
        }
    }

    /// What the load sees if its line has one choice.
    fn decided(&mut self, load: Load, model: &Model) -> Option<u64> {
        if let Some(known) = self.skips.value(load) {
            return Some(known);
        }
        let content = match self.lines.find(model, load) {
            None => NEVER_STORED,
            Some(_) if planted::is(Fault::LeafAcrossFloor) => return None,
            Some(line) => *model.line(line).decided()?,
        };
        self.skips.decide(load, content);
        self.skips.value(load)
    }

    /// Groups the line's set by what the load sees, and goes on below the first group.
    fn branch(&mut self, node: NodeId, load: Load, walk: &mut Walk, at: &Position) {
        let line = self.lines.find(at.model, load).expect("a line that nobody stored to is decided");
        self.look(self.lines.key(load), 1 << load.unit, Some(line), at.model);
        let choices = self.tables.of(at.model, line);
        if choices.is_cut {
            walk.gap = Some("a line with more than 65,536 choices");
        }
        let before = walk.sets.get(&line).cloned();
        let mut groups = choices.groups(before.as_ref().unwrap_or(&choices.all), load.unit);
        if let [(value, _)] = groups[..] {
            walk.next = Some(self.memory.child(node, value));
            return;
        }
        if planted::is(Fault::DropBranch) {
            groups.truncate(groups.len() - 1);
        }
        walk.frames.push(Frame { node, line, groups, next_group: 0, before });
    }

    /// Runs the newest state that is left, and remembers what it loaded from this node on.
    fn explore<R: Recoveries>(
        &mut self,
        node: NodeId,
        walk: &mut Walk,
        at: &Position,
        image: &mut CrashImage,
        recoveries: &mut R,
    ) -> Result<(), R::Stop> {
        let state = self.newest_state(at, &walk.sets);
        image.go_to(at.model, at.view, &state);
        let run = recoveries.run(image)?;
        let (loads, path) = (self.lines.distinct(&run.loads), self.memory.path(node));
        match run.doubt.or_else(|| self.difference(at.model, &path, &loads).map(Doubt::Unknown)) {
            Some(Doubt::Unknown(why)) => {
                self.doubts.insert(why);
                self.memory.add_doubt(node, "runs that say nothing");
                return Ok(());
            }
            Some(Doubt::Bound(why)) => {
                self.memory.add_doubt(node, why);
                return Ok(());
            }
            None => {}
        }
        let mut end = node;
        for load in &loads[path.len()..] {
            let decided = self.decided(*load, at.model);
            let value = decided.unwrap_or_else(|| self.newest_value(at, walk, self.lines.unit(*load)));
            end = self.memory.add_load(end, *load, value);
            self.lines.add(*load);
        }
        let contents = distinct(&run.contents);
        let contents: Vec<_> = contents.into_iter().map(|unit| (unit, self.newest_value(at, walk, unit))).collect();
        let contents = self.scanned.add(contents.into_iter()).into();
        self.memory.add_leaf(end, Leaf { outcome: run.outcome, contents });
        Ok(())
    }

    fn newest_value(&mut self, at: &Position, walk: &Walk, unit: UnitKey) -> u64 {
        let (key, unit) = unit.place();
        let Some(line) = at.model.find(key) else { return 0 };
        let newest = walk.sets.get(&line).map_or(0, |set| set[0]);
        self.tables.of(at.model, line).unit(newest, unit)
    }

    /// Where a run left the path that its loads must follow.
    fn difference(&self, model: &Model, path: &[Load], loads: &[Load]) -> Option<String> {
        let at = (0..path.len()).find(|at| loads.get(*at) != Some(&path[*at]))?;
        let text = |load: Option<&Load>| {
            let Some(load) = load else { return "nothing more".to_owned() };
            let unit = self.lines.unit(*load);
            let path = model.files().get(&unit.file).and_then(|file| file.path.clone());
            format!("{} at {:#x}", path.as_deref().unwrap_or("a file without a name"), unit.number * UNIT_BYTES)
        };
        Some(format!(
            "recovery is not deterministic: after {at} loads that saw the same bytes it loaded {}, and in another run {}",
            text(path.get(at)),
            text(loads.get(at))
        ))
    }

    fn is_chosen(&self, leaf: LeafId) -> bool {
        let words = [self.bounds.seed, self.window_number, leaf.0.into()];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.repeats.leaves() < REPEAT_ONE_IN || xxh3_64(&bytes) % REPEAT_ONE_IN == 0
    }

    /// Runs the state of a leaf that is farthest from the one it was found with. If that one loads other units or has another
    /// outcome, then the target is not a function of the loads that are seen.
    fn repeat<R: Recoveries>(
        &mut self,
        node: NodeId,
        leaf: LeafId,
        walk: &Walk,
        at: &Position,
        image: &mut CrashImage,
        recoveries: &mut R,
    ) -> Result<(), R::Stop> {
        let state = self.oldest_state(at, &walk.sets);
        image.go_to(at.model, at.view, &state);
        let Run { outcome, loads, doubt, .. } = recoveries.run_again(image)?;
        self.repeats.leaves.set(self.repeats.leaves() + 1);
        let (loads, path) = (self.lines.distinct(&loads), self.memory.path(node));
        let doubt = doubt
            .map(Doubt::text)
            .or_else(|| self.difference(at.model, &path, &loads))
            .or_else(|| self.difference(at.model, &loads, &path));
        let is_same = recoveries.is_same(self.memory.leaf(leaf).outcome, outcome);
        let other = || "two states that gave recovery the same bytes at every load it made have different heap reports";
        self.doubts.extend(doubt.or_else(|| (!is_same).then(|| other().to_owned())));
        Ok(())
    }

    /// The state closest to everything persisted.
    pub fn newest_state(&mut self, at: &Position, sets: &FxHashMap<LineId, ChoiceSet>) -> Vec<Choice> {
        let of = |tables: &mut Tables, line| sets.get(&line).map(|set| tables.of(at.model, line).choice(set[0]));
        at.view.lines.iter().map(|open| of(&mut self.tables, open.id).unwrap_or(open.newest())).collect()
    }

    /// The state closest to the floor.
    pub fn oldest_state(&mut self, at: &Position, sets: &FxHashMap<LineId, ChoiceSet>) -> Vec<Choice> {
        let last = |set: &ChoiceSet| set[set.len() - 1];
        let of = |tables: &mut Tables, line| sets.get(&line).map(|set| tables.of(at.model, line).choice(last(set)));
        at.view.lines.iter().map(|open| of(&mut self.tables, open.id).unwrap_or_default()).collect()
    }

    /// Whether what the leaf's run read of contents is what every state of the leaf holds there.
    pub fn has_own_contents(&mut self, at: &Position, held: &Held) -> bool {
        let mut is_own = true;
        for number in self.memory.leaf(held.leaf).contents.clone().iter() {
            let (scanned, line) = self.scanned.find(*number, at.model);
            self.look(scanned.key, scanned.units, line, at.model);
            let set = line.and_then(|line| held.sets.get(&line));
            is_own = is_own && self.scanned.is_held(*number, at.model, &mut self.tables, set);
        }
        is_own
    }

    /// A leaf of the current window.
    pub fn leaf(&self, id: LeafId) -> &Leaf {
        self.memory.leaf(id)
    }

    /// The window that was last begun.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// Windows so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }
}

impl Walk {
    /// Goes to the next branch: the nearest load on the way back that has a group left. False at the end.
    fn turn(&mut self, memory: &mut Memory) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            if let Some((value, set)) = frame.groups.get(frame.next_group) {
                frame.next_group += 1;
                self.sets.insert(frame.line, set.clone());
                self.next = Some(memory.child(frame.node, *value));
                return true;
            }
            match frame.before.take() {
                Some(before) => self.sets.insert(frame.line, before),
                None => self.sets.remove(&frame.line),
            };
            self.frames.pop();
        }
        false
    }
}

/// In their order, each once.
fn distinct(keys: &[UnitKey]) -> Vec<UnitKey> {
    let mut seen = FxHashSet::default();
    keys.iter().copied().filter(|key| seen.insert(*key)).collect()
}
