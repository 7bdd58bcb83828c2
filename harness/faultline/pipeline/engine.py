# SPDX-License-Identifier: Apache-2.0
"""The engine process: starting it, reading its JSON lines, stopping it. Everything that loops over crash states is on its side."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from faultline.base.cache import SCRATCH_FOLDER, hint_of_room, hint_to_install
from faultline.base.errors import EXIT_BAD_INPUT, EXIT_OK, BadInputError, InfrastructureError
from faultline.base.processes import child
from faultline.base.text import without_controls
from faultline.pipeline.events import Done, Event, Rule, Verdict

ENGINE_NAME = "faultline-engine"
_decoder = msgspec.json.Decoder(Event)
T = TypeVar("T")


class _RuleList(msgspec.Struct):
    rules: list[Rule]


class Engine:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(sysconfig.get_path("scripts")) / ENGINE_NAME

    def _command(self, arguments: Sequence[str]) -> list[str]:
        if not self.path.is_file() or not os.access(self.path, os.X_OK):
            raise InfrastructureError(
                f"{self.path}: no engine is there", hint_to_install("make setup builds it", "install faultline again")
            )
        return [str(self.path), *arguments]

    def ask(self, *arguments: str) -> str:
        """Runs a short subcommand; its stdout. Its error is passed on as ours."""
        run = subprocess.run(
            self._command(arguments),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if run.returncode != EXIT_OK:
            raise engine_error(arguments[0], run.returncode, run.stderr)
        return run.stdout

    def ask_json(self, shape: type[T], *arguments: str) -> T:
        answer = self.ask(*arguments)
        try:
            return msgspec.json.decode(answer, type=shape)
        except msgspec.MsgspecError as error:
            raise InfrastructureError(f"engine {arguments[0]}: its answer is not what was expected: {error}") from error

    def rules(self) -> list[Rule]:
        """Every rule that is judged, in order of id."""
        return self.ask_json(_RuleList, "lists").rules

    def pass_through(self, *arguments: str) -> int:
        """Runs a subcommand on our own stdout and stderr; its exit code."""
        return subprocess.run(self._command(arguments), check=False).returncode

    def seal(self, trace: Path) -> str:
        words = self.ask("seal", str(trace)).split()
        if not words:
            raise InfrastructureError(f"{trace}: the engine sealed it and printed no trace hash")
        return words[-1]

    def events(
        self, arguments: Sequence[str], handle: Callable[[Event], None], environment: Mapping[str, str] | None = None
    ) -> Verdict:
        """Runs explore or replay and hands each event to handle as it comes; the verdict of `done`, its last event. environment: of
        the target's recoveries, too; None: ours."""
        with tempfile.TemporaryFile() as errors:
            with child(self._command(arguments), subprocess.PIPE, errors, environment) as process:
                verdict = _read_events(process, handle)
                code = process.wait()
            if verdict is None:
                errors.seek(0)
                raise engine_error(arguments[0], code, errors.read().decode(errors="replace"))
        return verdict


def _read_events(process: subprocess.Popen[bytes], handle: Callable[[Event], None]) -> Verdict | None:
    assert process.stdout is not None
    verdict: Verdict | None = None
    for line in process.stdout:
        try:
            event = _decoder.decode(without_controls(line.decode(errors="replace")))
        except msgspec.MsgspecError as error:
            text = line.decode(errors="replace").strip()[:200]
            raise InfrastructureError(f"the engine said what is no event: {text!r}: {error}") from error
        handle(event)
        if isinstance(event, Done):
            verdict = event.verdict
    return verdict


LACKS_ROOM = "; free space there or choose another folder"
"""How the runner ends what it says of a full file system (runner/serve)."""
IN_SCRATCH = f" {SCRATCH_FOLDER}/"


def engine_error(subcommand: str, code: int, errors: str) -> Exception:
    """The engine's own `error:` and `hint:` lines as our error; its exit code decides the kind."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    message = next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[-1] if lines else "")
    hint = next((line.partition("hint: ")[2] for line in lines if "hint: " in line), None)
    if message.endswith(LACKS_ROOM):
        message, hint = (
            message.removesuffix(LACKS_ROOM),
            hint_of_room(SCRATCH_FOLDER if IN_SCRATCH in message else None),
        )
    if code < 0:
        return InfrastructureError(
            f"the engine died of {signal_name(-code)} in {subcommand}: {message}".rstrip(": "), hint
        )
    kind = BadInputError if code == EXIT_BAD_INPUT else InfrastructureError
    return kind(message or f"the engine ended with exit code {code} in {subcommand}", hint)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
