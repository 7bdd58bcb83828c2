# SPDX-License-Identifier: Apache-2.0
"""What options take: paths, seconds, where power fails first, shards, clusters, and addresses that a browser opens."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import click

from faultline.base.config import Start, StartPoint
from faultline.campaign.shards import Shard
from faultline.campaign.where import Where

MOST_OPERATIONS = 1 << 24
"""Object ids have 24 bits, and each operation has one."""
MOST_SHARDS = 1_000
MOST_WORKERS = 256
"""Of --cluster local:N."""
SCHEDULER = re.compile(r"(?:tcp|tls|wss?)://(?:[^\s/:@\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")
"""Addresses that Dask takes."""


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


class _StartValue(click.ParamType[StartPoint]):
    name = "|".join([*get_args(Start), "operation"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StartPoint:
        if value in get_args(Start):
            return cast(Start, value)
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and 0 < int(value) < MOST_OPERATIONS):
            self.fail(
                f"{value!r} is neither of {', '.join(get_args(Start))}, nor the number of an operation from 1 on",
                param,
                ctx,
            )
        return int(value)


class _ShardValue(click.types.StringParamType):
    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, Shard):
            return value
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", str(value))
        index, count = map(int, found.groups()) if found else (0, 0)
        if not 1 <= index <= count <= MOST_SHARDS:
            self.fail(f"{str(value)!r}: expected I/N, such as 1/4, with 1 <= I <= N <= {MOST_SHARDS}", param, ctx)
        return Shard(index, count)


class _ClusterValue(click.types.StringParamType):
    name = "cluster"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, Where):
            return value
        local = re.fullmatch(r"local:([0-9]{1,4})", str(value))
        workers = int(local[1]) if local else 0
        is_address = SCHEDULER.fullmatch(str(value))
        if not is_address and not 1 <= workers <= MOST_WORKERS:
            self.fail(f"{str(value)!r}: expected tcp://HOST:PORT, or local:N with 1 <= N <= {MOST_WORKERS}", param, ctx)
        return Where(str(value)) if is_address else Where(workers=workers)


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


START = _StartValue()
PATH = _PathValue(path_type=Path)
SECONDS = _SecondsValue(0, min_open=True)
SHARD = _ShardValue()
CLUSTER = _ClusterValue()
URL = _UrlValue()
