# SPDX-License-Identifier: Apache-2.0
"""Where a recovery dies of a signal or hangs (runner/signals/deaths.c)."""

from __future__ import annotations

import signal
import subprocess

import pytest

from loads.access_targets import Started
from loads.server import FULL, IN_PROCESS, LOADS, Death

DONE, SIGNAL, HUNG, EXITED = 0, 1, 2, 3
NOTHING, FILE, BEHIND, BEFORE, NEAR_NULL, UNMAPPED, NOT_CANONICAL = range(7)
BUSY = 1


def functions(death: Death) -> list[str]:
    """Of the target, innermost first, as far as they are not inlined."""
    names = []
    for path, offset in death.calls:
        command = ["addr2line", "-f", "-i", "-e", path, hex(offset)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        names += said[::2]
    return names


@pytest.mark.parametrize("is_hooked", [True, False])
@pytest.mark.parametrize(
    ("access", "number", "touched", "offset"),
    [
        ("crash", signal.SIGSEGV, NEAR_NULL, 4096),
        ("store_past_the_end", signal.SIGSEGV, BEHIND, 0),
        ("load_before_the_start", signal.SIGSEGV, BEFORE, 8),
        ("load_cut", signal.SIGBUS, FILE, 65536 - 64),
        ("follow_content", signal.SIGSEGV, NOT_CANONICAL, 0),
        ("load_nowhere", signal.SIGSEGV, UNMAPPED, 0),
        ("abort_now", signal.SIGABRT, NOTHING, 0),
        ("divide", signal.SIGFPE, NOTHING, 0),
        ("trap", signal.SIGILL, NOTHING, 0),
        ("overflow_stack", signal.SIGSEGV, UNMAPPED, 0),
    ],
)
def test_a_death_is_told(start: Started, is_hooked: bool, access: str, number: int, touched: int, offset: int) -> None:
    """Calls of the C library are left out, and those of the runner."""
    server = start(access, is_hooked=is_hooked)
    for _ in range(2):
        death = server.death()
        assert (death.outcome, death.signal, death.touched, death.offset) == (SIGNAL, number, touched, offset)
        assert death.hung == 0
        named = functions(death)
        assert named[0] == access, named
        assert named[-1] == "access_check" or access == "overflow_stack", named
        assert death.file == 0
    assert server.run(0).outcome == server.run(IN_PROCESS).outcome == SIGNAL, "other runs go on as before"


@pytest.mark.parametrize(("access", "outcome"), [("store8", DONE), ("exit_now", EXITED)])
def test_what_dies_of_no_signal_tells_nothing(start: Started, access: str, outcome: int) -> None:
    server = start(access)
    death = server.death()
    assert (death.outcome, death.signal, death.calls) == (outcome, 0, [])
    assert server.run(LOADS).outcome == outcome


@pytest.mark.parametrize("access", ["loop_for_ever", "load_for_ever"])
def test_where_a_busy_life_hangs_is_told(start: Started, access: str) -> None:
    """By the function that it is in at each look."""
    server = start(access, is_hooked=False)
    death = server.death()
    assert (death.outcome, death.signal, death.hung) == (HUNG, signal.SIGPROF, BUSY)
    named = functions(death)
    assert (named[0], named[-1]) == (access, "access_check")
    assert server.run(0).outcome == HUNG


def test_what_died_before_is_not_told_again(start: Started) -> None:
    """The access dies where the heap's first byte says so."""
    server = start("crash_if_asked")
    assert server.death(FULL).signal == 0
    server.write(0, b"\1")
    assert server.death(FULL).signal == signal.SIGSEGV
    server.write(0, b"\0")
    death = server.death(FULL)
    assert (death.outcome, death.signal, death.calls) == (DONE, 0, [])
