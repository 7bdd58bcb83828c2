// SPDX-License-Identifier: Apache-2.0
//! Which file a path names at each moment: gives files their identity across processes, renames and re-creation (R10).

use super::{FileId, renamed};
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Namespace {
    by_path: FxHashMap<Arc<str>, FileId>,
    /// Of each file, every path that it has had so far.
    pub paths: Vec<Vec<Arc<str>>>,
}

impl Namespace {
    /// The file that has this path now; one that was there before the trace began is met here for the first time.
    pub fn resolve(&mut self, path: &Arc<str>) -> FileId {
        match self.by_path.get(path) {
            Some(file) => *file,
            None => self.create(path),
        }
    }

    /// A new file under this path, whatever had it before.
    pub fn create(&mut self, path: &Arc<str>) -> FileId {
        let file = FileId(u32::try_from(self.paths.len()).expect("fewer than 2^32 files"));
        self.paths.push(vec![path.clone()]);
        self.by_path.insert(path.clone(), file);
        file
    }

    pub fn unlink(&mut self, path: &Arc<str>) {
        self.by_path.remove(path);
    }

    pub fn rename(&mut self, from: &Arc<str>, to: &Arc<str>) {
        let moved: Vec<_> =
            self.by_path.keys().filter_map(|path| Some((path.clone(), renamed(path, from, to)?))).collect();
        for (path, renamed) in moved {
            let file = self.by_path.remove(&path).expect("just seen");
            self.paths[file.0 as usize].push(renamed.clone());
            self.by_path.insert(renamed, file);
        }
    }

    pub fn path_of(&self, file: FileId) -> Option<&Arc<str>> {
        self.by_path.iter().find(|(_, id)| **id == file).map(|(path, _)| path)
    }
}
