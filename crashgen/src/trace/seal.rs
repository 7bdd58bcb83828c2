// SPDX-License-Identifier: Apache-2.0
//! Writing the footer once all processes of a workload are done.

use super::container::{Input, TraceError, hex};
use super::format;
use sha2::Digest;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Checks the chunks of an unsealed trace, appends the footer and returns the trace hash in hexadecimal.
///
/// # Errors
/// [`TraceError`] when it is no trace, is damaged, or cannot be written.
pub fn seal(path: &Path) -> Result<String, TraceError> {
    let io = |source| TraceError::Io { path: path.into(), source };
    let mut input = Input::new(path, File::open(path).map_err(io)?)?;
    input.header()?;
    let cell_count = input.for_each_chunk(input.bytes, &mut |_, _, _| Ok(()))?;
    let digest = input.digest.finalize();
    let mut footer = Vec::with_capacity(format::FOOTER_BYTES);
    footer.extend(format::FOOTER_MAGIC.to_le_bytes());
    footer.extend(format::VERSION.to_le_bytes());
    footer.extend(cell_count.to_le_bytes());
    footer.extend(&digest[..]);
    footer.resize(format::FOOTER_BYTES, 0);
    let mut file = std::fs::OpenOptions::new().append(true).open(path).map_err(io)?;
    file.write_all(&footer).map_err(io)?;
    Ok(hex(&digest))
}
