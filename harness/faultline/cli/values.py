# SPDX-License-Identifier: Apache-2.0
"""What options take: paths that name something, and seconds that end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click


class _PathValue(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value) or "\0" in str(value):
            self.fail("an empty name, or one with a null byte, names no file", param, ctx)
        try:
            str(value).encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is no UTF-8, in which results are written", param, ctx)
        return super().convert(value, param, ctx)


class _SecondsValue(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return seconds


PATH = _PathValue(path_type=Path)
SECONDS = _SecondsValue(0, min_open=True)
