// SPDX-License-Identifier: Apache-2.0
//! Announcements as text.
//!
//! Each keeps all registers and the flags: the instruction is the target's, which may use any of them, and knows nothing of us. The
//! 128 bytes below the stack pointer are the function's own (System V ABI for AMD64, 3.2.2), so the stack is used only below them.
//! `fl_hook_instruction` (`entry.c`) finds the address in `rdi`, and what is done there in `esi`; the values that the two
//! registers had lie on the stack above its return address. Of a flush it says in `rcx` whether it is to be executed.

use crate::announced::{self, Known};
use crate::instruction::{Access, Operand, What, is_relative, is_short_branch, what};
use crate::layout::{Layout, Piece};
use crate::near;
use crate::source::Statement;
use iced_x86::{InstructionInfoFactory, Register};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const RED_ZONE_BYTES: u64 = 128;
/// What is not an access, among the numbers of [`crate::instruction::Access`].
const STRING: u32 = 9;
const FENCE: u32 = 10;
const UNSEEN: u32 = 11;
const SYSTEM_CALL: u32 = 12;
const FLUSH: u32 = 13;
/// Detail of a compare-exchange of `rdx:rax`.
const PAIR: u32 = 1;

/// The source with announcements.
pub fn announced(statements: &[Statement<'_>], layout: &Layout) -> Vec<u8> {
    let mut writer = Writer { text: Vec::new(), infos: InstructionInfoFactory::new(), labels: 0, known: Known::new() };
    let mut behind: BTreeMap<usize, String> = BTreeMap::new();
    for (number, statement) in statements.iter().enumerate() {
        writer.text.extend_from_slice(statement.labels);
        let later = writer.statement(statement, number, &layout[number]);
        writer.text.extend_from_slice(statement.tail);
        behind.extend(later);
        writer.text.extend_from_slice(behind.remove(&number).unwrap_or_default().as_bytes());
    }
    writer.text
}

struct Writer {
    text: Vec<u8>,
    infos: InstructionInfoFactory,
    labels: usize,
    /// Of the compiler's code.
    known: Known,
}

impl Writer {
    /// The statement's body with what comes before it. Some: what has to stand behind the statement with that number.
    fn statement(&mut self, statement: &Statement<'_>, number: usize, pieces: &[Piece]) -> Option<(usize, String)> {
        let body = std::str::from_utf8(statement.body).unwrap_or_default();
        if announced::is_joint(statement.labels) {
            self.known.forget();
        }
        if let Some(hook) = announced::hook_of(body) {
            self.known.hook(&hook);
        }
        if let Some(asked) = near::asked(body, number).filter(|_| !statement.is_assembly) {
            self.text.extend_from_slice(asked.as_bytes());
            return None;
        }
        let done: Vec<Vec<What>> = pieces.iter().map(|piece| self.what(statement, body, piece)).collect();
        let is_one = pieces.len() == 1 && pieces[0].is_at_label;
        if is_one && statement.is_assembly && is_short_branch(&pieces[0]) {
            self.lengthen(body);
            return None;
        }
        if done.iter().all(Vec::is_empty) {
            self.text.extend_from_slice(statement.body);
            return None;
        }
        if is_one {
            let behind = self.announce(statement, &done[0]);
            self.text.extend_from_slice(statement.body);
            return behind.map(|text| (pieces[0].last, text));
        }
        self.several(statement, number, pieces, &done);
        None
    }

    fn what(&mut self, statement: &Statement<'_>, body: &str, piece: &Piece) -> Vec<What> {
        let known = Some(&mut self.known).filter(|_| !statement.is_assembly);
        let done = what(piece, known, &mut self.infos);
        if announced::hook_of(body).is_none() {
            self.known.step(piece, &mut self.infos);
        }
        done
    }

    /// Several instructions in one statement: each becomes one of its own, by its bytes.
    fn several(&mut self, statement: &Statement<'_>, number: usize, pieces: &[Piece], done: &[Vec<What>]) {
        let is_movable = pieces[0].is_at_label
            && pieces.iter().all(|piece| piece.last == number && !piece.is_relocated && !is_relative(piece));
        if !is_movable {
            let what = What::Unseen("several instructions in one statement".to_owned());
            self.announce(statement, &[what]);
            self.text.extend_from_slice(statement.body);
            return;
        }
        for (piece, done) in pieces.iter().zip(done) {
            let behind = self.announce(statement, done);
            let bytes: Vec<String> = piece.bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
            self.line(&format!(".byte\t{}", bytes.join(",")));
            self.text.extend_from_slice(behind.unwrap_or_default().as_bytes());
        }
    }

    /// `loop there` in the place where `there` may be too far.
    fn lengthen(&mut self, body: &str) {
        let (instruction, target) =
            body.trim_end().rsplit_once(|c: char| c.is_ascii_whitespace()).unwrap_or((body, ""));
        let (taken, over) = (self.label(), self.label());
        let text = format!("{instruction} {taken}\n\tjmp {over}\n{taken}:\n\tjmp {target}\n{over}:");
        self.text.extend_from_slice(text.as_bytes());
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!(".Lfl_at_{}", self.labels)
    }

    fn line(&mut self, line: &str) {
        self.text.extend_from_slice(format!("\t{line}\n").as_bytes());
    }

    /// Some: what has to stand behind the instruction.
    fn announce(&mut self, statement: &Statement<'_>, done: &[What]) -> Option<String> {
        if done.is_empty() {
            return None;
        }
        let mut behind = None;
        self.text.push(b'\n');
        if statement.intel.is_some() {
            self.line(".att_syntax prefix");
        }
        for what in done {
            match what {
                What::Flush(kind, operand) => behind = self.flush(*kind, *operand),
                What::Access(access, bytes, operand) => {
                    let detail = if *access == Access::LockedIfPair { PAIR } else { 0 };
                    let kind = if *access == Access::LockedIfPair { Access::LockedIf } else { *access };
                    let nowhere = || "movl\t$0, %edi".to_owned(); // as it is, rdi may be an address of PM
                    self.call(Some(address(*operand, 2).unwrap_or_else(nowhere)), kind as u32, *bytes, detail);
                }
                What::Fence(kind) => self.call(None, FENCE, 0, (*kind).into()),
                What::SystemCall => self.call(None, SYSTEM_CALL, 0, 0),
                What::String { kind, repeat, bytes } => {
                    self.call(None, STRING, *bytes, *kind as u32 | u32::from(*repeat) << 3);
                }
                What::Unseen(text) => {
                    let label = self.label();
                    self.line(".pushsection\t.rodata.str1.1,\"aMS\",@progbits,1");
                    self.line(&format!("{label}: .string\t\"{text}\""));
                    self.line(".popsection");
                    self.call(Some(format!("leaq\t{label}(%rip), %rdi")), UNSEEN, 0, 0);
                }
            }
        }
        if let Some(intel) = statement.intel {
            let intel = String::from_utf8_lossy(intel).into_owned();
            self.line(&intel);
        }
        behind
    }

    fn call(&mut self, address: Option<String>, kind: u32, bytes: u32, detail: u32) {
        self.line(&format!("leaq\t-{RED_ZONE_BYTES}(%rsp), %rsp"));
        self.line("pushq\t%rdi");
        self.line("pushq\t%rsi");
        if let Some(address) = address {
            self.line(&address);
        }
        self.line(&format!("movl\t${:#x}, %esi", kind | bytes << 8 | detail << 24));
        self.line("call\t*fl_hook_instruction@GOTPCREL(%rip)");
        self.line("popq\t%rsi");
        self.line("popq\t%rdi");
        self.line(&format!("leaq\t{RED_ZONE_BYTES}(%rsp), %rsp"));
    }

    fn flush(&mut self, kind: u8, operand: Operand) -> Option<String> {
        let address = address(operand, 3)?;
        let (skip, done) = (self.label(), self.label());
        let restore = format!("\tpopq\t%rcx\n\tpopq\t%rsi\n\tpopq\t%rdi\n\tleaq\t{RED_ZONE_BYTES}(%rsp), %rsp\n");
        self.line(&format!("leaq\t-{RED_ZONE_BYTES}(%rsp), %rsp"));
        self.line("pushq\t%rdi");
        self.line("pushq\t%rsi");
        self.line("pushq\t%rcx");
        self.line(&address);
        self.line(&format!("movl\t${:#x}, %esi", FLUSH | u32::from(kind) << 24));
        self.line("call\t*fl_hook_instruction@GOTPCREL(%rip)");
        self.line(&format!("jrcxz\t{skip}"));
        self.text.extend_from_slice(restore.as_bytes());
        let over = self.label();
        self.line(&format!("jmp\t{over}"));
        self.text.extend_from_slice(format!("{skip}:\n{restore}\tjmp\t{done}\n{over}:\n").as_bytes());
        Some(format!("{done}:\n"))
    }
}

/// What puts the operand's address into `rdi`, after the red zone and so many pushes; none: it is not PM.
fn address(operand: Operand, pushes: u64) -> Option<String> {
    let Operand::At { base, index, scale, displacement } = operand else { return None };
    let moved = if base == Register::RSP { RED_ZONE_BYTES + 8 * pushes } else { 0 };
    let displacement = displacement.wrapping_add(moved) as i64;
    if base == Register::None && index == Register::None {
        return Some(format!("movabsq\t${displacement}, %rdi"));
    }
    if index == Register::AL {
        return Some("movzbl\t%al, %edi\n\tleaq\t(%rbx,%rdi), %rdi".to_owned()); // xlat
    }
    let is_short = base.size() == 4 || index.size() == 4;
    let displacement = if is_short { i64::from(displacement as i32) } else { displacement };
    let (mut text, target) = (String::new(), if is_short { ("leal", "%edi") } else { ("leaq", "%rdi") });
    let name = |register: Register| format!("%{register:?}").to_ascii_lowercase();
    let _ = write!(text, "{}\t{displacement}(", target.0);
    if base != Register::None {
        let _ = write!(text, "{}", name(base));
    }
    if index != Register::None {
        let _ = write!(text, ",{},{scale}", name(index));
    }
    let _ = write!(text, "), {}", target.1);
    Some(text)
}
