# SPDX-License-Identifier: Apache-2.0
"""Runs many things at a time, in threads. Ctrl-C ends all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_in_pool(
    run: Callable[[Item], Result], stop: Callable[[], None], items: Sequence[Item], jobs: int
) -> list[Result]:
    """run of each item, `jobs` at a time, in their order. Ctrl-C calls stop, which makes those that are running end."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures: list[Future[Result]] = [pool.submit(run, item) for item in items]
        try:
            _wait_for_all(futures)
        except BaseException:
            for future in futures:  # before those that run are ended, else one of them makes room for a next
                future.cancel()
            stop()
            raise
    return [future.result() for future in futures]


def _wait_for_all(futures: list[Future[Result]]) -> None:
    """In short steps: a wait without limit would not let Ctrl-C through."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
