/* SPDX-License-Identifier: Apache-2.0
 *
 * instructions.cpp - see instructions.h. Layout of the saved vector registers: Intel SDM vol. 1, chapter 13.
 */
#include "instructions.h"

#include <cpuid.h>
#include <cstring>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

namespace {

/* rol $3, $13, $61, $51 on %rdi, then xchg %rbx, %rbx: a client request (valgrind.h, "amd64"). */
const uint8_t MARKER[] = {0x48, 0xC1, 0xC7, 0x03, 0x48, 0xC1, 0xC7, 0x0D, 0x48, 0xC1,
                          0xC7, 0x3D, 0x48, 0xC1, 0xC7, 0x33, 0x48, 0x87, 0xDB};
const unsigned MARKER_END = 3; /* bytes of the xchg */

bool ends_marker(const Target &target, uint64_t address) {
    uint8_t bytes[sizeof MARKER];
    return target.read(address + MARKER_END - sizeof bytes, bytes, sizeof bytes) && std::memcmp(bytes, MARKER, sizeof bytes) == 0;
}

bool writes(const ZydisDecodedOperand &operand) {
    return operand.type == ZYDIS_OPERAND_TYPE_MEMORY && (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
}

bool is_masked(const ZydisDecodedInstruction &decoded) {
    return decoded.encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX && decoded.avx.mask.reg > ZYDIS_REGISTER_K0;
}

/* ---- registers ---- */

uint64_t whole_register(ZydisRegister name, const user_regs_struct &r, uint64_t next) {
    if (name == ZYDIS_REGISTER_RIP || name == ZYDIS_REGISTER_EIP)
        return next;
    switch (ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, name)) {
    case ZYDIS_REGISTER_RAX: return r.rax;
    case ZYDIS_REGISTER_RCX: return r.rcx;
    case ZYDIS_REGISTER_RDX: return r.rdx;
    case ZYDIS_REGISTER_RBX: return r.rbx;
    case ZYDIS_REGISTER_RSP: return r.rsp;
    case ZYDIS_REGISTER_RBP: return r.rbp;
    case ZYDIS_REGISTER_RSI: return r.rsi;
    case ZYDIS_REGISTER_RDI: return r.rdi;
    case ZYDIS_REGISTER_R8: return r.r8;
    case ZYDIS_REGISTER_R9: return r.r9;
    case ZYDIS_REGISTER_R10: return r.r10;
    case ZYDIS_REGISTER_R11: return r.r11;
    case ZYDIS_REGISTER_R12: return r.r12;
    case ZYDIS_REGISTER_R13: return r.r13;
    case ZYDIS_REGISTER_R14: return r.r14;
    case ZYDIS_REGISTER_R15: return r.r15;
    default: return 0;
    }
}

uint64_t segment_base(ZydisRegister segment, const user_regs_struct &r) {
    return segment == ZYDIS_REGISTER_FS ? r.fs_base : segment == ZYDIS_REGISTER_GS ? r.gs_base : 0;
}

/* The vector and mask registers of a stopped thread. */
class Vectors {
  public:
    explicit Vectors(pid_t thread) : area_() {
        struct iovec piece = {area_, sizeof area_};
        if (ptrace(PTRACE_GETREGSET, thread, NT_X86_XSTATE, &piece) != 0)
            std::memset(area_, 0, sizeof area_);
    }

    void mmx(unsigned number, uint8_t *to) const { std::memcpy(to, area_ + 32 + 16 * number, 8); }

    /* All 64 bytes; those that the processor does not have are zero. */
    void vector(unsigned number, uint8_t *to) const {
        std::memset(to, 0, 64);
        if (number >= 16) {
            copy(7, 64 * (number - 16), to, 64);
            return;
        }
        std::memcpy(to, area_ + 160 + 16 * number, 16);
        copy(2, 16 * number, to + 16, 16);
        copy(6, 32 * number, to + 32, 32);
    }

    uint64_t mask(unsigned number) const {
        uint8_t bytes[8] = {0};
        uint64_t value;
        copy(5, 8 * number, bytes, sizeof bytes);
        std::memcpy(&value, bytes, sizeof value);
        return value;
    }

  private:
    /* Of a component of the state, where CPUID says that it lies. */
    void copy(unsigned component, unsigned from, uint8_t *to, unsigned bytes) const {
        unsigned size, offset, c, d;
        if (__get_cpuid_count(0xd, component, &size, &offset, &c, &d) != 0 && size != 0 && offset + from + bytes <= sizeof area_)
            std::memcpy(to, area_ + offset + from, bytes);
    }

    uint8_t area_[16384];
};

unsigned bytes_of(ZydisRegister name) { return unsigned(ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, name)) / 8; }

/* ---- operands ---- */

uint64_t address_of(const Instruction &instruction, const ZydisDecodedOperand &operand, const user_regs_struct &registers) {
    uint64_t next = registers.rip + instruction.length;
    const ZydisDecodedOperandMem &memory = operand.mem;
    uint64_t address = memory.disp.has_displacement ? uint64_t(memory.disp.value) : 0;
    address += whole_register(memory.base, registers, next);
    if (memory.type != ZYDIS_MEMOP_TYPE_VSIB)
        address += whole_register(memory.index, registers, next) * memory.scale;
    if (instruction.decoded.address_width == 32)
        address = uint32_t(address);
    address += segment_base(memory.segment, registers);
    bool is_pushed =
        instruction.decoded.meta.category == ZYDIS_CATEGORY_PUSH || instruction.decoded.meta.category == ZYDIS_CATEGORY_CALL;
    return is_pushed && operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN ? address - operand.size / 8 : address;
}

unsigned element_bytes(const ZydisDecodedOperand &operand) { return operand.element_size >= 8 ? operand.element_size / 8u : 1; }

std::vector<Range> masked(const Instruction &instruction, const ZydisDecodedOperand &operand, uint64_t address,
                          const Vectors &vectors) {
    unsigned bytes = operand.size / 8u, element = vector_mask_element(instruction.name);
    uint8_t mask[64];
    if (instruction.kind == Class::MASKED_NON_TEMPORAL) {
        ZydisRegister name = instruction.operands[1].reg.value;
        if (ZydisRegisterGetClass(name) == ZYDIS_REGCLASS_MMX)
            vectors.mmx(unsigned(ZydisRegisterGetId(name)), mask);
        else
            vectors.vector(unsigned(ZydisRegisterGetId(name)), mask);
        return selected_ranges(address, selected_by_vector(mask, bytes, 1));
    }
    if (element != 0) {
        vectors.vector(unsigned(ZydisRegisterGetId(instruction.operands[1].reg.value)), mask);
        return selected_ranges(address, selected_by_vector(mask, bytes, element));
    }
    uint64_t bits = vectors.mask(unsigned(ZydisRegisterGetId(instruction.decoded.avx.mask.reg)));
    return selected_ranges(address, selected_by_bits(bits, bytes, element_bytes(operand)));
}

std::vector<Range> compressed(const Instruction &instruction, const ZydisDecodedOperand &operand, uint64_t address,
                              const Vectors &vectors) {
    unsigned bytes = operand.size / 8u, element = element_bytes(operand);
    uint64_t bits =
        is_masked(instruction.decoded) ? vectors.mask(unsigned(ZydisRegisterGetId(instruction.decoded.avx.mask.reg))) : ~0ull;
    unsigned count = 0;
    for (unsigned i = 0; i < bytes / element; i++)
        count += bits >> i & 1;
    return std::vector<Range>(count > 0, Range{address, address + count * element});
}

/* The letters behind "scatter" say how wide an index is, and an element. */
std::vector<Range> scattered(const Instruction &instruction, const ZydisDecodedOperand &operand, uint64_t address,
                             const Vectors &vectors) {
    std::vector<Range> ranges;
    size_t letters = instruction.name.find("scatter") + 7;
    unsigned index_bytes = instruction.name[letters] == 'd' ? 4 : 8;
    unsigned element = instruction.name.back() == 'd' && instruction.name[letters + 1] != 'p' ? 4 : 8;
    if (instruction.name.back() == 's')
        element = 4;
    unsigned indices = bytes_of(operand.mem.index) / index_bytes, elements = bytes_of(instruction.operands[2].reg.value) / element;
    uint64_t bits = vectors.mask(unsigned(ZydisRegisterGetId(instruction.decoded.avx.mask.reg)));
    uint8_t index[64];
    vectors.vector(unsigned(ZydisRegisterGetId(operand.mem.index)), index);
    for (unsigned i = 0; i < indices && i < elements; i++) {
        int64_t offset = 0;
        int32_t narrow;
        if ((bits >> i & 1) == 0)
            continue;
        std::memcpy(index_bytes == 4 ? static_cast<void *>(&narrow) : &offset, index + i * index_bytes, index_bytes);
        uint64_t at = address + uint64_t(index_bytes == 4 ? narrow : offset) * operand.mem.scale;
        ranges.push_back(Range{at, at + element});
    }
    return ranges;
}

} // namespace

Decoder::Decoder() : decoder_() { ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }

const Instruction *Decoder::at(const Target &target, uint64_t address) {
    auto known = known_.find(address);
    if (known != known_.end())
        return &known->second;
    uint8_t bytes[ZYDIS_MAX_INSTRUCTION_LENGTH];
    size_t length = sizeof bytes;
    while (length > 0 && !target.read(address, bytes, length))
        length--; /* the last instruction before memory that is not there */
    Instruction made = Instruction();
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes, length, &made.decoded, made.operands)))
        return nullptr;
    bool writes_memory = false;
    for (unsigned i = 0; i < made.decoded.operand_count; i++)
        writes_memory = writes_memory || writes(made.operands[i]);
    made.name = ZydisMnemonicGetString(made.decoded.mnemonic);
    made.length = made.decoded.length;
    made.is_call = made.decoded.meta.category == ZYDIS_CATEGORY_CALL;
    made.is_system_call = made.decoded.mnemonic == ZYDIS_MNEMONIC_SYSCALL;
    made.is_marker = made.decoded.mnemonic == ZYDIS_MNEMONIC_XCHG && made.length == MARKER_END && ends_marker(target, address);
    bool is_repeated = (made.decoded.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
    bool has_lock = (made.decoded.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0;
    made.kind = classify(Form{made.name, has_lock, is_repeated, writes_memory, is_masked(made.decoded)});
    return &(known_[address] = made);
}

std::vector<Range> ranges_of(const Instruction &instruction, pid_t thread, const user_regs_struct &registers) {
    std::vector<Range> ranges;
    for (unsigned i = 0; i < instruction.decoded.operand_count; i++) {
        const ZydisDecodedOperand &operand = instruction.operands[i];
        bool is_flushed = is_flush(instruction.kind) && operand.type == ZYDIS_OPERAND_TYPE_MEMORY;
        if (!is_flushed && !writes(operand))
            continue;
        uint64_t address = address_of(instruction, operand, registers);
        std::vector<Range> some;
        switch (instruction.kind) {
        case Class::MASKED:
        case Class::MASKED_NON_TEMPORAL: some = masked(instruction, operand, address, Vectors(thread)); break;
        case Class::COMPRESSED: some = compressed(instruction, operand, address, Vectors(thread)); break;
        case Class::SCATTERED: some = scattered(instruction, operand, address, Vectors(thread)); break;
        case Class::STATE: some.push_back(Range{address, address + xsave_bytes()}); break;
        default: some.push_back(Range{address, address + (is_flushed ? 0 : operand.size / 8u)}); break;
        }
        ranges.insert(ranges.end(), some.begin(), some.end());
    }
    return ranges;
}
