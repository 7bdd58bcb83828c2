// SPDX-License-Identifier: Apache-2.0
//! Which instructions statements are, by the bytes that `as` made of them.

use crate::source::{Kind, LABEL, Statement};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, SectionFlags, elf};
use std::collections::BTreeMap;

/// An instruction that begins in a statement.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Invalid: bytes that are none.
    pub instruction: Instruction,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It begins where the statement does.
    pub is_at_label: bool,
    /// Number of the statement in which it ends: a prefix may be a statement of its own.
    pub last: usize,
    /// A symbol's address is part of its displacement; not where that is relative to the instruction.
    pub is_symbolic: bool,
    /// That symbol is of thread-local memory.
    pub is_of_thread: bool,
    /// It loads the address of a global from the linker's table of those.
    pub is_of_table: bool,
    /// The linker changes some of its bytes.
    pub is_relocated: bool,
}

/// By statement; empty: none begins there.
pub type Layout = Vec<Vec<Piece>>;

/// What the linker puts into a displacement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Thread,
    Table,
    Other,
}

/// By offset.
type Relocated = BTreeMap<u64, Target>;

fn target_of(flags: RelocationFlags) -> Target {
    let RelocationFlags::Elf { r_type } = flags else { return Target::Other };
    match r_type {
        elf::R_X86_64_DTPOFF32 | elf::R_X86_64_TPOFF32 => Target::Thread,
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => Target::Table,
        _ => Target::Other,
    }
}

struct Place {
    address: u64,
    number: usize,
}

/// The layout of an object that was made of the labelled statements.
pub fn of(object: &[u8], statements: &[Statement<'_>]) -> Result<Layout, String> {
    let file = object::File::parse(object).map_err(|error| format!("the object that as made: {error}"))?;
    let mut layout = vec![Vec::new(); statements.len()];
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
        if sh_flags.0 & elf::SHF_EXECINSTR.0 == 0 {
            continue;
        }
        let bytes = section.data().map_err(|error| format!("the object that as made: {error}"))?;
        let mut places: Vec<Place> = file
            .symbols()
            .filter(|symbol| symbol.section_index() == Some(section.index()))
            .filter_map(|symbol| {
                let number = symbol.name().ok()?.strip_prefix(LABEL)?.parse().ok()?;
                Some(Place { address: symbol.address(), number })
            })
            .collect();
        places.sort_by_key(|place| (place.address, place.number));
        let relocated: Relocated = section.relocations().map(|(offset, it)| (offset, target_of(it.flags()))).collect();
        lay_out(bytes, &places, &relocated, statements, &mut layout);
    }
    Ok(layout)
}

fn lay_out(bytes: &[u8], places: &[Place], relocated: &Relocated, statements: &[Statement<'_>], layout: &mut Layout) {
    let end_of = |at: usize| places.get(at + 1).map_or(bytes.len() as u64, |next| next.address);
    let mut position = 0;
    for (at, place) in places.iter().enumerate() {
        let (statement, end) = (&statements[place.number], end_of(at));
        position = position.max(place.address);
        if statement.kind == Kind::Padding || (statement.kind == Kind::Data && !statement.is_assembly) {
            position = position.max(end);
        }
        while position < end {
            let rest = &bytes[position as usize..];
            let mut decoder = Decoder::with_ip(64, rest, position, DecoderOptions::NONE);
            let instruction = decoder.decode();
            let offsets = decoder.get_constant_offsets(&instruction);
            let is_invalid = instruction.code() == Code::INVALID;
            let next = if is_invalid { end } else { instruction.next_ip() };
            let last = (at..places.len()).take_while(|at| places[*at].address < next).last().unwrap_or(at);
            let displacement = position + offsets.displacement_offset() as u64;
            layout[place.number].push(Piece {
                bytes: bytes[position as usize..next as usize].to_vec(),
                is_at_label: position == place.address,
                last: places[last].number,
                is_symbolic: offsets.has_displacement()
                    && !instruction.is_ip_rel_memory_operand()
                    && relocated.contains_key(&displacement),
                is_of_thread: relocated.get(&displacement) == Some(&Target::Thread),
                is_of_table: relocated.get(&displacement) == Some(&Target::Table),
                is_relocated: relocated.range(position..next).next().is_some(),
                instruction,
            });
            position = next;
        }
    }
}
