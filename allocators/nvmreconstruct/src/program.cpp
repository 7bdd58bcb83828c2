/* SPDX-License-Identifier: Apache-2.0
 *
 * program.cpp - see program.h. A module is a program or library with a table of types; it is known by the note with its build
 * id, and without one by nothing, so that no other file is taken for it.
 */
#include "program.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdio>

#include "state.h"

namespace nv {

/* ---- what registers itself before main ---- */

namespace {

Module *all_modules;
Function *all_functions;
Made *all_made;

} // namespace

Module::Module(const Type *types, uint32_t count) : types(types), count(count), next(all_modules) { all_modules = this; }

Function::Function(const char *name, void (*address)()) : name(name_hash(name)), address(address), next(all_functions) {
    all_functions = this;
}

Made::Made(std::string_view name, Reconstructor reconstructor)
    : name(name_hash(name)), text(name), reconstructor(reconstructor), next(all_made) {
    all_made = this;
}

/* ---- where a module lies ---- */

namespace {

uint64_t build_of_note(const char *notes, uint64_t bytes) {
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const auto *note = reinterpret_cast<const ElfW(Nhdr) *>(notes);
        uint64_t whole = sizeof *note + up_to(note->n_namesz, 4) + up_to(note->n_descsz, 4);
        if (whole > bytes)
            return 0;
        const char *id = notes + sizeof *note + up_to(note->n_namesz, 4);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz >= sizeof(uint64_t)) {
            uint64_t build;
            memcpy(&build, id, sizeof build);
            return build;
        }
        notes += whole;
        bytes -= whole;
    }
    return 0;
}

struct Search {
    uint64_t address;
    ModuleRecord found;
};

int look_at_module(dl_phdr_info *info, size_t, void *context) {
    auto *search = static_cast<Search *>(context);
    ModuleRecord module{0, UINT64_MAX, 0};
    uint64_t end = 0;
    for (const ElfW(Phdr) *part = info->dlpi_phdr; part < info->dlpi_phdr + info->dlpi_phnum; part++) {
        uint64_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_NOTE && module.build == 0)
            module.build = build_of_note(reinterpret_cast<const char *>(start), part->p_memsz);
        if (part->p_type != PT_LOAD)
            continue;
        module.base = std::min(module.base, start);
        end = std::max(end, start + part->p_memsz);
    }
    if (search->address < module.base || search->address >= end)
        return 0;
    module.bytes = end - module.base;
    search->found = module;
    return 1;
}

} // namespace

/* ---- the running program ---- */

Status Program::gather() {
    std::map<uint32_t, Reconstructor> reconstructors;
    for (const Made *made = all_made; made != nullptr; made = made->next)
        reconstructors[made->name] = made->reconstructor;
    for (const Module *module = all_modules; module != nullptr; module = module->next) {
        Search search{reinterpret_cast<uint64_t>(module), {}};
        dl_iterate_phdr(look_at_module, &search);
        modules.push_back(search.found);
        for (const Type *type = module->types; type < module->types + module->count; type++)
            types[name_hash(type->name)] = {type, reconstructors[name_hash(type->name)]};
    }
    for (const Function *function = all_functions; function != nullptr; function = function->next)
        functions.push_back({function->name, reinterpret_cast<uint64_t>(function->address)});
    for (const Made *made = all_made; made != nullptr; made = made->next) {
        if (types.count(made->name) != 0)
            continue;
        return fail(Status::NO_TYPES, "type %.*s is in no table: link what nv_types.py makes of all objects (g++ -g)",
                    static_cast<int>(made->text.size()), made->text.data());
    }
    return Status::OK;
}

const KnownType *Program::type(uint32_t name) const {
    auto found = types.find(name);
    return found == types.end() ? nullptr : &found->second;
}

uint64_t Program::record_bytes() const {
    uint64_t fields = 0;
    for (const auto &[name, known] : types)
        fields += known.type->field_count;
    return sizeof(Execution) + types.size() * sizeof(TypeRecord) + fields * sizeof(Field) + modules.size() * sizeof(ModuleRecord) +
           functions.size() * sizeof(FunctionRecord);
}

void Program::write_record(uint64_t heap_base, Execution *record) const {
    record->heap_base = heap_base;
    record->type_count = static_cast<uint32_t>(types.size());
    record->module_count = static_cast<uint32_t>(modules.size());
    record->function_count = static_cast<uint32_t>(functions.size());
    auto *types_to = reinterpret_cast<TypeRecord *>(record + 1);
    auto *fields_to = reinterpret_cast<Field *>(types_to + types.size());
    uint32_t field_count = 0;
    for (const auto &[name, known] : types) {
        *types_to++ = {name, known.type->bytes, field_count, known.type->field_count};
        memcpy(fields_to + field_count, known.type->fields, known.type->field_count * sizeof(Field));
        field_count += known.type->field_count;
    }
    record->field_count = field_count;
    auto *modules_to = reinterpret_cast<ModuleRecord *>(fields_to + field_count);
    std::copy(modules.begin(), modules.end(), modules_to);
    std::copy(functions.begin(), functions.end(), reinterpret_cast<FunctionRecord *>(modules_to + modules.size()));
}

/* ---- an earlier one ---- */

bool PastExecution::read(const Execution *record) {
    uint64_t bytes = sizeof *record + record->type_count * sizeof(TypeRecord) + record->field_count * sizeof(Field) +
                     record->module_count * sizeof(ModuleRecord) + record->function_count * sizeof(FunctionRecord);
    number = record->number;
    heap_base = record->heap_base;
    type_count = record->type_count;
    module_count = record->module_count;
    function_count = record->function_count;
    types = reinterpret_cast<const TypeRecord *>(record + 1);
    all_fields = reinterpret_cast<const Field *>(types + type_count);
    modules = reinterpret_cast<const ModuleRecord *>(all_fields + record->field_count);
    functions = reinterpret_cast<const FunctionRecord *>(modules + module_count);
    bool is_next_known = number < UINT32_MAX; /* what a PageWord has room for */
    return is_next_known && bytes <= EXECUTION_BYTES && std::all_of(types, types + type_count, [&](const TypeRecord &type) {
               return type.first_field + uint64_t{type.field_count} <= record->field_count;
           });
}

const TypeRecord *PastExecution::type(uint32_t name) const {
    auto found = std::find_if(types, types + type_count, [&](const TypeRecord &type) { return type.name == name; });
    return found == types + type_count || !is_sane(*found) ? nullptr : found;
}

/* Its fields lie in it. It is asked when an object of it is there, and not of all types: what is not needed is not read. */
bool PastExecution::is_sane(const TypeRecord &type) const {
    auto lies_in = [&](const Field &field) {
        return uint64_t{field.offset} + field.bytes <= type.bytes && field.kind <= Kind::TRANSIENT;
    };
    return type.bytes <= MAX_TYPE_BYTES && std::all_of(fields(type), fields(type) + type.field_count, lies_in);
}

bool PastExecution::is_laid_out_as(const TypeRecord &past, const Type &type) const {
    return past.bytes == type.bytes &&
           std::equal(fields(past), fields(past) + past.field_count, type.fields, type.fields + type.field_count);
}

const ModuleRecord *PastExecution::module_of(uint64_t address) const {
    auto holds = [&](const ModuleRecord &module) { return address - module.base < module.bytes; };
    auto found = std::find_if(modules, modules + module_count, holds);
    return found == modules + module_count ? nullptr : found;
}

bool PastExecution::data_now(const Program &program, uint64_t address, uint64_t *now) const {
    const ModuleRecord *then = module_of(address);
    *now = address;
    if (then == nullptr)
        return true; /* no pointer into this program: DRAM of then, or null */
    for (const ModuleRecord &module : program.modules) {
        if (then->build == 0 || module.build != then->build)
            continue;
        *now = address - then->base + module.base;
        return true;
    }
    return false;
}

bool PastExecution::code_now(const Program &program, uint64_t address, uint64_t *now) const {
    auto is_it = [&](const FunctionRecord &function) { return function.address == address; };
    auto then = std::find_if(functions, functions + function_count, is_it);
    if (then != functions + function_count) {
        for (const FunctionRecord &function : program.functions) {
            if (function.name == then->name) {
                *now = function.address;
                return true;
            }
        }
    }
    return data_now(program, address, now);
}

} // namespace nv
