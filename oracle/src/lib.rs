// SPDX-License-Identifier: Apache-2.0
//! Judges recovered heaps of persistent-memory allocators.
//!
//! A workload's [`History`] says which objects must be there, may be there and must not be there when power fails; a
//! [`HeapReport`] says what recovery made of a crash image; a [`Contract`] says what the allocator promises. [`judge`] compares
//! the three, names each broken promise by its permanent rule id ([`RuleId`]), and says as a [`Fact`] what exactly breaks it.
//!
//! The crate knows no trace and no crash state: object contents are asked of a [`ContentSource`], which whoever owns the crash
//! image implements.
#![forbid(unsafe_code)]

pub mod contract;
pub mod fact;
pub mod history;
pub mod judge;
pub mod pattern;
pub mod report;
pub mod rule;

pub use contract::Contract;
pub use fact::Fact;
pub use history::{History, Linearised, Operation, OperationKind};
pub use judge::{
    ContentSource, Extent, HeapShape, Judgement, Leaked, TwinSet, Verdict, Violation, WithoutCrash, judge,
};
pub use pattern::Segment;
pub use report::{HeapReport, Outcome, Status};
pub use rule::{RuleId, RuleSet};
