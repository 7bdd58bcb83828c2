// SPDX-License-Identifier: Apache-2.0
//! `damage`: what recovery makes of a heap that a medium or a stray store damaged, and power failure did not.
//!
//! The heap is damaged as it lies at some crash positions with every store persisted, the last position among them. One thing is damaged
//! at a time, and never a byte of an object: a medium loses those, too, and no allocator can know. Each damaged heap is run through the whole
//! probe script, and judged by the rules for heaps that are not damaged. What breaks then tells what became of the damage ([`Outcome`]).

mod outcome;

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::base::output::{Output, Verdict};
use crate::explore::long_lives::{mixed, positions};
use crate::heap::case::{CrashedHeap, HeapCase};
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::twins;
use crashgen::image::{CrashImage, ImageVersion, Trouble, TroubleKind};
use crashgen::model::{LineContent, LineKey};
use crashgen::replay::Probe;
use crashgen::trace::{EventKind, Trace};
use crashgen::{LINE_BYTES, OS_PAGE_BYTES};
use oracle::contract::Fill;
use oracle::report::{Block, BlockState, Life, ObjectEntry, SlotEntry};
use oracle::{HeapReport, History};
use outcome::{Outcome, Whole};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::time::Instant;

/// Crash positions at which heaps are damaged.
const POSITIONS: u32 = 4;
const BITS: u64 = 8;
const WORD_BYTES: usize = 8;

/// What is damaged, where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Of a byte, one bit, where the word around it is not zero: most words of zeros are places for what is not there yet.
    BitFlip { line: LineKey, byte: u64, bit: u64 },
    /// A bit flip, too: of a byte directly in front of a heap block.
    HeaderFlip { line: LineKey, byte: u64, bit: u64 },
    /// A line: what the allocator wrote of it is zeros.
    ZeroLine { line: LineKey },
    /// A line: what the allocator wrote of it is as it was before an operation wrote it last, as if that write had been lost on its way.
    OldLine { line: LineKey },
    /// The OS page that begins with this line can be neither loaded nor stored: the medium lost it.
    Poison { line: LineKey },
    /// A word, from this byte of its line on, that is not zero: what an application stored past the end of its object.
    /// is_open: as soon as the heap is open.
    StrayStore { line: LineKey, byte: u64, is_open: bool },
    /// A file has so many bytes left.
    CutFile { line: LineKey, bytes: u64 },
    /// A file is not there.
    MissingFile { line: LineKey },
}

/// Names of the kinds, as contracts (`detects`) and people have them.
pub const KINDS: [&str; 9] = [
    "bit-flip",
    "header-flip",
    "zero-line",
    "old-line",
    "poison",
    "stray-store",
    "open-stray-store",
    "cut-file",
    "missing-file",
];

/// What lies in front of a heap block and has more bytes is no header: it may be about anything.
const HEADER_BYTES: u64 = 64;

/// What a stray store leaves.
const STRAY: &[u8; WORD_BYTES] = b"overrun!";

impl Damage {
    fn kind(self) -> &'static str {
        match self {
            Self::BitFlip { .. } => KINDS[0],
            Self::HeaderFlip { .. } => KINDS[1],
            Self::ZeroLine { .. } => KINDS[2],
            Self::OldLine { .. } => KINDS[3],
            Self::Poison { .. } => KINDS[4],
            Self::StrayStore { is_open, .. } => KINDS[5 + usize::from(is_open)],
            Self::CutFile { .. } => KINDS[7],
            Self::MissingFile { .. } => KINDS[8],
        }
    }

    fn is_of_one_word(self) -> bool {
        matches!(self, Self::BitFlip { .. } | Self::HeaderFlip { .. } | Self::StrayStore { .. })
    }
}

/// Says of each damage where it was done and what became of it (`damage`), and how many there are (`damages`). at_most: of each kind at each
/// position; more are drawn with the seed. only: as [`Named`] has one of them.
///
/// # Errors
/// When the trace contradicts itself, no heap was created, a server fails, or there is no such damage.
pub fn damage(
    config: &Config,
    trace: &Trace,
    at_most: usize,
    only: Option<&str>,
    output: &mut Output,
) -> Result<(), EngineError> {
    let chosen: BTreeSet<u32> = positions(trace, POSITIONS, config.seed).into_iter().collect();
    if chosen.is_empty() {
        return Err(bad_input("the workload creates no heap that could be damaged"));
    }
    let made = twins::make(config, trace, config.ends)?;
    let mut damaging = Damaging {
        judge: Judge { config, twins: made.twins.as_ref() },
        recoverer: Recoverer::start(&config.server("damage")?, Probe::Full)?,
        at_most,
        only,
        output,
        tried: 0,
        skipped: Vec::new(),
        possible: BTreeMap::new(),
        is_over: false,
    };
    let mut case = HeapCase::new(config, trace, "");
    let mut lines = LastContents::default();
    for (number, event) in trace.events.iter().enumerate().skip(trace.first_event()) {
        if let EventKind::Case { folder, .. } = &event.kind {
            case = HeapCase::new(config, trace, folder);
            lines = LastContents::default();
        }
        let view = case.step(number as u32, event)?.0;
        let position = number as u32 + 1;
        let is_operation = matches!(event.kind, EventKind::OperationReturn { .. });
        if !is_operation && !chosen.contains(&position) {
            continue;
        }
        let newest: Vec<_> = view.lines.iter().map(|open| case.model.line(open.id).newest()).collect();
        let CrashedHeap { image, history } = case.crash(&view, &newest);
        lines.follow(image);
        if chosen.contains(&position) {
            damaging.damage(position, CrashedHeap { image, history }, &lines)?;
        }
    }
    let Damaging { tried, skipped, possible, output, is_over, .. } = damaging;
    if let Some(only) = only.filter(|_| tried == 0 && !is_over && skipped.is_empty()) {
        return Err(bad_input(format!(
            "{only}: no heap of this workload can be damaged so; the names are those of `damage`"
        )));
    }
    output.say("damages", &json!({"kinds": KINDS, "possible": possible, "skipped": skipped}));
    let stopped = is_over.then(|| format!("stopped after {tried} damages: the time that was asked for was over"));
    output.unknown(&made.unknown.into_iter().chain(stopped).collect::<Vec<_>>());
    output.done(Verdict::Pass, &BTreeMap::new(), &trace.hash);
    Ok(())
}

/// Of each line, what it held before it got its content.
#[derive(Default)]
struct LastContents {
    version: Option<ImageVersion>,
    now: BTreeMap<LineKey, LineContent>,
    before: BTreeMap<LineKey, LineContent>,
}

impl LastContents {
    fn follow(&mut self, image: &CrashImage) {
        let changed = match self.version.filter(|version| image.has(*version)) {
            Some(version) => image.changed_since(version, &BTreeSet::new()),
            None => image.lines().into_iter().map(|(key, content, _)| (key, content)).collect(),
        };
        self.version = Some(image.version());
        for (key, content) in changed {
            match self.now.insert(key, content) {
                Some(before) if before != content => _ = self.before.insert(key, before),
                _ => {}
            }
        }
    }
}

#[derive(Serialize)]
struct Damaged {
    kind: &'static str,
    /// What `--only` takes.
    name: String,
    position: u32,
    outcome: Outcome,
    /// Nothing is lost but what is damaged ([`Whole::is_isolated_in`]).
    is_isolated: bool,
    /// What breaks first, if anything does.
    rule: Option<String>,
    message: String,
}

struct Damaging<'a> {
    judge: Judge<'a>,
    recoverer: Recoverer,
    at_most: usize,
    only: Option<&'a str>,
    output: &'a mut Output,
    tried: usize,
    /// Positions whose heap breaks a rule before it is damaged, and how.
    skipped: Vec<String>,
    /// How many there are of a kind, at all positions together.
    possible: BTreeMap<&'static str, usize>,
    /// The time that was asked for ended it.
    is_over: bool,
}

impl Damaging<'_> {
    fn is_late(&mut self) -> bool {
        self.is_over |= self.judge.config.ends.is_some_and(|end| Instant::now() >= end);
        self.is_over
    }

    fn damage(&mut self, position: u32, heap: CrashedHeap, lines: &LastContents) -> Result<(), EngineError> {
        let CrashedHeap { image, history } = heap;
        if self.is_late() {
            return Ok(());
        }
        if !history.must_open() {
            self.skipped.push(format!("crash position {position}: nothing promises that there is a heap"));
            return Ok(());
        }
        let whole = self.judge.judge(&mut self.recoverer, Probe::Full, CrashedHeap { image, history })?;
        let broken = whole.violations.first().map(|violation| format!("{}: {}", violation.rule, violation.message));
        if let Some(why) = broken.as_ref().or(whole.as_without_crash.first()).or(whole.unknown.first()) {
            self.skipped.push(format!("crash position {position}: {why}"));
            return Ok(());
        }
        let seed = self.judge.config.seed ^ u64::from(position) << 32;
        let report = self.recoverer.probe(image, Probe::Full)?.report;
        let objects = objects(&report, history, self.judge.config.contract.fill);
        let headers = report.life(0).map_or_else(Vec::new, headers);
        let whole = Whole::of((*report).clone());
        let heap = Heap { image, lines: own_lines(image, &objects), objects, headers, before: lines };
        for (kind, all) in heap.damages() {
            *self.possible.entry(kind).or_default() += all.len();
            let named = |damage: &Damage| Named { damage: *damage, position, image }.to_string();
            let chosen = match self.only {
                Some(only) => all.into_iter().filter(|damage| named(damage) == only).collect(),
                None => drawn(all, self.at_most, seed),
            };
            for damage in chosen {
                if self.is_late() {
                    return Ok(());
                }
                let name = named(&damage);
                let mut damaged = heap.damaged(damage);
                let report = self.recoverer.probe(&mut damaged, Probe::Full)?.report;
                let heap = CrashedHeap { image: &mut damaged, history };
                let judgement = self.judge.judge(&mut self.recoverer, Probe::Full, heap)?;
                let outcome = Outcome::of(&report, &judgement, &whole);
                let first = judgement.violations.first();
                let message = first.map(|violation| violation.message.clone());
                let unknown = judgement.unknown.first().or(judgement.as_without_crash.first());
                let message = message.or_else(|| unknown.cloned()).unwrap_or_default();
                let rule = first.map(|violation| violation.rule.to_string());
                let is_isolated = whole.is_isolated_in(damage.is_of_one_word(), &report, &judgement);
                let kind = damage.kind();
                self.output.say("damage", &Damaged { kind, name, position, outcome, is_isolated, rule, message });
                self.tried += 1;
            }
        }
        Ok(())
    }
}

/// So many of them, in order, the others left out by the seed.
fn drawn(all: Vec<Damage>, at_most: usize, seed: u64) -> Vec<Damage> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    if all.len() > at_most {
        order.sort_by_key(|at| mixed(seed, *at as u64));
        order.truncate(at_most);
        order.sort_unstable();
    }
    order.into_iter().map(|at| all[at]).collect()
}

/// Of a file: from where to where.
type Extent = (String, Range<u64>);

/// Where the objects are that slots hold. Where objects refer to objects, those that they lead to, and all of their heap blocks: what an object
/// refers to lies in front of it, perhaps.
fn objects(report: &HeapReport, history: &History, fill: Fill) -> Vec<Extent> {
    let Some((life, slots)) = report.life(0).and_then(|life| Some((life, life.slots.as_ref()?))) else {
        return Vec::new();
    };
    let name = |file| life.file_name(file).map(str::to_owned);
    let held = |entry: &SlotEntry| {
        let bytes = history.candidates(entry.slot, fill).objects().map(|object| object.bytes).max()?;
        Some((name(entry.file)?, entry.offset..entry.offset.saturating_add(bytes)))
    };
    let blocks = life.walk.as_ref().map_or(&[][..], |walk| &walk.blocks);
    let around = |entry: &ObjectEntry| {
        let is_around =
            |block: &&Block| block.file == entry.at.file && (block.offset..block.end()).contains(&entry.at.offset);
        let block = blocks.iter().find(is_around)?;
        Some((name(block.file)?, block.offset..block.end()))
    };
    let reached = life.objects.iter().flat_map(|objects| &objects.entries);
    slots.entries.iter().filter_map(held).chain(reached.filter_map(around)).collect()
}

/// What lies directly in front of heap blocks: metadata by the walk, or in no block of it.
fn headers(life: &Life) -> Vec<Extent> {
    let mut blocks: Vec<_> = life.walk.iter().flat_map(|walk| &walk.blocks).collect();
    blocks.sort_by_key(|block| (block.file, block.offset));
    let mut headers = Vec::new();
    let mut before: Option<&Block> = None;
    for block in blocks {
        let in_front = before.filter(|before| before.file == block.file);
        let start = match in_front {
            Some(header) if header.state == BlockState::Metadata && header.end() == block.offset => header.offset,
            Some(before) => before.end(),
            None => 0,
        };
        let is_header = start < block.offset && block.offset - start <= HEADER_BYTES;
        if let Some(name) = life.file_name(block.file).filter(|_| is_header && block.state != BlockState::Metadata) {
            headers.push((name.to_owned(), start..block.offset));
        }
        before = Some(block);
    }
    headers
}

/// The bytes of a line that lie in one of the extents, a bit each.
fn bytes_in(image: &CrashImage, line: LineKey, extents: &[Extent]) -> u64 {
    let start = line.number * LINE_BYTES;
    let path = &*image.files()[&line.file].path;
    let is_near = |(file, bytes): &&Extent| file == path && bytes.start < start + LINE_BYTES && bytes.end > start;
    let near: Vec<_> = extents.iter().filter(is_near).collect();
    let is_in = |byte: &u64| near.iter().any(|(_, bytes)| bytes.contains(&(start + byte)));
    (0..LINE_BYTES).filter(is_in).fold(0, |bits, byte| bits | 1 << byte)
}

/// The lines that were stored to. What the allocator copied into an object is the object's.
fn own_lines(image: &CrashImage, objects: &[Extent]) -> Vec<(LineKey, LineContent, u64)> {
    let mut lines = image.lines();
    for (key, _, metadata) in &mut lines {
        *metadata &= !bytes_in(image, *key, objects);
    }
    lines
}

/// A heap that is to be damaged.
struct Heap<'a> {
    image: &'a CrashImage,
    /// Each with a bit for each byte that is the allocator's.
    lines: Vec<(LineKey, LineContent, u64)>,
    objects: Vec<Extent>,
    headers: Vec<Extent>,
    before: &'a LastContents,
}

impl Heap<'_> {
    /// All damages, by kind.
    fn damages(&self) -> Vec<(&'static str, Vec<Damage>)> {
        let mut all: Vec<(&str, Vec<Damage>)> = KINDS.iter().map(|kind| (*kind, Vec::new())).collect();
        let mut add = |damage: Damage| {
            let of_kind = all.iter_mut().find(|(kind, _)| *kind == damage.kind());
            of_kind.expect("each kind is listed").1.push(damage);
        };
        for (line, content, metadata) in &self.lines {
            let (line, content, metadata) = (*line, content, *metadata);
            let is_told =
                |byte: u64| content[byte as usize / WORD_BYTES * WORD_BYTES..][..WORD_BYTES] != [0; WORD_BYTES];
            let bytes = (0..LINE_BYTES).filter(|byte| metadata >> byte & 1 == 1 && is_told(*byte));
            let in_headers = bytes_in(self.image, line, &self.headers);
            for (byte, bit) in bytes.flat_map(|byte| (0..BITS).map(move |bit| (byte, bit))) {
                add(Damage::BitFlip { line, byte, bit });
                if in_headers >> byte & 1 == 1 {
                    add(Damage::HeaderFlip { line, byte, bit });
                }
            }
            let is_other = |other: &LineContent| with_metadata(content, other, metadata) != *content;
            if is_other(&[0; LINE_BYTES as usize]) {
                add(Damage::ZeroLine { line });
            }
            if self.before.before.get(&line).is_some_and(is_other) {
                add(Damage::OldLine { line });
            }
            let is_own = |byte: &u64| metadata >> byte & 0xff == 0xff;
            let words = (0..LINE_BYTES).step_by(WORD_BYTES).filter(is_own).filter(|byte| is_told(*byte));
            for byte in words {
                add(Damage::StrayStore { line, byte, is_open: false });
                add(Damage::StrayStore { line, byte, is_open: true });
            }
        }
        self.own_pages().into_iter().for_each(|line| add(Damage::Poison { line }));
        for (file, state) in self.image.files() {
            let line = LineKey { file: *file, number: 0 };
            let cuts = BTreeSet::from([0, state.bytes / 2, state.bytes.saturating_sub(1)]);
            cuts.into_iter()
                .filter(|bytes| *bytes < state.bytes)
                .for_each(|bytes| add(Damage::CutFile { line, bytes }));
            add(Damage::MissingFile { line });
        }
        all
    }

    /// The first lines of the OS pages that hold something of the allocator's, and nothing of an object.
    fn own_pages(&self) -> BTreeSet<LineKey> {
        let page = |line: &LineKey| line.number * LINE_BYTES / OS_PAGE_BYTES * OS_PAGE_BYTES;
        let is_free = |line: &LineKey| {
            let path = &*self.image.files()[&line.file].path;
            let bytes = page(line)..page(line) + OS_PAGE_BYTES;
            !self.objects.iter().any(|(file, of)| file == path && of.start < bytes.end && bytes.start < of.end)
        };
        let own = self.lines.iter().filter(|(_, _, metadata)| *metadata != 0).map(|(line, _, _)| *line);
        own.filter(is_free).map(|line| LineKey { number: page(&line) / LINE_BYTES, ..line }).collect()
    }

    fn damaged(&self, damage: Damage) -> CrashImage {
        let found = |line: LineKey| {
            let at = self.lines.binary_search_by_key(&line, |(key, _, _)| *key);
            let (_, content, metadata) = &self.lines[at.expect("damages are of lines that are there")];
            (*content, *metadata)
        };
        match damage {
            Damage::BitFlip { line, byte, bit } | Damage::HeaderFlip { line, byte, bit } => {
                let mut content = found(line).0;
                content[byte as usize] ^= 1 << bit;
                self.image.with_line(line, content)
            }
            Damage::ZeroLine { line } => {
                let (content, metadata) = found(line);
                self.image.with_line(line, with_metadata(&content, &[0; LINE_BYTES as usize], metadata))
            }
            Damage::OldLine { line } => {
                let (content, metadata) = found(line);
                self.image.with_line(line, with_metadata(&content, &self.before.before[&line], metadata))
            }
            Damage::Poison { line } => self.image.with_trouble(Trouble {
                kind: TroubleKind::Poison,
                file: line.file,
                offset: line.number * LINE_BYTES,
            }),
            Damage::StrayStore { line, byte, is_open: false } => {
                let mut content = found(line).0;
                content[byte as usize..][..WORD_BYTES].copy_from_slice(STRAY);
                self.image.with_line(line, content)
            }
            Damage::StrayStore { line, byte, is_open: true } => {
                let offset = line.number * LINE_BYTES + byte;
                self.image.with_trouble(Trouble { kind: TroubleKind::StrayStore(*STRAY), file: line.file, offset })
            }
            Damage::CutFile { line, bytes } => self.image.with_file(line.file, Some(bytes)),
            Damage::MissingFile { line } => self.image.with_file(line.file, None),
        }
    }
}

/// The line with the bytes of another one where they are the allocator's.
fn with_metadata(content: &LineContent, other: &LineContent, metadata: u64) -> LineContent {
    std::array::from_fn(|at| if metadata >> at & 1 == 1 { other[at] } else { content[at] })
}

/// KIND:FILE[:OFFSET[:BIT]]@POSITION, offsets and sizes in bytes.
struct Named<'a> {
    damage: Damage,
    position: u32,
    image: &'a CrashImage,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Damage::BitFlip { line, .. }
        | Damage::HeaderFlip { line, .. }
        | Damage::ZeroLine { line }
        | Damage::OldLine { line }
        | Damage::Poison { line }
        | Damage::StrayStore { line, .. }
        | Damage::CutFile { line, .. }
        | Damage::MissingFile { line }) = self.damage;
        write!(text, "{}:{}", self.damage.kind(), self.image.files()[&line.file].path)?;
        match self.damage {
            Damage::BitFlip { byte, bit, .. } | Damage::HeaderFlip { byte, bit, .. } => {
                write!(text, ":0x{:x}:{bit}", line.number * LINE_BYTES + byte)?
            }
            Damage::ZeroLine { .. } | Damage::OldLine { .. } | Damage::Poison { .. } => {
                write!(text, ":0x{:x}", line.number * LINE_BYTES)?
            }
            Damage::StrayStore { byte, .. } => write!(text, ":0x{:x}", line.number * LINE_BYTES + byte)?,
            Damage::CutFile { bytes, .. } => write!(text, ":0x{bytes:x}")?,
            Damage::MissingFile { .. } => {}
        }
        write!(text, "@{}", self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::trace::FileId;
    use oracle::Status;
    use oracle::report::Walk;

    fn flips(count: u64) -> Vec<Damage> {
        let line = LineKey { file: FileId(0), number: 0 };
        (0..count).map(|byte| Damage::BitFlip { line, byte, bit: 0 }).collect()
    }

    #[test]
    fn of_few_all_are_tried_and_of_many_as_many_as_are_asked_for() {
        assert!(drawn(flips(10), 10, 1) == flips(10));
        let some = drawn(flips(1000), 10, 1);
        assert_eq!(some.len(), 10);
        assert!(some == drawn(flips(1000), 10, 1) && some != drawn(flips(1000), 10, 2));
    }

    #[test]
    fn bytes_of_others_are_left_alone() {
        let line = with_metadata(&[1; 64], &[2; 64], 0b101);
        assert_eq!(line[..4], [2, 1, 2, 1]);
        assert_eq!(line[4..], [1; 60]);
    }

    #[test]
    fn a_header_is_what_lies_directly_in_front_of_a_heap_block() {
        let block = |file, state, offset, bytes| Block { file, state, offset, bytes };
        let (free, own) = (BlockState::Free, BlockState::Metadata);
        let far = [block(0, own, 0, 128), block(0, free, 128, 32), block(0, free, 328, 8)];
        let near = [block(1, free, 16, 8), block(0, own, 160, 16), block(0, free, 176, 40), block(0, free, 224, 8)];
        let walk = Walk { status: Status::Ok, file_bytes: 1024, blocks: [&near[..], &far].concat() };
        let files = vec!["a".to_owned(), "b".to_owned()];
        let found = headers(&Life { files, walk: Some(walk), ..Life::default() });
        let in_file = |name: &str, bytes| (name.to_owned(), bytes);
        assert_eq!(found, [in_file("a", 160..176), in_file("a", 216..224), in_file("b", 0..16)]);
    }
}
