// SPDX-License-Identifier: Apache-2.0
//! crashgen works out every memory image that a power failure could leave of a traced workload.
//!
//! The layers, from the lowest up. A module uses only those above it in this table (`tests/layers.rs` reads the table and the imports):
//!
//! | module | concept |
//! |---|---|
//! | [`trace`] | the trace file: events in memory order |
//! | [`symbols`] | function, file and line of a site, and a name for it that lasts |
//! | [`pmemcheck`] | the store log of pmemcheck: a trace of it, and it of a trace |
//! | [`edit`] | the trace as if its source had other flushes and fences |
//! | [`model`] | the persistency model: which choices each line has at a crash position |
//! | [`image`] | the bytes and files of one crash state |
//! | [`trace_rules`] | warnings about flushes and fences, and what operations pay for them |
//! | [`strategy`] | which states of a position are run |
//! | [`complete`] | all states of a position, by what recovery loads |
//! | [`cpu_affinity`] | the processor that an engine's thread shares with its servers |
//! | [`replay`] | recovery of a crash image in the runner's fork server |
//! | [`token`] | the printable identity of one crash state |
//! | [`litmus`] | small tests of the model itself |
//!
//! It knows no allocator and judges no heap.

pub mod complete;
pub mod cpu_affinity;
pub mod edit;
pub mod image;
pub mod litmus;
pub mod model;
pub mod pmemcheck;
pub mod replay;
pub mod strategy;
pub mod symbols;
pub mod token;
pub mod trace;
pub mod trace_rules;

pub use trace::{LINE_BYTES, OS_PAGE_BYTES, UNIT_BYTES};
