// SPDX-License-Identifier: Apache-2.0
//! The trace: one observed interleaving of one workload, in memory order (`pintools/trace.h`).
//!
//! [`Trace::read`] checks everything a reader can check (magic, version, chunk checksums, footer, hash, ids) and resolves
//! what is local to a process: files become [`FileId`]s by identity (R10), sites and modules get trace-wide numbers.
//! An [`Event`] is what the persistency model steps over.

mod container;
pub(crate) mod format;
mod lines;
mod namespace;
mod paths;
mod reader;
mod seal;
mod stored;
#[cfg(test)]
mod tests;
pub mod write;

pub use container::TraceError;
pub use lines::{LINE_BYTES, LineKey, OS_PAGE_BYTES, UNIT_BYTES, UnitKey};
pub use operations::OperationKind;
pub use seal::seal;
pub use stored::StoredBytes;

pub(crate) use container::hex;
pub(crate) use paths::{folder_of, renamed};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// A file's identity: stays the same across rename, differs after unlink and create (R10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Number in [`Trace::sites`] of an instruction, with the calls that led there; site 0 is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct SiteId(pub u32);

/// Where an instruction lies, and who called it: one that is called from two places is two sites.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Index in [`Trace::modules`], none when the tracer did not know.
    pub module: Option<u32>,
    /// Address as the module's symbols count it.
    pub offset: u64,
    /// The call that led there, a site of a smaller number; none where the path ends.
    pub caller: Option<SiteId>,
}

/// A program or library that was loaded while the trace was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Path on the machine that took the trace; relative for what was built for it (`--module-root`).
    pub path: PathBuf,
    /// GNU build id in hexadecimal; empty if it has none.
    pub build_id: String,
}

/// A thread of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// Process number, from 1.
    pub process: u32,
    /// Thread number in the process, from 1.
    pub thread: u16,
}

/// How a store instruction persists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// Ordinary store; several units if wide or misaligned (R3). `rep movs` and `rep stos` are one wide store.
    Plain,
    /// Non-temporal: units persist each on its own (R8).
    NonTemporal,
    /// Locked read-modify-write: completes its thread's flushes first (R6).
    Rmw,
}

/// What completes a thread's flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// Orders stores and flushes.
    Sfence,
    /// Orders loads too.
    Mfence,
    /// A locked read-modify-write outside PM, or a compare-exchange that failed: there for a lock's sake.
    Locked,
}

/// Flush instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushKind {
    /// Ordered with every later store, flush and fence (R4).
    Clflush,
    /// Ordered by the same thread's fence only (R5).
    Clflushopt,
    /// Ordered by the same thread's fence only (R5).
    Clwb,
}

/// The effect of one file operation (R9; of what a power failure may leave of it [`crate::model::losses`] tells).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileEffect {
    /// The file appears, empty.
    Create { file: FileId, path: Arc<str> },
    /// Its size becomes `bytes`; what lies beyond is gone, what is new is zero.
    Truncate { file: FileId, bytes: u64 },
    /// It is at least `bytes` long.
    Extend { file: FileId, bytes: u64 },
    /// Bytes `[offset, offset + bytes)` become zero.
    Punch { file: FileId, offset: u64, bytes: u64 },
    /// The name is gone, and with it the file: nothing can reach it after a crash.
    Unlink { path: Arc<str> },
    /// The name changes; a file that had the new name is gone.
    Rename { from: Arc<str>, to: Arc<str> },
    /// A folder appears.
    MakeFolder { path: Arc<str> },
    /// An empty folder disappears.
    RemoveFolder { path: Arc<str> },
    /// What the range held when the call began is persisted.
    Sync { file: FileId, offset: u64, bytes: u64 },
    /// The names in the folder are durable as they were when the call began: fsync of the folder.
    SyncFolder { path: Arc<str> },
    /// Everything is durable as it was when the call began: sync or syncfs.
    SyncAll,
    /// Bytes written by the kernel: units as in R8, guaranteed by a sync of the file.
    Write { file: FileId, offset: u64, bytes: StoredBytes },
}

impl FileEffect {
    /// Whether it changes nothing, and only makes durable what is there.
    pub fn is_sync(&self) -> bool {
        matches!(self, Self::Sync { .. } | Self::SyncFolder { .. } | Self::SyncAll)
    }

    /// Whether it is the sync of a whole file (fsync), not of a mapped range (msync, which no file is long enough for).
    pub fn is_fsync(&self) -> bool {
        matches!(self, Self::Sync { offset: 0, bytes: u64::MAX, .. })
    }

    /// The names that it gives or takes away.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { path, .. }
            | Self::Unlink { path }
            | Self::MakeFolder { path }
            | Self::RemoveFolder { path } => vec![path],
            Self::Rename { from, to } => vec![from, to],
            _ => vec![],
        }
    }

    /// The folders whose names it changes: `.` where paths begin.
    pub fn folders(&self) -> Vec<Arc<str>> {
        let mut folders: Vec<Arc<str>> = self.names().into_iter().map(|path| folder_of(path).into()).collect();
        folders.dedup();
        folders
    }

    /// The file it works on; none where it works on a name.
    pub fn file(&self) -> Option<FileId> {
        match self {
            Self::Create { file, .. }
            | Self::Truncate { file, .. }
            | Self::Extend { file, .. }
            | Self::Punch { file, .. }
            | Self::Sync { file, .. }
            | Self::Write { file, .. } => Some(*file),
            Self::Unlink { .. }
            | Self::Rename { .. }
            | Self::MakeFolder { .. }
            | Self::RemoveFolder { .. }
            | Self::SyncFolder { .. }
            | Self::SyncAll => None,
        }
    }
}

/// What happened. All offsets and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    /// A store into PM.
    Store { kind: StoreKind, file: FileId, offset: u64, bytes: StoredBytes },
    /// A flush of the line that holds `offset`.
    Flush { kind: FlushKind, file: FileId, offset: u64 },
    /// sfence, mfence, a locked RMW outside PM or a failed compare-exchange.
    Fence { kind: FenceKind },
    /// A file operation began: until its end the effect is there or not (R9).
    FileBegin { effect: Arc<FileEffect> },
    /// It ended; `is_done` is false when it failed and had no effect.
    FileEnd { effect: Arc<FileEffect>, is_done: bool },
    /// A new heap starts; files of earlier cases are out of sight. `folder` is the case's own, below the PM folder.
    Case { number: u32, folder: Arc<str> },
    /// An operation of the workload begins.
    OperationBegin { kind: OperationKind, index: u32, slot: u32, bytes: u64, object: u32 },
    /// It returned with a status of `adapter.h`.
    OperationReturn { kind: OperationKind, index: u32, status: u32 },
}

impl EventKind {
    /// File, offset and bytes of what it puts into PM: a store, or a write by a system call that has returned.
    pub fn put(&self) -> Option<(FileId, u64, &StoredBytes)> {
        match self {
            Self::Store { file, offset, bytes, .. } => Some((*file, *offset, bytes)),
            Self::FileEnd { effect, is_done: true } => match &**effect {
                FileEffect::Write { file, offset, bytes } => Some((*file, *offset, bytes)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it is a write by a system call that has returned.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::FileEnd { effect, is_done: true } if matches!(**effect, FileEffect::Write { .. }))
    }
}

/// One step of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who did it.
    pub thread: ThreadId,
    /// Where in the code.
    pub site: SiteId,
    /// What.
    pub kind: EventKind,
}

/// Flushes at one site of addresses that are no PM. They persist nothing and order nothing, so they are no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushElsewhere {
    /// Of the flush.
    pub site: SiteId,
    /// Who made the first one.
    pub thread: ThreadId,
    /// How many events came before the first one.
    pub events_before: u32,
    /// How many there are.
    pub count: u64,
}

/// A whole trace, checked.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In memory order.
    pub events: Vec<Event>,
    /// By their first one.
    pub flushes_elsewhere: Vec<FlushElsewhere>,
    /// By [`SiteId`].
    pub sites: Vec<Site>,
    /// Programs and libraries.
    pub modules: Vec<Module>,
    /// First path of each file, by [`FileId`].
    pub files: Vec<Arc<str>>,
    /// Every path of the files that were mapped at some time.
    pub mapped: BTreeSet<Arc<str>>,
    /// Files that a process mapped to store to them, and did not ask for MAP_SYNC: a page fault commits nothing of these.
    pub unsynced: BTreeSet<FileId>,
    /// What the tracer said it could not follow; such a trace is never explored completely.
    pub unsupported: Vec<String>,
    /// SHA-256 of the file, in hexadecimal.
    pub hash: String,
    /// Name of the tracer that took it.
    pub tracer: String,
    /// Number of processes.
    pub processes: u32,
}

/// Name of the tracer of traces that were made of a log of pmemcheck ([`crate::pmemcheck`]).
pub const IMPORTED: &str = "pmemcheck";

impl Trace {
    /// Whether it was made of a log of pmemcheck. Its modules are no files: each path is a place in words, as the log has it.
    pub fn is_imported(&self) -> bool {
        self.tracer == IMPORTED
    }

    /// Whether it does not say what the program did: an imported log without markers of operations.
    pub fn has_unknown_operations(&self) -> bool {
        let is_told = |kind: &EventKind| match kind {
            EventKind::OperationBegin { kind, .. } => *kind != OperationKind::Create,
            _ => false,
        };
        self.is_imported() && !self.events.iter().any(|event| is_told(&event.kind))
    }

    /// Number of the event that starts the first heap: what the runner does before it leaves no heap to recover.
    pub fn first_event(&self) -> usize {
        self.events.iter().position(|event| matches!(event.kind, EventKind::Case { .. })).unwrap_or(0)
    }

    /// Whether the store at this site was made by the runner's fill: application content, not allocator metadata.
    pub fn is_runner_site(&self, site: SiteId, runner: &std::path::Path) -> bool {
        self.sites
            .get(site.0 as usize)
            .and_then(|site| site.module)
            .is_some_and(|module| runner.ends_with(&self.modules[module as usize].path))
    }
}
