/* SPDX-License-Identifier: Apache-2.0
 *
 * instructions.h - what the native driver knows of an instruction: decoded by Zydis, classified by ../classify.h, its operands
 * computed from the registers of a stopped thread. This is what Pin gives its tool.
 */
#ifndef FAULTLINE_DRIVE_INSTRUCTIONS_H
#define FAULTLINE_DRIVE_INSTRUCTIONS_H

#include "../classify.h"
#include "../target.h"

#include <Zydis/Zydis.h>
#include <sys/types.h>
#include <sys/user.h>
#include <unordered_map>

struct Instruction {
    Class kind;
    std::string name;
    unsigned length;
    bool is_call, is_system_call, is_marker;
    ZydisDecodedInstruction decoded;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

class Decoder {
  public:
    Decoder();
    /* The instruction at an address; null: it cannot be read or is none. */
    const Instruction *at(const Target &target, uint64_t address);
    void forget() { known_.clear(); } /* memory changed */

  private:
    ZydisDecoder decoder_;
    std::unordered_map<uint64_t, Instruction> known_;
};

/* What the instruction is about to store to, or of a flush its operand. */
std::vector<Range> ranges_of(const Instruction &instruction, pid_t thread, const user_regs_struct &registers);

#endif
