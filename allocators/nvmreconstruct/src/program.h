/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h - what this program knows of its types, and what a record says that an earlier one knew.
 */
#ifndef NVRECONSTRUCT_PROGRAM_H
#define NVRECONSTRUCT_PROGRAM_H

#include <map>
#include <vector>

#include "layout.h"

namespace nv {

struct KnownType {
    const Type *type;
    Reconstructor reconstructor;
};

/* Of the running program: gathered once, all modules together. */
class Program {
  public:
    Status gather(); /* NO_TYPES: a type that is made is in no table */
    const KnownType *type(uint32_t name) const;
    uint64_t record_bytes() const;
    void write_record(uint64_t heap_base, Execution *record) const; /* all but the number */

    std::map<uint32_t, KnownType> types;
    std::vector<ModuleRecord> modules;
    std::vector<FunctionRecord> functions;
};

/* The record of an execution, read. It may lie in memory that ends anywhere: what does not fit is not there. */
class PastExecution {
  public:
    bool read(const Execution *record); /* false: it is damaged */
    const TypeRecord *type(uint32_t name) const;
    const Field *fields(const TypeRecord &type) const { return all_fields + type.first_field; }
    bool is_laid_out_as(const TypeRecord &past, const Type &type) const;

    uint64_t number = 0, heap_base = 0;

    /* Where an address of then is now. False: it was an address of a program that was built otherwise. */
    bool code_now(const Program &program, uint64_t address, uint64_t *now) const;
    bool data_now(const Program &program, uint64_t address, uint64_t *now) const;

  private:
    bool is_sane(const TypeRecord &type) const;
    const ModuleRecord *module_of(uint64_t address) const;

    const TypeRecord *types = nullptr;
    const Field *all_fields = nullptr;
    const ModuleRecord *modules = nullptr;
    const FunctionRecord *functions = nullptr;
    uint32_t type_count = 0, module_count = 0, function_count = 0;
};

} // namespace nv
#endif
