// SPDX-License-Identifier: Apache-2.0
//! What every room uses: errors, the configuration, budgets, and the lines on stdout. It knows no heap.

pub mod budget;
pub mod config;
pub mod error;
pub mod output;
