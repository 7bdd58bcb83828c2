# SPDX-License-Identifier: Apache-2.0
"""A matrix on many machines: shard I of N runs some of its cells, and `merge` makes one result of all shards.

Which cells a shard has is a function of the matrix, of N and of the costs, so that machines need not talk to each other. The cost
of a cell is the time that it took in the results given; one that is not in there costs as much as the others do on average. The
most costly cell comes first, each to the shard that has least to do (longest processing time first: Graham, SIAM J. Appl. Math.
1969)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from faultline.base.cache import key_of
from faultline.base.errors import BadInputError
from faultline.campaign.recorded import Recorded, cells_by_identity, identities_of
from faultline.campaign.results import CellResult
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment, Part, Repository


@dataclass(frozen=True)
class Shard:
    """Number index of count, from 1."""

    index: int
    count: int


def part_of(shard: Shard, specs: Sequence[CellSpec], costs: Iterable[CellResult] = ()) -> Part:
    """specs: of the whole matrix; costs: results of an earlier campaign."""
    key = key_of("shards", *(msgspec.json.encode(spec) for spec in specs))
    positions = [at for at, number in enumerate(_shared(_costs_of(specs, costs), shard.count)) if number == shard.index]
    return Part(shard.index, shard.count, key, len(specs), positions)


def _costs_of(specs: Sequence[CellSpec], costs: Iterable[CellResult]) -> list[float]:
    """Seconds, in the order of specs."""
    known = {
        identity: result.trace_s + result.explore_s
        for identity, result in cells_by_identity(costs).items()
        if result.is_explored
    }
    usual = sum(known.values()) / len(known) if known else 1.0
    return [known.get(identity, usual) for identity in identities_of(specs)]


def _shared(costs: Sequence[float], count: int) -> list[int]:
    """The number of its shard for each cell."""
    loads, sizes = [0.0] * count, [0] * count
    numbers = [0] * len(costs)
    for position in sorted(range(len(costs)), key=lambda at: (-costs[at], at)):
        number = min(range(count), key=lambda at: (loads[at], sizes[at], at))
        loads[number] += costs[position]
        sizes[number] += 1
        numbers[position] = number + 1
    return numbers


def merged(shards: Sequence[Recorded], command: str) -> tuple[list[CellResult], Environment]:
    """The results in the order of the matrix, as one machine would have them. command: what merges them.

    Raises BadInputError when they are not all shards of one matrix, each once and whole."""
    parts = _parts_of(shards)
    cells: dict[int, CellResult] = {}
    for shard, part in zip(shards, parts, strict=True):
        cells |= dict(zip(part.positions, shard.results, strict=True))
    return [cells[position] for position in sorted(cells)], _environment_of(shards, command)


def _parts_of(shards: Sequence[Recorded]) -> list[Part]:
    """Of each shard, in the order given, after checking that they are one matrix."""
    parts: list[Part] = []
    names: dict[int, str] = {}
    for shard in shards:
        part = _checked(shard)
        first = parts[0] if parts else part
        if (part.key, part.count) != (first.key, first.count):
            raise BadInputError(
                f"{shard.name}: is shard {part.name} of another matrix than {shards[0].name}, which is shard {first.name}",
                "merge the shards of one run: the same matrix, sources of workloads and N",
            )
        if part.index in names:
            raise BadInputError(
                f"{shard.name}: is shard {part.name}, as {names[part.index]} is", "name the folder of each shard once"
            )
        names[part.index] = shard.name
        parts.append(part)
    missing = [f"{number}/{parts[0].count}" for number in range(1, parts[0].count + 1) if number not in names]
    if missing:
        raise BadInputError(f"missing: shard {', '.join(missing)}", "name the folders of all shards")
    placed = sorted(position for part in parts for position in part.positions)
    if placed != list(range(parts[0].cells)):
        raise BadInputError(
            f"the {parts[0].count} shards do not have each of the {parts[0].cells} cells once",
            "run all shards with the same --costs, or all without",
        )
    return parts


def _checked(shard: Recorded) -> Part:
    part = shard.environment.part
    if part is None:
        raise BadInputError(f"{shard.name}: is no shard", "merge what `faultline matrix --shard I/N --out DIR` wrote")
    whole = sum(result.state == "done" for result in shard.results)
    if shard.state != "done" or whole < len(part.positions) or len(shard.results) != len(part.positions):
        raise BadInputError(
            f"{shard.name}: shard {part.name} was cut: {whole} of its {len(part.positions)} cells are whole",
            "run its command again, with the same --out: it goes on where it stopped",
        )
    return part


def _environment_of(shards: Sequence[Recorded], command: str) -> Environment:
    """What all agree on is said once."""
    environments = sorted((shard.environment for shard in shards), key=lambda one: one.part.index if one.part else 0)
    facts: dict[str, list[str]] = {}
    for environment in environments:
        for name, text in environment.facts.items():
            said = facts.setdefault(name, [])
            said += [text] if text not in said else []
    started = min((one.started_utc for one in environments if one.started_utc), default="")
    repositories: list[Repository] = []
    for environment in environments:
        repositories += [one for one in environment.repositories if one not in repositories]
    return Environment(command, started, {name: "; ".join(said) for name, said in facts.items()}, repositories)


def folder_of(out: Path, folders: Sequence[Path]) -> Path:
    """Where the merged reports go.

    Raises BadInputError when that is a shard's own folder: its database would hold two campaigns."""
    if any(out.resolve() == folder.resolve() for folder in folders):
        raise BadInputError(f"{out}: is the folder of a shard", "name another one with --out DIR")
    return out
