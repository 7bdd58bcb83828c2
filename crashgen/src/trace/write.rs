// SPDX-License-Identifier: Apache-2.0
//! Writing traces record by record: for tests, importers and generated workloads. Tracers have their own in C.

use super::format::{self, CELL, Record, kind};
use sha2::{Digest, Sha256};

/// Collects the records of one process and makes a sealed trace of them.
#[derive(Clone, Debug)]
pub struct TraceWriter {
    tracer: &'static str,
    cells: Vec<u8>,
}

/// Bytes of the header's name of the tracer.
const TRACER_BYTES: usize = 24;

impl Default for TraceWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl TraceWriter {
    /// An empty process 1.
    pub fn new() -> Self {
        Self::of("writer")
    }

    /// The same, of a trace that says this tracer took it: at most 24 bytes.
    pub fn of(tracer: &'static str) -> Self {
        assert!(tracer.len() <= TRACER_BYTES, "{tracer}: too long a name");
        let mut writer = Self { tracer, cells: Vec::new() };
        writer.push(Record { detail: 1, ..EMPTY.of(kind::PROCESS) }, &[]);
        writer
    }

    pub(crate) fn push(&mut self, record: Record, payload: &[u8]) -> &mut Self {
        self.cells.extend(record.to_cell());
        self.cells.extend(payload);
        self.cells.resize(self.cells.len().next_multiple_of(CELL), 0);
        self
    }

    /// Defines file `file` with its path.
    pub fn file(&mut self, file: u32, path: &str) -> &mut Self {
        let size = u32::try_from(path.len()).expect("a path is short");
        self.push(Record { file, size, ..EMPTY.of(kind::FILE) }, path.as_bytes())
    }

    /// Defines site `site`, of no module, with the site that called it (0: none).
    pub fn site(&mut self, site: u32, offset: u64, caller: u32) -> &mut Self {
        self.push(Record { site, offset, size: caller, ..EMPTY.of(kind::SITE) }, &[])
    }

    /// A clwb of `thread` at a site.
    pub fn clwb_at(&mut self, site: u32, thread: u16, file: u32, offset: u64) -> &mut Self {
        self.push(Record { detail: format::flush::CLWB, thread, site, file, offset, ..EMPTY.of(kind::FLUSH) }, &[])
    }

    /// Creates the file and gives it a size.
    pub fn create(&mut self, file: u32, bytes: u64) -> &mut Self {
        use format::file_operation as operation;
        for (detail, offset) in [(operation::CREATE, 0), (operation::TRUNCATE, bytes)] {
            for kind in [kind::FILE_BEGIN, kind::FILE_END] {
                self.push(Record { detail, file, offset, ..EMPTY.of(kind) }, &[]);
            }
        }
        self
    }

    /// A plain store of `bytes` by `thread`.
    pub fn store(&mut self, thread: u16, file: u32, offset: u64, bytes: &[u8]) -> &mut Self {
        self.store_at(0, thread, file, offset, bytes)
    }

    /// The same at a site.
    pub fn store_at(&mut self, site: u32, thread: u16, file: u32, offset: u64, bytes: &[u8]) -> &mut Self {
        let size = u32::try_from(bytes.len()).expect("a store is short");
        let mut value = [0; 8];
        if bytes.len() <= 8 {
            value[..bytes.len()].copy_from_slice(bytes);
        }
        let payload = if bytes.len() > 8 { bytes } else { &[] };
        let detail = format::store::PLAIN;
        self.push(
            Record {
                detail,
                thread,
                site,
                file,
                size,
                offset,
                value: u64::from_le_bytes(value),
                ..EMPTY.of(kind::STORE)
            },
            payload,
        )
    }

    /// A clwb by `thread`.
    pub fn clwb(&mut self, thread: u16, file: u32, offset: u64) -> &mut Self {
        self.push(Record { detail: format::flush::CLWB, thread, file, offset, ..EMPTY.of(kind::FLUSH) }, &[])
    }

    /// An sfence by `thread`.
    pub fn sfence(&mut self, thread: u16) -> &mut Self {
        self.push(Record { detail: 1, thread, ..EMPTY.of(kind::FENCE) }, &[])
    }

    /// The sealed trace.
    pub fn finish(&self) -> Vec<u8> {
        let mut cells = self.cells.clone();
        cells.extend(EMPTY.of(kind::PROCESS_END).to_cell());
        let count = (cells.len() / CELL) as u64;
        let mut bytes = vec![0; format::HEADER_BYTES + format::CHUNK_BYTES];
        bytes[24..24 + self.tracer.len()].copy_from_slice(self.tracer.as_bytes());
        bytes[format::HEADER_BYTES + 4..][..4].copy_from_slice(&1u32.to_le_bytes());
        bytes[format::HEADER_BYTES + 8..][..8].copy_from_slice(&count.to_le_bytes());
        bytes.extend(&cells);
        mended(&bytes)
    }
}

/// These bytes with everything made right that a reader only compares: magics, versions, counts that reach beyond the end,
/// checksums, footer. So a damage of the records reaches the reader's inner checks.
pub fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut fixed = bytes[..footer_at(bytes)].to_vec();
    fixed.resize(fixed.len().max(format::HEADER_BYTES), 0);
    fixed[..8].copy_from_slice(format::MAGIC);
    fixed[8..12].copy_from_slice(&format::VERSION.to_le_bytes());
    fixed[12..16].copy_from_slice(&(CELL as u32).to_le_bytes());
    fixed.truncate(fixed.len() / CELL * CELL);
    let mut at = format::HEADER_BYTES;
    let mut total = 0;
    while at < fixed.len() {
        let rest = (fixed.len() - at - format::CHUNK_BYTES) / CELL;
        let said = u64::from_le_bytes(fixed[at + 8..at + 16].try_into().expect("8 bytes"));
        let count = usize::try_from(said).unwrap_or(usize::MAX).min(rest);
        let end = at + format::CHUNK_BYTES + count * CELL;
        let sum = format::checksum(&fixed[at + format::CHUNK_BYTES..end]);
        fixed[at..at + 4].copy_from_slice(&format::CHUNK_MAGIC.to_le_bytes());
        fixed[at + 8..at + 16].copy_from_slice(&(count as u64).to_le_bytes());
        fixed[at + 16..at + 24].copy_from_slice(&sum.to_le_bytes());
        (at, total) = (end, total + count as u64);
    }
    let digest = Sha256::digest(&fixed);
    fixed.extend(format::FOOTER_MAGIC.to_le_bytes());
    fixed.extend(format::VERSION.to_le_bytes());
    fixed.extend(total.to_le_bytes());
    fixed.extend(&digest[..]);
    fixed.resize(fixed.len() + 16, 0);
    fixed
}

/// Where the footer starts, if the bytes have one.
fn footer_at(bytes: &[u8]) -> usize {
    let at = bytes.len().saturating_sub(format::FOOTER_BYTES);
    let has_footer = at >= format::HEADER_BYTES && bytes[at..].starts_with(&format::FOOTER_MAGIC.to_le_bytes());
    if has_footer { at } else { bytes.len() }
}

/// A record of thread 1 with nothing in it.
pub(crate) const EMPTY: Record =
    Record { kind: 0, detail: 0, thread: 1, site: 0, file: 0, size: 0, offset: 0, value: 0 };

impl Record {
    pub(crate) fn of(self, kind: u8) -> Self {
        Self { kind, ..self }
    }
}
