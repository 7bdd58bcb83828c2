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
from pathlib import Path

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

ELF = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
HEADER, SECTION, SYMBOL, RELOCATION = map(struct.Struct, ("<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"))
PROGBITS, SYMTAB, RELA, DYNSYM, FUNCTION, EXECUTABLE = 1, 2, 4, 11, 2, 4
WIDE_RELOCATION = 1
"""R_X86_64_64; the others here have 32 bits."""
RELAXED_BYTES = {41: 2, 42: 3}
"""R_X86_64_GOTPCRELX and _REX_: so many bytes before the number may become others, too."""
AR, AR_HEADER_BYTES = b"!<arch>\n", 60


@dataclass(frozen=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    link: int
    info: int
    content: bytes


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
    sections = list(_sections_of(content))
    marked = sorted(_marked(sections))
    for section in sections:
        if section.kind != PROGBITS or not section.flags & EXECUTABLE or section.name in OF_LINKERS:
            continue
        for start, end in _without(marked, section.address, section.address + len(section.content)):
            code = section.content[start - section.address : end - section.address]
            at = _first_unknown(code)
            if at < len(code):
                return _described(library, sections, start + at)
    return "" if sections else f"{library.name}, whose sections are stripped away,"


def _sections_of(content: bytes) -> Iterator[Section]:
    if not content.startswith(ELF):
        return
    header = HEADER.unpack_from(content)
    offset, size, count, names_at = header[6], header[11], header[12], header[13]
    raw = [SECTION.unpack_from(content, offset + number * size) for number in range(count)]
    names = raw[names_at][4] if raw else 0
    for name, kind, flags, address, where, bytes_, link, info, *_ in raw:
        text = content[names + name : content.index(b"\0", names + name)].decode(errors="replace")
        yield Section(text, kind, flags, address, link, info, b"" if kind == 8 else content[where : where + bytes_])


def _marked(sections: list[Section]) -> Iterator[tuple[int, int]]:
    """From and to, by address."""
    for section in sections:
        if section.name == MARKS:
            whole = len(section.content) - len(section.content) % MARK.size
            for at in range(0, whole, MARK.size):
                distance, length = MARK.unpack_from(section.content, at)
                start = section.address + at + distance
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
        if section.kind not in (SYMTAB, DYNSYM):
            continue
        for name, info, _, _, value, length in SYMBOL.iter_unpack(section.content):
            if info & 15 == FUNCTION and value <= address < value + length:
                names = sections[section.link].content
                return f"{names[name : names.index(0, name)].decode(errors='replace')} ({place})"
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
    sections = list(_sections_of(part))
    for number, section in enumerate(sections):
        if section.kind != PROGBITS or not section.flags & EXECUTABLE or not section.content:
            continue
        is_fixed = bytearray(b"\xff" * len(section.content))
        for other in sections:
            if other.kind == RELA and other.info == number:
                for offset, info, _ in RELOCATION.iter_unpack(other.content):
                    kind = info & 0xFFFFFFFF
                    start, end = offset - RELAXED_BYTES.get(kind, 0), offset + (8 if kind == WIDE_RELOCATION else 4)
                    is_fixed[start:end] = bytes(end - start)
        yield Pattern(section.content, bytes(is_fixed))
