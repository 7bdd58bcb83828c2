# SPDX-License-Identifier: Apache-2.0
"""What options take: paths that name something, seconds that end, and addresses that a browser opens."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import click

from faultline.base.config import FirstCrash, Start

MOST_OPERATIONS = 1 << 24
"""Object ids have 24 bits, and each operation has one."""


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


class _FirstCrashValue(click.ParamType[FirstCrash]):
    name = "|".join([*get_args(Start), "operation"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FirstCrash:
        if value in get_args(Start):
            return cast(Start, value)
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and 0 < int(value) < MOST_OPERATIONS):
            self.fail(
                f"{value!r} is neither of {', '.join(get_args(Start))}, nor the number of an operation from 1 on",
                param,
                ctx,
            )
        return int(value)


class _UrlValue(click.types.StringParamType):
    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        try:
            parts = urlsplit(text)
        except ValueError:  # what looks like an address of IPv6 and is none
            parts = urlsplit("")
        is_whole = parts.scheme in ("http", "https") and bool(parts.netloc)
        if text and not (is_whole and re.fullmatch(r"[!-~]+", text)):
            self.fail(f"{text!r}: expected an address that begins with https://", param, ctx)
        return text


URL = _UrlValue()
PATH = _PathValue(path_type=Path)
FIRST_CRASH = _FirstCrashValue()
SECONDS = _SecondsValue(0, min_open=True)
