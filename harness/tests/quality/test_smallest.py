# SPDX-License-Identifier: Apache-2.0
"""Does it shrink well: for each mutant, the operations and the lost lines of the smallest witness. A figure that
grows is a shrinker that became worse; one that falls is pinned anew. Some of the minima, of up to three operations, are derived by
brute force, by this file's own enumeration."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterator
from functools import cache as remembered
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base.cache import Cache, project_root, scratch_folder
from faultline.base.config import Matrix, read_toml
from faultline.base.errors import BadInputError
from faultline.base.project import Project
from faultline.campaign.campaign import SilentWatcher, run_cells
from faultline.campaign.matrix import cells_of_matrix
from faultline.campaign.results import Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Certificate, Event, Finding, ShrunkState
from faultline.pipeline.explore import explore, write_config
from faultline.pipeline.workshop import Workshop
from faultline.study import replay
from faultline.study.shrink import Budget
from faultline.study.witness import EXPLORATIONS, Shrunk
from faultline.workload import file_format
from faultline.workload.operations import Workload

ROOT = project_root()
LIMIT_S = 900
"""So that only the limit of explorations bounds the search: the machine may be slow."""
EACH_TIME = {
    ("nvm_malloc", "MISSING_FLUSH_LINK"),
    ("nvm_malloc", "MISSING_FENCE_RING"),
    ("nvm_malloc", "RECOVERY_FORGETS_FREE"),
    ("nvm_malloc", "REPLAY_LINKS_NOT_FLUSHED"),
    ("nvm_malloc_tx", "SECOND_RECORD_FORGOTTEN"),
    ("makalu", "USE_NOT_FLUSHED"),
    ("makalu", "REPLAY_NOT_FLUSHED"),
    ("nvmalloc", "FREE_NOT_FENCED"),
    ("nvmalloc", "ALLOCATED_NOT_FLUSHED"),
    ("pallocator", "COUNTER_NOT_FLUSHED"),
    ("nvmreconstruct", "LOG_ABSOLUTE"),
    ("nvmreconstruct", "NO_UNDO"),
}
"""Some that take seconds; the others are shown in the nightly run."""
PINS: dict[tuple[str, str], tuple[int, int]] = {
    ("nvm_malloc", "SCAN_FORGETS_KNOWN_RUN"): (1, 0),
    ("nvm_malloc", "FREE_IGNORES_SCAN"): (1, 0),
    ("nvm_malloc", "SCAN_SETTLES_EARLY"): (3, 0),
    ("nvm_malloc", "MISSING_FLUSH_LINK"): (1, 1),
    ("nvm_malloc", "WRONG_FLUSH_ADDRESS"): (1, 1),
    ("nvm_malloc", "MISSING_FENCE_RING"): (0, 1),
    ("nvm_malloc", "MISSING_FENCE_LINK"): (1, 1),
    ("nvm_malloc", "LINK_AFTER_STATE"): (1, 0),
    ("nvm_malloc", "MISSING_FLUSH_IDLE"): (0, 1),
    ("nvm_malloc", "RECOVERY_FORGETS_FREE"): (2, 0),
    ("nvm_malloc", "ABSOLUTE_ON_REPLAY"): (1, 0),
    ("nvm_malloc", "REPLAY_ONE_LINK"): (1, 0),
    ("nvm_malloc", "RUN_LISTED_TWICE"): (1, 0),
    ("nvm_malloc", "VERSION_AFTER_SCAN"): (2, 0),
    ("nvm_malloc", "RING_TOO_SHORT"): (2, 0),
    ("nvm_malloc", "HUGE_WITHOUT_RING"): (1, 0),
    ("nvm_malloc", "CHUNK_SPLIT_ORDER"): (3, 0),
    ("nvm_malloc", "SPLIT_ORDER"): (0, 0),
    ("nvm_malloc", "MISSING_FENCE_SPLIT"): (0, 1),
    ("nvm_malloc", "CONVERT_ORDER"): (12, 0),
    ("nvm_malloc", "MISSING_FENCE_CONVERT"): (12, 1),
    ("nvm_malloc", "SIZE_BEFORE_GROWTH"): (1, 0),
    ("nvm_malloc", "GROWTH_ORDER"): (1, 0),
    ("nvm_malloc", "MISSING_FENCE_GROWTH"): (1, 1),
    ("nvm_malloc", "RECOVERY_IGNORES_GROWTH"): (1, 0),
    ("nvm_malloc", "MAGIC_NOT_LAST"): (0, 0),
    ("nvm_malloc", "PERSIST_FIRST_LINE"): (2, 1),
    ("nvm_malloc", "NAME_CLEARED_FIRST"): (2, 0),
    ("nvm_malloc", "NAME_NOT_FREEING"): (2, 0),
    ("nvm_malloc", "NAME_STATE_FIRST"): (0, 0),
    ("nvm_malloc", "MISSING_FLUSH_NAME"): (2, 1),
    ("nvm_malloc", "SETTLED_ENTRY_IS_FREE"): (0, 0),
    ("nvm_malloc", "FULL_CHUNK_NOT_SCANNED"): (4, 0),
    ("nvm_malloc", "LOG_ABSOLUTE"): (1, 0),
    ("nvm_malloc", "NAME_ABSOLUTE"): (0, 0),
    ("nvm_malloc", "REPLAY_CLEARS_ENTRY_FIRST"): (0, 0),
    ("nvm_malloc", "REPLAY_LINKS_NOT_FLUSHED"): (1, 1),
    ("nvm_malloc", "REPLAY_IDLE_FIRST"): (1, 1),
    ("nvm_malloc", "REPLAYED_ENTRY_STAYS"): (7, 1),
    ("nvm_malloc_tx", "MARK_BEFORE_DATA"): (7, 1),
    ("nvm_malloc_tx", "RECORD_NOT_FLUSHED"): (5, 1),
    ("nvm_malloc_tx", "LOG_NOT_CLEARED"): (4, 0),
    ("nvm_malloc_tx", "SECOND_RECORD_FORGOTTEN"): (5, 0),
    ("nvm_malloc_tx", "ABORT_FREES_TWICE"): (3, 0),
    ("nvm_malloc_tx", "WRITE_ABSOLUTE"): (4, 0),
    ("nvm_malloc_tx", "FREE_ABSOLUTE"): (4, 0),
    ("makalu", "MISSING_FENCE_LOG"): (0, 1),
    ("makalu", "LOG_VERSION_FIRST"): (0, 0),
    ("makalu", "CLEAN_NOT_FLUSHED"): (0, 1),
    ("makalu", "VERSION_BEFORE_STORES"): (1, 1),
    ("makalu", "VERSION_NOT_FLUSHED"): (0, 1),
    ("makalu", "REPLAY_FORGETS_LAST"): (0, 0),
    ("makalu", "REPLAY_FORWARD"): (3, 0),
    ("makalu", "MAP_TRUSTED"): (0, 0),
    ("makalu", "BOTTOM_NOT_CLEARED"): (0, 0),
    ("makalu", "MARKS_KEPT"): (1, 0),
    ("makalu", "HFL_TAKES_USED"): (0, 0),
    ("makalu", "FULL_MARK_STACK_STOPS"): (8, 0),
    ("makalu", "RELEASE_WITHOUT_LOG"): (2, 0),
    ("makalu", "COALESCE_FORGETS_NEXT"): (1, 0),
    ("makalu", "FLAG_NOT_LOGGED"): (1, 0),
    ("makalu", "FILE_GROWS_LATER"): (9, 0),
    ("makalu", "SPACE_NOT_FLUSHED"): (30, 1),
    ("makalu", "MARKS_NOT_FLUSHED"): (0, 1),
    ("makalu", "COLLISION_NOT_FLUSHED"): (13, 1),
    ("makalu", "CLEAN_TOO_EARLY"): (0, 1),
    ("makalu", "USE_NOT_FLUSHED"): (0, 1),
    ("makalu", "ROOT_NOT_FLUSHED"): (0, 1),
    ("makalu", "MAGIC_NOT_LAST"): (0, 0),
    ("makalu", "REPLAY_KEEPS_VERSION"): (1, 0),
    ("makalu", "USE_NOT_MARKED"): (0, 0),
    ("makalu", "REST_NOT_SCANNED"): (1, 0),
    ("makalu", "REPLAY_VERSION_FIRST"): (1, 0),
    ("makalu", "REPLAY_NOT_FLUSHED"): (1, 1),
    ("makalu", "CLEAN_BEFORE_COLLECTED"): (0, 0),
    ("makalu", "COLLECTION_NOT_FLUSHED"): (0, 2),
    ("nvmalloc", "ALLOCATED_NOT_FLUSHED"): (1, 1),
    ("nvmalloc", "ALLOCATED_NOT_FENCED"): (1, 1),
    ("nvmalloc", "REMAINDER_NOT_FLUSHED"): (6, 1),
    ("nvmalloc", "REMAINDER_NOT_FENCED"): (6, 1),
    ("nvmalloc", "REMAINDER_LAST"): (6, 0),
    # A slot that points to no block from its publication on; of six operations another one does, from the split on.
    ("nvmalloc", "REMAINDER_TOO_LONG"): (7, 0),
    ("nvmalloc", "SIZE_WITHOUT_HEADER"): (1, 0),
    ("nvmalloc", "FREE_NOT_FLUSHED"): (2, 1),
    ("nvmalloc", "FREE_NOT_FENCED"): (2, 1),
    ("nvmalloc", "STATE_BEFORE_WAIT"): (2, 0),
    ("nvmalloc", "FREE_PERSISTED_AFTER_WAIT"): (2, 1),
    ("nvmalloc", "WAITING_FORGOTTEN"): (6, 0),
    ("nvmalloc", "MERGE_ON_MEDIA"): (7, 0),
    ("nvmalloc", "ROOT_NOT_FLUSHED"): (0, 2),
    ("nvmalloc", "RECOVERY_MERGES"): (3, 0),
    ("nvmalloc", "RECOVERY_TRIMS"): (2, 0),
    ("nvmalloc", "RECOVERY_RESTARTS_CLOCK"): (2, 0),
    ("pallocator", "ARGUMENT_NOT_FLUSHED"): (1, 1),
    ("pallocator", "SLOT_NOT_CLEARED"): (2, 1),
    ("pallocator", "FILE_BEFORE_OFFSET"): (1, 0),
    ("pallocator", "BIG_CLEARED_TOO_EARLY"): (1, 1),
    ("pallocator", "SECOND_LINE_NOT_FLUSHED"): (1, 1),
    ("pallocator", "LEAF_BITMAP_FIRST"): (1, 1),
    ("pallocator", "LEAF_FREED_FIRST"): (9, 0),
    ("pallocator", "SPLIT_LINKED_FIRST"): (3, 0),
    ("pallocator", "SPLIT_NOT_FLUSHED"): (3, 1),
    ("pallocator", "READY_TOO_EARLY"): (0, 1),
    ("pallocator", "COUNTER_NOT_FLUSHED"): (0, 1),
    ("pallocator", "CREATION_KEPT"): (1, 0),
    ("pallocator", "SEGMENT_LISTED_FIRST"): (0, 1),
    ("pallocator", "SEGMENT_NOT_LISTED"): (0, 0),
    ("pallocator", "SMALL_CLEARED_TOO_EARLY"): (1, 1),
    ("pallocator", "FREE_READS_PAGE"): (2, 0),
    ("pallocator", "PAGE_RETURNED_TOO_EARLY"): (5, 1),
    ("pallocator", "FULL_SEGMENTS_FORGOTTEN"): (7, 0),
    ("pallocator", "HEAD_NOT_FLUSHED"): (5, 1),
    ("pallocator", "UNLINKED_BEFORE_UNLISTED"): (2, 0),
    ("pallocator", "PAGE_PUNCHED_BEFORE_LOGGED"): (6, 0),
    ("pallocator", "DEFRAGMENTATION_NOT_CLEARED"): (11, 1),
    ("pallocator", "RECOVERY_CLEARS_ITEM_FIRST"): (1, 0),
    ("pallocator", "RECOVERY_END_NOT_FENCED"): (1, 1),
    ("pallocator", "RECOVERY_ARGUMENT_NOT_FLUSHED"): (1, 1),
    ("pallocator", "RECOVERY_SPLIT_NOT_FLUSHED"): (3, 1),
    ("nvmalloc", "ROOT_ABSOLUTE"): (0, 0),
    ("nvmalloc", "POSITION_IS_ADDRESS"): (0, 0),
    ("pallocator", "ARGUMENT_ABSOLUTE"): (2, 0),
    ("pallocator", "IDENTITY_IS_ADDRESS"): (0, 0),
    ("nvmreconstruct", "PAGE_BEFORE_HEADERS"): (3, 1),
    ("nvmreconstruct", "RUN_BEFORE_HEADER"): (5, 1),
    ("nvmreconstruct", "CHANGE_NOT_FLUSHED"): (1, 1),
    ("nvmreconstruct", "CHANGE_CLEARED_FIRST"): (1, 1),
    ("nvmreconstruct", "OBJECT_NOT_FLUSHED"): (1, 1),
    ("nvmreconstruct", "META_NOT_FLUSHED"): (1, 1),
    ("nvmreconstruct", "LOG_ABSOLUTE"): (1, 0),
    ("nvmreconstruct", "RECORD_NOT_FLUSHED"): (1, 1),
    ("nvmreconstruct", "FIELD_FORGOTTEN"): (2, 0),
    ("nvmreconstruct", "CODE_NOT_FIXED"): (1, 0),
    ("nvmreconstruct", "VIRTUAL_TABLE_NOT_FIXED"): (1, 0),
    ("nvmreconstruct", "NO_UNDO"): (1, 0),
    ("nvmreconstruct", "UNDO_NOT_FLUSHED"): (1, 1),
    ("nvmreconstruct", "UNDO_DROPPED_FIRST"): (1, 0),
    ("nvmreconstruct", "NUMBER_BEFORE_FLUSH"): (1, 1),
    ("nvmreconstruct", "FINISHED_PUT_BACK"): (1, 0),
    ("nvmreconstruct_compacting", "RENAMED_BEFORE_FLUSH"): (4, 1),
    ("nvmreconstruct_compacting", "OLD_HEAP_KEPT"): (2, 0),
    ("nvmreconstruct_compacting", "FORWARDED_TO_OLD_PLACE"): (3, 0),
    ("nvmreconstruct_compacting", "FIELD_NOT_MARKED"): (4, 0),
    ("nvmreconstruct", "DELTA_OF_LAST"): (2, 0),
    ("nvm_malloc", "NAME_NOT_SYNCED"): (0, 0),
    ("makalu", "NAME_NOT_SYNCED"): (0, 0),
    ("makalu", "GROWTH_NOT_SYNCED"): (9, 0),
    ("nvmalloc", "NAME_NOT_SYNCED"): (0, 0),
    ("nvmalloc", "GROWTH_NOT_SYNCED"): (0, 0),
    ("pallocator", "NAME_NOT_SYNCED"): (0, 0),
    ("pallocator", "REMOVAL_NOT_SYNCED"): (2, 0),
    ("pallocator", "UNMADE_NOT_SYNCED"): (1, 0),
    ("nvmreconstruct", "NAME_NOT_SYNCED"): (0, 0),
    ("nvmreconstruct_compacting", "SWITCH_NOT_SYNCED"): (4, 0),
}
"""Operations, lost lines."""
BOUNDS: dict[tuple[str, str], str] = {
    ("nvmalloc", "SIZE_WITHOUT_HEADER"): "some states are unknown",
    # Their heaps are damaged without a crash, too, so that a twin cannot be drained: what a heap should hold is not known.
    ("nvmalloc", "REMAINDER_TOO_LONG"): "some states are unknown",
}
"""Of the others nothing smaller was cut short: what cut these, in the search's own words."""
BRUTE_FORCE: dict[tuple[str, str], tuple[str, list[int]]] = {
    ("nvm_malloc", "RECOVERY_FORGETS_FREE"): ("root", [1, 2048]),
    ("nvm_malloc", "VERSION_AFTER_SCAN"): ("root", [1, 2048]),
    ("nvm_malloc", "NAME_CLEARED_FIRST"): ("names", [1, 2048]),
    ("nvm_malloc", "NAME_NOT_FREEING"): ("names", [1, 2048]),
    ("nvm_malloc", "PERSIST_FIRST_LINE"): ("root", [1, 65, 2048]),
    ("nvm_malloc", "CHUNK_SPLIT_ORDER"): ("root", [32768, 65473]),
    ("makalu", "REPLAY_FORWARD"): ("root", [1, 32]),
    ("nvmalloc", "FREE_NOT_FENCED"): ("root", [1, 2048]),
    ("pallocator", "SLOT_NOT_CLEARED"): ("root", [1, 1024]),
    ("pallocator", "SPLIT_NOT_FLUSHED"): ("root", [64, 961]),
}
"""Slot layout and sizes of the workloads that are tried."""

MUTANTS = {
    (spec.allocator, str(spec.mutant)): spec
    for spec in cells_of_matrix(Project(ROOT).allocator, read_toml(ROOT / "ci" / "matrix.toml", Matrix))
    if spec.mutant and spec.strategy == "complete" and spec.expected_rule != "FL017"
}
"""But for those that no crash is needed for: they have no crash state."""


def marked(keys: Iterator[tuple[str, str]]) -> list[object]:
    return [
        pytest.param(*key, id="-".join(key), marks=[] if key in EACH_TIME else [pytest.mark.nightly]) for key in keys
    ]


@pytest.fixture(scope="module")
def workshop(scripts: Path) -> Workshop:
    return Workshop(ROOT, Cache(ROOT / ".faultline"), Engine(scripts / "faultline-engine"))


@pytest.fixture(scope="module")
def witness(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """witness(allocator, mutant): the finding of the mutant's own rule, and what is left of it; shrunk once a run."""

    @remembered
    def of(allocator: str, mutant: str) -> tuple[Finding, Shrunk]:
        finding = found(workshop, MUTANTS[allocator, mutant], tmp_path_factory.mktemp("shrinking"))
        _, shrunk = replay.shrink_token(workshop, finding.token, Budget(LIMIT_S, EXPLORATIONS))
        return finding, shrunk

    return of


def found(workshop: Workshop, spec: CellSpec, folder: Path) -> Finding:
    results = Results(folder / "results.sqlite")
    [result] = run_cells(workshop, results, "matrix", [spec], 1, SilentWatcher())
    results.close()
    assert result.error is None, result.error
    return next(finding for finding in result.findings if finding.rule == spec.expected_rule)


def test_every_mutant_is_pinned() -> None:
    assert PINS.keys() == MUTANTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant"), marked(iter(PINS)))
def test_the_witness_of_a_mutant_is_as_small_as_it_was(witness, allocator: str, mutant: str) -> None:  # type: ignore[no-untyped-def]
    finding, shrunk = witness(allocator, mutant)
    operations, lines = PINS[allocator, mutant]
    assert shrunk.operations <= operations, shrunk.text()
    assert shrunk.state.lines <= lines, shrunk.text()
    assert shrunk.witness.id == finding.id
    cut = BOUNDS.get((allocator, mutant))
    assert [bound.endswith(cut or "") for bound in shrunk.bounds] == [True] * (cut is not None), shrunk.text()
    assert (shrunk.state.lines, shrunk.state.floor_lines) <= (
        shrunk.state_before.lines,
        shrunk.state_before.floor_lines,
    )


@pytest.mark.slow
def test_a_witness_replays_by_its_token_and_is_found_again(witness, faultline: Faultline) -> None:  # type: ignore[no-untyped-def]
    """To the letter: shrinking is a function of the finding."""
    finding, shrunk = witness("nvm_malloc", "RECOVERY_FORGETS_FREE")
    again = faultline("replay", shrunk.witness.token, "--json")
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["findings"][0]["id"] == finding.id
    told = faultline("shrink", finding.token, "--json", "--time", LIMIT_S)
    assert told.returncode == 1, told.stderr
    assert json.loads(told.stdout) == json.loads(msgspec.json.encode(shrunk))
    smallest = faultline("shrink", shrunk.witness.token, "--json", "--time", LIMIT_S)
    assert json.loads(smallest.stdout)["workload"] == shrunk.workload


@pytest.mark.slow
def test_of_many_lost_lines_those_that_matter_are_left(witness, workshop: Workshop) -> None:  # type: ignore[no-untyped-def]
    """A token of a later position, where nothing is persisted that is not guaranteed: six lines are lost, and one matters."""
    finding, _ = witness("nvm_malloc", "MISSING_FLUSH_LINK")
    later = changed(workshop, finding.token, position=finding.position + 40, from_newest=False, lines=[])
    state = smallest_state(workshop, later)
    assert state.before.lines > state.after.lines == 1
    assert state.after.position == finding.position, "the first one at which it shows"
    assert state.after.floor_lines <= state.before.floor_lines
    assert state.bounds_hit == []


@pytest.mark.slow
def test_a_limit_of_recoveries_is_said_and_keeps_the_state(witness, workshop: Workshop) -> None:  # type: ignore[no-untyped-def]
    finding, _ = witness("nvm_malloc", "MISSING_FLUSH_LINK")
    later = changed(workshop, finding.token, position=finding.position + 40, from_newest=False, lines=[])
    state = smallest_state(workshop, later, recovery_limit=1)
    assert state.after == state.before
    assert state.bounds_hit == ["not all smaller crash states were tried: limit of 1 recoveries"]


def smallest_state(workshop: Workshop, token: str, recovery_limit: int = 20_000) -> ShrunkState:
    """As the engine has it of the token's own trace."""
    opened = replay._open(workshop, token, needs_hooks=False)
    seen: list[Event] = []
    with scratch_folder(workshop.cache) as folder:
        config = write_config(folder, opened.cell.with_spec(recovery_limit=recovery_limit))
        workshop.engine.events(["shrink", str(config), "--token", token], seen.append)
    [state] = [event for event in seen if isinstance(event, ShrunkState)]
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trace_hash": "ab" * 32}, "the trace differs"),
        ({"allocator": "makalu"}, "MISSING_FLUSH_LINK"),
        ({"workload": "file:0123456789abcdef"}, "not in the cache"),
        ({"position": 1 << 30}, "is not in the trace"),
        ({"rule": "FL009"}, "the token is of FL009, and this run of its crash state shows FL004"),
    ],
)
def test_a_token_of_something_else_is_bad_input(
    witness, workshop: Workshop, faultline: Faultline, changes: dict[str, Any], words: str
) -> None:  # type: ignore[no-untyped-def]
    _, shrunk = witness("nvm_malloc", "MISSING_FLUSH_LINK")
    run = faultline("shrink", changed(workshop, shrunk.witness.token, **changes))
    assert_one_clear_line(run, 2, words)


def changed(workshop: Workshop, token: str, **changes: Any) -> str:
    """The token with other fields (crashgen/src/token.rs)."""
    fields = {**json.loads(workshop.engine.ask("token", token)), **changes}
    assert fields["later"] == []
    raw = b""
    for name in ("rule", "allocator", "mutant", "workload", "flush", "model", "site"):
        raw += number(len(fields[name])) + fields[name].encode()
    for name in ("build", "trace_hash"):
        raw += number(len(fields[name]) << 1 | 1) + bytes.fromhex(fields[name])
    for name in ("ops", "seed", "position", "operation", "event_in_operation", "from_newest"):
        raw += number(int(fields[name]))
    raw += number(len(fields["lines"]))
    for line in fields["lines"]:
        raw += b"".join(number(line[name]) for name in ("file", "number", "ordered", "floating"))
    sealed = raw + zlib.crc32(raw).to_bytes(4, "little")
    return "fl1." + base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def number(value: int) -> bytes:
    """LEB128."""
    low = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return low + number(value >> 7) if value > 0x7F else low


# ---- brute force ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant"), marked(iter(BRUTE_FORCE)))
def test_no_smaller_workload_shows_it(witness, workshop: Workshop, allocator: str, mutant: str) -> None:  # type: ignore[no-untyped-def]
    """Every workload of fewer operations of these sizes, explored to its end: the finding is in none."""
    finding, shrunk = witness(allocator, mutant)
    smaller = shorter_than(shrunk.operations, *BRUTE_FORCE[allocator, mutant])
    spec = msgspec.structs.replace(MUTANTS[allocator, mutant], stop_at_rule=None, workload=f"file:{smaller.key}", ops=0)
    cell = replay._open(workshop, finding.token, needs_hooks=True).cell.with_workload(spec, smaller)
    seen: list[Event] = []
    explore(cell, seen.append)
    [*_, certificate] = [event for event in seen if isinstance(event, Certificate)]
    assert certificate.complete, certificate.why
    assert finding.id not in {event.id for event in seen if isinstance(event, Finding)}
    assert shrunk.is_fewest or shrunk.operations > 2, "of three it does not try all, where objects are large"


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant"), marked(key for key in BRUTE_FORCE if PINS[key][1]))
def test_a_lost_line_is_needed(witness, workshop: Workshop, allocator: str, mutant: str) -> None:  # type: ignore[no-untyped-def]
    """Where every store persists at once, nothing in the smallest workload breaks the rule."""
    _, shrunk = witness(allocator, mutant)
    opened = replay._open(workshop, shrunk.witness.token, needs_hooks=True)
    seen: list[Event] = []
    explore(opened.cell.with_spec(strategy="complete", model="strict"), seen.append)
    [*_, certificate] = [event for event in seen if isinstance(event, Certificate)]
    assert certificate.complete, certificate.why
    assert MUTANTS[allocator, mutant].expected_rule not in {event.rule for event in seen if isinstance(event, Finding)}


def shorter_than(operations: int, layout: str, sizes: list[int]) -> Workload:
    """A case for each well-formed sequence of fewer operations, by trying them all."""
    slots = range(max(1, operations - 1))
    alphabet = ["reopen"]
    alphabet += [f"{kind} {slot} {size}" for kind in ("allocate", "reallocate") for slot in slots for size in sizes]
    alphabet += [f"free {slot}" for slot in slots]
    cases = [case for length in range(operations) for case in product(alphabet, repeat=length) if is_case(case)]
    return parsed([line for case in cases for line in ("case", *case)], layout)


def is_case(lines: tuple[str, ...]) -> bool:
    with contextlib.suppress(BadInputError):
        parsed(["case", *lines])
        return True
    return False


def parsed(lines: list[str], layout: str = "root") -> Workload:
    return file_format.parse("\n".join(["workload 1", f"slots 4 {layout}", *lines]) + "\n", "brute force")
