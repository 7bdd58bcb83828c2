// SPDX-License-Identifier: Apache-2.0
//! The heap of a trace at a crash position: model, image and history, and its crash states. Nothing here runs a recovery.

pub mod case;
pub mod crashes;
pub mod recovery_trace;
pub mod state;
pub mod stepping;
#[cfg(test)]
pub mod testing;
pub mod token_form;
