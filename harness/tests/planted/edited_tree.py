# SPDX-License-Identifier: Apache-2.0
"""A copy of the tree's sources that holds all planted faults, each behind a choice.

A text with `instead` becomes `if FAULT { instead } else { text }`, where FAULT asks whether this process has the fault. What asks
is added to the copy, too: a module `planted` at the root of each crate that is edited, a function of the runner."""

from __future__ import annotations

import fcntl
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planted.table import MARK, Edit, Table, TableError

VARIABLE = "FAULTLINE_PLANTED"
"""Names the fault that a process has. `site:FILE:LINE`: the place in the oracle that says nothing in this process."""

RUST_HELPER = """
/// Which fault this process has.
#[allow(missing_docs, dead_code)]
pub(crate) mod planted {
    use std::panic::Location;
    use std::sync::OnceLock;

    fn chosen() -> &'static str {
        static CHOSEN: OnceLock<String> = OnceLock::new();
        CHOSEN.get_or_init(|| std::env::var("FAULTLINE_PLANTED").unwrap_or_default())
    }

    pub fn is(fault: &str) -> bool {
        chosen() == fault
    }

    /// Whether the place in the source, `site:FILE:LINE`, says nothing.
    pub fn is_silent(place: &Location<'_>) -> bool {
        let Some(site) = chosen().strip_prefix("site:") else { return false };
        let file = place.file().rsplit('/').next().unwrap_or_default();
        *site == format!("{file}:{}", place.line())
    }
}
"""

C_DECLARATION = "_Bool planted(const char *fault);\n#line 1\n"
"""Needs no header: a source says which features it wants before it includes one."""

C_HELPER = {
    "runner/base/planted.c": """#include <stdlib.h>
#include <string.h>

_Bool planted(const char *fault);

_Bool planted(const char *fault) {
    const char *chosen = getenv("FAULTLINE_PLANTED");
    return chosen != NULL && strcmp(chosen, fault) == 0;
}
"""
}


def is_rust(file: str) -> bool:
    return file.endswith(".rs")


def chosen(edit: Edit) -> str:
    return f'crate::planted::is("{edit.fault}")' if is_rust(edit.file) else f'planted("{edit.fault}")'


def edited(file: str, source: str, edits: list[Edit]) -> str:
    """The source with all edits of the file. Each text is there once, and no two overlap unless they are the same."""
    by_text: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_text[edit.text].append(edit)
    places = sorted((place_of(file, source, text, same), text) for text, same in by_text.items())
    parts, end, before = [], 0, ""
    for at, text in places:
        if at < end:
            raise TableError(f"{file}: the texts of {names(by_text[before])} and {names(by_text[text])} overlap")
        parts += [source[end:at], replacement(text, by_text[text])]
        end, before = at + len(text), text
    return "".join([*parts, source[end:]])


def place_of(file: str, source: str, text: str, edits: list[Edit]) -> int:
    if (count := source.count(text)) != 1:
        raise TableError(f"{file}: the text of {names(edits)} is there {count} times, not once: {text!r}")
    return source.index(text)


def names(edits: list[Edit]) -> str:
    return ", ".join(edit.fault or "a shared edit" for edit in edits)


def replacement(text: str, edits: list[Edit]) -> str:
    [first, *others] = edits
    if first.template is not None:
        if others:
            raise TableError(f"{first.file}: {names(edits)} edit one text: expected instead, not with")
        return first.template.replace(MARK, chosen(first))
    is_statement = text.rstrip()[-1] in ";}"
    result = text
    for edit in reversed(edits):
        if edit.instead is None:
            raise TableError(f"{first.file}: {names(edits)} edit one text: expected instead, not with")
        if is_statement and is_rust(edit.file):
            result = f"if {chosen(edit)} {{ {edit.instead} }} else {{ {result} }}"
        elif is_statement:
            result = f"{{ if ({chosen(edit)}) {{ {edit.instead} }} else {{ {result} }} }}"
        elif is_rust(edit.file):
            result = f"(if {chosen(edit)} {{ {edit.instead} }} else {{ {result} }})"
        else:
            result = f"({chosen(edit)} ? ({edit.instead}) : ({result}))"
    return result


def crate_root(root: Path, file: str) -> str:
    """The source of the crate that the file belongs to."""
    for folder in Path(file).parents:
        if (root / folder / "Cargo.toml").is_file():
            found = [
                folder / "src" / name for name in ("lib.rs", "main.rs") if (root / folder / "src" / name).is_file()
            ]
            return found[0].as_posix()
    raise TableError(f"{file}: belongs to no crate")


def sources(root: Path) -> list[str]:
    """What git knows and what is new, without what is ignored or gone."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return sorted({file for file in run.stdout.split("\0") if file and (root / file).is_file()})


def edited_files(root: Path, table: Table) -> dict[str, str]:
    """Every file that is other in the copy than in the tree, with its text."""
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for edit in table.edits:
        by_file[edit.file].append(edit)
    texts: dict[str, str] = {}
    problems = []
    for file, edits in by_file.items():
        try:
            texts[file] = edited_file(root, file, edits)
        except TableError as error:
            problems.append(str(error))
    if problems:
        raise TableError("\n".join(problems))
    for crate in sorted({crate_root(root, file) for file in by_file if is_rust(file)}):
        texts[crate] = texts.get(crate, (root / crate).read_text()) + RUST_HELPER
    return texts | C_HELPER


def edited_file(root: Path, file: str, edits: list[Edit]) -> str:
    if not (root / file).is_file():
        raise TableError(f"{file}: {names(edits)} edit it, and it is not there")
    text = edited(file, (root / file).read_text(), edits)
    return text if is_rust(file) else C_DECLARATION + text


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The copy is one for all test processes of a clone."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write(root: Path, table: Table, copy: Path) -> None:
    """Makes or refreshes the copy. What has not changed keeps its time, so that a build after it is short."""
    texts = edited_files(root, table)
    wanted = set(texts)
    for file in sources(root):
        wanted.add(file)
        put(copy / file, texts[file].encode() if file in texts else (root / file).read_bytes())
    for file in texts:
        put(copy / file, texts[file].encode())
    for path in list(copy.rglob("*")):
        if path.is_file() and path.relative_to(copy).as_posix() not in wanted:
            path.unlink()


def put(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
