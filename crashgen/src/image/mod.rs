// SPDX-License-Identifier: Apache-2.0
//! The crash image: bytes and files of one crash state, kept up to date from state to state.
//!
//! An image is never copied as a whole. [`CrashImage`] holds the content of every line that was ever stored to, and two
//! running hashes: of the image, and of what the allocator wrote of it. Going to
//! another state changes the lines whose choices differ.
//!
//! Whoever has a copy of an image elsewhere, as a replay server has, remembers which [`ImageVersion`] that is. It asks the image which
//! lines changed since ([`CrashImage::changed_since`]), so that several servers may follow one image, in any order.

mod changes;

pub use changes::ImageVersion;

use crate::model::{Choice, LineContent, LineId, LineKey, Model, View};
use crate::trace::{FileId, LINE_BYTES};
use changes::Changes;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// 128-bit hash of an image. Equal images have equal hashes, and images with equal hashes count as equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageHash(pub u128);

#[derive(Clone, Copy)]
struct LineState {
    key: LineKey,
    content: LineContent,
    /// A bit for each byte that the allocator wrote last.
    metadata: u64,
    hash: u128,
    metadata_hash: u128,
    /// What `content` was made of: a version of the model's line and a choice.
    made_of: (u64, Choice),
    /// Number of the last change of `content` ([`Changes`]).
    last_change: u64,
    /// The hashes are those of an earlier content.
    is_hash_old: bool,
}

/// A file as the image shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Path relative to the case's folder.
    pub path: Arc<str>,
    /// Size in bytes.
    pub bytes: u64,
}

/// What a run meets besides the bytes of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which.
    pub kind: TroubleKind,
    /// In which file.
    pub file: FileId,
    /// Where it starts in the file, bytes.
    pub offset: u64,
}

/// Kinds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// An OS page that the medium lost: who loads of it gets SIGBUS.
    Poison,
    /// A word that the application stores as soon as the heap is open, where it should not. Its offset is a multiple of 8.
    StrayStore([u8; 8]),
}

/// One crash image after the other.
pub struct CrashImage {
    /// The case's folder, with a slash at its end: paths are shown without it.
    prefix: String,
    lines: Vec<LineState>,
    indices: FxHashMap<LineKey, usize>,
    files: BTreeMap<FileId, ImageFile>,
    folders: BTreeSet<Arc<str>>,
    /// Seeds line hashes with the file's first path and its order among the files, so that equal heaps of two cases are equal.
    seeds: BTreeMap<FileId, u64>,
    sum: u128,
    metadata_sum: u128,
    names_hash: u128,
    trouble: Option<Trouble>,
    changes: Changes,
    /// Lines to hash again when somebody asks for a hash, which is rare.
    old_hashes: Vec<usize>,
}

/// A clone is another image: none of its lines has changed yet.
impl Clone for CrashImage {
    fn clone(&self) -> Self {
        Self {
            prefix: self.prefix.clone(),
            lines: self.lines.iter().map(|line| LineState { last_change: 0, ..*line }).collect(),
            indices: self.indices.clone(),
            files: self.files.clone(),
            folders: self.folders.clone(),
            seeds: self.seeds.clone(),
            sum: self.sum,
            metadata_sum: self.metadata_sum,
            names_hash: self.names_hash,
            trouble: self.trouble,
            changes: Changes::new(),
            old_hashes: self.old_hashes.clone(),
        }
    }
}

impl CrashImage {
    /// An image without files. `folder` is the case's folder below the PM folder, empty when there are no cases.
    pub fn new(folder: &str) -> Self {
        Self {
            prefix: if folder.is_empty() { String::new() } else { format!("{folder}/") },
            lines: Vec::new(),
            indices: FxHashMap::default(),
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            seeds: BTreeMap::new(),
            sum: 0,
            metadata_sum: 0,
            names_hash: 0,
            trouble: None,
            changes: Changes::new(),
            old_hashes: Vec::new(),
        }
    }

    /// The image of a state of a position. `prefix`: of the case's folder, as [`CrashImage::prefix`] has it.
    pub fn of(prefix: &str, model: &Model, view: &View, state: &[Choice]) -> Self {
        let mut image = Self { prefix: prefix.to_owned(), ..Self::new("") };
        image.follow_files(model);
        for id in model.line_ids() {
            image.set(model, id, model.line(id).newest());
        }
        image.go_to(model, view, state);
        image
    }

    /// Follows the model to a new position: files, and the lines that have no choice left.
    pub fn follow(&mut self, model: &mut Model, are_files_new: bool) {
        if are_files_new {
            self.follow_files(model);
        }
        for id in model.take_changed() {
            self.set(model, id, Choice::default());
        }
    }

    fn follow_files(&mut self, model: &Model) {
        self.files.clear();
        let mut names = Vec::new();
        let known = self.seeds.len();
        for (file, state) in model.files() {
            let Some(path) = &state.path else { continue };
            let Some(path) = path.strip_prefix(self.prefix.as_str()) else { continue };
            let order = self.seeds.len() as u64;
            let seed = *self.seeds.entry(*file).or_insert_with(|| xxh3_128_with_seed(path.as_bytes(), order) as u64);
            names.extend_from_slice(path.as_bytes());
            names.push(0);
            names.extend(seed.to_le_bytes());
            names.extend(state.bytes.to_le_bytes());
            self.files.insert(*file, ImageFile { path: path.into(), bytes: state.bytes });
        }
        self.folders =
            model.folders().iter().filter_map(|path| path.strip_prefix(self.prefix.as_str())).map(Arc::from).collect();
        for folder in &self.folders {
            names.extend_from_slice(folder.as_bytes());
            names.extend([0, 1]);
        }
        self.names_hash = xxh3_128(&names);
        if self.seeds.len() > known {
            self.lines.iter_mut().for_each(|line| line.is_hash_old = true);
            self.old_hashes = (0..self.lines.len()).collect();
        }
    }

    /// Hashes the lines whose content changed, and those whose file has got its seed since.
    fn hash_again(&mut self) {
        for at in std::mem::take(&mut self.old_hashes) {
            let LineState { key, content, metadata, hash: old, metadata_hash: old_metadata, .. } = self.lines[at];
            let seed = self.seeds.get(&key.file).copied().unwrap_or(0);
            let hash = hash_line(seed, key.number, &content);
            let metadata_hash = hash_metadata(seed, key.number, &content, metadata);
            self.sum = self.sum.wrapping_sub(old).wrapping_add(hash);
            self.metadata_sum = self.metadata_sum.wrapping_sub(old_metadata).wrapping_add(metadata_hash);
            let line = &mut self.lines[at];
            (line.hash, line.metadata_hash, line.is_hash_old) = (hash, metadata_hash, false);
        }
    }

    /// Goes to this state of the position that `follow` was last called for.
    pub fn go_to(&mut self, model: &Model, view: &View, state: &[Choice]) {
        for (line, choice) in view.lines.iter().zip(state) {
            self.set(model, line.id, *choice);
        }
    }

    /// Shows these lines as this model has them newest, after another generation's model was followed.
    pub fn return_to(&mut self, model: &mut Model, lines: impl Iterator<Item = LineId>, are_files_new: bool) {
        self.follow(model, are_files_new);
        lines.for_each(|id| self.set(model, id, model.line(id).newest()));
    }

    fn set(&mut self, model: &Model, id: LineId, choice: Choice) {
        let line = model.line(id);
        let at = self.index_of(line.key, id);
        let made_of = (line.version(), choice);
        if self.lines[at].made_of == made_of {
            return;
        }
        let (content, metadata) = line.content(choice);
        let lines = self.lines.len();
        let state = &mut self.lines[at];
        state.made_of = made_of;
        if state.content != content {
            state.last_change = self.changes.add(at, lines);
        }
        (state.content, state.metadata) = (content, metadata);
        if !state.is_hash_old {
            state.is_hash_old = true;
            self.old_hashes.push(at);
        }
    }

    /// The line's index in `lines`. Models of several generations may number lines differently; mostly they do not.
    fn index_of(&mut self, key: LineKey, id: LineId) -> usize {
        let usual = id.0 as usize;
        if self.lines.get(usual).is_some_and(|line| line.key == key) {
            return usual;
        }
        let next = self.lines.len();
        let at = *self.indices.entry(key).or_insert(next);
        if at == next {
            let made_of = (u64::MAX, Choice::default());
            let (content, metadata) = ([0; 64], 0);
            self.lines.push(LineState {
                key,
                content,
                metadata,
                hash: 0,
                metadata_hash: 0,
                made_of,
                last_change: 0,
                is_hash_old: false,
            });
        }
        at
    }

    /// Hash of the whole image: files, sizes and bytes.
    pub fn hash(&mut self) -> ImageHash {
        self.hash_again();
        ImageHash(self.sum ^ self.names_hash)
    }

    /// Hash of what the allocator wrote of the image and nobody overwrote since. Application content and bytes that were never
    /// stored are the same here; a zero that the allocator stored is another thing.
    pub fn metadata_hash(&mut self) -> ImageHash {
        self.hash_again();
        ImageHash(self.metadata_sum ^ self.names_hash)
    }

    /// Hash of the files' names and sizes and of the folders: all that a file system answers.
    pub fn names_hash(&self) -> u128 {
        self.names_hash
    }

    /// What paths in the trace have before the path in the heap folder.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Files by identity.
    pub fn files(&self) -> &BTreeMap<FileId, ImageFile> {
        &self.files
    }

    /// Folders below the case's folder.
    pub fn folders(&self) -> &BTreeSet<Arc<str>> {
        &self.folders
    }

    /// Each word that was ever stored to, of 8 bytes at a multiple of 8, in no order.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.lines.iter().flat_map(|line| line.content.chunks_exact(8));
        words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
    }

    /// Each line that was ever stored to and that its file has, in order of file and number: content, and a bit for each byte that the allocator
    /// wrote last.
    pub fn lines(&self) -> Vec<(LineKey, LineContent, u64)> {
        let is_there = |key: &LineKey| {
            self.files.get(&key.file).is_some_and(|file| key.number * LINE_BYTES + LINE_BYTES <= file.bytes)
        };
        let mut lines: Vec<_> = self.lines.iter().map(|line| (line.key, line.content, line.metadata)).collect();
        lines.retain(|(key, _, _)| is_there(key));
        lines.sort_unstable_by_key(|(key, _, _)| *key);
        lines
    }

    /// Another image, in which a line that was ever stored to holds this.
    pub fn with_line(&self, key: LineKey, content: LineContent) -> Self {
        let mut image = self.clone();
        let at = image.indices[&key];
        image.lines[at].content = content;
        image.lines[at].is_hash_old = true;
        image.old_hashes.push(at);
        image
    }

    /// Another image, in which the file has so many bytes. None: it is not there.
    pub fn with_file(&self, file: FileId, bytes: Option<u64>) -> Self {
        let mut image = self.clone();
        match (bytes, image.files.get_mut(&file)) {
            (Some(bytes), Some(state)) => state.bytes = bytes,
            (_, _) => _ = image.files.remove(&file),
        }
        image.names_hash ^=
            xxh3_128(&[file.0.to_le_bytes().as_slice(), &bytes.unwrap_or(u64::MAX).to_le_bytes()].concat());
        image
    }

    /// Another image, of which a run meets this, too.
    pub fn with_trouble(&self, trouble: Trouble) -> Self {
        let kind = match &trouble.kind {
            TroubleKind::Poison => b"poison".to_vec(),
            TroubleKind::StrayStore(bytes) => [&b"stray"[..], bytes].concat(),
        };
        let words = [&kind[..], &trouble.file.0.to_le_bytes(), &trouble.offset.to_le_bytes()];
        let names_hash = self.names_hash ^ xxh3_128(&words.concat());
        Self { trouble: Some(trouble), names_hash, ..self.clone() }
    }

    /// What a run meets, too.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// Fills `bytes` with the image's content of the file from `offset`; never stored is zero. False if there is no such file
    /// or it ends before.
    pub fn read(&self, path: &str, offset: u64, bytes: &mut [u8]) -> bool {
        let Some((file, state)) = self.files.iter().find(|(_, state)| &*state.path == path) else { return false };
        let Some(end) = offset.checked_add(bytes.len() as u64).filter(|end| *end <= state.bytes) else { return false };
        let mut at = offset;
        while at < end {
            let number = at / LINE_BYTES;
            let start = (at % LINE_BYTES) as usize;
            let length = ((LINE_BYTES as usize) - start).min((end - at) as usize);
            let target = &mut bytes[(at - offset) as usize..][..length];
            match self.indices.get(&LineKey { file: *file, number }) {
                Some(at) => target.copy_from_slice(&self.lines[*at].content[start..start + length]),
                None => target.fill(0),
            }
            at += length as u64;
        }
        true
    }

    /// The content that it has now.
    pub fn version(&self) -> ImageVersion {
        self.changes.version()
    }

    /// Whether that is a version of this image, and not of another one.
    pub fn has(&self, version: ImageVersion) -> bool {
        self.changes.has(version)
    }

    /// Lines whose content changed since that version, and all lines of these files, with their content now, in order of file and
    /// number. Where too much has changed since it is all lines.
    pub fn changed_since(&self, version: ImageVersion, new_files: &BTreeSet<FileId>) -> Vec<(LineKey, LineContent)> {
        debug_assert!(self.has(version));
        let content = |line: &LineState| (line.key, line.content);
        let mut changed: Vec<_> = match self.changes.after(version) {
            None => self.lines.iter().map(content).collect(),
            Some(later) => {
                let lines = later.map(|(change, line)| (change, &self.lines[line]));
                let last = lines.filter(|(change, line)| line.last_change == *change).map(|(_, line)| content(line));
                let is_of_new =
                    |line: &&LineState| new_files.contains(&line.key.file) && line.last_change <= version.change;
                match new_files.is_empty() {
                    true => last.collect(),
                    false => last.chain(self.lines.iter().filter(is_of_new).map(content)).collect(),
                }
            }
        };
        changed.sort_unstable_by_key(|(key, _)| *key);
        changed
    }
}

/// Zero for a line of zeros: a line that was never stored to and one that holds zeros are the same image.
fn hash_line(seed: u64, number: u64, content: &LineContent) -> u128 {
    if content.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut buffer = [0u8; 80];
    buffer[..8].copy_from_slice(&seed.to_le_bytes());
    buffer[8..16].copy_from_slice(&number.to_le_bytes());
    buffer[16..].copy_from_slice(content);
    xxh3_128(&buffer)
}

fn hash_metadata(seed: u64, number: u64, content: &LineContent, mask: u64) -> u128 {
    if mask == 0 {
        return 0;
    }
    let mut buffer = [0u8; 88];
    buffer[..8].copy_from_slice(&seed.to_le_bytes());
    buffer[8..16].copy_from_slice(&number.to_le_bytes());
    buffer[16..24].copy_from_slice(&mask.to_le_bytes());
    for (at, byte) in content.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
        buffer[24 + at] = *byte;
    }
    xxh3_128(&buffer)
}

#[cfg(test)]
mod tests {
    use super::changes::{CHANGES_A_LINE, LEAST_CHANGES};
    use super::*;
    use crate::model::Px86;
    use crate::trace::{Event, EventKind, FileEffect, SiteId, StoreKind, ThreadId};

    fn image_after(events: &[EventKind]) -> (CrashImage, Model) {
        let mut model = Model::new(&Px86, Vec::new());
        let mut image = CrashImage::new("case-0");
        for (number, kind) in events.iter().enumerate() {
            let thread = ThreadId { process: 1, thread: 1 };
            model.step(number as u32, &Event { thread, site: SiteId(0), kind: kind.clone() });
            let view = model.view();
            image.follow(&mut model, view.are_all_new);
            image.go_to(&model, &view, &view.prefix_state());
            let _ = (image.hash(), image.metadata_hash()); // what is changed later is hashed again
        }
        (image, model)
    }

    fn create() -> Vec<EventKind> {
        let create = FileEffect::Create { file: FileId(0), path: "case-0/heap".into() };
        let truncate = FileEffect::Truncate { file: FileId(0), bytes: 4096 };
        [create, truncate].map(|effect| EventKind::FileEnd { effect: effect.into(), is_done: true }).into()
    }

    fn store(offset: u64, value: u64) -> EventKind {
        EventKind::Store {
            kind: StoreKind::Plain,
            file: FileId(0),
            offset,
            bytes: value.to_le_bytes().as_slice().into(),
        }
    }

    #[test]
    fn hash_depends_on_content_not_on_the_way() {
        let (mut one, _) = image_after(&[create(), vec![store(0, 1), store(64, 2), store(0, 3)]].concat());
        let (mut two, _) = image_after(&[create(), vec![store(64, 2), store(0, 3)]].concat());
        let (mut other, _) = image_after(&[create(), vec![store(64, 2), store(0, 4)]].concat());
        assert_eq!(one.hash(), two.hash());
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn hash_does_not_depend_on_when_a_file_came_into_sight() {
        let early = [FileEffect::Rename { from: "heap".into(), to: "case-0/heap".into() }];
        let ends = |effects: &[FileEffect]| -> Vec<EventKind> {
            effects.iter().map(|effect| EventKind::FileEnd { effect: effect.clone().into(), is_done: true }).collect()
        };
        let create = |path: &str| {
            ends(&[
                FileEffect::Create { file: FileId(0), path: path.into() },
                FileEffect::Truncate { file: FileId(0), bytes: 4096 },
            ])
        };
        let (mut one, _) = image_after(&[create("heap"), vec![store(0, 1)], ends(&early)].concat());
        let (mut two, _) = image_after(&[create("case-0/heap"), vec![store(0, 1)]].concat());
        assert_eq!(one.hash(), two.hash());
    }

    #[test]
    fn a_created_file_is_empty() {
        let (mut one, _) = image_after(&[vec![store(0, 1)], create()].concat());
        let (mut two, _) = image_after(&create());
        assert_eq!(one.hash(), two.hash());
    }

    #[test]
    fn the_same_content_elsewhere_is_another_image() {
        let (mut one, _) = image_after(&[create(), vec![store(0, 1)]].concat());
        let (mut other, _) = image_after(&[create(), vec![store(64, 1)]].concat());
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn a_zero_of_the_allocator_is_not_application_content() {
        let mut model = Model::new(&Px86, vec![false, true]);
        let mut image = CrashImage::new("case-0");
        let mut events = create();
        events.extend([store(0, 7), store(0, 0)]);
        let mut hashes = Vec::new();
        for (number, kind) in events.into_iter().enumerate() {
            let (thread, site) = (ThreadId { process: 1, thread: 1 }, SiteId(u32::from(number == 2)));
            model.step(number as u32, &Event { thread, site, kind });
            let view = model.view();
            image.follow(&mut model, view.are_all_new);
            image.go_to(&model, &view, &view.prefix_state());
            hashes.push(image.metadata_hash());
        }
        assert_eq!(hashes[1], hashes[2], "content is no metadata");
        assert_ne!(hashes[2], hashes[3], "a stored zero is");
    }

    #[test]
    fn zeros_are_like_never_stored() {
        let (mut one, _) = image_after(&[create(), vec![store(0, 1), store(0, 0)]].concat());
        let (mut two, _) = image_after(&create());
        assert_eq!(one.hash(), two.hash());
    }

    #[test]
    fn going_to_the_floor_takes_the_stores_back() {
        let (mut image, model) = image_after(&[create(), vec![store(8, 7)]].concat());
        let mut bytes = [0; 16];
        assert!(image.read("heap", 0, &mut bytes) && bytes[8] == 7);
        let view = model.view();
        image.go_to(&model, &view, &view.floor_state());
        assert!(image.read("heap", 0, &mut bytes) && bytes[8] == 0);
        assert!(!image.read("heap", 4090, &mut bytes), "beyond the end");
    }
    fn changed(image: &CrashImage, since: ImageVersion) -> Vec<u64> {
        image.changed_since(since, &BTreeSet::new()).into_iter().map(|(key, _)| key.number).collect()
    }

    #[test]
    fn each_copy_learns_what_changed_since_its_own_version() {
        let (mut image, model) = image_after(&[create(), vec![store(64, 1), store(0, 2)]].concat());
        let view = model.view();
        let (newest, floor) = (view.prefix_state(), view.floor_state());
        let one = image.version();
        image.go_to(&model, &view, &floor);
        let other = image.version();
        assert_eq!((changed(&image, one), changed(&image, other)), (vec![0, 1], vec![]));
        image.go_to(&model, &view, &[vec![newest[0]], vec![floor[1]]].concat());
        let line = model.line(view.lines[0].id).key.number;
        assert_eq!((changed(&image, one), changed(&image, other)), (vec![0, 1], vec![line]), "each line once");
        let contents = image.changed_since(other, &BTreeSet::new());
        assert_eq!(contents[0].1, model.line(view.lines[0].id).content(newest[0]).0, "as it is now");
    }

    #[test]
    fn all_lines_of_a_new_file_are_told() {
        let (image, _) = image_after(&[create(), vec![store(64, 1), store(0, 2)]].concat());
        let of_new = |file| image.changed_since(image.version(), &[FileId(file)].into()).len();
        assert_eq!((of_new(0), of_new(1)), (2, 0));
    }

    #[test]
    fn a_copy_that_is_too_far_behind_learns_of_all_lines() {
        let (mut image, model) = image_after(&[create(), vec![store(64, 1), store(0, 2)]].concat());
        let view = model.view();
        let first = image.version();
        let states = [view.floor_state(), view.prefix_state()];
        (0..LEAST_CHANGES).for_each(|turn| image.go_to(&model, &view, &states[turn % 2]));
        let next = image.version();
        image.go_to(&model, &view, &[vec![states[0][0]], vec![states[1][1]]].concat());
        assert_eq!((changed(&image, first).len(), changed(&image, next).len()), (2, 1));
        assert!(image.changes.remembered() <= LEAST_CHANGES + CHANGES_A_LINE * image.lines.len());
    }

    #[test]
    fn who_has_no_copy_of_a_clone_is_told_all_of_its_lines() {
        let (image, _) = image_after(&[create(), vec![store(0, 1), store(64, 2), store(0, 3)]].concat());
        let all = |image: &CrashImage| image.changed_since(image.version(), &BTreeSet::from([FileId(0)]));
        assert_eq!(all(&image).len(), 2);
        assert_eq!(all(&image.clone()), all(&image));
        let other = image.with_line(LineKey { file: FileId(0), number: 1 }, [7; 64]);
        assert_eq!(all(&other)[1].1, [7; 64]);
    }

    #[test]
    fn a_clone_is_another_image() {
        let (image, _) = image_after(&create());
        assert!(image.has(image.version()) && !image.has(image.clone().version()));
    }
}
