// SPDX-License-Identifier: Apache-2.0
//! The heap report's format: what is written is read back, and no bytes make the parser panic.

mod common;

use common::{HEAP_BYTES, Heap, two_objects};
use oracle::report::build::{ReportBuilder, allocated};
use oracle::report::{Life, Location, ObjectEntry, Outcome, Place, ReportError, SectionKind, Stage};
use oracle::{HeapReport, Status};

/// xorshift64*; the tests need the same numbers on each run, and no library.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

fn full_report() -> Vec<u8> {
    let (_, heap) = two_objects();
    heap.probe().builder().message("all is well").bytes()
}

#[test]
fn what_is_written_is_read_back() {
    let report = HeapReport::parse(&full_report()).unwrap();
    assert_eq!((report.outcome, report.last_life, report.lives.len()), (Outcome::Done, 6, 7));
    assert_eq!(report.last_stage, Some(SectionKind::Open));
    let message = &report.lives[6].messages[0];
    assert_eq!((message.about, message.text.as_str()), (Some(SectionKind::Open), "all is well"));
    let life = &report.lives[3];
    assert_eq!(
        (life.open, life.check, life.free_all, life.close),
        (Some(Status::Ok), Some(Status::Ok), Some(Status::Ok), Some(Status::Ok))
    );
    assert_eq!(life.files, ["heap"]);
    let slots = life.slots.as_ref().unwrap();
    assert_eq!((slots.entries[0].slot, slots.entries[0].offset, slots.entries[1].slot), (1, 64, 3));
    let walk = life.walk.as_ref().unwrap();
    assert_eq!((walk.file_bytes, walk.blocks[1]), (HEAP_BYTES, allocated(64, 128)));
    assert_eq!(walk.blocks.iter().map(|block| block.bytes).sum::<u64>(), HEAP_BYTES);
    let drain = life.drain.as_ref().unwrap();
    assert_eq!(drain.capacity_bytes, HEAP_BYTES - 64 - 128 - 256);
    assert!(!drain.is_bounded());
    assert_eq!(life.maximal.unwrap().bytes, 4096);
    let stages: Vec<Stage> = life.contents.iter().map(|contents| contents.after).collect();
    assert_eq!(stages, [Stage::Recovery, Stage::Drain, Stage::FreeAll]);
    assert_eq!((life.contents[1].entries[1].object, life.contents[1].entries[1].to), (3, 200));
}

#[test]
fn the_abstract_heap_has_slots_and_live_blocks_by_file_name() {
    let report = HeapReport::parse(&full_report()).unwrap();
    let place = |offset| Place { file: "heap".to_owned(), offset };
    let heap = report.abstract_heap(0).unwrap();
    assert_eq!(heap.slots.into_iter().collect::<Vec<_>>(), [(1, place(64)), (3, place(512))]);
    assert_eq!(heap.live.unwrap().into_iter().collect::<Vec<_>>(), [(place(64), 128), (place(512), 256)]);
    assert_eq!(report.abstract_heap(1), None, "life 1 does not read the slots");
    assert_eq!(report.abstract_heap(5), None);
}

#[test]
fn a_report_cut_anywhere_is_refused() {
    let bytes = full_report();
    for end in 0..bytes.len() {
        assert!(HeapReport::parse(&bytes[..end]).is_err(), "{end} of {}", bytes.len());
    }
    // With the length in the header put right, too: cut inside a section, or sections are missing.
    for end in 32..bytes.len() {
        let mut cut = bytes[..end].to_vec();
        cut[8..12].copy_from_slice(&(end as u32).to_le_bytes());
        assert!(HeapReport::parse(&cut).is_err(), "{end} of {}", bytes.len());
    }
}

#[test]
fn no_mutation_makes_the_parser_or_the_judge_panic() {
    let (script, heap) = two_objects();
    let crash = common::graph::GraphCrash::random(0x5eed);
    mutate(&full_report(), &script, &heap.memory(), 8_000);
    mutate(&crash.graph.probe().builder().bytes(), &crash.script, &crash.graph.memory(), 2_000);
}

fn mutate(bytes: &[u8], script: &common::Script, memory: &common::Memory, times: u32) {
    let mut random = Random(0x5eed);
    let mut accepted = 0;
    for _ in 0..times {
        let mut mutated = bytes.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(mutated.len());
            mutated[at] = [0, 1, 0x7f, 0xff, random.below(256) as u8][random.below(5)];
        }
        if let Ok(report) = HeapReport::parse(&mutated) {
            accepted += 1;
            let contract = common::contract();
            let judgement =
                oracle::judge(&contract, &common::shape(), &script.history, &report, &Anything(memory), None);
            drop(judgement);
        }
    }
    assert!(accepted > times / 10, "only {accepted} mutations were still reports: the judge was hardly tried");
}

/// Mutated file names are no file of the model's.
struct Anything<'a>(&'a common::Memory);

impl oracle::ContentSource for Anything<'_> {
    fn differs(&self, file: &str, offset: u64, expected: &[oracle::Segment], bytes: u64) -> Option<u64> {
        if file == common::FILE { self.0.differs(file, offset, expected, bytes) } else { Some(0) }
    }
}

fn builder() -> ReportBuilder {
    ReportBuilder::new().open(Status::Ok).files(&["heap"])
}

fn error_of(builder: &ReportBuilder) -> String {
    HeapReport::parse(&builder.bytes()).unwrap_err().to_string()
}

#[test]
fn the_header_is_checked() {
    let good = builder().bytes();
    assert!(HeapReport::parse(&good).is_ok());
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        HeapReport::parse(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 7), ReportError::Magic(7));
    assert_eq!(with(4, 2), ReportError::Version(2));
    assert_eq!(with(8, 5), ReportError::TotalBytes { said: 5, got: good.len() });
    assert_eq!(with(12, 9), ReportError::SectionCount { said: 9, got: 2 });
    assert_eq!(with(16, 6), ReportError::Outcome(6));
    assert_eq!(with(24, 7), ReportError::Life(7));
    assert_eq!(with(28, 17), ReportError::Stage(17));
    assert_eq!(with(32, 17), ReportError::SectionKind(17));
    assert_eq!(with(32, 0), ReportError::SectionKind(0));
    assert_eq!(with(32, 1 << 16 | 1), ReportError::Life(1), "a life that the header does not know");
}

#[test]
fn entries_must_fill_the_payload_and_make_sense() {
    let slots = |entries: &[(u32, u32, u64)]| builder().slots(4, entries);
    assert!(error_of(&slots(&[(4, 0, 0)])).contains("slot 4 of a heap with 4 slots"));
    assert!(error_of(&slots(&[(2, 0, 0), (2, 0, 64)])).contains("slot 2 comes after slot 2"));
    assert!(error_of(&slots(&[(0, 1, 0)])).contains("file number 1 of a life with 1 files"));
    assert!(error_of(&builder().contents(&[(0, 1, 8, 8)])).contains("out of order"));
    assert!(error_of(&builder().contents(&[(0, 1, 0, 8), (0, 1, 7, 9)])).contains("out of order"));
    assert!(error_of(&builder().open(Status::Ok)).contains("Open section comes twice in life 0"));
    assert!(error_of(&builder().contents(&[]).contents(&[])).contains("Contents section comes twice"));
    let open = |status, value| ReportBuilder::new().section(SectionKind::Open, status, 0, value, &[]);
    assert!(error_of(&open(Status::Ok, 3)).contains("open has the value 3"));
    assert!(error_of(&open(Status::Corrupt, 2)).contains("open failed, and says whether it recovered"));
    let walk = |count, payload: &[u8]| builder().section(SectionKind::Walk, Status::Ok, count, 0, payload);
    assert!(error_of(&walk(2, &[0; 24])).contains("2 entries do not fit 24 bytes"));
    assert!(error_of(&walk(1, &[0; 24])).contains("undefined block state 0"));
    let files = |count, payload: &[u8]| ReportBuilder::new().section(SectionKind::Files, Status::Ok, count, 0, payload);
    assert!(error_of(&files(1, b"heap")).contains("does not end in NUL"));
    assert!(error_of(&files(2, b"heap\0")).contains("2 entries do not fit"));
    assert!(error_of(&files(1, b"he\xffp\0")).contains("is not UTF-8"));
}

fn object(offset: u64, fields: [Option<u64>; 2]) -> ObjectEntry {
    let at = |offset| Location { file: 0, offset };
    ObjectEntry { at: at(offset), fields: fields.map(|field| field.map(at)) }
}

#[test]
fn objects_and_what_is_retained_are_read_back() {
    let entries = [object(192, [Some(64), None]), object(64, [None, Some(4096)])];
    let report = builder().objects(Status::OutOfMemory, &entries).retained(3, &[allocated(512, 64)]).report();
    let objects = report.lives[0].objects.as_ref().unwrap();
    assert_eq!((objects.status, &objects.entries[..]), (Status::OutOfMemory, &entries[..]));
    let position = |offset| objects.position(Location { file: 0, offset });
    assert_eq!((position(192), position(64), position(4096)), (Some(0), Some(1), None));
    let retained = report.lives[0].retained.as_ref().unwrap();
    assert_eq!((retained.unreached, &retained.blocks[..]), (3, &[allocated(512, 64)][..]));
}

#[test]
fn objects_are_distinct_and_in_files_of_the_life() {
    let objects = |entries: &[ObjectEntry]| error_of(&builder().objects(Status::Ok, entries));
    assert!(objects(&[object(64, [None; 2]), object(64, [None; 2])]).contains("the object at 0x40 comes twice"));
    let elsewhere = Location { file: 1, offset: 0 };
    let no_file = "file number 1 of a life with 1 files";
    assert!(objects(&[ObjectEntry { at: elsewhere, ..object(0, [None; 2]) }]).contains(no_file));
    assert!(objects(&[ObjectEntry { fields: [None, Some(elsewhere)], ..object(0, [None; 2]) }]).contains(no_file));
    let payload = |bytes| builder().section(SectionKind::Objects, Status::Ok, 1, 0, &vec![0; bytes]);
    assert!(error_of(&payload(47)).contains("1 entries do not fit 47 bytes"));
    let block = oracle::report::Block { file: 1, ..allocated(0, 64) };
    assert!(error_of(&builder().retained(1, &[block])).contains(no_file));
    let twice = builder().objects(Status::Ok, &[]).objects(Status::Ok, &[]);
    assert!(error_of(&twice).contains("Objects section comes twice"));
}

#[test]
fn files_may_be_added_in_a_life_and_not_changed() {
    let grown = builder().files(&["heap", "more"]).report();
    assert_eq!(grown.lives[0].files, ["heap", "more"]);
    assert!(error_of(&builder().files(&["pile"])).contains("Files section comes twice"));
}

#[test]
fn a_life_cut_short_may_lack_its_file_names() {
    let cut = ReportBuilder::new().open(Status::Ok).slots(1, &[(0, 0, 64)]);
    assert!(error_of(&cut).contains("file number 0"));
    let report = cut.outcome(Outcome::Signal(11)).report();
    assert_eq!(report.abstract_heap(0).unwrap().slots[&0].file, "?");
}

#[test]
fn undefined_statuses_are_kept() {
    let report = ReportBuilder::new().open(Status::Undefined(99)).walk(0, &[]).report();
    assert_eq!(report.lives[0].open, Some(Status::Undefined(99)));
    assert_eq!(Status::from(99).to_string(), "undefined status 99");
}

#[test]
fn an_empty_heap_is_reported() {
    let report = Heap::default().probe().report();
    assert!(report.lives[0].slots.as_ref().unwrap().entries.is_empty());
}

/// The heap of `two_objects` probed once, its blocks as given.
fn walked(second_block_bytes: u64, check: Status) -> HeapReport {
    let blocks = [allocated(64, 128), allocated(512, second_block_bytes)];
    let builder = ReportBuilder::new().life(0).open(Status::Ok).files(&["heap"]).slots(8, &[(1, 0, 64), (3, 0, 512)]);
    builder.walk(HEAP_BYTES, &blocks).check(check).report()
}

#[test]
fn differences_name_the_life_the_section_and_the_first_entry() {
    let (one, other) = (walked(256, Status::Ok), walked(192, Status::Corrupt));
    assert_eq!(
        one.differences(&other),
        [
            "heap blocks after recovery: the first that differs: 256 bytes allocated in heap at 0x200, \
             not 192 bytes allocated in heap at 0x200",
            "check after recovery: ok, not corrupt",
        ]
    );
    let fewer = ReportBuilder::new().life(0).open(Status::Ok).files(&["heap"]).slots(8, &[(1, 0, 64)]).report();
    assert_eq!(
        fewer.differences(&one),
        [
            "the probe ended with Done in life 0 at Slots, not Done in life 0 at Check",
            "slots in use after recovery: 1, not 2; the first that differs: nothing, not slot 3 points to heap at 0x200",
            "walk after recovery: nothing, not ok, 8192 bytes of files",
            "heap blocks after recovery: 0, not 2; the first that differs: nothing, not 128 bytes allocated in heap at 0x40",
            "check after recovery: nothing, not ok",
        ]
    );
}

#[test]
fn differences_are_none_exactly_where_reports_are_equal_but_for_contents() {
    let crash = common::graph::GraphCrash::random(0x5eed);
    let created = ReportBuilder::new().life(0).open(Status::NotAHeap).recreate(Status::Ok).bytes();
    let opened = ReportBuilder::new().life(0).open(Status::Ok).files(&["heap"]).slots(8, &[(1, 0, 64)]);
    let retained = opened.walk(HEAP_BYTES, &[allocated(64, 128)]).retained(1, &[allocated(64, 128)]).bytes();
    for bytes in [full_report(), crash.graph.probe().builder().bytes(), created, retained] {
        let whole = HeapReport::parse(&bytes).unwrap();
        let mut random = Random(0x5eed);
        let (mut equal, mut different) = (0, 0);
        for _ in 0..4_000 {
            let mut mutated = bytes.clone();
            let at = random.below(mutated.len());
            mutated[at] = [0, 1, random.below(256) as u8][random.below(3)];
            let Ok(report) = HeapReport::parse(&mutated) else { continue };
            let is_equal = without_contents(&report) == without_contents(&whole);
            assert_eq!(report.differences(&whole).is_empty(), is_equal, "byte {at}");
            *if is_equal { &mut equal } else { &mut different } += 1;
        }
        assert!(equal > 100 && different > 100, "{equal} equal, {different} different: hardly tried");
    }
}

fn without_contents(report: &HeapReport) -> HeapReport {
    let mut report = report.clone();
    report.lives.iter_mut().for_each(|life| life.contents.clear());
    report
}

#[test]
fn open_says_how_the_heap_is_mapped() {
    let parsed = |life: &Life| HeapReport::parse(&ReportBuilder::new().open_as(life).bytes());
    for (is_not_moved, is_kept_out) in [(false, false), (false, true), (true, false), (true, true)] {
        let open = Some(Status::Ok);
        let life = Life { open, has_recovered: Some(true), is_not_moved, is_kept_out, ..Life::default() };
        assert_eq!(parsed(&life).expect("a report").lives[0], life);
        let failed = Life { open: Some(Status::Error), has_recovered: None, ..life };
        match parsed(&failed) {
            Err(error) => {
                assert!(error.to_string().contains("open failed, and says how the heap is mapped"), "{error}")
            }
            Ok(_) => assert!(!is_not_moved && !is_kept_out, "nothing is mapped"),
        }
        let freed = Life { free_all: Some(Status::Ok), stays_kept_out: is_kept_out, ..Life::default() };
        let read = HeapReport::parse(&ReportBuilder::new().free_all_as(&freed).bytes()).expect("a report");
        assert_eq!(read.lives[0], freed);
    }
}
