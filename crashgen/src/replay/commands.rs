// SPDX-License-Identifier: Apache-2.0
//! What the runner's server is asked: the commands of `runner/protocol.h`, and the flags of a run.

pub const CREATE: u32 = 1;
pub const RESIZE: u32 = 2;
pub const REMOVE: u32 = 4;
pub const RENAME: u32 = 5;
pub const WRITE: u32 = 6;
pub const MKDIR: u32 = 7;
pub const RMDIR: u32 = 8;
pub const RUN: u32 = 9;
pub const STAGES: u32 = 10;
pub const WATCH: u32 = 11;
pub const ENGINES: u32 = 12;
pub const REPORT: u32 = 13;
pub const AFFINITY: u32 = 14;

/// Flags of [`RUN`].
pub mod run {
    pub const LOADS: u64 = 1;
    pub const GUARDED: u64 = 2;
    pub const IN_PROCESS: u64 = 4;
    pub const REPORT_APART: u64 = 16;
    pub const AFRESH: u64 = 32;
    pub const COMPARED: u64 = 128;
    pub const TELL_DEATH: u64 = 64;
}
