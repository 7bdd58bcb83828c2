# SPDX-License-Identifier: Apache-2.0
"""allocator.toml and matrix.toml: every key is checked, every error names file, key and what was expected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from command_line import Faultline
from faultline.base import config
from faultline.base.errors import BadInputError
from faultline.base.project import Project
from faultline.campaign.matrix import cells_of_matrix
from faultline.cli import options
from faultline.pipeline.engine import Engine
from faultline.workload import catalogue

GOOD = """
name = "toy"
summary = "a toy"
language = "c11"
[build]
sources = ["*.c"]
adapter = ["adapter.c"]
[heap]
heap_bytes = 65536
limit_bytes = 65536
address_hint = "0x200000000000"
alignment = 64
smallest_bytes = 64
boundary_sizes = [64, 1024]
[contract]
publish = "atomic"
fill = "before"
leaks = "none"
durable = "on-return"
accounting = "full"
[[mutant]]
id = "ONE"
summary = "one"
rule = "FL004"
killed_by = ["floor"]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "toy" / "allocator.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_good_file_is_read(tmp_path: Path) -> None:
    allocator = config.read_allocator(write(tmp_path, GOOD))
    assert allocator.heap.address == 0x200000000000
    assert allocator.contract.after_failed_create == "error"
    assert allocator.mutant_named("ONE").rule == "FL004"


def test_all_allocators_here_are_good(root: Path) -> None:
    names = config.allocator_names(root)
    assert "nvm_malloc" in names
    for name in names:
        assert config.find_allocator(root, name).name == name


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "toy"', "", "name: this key is required and missing"),
        ('name = "toy"', 'name = "Toy"', "name: "),
        ('summary = "a toy"', 'summary = ""', "summary: "),
        ('language = "c11"', 'language = "rust"', "language: invalid enum value 'rust'"),
        ("[build]", "[build]\nsource = 1", "build.source: unknown key"),
        ('sources = ["*.c"]', "sources = []", "build.sources: "),
        ('sources = ["*.c"]', 'sources = "*.c"', "build.sources: expected `array`, got `str`"),
        ('adapter = ["adapter.c"]', "adapter = [1]", "build.adapter[0]: expected `str`, got `int`"),
        ("heap_bytes = 65536", 'heap_bytes = "64 KiB"', "heap.heap_bytes: expected `int`, got `str`"),
        ("heap_bytes = 65536", "heap_bytes = 0", "heap.heap_bytes: expected `int` >= 1"),
        ("limit_bytes = 65536", "limit_bytes = 4096", "heap.limit_bytes: expected at least heap_bytes"),
        ('"0x200000000000"', '"here"', "heap.address_hint: "),
        ('"0x200000000000"', '"0x200000000001"', "heap.address_hint: expected a multiple of 4096"),
        ("alignment = 64", "alignment = 48", "heap.alignment: expected a power of two, got 48"),
        ("smallest_bytes = 64", "smallest_bytes = -1", "heap.smallest_bytes: "),
        ("[64, 1024]", "[1, 2, 3, 4, 5]", "heap.boundary_sizes: expected `array` of length <= 4"),
        ("[64, 1024]", "[1024, 64]", "heap.boundary_sizes: expected growing sizes"),
        ("[64, 1024]", "[64, 999999999]", "heap.boundary_sizes: expected sizes of at most limit_bytes"),
        ('publish = "atomic"', 'publish = "maybe"', "contract.publish: invalid enum value 'maybe'"),
        ('fill = "before"', 'fill = "during"', "contract.fill: "),
        ('leaks = "none"', 'leaks = "some"', "contract.leaks: "),
        ('durable = "on-return"', 'durable = "soon"', "contract.durable: "),
        ('accounting = "full"', 'accounting = "half"', "contract.accounting: "),
        ('accounting = "full"', 'accounting = "full"\nslack_bytes = -1', "contract.slack_bytes: "),
        ('accounting = "full"', 'accounting = "full"\nrelocatable = 1', "contract.relocatable: "),
        (
            'accounting = "full"',
            'accounting = "full"\nmapping_alignment = 12288',
            "contract.mapping_alignment: expected a power of two, got 12288",
        ),
        ('accounting = "full"', 'accounting = "full"\nmapping_alignment = 64', "contract.mapping_alignment: "),
        ('accounting = "full"', 'accounting = "full"\ndetects = "all"', "contract.detects: "),
        ('accounting = "full"', 'accounting = "full"\nafter_failed_create = "x"', "contract.after_failed_create: "),
        ('accounting = "full"', 'accounting = "full"\nclean_close = 1', "contract.clean_close: "),
        ('accounting = "full"', 'accounting = "full"\nout_of_memory = "aborts"', "contract.out_of_memory: "),
        ('accounting = "full"', 'accounting = "full"\nthreads = 0', "contract.threads: "),
        ('accounting = "full"', 'accounting = "full"\nleak = 1', "contract.leak: unknown key"),
        ('id = "ONE"', 'id = "one"', "mutant[0].id: "),
        ('rule = "FL004"', 'rule = "FL4"', "mutant[0].rule: "),
        ('killed_by = ["floor"]', 'killed_by = ["luck"]', "mutant[0].killed_by[0]: invalid enum value 'luck'"),
        ('killed_by = ["floor"]', "", "mutant[0].killed_by: this key is required and missing"),
        (
            'killed_by = ["floor"]',
            'killed_by = []\n[[mutant]]\nid = "ONE"\nsummary = "x"\nrule = "FL004"\nkilled_by = []',
            "mutant.id: expected each id once",
        ),
        ("[heap]", "[heap", "is not TOML"),
    ],
)
def test_errors_name_file_and_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(BadInputError) as caught:
        config.read_allocator(path)
    assert str(path) in caught.value.message
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_a_heap_is_made_where_it_may_be_mapped(tmp_path: Path) -> None:
    text = GOOD.replace('accounting = "full"', 'accounting = "full"\nmapping_alignment = 65536')
    assert config.read_allocator(write(tmp_path, text)).contract.mapping_alignment == 65536
    path = write(tmp_path, text.replace('"0x200000000000"', '"0x200000001000"'))
    with pytest.raises(
        BadInputError, match=r"heap\.address_hint: expected a multiple of contract\.mapping_alignment, 65536"
    ):
        config.read_allocator(path)


def test_a_folder_of_the_clone_has_the_name_of_its_allocator(tmp_path: Path) -> None:
    folder = tmp_path / "allocators" / "toy"
    folder.mkdir(parents=True)
    (folder / "allocator.toml").write_text(GOOD.replace('name = "toy"', 'name = "other"', 1))
    with pytest.raises(BadInputError, match="name: expected the folder's name 'toy', got 'other'"):
        config.find_allocator(tmp_path, "toy")


def test_unreadable_files_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        config.read_toml(tmp_path / "nosuch.toml", config.Matrix)
    path = write(tmp_path, "")
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(BadInputError, match="UTF-8"):
        config.read_allocator(path)


def test_unknown_names_list_what_there_is(root: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        config.find_allocator(root, "nosuch")
    assert "nvm_malloc" in str(caught.value.hint)
    with pytest.raises(BadInputError) as caught:
        config.find_allocator(root, "nvm_malloc").mutant_named("NOSUCH")
    assert "MAGIC_NOT_LAST" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "version: this key is required and missing"),
        ("version = 2", "version: invalid enum value 2"),
        ("version = 1\n[defaults]\nops = 0", "defaults.ops: expected `int` >= 1"),
        ("version = 1\n[defaults]\nflush = 'best'", "defaults.flush: invalid enum value 'best'"),
        ("version = 1\n[[cell]]\nallocator = 'x'", "cell[0].workload: this key is required and missing"),
        ("version = 1\n[[cell]]\nallocator = 'x'\nworkload = 'smoke'\nmutant = 'M'", "cell[0].mutant: unknown key"),
        ("version = 1\n[[mutants]]\nids = []", "mutants[0].allocator: this key is required and missing"),
    ],
)
def test_matrix_errors_name_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    with pytest.raises(BadInputError) as caught:
        config.read_toml(path, config.Matrix)
    assert f"{path}: {words}" in caught.value.message


GENERATED = {name.split(":")[0] for name in catalogue.GENERATORS} - {"FILE", "uniform", "create"}
"""uniform is for wear: churn has more kinds of operations, and a crash finds no more in it. Each other one begins with create."""


def test_the_matrix_has_every_mutant_once_and_every_workload(root: Path) -> None:
    specs = cells_of_matrix(Project(root).allocator, config.read_toml(root / "ci" / "matrix.toml", config.Matrix))
    clean = [spec.workload for spec in specs if spec.mutant is None]
    assert {workload.split(":")[0] for workload in clean} >= GENERATED
    names = sorted({spec.allocator for spec in specs})
    assert names == config.allocator_names(root)
    for name in names:
        allocator = config.find_allocator(root, name)
        mutants = [
            spec.mutant for spec in specs if spec.mutant and spec.allocator == name and spec.strategy == "complete"
        ]
        assert mutants == [mutant.id for mutant in allocator.mutant]
        files = {f"{path.relative_to(root)}" for path in (root / "allocators" / name / "workloads").glob("*")}
        assert {workload for workload in clean if workload.startswith(f"allocators/{name}/")} == files
    for spec in specs:
        assert spec.stop_at_rule == spec.expected_rule
        assert (spec.ops > 0) == catalogue.takes_ops(spec.workload)


def test_a_cell_says_where_second_crashes_are_explored(root: Path, tmp_path: Path) -> None:
    """Where there are none, it does not matter; a mutant that needs one is looked for everywhere."""
    text = (
        "version = 1\n[defaults]\nnested = 1\nfollow_up = false\n"
        '[[cell]]\nallocator = "nvm_malloc"\nworkload = "smoke"\n'
        '[[cell]]\nallocator = "nvm_malloc"\nworkload = "sizes"\nfollow_up = true\n'
        '[[cell]]\nallocator = "nvm_malloc"\nworkload = "chain"\nnested = 0\n'
        '[[mutants]]\nallocator = "nvm_malloc"\nworkload = "churn"\n'
    )
    clean, mutants = [], []
    for spec in cells_of_matrix(Project(root).allocator, config.read_toml(write(tmp_path, text), config.Matrix)):
        (mutants if spec.mutant else clean).append(spec)
    assert [(spec.nested, spec.follow_up) for spec in clean] == [(1, False), (1, True), (0, True)]
    needed = {mutant.id: mutant.nested for mutant in config.find_allocator(root, "nvm_malloc").mutant}
    assert any(needed.values())
    assert all(spec.follow_up == bool(needed[spec.mutant]) for spec in mutants)
    assert clean[0].command_line().endswith("--nested 1 --no-follow-up")


def test_the_nightly_matrix_is_good(root: Path) -> None:
    assert cells_of_matrix(Project(root).allocator, config.read_toml(root / "ci" / "nightly.toml", config.Matrix))


def test_run_takes_for_a_mutant_the_workload_that_the_matrix_has(root: Path) -> None:
    """So that `faultline run ALLOCATOR --mutant M` shows the bug, too."""
    matrix = cells_of_matrix(Project(root).allocator, config.read_toml(root / "ci" / "matrix.toml", config.Matrix))
    mutants = [cell for cell in matrix if cell.mutant is not None]
    assert len(mutants) > 100
    for cell in mutants:
        allocator = config.find_allocator(root, cell.allocator)
        assert cell.workload == allocator.workload_of(allocator.mutant_named(str(cell.mutant))), cell.mutant
        assert cell.ops in (0, options.DEFAULT_OPS), cell.mutant


def test_the_page_for_those_who_adapt_an_allocator_names_all_there_is(root: Path) -> None:
    page = (root / "docs" / "allocators.md").read_text()
    rows = {column for row in re.findall(r"^\| (.+?) \|", page, re.MULTILINE) for column in re.findall(r"[`\w]+", row)}
    tables = (config.Description, config.Build, config.Heap, config.Mutant)
    keys = {key for table in tables for key in table.__struct_fields__} - {
        "build",
        "heap",
        "contract",
        "mutant",
        "environment",
    }
    hints = get_type_hints(config.Contract)
    values = {value for hint in hints.values() for value in get_args(hint) if isinstance(value, str)}
    bits = set(re.findall(r"\bFL_CAN_\w+", (root / "include" / "adapter.h").read_text()))
    numbers = {rule["id"] for rule in json.loads(Engine().ask("lists"))["rules"]}
    assert len(numbers) == 27
    assert len(values) >= 10
    assert [key for key in hints if f"`{key}`" not in rows] == []
    assert [word for word in sorted(keys | values | bits) if f"`{word}`" not in page] == []
    assert [number for number in sorted(numbers) if number not in (rows if number < "FL1" else page)] == []


def test_the_help_of_run_names_the_limits_that_the_engine_has(root: Path, faultline: Faultline) -> None:
    source = (root / "crashgen" / "engine" / "src" / "base" / "config.rs").read_text()
    said = " ".join(faultline("run", "--help").stdout.split())
    for option, constant in (("--memory MIB", "MEMORY_LIMIT_MIB"), ("--leaves N", "LEAF_LIMIT")):
        limit = re.search(rf"const {constant}: u32 = ([0-9_]+);", source)
        assert limit
        assert re.search(rf"{option} [^\[]*\[default: {limit[1].replace('_', '')}\]", said), option


@pytest.mark.parametrize(
    ("helper", "name"),
    [
        ("src/store.h", "src/store.h"),
        ("./src/store.h", "src/store.h"),
        ("../../library/src/util.c", "library/src/util.c"),
        ("more/../src/store.h", "src/store.h"),
    ],
)
def test_a_helper_is_named_as_compilers_record_it(root: Path, helper: str, name: str) -> None:
    """Of sources beside its own folder no place would else be a helper's."""
    build = msgspec.structs.replace(config.find_allocator(root, "nvm_malloc").build, helpers=[helper])
    assert build.helper_names() == [name]
