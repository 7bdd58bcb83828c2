// SPDX-License-Identifier: Apache-2.0
//! Exploration: every crash position of a trace, in parts by workers, and the certificate of what was covered.

pub mod behind;
pub mod certificate;
pub mod chosen;
pub mod complete;
pub mod course;
pub mod examiner;
pub mod explorer;
pub mod later;
pub mod long_lives;
pub mod losses;
pub mod means;
pub mod outcomes;
pub mod parts;
pub mod recorded;
pub mod run;
pub mod shares;
pub mod trace_rules;
pub mod unchanged;
pub mod workers;
pub mod workload;
