// SPDX-License-Identifier: Apache-2.0
//! Paths of the heap's files and folders.

use std::sync::Arc;

/// The path after a rename of `from`, which is the path itself or a folder above it; none if it stays as it is.
pub(crate) fn renamed(path: &str, from: &str, to: &str) -> Option<Arc<str>> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}").into())
}

/// The folder that holds this name: `.` where paths begin.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(folder, _)| folder)
}
