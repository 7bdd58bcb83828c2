// SPDX-License-Identifier: Apache-2.0
//! The oracle's questions about the contents of objects, answered for all states of a leaf at once: does **any** remaining choice of a line
//! differ from what is expected? Lines are independent, so each is asked alone, and nothing branches.

use crashgen::LINE_BYTES;
use crashgen::complete::{ChoiceSet, CrashPosition, Dependencies, Tables, UnitKey};
use crashgen::image::CrashImage;
use crashgen::model::{Choice, LineContent, LineId, LineKey};
use crashgen::trace::{Event, EventKind, FileId};
use oracle::pattern::{expected_bytes, known_ranges};
use oracle::{ContentSource, Segment};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Granularity at which changes are remembered.
const PAGE_BYTES: u64 = 4096;

/// A part of a file: from, to.
type Range = (FileId, u64, u64);

/// An object that held what was expected, in every state.
#[derive(Clone)]
struct Right {
    expected: Vec<Segment>,
    bytes: u64,
    /// Events by then.
    clock: u64,
}

/// What is remembered of contents from crash position to crash position.
#[derive(Clone, Default)]
pub struct ContentMemory {
    /// Events so far.
    clock: u64,
    /// By file and page: when a store last touched it.
    changed: FxHashMap<(FileId, u64), u64>,
    /// By file and offset: objects that held what was expected.
    right: FxHashMap<(FileId, u64), Right>,
    /// Parts of files that were asked for since the window began.
    asked: FxHashSet<Range>,
    /// What was asked for in this pass, if that is noted.
    dependencies: Option<Dependencies>,
    /// Grows when a store or a file operation changes something that was asked for.
    pub epoch: u64,
}

impl ContentMemory {
    /// Takes note of what an event changes. Floors that rise need no note: they leave fewer choices.
    pub fn note(&mut self, event: &Event) {
        self.clock += 1;
        match &event.kind {
            EventKind::Store { file, offset, bytes, .. } => {
                let end = offset + bytes.len() as u64;
                for page in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
                    self.changed.insert((*file, page), self.clock);
                }
                let is_hit = |(other, from, to): &Range| other == file && *from < end && offset < to;
                self.epoch += u64::from(self.asked.iter().any(is_hit));
            }
            EventKind::FileEnd { .. } => {
                self.right.clear();
                self.epoch += 1;
            }
            _ => {}
        }
    }

    /// Another window begins, in which everything is judged again.
    pub fn start_window(&mut self) {
        self.asked.clear();
    }

    /// The same; what is asked for is noted from now on.
    pub fn begin_pass(&mut self) {
        self.start_window();
        self.dependencies = Some(Dependencies::default());
    }

    /// What was asked for since the pass began.
    pub fn take_dependencies(&mut self) -> Dependencies {
        self.dependencies.take().unwrap_or_default()
    }

    fn is_right_still(&self, file: FileId, offset: u64, expected: &[Segment], bytes: u64) -> bool {
        let Some(right) = self.right.get(&(file, offset)) else { return false };
        let mut pages = offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES);
        right.expected == expected
            && right.bytes == bytes
            && pages.all(|page| self.changed.get(&(file, page)).is_none_or(|changed| *changed <= right.clock))
    }
}

/// The content of all states of a leaf at a crash position.
pub struct LeafContent<'a> {
    at: &'a CrashPosition<'a>,
    image: &'a CrashImage,
    /// Choices of the lines that the leaf's loads narrowed.
    sets: &'a FxHashMap<LineId, ChoiceSet>,
    tables: RefCell<&'a mut Tables>,
    contents: RefCell<&'a mut ContentMemory>,
    /// For each object that may be wrong, the first line that may be, and the newest choice that makes it so.
    differing: RefCell<Vec<Option<(LineId, Choice)>>>,
}

impl<'a> LeafContent<'a> {
    /// For the leaf with these sets. `image` knows the position's files.
    pub fn new(
        at: &'a CrashPosition<'a>,
        image: &'a CrashImage,
        sets: &'a FxHashMap<LineId, ChoiceSet>,
        tables: &'a mut Tables,
        contents: &'a mut ContentMemory,
    ) -> Self {
        let (tables, contents) = (RefCell::new(tables), RefCell::new(contents));
        Self { at, image, sets, tables, contents, differing: RefCell::new(Vec::new()) }
    }

    /// For each question that was answered with a difference, a choice that shows it; none where every state does.
    pub fn into_differing(self) -> Vec<Option<(LineId, Choice)>> {
        self.differing.into_inner()
    }

    /// The first byte of a line's part `[from, to)` that differs in some state, with the newest choice that makes it differ.
    fn line_differs(
        &self,
        id: Option<LineId>,
        from: usize,
        to: usize,
        expected: &[u8],
    ) -> Option<(usize, Option<(LineId, Choice)>)> {
        let wrong = |content: &LineContent| content[from..to].iter().zip(expected).position(|(is, must)| is != must);
        let Some(id) = id else { return Some((wrong(&[0; 64])?, None)) };
        let line = self.at.model.line(id);
        if line.choice_count() == 1 {
            return Some((wrong(&line.content(Choice::default()).0)?, None));
        }
        let choices = self.tables.borrow_mut().of(self.at.model, id);
        let set = self.sets.get(&id).unwrap_or(&choices.all);
        let found = set.iter().find_map(|member| Some((wrong(choices.content(*member))?, *member)));
        found.map(|(at, member)| (at, Some((id, choices.choice(member)))))
    }
}

/// The parts of lines that hold known bytes of an object at `offset`: the line, from and to in the file.
fn known_parts(
    file: FileId,
    offset: u64,
    expected: &[Segment],
    bytes: u64,
) -> impl Iterator<Item = (LineKey, u64, u64)> + use<'_> {
    known_ranges(expected, bytes).flat_map(move |range| {
        let (start, end) = (offset + range.start, offset + range.end);
        (start / LINE_BYTES..end.div_ceil(LINE_BYTES)).map(move |number| {
            let line = number * LINE_BYTES;
            (LineKey { file, number }, start.max(line), end.min(line + LINE_BYTES))
        })
    })
}

/// Narrows the sets of a leaf to the choices with which the contents of all objects are right after recovery.
pub struct Narrowing<'a> {
    at: &'a CrashPosition<'a>,
    image: &'a CrashImage,
    tables: RefCell<&'a mut Tables>,
    /// Lines that recovery stores to. What they hold at the crash says nothing.
    stored: &'a BTreeSet<LineKey>,
    /// None: no state is right.
    sets: RefCell<Option<FxHashMap<LineId, ChoiceSet>>>,
}

impl<'a> Narrowing<'a> {
    /// Of the leaf with these sets. `image` knows the position's files.
    pub fn new(
        at: &'a CrashPosition<'a>,
        image: &'a CrashImage,
        tables: &'a mut Tables,
        stored: &'a BTreeSet<LineKey>,
        sets: FxHashMap<LineId, ChoiceSet>,
    ) -> Self {
        Self { at, image, tables: RefCell::new(tables), stored, sets: RefCell::new(Some(sets)) }
    }

    /// What is left; none: in each state some content is wrong.
    pub fn into_sets(self) -> Option<FxHashMap<LineId, ChoiceSet>> {
        self.sets.into_inner()
    }

    /// The line's choices with which its bytes `[from, to)` are these; none: all of those that were left before.
    fn narrowed(&self, id: LineId, before: Option<&ChoiceSet>, from: usize, right: &[u8]) -> Option<ChoiceSet> {
        let choices = self.tables.borrow_mut().of(self.at.model, id);
        let before = before.unwrap_or(&choices.all);
        let is_right = |member: &u32| choices.content(*member)[from..from + right.len()] == *right;
        let left: ChoiceSet = before.iter().copied().filter(is_right).collect();
        (left.len() < before.len()).then_some(left)
    }
}

impl ContentSource for Narrowing<'_> {
    /// Always none: the choices that differ are taken away.
    fn differs(&self, file: &str, offset: u64, expected: &[Segment], bytes: u64) -> Option<u64> {
        let mut sets = self.sets.borrow_mut();
        let known = sets.as_mut()?;
        let found = self.image.files().iter().find(|(_, state)| &*state.path == file);
        let is_inside = |state: u64| offset.checked_add(bytes).is_some_and(|end| end <= state);
        let Some((id, _)) = found.filter(|(_, state)| is_inside(state.bytes)) else {
            *sets = None;
            return None;
        };
        for (key, at, line_end) in known_parts(*id, offset, expected, bytes) {
            let right = expected_bytes(expected, at - offset..line_end - offset);
            let from = (at % LINE_BYTES) as usize;
            let is_wrong = match self.at.model.find(key) {
                _ if self.stored.contains(&key) => false,
                None => right.iter().any(|byte| *byte != 0),
                Some(line) => self.narrowed(line, known.get(&line), from, &right).is_some_and(|left| {
                    let is_empty = left.is_empty();
                    known.insert(line, left);
                    is_empty
                }),
            };
            if is_wrong {
                *sets = None;
                return None;
            }
        }
        None
    }
}

impl ContentSource for LeafContent<'_> {
    fn differs(&self, file: &str, offset: u64, expected: &[Segment], bytes: u64) -> Option<u64> {
        let found = self.image.files().iter().find(|(_, state)| &*state.path == file);
        let end = offset.checked_add(bytes);
        let Some(((id, _), end)) = found.zip(end).filter(|((_, state), end)| *end <= state.bytes) else {
            self.differing.borrow_mut().push(None);
            return Some(0);
        };
        let contents = &mut **self.contents.borrow_mut();
        let is_new = contents.asked.insert((*id, offset, end));
        if let Some(dependencies) = contents.dependencies.as_mut().filter(|_| is_new) {
            for (key, units) in UnitKey::lines_of_range(*id, offset, bytes) {
                dependencies.add(key, units, self.at.model.find(key), self.at.model);
            }
        }
        if contents.is_right_still(*id, offset, expected, bytes) {
            return None;
        }
        let mut is_narrowed = false;
        for (key, at, line_end) in known_parts(*id, offset, expected, bytes) {
            let from = (at % LINE_BYTES) as usize;
            let to = from + (line_end - at) as usize;
            let right = expected_bytes(expected, at - offset..line_end - offset);
            let line = self.at.model.find(key);
            if let Some((wrong, choice)) = self.line_differs(line, from, to, &right) {
                self.differing.borrow_mut().push(choice);
                return Some(at - offset + wrong as u64);
            }
            is_narrowed |= line.is_some_and(|line| self.sets.contains_key(&line));
        }
        // An object that is right with all choices of its lines is right in every leaf.
        if !is_narrowed {
            let right = Right { expected: expected.to_vec(), bytes, clock: contents.clock };
            contents.right.insert((*id, offset), right);
        }
        None
    }
}
