# SPDX-License-Identifier: Apache-2.0
"""Type tables of persistent objects, from the debug information of compiled objects.

    nv_types.py OBJECT... > types.cpp       objects and archives: all of the program or library but what this makes

Every type that a program makes with nv::Heap::make is in the debug information (g++ -g) as nv::Registration<T>. This says for each
field of T what a new execution does with it: pointers are relocated, virtual table pointers and transients set anew, all else is
left alone. What it writes is a C++ source, to be compiled and linked with the objects. A type that cannot be told apart (a union,
a pointer to member, a virtual base) is an error unless it has nv_reconstruct (section 5.3 of the paper)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

REGISTRATION, TRANSIENT = "Registration<", "transient<"
NAMESPACE = "nv"
TRANSPARENT = {
    "DW_TAG_typedef",
    "DW_TAG_const_type",
    "DW_TAG_volatile_type",
    "DW_TAG_atomic_type",
}
CLASSES = {"DW_TAG_structure_type", "DW_TAG_class_type"}
POINTERS = {"DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
POINTER_BYTES = 8
USAGE = 2


class TypeTableError(Exception):
    """One line: what of which type, and what to do."""


@dataclass(frozen=True)
class Field:
    name: str
    offset: int
    size: int
    kind: str
    """Of nv::Kind."""


@dataclass(frozen=True)
class Type:
    name: str
    size: int
    fields: tuple[Field, ...]
    has_reconstructor: bool

    @property
    def is_polymorphic(self) -> bool:
        return any(field.kind == "VIRTUAL_TABLE" for field in self.fields)


def text_of(die: DIE, attribute: str) -> str:
    found = die.attributes.get(attribute)
    return found.value.decode() if found else ""


def number_of(die: DIE, attribute: str) -> int | None:
    found = die.attributes.get(attribute)
    return found.value if found and isinstance(found.value, int) else None


def type_of(die: DIE) -> DIE | None:
    """Without names and qualifiers. None: void."""
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in TRANSPARENT:
            return die
    return None


def fully(die: DIE, whole: dict[str, DIE]) -> DIE:
    """A class is declared in most units, and told in the one that has its virtual table."""
    return whole.get(qualified_name(die), die) if "DW_AT_declaration" in die.attributes else die


def qualified_name(die: DIE) -> str:
    """As the compiler writes it in __PRETTY_FUNCTION__."""
    parts = [text_of(die, "DW_AT_name")]
    parent = die.get_parent()
    while parent is not None and parent.tag in {"DW_TAG_namespace", *CLASSES}:
        parts.append(text_of(parent, "DW_AT_name") or "{anonymous}")
        parent = parent.get_parent()
    return "::".join(reversed(parts))


def declares(die: DIE, name: str) -> bool:
    return any(
        child.tag == "DW_TAG_subprogram" and text_of(child, "DW_AT_name") == name for child in die.iter_children()
    )


class Reader:
    """Reads the fields of one type."""

    def __init__(self, die: DIE, classes: dict[str, DIE]) -> None:
        """classes: all that are told, by name."""
        self.classes = classes
        told = fully(die, classes)
        self.name = qualified_name(told)
        self.has_reconstructor = self.reconstructs(told)
        self.fields: list[Field] = []
        self.read_class(told, 0, "")
        size = number_of(told, "DW_AT_byte_size")
        if size is None:
            raise TypeTableError(
                f"{self.name}: its size is not in the debug information: compile its definition with -g"
            )
        self.type = Type(
            self.name, size, tuple(sorted(self.fields, key=lambda field: field.offset)), self.has_reconstructor
        )
        if sum(field.kind == "VIRTUAL_TABLE" for field in self.fields) > 1:
            raise TypeTableError(f"{self.name}: it has several virtual tables: derive it from one polymorphic class")

    def reconstructs(self, told: DIE) -> bool:
        """It or a class that it is derived from."""
        bases = (self.type_of(child) for child in told.iter_children() if child.tag == "DW_TAG_inheritance")
        return declares(told, "nv_reconstruct") or any(map(self.reconstructs, bases))

    def type_of(self, die: DIE) -> DIE:
        return fully(expect(type_of(die), self.name), self.classes)

    def add(self, name: str, offset: int, size: int, kind: str) -> None:
        self.fields.append(Field(name, offset, size, kind))

    def refuse(self, name: str, what: str) -> None:
        """Unless the type's own reconstructor answers for it."""
        if not self.has_reconstructor:
            raise TypeTableError(f"{self.name}: {name} is {what}: give the type a nv_reconstruct that sets it right")

    def read_class(self, die: DIE, offset: int, prefix: str) -> None:
        for child in die.iter_children():
            place = number_of(child, "DW_AT_data_member_location")
            if child.tag == "DW_TAG_inheritance":
                if place is None or "DW_AT_virtuality" in child.attributes:
                    raise TypeTableError(
                        f"{self.name}: it has a virtual base, whose place is in the virtual table: derive it plainly"
                    )
                self.read_class(self.type_of(child), offset + place, prefix)
            elif child.tag == "DW_TAG_member" and "DW_AT_external" not in child.attributes:
                self.read_member(child, offset, place, prefix)

    def read_member(self, member: DIE, offset: int, place: int | None, prefix: str) -> None:
        name = prefix + text_of(member, "DW_AT_name")
        bits = number_of(member, "DW_AT_data_bit_offset")
        if bits is not None:  # the bytes that have a part of it
            last = bits + (number_of(member, "DW_AT_bit_size") or 1) - 1
            self.add(name, offset + bits // 8, last // 8 - bits // 8 + 1, "PLAIN")
        elif name.startswith("_vptr"):
            self.add("virtual table", offset + (place or 0), POINTER_BYTES, "VIRTUAL_TABLE")
        else:
            self.read_value(self.type_of(member), name, offset + (place or 0))

    def read_value(self, die: DIE, name: str, offset: int) -> None:
        size = number_of(die, "DW_AT_byte_size")
        if die.tag in POINTERS:
            pointee = type_of(die)
            is_code = pointee is not None and pointee.tag == "DW_TAG_subroutine_type"
            self.add(name, offset, POINTER_BYTES, "CODE" if is_code else "POINTER")
        elif die.tag in CLASSES:
            if text_of(die, "DW_AT_name").startswith(TRANSIENT) and qualified_name(die).startswith(f"{NAMESPACE}::"):
                self.add(name, offset, size or 0, "TRANSIENT")
            else:
                self.read_class(die, offset, f"{name}.")
        elif die.tag == "DW_TAG_array_type":
            self.read_array(die, name, offset)
        elif die.tag in {"DW_TAG_union_type", "DW_TAG_ptr_to_member_type"}:
            self.refuse(name, "a union" if die.tag == "DW_TAG_union_type" else "a pointer to member")
            self.add(name, offset, size or 2 * POINTER_BYTES, "PLAIN")
        else:
            self.add(name, offset, size or 0, "PLAIN")

    def read_array(self, die: DIE, name: str, offset: int) -> None:
        count = 1
        for child in die.iter_children():
            if child.tag == "DW_TAG_subrange_type":
                upper, length = number_of(child, "DW_AT_upper_bound"), number_of(child, "DW_AT_count")
                count *= length if length is not None else upper + 1 if upper is not None else 0
        element = self.type_of(die)
        size = number_of(element, "DW_AT_byte_size") or POINTER_BYTES
        if element.tag in {"DW_TAG_base_type", "DW_TAG_enumeration_type"}:
            if count:
                self.add(name, offset, count * size, "PLAIN")
            return
        if not count:
            self.refuse(name, "an array without end of what is no number")
        for number in range(count):
            self.read_value(element, f"{name}[{number}]", offset + number * size)


def expect(die: DIE | None, name: str) -> DIE:
    if die is None:
        raise TypeTableError(f"{name}: a type in it is not in the debug information: compile with -g")
    return die


def types_of(path: Path, found: dict[str, Type], tables: dict[str, str]) -> None:
    """Adds those of an object: types by name, symbols of virtual tables by the name of their type."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        for section in elf.iter_sections():
            if isinstance(section, SymbolTableSection):
                shared = (symbol.name for symbol in section.iter_symbols() if symbol["st_info"]["bind"] != "STB_LOCAL")
                symbols = [name for name in shared if name.startswith("_ZTV")]
                tables.update(zip(map(demangled, symbols), symbols, strict=True))
        if not elf.has_dwarf_info():
            return
        dies = [die for unit in elf.get_dwarf_info().iter_CUs() for die in unit.iter_DIEs() if die.tag in CLASSES]
    classes = {qualified_name(die): die for die in dies if "DW_AT_byte_size" in die.attributes}
    for die in dies:
        if not qualified_name(die).startswith(f"{NAMESPACE}::{REGISTRATION}"):
            continue
        for argument in die.iter_children():
            if argument.tag == "DW_TAG_template_type_param":
                made = Reader(expect(type_of(argument), text_of(die, "DW_AT_name")), classes).type
                if found.setdefault(made.name, made) != made:
                    raise TypeTableError(f"{made.name}: two objects have different types of this name")


def link(paths: list[Path], whole: Path) -> None:
    """A file that is never run: debug information whose places are settled, and all symbols."""
    names = [str(path) for path in paths]
    command = [
        "ld",
        "--unresolved-symbols=ignore-all",
        "--defsym=__dso_handle=0",
        "-e",
        "0",
        "-o",
        str(whole),
        "--whole-archive",
        *names,
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise TypeTableError(f"ld failed: {(run.stderr.strip().splitlines() or ['no message'])[0]}")


def demangled(symbol: str) -> str:
    run = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True)
    return run.stdout.strip().removeprefix("vtable for ").replace("(anonymous namespace)", "{anonymous}")


def source_of(types: list[Type], tables: dict[str, str]) -> str:
    lines = ["/* Made by nv_types.py. */", '#include "nvreconstruct.h"', ""]
    for name in sorted({tables[made.name] for made in types if made.is_polymorphic}):
        lines.append(f'extern "C" void *{name}[];')
    lines += ["", "namespace {", ""]
    for number, made in enumerate(types):
        lines.append(f"const nv::Field fields_{number}[] = {{ /* {made.name} */")
        for field in made.fields:
            name = f'nv::name_hash("{field.name}")'
            lines.append(f"    {{{name}, {field.offset}, {field.size}, nv::Kind::{field.kind}}},")
        lines += ["};", ""]
    lines.append("const nv::Type types[] = {")
    for number, made in enumerate(types):
        table = f"&{tables[made.name]}[2]" if made.is_polymorphic else "nullptr"
        lines.append(f'    {{"{made.name}", {made.size}, fields_{number}, {len(made.fields)}, {table}}},')
    lines += ["};", "", f"const nv::Module module{{types, {len(types)}}};", "", "} // namespace", ""]
    return "\n".join(lines)


def main(paths: list[Path]) -> int:
    found: dict[str, Type] = {}
    tables: dict[str, str] = {}
    if not paths:
        print("usage: nv_types.py OBJECT...", file=sys.stderr)
        return USAGE
    try:
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole"
            link(paths, whole)
            types_of(whole, found, tables)
    except (TypeTableError, ELFError, OSError) as error:
        print(f"nv_types.py: error: {error}", file=sys.stderr)
        return 1
    types = sorted(found.values(), key=lambda made: made.name)
    missing = [made.name for made in types if made.is_polymorphic and made.name not in tables]
    if missing or not types:
        what = (
            f"the virtual table of {missing[0]} is in none of them, or it is local"
            if missing
            else "no debug information says which types are made"
        )
        print(f"nv_types.py: error: {what}: give all objects of the program, compiled with -g", file=sys.stderr)
        return 1
    print(source_of(types, tables), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
