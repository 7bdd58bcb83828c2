// SPDX-License-Identifier: Apache-2.0
//! `lists`: what there is to choose from, for the front, which has no lists of its own.

use crate::base::output::print;
use crashgen::model::{PersistencyModel, models};
use serde_json::json;

/// Prints one JSON object.
pub fn print_all() {
    let model = |model: &&dyn PersistencyModel| json!({ "name": model.name(), "survives": model.survives() });
    print(&json!({ "models": models::ALL.iter().map(model).collect::<Vec<_>>() }));
}
