# SPDX-License-Identifier: Apache-2.0
"""Where the files that findings name are in the user's repository: what CI shows beside a line is found by that.

Sites name files from the folder that a build was made in. Mostly this is the repository's top; where an allocator's own build takes
in sources from beside the repository, it is a folder above it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from faultline.pipeline.environment import Environment, SourcePlace
from faultline.pipeline.events import Site


@dataclass(frozen=True)
class Spot:
    """A place in a file. file: from the repository's top; with `..` in front, or from the root of the file system, where it lies
    outside. line: 0 where it is not known; is_of_faultline: the file is from the top of faultline's own sources."""

    file: str
    line: int = 0
    function: str = ""
    is_of_faultline: bool = False

    @property
    def is_inside(self) -> bool:
        """Whether the file is in the repository."""
        return not self.is_of_faultline and not self.file.startswith(("/", "../"))


@dataclass(frozen=True)
class Places:
    """sources: by allocator, as far as they are known; repository: the number of each allocator's, from 0."""

    sources: dict[str, SourcePlace]
    repository: dict[str, int]

    def spot(self, allocator: str, site: Site) -> Spot | None:
        """None: the site has no file."""
        if not site.file:
            return None
        source = self.sources.get(allocator)
        if source is not None and site.file.removeprefix("./").partition("/")[0] in source.of_faultline:
            return Spot(site.file, site.line or 0, site.function, is_of_faultline=True)
        file = posixpath.normpath(posixpath.join(source.tree if source else ".", site.file))
        return Spot(file, site.line or 0, site.function)

    def spots(self, allocator: str, sites: Iterable[Site]) -> list[Spot]:
        """Those of the sites that have files, each once. The first one is in the repository if any can be: where none of them is,
        it is the allocator's description, since CI shows nothing at a place that it does not have."""
        found = list(dict.fromkeys(spot for site in sites if (spot := self.spot(allocator, site))))
        inside = [spot for spot in found if spot.is_inside][:1]
        if not inside and allocator in self.sources:
            inside = [Spot(self.sources[allocator].description, 1)]
        return inside + [spot for spot in found if spot not in inside]


def places_of(environment: Environment) -> Places:
    numbered = [(number, place) for number, one in enumerate(environment.repositories) for place in one.places]
    return Places(
        {place.allocator: place for _, place in numbered}, {place.allocator: number for number, place in numbered}
    )
