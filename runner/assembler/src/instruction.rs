// SPDX-License-Identifier: Apache-2.0
//! What an instruction does to memory that may be PM: the table. Sources: Intel SDM vol. 2 (each instruction's page) and vol. 1, 5.1;
//! the accesses of all that have no line here are those that the decoder knows.
//!
//! Never PM, and so no access: what lies at the stack pointer, thread-local memory, and the module's own globals (addresses relative
//! to the instruction).

use crate::announced::Known;
use crate::layout::Piece;
use iced_x86::{Code, ConditionCode, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory};

/// Numbers of `entry.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Of some of the bytes, or all.
    Load = 1,
    /// Of all bytes, for certain.
    Store = 2,
    /// Of some of the bytes, or all, or none.
    StoreSome = 3,
    /// A load, then a store.
    Update = 4,
    /// A non-temporal store.
    Stream = 5,
    /// A locked load and store.
    Locked = 6,
    /// The same, where the store depends on the accumulator: compare-exchange.
    LockedIf = 7,
    /// Nobody knows.
    Unknown = 8,
    /// As [`Access::LockedIf`], of `rdx:rax`; its number is not announced.
    LockedIfPair = 255,
}

/// What is announced. Operands are as they are before the instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An access of so many bytes.
    Access(Access, u32, Operand),
    /// An access by `rsi` and `rdi`, of elements of so many bytes.
    String {
        /// Which one.
        kind: StringKind,
        /// 0: once; 1: as long as equal, or always; 2: as long as not equal. So often as `rcx` says.
        repeat: u8,
        /// Of an element.
        bytes: u32,
    },
    /// Number of `enum fl_event_flush`.
    Flush(u8, Operand),
    /// Number of `enum fl_event_fence`.
    Fence(u8),
    /// A system call, by its number in `rax`.
    SystemCall,
    /// It may access what cannot be said before: what it is, in words.
    Unseen(String),
}

/// Numbers of `entry.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum StringKind {
    Move = 1,
    Store = 2,
    Load = 3,
    Scan = 4,
    Compare = 5,
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `displacement(base, index, scale)`; with 32-bit registers the address is cut to 32 bits.
    At { base: Register, index: Register, scale: u32, displacement: u64 },
    /// Not to PM: what matters is that it is locked.
    Elsewhere,
}

const SFENCE: u8 = 1;
const MFENCE: u8 = 2;
const CLFLUSH: u8 = 1;
const CLFLUSHOPT: u8 = 2;
const CLWB: u8 = 3;
/// What stores of the processor's state may take.
const STATE_BYTES: u32 = 16 << 10;

/// What the piece does that has to be announced. known: what a compiler's hooks announced; none: no compiler made it.
pub fn what(piece: &Piece, known: Option<&mut Known>, infos: &mut InstructionInfoFactory) -> Vec<What> {
    let is_assembly = known.is_none();
    let instruction = &piece.instruction;
    let mnemonic = instruction.mnemonic();
    if instruction.code() == Code::INVALID {
        return if is_assembly { vec![unseen("bytes that are no known instruction")] } else { Vec::new() };
    }
    let operand = || operand_of(piece);
    match mnemonic {
        Mnemonic::Clflush => vec![What::Flush(CLFLUSH, operand())],
        Mnemonic::Clflushopt => vec![What::Flush(CLFLUSHOPT, operand())],
        Mnemonic::Clwb => vec![What::Flush(CLWB, operand())],
        Mnemonic::Sfence => vec![What::Fence(SFENCE)],
        Mnemonic::Mfence => vec![What::Fence(MFENCE)],
        Mnemonic::Syscall => vec![What::SystemCall],
        Mnemonic::Sysenter | Mnemonic::Int => vec![unseen("a system call of another kind than `syscall`")],
        _ if makes_no_access(mnemonic) => Vec::new(),
        _ if instruction.is_string_instruction() => string(piece, is_assembly),
        _ if is_unknown_to_compilers(piece) => accesses(piece, None, infos),
        _ => accesses(piece, known, infos),
    }
}

fn unseen(text: &str) -> What {
    What::Unseen(text.to_owned())
}

/// Though they have a memory operand.
fn makes_no_access(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cldemote, Invlpg, Lea, Nop, Prefetch, Prefetchit0, Prefetchit1, Prefetchnta, Prefetcht0, Prefetcht1,
        Prefetcht2, Prefetchw, Prefetchwt1,
    };
    matches!(
        mnemonic,
        Lea | Nop
            | Prefetch
            | Prefetchw
            | Prefetchwt1
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Prefetchit0
            | Prefetchit1
            | Cldemote
            | Invlpg
    )
}

fn is_stream(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Movntdq, Movnti, Movntpd, Movntps, Movntq, Movntsd, Movntss, Vmovntdq, Vmovntpd, Vmovntps};
    matches!(
        mnemonic,
        Movnti | Movntdq | Movntps | Movntpd | Movntq | Movntsd | Movntss | Vmovntdq | Vmovntps | Vmovntpd
    )
}

fn is_pair(mnemonic: Mnemonic) -> bool {
    matches!(mnemonic, Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b)
}

fn is_locked(piece: &Piece) -> bool {
    let is_exchange = piece.instruction.mnemonic() == Mnemonic::Xchg;
    let has_memory = (0..piece.instruction.op_count()).any(|at| piece.instruction.op_kind(at) == OpKind::Memory);
    piece.instruction.has_lock_prefix() || (is_exchange && has_memory)
}

/// Compilers make these of their intrinsics, without a hook.
fn is_unknown_to_compilers(piece: &Piece) -> bool {
    use Mnemonic::{
        Fnsave, Fnstenv, Fxrstor, Fxrstor64, Fxsave, Fxsave64, Lddqu, Maskmovdqu, Maskmovq, Movdir64b, Movdiri,
        Movntdqa, Vlddqu, Vmaskmovdqu, Vmaskmovpd, Vmaskmovps, Vmovntdqa, Vpmaskmovd, Vpmaskmovq, Xrstor, Xrstor64,
        Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64,
    };
    let mnemonic = piece.instruction.mnemonic();
    let is_masked = piece.instruction.has_op_mask();
    is_locked(piece)
        || is_stream(mnemonic)
        || is_masked
        || piece.instruction.is_vsib()
        || matches!(
            mnemonic,
            Maskmovq
                | Maskmovdqu
                | Vmaskmovdqu
                | Vmaskmovps
                | Vmaskmovpd
                | Vpmaskmovd
                | Vpmaskmovq
                | Lddqu
                | Vlddqu
                | Movntdqa
                | Vmovntdqa
                | Movdiri
                | Movdir64b
                | Fxsave
                | Fxsave64
                | Fxrstor
                | Fxrstor64
                | Fnsave
                | Fnstenv
                | Xsave
                | Xsave64
                | Xsavec
                | Xsavec64
                | Xsaveopt
                | Xsaveopt64
                | Xrstor
                | Xrstor64
        )
}

fn string(piece: &Piece, is_assembly: bool) -> Vec<What> {
    use Mnemonic::{
        Cmpsb, Cmpsd, Cmpsq, Cmpsw, Lodsb, Lodsd, Lodsq, Lodsw, Movsb, Movsd, Movsq, Movsw, Scasb, Scasd, Scasq, Scasw,
        Stosb, Stosd, Stosq, Stosw,
    };
    let instruction = &piece.instruction;
    let (kind, bytes) = match instruction.mnemonic() {
        Movsb => (StringKind::Move, 1),
        Movsw => (StringKind::Move, 2),
        Movsd => (StringKind::Move, 4),
        Movsq => (StringKind::Move, 8),
        Stosb => (StringKind::Store, 1),
        Stosw => (StringKind::Store, 2),
        Stosd => (StringKind::Store, 4),
        Stosq => (StringKind::Store, 8),
        Lodsb => (StringKind::Load, 1),
        Lodsw => (StringKind::Load, 2),
        Lodsd => (StringKind::Load, 4),
        Lodsq => (StringKind::Load, 8),
        Scasb => (StringKind::Scan, 1),
        Scasw => (StringKind::Scan, 2),
        Scasd => (StringKind::Scan, 4),
        Scasq => (StringKind::Scan, 8),
        Cmpsb => (StringKind::Compare, 1),
        Cmpsw => (StringKind::Compare, 2),
        Cmpsd => (StringKind::Compare, 4),
        Cmpsq => (StringKind::Compare, 8),
        _ => return vec![unseen("a string instruction of a device")],
    };
    // A compiler's are structure assignments, which it announces; but the ones it makes of an argument by value have no hook of the
    // load, and another one of the same is no harm.
    if !is_assembly {
        return if kind == StringKind::Move {
            vec![What::String { kind: StringKind::Load, repeat: repeat_of(piece), bytes }]
        } else {
            Vec::new()
        };
    }
    let is_short = (0..instruction.op_count()).any(|at| {
        matches!(
            instruction.op_kind(at),
            OpKind::MemorySegESI | OpKind::MemoryESEDI | OpKind::MemorySegSI | OpKind::MemoryESDI
        )
    });
    if is_short || matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
        return vec![unseen("a string instruction with short addresses or a segment")];
    }
    vec![What::String { kind, repeat: repeat_of(piece), bytes }]
}

fn repeat_of(piece: &Piece) -> u8 {
    match (piece.instruction.has_rep_prefix(), piece.instruction.has_repne_prefix()) {
        (true, _) => 1,
        (_, true) => 2,
        _ => 0,
    }
}

/// The accesses that the decoder knows, and no hook announced.
fn accesses(piece: &Piece, mut known: Option<&mut Known>, infos: &mut InstructionInfoFactory) -> Vec<What> {
    let instruction = &piece.instruction;
    let mnemonic = instruction.mnemonic();
    let is_fence = is_locked(piece);
    let info = infos.info(instruction);
    let mut found = Vec::new();
    for memory in info.used_memory() {
        if known.as_mut().is_some_and(|known| !known.is_missing(piece, memory)) {
            continue;
        }
        if memory.vsib_size() != 0 {
            return vec![unseen("a gather or scatter")];
        }
        if is_bit_string(piece) {
            return vec![unseen("a bit of a bit string, wherever that lies")];
        }
        if piece.is_symbolic && !piece.is_of_thread {
            return vec![unseen("an address that the linker computes")];
        }
        if matches!(mnemonic, Mnemonic::Movdir64b | Mnemonic::Enqcmd | Mnemonic::Enqcmds) {
            return vec![unseen("a direct store")];
        }
        let is_elsewhere = instruction.is_ip_rel_memory_operand() || piece.is_symbolic || is_elsewhere(memory);
        let Some(access) = access_of(piece, memory) else { continue };
        if is_elsewhere && !is_fence {
            continue;
        }
        let operand = if is_elsewhere { Operand::Elsewhere } else { operand_of_memory(memory) };
        let bytes = memory.memory_size().size() as u32;
        found.push(match bytes {
            0 => What::Access(Access::Unknown, STATE_BYTES, operand),
            _ => What::Access(access, bytes, operand),
        });
    }
    found
}

/// `bt` and its like with the bit's number in a register.
fn is_bit_string(piece: &Piece) -> bool {
    let instruction = &piece.instruction;
    matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() == OpKind::Register
}

fn is_elsewhere(memory: &UsedMemory) -> bool {
    let is_of_thread = matches!(memory.segment(), Register::FS | Register::GS);
    let is_of_stack = memory.base() == Register::RSP && memory.index() == Register::None;
    is_of_thread || is_of_stack
}

fn access_of(piece: &Piece, memory: &UsedMemory) -> Option<Access> {
    let mnemonic = piece.instruction.mnemonic();
    let is_written =
        !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess);
    Some(match memory.access() {
        OpAccess::None | OpAccess::NoMemAccess => return None,
        _ if is_locked(piece) && is_written && mnemonic == Mnemonic::Cmpxchg => Access::LockedIf,
        _ if is_locked(piece) && is_written && is_pair(mnemonic) => Access::LockedIfPair,
        _ if is_locked(piece) && is_written => Access::Locked,
        OpAccess::Read | OpAccess::CondRead => Access::Load,
        OpAccess::Write if is_stream(mnemonic) => Access::Stream,
        OpAccess::Write if leaves_some(mnemonic) => Access::StoreSome,
        OpAccess::Write => Access::Store,
        OpAccess::CondWrite => Access::StoreSome,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Access::Update,
    })
}

/// It does not store all of its operand, though the decoder says so.
fn leaves_some(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Fxsave, Fxsave64, Maskmovdqu, Maskmovq, Vmaskmovdqu, Vmaskmovpd, Vmaskmovps, Vpmaskmovd, Vpmaskmovq,
    };
    matches!(
        mnemonic,
        Maskmovq | Maskmovdqu | Vmaskmovdqu | Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq | Fxsave | Fxsave64
    )
}

/// Of an instruction with one memory operand.
fn operand_of(piece: &Piece) -> Operand {
    let instruction = &piece.instruction;
    let is_of_thread = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    if instruction.is_ip_rel_memory_operand() || is_of_thread || piece.is_symbolic {
        return Operand::Elsewhere;
    }
    Operand::At {
        base: instruction.memory_base(),
        index: instruction.memory_index(),
        scale: instruction.memory_index_scale(),
        displacement: instruction.memory_displacement64(),
    }
}

fn operand_of_memory(memory: &UsedMemory) -> Operand {
    Operand::At {
        base: memory.base(),
        index: memory.index(),
        scale: memory.scale(),
        displacement: memory.displacement(),
    }
}

/// Branches that reach no further than 127 bytes, and have no longer form.
pub fn is_short_branch(piece: &Piece) -> bool {
    use Mnemonic::{Jcxz, Jecxz, Jrcxz, Loop, Loope, Loopne};
    matches!(piece.instruction.mnemonic(), Loop | Loope | Loopne | Jcxz | Jecxz | Jrcxz)
}

/// Its bytes mean another thing at another address.
pub fn is_relative(piece: &Piece) -> bool {
    let instruction = &piece.instruction;
    let is_branch = instruction.condition_code() != ConditionCode::None
        || instruction.is_jmp_short_or_near()
        || instruction.is_call_near()
        || is_short_branch(piece);
    is_branch || instruction.is_ip_rel_memory_operand()
}
