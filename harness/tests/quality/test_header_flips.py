# SPDX-License-Identifier: Apache-2.0
"""NVMalloc's promise about headers (section 3.2 of its paper): each has a checksum, so a flip of one bit is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from command_line import Faultline

CHECK = "return nvmalloc_word_checksum(word) == checksum(line, lines, state, wait);"


def headers(faultline: Faultline, allocator: str | Path, code: int) -> dict[str, Any]:
    ended = faultline("damage", allocator, "--at-most", "700", "--json")
    assert ended.returncode == code, ended.stderr
    report = json.loads(ended.stdout)
    [kind] = [kind for kind in report["kinds"] if kind["is_promised"]]
    assert {one["kind"] for one in report["broken"]} == ({"header-flip"} if code else set())
    assert kind["tried"] > 1000
    return dict(kind["outcomes"])


def test_the_promise_is_kept(faultline: Faultline) -> None:
    """Harmless: in a word that means nothing while the block is allocated (layout.h)."""
    found = headers(faultline, "nvmalloc", 0)
    assert set(found) == {"detected", "harmless"}
    assert found["detected"] > found["harmless"]


def test_without_the_check_of_the_checksum_it_is_broken(root: Path, tmp_path: Path, faultline: Faultline) -> None:
    folder = tmp_path / "unchecked"
    shutil.copytree(root / "allocators/nvmalloc", folder)
    source = folder / "src/header.c"
    text = source.read_text()
    assert text.count(CHECK) == 1
    source.write_text(text.replace(CHECK, "return true;"))
    description = folder / "allocator.toml"
    description.write_text(description.read_text().replace('"nvmalloc"', '"unchecked"', 1))
    assert headers(faultline, folder, 1)["silent"] > 0
