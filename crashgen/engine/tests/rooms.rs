// SPDX-License-Identifier: Apache-2.0
//! The rooms of the engine: a file imports from its own room and from those below it, and few files import each other in a circle.
//!
//! Read are the paths that begin with `crate::`, in `use` lines and elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From the bottom up.
const ROOMS: [&str; 6] = ["base", "heap", "recovery", "findings", "explore", "commands"];
/// Files of the largest circle: true recursion alone, crashes explored in what recoveries from crashes do.
const LARGEST_CIRCLE: usize = 5;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All files of the rooms, relative to the sources, with what each imports.
fn imports() -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut files = Vec::new();
    ROOMS.iter().for_each(|room| find_files(&sources().join(room), &mut files));
    files.iter().map(|file| (relative(file), imports_of(file))).collect()
}

fn relative(file: &Path) -> PathBuf {
    file.strip_prefix(sources()).expect("below the sources").to_owned()
}

fn find_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a room") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => find_files(&path, files),
            false => files.push(path),
        }
    }
}

fn imports_of(file: &Path) -> BTreeSet<PathBuf> {
    let text = std::fs::read_to_string(file).expect("a source file");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = lines.flat_map(|line| line.split("crate::").skip(1).map(str::to_owned).collect::<Vec<_>>());
    paths.map(|path| file_of(&path, file)).filter(|import| *import != relative(file)).collect()
}

/// The file that a path in the crate leads to.
fn file_of(path: &str, from: &Path) -> PathBuf {
    let mut at = sources();
    for word in path.split("::") {
        let name: String = word.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        if at.join(&name).with_extension("rs").is_file() {
            return relative(&at.join(name).with_extension("rs"));
        }
        if !at.join(&name).is_dir() {
            break;
        }
        at = at.join(name);
    }
    assert!(at.parent() != Some(&sources()) && at != sources(), "{}: crate::{path} names no file", from.display());
    relative(&at.join("mod.rs"))
}

fn room_of(file: &Path) -> usize {
    let room = file.iter().next().expect("in a room");
    ROOMS.iter().position(|name| room == *name).expect("a room")
}

#[test]
fn every_folder_is_a_room() {
    let entries = std::fs::read_dir(sources()).expect("sources").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("a name")).collect();
    names.sort();
    let mut expected: Vec<&str> = ROOMS.into_iter().chain(["bin", "main.rs"]).collect(); // bin: programs of their own
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn no_file_imports_from_a_room_above_its_own() {
    for (file, imports) in imports() {
        for import in imports {
            assert!(room_of(&import) <= room_of(&file), "{} imports {}", file.display(), import.display());
        }
    }
}

#[test]
fn circles_of_files_are_small() {
    let mut reached = imports();
    // What files import that a file imports is imported by it, too, until nothing is added.
    loop {
        let count: usize = reached.values().map(BTreeSet::len).sum();
        let before = reached.clone();
        for imports in reached.values_mut() {
            let further: Vec<_> = imports.iter().filter_map(|import| before.get(import)).flatten().cloned().collect();
            imports.extend(further);
        }
        if reached.values().map(BTreeSet::len).sum::<usize>() == count {
            break;
        }
    }
    let is_both_ways = |one: &PathBuf, other: &PathBuf| reached[one].contains(other) && reached[other].contains(one);
    let circle_of = |file| reached.keys().filter(|other| is_both_ways(file, other)).collect::<Vec<_>>();
    let largest = reached.keys().map(circle_of).max_by_key(Vec::len).expect("there are files");
    assert!((2..=LARGEST_CIRCLE).contains(&largest.len()), "files that import each other in a circle: {largest:?}");
}

#[test]
fn nothing_is_imported_by_way_of_super() {
    for file in imports().keys() {
        let text = std::fs::read_to_string(sources().join(file)).expect("a source file");
        let is_hidden = |line: &&str| line.contains("super::") && line.trim() != "use super::*;";
        assert_eq!(text.lines().find(is_hidden), None, "{}: write it as crate::", file.display());
    }
}
