// SPDX-License-Identifier: Apache-2.0
//! The traversal of one crash position: depth-first over what recovery can see there. What was run before is answered from the trie ([`Trie`]).
//!
//! The stack is explicit: a [`Frame`] for each load with more than one group on the way from the root to where the traversal is. The
//! traversal is deterministic and takes groups with newer choices first, so the first run of a position is the one with everything
//! persisted. A caller may stop a traversal at any time: the trie holds what was run, and the next traversal of the position runs nothing of
//! it again.

use super::loaded_lines::LoadedLines;
use super::scanned::Scanned;
use super::skips::Skips;
use super::trie::{Load, Node, NodeId, Trie};
use super::{ChoiceSet, Dependencies, Doubt, Leaf, LeafId, Recoveries, Run, Tables, UnitKey, Window};
use crate::image::CrashImage;
use crate::model::{Choice, LineContent, LineId, LineKey, Model, View};
use crate::trace::{Event, LINE_BYTES, UNIT_BYTES};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_64;

/// What a line holds that nobody has stored to yet.
const NEVER_STORED: LineContent = [0; LINE_BYTES as usize];
/// One new leaf in so many is run a second time, with another of its states. The first leaves all are.
const REPEAT_ONE_IN: u64 = 16;

/// What bounds a search. The certificate says which bounds were hit.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most leaves of a window.
    pub leaves: usize,
    /// Most bytes of a window: the trie, the choices of lines, contents, outcomes.
    pub bytes: usize,
    /// Chooses the leaves that are run twice.
    pub seed: u64,
}

/// Which leaves are run a second time. All searches of an exploration that run the same program share it.
#[derive(Debug, Default)]
pub struct Repeats {
    /// Leaves that were run a second time.
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
    /// The window's number among those of all searches.
    window_number: u64,
    trie: Trie,
    /// What the window's runs read of objects' contents.
    scanned: Scanned,
    /// What the traversals depend on since [`Search::restart_positions`]; none: nobody asks.
    dependencies: Option<Dependencies>,
    lines: LoadedLines,
    skips: Skips,
    /// The lines' choices at the current position.
    pub tables: Tables,
    /// What made a run worthless: the target does not load what it did before, or not all loads are seen.
    pub doubts: BTreeSet<String>,
    /// Why the last traversal did not cover all of its position; none if it did.
    pub gap: Option<&'static str>,
}

/// The states of a crash position that end in one leaf: each line keeps the choices that its loads left.
#[derive(Clone, Debug)]
pub struct LeafStates {
    /// Which leaf.
    pub leaf: LeafId,
    /// Remaining choices by line; a line that is not here keeps all of its choices.
    pub sets: FxHashMap<LineId, ChoiceSet>,
    /// The leaf was run at this position; otherwise the trie had it.
    pub is_new: bool,
}

/// How far the traversal of a crash position has come.
pub struct Traversal {
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

/// What is traversed.
pub struct CrashPosition<'a> {
    /// The persistency model at the crash position.
    pub model: &'a Model,
    /// Its lines with choices.
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
            trie: Trie::new(),
            scanned: Scanned::default(),
            dependencies: None,
            lines: LoadedLines::default(),
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
    /// position before, so that a traversal is needed.
    ///
    /// # Errors
    /// When no recovery can be run.
    pub fn step<R: Recoveries>(
        &mut self,
        position: u32,
        at: &CrashPosition,
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
    /// When no recovery can be run.
    pub fn enter<R: Recoveries>(&mut self, window: Window, recoveries: &mut R) -> Result<(), R::Stop> {
        recoveries.watch(&window.varying)?;
        self.window = Some(window);
        self.windows += 1;
        self.window_number = self.repeats.windows.get() + 1;
        self.repeats.windows.set(self.window_number);
        self.trie = Trie::new();
        self.scanned = Scanned::default();
        self.skips.start_again();
        self.lines = LoadedLines::default();
        self.tables.clear();
        Ok(())
    }

    /// Memory that the window takes, in bytes, about, without the outcomes.
    pub fn memory_bytes(&self) -> usize {
        self.trie.bytes() + self.scanned.bytes() + self.tables.bytes() + self.lines.bytes() + self.skips.bytes()
    }

    /// Leaves of the window.
    pub fn leaf_count(&self) -> usize {
        self.trie.leaf_count()
    }

    /// Whether the event stores to what the trie loads.
    pub fn is_touched(&self, event: &Event) -> bool {
        UnitKey::of_store(event).any(|unit| self.lines.is_loaded(unit))
    }

    /// The units that the runs of this window loaded.
    pub fn loaded(&self) -> impl Iterator<Item = UnitKey> {
        self.lines.loaded()
    }

    /// The positions that follow are those of another model, or go on from another origin. From here on dependencies are noted.
    pub fn restart_positions(&mut self) {
        self.skips.clear();
        self.dependencies = Some(Dependencies::default());
    }

    /// What the traversals depend on since [`Search::restart_positions`].
    pub fn take_dependencies(&mut self) -> Dependencies {
        self.dependencies.take().unwrap_or_default()
    }

    /// What is found at the position depends on these units of a line, a bit for each; `line`: its number, if the model has it.
    pub fn depend_on(&mut self, key: LineKey, units: u8, line: Option<LineId>, model: &Model) {
        if let Some(dependencies) = &mut self.dependencies {
            dependencies.add(key, units, line, model);
        }
    }

    /// Begins the traversal of the position that was last stepped to.
    pub fn traversal(&self) -> Traversal {
        Traversal {
            next: Some(Trie::ROOT),
            frames: Vec::new(),
            sets: FxHashMap::default(),
            first_new_leaf: self.trie.leaf_count() as u32,
            gap: None,
        }
    }

    /// The next leaf that some states of the position end in; none at the end.
    ///
    /// # Errors
    /// When a recovery is needed and cannot be run.
    pub fn next<R: Recoveries>(
        &mut self,
        traversal: &mut Traversal,
        at: &CrashPosition,
        image: &mut CrashImage,
        recoveries: &mut R,
    ) -> Result<Option<LeafStates>, R::Stop> {
        loop {
            let Some(node) = traversal.next.take() else {
                if !traversal.turn(&mut self.trie) {
                    self.gap = traversal.gap;
                    return Ok(None);
                }
                continue;
            };
            match self.trie.node(node) {
                Node::Unknown if self.trie.leaf_count() >= self.bounds.leaves => {
                    traversal.gap = Some("more leaves in a window than the limit");
                }
                Node::Unknown if self.memory_bytes() + recoveries.memory_bytes() >= self.bounds.bytes => {
                    traversal.gap = Some("more to remember in a window than the limit of memory");
                }
                Node::Unknown => {
                    self.explore(node, traversal, at, image, recoveries)?;
                    traversal.next = Some(node);
                }
                Node::Doubt(why) => traversal.gap = Some(why),
                Node::Leaf(leaf) => {
                    let is_new = leaf.0 >= traversal.first_new_leaf;
                    if is_new && self.is_chosen(leaf) && recoveries.is_worth_repeating(self.trie.leaf(leaf).outcome) {
                        self.repeat(node, leaf, traversal, at, image, recoveries)?;
                    }
                    return Ok(Some(LeafStates { leaf, sets: traversal.sets.clone(), is_new }));
                }
                Node::Load { .. } => {
                    let end = self.skip_decided(node, at.model);
                    match self.trie.node(end) {
                        Node::Load { load, .. } => self.branch(end, load, traversal, at),
                        _ => traversal.next = Some(end),
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
            let Node::Load { load, first, next } = self.trie.node(node) else { return node };
            let Some(value) = self.decided(load, model) else { return node };
            if self.dependencies.is_some() && self.skips.note_dependency(load) {
                let line = self.lines.find(model, load);
                self.depend_on(self.lines.key(load), 1 << load.unit, line, model);
            }
            let is_first = value == first;
            if is_first && next == NodeId(node.0 + 1) {
                self.skips.add(node, load);
            }
            node = if is_first { next } else { self.trie.child(node, value) };
        }
    }

    /// What the load sees if its line has one choice.
    fn decided(&mut self, load: Load, model: &Model) -> Option<u64> {
        if let Some(known) = self.skips.value(load) {
            return Some(known);
        }
        let content = match self.lines.find(model, load) {
            None => NEVER_STORED,
            Some(line) => *model.line(line).decided()?,
        };
        self.skips.decide(load, content);
        self.skips.value(load)
    }

    /// Groups the line's set by what the load sees, and goes on below the first group.
    fn branch(&mut self, node: NodeId, load: Load, traversal: &mut Traversal, at: &CrashPosition) {
        let line = self.lines.find(at.model, load).expect("a line that nobody stored to is decided");
        self.depend_on(self.lines.key(load), 1 << load.unit, Some(line), at.model);
        let choices = self.tables.of(at.model, line);
        if choices.is_cut {
            traversal.gap = Some("a line with more than 65,536 choices");
        }
        let before = traversal.sets.get(&line).cloned();
        let groups = choices.groups(before.as_ref().unwrap_or(&choices.all), load.unit);
        if let [(value, _)] = groups[..] {
            traversal.next = Some(self.trie.child(node, value));
            return;
        }
        traversal.frames.push(Frame { node, line, groups, next_group: 0, before });
    }

    /// Runs the newest remaining state, and adds what it loaded below this node to the trie.
    fn explore<R: Recoveries>(
        &mut self,
        node: NodeId,
        traversal: &mut Traversal,
        at: &CrashPosition,
        image: &mut CrashImage,
        recoveries: &mut R,
    ) -> Result<(), R::Stop> {
        let state = self.newest_state(at, &traversal.sets);
        image.go_to(at.model, at.view, &state);
        let run = recoveries.run(image)?;
        let (loads, path) = (self.lines.distinct(&run.loads), self.trie.path(node));
        match run.doubt.or_else(|| self.difference(at.model, &path, &loads).map(Doubt::Unknown)) {
            Some(Doubt::Unknown(why)) => {
                self.doubts.insert(why);
                self.trie.add_doubt(node, "runs that say nothing");
                return Ok(());
            }
            Some(Doubt::Bound(why)) => {
                self.trie.add_doubt(node, why);
                return Ok(());
            }
            None => {}
        }
        let mut end = node;
        for load in &loads[path.len()..] {
            let decided = self.decided(*load, at.model);
            let value = decided.unwrap_or_else(|| self.newest_value(at, traversal, self.lines.unit(*load)));
            end = self.trie.add_load(end, *load, value);
            self.lines.add(*load);
        }
        let contents = distinct(&run.contents);
        let contents: Vec<_> =
            contents.into_iter().map(|unit| (unit, self.newest_value(at, traversal, unit))).collect();
        let contents = self.scanned.add(contents.into_iter()).into();
        self.trie.add_leaf(end, Leaf { outcome: run.outcome, contents });
        Ok(())
    }

    fn newest_value(&mut self, at: &CrashPosition, traversal: &Traversal, unit: UnitKey) -> u64 {
        let (key, unit) = unit.line_and_unit();
        let Some(line) = at.model.find(key) else { return 0 };
        let newest = traversal.sets.get(&line).map_or(0, |set| set[0]);
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
        traversal: &Traversal,
        at: &CrashPosition,
        image: &mut CrashImage,
        recoveries: &mut R,
    ) -> Result<(), R::Stop> {
        let state = self.oldest_state(at, &traversal.sets);
        image.go_to(at.model, at.view, &state);
        let Run { outcome, loads, doubt, .. } = recoveries.run_again(image)?;
        self.repeats.leaves.set(self.repeats.leaves() + 1);
        let (loads, path) = (self.lines.distinct(&loads), self.trie.path(node));
        let doubt = doubt
            .map(Doubt::text)
            .or_else(|| self.difference(at.model, &path, &loads))
            .or_else(|| self.difference(at.model, &loads, &path));
        let is_same = recoveries.is_same(self.trie.leaf(leaf).outcome, outcome);
        let other = || "two states that gave recovery the same bytes at every load it made have different heap reports";
        self.doubts.extend(doubt.or_else(|| (!is_same).then(|| other().to_owned())));
        Ok(())
    }

    /// The state closest to everything persisted.
    pub fn newest_state(&mut self, at: &CrashPosition, sets: &FxHashMap<LineId, ChoiceSet>) -> Vec<Choice> {
        let of = |tables: &mut Tables, line| sets.get(&line).map(|set| tables.of(at.model, line).choice(set[0]));
        at.view.lines.iter().map(|open| of(&mut self.tables, open.id).unwrap_or(open.newest())).collect()
    }

    /// The state closest to the floor.
    pub fn oldest_state(&mut self, at: &CrashPosition, sets: &FxHashMap<LineId, ChoiceSet>) -> Vec<Choice> {
        let last = |set: &ChoiceSet| set[set.len() - 1];
        let of = |tables: &mut Tables, line| sets.get(&line).map(|set| tables.of(at.model, line).choice(last(set)));
        at.view.lines.iter().map(|open| of(&mut self.tables, open.id).unwrap_or_default()).collect()
    }

    /// Whether every state of the leaf holds the contents that the leaf's run read.
    pub fn has_own_contents(&mut self, at: &CrashPosition, states: &LeafStates) -> bool {
        let mut is_own = true;
        for number in self.trie.leaf(states.leaf).contents.clone().iter() {
            let (scanned, line) = self.scanned.find(*number, at.model);
            self.depend_on(scanned.key, scanned.units, line, at.model);
            let set = line.and_then(|line| states.sets.get(&line));
            is_own = is_own && self.scanned.is_held(*number, at.model, &mut self.tables, set);
        }
        is_own
    }

    /// A leaf of the current window.
    pub fn leaf(&self, id: LeafId) -> &Leaf {
        self.trie.leaf(id)
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

impl Traversal {
    /// Goes to the next branch: back to the nearest load that has a group left. False at the end.
    fn turn(&mut self, trie: &mut Trie) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            if let Some((value, set)) = frame.groups.get(frame.next_group) {
                frame.next_group += 1;
                self.sets.insert(frame.line, set.clone());
                self.next = Some(trie.child(frame.node, *value));
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

/// The keys in their order, each once.
fn distinct(keys: &[UnitKey]) -> Vec<UnitKey> {
    let mut seen = FxHashSet::default();
    keys.iter().copied().filter(|key| seen.insert(*key)).collect()
}
