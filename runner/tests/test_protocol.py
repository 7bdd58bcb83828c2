# SPDX-License-Identifier: Apache-2.0
"""The numbers of the protocol between runner and engine: the engine's are those of the header, and so are the tests' own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import runner_protocol
from exploration import toy_runner

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ("runner/protocol.h", "include/adapter.h", "pintools/trace.h")
ENGINE = "crashgen/src/replay/protocol.rs"
REPORT = "oracle/src/report.rs"
Numbers = dict[str, int]


@pytest.fixture(scope="module")
def header(built: Path) -> Numbers:
    """Of each enumerator and number that the headers define its value, without FL_; of each struct fl_x the size, as X_BYTES."""
    text = "\n".join((ROOT / path).read_text() for path in HEADERS)
    names = set(re.findall(r"^#define FL_(\w+) +(?:0x)?[0-9a-f]+u\b", text, re.MULTILINE))
    names |= {name for body in re.findall(r"\benum fl_\w+ \{(.*?)\}", text, re.DOTALL) for name in enumerators(body)}
    structs = set(re.findall(r"^struct fl_(\w+) \{", text, re.MULTILINE))
    lines = [f'printf("{name} %lld\\n", (long long)FL_{name});' for name in names]
    lines += [f'printf("{name.upper()}_BYTES %zu\\n", sizeof(struct fl_{name}));' for name in structs]
    source, program = built / "protocol.c", built / "protocol"
    includes = "".join(f'#include "{ROOT / path}"\n' for path in HEADERS)
    source.write_text(f"#include <stdio.h>\n{includes}int main(void) {{\n{chr(10).join(lines)}\nreturn 0; }}\n")
    subprocess.run(["gcc", "-std=gnu11", "-I", str(ROOT / "include"), source, "-o", program], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in said.splitlines())}


def enumerators(body: str) -> list[str]:
    return re.findall(r"\bFL_(\w+)", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))


def of_rust(path: str) -> Numbers:
    found = re.findall(r"^pub const (\w+): \w+ = (\w+);", (ROOT / path).read_text(), re.MULTILINE)
    return {name: int(value.replace("_", ""), 0) for name, value in found if value[0].isdigit()}


def of_class(names: type) -> Numbers:
    return {name: value for name, value in vars(names).items() if not name.startswith("_")}


def test_the_header_is_read(header: Numbers) -> None:
    assert header["COMMAND_AFFINITY"] == 14
    assert header["COMMAND_BYTES"] == 40
    assert header["SITE_CONTENT"] == 1
    assert header["OP_LOAD"] == 12
    assert header["NOT_A_HEAP"] == 2


@pytest.mark.parametrize(
    ("what", "numbers"),
    [
        (ENGINE, of_rust(ENGINE)),
        ("harness/tests/runner_protocol.py", of_class(runner_protocol.FL)),
        ("harness/tests/exploration/toy_runner.py", of_class(toy_runner.FL)),
    ],
)
def test_numbers_are_those_of_the_header(header: Numbers, what: str, numbers: Numbers) -> None:
    assert len(numbers) > 30, what
    assert {name: value for name, value in numbers.items() if header.get(name) != value} == {}


def test_the_oracle_reads_heap_reports_of_the_runners_version(header: Numbers) -> None:
    numbers = of_rust(REPORT)
    assert (numbers["MAGIC"], numbers["VERSION"]) == (header["REPORT_MAGIC"], header["REPORT_VERSION"])
    assert numbers["LIFE_COUNT"] == header["LAST_LIFE"] + 1


@pytest.mark.parametrize(("kind", "prefix"), [("SectionKind", "SECTION_"), ("BlockState", "BLOCK_")])
def test_the_oracle_numbers_what_a_report_has_as_the_runner_does(header: Numbers, kind: str, prefix: str) -> None:
    found = re.search(rf"pub enum {kind} \{{(.*?)\}}", (ROOT / REPORT).read_text(), re.DOTALL)
    assert found
    words = re.findall(r"^    (\w+)(?: = 1)?,", found[1], re.MULTILINE)
    names = [prefix + re.sub(r"(?<!^)([A-Z])", r"_\1", word).upper() for word in words]
    assert {name: header.get(name) for name in names} == {name: number for number, name in enumerate(names, 1)}
    assert {name for name in header if name.startswith(prefix) and not name.endswith("_BYTES")} == set(names)
