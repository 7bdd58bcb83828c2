// SPDX-License-Identifier: Apache-2.0
//! Runs recovery and probe script on crash images in the runner's server (`runner/protocol.h`): each run in processes of its own, the
//! isolated engine, or in one long-lived process, the in-process engine: of targets with hooks all of it, of others the
//! first part of the probe.
//!
//! The server keeps one base image, and the client remembers which version of which [`crate::image::CrashImage`] that is. Going to
//! another one sends the lines and files that differ, or all of them; each probe then runs in children of the server, whose stores
//! never reach the base.

mod counts;
mod death;
mod error;
mod loads;
mod options;
mod protocol;
mod recovery_trace;
mod server;

pub use counts::Engines;
pub use death::{Death, Hung, Touched};
pub use error::ReplayError;
pub use loads::{CodeSite, Loads};
pub use options::ServerOptions;
pub use recovery_trace::{CONTENT_SITE, RecoveryTrace};
pub use server::ReplayServer;

/// How much of the probe script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Open, slots, walk, check.
    First = protocol::PROBE_FIRST as isize,
    /// All lives.
    Full = protocol::PROBE_FULL as isize,
    /// All lives, with many opens between them, and a long use.
    Deep = protocol::PROBE_DEEP as isize,
}

/// How a recorded run is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As fast as possible: in-process if the server may. What follows the first recovery may come from another run that reached the same
    /// state.
    Fast,
    /// All of it is run.
    Afresh,
    /// All of it is run, in the isolated engine too, and the answers are compared.
    Compared,
}
