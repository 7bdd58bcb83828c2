// SPDX-License-Identifier: Apache-2.0
//! One more recovery of a crash state, for evidence alone.

use crate::base::error::EngineError;
use crate::heap::case::Case;
use crashgen::model::{Choice, View};

/// What a recovery of the state shows to a server of its own; nothing where that fails: it is for people, and what was found does not hang
/// on it.
pub fn look<T: Default>(
    case: &mut Case,
    (view, state): (&View, &[Choice]),
    recover: impl FnOnce(&mut Case) -> Result<T, EngineError>,
) -> T {
    case.image.go_to(&case.model, view, state);
    case.image.start_again();
    let seen = recover(case);
    case.image.start_again();
    seen.unwrap_or_default()
}
