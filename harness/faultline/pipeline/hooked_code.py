# SPDX-License-Identifier: Apache-2.0
"""Which code of a library was compiled with hooks. The assembler of builds with hooks marks what it assembles (runner/assembler,
marks.rs), and the marks go wherever the linker takes the code. So it does not matter whether an object is still there, or how
often it was linked. Code without a mark is of the compiler's own parts, which every library has, or was compiled without hooks."""

from __future__ import annotations

import functools
import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import Section, SymbolTableSection

MARKS = "fl_hooked"
"""The section with the marks: pairs of 32-bit numbers, the code's place relative to the first of them, and its bytes."""
MARK = struct.Struct("<iI")
HOOK = b"\x00__tsan_init\x00"
"""A name in every library that has hooks, whatever else it has: what the runner knows them by."""
OF_COMPILERS = (
    "crti.o",
    "crtbeginS.o",
    "crtendS.o",
    "crtn.o",
    "crtfastmath.o",
    "libc_nonshared.a",
    "libgcc.a",
    "libgcc_eh.a",
)
"""What every shared library is linked with: none of it accesses memory that is not its own or given to it."""
OF_LINKERS = (".plt", ".plt.got", ".plt.sec")
"""Sections of code that the linker makes."""
PADDING = re.compile(rb"(?:\xcc|[\x66\x2e]*(?:\x90|\x0f\x1f(?:\x00|\x40.|\x44..|\x80....|\x84.....)))*", re.DOTALL)
"""Instructions that do nothing, as assemblers and linkers fill with them."""

ELF = b"\x7fELF"
WIDE_RELOCATION = 1
"""R_X86_64_64; the others here have 32 bits."""
RELAXED_BYTES = {41: 2, 42: 3}
"""R_X86_64_GOTPCRELX and _REX_: so many bytes before the number may become others, too."""
AR, AR_HEADER_BYTES = b"!<arch>\n", 60


@dataclass(frozen=True)
class Pattern:
    """Code of a compiler's part. is_fixed: 255 where the linker changes nothing."""

    code: bytes
    is_fixed: bytes

    def stands_at(self, code: bytes, at: int) -> bool:
        found = code[at : at + len(self.code)]
        return len(found) == len(self.code) and all(
            not (mask and one != other) for one, other, mask in zip(found, self.code, self.is_fixed, strict=True)
        )


def part_without_hooks(library: Path) -> str:
    """The first of its code that was compiled without hooks: `peek (libpeek.so+0x1139)`; empty: there is none, or nothing in it has
    hooks."""
    content = library.read_bytes()
    if HOOK not in content:
        return ""
    sections = _sections_of(content)
    marked = sorted(_marked(sections))
    for section in filter(_is_code, sections):
        if section.name in OF_LINKERS:
            continue
        start_of, all_code = section["sh_addr"], section.data()
        for start, end in _without(marked, start_of, start_of + len(all_code)):
            code = all_code[start - start_of : end - start_of]
            at = _first_unknown(code)
            if at < len(code):
                return _described(library, sections, start + at)
    return "" if sections else f"{library.name}, whose sections are stripped away,"


def _sections_of(content: bytes) -> list[Section]:
    """None of what is no ELF file: the index of an archive, say."""
    return list(ELFFile(BytesIO(content)).iter_sections()) if content.startswith(ELF) else []


def _is_code(section: Section) -> bool:
    return section["sh_type"] == "SHT_PROGBITS" and bool(section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)


def _marked(sections: list[Section]) -> Iterator[tuple[int, int]]:
    """From and to, by address."""
    for section in sections:
        if section.name == MARKS:
            content = section.data()
            for at in range(0, len(content) - len(content) % MARK.size, MARK.size):
                distance, length = MARK.unpack_from(content, at)
                start = section["sh_addr"] + at + distance
                yield start, start + length


def _without(marked: list[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """What is left of [start, end)."""
    for first, last in marked:
        if last <= start or first >= end:
            continue
        if first > start:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end


def _first_unknown(code: bytes) -> int:
    """Behind padding and compilers' parts."""
    at = 0
    while at < len(code):
        padding = PADDING.match(code, at)
        at = padding.end() if padding else at
        known = next((pattern for pattern in _patterns() if pattern.stands_at(code, at)), None)
        if known is None or at == len(code):
            return at
        at += len(known.code)
    return at


def _described(library: Path, sections: list[Section], address: int) -> str:
    place = f"{library.name}+{address:#x}"
    for section in sections:
        if isinstance(section, SymbolTableSection):
            for symbol in section.iter_symbols():
                start = symbol["st_value"]
                if symbol["st_info"]["type"] == "STT_FUNC" and start <= address < start + symbol["st_size"]:
                    return f"{symbol.name} ({place})"
    return place


# ---- the compiler's parts --------------------------------------------------------------------------------------------------------


@functools.cache
def _patterns() -> tuple[Pattern, ...]:
    """The longest first."""
    found = {pattern for name in OF_COMPILERS for part in _objects_of(_place_of(name)) for pattern in _code_of(part)}
    return tuple(sorted(found, key=lambda pattern: (-len(pattern.code), pattern.code)))


def _place_of(name: str) -> Path:
    command = ["gcc", f"-print-file-name={name}"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())


def _objects_of(path: Path) -> Iterator[bytes]:
    content = path.read_bytes() if path.is_file() else b""
    if not content.startswith(AR):
        yield content
        return
    at = len(AR)
    while at + AR_HEADER_BYTES <= len(content):
        length = int(content[at + 48 : at + 58])
        at += AR_HEADER_BYTES
        yield content[at : at + length]
        at += length + length % 2


def _code_of(part: bytes) -> Iterator[Pattern]:
    sections = _sections_of(part)
    for number, section in enumerate(sections):
        if not _is_code(section) or not section.data():
            continue
        is_fixed = bytearray(b"\xff" * len(section.data()))
        for other in sections:
            if isinstance(other, RelocationSection) and other["sh_info"] == number:
                for relocation in other.iter_relocations():
                    kind, offset = relocation["r_info_type"], relocation["r_offset"]
                    start, end = offset - RELAXED_BYTES.get(kind, 0), offset + (8 if kind == WIDE_RELOCATION else 4)
                    is_fixed[start:end] = bytes(end - start)
        yield Pattern(section.data(), bytes(is_fixed))
