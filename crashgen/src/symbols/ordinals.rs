// SPDX-License-Identifier: Apache-2.0
//! Where in its function a site is, in a number that lasts: of the lines of source that have code, how many there are from the
//! function's declaration to the site's line.
//!
//! Lines that are added, removed or moved outside of the function, and comments and blank lines inside, do not change it. What a
//! trace came to does not either: it is read from the debug information of the whole module. A line counts when any row of the
//! line tables names it, rows without an instruction of their own included: optimising compilers keep those at the beginning of each
//! statement, so that other flags rarely change the number.

use addr2line::gimli::{
    self, AttributeValue, DebuggingInformationEntry, DwAt, EndianSlice, RunTimeEndian, Unit, UnitRef,
};
use object::{Object, ObjectSection};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Of one module. Files are known by their names without folders, so that sources may move as a whole.
#[derive(Debug, Default)]
pub struct Ordinals {
    /// Lines that have code.
    lines: FxHashMap<String, BTreeSet<u32>>,
    /// By function, as it is called in the object file, and file: where it is declared.
    declared: FxHashMap<(String, String), BTreeSet<u32>>,
}

impl Ordinals {
    /// Nothing is known of a module that is gone, damaged, or without debug information.
    pub fn of(module: &Path) -> Self {
        let mut ordinals = Self::default();
        if let Ok(bytes) = std::fs::read(module) {
            let _ = ordinals.read(&bytes); // what was read of damaged debug information counts
        }
        ordinals
    }

    /// Of `line` in `function`, as the object file calls it; none when the debug information does not know the line.
    pub fn find(&self, function: &str, file: &str, line: u32) -> Option<usize> {
        let file = base_name(file);
        let lines = self.lines.get(&file)?;
        if !lines.contains(&line) {
            return None;
        }
        let declared = self.declared.get(&(function.to_owned(), file));
        let declared = declared.and_then(|known| known.range(..=line).next_back()).map_or(0, |known| *known);
        Some(lines.range(..=line).rev().take_while(|at| **at > declared).count())
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
        let object = object::File::parse(bytes)?;
        let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let sections = gimli::DwarfSections::load(|id| {
            let section = object.section_by_name(id.name());
            section.map_or(Ok(Cow::Borrowed(&[][..])), |section| section.uncompressed_data())
        })?;
        let dwarf = sections.borrow(|section| EndianSlice::new(section, endian));
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            self.read_lines(unit.unit_ref(&dwarf))?;
            self.read_functions(unit.unit_ref(&dwarf))?;
        }
        Ok(())
    }

    fn read_lines(&mut self, unit: UnitRef<Slice>) -> gimli::Result<()> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            let (Some(line), Some(file)) = (row.line(), row.file(header)) else { continue };
            let name = base_name(&unit.attr_string(file.path_name())?.to_string_lossy());
            self.lines.entry(name).or_default().insert(line.get() as u32);
        }
        Ok(())
    }

    fn read_functions(&mut self, unit: UnitRef<Slice>) -> gimli::Result<()> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_subprogram || entry.attr(gimli::DW_AT_declaration).is_some() {
                continue;
            }
            let name = inherited(&unit, entry, gimli::DW_AT_linkage_name)
                .or_else(|| inherited(&unit, entry, gimli::DW_AT_name));
            let line = inherited(&unit, entry, gimli::DW_AT_decl_line).and_then(|value| value.udata_value());
            let file = inherited(&unit, entry, gimli::DW_AT_decl_file);
            let (Some(name), Some(line), Some(AttributeValue::FileIndex(file))) = (name, line, file) else { continue };
            let Some(file) = unit.line_program.as_ref().and_then(|program| program.header().file(file)) else {
                continue;
            };
            let name = unit.attr_string(name)?.to_string_lossy().into_owned();
            let file = base_name(&unit.attr_string(file.path_name())?.to_string_lossy());
            self.declared.entry((name, file)).or_default().insert(line as u32);
        }
        Ok(())
    }
}

/// An attribute of an entry, or of the one that it completes: a copy of an inlined function, or the declaration in a class.
fn inherited<'a>(unit: &Unit<Slice<'a>>, entry: &Entry<'a>, name: DwAt) -> Option<AttributeValue<Slice<'a>>> {
    const DEPTH: usize = 4; // a copy of an inlined member function is three deep; damaged debug information may go round
    let mut entry = entry.clone();
    for _ in 0..DEPTH {
        if let Some(value) = entry.attr_value(name) {
            return Some(value);
        }
        let links = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
        let link = links.into_iter().find_map(|link| entry.attr_value(link));
        let Some(AttributeValue::UnitRef(offset)) = link else { return None };
        entry = unit.entry(offset).ok()?;
    }
    None
}

fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SOURCE: &str = "struct node { volatile long a, b, c; };
static inline void set(struct node *node, long value) {
    node->b = value;
}
void first(struct node *node) {
    node->a = 1;
    set(node, 2);
    node->c = 3;
}
void second(struct node *node) { node->a = 4; }
";

    /// Of the source, compiled as its author might.
    fn ordinals(source: &str, options: &[&str]) -> Ordinals {
        let hash = xxhash_rust::xxh3::xxh3_64(format!("{source}{options:?}").as_bytes());
        let folder = std::env::temp_dir().join(format!("faultline-ordinals-{}-{hash:x}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("node.c"), source).expect("the source");
        let output = folder.join("node.so");
        let fixed = ["node.c", "-shared", "-fPIC", "-o", "node.so"];
        let status = Command::new("gcc").current_dir(&folder).args(fixed).args(options).status().expect("gcc");
        assert!(status.success());
        let ordinals = Ordinals::of(&output);
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        ordinals
    }

    #[test]
    fn lines_with_code_are_counted_from_the_declaration() {
        let found = ordinals(SOURCE, &["-g", "-O2"]);
        let line = |function, line| found.find(function, "node.c", line);
        assert_eq!((line("first", 6), line("first", 7), line("first", 8)), (Some(1), Some(2), Some(3)));
        assert_eq!((line("set", 3), line("second", 10), line("first", 4711)), (Some(1), Some(0), None));
    }

    #[test]
    fn lines_around_a_function_and_comments_in_it_change_nothing() {
        let moved = SOURCE
            .replace("void first", "int more(void) {\n    return 1;\n}\n\nvoid first")
            .replace("    set(node, 2)", "\n    // a comment\n    set(node, 2)");
        let found = ordinals(&moved, &["-g", "-O2"]);
        assert_eq!(found.find("first", "/elsewhere/node.c", 14), Some(3), "the line of node->c = 3");
    }

    #[test]
    fn other_flags_change_nothing() {
        for options in [&["-g", "-O0"][..], &["-g", "-O1"], &["-g", "-O3", "-DNDEBUG"], &["-gdwarf-4", "-O2"]] {
            let found = ordinals(SOURCE, options);
            assert_eq!(found.find("first", "node.c", 8), Some(3), "{options:?}");
        }
    }

    #[test]
    fn a_module_without_debug_information_has_none() {
        assert_eq!(ordinals(SOURCE, &["-O2"]).find("first", "node.c", 6), None);
        assert_eq!(Ordinals::of(Path::new("/nowhere.so")).find("first", "node.c", 6), None);
    }
}
