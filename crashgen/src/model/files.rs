// SPDX-License-Identifier: Apache-2.0
//! Names and sizes of the heap's files and folders (R9). Which file operations a power failure loses is said from outside
//! ([`super::losses`]); the others are whole and durable.

use crate::trace::{FileEffect, FileId, renamed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A file of the heap as it is at the current position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Where it is; none once it is unlinked.
    pub path: Option<Arc<str>>,
    /// Size in bytes.
    pub bytes: u64,
}

/// All files and folders.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// Unlinked ones included.
    pub states: BTreeMap<FileId, FileState>,
    pub folders: BTreeSet<Arc<str>>,
}

impl Files {
    /// Whether a crash can show the file; one that was never seen created counts as there.
    pub fn is_reachable(&self, file: FileId) -> bool {
        self.states.get(&file).is_none_or(|state| state.path.is_some())
    }

    /// Whether it has a name that the trace gave it.
    pub fn has(&self, file: FileId) -> bool {
        self.states.get(&file).is_some_and(|state| state.path.is_some())
    }

    /// Its size; 0 where the trace has not met it yet.
    pub fn bytes(&self, file: FileId) -> u64 {
        self.states.get(&file).map_or(0, |state| state.bytes)
    }

    /// The file, to be changed. One that was there before the trace began is met without a create; its content is then unknown to us and
    /// zero here.
    fn get_mut(&mut self, file: FileId) -> &mut FileState {
        self.states.entry(file).or_insert(FileState { path: None, bytes: 0 })
    }

    /// Does to names and sizes what the operation does; returns the file that it takes away.
    pub fn apply(&mut self, effect: &FileEffect) -> Option<FileId> {
        match effect {
            FileEffect::Create { file, path } => {
                self.states.insert(*file, FileState { path: Some(path.clone()), bytes: 0 });
            }
            FileEffect::Truncate { file, bytes } => self.get_mut(*file).bytes = *bytes,
            FileEffect::Extend { file, bytes } => self.grow(*file, *bytes),
            FileEffect::Write { file, offset, bytes } => self.grow(*file, offset + bytes.len() as u64),
            FileEffect::Unlink { path } => return self.unlink(path),
            FileEffect::Rename { from, to } => return self.rename(from, to),
            FileEffect::MakeFolder { path } => _ = self.folders.insert(path.clone()),
            FileEffect::RemoveFolder { path } => _ = self.folders.remove(path),
            FileEffect::Punch { .. }
            | FileEffect::Sync { .. }
            | FileEffect::SyncFolder { .. }
            | FileEffect::SyncAll => {}
        }
        None
    }

    fn grow(&mut self, file: FileId, bytes: u64) {
        let state = self.get_mut(file);
        state.bytes = state.bytes.max(bytes);
    }

    /// The file that had the path.
    fn unlink(&mut self, path: &Arc<str>) -> Option<FileId> {
        let (file, state) = self.states.iter_mut().find(|(_, state)| state.path.as_ref() == Some(path))?;
        *state = FileState { path: None, bytes: 0 };
        Some(*file)
    }

    /// A file or a folder with all that is in it; returns the file that had the new name.
    fn rename(&mut self, from: &Arc<str>, to: &Arc<str>) -> Option<FileId> {
        if from == to {
            return None;
        }
        let replaced = self.unlink(to);
        for path in self.states.values_mut().filter_map(|state| state.path.as_mut()) {
            if let Some(renamed) = renamed(path, from, to) {
                *path = renamed;
            }
        }
        let folder = |path: &Arc<str>| renamed(path, from, to).unwrap_or_else(|| path.clone());
        self.folders = self.folders.iter().map(folder).collect();
        replaced
    }
}
