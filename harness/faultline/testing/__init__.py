# SPDX-License-Identifier: Apache-2.0
"""faultline in the tests of those who use it: the pytest plugin (plugin.py), and programs for it. docs/pytest.md is its guide.

pytest imports this package at each start, in every project that has faultline installed. What takes time to import is therefore
imported where it is used first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from hypothesis import settings
    from hypothesis.strategies import SearchStrategy

    from faultline.testing.machine import ProgramMachine
    from faultline.testing.outcomes import CrashConsistencyError, UndecidedError
    from faultline.testing.program import Program

    machine_settings: settings
    native_settings: settings

__all__ = [
    "CrashConsistencyError",
    "Program",
    "ProgramMachine",
    "UndecidedError",
    "machine_settings",
    "native_settings",
    "programs",
    "sizes",
]

_MODULES = {
    "CrashConsistencyError": "outcomes",
    "Program": "program",
    "ProgramMachine": "machine",
    "UndecidedError": "outcomes",
    "machine_settings": "machine",
    "native_settings": "strategies",
}
_OF_HYPOTHESIS = ("machine", "strategies")
"""Modules that need it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] in _OF_HYPOTHESIS:
        _check_hypothesis(name)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def programs(allocator: str | os.PathLike[str], most_operations: int = 10) -> SearchStrategy[Program]:
    """A strategy of Hypothesis: programs of up to so many operations, of all kinds that the allocator's adapter can. allocator: a
    name, or a path that lies beside the file that calls this. The allocator is built when the first program is drawn.

    Raises ImportError without Hypothesis."""
    strategies = _strategies("programs")
    return strategies.programs(allocator, _folder_of_caller(), most_operations)  # type: ignore[no-any-return]


def sizes(allocator: str | os.PathLike[str]) -> SearchStrategy[int]:
    """A strategy of Hypothesis: bytes of objects, often at a boundary between two of the allocator's paths of allocation. As
    programs otherwise."""
    return _strategies("sizes").sizes(allocator, _folder_of_caller())  # type: ignore[no-any-return]


def _folder_of_caller() -> Path:
    return Path(sys._getframe(2).f_code.co_filename).absolute().parent


def _strategies(asked: str) -> Any:
    _check_hypothesis(asked)
    from faultline.testing import strategies

    return strategies


def _check_hypothesis(asked: str) -> None:
    try:
        import hypothesis  # noqa: F401
    except ModuleNotFoundError:
        raise ImportError(
            f"faultline.testing.{asked} needs Hypothesis, which is not installed: pip install hypothesis"
        ) from None
