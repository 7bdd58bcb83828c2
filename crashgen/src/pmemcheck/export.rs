// SPDX-License-Identifier: Apache-2.0
//! A log of a trace.
//!
//! Stores are written as pmemcheck writes them, in pieces of 8 bytes. A locked read-modify-write is a fence and a store. A flush is that
//! of its line, whatever its kind: that later stores wait for a clflush is lost. A non-temporal store is a
//! store and a flush of its bytes, a write by a system call a store, a sync a flush of its range: pmreorder knows no other way to persist.
//! Each flush counts from the next fence on.

use super::{CASE, MARKER, VALUE_BYTES};
use crate::trace::{Event, EventKind, FileEffect, FlushKind, LINE_BYTES, SiteId, StoreKind, Trace};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Where files are mapped, each on a boundary of this size.
const FIRST_ADDRESS: u64 = 1 << 44;
const PLACE_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;

/// A trace as a log.
#[derive(Debug)]
pub struct Exported {
    /// From START to STOP.
    pub log: String,
    /// What the log cannot say, in words.
    pub notes: Vec<String>,
    /// By their paths in the log: the files and the bytes that each must have at least.
    pub files: Vec<(String, u64)>,
}

/// The log of a trace. `folder`: where the files lie that pmreorder shall work on; `frames`: the stack of a place in words, innermost
/// frame first.
pub fn export(trace: &Trace, folder: &str, frames: &mut dyn FnMut(SiteId) -> Vec<String>) -> Exported {
    let sizes = sizes(trace);
    let mut exporter = Exporter {
        addresses: Vec::new(),
        sizes: sizes.clone(),
        log: "START".to_owned(),
        lost: [0; LOST.len()],
        open_case: None,
        frames,
    };
    let mut next = FIRST_ADDRESS;
    let mut files = Vec::new();
    for (path, size) in trace.files.iter().zip(&sizes) {
        exporter.addresses.push(next);
        let path = format!("{folder}/{path}");
        exporter.add(format_args!("REGISTER_FILE;{path};{next:#x};{size:#x};0x0"));
        next += size.next_multiple_of(PLACE_BYTES) + PLACE_BYTES;
        files.push((path, *size));
    }
    let has_markers = !overlap(trace);
    for event in &trace.events {
        exporter.event(event, has_markers);
    }
    exporter.end_case();
    exporter.log.push_str("|STOP\n");
    let mut notes = exporter.notes();
    if !has_markers {
        notes.push("operations overlap, which pmreorder's markers must not: they are left out".to_owned());
    }
    let threads: BTreeSet<_> = trace.events.iter().map(|event| event.thread.thread).collect();
    if threads.len() > 1 {
        notes.push(format!("{} threads are written as one: a fence of one counts for all", threads.len()));
    }
    Exported { log: exporter.log, notes, files }
}

/// The most that each file comes to, in whole OS pages.
fn sizes(trace: &Trace) -> Vec<u64> {
    let mut sizes = vec![PAGE_BYTES; trace.files.len()];
    for event in &trace.events {
        let reached = match &event.kind {
            EventKind::FileBegin { effect } => match &**effect {
                FileEffect::Truncate { file, bytes } | FileEffect::Extend { file, bytes } => Some((*file, *bytes)),
                _ => None,
            },
            EventKind::Flush { file, offset, .. } => Some((*file, offset + 1)),
            kind => kind.put().map(|(file, offset, bytes)| (file, offset + bytes.len() as u64)),
        };
        if let Some((file, end)) = reached {
            let size = &mut sizes[file.0 as usize];
            *size = end.next_multiple_of(PAGE_BYTES).max(*size);
        }
    }
    sizes
}

/// Whether an operation begins before another one has returned.
fn overlap(trace: &Trace) -> bool {
    let mut is_pending = false;
    trace.events.iter().any(|event| match event.kind {
        EventKind::OperationBegin { .. } => std::mem::replace(&mut is_pending, true),
        EventKind::OperationReturn { .. } | EventKind::Case { .. } => {
            is_pending = false;
            false
        }
        _ => false,
    })
}

/// What the log lacks, in the order of [`Lost`].
const LOST: [&str; 5] = [
    "stores of more than 8 bytes are written in pieces",
    "non-temporal stores are written as stores and flushes",
    "clflushes are written without their order with later stores",
    "file operations are left out: files must be there as the trace begins",
    "writes and syncs by system calls are written as stores and flushes",
];

#[derive(Clone, Copy)]
enum Lost {
    Width,
    NonTemporal,
    Clflush,
    FileOperation,
    SystemCall,
}

struct Exporter<'a> {
    /// Where each file begins.
    addresses: Vec<u64>,
    /// How large each file is.
    sizes: Vec<u64>,
    log: String,
    lost: [usize; LOST.len()],
    open_case: Option<u32>,
    frames: &'a mut dyn FnMut(SiteId) -> Vec<String>,
}

impl Exporter<'_> {
    fn notes(&self) -> Vec<String> {
        let said = self.lost.iter().zip(LOST).filter(|(count, _)| **count > 0);
        said.map(|(count, text)| format!("{count} {text}")).collect()
    }

    fn lose(&mut self, what: Lost) {
        self.lost[what as usize] += 1;
    }

    fn add(&mut self, record: std::fmt::Arguments) {
        write!(self.log, "|{record}").expect("a string takes all");
    }

    fn event(&mut self, event: &Event, has_markers: bool) {
        match &event.kind {
            EventKind::Store { kind, file, offset, bytes } => {
                self.store(*kind, self.addresses[file.0 as usize] + offset, bytes, event.site);
            }
            EventKind::Flush { kind, file, offset } => {
                if *kind == FlushKind::Clflush {
                    self.lose(Lost::Clflush);
                }
                let line = offset - offset % LINE_BYTES;
                self.flush(self.addresses[file.0 as usize] + line, LINE_BYTES);
            }
            EventKind::Fence { .. } => self.add(format_args!("FENCE")),
            EventKind::FileBegin { .. } => {}
            EventKind::FileEnd { effect, is_done } => self.file_operation(effect, *is_done, event.site),
            EventKind::Case { number, .. } => self.case(*number),
            EventKind::OperationBegin { kind, index, slot, bytes, object } if has_markers => {
                let name = kind.name();
                self.add(format_args!("{MARKER}{name}.BEGIN;{index};{slot};{bytes};{object}"));
            }
            EventKind::OperationReturn { kind, index, status } if has_markers => {
                self.add(format_args!("{MARKER}{}.END;{index};{status}", kind.name()));
            }
            EventKind::OperationBegin { .. } | EventKind::OperationReturn { .. } => {}
        }
    }

    fn case(&mut self, number: u32) {
        self.end_case();
        self.open_case = Some(number);
        self.add(format_args!("{MARKER}{CASE}.BEGIN;{number}"));
    }

    fn end_case(&mut self) {
        if let Some(number) = self.open_case.take() {
            self.add(format_args!("{MARKER}{CASE}.END;{number}"));
        }
    }

    fn store(&mut self, kind: StoreKind, address: u64, bytes: &[u8], site: SiteId) {
        if kind == StoreKind::Rmw {
            self.add(format_args!("FENCE"));
        }
        self.pieces(address, bytes, site);
        if kind == StoreKind::NonTemporal {
            self.lose(Lost::NonTemporal);
            self.flush(address, bytes.len() as u64);
        }
    }

    fn pieces(&mut self, address: u64, bytes: &[u8], site: SiteId) {
        if bytes.len() > VALUE_BYTES {
            self.lose(Lost::Width);
        }
        let stack: String = (self.frames)(site).iter().map(|frame| format!(";{}", in_one_field(frame))).collect();
        for (number, piece) in bytes.chunks(VALUE_BYTES).enumerate() {
            let mut value = [0; VALUE_BYTES];
            value[..piece.len()].copy_from_slice(piece);
            let (address, value) = (address + (number * VALUE_BYTES) as u64, u64::from_le_bytes(value));
            self.add(format_args!("STORE;{address:#x};{value:#x};{:#x}{stack}", piece.len()));
        }
    }

    fn flush(&mut self, address: u64, bytes: u64) {
        self.add(format_args!("FLUSH;{address:#x};{bytes:#x}"));
    }

    fn file_operation(&mut self, effect: &FileEffect, is_done: bool, site: SiteId) {
        match effect {
            _ if !is_done => {}
            FileEffect::Write { file, offset, bytes } => {
                self.lose(Lost::SystemCall);
                let address = self.addresses[file.0 as usize] + offset;
                self.pieces(address, bytes, site);
            }
            FileEffect::Sync { file, offset, bytes } => {
                self.lose(Lost::SystemCall);
                let size = (*bytes).min(self.sizes[file.0 as usize].saturating_sub(*offset));
                self.flush(self.addresses[file.0 as usize] + offset, size);
            }
            _ => self.lose(Lost::FileOperation),
        }
    }
}

/// What separates fields and records must not stand in one.
fn in_one_field(text: &str) -> String {
    text.replace([';', '|', '\n', '\r'], "?")
}
