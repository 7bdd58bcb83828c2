# SPDX-License-Identifier: Apache-2.0
"""NVMalloc's write protection (section 4 of its paper): between operations no store of the application reaches the heap where
nobody said that he stores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline

KIND = "open-stray-store"


def stray_stores(faultline: Faultline, allocator: str | Path, code: int, at_most: int = 100) -> dict[str, Any]:
    ended = faultline("damage", allocator, "--at-most", str(at_most), "--json")
    assert ended.returncode == code, ended.stderr
    report = json.loads(ended.stdout)
    assert {one["kind"] for one in report["broken"]} == ({KIND} if code else set())
    assert report["why_unknown"] == []
    return {one["kind"]: one for one in report["kinds"]}[KIND]


def test_a_protected_heap_keeps_all_stray_stores_out(faultline: Faultline) -> None:
    found = stray_stores(faultline, "nvmalloc_protected", 0)
    assert found["promised"] == ["detected"]
    assert found["outcomes"] == {"kept-out": found["tried"]}
    assert found["tried"] > 100


def test_a_heap_that_is_not_protected_keeps_none_out(faultline: Faultline) -> None:
    found = stray_stores(faultline, "nvmalloc", 0)
    assert found["promised"] == []
    assert "kept-out" not in found["outcomes"]
    assert set(found["outcomes"]) >= {"detected", "silent"}


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        pytest.param(
            "heap.c",
            """    if (status == NVMALLOC_OK && options->is_protected)
        status = nvmalloc_begin_protection(opened);
""",
            "",
            id="only a new heap is protected",
        ),
        pytest.param(
            "protection.c",
            "change(heap, 0, pages_of(heap), PROT_READ) != 0",
            "change(heap, 1, pages_of(heap) - 1, PROT_READ) != 0",
            id="the first page is not protected",
        ),
        pytest.param(
            "protection.c",
            "if (--heap->protection.storing[page] == 0 && heap->protection.is_on && change(heap, page, 1, PROT_READ) != 0)",
            "if (--heap->protection.storing[page] == UINT32_MAX && change(heap, page, 1, PROT_READ) != 0)",
            id="what was stored to is not protected again",
        ),
    ],
)
def test_an_allocator_that_protects_less_breaks_the_promise(
    root: Path, tmp_path: Path, faultline: Faultline, source: str, old: str, new: str
) -> None:
    for name in ("nvmalloc", "nvmalloc_protected"):
        shutil.copytree(root / "allocators" / name, tmp_path / name)
    path = tmp_path / "nvmalloc/src" / source
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    description = tmp_path / "nvmalloc_protected/allocator.toml"
    description.write_text(description.read_text().replace('"nvmalloc_protected"', '"lesser"', 1))
    found = stray_stores(faultline, tmp_path / "nvmalloc_protected", 1)
    assert set(found["outcomes"]) & {"silent", "dies"}
