// SPDX-License-Identifier: Apache-2.0
//! Which of a compiler's own accesses its hooks announced. A compiler for C or C++ calls a hook in front of each statement that loads or
//! stores, but for some: an aggregate that is an argument or the result of a call is loaded and stored without one (gcc's
//! `tsan.cc`, `instrument_gimple`: calls are passed by). So each access is looked for among the hooks that were called before it, by
//! the values of its registers. One that is not found is announced by the pass; where a hook was there all the same, it is
//! announced twice, which costs time and nothing else.
//!
//! Values are followed as sums: a register's content at some place, or the stack pointer, or the address of a global, plus constants
//! and one scaled index. At a label that something may jump to, and at a call of anything but a hook, nothing is known any more: a
//! hook stands right before its access, and no compiler moves an access of memory that may be shared over a call.

use crate::layout::Piece;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};
use std::collections::HashMap;

/// Something whose content is not known, but that it is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Symbol {
    /// What was there at some time.
    Number(u64),
    Stack,
    /// Within a global.
    Global,
    /// Zero.
    Zero,
}

/// `base + index * scale + constant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Value {
    base: Symbol,
    index: Option<(Symbol, u32)>,
    constant: i64,
}

/// Bytes that a hook announced.
struct Range {
    start: Value,
    bytes: i64,
    is_store: bool,
}

/// What is known at a place of a function.
pub struct Known {
    registers: HashMap<Register, Value>,
    stack: HashMap<i64, Value>,
    announced: Vec<Range>,
    numbers: u64,
}

/// The compiler's hook that is called.
pub enum Hook {
    /// Of so many bytes; none: as many as `rsi` says.
    Access { bytes: Option<i64>, is_store: bool },
    /// It makes its access itself, or none.
    Other,
}

/// The hook that the statement calls.
pub fn hook_of(body: &str) -> Option<Hook> {
    let at = body.find("__tsan_")?;
    if !body.starts_with("call") && !body.starts_with("jmp") {
        return None;
    }
    let name = body[at + "__tsan_".len()..].split(['@', '(', ' ', '\t']).next().unwrap_or_default();
    let name = name.strip_prefix("unaligned_").or(name.strip_prefix("volatile_")).unwrap_or(name);
    let is_store = name.starts_with("write") || name == "vptr_update";
    let size = name.strip_prefix("read").or(name.strip_prefix("write"));
    let bytes = match (name, size) {
        ("vptr_update" | "vptr_read", _) => Some(8),
        (_, Some("_range")) => None,
        (_, Some(size)) => match size.parse() {
            Ok(bytes) => Some(bytes),
            Err(_) => return Some(Hook::Other),
        },
        _ => return Some(Hook::Other),
    };
    Some(Hook::Access { bytes, is_store })
}

/// Whether something may jump to a label of the text; those that only describe the code are others.
pub fn is_joint(labels: &[u8]) -> bool {
    let text = String::from_utf8_lossy(labels);
    text.split(':').map(str::trim).filter(|label| !label.is_empty()).any(|label| match label.strip_prefix(".L") {
        None => true,
        Some(rest) => {
            rest.starts_with(|first: char| first.is_ascii_digit()) || (rest.starts_with("BB") && rest.contains('_'))
        }
    })
}

impl Known {
    /// Nothing, but where the stack is.
    pub fn new() -> Self {
        let mut known = Self { registers: HashMap::new(), stack: HashMap::new(), announced: Vec::new(), numbers: 0 };
        known.forget();
        known
    }

    /// A label, or a call.
    pub fn forget(&mut self) {
        self.registers.clear();
        self.stack.clear();
        self.announced.clear();
        self.registers.insert(Register::RSP, Value { base: Symbol::Stack, index: None, constant: 0 });
    }

    /// A hook is called.
    pub fn hook(&mut self, hook: &Hook) {
        if let Hook::Access { bytes, is_store } = *hook {
            let size = self.value(Register::RSI);
            let bytes = bytes.or((size.base == Symbol::Zero && size.index.is_none()).then_some(size.constant));
            let start = self.value(Register::RDI);
            self.announced.extend(bytes.map(|bytes| Range { start, bytes, is_store }));
        }
        use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
        for register in [RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11] {
            self.registers.remove(&register);
        }
    }

    /// Whether the access needs an announcement of the pass: it may be of PM, and no hook told of it.
    pub fn is_missing(&mut self, piece: &Piece, memory: &UsedMemory) -> bool {
        let is_of_thread = piece.is_symbolic && piece.is_of_thread;
        if piece.instruction.is_ip_rel_memory_operand()
            || is_of_thread
            || matches!(memory.segment(), Register::FS | Register::GS)
        {
            return false;
        }
        let Some(start) = self.address(memory) else { return true };
        if matches!(start.base, Symbol::Stack | Symbol::Global) {
            return false;
        }
        let bytes = memory.memory_size().size() as i64;
        let is_store = !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead);
        !self.announced.iter().any(|range| {
            let begin = start.constant - range.start.constant;
            let is_there = start.base == range.start.base && start.index == range.start.index;
            is_there && begin >= 0 && begin + bytes <= range.bytes && (!is_store || range.is_store)
        })
    }

    /// The instruction was executed.
    pub fn step(&mut self, piece: &Piece, infos: &mut InstructionInfoFactory) {
        let instruction = &piece.instruction;
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ => return self.forget(),
        }
        let result = self.result(piece);
        let info = infos.info(instruction);
        let stack = self.value(Register::RSP);
        for memory in info.used_memory() {
            let is_written = !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
            let Some(address) = self.address(memory).filter(|_| is_written) else { continue };
            if address.base == Symbol::Stack {
                self.store(instruction, address, memory.memory_size().size() as i64);
            }
        }
        for register in info.used_registers() {
            if !matches!(
                register.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
            ) {
                self.registers.remove(&register.register().full_register());
            }
        }
        if let Some((register, value)) = result {
            self.registers.insert(register, value);
        }
        let moved = instruction.stack_pointer_increment();
        if moved != 0 {
            self.registers.insert(Register::RSP, Value { constant: stack.constant + i64::from(moved), ..stack });
        }
    }

    fn value(&mut self, register: Register) -> Value {
        if let Some(known) = self.registers.get(&register) {
            return *known;
        }
        self.numbers += 1;
        let fresh = Value { base: Symbol::Number(self.numbers), index: None, constant: 0 };
        self.registers.insert(register, fresh);
        fresh
    }

    /// None: not a sum of that form.
    fn address(&mut self, memory: &UsedMemory) -> Option<Value> {
        self.sum(memory.base(), memory.index(), memory.scale(), memory.displacement() as i64)
    }

    fn sum(&mut self, base: Register, index: Register, scale: u32, displacement: i64) -> Option<Value> {
        if base.size() == 4 || index.size() == 4 {
            return None;
        }
        let nothing = Value { base: Symbol::Zero, index: None, constant: 0 };
        let base = if base == Register::None { nothing } else { self.value(base) };
        let constant = base.constant.wrapping_add(displacement);
        if index == Register::None {
            return Some(Value { constant, ..base });
        }
        let index = self.value(index);
        if base.index.is_some() || index.index.is_some() {
            return None;
        }
        let constant = constant.wrapping_add(index.constant.wrapping_mul(scale.into()));
        if base.base == Symbol::Zero && scale == 1 {
            return Some(Value { constant, ..index });
        }
        // A sum of two registers is one whichever of them is called the base.
        let (first, second) = match scale {
            1 if order(index.base) < order(base.base) => (index.base, base.base),
            _ => (base.base, index.base),
        };
        Some(Value { base: first, index: Some((second, scale)), constant })
    }

    /// What a register holds afterwards, where that is known.
    fn result(&mut self, piece: &Piece) -> Option<(Register, Value)> {
        let instruction = &piece.instruction;
        let target = instruction.op0_register();
        if instruction.op0_kind() != OpKind::Register || !target.is_gpr64() {
            return self.short_result(piece);
        }
        let immediate = |at: u32| instruction.try_immediate(at).ok().map(|value| value as i64);
        let number = |constant| Value { base: Symbol::Zero, index: None, constant };
        let global = Value { base: Symbol::Global, index: None, constant: 0 };
        let value = match instruction.mnemonic() {
            Mnemonic::Mov => match instruction.op1_kind() {
                OpKind::Register => self.value(instruction.op1_register()),
                OpKind::Memory if piece.is_of_table => global,
                OpKind::Memory => self.spilled(instruction)?,
                _ if piece.is_relocated => global,
                _ => number(immediate(1)?),
            },
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => global,
            Mnemonic::Lea => self.sum(
                instruction.memory_base(),
                instruction.memory_index(),
                instruction.memory_index_scale(),
                instruction.memory_displacement64() as i64,
            )?,
            Mnemonic::Add => {
                let known = self.value(target);
                Value { constant: known.constant.wrapping_add(immediate(1)?), ..known }
            }
            Mnemonic::Sub => {
                let known = self.value(target);
                Value { constant: known.constant.wrapping_sub(immediate(1)?), ..known }
            }
            _ => return None,
        };
        Some((target, value))
    }

    /// Of `movl $56, %esi`: the size that a hook is given.
    fn short_result(&self, piece: &Piece) -> Option<(Register, Value)> {
        let instruction = &piece.instruction;
        let is_constant = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_gpr32()
            && instruction.op1_kind() == OpKind::Immediate32;
        let value = Value { base: Symbol::Zero, index: None, constant: i64::from(instruction.immediate32()) };
        is_constant.then(|| (instruction.op0_register().full_register(), value))
    }

    fn spilled(&mut self, instruction: &Instruction) -> Option<Value> {
        let address = self.sum(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_index_scale(),
            instruction.memory_displacement64() as i64,
        )?;
        let is_stack = address.base == Symbol::Stack && address.index.is_none();
        if !is_stack {
            return None;
        }
        if let Some(known) = self.stack.get(&address.constant) {
            return Some(*known);
        }
        self.numbers += 1;
        let fresh = Value { base: Symbol::Number(self.numbers), index: None, constant: 0 };
        self.stack.insert(address.constant, fresh);
        Some(fresh)
    }

    fn store(&mut self, instruction: &Instruction, address: Value, bytes: i64) {
        if address.index.is_some() {
            self.stack.clear();
            return;
        }
        self.stack.retain(|slot, _| *slot + 8 <= address.constant || *slot >= address.constant + bytes.max(1));
        let is_spill = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op1_kind() == OpKind::Register
            && instruction.op1_register().is_gpr64();
        if is_spill {
            let value = self.value(instruction.op1_register());
            self.stack.insert(address.constant, value);
        }
    }
}

fn order(symbol: Symbol) -> u64 {
    match symbol {
        Symbol::Number(number) => number + 3,
        Symbol::Zero => 2,
        Symbol::Stack => 1,
        Symbol::Global => 0,
    }
}
