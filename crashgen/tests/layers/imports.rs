// SPDX-License-Identifier: Apache-2.0
//! Which source file of a crate uses which, read from its `use` lines and paths. Tests are left out: they may use anything.
//!
//! A file uses the files that *define* what it names. `pub use child::Item` in a module's file is a signpost: who imports the item
//! through it uses the child, and the module's own file does so only where it names the item itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path in its crate, the crate's root being empty.
type Module = Vec<String>;

/// The source files of a crate.
pub struct Sources {
    files: BTreeMap<Module, Source>,
}

struct Source {
    /// Each name that is imported here, with where it comes from, and whether others see it.
    imports: Vec<Import>,
    /// What is left of the text: without comments, tests and imports.
    text: String,
}

struct Import {
    name: String,
    from: Module,
    is_public: bool,
}

impl Sources {
    /// All files below `folder`, whose root module is `root` (`lib.rs`, `main.rs`).
    pub fn read(folder: &Path, root: &str) -> Self {
        let mut files = BTreeMap::new();
        read_folder(folder, root, &[], &mut files);
        Self { files }
    }

    /// These files, each a module's path and its text.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(module, text)| (segments(module), Source::parse(text)));
        Self { files: files.collect() }
    }

    /// Names of the modules of the crate's root, in no order.
    pub fn top_modules(&self) -> BTreeSet<&str> {
        self.files.keys().filter_map(|module| module.first()).map(String::as_str).collect()
    }

    /// Each file with those that it uses, as module paths (`model::line`).
    pub fn uses(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.files.keys().map(|module| (module.join("::"), self.used_by(module))).collect()
    }

    fn used_by(&self, module: &Module) -> BTreeSet<String> {
        let source = &self.files[module];
        let is_named = |import: &Import| !import.is_public || has_word(&source.text, &import.name);
        let imported = source.imports.iter().filter(|import| is_named(import)).map(|import| import.from.clone());
        let named = paths(&source.text).into_iter().filter_map(|path| self.absolute(module, &path));
        let defining =
            imported.filter_map(|path| self.absolute(module, &path)).chain(named).map(|path| self.defining(&path));
        defining.filter(|used| used != module).map(|used| used.join("::")).collect()
    }

    /// The path from the crate's root; none if it leads out of the crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut base = match path[0].as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len() - 1].to_vec(),
            first if self.files.contains_key(&[module.as_slice(), &[first.to_owned()]].concat()) => {
                return Some([module, path].concat());
            }
            _ => return None,
        };
        for part in &path[1..] {
            if part == "super" {
                base.pop();
            } else {
                base.push(part.clone());
            }
        }
        Some(base)
    }

    /// The file that defines what the path names.
    fn defining(&self, path: &[String]) -> Module {
        let depth =
            (0..=path.len()).rev().find(|depth| self.files.contains_key(&path[..*depth])).expect("the root is a file");
        let (module, rest) = (path[..depth].to_vec(), &path[depth..]);
        let Some(name) = rest.first() else { return module };
        let signpost = self.files[&module].imports.iter().find(|import| import.is_public && import.name == *name);
        match signpost.and_then(|import| self.absolute(&module, &import.from)) {
            Some(from) if from != path => self.defining(&from),
            _ => module,
        }
    }
}

/// The largest set of files each of which uses, by way of others or not, all others of the set; one file alone is none.
pub fn largest_circle(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = uses.keys().map(|file| (file, reachable(uses, file))).collect();
    let circle = |file: &String| -> Vec<String> {
        reach[file].iter().filter(|other| reach[**other].contains(file)).map(|other| (*other).clone()).collect()
    };
    uses.keys().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

fn reachable<'a>(uses: &'a BTreeMap<String, BTreeSet<String>>, from: &'a String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut rest = vec![from];
    while let Some(file) = rest.pop() {
        rest.extend(uses[file].iter().filter(|used| found.insert(*used)));
    }
    found
}

fn read_folder(folder: &Path, root: &str, module: &[String], files: &mut BTreeMap<Module, Source>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let below = || [module, std::slice::from_ref(&name)].concat();
        if path.is_dir() {
            read_folder(&path, root, &below(), files);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "tests" {
            let is_of_folder = name == "mod" || module.is_empty() && path.ends_with(root);
            let text = fs::read_to_string(&path).expect("UTF-8");
            files.insert(if is_of_folder { module.to_vec() } else { below() }, Source::parse(&text));
        }
    }
}

impl Source {
    fn parse(text: &str) -> Self {
        let code = without_tests_and_comments(text);
        let mut imports = Vec::new();
        let mut rest = String::new();
        let mut statements = code.split_inclusive(';');
        for statement in &mut statements {
            match import_in(statement) {
                Some((before, tree, is_public)) => {
                    rest.push_str(before);
                    expand(&[], tree, is_public, &mut imports);
                }
                None => rest.push_str(statement),
            }
        }
        Self { imports, text: rest }
    }
}

/// Up to the tests at the end of the file, without what `//` begins, and without `mod name;`.
fn without_tests_and_comments(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let is_declaration = |line: &&str| line.ends_with(';') && (line.starts_with("mod ") || line.contains(" mod "));
    lines.filter(|line| !is_declaration(line)).map(|line| line.to_owned() + "\n").collect()
}

/// What precedes a `use` at the end of the statement, its tree, and whether it is one that others see.
fn import_in(statement: &str) -> Option<(&str, &str, bool)> {
    let body = statement.strip_suffix(';')?;
    let at = body.match_indices("use ").map(|(at, _)| at).find(|at| {
        let line = body[..*at].rsplit('\n').next().unwrap_or_default().trim();
        line.is_empty() || line.starts_with("pub")
    })?;
    let start = body[..at].rfind('\n').map_or(0, |newline| newline + 1);
    Some((&body[..start], &body[at + 4..], body[start..at].trim().starts_with("pub")))
}

/// The names of a tree like `a::{b, c::{self, d as e}}`.
fn expand(prefix: &[String], tree: &str, is_public: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let prefix = [prefix, &segments(head)].concat();
        let group = group.trim().strip_suffix('}').expect("a closed group");
        split_group(group).iter().for_each(|part| expand(&prefix, part, is_public, imports));
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let mut from = [prefix, &segments(path)].concat();
    from.retain(|part| part != "*");
    if from.len() > 1 && from.last().is_some_and(|last| last == "self") {
        from.pop();
    }
    if let Some(last) = from.last().cloned() {
        imports.push(Import { name: alias.map_or(last, str::to_owned), from, is_public });
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// At the commas that are in no group.
fn split_group(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

/// Paths in the text that begin with `crate`, `super` or a lower-case name.
fn paths(text: &str) -> Vec<Vec<String>> {
    let is_of_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = text.split(|character| !is_of_path(character)).filter(|word| word.contains("::"));
    let begins_small = |path: &Vec<String>| path.first().is_some_and(|first| first.starts_with(char::is_lowercase));
    words.map(segments).filter(begins_small).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').any(|other| other == word)
}
