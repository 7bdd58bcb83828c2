/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_instrument.c - adds the calls of fl_record.c to the guest's code.
 *
 * A call comes after the statement whose effect it records. Stores are guarded by a range test in the guest's code, so that
 * a store outside PM costs two loads and a comparison. Flush instructions end their block, so guest registers are in the
 * guest state there and their operand can be computed from them.
 *
 * How VEX 3.19 shows each instruction: ../README.md.
 */
#include "fl.h"
#include "pub_tool_guest.h"
#include "pub_tool_machine.h"

#include <stddef.h>

struct pass {
    IRSB *in, *out;
    const VexGuestLayout *layout;
    VexGuestExtents *extents;
    Int at; /* index of the statement in in->stmts */
    /* Of the current instruction. */
    Addr address;
    struct fl_decoded decoded;
    struct fl_point *joined_point; /* when it has several stores */
    UInt stores_left;
};

/* ---- small builders ---- */

static IRExpr *constant(ULong value) { return IRExpr_Const(IRConst_U64(value)); }

static IRType type_of(struct pass *pass, IRExpr *expression) { return typeOfIRExpr(pass->out->tyenv, expression); }

static IRExpr *assign(struct pass *pass, IRExpr *value) {
    IRTemp temporary = newIRTemp(pass->out->tyenv, type_of(pass, value));
    addStmtToIRSB(pass->out, IRStmt_WrTmp(temporary, value));
    return IRExpr_RdTmp(temporary);
}

static IRExpr *binary(struct pass *pass, IROp op, IRExpr *left, IRExpr *right) {
    return assign(pass, IRExpr_Binop(op, left, right));
}

static IRExpr *load(struct pass *pass, const void *from) {
    return assign(pass, IRExpr_Load(Iend_LE, Ity_I64, constant((Addr)from)));
}

static IRExpr *get_register(struct pass *pass, Int number) {
    Int offset = offsetof(VexGuestAMD64State, guest_RAX) + 8 * number;
    return assign(pass, IRExpr_Get(offset, Ity_I64));
}

static void reads_guest(IRDirty *call, UInt index, UInt offset) {
    call->fxState[index].fx = Ifx_Read;
    call->fxState[index].offset = offset;
    call->fxState[index].size = sizeof(ULong);
    call->fxState[index].nRepeats = 0;
    call->fxState[index].repeatLen = 0;
}

/* The helper may unwind: instruction, stack and frame pointer must be in the guest state. guard: null for always. */
static void add_call(struct pass *pass, const HChar *name, void *function, IRExpr **arguments, IRExpr *guard) {
    IRDirty *call = unsafeIRDirty_0_N(0, name, VG_(fnptr_to_fnentry)(function), arguments);
    if (guard != NULL)
        call->guard = guard;
    call->nFxState = 3;
    reads_guest(call, 0, pass->layout->offset_SP);
    reads_guest(call, 1, pass->layout->offset_IP);
    reads_guest(call, 2, pass->layout->offset_FP);
    addStmtToIRSB(pass->out, IRStmt_Dirty(call));
}

/* Points live as long as the process: a translation that Valgrind discards leaves its points behind, and what they remember. */
static struct fl_point *new_point(struct pass *pass, UInt bytes, UChar detail) {
    struct fl_point *point = VG_(calloc)("fl.point", 1, sizeof *point);
    point->address = pass->address;
    point->bytes = bytes;
    point->detail = detail;
    return point;
}

/* ---- stores ---- */

static UChar store_detail(enum fl_instruction instruction) {
    switch (instruction) {
    case FL_NON_TEMPORAL:
    case FL_MASKED_NON_TEMPORAL: return FL_STORE_NT;
    case FL_LOCKED:
    case FL_LOCKED_COMPARE: return FL_STORE_RMW;
    case FL_REPEATED: return FL_STORE_REP;
    default: return FL_STORE_PLAIN;
    }
}

/* address - fl_lowest < fl_span, and the statement's own guard (or null). */
static IRExpr *near_pm(struct pass *pass, IRExpr *address, IRExpr *guard) {
    IRExpr *distance = binary(pass, Iop_Sub64, address, load(pass, &fl_lowest));
    IRExpr *is_near = binary(pass, Iop_CmpLT64U, distance, load(pass, &fl_span));
    return guard == NULL ? is_near : binary(pass, Iop_And1, is_near, guard);
}

/* One of several stores of an instruction. */
static void add_joined_store(struct pass *pass, IRExpr *address, UInt bytes, IRExpr *guard) {
    if (pass->joined_point == NULL) {
        pass->joined_point = new_point(pass, bytes, store_detail(pass->decoded.instruction));
        pass->joined_point->is_joined = True;
    }
    IRExpr **arguments = mkIRExprVec_3(address, constant(bytes), constant((Addr)pass->joined_point));
    add_call(pass, "fl_on_store_to", &fl_on_store_to, arguments, bytes <= FL_INLINE_BYTES ? near_pm(pass, address, guard) : guard);
    if (--pass->stores_left == 0)
        add_call(pass, "fl_on_joined_end", &fl_on_joined_end, mkIRExprVec_0(), NULL);
}

static void add_store(struct pass *pass, IRExpr *address, UInt bytes, IRExpr *guard) {
    if (pass->stores_left > 1 || pass->joined_point != NULL) {
        add_joined_store(pass, address, bytes, guard);
        return;
    }
    struct fl_point *point = new_point(pass, bytes, store_detail(pass->decoded.instruction));
    point->is_joined = pass->decoded.instruction == FL_REPEATED;
    if (bytes <= FL_INLINE_BYTES)
        add_call(pass, "fl_on_store", &fl_on_store, mkIRExprVec_2(address, constant((Addr)point)), near_pm(pass, address, guard));
    else
        add_call(pass, "fl_on_store", &fl_on_store, mkIRExprVec_2(address, constant((Addr)point)), guard);
}

static IRExpr *definition_of(struct pass *pass, IRExpr *expression) {
    for (Int i = pass->at; i >= 0 && expression->tag == Iex_RdTmp; i--) {
        const IRStmt *statement = pass->in->stmts[i];
        if (statement->tag == Ist_WrTmp && statement->Ist.WrTmp.tmp == expression->Iex.RdTmp.tmp)
            return statement->Ist.WrTmp.data;
    }
    return expression;
}

static Bool is_binary(const IRExpr *expression, IROp wide, IROp narrow) {
    return expression->tag == Iex_Binop && (expression->Iex.Binop.op == wide || expression->Iex.Binop.op == narrow);
}

/* VEX makes of maskmovdqu a whole store of (new & mask) | (old & ~mask). The mask, or null if the shape is another. */
static IRExpr *find_mask(struct pass *pass, IRExpr *data) {
    IRExpr *either = definition_of(pass, data);
    if (!is_binary(either, Iop_OrV128, Iop_Or64))
        return NULL;
    IRExpr *sides[2] = {either->Iex.Binop.arg1, either->Iex.Binop.arg2};
    for (UInt i = 0; i < 2; i++) {
        IRExpr *both = definition_of(pass, sides[i]);
        if (!is_binary(both, Iop_AndV128, Iop_And64))
            return NULL;
        IRExpr *parts[2] = {both->Iex.Binop.arg1, both->Iex.Binop.arg2};
        for (UInt j = 0; j < 2; j++) {
            IRExpr *inverse = definition_of(pass, parts[j]);
            if (inverse->tag == Iex_Unop && (inverse->Iex.Unop.op == Iop_NotV128 || inverse->Iex.Unop.op == Iop_Not64))
                return inverse->Iex.Unop.arg;
        }
    }
    return NULL;
}

static void add_masked_store(struct pass *pass, IRExpr *address, IRExpr *data, UInt bytes) {
    IRExpr *mask = find_mask(pass, data);
    tl_assert2(mask != NULL, "maskmov at %#lx has an unknown shape", pass->address);
    IRExpr *low = mask, *high = constant(0);
    if (bytes == 16) {
        low = assign(pass, IRExpr_Unop(Iop_V128to64, mask));
        high = assign(pass, IRExpr_Unop(Iop_V128HIto64, mask));
    }
    struct fl_point *point = new_point(pass, bytes, FL_STORE_NT);
    add_call(pass, "fl_on_masked_store", &fl_on_masked_store, mkIRExprVec_4(address, low, high, constant((Addr)point)),
             near_pm(pass, address, NULL));
}

static void add_plain_store(struct pass *pass, IRExpr *address, IRExpr *data, IRExpr *guard) {
    UInt bytes = sizeofIRType(type_of(pass, data));
    if (pass->decoded.instruction == FL_MASKED_NON_TEMPORAL)
        add_masked_store(pass, address, data, bytes);
    else
        add_store(pass, address, bytes, guard);
}

/* ---- atomics ---- */

static IRExpr *are_equal(struct pass *pass, IRTemp left, IRExpr *right) {
    IROp op;
    switch (type_of(pass, right)) {
    case Ity_I8: op = Iop_CasCmpEQ8; break;
    case Ity_I16: op = Iop_CasCmpEQ16; break;
    case Ity_I32: op = Iop_CasCmpEQ32; break;
    default: op = Iop_CasCmpEQ64; break;
    }
    return binary(pass, op, IRExpr_RdTmp(left), right);
}

/* A failed exchange of FL_LOCKED is VEX's own retry, no event; one of FL_LOCKED_COMPARE is the instruction's. */
static void add_exchange(struct pass *pass, const IRCAS *exchange) {
    Bool is_double = exchange->oldHi != IRTemp_INVALID;
    UInt bytes = sizeofIRType(type_of(pass, exchange->dataLo)) * (is_double ? 2 : 1);
    IRExpr *has_stored = are_equal(pass, exchange->oldLo, exchange->expdLo);
    if (is_double)
        has_stored = binary(pass, Iop_And1, has_stored, are_equal(pass, exchange->oldHi, exchange->expdHi));

    if (pass->decoded.instruction != FL_LOCKED && pass->decoded.instruction != FL_LOCKED_COMPARE) {
        add_store(pass, exchange->addr, bytes, has_stored); /* cmpxchg16b without lock */
        return;
    }
    Bool may_fail = pass->decoded.instruction == FL_LOCKED_COMPARE;
    struct fl_point *point = new_point(pass, bytes, FL_STORE_RMW);
    IRExpr *flag = may_fail ? assign(pass, IRExpr_Unop(Iop_1Uto64, has_stored)) : constant(1);
    add_call(pass, "fl_on_locked", &fl_on_locked, mkIRExprVec_3(exchange->addr, flag, constant((Addr)point)),
             may_fail ? NULL : has_stored);
}

/* ---- flushes and fences ---- */

static IRExpr *operand_address(struct pass *pass, const struct fl_operand *operand, Addr next) {
    IRExpr *sum = constant(operand->displacement + (operand->is_rip_relative ? next : 0));
    if (operand->base >= 0)
        sum = binary(pass, Iop_Add64, get_register(pass, operand->base), sum);
    if (operand->index >= 0) {
        UChar shift = operand->scale == 8 ? 3 : operand->scale == 4 ? 2 : operand->scale == 2 ? 1 : 0;
        IRExpr *scaled = binary(pass, Iop_Shl64, get_register(pass, operand->index), IRExpr_Const(IRConst_U8(shift)));
        sum = binary(pass, Iop_Add64, sum, scaled);
    }
    if (operand->is_32_bit)
        sum = binary(pass, Iop_And64, sum, constant(0xFFFFFFFF));
    if (operand->segment != 0) {
        Int offset =
            operand->segment == 0x64 ? offsetof(VexGuestAMD64State, guest_FS_CONST) : offsetof(VexGuestAMD64State, guest_GS_CONST);
        sum = binary(pass, Iop_Add64, sum, assign(pass, IRExpr_Get(offset, Ity_I64)));
    }
    return sum;
}

static void add_flush(struct pass *pass) {
    enum fl_instruction instruction = pass->decoded.instruction;
    UChar detail = instruction == FL_IS_CLFLUSH ? FL_CLFLUSH : instruction == FL_IS_CLFLUSHOPT ? FL_CLFLUSHOPT : FL_CLWB;
    Addr next = pass->address + pass->decoded.bytes;
    IRExpr *address = operand_address(pass, &pass->decoded.operand, next);
    add_call(pass, "fl_on_flush", &fl_on_flush, mkIRExprVec_2(address, constant((Addr)new_point(pass, 0, detail))),
             fl_mode == FL_TRACES ? NULL : near_pm(pass, address, NULL));
    pass->out->next = constant(next);
    pass->out->jumpkind = Ijk_Boring;
}

static void add_fence(struct pass *pass) {
    enum fl_instruction instruction = pass->decoded.instruction;
    if (instruction != FL_IS_SFENCE && instruction != FL_IS_MFENCE)
        return; /* lfence orders no store */
    struct fl_point *point = new_point(pass, 0, instruction == FL_IS_SFENCE ? FL_SFENCE : FL_MFENCE);
    add_call(pass, "fl_on_fence", &fl_on_fence, mkIRExprVec_1(constant((Addr)point)), NULL);
}

/* ---- loads: before the statement that makes them, whose own store may follow ---- */

static void add_load(struct pass *pass, IRExpr *address, UInt bytes, IRExpr *guard) {
    ULong repeated = pass->decoded.instruction == FL_REPEATED ? FL_LOAD_REPEATED : 0;
    struct fl_point *point = fl_mode == FL_SERVES ? new_point(pass, bytes, 0) : NULL;
    add_call(pass, "fl_on_load", &fl_on_load, mkIRExprVec_3(address, constant(bytes | repeated), constant((Addr)point)),
             bytes <= FL_INLINE_BYTES ? near_pm(pass, address, guard) : guard);
}

/* VEX makes a load and an exchange of a locked instruction: the exchange counts. */
static void add_loads(struct pass *pass, IRStmt *statement) {
    Bool is_locked = pass->decoded.instruction == FL_LOCKED || pass->decoded.instruction == FL_LOCKED_COMPARE;
    if (!fl_loads_are_wanted())
        return;
    if (statement->tag == Ist_WrTmp && statement->Ist.WrTmp.data->tag == Iex_Load && !is_locked) {
        const IRExpr *loaded = statement->Ist.WrTmp.data;
        add_load(pass, loaded->Iex.Load.addr, sizeofIRType(loaded->Iex.Load.ty), NULL);
    } else if (statement->tag == Ist_LoadG) {
        const IRLoadG *loaded = statement->Ist.LoadG.details;
        IRType from, to;
        typeOfIRLoadGOp(loaded->cvt, &to, &from);
        add_load(pass, loaded->addr, sizeofIRType(from), loaded->guard);
    } else if (statement->tag == Ist_CAS) {
        const IRCAS *exchange = statement->Ist.CAS.details;
        UInt bytes = sizeofIRType(type_of(pass, exchange->dataLo)) * (exchange->oldHi != IRTemp_INVALID ? 2 : 1);
        add_load(pass, exchange->addr, bytes, NULL);
    } else if (statement->tag == Ist_Dirty) {
        const IRDirty *call = statement->Ist.Dirty.details;
        if (call->mFx == Ifx_Read || call->mFx == Ifx_Modify)
            add_load(pass, call->mAddr, call->mSize, call->guard->tag == Iex_Const ? NULL : call->guard);
    }
}

/* ---- helpers of VEX itself: CPUID, and those that write memory (x87 state, fxsave, xsave) ---- */

static void add_cpuid(struct pass *pass, IRStmt *statement) {
    Int rbx = offsetof(VexGuestAMD64State, guest_RBX);
    IRExpr *leaf = get_register(pass, 0), *subleaf = get_register(pass, 1);
    addStmtToIRSB(pass->out, statement);
    IRTemp result = newIRTemp(pass->out->tyenv, Ity_I64);
    IRExpr *before = assign(pass, IRExpr_Get(rbx, Ity_I64));
    IRDirty *call =
        unsafeIRDirty_1_N(result, 0, "fl_on_cpuid", VG_(fnptr_to_fnentry)(&fl_on_cpuid), mkIRExprVec_3(leaf, subleaf, before));
    addStmtToIRSB(pass->out, IRStmt_Dirty(call));
    addStmtToIRSB(pass->out, IRStmt_Put(rbx, IRExpr_RdTmp(result)));
}

static Bool writes_memory(const IRDirty *call) { return call->mFx == Ifx_Write || call->mFx == Ifx_Modify; }

static void add_helper(struct pass *pass, IRStmt *statement) {
    IRDirty *call = statement->Ist.Dirty.details;
    if (pass->decoded.instruction == FL_IS_CPUID) {
        add_cpuid(pass, statement);
        return;
    }
    addStmtToIRSB(pass->out, statement);
    if (writes_memory(call))
        add_store(pass, call->mAddr, call->mSize, call->guard->tag == Iex_Const ? NULL : call->guard);
}

/* ---- the pass ---- */

static UInt count_stores(const struct pass *pass) {
    UInt count = 0;
    for (Int i = pass->at + 1; i < pass->in->stmts_used && pass->in->stmts[i]->tag != Ist_IMark; i++) {
        const IRStmt *statement = pass->in->stmts[i];
        count += statement->tag == Ist_Store || statement->tag == Ist_StoreG ||
                 (statement->tag == Ist_Dirty && writes_memory(statement->Ist.Dirty.details));
    }
    return count;
}

static void begin_instruction(struct pass *pass, Addr address) {
    pass->address = address;
    pass->joined_point = NULL;
    pass->stores_left = count_stores(pass);
    fl_decode(address, &pass->decoded);
}

static void add_statement(struct pass *pass, IRStmt *statement) {
    enum fl_instruction instruction = pass->decoded.instruction;
    add_loads(pass, statement);
    switch (statement->tag) {
    case Ist_IMark:
        begin_instruction(pass, statement->Ist.IMark.addr);
        addStmtToIRSB(pass->out, statement);
        return;
    case Ist_Put:
        /* The range of a cache invalidation, which would cost a search of all translations for each clflush. */
        if (instruction == FL_IS_CLFLUSH && (statement->Ist.Put.offset == offsetof(VexGuestAMD64State, guest_CMSTART) ||
                                             statement->Ist.Put.offset == offsetof(VexGuestAMD64State, guest_CMLEN)))
            return;
        addStmtToIRSB(pass->out, statement);
        return;
    case Ist_Exit:
        if (instruction == FL_REPEATED)
            add_call(pass, "fl_on_joined_end", &fl_on_joined_end, mkIRExprVec_0(), statement->Ist.Exit.guard);
        addStmtToIRSB(pass->out, statement);
        return;
    case Ist_Dirty: add_helper(pass, statement); return;
    case Ist_LLSC: tl_assert2(0, "load-linked at %#lx: VEX makes none for amd64", pass->address); return;
    default: break;
    }

    addStmtToIRSB(pass->out, statement);
    if (statement->tag == Ist_Store)
        add_plain_store(pass, statement->Ist.Store.addr, statement->Ist.Store.data, NULL);
    else if (statement->tag == Ist_StoreG)
        add_plain_store(pass, statement->Ist.StoreG.details->addr, statement->Ist.StoreG.details->data,
                        statement->Ist.StoreG.details->guard);
    else if (statement->tag == Ist_CAS)
        add_exchange(pass, statement->Ist.CAS.details);
    else if (statement->tag == Ist_MBE)
        add_fence(pass);
}

/* Makes the block cover the instruction that VEX did not decode, so that it is discarded with its code. */
static void extend_block(struct pass *pass) {
    UInt last = pass->extents->n_used - 1;
    if (pass->extents->base[last] + pass->extents->len[last] == pass->address)
        pass->extents->len[last] += pass->decoded.bytes;
}

static void end_block(struct pass *pass) {
    IRExpr *next = pass->in->next;
    if (pass->in->jumpkind == Ijk_InvalICache && pass->decoded.instruction == FL_IS_CLFLUSH) {
        add_flush(pass);
        return;
    }
    if (pass->in->jumpkind != Ijk_NoDecode)
        return;
    if (next->tag == Iex_Const)
        pass->address = next->Iex.Const.con->Ico.U64;
    fl_decode(pass->address, &pass->decoded);
    enum fl_instruction instruction = pass->decoded.instruction;
    if (instruction == FL_IS_CLFLUSHOPT || instruction == FL_IS_CLWB) {
        add_flush(pass);
        extend_block(pass);
    } else if (instruction != FL_IS_TRAP) {
        add_call(pass, "fl_on_undecoded", &fl_on_undecoded, mkIRExprVec_1(constant((Addr)new_point(pass, 0, 0))), NULL);
    }
}

IRSB *fl_instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout, const VexGuestExtents *extents,
                    const VexArchInfo *host, IRType guest_word, IRType host_word) {
    (void)host;
    fl_recording_translates(closure->nraddr);
    tl_assert(guest_word == Ity_I64 && host_word == Ity_I64);
    struct pass pass = {.in = in, .out = deepCopyIRSBExceptStmts(in), .layout = layout, .extents = (VexGuestExtents *)extents};
    Int first = 0;
    while (first < in->stmts_used && in->stmts[first]->tag != Ist_IMark)
        addStmtToIRSB(pass.out, in->stmts[first++]); /* the preamble is not the guest's */
    for (pass.at = first; pass.at < in->stmts_used; pass.at++)
        add_statement(&pass, in->stmts[pass.at]);
    end_block(&pass);
    return pass.out;
}
