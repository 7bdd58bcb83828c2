# SPDX-License-Identifier: Apache-2.0
"""Libraries that an allocator is built with and that its system has to have (`packages` of allocator.toml), as pkg-config knows
them."""

from __future__ import annotations

import functools
import shutil
import subprocess

from faultline.base.cache import hint_to_install
from faultline.base.config import Allocator
from faultline.base.errors import BadInputError, InfrastructureError


def expect_packages(allocator: Allocator) -> None:
    """Raises: BadInputError where one is missing, or of another version; InfrastructureError without pkg-config."""
    lacking = missing(allocator)
    if lacking is not None:
        raise BadInputError(
            f"{allocator.folder}/allocator.toml: build.packages: {lacking}",
            hint_to_install(installed="install the library with its headers, in that version"),
        )


def missing(allocator: Allocator) -> str | None:
    """The first that is not there as it should be, and what is there; None: all are."""
    return next(filter(None, map(_lack_of, allocator.build.packages)), None)


@functools.cache
def _lack_of(package: str) -> str | None:
    if shutil.which("pkg-config") is None:
        raise InfrastructureError("pkg-config was not found on PATH", hint_to_install())
    name = package.split()[0]
    if _run("--exists", package) is not None:
        return None
    version = _run("--modversion", name)
    return f"expected {package}, found {f'version {version}' if version else 'none'}"


def _run(*words: str) -> str | None:
    """What pkg-config says; None: it fails."""
    run = subprocess.run(["pkg-config", *words], capture_output=True, text=True, errors="replace", check=False)
    return run.stdout.strip() if run.returncode == 0 else None
