// SPDX-License-Identifier: Apache-2.0
//! What a recovery and its follow-up did, event by event, read from the runner (`runner/protocol.h`).

use super::loads::CodeSite;
use super::protocol::*;
use crate::trace::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushKind, OperationKind, SiteId, StoreKind, ThreadId, renamed,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const UNKNOWN_SITE: SiteId = SiteId(SITE_UNKNOWN);
/// Of the runner's fill, among [`RecoveryTrace::sites`].
pub const CONTENT_SITE: SiteId = SiteId(SITE_CONTENT);

/// What a recovery and its follow-up did (`runner/protocol.h`).
#[derive(Clone, Debug, Default)]
pub struct RecoveryTrace {
    /// In memory order; the sites are those of [`RecoveryTrace::sites`].
    pub events: Vec<Event>,
    /// By [`SiteId`]: where in the target's code; none: unknown, or application content.
    pub sites: Vec<Option<CodeSite>>,
    /// Paths of the modules that they name, by number.
    pub modules: Vec<Arc<Path>>,
    /// Paths in the trace of the files that it made.
    pub made: Vec<Arc<str>>,
    /// Why the events are not all, if they are not.
    pub gap: Option<&'static str>,
    /// Bytes of the answer up to the end of open's return; 0 if it did not return.
    pub recovery_bytes: usize,
}

impl RecoveryTrace {
    /// Module and offset of a site.
    pub fn place(&self, site: CodeSite) -> (Arc<Path>, u64) {
        (self.modules[site.module as usize].clone(), site.offset.into())
    }
}

/// One event as it was sent.
struct Raw<'a> {
    kind: u8,
    detail: u8,
    file: u32,
    offset: u64,
    site: u32,
    module: u32,
    thread: u16,
    payload: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<Raw<'a>> {
    let (head, tail) = rest.split_at_checked(EVENT_BYTES)?;
    let bytes = word(head, 16) as usize;
    let payload = tail.get(..bytes)?;
    *rest = tail.get(bytes.next_multiple_of(8)..)?;
    let offset = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
    let thread = u16::from_le_bytes([head[2], head[3]]);
    let (file, site, module) = (word(head, 4), word(head, 20), word(head, 24));
    Some(Raw { kind: head[0], detail: head[1], file, offset, site, module, thread, payload })
}

/// The files of the heap as the run goes on.
pub struct Files {
    /// By the number that events have.
    pub by_number: FxHashMap<u32, FileId>,
    /// By path in the heap folder.
    pub by_path: BTreeMap<Arc<str>, FileId>,
    /// Identity of the first file that the run makes.
    pub next: u32,
    /// What paths in the trace have before the path in the heap folder.
    pub prefix: String,
}

/// None: the answer is of another version, or damaged.
pub fn parse(answer: &[u8], files: &mut Files) -> Option<RecoveryTrace> {
    let (header, mut rest) = answer.split_at_checked(EVENTS_HEADER_BYTES)?;
    let (flags, count) = (word(header, 4), word(header, 8));
    if word(header, 0) != PROTOCOL_VERSION {
        return None;
    }
    let mut trace = RecoveryTrace { sites: vec![None, None], gap: gap(flags), ..RecoveryTrace::default() };
    let mut numbers = FxHashMap::default();
    for _ in 0..count {
        let raw = take(&mut rest)?;
        let is_operation = matches!(raw.kind, EVENT_BEGIN | EVENT_RETURN);
        let site = match SiteId(raw.site) {
            _ if is_operation => UNKNOWN_SITE,
            site @ (UNKNOWN_SITE | CONTENT_SITE) => site,
            SiteId(offset) => *numbers.entry((raw.module, offset)).or_insert_with(|| {
                trace.sites.push(Some(CodeSite { module: raw.module, offset }));
                SiteId(trace.sites.len() as u32 - 1)
            }),
        };
        if raw.kind == EVENT_FILE && raw.detail == DID_CREATE {
            trace.made.push(files.made(&raw)?);
        }
        let kind = kind(&raw, files)?;
        if matches!(kind, EventKind::OperationReturn { kind: OperationKind::Open, .. }) {
            trace.recovery_bytes = answer.len() - rest.len();
        }
        trace.events.push(Event { thread: ThreadId { process: 1, thread: raw.thread + 1 }, site, kind });
    }
    rest.is_empty().then_some(trace)
}

impl Files {
    /// Gives a file that the run makes its identity; returns its path in the trace.
    fn made(&mut self, raw: &Raw) -> Option<Arc<str>> {
        let path = paths(raw)?.1;
        self.by_number.insert(raw.file, FileId(self.next));
        self.by_path.insert(path.into(), FileId(self.next));
        self.next += 1;
        Some(self.whole(path))
    }

    fn whole(&self, path: &str) -> Arc<str> {
        format!("{}{path}", self.prefix).into()
    }

    fn moved(&mut self, from: &str, to: &str) {
        let moved = |path: &Arc<str>| Some((path.clone(), renamed(path, from, to)?));
        for (path, renamed) in self.by_path.keys().filter_map(moved).collect::<Vec<_>>() {
            let file = self.by_path.remove(&path).expect("just seen");
            self.by_path.insert(renamed, file);
        }
    }
}

/// Bytes and the path of a file event, and the new path of a rename.
fn paths<'a>(raw: &Raw<'a>) -> Option<(u64, &'a str, &'a str)> {
    let (bytes, rest) = raw.payload.split_first_chunk::<8>()?;
    let mut paths = rest.split(|byte| *byte == 0).map(std::str::from_utf8);
    let mut next = || paths.next()?.ok();
    Some((u64::from_le_bytes(*bytes), next()?, next()?))
}

fn file_effect(raw: &Raw, files: &mut Files) -> Option<FileEffect> {
    let (bytes, path, new_path) = paths(raw)?;
    let file = files.by_path.get(path).copied();
    let (offset, whole) = (raw.offset, files.whole(path));
    Some(match raw.detail {
        DID_CREATE => FileEffect::Create { file: file?, path: whole },
        DID_TRUNCATE => FileEffect::Truncate { file: file?, bytes },
        DID_EXTEND => FileEffect::Extend { file: file?, bytes },
        DID_PUNCH => FileEffect::Punch { file: file?, offset, bytes },
        DID_UNLINK => {
            files.by_path.remove(path);
            FileEffect::Unlink { path: whole }
        }
        DID_RENAME => {
            files.moved(path, new_path);
            FileEffect::Rename { from: whole, to: files.whole(new_path) }
        }
        DID_MAKE_FOLDER => FileEffect::MakeFolder { path: whole },
        DID_REMOVE_FOLDER => FileEffect::RemoveFolder { path: whole },
        _ => return None,
    })
}

fn gap(flags: u32) -> Option<&'static str> {
    match flags {
        0 => None,
        _ if flags & EVENTS_OVERFLOW != 0 => Some("recovery makes more events than the list holds"),
        _ if flags & EVENTS_FILES != 0 => Some("recovery or its follow-up changes files in a way that is not followed"),
        _ => Some("recovery does what this version does not know"),
    }
}

fn kind(raw: &Raw, files: &mut Files) -> Option<EventKind> {
    if raw.kind == EVENT_FILE {
        return Some(EventKind::FileEnd { effect: file_effect(raw, files)?.into(), is_done: true });
    }
    let file = || files.by_number.get(&raw.file).copied();
    let operation = || OperationKind::from_number(raw.detail);
    let ended = |effect: FileEffect| EventKind::FileEnd { effect: effect.into(), is_done: true };
    Some(match raw.kind {
        EVENT_STORE => {
            let kind = match raw.detail {
                STORED_PLAIN => StoreKind::Plain,
                STORED_RMW => StoreKind::Rmw,
                STORED_CONTENT | STORED_STREAM => StoreKind::NonTemporal,
                _ => return None,
            };
            EventKind::Store { kind, file: file()?, offset: raw.offset, bytes: raw.payload.into() }
        }
        EVENT_FLUSH => {
            let kind = match raw.detail {
                FLUSHED_CLFLUSH => FlushKind::Clflush,
                FLUSHED_CLFLUSHOPT => FlushKind::Clflushopt,
                FLUSHED_CLWB => FlushKind::Clwb,
                _ => return None,
            };
            EventKind::Flush { kind, file: file()?, offset: raw.offset }
        }
        EVENT_FENCE => EventKind::Fence {
            kind: match raw.detail {
                FENCED_SFENCE => FenceKind::Sfence,
                FENCED_MFENCE => FenceKind::Mfence,
                FENCED_LOCKED => FenceKind::Locked,
                _ => return None,
            },
        },
        EVENT_WRITE => ended(FileEffect::Write { file: file()?, offset: raw.offset, bytes: raw.payload.into() }),
        EVENT_SYNC => {
            let bytes = u64::from_le_bytes(raw.payload.try_into().ok()?);
            ended(FileEffect::Sync { file: file()?, offset: raw.offset, bytes })
        }
        EVENT_BEGIN => EventKind::OperationBegin {
            kind: operation()?,
            index: raw.site,
            slot: raw.file,
            bytes: raw.offset,
            object: if operation()? == OperationKind::Allocate { word(raw.payload.get(..4)?, 0) } else { 0 },
        },
        EVENT_RETURN => EventKind::OperationReturn { kind: operation()?, index: raw.site, status: raw.file },
        _ => return None,
    })
}
