# SPDX-License-Identifier: Apache-2.0
"""What an earlier campaign left: read from its folder, its database or its results.json, and left as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from faultline.base.errors import BadInputError, InfrastructureError, one_line
from faultline.base.input_files import read_input
from faultline.campaign.results import RESULTS_VERSION, CellResult, Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment

DATABASE_NAME = "results.sqlite"
DOCUMENT_NAME = "results.json"
HINT = "name the folder that `faultline matrix --out DIR` wrote, or its results.json"


@dataclass(frozen=True)
class Recorded:
    """state: how the campaign ended."""

    name: str
    state: str
    results: list[CellResult]
    environment: Environment


Identity = tuple[Hashable, ...]


def cells_by_identity(results: Iterable[CellResult]) -> dict[Identity, CellResult]:
    """By what makes a cell the same one in two campaigns (limits do not)."""
    results = list(results)
    return dict(zip(identities_of([result.spec for result in results]), results, strict=True))


def identities_of(specs: Sequence[CellSpec]) -> list[Identity]:
    """Equal cells are told apart by their order."""
    seen: Counter[Identity] = Counter()
    found: list[Identity] = []
    for spec in specs:
        identity = (spec.name, spec.strategy, spec.nested, spec.follow_up)
        found.append((*identity, seen[identity]))
        seen[identity] += 1
    return found


def read_recorded(path: Path) -> Recorded:
    """Raises BadInputError when nothing is there, or what is there is of another version or something else."""
    name = one_line(str(path))
    try:
        if path.is_dir():
            there = [path / one for one in (DATABASE_NAME, DOCUMENT_NAME) if (path / one).is_file()]
            if not there:
                raise BadInputError(f"{name}: holds no results: neither {DATABASE_NAME} nor {DOCUMENT_NAME}", HINT)
            path = there[0]
        return _of_document(path, name) if path.suffix == ".json" else _of_database(path, name)
    except OSError as error:  # a name that is too long, a folder that nobody may look into
        raise BadInputError(f"{name}: cannot be read: {error.strerror}", HINT) from error


def _of_database(path: Path, name: str) -> Recorded:
    if not path.exists():
        raise BadInputError(f"{name}: is not there", HINT)
    results = Results.of_before(path)
    try:
        state, cells = results.read()
        return Recorded(name, state, cells, results.environment())
    except InfrastructureError as error:  # it was cut, or something else is in its tables
        raise BadInputError(f"{name}: is not a whole results database: {error.message}", HINT) from error
    finally:
        results.close()


def _of_document(path: Path, name: str) -> Recorded:
    text = read_input(path, HINT)
    try:
        document: Any = msgspec.json.decode(text)
        version = document["version"]
        if version == RESULTS_VERSION:
            cells = msgspec.convert(document["cells"], list[CellResult])
            environment = msgspec.convert(document["environment"], Environment)
            return Recorded(name, str(document["state"]), cells, environment)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, RecursionError) as error:
        raise BadInputError(f"{one_line(str(path))}: is no results.json: {error}", HINT) from error
    raise BadInputError(
        f"{one_line(str(path))}: a results.json of version {version}, expected {RESULTS_VERSION}: its findings have other ids",
        "run that campaign again with this faultline",
    )
