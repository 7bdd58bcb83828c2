# SPDX-License-Identifier: Apache-2.0
"""The docs hold together: what a page or a source refers to is in the repository, and every page can be reached from README.md."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PAGE = re.compile(r"(?<![\w./-])((?:\.\./|[\w.-]+/)*[\w-]+\.md)\b")
OUTSIDE = re.compile(r"\bDESIGN\b|\bSTYLE\.md\b")
SOURCE = re.compile(r"`((?:harness|include|runner|allocators|pintools|crashgen|oracle|ci|fuzz|docs)/[\w./-]+)`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

HISTORY = ("CHANGELOG.md",)
"""What it names was there when it was written."""
WRITTEN_ELSEWHERE = ("out/",)
"""Where campaigns write."""


def tracked(root: Path) -> list[str]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in names.split("\0") if name and (root / name).is_file()]


@functools.cache
def texts(root: Path) -> list[tuple[str, str]]:
    """Every text file but inputs of the fuzzers, recorded outputs, and this file, whose samples name pages that are not there."""
    found = []
    for name in tracked(root):
        if name.startswith(("fuzz/corpus/", "harness/tests/snapshots/")) or name == "harness/tests/cover/test_docs.py":
            continue
        content = (root / name).read_bytes()
        if b"\0" not in content:
            found.append((name, content.decode("utf-8")))
    return found


def anchors(page: str) -> set[str]:
    """As GitHub makes them of headings."""
    titles = (
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(FENCE.sub("", page))
    )
    return set(titles)


def is_there(root: Path, name: str, target: str) -> bool:
    """Whether the page `name` finds `target` beside itself or from the root."""
    return any((folder / target).exists() for folder in (root, (root / name).parent))


def broken_links(root: Path, name: str, text: str) -> list[str]:
    broken = []
    for link in LINK.findall(text) if name.endswith(".md") else []:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        page = (root / name).parent / path if path else root / name
        if not page.exists() or (anchor and anchor not in anchors(page.read_text(encoding="utf-8"))):
            broken.append(f"{name}: {link}")
    return broken


def missing_pages(root: Path, name: str, text: str) -> list[str]:
    words = LINK.sub("", text).replace('" / "', "/")  # Python joins paths so
    pages = (page for page in PAGE.findall(words) if not page.startswith(WRITTEN_ELSEWHERE))
    return [f"{name}: {page}" for page in pages if not is_there(root, name, page)]


def pages_outside(_root: Path, name: str, text: str) -> list[str]:
    return [f"{name}: {page}" for page in OUTSIDE.findall(text)]


def missing_sources(root: Path, name: str, text: str) -> list[str]:
    """Paths of this repository in code font. Capitals stand for a name (allocators/NAME)."""
    if not name.endswith(".md") or name in HISTORY:
        return []
    paths = (
        path
        for path in SOURCE.findall(text)
        if not any(part.partition(".")[0].isupper() for part in PurePosixPath(path).parts)
    )
    return [f"{name}: {path}" for path in paths if not (root / path).exists()]


Check = Callable[[Path, str, str], list[str]]


@pytest.mark.parametrize("check", [broken_links, missing_pages, pages_outside, missing_sources])
def test_what_docs_and_sources_refer_to_is_in_the_repository(root: Path, check: Check) -> None:
    assert [wrong for name, text in texts(root) for wrong in check(root, name, text)] == []


def test_every_page_can_be_reached_from_the_readme(root: Path) -> None:
    pages = {name for name in tracked(root) if name.startswith("docs/") and name.endswith(".md")}
    reached, todo = {"README.md"}, ["README.md"]
    while todo:
        name = todo.pop()
        for link in LINK.findall((root / name).read_text(encoding="utf-8")):
            path = (root / name).parent / link.partition("#")[0]
            if path.suffix != ".md" or not path.is_file():
                continue
            page = path.resolve().relative_to(root.resolve()).as_posix()
            if page not in reached:
                reached.add(page)
                todo.append(page)
    assert sorted(pages - reached) == []


def test_the_readme_has_every_command(root: Path, faultline: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    said = faultline("--help").stdout
    commands = re.findall(r"^  ([a-z]+) +[A-Z]", said[said.index("Commands:") :], re.MULTILINE)
    assert len(commands) >= 14
    rows = "\n".join(re.findall(r"^\| .*", (root / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert [command for command in commands if not re.search(rf"`faultline {command}\b", rows)] == []


def test_the_page_on_concepts_explains_every_word(root: Path) -> None:
    page = (root / "docs" / "concepts.md").read_text(encoding="utf-8")
    words = """persistency model, event, unit, line, floor, cut, crash position, crash state, crash image, recovery, history,
        pending, generation, life, probe script, oracle, contract, verdict, pass, fail, unknown, incomplete, finding, witness,
        token, campaign, mutant, twin, certificate, transaction"""
    marked = re.findall(r"\*\*[^*]+\*\*|\*\w+\*|^\| \w+ \|", page, re.MULTILINE)  # bold, italic, first cell of a row
    explained = {word.strip("*|. ").lower() for word in marked}
    assert [word for word in " ".join(words.split()).split(", ") if word not in explained] == []


def number(text: str) -> float:
    """The number that a constant is defined as: 20_000, 1 << 16, 10000000u, (1u << 20), 60.0."""
    base, _, shift = re.sub(r"(?<=\d)(?:u|ull|ULL)\b|[()_ ]", "", text).partition("<<")
    return int(base) << int(shift) if shift else float(base)


@functools.cache
def definitions(root: Path) -> dict[str, set[float]]:
    """Of each constant that is a number, what it is: more than one value where several files have that name."""
    found: dict[str, set[float]] = {}
    value = r"(\(?[0-9][0-9_.]*(?:u|ull)?(?: *<< *[0-9]+)?\)?)"
    line = re.compile(
        rf"^ *(?:pub(?:\(\w+\))? )?(?:const |#define )?([A-Z][A-Z_]+)(?:: \w+)? (?:= )?{value}(?:;| */\*.*|)$",
        re.MULTILINE,
    )
    for name, text in texts(root):
        if name.endswith((".rs", ".py", ".c", ".h")):
            for constant, defined in line.findall(text):
                found.setdefault(constant, set()).add(number(defined))
    return found


def test_the_page_on_limits_has_the_values_of_the_source(root: Path) -> None:
    page = (root / "docs" / "limits.md").read_text(encoding="utf-8")
    defined = definitions(root)
    rows = [
        row.strip("| ").split(" | ")
        for row in page.splitlines()
        if row.startswith("| ") and re.search(r"`[A-Z]+_?[A-Z_]+`", row)
    ]
    assert len(rows) >= 18
    wrong = []
    for row in rows:
        constants = [word for cell in row for word in re.findall(r"`([A-Z][A-Z_]+)`", cell)]
        said = {float(word.replace(",", "")) for word in re.findall(r"(?<![\w`])\d[\d,]*\b(?!-)", row[1])}
        wrong += [(name, said, defined.get(name)) for name in constants if not said & defined.get(name, set())]
    assert wrong == []


@pytest.mark.parametrize(
    ("row", "constant"),
    [
        ("baseline, results.json", "BASELINE_VERSION"),
        ("baseline, results.json", "RESULTS_VERSION"),
        ("database (results.sqlite)", "SCHEMA_VERSION"),
        ("trace", "FL_TRACE_VERSION"),
        ("heap report", "FL_REPORT_VERSION"),
        ("runner's protocol", "FL_PROTOCOL_VERSION"),
        ("adapter ABI", "FL_ADAPTER_ABI"),
    ],
)
def test_the_changelog_has_the_versions_of_the_formats(root: Path, row: str, constant: str) -> None:
    page = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    said = re.search(rf"^\| {re.escape(row)} \| (\d+) \|", page, re.MULTILINE)
    assert said, f"CHANGELOG.md has no row `{row}` with a version"
    assert float(said[1]) in definitions(root)[constant], f"CHANGELOG.md says version {said[1]} of {row}"


@pytest.mark.parametrize(
    ("check", "text", "wrong"),
    [
        (broken_links, "[a](missing.md)", "missing.md"),
        (broken_links, "[a](docs/wear.md#no-such-heading)", "docs/wear.md#no-such-heading"),
        (broken_links, "[a](#no-such-heading)", "#no-such-heading"),
        (missing_pages, "// see docs/missing.md", "docs/missing.md"),
        (missing_pages, "(notes/missing.md, its end)", "notes/missing.md"),
        (pages_outside, "as DESIGN section 3 says", "DESIGN"),
        (pages_outside, "STYLE.md has it", "STYLE.md"),
        (missing_sources, "`harness/missing.py`", "harness/missing.py"),
    ],
)
def test_a_reference_to_nothing_is_noticed(root: Path, check: Check, text: str, wrong: str) -> None:
    assert check(root, "README.md", text) == [f"README.md: {wrong}"]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (broken_links, "[a](docs/wear.md#what-is-counted) [b](https://example.org/missing.md)"),
        (missing_pages, "docs/wear.md, wear.mdx, out/report/README.md"),
        (pages_outside, "docs/notes/exploring.md, DESIGNED"),
        (missing_sources, "`allocators/NAME/allocator.toml`, `crashgen/src/model`, `allocators/*/src`"),
    ],
)
def test_a_good_reference_is_left_alone(root: Path, check: Check, text: str) -> None:
    assert check(root, "README.md", text) == []
