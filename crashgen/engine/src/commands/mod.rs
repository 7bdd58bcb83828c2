// SPDX-License-Identifier: Apache-2.0
//! The subcommands of `faultline-engine`, one file each.

pub mod bench;
pub mod calls;
pub mod damage;
pub mod dump;
pub mod judge;
pub mod lists;
pub mod litmus;
pub mod places;
pub mod replay;
pub mod shrink;
pub mod states;
pub mod store_log;
pub mod trace_info;
pub mod yardstick;
