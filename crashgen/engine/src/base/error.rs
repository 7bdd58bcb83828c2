// SPDX-License-Identifier: Apache-2.0
//! Errors and their exit codes.

/// Why a command ends without a verdict.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Exit code 2: what a person gave is wrong; the message names the file and what was expected.
    #[error("{0}")]
    BadInput(String),
    /// Exit code 3: something the engine needs does not work.
    #[error("{0}")]
    Infrastructure(String),
    /// The engine that runs the recoveries is not to be believed about this target: a slower one begins anew. Exit code 3 where none is left.
    #[error("{0}")]
    Distrust(String),
    /// The time that was asked for is over, and what comes after it: exploring ends.
    #[error("{0}")]
    OutOfTime(String),
}

/// Bad input in one line: control characters, which the input may hold, are escaped.
pub fn bad_input(message: impl Into<String>) -> EngineError {
    let message = message.into();
    let mut line = String::with_capacity(message.len());
    for character in message.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    EngineError::BadInput(line)
}

impl From<crashgen::trace::TraceError> for EngineError {
    fn from(error: crashgen::trace::TraceError) -> Self {
        bad_input(error.to_string())
    }
}

impl From<crashgen::pmemcheck::LogError> for EngineError {
    fn from(error: crashgen::pmemcheck::LogError) -> Self {
        bad_input(error.to_string())
    }
}

impl From<crashgen::replay::ReplayError> for EngineError {
    fn from(error: crashgen::replay::ReplayError) -> Self {
        match error {
            crashgen::replay::ReplayError::Distrust { message } => Self::Distrust(message),
            error => Self::Infrastructure(error.to_string()),
        }
    }
}

impl EngineError {
    /// 2 usage or bad input, 3 unknown or infrastructure: what `faultline` ends with, too.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BadInput(_) => 2,
            Self::Infrastructure(_) | Self::Distrust(_) | Self::OutOfTime(_) => 3,
        }
    }
}
