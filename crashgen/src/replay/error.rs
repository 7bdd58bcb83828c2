// SPDX-License-Identifier: Apache-2.0
//! Why a server cannot go on.

use super::protocol::PROTOCOL_VERSION;
use std::path::PathBuf;

/// Why the server cannot go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ReplayError {
    #[error("{runner}: cannot be started: {source}; build it with `faultline build`")]
    Start { runner: PathBuf, source: std::io::Error },
    #[error("the replay server ended: {message}")]
    Ended { message: String },
    #[error("{message}")]
    Distrust { message: String },
    #[error("the replay server sent a report of {0} bytes")]
    Report(u32),
    #[error(
        "the replay server's list of loads is not of version {}; engine and runner must be of one version",
        PROTOCOL_VERSION
    )]
    Loads,
    #[error("{path}: the replay server's heap report cannot be read: {source}")]
    ReportFile { path: String, source: std::io::Error },
    #[error("the replay server's list of engines ends in the middle; engine and runner must be of one version")]
    Engines,
    #[error(
        "the replay server's list of events is not of version {}; engine and runner must be of one version",
        PROTOCOL_VERSION
    )]
    RecoveryTrace,
    #[error(
        "the replay server's answer of where a recovery died is not of version {}; engine and runner must be of one version",
        PROTOCOL_VERSION
    )]
    Death,
    #[error("the replay server's list of recovery stages ends in the middle; engine and runner must be of one version")]
    Stages,
    #[error("the replay server does not know module {0} of the target; engine and runner must be of one version")]
    Modules(u32),
}
