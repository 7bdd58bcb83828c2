// SPDX-License-Identifier: Apache-2.0
//! The contents that a line can have at a crash position, and sets of them.

use crate::model::{Choice, LineContent, LineId, Model};
use crate::trace::UNIT_BYTES;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::OnceCell;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Value of one of the line's eight units.
pub(super) fn unit_of(content: &LineContent, unit: u8) -> u64 {
    let start = usize::from(unit) * UNIT_BYTES as usize;
    u64::from_le_bytes(content[start..start + UNIT_BYTES as usize].try_into().expect("eight bytes"))
}

/// Most choices of one line that are enumerated: 65,536 are two non-temporal rewrites of a whole line without a fence. A line with more is
/// explored with its floor and with everything only, and the crash position is not complete.
pub const CHOICE_LIMIT: usize = 1 << 16;

/// The distinct contents a line can have, the newest first. Where several choices leave the same bytes, the newest stands for all.
#[derive(Debug)]
pub struct LineChoices {
    version: u64,
    contents: Vec<(Choice, LineContent)>,
    /// All of them.
    pub all: ChoiceSet,
    hash_of_all: OnceCell<u128>,
    /// There are more choices than [`CHOICE_LIMIT`].
    pub is_cut: bool,
}

impl LineChoices {
    fn of(model: &Model, id: LineId) -> Self {
        let line = model.line(id);
        let all = line.contents(CHOICE_LIMIT);
        let is_cut = all.is_none();
        let ends = || [Choice::default(), line.newest()].map(|choice| (choice, line.content(choice).0)).to_vec();
        let mut seen = FxHashSet::default();
        let mut contents = all.unwrap_or_else(ends);
        contents.reverse();
        contents.retain(|(_, content)| seen.insert(*content));
        let all = (0..contents.len() as u32).collect();
        Self { version: line.version(), contents, all, hash_of_all: OnceCell::new(), is_cut }
    }

    /// Memory that it takes, about.
    fn bytes(&self) -> usize {
        let member = size_of::<(Choice, LineContent)>() + size_of::<u32>();
        size_of::<(LineId, Rc<Self>)>() + size_of::<Self>() + self.contents.len() * member
    }

    /// The choice behind a member of a set.
    pub fn choice(&self, member: u32) -> Choice {
        self.contents[member as usize].0
    }

    /// The line's bytes with a member of a set.
    pub fn content(&self, member: u32) -> &LineContent {
        &self.contents[member as usize].1
    }

    /// Of the contents of a set, in its order.
    pub fn hash(&self, set: &ChoiceSet) -> u128 {
        let bytes = || set.iter().flat_map(|member| *self.content(*member)).collect::<Vec<u8>>();
        if Rc::ptr_eq(set, &self.all) {
            *self.hash_of_all.get_or_init(|| xxh3_128(&bytes()))
        } else {
            xxh3_128(&bytes())
        }
    }

    /// Value of one of the line's eight units.
    pub fn unit(&self, member: u32, unit: u8) -> u64 {
        unit_of(self.content(member), unit)
    }

    /// Splits a set by what a load of the unit would see, the group with the newest member first.
    pub fn groups(&self, set: &ChoiceSet, unit: u8) -> Vec<(u64, ChoiceSet)> {
        let first = self.unit(set[0], unit);
        if set[1..].iter().all(|member| self.unit(*member, unit) == first) {
            return vec![(first, set.clone())];
        }
        let mut places = FxHashMap::default();
        let mut groups: Vec<(u64, Vec<u32>)> = Vec::new();
        for member in set.iter() {
            let value = self.unit(*member, unit);
            let place = *places.entry(value).or_insert(groups.len());
            if place == groups.len() {
                groups.push((value, Vec::new()));
            }
            groups[place].1.push(*member);
        }
        groups.into_iter().map(|(value, members)| (value, members.into())).collect()
    }
}

/// Members of [`LineChoices`], in order, the newest first; never empty.
pub type ChoiceSet = Rc<[u32]>;

/// The choices of the lines that a window asked for. A line that has changed since is asked again.
#[derive(Default)]
pub struct Tables {
    lines: FxHashMap<LineId, Rc<LineChoices>>,
    bytes: usize,
}

impl Tables {
    /// Memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// What the line can hold at the model's position.
    pub fn of(&mut self, model: &Model, id: LineId) -> Rc<LineChoices> {
        let known = self.lines.get(&id).filter(|known| known.version == model.line(id).version());
        if let Some(known) = known {
            return known.clone();
        }
        let made = Rc::new(LineChoices::of(model, id));
        self.bytes += made.bytes();
        if let Some(old) = self.lines.insert(id, made.clone()) {
            self.bytes -= old.bytes();
        }
        made
    }
}
