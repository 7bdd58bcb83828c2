// SPDX-License-Identifier: Apache-2.0
//! One line: its base, the stores that are not decided yet, and its choices.

use crate::trace::{LineKey, SiteId, UNIT_BYTES};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a line.
pub type LineContent = [u8; 64];

/// Most floating units of one line that are enumerated; older ones are taken as persisted and the bound is said. 48 floating
/// units need six non-temporal rewrites of a whole line without a fence.
const FLOATING_LIMIT: usize = 48;

/// The bytes that one store puts into one aligned 8-byte piece of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    /// First byte in the line.
    start: u8,
    length: u8,
    bytes: [u8; 8],
}

impl Unit {
    pub fn new(start: u8, part: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        Self { start, length: part.len() as u8, bytes }
    }

    fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

/// Where a store comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Its event's number: the memory order.
    pub event: u32,
    pub site: SiteId,
    pub is_content: bool,
    /// Some of its units may persist without the others (R3).
    pub can_tear: bool,
}

/// One store as this line sees it, or one floating unit of it.
#[derive(Clone, Debug)]
struct Entry {
    written: Written,
    units: SmallVec<[Unit; 1]>,
    rank: Rank,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// The line's ordered store number n, from 0 (R1).
    Ordered(u64),
    /// Persists on its own (R8).
    Floating { is_decided: bool, is_by_kernel: bool },
}

/// One remaining choice of a line.
///
/// `ordered` counts through the cuts from the floor up, and before each cut the proper subsets of the units of the store that
/// it adds: 0 is the floor, the last one is everything. Above the floor a store of one unit and one of two units:
///
/// ```text
/// ordered   0       1             2              3              4
///           floor   first store   + its unit 0   + its unit 1   + both: everything
/// ```
///
/// `floating` has a bit for each undecided floating unit, oldest first.
///
/// `base` is what an earlier crash left of the line, where that is not decided: the newest is the last. 0 in the first generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct Choice {
    pub base: u32,
    pub ordered: u32,
    pub floating: u64,
}

/// What a line holds below its undecided stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub content: LineContent,
    /// A bit for each byte that the allocator wrote last, not the application and not nobody.
    pub metadata: u64,
}

/// Before anybody stores to the line.
const EMPTY: Base = Base { content: [0; 64], metadata: 0 };

/// The stores of one line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which line.
    pub key: LineKey,
    /// One; after a crash that left the line undecided, each content that it may have left, the newest last.
    bases: SmallVec<[Base; 1]>,
    /// What is not folded into the base, in memory order.
    entries: Vec<Entry>,
    ordered_count: u64,
    floor: u64,
    version: u64,
    is_bounded: bool,
    /// Units that what was folded into the base has overwritten, a bit for each, and since which origin of the model.
    overwritten: (u64, u8),
}

/// Versions are unique among all lines and models of the process, so that a line of one generation is not taken for what it was in
/// another. They are compared and never shown.
pub(super) fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Line {
    pub(super) fn new(key: LineKey) -> Self {
        Self::left_by_crash(key, smallvec![EMPTY])
    }

    /// The line in a new generation: any of these may be what the crash left of it, the newest last; at least one.
    pub(super) fn left_by_crash(key: LineKey, bases: SmallVec<[Base; 1]>) -> Self {
        Self {
            key,
            bases,
            entries: Vec::new(),
            ordered_count: 0,
            floor: 0,
            version: next_version(),
            is_bounded: false,
            overwritten: (0, 0),
        }
    }

    pub(super) fn push_ordered(&mut self, written: Written, units: &[Unit]) {
        let rank = Rank::Ordered(self.ordered_count);
        self.ordered_count += 1;
        self.entries.push(Entry { written, units: units.into(), rank });
    }

    pub(super) fn push_floating(&mut self, written: Written, is_by_kernel: bool, units: &[Unit]) {
        let size = if written.can_tear { 1 } else { units.len().max(1) };
        self.entries.reserve(units.len().div_ceil(size));
        for units in units.chunks(size) {
            let rank = Rank::Floating { is_decided: false, is_by_kernel };
            self.entries.push(Entry { written, units: units.into(), rank });
        }
    }

    /// The floating units of this event are persisted.
    pub(super) fn decide_floating(&mut self, event: u32) {
        for entry in &mut self.entries {
            if entry.written.event == event && matches!(entry.rank, Rank::Floating { .. }) {
                entry.decide();
            }
        }
    }

    pub(super) fn raise_floor(&mut self, ordered: u64) {
        self.floor = self.floor.max(ordered);
    }

    /// Everything stored before this event is persisted, but for the program's non-temporal units: they wait for their thread's fence (R8).
    pub(super) fn persist_before(&mut self, event: u32) {
        let mut floor = self.floor;
        for entry in self.entries.iter_mut().filter(|entry| entry.written.event < event) {
            match &mut entry.rank {
                Rank::Ordered(number) => floor = floor.max(*number + 1),
                Rank::Floating { is_decided, is_by_kernel } => *is_decided |= *is_by_kernel,
            }
        }
        self.floor = floor;
    }

    /// Bytes `[from, to)` of the line are zero and what was stored there is gone.
    pub(super) fn clear(&mut self, from: u64, to: u64) {
        let cleared = from as usize..to.max(from) as usize;
        if cleared == (0..64) {
            self.entries.clear();
            self.floor = self.ordered_count;
            self.bases = smallvec![EMPTY];
            return;
        }
        self.bases.iter_mut().for_each(|base| base.content[cleared.clone()].fill(0));
        for entry in &mut self.entries {
            entry.units.retain(|unit| !unit.range().all(|at| cleared.contains(&at)));
            for unit in &mut entry.units {
                for (byte, at) in unit.bytes.iter_mut().zip(unit.start as usize..) {
                    if cleared.contains(&at) {
                        *byte = 0;
                    }
                }
            }
        }
        // An ordered store without units keeps its place in the count, and has no choice.
        self.entries.retain(|entry| !entry.units.is_empty() || matches!(entry.rank, Rank::Ordered(_)));
    }

    /// Moves decided entries into the base, oldest first; one that follows an undecided entry has to wait, because where both
    /// persist the later in memory order wins (R8).
    /// `origin`: the model's.
    pub(super) fn fold(&mut self, origin: u64) {
        self.version = next_version();
        if self.overwritten.0 != origin {
            self.overwritten = (origin, 0);
        }
        let floating = self.entries.iter().filter(|entry| entry.is_open_floating()).count();
        let surplus = floating.saturating_sub(FLOATING_LIMIT);
        for entry in self.entries.iter_mut().filter(|entry| entry.is_open_floating()).take(surplus) {
            entry.decide();
            self.is_bounded = true;
        }
        let decided = self.entries.iter().take_while(|entry| entry.is_decided(self.floor)).count();
        for entry in self.entries.drain(..decided) {
            for unit in &entry.units {
                if u64::from(unit.length) == UNIT_BYTES {
                    self.overwritten.1 |= 1 << (u64::from(unit.start) / UNIT_BYTES);
                }
                for base in &mut self.bases {
                    apply(unit, entry.written.is_content, &mut base.content, &mut base.metadata);
                }
            }
        }
        // Bases are merged all at once or not at all, because choices number them.
        if self.bases.iter().all(|base| *base == self.bases[0]) {
            self.bases.truncate(1);
        }
    }

    /// Units that are overwritten since that origin of the model, in all choices: a bit for each.
    pub(super) fn overwritten_since(&self, origin: u64) -> u8 {
        if self.overwritten.0 == origin { self.overwritten.1 } else { 0 }
    }

    /// Nothing of the store made at `event` is undecided.
    pub(super) fn is_guaranteed(&self, event: u32) -> bool {
        let mut of_event = self.entries.iter().rev().take_while(|entry| entry.written.event == event);
        of_event.all(|entry| entry.is_decided(self.floor))
    }

    pub(super) fn ordered_count(&self) -> u64 {
        self.ordered_count
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// It differs after each change of the line: a cached content is valid for one version.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn open_ordered(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.rank, Rank::Ordered(number) if number >= self.floor))
    }

    /// Number of values of [`Choice::ordered`]: n - f + 1 + the sum over stores above the floor of (2^u - 2).
    pub fn ordered_choices(&self) -> u32 {
        1 + self.open_ordered().map(Entry::choices).sum::<u32>()
    }

    /// Number of undecided floating units.
    pub fn floating_units(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.is_open_floating()).count() as u32
    }

    /// Number of remaining choices.
    pub fn choice_count(&self) -> u128 {
        self.bases.len() as u128 * (u128::from(self.ordered_choices()) << self.floating_units())
    }

    /// Number of values of [`Choice::base`].
    pub fn base_count(&self) -> u32 {
        self.bases.len() as u32
    }

    /// First value of [`Choice::ordered`] that contains some of the store made at `event`; none if it is not among the open ones.
    pub fn first_choice_with(&self, event: u32) -> Option<u32> {
        let mut choices = 1;
        for entry in self.open_ordered() {
            if entry.written.event == event {
                return Some(choices);
            }
            choices += entry.choices();
        }
        None
    }

    /// Bits of [`Choice::floating`] that belong to `event`.
    pub fn floating_mask_of(&self, event: u32) -> u64 {
        let open = self.entries.iter().filter(|entry| entry.is_open_floating());
        open.enumerate().filter(|(_, entry)| entry.written.event == event).fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// The line as this choice leaves it, and a bit for each byte that the allocator wrote last.
    pub fn content(&self, choice: Choice) -> (LineContent, u64) {
        let Base { mut content, mut metadata } = self.bases[choice.base as usize];
        let mut ordered = choice.ordered;
        let mut floating = choice.floating;
        for entry in &self.entries {
            let mask = match entry.rank {
                Rank::Ordered(number) if number < self.floor => u64::MAX,
                Rank::Ordered(_) => take_ordered(&mut ordered, entry.choices()),
                Rank::Floating { is_decided: true, .. } => u64::MAX,
                Rank::Floating { is_decided: false, .. } => take_floating(&mut floating),
            };
            for (_, unit) in entry.units.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1) {
                apply(unit, entry.written.is_content, &mut content, &mut metadata);
            }
        }
        (content, metadata)
    }

    /// The contents that the line may have below its undecided stores.
    pub fn bases(&self) -> impl Iterator<Item = &LineContent> {
        self.bases.iter().map(|base| &base.content)
    }

    /// There is no store above the base.
    pub(super) fn is_settled(&self) -> bool {
        self.entries.is_empty()
    }

    /// It holds zeros, and nothing of it is undecided.
    pub(super) fn is_empty(&self) -> bool {
        self.is_settled() && self.bases[..] == [EMPTY]
    }

    /// What a crash with this choice leaves to the next generation.
    pub(super) fn base_of(&self, choice: Choice) -> Base {
        let (content, metadata) = self.content(choice);
        Base { content, metadata }
    }

    /// What it holds, if nothing of it is undecided.
    pub fn decided(&self) -> Option<&LineContent> {
        let [Base { content, .. }] = &self.bases[..] else { return None };
        self.entries.is_empty().then_some(content)
    }

    /// Every remaining choice with the bytes it leaves, from the floor up; none if there are more than `limit`.
    pub fn contents(&self, limit: usize) -> Option<Vec<(Choice, LineContent)>> {
        let count = usize::try_from(self.choice_count()).ok().filter(|count| *count <= limit)?;
        let mut contents = Vec::with_capacity(count);
        for base in 0..self.base_count() {
            self.contents_over(base, &mut contents);
        }
        Some(contents)
    }

    fn contents_over(&self, base: u32, contents: &mut Vec<(Choice, LineContent)>) {
        let is_floating = |entry: &Entry| matches!(entry.rank, Rank::Floating { .. });
        if self.entries.iter().any(is_floating) {
            for ordered in 0..self.ordered_choices() {
                let choices = (0..1u64 << self.floating_units()).map(|floating| Choice { base, ordered, floating });
                contents.extend(choices.map(|choice| (choice, self.content(choice).0)));
            }
            return;
        }
        // Each store on top of those before it, instead of all from the base for each choice.
        let mut content = self.bases[base as usize].content;
        self.entries
            .iter()
            .filter(|entry| entry.is_decided(self.floor))
            .for_each(|entry| entry.put(u64::MAX, &mut content));
        let mut ordered = 0;
        contents.push((Choice { base, ordered, floating: 0 }, content));
        for entry in self.open_ordered() {
            let before = content;
            for subset in 1..=entry.choices() {
                content = before;
                entry.put(if subset == entry.choices() { u64::MAX } else { subset.into() }, &mut content);
                ordered += 1;
                contents.push((Choice { base, ordered, floating: 0 }, content));
            }
        }
    }

    /// The units whose bytes are not the same in every remaining choice: a bit for each.
    pub fn open_mask(&self) -> u8 {
        let open = self.entries.iter().filter(|entry| !entry.is_decided(self.floor));
        let stored =
            open.flat_map(|entry| &entry.units).fold(0, |mask, unit| mask | 1 << (u64::from(unit.start) / UNIT_BYTES));
        let unit =
            |base: &Base, unit: usize| -> [u8; 8] { base.content[unit * 8..][..8].try_into().expect("eight bytes") };
        let differs = |at: &usize| self.bases[1..].iter().any(|base| unit(base, *at) != unit(&self.bases[0], *at));
        (0..8).filter(differs).fold(stored, |mask, unit| mask | 1 << unit)
    }

    /// The choice that holds everything.
    pub fn newest(&self) -> Choice {
        Choice {
            base: self.base_count() - 1,
            ordered: self.ordered_choices() - 1,
            floating: (1u64 << self.floating_units()) - 1,
        }
    }

    /// The choice of this line that leaves the same as a choice of the same line where more of it is decided.
    pub fn choice_as(&self, decided: &Self, choice: Choice) -> Choice {
        let open = |line: &Self| -> Vec<(u32, u8)> {
            let entries = line.entries.iter().filter(|entry| entry.is_open_floating());
            entries.map(|entry| (entry.written.event, entry.units.first().map_or(0, |unit| unit.start))).collect()
        };
        let of_decided = open(decided);
        let is_there = |unit: &(u32, u8)| match of_decided.iter().position(|other| other == unit) {
            Some(bit) => choice.floating >> bit & 1 == 1,
            None => true,
        };
        let floating = open(self).into_iter().enumerate().filter(|(_, unit)| is_there(unit));
        Choice {
            base: choice.base,
            ordered: self.newest().ordered - (decided.newest().ordered - choice.ordered),
            floating: floating.fold(0, |bits, (bit, _)| bits | 1 << bit),
        }
    }

    /// (event, site) of each undecided store with whether this choice holds it whole, in memory order.
    pub fn open_stores(&self, choice: Choice) -> Vec<(u32, SiteId, bool)> {
        let mut ordered = choice.ordered;
        let mut floating = choice.floating;
        let mut stores = Vec::new();
        for entry in &self.entries {
            match entry.rank {
                Rank::Ordered(number) if number >= self.floor => {
                    let is_whole = take_ordered(&mut ordered, entry.choices()) == u64::MAX;
                    stores.push((entry.written.event, entry.written.site, is_whole));
                }
                Rank::Floating { is_decided: false, .. } => {
                    let is_there = take_floating(&mut floating) != 0;
                    stores.push((entry.written.event, entry.written.site, is_there));
                }
                _ => {}
            }
        }
        stores
    }

    /// The undecided units of the store made at `event`: the bytes of the line, and whether this choice holds them.
    pub fn open_units(&self, choice: Choice, event: u32) -> Vec<(Range<usize>, bool)> {
        let mut ordered = choice.ordered;
        let mut floating = choice.floating;
        let mut open = Vec::new();
        for entry in self.entries.iter().filter(|entry| !entry.is_decided(self.floor)) {
            let mask = match entry.rank {
                Rank::Ordered(_) => take_ordered(&mut ordered, entry.choices()),
                Rank::Floating { .. } => take_floating(&mut floating),
            };
            if entry.written.event == event {
                let units = entry.units.iter().enumerate();
                open.extend(units.map(|(index, unit)| (unit.range(), mask >> index & 1 == 1)));
            }
        }
        open
    }
}

impl Entry {
    /// Choices that an ordered store adds: the proper subsets of its units, then all of them.
    fn choices(&self) -> u32 {
        if self.written.can_tear { (1 << self.units.len()) - 1 } else { 1 }
    }

    /// Puts the units that the mask names into the line.
    fn put(&self, mask: u64, line: &mut LineContent) {
        for (_, unit) in self.units.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1) {
            apply(unit, self.written.is_content, line, &mut 0);
        }
    }

    fn decide(&mut self) {
        if let Rank::Floating { is_decided, .. } = &mut self.rank {
            *is_decided = true;
        }
    }

    fn is_open_floating(&self) -> bool {
        matches!(self.rank, Rank::Floating { is_decided: false, .. })
    }

    fn is_decided(&self, floor: u64) -> bool {
        match self.rank {
            Rank::Ordered(number) => number < floor,
            Rank::Floating { is_decided, .. } => is_decided,
        }
    }
}

/// Which units of the next ordered store are there: takes the store's share off the number that is left of the choice.
fn take_ordered(left: &mut u32, share: u32) -> u64 {
    let taken = (*left).min(share);
    *left -= taken;
    if taken == share { u64::MAX } else { u64::from(taken) }
}

/// Whether the next floating entry is there, and with it all of its units.
fn take_floating(floating: &mut u64) -> u64 {
    let is_there = *floating & 1 == 1;
    *floating >>= 1;
    if is_there { u64::MAX } else { 0 }
}

fn apply(unit: &Unit, is_content: bool, line: &mut LineContent, metadata: &mut u64) {
    let range = unit.range();
    let mask = (u64::MAX >> (64 - unit.length)) << unit.start;
    *metadata = if is_content { *metadata & !mask } else { *metadata | mask };
    line[range].copy_from_slice(&unit.bytes[..unit.length as usize]);
}
