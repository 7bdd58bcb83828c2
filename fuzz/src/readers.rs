// SPDX-License-Identifier: Apache-2.0
//! Token, litmus test, log of pmemcheck, heap report and the engine's configuration.

use crate::Worth::{Drop, Keep};
use crate::base::config::Config;
use crate::{Worth, check_refusal, plant};
use crashgen::litmus::Litmus;
use crashgen::model::{PersistencyModel, Px86, models};
use crashgen::pmemcheck::{export, import_text};
use crashgen::token::Witness;
use crashgen::trace::{EventKind, LINE_BYTES, Trace};
use oracle::HeapReport;
use oracle::report::build::ReportBuilder;
use oracle::report::{Block, Life, SectionKind, Stage};
use std::path::Path;

/// Texts that are not UTF-8 are refused before the readers see them.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A token without prefix, base64 and checksum goes to the reader too, with all three put around it. Claim: a witness gives a
/// token that gives the same witness.
pub fn token(bytes: &[u8]) -> Worth {
    let sealed = Witness::seal(bytes);
    for token in text(bytes).into_iter().chain([sealed.as_str()]) {
        match Witness::decode(token) {
            Ok(witness) => {
                assert_eq!(Witness::decode(&witness.encode()).as_ref(), Ok(&witness), "another witness came back");
                plant::here(|| witness.lines.len() > 1 && witness.lines[1].number < 1 << 20);
            }
            Err(error) => check_refusal(&error.to_string()),
        }
    }
    Keep
}

/// Far below what the command allows: a run must be short.
const LITMUS_STATES: u128 = 1 << 14;

/// Claims: a test printed and parsed is the same test, its states are found within bounds, and none of them is there twice.
pub fn litmus(bytes: &[u8]) -> Worth {
    let Some(text) = text(bytes) else { return Drop };
    let test = match Litmus::parse(text) {
        Ok(test) => test,
        Err(error) => {
            check_refusal(&error.to_string());
            return Keep;
        }
    };
    let printed = test.to_string();
    let again = Litmus::parse(&printed).unwrap_or_else(|error| panic!("{printed:?} is refused: {error}"));
    assert_eq!((again.to_string(), &again.allowed), (printed, &test.allowed), "another test came back");
    let states = |test: &Litmus, model: &'static dyn PersistencyModel| test.states_up_to(model, LITMUS_STATES);
    match (states(&test, &Px86), states(&again, &Px86)) {
        (Ok(states), Ok(others)) => {
            assert_eq!(states, others, "the printed test has other states");
            plant::here(|| states.len() > 9 && test.allowed.is_none());
        }
        (Err(error), Err(_)) => check_refusal(&error.to_string()),
        (one, other) => panic!("{one:?} and {other:?}"),
    }
    models::ALL.iter().for_each(|model| drop(states(&test, *model)));
    Keep
}

/// Claims: the trace of a log is a trace; written as a log and read again it has the same stored bytes, flushed lines and fences.
pub fn log(bytes: &[u8]) -> Worth {
    let Some(text) = text(bytes) else { return Drop };
    let imported = match import_text(Path::new("log"), text, None) {
        Ok(imported) => imported,
        Err(error) => {
            check_refusal(&error.to_string());
            return Keep;
        }
    };
    let trace = Trace::parse(Path::new("trace"), &imported.trace).expect("a trace");
    let exported = export(&trace, "/pm", &mut |_| Vec::new());
    let again = import_text(Path::new("log"), &exported.log, None).expect("a log");
    let again = Trace::parse(Path::new("trace"), &again.trace).expect("a trace");
    assert_eq!(carried(&trace), carried(&again), "another trace came back");
    plant::here(|| trace.events.len() > 9 && trace.files.len() > 1);
    Keep
}

/// What a log can carry of a trace. Each stored byte and each flushed line has its file and where in it. Files are numbered by their first
/// stores and flushes: a trace numbers them by their paths, and the folder of an exported log is another one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Carried {
    stored: Vec<(u32, u64, u8)>,
    flushed: Vec<(u32, u64)>,
    fences: usize,
}

fn carried(trace: &Trace) -> Carried {
    let mut carried = Carried::default();
    let mut files: Vec<u32> = Vec::new();
    let mut number = |file: u32| {
        let at = files.iter().position(|known| *known == file).unwrap_or(files.len());
        if at == files.len() {
            files.push(file);
        }
        at as u32
    };
    for event in &trace.events {
        match &event.kind {
            EventKind::Flush { file, offset, .. } => carried.flushed.push((number(file.0), offset / LINE_BYTES)),
            EventKind::Fence { .. } => carried.fences += 1,
            kind => {
                let Some((file, offset, bytes)) = kind.put() else { continue };
                let file = number(file.0);
                carried.stored.extend(bytes.iter().zip(offset..).map(|(byte, at)| (file, at, *byte)));
            }
        }
    }
    carried
}

/// Claim: a report written again section by section is the same report.
pub fn report(bytes: &[u8]) -> Worth {
    for bytes in [bytes, &mended_report(bytes)] {
        match HeapReport::parse(bytes) {
            Ok(report) => {
                let written = written(&report);
                assert_eq!(HeapReport::parse(&written).as_ref(), Ok(&report), "another report came back");
                for life in 0..report.lives.len() {
                    let _ = report.abstract_heap(life);
                }
                plant::here(|| report.lives.iter().any(|life| life.drain.is_some() && life.maximal.is_none()));
            }
            Err(error) => check_refusal(&error.to_string()),
        }
    }
    Keep
}

/// With the header's magic, version, size and number of sections made right.
fn mended_report(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(32), 0);
    let (mut at, mut sections) = (32, 0u32);
    while at + 24 <= bytes.len() {
        let payload = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().expect("4 bytes")) as usize;
        let end = payload.checked_next_multiple_of(8).and_then(|payload| payload.checked_add(at + 24));
        let Some(end) = end.filter(|end| *end <= bytes.len()) else { break };
        (at, sections) = (end, sections + 1);
    }
    bytes.truncate(at);
    let total = bytes.len() as u32;
    for (word, value) in [oracle::report::MAGIC, oracle::report::VERSION, total, sections].into_iter().enumerate() {
        bytes[word * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn written(report: &HeapReport) -> Vec<u8> {
    let mut builder = ReportBuilder::new();
    for (number, life) in report.lives.iter().enumerate() {
        builder = write_life(builder.life(number as u16), life);
    }
    builder = builder.life(report.last_life).outcome(report.outcome);
    match report.last_stage {
        Some(stage) => builder.ended_in(stage, report.outcome).bytes(),
        None => builder.bytes(),
    }
}

fn write_life(mut builder: ReportBuilder, life: &Life) -> ReportBuilder {
    let Life {
        files,
        open: _,
        has_recovered: _,
        is_not_moved: _,
        is_kept_out: _,
        stays_kept_out: _,
        slots,
        settled,
        objects,
        walk,
        retained,
        unwalked,
        check,
        contents: _,
        drain,
        free_all: _,
        maximal,
        close,
        recreate,
        messages,
    } = life; // every part by its name: one that is added does not compile before it is written here
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    if !names.is_empty() {
        builder = builder.files(&names);
    }
    builder = builder.open_as(life);
    if let Some(slots) = slots {
        let entries: Vec<_> = slots.entries.iter().map(|entry| (entry.slot, entry.file, entry.offset)).collect();
        builder = builder.slots_with(slots.status, slots.count, &entries);
    }
    if let Some(status) = settled {
        builder = builder.settled(*status);
    }
    if let Some(objects) = objects {
        builder = builder.objects(objects.status, &objects.entries);
    }
    if let Some(walk) = walk {
        builder = builder.walk_with(walk.status, walk.file_bytes, &walk.blocks);
    }
    if let Some(retained) = retained {
        builder = builder.retained_with(retained.status, retained.unreached, &retained.blocks);
    }
    if !unwalked.is_empty() {
        let files: Vec<_> = unwalked.iter().map(|file| (file.file, file.is_mapped, file.bytes)).collect();
        builder = builder.unwalked(&files);
    }
    if let Some(status) = check {
        builder = builder.check(*status);
    }
    builder = write_contents(builder, life, Stage::Recovery);
    if let Some(drain) = drain {
        let payload: Vec<u8> = drain.blocks.iter().flat_map(block_bytes).collect();
        builder = builder.section(SectionKind::Drain, drain.status, drain.blocks.len(), drain.capacity_bytes, &payload);
    }
    builder = write_contents(builder, life, Stage::Drain);
    builder = builder.free_all_as(life);
    builder = write_contents(builder, life, Stage::FreeAll);
    if let Some(maximal) = maximal {
        builder = builder.maximal(maximal.bytes, maximal.status);
    }
    builder = write_contents(builder, life, Stage::Maximal);
    if let Some(status) = close {
        builder = builder.close(*status);
    }
    if let Some(status) = recreate {
        builder = builder.recreate(*status);
    }
    for message in messages {
        let about = message.about.map_or(0, |kind| kind as u64);
        builder = builder.section(SectionKind::Message, oracle::Status::Ok, 1, about, message.text.as_bytes());
    }
    builder
}

fn write_contents(builder: ReportBuilder, life: &Life, after: Stage) -> ReportBuilder {
    let Some(contents) = life.contents.iter().find(|contents| contents.after == after) else { return builder };
    let entries = contents.entries.iter().map(|entry| (entry.slot, entry.object, entry.from, entry.to));
    let words = contents.words.iter().map(|word| (word.slot, 0, word.at, u64::from_le_bytes(word.bytes)));
    let entries: Vec<_> = entries.chain(words).collect();
    builder.contents_with(contents.status, &entries)
}

fn block_bytes(block: &Block) -> Vec<u8> {
    let words = [block.file, block.state as u32].into_iter().flat_map(u32::to_le_bytes);
    words.chain([block.offset, block.bytes].into_iter().flat_map(u64::to_le_bytes)).collect()
}

/// Claim: what is derived of a configuration for the oracle can be derived of every one that is accepted.
pub fn config(bytes: &[u8]) -> Worth {
    let Some(text) = text(bytes) else { return Drop };
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return Drop;
    }
    match Config::parse("config.json", text) {
        Ok(config) => {
            assert!(config.shape().alignment.is_power_of_two());
            plant::here(|| config.seed > 9);
        }
        Err(error) => check_refusal(&error.to_string()),
    }
    Keep
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format that grew a key leaves its seeds behind the first check, and the fuzzer with them.
    #[test]
    fn seeds_are_accepted() {
        for text in [include_str!("../corpus/config/whole"), include_str!("../corpus/config/indented")] {
            assert!(Config::parse("seed", text).is_ok());
        }
        assert!(Witness::decode(include_str!("../corpus/token/one-line")).is_ok());
        assert!(Litmus::parse(include_str!("../corpus/litmus/empty-line")).is_ok());
        assert!(import_text(Path::new("seed"), include_str!("../corpus/log/whole"), None).is_ok());
        for bytes in [&include_bytes!("../corpus/report/full")[..], include_bytes!("../corpus/report/graph")] {
            HeapReport::parse(&mended_report(bytes)).expect("a report");
        }
        for bytes in [&include_bytes!("../corpus/trace/markers")[..], include_bytes!("../corpus/trace/files")] {
            Trace::parse(Path::new("seed"), bytes).expect("a trace");
        }
    }
}
