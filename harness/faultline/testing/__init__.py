# SPDX-License-Identifier: Apache-2.0
"""faultline in the tests of those who use it: the pytest plugin (plugin.py), and programs for it. docs/pytest.md is its guide.

pytest imports this package at each start, in every project that has faultline installed. What takes time to import is therefore
imported where it is used first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultline.testing.outcomes import CrashConsistencyError, UndecidedError
    from faultline.testing.program import Program

__all__ = ["CrashConsistencyError", "Program", "UndecidedError"]

_MODULES = {"CrashConsistencyError": "outcomes", "UndecidedError": "outcomes", "Program": "program"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
