// SPDX-License-Identifier: Apache-2.0
//! What recovery makes of a crash image: the replay server with a memory, and the oracle's judgement of what it answers.

pub mod content;
pub mod judging;
pub mod leaf_content;
pub mod recoverer;
pub mod referee;
pub mod replayed;
pub mod reports;

pub mod twins;
