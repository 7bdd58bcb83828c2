// SPDX-License-Identifier: Apache-2.0
//! The numbers of `runner/protocol.h`, which says what they mean. Each constant has the name there without `FL_`; `X_BYTES` is the
//! size of `struct fl_x`. `runner/tests/test_protocol.py` compares them.

pub const PROTOCOL_VERSION: u32 = 16;

/// The server ended because its engine is not to be believed about this target.
pub const EXIT_DISTRUST: u32 = 4;

// Commands.
pub const COMMAND_CREATE: u32 = 1;
pub const COMMAND_RESIZE: u32 = 2;
pub const COMMAND_REMOVE: u32 = 4;
pub const COMMAND_RENAME: u32 = 5;
pub const COMMAND_WRITE: u32 = 6;
pub const COMMAND_MKDIR: u32 = 7;
pub const COMMAND_RMDIR: u32 = 8;
pub const COMMAND_RUN: u32 = 9;
pub const COMMAND_STAGES: u32 = 10;
pub const COMMAND_WATCH: u32 = 11;
pub const COMMAND_ENGINES: u32 = 12;
pub const COMMAND_REPORT: u32 = 13;
pub const COMMAND_AFFINITY: u32 = 14;
pub const COMMAND_MODULES: u32 = 15;
pub const COMMAND_POISON: u32 = 16;
pub const COMMAND_STRAY: u32 = 17;
pub const COMMAND_BYTES: usize = 40;
pub const ENGINES_BYTES: usize = 32;

// Of a run.
pub const PROBE_FIRST: u32 = 1;
pub const PROBE_FULL: u32 = 2;
pub const PROBE_GENERATION: u32 = 3;
pub const PROBE_RECOVERY: u32 = 4;
pub const PROBE_DEEP: u32 = 5;
pub const RUN_LOADS: u32 = 1;
pub const RUN_IN_PROCESS: u32 = 4;
pub const RUN_REPORT_APART: u32 = 16;
pub const RUN_AFRESH: u32 = 32;
pub const RUN_DEATH: u32 = 64;
pub const RUN_COMPARED: u32 = 128;

// Loads.
pub const LOADS_HEADER_BYTES: usize = 32;
pub const LOAD_BYTES: usize = 24;
pub const LOADS_OVERFLOW: u32 = 1;
pub const LOADS_NOT_HOOKED: u32 = 2;
pub const LOADS_SHARED: u32 = 4;
pub const LOADS_UNSEEN: u32 = 8;
pub const LOADS_DIFFERS: u32 = 16;
pub const LOADS_MAPPINGS: u32 = 32;
pub const LOADS_DAMAGED: u32 = 64;
pub const LOAD_TARGET: u8 = 1;

// Events.
pub const EVENTS_HEADER_BYTES: usize = 16;
pub const EVENT_BYTES: usize = 32;
pub const EVENTS_OVERFLOW: u32 = 1;
pub const EVENTS_FILES: u32 = 2;
pub const EVENT_STORE: u8 = 1;
pub const EVENT_FLUSH: u8 = 2;
pub const EVENT_FENCE: u8 = 3;
pub const EVENT_BEGIN: u8 = 4;
pub const EVENT_RETURN: u8 = 5;
pub const EVENT_FILE: u8 = 6;
pub const EVENT_WRITE: u8 = 7;
pub const EVENT_SYNC: u8 = 8;
pub const STORED_PLAIN: u8 = 1;
pub const STORED_RMW: u8 = 2;
pub const STORED_CONTENT: u8 = 3;
pub const STORED_STREAM: u8 = 4;
pub const FLUSHED_CLFLUSH: u8 = 1;
pub const FLUSHED_CLFLUSHOPT: u8 = 2;
pub const FLUSHED_CLWB: u8 = 3;
pub const FENCED_SFENCE: u8 = 1;
pub const FENCED_MFENCE: u8 = 2;
pub const FENCED_LOCKED: u8 = 3;
pub const DID_CREATE: u8 = 1;
pub const DID_TRUNCATE: u8 = 2;
pub const DID_EXTEND: u8 = 3;
pub const DID_PUNCH: u8 = 4;
pub const DID_UNLINK: u8 = 5;
pub const DID_RENAME: u8 = 6;
pub const DID_MAKE_FOLDER: u8 = 7;
pub const DID_REMOVE_FOLDER: u8 = 8;
pub const SITE_UNKNOWN: u32 = 0;
pub const SITE_CONTENT: u32 = 1;

// Deaths.
pub const DEATH_BYTES: usize = 32;
pub const DEATH_CALL_BYTES: usize = 16;
pub const TOUCHED_NOTHING: u32 = 0;
pub const TOUCHED_FILE: u32 = 1;
pub const TOUCHED_BEHIND: u32 = 2;
pub const TOUCHED_BEFORE: u32 = 3;
pub const TOUCHED_NEAR_NULL: u32 = 4;
pub const TOUCHED_UNMAPPED: u32 = 5;
pub const TOUCHED_NO_ADDRESS: u32 = 6;
pub const HUNG_BUSY: u32 = 1;
pub const HUNG_ASLEEP: u32 = 2;

/// What a command says beside its payload.
#[derive(Clone, Copy, Debug)]
pub enum Arguments {
    /// Nothing.
    None,
    /// `struct fl_change`.
    Change { file: u32, offset: u64, size: u64 },
    /// `struct fl_run`.
    Run { probe: u32, flags: u32, seed: u32, generation: u32 },
    /// Number of the set of hot units.
    Watch(u64),
}

/// `struct fl_command`.
pub fn command(kind: u32, arguments: Arguments, payload_bytes: usize) -> [u8; COMMAND_BYTES] {
    let mut bytes = [0; COMMAND_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &kind.to_le_bytes());
    put(8, &(payload_bytes as u64).to_le_bytes());
    match arguments {
        Arguments::None => {}
        Arguments::Change { file, offset, size } => {
            put(16, &file.to_le_bytes());
            put(24, &offset.to_le_bytes());
            put(32, &size.to_le_bytes());
        }
        Arguments::Run { probe, flags, seed, generation } => {
            for (place, word) in [probe, flags, seed, generation].into_iter().enumerate() {
                put(16 + 4 * place, &word.to_le_bytes());
            }
        }
        Arguments::Watch(number) => put(16, &number.to_le_bytes()),
    }
    bytes
}
