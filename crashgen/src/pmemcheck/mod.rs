// SPDX-License-Identifier: Apache-2.0
//! The store log of pmemcheck, the Valgrind tool of the PMDK project: read into a trace, and written from one.
//!
//! pmemcheck writes the log with `--log-stores=yes`, and pmreorder reads it. It is one line of records with `|` between them, from
//! `START` to `STOP`. Numbers are hexadecimal.
//!
//! | record | what it says |
//! |---|---|
//! | `REGISTER_FILE;PATH;ADDRESS;BYTES;OFFSET` | a file is mapped there |
//! | `STORE;ADDRESS;VALUE;BYTES` | a store; a wider one is a record for each 8 bytes. `;FRAME` for each frame of its stack, where that was asked for |
//! | `FLUSH;ADDRESS;BYTES` | clwb, clflushopt or clflush (64 bytes), or what the program said it flushed |
//! | `FENCE` | sfence, mfence or cpuid, or what the program said; and behind the flush of a clflush, unless `--expect-fence-after-clflush=yes` |
//! | `DEEP_SYNC;ADDRESS;BYTES` | the program asked for a deep sync |
//! | `NAME.BEGIN`, `NAME.END` | what the program emitted, by itself |
//!
//! The log lacks threads, kinds of flushes and of stores, the width of a store beyond 8 bytes, file operations, and what files held
//! before. [`import`] takes the weakest that fits, as far as there is one, and says in notes where that mattered. [`export`] says what
//! it had to leave out.
//!
//! Operations are markers with a name of ours: `faultline_allocate.BEGIN;INDEX;SLOT;BYTES;OBJECT`, `faultline_allocate.END;INDEX;STATUS`,
//! and `faultline_case.BEGIN;NUMBER`, `faultline_case.END` around what one heap goes through. These numbers are decimal. pmreorder takes
//! them for markers that nobody configured.
//!
//! Source: pmemcheck's pmc_main.c (version 1.0) writes the records, pmreorder's operationfactory.py and memoryoperations.py read them.

mod export;
mod import;
mod log;

pub use export::{Exported, export};
pub use import::{Imported, import, import_text};
pub use log::LogError;

/// What names of operations' markers begin with.
const MARKER: &str = "faultline_";
/// The marker around what one heap goes through.
const CASE: &str = "case";
/// Bytes of a record's value at most.
const VALUE_BYTES: usize = 8;

#[cfg(test)]
mod tests;
