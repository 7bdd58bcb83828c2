// SPDX-License-Identifier: Apache-2.0
//! From a violation to what a person reads of it: identity, onset, witness, evidence, and repairs to try.

pub mod event_excerpt;
pub mod evidence;
pub mod finding;
pub mod identity;
pub mod onset;
pub mod operation_names;
pub mod recovery_edits;
pub mod repair;
pub mod without_crash;
pub mod witness;
