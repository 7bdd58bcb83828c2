# SPDX-License-Identifier: Apache-2.0
"""Child processes that Ctrl-C must reach: engines and traced targets, each in a session of its own. A terminal's Ctrl-C therefore
reaches only this process. It passes the signal on to each child once, and gives them the time they need to say what they found. If
this process is killed, the kernel passes the signal on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

STOP_GRACE_S = 5
"""After SIGINT a child has this long to end on its own; then its whole process group is killed."""
STOP_POLL_S = 0.05
WHEN_WE_DIE = ("setpriv", "--pdeathsig", "INT", "--")
"""What stands before a command (util-linux; prctl, PR_SET_PDEATHSIG): SIGINT when the thread that started it is no more, which
waits in `child` for it."""
UNLESS_WE_ARE_DEAD = ("sh", "-c", '[ "$PPID" = "$0" ] || exit 1; unset PWD OLDPWD; exec "$@"')
"""After that, with our process id: we may have died before the kernel was asked, and then there is another parent. The shell's own
variables are none of the command's."""

_running: set[subprocess.Popen[bytes]] = set()
_guard = threading.Lock()


@contextlib.contextmanager
def child(
    command: Sequence[str],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A running child; whatever is left of it and of its own children when the block ends is killed."""
    process = subprocess.Popen(
        [*WHEN_WE_DIE, *UNLESS_WE_ARE_DEAD, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        start_new_session=True,
    )
    with _guard:
        _running.add(process)
    try:
        yield process
    finally:
        with _guard:
            _running.discard(process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def interrupt_group(process: subprocess.Popen[bytes]) -> None:
    """SIGINT to a child and to all that it started in its group, and the grace to end what they started in groups of their own. The
    child may end before the others do."""
    deadline = time.monotonic() + STOP_GRACE_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        while time.monotonic() < deadline:
            time.sleep(STOP_POLL_S)
            process.poll()
            os.killpg(process.pid, 0)


def interrupt_all() -> None:
    """SIGINT to every running child, SIGKILL to those that are still there after the grace."""
    with _guard:
        running = list(_running)
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
    threading.Thread(target=_kill_later, args=(running,), daemon=True).start()


def _kill_later(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_GRACE_S)
        with _guard:
            is_running = process in _running and process.returncode is None
        if is_running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
