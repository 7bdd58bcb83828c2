// SPDX-License-Identifier: Apache-2.0
//! The persistency model: what power failure may leave of each line.
//!
//! # Px86, as this module implements it
//!
//! The trace is one observed interleaving, taken as the memory order. A line's image is what its base holds plus a prefix of
//! its *ordered* stores (R1) plus any subset of its *floating* units (R8), applied in memory order. Of the next ordered
//! store beyond the prefix any proper subset of its aligned 8-byte units may be there too (R3). Lines are independent (R2).
//! The *floor* is how many ordered stores are guaranteed:
//!
//! - clflush raises it to what the line holds as soon as any thread's next store, flush, fence or locked RMW takes effect (R4);
//! - clflushopt and clwb raise it to what the line held at the flush (by any thread, R7) when the same thread's next fence
//!   or locked RMW takes effect (R5, R6);
//! - msync and fsync raise it to what the lines held when the call began (R9).
//!
//! A non-temporal unit is decided by its thread's next fence or locked RMW, a unit that `write()` left by a sync of its file; a flush
//! decides neither (R8, R9). Truncate, punch and unlink end the sequences of the lines they take away (R9).
//!
//! File operations are whole and durable when they return, but for those that the power failure is said to lose: [`losses`] has which it may.
//!
//! Sources: Intel SDM vol. 2 (CLFLUSH, CLFLUSHOPT, CLWB, SFENCE); Raad et al., POPL 2020 and 2022; Khyzha and Lahav, POPL 2021.
//!
//! # What is not modelled
//!
//! One interleaving only. A file operation takes effect at its end; when other threads ran between its begin and its end,
//! the states in which the effect is already there are missing and [`Model::bounds_hit`] says so. Threads of one process do not
//! run meanwhile under the Valgrind tracer, whose turn a file's system call keeps; processes that run at the same time do.

mod files;
mod floors;
mod line;
mod line_ids;
mod lines;
pub mod losses;
pub mod models;
mod persistency;
mod stepping;
#[cfg(test)]
mod tests;
mod view;

pub use crate::trace::LineKey;
pub use files::FileState;
pub use floors::{Floors, Until};
pub use line::{Choice, Line, LineContent};
pub use line_ids::LineId;
pub use lines::Lines;
pub use models::{Eadr, ProcessCrash, Px86, Px86Returned, Strict};
pub use persistency::{Assumption, LineStore, PersistencyModel};
pub use stepping::Model;
pub use view::{OpenLine, View};
