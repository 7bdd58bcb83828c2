# SPDX-License-Identifier: Apache-2.0
"""A stand-in for faultline that explores nothing: for what a workflow does around it. It writes the files that later steps read,
and refuses what faultline refuses."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from faultline.report.comparison_texts import MARKER

OF_ANOTHER_VERSION = "old"
"""Results that this faultline cannot read."""
TEXT = """\
#!{python}
import sys
from pathlib import Path

def refused(what):
    print("error:", what, file=sys.stderr)
    sys.exit(2)

command, *words = sys.argv[1:]
if command == "report":
    before, after = (Path(words[words.index("--compare") + at], "results.json") for at in (1, 2))
    if before == after and before.is_file() and before.read_text() != {old!r}:
        sys.exit(0)
    if not before.is_file() or before.read_text() == {old!r}:
        refused(before)
    print({marker!r})
else:
    out = Path(words[words.index("--out") + 1])
    if command == "merge":
        shards = [Path(one, "results.json").read_text().split() for one in words[: words.index("--out")]]
        names = sorted(shard[shard.index("--shard") + 1] for shard in shards)
        if names != [f"{{number}}/{{len(names)}}" for number in range(1, len(names) + 1)]:
            refused(names)
        if len({{"--costs" in shard for shard in shards}}) != 1:
            refused("costs")
    if {codes!r}.get(command) == 2:
        refused(command)
    out.mkdir(parents=True)
    for name in ("results.json", "results.sarif", "junit.xml", "report.html"):
        (out / name).write_text(" ".join(words))
sys.exit({codes!r}.get(command, 0))
"""


def make(folder: Path, codes: Mapping[str, int]) -> Path:
    """The folder, with the program. codes: with which exit code each command ends."""
    folder.mkdir(exist_ok=True)
    text = TEXT.format(python=sys.executable, old=OF_ANOTHER_VERSION, marker=MARKER, codes=dict(codes))
    (folder / "faultline").write_text(text)
    (folder / "faultline").chmod(0o755)
    return folder
