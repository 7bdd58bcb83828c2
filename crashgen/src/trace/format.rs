// SPDX-License-Identifier: Apache-2.0
//! Numbers of `pintools/trace.h`, in its order. A test of the harness compares both.

pub const MAGIC: &[u8; 8] = b"FLTRACE\0";
pub const CHUNK_MAGIC: u32 = 0x4b4e_4843;
pub const FOOTER_MAGIC: u32 = 0x444e_4546;
pub const VERSION: u32 = 6;

pub const CELL: usize = 32;
pub const HEADER_BYTES: usize = 64;
pub const CHUNK_BYTES: usize = 32;
pub const FOOTER_BYTES: usize = 64;

#[derive(Clone, Copy)]
pub struct Record {
    pub kind: u8,
    pub detail: u8,
    pub thread: u16,
    pub site: u32,
    pub file: u32,
    pub size: u32,
    pub offset: u64,
    pub value: u64,
}

impl Record {
    pub fn parse(cell: &[u8; CELL]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes(cell[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(cell[at..at + 8].try_into().expect("8 bytes"));
        Self {
            kind: cell[0],
            detail: cell[1],
            thread: u16::from_le_bytes([cell[2], cell[3]]),
            site: u32_at(4),
            file: u32_at(8),
            size: u32_at(12),
            offset: u64_at(16),
            value: u64_at(24),
        }
    }

    pub fn to_cell(self) -> [u8; CELL] {
        let mut cell = [0; CELL];
        cell[0] = self.kind;
        cell[1] = self.detail;
        cell[2..4].copy_from_slice(&self.thread.to_le_bytes());
        cell[4..8].copy_from_slice(&self.site.to_le_bytes());
        cell[8..12].copy_from_slice(&self.file.to_le_bytes());
        cell[12..16].copy_from_slice(&self.size.to_le_bytes());
        cell[16..24].copy_from_slice(&self.offset.to_le_bytes());
        cell[24..32].copy_from_slice(&self.value.to_le_bytes());
        cell
    }
}

/// `fl_checksum` of `trace.h`.
pub fn checksum(cells: &[u8]) -> u64 {
    let mut sum: u64 = 0x0666_c747_2616_3651;
    for word in cells.chunks_exact(8) {
        sum = (sum ^ u64::from_le_bytes(word.try_into().expect("8 bytes"))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 32;
    }
    sum
}

pub mod kind {
    pub const PROCESS: u8 = 1;
    pub const PROCESS_END: u8 = 2;
    pub const MODULE: u8 = 3;
    pub const SITE: u8 = 4;
    pub const FILE: u8 = 5;
    pub const STORE: u8 = 6;
    pub const FLUSH: u8 = 7;
    pub const FENCE: u8 = 8;
    pub const FILE_BEGIN: u8 = 9;
    pub const FILE_END: u8 = 10;
    pub const MAP: u8 = 11;
    pub const UNMAP: u8 = 12;
    pub const OPERATION_BEGIN: u8 = 13;
    pub const OPERATION_RETURN: u8 = 14;
    pub const UNSUPPORTED: u8 = 15;
}

pub mod store {
    pub const PLAIN: u8 = 1;
    pub const NT: u8 = 2;
    pub const RMW: u8 = 3;
    pub const REP: u8 = 4;
}

pub mod flush {
    pub const CLFLUSH: u8 = 1;
    pub const CLFLUSHOPT: u8 = 2;
    pub const CLWB: u8 = 3;
}

pub mod fence {
    pub const SFENCE: u8 = 1;
    pub const MFENCE: u8 = 2;
    pub const RMW: u8 = 3;
}

pub mod file_operation {
    pub const CREATE: u8 = 1;
    pub const TRUNCATE: u8 = 2;
    pub const ALLOCATE: u8 = 3;
    pub const PUNCH: u8 = 4;
    pub const UNLINK: u8 = 5;
    pub const RENAME: u8 = 6;
    pub const MSYNC: u8 = 7;
    pub const FSYNC: u8 = 8;
    pub const WRITE: u8 = 9;
    pub const MKDIR: u8 = 10;
    pub const RMDIR: u8 = 11;
    pub const SYNC_FOLDER: u8 = 12;
    pub const SYNC_ALL: u8 = 13;
}

/// Flags of a mapping.
pub mod map {
    pub const SHARED: u8 = 1;
    pub const SYNCED: u8 = 4;
    pub const WRITABLE: u8 = 8;
    pub const REFUSED: u8 = 16;
}

/// The begin marker of a case, in the place of an operation's kind ([`super::OperationKind::from_number`]).
pub const OPERATION_CASE: u8 = 1;

#[cfg(test)]
mod tests {
    /// The reader and `trace.h` must agree: the header is parsed for its numbers.
    #[test]
    fn numbers_equal_those_of_trace_h() {
        let header = include_str!("../../../pintools/trace.h");
        for (text, value) in [
            ("#define FL_TRACE_VERSION 6u", super::VERSION == 6),
            ("#define FL_CHUNK_MAGIC 0x4b4e4843u", super::CHUNK_MAGIC == 0x4b4e_4843),
            ("#define FL_FOOTER_MAGIC 0x444e4546u", super::FOOTER_MAGIC == 0x444e_4546),
            ("uint64_t sum = 0x666c74726163651ull;", super::checksum(&[]) == 0x0666_c747_2616_3651),
        ] {
            assert!(value && header.contains(text), "trace.h no longer says {text:?}");
        }
        let names = [
            "FL_PROCESS = 1",
            "FL_PROCESS_END",
            "FL_MODULE",
            "FL_SITE",
            "FL_FILE",
            "FL_STORE",
            "FL_FLUSH",
            "FL_FENCE",
            "FL_FILE_BEGIN",
            "FL_FILE_END",
            "FL_MAP",
            "FL_UNMAP",
            "FL_OPERATION_BEGIN",
            "FL_OPERATION_RETURN",
            "FL_UNSUPPORTED",
        ];
        let kinds = &header[header.find("enum fl_kind {").expect("enum fl_kind")..];
        let mut at = 0;
        for name in names {
            at += kinds[at..].find(&format!("    {name}")).unwrap_or_else(|| panic!("{name} is out of order"));
        }
    }
}
