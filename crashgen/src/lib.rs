// SPDX-License-Identifier: Apache-2.0
//! crashgen works out every memory image that a power failure could leave of a traced workload.
//!
//! The layers, each using only those above it:
//!
//! | module | concept |
//! |---|---|
//! | [`trace`] | the trace file: events in memory order |
//! | [`model`] | the persistency model: which choices each line has at a crash position |
//! | [`image`] | the bytes and files of one crash state |
//! | [`rules`] | warnings about flushes and fences, and what operations pay for them |
//! | [`strategy`] | which states of a position are run |
//! | [`complete`] | all states of a position, by what recovery loads |
//! | [`replay`] | recovery of a crash image in the runner's fork server |
//! | [`seat`] | the processor that an engine's thread shares with its servers |
//! | [`symbols`], [`ordinals`] | function, file and line of a site, and a name of it that lasts |
//! | [`token`] | the printable identity of one crash state |
//! | [`litmus`] | small tests of the model itself |
//!
//! It knows no allocator and judges no heap.

pub mod complete;
pub mod image;
pub mod litmus;
pub mod model;
pub mod ordinals;
pub mod replay;
pub mod rules;
pub mod seat;
pub mod strategy;
pub mod symbols;
pub mod token;
pub mod trace;

/// Bytes of a cache line: what is flushed and evicted as a whole.
pub const LINE_BYTES: u64 = 64;
/// Bytes of a unit: what power failure leaves whole (R3).
pub const UNIT_BYTES: u64 = 8;
