// SPDX-License-Identifier: Apache-2.0
//! A trace of a log.
//!
//! What the log does not say is taken so that more crash states are reachable, not fewer: flushes are clwb, fences sfence, and stores of
//! 8 bytes that one instruction may have made are one store, whose parts persist in any order. For two things there is no such choice:
//! all is done by one thread, and a fence behind the flush of a clflush is a fence.

use super::log::{Log, LogError, Record, Result};
use super::{CASE, MARKER, VALUE_BYTES};
use crate::trace::format::{self, kind};
use crate::trace::write::{EMPTY, TraceWriter};
use crate::trace::{IMPORTED, LINE_BYTES, OperationKind};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The only thread.
const THREAD: u16 = 1;
/// Bytes of the widest store that Valgrind runs, of AVX: pmemcheck writes it as four records.
const WIDEST_BYTES: usize = 32;
/// What files held before is written in pieces; one that is all zeros is left out.
const PIECE_BYTES: usize = 4096;
/// Each line of a flush is an event; a wider flush is refused.
const FLUSH_BYTES: u64 = 1 << 30;

/// A log as a trace.
#[derive(Debug)]
pub struct Imported {
    /// The sealed trace.
    pub trace: Vec<u8>,
    /// What the log does not say and where that mattered, in words.
    pub notes: Vec<String>,
    /// Whether the log has all that the program did, as far as it tells; the trace names what is missing, too.
    pub is_whole: bool,
}

/// The trace of the log at `path`. `base`: what the files held where the log begins, a file or the folder that they lie in. Without it
/// their content is not known, and the trace can be judged by trace rules alone.
///
/// # Errors
/// [`LogError`] with the path, the record and what was expected.
pub fn import(path: &Path, base: Option<&Path>) -> Result<Imported> {
    let bytes = std::fs::read(path).map_err(|source| LogError::Io { path: path.into(), source })?;
    let text = String::from_utf8(bytes).map_err(|_| LogError::NotALog { path: path.into() })?;
    import_text(path, &text, base)
}

/// As [`import`], of a text in memory; `path` is for messages.
///
/// # Errors
/// As [`import`].
pub fn import_text(path: &Path, text: &str, base: Option<&Path>) -> Result<Imported> {
    let log = Log::parse(path, text)?;
    let names = Names::of(&log);
    let contents = base.map(|base| read_base(base, &names)).transpose()?;
    let mut importer = Importer::new(names, contents);
    importer.note_messages(&log);
    importer.begin(&log);
    for (number, record) in log.records.iter().enumerate() {
        importer.add(record).map_err(|what| LogError::Record {
            path: path.into(),
            number: number + 1,
            record: format!("{record:?}").chars().take(80).collect(),
            what,
        })?;
    }
    Ok(importer.finish())
}

/// What the files of the log are called in the trace, by their paths in the log.
struct Names(BTreeMap<String, String>);

impl Names {
    /// Below the deepest folder that holds all of them; where an exported trace has cases, below their folders as it had them.
    fn of(log: &Log) -> Self {
        let paths = log.records.iter().filter_map(|record| match record {
            Record::File { path, .. } => Some(*path),
            _ => None,
        });
        let mut folder: Option<&Path> = None;
        for path in paths.clone() {
            let own = Path::new(path).parent().unwrap_or(Path::new(""));
            let shared = folder.unwrap_or(own).ancestors().find(|shared| own.starts_with(shared));
            folder = Some(shared.unwrap_or(Path::new("")));
        }
        let folder = folder.unwrap_or(Path::new(""));
        let has_cases = has_cases(log);
        Self(paths.map(|path| (path.to_owned(), Self::name(path, folder, has_cases))).collect())
    }

    fn name(path: &str, folder: &Path, has_cases: bool) -> String {
        let parts: Vec<&str> = path.split('/').collect();
        let is_case = |part: &&str| part.strip_prefix("case-").is_some_and(|number| number.parse::<u32>().is_ok());
        let at = parts.iter().position(is_case).filter(|at| has_cases && at + 1 < parts.len());
        if let Some(at) = at {
            return parts[at..].join("/");
        }
        let below = Path::new(path).strip_prefix(folder).unwrap_or(Path::new(path));
        format!("case-0/{}", below.display().to_string().trim_start_matches('/'))
    }
}

/// What each file held, by its name in the trace.
type Contents = BTreeMap<String, Vec<u8>>;

fn read_base(base: &Path, names: &Names) -> Result<Contents> {
    let wrong = |path: PathBuf, what: String| LogError::Base { path, what };
    let files: Vec<&String> = names.0.values().collect();
    if !base.is_dir() && files.len() != 1 {
        let what = format!("the log registers {} files, so --base takes the folder that they lie in", files.len());
        return Err(wrong(base.into(), what));
    }
    let read = |name: &String| {
        let in_heap = name.split_once('/').map_or(name.as_str(), |(_, rest)| rest);
        let path = if base.is_dir() { base.join(in_heap) } else { base.to_path_buf() };
        match std::fs::read(&path) {
            Ok(bytes) => Ok((name.clone(), bytes)),
            Err(error) => {
                Err(wrong(path, format!("cannot be read: {error}; --base takes what {in_heap} held before the log")))
            }
        }
    };
    files.into_iter().map(read).collect()
}

/// A registered file in the address space of the program.
struct Mapping {
    address: u64,
    bytes: u64,
    file: u32,
    offset: u64,
}

/// Stores that one instruction may have made, at the same place.
struct Run {
    file: u32,
    offset: u64,
    bytes: Vec<u8>,
    site: u32,
    stack: String,
    /// Whether more may follow: whole units, of 8 bytes each.
    is_open: bool,
    pieces: usize,
}

/// How often something was met that the log does not say all of.
#[derive(Default)]
struct Counts {
    joined: usize,
    deep_syncs: usize,
    markers: usize,
    parts: usize,
    within: usize,
    outside: usize,
    flushed_outside: u64,
}

struct Importer {
    writer: TraceWriter,
    names: Names,
    contents: Option<Contents>,
    files: BTreeMap<String, u32>,
    mappings: Vec<Mapping>,
    modules: FxHashMap<String, u32>,
    sites: FxHashMap<String, u32>,
    run: Option<Run>,
    counts: Counts,
    notes: Vec<String>,
    missing: Vec<String>,
}

impl Importer {
    fn new(names: Names, contents: Option<Contents>) -> Self {
        Self {
            writer: TraceWriter::of(IMPORTED),
            names,
            contents,
            files: BTreeMap::new(),
            mappings: Vec::new(),
            modules: FxHashMap::default(),
            sites: FxHashMap::default(),
            run: None,
            counts: Counts::default(),
            notes: Vec::new(),
            missing: Vec::new(),
        }
    }

    fn note_messages(&mut self, log: &Log) {
        if log.untraced > 0 {
            let count = log.untraced;
            self.missing.push(format!("pmemcheck met {count} instructions whose stores it does not record"));
        }
        let said = log.messages.iter().map(|text| format!("Valgrind said among the records: {text}"));
        self.missing.extend(said);
    }

    /// The first case, unless the log begins with one of its own.
    fn begin(&mut self, log: &Log) {
        for name in self.names.0.values() {
            let next = self.files.len() as u32 + 1;
            self.files.entry(name.clone()).or_insert_with(|| {
                self.writer.file(next, name);
                next
            });
        }
        if !has_cases(log) {
            let is_created = log.records.iter().find_map(operation).is_some_and(|kind| kind == OperationKind::Create);
            self.case(0, is_created);
        }
    }

    fn add(&mut self, record: &Record) -> std::result::Result<(), String> {
        if let Record::Store { address, value, bytes, stack } = *record {
            self.store(address, &value.to_le_bytes()[..bytes], stack);
            return Ok(());
        }
        self.end_run();
        match *record {
            Record::File { path, address, bytes, offset } => self.file(path, address, bytes, offset),
            Record::Flush { address, bytes } => return self.flush(address, bytes),
            Record::Fence => drop(self.writer.sfence(THREAD)),
            Record::DeepSync => self.counts.deep_syncs += 1,
            Record::Marker { name, is_begin, arguments } => return self.marker(name, is_begin, arguments),
            Record::Store { .. } => unreachable!("handled above"),
        }
        Ok(())
    }

    // ---- files ------------------------------------------------------------------------------------------------------------

    /// A heap begins. `is_created`: the log has its creation; else its creation is that its files come to hold what they held.
    fn case(&mut self, number: u32, is_created: bool) {
        let begin = EMPTY.of(kind::OPERATION_BEGIN);
        self.writer.push(format::Record { detail: format::OPERATION_CASE, size: number, ..begin }, &[]);
        if !is_created {
            self.operation(kind::OPERATION_BEGIN, OperationKind::Create, &[0; 4]);
        }
        let prefix = format!("case-{number}/");
        let contents = self.contents.take().unwrap_or_default();
        for (name, bytes) in contents.iter().filter(|(name, _)| name.starts_with(&prefix)) {
            self.content(self.files[name], bytes);
        }
        self.contents = Some(contents);
        if !is_created {
            self.operation(kind::OPERATION_RETURN, OperationKind::Create, &[0; 2]);
        }
    }

    fn content(&mut self, file: u32, bytes: &[u8]) {
        use format::file_operation as operation;
        self.writer.create(file, bytes.len() as u64);
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                self.file_operation(operation::WRITE, file, (number * PIECE_BYTES) as u64, piece);
            }
        }
        self.file_operation(operation::FSYNC, file, 0, &[]);
    }

    fn file_operation(&mut self, detail: u8, file: u32, offset: u64, payload: &[u8]) {
        let size = payload.len() as u32;
        let record = format::Record { detail, file, offset, size, ..EMPTY.of(kind::FILE_BEGIN) };
        self.writer.push(record, payload);
        self.writer.push(format::Record { size: 0, ..record.of(kind::FILE_END) }, &[]);
    }

    fn file(&mut self, path: &str, address: u64, bytes: u64, offset: u64) {
        const SHARED_AND_WRITABLE: u8 = 9;
        let file = self.files[&self.names.0[path]];
        self.mappings.push(Mapping { address, bytes, file, offset });
        let map = format::Record { detail: SHARED_AND_WRITABLE, file, offset, value: bytes, ..EMPTY.of(kind::MAP) };
        self.writer.push(map, &[]);
    }

    /// File and offset in it; the mapping that was registered last counts.
    fn at(&self, address: u64, bytes: u64) -> Option<(u32, u64)> {
        let holds = |mapping: &&Mapping| {
            let start = address.checked_sub(mapping.address);
            start.is_some_and(|start| start.checked_add(bytes).is_some_and(|end| end <= mapping.bytes))
        };
        let mapping = self.mappings.iter().rev().find(holds)?;
        Some((mapping.file, mapping.offset + (address - mapping.address)))
    }

    // ---- stores, flushes --------------------------------------------------------------------------------------------------

    fn store(&mut self, address: u64, bytes: &[u8], stack: &str) {
        let Some((file, offset)) = self.at(address, bytes.len() as u64) else {
            self.end_run();
            self.counts.outside += 1;
            return;
        };
        let is_unit = bytes.len() == VALUE_BYTES && offset % VALUE_BYTES as u64 == 0;
        let follows = |run: &&mut Run| {
            let end = (run.file, run.offset + run.bytes.len() as u64);
            run.is_open && is_unit && end == (file, offset) && run.bytes.len() < WIDEST_BYTES && run.stack == stack
        };
        if let Some(run) = self.run.as_mut().filter(follows) {
            run.bytes.extend(bytes);
            run.pieces += 1;
            return;
        }
        self.end_run();
        let site = self.site(&stack.replace(")0x", ");0x")); // frames of inlined functions have nothing between them
        let (stack, bytes) = (stack.to_owned(), bytes.to_vec());
        self.run = Some(Run { file, offset, bytes, site, stack, is_open: is_unit, pieces: 1 });
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.counts.joined += usize::from(run.pieces > 1);
        self.writer.store_at(run.site, THREAD, run.file, run.offset, &run.bytes);
    }

    /// An instruction flushes the line of its operand; what a program says it flushed may be many lines.
    fn flush(&mut self, address: u64, bytes: u64) -> std::result::Result<(), String> {
        if bytes == 0 || bytes > FLUSH_BYTES || address.checked_add(bytes).is_none() {
            return Err("expected a flush of 1 byte to 1 GiB".to_owned());
        }
        let is_aligned = address % LINE_BYTES == 0;
        let end = if bytes == LINE_BYTES { address + 1 } else { address + bytes };
        self.counts.within += usize::from(bytes == LINE_BYTES && !is_aligned);
        self.counts.parts += usize::from(bytes != LINE_BYTES && (!is_aligned || bytes % LINE_BYTES != 0));
        for line in self.mapped_lines(address, end) {
            self.writer.clwb(THREAD, line.0, line.1);
        }
        Ok(())
    }

    /// File and offset of each line of the range that lies in a file.
    fn mapped_lines(&mut self, address: u64, end: u64) -> Vec<(u32, u64)> {
        let mut lines = Vec::new();
        for mapping in &self.mappings {
            let first = address.max(mapping.address);
            let line = first - first % LINE_BYTES;
            let stop = end.min(mapping.address + mapping.bytes);
            let starts = (line..stop).step_by(LINE_BYTES as usize);
            lines.extend(starts.filter_map(|line| self.at(line.max(first), 1)));
        }
        lines.sort_unstable();
        lines.dedup();
        self.counts.flushed_outside += u64::from(lines.is_empty());
        lines
    }

    // ---- places -----------------------------------------------------------------------------------------------------------

    /// The number of the place with this stack, innermost frame first; 0: none is known.
    fn site(&mut self, stack: &str) -> u32 {
        if stack.is_empty() {
            return 0;
        }
        if let Some(known) = self.sites.get(stack) {
            return *known;
        }
        let (frame, callers) = stack.split_once(';').unwrap_or((stack, ""));
        let caller = self.site(callers);
        let (offset, words) = frame_parts(frame);
        let module = self.module(words);
        let site = self.sites.len() as u32 + 1;
        let record = format::Record { site, offset, size: caller, value: module.into(), ..EMPTY.of(kind::SITE) };
        self.writer.push(record, &[]);
        self.sites.insert(stack.to_owned(), site);
        site
    }

    fn module(&mut self, words: &str) -> u32 {
        if let Some(known) = self.modules.get(words) {
            return *known;
        }
        let module = self.modules.len() as u32 + 1;
        let payload = [words.as_bytes(), &[0, 0]].concat();
        let record = format::Record { size: payload.len() as u32, value: module.into(), ..EMPTY.of(kind::MODULE) };
        self.writer.push(record, &payload);
        self.modules.insert(words.to_owned(), module);
        module
    }

    // ---- operations -------------------------------------------------------------------------------------------------------

    fn marker(&mut self, name: &str, is_begin: bool, arguments: &str) -> std::result::Result<(), String> {
        let Some(word) = name.strip_prefix(MARKER) else {
            self.counts.markers += 1;
            return Ok(());
        };
        let numbers: Option<Vec<u64>> = split(arguments).map(|number| number.parse().ok()).collect();
        let numbers = numbers.ok_or("expected decimal numbers behind the marker of an operation")?;
        match (word, is_begin, &numbers[..]) {
            (CASE, true, [number]) => self.case(u32::try_from(*number).map_err(|_| "no case".to_owned())?, true),
            (CASE, false, _) => {}
            (_, true, [_, _, _, _]) => self.operation(kind::OPERATION_BEGIN, operation_named(word)?, &numbers),
            (_, false, [_, _]) => self.operation(kind::OPERATION_RETURN, operation_named(word)?, &numbers),
            _ => return Err("expected .BEGIN;INDEX;SLOT;BYTES;OBJECT or .END;INDEX;STATUS".to_owned()),
        }
        Ok(())
    }

    /// numbers: index, slot, bytes, object; or index, status.
    fn operation(&mut self, kind: u8, operation: OperationKind, numbers: &[u64]) {
        let detail = number_of(operation);
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let record = match numbers {
            [index, slot, bytes, object] => format::Record {
                detail,
                size: narrow(*index),
                file: narrow(*slot),
                offset: *bytes,
                value: *object,
                ..EMPTY.of(kind)
            },
            [index, status] => format::Record { detail, size: narrow(*index), value: *status, ..EMPTY.of(kind) },
            _ => unreachable!("two or four numbers"),
        };
        self.writer.push(record, &[]);
    }

    // ---- the end ----------------------------------------------------------------------------------------------------------

    fn finish(mut self) -> Imported {
        self.end_run();
        self.say_counts();
        if self.counts.flushed_outside > 0 {
            let value = self.counts.flushed_outside;
            self.writer.push(format::Record { detail: format::flush::CLWB, value, ..EMPTY.of(kind::FLUSH) }, &[]);
        }
        for text in &self.missing {
            let size = text.len() as u32;
            self.writer.push(format::Record { size, ..EMPTY.of(kind::UNSUPPORTED) }, text.as_bytes());
        }
        let is_whole = self.missing.is_empty();
        self.notes.extend(self.missing.iter().map(|text| format!("not followed: {text}")));
        Imported { trace: self.writer.finish(), notes: self.notes, is_whole }
    }

    fn say_counts(&mut self) {
        if self.counts.outside > 0 {
            self.missing.push(format!("{} stores lie in no registered file", self.counts.outside));
        }
        let counts = &self.counts;
        let said = [
            (
                counts.joined,
                "times stores of 8 bytes in a row are taken for one wide store, whose parts persist in any order",
            ),
            (counts.within, "flushes of 64 bytes that begin within a line are taken for that line alone"),
            (counts.parts, "flushes of a part of a line are taken for the whole line"),
            (counts.deep_syncs, "deep syncs are left out"),
            (counts.markers, "markers name no operation and are left out"),
        ];
        let said = said.into_iter().filter(|(count, _)| *count > 0);
        self.notes.extend(said.map(|(count, text)| format!("{count} {text}")));
        self.notes.push(
            "the log names no threads and no kinds of flushes: all is of one thread, each flush is clwb".to_owned(),
        );
    }
}

/// Address and words of `0xADDRESS: WORDS`.
fn frame_parts(frame: &str) -> (u64, &str) {
    let parts = frame.strip_prefix("0x").and_then(|rest| rest.split_once(": "));
    let address = parts.and_then(|(digits, words)| Some((u64::from_str_radix(digits, 16).ok()?, words)));
    address.unwrap_or((0, frame))
}

fn split(arguments: &str) -> impl Iterator<Item = &str> {
    arguments.split(';').filter(|argument| !argument.is_empty())
}

/// Whether it was written from a trace, whose heaps are marked.
fn has_cases(log: &Log) -> bool {
    let case = format!("{MARKER}{CASE}");
    log.records.iter().any(|record| matches!(record, Record::Marker { name, .. } if *name == case))
}

/// The operation that the record begins.
fn operation(record: &Record) -> Option<OperationKind> {
    match record {
        Record::Marker { name, is_begin: true, .. } => operation_named(name.strip_prefix(MARKER)?).ok(),
        _ => None,
    }
}

fn operation_named(word: &str) -> std::result::Result<OperationKind, String> {
    let kind = (0..=u8::MAX).filter_map(OperationKind::from_number).find(|kind| kind.name() == word);
    kind.ok_or_else(|| format!("{word:?} is no operation"))
}

fn number_of(operation: OperationKind) -> u8 {
    let number = (0..=u8::MAX).find(|number| OperationKind::from_number(*number) == Some(operation));
    number.expect("each kind has a number")
}
