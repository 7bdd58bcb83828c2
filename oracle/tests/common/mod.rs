// SPDX-License-Identifier: Apache-2.0
//! A model of a heap, legal unless a test bends it, and the full probe's report of it.
#![allow(dead_code)] // each test binary uses its part

pub mod graph;
pub mod random;

use std::collections::BTreeMap;

use oracle::contract::{AfterFailedCreate, Durable, FileSystem, Fill, Leaks, OutOfMemory, Publish};
use oracle::pattern::{expected_bytes, known_ranges, pattern_byte};
use oracle::report::build::{ReportBuilder, allocated, free, metadata};
use oracle::report::{
    Block, BlockState, EMPTIED, EMPTIED_REOPENED, LIFE_COUNT, Message, ObjectEntry, Outcome, REOPENED, SECOND_RECOVERY,
    SectionKind, Stage, USE,
};
use oracle::{
    ContentSource, Contract, HeapReport, HeapShape, History, Judgement, Operation, OperationKind, RuleId, Segment,
    Status, TwinSet, Violation,
};

pub const FILE: &str = "heap";
pub const HEAP_BYTES: u64 = 8192;
pub const SLOTS: u32 = 8;
pub const PROBE_SLOTS: u32 = 1024;
pub const ALIGNMENT: u64 = 64;

pub fn contract() -> Contract {
    Contract {
        publish: Publish::Atomic,
        fill: Fill::Before,
        leaks: Leaks::None,
        durable: Durable::OnReturn,
        accounting: oracle::contract::Accounting::Full,
        slack_bytes: 0,
        relocatable: true,
        mapping_alignment: 4096,
        detects: vec![],
        isolates: vec![],
        after_failed_create: AfterFailedCreate::Error,
        clean_close: false,
        create_unsafe: false,
        out_of_memory: OutOfMemory::Answers,
        file_system: FileSystem::Ordered,
        threads: 1,
    }
}

pub fn shape() -> HeapShape {
    HeapShape {
        alignment: ALIGNMENT,
        smallest_bytes: ALIGNMENT,
        heap_bytes: HEAP_BYTES,
        limit_bytes: HEAP_BYTES,
        slots: SLOTS,
        is_relocated: false,
    }
}

/// (slot, object, from, to)
pub type ContentTuple = (u32, u32, u64, u64);
/// Contents by life and the stage before.
pub type ContentTable = BTreeMap<(u16, Stage), Vec<ContentTuple>>;

/// The contents of one slot's object as the runner finds them (runner/workload/pattern.c): whole words by their object, of a word that
/// two share what matches the run before, and bare words.
pub fn scanned(slot: u32, bytes: &[u8], objects: &[u32]) -> Vec<ContentTuple> {
    let is_of = |id: u32, at: usize| bytes[at] == pattern_byte(id, at as u64);
    let whole = |word: usize| objects.iter().copied().find(|id| (word * 8..word * 8 + 8).all(|at| is_of(*id, at)));
    let bare = |word: usize| {
        let mut value = [0; 8];
        let rest = &bytes[word * 8..];
        let length = rest.len().min(8);
        value[..length].copy_from_slice(&rest[..length]);
        (slot, 0, word as u64 * 8, u64::from_le_bytes(value))
    };
    let (mut runs, mut words): (Vec<ContentTuple>, Vec<ContentTuple>) = (Vec::new(), Vec::new());
    let mut row = 0;
    for word in 0..bytes.len().div_ceil(8) {
        let (start, end) = (word * 8, (word * 8 + 8).min(bytes.len()));
        let found = if end - start == 8 { whole(word) } else { None };
        let open = runs.last().copied().filter(|run| run.3 == start as u64);
        match (found, open) {
            (Some(id), Some(run)) if run.1 == id => runs.last_mut().expect("one is open").3 = end as u64,
            (Some(id), _) => {
                if row > BARE_WORDS {
                    words.push(bare(word - 1));
                }
                let last_end = runs.last().map_or(0, |run| run.3 as usize);
                let first =
                    (0..start).rev().take_while(|at| *at + 8 >= start && is_of(id, *at)).last().unwrap_or(start);
                runs.push((slot, id, first.max(last_end) as u64, end as u64));
            }
            (None, Some(run)) => {
                let matching = (start..end).take_while(|at| is_of(run.1, *at)).count();
                runs.last_mut().expect("one is open").3 += matching as u64;
            }
            (None, None) => {}
        }
        row = if found.is_some() { 0 } else { row + 1 };
        if (1..=BARE_WORDS).contains(&row) {
            words.push(bare(word));
        }
    }
    words.extend(runs);
    words
}

/// FL_BARE_WORDS of runner/protocol.h.
const BARE_WORDS: usize = 4;

/// An object in the model's heap.
#[derive(Clone, Debug)]
pub struct Object {
    pub offset: u64,
    pub capacity: u64,
    pub segments: Vec<Segment>,
}

/// The model's heap: one file, its first 64 bytes metadata, then blocks.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    pub objects: BTreeMap<u32, Object>,
    pub leaked: Vec<(u64, u64)>,
}

impl Heap {
    /// Puts an object there, filled by one operation.
    pub fn put(&mut self, slot: u32, offset: u64, bytes: u64, object: u32) {
        let capacity = bytes.next_multiple_of(ALIGNMENT);
        self.objects.insert(slot, Object { offset, capacity, segments: vec![Segment { end: bytes, object }] });
    }

    pub fn taken(&self) -> Vec<(u64, u64)> {
        let mut taken: Vec<(u64, u64)> = self.objects.values().map(|object| (object.offset, object.capacity)).collect();
        taken.extend(&self.leaked);
        taken.sort_unstable();
        taken
    }

    pub fn gaps(&self) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = ALIGNMENT;
        for (offset, bytes) in self.taken().into_iter().chain([(HEAP_BYTES, 0)]) {
            if offset > at {
                gaps.push((at, offset - at));
            }
            at = offset + bytes;
        }
        gaps
    }

    pub fn walk(&self) -> Vec<Block> {
        let mut blocks = vec![metadata(0, ALIGNMENT)];
        blocks.extend(self.taken().iter().map(|&(offset, bytes)| allocated(offset, bytes)));
        blocks.extend(self.gaps().iter().map(|&(offset, bytes)| free(offset, bytes)));
        blocks.sort_by_key(|block| block.offset);
        blocks
    }

    pub fn slots(&self) -> Vec<(u32, u32, u64)> {
        self.objects.iter().map(|(slot, object)| (*slot, 0, object.offset)).collect()
    }

    pub fn contents(&self) -> Vec<ContentTuple> {
        let mut entries = Vec::new();
        for (slot, object) in &self.objects {
            let mut from = 0;
            for segment in &object.segments {
                entries.push((*slot, segment.object, from, segment.end));
                from = segment.end;
            }
        }
        entries
    }

    pub fn drain(&self) -> Vec<Block> {
        let mut gaps = self.gaps();
        let mut got = Vec::new();
        let mut size = HEAP_BYTES / 2;
        while size >= ALIGNMENT {
            for gap in &mut gaps {
                while gap.1 >= size {
                    got.push(allocated(gap.0, size));
                    *gap = (gap.0 + size, gap.1 - size);
                }
            }
            size /= 2;
        }
        got
    }

    /// When all objects were freed.
    pub fn emptied(&self) -> Heap {
        Heap { objects: BTreeMap::new(), leaked: self.leaked.clone() }
    }

    pub fn memory(&self) -> Memory {
        let mut memory = Memory { bytes: vec![0xcc; HEAP_BYTES as usize] };
        for object in self.objects.values() {
            memory.write(object.offset, &object.segments);
        }
        memory
    }

    pub fn probe(&self) -> Probe {
        let everywhere = |stage| ((USE, stage), self.contents());
        let mut contents: ContentTable =
            [Stage::Recovery, Stage::Drain, Stage::FreeAll].into_iter().map(everywhere).collect();
        for life in [1, SECOND_RECOVERY, REOPENED] {
            contents.insert((life, Stage::Recovery), self.contents());
        }
        let drain = self.drain();
        let maximal = drain.iter().map(|block| block.bytes).max().unwrap_or(0);
        Probe {
            lives: LIFE_COUNT as u16,
            outcome: Outcome::Done,
            ended_in: None,
            open: [Some(Status::Ok); LIFE_COUNT],
            has_recovered: None,
            settled: [None; LIFE_COUNT],
            slots: std::array::from_fn(|_| self.slots()),
            slots_status: [Status::Ok; LIFE_COUNT],
            objects: Default::default(),
            objects_status: [Status::Ok; LIFE_COUNT],
            retained: std::array::from_fn(|_| Some(vec![])),
            contents_status: BTreeMap::new(),
            walk: std::array::from_fn(|_| Some(self.walk())),
            walk_status: Status::Ok,
            check: [Some(Status::Ok); LIFE_COUNT],
            contents,
            emptying: Status::Ok,
            emptied: Some(self.emptied().drain()),
            emptied_status: Status::Ok,
            drain: Some(drain),
            drain_status: Status::Ok,
            long_use: None,
            free_all: Some(Status::Ok),
            maximal: Some((maximal, Status::Ok)),
            close: [Some(Status::Ok); LIFE_COUNT],
            recreate: None,
            message: None,
        }
    }
}

/// Of a recovery that answers this.
pub fn refused(status: Status) -> Probe {
    let mut probe = Heap::default().probe();
    probe.lives = 1;
    probe.open[0] = Some(status);
    probe.message = Some("bad header");
    probe
}

/// The heap's only file, as the crash image has it.
#[derive(Clone)]
pub struct Memory {
    pub bytes: Vec<u8>,
}

impl Memory {
    pub fn write(&mut self, offset: u64, segments: &[Segment]) {
        let bytes = expected_bytes(segments, 0..segments.last().map_or(0, |last| last.end));
        self.bytes[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
    }
}

impl ContentSource for Memory {
    fn differs(&self, file: &str, offset: u64, expected: &[Segment], bytes: u64) -> Option<u64> {
        assert_eq!(file, FILE);
        let right = expected_bytes(expected, 0..bytes);
        let found = self.bytes.get(offset as usize..).unwrap_or_default();
        known_ranges(expected, bytes).flatten().find(|at| found.get(*at as usize) != right.get(*at as usize))
    }
}

/// The parts of a full probe's report, each of which a test may bend.
#[derive(Clone)]
pub struct Probe {
    pub lives: u16,
    pub outcome: Outcome,
    pub ended_in: Option<SectionKind>,
    pub open: [Option<Status>; LIFE_COUNT],
    pub has_recovered: Option<bool>,
    /// Of lives that open lazily.
    pub settled: [Option<Status>; LIFE_COUNT],
    pub slots: [Vec<(u32, u32, u64)>; LIFE_COUNT],
    pub slots_status: [Status; LIFE_COUNT],
    pub objects: [Option<Vec<ObjectEntry>>; LIFE_COUNT],
    pub objects_status: [Status; LIFE_COUNT],
    pub retained: [Option<Vec<Block>>; LIFE_COUNT],
    pub contents_status: BTreeMap<(u16, Stage), Status>,
    pub walk: [Option<Vec<Block>>; LIFE_COUNT],
    pub walk_status: Status,
    pub check: [Option<Status>; LIFE_COUNT],
    pub contents: ContentTable,
    /// Of life 5: the frees of all objects, and the drain after them.
    pub emptying: Status,
    pub emptied: Option<Vec<Block>>,
    pub emptied_status: Status,
    pub drain: Option<Vec<Block>>,
    pub drain_status: Status,
    /// Of the deep probe: how it ended, and what it left allocated.
    pub long_use: Option<(Status, Vec<Block>)>,
    pub free_all: Option<Status>,
    pub maximal: Option<(u64, Status)>,
    pub close: [Option<Status>; LIFE_COUNT],
    pub recreate: Option<Status>,
    pub message: Option<&'static str>,
}

impl Probe {
    /// Only what a probe that ended so has: nothing after this life's open.
    pub fn ended(mut self, life: u16, stage: SectionKind, outcome: Outcome) -> Probe {
        self.lives = life + 1;
        self.outcome = outcome;
        self.ended_in = Some(stage);
        let index = usize::from(life);
        match stage {
            SectionKind::Open => {
                self.open[index] = None;
                self.contents.retain(|(number, _), _| *number < life);
            }
            SectionKind::Drain => {
                self.contents.retain(|(number, after), _| *number < life || *after == Stage::Recovery)
            }
            _ => panic!("the model does not end in {stage:?}"),
        }
        if life <= EMPTIED {
            self.emptied = None;
        }
        if life <= USE {
            (self.drain, self.free_all, self.maximal) = (None, None, None);
        }
        self.close[index] = None;
        self
    }

    pub fn without_walk(mut self) -> Probe {
        self.walk = Default::default();
        self.retained = Default::default();
        self.check = [None; LIFE_COUNT];
        self
    }

    pub fn each_walk(mut self, change: impl Fn(&mut Vec<Block>)) -> Probe {
        self.walk.iter_mut().flatten().for_each(change);
        self
    }

    pub fn each_slots(mut self, change: impl Fn(&mut Vec<(u32, u32, u64)>)) -> Probe {
        self.slots.iter_mut().for_each(change);
        self
    }

    pub fn builder(&self) -> ReportBuilder {
        let mut builder =
            (0..self.lives).fold(ReportBuilder::new(), |builder, life| self.life(builder.life(life), life));
        if let Some(text) = self.message {
            builder = builder.message(text);
        }
        match self.ended_in {
            Some(stage) => builder.ended_in(stage, self.outcome),
            None => builder.outcome(self.outcome),
        }
    }

    fn life(&self, mut builder: ReportBuilder, life: u16) -> ReportBuilder {
        let index = usize::from(life);
        let Some(status) = self.open[index] else { return builder };
        builder = match self.has_recovered.filter(|_| status == Status::Ok) {
            Some(has_recovered) => builder.opened(has_recovered),
            None => builder.open(status),
        };
        builder = builder.files(&[FILE]);
        if status != Status::Ok {
            return match self.recreate.filter(|_| life == 0) {
                Some(status) => builder.recreate(status),
                None => builder,
            };
        }
        match life {
            EMPTIED => return self.closed(self.emptying(builder), life),
            EMPTIED_REOPENED => return builder,
            _ => {}
        }
        if let Some(status) = self.settled[index] {
            builder = builder.settled(status);
        }
        if life != 1 {
            builder = builder.slots_with(self.slots_status[index], u64::from(SLOTS + PROBE_SLOTS), &self.slots[index]);
            if let Some(objects) = &self.objects[index] {
                builder = builder.objects(self.objects_status[index], objects);
            }
            if let Some(blocks) = &self.walk[index] {
                builder = builder.walk_with(self.walk_status, HEAP_BYTES, blocks);
            }
            if let Some(blocks) = &self.retained[index] {
                builder = builder.retained(blocks.len() as u64, blocks);
            }
            if let Some(status) = self.check[index] {
                builder = builder.check(status);
            }
        }
        builder = self.contents(builder, life, Stage::Recovery);
        if life == USE {
            builder = self.stages(builder);
        }
        if let Some((status, blocks)) = self.long_use.as_ref().filter(|_| life == REOPENED) {
            builder = builder.drain(*status, blocks);
        }
        self.closed(builder, life)
    }

    fn closed(&self, builder: ReportBuilder, life: u16) -> ReportBuilder {
        match self.close[usize::from(life)].filter(|_| life >= USE) {
            Some(status) => builder.close(status),
            None => builder,
        }
    }

    fn emptying(&self, builder: ReportBuilder) -> ReportBuilder {
        match &self.emptied {
            Some(_) if self.emptying != Status::Ok => builder.free_all(self.emptying),
            Some(emptied) => builder.free_all(Status::Ok).drain(self.emptied_status, emptied),
            None => builder,
        }
    }

    fn stages(&self, mut builder: ReportBuilder) -> ReportBuilder {
        let Some(drain) = &self.drain else { return builder };
        builder = self.contents(builder.drain(self.drain_status, drain), USE, Stage::Drain);
        if let Some(status) = self.free_all {
            builder = self.contents(builder.free_all(status), USE, Stage::FreeAll);
        }
        match self.maximal {
            Some((bytes, status)) => builder.maximal(bytes, status),
            None => builder,
        }
    }

    fn contents(&self, builder: ReportBuilder, life: u16, stage: Stage) -> ReportBuilder {
        match self.contents.get(&(life, stage)) {
            Some(entries) => {
                let status = self.contents_status.get(&(life, stage)).copied().unwrap_or(Status::Ok);
                builder.contents_with(status, entries)
            }
            None => builder,
        }
    }

    pub fn report(&self) -> HeapReport {
        self.builder().report()
    }
}

/// A history that counts its operations itself. Object id = operation index + 1.
#[derive(Clone, Debug)]
pub struct Script {
    pub history: History,
    pub next: u32,
}

impl Script {
    pub fn new(durable: Durable) -> Script {
        Script { history: History::new(durable), next: 0 }
    }

    /// A created heap; the next operation is number 1.
    pub fn created() -> Script {
        Script::new(Durable::OnReturn).done(OperationKind::Create, 0, 0)
    }

    pub fn begin(mut self, kind: OperationKind, slot: u32, bytes: u64) -> Script {
        self.begin_on(0, kind, slot, bytes);
        self
    }

    pub fn begin_on(&mut self, thread: u32, kind: OperationKind, slot: u32, bytes: u64) {
        let index = self.next;
        self.next += 1;
        let object = match kind {
            OperationKind::Allocate | OperationKind::Reallocate => index + 1,
            _ => 0,
        };
        let operation = Operation { thread, kind, index, slot, bytes, object, from: 0, field: 0, other_slot: 0 };
        self.history.begin(operation).expect("the test's operations fit");
    }

    /// link, unlink, drop or load.
    pub fn begin_reference(mut self, kind: OperationKind, slot: u32, field: u8, other_slot: u32) -> Script {
        let index = self.next;
        let operation = Operation { thread: 0, kind, index, slot, bytes: 0, object: 0, from: 0, field, other_slot };
        self.next += 1;
        self.history.begin(operation).expect("the test's operations fit");
        self
    }

    /// A write of so many bytes.
    pub fn begin_write(mut self, slot: u32, from: u64, bytes: u64) -> Script {
        let (kind, index) = (OperationKind::Write, self.next);
        let object = index + 1;
        let operation = Operation { thread: 0, kind, index, slot, bytes, object, from, field: 0, other_slot: 0 };
        self.next += 1;
        self.history.begin(operation).expect("the test's operations fit");
        self
    }

    pub fn written(self, slot: u32, from: u64, bytes: u64) -> Script {
        self.begin_write(slot, from, bytes).returned(Status::Ok)
    }

    /// begin, commit or abort, from begin to return.
    pub fn bound(self, kind: OperationKind) -> Script {
        self.done(kind, 0, 0)
    }

    pub fn returned(mut self, status: Status) -> Script {
        self.history.returned(0, self.next - 1, status).expect("the test's operations fit");
        self
    }

    pub fn done(self, kind: OperationKind, slot: u32, bytes: u64) -> Script {
        self.begin(kind, slot, bytes).returned(Status::Ok)
    }

    pub fn allocated(self, slot: u32, bytes: u64) -> Script {
        self.done(OperationKind::Allocate, slot, bytes)
    }

    pub fn freed(self, slot: u32) -> Script {
        self.done(OperationKind::Free, slot, 0)
    }
}

/// Slot 1 holds 100 bytes of operation 1, slot 3 holds 200 of operation 2.
pub fn two_objects() -> (Script, Heap) {
    let mut heap = Heap::default();
    heap.put(1, 64, 100, 2);
    heap.put(3, 512, 200, 3);
    (Script::created().allocated(1, 100).allocated(3, 200), heap)
}

/// As [`oracle::judge`]. Whatever the allocator's own words are, they change nothing but words.
pub fn judge(
    contract: &Contract,
    shape: &HeapShape,
    history: &History,
    report: &HeapReport,
    content: &dyn ContentSource,
    twins: Option<&TwinSet>,
) -> Judgement {
    let judge = |report: &HeapReport| oracle::judge(contract, shape, history, report, content, twins);
    let judgement = judge(report);
    assert_eq!(without_words(judge(&reworded(report))), without_words(judgement.clone()));
    judgement
}

/// Each section of each life is explained, in words that no test uses.
pub fn reworded(report: &HeapReport) -> HeapReport {
    let mut report = report.clone();
    for (number, life) in report.lives.iter_mut().enumerate() {
        life.messages.iter_mut().for_each(|message| message.text = format!("some other words, {number}"));
        let explained = |kind| Message { about: Some(kind), text: format!("{kind:?} went as {number} go") };
        life.messages.extend(SectionKind::ALL.map(explained));
    }
    report
}

fn without_words(judgement: Judgement) -> Judgement {
    let silent = |violation| Violation { message: String::new(), ..violation };
    let unknown = judgement.unknown.iter().map(|_| String::new()).collect();
    Judgement { violations: judgement.violations.into_iter().map(silent).collect(), unknown, ..judgement }
}

pub fn judged(contract: &Contract, script: &Script, probe: &Probe, memory: &Memory) -> Judgement {
    accounted(contract, judge(contract, &shape(), &script.history, &probe.report(), memory, None))
}

pub fn judged_with_twins(script: &Script, probe: &Probe, memory: &Memory, twins: &TwinSet) -> Judgement {
    let contract = contract();
    accounted(&contract, judge(&contract, &shape(), &script.history, &probe.report(), memory, Some(twins)))
}

/// Whatever the heap report: no rule that the contract promises to keep is passed over in silence, and no other one is named.
fn accounted(contract: &Contract, judgement: Judgement) -> Judgement {
    // It is judged where power fails in a commit: tests of transactions ask for it.
    for rule in RuleId::ALL.into_iter().filter(|rule| *rule != RuleId::TransactionInPart) {
        let is_broken = judgement.violations.iter().any(|violation| violation.rule == rule);
        let is_named = judgement.not_judged.iter().any(|(other, _)| *other == rule);
        let is_accounted = judgement.judged.contains(rule) || is_broken || is_named;
        // That recovery was skipped no contract forbids: it is said where something else is broken.
        let must_be = contract.promises(rule) || (rule == RuleId::RecoverySkipped && is_broken);
        assert_eq!(is_accounted, must_be, "{rule}: {judgement:#?}");
    }
    judgement
}

/// What exactly is broken, in the words that ids are made of.
pub fn facts(judgement: &Judgement) -> Vec<String> {
    judgement.violations.iter().map(|violation| violation.fact.to_string()).collect()
}

pub fn rules(judgement: &Judgement) -> Vec<RuleId> {
    let mut rules: Vec<RuleId> = judgement.violations.iter().map(|violation| violation.rule).collect();
    rules.dedup();
    rules
}

#[track_caller]
pub fn assert_passes(judgement: &Judgement) {
    assert!(judgement.violations.is_empty() && judgement.unknown.is_empty(), "{judgement:#?}");
}

#[track_caller]
pub fn assert_breaks(judgement: &Judgement, expected: &[RuleId]) {
    assert_eq!(rules(judgement), expected, "{judgement:#?}");
}
