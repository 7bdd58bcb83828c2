// SPDX-License-Identifier: Apache-2.0
//! The trace file as header, chunks of cells and footer, each checked before anybody sees what is in it.

use super::format::{self, CELL};
use sha2::{Digest, Sha256};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Why a file is no trace. Each message names what was expected and what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TraceError {
    #[error("{path}: cannot be read: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: not a trace: expected the magic \"FLTRACE\" at its start; give a file that `faultline trace` wrote"
    )]
    NotATrace { path: PathBuf },
    #[error("{path}: trace version {found}, expected {expected}; take the trace again with this version")]
    Version { path: PathBuf, found: u32, expected: u32 },
    #[error("{path}: truncated: {what}; take the trace again")]
    Truncated { path: PathBuf, what: String },
    #[error("{path}: corrupt at byte {at}: {what}; take the trace again")]
    Corrupt { path: PathBuf, at: usize, what: String },
}

pub(super) type Result<T> = std::result::Result<T, TraceError>;

/// Offset of the chunk's first cell, process, cells.
pub(super) type VisitChunk<'a> = dyn FnMut(usize, u32, &[u8]) -> Result<()> + 'a;

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The file, a chunk at a time: there is no copy of all of it. Header and chunks are hashed on the way.
pub(super) struct Input<'a, R> {
    pub path: &'a Path,
    source: R,
    /// In the whole file.
    pub bytes: usize,
    /// Of header and chunks.
    pub digest: Sha256,
}

impl<'a, R: Read + Seek> Input<'a, R> {
    pub fn new(path: &'a Path, mut source: R) -> Result<Self> {
        let end = source.seek(SeekFrom::End(0));
        let bytes = end.map_err(|source| TraceError::Io { path: path.into(), source })? as usize;
        Ok(Self { path, source, bytes, digest: Sha256::new() })
    }

    fn io<T>(&self, done: std::io::Result<T>) -> Result<T> {
        done.map_err(|source| TraceError::Io { path: self.path.into(), source })
    }

    fn go_to(&mut self, at: usize) -> Result<()> {
        let sought = self.source.seek(SeekFrom::Start(at as u64));
        self.io(sought).map(|_| ())
    }

    fn fill(&mut self, part: &mut [u8]) -> Result<()> {
        let filled = self.source.read_exact(part);
        self.io(filled)?;
        self.digest.update(part);
        Ok(())
    }

    /// The header, checked.
    pub fn header(&mut self) -> Result<[u8; format::HEADER_BYTES]> {
        let found = self.at(0, format::HEADER_BYTES)?;
        check_header(self.path, &found)?;
        self.digest.update(&found);
        Ok(found.try_into().expect("checked"))
    }

    /// The footer, checked except for what it says of the contents.
    pub fn footer(&mut self) -> Result<[u8; format::FOOTER_BYTES]> {
        let at = self.bytes.saturating_sub(format::FOOTER_BYTES);
        let found = self.at(at, format::FOOTER_BYTES)?;
        let is_there = at >= format::HEADER_BYTES && found.len() == format::FOOTER_BYTES;
        if !is_there || u32_at(&found, 0) != format::FOOTER_MAGIC {
            return Err(TraceError::Truncated { path: self.path.into(), what: "its footer is missing".into() });
        }
        if u32_at(&found, 4) != format::VERSION {
            let what = "the footer has another version than the header".into();
            return Err(TraceError::Corrupt { path: self.path.into(), at, what });
        }
        Ok(found.try_into().expect("checked"))
    }

    /// So many bytes from there on, fewer at the end of the file.
    fn at(&mut self, at: usize, bytes: usize) -> Result<Vec<u8>> {
        let mut found = Vec::with_capacity(bytes);
        self.go_to(at)?;
        let read = self.source.by_ref().take(bytes as u64).read_to_end(&mut found);
        self.io(read)?;
        Ok(found)
    }

    /// Calls `visit(offset of the first cell, process, cells)` for each chunk after checking it; returns the number of cells.
    pub fn for_each_chunk(&mut self, end: usize, visit: &mut VisitChunk) -> Result<u64> {
        let path = self.path;
        let mut at = format::HEADER_BYTES;
        let mut cell_count = 0u64;
        let mut cells = Vec::new();
        self.go_to(at)?;
        while at < end {
            let corrupt = |what: &str| TraceError::Corrupt { path: path.into(), at, what: what.into() };
            let truncated = |what: String| TraceError::Truncated { path: path.into(), what };
            if end - at < format::CHUNK_BYTES {
                return Err(truncated(format!("a chunk begins at byte {at} and does not end")));
            }
            let mut chunk = [0; format::CHUNK_BYTES];
            self.fill(&mut chunk)?;
            if u32_at(&chunk, 0) != format::CHUNK_MAGIC {
                return Err(corrupt("expected the magic of a chunk"));
            }
            let count = u64_at(&chunk, 8);
            let first = at + format::CHUNK_BYTES;
            let length = usize::try_from(count)
                .ok()
                .and_then(|count| count.checked_mul(CELL))
                .filter(|length| *length <= end - first);
            let Some(length) = length else {
                let what = format!("the chunk at byte {at} has {count} records, the file ends before");
                return Err(truncated(what));
            };
            cells.resize(length, 0);
            self.fill(&mut cells)?;
            if format::checksum(&cells) != u64_at(&chunk, 16) {
                return Err(corrupt("the checksum of this chunk is wrong"));
            }
            visit(first, u32_at(&chunk, 4), &cells)?;
            cell_count += count;
            at = first + length;
        }
        Ok(cell_count)
    }
}

fn check_header(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() < 8 || &bytes[..8] != format::MAGIC {
        return Err(TraceError::NotATrace { path: path.into() });
    }
    if bytes.len() < format::HEADER_BYTES {
        return Err(TraceError::Truncated {
            path: path.into(),
            what: format!("the header needs {} bytes", format::HEADER_BYTES),
        });
    }
    let found = u32_at(bytes, 8);
    if found != format::VERSION {
        return Err(TraceError::Version { path: path.into(), found, expected: format::VERSION });
    }
    if u32_at(bytes, 12) as usize != CELL {
        return Err(TraceError::Corrupt {
            path: path.into(),
            at: 12,
            what: format!("records of {} bytes, expected {CELL}", u32_at(bytes, 12)),
        });
    }
    Ok(())
}
