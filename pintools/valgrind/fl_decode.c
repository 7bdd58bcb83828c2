/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_decode.c - what Valgrind's intermediate code does not say, read from the guest's instruction bytes.
 *
 * VEX turns movnti into an ordinary store, every fence into the same fence, rep movs into a loop, clflush into a cache
 * invalidation with a rounded address, and does not know clflushopt and clwb. Source: Intel SDM vol. 2, chapters 2 (format)
 * and 3-5 (opcodes).
 */
#include "fl.h"

struct prefixes {
    Bool has_operand_size; /* 66 */
    Bool has_repeat;       /* F2, F3 */
    Bool has_lock;         /* F0 */
    Bool has_address_size; /* 67 */
    Int segment;           /* 64, 65 */
    UChar rex;
};

static const UChar *skip_prefixes(const UChar *at, struct prefixes *prefixes) {
    *prefixes = (struct prefixes){0};
    for (UInt count = 0; count < 14; count++, at++) {
        switch (*at) {
        case 0x66: prefixes->has_operand_size = True; continue;
        case 0x67: prefixes->has_address_size = True; continue;
        case 0xF0: prefixes->has_lock = True; continue;
        case 0xF2:
        case 0xF3: prefixes->has_repeat = True; continue;
        case 0x64:
        case 0x65: prefixes->segment = *at; continue;
        case 0x26:
        case 0x2E:
        case 0x36:
        case 0x3E: continue; /* ignored in 64-bit mode */
        default: break;
        }
        break;
    }
    if ((*at & 0xF0) == 0x40)
        prefixes->rex = *at++;
    return at;
}

static Int read_displacement(const UChar *at, UInt bytes) {
    if (bytes == 1)
        return (Char)at[0];
    Int value = 0;
    if (bytes == 4)
        VG_(memcpy)(&value, at, 4);
    return value;
}

/* Reads ModRM, SIB and displacement of a memory operand; returns the byte after them. */
static const UChar *decode_operand(const UChar *modrm, const struct prefixes *prefixes, struct fl_operand *operand) {
    const UChar *at = modrm + 1;
    UInt mode = *modrm >> 6, low = *modrm & 7;
    *operand = (struct fl_operand){
        .base = -1, .index = -1, .scale = 1, .is_32_bit = prefixes->has_address_size, .segment = prefixes->segment};
    UInt displacement_bytes = mode == 1 ? 1 : mode == 2 ? 4 : 0;
    if (low == 4) {
        UInt sib = *at++;
        UInt index = ((sib >> 3) & 7) | ((prefixes->rex & 2) << 2);
        if (index != 4) /* 4 without REX.X: no index; r12 can be one */
            operand->index = index;
        operand->scale = 1u << (sib >> 6);
        if ((sib & 7) == 5 && mode == 0)
            displacement_bytes = 4;
        else
            operand->base = (sib & 7) | ((prefixes->rex & 1) << 3);
    } else if (low == 5 && mode == 0) {
        operand->is_rip_relative = True;
        displacement_bytes = 4;
    } else {
        operand->base = low | ((prefixes->rex & 1) << 3);
    }
    operand->displacement = read_displacement(at, displacement_bytes);
    return at + displacement_bytes;
}

/* 0F AE: fences and flushes share the opcode, told apart by prefix, ModRM.reg and whether the operand is memory. */
static void decode_group_15(const UChar *modrm, const struct prefixes *prefixes, Addr address, struct fl_decoded *decoded) {
    UInt reg = (*modrm >> 3) & 7;
    Bool is_memory = (*modrm >> 6) != 3;
    if (!is_memory) {
        if (!prefixes->has_repeat && !prefixes->has_operand_size)
            decoded->instruction = reg == 7 ? FL_IS_SFENCE : reg == 6 ? FL_IS_MFENCE : FL_ORDINARY;
        return;
    }
    if (prefixes->has_repeat || prefixes->has_lock)
        return;
    if (reg == 7)
        decoded->instruction = prefixes->has_operand_size ? FL_IS_CLFLUSHOPT : FL_IS_CLFLUSH;
    else if (reg == 6 && prefixes->has_operand_size)
        decoded->instruction = FL_IS_CLWB;
    else
        return;
    decoded->bytes = decode_operand(modrm, prefixes, &decoded->operand) - (const UChar *)address;
}

static enum fl_instruction kind_of_two_byte_opcode(const UChar *opcode, const struct prefixes *prefixes) {
    Bool is_memory = (opcode[1] >> 6) != 3;
    switch (opcode[0]) {
    case 0x0B: return FL_IS_TRAP;
    case 0xA2: return FL_IS_CPUID;
    case 0xC3: return FL_NON_TEMPORAL; /* movnti */
    case 0x2B: return FL_NON_TEMPORAL; /* movntps, movntpd; with F2, F3 movntsd, movntss */
    case 0xE7: return FL_NON_TEMPORAL; /* movntq, movntdq */
    case 0xF7: return FL_MASKED_NON_TEMPORAL;
    case 0xB0:
    case 0xB1: return prefixes->has_lock ? FL_LOCKED_COMPARE : FL_ORDINARY;
    case 0xC7: return prefixes->has_lock && is_memory ? FL_LOCKED_COMPARE : FL_ORDINARY;
    default: return prefixes->has_lock ? FL_LOCKED : FL_ORDINARY;
    }
}

static enum fl_instruction kind_of_vex(const UChar *at) {
    Bool is_three_byte = at[0] == 0xC4;
    UInt map = is_three_byte ? at[1] & 31 : 1;
    UChar opcode = is_three_byte ? at[3] : at[2];
    if (map != 1)
        return FL_ORDINARY;
    return opcode == 0xE7 || opcode == 0x2B ? FL_NON_TEMPORAL : opcode == 0xF7 ? FL_MASKED_NON_TEMPORAL : FL_ORDINARY;
}

void fl_decode(Addr address, struct fl_decoded *decoded) {
    struct prefixes prefixes;
    const UChar *at = skip_prefixes((const UChar *)address, &prefixes);
    *decoded = (struct fl_decoded){.instruction = FL_ORDINARY};
    switch (*at) {
    case 0x0F:
        if (at[1] == 0xAE)
            decode_group_15(at + 2, &prefixes, address, decoded);
        else
            decoded->instruction = kind_of_two_byte_opcode(at + 1, &prefixes);
        return;
    case 0xC4:
    case 0xC5: decoded->instruction = kind_of_vex(at); return;
    case 0x86:
    case 0x87: /* xchg: locked without a prefix */ decoded->instruction = (at[1] >> 6) != 3 ? FL_LOCKED : FL_ORDINARY; return;
    case 0xA4:
    case 0xA5:
    case 0xAA:
    case 0xAB: decoded->instruction = prefixes.has_repeat ? FL_REPEATED : FL_ORDINARY; return;
    default: decoded->instruction = prefixes.has_lock ? FL_LOCKED : FL_ORDINARY;
    }
}

const HChar *fl_name_undecoded(const UChar *bytes, const HChar **advice) {
    struct prefixes prefixes;
    const UChar *at = skip_prefixes(bytes, &prefixes);
    *advice = "-march=x86-64-v3";
    if (*at == 0x62) {
        *advice = "-mno-avx512f";
        return "an AVX-512 instruction";
    }
    if (at[0] == 0x0F && at[1] == 0x38 && (at[2] == 0xF8 || at[2] == 0xF9)) {
        *advice = "-mno-movdiri -mno-movdir64b";
        return "a direct store";
    }
    return at[0] == 0xC4 || at[0] == 0xC5 ? "a VEX instruction" : "an instruction";
}
