// SPDX-License-Identifier: Apache-2.0
//! Reading and checking a trace: its records become events. Never panics, whatever the bytes.

use super::container::{Input, Result, TraceError, hex, u64_at};
use super::format::{self, CELL, Record, kind};
use super::namespace::Namespace;
use super::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushElsewhere, FlushKind, Module, OperationKind, Site, SiteId,
    StoreKind, ThreadId, Trace,
};
use rustc_hash::FxHashMap;
use sha2::Digest;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one store, file or text record at most: a wider one is damage, not data.
const PAYLOAD_LIMIT_BYTES: u32 = 1 << 30;

impl Trace {
    /// Reads and checks a sealed trace.
    ///
    /// # Errors
    /// [`TraceError`] with the path, where it is damaged and what was expected.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| TraceError::Io { path: path.into(), source })?;
        read_sealed(Input::new(path, file)?)
    }

    /// As [`Trace::read`], of bytes in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Trace::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        read_sealed(Input::new(path, Cursor::new(bytes))?)
    }
}

fn read_sealed<R: Read + Seek>(mut input: Input<R>) -> Result<Trace> {
    let path = input.path;
    let mut reader = Reader::new(path);
    reader.trace.tracer = text(&input.header()?[24..48]);
    let footer = input.footer()?;
    let end = input.bytes - format::FOOTER_BYTES;
    let cell_count = input.for_each_chunk(end, &mut |at, process, cells| reader.chunk(at, process, cells))?;
    let digest = input.digest.finalize();
    let corrupt = |what| Err(TraceError::Corrupt { path: path.into(), at: end, what });
    if footer[16..48] != digest[..] {
        return corrupt("the hash in the footer is not that of the contents".to_owned());
    }
    if cell_count != u64_at(&footer, 8) {
        return corrupt(format!("{cell_count} records, the footer says {}", u64_at(&footer, 8)));
    }
    reader.trace.hash = hex(&digest);
    reader.finish()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Ids that are local to one process.
#[derive(Default)]
struct Process {
    modules: FxHashMap<u64, u32>,
    sites: FxHashMap<u32, SiteId>,
    files: FxHashMap<u32, FileId>,
    has_ended: bool,
    /// File operations that have begun; one msync over two mappings is two of them.
    file_operations: Vec<(FileOperation, Arc<FileEffect>)>,
}

/// What the begin and the end of one file operation have in common: thread, detail, file, offset.
type FileOperation = (u16, u8, u32, u64);

fn file_operation(record: &Record) -> FileOperation {
    (record.thread, record.detail, record.file, record.offset)
}

struct Reader<'a> {
    path: &'a Path,
    trace: Trace,
    namespace: Namespace,
    mapped: BTreeSet<FileId>,
    /// Files that would be mapped with MAP_SYNC where the file system had it.
    asked_for_sync: BTreeSet<FileId>,
    processes: FxHashMap<u32, Process>,
    site_numbers: FxHashMap<Site, SiteId>,
}

impl<'a> Reader<'a> {
    fn new(path: &'a Path) -> Self {
        let unknown = Site { module: None, offset: 0, caller: None };
        Self {
            path,
            trace: Trace { sites: vec![unknown], ..Trace::default() },
            namespace: Namespace::default(),
            mapped: BTreeSet::new(),
            asked_for_sync: BTreeSet::new(),
            processes: FxHashMap::default(),
            site_numbers: FxHashMap::default(),
        }
    }

    fn corrupt(&self, at: usize, what: impl Into<String>) -> TraceError {
        TraceError::Corrupt { path: self.path.into(), at, what: what.into() }
    }

    fn chunk(&mut self, first: usize, process: u32, cells: &[u8]) -> Result<()> {
        let mut rest = cells;
        while let Some((cell, tail)) = rest.split_first_chunk::<CELL>() {
            let at = first + (cells.len() - rest.len());
            let record = Record::parse(cell);
            let payload_bytes = payload_bytes(&record);
            if payload_bytes > PAYLOAD_LIMIT_BYTES || payload_bytes as usize > tail.len() {
                return Err(self.corrupt(at, format!("a record of {payload_bytes} bytes reaches beyond its chunk")));
            }
            let padded = (payload_bytes as usize).div_ceil(CELL) * CELL;
            if padded > tail.len() {
                return Err(self.corrupt(at, "a record reaches beyond its chunk"));
            }
            self.record(at, process, record, &tail[..payload_bytes as usize])?;
            rest = &tail[padded..];
        }
        Ok(())
    }

    fn record(&mut self, at: usize, process: u32, record: Record, payload: &[u8]) -> Result<()> {
        if record.kind == kind::PROCESS {
            return self.process(at, process, &record);
        }
        match self.processes.get(&process) {
            None => return Err(self.corrupt(at, format!("process {process} has no FL_PROCESS record"))),
            Some(state) if state.has_ended => {
                return Err(self.corrupt(at, format!("a record of process {process} after its end")));
            }
            Some(_) => {}
        }
        match record.kind {
            kind::PROCESS_END => {
                if record.value >= 256 {
                    self.trace.unsupported.push(format!("process {process} died of signal {}", record.value - 256));
                }
                self.processes.get_mut(&process).expect("known process").has_ended = true;
                Ok(())
            }
            kind::MODULE => self.module(at, process, &record, payload),
            kind::SITE => self.site(at, process, &record),
            kind::FILE => self.file(at, process, &record, payload),
            kind::UNSUPPORTED => {
                self.trace.unsupported.push(String::from_utf8_lossy(payload).into_owned());
                Ok(())
            }
            kind::FLUSH if record.file == 0 => self.flush_elsewhere(at, process, &record),
            kind::MAP => {
                let file = self.file_of(at, process, record.file)?;
                self.map(file, record.detail);
                Ok(())
            }
            kind::UNMAP => self.file_of(at, process, record.file).map(|_| ()),
            _ => {
                let site = self.site_of(at, process, record.site)?;
                if let Some(kind) = self.event(at, process, &record, payload)? {
                    self.trace.events.push(Event { thread: ThreadId { process, thread: record.thread }, site, kind });
                }
                Ok(())
            }
        }
    }

    fn map(&mut self, file: FileId, flags: u8) {
        let stored_to = format::map::SHARED | format::map::WRITABLE;
        if flags & format::map::REFUSED != 0 {
            self.asked_for_sync.insert(file);
            return;
        }
        self.mapped.insert(file);
        let is_without = flags & (stored_to | format::map::SYNCED) == stored_to;
        if is_without && !self.asked_for_sync.contains(&file) {
            self.trace.unsynced.insert(file);
        }
    }

    fn process(&mut self, at: usize, number: u32, record: &Record) -> Result<()> {
        if self.processes.contains_key(&number) {
            return Err(self.corrupt(at, format!("process {number} begins twice")));
        }
        let _ = record;
        self.processes.insert(number, Process::default());
        self.trace.processes += 1;
        Ok(())
    }

    fn state(&mut self, process: u32) -> &mut Process {
        self.processes.get_mut(&process).expect("checked in record()")
    }

    fn module(&mut self, at: usize, process: u32, record: &Record, payload: &[u8]) -> Result<()> {
        let mut parts = payload.split(|byte| *byte == 0);
        let (Some(path), Some(build_id)) = (parts.next(), parts.next()) else {
            return Err(self.corrupt(at, "a module without path and build id"));
        };
        let module = Module {
            path: PathBuf::from(String::from_utf8_lossy(path).into_owned()),
            build_id: String::from_utf8_lossy(build_id).into_owned(),
        };
        let known = self.trace.modules.iter().position(|other| *other == module);
        let number = known.unwrap_or_else(|| {
            self.trace.modules.push(module);
            self.trace.modules.len() - 1
        });
        self.state(process).modules.insert(record.value, u32::try_from(number).expect("few modules"));
        Ok(())
    }

    fn site(&mut self, at: usize, process: u32, record: &Record) -> Result<()> {
        let module = match record.value {
            0 => None,
            id => match self.state(process).modules.get(&id) {
                Some(module) => Some(*module),
                None => {
                    return Err(
                        self.corrupt(at, format!("site {} names module {id}, which is not defined", record.site))
                    );
                }
            },
        };
        let caller = match record.size {
            0 => None,
            id => match self.state(process).sites.get(&id) {
                Some(caller) => Some(*caller),
                None => {
                    return Err(
                        self.corrupt(at, format!("site {} names its caller {id}, which is not defined", record.site))
                    );
                }
            },
        };
        let site = Site { module, offset: record.offset, caller };
        let number = *self.site_numbers.entry(site.clone()).or_insert_with(|| {
            self.trace.sites.push(site);
            SiteId(u32::try_from(self.trace.sites.len() - 1).expect("fewer than 2^32 sites"))
        });
        self.state(process).sites.insert(record.site, number);
        Ok(())
    }

    fn file(&mut self, at: usize, process: u32, record: &Record, payload: &[u8]) -> Result<()> {
        let path = self.path_text(at, payload)?;
        if record.file == 0 {
            return Err(self.corrupt(at, "a file with number 0"));
        }
        let file = self.namespace.resolve(&path);
        self.state(process).files.insert(record.file, file);
        Ok(())
    }

    fn path_text(&self, at: usize, payload: &[u8]) -> Result<Arc<str>> {
        let path = std::str::from_utf8(payload).map_err(|_| self.corrupt(at, "a path that is not UTF-8"))?;
        let is_inside = !path.is_empty()
            && !path.starts_with('/')
            && !path.split('/').any(|part| part == "..")
            && !path.contains('\0');
        if !is_inside {
            return Err(self.corrupt(at, format!("path {path:?} is not below the PM folder")));
        }
        Ok(Arc::from(path))
    }

    fn site_of(&mut self, at: usize, process: u32, id: u32) -> Result<SiteId> {
        match (id, self.state(process).sites.get(&id)) {
            (0, _) => Ok(SiteId(0)),
            (_, Some(site)) => Ok(*site),
            _ => Err(self.corrupt(at, format!("site {id} is not defined"))),
        }
    }

    fn file_of(&mut self, at: usize, process: u32, id: u32) -> Result<FileId> {
        match self.state(process).files.get(&id) {
            Some(file) => Ok(*file),
            None => Err(self.corrupt(at, format!("file {id} is not defined"))),
        }
    }

    fn event(&mut self, at: usize, process: u32, record: &Record, payload: &[u8]) -> Result<Option<EventKind>> {
        match record.kind {
            kind::STORE => self.store(at, process, record, payload).map(Some),
            kind::FLUSH if !is_inside_a_file(record.offset, 1) => {
                Err(self.corrupt(at, "a flush that no file can have"))
            }
            kind::FLUSH => {
                let kind = match record.detail {
                    format::flush::CLFLUSH => FlushKind::Clflush,
                    format::flush::CLFLUSHOPT => FlushKind::Clflushopt,
                    format::flush::CLWB => FlushKind::Clwb,
                    other => return Err(self.corrupt(at, format!("flush kind {other}"))),
                };
                Ok(Some(EventKind::Flush {
                    kind,
                    file: self.file_of(at, process, record.file)?,
                    offset: record.offset,
                }))
            }
            kind::FENCE => self.fence(at, record).map(Some),
            kind::FILE_BEGIN => self.file_begin(at, process, record, payload).map(Some),
            kind::FILE_END => self.file_end(at, process, record).map(Some),
            kind::OPERATION_BEGIN => self.operation_begin(at, record).map(Some),
            kind::OPERATION_RETURN => Ok(Some(EventKind::OperationReturn {
                kind: self.operation_kind(at, record.detail)?,
                index: record.size,
                status: u32::try_from(record.value).unwrap_or(u32::MAX),
            })),
            other => Err(self.corrupt(at, format!("record kind {other}"))),
        }
    }

    fn flush_elsewhere(&mut self, at: usize, process: u32, record: &Record) -> Result<()> {
        let site = self.site_of(at, process, record.site)?;
        if record.value == 0 || record.offset != 0 {
            return Err(self.corrupt(at, "a flush outside PM without a count, or with an offset"));
        }
        let known = &mut self.trace.flushes_elsewhere;
        match known.iter_mut().find(|flush| flush.site == site) {
            Some(flush) => flush.count = flush.count.saturating_add(record.value),
            None => known.push(FlushElsewhere {
                site,
                thread: ThreadId { process, thread: record.thread },
                events_before: self.trace.events.len() as u32,
                count: record.value,
            }),
        }
        Ok(())
    }

    fn store(&mut self, at: usize, process: u32, record: &Record, payload: &[u8]) -> Result<EventKind> {
        let kind = match record.detail {
            format::store::PLAIN | format::store::REP => StoreKind::Plain,
            format::store::NT => StoreKind::NonTemporal,
            format::store::RMW => StoreKind::Rmw,
            other => return Err(self.corrupt(at, format!("store kind {other}"))),
        };
        if record.size == 0 || !is_inside_a_file(record.offset, u64::from(record.size)) {
            return Err(self.corrupt(at, format!("a store of {} bytes at {:#x}", record.size, record.offset)));
        }
        let value = record.value.to_le_bytes();
        let bytes = if record.size <= 8 { &value[..record.size as usize] } else { payload };
        Ok(EventKind::Store {
            kind,
            file: self.file_of(at, process, record.file)?,
            offset: record.offset,
            bytes: bytes.into(),
        })
    }

    fn fence(&self, at: usize, record: &Record) -> Result<EventKind> {
        let kind = match record.detail {
            format::fence::SFENCE => FenceKind::Sfence,
            format::fence::MFENCE => FenceKind::Mfence,
            format::fence::RMW => FenceKind::Locked,
            other => return Err(self.corrupt(at, format!("fence kind {other}"))),
        };
        Ok(EventKind::Fence { kind })
    }

    fn file_begin(&mut self, at: usize, process: u32, record: &Record, payload: &[u8]) -> Result<EventKind> {
        let effect = Arc::new(self.file_effect(at, process, record, payload)?);
        self.state(process).file_operations.push((file_operation(record), effect.clone()));
        Ok(EventKind::FileBegin { effect })
    }

    fn file_end(&mut self, at: usize, process: u32, record: &Record) -> Result<EventKind> {
        let operations = &mut self.state(process).file_operations;
        let Some(begun) = operations.iter().position(|(operation, _)| *operation == file_operation(record)) else {
            return Err(self.corrupt(at, "a file operation ends that has not begun"));
        };
        let (_, effect) = operations.remove(begun);
        let is_done = record.value == 0;
        match &*effect {
            FileEffect::Unlink { path } if is_done => self.namespace.unlink(path),
            FileEffect::Rename { from, to } if is_done => self.namespace.rename(from, to),
            _ => {}
        }
        Ok(EventKind::FileEnd { effect, is_done })
    }

    fn file_effect(&mut self, at: usize, process: u32, record: &Record, payload: &[u8]) -> Result<FileEffect> {
        use format::file_operation as operation;
        match record.detail {
            operation::MKDIR => return Ok(FileEffect::MakeFolder { path: self.path_text(at, payload)? }),
            operation::RMDIR => return Ok(FileEffect::RemoveFolder { path: self.path_text(at, payload)? }),
            operation::SYNC_FOLDER => return Ok(FileEffect::SyncFolder { path: self.path_text(at, payload)? }),
            operation::SYNC_ALL => return Ok(FileEffect::SyncAll),
            _ => {}
        }
        let file = self.file_of(at, process, record.file)?;
        let range = (record.offset, record.value);
        if !is_inside_a_file(record.offset, record.value.max(payload.len() as u64)) {
            return Err(self.corrupt(at, "a file range that no file can have"));
        }
        Ok(match record.detail {
            operation::CREATE => FileEffect::Create { file, path: self.current_path(at, file)? },
            operation::TRUNCATE => FileEffect::Truncate { file, bytes: record.offset },
            operation::ALLOCATE => FileEffect::Extend { file, bytes: range.0 + range.1 },
            operation::PUNCH => FileEffect::Punch { file, offset: range.0, bytes: range.1 },
            operation::UNLINK => FileEffect::Unlink { path: self.current_path(at, file)? },
            operation::RENAME => {
                FileEffect::Rename { from: self.current_path(at, file)?, to: self.path_text(at, payload)? }
            }
            operation::MSYNC => FileEffect::Sync { file, offset: range.0, bytes: range.1 },
            operation::FSYNC => FileEffect::Sync { file, offset: 0, bytes: u64::MAX },
            operation::WRITE => FileEffect::Write { file, offset: record.offset, bytes: payload.into() },
            other => return Err(self.corrupt(at, format!("file operation {other}"))),
        })
    }

    fn current_path(&self, at: usize, file: FileId) -> Result<Arc<str>> {
        self.namespace
            .path_of(file)
            .cloned()
            .ok_or_else(|| self.corrupt(at, "a file operation on a file that has no name any more"))
    }

    fn operation_kind(&self, at: usize, detail: u8) -> Result<OperationKind> {
        OperationKind::from_number(detail).ok_or_else(|| self.corrupt(at, format!("operation kind {detail}")))
    }

    fn operation_begin(&self, at: usize, record: &Record) -> Result<EventKind> {
        if record.detail == format::OPERATION_CASE {
            return Ok(EventKind::Case { number: record.size, folder: format!("case-{}", record.size).into() });
        }
        Ok(EventKind::OperationBegin {
            kind: self.operation_kind(at, record.detail)?,
            index: record.size,
            slot: record.file,
            bytes: record.offset,
            object: u32::try_from(record.value).map_err(|_| self.corrupt(at, "an object id beyond 2^32"))?,
        })
    }

    fn finish(mut self) -> Result<Trace> {
        if let Some((number, _)) = self.processes.iter().find(|(_, process)| !process.has_ended) {
            return Err(TraceError::Truncated { path: self.path.into(), what: format!("process {number} has no end") });
        }
        for process in self.processes.values().filter(|process| !process.file_operations.is_empty()) {
            self.trace.unsupported.push(format!("{} file operations that never ended", process.file_operations.len()));
        }
        let paths = &self.namespace.paths;
        self.trace.mapped = self.mapped.iter().flat_map(|file| &paths[file.0 as usize]).cloned().collect();
        self.trace.files = paths.iter().map(|paths| paths[0].clone()).collect();
        Ok(self.trace)
    }
}

/// Offsets in files are signed 64-bit numbers (off_t).
fn is_inside_a_file(offset: u64, bytes: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| i64::try_from(end).is_ok())
}

/// Bytes of payload that follow a record.
fn payload_bytes(record: &Record) -> u32 {
    use format::file_operation as operation;
    match record.kind {
        kind::MODULE | kind::FILE | kind::UNSUPPORTED => record.size,
        kind::STORE if record.size > 8 => record.size,
        kind::FILE_BEGIN if record.detail == operation::WRITE => record.size,
        kind::FILE_BEGIN | kind::FILE_END
            if matches!(
                record.detail,
                operation::RENAME | operation::MKDIR | operation::RMDIR | operation::SYNC_FOLDER
            ) =>
        {
            record.size
        }
        _ => 0,
    }
}
