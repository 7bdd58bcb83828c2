// SPDX-License-Identifier: Apache-2.0
//! Which code was assembled here, said in the object itself and in whatever it is linked into.
//!
//! For each section of code there is a record in the section [`NAME`]: where the code begins, relative to the record, and how many bytes
//! it has. The linker keeps a record when it keeps the code, and so do archives, `ld -r` and `strip`. Code of a library that no record
//! covers was compiled without hooks, wherever its objects are by now (harness/faultline/pipeline/hooked_code.py).

use object::{Object as _, ObjectComdat as _, ObjectSection as _, SectionFlags, SectionIndex, SectionKind, elf};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Of the section with the records.
pub const NAME: &str = "fl_hooked";
/// The last part of a section that a source can name.
const LAST_PART: u32 = 8192;
const KNOWN_FLAGS: u64 = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0 | elf::SHF_GROUP.0;

/// Statements for the end of the source that the object was made of. A section that is too strange to be named again has no record.
pub fn of(object: &[u8]) -> Result<String, String> {
    let file = object::File::parse(object).map_err(|error| format!("the object that as made: {error}"))?;
    let groups = groups_of(&file);
    let mut text = String::from("\n\t.att_syntax prefix\n");
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for section in file.sections() {
        *counts.entry(section.name().unwrap_or_default()).or_default() += 1;
    }
    for (number, section) in file.sections().enumerate() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
        let flags = sh_flags.0;
        let name = section.name().unwrap_or_default();
        let is_code = flags & elf::SHF_EXECINSTR.0 != 0 && section.kind() == SectionKind::Text;
        if !is_code || section.size() == 0 || flags & !KNOWN_FLAGS != 0 || counts[name] > 1 || !is_plain(name) {
            continue;
        }
        let group = groups.get(&section.index());
        if group.is_some_and(|group| !is_plain(group)) || (group.is_none() && flags & elf::SHF_GROUP.0 != 0) {
            continue;
        }
        let (more, of_group) = group.map_or(("", String::new()), |group| ("G", format!(",{group},comdat")));
        let end = format!(".Lfl_end_{number}");
        let _ =
            writeln!(text, "\t.section\t{name},\"ax{more}\",@progbits{of_group}\n\t.subsection\t{LAST_PART}\n{end}:");
        let _ = writeln!(text, "\t.section\t{NAME},\"ao{more}\",@progbits,{name}{of_group}");
        let _ = writeln!(text, "\t.balign\t4\n\t.long\t{name} - .\n\t.long\t{end} - {name}");
    }
    Ok(text)
}

/// By section.
fn groups_of<'a>(file: &'a object::File<'a>) -> HashMap<SectionIndex, &'a str> {
    let mut groups = HashMap::new();
    for group in file.comdats() {
        let Ok(name) = group.name() else { continue };
        groups.extend(group.sections().map(|section| (section, name)));
    }
    groups
}

/// A name that means the same without quotes.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte))
}
