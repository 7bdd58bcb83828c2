# SPDX-License-Identifier: Apache-2.0
"""What every step of a campaign works with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from faultline.base.cache import Cache
from faultline.base.config import Allocator, read_allocator
from faultline.base.input_files import read_text
from faultline.base.project import Project
from faultline.pipeline.engine import Engine
from faultline.pipeline.tracers import DEFAULT_TRACER
from faultline.pipeline.tracers.tracer import Tracer


@dataclass(frozen=True)
class Workshop:
    root: Path
    """The installation: what runner, tracers and built-in allocators are built from."""
    cache: Cache
    engine: Engine
    heap_folder: Path | None = None
    """Where heaps lie while they are traced and explored."""
    explore_jobs: int = 1
    """Workers over the crash positions of one trace; what they find does not depend on how many there are."""
    tracer: Tracer = DEFAULT_TRACER
    given: Project | None = None
    """None: the built-in allocators."""

    @property
    def project(self) -> Project:
        return self.given or Project(self.root)

    def allocator(self, name: str) -> Allocator:
        """Of the project, built in, or one that was named by its path before, with this cache."""
        found = self.project.get(name)
        if found is not None:
            return found
        remembered = self._remembered(name)
        if not name.isidentifier() or not remembered.is_file():
            raise self.project.unknown(name)
        return read_allocator(Path(read_text(remembered)))

    def with_path(self, text: str) -> tuple[Workshop, Allocator]:
        """Knows the allocator of this path by its name, too. So do later commands: a token has no more than the name."""
        project, allocator = self.project.with_path(text)
        description = str(Path(allocator.folder) / "allocator.toml")
        self.cache.text_entry("allocators", allocator.name, description, fresh=True)
        return replace(self, given=project), allocator

    def _remembered(self, name: str) -> Path:
        return self.cache.folder / "allocators" / name
