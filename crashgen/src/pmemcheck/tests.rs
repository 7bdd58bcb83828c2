// SPDX-License-Identifier: Apache-2.0
//! Logs as pmemcheck writes them, read; and traces written as logs and read again.

use super::export::export;
use super::import::import_text;
use super::*;
use crate::trace::write::TraceWriter;
use crate::trace::{EventKind, FlushKind, Trace};
use std::path::Path;

fn import_of(text: &str) -> Imported {
    import_text(Path::new("log"), text, None).expect("a log")
}

fn trace_of(text: &str) -> Trace {
    Trace::parse(Path::new("trace"), &import_of(text).trace).expect("a trace")
}

fn error_of(text: &str) -> String {
    import_text(Path::new("log"), text, None).expect_err("no log").to_string()
}

/// Each event in a few words.
fn words(trace: &Trace) -> Vec<String> {
    let event = |kind: &EventKind| match kind {
        EventKind::Store { offset, bytes, .. } => format!("store {offset:#x} {:02x?}", &bytes[..]),
        EventKind::Flush { kind: FlushKind::Clwb, offset, .. } => format!("clwb {offset:#x}"),
        EventKind::Fence { .. } => "fence".to_owned(),
        EventKind::Case { number, .. } => format!("case {number}"),
        EventKind::OperationBegin { kind, index, slot, bytes, object } => {
            format!("{} {index} slot {slot} bytes {bytes} object {object}", kind.name())
        }
        EventKind::OperationReturn { kind, index, status } => format!("{} {index} is {status}", kind.name()),
        other => format!("{other:?}"),
    };
    let all = trace.events.iter().map(|each| event(&each.kind));
    all.filter(|text| !text.starts_with("case") && !text.starts_with("create")).collect()
}

const FILE: &str = "REGISTER_FILE;/tmp/pool/heap;0x1000;0x1000;0x0";

fn log_of(records: &str) -> String {
    format!("==7== START|{FILE}|{records}|STOP\n")
}

#[test]
fn every_kind_of_record_is_an_event_or_is_counted() {
    let log = log_of("STORE;0x1008;0x2a;0x4|FLUSH;0x1000;0x40|FENCE|DEEP_SYNC;0x1000;0x8|mine.BEGIN|mine.END");
    let imported = import_of(&log);
    assert_eq!(words(&trace_of(&log)), ["store 0x8 [2a, 00, 00, 00]", "clwb 0x0", "fence"]);
    assert_eq!(trace_of(&log).files.iter().map(|path| &**path).collect::<Vec<_>>(), ["case-0/heap"]);
    assert!(imported.is_whole);
    let notes = imported.notes.join("\n");
    assert!(notes.contains("1 deep syncs are left out") && notes.contains("2 markers name no operation"), "{notes}");
}

#[test]
fn units_in_a_row_are_one_wide_store_where_one_instruction_may_have_made_them() {
    let pair = |first: &str, second: &str| words(&trace_of(&log_of(&format!("{first}|{second}")))).len();
    assert_eq!(pair("STORE;0x1000;0x1;0x8", "STORE;0x1008;0x2;0x8"), 1);
    assert_eq!(pair("STORE;0x1000;0x1;0x8;0x1: f (a.c:1)", "STORE;0x1008;0x2;0x8;0x1: f (a.c:1)"), 1);
    assert_eq!(pair("STORE;0x1000;0x1;0x8;0x1: f (a.c:1)", "STORE;0x1008;0x2;0x8;0x9: f (a.c:2)"), 2);
    assert_eq!(pair("STORE;0x1008;0x1;0x8", "STORE;0x1000;0x2;0x8"), 2, "one before the other");
    assert_eq!(pair("STORE;0x1000;0x1;0x4", "STORE;0x1004;0x2;0x4"), 2, "parts of a unit");
    assert_eq!(pair("STORE;0x1004;0x1;0x8", "STORE;0x100c;0x2;0x8"), 2, "no whole units");
    assert_eq!(pair("STORE;0x1000;0x1;0x8|FENCE", "STORE;0x1008;0x2;0x8"), 3, "something in between");
    let five: Vec<String> = (0..5).map(|at| format!("STORE;{:#x};0x1;0x8", 0x1000 + at * 8)).collect();
    assert_eq!(words(&trace_of(&log_of(&five.join("|")))).len(), 2, "no instruction stores more than 32 bytes");
}

#[test]
fn a_flush_is_of_the_lines_that_it_may_be_of_and_not_more() {
    let lines = |flush: &str| words(&trace_of(&log_of(flush)));
    assert_eq!(lines("FLUSH;0x1044;0x40"), ["clwb 0x44"], "an instruction flushes one line");
    assert_eq!(lines("FLUSH;0x1030;0x20"), ["clwb 0x30", "clwb 0x40"]);
    assert_eq!(lines("FLUSH;0x1000;0x80"), ["clwb 0x0", "clwb 0x40"]);
    let outside = trace_of(&log_of("FLUSH;0x9000;0x40|FLUSH;0x9000;0x40"));
    assert!(outside.events.iter().all(|event| !matches!(event.kind, EventKind::Flush { .. })));
    assert_eq!(outside.flushes_elsewhere[0].count, 2);
}

#[test]
fn the_mapping_that_was_registered_last_says_where_an_address_lies() {
    let log = "START|REGISTER_FILE;/p/a;0x1000;0x1000;0x2000|STORE;0x1000;0x1;0x1|REGISTER_FILE;/p/d/b;0x1000;0x1000;0x0\
               |STORE;0x1000;0x2;0x1|STOP\n";
    let trace = trace_of(log);
    assert_eq!(words(&trace), ["store 0x2000 [01]", "store 0x0 [02]"]);
    assert_eq!(trace.files.iter().map(|path| &**path).collect::<Vec<_>>(), ["case-0/a", "case-0/d/b"]);
}

#[test]
fn what_pmemcheck_did_not_record_is_never_passed_over() {
    let unknown = "STORE;0x1000;0x1;0x4==12== Unable to trace store - unsupported type of store 0x1 0x2\n|FENCE";
    for log in [log_of("STORE;0x9000;0x1;0x4"), log_of(unknown), log_of("FENCE==12== Process terminating\n|FENCE")] {
        let imported = import_of(&log);
        assert!(!imported.is_whole, "{log}");
        assert_eq!(trace_of(&log).unsupported.len(), 1, "{log}");
        assert!(imported.notes.iter().any(|note| note.starts_with("not followed: ")), "{:?}", imported.notes);
    }
    assert_eq!(words(&trace_of(&log_of(unknown))), ["store 0x0 [01, 00, 00, 00]", "fence"]);
}

#[test]
fn what_is_no_whole_log_is_refused_in_one_line() {
    let all = [
        ("", "not a store log of pmemcheck: expected START"),
        ("STARTED", "not a store log"),
        ("==1== pmemcheck-1.0, a simple persistent store checker\n==1== \nSTART|FENCE|STOP\n", "without -q"),
        ("START|FENCE", "cut: it has no STOP"),
        ("START|STORE;0x10", "cut: it has no STOP"),
        ("START|FENCE|STOP\nSTART|FENCE|STOP\n", "of several processes"),
        (
            "START|COMMIT|STOP\n",
            "record 1 is \"COMMIT\": pmemcheck 1.0 writes no such record: the log is of another version",
        ),
        ("START|FENCE;1|STOP\n", "record 1 is \"FENCE;1\""),
        ("START|STORE;0x10;0x1|STOP\n", "expected STORE;ADDRESS;VALUE;BYTES"),
        ("START|STORE;0x10;0x1;0x9|STOP\n", "expected a store of 1 to 8 bytes"),
        ("START|STORE;ten;0x1;0x8|STOP\n", "expected hexadecimal numbers"),
        ("START|REGISTER_FILE;/a;0xffffffffffffffff;0x2;0x0|STOP\n", "a range of a file"),
        ("START|REGISTER_FILE;/a/..;0x1;0x2;0x0|STOP\n", "without `.` and `..`"),
        ("START|REGISTER_FILE;/.;0x0;0xd;0x0|STOP\n", "without `.` and `..`"),
        ("START|FLUSH;0x0;0xffffffffff|STOP\n", "1 byte to 1 GiB"),
        ("START|faultline_swap.BEGIN;1;1;1;1|STOP\n", "\"swap\" is no operation"),
        ("START|faultline_free.BEGIN;x|STOP\n", "expected decimal numbers"),
        ("START|faultline_free.BEGIN;1|STOP\n", "expected .BEGIN;INDEX"),
    ];
    for (log, expected) in all {
        let error = error_of(log);
        assert!(error.contains(expected) && error.starts_with("log: ") && !error.contains('\n'), "{log:?}: {error}");
    }
}

#[test]
fn a_summary_behind_the_end_is_no_record() {
    assert_eq!(
        words(&trace_of(&log_of("FENCE").replace("STOP\n", "STOP\n==7== ERROR SUMMARY: 0 errors\n"))),
        ["fence"]
    );
}

#[test]
fn frames_of_a_stack_are_places_with_their_callers() {
    let inlined = "0x10a: fl_store8 (persist.h:76)0x10A: publish (heap.c:7)";
    let trace = trace_of(&log_of(&format!("STORE;0x1000;0x1;0x4;{inlined};0x20b: main (main.c:9)")));
    let mut symbols = crate::symbols::Symbols::new(Vec::new(), Vec::new());
    let site = trace.events.iter().find(|event| matches!(event.kind, EventKind::Store { .. })).expect("a store").site;
    assert_eq!(symbols.find(&trace, site).text(), "publish (heap.c:7)");
    assert_eq!(symbols.callers(&trace, site)[0].text(), "main (main.c:9)");
}

/// One heap with an operation, all that a log can carry.
fn sample() -> String {
    format!(
        "START|{FILE}|faultline_case.BEGIN;0|faultline_create.BEGIN;0;0;0;0|STORE;0x1000;0x7;0x2;0x5: init (a.c:3)|FLUSH;0x1000;0x40\
         |FENCE|faultline_create.END;0;0|faultline_allocate.BEGIN;1;3;64;9|STORE;0x1040;0x1;0x8|STORE;0x1048;0x2;0x8|STORE;0x1041;0x5;0x3\
         |FLUSH;0x1040;0x40|FENCE|faultline_allocate.END;1;0|faultline_case.END;0|STOP\n"
    )
}

#[test]
fn a_trace_that_is_exported_and_imported_keeps_what_a_log_can_carry() {
    let trace = trace_of(&sample());
    assert!(words(&trace).contains(&"allocate 1 slot 3 bytes 64 object 9".to_owned()), "{:?}", words(&trace));
    let mut symbols = crate::symbols::Symbols::new(Vec::new(), Vec::new());
    let mut frames = |site| match symbols.find(&trace, site).text() {
        unknown if unknown == "an unknown place" => Vec::new(),
        place => vec![format!("0x5: {place}")],
    };
    let exported = export(&trace, "/tmp/pool", &mut frames);
    assert_eq!(exported.notes, ["1 stores of more than 8 bytes are written in pieces"]);
    assert_eq!(exported.files, [("/tmp/pool/case-0/heap".to_owned(), 4096)]);
    let again = trace_of(&exported.log);
    assert_eq!(again.events.len(), trace.events.len());
    assert_eq!((words(&again), &again.files), (words(&trace), &trace.files));
    let twice = export(&again, "/tmp/pool", &mut frames).log;
    assert_eq!(twice, exported.log);
}

#[test]
fn what_a_log_cannot_say_of_a_trace_is_said_in_notes() {
    let mut writer = TraceWriter::new();
    writer.file(1, "case-0/a").create(1, 64).store(1, 1, 0, &[1; 16]).clwb(2, 1, 0).sfence(2);
    let trace = Trace::parse(Path::new("trace"), &writer.finish()).expect("a trace");
    let exported = export(&trace, "/d", &mut |_| Vec::new());
    assert_eq!(
        exported.log,
        "START|REGISTER_FILE;/d/case-0/a;0x100000000000;0x1000;0x0|STORE;0x100000000000;0x101010101010101;0x8\
         |STORE;0x100000000008;0x101010101010101;0x8|FLUSH;0x100000000000;0x40|FENCE|STOP\n"
    );
    assert_eq!(
        exported.notes,
        [
            "1 stores of more than 8 bytes are written in pieces",
            "2 file operations are left out: files must be there as the trace begins",
            "2 threads are written as one: a fence of one counts for all"
        ]
    );
}

#[test]
fn operations_that_overlap_are_left_out() {
    let log = sample().replace("|faultline_create.END;0;0", "");
    let exported = export(&trace_of(&log), "/d", &mut |_| Vec::new());
    assert!(
        !exported.log.contains("allocate") && exported.notes.iter().any(|note| note.starts_with("operations overlap"))
    );
}

#[test]
fn the_base_is_what_the_heap_is_created_with() {
    let folder = std::env::temp_dir().join(format!("faultline-base-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("heap");
    std::fs::write(&file, [vec![0; 4096], vec![7; 64]].concat()).expect("a file");
    let log = log_of("STORE;0x1000;0x1;0x4");
    for base in [&file, &folder] {
        let imported = import_text(Path::new("log"), &log, Some(base)).expect("a log");
        let trace = Trace::parse(Path::new("trace"), &imported.trace).expect("a trace");
        let put: Vec<_> =
            trace.events.iter().filter_map(|event| event.kind.put()).map(|put| (put.1, put.2.len())).collect();
        assert_eq!(put, [(4096, 64), (0, 4)]);
        assert!(trace.has_unknown_operations());
    }
    let error = import_text(Path::new("log"), &log, Some(&folder.join("none"))).expect_err("no base").to_string();
    assert!(error.contains("none: cannot be read") && error.contains("--base takes"), "{error}");
    let two = log.replace(FILE, &format!("{FILE}|{}", FILE.replace("heap;0x1", "other;0x2")));
    let error = import_text(Path::new("log"), &two, Some(&file)).expect_err("two files").to_string();
    assert!(error.contains("registers 2 files"), "{error}");
    std::fs::remove_dir_all(&folder).expect("still there");
}
