# SPDX-License-Identifier: Apache-2.0
"""NVMalloc's promises about headers (section 3.2 of its paper): each has a checksum, so a flip of one bit is noticed; the block is
given up, and the rest of the heap works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline


def headers(faultline: Faultline, allocator: str | Path, at_most: int, broken: set[str]) -> dict[str, Any]:
    ended = faultline("damage", allocator, "--at-most", str(at_most), "--json")
    assert ended.returncode == (1 if broken else 0), ended.stderr
    report = json.loads(ended.stdout)
    [kind] = [kind for kind in report["kinds"] if kind["promised"]]
    assert (kind["kind"], kind["promised"]) == ("header-flip", ["detected", "isolated"])
    assert {(one["kind"], one["promise"]) for one in report["broken"]} == {("header-flip", name) for name in broken}
    assert kind["tried"] > at_most
    return dict(kind)


@pytest.mark.slow
def test_the_promises_are_kept(faultline: Faultline) -> None:
    """Harmless: in a word that means nothing while the block is allocated (layout.h)."""
    found = headers(faultline, "nvmalloc", 700, set())
    assert set(found["outcomes"]) == {"detected", "harmless"}
    assert found["outcomes"]["detected"] > found["outcomes"]["harmless"]
    assert found["isolated"] == found["tried"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "old", "new", "broken"),
    [
        pytest.param(
            "header.c",
            "return nvmalloc_word_checksum(word) == checksum(line, lines, state, wait);",
            "return true;",
            {"detected", "isolated"},
            id="the checksum is not checked",
        ),
        pytest.param(
            "scan.c",
            "line = isolate(heap, line);",
            'return nvmalloc_fail(NVMALLOC_CORRUPT, "a header is damaged");',
            {"isolated"},
            id="open refuses the heap",
        ),
        pytest.param(
            "scan.c",
            "free(search.visited);",
            "free(search.visited); if (nvmalloc_is_correct(heap, end)) end += nvmalloc_word_lines(nvmalloc_word_at(heap, end));",
            {"isolated"},
            id="the next block is given up, too",
        ),
    ],
)
def test_an_allocator_that_does_less_breaks_them(
    root: Path, tmp_path: Path, faultline: Faultline, source: str, old: str, new: str, broken: set[str]
) -> None:
    folder = tmp_path / "lesser"
    shutil.copytree(root / "allocators/nvmalloc", folder)
    text = (folder / "src" / source).read_text()
    assert text.count(old) == 1
    (folder / "src" / source).write_text(text.replace(old, new))
    description = folder / "allocator.toml"
    description.write_text(description.read_text().replace('"nvmalloc"', '"lesser"', 1))
    headers(faultline, folder, 100, broken)
