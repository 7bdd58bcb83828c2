// SPDX-License-Identifier: Apache-2.0
//! Writing traces record by record: for tests, importers and generated workloads. Tracers have their own in C.

use super::format::{self, CELL, Record, kind};
use sha2::{Digest, Sha256};

/// Collects the records of one process and makes a sealed trace of them.
#[derive(Clone, Debug, Default)]
pub struct TraceWriter {
    cells: Vec<u8>,
}

impl TraceWriter {
    /// An empty process 1.
    pub fn new() -> Self {
        let mut writer = Self::default();
        writer.push(Record { detail: 1, ..EMPTY.of(kind::PROCESS) }, &[]);
        writer
    }

    fn push(&mut self, record: Record, payload: &[u8]) -> &mut Self {
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
        let size = u32::try_from(bytes.len()).expect("a store is short");
        let mut value = [0; 8];
        if bytes.len() <= 8 {
            value[..bytes.len()].copy_from_slice(bytes);
        }
        let payload = if bytes.len() > 8 { bytes } else { &[] };
        let detail = format::store::PLAIN;
        self.push(
            Record { detail, thread, file, size, offset, value: u64::from_le_bytes(value), ..EMPTY.of(kind::STORE) },
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
        let mut bytes = Vec::new();
        bytes.extend(format::MAGIC);
        bytes.extend(format::VERSION.to_le_bytes());
        bytes.extend((CELL as u32).to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(b"writer");
        bytes.resize(format::HEADER_BYTES, 0);
        bytes.extend(format::CHUNK_MAGIC.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(format::checksum(&cells).to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(&cells);
        let digest = Sha256::digest(&bytes);
        bytes.extend(format::FOOTER_MAGIC.to_le_bytes());
        bytes.extend(format::VERSION.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(&digest[..]);
        bytes.resize(bytes.len() + 16, 0);
        bytes
    }
}

const EMPTY: Record = Record { kind: 0, detail: 0, thread: 1, site: 0, file: 0, size: 0, offset: 0, value: 0 };

impl Record {
    fn of(self, kind: u8) -> Self {
        Self { kind, ..self }
    }
}
