# SPDX-License-Identifier: Apache-2.0
"""What a shell offers for allocators, mutants and workloads, beside files. Where faultline.toml or an allocator.toml cannot be read
it offers files alone: the command that is run says what is wrong."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from faultline.base.cache import project_root
from faultline.base.config import Allocator
from faultline.base.errors import FaultlineError
from faultline.base.project import Project, find_project, looks_like_path
from faultline.workload import catalogue

FILE = CompletionItem("", type="file")
"""The shell offers its files."""


def allocators(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names, the project's own first; or the path of a folder."""
    try:
        project = _project()
        names = dict.fromkeys([*project.names(), *project.built_in()])
    except FaultlineError:
        return [FILE]
    return [CompletionItem(name) for name in names if name.startswith(begun)] or [FILE]


def mutants(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Of the allocator that stands before."""
    allocator = _allocator(context)
    if allocator is None:
        return []
    return [CompletionItem(one.id, help=one.summary) for one in allocator.mutant if one.id.startswith(begun)]


def workloads(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Generators, or the path of a workload file."""
    found = catalogue.GENERATORS.items()
    return [CompletionItem(name, help=what) for name, what in found if name.startswith(begun)] or [FILE]


def _project() -> Project:
    return find_project(Path.cwd(), project_root())


def _allocator(context: click.Context) -> Allocator | None:
    """An option that waits for its value leaves the arguments before it as they are."""
    said = context.params
    names: list[str] = [said["allocator"]] if said.get("allocator") else list(said.get("allocators") or context.args)
    if len(names) != 1:
        return None
    try:
        project = _project()
        return project.with_path(names[0])[1] if looks_like_path(names[0]) else project.get(names[0])
    except FaultlineError:
        return None
