// SPDX-License-Identifier: Apache-2.0
//! The modules of crashgen use each other in one direction, that of the table in `src/lib.rs`.

mod imports;

use imports::{Sources, largest_circle};
use std::path::PathBuf;

fn source_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The modules in the order of the table.
fn table() -> Vec<String> {
    let text = std::fs::read_to_string(source_folder().join("lib.rs")).expect("the crate's root");
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split_once("`] |"));
    rows.map(|(module, _)| module.to_owned()).collect()
}

#[test]
fn the_table_of_layers_names_every_module() {
    let sources = Sources::read(&source_folder(), "lib.rs");
    let mut layers = table();
    layers.sort();
    assert_eq!(layers, sources.top_modules().into_iter().collect::<Vec<_>>());
}

#[test]
fn a_module_uses_only_those_above_it_in_the_table() {
    let layers = table();
    let layer = |file: &str| layers.iter().position(|module| Some(module.as_str()) == file.split("::").next());
    let mut count = 0;
    for (file, used) in Sources::read(&source_folder(), "lib.rs").uses() {
        for used in used.iter().filter(|_| !file.is_empty()) {
            assert!(layer(used) <= layer(&file), "{file} uses {used}, which the table has below it");
            count += usize::from(layer(used) < layer(&file));
        }
    }
    assert!(count > 30, "{count} imports from another layer: the imports are not read");
}

#[test]
fn no_file_uses_itself_by_way_of_others() {
    let uses = Sources::read(&source_folder(), "lib.rs").uses();
    assert_eq!(largest_circle(&uses), Vec::<String>::new());
}

#[test]
fn what_a_file_uses_is_read_from_its_imports_and_paths() {
    let sources = Sources::of(&[
        ("", "pub mod a;\npub mod b;\npub use b::Width;"),
        (
            "a",
            "mod inner;\nmod other;\npub use inner::{Deep, Item};\npub use other::Other;\nuse other::Hidden;\nstruct A(Item);",
        ),
        (
            "a::inner",
            "use crate::Width;\n// crate::b::Commented\n#[cfg(test)]\nmod tests {\n    use crate::b::Tested;\n}",
        ),
        ("a::other", "use super::{Deep, inner::Item as Renamed};"),
        ("b", "use crate::a::{\n    Other, inner::{self, Item},\n};\nfn b() { super::a::Local::new() }"),
    ]);
    let uses = sources.uses();
    let used_by = |file: &str| uses[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(used_by("a"), ["a::inner", "a::other"], "Item is named in the text, Hidden is imported");
    assert_eq!(used_by("a::inner"), ["b"], "by way of the root, and not by its comment or test");
    assert_eq!(used_by("a::other"), ["a::inner"], "by way of the module above it, which says where Deep is");
    assert_eq!(used_by("b"), ["a", "a::inner", "a::other"]);
    assert_eq!(largest_circle(&uses), ["a", "a::inner", "a::other", "b"]);
}
