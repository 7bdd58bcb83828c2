// SPDX-License-Identifier: Apache-2.0
//! Whatever the bytes: a reader answers a trace or one error, and never panics.

use super::write::{TraceWriter, mended};
use super::*;
use std::path::Path;

fn sample() -> Vec<u8> {
    let mut writer = TraceWriter::new();
    writer
        .file(1, "case-0/heap")
        .create(1, 4096)
        .store(1, 1, 8, &[7; 8])
        .store(1, 1, 64, &[9; 40])
        .clwb(1, 1, 8)
        .sfence(1);
    writer.finish()
}

fn parse(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::parse(Path::new("t.trace"), bytes)
}

#[test]
fn a_written_trace_is_read_back() {
    let trace = parse(&sample()).expect("valid");
    assert_eq!((trace.events.len(), trace.processes, trace.files.len()), (8, 1, 1));
    let EventKind::Store { bytes, offset, .. } = &trace.events[5].kind else { panic!("{:?}", trace.events[5]) };
    assert_eq!((bytes.len(), *offset), (40, 64));
}

#[test]
fn mending_a_sound_trace_changes_nothing() {
    assert_eq!(mended(&sample()), sample());
    assert!(parse(&mended(&[])).is_ok(), "an empty trace");
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = sample();
    for length in 0..bytes.len() {
        let error = parse(&bytes[..length]).expect_err("truncated").to_string();
        assert!(error.starts_with("t.trace: ") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn every_flipped_byte_is_an_error() {
    let bytes = sample();
    for at in (0..bytes.len()).filter(|at| *at < bytes.len() - 16) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        assert!(parse(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn damage_is_told_where_it_is_and_a_foreign_footer_is_noticed() {
    let mut damaged = sample();
    damaged[format::HEADER_BYTES + format::CHUNK_BYTES + 40] ^= 1;
    let error = parse(&damaged).expect_err("damaged").to_string();
    assert!(error.contains("corrupt at byte 64: the checksum of this chunk is wrong"), "{error}");
    let mut foreign = sample();
    let at = foreign.len() - format::FOOTER_BYTES + 16;
    foreign[at] ^= 1;
    let error = parse(&foreign).expect_err("another's").to_string();
    assert!(error.contains("the hash in the footer is not that of the contents"), "{error}");
}

#[test]
fn damaged_records_never_panic() {
    let bytes = sample();
    let cells = format::HEADER_BYTES + format::CHUNK_BYTES..bytes.len() - format::FOOTER_BYTES;
    for at in cells {
        for value in [0, 1, 2, 0x0f, 0x40, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = parse(&mended(&damaged));
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = sample();
    bytes[8] = 9;
    let error = parse(&bytes).expect_err("version").to_string();
    assert!(error.contains("trace version 9, expected 6"), "{error}");
}

#[test]
fn a_path_outside_the_pm_folder_is_refused() {
    for path in ["/etc/passwd", "../x", "a/../../x", ""] {
        let mut writer = TraceWriter::new();
        writer.file(1, path);
        assert!(parse(&writer.finish()).is_err(), "{path}");
    }
}

#[test]
fn an_instruction_that_is_called_from_two_places_is_two_sites() {
    let mut writer = TraceWriter::new();
    writer.file(1, "case-0/heap").create(1, 4096);
    writer.site(1, 0x100, 0).site(2, 0x200, 0).site(3, 0x50, 1).site(4, 0x50, 2).site(5, 0x50, 2);
    for site in 3..=5 {
        writer.clwb_at(site, 1, 1, 0);
    }
    let trace = parse(&writer.finish()).expect("valid");
    let sites: Vec<SiteId> = trace.events[trace.events.len() - 3..].iter().map(|event| event.site).collect();
    assert!(sites[0] != sites[1] && sites[1] == sites[2], "{sites:?}");
    let callers =
        sites.iter().map(|site| trace.sites[trace.sites[site.0 as usize].caller.expect("called").0 as usize].offset);
    assert_eq!(callers.collect::<Vec<_>>(), [0x100, 0x200, 0x200]);
}

#[test]
fn a_caller_that_is_not_defined_is_an_error() {
    let mut writer = TraceWriter::new();
    writer.site(1, 0x50, 1);
    let error = parse(&writer.finish()).expect_err("of itself").to_string();
    assert!(error.contains("site 1 names its caller 1, which is not defined"), "{error}");
}

#[test]
fn an_unsealed_trace_can_be_sealed_once() {
    let folder = std::env::temp_dir().join(format!("seal-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("temporary folder");
    let path = folder.join("t.trace");
    let sealed = sample();
    std::fs::write(&path, &sealed[..sealed.len() - format::FOOTER_BYTES]).expect("written");
    assert!(Trace::read(&path).is_err());
    let hash = seal(&path).expect("sealed");
    assert_eq!(Trace::read(&path).expect("valid").hash, hash);
    assert!(seal(&path).is_err(), "a footer is no chunk");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn an_offset_that_no_file_can_have_is_refused() {
    let mut writer = TraceWriter::new();
    writer.file(1, "heap").create(1, 4096).store(1, 1, u64::MAX - 15, &[1; 8]);
    let error = parse(&writer.finish()).expect_err("beyond off_t").to_string();
    assert!(error.contains("corrupt at byte"), "{error}");
}
